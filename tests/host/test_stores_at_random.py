"""Our stores driven at random beside a model of what a store is: the same answers, the same refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    AgentSessionError,
    Event,
    InvalidInput,
    MemoryRecordStore,
    Message,
    RecordKey,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SessionUpdate,
    StoredSnapshot,
    StreamEnd,
    Text,
    ToolResponse,
)

T = TypeVar("T")

KEYS = [RecordKey(agent, user, name) for agent in ("a", "b") for user in ("u", "v") for name in ("s", "t")]
OWNERS = ["one", "two"]
keys = st.sampled_from(KEYS[:3] + KEYS[-1:])
texts = st.text(max_size=6)


@dataclasses.dataclass
class Model:
    """A record, told as plainly as can be."""

    events: list[Event] = dataclasses.field(default_factory=list)
    reserved: int = 0
    owner: str | None = None
    snapshots: list[StoredSnapshot] = dataclasses.field(default_factory=list)

    @property
    def last(self) -> int:
        return self.events[-1].seq if self.events else 0

    def append(self, events: list[Event], reserved: int) -> None:
        last, ids = self.last, {event.id for event in self.events}
        for event in events:
            if event.seq <= last or event.id in ids:
                raise InvalidInput("no")
            last = event.seq
            ids.add(event.id)
        self.events += events
        self.reserved = max(self.reserved, reserved, last)

    def told(self) -> dict[str, Any]:
        """What a list shows of it, folded anew each time."""
        title, turns, state, pending, answered = None, list[str](), "new", 0, 0
        for event in self.events:
            if isinstance(event, StreamEnd):
                if event.turn_id is not None and event.turn_id not in turns[-1:]:
                    turns.append(event.turn_id)
                state, pending, answered = ("input_required" if event.pending else "idle"), len(event.pending), 0
            elif isinstance(event, SessionUpdate):
                title, pending, answered = event.title or title, max(0, pending), 0
            elif isinstance(event, ToolResponse):
                answered += 1
        last = self.events[-1] if self.events else None
        if last is not None and last.stream_id is not None and not isinstance(last, StreamEnd):
            state, pending = "running", 0
        return {
            "title": title,
            "turns": len(turns),
            "state": state,
            "pending": max(0, pending - answered),
            "events": len(self.events),
            "last_seq": self.last,
            "reserved_seq": self.reserved,
        }


@st.composite
def batches(draw: st.DrawFn) -> list[Event]:
    """Events whose seqs mostly rise, and whose ids are mostly new."""
    base: dict[str, Any] = {"timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s"}
    events: list[Event] = []
    seq = draw(st.integers(1, 40))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3, 10]))):
        stamps: dict[str, Any] = {**base, "id": f"e{draw(st.sampled_from([seq, seq, seq, 3]))}", "seq": seq}
        kind = draw(st.integers(0, 4))
        streamed: dict[str, Any] = {"stream_id": "s1", "turn_id": draw(st.sampled_from(["t1", "t2"]))}
        if kind == 0:
            events.append(Message(**stamps, **streamed, message_id=f"m{seq}", content=[Text(text=draw(texts))]))
        elif kind == 1:
            pending = draw(st.sampled_from([[], ["c1"], ["c1", "c2"]]))
            reason = "input_required" if pending else "completed"
            events.append(StreamEnd(**stamps, **streamed, reason=reason, pending=pending))
        elif kind == 2:
            events.append(SessionUpdate(**stamps, title=draw(st.none() | st.text(min_size=1, max_size=3))))
        elif kind == 3:
            events.append(ToolResponse(**stamps, request_id="c1", name="x", status="denied"))
        else:
            events.append(Message(**stamps, message_id=f"m{seq}", content=[Text(text=draw(texts))]))
        seq += draw(st.sampled_from([1, 1, 1, 2, 7, 0]))
    return events


class Drive(RuleBasedStateMachine):
    """Each call goes to the model and to both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="agentsession-")
        self.memory = MemoryRecordStore()
        self.sqlite = SqliteRecordStore(Path(self.folder.name) / "r.db")
        self.records: dict[RecordKey, Model] = {}

    def teardown(self) -> None:
        self.run(self.sqlite.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def same(self, wanted: type[AgentSessionError] | object, call: Any) -> None:
        """Both stores return, or raise, what the model says."""
        for store in (self.memory, self.sqlite):
            try:
                found: object = self.run(call(store))
            except AgentSessionError as error:
                found = type(error)
            assert found == wanted, type(store).__name__

    def of(self, key: RecordKey) -> Model | None:
        return self.records.get(key)

    @rule(key=keys)
    def create(self, key: RecordKey) -> None:
        wanted = SessionExists if key in self.records else None
        self.same(wanted, lambda store: store.create(key))
        if wanted is None:
            self.records[key] = Model()

    @rule(
        key=keys,
        events=batches(),
        reserved=st.sampled_from([0, 30, 10_000, 10_000]),
        steps=st.sampled_from([0, 1, 1, 1, 2]),
    )
    def append(self, key: RecordKey, events: list[Event], reserved: int, steps: int) -> None:
        record = self.of(key)
        if record is not None and steps:  # behind what is there: most appends are
            moved = record.last + steps - (events[0].seq if events else 0)
            events = [
                event.model_copy(update={"seq": event.seq + moved, "id": f"{event.id}+{moved}"}) for event in events
            ]
        wanted: object = None
        try:
            if record is None:
                # What cannot be stored anywhere may be said first.
                Model().append(events, 0)
                wanted = SessionNotFound
            else:
                record.append(events, reserved)
        except InvalidInput:
            wanted = InvalidInput if record is not None else None
        if wanted is None and record is None:
            return
        self.same(wanted, lambda store: store.append(key, events, reserved_seq=reserved))

    @rule(key=keys, owner=st.sampled_from(OWNERS))
    def lock(self, key: RecordKey, owner: str) -> None:
        record = self.of(key)
        wanted: object = None
        if record is None:
            wanted = SessionNotFound
        elif record.owner not in (None, owner):
            wanted = SessionBusy
        else:
            record.owner = owner
        self.same(wanted, lambda store: store.lock(key, owner))

    @rule(key=keys, owner=st.sampled_from(OWNERS))
    def unlock(self, key: RecordKey, owner: str) -> None:
        record = self.of(key)
        if record is not None and record.owner == owner:
            record.owner = None
        self.same(None, lambda store: store.unlock(key, owner))

    @rule(key=keys)
    def delete(self, key: RecordKey) -> None:
        record = self.of(key)
        wanted = SessionNotFound if record is None else SessionBusy if record.owner else None
        self.same(wanted, lambda store: store.delete(key))
        if wanted is None:
            del self.records[key]

    @rule(key=keys, seq=st.integers(1, 9), text=texts, pick=st.integers(0, 3))
    def snapshot(self, key: RecordKey, seq: int, text: str, pick: int) -> None:
        record = self.of(key)
        before = [0, *(item.seq for item in record.snapshots)] if record is not None else [0]
        after = before[pick % len(before)]
        made = StoredSnapshot(after + seq, after, text)
        if record is not None:
            record.snapshots = [item for item in record.snapshots if item.seq <= after] + [made]
        self.same(None if record is not None else SessionNotFound, lambda store: store.put_snapshot(key, made))
        self.same(record.snapshots if record is not None else SessionNotFound, lambda store: store.snapshots(key))

    @rule(
        key=keys,
        after=st.integers(0, 60),
        before=st.none() | st.integers(0, 60),
        types=st.none() | st.sets(st.sampled_from(["message", "stream_end", "session_update"])),
        limit=st.none() | st.integers(0, 5),
        newest=st.booleans(),
    )
    def select(
        self, key: RecordKey, after: int, before: int | None, types: set[str] | None, limit: int | None, newest: bool
    ) -> None:
        record = self.of(key)
        wanted: object = SessionNotFound
        if record is not None:
            found = [
                event
                for event in record.events
                if event.seq > after
                and (before is None or event.seq < before)
                and (types is None or event.type in types)
            ]
            if limit is not None:
                found = found[len(found) - min(limit, len(found)) :] if newest else found[:limit]
            wanted = found
        self.same(
            wanted,
            lambda store: store.select(key, after=after, before=before, types=types, limit=limit, newest=newest),
        )

    @rule()
    def reopen(self) -> None:
        self.run(self.sqlite.aclose())
        self.sqlite = SqliteRecordStore(self.sqlite.path)

    @rule(limit=st.integers(1, 3), user=st.sampled_from([None, "u"]))
    def browse(self, limit: int, user: str | None) -> None:
        wanted = [key for key in reversed(self.records) if user in (None, key.user_id)]
        for store in (self.memory, self.sqlite):
            found: list[RecordKey] = []
            while page := self.run(store.browse(user_id=user, limit=limit, after=found[-1] if found else None)):
                found += [info.key for info in page]
            assert found == wanted

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for key, record in self.records.items():
            for store in (self.memory, self.sqlite):
                assert self.run(store.read(key)) == record.events
                info = self.run(store.info(key))
                assert {name: getattr(info, name) for name in record.told()} == record.told()


def test_both_stores_are_what_the_model_says() -> None:
    run_state_machine_as_test(
        Drive, settings=settings(max_examples=max(30, settings().max_examples // 3), stateful_step_count=25)
    )
