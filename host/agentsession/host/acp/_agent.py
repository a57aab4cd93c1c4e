"""The requests of an ACP client, and what they come to.

Not for: bytes (``_transport.py``), or one session's work (``_sessions.py``).
Rules carried: LIFE-07, LIFE-13, PER-04, PER-05, SEC-01.
May import: ``acp``, the modules beside it, the host, ``protocol``.

It does not inherit the SDK's ``Agent``, whose stubs answer what we have no method for with null. Handlers run at once:
whatever a later one must see is set before a handler first waits.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Unpack, cast

from acp import PROTOCOL_VERSION, RequestError
from acp.agent import AgentSideConnection
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    AvailableCommandsUpdate,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from agentsession.host._toolbox import ToolBox, ToolLike, ToolProvider, is_provider
from agentsession.host.acp._blocks import read_blocks
from agentsession.host.acp._client_servers import has_mcp
from agentsession.host.acp._errors import in_our_words
from agentsession.host.acp._modes import MODE_OPTION, MODES, config_options, mode_state
from agentsession.host.acp._sessions import HostOptions, Link, Served
from agentsession.host.acp._transport import WireTransport
from agentsession.protocol import (
    AgentExecutor,
    ExecutionOptions,
    Initialize,
    MemoryRecordStore,
    OpenOptions,
    RecordInfo,
    RecordStore,
)

__all__ = ["AcpAgent", "Authenticator", "InFolder"]

Authenticator = Callable[[], bool | Awaitable[bool]]
"""Whether the person is known now; asked when the client chooses this method."""

InFolder = Callable[[str], HostOptions]
"""What the host of a session in this folder has, before what all have: its policy, for one. What it raises refuses the
session."""

logger = logging.getLogger("agentsession.host")

_UNKNOWN_CWD: Final = os.sep


class AcpAgent:
    """Serves one executor to one client; :func:`serve_streams` connects it. The executor must be entered.

    ``tools``: what the host of each session runs, beside the client's own.
    ``store``: where sessions are kept; without one and one of the executor's, they live as long as this.
    ``user_id``: whose sessions they are: whoever started the process.
    ``execution``: for every session, such as a model or the permission mode that a new one begins in.
    ``auth``: a check for each method that the client may choose; without one nobody has to.
    ``options``: of the host of each session; ``in_folder`` gives those that depend on the folder of its editor.
    """

    def __init__(
        self,
        executor: AgentExecutor,
        *,
        tools: Iterable[ToolLike | ToolProvider] | ToolProvider = (),
        store: RecordStore | None = None,
        user_id: str = "local",
        execution: ExecutionOptions | None = None,
        auth: Mapping[str, Authenticator] | None = None,
        in_folder: InFolder | None = None,
        **options: Unpack[HostOptions],
    ) -> None:
        self._executor = executor
        self._tools = tools if is_provider(tools) else ToolBox(cast("Iterable[ToolLike]", tools))
        if store is None and getattr(executor, "store", executor) is None:
            store = MemoryRecordStore()  # an editor closes and loads sessions while the process lives
        self._store = store
        self._user_id = user_id
        self._execution = execution or ExecutionOptions()
        self._auth = dict(auth or {})
        self._is_known = not self._auth
        self._options, self._in_folder = options, in_folder
        self._connection: AgentSideConnection | None = None
        self._transport: WireTransport | None = None
        self._link: Link | None = None
        self._served: dict[str, Served] = {}
        self._cwds: dict[str, str] = {}

    def connect(self, connection: AgentSideConnection, transport: WireTransport) -> None:
        """Whom to talk to; once, before anything is read."""
        self._connection, self._transport = connection, transport

    async def close(self) -> None:
        """The client is gone: abort what runs and close all sessions."""
        served = list(self._served.values())
        self._served.clear()
        for failed in await asyncio.gather(*(one.close() for one in served), return_exceptions=True):
            if failed is not None:
                logger.warning("a session's tools did not close: %s", type(failed).__name__)

    @in_our_words
    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> InitializeResponse:
        """Version 1, whatever was asked for, and what this agent can do."""
        assert self._connection is not None
        assert self._transport is not None
        if self._link is not None:
            raise RequestError(-32600, "initialize was done")
        self._link = Link(self._connection, self._transport, client_capabilities or ClientCapabilities())
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=self._capabilities(),
            auth_methods=[AuthMethodAgent(id=method, name=method) for method in self._auth],
            agent_info=Implementation(
                name=self._executor.descriptor.name,
                title=self._executor.descriptor.display_name,
                version=_version(),
            ),
        )

    @in_our_words
    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Ask the check of this method."""
        check = self._auth.get(method_id)
        if check is None:
            raise RequestError(-32602, "there is no such authentication method")
        found = check()
        if (await found if inspect.isawaitable(found) else found) is not True:
            raise RequestError(-32000, "authentication failed")
        self._is_known = True
        return AuthenticateResponse()

    @in_our_words
    async def new_session(
        self, cwd: str, additional_directories: list[str] | None = None, mcp_servers: Any = None, **_: Any
    ) -> NewSessionResponse:
        """Open a session in this folder."""
        served = await self._open(cwd, additional_directories, mcp_servers)
        _then_commands(served)
        return NewSessionResponse(
            session_id=served.session_id,
            modes=mode_state(served.mode),
            config_options=config_options(served.mode),
        )

    @in_our_words
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Load a stored session, and tell all of it before this is answered."""
        served = await self._open(cwd, additional_directories, mcp_servers, load=session_id)
        await served.replay()
        _then_commands(served)
        return LoadSessionResponse(modes=mode_state(served.mode), config_options=config_options(served.mode))

    @in_our_words
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Any = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Load a stored session whose history the client has."""
        served = await self._open(cwd, additional_directories, mcp_servers, load=session_id)
        _then_commands(served)
        return ResumeSessionResponse(modes=mode_state(served.mode), config_options=config_options(served.mode))

    @in_our_words
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Any = None,
        **_: Any,
    ) -> ForkSessionResponse:
        """A new session that begins as this one is now."""
        self._need("fork")
        self._ready()
        _folders(cwd, additional_directories)
        served = self._served.get(session_id)
        if served is not None and served.session is not None:
            if served.is_running:
                raise RequestError(-32600, "a prompt of this session runs")
            at = served.session.last_seq
        else:
            at = (await self._info(session_id)).last_seq
        options = OpenOptions(user_id=self._user_id, execution=self._execution, workspace=cwd)
        copy = await self._executor.fork(session_id, at, options, store=self._store)
        await copy.aclose()  # opened again below, by a host with its tools
        opened = await self._open(cwd, additional_directories, mcp_servers, load=copy.session_id)
        _then_commands(opened)
        return ForkSessionResponse(
            session_id=opened.session_id,
            modes=mode_state(opened.mode),
            config_options=config_options(opened.mode),
        )

    @in_our_words
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """The user's stored sessions, newest first, on one page."""
        self._need("list")
        self._ready()
        if cursor is not None:
            raise RequestError(-32602, "there is one page alone")
        found = [
            SessionInfo(
                session_id=info.key.session_id,
                cwd=await self._cwd(info),
                title=info.title,
                updated_at=info.updated_at,
            )
            for info in await self._executor.list(self._user_id, store=self._store)
        ]
        return ListSessionsResponse(sessions=[one for one in found if cwd is None or one.cwd == cwd])

    @in_our_words
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """End what runs in it, and close it; it can be loaded again."""
        served = self._of(session_id)
        del self._served[session_id]
        await served.close()
        return CloseSessionResponse()

    @in_our_words
    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        """One turn, answered after its last update."""
        served = self._of(session_id)
        if served.is_running:
            raise RequestError(-32600, "a prompt of this session runs", {"code": "stream-active"})
        parts = read_blocks(prompt, takes_media=self._executor.descriptor.supports("media_input"))
        served.is_running = True
        return await served.prompt(parts)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the turn of this session; without one nothing happens."""
        served = self._served.get(session_id)
        if served is not None:
            await served.cancel()

    @in_our_words
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        """Change the permission mode."""
        await self._set_mode(session_id, mode_id)
        return SetSessionModeResponse()

    @in_our_words
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Change the one option that there is, and tell all of them."""
        if config_id != MODE_OPTION:
            raise RequestError(-32602, "there is no such option")
        served = await self._set_mode(session_id, value)
        return SetSessionConfigOptionResponse(config_options=config_options(served.mode))

    async def _set_mode(self, session_id: str, mode: str | bool) -> Served:
        served = self._of(session_id)
        if not isinstance(mode, str) or mode not in MODES:
            raise RequestError(-32602, "there is no such mode")
        await served.set_mode(mode)
        return served

    async def _open(
        self, cwd: str, roots: Sequence[str] | None, mcp_servers: Any, *, load: str | None = None
    ) -> Served:
        link = self._ready()
        if load is not None:
            self._need("load")
        _folders(cwd, roots)
        if load is not None and load in self._served:
            if self._served[load].is_running:
                raise RequestError(-32600, "a prompt of this session runs", {"code": "stream-active"})
            await self._served.pop(load).close()
        execution = self._execution
        if load is not None:  # the mode that it was left in
            execution = execution.model_copy(update={"permission_mode": None})
        options = OpenOptions(user_id=self._user_id, execution=execution, workspace=cwd)
        given = self._options
        if self._in_folder is not None:
            given = cast(HostOptions, {**given, **self._in_folder(cwd)})
        served = Served(
            link, self._executor, self._tools, given, cwd=cwd, roots=roots or (), mcp_servers=mcp_servers or ()
        )
        await served.open(options, load=load, store=self._store)
        if link.transport.is_gone:  # nobody is there any more to close it
            await served.close()
            raise RequestError(-32603, "the client is gone")
        self._served[served.session_id] = served
        self._cwds[served.session_id] = cwd
        return served

    def _ready(self) -> Link:
        if self._link is None:
            raise RequestError(-32600, "initialize comes first")
        if not self._is_known:
            raise RequestError(-32000, "authentication required")
        return self._link

    def _of(self, session_id: str) -> Served:
        self._ready()
        served = self._served.get(session_id)
        if served is None:
            raise RequestError(-32002, "there is no such session open")
        return served

    def _need(self, capability: str) -> None:
        if not self._executor.descriptor.supports(capability):
            raise RequestError(-32601, "this agent cannot do that", {"code": "unimplemented"})

    async def _info(self, session_id: str) -> RecordInfo:
        for info in await self._executor.list(self._user_id, store=self._store):
            if info.key.session_id == session_id:
                return info
        raise RequestError(-32002, "there is no such session")

    async def _cwd(self, info: RecordInfo) -> str:
        known = self._cwds.get(info.key.session_id)
        if known is None and self._store is not None:
            try:
                first = await self._store.read(info.key, limit=1)
                known = next((event.workspace for event in first if isinstance(event, Initialize)), None)
            except Exception as error:  # noqa: BLE001 - logged; one record that cannot be read hides no other session
                logger.warning("session %s: its record cannot be read: %s", info.key.session_id, type(error).__name__)
        return known or _UNKNOWN_CWD

    def _capabilities(self) -> AgentCapabilities:
        can = self._executor.descriptor.supports
        media = can("media_input")
        return AgentCapabilities(
            load_session=can("load"),
            prompt_capabilities=PromptCapabilities(image=media, audio=media, embedded_context=True),
            mcp_capabilities=McpCapabilities(http=has_mcp(), sse=False),
            session_capabilities=SessionCapabilities(
                list=SessionListCapabilities() if can("list") else None,
                fork=SessionForkCapabilities() if can("fork") and can("load") else None,
                resume=SessionResumeCapabilities() if can("load") else None,
                close=SessionCloseCapabilities(),
                additional_directories=SessionAdditionalDirectoriesCapabilities(),
            ),
        )


def _then_commands(served: Served) -> None:
    """Behind the answer, which the SDK writes before the loop gets to this: the client does not know the id yet."""
    commands = AvailableCommandsUpdate(session_update="available_commands_update", available_commands=[])
    asyncio.get_running_loop().call_soon(served.put, commands)


def _folders(cwd: str, roots: Sequence[str] | None) -> None:
    for folder in (cwd, *(roots or ())):
        if not os.path.isabs(folder) or "\0" in folder:
            raise RequestError(-32602, "a session's folders are absolute paths", {"code": "cwd_not_absolute"})


def _version() -> str:
    try:
        return importlib.metadata.version("agent-session-protocol")
    except importlib.metadata.PackageNotFoundError:
        return "0"
