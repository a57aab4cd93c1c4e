"""ADK sessions that have no record: made by ``adk run``, the ADK web server, or another host.

Not for: translating events (``_record.py``), or running anything: nothing of an adopted session runs until the host
answers or says something. Rules carried: TOOL-05, HITL-01, PER-01.
May import: ``_history``, ``_read``, ``_record``, the base class, protocol, google.adk.
"""

from __future__ import annotations

import secrets

from google.adk.sessions.session import Session

from agentsession.adapters.adk._history import LIFE
from agentsession.adapters.adk._read import AdkSession, ReadEvent
from agentsession.adapters.adk._record import map_session
from agentsession.adapters.base import restamp
from agentsession.protocol import AgentDescriptor, Event, SessionNotFound

__all__ = ["adopted_record", "not_adopted"]


def adopted_record(found: Session, descriptor: AgentDescriptor) -> list[Event]:
    """The record that ADK's session would have: initialize (``_meta.adopted``), then the translation of its events.

    What waits for an answer waits in it; what was begun and has no response is ``unknown``.
    """
    read = AdkSession(
        session_id=found.id,
        events=[ReadEvent(event.model_copy(deep=True)) for event in found.events if not event.partial],
        app_name=found.app_name,
        user_id=found.user_id,
        last_state=found.state,
    )
    first, *rest = map_session(read, descriptor)
    # Not the id of the session: it may have had a record before, which was lost, and have that one's stamps.
    return [restamp(first, meta={**(first.meta or {}), "adk": {LIFE: secrets.token_hex(8)}}), *rest]


def not_adopted(session_id: str, user_id: str) -> SessionNotFound:
    """ADK has this session, and the store has no record of it."""
    return SessionNotFound(
        f"session {session_id} of user {user_id} has no record; ADK has a session of that id",
        expected="a session that was opened or adopted with this store",
        fix="pass the store it was opened with, or call executor.adopt(session_id)",
    )
