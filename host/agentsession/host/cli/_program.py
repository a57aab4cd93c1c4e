"""``run --json`` without a prompt: another program is the host, over NDJSON on stdin and stdout.

It calls the session itself (stream, respond, steer, update, abort, close), one JSON object a line, and reads events,
receipts and error objects. It owns the tools, the policy and the person: nothing is answered here. Hooks of the command
line and of the workspace are asked all the same, as they are the executor's to ask.
May import: ``agentsession.protocol`` and the modules beside it.
"""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agentsession.host._host import Host
from agentsession.host.cli._exit_codes import Exit, exit_code
from agentsession.host.cli._hooks import hooks_that_ask_block
from agentsession.host.cli._once import receipt_line
from agentsession.host.cli._out import CommandError, Out, ReaderGone, error_object
from agentsession.host.cli._setup import Loaded, RunOptions, open_session, open_store
from agentsession.host.cli._shapes import as_list, as_object, is_list
from agentsession.host.cli._signals import signals
from agentsession.host.cli._stdin import read_stdin
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    Answer,
    ExecutionOptions,
    InvalidInput,
    MessageInput,
    Receipt,
    SchemaError,
    SessionConfig,
    SteerData,
    StreamEnd,
    dump_event,
    parse_input,
    parse_json,
)

__all__ = ["refuse_tools", "run_program"]

_FIELDS: Final = {
    "stream": ("input", "options"),
    "respond": ("input",),
    "steer": ("message", "action", "data"),
    "update": ("title", "model", "permissionMode", "tools", "state", "config"),
    "abort": ("reason",),
    "close": (),
}
"""The calls and their fields; each may also have ``id``."""


class _Options(BaseModel):
    """So that what is wrong is named with its place in the call."""

    options: ExecutionOptions


def refuse_tools(options: RunOptions) -> None:
    """Raise for ``--tools``, and for what decides on calls: here the program is the host."""
    if options.tools is not None:
        raise CommandError(
            "--tools needs --prompt",
            where="run --json",
            expected="with --json and no --prompt, the program on stdin runs the tools",
            fix='declare them in a call: {"call":"stream","options":{"tools":[...]},"input":[...]}',
        )
    given = (
        ("--policy", options.policy),
        ("--allow", options.allow),
        ("--deny", options.deny),
        ("--yes-read-only", options.yes_read_only),
    )
    for option, value in given:  # a denial that nobody reads would look like one that holds
        if value:
            raise CommandError(
                f"{option} needs --prompt",
                where="run --json",
                expected="with --json and no --prompt, the program on stdin decides on every call",
                fix=f"add -p, or leave {option} out; a hook can block (--hooks)",
            )


async def run_program(options: RunOptions, loaded: Loaded, out: Out) -> Exit:
    """Serve calls until ``close``, the end of input, or a signal; returns the exit code of the last stream's end."""
    executor = loaded.executor
    async with open_store(options) as store, executor:
        hooks = hooks_that_ask_block(loaded.hooks)
        session, _ = await open_session(Host(loop_detection=False, hooks=hooks), executor, options, store)
        server = _Server(session, out)
        try:
            return await server.serve()
        finally:
            await session.aclose()


class _Server:
    def __init__(self, session: AgentSession, out: Out) -> None:
        self._session = session
        self._out = out
        self._open_stream: str | None = None
        self._stream_ended = asyncio.Event()
        self._stream_ended.set()
        self._last: StreamEnd | None = None
        self._code: Exit | None = None
        self._broken: Exception | None = None
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def serve(self) -> Exit:
        """Take one line after the other; the record is read beside them."""
        loop = asyncio.get_running_loop()
        read_stdin(self._lines.put_nowait)
        reading = loop.create_task(self._read_record())
        with signals(lambda: self._stop(Exit.INTERRUPTED), lambda: self._stop(Exit.TERMINATED)):
            number = 0
            while (text := await self._lines.get()) is not None:
                number += 1
                if text.strip() and not await self._line(text, number):
                    break
            if self._code is not None or self._broken is not None:
                await self._session.abort("the program was told to stop")
            await self._stream_ended.wait()
            last = self._last
            await self._session.aclose()  # settles what waits; the reader ends with what this records
            await reading
        if self._broken is not None:
            raise self._broken
        if self._code is not None:
            return self._code
        return exit_code(last.reason, last.data) if last is not None else Exit.COMPLETED

    async def _read_record(self) -> None:
        """Print every event, also those between streams: an answer that is kept, an update, a settlement."""
        try:
            async with self._session.events(follow=True) as reader:
                async for event in reader:
                    self._out.json_line(dump_event(event))
                    if isinstance(event, StreamEnd):
                        self._last = event
                        if event.stream_id == self._open_stream:
                            self._stream_ended.set()
        except ReaderGone as error:
            self._broken = error
        except AgentSessionError as error:  # the executor vanished
            self._broken = error
        finally:
            self._stream_ended.set()
            if self._broken is not None:
                self._lines.put_nowait(None)

    def _stop(self, code: Exit) -> None:
        self._code = self._code or code
        self._lines.put_nowait(None)

    async def _line(self, text: bytes, number: int) -> bool:
        """Serve one call. What is wrong with it is an error object, and the next line is read."""
        call_id: Any = None
        try:
            call = as_object(parse_json(text.strip(), line=number)) or {}
            call_id = call.get("id")
            if call.get("call") not in tuple(_FIELDS):  # a tuple: the value may be of any type
                raise CommandError(
                    f"line {number} is no call",
                    id="unknown-call",
                    got=text.decode("utf-8", "replace").strip()[:60],
                    expected=f'{{"call": {" | ".join(_FIELDS)}, ...}}',
                )
            _check_fields(call, number)
            serve: Callable[[dict[str, Any]], Awaitable[None]] = getattr(self, f"_call_{call['call']}")
            await serve(call)
        except AgentSessionError as error:
            self._out.json_line(_with_id(error_object(error), call_id))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            pointer = "/" + "/".join(str(step) for step in first["loc"])
            problem = SchemaError(f"line {number} is not a valid call", pointer=pointer, expected=first["msg"])
            self._out.json_line(_with_id(error_object(problem), call_id))
        return self._code is None

    async def _call_stream(self, call: dict[str, Any]) -> None:
        given = _inputs(call)
        messages = [item for item in given if isinstance(item, MessageInput)]
        answers: list[Answer] = [item for item in given if not isinstance(item, MessageInput)]
        if messages and (answers or len(messages) > 1):
            raise InvalidInput(
                "one message, or answers, not both", expected="one input of kind message, or answers only"
            )
        options = _Options.model_validate({"options": call["options"]}).options if "options" in call else None
        stream = self._session.stream(messages[0] if messages else answers or None, options)
        self._open_stream = stream.stream_id
        self._stream_ended.clear()
        self._receipts(stream.receipts, call)

    async def _call_respond(self, call: dict[str, Any]) -> None:
        given = _inputs(call)
        answers: list[Answer] = [item for item in given if not isinstance(item, MessageInput)]
        if not answers or len(answers) < len(given):
            raise InvalidInput(
                "respond takes answers",
                got="a message" if len(answers) < len(given) else "nothing",
                expected="a list of answers to pending requests",
                fix='send a message with {"call":"stream","input":"..."}',
            )
        self._receipts(await self._session.respond(*answers), call)

    async def _call_steer(self, call: dict[str, Any]) -> None:
        data = SteerData.model_validate({key: item for key, item in call.items() if key not in ("call", "id")})
        self._receipts([await self._session.steer(data)], call)

    async def _call_update(self, call: dict[str, Any]) -> None:
        config = SessionConfig.model_validate({key: item for key, item in call.items() if key not in ("call", "id")})
        self._receipts([await self._session.update(config)], call)

    async def _call_abort(self, call: dict[str, Any]) -> None:
        reason = call.get("reason")
        found = await self._session.abort(reason if isinstance(reason, str) else None)
        await self._stream_ended.wait()  # so that the receipt comes after the end that it is for
        self._receipts([Receipt(status=found.status)], call)

    async def _call_close(self, call: dict[str, Any]) -> None:
        self._lines.put_nowait(None)
        await self._session.aclose()  # a running stream ends here, and its reader with it

    def _receipts(self, receipts: Any, call: dict[str, Any]) -> None:
        for receipt in receipts:
            self._out.json_line(receipt_line(receipt, call_id=call.get("id")))


def _check_fields(call: dict[str, Any], number: int) -> None:
    """Refuse a field that nobody would read: with a slip in its name, a call would do something else, or nothing."""
    known = _FIELDS[call["call"]]
    unknown = next((name for name in call if name not in (*known, *map(_snake, known), "call", "id")), None)
    if unknown is None:
        return
    near = difflib.get_close_matches(unknown, known, n=1)
    raise SchemaError(
        f"line {number}: {call['call']} has no field {unknown!r}",
        pointer=f"/{unknown}",
        expected=", ".join(known) or "no fields",
        fix=f"did you mean {near[0]!r}?" if near else "leave it out",
    )


def _snake(name: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name)


def _inputs(call: dict[str, Any]) -> list[Any]:
    given = call.get("input", [])
    if isinstance(given, str):
        return [MessageInput.model_validate({"content": given})]
    if not is_list(given):
        raise SchemaError("input is not a list", pointer="/input", expected="a list of inputs, or text")
    return [parse_input(item) for item in as_list(given)]


def _with_id(text: str, call_id: Any) -> str:
    return (
        text
        if call_id is None
        else json.dumps({**json.loads(text), "id": call_id}, ensure_ascii=False, separators=(",", ":"))
    )
