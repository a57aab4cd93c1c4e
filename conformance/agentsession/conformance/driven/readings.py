"""The readers of a driven session: each reads on by itself, or a few events at a time, until it leaves.

Not for: choosing them (``session.py``). Rules carried: LIFE-08, ORD-03, ORD-05, ORD-10.
May import: ``agentsession.protocol``, anyio, ``engine``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

import anyio
from anyio.abc import TaskGroup

from agentsession.conformance.engine import Break, evidence_of
from agentsession.protocol import AgentSessionError, Event, EventReader, ProtocolViolation, StreamEnd, is_ephemeral

__all__ = ["Reading"]


class Reading:
    """One reader and what it was given."""

    def __init__(
        self,
        reader: EventReader,
        name: str,
        *,
        after: int = 0,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        follow: bool = True,
    ) -> None:
        self.name = name
        self.given: list[Event] = []
        self.is_done = False
        """Whether it came to its end, or broke (:attr:`error`)."""
        self.error: AgentSessionError | None = None
        self.reads_on = False
        self._reader = reader
        self._after = after
        self.stream_id = stream_id
        self._types = types
        self._follow = follow
        self._scope: anyio.CancelScope | None = None
        self._left = anyio.Event()
        self._heard = 0

    # -- reading ------------------------------------------------------------------------------------------------------

    def start(self, group: TaskGroup, news: Callable[[], None], *, enter: bool) -> None:
        """Read on, beside what else goes on, to the end. ``enter``: the producer may wait for this reader."""
        self.reads_on = True
        self._scope = anyio.CancelScope()
        group.start_soon(self._read, self._scope, news, enter)

    async def _read(self, scope: anyio.CancelScope, news: Callable[[], None], enter: bool) -> None:
        try:
            with scope:
                if not enter:
                    await self._all(news)
                    return
                async with self._reader:
                    await self._all(news)
        finally:
            with anyio.CancelScope(shield=True):
                await self._reader.aclose()
            self._left.set()
            news()

    async def _all(self, news: Callable[[], None]) -> None:
        try:
            async for event in self._reader:
                self.given.append(event)
                news()
        except AgentSessionError as error:
            self.error = error
        self.is_done = True

    async def some(self, count: int) -> None:
        """Read so many events, or all that there are."""
        for _ in range(count):
            try:
                self.given.append(await anext(self._reader))
            except StopAsyncIteration:
                self.is_done = True
                return

    async def leave(self) -> None:
        """Leave, wherever it is."""
        if self._scope is None:
            await self._reader.aclose()
            return
        self._scope.cancel()
        await self._left.wait()

    def unheard(self) -> list[Event]:
        """What it was given since this was asked last."""
        new = self.given[self._heard :]
        self._heard += len(new)
        return new

    # -- what it must have been given ---------------------------------------------------------------------------------

    def wanted(self, record: Sequence[Event]) -> list[Event]:
        """What the record has for it, but for what is ephemeral."""
        return [event for event in record if self._is_mine(event) and not is_ephemeral(event)]

    def _is_mine(self, event: Event) -> bool:
        own = self.stream_id is None or event.stream_id == self.stream_id
        return event.seq > self._after and own and (self._types is None or event.type in self._types)

    def has_all(self, record: Sequence[Event]) -> bool:
        """Whether it reads on and has been given the last event that the record has for it, or can get none."""
        wanted = self.wanted(record)
        return self.is_done or not wanted or bool(self.given and self.given[-1].seq >= wanted[-1].seq)

    def judge(self, record: Sequence[Event]) -> None:
        """Raises :class:`Break` where it was given something else than the record has, in another order, or too little,
        or where it raised something.

        ``record``: all that is stored. A reader that does not read on may be anywhere.
        """
        if isinstance(self.error, ProtocolViolation):  # it knows its own rule
            raise self.error
        if self.error is not None:
            said = f"{self.name} raised {type(self.error).__name__}: {self.error.what}"
            raise Break("ORD-05", said, evidence_of(self.given[-6:]))
        seqs = [event.seq for event in self.given]
        if any(later <= before for before, later in itertools.pairwise(seqs)):
            raise Break("ORD-03", f"{self.name} was given {_ids(self.given)}", evidence_of(self.given[-6:]))
        strange = [event for event in self.given if not self._is_mine(event)]
        if strange:
            raise Break("ORD-05", f"{self.name} was given {_ids(strange)}", evidence_of(strange[:6]))
        kept = [event for event in self.given if not is_ephemeral(event)]
        wanted = self.wanted(record)
        last = seqs[-1] if seqs else 0
        due = wanted if self.reads_on else [event for event in wanted if event.seq <= last]
        if [event.seq for event in kept] != [event.seq for event in due]:
            raise Break(self._missing(due), f"{self.name} was given {_ids(kept)}, not {_ids(due)}", evidence_of(due))
        if self.is_done and self._follow and not isinstance(_last(self.given), StreamEnd):
            raise Break("LIFE-08", f"{self.name} ended without a stream_end", evidence_of(self.given[-6:]))
        if self._types is not None and self.is_done and record and self._reader.cursor < record[-1].seq:
            said = f"{self.name} passed #{record[-1].seq}, and its cursor is {self._reader.cursor}"
            raise Break("ORD-10", said, evidence_of(record[-2:]))

    def _missing(self, due: Sequence[Event]) -> str:
        """The rule that is broken where something of ``due`` is missing: a stream without its end has another."""
        given = {event.seq for event in self.given}
        lost = [event for event in due if event.seq not in given]
        ended = self.is_done and bool(lost) and all(isinstance(event, StreamEnd) for event in lost)
        return "LIFE-08" if ended else "ORD-05"

    def judge_lost(self) -> None:
        """The executor is gone: raises :class:`Break` of LIFE-08 where that looks like an end."""
        if self.is_done and self.error is None and not isinstance(_last(self.given), StreamEnd):
            said = f"{self.name} ended without a stream_end when its executor was killed"
            raise Break("LIFE-08", said, evidence_of(self.given[-6:]))


def _last(events: Sequence[Event]) -> Event | None:
    return events[-1] if events else None


def _ids(events: Sequence[Event]) -> str:
    return ", ".join(f"#{event.seq} {event.type}" for event in events) or "nothing"
