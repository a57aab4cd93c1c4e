"""Reading a stored record into a session: the latest snapshot that fits and what came after it, or all of it, by pages.

Not for: what a session does once it is read (``_opening.py``). Rules carried: PER-01, PER-03. May import:
``agentsession.protocol``, the modules beside it.

Nothing is written here. Where no snapshot fits, or what follows one is refused by the state machine, the whole record
is folded: a snapshot only saves time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agentsession.adapters.base._recording import Recorder
from agentsession.adapters.base._snapshots import Link, place_of, read_chain
from agentsession.protocol import (
    Event,
    Initialize,
    ProtocolViolation,
    RecordInfo,
    RecordQueries,
    RecordSnapshots,
    RecordStore,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["read_record", "refold_state"]

_logger = logging.getLogger("agentsession.adapters")
_PAGE: Final = 1024
_STATE_TYPES: Final = ("session_update", "custom")
"""What the state is told by: updates and rewinds."""


async def read_record(session: BaseSession, store: RecordStore, info: RecordInfo, token: str) -> Initialize | None:
    """Read the record into ``session``; its first event, or ``None`` for a record that has no beginning.

    Raises :class:`ProtocolViolation` for a record that cannot be folded.
    """
    recorder, key = session.recorder, session.recorder.key
    first = next(iter(await store.read(key, limit=1)), None)
    if not isinstance(first, Initialize):
        return None
    links = await _links(store, info) if session.uses_snapshots else []
    if links:
        try:
            await _read_from(recorder, store, links)
        except ProtocolViolation as error:
            _logger.warning("session %s: its snapshots do not fit: %s", key.session_id, error.headline())
            links = []
        else:
            if info.events is not None and recorder.known.events != info.events:
                _logger.warning("session %s: its snapshots count other events", key.session_id)
                links = []
    if not links:
        await _read_from(recorder, store, [])
    recorder.loaded(info.reserved_seq, token)
    if recorder.is_state_stale:
        await refold_state(recorder, store)
    return first


async def _read_from(recorder: Recorder, store: RecordStore, links: Sequence[Link]) -> None:
    recorder.begin_from(links)
    after = links[-1].seq if links else 0
    while page := await store.read(recorder.key, after=after, limit=_PAGE):
        recorder.take(page)
        after = page[-1].seq


async def _links(store: RecordStore, info: RecordInfo) -> list[Link]:
    if not isinstance(store, RecordSnapshots):
        return []
    last: dict[int, Event] = {}
    stored = await store.snapshots(info.key)
    for item in reversed(stored):  # mostly the first one fits
        found = await store.read(info.key, after=item.seq - 1, limit=1)
        last.update((event.seq, event) for event in found)
        links = read_chain(stored, lambda link: link.seq in last and place_of(last[link.seq]) == link.place)
        if links:
            return links
    return []


async def refold_state(recorder: Recorder, store: RecordStore) -> None:
    """The state after a rewind to where the session no longer has the events."""
    if isinstance(store, RecordQueries):
        recorder.fold_states(await store.select(recorder.key, types=_STATE_TYPES))
        return
    told: list[Event] = []
    after = 0
    while page := await store.read(recorder.key, after=after, limit=_PAGE):
        told += [event for event in page if event.type in _STATE_TYPES]
        after = page[-1].seq
    recorder.fold_states(told)
