"""Four mixed calls in one step: in whatever order and however many streams they are answered, one thing comes out."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, verify
from tests.adapters.adk.test_recent_history import LONG, put, small_talk

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    Answer,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    accept,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

ORDERS = list(itertools.permutations(("look", "write", "delete", "input")))
"""A tool of the host, one of the agent, one that wants a confirmation, a question of the agent's own."""

WITH_ASK = [tuple("ask" if name == "input" else name for name in order) for order in ORDERS]
"""The same with a tool that asks from inside, once it was granted, in the place of the question."""

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

        return [write, FunctionTool(delete, require_confirmation=True), ask, request_input]


def step(order: tuple[str, ...]) -> Any:
    last = call("ask", id="c4") if "ask" in order else call("adk_request_input", {"message": "Where?"}, id="c4")
    return calls(
        call("look", {"n": 1}, id="c1"),
        call("write", {"text": "draft"}, id="c2"),
        call("delete", {"path": "x"}, id="c3"),
        last,
    )


def answer(desk: Driven, name: str) -> Answer:
    if name == "look":
        return result(desk.pending("look"), {"lines": 3})
    if name == "write":
        return grant(desk.pending("write"), {"text": "final"})
    if name == "ask":
        return grant(desk.pending("ask"))
    if name == "input":
        return accept(desk.pending("clarification"), {"city": "Rome"})
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
    root = agent(step(order), say("all done"), tools=ran.tools())
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
        return turn.reason, turn.texts, history(root.model), sorted(ran.calls, key=str), desk.responses()


def assert_whole(made: Any) -> None:
    """Everything was answered, and each tool ran once with what was allowed."""
    reason, said, _, ran, responses = made
    asks = "ask" in responses
    assert (reason, said) == ("completed", ["all done"])
    assert ran == [*([("ask", True)] if asks else []), ("delete", "x"), ("write", "final")]
    assert responses == dict.fromkeys(["look", "write", "delete", *(["ask"] if asks else [])], "completed")


@pytest.mark.rule("TOOL-06", "TOOL-07", "TOOL-08", "TOOL-11", "HITL-03")
@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("orders", [ORDERS, WITH_ASK[::5]], ids=["input", "ask"])
async def test_every_order_of_answers_has_one_outcome(orders: list[tuple[str, ...]], split: tuple[int, ...]) -> None:
    expected = await outcome(orders[0], (4,))
    assert_whole(expected)
    for order in orders:
        assert await outcome(order, split) == expected, order


@pytest.mark.rule("TOOL-07", "TOOL-08")
async def test_orders_have_the_same_outcome_when_host_calls_are_parked(tmp_path: Path) -> None:
    expected = await outcome(WITH_ASK[0], (4,))
    for number, order in enumerate(WITH_ASK[::3]):
        service = SqliteSessionService(str(tmp_path / f"{number}.db"))
        made = await outcome(order, SPLITS[number % len(SPLITS)], parked=True, session_service=service)
        assert made == expected, order


def with_restarts(place: Path, ran: Ran, first: Any) -> Any:
    """Opens, and after that loads, the same session in executors that share only what is on disk."""
    service = SqliteSessionService(str(place))
    store = MemoryRecordStore()
    models: list[Any] = []

    @asynccontextmanager
    async def visit() -> AsyncIterator[Driven]:
        # A model that was called plays its script on in the next executor.
        root = agent(*([first] if not models else []), say("all done"), tools=ran.tools())
        models.append(root.model)
        options = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            session = await (executor.open(options) if len(models) == 1 else executor.load("s1", options))
            desk = Driven(executor, session)
            yield desk
            verify(session)

    visit.models = models  # type: ignore[attr-defined]
    return visit


async def outcome_over_restarts(order: tuple[str, ...], split: tuple[int, ...], place: Path, how: str) -> Any:
    """Each group of answers is given to another executor, by ``stream`` or by ``respond`` alone."""
    ran = Ran()
    visit = with_restarts(place, ran, step(order))
    left = list(order)
    async with visit() as desk:
        turn = await desk.stream("go")
        assert turn.reason == "input_required"
        assert "volatile" not in (turn.end.data or {})
    for size in split:
        chosen, left = left[:size], left[size:]
        async with visit() as desk:
            answers = [answer(desk, name) for name in chosen]
            if how == "respond":
                receipts = await desk.session.respond(*answers)
                assert [receipt.status for receipt in receipts] == ["applied"] * size
            else:
                turn = await desk.stream(answers)
    async with visit() as desk:
        if how == "respond":
            turn = await desk.stream()
        while turn.reason == "input_required":  # what ``ask`` asks once it was granted
            turn = await desk.stream(accept(_question(desk, "ask")))
        model = next(model for model in reversed(visit.models) if model.requests)
        assert_valid_history(model)
        return turn.reason, turn.texts, history(model), sorted(ran.calls, key=str), desk.responses()


@pytest.mark.rule("TOOL-07", "TOOL-08", "PER-01", "HITL-03", "HITL-04")
@pytest.mark.parametrize("how", ["stream", "respond"])
@pytest.mark.parametrize("split", [(1, 1, 1, 1), (2, 2), (4,)], ids=str)
@pytest.mark.parametrize("orders", [ORDERS, WITH_ASK[::6]], ids=["input", "ask"])
async def test_every_order_of_answers_has_one_outcome_when_the_process_ends_between_them(
    orders: list[tuple[str, ...]], split: tuple[int, ...], how: str, tmp_path: Path
) -> None:
    expected = await outcome(orders[0], (4,))
    for number, order in enumerate(orders):
        made = await outcome_over_restarts(order, split, tmp_path / f"{number}.db", how)
        assert made == expected, order


def tell(n: int) -> str:
    """Tell."""
    return f"tell {n}"


@pytest.mark.rule("TOOL-07", "TOOL-11", "PER-01")
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("order", [(1, 2, 3, 4), (2, 1, 4, 3), (4, 3, 2, 1)], ids=str)
async def test_a_model_reads_the_results_of_a_step_in_the_order_of_its_calls(
    order: tuple[int, ...], restarts: bool, parked: bool, tmp_path: Path
) -> None:
    """ADK shows the model none of the ids that it made itself: by their order alone it knows whose a result is."""
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    made = [call("look", {"n": 1}), call("tell", {"n": 2}), call("look", {"n": 3}), call("tell", {"n": 4})]
    root = agent(calls(*made), say("done"), say("and again"), tools=[tell])
    options = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))

    @asynccontextmanager
    async def visit(*, opens: bool = False) -> AsyncIterator[Driven]:
        async with AdkExecutor(root, session_service=service, store=store, parked=parked) as executor:
            yield Driven(executor, await (executor.open(options) if opens else executor.load("s1", options)))

    def given(desk: Driven, n: int) -> Answer:
        (asked,) = [item for item in desk.session.pending if isinstance(item, ToolRequest) and item.args == {"n": n}]
        return grant(asked.request_id) if asked.name == "tell" else result(asked.request_id, f"look {n}")

    async with visit(opens=True) as desk:
        await desk.stream("go")
        for n in () if restarts else order:
            await desk.stream(given(desk, n))
    for n in order if restarts else ():
        async with visit() as desk:
            await desk.stream(given(desk, n))
    async with visit() as desk:
        await put(desk, small_talk(LONG))  # the step is among the older events, which are kept apart
        assert (await desk.stream("once more")).texts == ["and again"]
    for shown in (history(root.model, 1), history(root.model, 2)):
        results = [text for kind, text in shown if kind.startswith("result")]
        assert results == [f'{{"result": "{name} {n}"}}' for n, name in enumerate(("look", "tell") * 2, 1)]
        assert "None" in shown[1][0]
