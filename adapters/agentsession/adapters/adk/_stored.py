"""The life of ADK's sessions beside their records: opened, loaded, adopted, forked, rewound, deleted.

Not for: running turns (``_executor.py``), or what ADK's list of events means (``_history.py``).
Rules carried: PER-01, PER-04, PER-05, PER-06. May import: everything beside it but ``_executor``, google.adk.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.adk.events.event import Event as AdkEvent
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from agentsession.adapters.adk._adopt import adopted_record, not_adopted
from agentsession.adapters.adk._catch_up import untold
from agentsession.adapters.adk._history import (
    History,
    invocation_after,
    is_rewound_in,
    last_rewind,
    place_of,
    places,
    rewind_events,
    stamp,
)
from agentsession.adapters.adk._live import current_run
from agentsession.adapters.adk._scopes import check_adk_ids, wrong_state
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.adk._sessions import RecentSessions
from agentsession.adapters.adk._setup import check_host_tools, check_same_tree
from agentsession.adapters.base import BaseExecutor, BaseSession
from agentsession.protocol import (
    Event,
    Initialize,
    InvalidInput,
    LifecycleInterceptor,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionNotFound,
    StreamEnd,
    check_id,
)

__all__ = ["AdkSessions"]


class AdkSessions(BaseExecutor):
    """The part of the executor that makes, finds and removes ADK's sessions."""

    session_service: BaseSessionService
    _history: History
    _runner: Runner
    _tapped: RecentSessions
    _states: dict[tuple[str, str], AdkSessionState]

    def _state(self, session: BaseSession) -> AdkSessionState:
        """The adapter's side of a session; made when it is first asked for."""
        raise NotImplementedError

    def record_key(self, session_id: str, user_id: str) -> RecordKey:
        """What a session is kept under; ADK's services cannot keep every id."""
        key = super().record_key(session_id, user_id)
        check_adk_ids(key)
        return key

    async def on_open(self, session: BaseSession) -> None:
        """Make ADK's session, under the same id and for the same user."""
        execution = session.options.execution
        check_host_tools(execution.tools or (), self.descriptor)
        given = execution.state or {}
        wrong = wrong_state(given)
        if wrong is not None:
            raise InvalidInput(wrong, expected="NAME, user:NAME, app:NAME or temp:NAME", fix="rename it")
        state = self._state(session)
        lasting = {key: value for key, value in given.items() if not key.startswith(State.TEMP_PREFIX)}
        await self._history.begin(session.user_id, session.session_id, lasting, session.record)
        state.state_changes = {key: value for key, value in given.items() if key not in lasting}

    def check_record(self, events: Sequence[Event]) -> None:
        """A turn that waits goes on only in the tree of agents that it waits in."""
        first = events[0]
        end = next((event for event in reversed(events) if isinstance(event, StreamEnd)), None)
        if isinstance(first, Initialize) and first.descriptor is not None and end is not None and end.pending:
            check_same_tree(first.descriptor, self.descriptor)

    async def on_cut(self, session: BaseSession) -> Sequence[Event]:
        """What ADK has stored of a stream whose record is cut off before it."""
        found = await self._history.get(session.user_id, session.session_id)
        if found is None:
            return ()  # which refuses the session, once it is loaded
        state = self._state(session)
        state.remember(session.record, session.machine)
        # The state was only for this: what is known in the end is remembered when the record is whole.
        self._states.pop((session.user_id, session.session_id), None)
        return untold(found.events, session.record, session.machine, state.translator)

    async def on_load(self, session: BaseSession) -> None:
        """Find ADK's session again, and ADK's ids for the record's requests; finish a rewind that was cut off."""
        check_host_tools(session.options.execution.tools or (), self.descriptor)
        found = await self._remembered(session)
        rewound = last_rewind(session.record)
        if rewound is not None and not is_rewound_in(found.events, session.record, rewound[0]):
            await self._rewind(session, rewound[1], at=rewound[0])

    async def adopt(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> BaseSession:
        """Make a session of ADK's session ``session_id``, which another program made and no record exists of.

        Its record is the translation of ADK's events. What waits there for an answer is pending and can be answered;
        a call that was begun and has no result is ``unknown``. Nothing of it runs by this.

        Raises:
            SessionNotFound: ADK has no such session of this user.
            SessionExists: it has a record, or is open: load it.
            InvalidInput: the options say that it is ephemeral; closing would delete ADK's session.
        """
        options = options or OpenOptions()
        if options.execution.ephemeral:
            raise InvalidInput(
                "a session that is adopted cannot be ephemeral",
                got="ephemeral=True",
                fix="adopt it with a store or without one; delete it when it is not needed any more",
            )
        options = self.opener.checked(options)
        check_host_tools(options.execution.tools or (), self.descriptor)
        key = self.record_key(session_id, options.user_id)
        found = await self._history.get(key.user_id, key.session_id)
        if found is None:
            raise SessionNotFound(
                f"ADK's session service has no session {session_id} of user {options.user_id}",
                where=f"{type(self.session_service).__name__}, app {self._runner.app_name}",
                fix="look at adoptable(user_id)",
            )

        async def ready(session: BaseSession) -> None:
            await self._remembered(session)

        events = adopted_record(found, self.descriptor)
        kept = store or self.store
        return await self.opener.begin(
            key,
            options,
            kept,
            hooks,
            ready,
            events=events,
            reserved_seq=events[-1].seq,
            reason="adopted",
            is_new=False,
        )

    async def adoptable(self, user_id: str = "local", *, store: RecordStore | None = None) -> list[str]:
        """Ids of ADK's sessions of this user that have no record in the store, newest first."""
        check_id(user_id, "user id")
        listed = await self.session_service.list_sessions(app_name=self._runner.app_name, user_id=user_id)
        kept = store or self.store
        records = await kept.list(self.descriptor.name, user_id) if kept is not None else ()
        known = {info.key.session_id for info in records} | {
            key.session_id for key in self.open_sessions if key.user_id == user_id
        }
        return [found.id for found in reversed(listed.sessions) if found.id not in known]

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> BaseSession:
        """Open a stored session (see ``AgentExecutor.load``); one that only ADK has must be adopted."""
        try:
            return await super().load(session_id, options, store=store, hooks=hooks)
        except SessionNotFound as error:
            await self._explain(error, session_id, options.user_id if options is not None else "local", store)
            raise

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        """Remove a stored session, ADK's session, and its files; one that only ADK has must be adopted first."""
        try:
            await super().delete(session_id, user_id, store=store)
        except SessionNotFound as error:
            await self._explain(error, session_id, user_id, store)
            raise

    async def _explain(self, error: SessionNotFound, session_id: str, user_id: str, store: RecordStore | None) -> None:
        """Raise what helps more than ``error``, where the record is missing and ADK's session is not."""
        if session_id in await self.adoptable(user_id, store=store):
            raise not_adopted(session_id, user_id) from error

    async def on_fork(self, source: RecordKey, session: BaseSession, at: int) -> None:
        """Copy ADK's session up to the point of the fork."""
        check_host_tools(session.options.execution.tools or (), self.descriptor)
        # The whole record of the source: it tells where events stand that another program has stored.
        whole = await session.store.read(source) if session.store is not None else session.record
        target = (session.user_id, session.session_id)
        await self._history.fork((source.user_id, source.session_id), target, whole, at)
        async with self._history.removing(*target):
            await self._remembered(session)

    async def on_rewind(self, session: BaseSession, to: int) -> None:
        """Let ADK's session forget what came after seq ``to``, and put its state and artifacts back."""
        marker = last_rewind(session.record)
        if marker is not None:
            await self._rewind(session, to, at=marker[0])
        self._state(session).forget_rewound(session.record)

    async def _remembered(self, session: BaseSession) -> Session:
        """ADK's session of a session that was loaded or forked; what the record tells of it is known again."""
        found = await self._history.get(session.user_id, session.session_id)
        if found is None:
            raise SessionNotFound(
                f"ADK's session service has no session {session.session_id}",
                where=type(self.session_service).__name__,
                expected="the session service that the session was opened with",
                fix="keep ADK's sessions in a lasting session service, such as SqliteSessionService",
            )
        state = self._state(session)
        for event, place in zip(found.events, places(found.events, session.record), strict=True):
            state.heard.note(event, place)
        state.remember(session.record, session.machine)
        for event in found.events:
            for adk_id, config in event.actions.requested_auth_configs.items():
                call = state.translator.book.known(adk_id)
                if call is not None:
                    state.credential_keys[call.request_id] = config.credential_key
        state.needs_sealing = True
        return found

    async def _rewind(self, session: BaseSession, to: int, *, at: int) -> None:
        """What ADK's own rewind does, with its marker at seq ``at`` of the record; the record is told what it changed.

        State of the app and of the user stays, so where the record says otherwise now, it is told.
        """
        before = await self._adk_events(session)
        invocation = invocation_after(before, session.record, to)
        if invocation is None:
            return  # nothing of what was taken back had come to ADK
        state = self._state(session)
        state.place = at
        try:
            await self._runner.rewind_async(
                user_id=session.user_id, session_id=session.session_id, rewind_before_invocation_id=invocation
            )
        finally:
            state.place = None
            self._forget(session.user_id, session.session_id)
        found = await self._history.get(session.user_id, session.session_id)
        if found is not None:
            for event in rewind_events(found, session.record, session.state_values):
                session.recorder.record(event)

    async def _adk_events(self, session: BaseSession) -> Sequence[AdkEvent]:
        found = await self._history.get(session.user_id, session.session_id)
        return found.events if found is not None else ()

    async def _before_append(self, adk_session: Session, event: AdkEvent) -> None:
        """Each event that ADK stores is marked with its place in the record."""
        state = self._states.get((adk_session.user_id, adk_session.id))
        session = self.open_sessions.get(RecordKey(self.descriptor.name, adk_session.user_id, adk_session.id))
        if state is None or session is None:
            return
        recorder = session.recorder
        # Between two streams nothing that is stored is in the record up to its end.
        place = recorder.seq if recorder.machine.stream_id is not None else recorder.seq + 1
        stamp(event, state.place if state.place is not None else place, session.record)

    async def on_close(self, session: BaseSession) -> None:
        """Forget the adapter's side of the session; an ephemeral session leaves nothing behind in ADK either."""
        self._states.pop((session.user_id, session.session_id), None)
        self._forget(session.user_id, session.session_id)
        if session.options.execution.ephemeral:
            await self.on_delete(RecordKey(self.descriptor.name, session.user_id, session.session_id))

    async def on_delete(self, key: RecordKey) -> None:
        """Remove ADK's session with the record."""
        self._forget(key.user_id, key.session_id)
        await self._history.delete(key.user_id, key.session_id)

    def _forget(self, user_id: str, session_id: str) -> None:
        """What is known of ADK's session is not true any more, or not needed."""
        self._tapped.forget(self._runner.app_name, user_id, session_id)

    async def _after_append(self, adk_session: Session, event: AdkEvent) -> None:
        """The summary of a compaction is stored and never yielded: it is told here. What a person said was heard."""
        state = self._states.get((adk_session.user_id, adk_session.id))
        if state is not None and event.author == "user":
            state.heard.note(event, place_of(event) or 0)
        live = current_run()
        if event.actions.compaction is not None and live is not None and live.state.adk_session_id == adk_session.id:
            await live.compacted(event)
