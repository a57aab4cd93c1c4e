"""The session service that ADK's Runner gets: a run is handed the recent part of its session's history.

Not for: looking at what is stored (``_tap.py``); where the history may be cut (``_window.py``), and whether it may at
all (``_window_proof.py``). Rules carried: none of the contract's; what a turn costs does not grow with the session.
May import: google.adk.

Everything goes through to the user's service, which stays the truth. Only a run of this adapter, which asks with
:class:`RecentHistory`, may get less than the whole: then the service is asked for the state and the last event alone,
and the recent events are those that were seen when they were stored. If the last event is not the one that is known,
everything is read again. And a run is handed questions that were refused in another form (``_refused_forms.py``).
"""

from __future__ import annotations

from typing import Final

from google.adk.apps.app import App
from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session

from agentsession.adapters.adk._refused_forms import free_refused
from agentsession.adapters.adk._tap import Seen, TappedSessions
from agentsession.adapters.adk._window import History, WindowedSession
from agentsession.adapters.adk._window_proof import adk_reads_back, authors_code_may_look, deciding_agents
from agentsession.protocol import ConfigurationError

__all__ = ["AUTO_WINDOW", "RecentHistory", "RecentSessions"]

AUTO_WINDOW: Final = 16
"""How many recent events a run is given at least where nobody said how many. It gets up to twice as many: the cut moves
on only then, so that the older contents are made seldom."""

_KNOWN: Final = {
    ("google.adk.sessions.in_memory_session_service", "InMemorySessionService"),
    ("google.adk.sessions.sqlite_session_service", "SqliteSessionService"),
    ("google.adk.sessions.database_session_service", "DatabaseSessionService"),
}
"""Services that give back the events that they were given, by a class that changes nothing of it."""


class RecentHistory(GetSessionConfig):
    """Asks the tap for what a run needs; any other service, such as that of an AgentTool's child, gives everything."""


class RecentSessions(TappedSessions):
    """The user's session service as ADK's Runner gets it."""

    def __init__(
        self, inner: BaseSessionService, before_append: Seen, after_append: Seen, app: App, *, window: int | str | None
    ) -> None:
        """``window``: how many recent events a run gets at least; ``"auto"``: some, where no code of the author's can
        tell; ``None``: a run gets all.

        Raises:
            ConfigurationError: the window is none of these.
        """
        super().__init__(inner, before_append, after_append)
        if window not in (None, "auto") and (not isinstance(window, int) or isinstance(window, bool) or window < 1):
            raise ConfigurationError(
                "the history window is no number of events",
                got=repr(window),
                expected='"auto", None or 1 and more',
                fix='leave it at "auto"',
                id="history-window",
            )
        self._in_memory = isinstance(inner, InMemorySessionService)
        self._copies = authors_code_may_look(app)
        known = (type(inner).__module__, type(inner).__name__) in _KNOWN
        allowed = window is not None and not adk_reads_back(app)
        if window == "auto":
            allowed = allowed and known and not self._copies
        self._recent = (AUTO_WINDOW if isinstance(window, str) else window or 0) if allowed else 0
        self._deciding = deciding_agents(app.root_agent) if allowed else None
        self._histories: dict[tuple[str, str, str], History | None] = {}
        """Of sessions that were worth it; ``None``: one whose history cannot be cut."""

    def forget(self, app_name: str, user_id: str, session_id: str) -> None:
        """Read the session anew before its next run: it was changed by somebody else, deleted, or is closed."""
        self._histories.pop((app_name, user_id, session_id), None)

    # -- what ADK calls -----------------------------------------------------------------------------------------------

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        key = (app_name, user_id, session_id)
        if not isinstance(config, RecentHistory):
            return await self._read(key, config)
        may_be_cut = self._recent and self._histories.get(key, self) is not None
        found = await (self._recent_session(key) if may_be_cut else self._read(key, None))
        if found is not None:
            free_refused(found.events)
        return found

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        self.forget(app_name, user_id, session_id)
        await super().delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        key = (session.app_name, session.user_id, session.id)
        if event.author == "user" and event.get_function_responses():
            free_refused(session.events, event)
        try:
            stored = await super().append_event(session=session, event=event)
        except BaseException:
            self._histories.pop(key, None)  # it may be stored or not
            raise
        history = self._histories.get(key)
        if history is not None and not event.partial:
            if not self._in_memory and history.events and event.timestamp < history.events[-1].timestamp:
                self._histories.pop(key, None)  # a lasting service sorts by time: only it can tell where this goes
            else:
                history.add(self._as_read(stored))
            if isinstance(session, WindowedSession) and session.widen():
                free_refused(session.events)
        return stored

    # -- recent history -----------------------------------------------------------------------------------------------

    async def _recent_session(self, key: tuple[str, str, str]) -> Session | None:
        history = self._histories.get(key)
        if history is None:
            return await self._whole_session(key)
        # The state may have been changed by other sessions, and the session itself behind our back.
        found = await self._read(key, GetSessionConfig(num_recent_events=1))
        if found is None:
            self._histories.pop(key, None)
            return None
        if [event.id for event in found.events] != [event.id for event in history.events[-1:]]:
            return await self._whole_session(key)
        history.advance()
        if not history.cut:
            return await self._whole_session(key)
        return WindowedSession.of(found, history, copies=self._copies)

    async def _whole_session(self, key: tuple[str, str, str]) -> Session | None:
        """Read everything, and begin to keep it when it is long enough."""
        self._histories.pop(key, None)
        found = await self._read(key, None)
        if found is None or len(found.events) <= 2 * self._recent:
            return found
        history = History(list(found.events), recent=self._recent, deciding=self._deciding)
        if history.whole_only:
            self._histories[key] = None
        if not history.cut:
            return found
        self._histories[key] = history
        return WindowedSession.of(found, history, copies=self._copies)

    async def _read(self, key: tuple[str, str, str], config: GetSessionConfig | None) -> Session | None:
        app_name, user_id, session_id = key
        return await super().get_session(app_name=app_name, user_id=user_id, session_id=session_id, config=config)

    def _as_read(self, event: AdkEvent) -> AdkEvent:
        """A stored event as the service would give it back."""
        if self._in_memory:
            return event.model_copy(deep=True)
        return AdkEvent.model_validate_json(event.model_dump_json(exclude_none=True))
