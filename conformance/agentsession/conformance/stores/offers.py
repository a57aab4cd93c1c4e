"""Scenarios about what a store may offer beyond the least; a store without it is not judged by them.

Not for: what every store must do. Rules carried: PER-03. May import: ``agentsession.protocol``, ``scene``.
"""

from __future__ import annotations

from agentsession.conformance.stores.scene import (
    KEY,
    NotOffered,
    StoreScene,
    end,
    initialize,
    message,
    response,
    store_scenario,
    update,
)
from agentsession.protocol import (
    RecordCatalog,
    RecordKey,
    RecordQueries,
    RecordSnapshots,
    SessionNotFound,
    StoredSnapshot,
)

__all__: list[str] = []


@store_scenario("queries", optional=True)
async def queries(scene: StoreScene) -> None:
    """``select`` gives parts of a record: between seqs, of types, from either end, always oldest first."""
    store = scene.store
    if not isinstance(store, RecordQueries):
        raise NotOffered("it is no RecordQueries")
    await store.create(KEY)
    events = [initialize(), message(2), update(4), message(7), message(9)]
    await store.append(KEY, events, reserved_seq=9)

    async def seqs(**asked: object) -> list[int]:
        return [event.seq for event in await store.select(KEY, **asked)]  # type: ignore[arg-type]  # given by name

    scene.same(await seqs(), [1, 2, 4, 7, 9], "all")
    scene.same(await seqs(newest=True, limit=2), [7, 9], "the newest two")
    scene.same(await seqs(newest=True, limit=2, before=9), [4, 7], "the newest two before 9")
    scene.same(await seqs(limit=2, after=2), [4, 7], "two after 2")
    scene.same(await seqs(types=["message"]), [2, 7, 9], "messages")
    scene.same(await seqs(types={"message", "initialize"}, limit=2), [1, 2], "two of two types")
    scene.same(await seqs(types=["message"], newest=True, limit=1, before=8), [7], "the newest message before 8")
    scene.same(await seqs(types=[]), [], "of no type")
    await scene.refused(store.select(RecordKey("a", "b", "c")), SessionNotFound, what="select without a record")


@store_scenario("snapshots", optional=True)
async def snapshots(scene: StoreScene) -> None:
    """Snapshots are kept beside their record: a later one drops those that it does not go on from, a delete all."""
    store = scene.store
    if not isinstance(store, RecordSnapshots):
        raise NotOffered("it is no RecordSnapshots")
    await scene.filled(1)
    kept = [StoredSnapshot(10, 0, "{}"), StoredSnapshot(20, 10, "é\x00"), StoredSnapshot(30, 20, "x" * 100_000)]
    for snapshot in kept:
        await store.put_snapshot(KEY, snapshot)
    scene.same(await store.snapshots(KEY), kept, "the snapshots")
    other = StoredSnapshot(25, 10, "d")
    await store.put_snapshot(KEY, other)
    scene.same(await store.snapshots(KEY), [kept[0], other], "those after one that goes on from the first")
    scene.same(len(await store.read(KEY)), 1, "the events beside them")
    await store.delete(KEY)
    await scene.refused(store.snapshots(KEY), SessionNotFound, what="the snapshots of a deleted record")
    await scene.refused(store.put_snapshot(KEY, other), SessionNotFound, what="a snapshot without a record")
    await store.create(KEY)
    scene.same(await store.snapshots(KEY), [], "the snapshots of a new record under the id")


@store_scenario("catalog", optional=True)
async def catalog(scene: StoreScene) -> None:
    """``browse`` lists records of all users by pages, newest first."""
    store = scene.store
    if not isinstance(store, RecordCatalog):
        raise NotOffered("it is no RecordCatalog")
    keys = [RecordKey(agent, user, "s") for agent in ("coder", "desk") for user in ("ann", "bob", "cid")]
    for key in keys:
        await scene.store.create(key)
    found: list[RecordKey] = []
    after = None
    for _ in range(4):
        page = await store.browse(limit=4, after=after)
        found += [info.key for info in page]
        if not page:
            break
        after = page[-1].key
    scene.same(found, keys[::-1], "all pages")
    scene.same([info.key for info in await store.browse(user_id="bob")], [keys[4], keys[1]], "those of one user")
    scene.same([info.key for info in await store.browse(agent="desk", limit=2)], [keys[5], keys[4]], "two of one agent")
    gone = RecordKey("coder", "ann", "gone")
    await scene.refused(store.browse(after=gone), SessionNotFound, what="a page after a record that is gone")


@store_scenario("summary", optional=True)
async def summary(scene: StoreScene) -> None:
    """What a store tells of title, counts and state is true; what it does not know is ``None``."""
    store = scene.store
    await store.create(KEY)
    await store.append(KEY, [initialize(), update(2, title="Old"), update(3, title="Shop")], reserved_seq=100)
    await store.append(KEY, [end(5, "t1")], reserved_seq=100)
    await store.append(KEY, [message(6, stream_id="s9", turn_id="t2"), end(9, "t2", ["c1", "c2"])], reserved_seq=100)
    await store.append(KEY, [response(10, "c1")], reserved_seq=100)
    info = await store.info(KEY)
    told = {
        "title": info.title,
        "events": info.events,
        "turns": info.turns,
        "state": info.state,
        "pending": info.pending,
    }
    if all(value is None for value in told.values()):
        raise NotOffered("it tells nothing of titles and counts")
    true = {"title": "Shop", "events": 7, "turns": 2, "state": "input_required", "pending": 1}
    for name, value in told.items():
        if value is not None:
            scene.same(value, true[name], name)
    await store.append(KEY, [message(11, stream_id="s11", turn_id="t2")], reserved_seq=100)
    info = await store.info(KEY)
    if info.state is not None:
        scene.same(info.state, "running", "the state inside a stream")
