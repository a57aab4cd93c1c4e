"""Scenarios about whose a record is: keys, lists, locks, deletion.

Not for: what a record holds (``records.py``). Rules carried: PER-01. May import: ``agentsession.protocol``, ``scene``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable

from agentsession.conformance.stores.scene import KEY, StoreBreak, StoreScene, message, store_scenario
from agentsession.protocol import RecordKey, SessionBusy, SessionExists, SessionNotFound

__all__: list[str] = []


@store_scenario("create")
async def create(scene: StoreScene) -> None:
    """A record is made once: a second ``create`` raises SessionExists and leaves the record as it is."""
    events = await scene.filled(1, 2)
    await scene.refused(scene.store.create(KEY), SessionExists, what="a second create")
    scene.same(await scene.store.read(KEY), events, "the record after a second create")


@store_scenario("create-race")
async def create_race(scene: StoreScene) -> None:
    """Of twenty creates of one key at once one succeeds, and the others raise SessionExists."""
    found = await scene.at_once(20, lambda number: scene.store.create(KEY))
    names = sorted("made" if item is None else type(item).__name__ for item in found)
    scene.same(names, ["SessionExists"] * 19 + ["made"], "twenty creates")


@store_scenario("not-found")
async def not_found(scene: StoreScene) -> None:
    """Without a record every call raises SessionNotFound, and none makes one; only ``unlock`` does nothing."""
    store = scene.store
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: store.append(KEY, [message(1)], reserved_seq=1),
        "append of nothing": lambda: store.append(KEY, [], reserved_seq=1),
        "read": lambda: store.read(KEY),
        "info": lambda: store.info(KEY),
        "delete": lambda: store.delete(KEY),
        "lock": lambda: store.lock(KEY, "me"),
    }
    for name, call in calls.items():
        await scene.refused(call(), SessionNotFound, what=f"{name} without a record")
    await store.unlock(KEY, "me")
    scene.same(await store.list(KEY.agent, KEY.user_id), [], "the list after that")


def _keys() -> list[RecordKey]:
    """Keys that a store could mistake for each other."""
    made = [
        RecordKey("a", "b", "c"),
        RecordKey("a", "c", "b"),
        RecordKey("b", "a", "c"),
        RecordKey("A", "b", "c"),
        RecordKey("a", "b", "C"),
        RecordKey("a", "bb", "c"),
        RecordKey("ab", "b", "c"),
        RecordKey("é", "b", "c"),
        RecordKey(unicodedata.normalize("NFD", "é"), "b", "c"),
        RecordKey("a", "b", "'; --"),
        RecordKey("a", "b", "*"),
        RecordKey("a", "b", "_"),
        RecordKey("a", "b", "x" * 256),
        RecordKey("a", "b", "x" * 255 + "y"),
    ]
    for sign in "|:;,.- _~+#@\"'":
        made += [RecordKey("a", f"b{sign}c", "d"), RecordKey("a", "b", f"c{sign}d"), RecordKey(f"a{sign}b", "c", "d")]
    return made


@store_scenario("isolation")
async def isolation(scene: StoreScene) -> None:
    """Agent, user and session tell records apart, whatever signs stand in them; nobody sees another's."""
    keys = _keys()
    for number, key in enumerate(keys):
        try:
            await scene.store.create(key)
        except SessionExists:
            raise StoreBreak(f"{key} is taken for another key") from None
        await scene.store.append(key, [message(1, f"of {number}")], reserved_seq=1)
    for number, key in enumerate(keys):
        scene.same(await scene.store.read(key), [message(1, f"of {number}")], f"what {key} holds")
    for agent, user in {(key.agent, key.user_id) for key in keys}:
        wanted = {key for key in keys if (key.agent, key.user_id) == (agent, user)}
        found = {info.key for info in await scene.store.list(agent, user)}
        scene.same(found, wanted, f"the list of agent {agent!r}, user {user!r}")
    scene.same(await scene.store.list("a", "nobody"), [], "the list of a user without sessions")


@store_scenario("list")
async def list_(scene: StoreScene) -> None:
    """A list is of one user with one agent, newest first, and tells what ``info`` tells."""
    keys = [RecordKey("coder", "ann", f"s-{name}") for name in ("b", "a", "c")]
    for key in keys:
        await scene.store.create(key)
    await scene.store.append(keys[0], [message(1), message(4)], reserved_seq=9)
    found = await scene.store.list("coder", "ann")
    scene.same([info.key for info in found], keys[::-1], "the order of the list")
    infos = [await scene.store.info(key) for key in keys[::-1]]
    scene.same(
        [(info.last_seq, info.reserved_seq) for info in found],
        [(info.last_seq, info.reserved_seq) for info in infos],
        "what the list tells",
    )
    scene.same((found[2].last_seq, found[2].reserved_seq), (4, 9), "last and reserved seq")


@store_scenario("lock")
async def lock(scene: StoreScene) -> None:
    """A record has one owner, who may take it again; another one raises SessionBusy, and cannot give it back."""
    await scene.filled(1)
    store = scene.store
    await store.lock(KEY, "one")
    await store.lock(KEY, "one")
    await scene.refused(store.lock(KEY, "two"), SessionBusy, what="a lock by another owner")
    await store.unlock(KEY, "two")
    await scene.refused(store.lock(KEY, "two"), SessionBusy, what="a lock after another owner's unlock")
    await store.unlock(KEY, "one")
    await store.unlock(KEY, "one")
    await store.lock(KEY, "two")


@store_scenario("lock-race")
async def lock_race(scene: StoreScene) -> None:
    """Of twenty owners at once one gets the lock, and the others SessionBusy."""
    await scene.filled(1)
    found = await scene.at_once(20, lambda number: scene.store.lock(KEY, f"owner {number}"))
    names = sorted("held" if item is None else type(item).__name__ for item in found)
    scene.same(names, ["SessionBusy"] * 19 + ["held"], "twenty locks")


@store_scenario("lock-shared")
async def lock_shared(scene: StoreScene) -> None:
    """A lock holds for every store on the same records."""
    await scene.filled(1)
    await scene.store.lock(KEY, "one")
    async with scene.reopened() as other:
        await scene.refused(other.lock(KEY, "two"), SessionBusy, what="a lock through another store")
        await scene.refused(other.delete(KEY), SessionBusy, what="a delete through another store")
        await scene.store.unlock(KEY, "one")
        await other.lock(KEY, "two")


@store_scenario("locked-stays")
async def locked_stays(scene: StoreScene) -> None:
    """A record that is locked is not deleted: SessionBusy."""
    events = await scene.filled(1)
    await scene.store.lock(KEY, "one")
    await scene.refused(scene.store.delete(KEY), SessionBusy, what="a delete of a locked record")
    scene.same(await scene.store.read(KEY), events, "the record after that")


@store_scenario("delete")
async def delete(scene: StoreScene) -> None:
    """A deleted record is gone with all it held, others stay, and its id can be used anew."""
    other = RecordKey("coder", "ann", "s-2")
    await scene.filled(1, 2, 3)
    kept = await scene.filled(1, 2, key=other)
    store = scene.store
    await store.lock(KEY, "one")
    await store.unlock(KEY, "one")
    await store.delete(KEY)
    await scene.refused(store.read(KEY), SessionNotFound, what="a read of a deleted record")
    await scene.refused(store.delete(KEY), SessionNotFound, what="a second delete")
    scene.same([info.key for info in await store.list("coder", "ann")], [other], "the list after a delete")
    scene.same(await store.read(other), kept, "the other record")
    await store.create(KEY)
    scene.same(await store.read(KEY), [], "a new record under the id")
    info = await store.info(KEY)
    scene.same((info.last_seq, info.reserved_seq), (0, 0), "what is known of it")
    await store.lock(KEY, "two")
    await store.append(KEY, [message(1)], reserved_seq=1)


@store_scenario("many")
async def many(scene: StoreScene) -> None:
    """Records are written at once without holding each other up or mixing."""
    keys = [RecordKey("coder", "ann", f"s-{number}") for number in range(12)]

    async def write(number: int) -> None:
        await scene.store.create(keys[number])
        for seq in range(1, 9):
            event = message(seq, f"{number}")
            await scene.store.append(keys[number], [event], reserved_seq=seq)

    for found in await scene.at_once(len(keys), write):
        if isinstance(found, Exception):
            raise StoreBreak(f"a writer raises {type(found).__name__}: {found}".split("\n", 1)[0])
    for number, key in enumerate(keys):
        wanted = [message(seq, f"{number}") for seq in range(1, 9)]
        scene.same(await scene.store.read(key), wanted, f"record {number}")
