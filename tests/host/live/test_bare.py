"""Sessions that stay open, with the client as the host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from agentsession.adapters.scripted import Ask, Call, Calls, Delay, Say, ScriptedExecutor, Step
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent, TooManySessions
from agentsession.protocol import (
    ConfigurationError,
    InvalidInput,
    Message,
    MessageInput,
    OpenOptions,
    SessionExists,
    SessionNotFound,
    StreamActive,
    StreamEnd,
    accept,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio

SCRIPT: Sequence[Sequence[Step]] = [[Say("One.")], [Say("Two.")], [Say("Three.")]]


@pytest.fixture
async def sessions() -> AsyncIterator[LiveSessions]:
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(SCRIPT))]) as sessions:
        yield sessions


async def whole(live: LiveSession, cursor: int, stream_id: str) -> list[str]:
    """What is said in a stream, to its end."""
    said: list[str] = []
    async for event in live.events(after=cursor, follow=True, stream_id=stream_id):
        if isinstance(event, Message) and not event.partial and event.role == "agent":
            said.append(plain_text(event.content))
        if isinstance(event, StreamEnd):
            said.append(event.reason)
            break
    return said


async def test_a_stream_goes_on_whoever_reads_it(sessions: LiveSessions) -> None:
    live = await sessions.open("agent", "ann")
    started = await live.stream("go")
    assert await whole(live, started.cursor, started.stream_id) == ["One.", "completed"]
    assert not live.is_hosted


async def test_a_message_sent_again_is_attached_to_its_stream(sessions: LiveSessions) -> None:
    live = await sessions.open("agent", "ann")
    message = MessageInput.model_validate({"content": "go", "idempotency_key": "k"})
    first = await live.stream(message)
    await live.at_rest()
    again = await live.stream(message)
    assert again.stream_id == first.stream_id
    assert await whole(live, again.cursor, again.stream_id) == ["One.", "completed"]


async def test_a_session_is_its_users_alone(sessions: LiveSessions) -> None:
    live = await sessions.open("agent", "ann", OpenOptions(session_id="s", user_id="bob"))
    assert live.key.user_id == "ann"
    with pytest.raises(SessionNotFound):
        await sessions.get("agent", "bob", "s")
    other = await sessions.open("agent", "bob", OpenOptions(session_id="s"))
    assert other is not live
    assert await sessions.get("agent", "ann", "s") is live


async def test_an_id_that_is_taken_is_refused_and_one_that_cannot_be_too(sessions: LiveSessions) -> None:
    await sessions.open("agent", "ann", OpenOptions(session_id="s"))
    with pytest.raises(SessionExists):
        await sessions.open("agent", "ann", OpenOptions(session_id="s"))
    with pytest.raises(InvalidInput):
        await sessions.get("agent", "ann", "../s")
    with pytest.raises(SessionNotFound):
        await sessions.get("nobody", "ann", "s")


async def test_a_closed_session_is_loaded_at_the_next_call_and_many_calls_load_it_once(sessions: LiveSessions) -> None:
    live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
    started = await live.stream("go")
    await whole(live, started.cursor, started.stream_id)
    await sessions.close(live)
    found: list[LiveSession] = []

    async def get() -> None:
        found.append(await sessions.get("agent", "ann", "s"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(get)
    assert len({id(each) for each in found}) == 1
    assert found[0] is not live
    second = await found[0].stream("more")
    assert await whole(found[0], second.cursor, second.stream_id) == ["Two.", "completed"]


async def test_an_idle_session_is_closed_and_one_that_is_held_is_not() -> None:
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(SCRIPT))], idle_s=0.05) as sessions:
        held = await sessions.open("agent", "ann")
        idle = await sessions.open("agent", "ann")
        with held.hold(), anyio.fail_after(10):
            while idle.state != "closed":
                await anyio.sleep(0.01)
            assert held.state != "closed"
        assert await sessions.get("agent", "ann", idle.session_id) is not idle


async def test_the_one_that_was_longest_not_used_makes_room_and_without_one_there_is_none() -> None:
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(SCRIPT))], max_open=2) as sessions:
        first = await sessions.open("agent", "ann")
        second = await sessions.open("agent", "ann")
        with second.hold():
            third = await sessions.open("agent", "ann")
            assert first.state == "closed"
            with third.hold(), pytest.raises(TooManySessions):
                await sessions.open("agent", "ann")


async def test_a_waiting_turn_goes_on_after_its_session_was_closed() -> None:
    script: Sequence[Sequence[Step]] = [[Ask("Where?", schema={"type": "object"}), Say("There.")]]
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(script, reenter=True))]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        started = await live.stream("go")
        assert await whole(live, started.cursor, started.stream_id) == ["input_required"]
        await sessions.close(live)
        live = await sessions.get("agent", "ann", "s")
        (request,) = live.pending
        (receipt,) = await live.respond(accept(request.request_id, {}))
        assert receipt.ok
        started = await live.stream()
        assert await whole(live, started.cursor, started.stream_id) == ["There.", "completed"]


async def test_a_second_stream_is_refused_while_one_runs(sessions: LiveSessions) -> None:
    go_on = anyio.Event()
    script: Sequence[Sequence[Step]] = [[Calls(Call("look", {})), Delay(until=go_on.wait), Say("Seen.")]]
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(script))]) as sessions:
        live = await sessions.open("agent", "ann")
        started = await live.stream("go")
        assert await whole(live, started.cursor, started.stream_id) == ["input_required"]
        (request,) = live.pending
        again = await live.stream(result(request.request_id, {"seen": 1}))
        with pytest.raises(StreamActive):
            await live.stream()
        go_on.set()
        assert again.receipts[0].ok
        assert await whole(live, again.cursor, again.stream_id) == ["Seen.", "completed"]


async def test_what_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        LiveSessions([])
    one = ServedAgent("agent", ScriptedExecutor(SCRIPT))
    with pytest.raises(ConfigurationError):
        LiveSessions([one, one])
