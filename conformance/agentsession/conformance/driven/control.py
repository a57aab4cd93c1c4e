"""Steers, updates and aborts of a driven session, wherever it stands.

Not for: verdicts on what follows (``checks.py``). Rules carried: CTL-01 to CTL-04, CTL-06, CTL-07, HITL-06, TOOL-01.
May import: ``agentsession.protocol``, the modules of the suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentsession.conformance.driven.session import Driven
from agentsession.conformance.looking import of
from agentsession.protocol import AgentSessionError, Error, SessionConfig, SessionUpdate, StreamEnd, ToolResponse

__all__ = ["UPDATES", "abort", "abort_at_once", "steer", "steer_at_once", "update"]

UPDATES: Final[Mapping[str, SessionConfig]] = {
    "title": SessionConfig(title="Bugs"),
    "title and state": SessionConfig(title="Both", state={"count": 2}),
    "open config": SessionConfig(title="Half", config={"x-depth": 4}),
    "nothing": SessionConfig(),
}
"""The updates that are tried."""


async def steer_at_once(driven: Driven) -> None:
    """Start a turn, and steer it before it has come anywhere."""
    what = f'stream("message {driven.said + 1}"), and at once steer("to the left")'
    await driven.step(what, _steer_at_once(driven))


async def _steer_at_once(driven: Driven) -> str:
    await driven.begin("to its end")
    got = await driven.called(driven.session.steer("to the left"), "CTL-06", "steer()")
    if got.ok:
        driven.scene.expect(got.request_id is not None, "CTL-06", "a steer that was queued has no id")
        driven.steers[str(got.request_id)] = driven.turn_id
    return ""


async def abort_at_once(driven: Driven) -> None:
    """Start a turn, and end it before it has come anywhere; or it has come to its end by itself."""
    what = f'stream("message {driven.said + 1}"), and at once abort()'
    await driven.step(what, _abort_at_once(driven), suspect="CTL-01")


async def _abort_at_once(driven: Driven) -> str:
    before = await driven.scene.settled(driven.session)
    await driven.begin("to its end")
    outcome = await driven.called(driven.session.abort("at once"), "CTL-01", "abort()")
    record = await driven.record()
    ends = [event for event in of(record, StreamEnd) if event.seq > before]
    driven.scene.expect(bool(ends), "CTL-01", "abort() returned before the turn's end was in the record", record[-4:])
    state, reason = driven.session.state, ends[-1].reason
    driven.scene.expect(state == "idle", "CTL-01", f"after an abort the session is {state}", record[-4:])
    said = f"abort() says {outcome.status}, the turn ended {reason}"
    driven.scene.expect((outcome.status == "aborted") == (reason == "aborted"), "CTL-04", said, record[-4:])
    alone = driven.course.rest()
    own = alone.reason if alone.state == "idle" else None
    said = f"the turn ended {reason}, and would have ended {own or 'not at all'} by itself"
    driven.scene.expect(reason in ("aborted", own), "CTL-04", said, record[-4:])
    driven.course.end(reason)
    return ""


async def steer(driven: Driven) -> None:
    """Give the agent something to read."""
    await driven.step('steer("to the left")', _steer(driven))


async def _steer(driven: Driven) -> str:
    state, before = driven.session.state, await driven.scene.settled(driven.session)
    if "steering" not in driven.can:
        return await driven.unimplemented(driven.session.steer("to the left"), "CTL-06", "steer()")
    got = await driven.called(driven.session.steer("to the left"), "CTL-06", "steer()")
    if state in ("new", "idle") or not got.ok:
        known = got.status == "rejected" and state != "running"
        driven.scene.expect(known, "CTL-06", f"a steer of a session that is {state} is {got.status}")
        await driven.scene.unchanged(driven.session, before, "CTL-06", "a steer that was rejected")
        return "rejected, and nothing changes"
    driven.scene.expect(got.request_id is not None, "CTL-06", "a steer that was queued has no id")
    driven.steers[str(got.request_id)] = driven.turn_id
    return "queued"


async def update(driven: Driven, which: str) -> None:
    """Change the session's configuration."""
    await driven.step(f"update({which})", _update(driven, which, UPDATES[which]))


async def _update(driven: Driven, which: str, config: SessionConfig) -> str:
    state, before = driven.session.state, await driven.scene.settled(driven.session)
    try:
        taken = (await driven.session.update(config)).status == "applied"
    except AgentSessionError:
        taken = False
    if not taken:
        await driven.scene.unchanged(driven.session, before, "CTL-07", f"an update of {which} that was rejected")
        return "rejected, and nothing changes"
    mid_turn = state != "running" or "mid_turn_update" in driven.can
    driven.scene.expect(mid_turn, "CTL-07", "an update of a running turn was taken and is not declared")
    made = [event for event in of(await driven.record(), SessionUpdate) if event.seq > before]
    driven.scene.expect(len(made) == 1, "CTL-07", f"an update of {which} is recorded {len(made)} times", made)
    said = {"title": made[0].title, "state": made[0].state_delta, "config": made[0].config}
    wanted = {"title": config.title, "state": config.state, "config": config.config}
    driven.scene.expect(said == wanted, "CTL-07", f"an update of {which} is recorded as {said}", made)
    return "applied"


async def abort(driven: Driven) -> None:
    """End the turn, or try to where none is."""
    suspect = "CTL-01" if driven.session.state in ("running", "input_required") else "CTL-02"
    await driven.step("abort()", _abort(driven), suspect=suspect)


async def _abort(driven: Driven) -> str:
    state, before = driven.session.state, await driven.scene.settled(driven.session)
    if "abort" not in driven.can:
        return await driven.unimplemented(driven.session.abort(), "CTL-01", "abort()")
    waiting, busy = list(driven.session.pending), driven.busy(await driven.record())
    outcome = await driven.called(driven.session.abort("enough"), driven.blame("CTL-01"), "abort()")
    record = await driven.record()
    ends = of(record, StreamEnd)
    last = ends[-1].reason if ends else None
    is_new = bool(ends) and ends[-1].seq > before
    if state in ("new", "idle"):
        rule = "CTL-04" if outcome.status == "aborted" and last == "completed" else "CTL-02"
        driven.scene.expect(outcome.status == "idle", rule, f"an abort of nothing says {outcome.status}", ends[-1:])
        await driven.scene.unchanged(driven.session, before, "CTL-02", "an abort of nothing")
        return "idle, and nothing changes"
    driven.scene.expect(is_new, "CTL-01", "abort() returned before the turn's end was in the record", record[-4:])
    said = f"abort() says {outcome.status}, the turn ended {last}"
    driven.scene.expect((outcome.status == "aborted") == (last == "aborted"), "CTL-04", said, record[-4:])
    new = [event for event in record if event.seq > before]
    now = driven.session.state
    driven.scene.expect(now == "idle", "CTL-01", f"after an abort the session is {now}", record[-4:])
    driven.scene.expect(not of(new, Error), "CTL-03", "an abort is shown as an error", new)
    driven.cancelled(waiting, new, "HITL-06", "an abort")
    cut = [one for one in of(new, ToolResponse) if one.request_id in busy and one.status != "unknown"]
    driven.scene.expect(not cut, "TOOL-01", "a tool that was cut off is not answered unknown", cut)
    driven.course.end("aborted")
    return ""
