"""Storing what was appended, in order, and showing it to readers only then.

Not for: what is appended. Rules carried: PER-02, ORD-01 (no seq is used again, also after a crash).
May import: ``agentsession.protocol``, anyio, ``_log``.

Decisions are synchronous and storing is not, so events wait here. One task at a time writes; what came while it wrote
goes in its next transaction. Ephemeral events are not stored, but their seqs must not come back after a crash either:
seqs are reserved in blocks, and nothing beyond the reserved block is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from agentsession.adapters.base._log import EventLog
from agentsession.protocol import (
    AgentSessionError,
    Event,
    RecordKey,
    RecordSnapshots,
    RecordStore,
    SessionError,
    StoredSnapshot,
    is_ephemeral,
)

__all__ = ["Flusher"]

_logger = logging.getLogger("agentsession.adapters")

_BLOCK: Final = 4096
"""How many seqs are reserved at a time: one write without events per block of deltas, a gap of a block per load."""

_LAST_WORDS: Final = ("message", "tool_request", "elicitation_request")
_LINGER: Final = 16
"""How many turns of the event loop an agent's message or request is held back: its stream mostly ends within a dozen,
and both are then one transaction. Nobody sees either before it is stored: only the number of transactions changes."""


class Flusher:
    """Writes one session's events to its store. A write that fails is the last: ``on_failure`` stops the session."""

    def __init__(
        self,
        log: EventLog,
        group: TaskGroup,
        store: RecordStore | None,
        key: RecordKey,
        on_failure: Callable[[AgentSessionError], None],
    ) -> None:
        self._log = log
        self._group = group
        self._store = store
        self._key = key
        self._on_failure = on_failure
        self._queue: list[Event] = []
        self._snapshots: list[StoredSnapshot] = []
        self._reserved = 0
        self._writing = False
        self._written: anyio.Event | None = None
        self.failure: AgentSessionError | None = None
        self.on_snapshot_lost: Callable[[], None] | None = None
        """Told when a snapshot could not be stored: the next one must not go on from it."""

    def loaded(self, reserved_seq: int) -> None:
        """The log was filled from the store, whose reserved seq is ``reserved_seq``."""
        self._reserved = reserved_seq

    def append(self, event: Event) -> None:
        """Append to the log, and see to it that the event is stored and then shown."""
        log = self._log
        if self._store is None:
            log.append(event, visible=True)
            return
        durable = not is_ephemeral(event)
        if not durable and not self._queue and not self._writing and event.seq <= self._reserved:
            log.append(event, visible=self.failure is None)
            return
        log.append(event, visible=False)
        if durable:
            self._queue.append(event)
        if not self._writing and self.failure is None:
            self._writing = True
            self._group.start_soon(self._write, name="agentsession flush")

    def add_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Store ``snapshot`` when the events up to its seq are stored."""
        self._snapshots.append(snapshot)

    async def _write(self) -> None:
        store, log = self._store, self._log
        assert store is not None
        try:
            # Shielded: a cancelled executor still stores what it has appended; each append is bounded by the store.
            with anyio.CancelScope(shield=True):
                while self._queue or log.visible < len(log.events):
                    await self._linger()
                    batch, self._queue = self._queue, []
                    last = log.events[-1]
                    reserved = self._reserved
                    if last.seq > reserved - _BLOCK // 4:
                        reserved = last.seq + _BLOCK
                    await store.append(self._key, batch, reserved_seq=reserved)
                    self._reserved = reserved
                    log.show(self._count_through(last))
                    await self._keep_snapshots(last.seq)
        except Exception as error:
            _logger.exception("session %s: the record could not be stored", self._key.session_id)
            # Only an error of ours is known to say nothing of what was to be stored (SEC-01).
            known = error if isinstance(error, AgentSessionError) else None
            self.failure = SessionError(
                "the record could not be stored; the session was stopped",
                where=f"session {self._key.session_id}",
                got=(known.got or known.what) if known else type(error).__name__,
                fix=(known and known.fix) or "mend the record store, then load the session",
                id="record-store",
            )
            self.failure.__cause__ = error
            self._queue.clear()
            self._on_failure(self.failure)
        finally:
            self._writing = False
            written, self._written = self._written, None
            if written is not None:
                written.set()

    async def _keep_snapshots(self, stored_seq: int) -> None:
        store = self._store
        assert store is not None
        if not isinstance(store, RecordSnapshots):
            return
        try:
            while self._snapshots and self._snapshots[0].seq <= stored_seq:
                await store.put_snapshot(self._key, self._snapshots[0])
                self._snapshots.pop(0)
        except Exception:  # logged; the record has everything, and is folded where the snapshot is missing
            _logger.exception("session %s: a snapshot could not be stored", self._key.session_id)
            self._snapshots.clear()
            if self.on_snapshot_lost is not None:
                self.on_snapshot_lost()

    async def _linger(self) -> None:
        """Wait for the end of the stream, which the agent's last words bring on."""
        for _ in range(_LINGER):
            last = self._queue[-1] if self._queue else None
            if last is None or last.type not in _LAST_WORDS or last.source != "agent":
                return
            await anyio.lowlevel.checkpoint()

    def _count_through(self, last: Event) -> int:
        events = self._log.events
        index = len(events)
        while index and events[index - 1].seq > last.seq:
            index -= 1
        return index

    async def flushed(self) -> None:
        """Wait until what has been appended by now is stored. Raises what storing failed with."""
        log = self._log
        target = log.events[-1].seq if log.events else 0
        while log.shown_seq < target:
            if self.failure is not None:
                raise self.failure
            await log.changed()

    async def idle(self) -> None:
        """Wait until no write is under way, however it ends: what is handed to the store now is still ours to keep."""
        while self._writing:
            if self._written is None:
                self._written = anyio.Event()
            await self._written.wait()

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing
