"""Serves a harness in Python over stdio: ``python -m agentsession.conformance.stdio.server MODULE:harness``.

For: showing that the wire carries all of the contract, and killing executors in Python for real.
Not for: testing an executor in Python otherwise; the suite runs its harness in one process.
Rules carried: ORD-11, the executor's half, as far as it is the wire's. May import: ``agentsession.protocol``, anyio,
``harness``, ``script``, the modules beside it.

One process plays one script, which ``start`` brings. What the executor keeps goes into the folder that comes with it:
its records too, unless the harness has a store of its own.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import ValidationError

from agentsession.conformance.harness import CannotPlay, Harness, MortalStore, Play
from agentsession.conformance.load import load_harness
from agentsession.conformance.script import Script
from agentsession.conformance.stdio._store import FileStore
from agentsession.conformance.stdio._wire import Request, answer_line, error_line, note_line, read_request
from agentsession.protocol import (
    PROTOCOL_VERSION,
    AbortTimeout,
    AgentExecutor,
    AgentSession,
    AgentSessionError,
    Answer,
    ConnectionLost,
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    MessageInput,
    OpenOptions,
    RecordStore,
    SessionConfig,
    SessionNotFound,
    SteerData,
    Unimplemented,
    check_version,
    parse_answer,
    parse_input,
)

__all__ = ["main", "serve"]

Params = Mapping[str, Any]
Result = Mapping[str, Any]
Send = Callable[[bytes], None]

_logger: Final = logging.getLogger("agentsession.conformance")


class _Served(Play):
    """A play whose suite is at the other end of the wire."""

    def __init__(self, script: Script, folder: Path, store: RecordStore, send: Send) -> None:
        super().__init__(script, folder, MortalStore(store))
        self._send = send

    def ran(self, name: str, args: Mapping[str, Any]) -> None:
        self._send(note_line("ran", {"name": name, "args": dict(args)}))

    async def hold(self, mark: str) -> None:
        self._send(note_line("reached", {"mark": mark}))
        await super().hold(mark)


class _Feed:
    """Sends the events of one session as they are stored, and holds the executor for a suite that does not read on."""

    def __init__(self, session: AgentSession, send: Send, sent: int) -> None:
        """``sent``: the last seq that the suite has."""
        self.session = session
        self._send = send
        self._sent = sent
        self._seen = sent
        self._quiet = 0
        self._changed = anyio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Until the session is closed."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._hold, self._sent)
            with _told_by_the_abort():
                async for event in self.session.events(after=self._sent, follow=True):
                    while self._quiet:
                        await self._changed.wait()
                    self._send(b'{"event":' + event.to_wire_json().encode() + b"}\n")
                    self._sent = event.seq
                    self._wake()
            self._is_over = True
            self._wake()
            group.cancel_scope.cancel()

    async def _hold(self, after: int) -> None:
        """Read as the suite reads: an entered reader that stalls holds the executor."""
        async with self.session.events(after=after, follow=True) as reader:
            with _told_by_the_abort():
                async for event in reader:
                    while self._seen < event.seq:
                        await self._changed.wait()

    def seen(self, seq: int) -> None:
        """The suite has read so far."""
        self._seen = max(self._seen, seq)
        self._wake()

    async def caught_up(self) -> None:
        """Wait until all that is stored by now is sent: an answer comes after the events that it tells of."""
        wanted = self.session.last_seq
        while self._sent < wanted and not self._is_over:
            await self._changed.wait()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing is sent meanwhile."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


@contextmanager
def _told_by_the_abort() -> Iterator[None]:
    """A session that an abort has closed is no loss to tell of: its answer says so."""
    try:
        yield
    except ConnectionLost as error:
        if not isinstance(error.__cause__, AbortTimeout):
            raise


class _Server:
    """One process's executor and its sessions."""

    def __init__(self, executor: AgentExecutor, play: _Served, group: TaskGroup, send: Send) -> None:
        self._executor = executor
        self._play = play
        self._group = group
        self._send = send
        self._feeds: dict[str, _Feed] = {}

    async def handle(self, request: Request) -> None:
        """Do what a request asks, and answer it. The first step of it is done before anything is awaited."""
        method = _METHODS.get(request.method)
        try:
            if method is None:
                raise Unimplemented(f"there is no method {request.method}")
            await method(self, request)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            self._answer_error(request, InvalidInput(f"{request.method}: {first['msg']} at {first['loc']}"))
        except Exception as error:  # it is answered, or logged
            if request.id is None or not isinstance(error, AgentSessionError):  # else the answer says all
                _logger.warning("%s was not done", request.method, exc_info=error)
            self._answer_error(request, error)

    def _answer(self, request: Request, result: Result) -> None:
        if request.id is not None:
            self._send(answer_line(request.id, result))

    def _answer_error(self, request: Request, error: Exception) -> None:
        if request.id is not None:
            self._send(error_line(request.id, error))

    def _feed(self, request: Request) -> _Feed:
        session_id = _text(request.params, "sessionId")
        feed = self._feeds.get(session_id)
        if feed is None:
            raise SessionNotFound(f"session {session_id} is not open here", fix="open or load it")
        return feed

    # -- the executor -------------------------------------------------------------------------------------------------

    async def _open(self, request: Request) -> None:
        await self._begin(request, self._executor.open(_options(request), store=self._play.store))

    async def _load(self, request: Request) -> None:
        session_id = _text(request.params, "sessionId")
        await self._begin(request, self._executor.load(session_id, _options(request), store=self._play.store))

    async def _fork(self, request: Request) -> None:
        session_id, at = _text(request.params, "sessionId"), _number(request.params, "at")
        await self._begin(request, self._executor.fork(session_id, at, _options(request), store=self._play.store))

    async def _begin(self, request: Request, beginning: Awaitable[AgentSession]) -> None:
        session = await beginning
        record = await _record(session, 0)
        feed = _Feed(session, self._send, record[-1]["seq"] if record else 0)
        self._feeds[session.session_id] = feed
        self._answer(request, {"sessionId": session.session_id, "record": record})
        self._group.start_soon(feed.run)

    async def _list(self, request: Request) -> None:
        user_id = request.params.get("userId", "local")
        found = await self._executor.list(user_id, store=self._play.store)
        sessions = [{"sessionId": info.key.session_id, "lastSeq": info.last_seq} for info in found]
        self._answer(request, {"sessions": sessions})

    async def _delete(self, request: Request) -> None:
        user_id = request.params.get("userId", "local")
        await self._executor.delete(_text(request.params, "sessionId"), user_id, store=self._play.store)
        self._answer(request, {})

    async def _rewind(self, request: Request) -> None:
        session_id, to = _text(request.params, "sessionId"), _number(request.params, "to")
        user_id = request.params.get("userId", "local")
        await self._executor.rewind(session_id, to, user_id, store=self._play.store)
        feed = self._feeds.get(session_id)
        if feed is not None:
            await feed.caught_up()
        self._answer(request, {})

    # -- a session ----------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> None:
        feed, params = self._feed(request), request.params
        options = None
        if "options" in params:
            options = ExecutionOptions.model_validate(params["options"], by_alias=True, by_name=False)
        given: MessageInput | builtins.list[Any] | None = None
        if "message" in params:
            message = parse_input(params["message"])
            assert isinstance(message, MessageInput)
            given = message
        elif "answers" in params:
            given = _answers(params)
        with feed.quiet():  # the id is told before any event of the stream
            stream = feed.session.stream(given, options)
            async with stream:  # which waits until the receipts hold
                receipts = [receipt.to_wire() for receipt in stream.receipts]
            self._answer(request, {"streamId": stream.stream_id, "turnId": stream.turn_id, "receipts": receipts})

    async def _respond(self, request: Request) -> None:
        feed = self._feed(request)
        receipts = await feed.session.respond(*_answers(request.params))
        await feed.caught_up()
        self._answer(request, {"receipts": [receipt.to_wire() for receipt in receipts]})

    async def _steer(self, request: Request) -> None:
        feed = self._feed(request)
        data = SteerData.model_validate(request.params.get("data"), by_alias=True, by_name=False)
        receipt = await feed.session.steer(data)
        await feed.caught_up()
        self._answer(request, receipt.to_wire())

    async def _update(self, request: Request) -> None:
        feed = self._feed(request)
        config = SessionConfig.model_validate(request.params.get("config"), by_alias=True, by_name=False)
        receipt = await feed.session.update(config)
        await feed.caught_up()
        self._answer(request, receipt.to_wire())

    async def _abort(self, request: Request) -> None:
        feed = self._feed(request)
        result = await feed.session.abort(request.params.get("reason"))
        await feed.caught_up()
        self._answer(request, result.to_wire())

    async def _close(self, request: Request) -> None:
        feed = self._feed(request)
        await feed.session.aclose()
        await feed.caught_up()
        self._answer(request, {})

    async def _read(self, request: Request) -> None:
        feed = self._feed(request)
        self._answer(request, {"record": await _record(feed.session, _number(request.params, "after"))})

    # -- what is only told --------------------------------------------------------------------------------------------

    async def _seen(self, request: Request) -> None:
        self._feed(request).seen(_number(request.params, "seq"))

    async def _release(self, request: Request) -> None:
        self._play.release(_text(request.params, "mark"))


_METHODS: Final[Mapping[str, Callable[[_Server, Request], Awaitable[None]]]] = {
    "open": _Server._open,
    "load": _Server._load,
    "fork": _Server._fork,
    "list": _Server._list,
    "delete": _Server._delete,
    "rewind": _Server._rewind,
    "stream": _Server._stream,
    "respond": _Server._respond,
    "steer": _Server._steer,
    "update": _Server._update,
    "abort": _Server._abort,
    "close": _Server._close,
    "read": _Server._read,
    "seen": _Server._seen,
    "release": _Server._release,
}


async def _record(session: AgentSession, after: int) -> builtins.list[dict[str, Any]]:
    async with session.events(after=after) as reader:
        return [event.to_wire() async for event in reader]


def _options(request: Request) -> OpenOptions:
    return OpenOptions.model_validate(request.params.get("options", {}), by_alias=True, by_name=False)


def _answers(params: Params) -> builtins.list[Answer]:
    given = params.get("answers")
    if not isinstance(given, builtins.list):
        raise InvalidInput("answers are missing or no list")
    return [parse_answer(answer) for answer in given]


def _text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is missing or no text", got=repr(value))
    return value


def _number(params: Params, name: str) -> int:
    value = params.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{name} is missing or no number", got=repr(value))
    return value


async def serve(harness: Harness, read: Callable[[], bytes], send: Send) -> None:
    """Serve one script; returns when there is nothing more to read.

    Args:
        harness: Makes the executor.
        read: Gives the next line, waiting for it in a thread; nothing at the end.
        send: Writes a line.
    """
    request = await _next(read, send)
    if request is None:
        return
    try:
        play = _started(request, harness, send)
        executor = harness.executor(play)
    except Exception as error:  # it is answered, or logged
        if not isinstance(error, (AgentSessionError, CannotPlay)):
            _logger.warning("the harness made no executor", exc_info=error)
        send(error_line(request.id, error))
        return
    async with anyio.create_task_group() as group:
        async with executor:
            server = _Server(executor, play, group, send)
            send(
                answer_line(
                    request.id or 0,
                    {"protocolVersion": PROTOCOL_VERSION, "descriptor": executor.descriptor.to_wire()},
                )
            )
            while (request := await _next(read, send)) is not None:
                group.start_soon(server.handle, request)
        group.cancel_scope.cancel()


def _started(request: Request, harness: Harness, send: Send) -> _Served:
    if request.method != "start":
        raise InvalidInput(f"{request.method} before start")
    check_version(_text(request.params, "protocolVersion"))
    try:
        script = Script.model_validate(request.params.get("script"))
    except ValidationError as error:
        raise CannotPlay(f"this script cannot be read: {error.errors(include_url=False)[0]['msg']}") from error
    missing = script.needed - set(harness.plays)
    if missing:
        raise CannotPlay(f"the harness does not play: {', '.join(sorted(missing))}")
    folder = Path(_text(request.params, "folder"))
    store = harness.store(folder)
    if isinstance(store, MemoryRecordStore):  # which a kill would take with it
        store = FileStore(folder / "records")
    return _Served(script, folder, store, send)


async def _next(read: Callable[[], bytes], send: Send) -> Request | None:
    """The next request; what is none is answered so, and passed over."""
    while line := await anyio.to_thread.run_sync(read, abandon_on_cancel=True):
        try:
            return read_request(line)
        except AgentSessionError as error:
            send(error_line(None, error))
    return None


def main() -> None:
    """``python -m agentsession.conformance.stdio.server MODULE:harness``."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m agentsession.conformance.stdio.server MODULE:harness")
    logging.basicConfig(level=logging.WARNING)  # to stderr, of which the suite shows the end with a failure
    harness = load_harness(sys.argv[1])
    # What anything prints must not get between the messages.
    out = os.dup(1)
    os.dup2(2, 1)

    def send(line: bytes) -> None:
        while line:
            line = line[os.write(out, line) :]

    code = 1
    try:
        anyio.run(serve, harness, sys.stdin.buffer.readline, send)
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, it ends the process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # the thread that waits for a line must not be waited for


if __name__ == "__main__":
    main()
