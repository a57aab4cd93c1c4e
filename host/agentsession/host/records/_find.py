"""Finding records whose agent or user is not known. May import: ``agentsession.protocol``.

Not for: loading a session, where both are known. Rules carried: PER-01.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from agentsession.protocol import (
    ConfigurationError,
    InvalidInput,
    RecordCatalog,
    RecordInfo,
    RecordKey,
    RecordStore,
    SessionNotFound,
)

__all__ = ["all_records", "catalog_of", "find_record"]

_PAGE: Final = 200


def catalog_of(store: RecordStore) -> RecordCatalog:
    """The store as one that can be listed. Raises :class:`ConfigurationError` (``store-capability``)."""
    if not isinstance(store, RecordCatalog):
        raise ConfigurationError(
            "this record store cannot list its records",
            got=type(store).__name__,
            expected="browse(), as agentsession.protocol.RecordCatalog has it",
            fix="name agent and user, or use a store that has it, such as SqliteRecordStore",
            id="store-capability",
        )
    return store


async def all_records(
    store: RecordStore, *, agent: str | None = None, user_id: str | None = None
) -> AsyncIterator[RecordInfo]:
    """Every record, newest first, read by pages; one that goes meanwhile may be among them."""
    catalog = catalog_of(store)
    given: list[RecordKey] = []  # a page begins after the last one that is still there
    while True:
        try:
            page = await catalog.browse(agent=agent, user_id=user_id, limit=_PAGE, after=given[-1] if given else None)
        except SessionNotFound:
            given.pop()
            continue
        for info in page:
            yield info
        if len(page) < _PAGE:
            return
        given += [info.key for info in page]


async def find_record(
    store: RecordStore, session_id: str, *, agent: str | None = None, user_id: str | None = None
) -> RecordInfo:
    """The record of that session id, of whichever agent and user.

    Raises :class:`SessionNotFound`, and :class:`InvalidInput` where several have it.
    """
    found = [
        info async for info in all_records(store, agent=agent, user_id=user_id) if info.key.session_id == session_id
    ]
    if not found:
        raise SessionNotFound(f"no session {session_id} is stored here", fix="list the sessions")
    if len(found) > 1:
        raise InvalidInput(
            f"{len(found)} sessions have the id {session_id}",
            got=", ".join(f"agent {info.key.agent} of user {info.key.user_id}" for info in found[:5]),
            fix="name the agent and the user",
        )
    return found[0]
