"""What of a remote executor no scenario of the suite asks for: cuts at any byte, errors, secrets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.adapters.remote.behind import Behind
from tests.conformance.harnesses import scripted

from agentsession.adapters.remote import Backoff, RemoteExecutor
from agentsession.adapters.remote._mask import Mask
from agentsession.adapters.remote._problems import error_of
from agentsession.adapters.remote._wire import Sent
from agentsession.conformance import script
from agentsession.conformance.harness import MortalStore, Play
from agentsession.host.live import LiveSession
from agentsession.protocol import (
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    Event,
    HostCapabilities,
    Message,
    MessageInput,
    OpenOptions,
    ProtocolViolation,
    SchemaError,
    SessionBusy,
    StreamActive,
    StreamEnd,
    as_content,
)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def behind(place: Path, *turns: Sequence[script.Step], seed: int | None = None) -> Behind:
    return Behind(scripted.reentered, Play(script.Script.of(*turns), place, MortalStore()), seed)


async def original_of(there: LiveSession) -> list[Event]:
    """The record, asked of the executor itself."""
    return [event async for event in there.session.events()]


@pytest.mark.rule("ORD-05")
@pytest.mark.parametrize("seed", range(5))
async def test_a_record_that_came_in_pieces_is_the_record(seed: int, tmp_path: Path) -> None:
    print(f"cut by seed {seed}")
    turns = [[script.Stream(pieces=[f"piece {number} " for number in range(60)])] for _ in range(3)]
    with anyio.fail_after(60):
        async with behind(tmp_path, *turns, seed=seed) as executor:
            session = await executor.open()
            read = []
            for _ in turns:
                async with await session.begin("go") as stream:
                    read += [event async for event in stream]
                assert stream.end is not None
                assert stream.end.reason == "completed"
            assert executor.server.sessions is not None
            (there,) = executor.server.sessions.open_sessions
            seqs = [event.seq for event in read]
            assert seqs == sorted(set(seqs))
            assert executor.server.portal is not None
            copied = executor.server.portal.call(original_of, there)
            original = {event.seq: event.to_wire() for event in copied}
            mine = {event.seq: event.to_wire() async for event in session.events()}
            # Deltas of an ended stream may be gone over there; nothing else may, and nothing may differ.
            assert {seq: event for seq, event in mine.items() if seq in original} == original
            assert executor.cutter is not None
            assert executor.cutter.cuts > 0


@pytest.mark.rule("TURN-01")
@pytest.mark.parametrize("key", ["k-1", "clé", " k"])
async def test_a_message_whose_key_was_seen_is_attached_to_its_turn(key: str, tmp_path: Path) -> None:
    message = MessageInput(content=as_content("go"), idempotency_key=key)
    with anyio.fail_after(20):
        async with behind(tmp_path, [script.Say(text="one")]) as executor:
            session = await executor.open()
            turns = set()
            for _ in range(2):
                async with await session.begin(message) as stream:
                    assert isinstance([event async for event in stream][-1], StreamEnd)
                turns.add(stream.turn_id)
            assert len(turns) == 1


@pytest.mark.rule("LIFE-07")
async def test_a_second_begin_is_refused_while_the_first_waits_for_its_answer(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with behind(tmp_path, [script.Say(text="one")]) as executor:
            session = await executor.open()
            refused: list[StreamActive] = []

            async def again() -> None:
                try:
                    await session.begin("me too")
                except StreamActive as error:
                    refused.append(error)

            async with anyio.create_task_group() as group:
                group.start_soon(again)
                group.start_soon(again)
            assert len(refused) == 1


async def test_a_session_that_is_open_here_is_not_loaded_again_but_after_detaching(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with behind(tmp_path, [script.Say(text="one")]) as executor:
            session = await executor.open()
            with pytest.raises(SessionBusy):
                await executor.load(session.session_id)
            session.detach()
            again = await executor.load(session.session_id)
            async with await again.begin("go") as stream:
                events = [event async for event in stream]
            assert isinstance(events[-1], StreamEnd)


@pytest.mark.rule("LIFE-08")
async def test_a_reader_is_told_when_the_server_is_gone_for_good(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with behind(tmp_path, [script.Hold(mark="there")]) as executor:
            session = await executor.open()
            async with await session.begin("go") as stream:
                await executor._play.reached("there")
                executor.wire.give_up_s = 0.1
                await anyio.to_thread.run_sync(executor.server.die)
                with pytest.raises(ConnectionLost):
                    [event async for event in stream]
            assert session.state == "closed"
            executor._play.release("there")


async def test_any_number_of_sessions_is_followed_and_called(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with behind(tmp_path, [script.Say(text="one")]) as executor:
            sessions = [await executor.open() for _ in range(110)]  # more than httpx2 has connections, if it is let
            async with await sessions[-1].begin("go") as stream:
                events = [event async for event in stream]
            assert isinstance(events[-1], StreamEnd)
            for session in sessions[1:]:
                session.detach()


@pytest.mark.rule("ORD-11")
async def test_an_agent_waits_for_a_reader_that_stalls_here(tmp_path: Path) -> None:
    pieces = ["x" * 8000] * 4000  # more than the buffers of the system take
    with anyio.fail_after(60):
        async with behind(tmp_path, [script.Hold(mark="begin"), script.Stream(pieces=pieces)]) as executor:
            session = await executor.open()
            async with await session.begin("go") as stream:
                await executor._play.reached("begin")
                while stream.cursor < session.last_seq:
                    await anext(stream)
                executor._play.release("begin")
                assert executor.server.sessions is not None
                (there,) = executor.server.sessions.open_sessions
                assert executor.server.portal is not None
                assert await anyio.to_thread.run_sync(executor.server.portal.call, comes_to_wait, there)
                rest = [event async for event in stream]
    assert len([event for event in rest if isinstance(event, Message) and event.partial]) >= len(pieces)
    assert isinstance(rest[-1], StreamEnd)


async def comes_to_wait(there: LiveSession) -> bool:
    """Whether the agent over there comes to wait for a reader before its turn ends."""
    base: Any = there.session
    while there.state == "running" and not base.recorder.log.has_waiters:  # nothing public says that
        await anyio.sleep(0)
    return there.state == "running"


async def test_a_server_that_is_not_there_is_lost_and_its_token_is_not_told() -> None:
    executor = RemoteExecutor("http://127.0.0.1:9", token="secret-token-123", give_up_s=0.05, backoff=Backoff(0.01))
    with pytest.raises(ConnectionLost) as caught:
        async with executor:
            pass
    assert "secret-token-123" not in str(caught.value) + repr(caught.value) + repr(executor) + repr(executor.wire)


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://name:word@host", "host", "http://host:65536", "http://\0"]
)
async def test_what_is_no_base_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RemoteExecutor(url)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "problem", "cls"),
    [
        (409, {"code": "stream-active", "error": "StreamActive", "detail": "one runs"}, StreamActive),
        (423, {"code": "session-busy", "detail": "it is open"}, SessionBusy),
        (422, {"code": "schema", "error": "SchemaError", "pointer": "/a", "line": 3}, SchemaError),
        (409, {"code": "LIFE-13", "error": "ProtocolViolation", "rule": "LIFE-13", "blame": "host"}, ProtocolViolation),
        (401, {"code": "unauthenticated"}, ConfigurationError),
        (500, {"code": "internal", "detail": "it failed"}, AgentSessionError),
        (404, None, ConfigurationError),
        (500, ["what"], ConfigurationError),
    ],
)
async def test_a_problem_becomes_the_error_that_it_was(status: int, problem: object, cls: type[Exception]) -> None:
    error = error_of(status, problem, Mask())
    assert type(error) is cls
    given = problem if isinstance(problem, dict) else {}
    assert {name: getattr(error, name, None) for name in ("pointer", "line", "rule", "blame") if name in given} == {
        name: given[name] for name in ("pointer", "line", "rule", "blame") if name in given
    }


async def test_waits_grow_to_a_bound_and_are_those_of_the_seed() -> None:
    one, other = Backoff(0.1, 1.0, random.Random(3)), Backoff(0.1, 1.0, random.Random(3))
    waits = [one.wait_s(failures) for failures in range(1, 40)]
    assert waits == [other.wait_s(failures) for failures in range(1, 40)]
    assert all(0.05 <= wait <= 1.0 for wait in waits)
    assert min(waits[10:]) >= 0.5


@pytest.mark.rule("SEC-01")
async def test_what_is_sent_is_in_no_repr() -> None:
    sent = Sent("POST", "/agents/a/sessions/s/respond", {"answers": [{"content": "s3cret"}]})
    assert "s3cret" not in repr(sent) + str(sent)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_changes_something_is_sent_under_a_key_and_again_under_the_same(method: str) -> None:
    sent = Sent(method, "/agents/a/sessions/s", {})
    assert sent.headers["Idempotency-Key"] == sent.headers["Idempotency-Key"] == sent.key


@pytest.mark.rule("HITL-07")
@pytest.mark.parametrize(("first", "then"), [(None, []), ([], None)])
async def test_who_loads_a_session_says_anew_what_it_can_be_asked(
    first: list[str] | None, then: list[str] | None, tmp_path: Path
) -> None:
    with anyio.fail_after(20):
        async with behind(tmp_path, [script.Ask(message="Where?"), script.Say(text="There.")]) as executor:
            session = await executor.open(OpenOptions(session_id="s", host=HostCapabilities(elicitation_kinds=first)))
            await session.aclose()
            session = await executor.load("s", OpenOptions(host=HostCapabilities(elicitation_kinds=then)))
            async with await session.begin("go") as stream:
                events = [event async for event in stream]
            assert stream.end is not None
            assert stream.end.reason == ("completed" if then == [] else "input_required")
            assert [event.type for event in events].count("elicitation_response") == (then == [])
