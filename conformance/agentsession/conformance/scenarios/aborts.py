"""CTL-01 to CTL-05: what an abort ends, and how it is told.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.looking import of, texts
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Call, Calls, Hold, Raise, Say, Step, Stop, Stream
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentSession,
    AgentSessionError,
    Error,
    Event,
    EventStream,
    StreamEnd,
)

_ABORT: Final = ("abort",)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a turn is when it is aborted: what it does, and the mark at which it is held there."""

    what: str
    steps: tuple[Step, ...]
    mark: str = "here"


_MODEL: Final = _Place("while the model thinks", (Say(text="well"), Hold(mark="here"), Say(text="too late")))
_WORDS: Final = _Place("within a message", (Stream(pieces=["well", " then"], hold="here"), Say(text="too late")))
_TOOL: Final = _Place(
    "while a tool runs",
    (Calls(calls=[Call(name="work", needs="none", hold="here")]), Say(text="too late")),
)


@scenario("CTL-01", "CTL-03", "CTL-05", "LIFE-14", needs=_ABORT)
async def an_abort_ends_what_the_model_does(scene: Scene) -> None:
    """Abort returns when the record has the turn's end, aborted and without an error; the next turn works."""
    for place in (_MODEL, _WORDS):
        await _aborted(scene, place)


@scenario("CTL-01", "CTL-03", "CTL-05", "TOOL-01", needs=("abort", "host_tool_execution"))
async def an_abort_ends_what_a_tool_does(scene: Scene) -> None:
    """A tool that runs when its turn is aborted is answered unknown: it may have done something."""
    record = await _aborted(scene, _TOOL)
    answered = [getattr(event, "status", None) for event in record if event.type == "tool_response"]
    scene.expect(
        answered == ["unknown"], "TOOL-01", f"a tool that was cut off is answered {answered}, not unknown", record
    )


async def _aborted(scene: Scene, place: _Place) -> list[Event]:
    """Abort a turn at a place and try the next one; the record after the abort."""
    stage, session = await scene.opened(place.steps, [Say(text="again")])
    stream = session.stream("go")
    async with scene.reading(stream) as events:
        await stage.reached(place.mark)
        outcome = await session.abort("enough")
        record = await scene.record(session)
        last = record[-1]
        scene.expect(
            isinstance(last, StreamEnd) and last.stream_id == stream.stream_id,
            "CTL-01",
            f"abort() {place.what} returned before the turn's end was in the record",
            record,
        )
        state = session.state
    stage.release(place.mark)
    scene.expect(state == "idle", "CTL-01", f"after an abort {place.what} the session is {state}", events)
    scene.end(events, "aborted", "CTL-01")
    scene.expect(outcome.status == "aborted", "CTL-01", f"abort() {place.what} says {outcome.status}", events)
    scene.expect(outcome.stream_id == stream.stream_id, "CTL-01", "abort() names another stream", events)
    errors = of(events, Error)
    scene.expect(not errors, "CTL-03", f"an abort {place.what} is shown as an error", errors)
    again = await scene.read(session.stream("again"))
    scene.end(again, "completed", "CTL-05")
    scene.expect("again" in texts(again), "CTL-05", f"after an abort {place.what} the next turn said nothing", again)
    return record


@scenario("CTL-01", needs=_ABORT)
async def an_abort_that_is_not_heeded_is_no_endless_wait(scene: Scene) -> None:
    """Where the work does not end, abort ends the turn all the same, or raises AbortTimeout and closes the session;
    what the work does later is not recorded."""
    stage, session = await scene.opened([Say(text="well"), Hold(mark="here", stubborn=True), Say(text="too late")])
    stream = session.stream("go")
    given: list[Event] = []
    lost: list[AgentSessionError] = []
    timed_out, before = False, 0

    async def read() -> None:
        try:
            given.extend(await scene.read(stream))
        except AgentSessionError as error:
            lost.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await stage.reached("here")
        try:
            timed_out = await _aborts_or_gives_up(scene, session, stream)
            before = await scene.settled(session)
        finally:
            stage.release("here")
    if lost and not timed_out:
        raise lost[0]
    after = await scene.settled(session)
    scene.expect(after == before, "ORD-09", "work that was aborted is recorded when it ends at last", given)


async def _aborts_or_gives_up(scene: Scene, session: AgentSession, stream: EventStream) -> bool:
    """Whether an abort gave up, and closed the session; else it has ended the turn."""
    try:
        outcome = await session.abort("enough")
    except AbortTimeout:
        scene.gave_up(session)
        state = session.state
        scene.expect(state == "closed", "CTL-01", f"abort() raised AbortTimeout, and the session is {state}")
        return True
    last = (await scene.record(session))[-1]
    ended = isinstance(last, StreamEnd) and last.stream_id == stream.stream_id and last.reason == "aborted"
    said = f"abort() says {outcome.status} of work that does not end, and the turn has not ended aborted"
    scene.expect(ended and session.state == "idle", "CTL-01", said, [last])
    return False


@scenario("CTL-02", needs=_ABORT)
async def a_second_abort_changes_nothing(scene: Scene) -> None:
    """Abort where nothing runs is idle and records nothing; several at once end the turn once."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="too late")])

    async def idle(when: str) -> None:
        before = await scene.settled(session)
        outcome = await session.abort()
        scene.expect(outcome.status == "idle", "CTL-02", f"an abort {when} says {outcome.status}, not idle")
        await scene.unchanged(session, before, "CTL-02", f"an abort {when}")

    await idle("before the first turn")
    outcomes: list[AbortResult] = []

    async def abort() -> None:
        outcomes.append(await session.abort())

    async with scene.reading(session.stream("go")) as events:
        await stage.reached("here")
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(abort)
    scene.end(events, "aborted", "CTL-02")
    ends = of(await scene.record(session), StreamEnd)
    scene.expect(len(ends) == 1, "CTL-02", f"three aborts left {len(ends)} ends", ends)
    said = sorted(outcome.status for outcome in outcomes)
    scene.expect("aborted" in said, "CTL-02", f"three aborts say {said}", events)
    await idle("after an abort")


_RACES: Final = 12
_BEGUN: Final = 20
"""For how many turns of the loop a call may be on its way to the executor, so that it is under way there."""


@scenario("CTL-04", needs=_ABORT)
async def an_abort_races_the_end(scene: Scene) -> None:
    """An abort that comes as the turn ends leaves one end, whose reason is the one that abort tells."""
    turns: list[list[Step]] = [[Hold(mark=f"race{number}"), Say(text="done")] for number in range(_RACES)]
    stage, session = await scene.opened(*turns, [Say(text="again")])
    before = False  # whether a race was won by the abort, which the next turn must not feel
    for number in range(_RACES):
        stream = session.stream("go")
        async with scene.reading(stream) as events:
            await stage.reached(f"race{number}")
            stage.release(f"race{number}")
            for _ in range(number):  # a little later each time, until the turn has ended by itself
                await checkpoint()
            outcome = await session.abort()
        end = _one_end(scene, await scene.record(session), stream)
        reason, said = end.reason, outcome.status
        others = reason not in ("completed", "aborted")
        scene.expect(not others, "CTL-05" if before else "CTL-04", f"a turn that was aborted ended {reason}", events)
        before = before or reason == "aborted"
        scene.expect(
            (said == "aborted") == (reason == "aborted"),
            "CTL-04",
            f"abort() says {said}, the turn ended {reason}",
            [end],
        )
        named = outcome.stream_id == (None if said == "idle" else stream.stream_id)
        scene.expect(named, "CTL-04", f"abort() says {said} of the stream {outcome.stream_id}", [end])
        scene.expect(not of(events, Error), "CTL-03", "an abort is shown as an error", of(events, Error))
    scene.end(await scene.read(session.stream("again")), "completed", "CTL-05")


_LAST_STEPS: Final[Mapping[str, Step]] = {
    "says its last word": Say(text="done"),
    "breaks": Raise(message="planted-4404"),
    "stops short": Stop(),
}


@scenario("CTL-04", "CTL-03", needs=_ABORT)
async def an_abort_meets_the_end_that_it_waits_for(scene: Scene) -> None:
    """An agent that comes to its own end while it is aborted leaves one end, and abort tells of that one: aborted,
    without an error, or too late."""
    scene.secrets.append("planted-4404")
    turns: list[list[Step]] = [
        [Say(text="well"), Hold(mark=what, stubborn=True), step] for what, step in _LAST_STEPS.items()
    ]
    stage, session = await scene.opened(*turns, [Say(text="again")])
    for what in _LAST_STEPS:
        stream = session.stream("go")
        outcomes: list[AbortResult] = []

        async def abort(outcomes: list[AbortResult] = outcomes) -> None:
            outcomes.append(await session.abort())

        async with scene.reading(stream) as events, anyio.create_task_group() as group:
            await stage.reached(what)
            group.start_soon(abort)
            for _ in range(_BEGUN):
                await checkpoint()
            stage.release(what)
        (outcome,) = outcomes
        end = _one_end(scene, await scene.record(session), stream)
        wanted = "aborted" if end.reason == "aborted" else "too_late"
        told = f"an abort of an agent that {what} meanwhile says {outcome.status}, the turn ended {end.reason}"
        scene.expect(outcome.status == wanted and outcome.stream_id == stream.stream_id, "CTL-04", told, [end])
        # A turn that the abort came too late for may have errors of its own, such as a model's that stopped short.
        errors = of(events, Error) if end.reason == "aborted" else []
        scene.expect(not errors, "CTL-03", "an abort is shown as an error", errors)
    scene.end(await scene.read(session.stream("again")), "completed", "CTL-05")


def _one_end(scene: Scene, record: Sequence[Event], stream: EventStream) -> StreamEnd:
    own = [event for event in of(record, StreamEnd) if event.stream_id == stream.stream_id]
    scene.expect(len(own) == 1, "CTL-04", f"a race of abort and end left {len(own)} ends", own)
    return own[0]
