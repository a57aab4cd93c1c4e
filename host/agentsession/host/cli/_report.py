"""Write the report of a record: read it from a file or a store, and make one HTML page of it.

Not for: the page (``agentsession.host.report``). Rules carried: none.
May import: ``agentsession.host``, ``agentsession.protocol`` and the modules beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import tempfile
from pathlib import Path

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._replay import events_in
from agentsession.host.cli._text import escape, plural, seconds
from agentsession.host.report import Timeline, html, stored, timeline
from agentsession.host.report import turn as turn_of
from agentsession.protocol import Event, SessionNotFound

__all__ = ["Asked", "report"]

_MARK = b'content="agentsession report"'
_HEAD = 512
"""How far into a page its mark is looked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line."""

    source: str
    _: dataclasses.KW_ONLY
    store: str | None = None
    session: str | None = None
    turn: int | None = None
    output: str | None = None
    skip_bad: bool = False


def report(out: Out, notes: Out, asked: Asked) -> Exit:
    """Write the page, and say where it is.

    Raises :class:`SchemaError` for a line that is no event, :class:`SessionNotFound`, and :class:`CommandError` for a
    file that is missing, empty or in the way, and where it is not clear which session is meant.
    """
    told = timeline(_events(asked, notes))
    if asked.turn is not None:
        told = _one_turn(told, asked)
    page = html(told)
    if asked.output == "-":
        out.raw_text(page)
        return Exit.COMPLETED
    path = Path(asked.output) if asked.output is not None else _default(asked)
    _write(path, page, anything=asked.output is not None)
    calls = plural(told.count("call"), "call")
    what = f"{plural(len(told.turns), 'turn')}, {calls}, {seconds(told.spent.elapsed_s)}"
    notes.lines([line((escape(str(path)), "strong"), f"  {what}; open it in a browser")])
    return Exit.COMPLETED


def _events(asked: Asked, notes: Out) -> list[Event]:
    if asked.store is not None:
        if not Path(asked.store).expanduser().is_file():  # a store would make it
            what = f"there is no file {asked.store}"
            raise CommandError(what, id="file-missing", where="report --store", fix="check the path")
        events = asyncio.run(_stored(asked.store, asked.session or asked.source))
        where = f"session {asked.source}"
    else:
        if _looks_like_session(asked.source):
            raise CommandError(
                f"there is no file {asked.source}",
                id="file-missing",
                where=f"report {asked.source}",
                expected="a file of NDJSON, or with --store the id of a session",
                fix=f"agentsession report {asked.source} --store FILE",
            )
        events = list(events_in(asked.source, "report", notes if asked.skip_bad else None))
        where = asked.source
    sessions = list(dict.fromkeys(event.session_id for event in events))
    if asked.session is not None:
        events = [event for event in events if event.session_id == asked.session]
        if not events:
            raise SessionNotFound(
                f"no session {asked.session} in {where}", got=", ".join(sessions[:5]) or "no event", fix="name another"
            )
    elif len(sessions) > 1:
        raise CommandError(
            f"{where} holds {len(sessions)} sessions",
            id="several-sessions",
            where=f"report {asked.source}",
            got=", ".join(sessions[:5]) + (" …" if len(sessions) > 5 else ""),
            fix=f"agentsession report {asked.source} --session {sessions[0]}",
        )
    if not events:
        raise CommandError(
            f"{where} holds no event",
            id="empty-record",
            where=f"report {asked.source}",
            fix="see: agentsession explain empty-record",
        )
    return events


async def _stored(file: str, session_id: str) -> list[Event]:
    import agentsession.host as host

    async with host.SqliteRecordStore(file) as store:
        keys = await store.find(session_id)
        if not keys:
            raise SessionNotFound(
                f"no session {session_id} in {file}", where="report --store", fix="check the id and the file"
            )
        if len(keys) > 1:
            export = f"agentsession sessions export {session_id} --store {file}"
            raise CommandError(
                f"{file} holds {len(keys)} sessions {session_id}",
                id="several-sessions",
                where="report --store",
                got=", ".join(f"of user {key.user_id} with agent {key.agent}" for key in keys[:5]),
                fix=f"{export} --agent NAME --user ID --out record.ndjson",
            )
        return await stored(store, keys[0])


def _looks_like_session(source: str) -> bool:
    return source != "-" and not Path(source).exists() and re.fullmatch(r"s-\w+", source) is not None


def _one_turn(told: Timeline, asked: Asked) -> Timeline:
    assert asked.turn is not None
    if not 1 <= asked.turn <= len(told.turns):
        raise CommandError(
            f"there is no turn {asked.turn}",
            where="report --turn",
            expected=f"1 to {len(told.turns)}" if told.turns else "a record with turns",
            fix="agentsession report --help",
        )
    return turn_of(told, asked.turn)


def _default(asked: Asked) -> Path:
    name = asked.session or ("report" if asked.source == "-" else Path(asked.source).stem)
    if asked.store is None and asked.session is None and asked.source != "-":
        return Path(asked.source).with_suffix(".html")
    return Path(f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name) or 'report'}.html")


def _write(path: Path, page: str, *, anything: bool) -> None:
    """Replace the file in one step; its content is a session's, so nobody but its owner may read it."""
    temporary: str | None = None
    try:
        if not anything and path.exists() and _MARK not in path.read_bytes()[:_HEAD]:
            raise CommandError(
                f"{path} is in the way", id="report-exists", where="report", fix=f"-o {path.stem}-report.html"
            )
        if path.exists() and not path.is_file():  # a pipe or a device is written to, and never replaced
            path.write_text(page, encoding="utf-8", newline="\n")
            return
        handle, temporary = tempfile.mkstemp(prefix=".report-", dir=path.parent)
        with open(handle, "w", encoding="utf-8", newline="\n") as target:
            target.write(page)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise CommandError(
            f"{path} cannot be written",
            id="output-failed",
            where="report",
            got=error.strerror or str(error),
            fix="name another file: -o page.html",
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
