"""A record from lines of JSON: checked line by line against the contract, and stored whole or not at all.

Not for: going on with a session that lives in another program (an executor's ``adopt``). Rules carried: every rule
marked ``machine``, by the machine; PER-01. May import: ``agentsession.protocol``, ``_export``.

What waits in the lines is settled: a request that came in a file was made by no run of this host, so no answer to it,
and no policy, may make a tool run. Questions are cancelled, calls that waited are ``cancelled``, calls that were
allowed and have no result are ``unknown``. A record that was cut inside a stream is stored as it is: its load closes
the stream, and settles what was open in it.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import anyio

from agentsession.protocol import (
    ElicitationResponse,
    Event,
    Initialize,
    InvalidInput,
    ProtocolViolation,
    RecordKey,
    RecordStore,
    SchemaError,
    SessionExists,
    SessionMachine,
    StreamEnd,
    ToolResponse,
    is_ephemeral,
    parse_event,
    parse_json,
)

__all__ = ["ImportedRecord", "import_record"]


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedRecord:
    """What was stored."""

    key: RecordKey
    events: int
    settled: tuple[str, ...]
    """The ids of the requests that waited and were settled."""


async def import_record(
    store: RecordStore,
    lines: Iterable[str | bytes],
    *,
    user_id: str = "local",
    session_id: str | None = None,
    agent: str | None = None,
) -> ImportedRecord:
    """Store the events of ``lines`` as a new record of ``user_id``; under their own session id unless one is given.

    ``agent``: whose record it becomes; by default the agent that ``initialize`` names. Blank lines, and receipts and
    errors between events, as ``agentsession run --json`` writes them, are passed over; deltas are not stored.

    Raises :class:`SchemaError` for a line that is no event, :class:`InvalidInput` for an event that the contract does
    not allow there, both with the number of the line, and :class:`SessionExists`. Nothing is stored then. What an
    import that was killed has left is not in the way.
    """
    machine = SessionMachine(blame="peer")
    events: list[Event] = []
    session: str | None = None
    for number, event in _events(lines):
        session = session or event.session_id
        if event.session_id != session:
            raise InvalidInput(
                f"line {number} cannot be imported: it is of another session",
                where=f"line {number}, event #{event.seq}",
                got=event.session_id,
                expected=session,
                fix="import one session at a time",
            )
        try:
            machine.feed(event)
        except ProtocolViolation as error:
            raise InvalidInput(
                f"line {number} cannot be imported: {error.what}",
                where=f"line {number}, event #{event.seq}",
                got=error.rule,
                fix="import the whole record, from initialize on, as it was exported",
            ) from error
        if not is_ephemeral(event):
            events.append(event)
    if not events:
        raise InvalidInput("there is no event to import", fix="pass the lines of an exported record")
    first = events[0]
    assert isinstance(first, Initialize)  # the machine has seen to it
    settled = tuple(machine.requests) if machine.state == "input_required" else ()
    events += _settlement(machine, events[-1])
    described = first.descriptor.name if first.descriptor is not None else first.agent_id
    if agent is None and described is None:
        raise InvalidInput("the record does not say whose it is", where="initialize", fix="name the agent")
    key = RecordKey(agent or described or "", user_id, session_id or first.session_id)
    renamed = [event.model_copy(update={"session_id": key.session_id}) for event in events]
    await _store(store, key, renamed)
    return ImportedRecord(key, len(renamed), settled)


def _events(lines: Iterable[str | bytes]) -> Iterator[tuple[int, Event]]:
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        value = parse_json(text.strip(), line=number)
        if isinstance(value, dict) and "type" not in value and ("receipt" in value or "error" in value):
            continue
        if not isinstance(value, dict):
            raise SchemaError("this line is no event", line=number, where=f"line {number}", expected="a JSON object")
        yield number, parse_event(value, line=number)


def _settlement(machine: SessionMachine, last: Event) -> Iterator[Event]:
    """A stream that settles what waits, and ends the turn; nothing where nothing waits."""
    if machine.state != "input_required":
        return
    base: dict[str, Any] = {
        "session_id": last.session_id,
        "timestamp": last.timestamp,
        "stream_id": f"s{last.seq}-import",
        "turn_id": machine.turn_id,
        "source": "host",
    }
    # Questions first, so that a tool's confirmation is settled before the tool.
    for request in sorted(machine.requests.values(), key=lambda item: item.kind != "elicitation"):
        seq = machine.seq + 1
        stamps: dict[str, Any] = {
            **base,
            "id": f"e{seq}",
            "seq": seq,
            "request_id": request.id,
            "thread_id": request.thread_id,
        }
        made: Event
        if request.kind == "elicitation":
            made = ElicitationResponse(**stamps, action="cancel")
        else:
            made = ToolResponse(**stamps, name=request.name, status=request.status_if_left, is_error=True)
        machine.feed(made)
        yield made
    seq = machine.seq + 1
    end = StreamEnd(**base, id=f"e{seq}", seq=seq, reason="aborted", data={"cause": "import"})
    machine.feed(end)
    yield end


async def _store(store: RecordStore, key: RecordKey, events: list[Event]) -> None:
    owner = f"import:{secrets.token_hex(8)}"
    try:
        await store.create(key)
    except SessionExists:
        await _take_left(store, key, owner)
        is_locked = True
    else:
        is_locked = False
    try:
        if not is_locked:
            await store.lock(key, owner)  # nobody may load what is not there yet
        await store.append(key, events, reserved_seq=events[-1].seq)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await store.unlock(key, owner)
            await store.delete(key)
        raise
    with anyio.CancelScope(shield=True):
        await store.unlock(key, owner)


async def _take_left(store: RecordStore, key: RecordKey, owner: str) -> None:
    """Lock a record that has no event: an import that was killed left it. Raises :class:`SessionExists` for any other,
    and :class:`SessionBusy` where somebody is about to fill it."""
    exists = SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it")
    if (await store.info(key)).last_seq:
        raise exists
    await store.lock(key, owner)
    if (await store.info(key)).last_seq:  # somebody was faster
        await store.unlock(key, owner)
        raise exists
