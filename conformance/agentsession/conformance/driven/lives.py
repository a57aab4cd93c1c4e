"""The ends of a driven session's lives: killed or closed and loaded again, and driven to a quiet end.

Not for: what happens in one life (``session.py``). Rules carried: LIFE-08, LIFE-12, LIFE-13, PER-01, PER-02, PER-04.
May import: ``agentsession.protocol``, the modules of the suite.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

from agentsession.conformance.driven.answering import give
from agentsession.conformance.driven.checks import names_of, volatile_in
from agentsession.conformance.driven.hosts import hows
from agentsession.conformance.driven.readings import Reading
from agentsession.conformance.driven.session import Driven
from agentsession.conformance.engine import Break, evidence_of
from agentsession.conformance.killing import is_kept
from agentsession.conformance.looking import of
from agentsession.conformance.results import Status
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    Event,
    PendingRequest,
    SessionClosed,
    SessionNotFound,
    StreamEnd,
    ToolResponse,
    is_ephemeral,
)

__all__ = ["close_and_load", "end", "kill_and_load"]

_ROUNDS: Final = 30
"""After so many answers a turn that still asks has no end."""


@dataclasses.dataclass
class _Before:
    """What a life has left."""

    state: str
    record: list[Event]
    pending: list[PendingRequest]
    busy: set[str]
    """The calls whose tools had begun and were not over."""
    stream_id: str | None
    """The stream that ran."""


async def kill_and_load(driven: Driven) -> None:
    """End the process as ``kill -9`` would, and load what it left in another one."""
    if "load" not in driven.can:
        await driven.step("load(), which is not declared", _unimplemented(driven))
        return
    await driven.step("kill -9, and load() in a new process", _kill_and_load(driven))


async def close_and_load(driven: Driven) -> None:
    """Close the session, and load it again."""
    if "load" not in driven.can:
        await driven.step("load(), which is not declared", _unimplemented(driven))
        return
    await driven.step("aclose(), and load()", _close_and_load(driven))


async def _unimplemented(driven: Driven) -> str:
    return await driven.unimplemented(driven.stage.load(driven.session.session_id), "PER-02", "load()")


async def _kill_and_load(driven: Driven) -> str:
    before = await _before(driven)
    streams = [reading for reading in driven.readings if reading.stream_id is not None and reading.reads_on]
    for reading in [reading for reading in driven.readings if reading not in streams]:
        await reading.leave()
    await driven.stage.kill()
    for reading in streams:
        await driven.until(functools.partial(_is_done, reading))
        reading.judge_lost()
    driven.was_killed = True
    second = await driven.stage.again()
    driven.new_life(second)
    await _load(driven, before, "a kill")
    _cut(driven, before, await driven.record())
    return ""


def _is_done(reading: Reading) -> bool:
    return reading.is_done


async def _close_and_load(driven: Driven) -> str:
    before = await _before(driven)
    await driven.called(driven.session.aclose(), "LIFE-13", "aclose()")
    closed = driven.session
    if closed.state != "closed":
        raise Break("LIFE-13", f"after aclose() the session is {closed.state}", evidence_of(before.record[-3:]))

    async def speak() -> None:
        closed.stream("again")

    await driven.scene.refused(speak, SessionClosed, "LIFE-13", "stream() of a closed session")
    for reading in driven.readings:
        await reading.leave()
    driven.new_life(driven.stage)
    await _load(driven, before, "aclose()")
    return ""


async def _before(driven: Driven) -> _Before:
    record = await driven.record()
    running = driven.session.state == "running"
    return _Before(
        driven.session.state,
        record,
        list(driven.session.pending),
        driven.busy(record),
        next((event.stream_id for event in reversed(record) if running and event.stream_id), None),
    )


async def _load(driven: Driven, before: _Before, after_what: str) -> None:
    """Load the session, and hold it against what it was."""
    session_id = before.record[0].session_id
    try:
        driven.session = await driven.stage.load(session_id, driven.options())
    except SessionNotFound as error:
        raise Break("PER-02", f"a session is not there after {after_what}: {error.what}") from error
    except AgentSessionError as error:
        raise Break("PER-04", f"a session cannot be loaded after {after_what}: {error.what}") from error
    driven.watch()
    record = await driven.record()
    _kept(driven, before, record, after_what)
    if before.state == "input_required":
        await _waits_again(driven, before, record, after_what)
    else:
        state = driven.session.state
        wanted = "idle" if before.state == "running" else before.state
        if state != wanted:
            said = f"a session that was {before.state} is {state} after {after_what} and load()"
            raise Break("PER-04", said, evidence_of(record[-4:]))
        if before.state == "running":
            driven.course.end("failed" if after_what == "a kill" else "aborted")
    _nothing_else(driven, before, record, after_what)


def _kept(driven: Driven, before: _Before, record: Sequence[Event], after_what: str) -> None:
    """What was stored and acknowledged is there."""
    stored = {event.seq: event for event in record}
    for event in before.record:
        again = stored.get(event.seq)
        if again is None and is_ephemeral(event):
            continue
        if again is None:
            raise Break("PER-02", f"#{event.seq} is lost after {after_what}", evidence_of([], event))
        if again.to_wire() != event.to_wire():
            raise Break("ORD-06", f"#{event.seq} says something else after {after_what}", evidence_of([event], again))
    for answer in driven.applied:
        if not is_kept(answer, record):
            raise Break("PER-02", f"a {answer.kind} that was applied is lost after {after_what}", evidence_of([]))


def _nothing_else(driven: Driven, before: _Before, record: Sequence[Event], after_what: str) -> None:
    """Loading left nothing in the record, unless something had to be closed."""
    new = [event for event in record if event.seq > before.record[-1].seq]
    settled = before.state == "running" or bool(volatile_in(before.record)) or "resume" not in driven.can
    if new and not (settled and before.state in ("running", "input_required")):
        raise Break("PER-04", f"load() after {after_what} left events in the record", evidence_of(new[-4:]))


async def _waits_again(driven: Driven, before: _Before, record: Sequence[Event], after_what: str) -> None:
    """What waited waits again, but for what the pause said would not survive."""
    volatile = volatile_in(before.record)
    lasting = [request for request in before.pending if request.request_id not in volatile]
    state, waiting = driven.session.state, list(driven.session.pending)
    if "resume" in driven.can and lasting:
        got, wanted = [one.to_wire() for one in waiting], [one.to_wire() for one in lasting]
        if state != "input_required" or got != wanted:
            said = f"{len(got)} requests wait after {after_what}, not the {len(wanted)} that waited before"
            raise Break("PER-01", said, evidence_of([*lasting, *waiting]))
    if state == "input_required":
        left = names_of([one for one in before.pending if one not in lasting], record)
        for name in left:
            driven.course.answer(name, "cancel")
        return
    if state != "idle":
        raise Break("PER-04", f"a session that waited is {state} after {after_what}", evidence_of(record[-4:]))
    driven.course.end(of(record, StreamEnd)[-1].reason)


def _cut(driven: Driven, before: _Before, record: Sequence[Event]) -> None:
    """A stream that was cut is closed as lost, and what was at work in it is unknown."""
    if before.state != "running":
        return
    ends = [event for event in of(record, StreamEnd) if event.stream_id == before.stream_id]
    cause = (ends[0].data or {}).get("cause") if ends else None
    if len(ends) != 1 or ends[0].reason != "failed" or cause != "lost":
        said = f"a stream that was cut ended {ends[0].reason if ends else 'never'}, not failed for the cause lost"
        raise Break("PER-04", said, evidence_of(record[-4:]))
    cut = [one for one in of(record, ToolResponse) if one.request_id in before.busy and one.status != "unknown"]
    if cut:
        raise Break("PER-04", f"a tool that was cut off is answered {cut[0].status}, not unknown", evidence_of(cut))


# -- the quiet end ----------------------------------------------------------------------------------------------------


async def end(driven: Driven) -> None:
    """Answer all that waits, let go what is held, take one turn more, read everything again, and close."""
    await _quiet(driven)
    await driven.say("to its end")
    await _quiet(driven)
    for result in await driven.scene.finish():
        if result.status is Status.FAIL:
            raise Break(result.rule, result.message, result.evidence)
    driven.lines.append("aclose()")
    session: AgentSession = driven.session
    await driven.called(session.aclose(), "LIFE-13", "aclose()")
    if session.state != "closed":
        raise Break("LIFE-13", f"after aclose() the session is {session.state}")
    for reading in driven.readings:
        await reading.leave()
    driven.readings.clear()


async def _quiet(driven: Driven) -> None:
    for _ in range(_ROUNDS):
        if driven.session.state == "running":
            await driven.release()
        elif driven.session.state != "input_required":
            return
        elif driven.session.pending:
            waiting = names_of(driven.session.pending, await driven.record())
            chosen = [(name, hows(request)[0]) for name, request in waiting.items()]
            await give(driven, chosen, "stream", "to its end")
        else:
            await driven.go_on("to its end")
    raise Break("TOOL-08", f"a turn still asks after {_ROUNDS} answers", evidence_of(driven.scene.seen.latest))
