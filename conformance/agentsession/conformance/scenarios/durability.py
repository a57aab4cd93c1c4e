"""PER: the record as the state, and what outlives the process.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.engine import Break
from agentsession.conformance.hosting import result_data, standard_answer
from agentsession.conformance.looking import of, recited
from agentsession.conformance.scenarios.tools import was_told
from agentsession.conformance.scene import Scene, Stage, scenario
from agentsession.conformance.script import Ask, Call, Calls, Hold, Recite, Say, Step, Stream, Think
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    ConnectionLost,
    Event,
    EventStream,
    Message,
    PendingRequest,
    SessionConfig,
    SessionMachine,
    SessionNotFound,
    SessionUpdate,
    StreamEnd,
    ToolResponse,
    grant,
    is_ephemeral,
)

_KILLS: Final = 6
"""At how many points, which the seed gives, a turn is killed."""

_LOOK: Final = Call(name="look", args={"at": "a"})
_WRITE: Final = Call(name="write", args={"path": "b"}, needs="grant")


# -- the record and the state -----------------------------------------------------------------------------------------


@scenario("PER-03")
async def the_record_tells_the_state(scene: Scene) -> None:
    """Folding the record gives the state and what waits: when a session is new, at work, and idle."""
    stage, session = await scene.opened([Think(text="hm"), Hold(mark="here"), Stream(pieces=["a", "b"])])
    await _folds(scene, session)
    async with scene.reading(session.stream("go")):
        await stage.reached("here")
        await _folds(scene, session)
        stage.release("here")
    await _folds(scene, session)


@scenario("PER-03", needs=("host_tool_execution",))
async def the_record_tells_what_waits(scene: Scene) -> None:
    """Folding the record gives what waits, while it is answered bit by bit."""
    _, session = await scene.opened([Calls(calls=[_LOOK, _WRITE]), Say(text="done")])
    look, write = await scene.asked(session, 2, "TOOL-06")
    await _folds(scene, session)
    await session.respond(standard_answer(look))
    await _folds(scene, session)
    await session.respond(standard_answer(write))
    await _folds(scene, session)
    await scene.read(session.stream())
    await _folds(scene, session)


async def _folds(scene: Scene, session: AgentSession) -> None:
    record = await scene.record(session)
    folded, waiting = SessionMachine.fold(record), [request.request_id for request in session.pending]
    scene.expect(
        folded.state == session.state, "PER-03", f"the record says {folded.state}, the session {session.state}", record
    )
    scene.expect(
        folded.pending == waiting, "PER-03", f"by the record {folded.pending} wait, by the session {waiting}", record
    )


# -- killed while it works --------------------------------------------------------------------------------------------


@scenario("LIFE-08")
async def an_executor_that_is_gone_is_missed(scene: Scene) -> None:
    """A stream whose executor is killed raises ConnectionLost; it does not end as if all had been said."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="done")])
    ended = False
    async with anyio.create_task_group() as group:
        async with session.stream("go") as stream:
            await stage.reached("here")
            group.start_soon(stage.kill)
            try:
                async for event in stream:
                    ended = ended or isinstance(scene.saw(event), StreamEnd)
            except ConnectionLost:
                ended = True
        scene.expect(ended, "LIFE-08", "a stream ended without its stream_end when its executor was killed")


@scenario("PER-02", "ORD-01", "PER-04", needs=("load",))
async def what_was_read_outlives_the_process(scene: Scene) -> None:
    """Killed after any event that a reader was given: all of them are there again, and no seq or id is used twice."""
    talk: list[Step] = [Say(text="one"), Stream(pieces=["a", "b", "c"]), Think(text="hm"), Say(text="two")]
    for _ in range(_KILLS):
        stage, session = await scene.opened([*talk, Hold(mark="last"), Say(text="three")], [Say(text="again")])
        given: list[Event] = []
        async with session.stream("go") as stream:
            await _read_some(scene, stage, session, stream, given)
            await stage.kill()
        _, loaded = await _loaded(scene, stage, session)
        record = await scene.record(loaded)
        _kept(scene, given, record)
        _cut(scene, record, stream.stream_id)
        events = await scene.read(loaded.stream("again"))
        scene.end(events, "completed", "PER-04")
        fresh(scene, given, events)


async def _read_some(
    scene: Scene, stage: Stage, session: AgentSession, stream: EventStream, given: list[Event]
) -> None:
    """Read as many events as the seed says, or all up to the mark."""
    limit = scene.random.randint(1, 9)

    async def read() -> None:
        async for event in stream:
            given.append(scene.saw(event))
            if len(given) == limit:
                break
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await stage.reached("last")
        while stream.cursor < session.last_seq:
            await checkpoint()
        group.cancel_scope.cancel()


@scenario("ORD-01", "ORD-02", "PER-04", needs=("load", "streaming"))
async def what_was_not_stored_is_not_numbered_again(scene: Scene) -> None:
    """Killed within a message: its deltas may be gone, but their seqs and ids are not used again."""
    stage, session = await scene.opened([Stream(pieces=["a", "b", "c"], hold="here")], [Say(text="again")])
    given: list[Event] = []
    async with session.stream("go") as stream:
        await stage.reached("here")
        async for event in stream:
            given.append(scene.saw(event))
            if len(of(given, Message)) == 3:  # the user's, and two pieces
                break
        await stage.kill()
    _, loaded = await _loaded(scene, stage, session)
    record, known = await scene.record(loaded), {event.id for event in given}
    _cut(scene, record, stream.stream_id)
    fresh(scene, given, [event for event in record if event.seq > given[0].seq and event.id not in known])
    events = await scene.read(loaded.stream("again"))
    scene.end(events, "completed", "PER-04")
    fresh(scene, given, events)


@scenario("PER-02", needs=("load",))
async def what_was_applied_outlives_the_process(scene: Scene) -> None:
    """Killed as soon as an update was applied: it is in the record of the session that is loaded."""
    stage, session = await scene.opened([Say(text="hello")])
    await scene.read(session.stream("go"))
    got = await session.update(SessionConfig(title="Bugs", state={"count": 1}))
    await stage.kill()
    _, loaded = await _loaded(scene, stage, session)
    kept = [event for event in of(await scene.record(loaded), SessionUpdate) if event.title == "Bugs"]
    scene.expect(not got.ok or bool(kept), "PER-02", "an update that was applied is lost")


@scenario("PER-02", needs=("load", "host_tool_execution"))
async def an_answer_outlives_the_process(scene: Scene) -> None:
    """Killed as soon as an answer was applied: its response is in the record, and it is not asked for again."""
    turn: list[Step] = [Calls(calls=[_LOOK, _WRITE]), Say(text="done")]
    for by_stream in (False, True):
        stage, session = await scene.opened(turn, [Say(text="again")])
        look, _ = await scene.asked(session, 2, "TOOL-06")
        if by_stream:
            async with session.stream([standard_answer(look)]) as stream:
                got = stream.receipts
                await stage.kill()
        else:
            got = await session.respond(standard_answer(look))
            await stage.kill()
        scene.receipts(got, "applied", rule="TOOL-08", what="an answer")
        _, loaded = await _loaded(scene, stage, session)
        scene.expect(
            look.request_id not in [request.request_id for request in loaded.pending],
            "PER-02",
            "a call that was answered waits again",
            list(loaded.pending),
        )
        answered = {event.request_id: event for event in of(await scene.record(loaded), ToolResponse)}
        kept = answered.get(look.request_id)
        scene.expect(kept is not None and kept.status == "completed", "PER-02", "an answer that was applied is lost")
        scene.expect(
            kept is None or kept.data == result_data("look", {"at": "a"}),
            "PER-02",
            "an answer says something else after a restart",
            [kept] if kept is not None else [],
        )


@scenario("PER-02", "CTL-06", needs=("load", "steering"))
async def a_steer_outlives_the_process(scene: Scene) -> None:
    """Killed as soon as a steer was queued: it is in the record once, injected or undelivered."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="done")], [Say(text="again")])
    async with session.stream("go"):
        await stage.reached("here")
        queued = await session.steer("to the left")
        await stage.kill()
    _, loaded = await _loaded(scene, stage, session)
    record = await scene.record(loaded)
    listed = [name for end in of(record, StreamEnd) for name in (end.data or {}).get("undelivered") or []]
    told = [event.message_id for event in of(record, Message) if event.message_id == queued.request_id]
    times = len(told) + listed.count(queued.request_id)
    scene.expect(not queued.ok or times == 1, "PER-02", f"a steer that was queued is told {times} times", record)


@scenario("PER-04", needs=("load",))
async def a_cut_stream_is_closed_once(scene: Scene) -> None:
    """A stream that was cut is closed as it is loaded, failed and lost; loading it again changes nothing."""
    stage, session = await scene.opened([Say(text="well"), Hold(mark="here")], [Say(text="again")])
    async with session.stream("go") as stream:
        await stage.reached("here")
        await stage.kill()
    second, loaded = await _loaded(scene, stage, session)
    record = await scene.record(loaded)
    _cut(scene, record, stream.stream_id)
    scene.expect(loaded.state == "idle", "PER-04", f"a session with a cut stream is {loaded.state} when it is loaded")
    await loaded.aclose()
    loaded = await second.load(session.session_id)
    again = await scene.record(loaded)
    scene.expect(
        [event.to_wire() for event in again] == [event.to_wire() for event in record],
        "PER-04",
        "loading a session for the second time changed its record",
        again[len(record) :],
    )
    scene.end(await scene.read(loaded.stream("again")), "completed", "PER-04")


@scenario("PER-04", "TOOL-05", needs=("load", "host_tool_execution"))
async def a_tool_that_was_cut_off_is_unknown(scene: Scene) -> None:
    """A tool that ran when its process was killed is answered unknown, and is not run again."""
    call = Call(name="write", args={"path": "a"}, needs="grant", hold="here")
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")], [Say(text="again")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    async with session.stream(grant(asked.request_id)):
        await stage.reached("here")
        scene.ran(stage, ("write", {"path": "a"}), rule="TOOL-05")
        await stage.kill()
    second, loaded = await _loaded(scene, stage, session)
    answered = of(await scene.record(loaded), ToolResponse)
    scene.expect(
        [event.status for event in answered] == ["unknown"],
        "PER-04",
        f"a tool that was cut off is answered {[event.status for event in answered]}, not unknown",
        answered,
    )
    second.release("here")
    scene.end(await scene.read(loaded.stream("again")), "completed", "PER-04")
    scene.ran(second, rule="TOOL-05")


# -- killed while it waits --------------------------------------------------------------------------------------------


@scenario("PER-01", "TOOL-08", "TOOL-11", needs=("resume", "host_tool_execution"))
async def calls_wait_again(scene: Scene) -> None:
    """Killed while calls wait, one of them answered: the others wait again, and their answers complete the turn."""
    call = Call(name="look", args={"at": "c"})
    stage, session = await scene.opened([Calls(calls=[_LOOK, _WRITE, call]), Recite()], [Say(text="again")])
    waiting = await scene.asked(session, 3, "TOOL-06")
    _none_volatile(scene, await scene.record(session))
    await session.respond(standard_answer(waiting[0]))
    second, loaded = await _killed_waiting(scene, stage, session, waiting[1:])
    for request in reversed(list(loaded.pending)):
        got = await loaded.respond(standard_answer(request))
        scene.receipts(got, "applied", rule="PER-01", what="an answer after a restart")
    events = await scene.read(loaded.stream())
    scene.end(events, "completed", "PER-01")
    ran = {"ran": "write", "args": {"path": "b"}}
    calls = [("look", {"at": "a"}, None), ("write", {"path": "b"}, ran), ("look", {"at": "c"}, None)]
    was_told(scene, events, [(name, args, data or result_data(name, args)) for name, args, data in calls])
    scene.ran(second, ("write", {"path": "b"}), rule="PER-01")
    scene.end(await scene.read(loaded.stream("again")), "completed", "PER-01")


@scenario("PER-01", needs=("resume", "elicitation"))
async def a_question_waits_again(scene: Scene) -> None:
    """Killed while a question waits: it waits again under its id, and its answer reaches the agent."""
    stage, session = await scene.opened([Ask(message="Which colour?"), Recite()], [Say(text="again")])
    waiting = await scene.asked(session, 1)
    _none_volatile(scene, await scene.record(session))
    _, loaded = await _killed_waiting(scene, stage, session, waiting)
    events = await scene.read(loaded.stream([standard_answer(request) for request in loaded.pending]))
    scene.end(events, "completed", "PER-01")
    told, wanted = recited(events), [{"action": "accept", "content": {"answer": "blue"}}]
    scene.expect(told == wanted, "PER-01", f"the model was told {told}, not {wanted}", events)
    scene.end(await scene.read(loaded.stream("again")), "completed", "PER-01")


@scenario("PER-01", "HITL-01", "HITL-03", needs=("resume", "elicitation"))
async def a_confirmation_waits_again(scene: Scene) -> None:
    """Killed while a tool waits for a yes: it has not run, and runs once with the yes, or never if that is lost."""
    call = Call(name="wipe", args={"path": "a"}, needs="none", confirm=True)
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")], [Say(text="again")])
    waiting = await scene.asked(session, 1, "HITL-01")
    volatile = _volatile(await scene.record(session))
    second, loaded = await _killed_waiting(scene, stage, session, waiting, volatile)
    scene.ran(second, rule="HITL-01")
    waits = loaded.state == "input_required"
    if waits:
        events = await scene.read(loaded.stream([standard_answer(request) for request in loaded.pending]))
        scene.end(events, "completed", "PER-01")
    scene.ran(second, *[("wipe", {"path": "a"})] * waits, rule="HITL-03")
    scene.end(await scene.read(loaded.stream("again")), "completed", "PER-01")


async def _killed_waiting(
    scene: Scene,
    stage: Stage,
    session: AgentSession,
    waiting: Sequence[PendingRequest],
    volatile: Sequence[str] = (),
) -> tuple[Stage, AgentSession]:
    """Kill, load, and compare what waits: all but what the pause said would not survive."""
    await stage.kill()
    second, loaded = await _loaded(scene, stage, session)
    wanted = [request.to_wire() for request in waiting if request.request_id not in volatile]
    got = [request.to_wire() for request in loaded.pending]
    scene.expect(
        got == wanted,
        "PER-01",
        f"{len(got)} requests wait after a restart, not the {len(wanted)} that waited before",
        [*waiting, *loaded.pending],
    )
    return second, loaded


def _none_volatile(scene: Scene, record: Sequence[Event]) -> None:
    """Whoever declares ``resume`` has plain calls and questions survive."""
    named = _volatile(record)
    scene.expect(not named, "PER-01", f"{len(named)} requests that wait would not survive the process", record[-1:])


def _volatile(record: Sequence[Event]) -> list[str]:
    """The requests that the last pause says will not survive the process."""
    ends = of(record, StreamEnd)
    named = (ends[-1].data or {}).get("volatile") if ends else None
    return [str(name) for name in named] if isinstance(named, list) else []


# -- what they look for -----------------------------------------------------------------------------------------------


async def _loaded(scene: Scene, stage: Stage, session: AgentSession) -> tuple[Stage, AgentSession]:
    """Another executor in the place of a killed one, and its session."""
    second = await stage.again()
    try:
        return second, await second.load(session.session_id)
    except SessionNotFound as error:
        raise Break("PER-02", f"a session that was open is not there after a kill: {error.what}") from error
    except AgentSessionError as error:
        raise Break("PER-04", f"a session cannot be loaded after a kill: {error.what}") from error


def _kept(scene: Scene, given: Sequence[Event], record: Sequence[Event]) -> None:
    """What a reader was given is in the record, but for what is ephemeral."""
    seqs = {event.seq for event in record}
    lost = [event for event in given if event.seq not in seqs and not is_ephemeral(event)]
    scene.expect(not lost, "PER-02", f"{len(lost)} events that a reader was given are lost", lost)


def _cut(scene: Scene, record: Sequence[Event], stream_id: str) -> None:
    """A cut stream was closed under its id, as lost."""
    ends = [event for event in of(record, StreamEnd) if event.stream_id == stream_id]
    scene.expect(len(ends) == 1, "PER-04", f"a stream that was cut has {len(ends)} ends", record[-4:])
    cause = (ends[0].data or {}).get("cause")
    scene.expect(
        ends[0].reason == "failed" and cause == "lost",
        "PER-04",
        f"a stream that was cut ended {ends[0].reason}, cause {cause}, not failed, cause lost",
        ends,
    )


def fresh(scene: Scene, before: Sequence[Event], after: Sequence[Event]) -> None:
    """No seq and no id that was given once is given again."""
    last, ids = max((event.seq for event in before), default=0), {event.id for event in before}
    scene.expect(after[0].seq > last, "ORD-01", f"#{after[0].seq} comes after #{last} was given", after[:1])
    again = [event for event in after if event.id in ids]
    scene.expect(not again, "ORD-02", "an event id was given again", again)
