"""The executor whose sessions live behind a server of the contract over HTTP.

Not for: one session (``_session.py``). Rules carried: none but those of the sessions.
May import: ``agentsession.protocol``, anyio, the modules beside it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from agentsession.adapters.remote._backoff import Backoff
from agentsession.adapters.remote._session import RemoteSession
from agentsession.adapters.remote._shapes import mapping, number, shown, state_of, text
from agentsession.adapters.remote._wire import Json, Sent, Wire, path_of
from agentsession.protocol import (
    AgentDescriptor,
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    LifecycleInterceptor,
    OpenOptions,
    RecordInfo,
    RecordKey,
    RecordStore,
    SchemaError,
    SessionBusy,
    Unimplemented,
    UnsupportedVersion,
    check_id,
    check_version,
    parse_descriptor,
)

__all__ = ["RemoteExecutor", "entry_point"]

T = TypeVar("T")


class RemoteExecutor:
    """An agent behind a server of the contract over HTTP; satisfies ``agentsession.protocol.AgentExecutor``.

    Records are kept by the server: what is passed as ``store`` is not used, and hooks are refused. Whose sessions they
    are says the token. Leaving the executor closes its sessions, but those that were ``detach``\\ ed.
    """

    def __init__(
        self,
        base_url: str,
        *,
        agent: str | None = None,
        token: str | None = None,
        answer_s: float = 10.0,
        give_up_s: float = 30.0,
        backoff: Backoff | None = None,
    ) -> None:
        """
        Args:
            base_url: Where the app is served, such as ``https://agents.example/v1``.
            agent: The name of the agent; may be left out where the server has one alone.
            token: A bearer token. It is sent to this server only, and shown nowhere.
            answer_s: How long one attempt may take.
            give_up_s: How long is tried again after a cut, before it is :class:`ConnectionLost`.
            backoff: How long is waited between attempts.

        Raises:
            ConfigurationError: the base URL is none.
        """
        self.wire = Wire(base_url, token, answer_s=answer_s, give_up_s=give_up_s, backoff=backoff or Backoff())
        self._agent = agent
        self._descriptor: AgentDescriptor | None = None
        self._group: TaskGroup | None = None
        self._sessions: dict[str, RemoteSession] = {}

    def __repr__(self) -> str:
        return f"RemoteExecutor({self.wire.base_url!r}, agent={self._agent!r})"

    @property
    def descriptor(self) -> AgentDescriptor:
        if self._descriptor is None:
            raise ConfigurationError(
                "the executor is not running", fix="enter it: async with executor:", id="executor-not-entered"
            )
        return self._descriptor

    async def __aenter__(self) -> Self:
        """Ask the server for the agent.

        Raises :class:`ConfigurationError` where it has none of that name or refuses the token,
        :class:`ConnectionLost`, :class:`UnsupportedVersion`.
        """
        if self._group is not None:
            raise ConfigurationError("the executor is running already", fix="enter it once, and open sessions in there")
        await self.wire.__aenter__()
        try:
            self._take_agents(await self.wire.call(Sent("GET", "/agents")))
            group = anyio.create_task_group()
            await group.__aenter__()
        except BaseException:
            await self.wire.__aexit__(None, None, None)
            raise
        self._group = group
        return self

    def _take_agents(self, answer: Json) -> None:
        version, agents = answer.get("protocolVersion"), answer.get("agents")
        if not isinstance(version, str) or not isinstance(agents, builtins.list):
            raise ConfigurationError(
                "what answers there is no server of this contract",
                where=self.wire.base_url,
                expected="the agents, as docs/reference/http.md has them",
            )
        try:
            check_version(version)
        except UnsupportedVersion as error:
            raise self.wire.mask.error(error) from None
        found = {text(each.get("name")): mapping(each.get("descriptor")) for each in map(mapping, agents)}
        if self._agent is None and len(found) == 1:
            self._agent = next(iter(found))
        if self._agent is None or self._agent not in found:
            raise ConfigurationError(
                "the server has several agents" if self._agent is None else f"no agent {self._agent!r} is served",
                where=self.wire.base_url,
                expected=self.wire.mask("one of: " + ", ".join(sorted(found)[:20])),
                fix="RemoteExecutor(..., agent=...)",
                id="agent-not-found",
            )
        try:
            self._descriptor = parse_descriptor(found[self._agent])
        except SchemaError as error:
            raise self.wire.mask.error(error) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group = self._group
        assert group is not None
        failures: list[AgentSessionError] = []
        try:
            with anyio.CancelScope(shield=True):
                for session in builtins.list(self._sessions.values()):
                    try:
                        await session.aclose()
                    except AgentSessionError as failure:  # raised below; the others must be closed first
                        failures.append(failure)
        finally:
            group.cancel_scope.cancel()
            # The reason of leaving is not handed on: the group has no children that failed, and must not wrap it.
            await group.__aexit__(None, None, None)
            self._group = None
            await self.wire.__aexit__(None, None, None)
        if failures and error is None:
            raise failures[0]

    def forget(self, session: RemoteSession) -> None:
        """A session was closed."""
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> RemoteSession:
        """Start a session (see ``AgentExecutor.open``)."""
        options = options or OpenOptions()
        self._check(hooks)
        answer = await self.wire.call(Sent("POST", self._path(), _wire_options(options)))
        return await self._follow(answer, options, options.session_id, is_new=True)

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> RemoteSession:
        """Open a stored session, or follow one that the server has open (see ``AgentExecutor.load``).

        The server's lock keeps other processes from it, not other clients. Here it may be open once. One that others
        use on the server keeps the options that it has there.
        """
        self._check(hooks)
        self._require("load")
        if check_id(session_id, "session id") in self._sessions:
            raise SessionBusy("the session is open here already", where=f"session {session_id}", fix="close it first")
        sent = Sent("GET", self._path(session_id))
        if options is not None:
            sent = Sent("POST", self._path(session_id, "load"), _wire_options(options))
        answer = await self.wire.call(sent)
        return await self._follow(answer, options or OpenOptions(), session_id, is_new=False)

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> RemoteSession:
        """Copy the record up to seq ``at`` to a new session (see ``AgentExecutor.fork``)."""
        self._check(hooks)
        options = options or OpenOptions()
        body = {"at": at, "options": _wire_options(options)}
        answer = await self.wire.call(Sent("POST", self._path(session_id, "fork"), body))
        return await self._follow(answer, options, options.session_id, is_new=False)

    async def _follow(
        self, answer: Json, options: OpenOptions, session_id: str | None, *, is_new: bool
    ) -> RemoteSession:
        """``session_id``: that of the session that was asked for, where it has one already."""
        assert self._agent is not None
        assert self._group is not None
        found, _ = shown(answer, session_id)
        if found in self._sessions:
            raise SessionBusy("the session is open here already", where=f"session {found}", fix="close it first")
        session = RemoteSession(self, self._agent, answer, options, is_new=is_new)
        self._sessions[session.session_id] = session
        self._group.start_soon(session.follow, name=f"agentsession remote {session.session_id}")
        try:
            await session.begun()
        except BaseException:
            session.detach()
            raise
        return session

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        """The stored sessions of the user that the token names (see ``AgentExecutor.list``)."""
        self._check(None)
        self._require("list")
        found = (await self.wire.call(Sent("GET", self._path()))).get("sessions")
        if not isinstance(found, builtins.list):
            raise ConnectionLost("the server's answer has no sessions")
        return [_info(self.descriptor.name, user_id, mapping(each)) for each in found]

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        """Remove a stored session (see ``AgentExecutor.delete``)."""
        self._check(None)
        self._require("delete")
        if session_id in self._sessions:
            raise SessionBusy("the session is open here", where=f"session {session_id}", fix="close it first")
        sent = Sent("DELETE", self._path(check_id(session_id, "session id")))
        await self.wire.call(sent)

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        """Take back what came after seq ``to`` (see ``AgentExecutor.rewind``)."""
        self._check(None)
        self._require("rewind")
        await self.wire.call(Sent("POST", self._path(session_id, "rewind"), {"to": to}))
        session = self._sessions.get(session_id)
        if session is not None:
            await session.refresh()

    # -- checks -------------------------------------------------------------------------------------------------------

    def _path(self, session_id: str | None = None, call: str | None = None) -> str:
        assert self._agent is not None
        ends = [] if session_id is None else [check_id(session_id, "session id")]
        return path_of("agents", self._agent, "sessions", *ends, *([] if call is None else [call]))

    def _check(self, hooks: LifecycleInterceptor | None) -> None:
        if self._group is None:
            raise ConfigurationError(
                "the executor is not running", fix="enter it: async with executor:", id="executor-not-entered"
            )
        if hooks is not None:
            raise Unimplemented("hooks do not go over HTTP", fix="give them to the host that the server runs")

    def _require(self, capability: str) -> None:
        if not self.descriptor.supports(capability):
            raise Unimplemented(
                f"agent {self.descriptor.name} does not offer {capability}",
                expected=f"the capability {capability} in its descriptor",
            )


def _wire_options(options: OpenOptions) -> dict[str, object]:
    """The options without the user where that is the default: the token says who it is."""
    made = options.to_wire()
    if options.user_id == OpenOptions().user_id:
        made.pop("userId", None)
    return made


def _info(agent: str, user_id: str, item: Json) -> RecordInfo:
    session_id, last = shown(item)

    def known(name: str, read: Callable[[object], T]) -> T | None:
        return read(item[name]) if name in item else None

    reserved = known("reservedSeq", number)
    return RecordInfo(
        RecordKey(agent, user_id, session_id),
        last,
        last if reserved is None else reserved,
        title=known("title", text),
        created_at=known("createdAt", text),
        updated_at=known("updatedAt", text),
        events=known("events", number),
        turns=known("turns", number),
        state=known("state", state_of),
        pending=known("pending", number),
    )


def entry_point() -> type[RemoteExecutor]:
    """What the entry point ``agentsession.executors: remote`` gives: the class."""
    return RemoteExecutor
