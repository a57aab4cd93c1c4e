"""Show a recorded session as ``run`` would have shown it, checked against the contract on the way.

Not for: running it again (the replay executor does). Rules carried: every rule marked ``machine``, by the machine.
May import: ``agentsession.protocol`` and the modules beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import line
from agentsession.host.cli._out import CommandError, Out, error_text
from agentsession.host.cli._render import Renderer
from agentsession.host.cli._shapes import as_object
from agentsession.protocol import Event, SchemaError, SessionMachine, StreamEnd, dump_event, parse_event, parse_json

__all__ = ["events_in", "replay"]

_STORE: Final = b"SQLite format 3\x00"
"""How a store's file begins."""


def replay(
    out: Out, notes: Out, file: str, *, as_json: bool = False, skip_bad: bool = False, check_rules: bool = True
) -> Exit:
    """Print the record in ``file`` (``-``: standard input); 0 when it is a valid record, however its turns ended.

    Raises :class:`SchemaError` for a line that is no event, :class:`ProtocolViolation` for an event out of order.
    """
    view = out.view
    view.more = "the record has all"
    renderer = Renderer(view)
    machine = SessionMachine() if check_rules else None
    last: StreamEnd | None = None
    open_stream = False
    count = 0
    for event in events_in(file, "replay", notes if skip_bad else None):
        if machine is not None:
            machine.feed(event)
        count += 1
        if as_json:
            out.json_line(dump_event(event))
        else:
            view.width = out.width
            out.lines(renderer.feed(event))
        open_stream = event.stream_id is not None
        if isinstance(event, StreamEnd):
            last, open_stream = event, False
    if not count:
        fix = "see: agentsession explain empty-record"
        raise CommandError(f"{file} holds no event", id="empty-record", where=f"replay {file}", fix=fix)
    if last is None or open_stream:
        notes.lines([line(("the record stops in the middle of a stream", "warn"))])
    elif last.reason == "input_required":
        notes.lines([line((f"waiting for {', '.join(last.pending)}", "ask"))])
    return Exit.COMPLETED


def events_in(file: str, command: str, skipped: Out | None = None) -> Iterator[Event]:
    """The events in ``file`` (``-``: standard input), one a line; ``skipped`` is told of lines that are none.

    Blank lines are passed over, and what else ``run --json`` writes. Raises :class:`SchemaError` for a line that is no
    event, unless ``skipped`` is given.
    """
    for number, text in enumerate(_lines(file, command), start=1):
        try:
            event = _event(text, number)
        except SchemaError as error:
            if skipped is None:
                error.fix = error.fix if error.id == "schema" else "mend it, or --skip-bad"
                raise _placed(error, file, number) from error
            skipped.text(error_text(_placed(error, file, number)))
            continue
        if event is not None:
            yield event


def _placed(error: SchemaError, file: str, number: int) -> SchemaError:
    """The error with the file in it: a line number alone does not say where to look."""
    name = "standard input" if file == "-" else file
    where = error.where if error.where and f"line {number}" in error.where else f"line {number}, {error.where}"
    return SchemaError(
        error.what,
        pointer=error.pointer,
        line=number,
        where=f"{name}, {where}",
        got=error.got,
        expected=error.expected,
        fix=error.fix,
        id=error.id,
    )


def _lines(file: str, command: str) -> Iterable[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as source:
            if source.peek(len(_STORE)).startswith(_STORE):
                of_store = (
                    f"sessions show SESSION --store {file}"
                    if command == "replay"
                    else f"{command} SESSION --store {file}"
                )
                raise CommandError(
                    f"{file} is a database, not a record",
                    id="bad-json",
                    where=f"{command} {file}",
                    expected="NDJSON, one event a line",
                    fix=f"if it is a store: agentsession {of_store}",
                )
            yield from source
    except OSError as error:
        raise CommandError(
            f"cannot read {file}: {error.strerror or error}",
            id="file-missing",
            where=f"{command} {file}",
            fix="check the path",
        ) from error


def _event(text: bytes, number: int) -> Event | None:
    """The event on this line; ``None`` for a blank line, and for a receipt or error that ``run --json`` wrote."""
    if not text.strip():
        return None
    value = parse_json(text.strip(), line=number)
    fields = as_object(value) or {}
    if "type" not in fields and ("receipt" in fields or "error" in fields):
        return None
    return parse_event(value, line=number)
