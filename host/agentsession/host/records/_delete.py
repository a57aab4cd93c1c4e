"""Deleting a record with those of the sub-agents that worked for its session.

Not for: what agents keep elsewhere, such as ADK's own sessions, and the files of long outputs. Rules carried: PER-01.
May import: ``agentsession.protocol``, ``_child_ids``, ``_find``.

A sub-agent's session has a record of its own in the same store, under an id that tells whose it is. Whoever deletes a
session means what its sub-agents were told and said, too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from agentsession.host._child_ids import caller_mark, mark_of
from agentsession.host.records._find import all_records
from agentsession.protocol import RecordCatalog, RecordInfo, RecordKey, RecordStore, SessionBusy, SessionNotFound

__all__ = ["Family", "delete_record"]

_logger = logging.getLogger("agentsession.host")
Delete: TypeAlias = Callable[[RecordKey], Awaitable[None]]


class Family:
    """Which of these records belong to which: by user, so that no user's go with another's."""

    def __init__(self, infos: Iterable[RecordInfo]) -> None:
        self._called: dict[tuple[str, str], list[RecordInfo]] = {}
        self._marks: set[tuple[str, str]] = set()
        for info in infos:
            user, session_id = info.key.user_id, info.key.session_id
            self._marks.add((user, mark_of(session_id)))
            mark = caller_mark(session_id)
            if mark is not None:
                self._called.setdefault((user, mark), []).append(info)

    def has_caller(self, key: RecordKey) -> bool:
        """Whether it is of a sub-agent whose caller's session is here."""
        mark = caller_mark(key.session_id)
        return mark is not None and (key.user_id, mark) in self._marks

    def below(self, key: RecordKey) -> list[RecordInfo]:
        """The records of the sub-agents of a session, and of theirs."""
        found = [*self._called.get((key.user_id, mark_of(key.session_id)), [])]
        for info in found:  # it grows: a digest of an id cannot lead back to it
            found += self._called.get((key.user_id, mark_of(info.key.session_id)), [])
        return found


async def delete_record(store: RecordStore, key: RecordKey, *, delete: Delete | None = None) -> list[RecordKey]:
    """Delete a record and those of its session's sub-agents; the keys of all that were deleted, its own first.

    ``delete`` is called instead of ``store.delete``: an executor's own, so that what the agent keeps goes as well. What
    it does not know, or leaves, the store deletes. A sub-agent's session that is open stays, and is logged. Where the
    store cannot be listed (``RecordCatalog``), the one record goes alone.

    Raises :class:`SessionNotFound` and :class:`SessionBusy`; then nothing was deleted.
    """
    below: list[RecordInfo] = []
    if isinstance(store, RecordCatalog):
        below = Family([info async for info in all_records(store, user_id=key.user_id)]).below(key)
    await (delete or store.delete)(key)
    return [key, *[info.key for info in await delete_below(store, below, delete)]]


async def delete_below(store: RecordStore, below: Iterable[RecordInfo], delete: Delete | None) -> list[RecordInfo]:
    """Delete the records of sub-agents whose caller's is gone; those that went."""
    gone: list[RecordInfo] = []
    for info in below:
        try:
            if delete is not None:
                try:
                    await delete(info.key)
                except SessionNotFound:  # of another agent's than the one whose executor was asked
                    await store.delete(info.key)
            else:
                await store.delete(info.key)
        except SessionBusy as error:
            _logger.warning("sub-agent session %s stays: %s", info.key.session_id, error.headline())
            continue
        except SessionNotFound:
            continue
        gone.append(info)
    return gone
