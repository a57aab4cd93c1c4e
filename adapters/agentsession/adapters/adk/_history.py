"""ADK's own history of a session: where each of its events stands in the record, and copying and rewinding it.

Not for: the record (the base class forks and rewinds that), or ADK sessions that have none (``_adopt.py``).
Rules carried: PER-05, PER-06. May import: ``_artifacts``, ``_values``, ``agentsession.protocol``, anyio,
google.adk.

Record and ADK's session are two lists of the same story, and a seq of the one is no place in the other. So every event
that ADK stores carries the record's seq at that moment (:data:`STAMP`). One without a stamp was stored before the
adapter knew the session: it stands where the record tells of it, or else where the event before it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from agentsession.adapters.adk._artifacts import copy_artifacts, delete_artifacts
from agentsession.adapters.adk._values import lossy_json, redact
from agentsession.protocol import (
    Custom,
    Event,
    SessionExists,
    SessionNotFound,
    SessionUpdate,
    rewind_point,
    without_rewound,
)

__all__ = [
    "SHARED",
    "LIFE",
    "STAMP",
    "History",
    "invocation_after",
    "is_rewound_in",
    "last_rewind",
    "place_of",
    "places",
    "prefix",
    "rewind_events",
    "stamp",
    "unapplied_state",
]

STAMP: Final = "agentsession_seq"
"""The key in an ADK event's ``custom_metadata`` under which its place in the record stands."""

SHARED: Final = (State.APP_PREFIX, State.USER_PREFIX)
"""Prefixes of state that is not the session's own: neither a fork nor a rewind touches it."""

_NOT_OF_THE_SESSION: Final = (*SHARED, State.TEMP_PREFIX)

_CLEAN_UP_S: Final = 5.0
"""How long a caller that is cancelled waits for a service to take back what was begun."""

_logger = logging.getLogger("agentsession.adapters.adk")

LIFE: Final = "life"
"""The key in ``_meta.adk`` of an adopted record's initialize: a name for this record of the ADK session."""


def stamp(event: AdkEvent, place: int, record: Sequence[Event]) -> None:
    """Say in ``event`` that ``record`` had come to seq ``place`` when it was stored."""
    event.custom_metadata = {**(event.custom_metadata or {}), STAMP: [place, _life(record)]}


def _life(record: Iterable[Event]) -> str:
    """Which record it is: an ADK session whose record was lost may have stamps of that one when it is adopted."""
    life = _marks(next(iter(record), None)).get(LIFE)
    return life if isinstance(life, str) else ""


def _marks(event: Event | None) -> Mapping[str, Any]:
    marks = (event.meta or {}).get("adk") if event is not None else None
    return marks if isinstance(marks, Mapping) else {}


def place_of(event: AdkEvent) -> int | None:
    """The place that was said in an event, just now, of whatever record."""
    match (event.custom_metadata or {}).get(STAMP):
        case [int(place), str()]:
            return place
        case _:
            return None


def _stamped(event: AdkEvent, life: str) -> int | None:
    match (event.custom_metadata or {}).get(STAMP):
        case [int(place), str(which)] if which == life:
            return place
        case _:
            return None


def places(events: Iterable[AdkEvent], record: Iterable[Event]) -> list[int]:
    """The seq at which each of ADK's events came into the record."""
    told: dict[str, int] = {}
    record = list(record)
    life = _life(record)
    for item in record:
        event_id = _marks(item).get("eventId")
        if isinstance(event_id, str):
            told.setdefault(event_id, item.seq)
    found: list[int] = []
    for event in events:
        before = found[-1] if found else 0
        place = _stamped(event, life)
        found.append(place if place is not None else told.get(event.id, before))
    return found


def prefix(events: Sequence[AdkEvent], record: Sequence[Event], at: int) -> list[AdkEvent]:
    """What of ADK's events the record up to seq ``at`` holds."""
    return [event for event, place in zip(events, places(events, record), strict=True) if place <= at]


def invocation_after(events: Sequence[AdkEvent], record: Sequence[Event], to: int) -> str | None:
    """The first invocation of ADK's that began after seq ``to``; ``None`` if there is none."""
    begun: set[str] = set()
    for event, place in zip(events, places(events, record), strict=True):
        if not event.invocation_id or event.invocation_id in begun:
            continue  # such as the seal of a call of an earlier turn: it stays with that
        if place > to and not event.actions.rewind_before_invocation_id:
            return event.invocation_id
        begun.add(event.invocation_id)
    return None


def last_rewind(record: Sequence[Event]) -> tuple[int, int] | None:
    """The seq of the host's last rewind in a record, and the seq it goes to."""
    for event in reversed(record):
        to = rewind_point(event)
        if to is not None and event.source == "host":
            return event.seq, to
    return None


def is_rewound_in(events: Sequence[AdkEvent], record: Sequence[Event], at: int) -> bool:
    """Whether ADK's session has heard of the rewind that the record has at seq ``at``, or has gone on since."""
    return any(place >= at for place in places(events, record))


def unapplied_state(record: Sequence[Event]) -> dict[str, Any]:
    """State that the host set and that ADK has not taken yet: it does with its next model call.

    What ADK takes it tells again, so a key whose last writer in the record is the host waits. What a session was opened
    with ADK has from the start, and what is only for a turn (``temp:``) waits for none.
    """
    waiting: dict[str, Any] = {}
    for number, event in enumerate(without_rewound(record)):
        if not isinstance(event, SessionUpdate) or event.state_delta is None:
            continue
        by_host = event.source == "host" and number > 1 and "adk" not in (event.meta or {})
        for key, value in event.state_delta.items():
            waiting.pop(key, None)
            if by_host and not key.startswith(State.TEMP_PREFIX):
                waiting[key] = value
    return waiting


def rewind_events(rewound: Session, record: Sequence[Event], values: Mapping[str, Any]) -> list[Event]:
    """What the record must be told of the rewind that ADK's session ends with.

    ``values`` is the state by what counts in the record; state of the app and of the user that was told of and is not
    so any more is told again. A file whose content was put back has a new version.
    """
    told: list[Event] = []
    shown = {key for event in record if isinstance(event, SessionUpdate) for key in event.state_delta or ()}
    kept = {key: rewound.state[key] for key in shown if key.startswith(SHARED) and key in rewound.state}
    delta = {key: value for key, value in redact(lossy_json(kept)[0]).items() if values.get(key) != value}
    if delta:
        told.append(SessionUpdate(state_delta=delta, source="ext:adk"))
    files = rewound.events[-1].actions.artifact_delta if rewound.events else {}
    if files:
        told.append(Custom(kind="artifact_delta", data=lossy_json(files)[0], source="ext:adk"))
    return told


class History:
    """Begins, copies and deletes ADK's sessions of one App."""

    def __init__(self, service: BaseSessionService, artifacts: BaseArtifactService | None, app_name: str) -> None:
        self._service = service
        self._artifacts = artifacts
        self._app_name = app_name

    async def get(self, user_id: str, session_id: str) -> Session | None:
        """ADK's session, whole."""
        return await self._service.get_session(app_name=self._app_name, user_id=user_id, session_id=session_id)

    async def begin(self, user_id: str, session_id: str, state: Mapping[str, Any], record: Sequence[Event]) -> None:
        """Make ADK's session. The state that it begins with is its first event.

        State that is given to ``create_session`` stands in no event: ADK's rewind takes it for something that came
        later, and clears it. Raises :class:`SessionExists`.
        """
        made = await self._create(user_id, session_id, {})
        if not state:
            return
        event = AdkEvent(author="user", actions=EventActions(state_delta=dict(state)))
        stamp(event, record[-1].seq, record)
        async with self.removing(user_id, session_id):
            await self._fill(made, [event])

    async def fork(self, source: tuple[str, str], target: tuple[str, str], record: Sequence[Event], at: int) -> None:
        """Copy ADK's session ``source`` (user, session) up to seq ``at`` of its record, with the artifacts of that.

        State of the app and of the user is shared by ADK itself, as it is now. Raises :class:`SessionNotFound`,
        :class:`SessionExists`.
        """
        found = await self.get(*source)
        if found is None:
            raise SessionNotFound(
                f"ADK's session service has no session {source[1]}, so it cannot be forked",
                where=type(self._service).__name__,
                fix="keep ADK's sessions in the service that the session was opened with",
            )
        events = [event.model_copy(deep=True) for event in prefix(found.events, record, at)]
        written = {key for event in found.events for key in event.actions.state_delta}
        first = {
            key: value
            for key, value in found.state.items()
            if key not in written and not key.startswith(_NOT_OF_THE_SESSION)
        }
        made = await self._create(*target, first)
        for event in events:
            delta = event.actions.state_delta
            event.actions.state_delta = {key: delta[key] for key in delta if not key.startswith(_NOT_OF_THE_SESSION)}
        async with self.removing(*target):
            if self._artifacts is not None:
                await copy_artifacts(self._artifacts, self._app_name, source, target, events)
            await self._fill(made, events)

    @contextlib.asynccontextmanager
    async def removing(self, user_id: str, session_id: str) -> AsyncIterator[None]:
        """Remove ADK's session, which was made just now, if what is done in here fails or is cancelled."""
        try:
            yield
        except BaseException:
            await self._remove(user_id, session_id)
            raise

    async def _remove(self, user_id: str, session_id: str) -> None:
        with anyio.move_on_after(_CLEAN_UP_S, shield=True):
            try:
                await self.delete(user_id, session_id)
            except Exception:  # logged; why it could not be made is what the caller must hear
                _logger.exception("session %s: ADK's session was begun and could not be removed", session_id)

    async def _create(self, user_id: str, session_id: str, state: dict[str, Any]) -> Session:
        # In a task: a service that is cancelled may have made the session, or found it to be somebody else's.
        making = asyncio.ensure_future(
            self._service.create_session(app_name=self._app_name, user_id=user_id, session_id=session_id, state=state)
        )
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            with anyio.move_on_after(_CLEAN_UP_S, shield=True):
                await asyncio.wait([making])
            if making.cancel() or making.cancelled():
                _logger.warning("session %s: whether ADK's session was made is not known", session_id)
            elif making.exception() is None:
                await self._remove(user_id, session_id)
            raise
        except AlreadyExistsError as error:
            raise SessionExists(
                f"ADK's session service has a session {session_id} already",
                fix="load it, adopt it, or choose another id",
            ) from error

    async def _fill(self, made: Session, events: Iterable[AdkEvent]) -> None:
        for event in events:
            await self._service.append_event(session=made, event=event)

    async def delete(self, user_id: str, session_id: str) -> None:
        """Remove ADK's session and its own artifacts. What a memory service has learned of it stays there."""
        if self._artifacts is not None:
            await delete_artifacts(self._artifacts, self._app_name, user_id, session_id)
        await self._service.delete_session(app_name=self._app_name, user_id=user_id, session_id=session_id)
