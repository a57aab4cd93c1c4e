"""Servers that answer what no server of the contract would: what a remote executor makes of it, and what it keeps to
itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.adapters.remote.odd import AGENTS, DESCRIPTOR, INITIALIZE, Asked, Odd, answer, event, events, head, session

from agentsession.adapters.remote import Backoff, RemoteExecutor, RemoteSession
from agentsession.adapters.remote import _answers as answers
from agentsession.protocol import (
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    MessageInput,
    OpenOptions,
    ProtocolViolation,
    SessionNotFound,
    accept,
    as_content,
)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

TOKEN = "token-of-the-client-0123456789"
ESCAPE = "\x1b[31m"
NOT_FOUND = answer({"code": "session-not-found", "error": "SessionNotFound", "detail": "it is not there"}, 404)


@contextlib.asynccontextmanager
async def driving(odd: Odd, *, give_up_s: float = 0.3) -> AsyncGenerator[RemoteExecutor]:
    with anyio.fail_after(20):
        async with odd:
            backoff = Backoff(0.005, 0.01)
            made = RemoteExecutor(odd.url, token=TOKEN, answer_s=1.0, give_up_s=give_up_s, backoff=backoff)
            async with made as executor:
                yield executor


async def failing(odd: Odd, call: Callable[[RemoteExecutor], Any] = RemoteExecutor.open) -> AgentSessionError:
    """What a call raises, or entering does."""
    with pytest.raises(AgentSessionError) as caught:
        async with driving(odd) as executor:
            await call(executor)
    return caught.value


async def endless(asked: Asked) -> AsyncIterator[bytes]:
    yield head("application/json")
    while True:
        yield b" " * 65536


async def trickling(asked: Asked) -> AsyncIterator[bytes]:
    yield head("application/json")
    while True:
        yield b" "
        await asyncio.sleep(0.05)  # it is this slow


def sending(*parts: bytes, kind: str = "text/event-stream") -> Callable[[Asked], AsyncIterator[bytes]]:
    async def sent(asked: Asked) -> AsyncIterator[bytes]:
        yield head(kind)
        for part in parts:
            yield part
        await asyncio.Event().wait()

    return sent


def agent_named(name: str) -> dict[str, Any]:
    return {"name": name, "descriptor": DESCRIPTOR.to_wire()}


# -- the token --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("token", ["secret-0123456789\n", "secret 0123456789", "secret-é-0123456789", ""])
async def test_a_token_that_no_header_holds_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RemoteExecutor("http://127.0.0.1:9", token=token)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_the_token(status: int) -> None:
    async with Odd() as elsewhere:
        to = answer(b"", status, location=f"{elsewhere.url}/agents")
        assert isinstance(await failing(Odd().set("GET /agents", to)), ConfigurationError)
        for what in ("POST /sessions", "GET /events"):
            await failing(Odd().set(what, to))
        assert elsewhere.asked == []


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("GET /agents", answer({"code": "x", "detail": f"you sent {TOKEN}{ESCAPE}", "fix": TOKEN}, 400)),
        ("GET /agents", answer({"code": TOKEN}, 500)),
        ("GET /agents", answer({"code": "x", "rule": TOKEN, "detail": TOKEN}, 409)),
        ("GET /agents", answer({"code": "schema", "pointer": f"/{TOKEN}"}, 422)),
        ("GET /agents", answer(TOKEN.encode(), 200)),
        ("GET /agents", answer({"protocolVersion": TOKEN, "agents": []})),
        ("GET /agents", answer({"protocolVersion": "1.0", "agents": [{"name": "a", "descriptor": {"name": TOKEN}}]})),
        ("GET /agents", answer({"protocolVersion": "1.0", "agents": [agent_named(TOKEN + ESCAPE), agent_named("b")]})),
        ("GET /events", sending(events(event(1, TOKEN)))),
        ("GET /events", sending(f"id: 1\ndata: {TOKEN}\n\n".encode())),
        ("GET /events", sending(f'event: problem\ndata: {{"code": "x", "detail": "{TOKEN}"}}\n\n'.encode())),
    ],
)
async def test_a_token_that_a_server_gives_back_is_in_no_error_and_no_log(
    what: str, given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = await failing(Odd().set(what, given))
    shown = "".join(traceback.format_exception(error)) + repr(error) + caplog.text
    assert TOKEN not in shown
    assert ESCAPE not in str(error)


async def test_what_a_server_says_is_not_shown_without_end() -> None:
    error = await failing(Odd().set("GET /agents", answer({"code": "x", "detail": "x" * 10**6}, 400)))
    assert len(str(error)) < 2000


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["GET /agents", "POST /sessions"])
async def test_an_answer_without_end_is_read_to_a_bound(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST_BYTES", 2**18)
    error = await failing(Odd().set(what, endless))
    assert isinstance(error, ConnectionLost)
    assert "too large" in error.what


@pytest.mark.parametrize("given", [endless, trickling])
async def test_a_call_that_blocks_ends_however_slow_the_answer_is(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST_BYTES", 2**24)
    async with driving(Odd().set("POST /stream", given)) as executor:
        opened = await executor.open()
        with pytest.raises(ConnectionLost):
            await anyio.to_thread.run_sync(opened.stream, "go")


@pytest.mark.parametrize("what", ["GET /agents", "POST /sessions", "GET /events"])
async def test_a_compressed_answer_is_not_unpacked(what: str) -> None:
    kind = "text/event-stream" if what == "GET /events" else "application/json"
    odd = Odd().set(what, answer(b"\x1f\x8b", kind=kind, content_encoding="gzip"))
    error = await failing(odd)
    assert isinstance(error, ConnectionLost)
    assert "compressed" in error.what
    assert {asked.headers["accept-encoding"] for asked in odd.asked} == {"identity"}


@pytest.mark.parametrize("given", ["../x", "", "a/b", "a\nb", None, 1])
async def test_an_id_of_a_session_that_cannot_be_one_is_no_answer(given: Any) -> None:
    shown = {**session(), "sessionId": given}
    assert isinstance(await failing(Odd().set("POST /sessions", answer(shown, 201))), ConnectionLost)


async def test_another_session_than_the_one_that_was_asked_for_is_no_answer() -> None:
    async def loading(executor: RemoteExecutor) -> None:
        await executor.load("t")

    async def opening(executor: RemoteExecutor) -> None:
        await executor.open(OpenOptions(session_id="t"))

    assert isinstance(await failing(Odd().set("GET /t", answer(session("s"))), loading), ConnectionLost)
    assert isinstance(await failing(Odd(), opening), ConnectionLost)


@pytest.mark.parametrize(
    "given",
    [{}, {"streamId": "s1"}, {"streamId": 1, "turnId": "t1"}],
)
async def test_a_stream_that_is_none_is_no_answer(given: dict[str, Any]) -> None:
    async def beginning(executor: RemoteExecutor) -> None:
        await (await executor.open()).begin("go")

    assert isinstance(await failing(Odd().set("POST /stream", answer(given, 202)), beginning), ConnectionLost)


@pytest.mark.parametrize(
    "given",
    [
        [{"status": "applied", "requestId": "another"}],
        [{"status": "applied", "requestId": "r1"}] * 2,
        [],
        [1],
        None,
    ],
)
@pytest.mark.parametrize("means", ["respond", "stream"])
async def test_receipts_that_are_not_one_for_each_answer_are_no_answer(means: str, given: Any) -> None:
    body = {"streamId": "s1", "turnId": "t1", "receipts": given}

    async def answering(executor: RemoteExecutor) -> None:
        opened = await executor.open()
        await (opened.respond(accept("r1", {})) if means == "respond" else opened.begin(accept("r1", {})))

    assert isinstance(await failing(Odd().set(f"POST /{means}", answer(body, 202)), answering), ConnectionLost)


@pytest.mark.parametrize(
    "given",
    [{"sessionId": "../s"}, {"lastSeq": -1}, {"lastSeq": True}, {"title": 1}, {"events": "x"}, {"state": "asleep"}, 1],
)
async def test_what_is_listed_and_is_no_session_is_no_answer(given: Any) -> None:
    item = {"sessionId": "s", "lastSeq": 1, **given} if isinstance(given, dict) else given
    odd = Odd().set("GET /sessions", answer({"sessions": [item]}))
    assert isinstance(await failing(odd, RemoteExecutor.list), ConnectionLost)


async def test_a_server_that_is_just_stopping_is_asked_again() -> None:
    stopping = answer({"code": "stopping", "detail": "the server is stopping"}, 503)
    odd = Odd().set("GET /agents", stopping, stopping, AGENTS)
    async with driving(odd) as executor:
        assert executor.descriptor.name == "odd"


async def test_an_executor_is_entered_again_after_a_server_was_not_there() -> None:
    odd = Odd().set("GET /agents", NOT_FOUND, AGENTS)
    async with odd:
        executor = RemoteExecutor(odd.url, give_up_s=0.1, backoff=Backoff(0.01))
        with pytest.raises(AgentSessionError):
            await executor.__aenter__()
        for _ in range(2):
            async with executor:
                assert executor.descriptor.name == "odd"


# -- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        b"id: 1\ndata: {\n\n",
        b"id: 1\ndata: \xff\n\n",
        b"id: 1\ndata: 1\n\n",
        b"id: 1\ndata: " + b"[" * 100_000 + b"\n\n",
        events({**INITIALIZE, "sessionId": "t"}),
        events(INITIALIZE, INITIALIZE),
        events({**INITIALIZE, "seq": 5, "id": "e5"}, event(3, "custom", kind="x")),
        events(event(1, "custom", kind="x")),
        events(INITIALIZE).replace(b"id: 1", b"id: 2"),
    ],
    ids=["no JSON", "no UTF-8", "no object", "deep", "another's", "twice", "backwards", "no start", "another id"],
)
async def test_events_that_break_a_rule_are_the_servers_fault_and_close_the_session(given: bytes) -> None:
    odd = Odd().set("POST /sessions", answer(session(last_seq=9), 201)).set("GET /events", sending(given))
    error = await failing(odd)
    assert isinstance(error, ProtocolViolation)
    assert error.blame == "peer"


@pytest.mark.parametrize(
    "given",
    [sending(b"<html>", kind="text/html"), endless, answer(b"", 502), b"", b"HTTP/1.1 200"],
    ids=["a page", "a page without end", "a proxy", "a cut", "a cut in the head"],
)
async def test_what_is_no_answer_with_events_is_asked_for_again_and_then_given_up(given: Any) -> None:
    odd = Odd().set("GET /events", given)
    assert isinstance(await failing(odd), ConnectionLost)
    assert sum("/events" in asked.path for asked in odd.asked) > 1


async def test_an_event_without_end_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsession.adapters.remote._wire._EVENT_BYTES", 2**16)

    async def line(asked: Asked) -> AsyncIterator[bytes]:
        yield head() + b"data: "
        while True:
            yield b"x" * 65536

    error = await failing(Odd().set("GET /events", line))
    assert isinstance(error, ConnectionLost)
    assert "too large" in error.what


async def test_a_server_that_keeps_back_what_it_says_it_has_is_given_up() -> None:
    async def opening(executor: RemoteExecutor) -> None:
        executor.wire.silent_s = 0.1
        await executor.open()

    error = await failing(Odd().set("POST /sessions", answer(session(last_seq=10**9), 201)), opening)
    assert isinstance(error, ConnectionLost)
    assert "does not send" in error.what


@pytest.mark.rule("ORD-05")
async def test_a_session_in_which_nothing_happens_outlives_any_number_of_cuts() -> None:
    cuts = 0
    seen = anyio.Event()

    async def cut(asked: Asked) -> AsyncIterator[bytes]:
        nonlocal cuts
        yield head()
        if asked.headers["last-event-id"] == "0":
            yield events(INITIALIZE)
        cuts += 1
        if cuts > 40:  # 5 ms or more between two: longer than it is tried without an answer
            seen.set()
            await asyncio.Event().wait()

    async with driving(Odd().set("GET /events", cut), give_up_s=0.1) as executor:
        opened = await executor.open()
        await seen.wait()
        assert opened.state == "new"
        opened.detach()


@pytest.mark.rule("ORD-05")
async def test_a_connection_that_brings_nothing_is_made_again_at_the_last_event() -> None:
    odd = Odd()
    again = anyio.Event()

    async def silent(asked: Asked) -> AsyncIterator[bytes]:
        yield head()
        if asked.headers["last-event-id"] == "0":
            yield events(INITIALIZE)
        else:
            again.set()
        await asyncio.Event().wait()

    async with driving(odd.set("GET /events", silent)) as executor:
        executor.wire.silent_s = 0.2
        opened = await executor.open()
        await again.wait()
        assert (opened.state, opened.last_seq) == ("new", 1)
        opened.detach()


async def test_comments_keep_a_connection_on_which_nothing_happens() -> None:
    odd = Odd()

    async def commented(asked: Asked) -> AsyncIterator[bytes]:
        yield head()
        yield events(INITIALIZE)
        for _ in range(30):  # longer together than a silent connection lives
            yield b":\n\n"
            await asyncio.sleep(0.05)
        yield events(event(2, "custom", kind="x"))
        await asyncio.Event().wait()

    async with driving(odd.set("GET /events", commented)) as executor:
        executor.wire.silent_s = 1.0
        opened = await executor.open()
        async with opened.events(after=1, follow=True) as reader:
            assert (await anext(reader)).seq == 2
    assert sum("/events" in asked.path for asked in odd.asked) == 1


# -- sending again ----------------------------------------------------------------------------------------------------


async def test_what_a_cut_request_has_deleted_is_deleted() -> None:
    async with driving(Odd().set("DELETE /t", b"", NOT_FOUND)) as executor:
        await executor.delete("t")
    async with driving(Odd().set("DELETE /t", NOT_FOUND)) as executor:
        with pytest.raises(SessionNotFound):
            await executor.delete("t")


@pytest.mark.rule("TURN-01")
@pytest.mark.parametrize("key", ["k-1", "clé", " k", "x" * 257])
async def test_a_message_goes_under_its_own_key_however_often_it_is_sent(key: str) -> None:
    begun = answer({"streamId": "s1", "turnId": "t1", "receipts": []}, 202)
    odd = Odd().set("POST /stream", b"", begun)

    async def beginning(opened: RemoteSession) -> None:
        await opened.begin(MessageInput(content=as_content("go"), idempotency_key=key))

    async with driving(odd) as executor:
        await beginning(await executor.open())
    sent = [asked for asked in odd.asked if asked.path.endswith("/stream")]
    assert len(sent) == 2
    assert {asked.body for asked in sent} == {sent[0].body}
    assert {asked.headers.get("idempotency-key") for asked in sent} == {key if key == "k-1" else None}
