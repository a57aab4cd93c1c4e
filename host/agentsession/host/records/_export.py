"""A stored record as lines of JSON, one event a line, as ``agentsession replay`` and :func:`import_record` read them.

Not for: what a redactor takes out (``_redact.py``). Rules carried: SEC-01. May import: ``agentsession.protocol``,
``_redact``.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Self

from agentsession.host.records._redact import Redactor
from agentsession.protocol import Event, RecordKey, RecordStore, dump_event

__all__ = ["RecordLines", "export_record"]

_PAGE: Final = 500


class RecordLines:
    """The lines that :func:`export_record` gives; it may be left at any time."""

    def __init__(self, store: RecordStore, key: RecordKey, redact: Redactor | None) -> None:
        self._store = store
        self._key = key
        self._redact = redact
        self._has_learnt = redact is None
        self._page: deque[Event] = deque()
        self._after = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if not self._has_learnt:
            await self._learn()
        if not self._page:
            self._page.extend(await self._store.read(self._key, after=self._after, limit=_PAGE))
        if not self._page:
            raise StopAsyncIteration
        event = self._page.popleft()
        self._after = event.seq
        return dump_event(event if self._redact is None else self._redact(event))

    async def _learn(self) -> None:
        """What is told to be a secret late in the record must not stand in what was said before."""
        assert self._redact is not None
        after = 0
        while page := await self._store.read(self._key, after=after, limit=_PAGE):
            self._redact.learn(page)
            after = page[-1].seq
        self._has_learnt = True


def export_record(store: RecordStore, key: RecordKey, *, redact: Redactor | None = None) -> RecordLines:
    """The record's events as wire lines, oldest first, without line feeds; read by pages.

    ``redact`` is shown the whole record before the first line comes: what is a secret in one place is one in all.

    A record that is written to meanwhile is given up to where it is at the end. Its first line raises
    :class:`SessionNotFound` where there is no such record.
    """
    return RecordLines(store, key, redact)
