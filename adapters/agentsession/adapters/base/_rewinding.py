"""Rewinding a session: the checks, the settlement and the marker, for every executor.

Not for: what the agent behind has to forget (``BaseExecutor.on_rewind``), or reading a record without what was rewound
(``agentsession.protocol.without_rewound``). Rules carried: PER-06. May import: ``agentsession.protocol``.

The marker is recorded and stored before the agent behind is told: what the record says was acknowledged, so an executor
that keeps a history of its own must do in ``on_load`` what a process that was killed in between did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentsession.adapters.base._loading import refold_state
from agentsession.protocol import (
    REWIND,
    AbortTimeout,
    CursorGone,
    Custom,
    Event,
    InvalidInput,
    SessionClosed,
    SessionMachine,
    StreamActive,
    without_rewound,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["rewind_session"]


async def rewind_session(session: BaseSession, to: int) -> None:
    """Settle what waits, record the marker, and let the executor do its part.

    An executor whose part fails leaves a session whose agent knows more than its record: it is closed, and its next
    load has to finish the rewind.
    """
    where = f"session {session.session_id}"
    if session.state == "closed":
        raise SessionClosed("the session is closed", where=where, fix="load it")
    if session.state == "running" or session.rewinding:
        raise StreamActive(
            "a session that is at work cannot be rewound", where=where, fix="wait for its stream_end, or abort it"
        )
    session.rewinding = True
    try:
        # All of it: what is rewound may no longer be in memory.
        _check_point(await session.whole_record(), session.recorder.seq, to, where)
        if to == session.recorder.seq:
            return
        if session.state == "input_required":
            session.ending.settle_turn("aborted", REWIND)
        # Also when nothing waited: the work of an earlier turn may still be on its way out.
        await session.ending.wait_exited(session.turns.unfinished())
        session.recorder.record(Custom(kind=REWIND, data={"to_seq": to}, source="host"))
        await session.stored()
        if session.recorder.is_state_stale and session.store is not None:
            await refold_state(session.recorder, session.store)
        try:
            await session.executor.on_rewind(session, to)
        except BaseException:
            await session.aclose()
            raise
        await session.stored()
    except AbortTimeout:
        await session.release()
        raise
    finally:
        session.rewinding = False


def _check_point(record: Sequence[Event], last: int, to: int, where: str) -> None:
    """Raise for a seq that this record cannot be rewound to: unknown, rewound already, or inside a turn."""
    if not 0 < to <= last:
        raise CursorGone(f"seq {to} is not in the record", where=where, expected=f"1 to {last}")
    kept = [event for event in without_rewound(record) if event.seq <= to]
    if not kept or kept[-1].seq != to:
        known = any(event.seq == to for event in record)
        raise InvalidInput(
            f"this record cannot be rewound to seq {to}",
            where=where,
            got="it was rewound" if known else "no durable event has it",
            expected="the seq of an event that counts",
            fix="take one of without_rewound(session.record)",
        )
    if SessionMachine.fold([event for event in record if event.seq <= to]).state not in ("new", "idle"):
        raise InvalidInput(
            f"this record cannot be rewound to seq {to}",
            where=where,
            got="a turn is open there",
            fix="rewind to the final stream_end of a turn, or fork there",
        )
