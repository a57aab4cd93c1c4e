"""The AG-UI application on a real server: runs of scripted agents, from the first word to the outcome."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest
from tests.host.agui.inputs import tool_message
from tests.host.agui.serving import Poster, outcome, serving
from tests.host.agui.streams import kinds, of_type

from agentsession.adapters.scripted import Call, Calls, Deltas, Say, ScriptedExecutor
from agentsession.host.agui import agui_app
from agentsession.host.agui._app_folded import Folded, FoldedSessions
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import InvalidInput, MessageInput

pytestmark = pytest.mark.anyio

TOOL = {"name": "shape", "description": "Show a shape", "parameters": {"type": "object"}}


@contextlib.asynccontextmanager
async def posting(script: Sequence[Sequence[Any]], **options: Any) -> AsyncGenerator[Poster]:
    executor = ScriptedExecutor(script)
    with anyio.fail_after(20):
        async with (
            LiveSessions([ServedAgent("scripted", executor)]) as sessions,
            serving(agui_app(sessions, **options)) as url,
            Poster(url) as poster,
        ):
            yield poster


async def test_a_message_is_answered_in_text() -> None:
    async with posting([[Deltas(["Hel", "lo"])], [Say("Again.")]]) as poster:
        events = await poster.say("u1", "hi")
        assert kinds(events)[0] == "RUN_STARTED"
        assert outcome(events) == {"type": "success"}
        assert "".join(event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT")) == "Hello"
        await poster.say("u2", "hi again")
        assert [message["role"] for message in poster.client.messages] == ["user", "assistant", "user", "assistant"]


async def test_a_clients_tool_is_asked_for_and_its_result_goes_on() -> None:
    script = [[Call("shape", {"sides": 3}, id="c1"), Say("Drawn.")]]
    async with posting(script) as poster:
        events = await poster.say("u1", tools=[TOOL])
        assert outcome(events) == {"type": "success", "pendingToolCallIds": ["c1"]}
        events = await poster.run(tool_message("c1", "a triangle"), is_resumed=True, tools=[TOOL])
        assert outcome(events) == {"type": "success"}
        assert of_type(events, "TEXT_MESSAGE_CONTENT")[0]["delta"] == "Drawn."


@pytest.mark.parametrize(("payload", "ran"), [({"approved": True}, [{"path": "a"}]), ({"approved": False}, [])])
async def test_an_interrupt_is_answered(payload: Any, ran: list[Any]) -> None:
    done: list[Any] = []
    script = [[Call("wipe", {"path": "a"}, needs="grant", run=done.append, id="c1"), Say("Over.")]]
    async with posting(script) as poster:
        events = await poster.say("u1")
        (interrupt,) = outcome(events)["interrupts"]
        assert interrupt["toolCallId"] == "c1"
        events = await poster.answer(("c1", payload))
        assert outcome(events) == {"type": "success"}
        assert done == ran


async def test_parallel_calls_are_answered_one_by_one() -> None:
    calls = Calls(*(Call("shape", {"sides": n}, id=f"c{n}") for n in (1, 2, 3)))
    async with posting([[calls, Say("Drawn.")]]) as poster:
        await poster.say("u1", tools=[TOOL])
        events = await poster.run(tool_message("c2", "two"), is_resumed=True)
        assert outcome(events) == {"type": "success", "pendingToolCallIds": ["c1", "c3"]}
        events = await poster.run(tool_message("c1", "", error="broken"), tool_message("c3"), is_resumed=True)
        assert outcome(events) == {"type": "success"}


async def test_a_run_that_fails_before_the_record_was_read_says_nothing_of_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable(self: FoldedSessions, live: object) -> Folded:
        raise OSError("the record cannot be read")

    monkeypatch.setattr(FoldedSessions, "of", unreadable)
    async with posting([[Say("never")]]) as poster:
        events = await poster.say("u1", state={"city": "Bern"})
        assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]


async def test_a_message_that_the_agent_cannot_take_is_no_conflict_and_its_secret_is_not_told() -> None:
    class Deaf(ScriptedExecutor):
        def check_message(self, message: MessageInput) -> None:
            raise InvalidInput("no pictures, and no api_key=sk-0123456789abcdef0123456789")

    with anyio.fail_after(20):
        async with (
            LiveSessions([ServedAgent("scripted", Deaf([[Say("never")]]))]) as sessions,
            serving(agui_app(sessions)) as url,
            Poster(url) as poster,
        ):
            events = await poster.say("u1")
    assert outcome(events) == "invalid_input"
    assert "no pictures" in events[-1]["message"]
    assert "0123456789abcdef" not in str(events)
