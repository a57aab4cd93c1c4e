"""How agents that leave say so in their ``agent_end``: by ADK's ``escalate``, or by a hand-over. Live and rebuilt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.genai import types
from tests.adapters.adk.driving import Driven, agent, driven, host_tool
from tests.adapters.adk.trees import End, by_hand, ends, loop, parallel, sequential

from agentsession.adapters.adk import AdkExecutor, call, calls, error, map_events, say
from agentsession.protocol import (
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    result,
)

pytestmark = pytest.mark.anyio


async def rebuilt(desk: Driven) -> list[End]:
    """Those of the record that is made again from what ADK's service has."""
    found = await desk.executor.session_service.get_session(
        app_name=desk.executor.descriptor.name, user_id="local", session_id=desk.session.session_id
    )
    assert found is not None
    return ends(list(map_events(found.events)))


def escalated(name: str, thread: str | None = None) -> End:
    return (name, thread, "completed", {"escalate": True})


def handed(name: str, to: str, thread: str | None = None) -> End:
    return (name, thread, "handoff", {"to": to})


class Checker(BaseAgent):
    """An agent of one's own that stops the loop around it, without a word."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        yield by_hand(self.name, ctx.invocation_id, actions=EventActions(escalate=True))


class Twice(BaseAgent):
    """An agent of one's own that runs its child two times."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        for _ in range(2):
            async for event in self.sub_agents[0].run_async(ctx):
                yield event


def leaves(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    """An agent that calls ``exit_loop`` at the end of its script."""
    return agent(*steps, call("exit_loop"), name=name, tools=[exit_loop], **fields)


def transfers(to: str) -> Any:
    return call("transfer_to_agent", {"agent_name": to})


def with_last_words(callback_context: CallbackContext) -> types.Content:
    """An ``after_agent_callback`` that escalates while it speaks."""
    callback_context.actions.escalate = True
    return types.Content(role="model", parts=[types.Part(text="that is all")])


def chain() -> LlmAgent:
    """Root hands over to one, which hands over to two."""
    two = agent(say("done"), name="two")
    one = agent(transfers("two"), name="one", sub_agents=[two])
    return agent(transfers("one"), sub_agents=[one])


SCENARIOS: dict[str, tuple[Callable[[], Any], list[End]]] = {
    "the last agent of the run": (lambda: leaves("root"), [escalated("root")]),
    "an agent that others follow": (
        lambda: sequential(loop(leaves("a", say("hm"))), agent(say("after"), name="b"), name="root"),
        [escalated("a")],
    ),
    "an agent that says nothing": (
        lambda: loop(agent(say("draft"), name="writer"), Checker(name="check"), name="root"),
        [escalated("check")],
    ),
    "an agent with last words": (
        lambda: loop(agent(say("done"), name="a", after_agent_callback=with_last_words), name="root"),
        [escalated("a")],
    ),
    "a branch": (
        lambda: parallel(leaves("a"), agent(say("b"), name="b"), name="root"),
        [escalated("a", "root.a")],
    ),
    "only the round that escalated": (
        lambda: loop(agent(say("1"), say("2"), name="a"), leaves("b", say("again")), name="root"),
        [escalated("b")],
    ),
    "an agent that is run again": (
        lambda: Twice(name="root", sub_agents=[agent(call("exit_loop"), say("2"), name="a", tools=[exit_loop])]),
        [escalated("a")],
    ),
    "hand-overs one after the other": (chain, [handed("root", "one"), handed("one", "two")]),
    "neither": (lambda: sequential(agent(say("1"), name="a"), agent(say("2"), name="b"), name="root"), []),
}


@pytest.mark.rule("LIFE-16")
@pytest.mark.parametrize("name", SCENARIOS)
async def test_an_end_says_that_its_agent_escalated_or_to_whom_it_handed_over(name: str) -> None:
    make, expected = SCENARIOS[name]
    async with driven(make()) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert ends(desk.session.record) == expected
        assert await rebuilt(desk) == expected


@pytest.mark.rule("LIFE-16")
async def test_an_agent_that_waits_beside_its_exit_ends_when_the_answer_has_come() -> None:
    root = agent(calls(call("look", id="c1"), call("exit_loop")), tools=[exit_loop])
    async with driven(root, tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert (paused.reason, ends(desk.session.record)) == ("input_required", [])
        assert (await desk.stream(result(desk.pending("look"), 1))).reason == "completed"
        assert ends(desk.session.record) == [escalated("root")] == await rebuilt(desk)


@pytest.mark.rule("LIFE-16")
@pytest.mark.parametrize("parked", [False, True])
async def test_an_agent_that_waits_beside_its_hand_over_ends_when_the_answer_has_come(parked: bool) -> None:
    other = agent(say("mine"), name="other")
    root = agent(calls(call("look", id="c1"), transfers("other")), say("mine?"), sub_agents=[other])
    async with driven(root, tools=[host_tool("look")], parked=parked) as desk:
        paused = await desk.stream("go")
        assert (paused.reason, ends(desk.session.record)) == ("input_required", [])
        assert (await desk.stream(result(desk.pending("look"), 1))).texts == ["mine"]
        assert ends(desk.session.record) == [handed("root", "other")] == await rebuilt(desk)


@pytest.mark.rule("LIFE-16", "PER-01")
@pytest.mark.parametrize("restarts", [False, True])
async def test_an_agent_that_escalated_before_it_waited_says_so_when_it_ends(restarts: bool, tmp_path: Path) -> None:
    def stop(tool_context: Any) -> str:
        """Stop the loop after this round."""
        tool_context.actions.escalate = True
        return "stopping"

    root = agent(call("stop"), call("look", id="c1"), say("done"), tools=[stop])
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    options = OpenOptions(
        session_id="s", execution=ExecutionOptions(tools=[host_tool("look")], host_tool_execution=False)
    )
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(options))
        assert (await desk.stream("go")).reason == "input_required"
        if not restarts:
            await desk.stream(result(desk.pending("look"), 1))
            assert ends(desk.session.record) == [escalated("root")] == await rebuilt(desk)
            return
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s", options))
        await desk.stream(result(desk.pending("look"), 1))
        assert ends(desk.session.record) == [escalated("root")] == await rebuilt(desk)


async def test_the_next_turn_does_not_remember_it() -> None:
    async with driven(agent(call("exit_loop"), say("hello"), tools=[exit_loop])) as desk:
        await desk.turn("go")
        await desk.turn("again")
        assert ends(desk.session.record) == [escalated("root")] == await rebuilt(desk)


async def test_an_agent_that_escalated_and_then_failed_has_failed() -> None:
    def stop(tool_context: Any) -> str:
        """Stop the loop after this round."""
        tool_context.actions.escalate = True
        return "stopping"

    root = agent(call("stop"), error("SAFETY", "no"), say("hello"), tools=[stop])
    async with driven(root) as desk:
        assert (await desk.turn("go")).reason == "refusal"
        assert (await desk.turn("again")).texts == ["hello"]
        assert ends(desk.session.record) == [] == await rebuilt(desk)


async def test_agents_behind_an_agent_tool_say_it_on_their_threads() -> None:
    """ADK keeps nothing of them, so only the live record has it."""
    inner = parallel(leaves("a"), agent(say("b"), name="b"), name="inner")
    root = agent(call("inner", {"request": "do it"}), say("done"), tools=[AgentTool(inner)])
    async with driven(root) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert ends(desk.session.record) == [escalated("a", "inner.inner.a")]
