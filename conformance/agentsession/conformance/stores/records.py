"""Scenarios about what a record holds: order, wholeness, and that nothing is lost or changed.

Not for: locks and lists (``holders.py``). Rules carried: PER-02, ORD-01. May import: ``agentsession.protocol``,
anyio, ``scene``.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel

from agentsession.conformance.stores.scene import (
    KEY,
    StoreBreak,
    StoreScene,
    end,
    initialize,
    message,
    store_scenario,
    update,
)
from agentsession.protocol import Event, InvalidInput, RecordStore, parse_event

__all__: list[str] = []


@store_scenario("read-back")
async def read_back(scene: StoreScene) -> None:
    """What was appended is read back equal, in its order: every sign, every number, what a later version wrote."""
    texts = [
        "smile 😀 \x00 \x1f \u2028 line\r\ntwo\t",
        "\u202e right to left, e\u0301 and é",
        "'; DROP TABLE events; -- \\ \" %s {} $1",
        " " * 3,
    ]
    unknown = {
        "type": "from_the_future",
        "id": "e9",
        "seq": 9,
        "sessionId": "s-1",
        "timestamp": "2026-01-31T12:00:00.000Z",
        "new": {"a": [1, None, True, 1.5e-7, 9007199254740991, {"": "x"}], "text": "é"},
    }
    events = [
        initialize(),
        *(message(2 + place, text) for place, text in enumerate(texts)),
        update(7, state_delta={"a": None, "b": [0.1, -0.0, 10**15], "ü": {"x": []}}),
        end(8, "t1", ["c1"]),
        parse_event(unknown),
    ]
    await scene.store.create(KEY)
    await scene.store.append(KEY, events, reserved_seq=9)
    found = await scene.store.read(KEY)
    scene.same([event.seq for event in found], [event.seq for event in events], "seqs that are read")
    for stored, event in zip(found, events, strict=True):
        if stored.to_wire_json() != event.to_wire_json():
            raise StoreBreak(f"event #{event.seq} is read as {stored.to_wire_json()[:200]}")


@store_scenario("tail")
async def tail(scene: StoreScene) -> None:
    """A read gives the events above a seq, oldest first, and no more than the limit."""
    await scene.filled(1, 2, 5, 9)
    store = scene.store
    scene.same([event.seq for event in await store.read(KEY, after=2)], [5, 9], "after 2")
    scene.same([event.seq for event in await store.read(KEY, after=3)], [5, 9], "after 3")
    scene.same([event.seq for event in await store.read(KEY, after=1, limit=2)], [2, 5], "after 1, two of them")
    scene.same(await store.read(KEY, after=9), [], "after the last")
    scene.same(await store.read(KEY, after=10**12), [], "after what will never be")


@store_scenario("rising")
async def rising(scene: StoreScene) -> None:
    """Seqs only rise: an append that goes back, or repeats a seq, is refused."""
    await scene.filled(1, 5)
    for seqs in ([5], [4], [5, 6], [6, 6], [7, 6]):
        what = f"an append of seqs {seqs} behind 5"
        await scene.refused(scene.store.append(KEY, _numbered(seqs), reserved_seq=9), InvalidInput, what=what)


def _numbered(seqs: Sequence[int]) -> list[Event]:
    """Events whose ids are new, whatever their seqs."""
    return [message(seq, id=f"n{place}-{seq}") for place, seq in enumerate(seqs)]


@store_scenario("gaps")
async def gaps(scene: StoreScene) -> None:
    """Seqs may leave gaps, also large ones: deltas are not stored."""
    seqs = [1, 2, 4097, 8193, 2**40]
    await scene.filled(*seqs)
    scene.same([event.seq for event in await scene.store.read(KEY)], seqs, "seqs that are read")
    scene.same((await scene.store.info(KEY)).last_seq, 2**40, "last_seq")


@store_scenario("reserved")
async def reserved(scene: StoreScene) -> None:
    """The reserved seq only rises, also without events, and never is below the last event's."""
    store = scene.store
    await store.create(KEY)
    scene.same((await store.info(KEY)).reserved_seq, 0, "reserved_seq of a new record")
    await store.append(KEY, [], reserved_seq=100)
    scene.same((await store.info(KEY)).reserved_seq, 100, "reserved_seq after an append without events")
    await store.append(KEY, [message(1)], reserved_seq=50)
    scene.same((await store.info(KEY)).reserved_seq, 100, "reserved_seq after an append that names a lower one")
    await store.append(KEY, [message(101)], reserved_seq=0)
    scene.same((await store.info(KEY)).reserved_seq, 101, "reserved_seq after an event beyond it")


@store_scenario("atomic")
async def atomic(scene: StoreScene) -> None:
    """An append that is refused stores nothing of itself: no event, no reserved seq."""
    await scene.filled(1)
    batch = _numbered([2, 3, 3])
    try:
        await scene.store.append(KEY, batch, reserved_seq=500)
    except Exception:  # noqa: BLE001 - whether it is refused is for another scenario
        scene.same([event.seq for event in await scene.store.read(KEY)], [1], "seqs after a refused append")
        scene.same((await scene.store.info(KEY)).reserved_seq, 1, "reserved_seq after a refused append")


@store_scenario("big")
async def big(scene: StoreScene) -> None:
    """An event of some megabytes, and a thousand events at once, are stored whole."""
    text = "0123456789é" * 200_000
    events = [message(1, text), *(message(seq) for seq in range(2, 1002))]
    await scene.store.create(KEY)
    await scene.store.append(KEY, events[:1], reserved_seq=1)
    await scene.store.append(KEY, events[1:], reserved_seq=1)
    scene.same(len(await scene.store.read(KEY)), 1001, "events that are read")
    if (await scene.store.read(KEY, limit=1))[0] != events[0]:
        raise StoreBreak("an event of two megabytes is not read back equal")


@store_scenario("cancelled")
async def cancelled(scene: StoreScene) -> None:
    """An append whose caller is cancelled is stored whole or not at all, and the store goes on."""
    await scene.filled(1)
    last = 1
    for turns in range(12):
        batch = [message(last + 1), message(last + 2), message(last + 3)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_append_quietly, scene.store, batch)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        found = [event.seq for event in await scene.store.read(KEY, after=last)]
        if found not in ([], [event.seq for event in batch]):
            raise StoreBreak(f"of an append that was cancelled, {len(found)} of 3 events are stored")
        last = found[-1] if found else last
    await scene.store.append(KEY, [message(last + 1)], reserved_seq=last + 1)


async def _append_quietly(store: RecordStore, batch: list[Event]) -> None:
    await store.append(KEY, batch, reserved_seq=batch[-1].seq)


@store_scenario("appenders")
async def appenders(scene: StoreScene) -> None:
    """Of two writers of one record, each append is taken whole or refused whole; nothing is mixed or lost."""
    await scene.store.create(KEY)
    taken: list[list[int]] = []

    async def write(number: int) -> None:
        for step in range(10):
            first = step * 100 + (9 - number) * 10 + 1  # who comes first has the higher seqs
            batch = _numbered([first, first + 1, first + 2])
            try:
                await scene.store.append(KEY, batch, reserved_seq=first + 2)
            except InvalidInput:
                continue
            taken.append([event.seq for event in batch])

    for found in await scene.at_once(4, write):
        if isinstance(found, Exception):
            raise StoreBreak(f"an append raises {type(found).__name__}, expected InvalidInput or nothing")
    stored = [event.seq for event in await scene.store.read(KEY)]
    scene.same(stored, sorted(stored), "the order of seqs")
    scene.same(stored, sorted(seq for batch in taken for seq in batch), "seqs of the appends that were taken")


@store_scenario("acknowledged")
async def acknowledged(scene: StoreScene) -> None:
    """What was acknowledged is there for another store on the same records, at once and after this one is gone."""
    events = await scene.filled(1, 2, 3)
    await scene.store.append(KEY, [], reserved_seq=77)
    async with scene.reopened() as other:
        scene.same(await other.read(KEY), events, "what another store reads")
        info = await other.info(KEY)
        scene.same((info.last_seq, info.reserved_seq), (3, 77), "what another store knows")
        await other.append(KEY, [message(78)], reserved_seq=78)
    scene.same((await scene.store.read(KEY, after=3)), [message(78)], "what the other one appended")
