"""Steers and updates in the middle of a turn, in every shape of tree, and over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, verify
from tests.adapters.adk.shapes import SHAPES, plant

from agentsession.adapters.adk import AdkExecutor, call, say
from agentsession.protocol import (
    ExecutionOptions,
    Media,
    MemoryRecordStore,
    Message,
    OpenOptions,
    SessionConfig,
    Text,
    result,
)

pytestmark = pytest.mark.anyio

TOOLS = ExecutionOptions(tools=[host_tool("look"), host_tool("find")])
CHILDREN = ("child", "grandchild")


def heard(planted: Any) -> list[str]:
    """Each model call, by the agent's place in ``planted``, that was shown the steer."""
    return [
        f"{place}.{number}"
        for place, model in enumerate(planted.models)
        for number in range(len(model.requests))
        if ("user", "be brief") in history(model, number)
    ]


@pytest.mark.rule("CTL-06")
@pytest.mark.parametrize("shape", SHAPES)
async def test_steers_while_a_turn_waits_are_read_once_by_the_next_model_call(shape: str) -> None:
    picture = Media(data="iVBORw==", mime_type="image/png")
    planted = plant(shape, call("look", id="c1"))
    async with driven(planted.root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        receipts = [await desk.session.steer("be brief"), await desk.session.steer([Text(text="as here"), picture])]
        assert [receipt.status for receipt in receipts] == ["queued", "queued"]
        turn = await desk.stream(result(desk.pending("look"), 1))
        assert turn.reason == "completed"
        said = [event for event in desk.session.record if isinstance(event, Message) and event.source == "user"]
        assert [event.message_id for event in said[1:]] == [receipt.request_id for receipt in receipts]
        assert said[2].content == [Text(text="as here"), picture]
        # The agent of a tool works on what its caller asked; the caller hears what the person says.
        first = f"{1 if shape == 'child' else 2}.1" if shape in CHILDREN else "0.1"
        assert heard(planted)[0] == first
        parts = [part for content in planted.models[int(first[0])].requests[1].contents for part in content.parts or []]
        assert [part.inline_data.mime_type for part in parts if part.inline_data] == ["image/png"]
        planted.check_histories()


@pytest.mark.rule("CTL-07")
@pytest.mark.parametrize("shape", SHAPES)
async def test_an_update_holds_in_every_agent_from_its_next_model_call_on(shape: str) -> None:
    planted = plant(shape, call("look", id="c1"), say("one"))
    async with driven(planted.root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        before = [len(model.requests) for model in planted.models]
        config = SessionConfig(model="other", tools=[host_tool("find")])
        assert (await desk.session.update(config)).status == "applied"
        # The call that waits is of a tool that the host has taken back; it is still the host's to answer.
        assert (await desk.stream(result(desk.pending("look"), 1))).reason == "completed"
        await desk.turn("again")
        for model, made in zip(planted.models, before, strict=True):
            later = model.requests[made:]
            assert {request.model for request in later} <= {"other"}
            assert all("find" in request.tools_dict and "look" not in request.tools_dict for request in later)
        assert len(planted.models[0].requests) > before[0]
        planted.check_histories()


@pytest.mark.rule("CTL-07")
async def test_state_that_is_updated_with_a_prefix_goes_to_its_scope() -> None:
    seen: list[dict[str, Any]] = []

    def work(tool_context: ToolContext) -> str:
        """Look at the state."""
        seen.append(tool_context.state.to_dict())
        return "ok"

    root = agent(call("look", id="c1"), call("work", id="c2"), say("done"), tools=[work])
    async with driven(root, tools=[host_tool("look")], execution={"host_tool_execution": False}) as desk:
        await desk.stream("go")
        given = {"app:a": 1, "user:b": 2, "temp:c": 3, "d": 4}
        await desk.session.update(SessionConfig(state=given))
        await desk.stream(result(desk.pending("look"), 1))
        assert {name: seen[0].get(name) for name in given} == given
        other = await desk.executor.session_service.create_session(app_name="root", user_id="somebody else")
        assert {name: other.state.get(name) for name in given} == {
            "app:a": 1,
            "user:b": None,
            "temp:c": None,
            "d": None,
        }


@pytest.mark.rule("CTL-06", "CTL-07", "PER-02")
async def test_a_steer_and_an_update_that_no_model_call_has_seen_survive_the_process(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(call("look", id="c1")), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1", execution=TOOLS)))
        await desk.stream("go")
        await desk.session.steer("be brief")
        await desk.session.update(SessionConfig(state={"city": "Rome"}))
    seen: list[Any] = []

    def work(tool_context: ToolContext) -> str:
        """Look at the state."""
        seen.append(tool_context.state.get("city"))
        return "ok"

    root = agent(call("work", id="c2"), say("done"), tools=[work])
    options = OpenOptions(execution=TOOLS.model_copy(update={"host_tool_execution": False}))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", options))
        assert (await desk.stream(result(desk.pending("look"), 1))).texts == ["done"]
        assert history(root.model, 0)[-1] == ("user", "be brief")
        assert seen == ["Rome"]
        said = [event for event in desk.session.record if isinstance(event, Message) and event.source == "user"]
        assert len(said) == 2
        assert_valid_history(root.model)
        verify(desk.session)
