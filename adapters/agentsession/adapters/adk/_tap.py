"""A session service that lets the adapter see, and mark, each event before the user's service stores it.

Not for: deciding anything. Rules carried: PER-05, PER-06 (every stored event has its place in the record).
May import: google.adk.

ADK stores events that no run yields: what a person said, the summary of a compaction, the marker of a rewind. Only the
service sees them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

__all__ = ["Seen", "TappedSessions"]

Seen = Callable[[Session, AdkEvent], Awaitable[None]]
"""Called with an event: one that is about to be stored, which may be changed, or one that was stored."""


class TappedSessions(BaseSessionService):
    """The user's session service, with a look at what is appended; everything else goes through as it is."""

    def __init__(self, inner: BaseSessionService, before_append: Seen, after_append: Seen) -> None:
        self.inner = inner
        self._before_append = before_append
        self._after_append = after_append

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        if event.partial:
            return await self.inner.append_event(session=session, event=event)
        await self._before_append(session, event)
        stored = await self.inner.append_event(session=session, event=event)
        await self._after_append(session, stored)
        return stored

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        return await self.inner.create_session(app_name=app_name, user_id=user_id, state=state, session_id=session_id)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await self.inner.get_session(app_name=app_name, user_id=user_id, session_id=session_id, config=config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return await self.inner.list_sessions(app_name=app_name, user_id=user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self.inner.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self.inner.get_user_state(app_name=app_name, user_id=user_id)

    async def flush(self) -> None:
        await self.inner.flush()
