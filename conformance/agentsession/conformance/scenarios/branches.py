"""PER-05 and PER-06: forks and rewinds.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from agentsession.conformance.hosting import standard_answer
from agentsession.conformance.looking import of, texts
from agentsession.conformance.scenarios.durability import fresh
from agentsession.conformance.scene import Scene, Stage, scenario
from agentsession.conformance.script import Call, Calls, Hold, Say
from agentsession.protocol import (
    AgentSession,
    CursorGone,
    Event,
    InvalidInput,
    StreamActive,
    ToolResponse,
    is_ephemeral,
    without_rewound,
)

_WAITS: Final = Calls(calls=[Call(name="look"), Call(name="write", needs="grant")])


# -- forks and rewinds ------------------------------------------------------------------------------------------------


@scenario("PER-05", needs=("fork",))
async def a_fork_is_a_session_of_its_own(scene: Scene) -> None:
    """A fork has the record up to its point under its own id; what one of the two does then is not the other's."""
    stage, session = await scene.opened([Say(text="one")], [Say(text="two")], [Say(text="three")])
    await scene.read(session.stream("first"))
    point = session.last_seq
    await scene.read(session.stream("second"))
    fork = await stage.fork(session.session_id, point)
    scene.expect(fork.session_id != session.session_id, "PER-05", "a fork has its source's session_id")
    before, copied = await scene.record(session), await scene.record(fork)
    _same(scene, [event for event in before if event.seq <= point], copied)
    scene.expect(
        all(event.session_id == fork.session_id for event in copied), "PER-05", "a fork holds its source's id", copied
    )
    events = await scene.read(fork.stream("second"))
    scene.end(events, "completed", "PER-05")
    scene.expect("two" in texts(events), "PER-05", f"the second turn of a fork said {texts(events)}", events)
    scene.expect(await scene.record(session) == before, "PER-05", "a turn of the fork is in the record of its source")
    events = await scene.read(session.stream("third"))
    scene.expect("three" in texts(events), "PER-05", f"after a fork its source said {texts(events)}", events)


@scenario("PER-05", needs=("fork", "host_tool_execution"))
async def a_fork_settles_what_waits(scene: Scene) -> None:
    """A fork where calls wait has them cancelled and takes a new turn; in its source they go on waiting."""
    stage, session = await scene.opened([_WAITS, Say(text="done")], [Say(text="again")])
    waiting = await scene.asked(session, 2, "TOOL-06")
    fork = await stage.fork(session.session_id, session.last_seq)
    scene.expect(fork.state == "idle", "PER-05", f"a fork where calls wait is {fork.state}, not settled")
    ended = {event.request_id: event.status for event in of(await scene.record(fork), ToolResponse)}
    wanted = {request.request_id: "cancelled" for request in waiting}
    scene.expect(ended == wanted, "PER-05", f"the fork answers what waited {ended}, not cancelled")
    scene.end(await scene.read(fork.stream("again")), "completed", "PER-05")
    scene.pending(session, 2, "PER-05")
    scene.ran(stage, rule="PER-05")
    events = await scene.read(session.stream([standard_answer(request) for request in waiting]))
    scene.end(events, "completed", "PER-05")


@scenario("PER-05", needs=("fork",))
async def no_fork_within_a_stream(scene: Scene) -> None:
    """A record cannot be forked where a stream is open, or beyond its end."""
    stage, session = await scene.opened([Say(text="one")])
    events = await scene.read(session.stream("go"))

    async def inside() -> None:
        await stage.fork(session.session_id, events[0].seq)

    async def beyond() -> None:
        await stage.fork(session.session_id, session.last_seq + 100_000)

    await scene.refused(inside, InvalidInput, "PER-05", "fork() in the middle of a stream")
    await scene.refused(beyond, CursorGone, "ORD-07", "fork() beyond the end")


@scenario("PER-06", needs=("rewind",))
async def a_rewind_takes_back_what_came_after(scene: Scene) -> None:
    """After a rewind only what came before its point counts; the record keeps the rest, and the next turn works."""
    stage, session = await scene.opened([Say(text="one")], [Say(text="two")], [Say(text="three")])
    await scene.read(session.stream("first"))
    point = session.last_seq
    second = await scene.read(session.stream("second"))
    before = await scene.record(session)
    await _rewound(stage, session, point)
    record = await scene.record(session)
    _same(scene, before, record[: len(before)], rule="PER-06")
    counts = without_rewound(record)
    scene.expect(
        [event.seq for event in counts if event.seq <= second[-1].seq] == [e.seq for e in before if e.seq <= point],
        "PER-06",
        "what came after the point of a rewind still counts",
        counts,
    )
    scene.expect(len(record) > len(before), "PER-06", "the record does not tell of the rewind", record)
    events = await scene.read(session.stream("third"))
    scene.end(events, "completed", "PER-06")
    fresh(scene, before, events)


@scenario("PER-06", needs=("rewind", "host_tool_execution"))
async def a_rewind_settles_what_waits(scene: Scene) -> None:
    """A rewind of a turn that waits cancels what waits; a later answer is stale, and nothing runs."""
    stage, session = await scene.opened([Say(text="one")], [_WAITS, Say(text="no")])
    await scene.read(session.stream("first"))
    point = session.last_seq
    waiting = await scene.asked(session, 2, "TOOL-06")
    await _rewound(stage, session, point)
    scene.pending(session, 0, "PER-06")
    got = await session.respond(*[standard_answer(request) for request in waiting])
    scene.receipts(got, "stale", "stale", rule="PER-06", what="an answer to what was rewound")
    ended = {event.request_id: event.status for event in of(await scene.record(session), ToolResponse)}
    scene.expect(set(ended.values()) == {"cancelled"}, "PER-06", f"a rewind answers what waits {ended}")
    scene.ran(stage, rule="PER-06")
    scene.expect(session.state == "idle", "PER-06", f"after a rewind the session is {session.state}")


@scenario("PER-06", needs=("rewind",))
async def no_rewind_to_nowhere(scene: Scene) -> None:
    """A record cannot be rewound into a turn, beyond its end, or while a stream runs; then nothing changes."""
    stage, session = await scene.opened([Say(text="one")], [Hold(mark="here"), Say(text="two")])
    events = await scene.read(session.stream("go"))
    last = session.last_seq

    def to(seq: int) -> Callable[[], Awaitable[None]]:
        return lambda: _rewound(stage, session, seq)

    await scene.refused(to(events[0].seq), InvalidInput, "PER-06", "rewind() into a turn")
    await scene.refused(to(last + 100), CursorGone, "PER-06", "rewind() beyond the end")
    scene.expect(session.last_seq == last, "PER-06", "a rewind that was refused left events")
    async with scene.reading(session.stream("second")):
        await stage.reached("here")
        await scene.refused(to(last), StreamActive, "PER-06", "rewind() while a stream runs")
        stage.release("here")


async def _rewound(stage: Stage, session: AgentSession, point: int) -> None:
    await stage.executor.rewind(session.session_id, point, store=stage.play.store)


def _same(scene: Scene, source: Sequence[Event], copied: Sequence[Event], rule: str = "PER-05") -> None:
    """The events are the same, but for the session that they belong to."""
    durable = [{**event.to_wire(), "sessionId": ""} for event in source if not is_ephemeral(event)]
    got = [{**event.to_wire(), "sessionId": ""} for event in copied if not is_ephemeral(event)]
    scene.expect(got == durable, rule, "events were not kept as they were", copied)
