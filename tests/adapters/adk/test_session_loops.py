"""ADK agents that go in circles: told in the way of a steer, in every tree, and stopped at the second loop."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    model_calls,
    texts,
    verify,
)
from tests.adapters.adk.shapes import pipeline, plant

from agentsession.adapters.adk import ScriptedLlm, call, say, stream
from agentsession.protocol import Error, HookOutcome, HookPayload, Message, StreamEnd, ToolAnnotations, ToolResponse

pytestmark = pytest.mark.anyio

WATCHED = {"loop_detection": True, "host_tool_execution": False}
SENTENCE = "I will now look at the file and see what is wrong with it. "


def look() -> str:
    """Look."""
    return "nothing"


def notes(desk: Driven) -> list[Message]:
    return [event for event in desk.session.record if isinstance(event, Message) and event.source == "host"]


def check_stopped(desk: Driven) -> None:
    """The last turn was stopped for going in circles, once, with one error, and left nothing open."""
    turn_id = next(event.turn_id for event in reversed(desk.session.record) if event.turn_id is not None)
    turn = [event for event in desk.session.record if event.turn_id == turn_id]
    ends = [event for event in turn if isinstance(event, StreamEnd) and event.reason != "input_required"]
    assert [(end.reason, end.data) for end in ends] == [("failed", {"cause": "LOOP_DETECTED"})]
    assert [(told.code, told.fatal) for told in turn if isinstance(told, Error)] == [("LOOP_DETECTED", False)]
    assert (desk.session.state, list(desk.session.pending)) == ("idle", [])
    verify(desk.session)


async def test_a_tool_of_the_agents_that_may_repeat_is_not_looked_at() -> None:
    poll = FunctionTool(look)
    poll.custom_metadata = {"may_repeat": True}
    root = agent(*[call("look") for _ in range(14)], say("done"), tools=[poll])
    async with driven(root, execution=WATCHED) as desk:
        await desk.turn("go")
        assert (notes(desk), model_calls(root)) == ([], 15)


@pytest.mark.parametrize("shape", ["plain", "sequential", "loop", "handoff", "workflow", "custom"])
async def test_an_agent_of_any_tree_is_told_once_and_then_stopped(shape: str) -> None:
    planted = plant(shape, *[call("look") for _ in range(30)], tools=[look])
    async with driven(planted.root, execution=WATCHED) as desk:
        await desk.turn("go")
        check_stopped(desk)
        assert desk.responses()["look"] == " ".join(["completed"] * 10)
        (note,) = notes(desk)
        told = [("user", *texts([note])) in history(planted.models[0], number) for number in range(10)]
        assert told == [False] * 5 + [True] * 5
        planted.models[0].script.clear()
        assert "fresh" in (await desk.turn("again")).texts
        planted.check_histories()


async def test_tools_of_the_host_in_circles_are_found_over_pauses() -> None:
    root = agent(*[call("look") for _ in range(30)])
    async with driven(root, tools=[host_tool("look")], execution=WATCHED) as desk:
        await desk.turn("go")
        check_stopped(desk)
        assert model_calls(root) == 10


async def test_a_branch_is_told_and_its_sibling_is_not() -> None:
    left = LlmAgent(name="left", model=ScriptedLlm(script=[call("look")] * 5, forever=say("left")), tools=[look])
    right = LlmAgent(
        name="right",
        model=ScriptedLlm(script=[call("dig", {"at": number}) for number in range(9)], forever=say("right")),
        tools=[dig],
    )
    async with driven(pipeline(ParallelAgent, left, right), execution=WATCHED) as desk:
        turn = await desk.turn("go")
        assert turn.reason == "completed"
        (note,) = notes(desk)
        assert (note.agent_id, note.thread_id is None) == ("left", False)
        assert ("user", *texts([note])) in history(left.model)
        assert ("user", *texts([note])) not in history(right.model)


def dig(at: int) -> str:
    """Dig."""
    return f"dug {at}"


async def test_the_agent_of_a_tool_is_told_in_its_own_session() -> None:
    child = LlmAgent(name="child", model=ScriptedLlm(script=[call("look")] * 5, forever=say("done")), tools=[look])
    root = agent(call("child", {"request": "x"}), say("fresh"), tools=[AgentTool(child)])
    async with driven(root, execution=WATCHED) as desk:
        assert (await desk.turn("go")).reason == "completed"
        (note,) = notes(desk)
        assert ("user", *texts([note])) in history(child.model)
        assert ("user", *texts([note])) not in history(root.model)
        assert_valid_history(child.model)


async def test_text_in_circles_is_cut_off_in_its_middle() -> None:
    root = agent(stream(*[SENTENCE] * 400), say("fresh"))
    async with driven(root, execution=WATCHED) as desk:
        await desk.turn("go")
        check_stopped(desk)
        assert len("".join(texts([event for event in desk.session.record if _is_answer(event)]))) < 5_000
        assert (await desk.turn("again")).texts == ["fresh"]
        assert_valid_history(root.model)


def _is_answer(event: Any) -> bool:
    return isinstance(event, Message) and event.role == "agent" and not event.partial


async def test_a_tool_that_may_repeat_is_let_be() -> None:
    poll = host_tool("look", annotations=ToolAnnotations(may_repeat=True))
    root = agent(*[call("look") for _ in range(25)], say("done"))
    async with driven(root, tools=[poll], execution=WATCHED) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert notes(desk) == []


async def test_hooks_on_what_a_person_says_are_not_asked_about_what_the_session_says() -> None:
    seen: list[str] = []

    class Seen:
        async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
            if hook_point == "on_user_message":
                seen.append(hook_point)
            return None

    root = agent(*[call("look") for _ in range(5)], say("done"), tools=[look])
    async with driven(root, execution=WATCHED, hooks=Seen()) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert len(notes(desk)) == 1
        assert seen == ["on_user_message"]
        assert [event.status for event in desk.session.record if isinstance(event, ToolResponse)] == ["completed"] * 5
