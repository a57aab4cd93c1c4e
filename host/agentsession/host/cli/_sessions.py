"""What ``agentsession sessions …`` does with a file of records.

Not for: reading and writing records (``agentsession.host.records`` and the store). Rules carried: PER-01, SEC-01.
May import: ``agentsession.host``, ``agentsession.protocol`` and the modules beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, TypeVar

import anyio

from agentsession.host._child_ids import caller_mark
from agentsession.host._sqlite import SqliteRecordStore
from agentsession.host.cli._lines import Line, Style, line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._render import Renderer
from agentsession.host.cli._text import cells, count, cut, escape, plural
from agentsession.host.records import (
    Redactor,
    delete_record,
    export_record,
    find_record,
    follow_record,
    import_record,
    prune_records,
)
from agentsession.protocol import Event, Message, RecordInfo, RecordKey, dump_event, plain_text

__all__ = ["delete", "export", "follow", "import_", "list_sessions", "prune", "show"]

_T = TypeVar("_T")
Cell: TypeAlias = tuple[str, Style]
_GAP: Final[Cell] = ("  ", "")
_CHUNK: Final = 500
_LONGEST_TURN: Final = 20_000
"""Events of a turn that are read so that the end of it is told right; of a longer one its first are left out."""
_AGE: Final = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_STAYS: Final = line(("what agents keep elsewhere, as ADK's own sessions, and files of long outputs stay", "dim"))
"""A file of records is all that is known here."""
_STATES: Final[dict[str, tuple[str, Style]]] = {
    "input_required": ("waits", "ask"),
    "running": ("at work", "warn"),
    "idle": ("idle", ""),
    "new": ("empty", "dim"),
}


def list_sessions(
    out: Out,
    notes: Out,
    file: str,
    *,
    agent: str | None,
    user: str | None,
    limit: int,
    sub_agents: bool,
    as_json: bool,
) -> None:
    """Print a table of records, or a line of JSON for each; those of sub-agents only with ``sub_agents``."""

    async def work(store: SqliteRecordStore) -> tuple[list[RecordInfo], int, list[str]]:
        found, left_out, page = list[RecordInfo](), 0, await store.browse(agent=agent, user_id=user, limit=_CHUNK)
        while page and len(found) <= limit:
            begun = [info for info in page if sub_agents or caller_mark(info.key.session_id) is None]
            left_out += len(page) - len(begun)
            found += begun
            page = await store.browse(agent=agent, user_id=user, limit=_CHUNK, after=page[-1].key)
        return found[: limit + 1], left_out, [await _title(store, info) for info in found[:limit]]

    found, left_out, titles = _with(file, work)
    shown = found[:limit]
    if as_json:
        for info in shown:
            out.json_line(_json(info))
        return
    out.lines(_table(shown, titles, out.width))
    if not shown:
        notes.lines(
            [line("no session is stored here" if not left_out else "no session but those of sub-agents is here")]
        )
    elif len(found) > limit:
        notes.lines([line(("older ones are left out: --limit shows more", "dim"))])
    if left_out:
        notes.lines([line(("those of sub-agents are left out: --sub-agents shows them", "dim"))])


def show(out: Out, file: str, session: str, *, agent: str | None, user: str | None, last: int, as_json: bool) -> None:
    """Print what is known of a session, and its last events."""

    async def work(store: SqliteRecordStore) -> tuple[RecordInfo, str, list[Event], list[Event]]:
        info = await find_record(store, session, agent=agent, user_id=user)
        events = await store.select(info.key, newest=True, limit=last)
        return info, await _title(store, info), events, [] if as_json else await _begun(store, info.key, events)

    info, title, events, begun = _with(file, work)
    if as_json:
        out.json_line(_json(info))
        for event in events:
            out.json_line(dump_event(event))
        return
    state, style = _state(info)
    waits = f", {plural(info.pending, 'request')} for you" if info.pending else ""
    rows: list[tuple[str, str | tuple[str, Style]]] = [
        ("title", (title or "(none)", "strong")),
        ("agent", f"{info.key.agent}, user {info.key.user_id}"),
        ("state", (state + waits, style)),
        ("holds", f"{plural(info.events or 0, 'event')} in {plural(info.turns or 0, 'turn')}"),
        ("since", f"{_moment(info.created_at)}, last changed {_moment(info.updated_at)}"),
    ]
    out.lines([line((f"{name:<7}", "dim"), text if isinstance(text, tuple) else escape(text)) for name, text in rows])
    if events and info.events and info.events > len(events):
        out.lines([line(""), line((f"the last {len(events)} of {info.events} events", "dim"))])
    elif events:
        out.lines([line("")])
    renderer = Renderer(out.view)
    for event in begun:
        renderer.feed(event)
    for event in events:
        out.lines(renderer.feed(event))


async def _begun(store: SqliteRecordStore, key: RecordKey, events: list[Event]) -> list[Event]:
    """What came before in the turn that ``events`` begin in: without it times and tokens would be told wrong."""
    turn, found = events[0].turn_id if events else None, list[Event]()
    at = events[0].seq if events else 0
    while turn is not None and len(found) < _LONGEST_TURN:
        before = await store.select(key, before=at, newest=True, limit=_CHUNK)
        found = [*(event for event in before if event.turn_id == turn), *found]
        if not before or before[0].turn_id != turn:
            break
        at = before[0].seq
    return found


def follow(
    out: Out, file: str, session: str, *, agent: str | None, user: str | None, after: int | None, as_json: bool
) -> None:
    """Print events as another process stores them."""
    renderer = Renderer(out.view)

    async def work(store: SqliteRecordStore) -> None:
        info = await find_record(store, session, agent=agent, user_id=user)
        async for event in follow_record(store, info.key, after=info.last_seq if after is None else after):
            if as_json:
                out.json_line(dump_event(event))
            else:
                out.lines(renderer.feed(event))

    _with(file, work)


def export(
    out: Out, notes: Out, file: str, session: str, *, agent: str | None, user: str | None, to: str, redact: bool
) -> None:
    """Write a record as NDJSON to the file ``to``, or to standard output."""

    async def work(store: SqliteRecordStore) -> int:
        info = await find_record(store, session, agent=agent, user_id=user)
        written = 0
        with _target(to) as target:
            async for text in export_record(store, info.key, redact=Redactor() if redact else None):
                written += 1
                if target is None:
                    out.json_line(text)
                else:
                    target.write(text.encode() + b"\n")
        return written

    written = _with(file, work)
    if to != "-":
        notes.lines([line(f"{plural(written, 'event')} written to {escape(to)}")])


def import_(
    out: Out, file: str, source: str, *, session: str | None, agent: str | None, user: str, as_json: bool
) -> None:
    """Store the record in ``source``."""
    with _source(source) as lines:
        made = _with(
            file,
            lambda store: import_record(store, lines, user_id=user, session_id=session, agent=agent),
            is_new=True,
        )
    if as_json:
        out.json_line(json.dumps({**_names(made.key), "events": made.events, "settled": made.settled}))
        return
    settled = f"; {plural(len(made.settled), 'request')} that waited settled" if made.settled else ""
    out.lines([line(f"session {escape(made.key.session_id)}: {plural(made.events, 'event')} stored{settled}")])


def delete(out: Out, file: str, session: str, *, agent: str | None, user: str | None, yes: bool) -> None:
    """Delete a record, after asking at a terminal."""

    async def find(store: SqliteRecordStore) -> RecordInfo:
        return await find_record(store, session, agent=agent, user_id=user)

    info = _with(file, find)
    if not yes:
        if not (sys.stdin.isatty() and out.is_tty):
            raise CommandError("nobody can be asked here", where="sessions delete", fix="add --yes", id="usage")
        out.text(f"delete {escape(session)} with {plural(info.events or 0, 'event')}? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out.lines([line("nothing was deleted")])
            return
    gone = _with(file, lambda store: delete_record(store, info.key))
    others = f", with {plural(len(gone) - 1, 'session')} of sub-agents" if len(gone) > 1 else ""
    out.lines([line(f"session {escape(session)} deleted{others}"), _STAYS])


def prune(
    out: Out,
    file: str,
    *,
    older_than: str,
    waiting_older_than: str | None,
    keep_last: int,
    agent: str | None,
    user: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete what is older, and say what that was."""
    age = _age("--older-than", older_than)
    waiting = None if waiting_older_than is None else _age("--waiting-older-than", waiting_older_than)

    async def work(store: SqliteRecordStore) -> tuple[list[RecordInfo], dict[RecordKey, str]]:
        async def due(*, is_real: bool) -> list[RecordInfo]:
            return await prune_records(
                store,
                older_than=age,
                waiting_older_than=waiting,
                keep_last=keep_last,
                agent=agent,
                user_id=user,
                dry_run=not is_real,
            )

        found = await due(is_real=False)
        titles = {info.key: await _title(store, info) for info in found}
        return found if dry_run else await due(is_real=True), titles

    gone, titles = _with(file, work)
    if as_json:
        for info in gone:
            out.json_line(_json(info))
        return
    out.lines(_table(gone, [titles.get(info.key, "") for info in gone], out.width))
    out.lines([line(f"{plural(len(gone), 'session')} {'would be ' if dry_run else ''}deleted")])
    if gone:
        out.lines([_STAYS])


# --- parts --------------------------------------------------------------------------------------------------------


def _with(file: str, work: Callable[[SqliteRecordStore], Awaitable[_T]], *, is_new: bool = False) -> _T:
    """Do something with the store in ``file``, which must be there unless it may be made."""
    if not is_new and not Path(file).expanduser().exists():
        raise CommandError(
            f"there is no file {file}", id="file-missing", where="--store", fix="name the file that run --store made"
        )

    async def main() -> _T:
        async with SqliteRecordStore(file) as store:
            return await work(store)

    return anyio.run(main)


async def _title(store: SqliteRecordStore, info: RecordInfo) -> str:
    """The session's title, or how its first message begins."""
    if info.title is not None:
        return info.title
    for event in await store.select(info.key, types=("message",), limit=1):
        if isinstance(event, Message):
            return plain_text(event.content)
    return ""


def _table(infos: list[RecordInfo], titles: list[str], width: int) -> list[Line]:
    if not infos:
        return []
    several = len({(info.key.agent, info.key.user_id) for info in infos}) > 1
    head = ["SESSION", *(["AGENT", "USER"] if several else []), "STATE", "TURNS", "EVENTS", "CHANGED", "TITLE"]
    rows: list[list[Cell]] = [[(text, "dim") for text in head]]
    for info, title in zip(infos, titles, strict=True):
        state, style = _state(info)
        whose: list[Cell] = [(escape(info.key.agent), ""), (escape(info.key.user_id), "")]
        name: Cell = (escape(info.key.session_id), "strong")
        stands: Cell = (f"{state} {info.pending}" if info.pending else state, style)
        told: list[Cell] = [
            stands,
            (count(info.turns), ""),
            (count(info.events), ""),
            (_moment(info.updated_at), ""),
            (escape(title.replace("\n", " ")), ""),
        ]
        rows.append([name, *(whose if several else []), *told])
    widths = [max(cells(row[column][0]) for row in rows) for column in range(len(head) - 1)]
    room = max(10, width - sum(widths) - 2 * len(widths))
    return [_row(row, widths, room, numbers=len(head) - 4) for row in rows]


def _state(info: RecordInfo) -> Cell:
    return _STATES.get(info.state or "", (info.state or "?", ""))


def _row(row: Sequence[Cell], widths: list[int], room: int, *, numbers: int) -> Line:
    parts: list[Cell] = []
    for column, ((text, style), width) in enumerate(zip(row, widths, strict=False)):
        pad = " " * (width - cells(text))
        is_number = column in (numbers, numbers + 1)
        padded: Cell = (pad + text if is_number else text + pad, style)
        parts += [padded, _GAP]
    return line(*parts, (cut(row[-1][0], room), row[-1][1]))


def _moment(text: str | None) -> str:
    """A moment in local time, as far as a table needs it."""
    try:
        moment = datetime.fromisoformat(text or "").astimezone()
    except ValueError:
        return "-"
    today = datetime.now(UTC).astimezone().date()
    return moment.strftime("today %H:%M" if moment.date() == today else "%Y-%m-%d")


def _names(key: RecordKey) -> dict[str, str]:
    return {"session": key.session_id, "agent": key.agent, "user": key.user_id}


def _json(info: RecordInfo) -> str:
    told = {
        "title": info.title,
        "state": info.state,
        "pending": info.pending,
        "turns": info.turns,
        "events": info.events,
        "lastSeq": info.last_seq,
        "createdAt": info.created_at,
        "updatedAt": info.updated_at,
    }
    return json.dumps({**_names(info.key), **{name: value for name, value in told.items() if value is not None}})


def _age(option: str, text: str) -> timedelta:
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise CommandError(
            f"{option} is no age", got=ascii(text[:40]), expected="a number and m, h, d or w: 30d", id="usage"
        )
    return timedelta(**{_UNITS[found.group(2)]: int(found.group(1))})


@contextlib.contextmanager
def _target(file: str) -> Iterator[BinaryIO | None]:
    """The file to write, readable by its owner alone, or ``None`` for standard output. A failure leaves none behind."""
    if file == "-":
        yield None
        return
    try:
        target = os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except OSError as error:
        raise _unwritten(file, error) from error
    try:
        with target:
            yield target
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(file).unlink()
        if isinstance(error, OSError):
            raise _unwritten(file, error) from error
        raise


def _unwritten(file: str, error: OSError) -> CommandError:
    return CommandError(
        f"cannot write {file}: {error.strerror or error}", id="output-failed", fix="name another file, or make room"
    )


@contextlib.contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - it is closed below, and its failure is told apart from ours
    except OSError as error:
        raise CommandError(
            f"cannot read {file}: {error.strerror or error}", id="file-missing", fix="check the path"
        ) from error
    with source:
        yield source
