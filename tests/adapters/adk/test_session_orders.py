"""Four mixed calls in one step: in whatever order and however many streams they are answered, one thing comes out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool

from agentsession.adapters.adk import call, calls, say
from agentsession.protocol import Answer, accept, grant, result

pytestmark = pytest.mark.anyio

ORDERS = list(itertools.permutations(("look", "write", "delete", "ask")))
SPLITS = ((1, 1, 1, 1), (2, 2), (4,), (1, 3))


class Ran:
    """How often each tool of the agent ran, and with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def tools(self) -> list[Any]:
        def write(text: str) -> str:
            self.calls.append(("write", text))
            return f"wrote {text}"

        def delete(path: str) -> str:
            self.calls.append(("delete", path))
            return f"deleted {path}"

        def ask(tool_context: ToolContext) -> Any:
            if tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="Really?")
                return {"status": "asked"}
            self.calls.append(("ask", tool_context.tool_confirmation.confirmed))
            return "asked and told"

        return [write, FunctionTool(delete, require_confirmation=True), ask]


def step() -> Any:
    return calls(
        call("look", {"n": 1}, id="c1"),
        call("write", {"text": "draft"}, id="c2"),
        call("delete", {"path": "x"}, id="c3"),
        call("ask", id="c4"),
    )


def answer(desk: Driven, name: str) -> Answer:
    if name == "look":
        return result(desk.pending("look"), {"lines": 3})
    if name == "write":
        return grant(desk.pending("write"), {"text": "final"})
    if name == "ask":
        return grant(desk.pending("ask"))
    # The question about ``delete`` is told from the one of ``ask`` by the tool it is about.
    return accept(_question(desk, "delete"))


def _question(desk: Driven, tool: str) -> str:
    request_ids = {event.request_id for event in desk.session.record if getattr(event, "name", None) == tool}  # type: ignore[attr-defined]
    (found,) = [
        item.request_id for item in desk.session.pending if getattr(item, "tool_request_id", None) in request_ids
    ]
    return found


async def outcome(order: tuple[str, ...], split: tuple[int, ...], **executor: Any) -> Any:
    ran = Ran()
    root = agent(step(), say("all done"), tools=ran.tools())
    async with driven(root, tools=[host_tool("look")], **executor) as desk:
        turn = await desk.stream("go")
        left = list(order)
        for size in split:
            assert turn.reason == "input_required"
            chosen, left = left[:size], left[size:]
            turn = await desk.stream([answer(desk, name) for name in chosen])
        while turn.reason == "input_required":  # what ``ask`` asks once it was granted
            turn = await desk.stream(accept(_question(desk, "ask")))
        assert_valid_history(root.model)
        return turn.reason, turn.texts, sorted(history(root.model)), sorted(ran.calls, key=str), desk.responses()


@pytest.mark.rule("TOOL-06", "TOOL-07", "TOOL-08", "TOOL-11", "HITL-03")
@pytest.mark.parametrize("split", SPLITS, ids=str)
async def test_every_order_of_answers_has_one_outcome(split: tuple[int, ...]) -> None:
    expected = await outcome(ORDERS[0], (4,))
    assert expected[:2] == ("completed", ["all done"])
    assert expected[3] == [("ask", True), ("delete", "x"), ("write", "final")]
    assert expected[4] == {"look": "completed", "write": "completed", "delete": "completed", "ask": "completed"}
    for order in ORDERS:
        assert await outcome(order, split) == expected, order


@pytest.mark.rule("TOOL-07", "TOOL-08")
async def test_orders_have_the_same_outcome_when_host_calls_are_parked(tmp_path: Any) -> None:
    expected = await outcome(ORDERS[0], (4,))
    for number, order in enumerate(ORDERS[::3]):
        service = SqliteSessionService(str(tmp_path / f"{number}.db"))
        made = await outcome(order, SPLITS[number % len(SPLITS)], parked=True, session_service=service)
        assert made == expected, order
