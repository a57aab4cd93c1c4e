"""ORD: readers, cursors and replay.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.looking import texts
from agentsession.conformance.scene import NotApplicable, Scene, Stage, scenario
from agentsession.conformance.script import Hold, Say, Step, Stream, Think
from agentsession.protocol import (
    AgentSession,
    CursorGone,
    Event,
    EventReader,
    EventStream,
    StreamEnd,
    is_ephemeral,
)

_MANY: Final = 4000
"""How many events a producer is asked for that a reader does not take."""
_FAR: Final = 2000
"""How many events a reader may be behind, at most, without holding its producer."""

_FEW: Final = 5
"""How many events a failure names of those that a reader lacks."""

_TALK: Final[list[Step]] = [
    Think(text="hm"),
    Stream(pieces=["a", "b", "c"]),
    Hold(mark="half"),
    Stream(pieces=["d", "e"]),
    Say(text="end"),
]


# -- one order --------------------------------------------------------------------------------------------------------


@scenario("ORD-03", "ORD-01", "ORD-02")
async def all_readers_see_one_order(scene: Scene) -> None:
    """A stream, a follower from the start, one that was not entered, and one that came late see the same events."""
    stage, session = await scene.opened(_TALK)
    stream = session.stream("go")
    follower, loose = session.events(follow=True), session.events(follow=True)
    got: dict[str, list[Event]] = {}

    async def follow(name: str, reader: EventReader) -> None:
        got[name] = await _to_end(scene, reader)
        await reader.aclose()

    async with anyio.create_task_group() as group, follower:
        group.start_soon(follow, "a follower", follower)
        group.start_soon(follow, "one that was not entered", loose)
        async with scene.reading(stream) as got["the stream"]:
            await stage.reached("half")
            group.start_soon(follow, "one that came late", session.events(session.last_seq, follow=True))
            await checkpoint()
            stage.release("half")
    whole = got["a follower"]
    for name, seen in got.items():
        after = seen[0].seq if seen else 0
        same = [event for event in whole if event.seq >= after]
        scene.expect(_ids(seen) == _ids(same), "ORD-03", f"beside a follower, {name} {_gap(seen, same)}", seen)


@scenario("ORD-04", "LIFE-08", "ORD-05")
async def a_reader_that_leaves_disturbs_nobody(scene: Scene) -> None:
    """The stream is left, a follower dropped, another cancelled: the turn goes on, and who stays misses nothing."""
    stage, session = await scene.opened(_TALK, [Say(text="again")])
    stays, dropped, cancelled = (session.events(follow=True) for _ in range(3))
    stream = session.stream("go")
    seen: list[Event] = []

    async def stay() -> None:
        seen.extend(await _to_end(scene, stays))

    async with anyio.create_task_group() as group:
        group.start_soon(stay)
        async with stream, dropped:
            await scene.next(stream)
            await scene.next(dropped)
            await stage.reached("half")
        async with anyio.create_task_group() as reading:
            reading.start_soon(_to_end, scene, cancelled)
            await checkpoint()
            reading.cancel_scope.cancel()
        scene.expect(session.state == "running", "ORD-04", f"when its readers left the turn became {session.state}")
        stage.release("half")
    await stays.aclose()
    await cancelled.aclose()
    scene.end(seen, "completed", "ORD-04")
    scene.expect("end" in " ".join(texts(seen)), "ORD-04", "who stayed missed what was said", seen)
    cut = session.events(seen[2].seq, follow=True, stream_id=stream.stream_id)
    async with cut:
        again = await _to_end(scene, cut)
    _suffix(scene, seen, again, seen[2].seq, "ORD-05")
    scene.end(await scene.read(session.stream("again")), "completed", "ORD-04")


# -- replay -----------------------------------------------------------------------------------------------------------


@scenario("ORD-05", "ORD-06")
async def every_cursor_gives_the_rest(scene: Scene) -> None:
    """While a turn runs, a reader from each cursor gets what came after it and then what comes, once and in order."""
    stage, session = await scene.opened([Say(text="before")], _TALK)
    await scene.read(session.stream("first"))
    first = session.last_seq
    whole = session.events(follow=True)
    stream = session.stream("second")
    got: dict[int, list[Event]] = {}

    async def follow(after: int, reader: EventReader) -> None:
        async with reader:
            got[after] = await _to_end(scene, reader, stream)

    async with anyio.create_task_group() as group:
        group.start_soon(follow, -1, whole)
        async with scene.reading(stream):
            await stage.reached("half")
            for after in range(session.last_seq + 1):
                group.start_soon(follow, after, session.events(after, follow=True))
            await checkpoint()
            stage.release("half")
    original = got.pop(-1)
    for after, seen in got.items():
        _suffix(scene, original, seen, after, "ORD-05", whole_from=first)
    stored = await scene.record(session)
    for after in range(session.last_seq + 1):
        async with session.events(after) as reader:
            _suffix(scene, stored, [event async for event in reader], after, "ORD-05")


@scenario("ORD-06", "ORD-05")
async def a_replay_says_what_was_said(scene: Scene) -> None:
    """What is read again of an ended turn equals what was read live, event by event."""
    stage, session = await scene.opened(_TALK)
    async with scene.reading(session.stream("go")) as live:
        await stage.reached("half")
        stage.release("half")
    for _ in range(2):
        again = {event.seq: event for event in await scene.record(session)}
        for event in live:
            if is_ephemeral(event):
                continue
            other = again.get(event.seq)
            scene.expect(other is not None, "ORD-05", f"#{event.seq} is not there any more", [event])
            scene.expect(
                other is None or other.to_wire() == event.to_wire(),
                "ORD-06",
                f"#{event.seq} says something else when it is read again",
                [event, *([other] if other is not None else [])],
            )


@scenario("ORD-07")
async def a_cursor_beyond_the_end_is_gone(scene: Scene) -> None:
    """A cursor that the record has not reached raises CursorGone; the last seq and 0 are valid."""
    _, session = await scene.opened([Say(text="hello")])
    await scene.read(session.stream("go"))
    last = session.last_seq
    for beyond in (last + 1, last + 1000, 2**40):
        await scene.refused(
            partial(_read_from, session, beyond),
            CursorGone,
            "ORD-07",
            f"events({beyond}) of a record that ends at {last}",
        )
    async with session.events(last) as reader:
        rest = [event async for event in reader]
    scene.expect(not rest, "ORD-07", "the last seq is no valid cursor", rest)
    async with session.events(0) as reader:
        everything = [event async for event in reader]
    scene.expect(bool(everything) and everything[-1].seq == last, "ORD-07", "0 is no valid cursor", everything)


@scenario("ORD-07")
async def a_cursor_that_was_compacted_away_is_gone(scene: Scene) -> None:
    """Where the beginning of a record was dropped, a cursor in it raises CursorGone; from the first that is left on
    all is there."""
    stage, session = await scene.opened([Say(text="one")], [Say(text="two")])
    for text in ("one", "two"):
        await scene.read(session.stream(text))
    record = await scene.record(session)
    gone = await scene.harness.compact(stage.executor, session)
    if gone is None:
        raise NotApplicable("no record is compacted: the harness has no compact()")
    scene.seen.compacted(session.session_id, gone)
    for after in range(gone):
        await scene.refused(
            partial(_read_from, session, after),
            CursorGone,
            "ORD-07",
            f"events({after}), compacted to {gone}",
        )
    rest = await _read_from(session, gone)
    wanted = [event for event in record if event.seq > gone]
    scene.expect(_ids(rest) == _ids(wanted), "ORD-07", f"after {gone} a reader saw {_ids(rest)}", rest)


async def _read_from(session: AgentSession, after: int) -> list[Event]:
    async with session.events(after) as reader:
        return [event async for event in reader]


@scenario("ORD-10")
async def a_filter_moves_the_cursor(scene: Scene) -> None:
    """The cursor of a filtered reader stands at what it has given, then behind all that it has skipped."""
    _, session = await scene.opened([Think(text="hm"), Say(text="one")], [Say(text="two")])
    for text in ("one", "two"):
        await scene.read(session.stream(text))
    last = session.last_seq
    ends = [event for event in await scene.record(session) if isinstance(event, StreamEnd)]
    async with session.events(types=["initialize", "agent_start", "stream_end"]) as reader:
        async for event in reader:
            scene.expect(
                reader.cursor == event.seq, "ORD-10", f"a reader gave #{event.seq}, its cursor is {reader.cursor}"
            )
        scene.expect(reader.cursor == last, "ORD-10", f"a reader passed #{last}, its cursor is {reader.cursor}", ends)
    async with session.events(types=["initialize"]) as reader:
        found = [event async for event in reader]
        scene.expect(len(found) == 1, "ORD-10", f"a filter for initialize gave {len(found)} events", found)
        scene.expect(reader.cursor == last, "ORD-10", f"it skipped to #{last}, its cursor is {reader.cursor}", found)
        cursor = reader.cursor
    async with session.events(cursor) as reader:
        rest = [event async for event in reader]
    scene.expect(not rest, "ORD-10", "a cursor of a filtered reader gives again what it skipped", rest)


@scenario("ORD-09", needs=("abort",))
async def an_aborted_turn_says_no_more(scene: Scene) -> None:
    """After its end nothing comes under a stream's id, also when what was cut off could go on beside the next turn."""
    stage, session = await scene.opened([Hold(mark="cut"), Say(text="too late")], [Hold(mark="next"), Say(text="next")])
    first = session.stream("go")
    async with scene.reading(first):
        await stage.reached("cut")
        await session.abort()
    async with scene.reading(session.stream("next")) as events:
        await stage.reached("next")
        stage.release("cut")
        for _ in range(10):
            await checkpoint()
        stage.release("next")
    scene.end(events, "completed", "CTL-05")
    record = await scene.record(session)
    own = [event for event in record if event.stream_id == first.stream_id]
    ended = bool(own) and isinstance(own[-1], StreamEnd)
    scene.expect(ended, "ORD-09", "an aborted stream went on after its end", own[-4:])
    scene.expect("too late" not in " ".join(texts(record)), "ORD-09", "an aborted turn spoke in the next", record)


# -- readers that do not keep up --------------------------------------------------------------------------------------


@scenario("ORD-11", needs=("abort",))
async def a_stalled_reader_bounds_the_producer_and_no_abort(scene: Scene) -> None:
    """A reader that kept up and stops holds the producer; abort ends the turn all the same, and the reader gets it."""
    stage, session = await _flooding(scene)
    async with session.stream("go") as stream:
        await _keep_up(scene, stage, session, stream)
        stage.release("begin")
        await _is_bounded(scene, stage, session, stream)
        await session.abort()
        scene.expect(session.state == "idle", "CTL-01", f"after an abort the session is {session.state}")
        rest = [scene.saw(event) async for event in stream]
    scene.end(rest, "aborted", "ORD-11")


@scenario("ORD-11")
async def a_stalled_reader_misses_nothing(scene: Scene) -> None:
    """When a reader that has held the producer reads on, it gets all, and the turn completes."""
    stage, session = await _flooding(scene)
    async with session.stream("go") as stream:
        await _keep_up(scene, stage, session, stream)
        stage.release("begin")
        await _is_bounded(scene, stage, session, stream)
        stage.release("after")
        rest = [scene.saw(event) async for event in stream]
    scene.end(rest, "completed", "ORD-11")
    said = "".join(texts(rest))
    scene.expect(said.count("x") == _MANY, "ORD-11", f"{said.count('x')} of {_MANY} pieces were said")


@scenario("ORD-11")
async def who_did_not_enter_holds_nobody(scene: Scene) -> None:
    """A reader that was not entered does not hold the producer, however far it falls behind."""
    stage, session = await _flooding(scene)
    loose = session.events(follow=True)
    await scene.next(loose)
    async with scene.reading(session.stream("go")) as events:
        await stage.reached("begin")
        stage.release("begin")
        stage.release("after")
    scene.end(events, "completed", "ORD-11")
    await loose.aclose()


async def _flooding(scene: Scene) -> tuple[Stage, AgentSession]:
    return await scene.opened([Hold(mark="begin"), Stream(pieces=["x"] * _MANY), Hold(mark="after"), Say(text="done")])


async def _keep_up(scene: Scene, stage: Stage, session: AgentSession, reader: EventReader) -> None:
    await stage.reached("begin")
    while reader.cursor < session.last_seq:
        await scene.next(reader)


async def _is_bounded(scene: Scene, stage: Stage, session: AgentSession, reader: EventReader) -> None:
    held = await scene.holds_back(stage, session, "after")
    behind = session.last_seq - reader.cursor
    scene.expect(held or behind < _FAR, "ORD-11", f"the producer went {behind} events ahead of a reader that stalled")


# -- what they look for -----------------------------------------------------------------------------------------------


async def _to_end(scene: Scene, reader: EventReader, stream: EventStream | None = None) -> list[Event]:
    """What a reader gives up to the end of a stream: of this one, or the first that comes."""
    seen: list[Event] = []
    async for event in reader:
        seen.append(scene.saw(event))
        if isinstance(event, StreamEnd) and (stream is None or event.stream_id == stream.stream_id):
            break
    return seen


def _ids(events: Sequence[Event]) -> list[str]:
    return [f"#{event.seq} {event.type}" for event in events]


def _gap(seen: Sequence[Event], wanted: Sequence[Event]) -> str:
    """In what one differs from the other."""
    got, needed = _ids(seen), _ids(wanted)
    lacks, more = [each for each in needed if each not in got], [each for each in got if each not in needed]
    parts = [f"{word} {_few(ids)}" for word, ids in (("lacks", lacks), ("has also", more)) if ids]
    return " and ".join(parts) or f"saw the same in another order: {_few(got)}"


def _few(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_FEW])
    return f"{shown} and {len(ids) - _FEW} more" if len(ids) > _FEW else shown


def _suffix(
    scene: Scene,
    original: Sequence[Event],
    seen: Sequence[Event],
    after: int,
    rule: str,
    *,
    whole_from: int | None = None,
) -> None:
    """What was seen is what the original has after the cursor, but for ephemeral events of streams that had ended.

    ``whole_from``: after this seq nothing had ended yet, so that nothing may be missing.
    """
    wanted = sorted((event for event in original if event.seq > after), key=lambda event: event.seq)
    whole = {event.seq for event in wanted if whole_from is not None and event.seq > whole_from}
    needed = [event for event in wanted if event.seq in whole or not is_ephemeral(event)]
    got = [event for event in seen if event.seq in {other.seq for other in needed}]
    scene.expect(
        [event.seq for event in seen] == sorted({event.seq for event in seen}),
        "ORD-01",
        f"a reader from {after} saw {_ids(seen)}",
        seen,
    )
    scene.expect(_ids(got) == _ids(needed), rule, f"after {after} a reader {_gap(got, needed)}", seen)
    extra = [event for event in seen if event.seq not in {other.seq for other in wanted}]
    scene.expect(not extra, rule, f"after {after} a reader saw {_few(_ids(extra))}, which came not after it", seen)
