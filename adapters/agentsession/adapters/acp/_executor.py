"""The executor: any ACP agent, started as a process for each session.

Not for: the mapping (``_turn.py`` and the modules that it uses). Rules carried: LIFE-01, LIFE-13, PER-04, SEC-01.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, ``acp``, the modules beside it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import anyio
from acp import PROTOCOL_VERSION, RequestError, default_environment
from acp.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
)

from agentsession.adapters.acp._asking import CALL_TOOL, pick
from agentsession.adapters.acp._link import AgentLost, Initialized, Link, custom, failed
from agentsession.adapters.acp._peer import AgentProcess, Incoming
from agentsession.adapters.acp._turn import Turn
from agentsession.adapters.base import BaseExecutor, BaseSession, RunContext, RunResult
from agentsession.protocol import (
    AgentDescriptor,
    Answer,
    ConfigurationError,
    Custom,
    Error,
    InvalidInput,
    Receipt,
    RequestState,
    ToolGrant,
    ToolResult,
)

__all__ = ["AcpExecutor", "entry_point"]

_ALWAYS: Final = ["streaming", "host_tool_execution", "elicitation", "abort", "usage", "reasoning"]
_SESSION: Final = "acp:session"
"""Kind of the custom event that keeps the agent's own id of a session."""


class AcpExecutor(BaseExecutor):
    """Drives the ACP agent that ``command`` starts.

    ``cwd`` is the folder that an agent works in unless the session has a workspace. ``env`` is added to the few
    variables that it is given (``acp.default_environment``). ``mcp_servers`` are handed to it as ACP has them.
    ``quiet_s`` is how long nothing may have come from it before a turn that waits for the host pauses, ``start_s`` how
    long it may take over each of ``initialize``, ``session/new`` and ``session/load``; one that takes longer is ended.
    The agent is asked what it can do when the executor is entered.

    Raises :class:`ConfigurationError` on entering where the agent cannot be started, does not answer or speaks another
    version; opening a session raises :class:`AgentSessionError` (``acp-agent-timeout``) where it does not answer.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        name: str = "acp",
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        quiet_s: float = 0.05,
        start_s: float = 60.0,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        if isinstance(command, str) or not command:
            raise InvalidInput("the command is no list of words", expected='such as ["my-agent", "--acp"]')
        if not start_s > 0:
            raise InvalidInput("start_s is no time", got=repr(start_s), expected="seconds, more than 0")
        self.command = list(command)
        self.cwd = os.path.abspath(cwd if cwd is not None else os.getcwd())
        self.mcp_servers = [dict(server) for server in mcp_servers]
        self._env = {**default_environment(), **(env or {})}
        self._quiet_s, self.start_s = quiet_s, start_s
        self._links: dict[tuple[str, str], Link] = {}
        self.descriptor = AgentDescriptor(
            name=name, executor="acp", description="An agent behind ACP.", capabilities=list(_ALWAYS)
        )

    # -- the agent ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigurationError("the ACP executor runs on asyncio alone", fix="run it with asyncio") from error
        await super().__aenter__()
        try:
            about = await self._ask_about()
        except BaseException as error:  # raised again, once the base is left
            await super().__aexit__(type(error), error, None)
            raise
        able = [*_ALWAYS, *(("load", "list") if about.loads else ()), *(("media_input",) if about.accepts else ())]
        metadata = {key: value for key, value in (("agent", about.name), ("version", about.version)) if value}
        self.descriptor = self.descriptor.model_copy(
            update={"capabilities": able, "description": f"The ACP agent {about.name or self.command[0]}."}
        )
        self.about: dict[str, str] = metadata
        return self

    async def _ask_about(self) -> Initialized:
        """What the agent says of itself: a process of it, which is ended again."""
        process, about = await self.start_agent(lambda item: None)
        await process.close()
        return about

    async def start_agent(
        self, deliver: Callable[[Incoming], None], session: BaseSession | None = None
    ) -> tuple[AgentProcess, Initialized]:
        """A new process of the agent, initialized. Raises :class:`ConfigurationError` where it cannot be had."""
        where = self.root_of(session) if session is not None else self.cwd
        try:
            process = await AgentProcess.start(self.command, where, self._env, deliver)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the ACP agent {self.command[0]} cannot be started",
                got=type(error).__name__,
                fix="check the command and the folder",
                id="acp-agent-start",
            ) from None
        try:
            with anyio.fail_after(self.start_s):
                answer = await process.request("initialize", self._hello(session))
            return process, Initialized.of(answer)
        except BaseException as error:  # a cancellation too: no process may be left; each is raised again
            with anyio.CancelScope(shield=True):
                await process.close(kill=True)
            if isinstance(error, RequestError):
                raise failed(error) from None
            if isinstance(error, ConnectionError | TimeoutError):
                silent = f"did not answer initialize within {self.start_s:g} s"
                problem = silent if isinstance(error, TimeoutError) else "ended at once"
                raise ConfigurationError(
                    f"the ACP agent {self.command[0]} {problem}",
                    fix="run the command by hand: it must speak ACP on its standard input and output",
                    id="acp-agent-start",
                ) from None
            raise

    def _hello(self, session: BaseSession | None) -> dict[str, Any]:
        has = self.host_tools_of(session) if session is not None else frozenset[str]()
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_info=Implementation(
                name="agentsession", version=importlib.metadata.version("agent-session-protocol")
            ),
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(
                    read_text_file="read_text_file" in has, write_text_file="write_text_file" in has
                ),
                terminal="terminal" in has,
                elicitation=ElicitationCapabilities(
                    form=ElicitationFormCapabilities(), url=ElicitationUrlCapabilities()
                ),
                field_meta={"agentsession": {"callTool": CALL_TOOL, "tools": sorted(has)}},
            ),
        )
        return request.model_dump(mode="json", by_alias=True, exclude_none=True)

    def root_of(self, session: BaseSession) -> str:
        """The folder that a session's agent works in, and that its files must lie in."""
        return os.path.abspath(session.options.workspace or self.cwd)

    def host_tools_of(self, session: BaseSession) -> frozenset[str]:
        """The names of the tools that the host has declared when it opened the session."""
        if not session.options.host.tool_execution:
            return frozenset()
        return frozenset(tool.name for tool in session.options.execution.tools or ())

    # -- what the base asks -------------------------------------------------------------------------------------------

    async def on_open(self, session: BaseSession) -> None:
        link = Link(self, session)
        await link.ensure()
        self._links[_key(session)] = link
        # With the opening, before any prompt: a kill must not leave an agent's session without its id.
        session.recorder.record(custom(_SESSION, {"sessionId": link.acp_id}, source="ext:acp"))
        link.is_recorded = True

    async def on_load(self, session: BaseSession) -> None:
        # The agent is started by the next turn: a record can be read without it.
        found = None
        for event in reversed(await session.whole_record()):
            if isinstance(event, Custom) and event.kind == _SESSION and isinstance(event.data, dict):
                found = event.data.get("sessionId")
                break
        self._links[_key(session)] = Link(self, session, found if isinstance(found, str) else None)

    async def on_close(self, session: BaseSession) -> None:
        link = self._links.pop(_key(session), None)
        if link is not None:
            await link.drop()

    def check_answer(self, session: BaseSession, request: RequestState, answer: Answer) -> Receipt | None:
        """An ACP agent runs its own tool with its own arguments, or not: nothing else can be told to it."""
        link = self._links.get(_key(session))
        options = link.options.get(request.id) if link is not None else None
        reason = None
        if options is None:
            return super().check_answer(session, request, answer)
        if isinstance(answer, ToolResult):
            reason = "an ACP agent runs its own tools: grant the call or deny it"
        elif isinstance(answer, ToolGrant) and answer.args is not None and answer.args != request.args:
            reason = "an ACP agent cannot be told other arguments: grant the call as it is, or deny it"
        elif isinstance(answer, ToolGrant) and link is not None and link.args.get(request.id) != request.args:
            reason = "a hook changed the arguments, which an ACP agent cannot be told: deny the call"
        elif isinstance(answer, ToolGrant) and pick(options, "allow_once") is None:
            remembered = answer.decision is not None and answer.decision.by.split(":")[0] == "remembered"
            if not remembered or pick(options, "allow_always") is None:
                reason = "the agent offers no way to allow this once"
        if reason is None:
            return None
        return Receipt(status="invalid", request_id=request.id, rule="TOOL-14", reason=reason)

    def has_begun(self, session: BaseSession, request: RequestState) -> bool:
        link = self._links.get(_key(session))
        return link is None or request.id in link.begun

    def describe_error(self, error: BaseException) -> Error:
        if isinstance(error, AgentLost):
            return Error(status="UNAVAILABLE", message=error.what, fatal=True, code=error.id)
        return super().describe_error(error)

    async def run(self, ctx: RunContext) -> RunResult | None:
        """One prompt turn."""
        link = self._links[_key(ctx)]
        process = await link.ensure()
        if not link.is_recorded:
            await ctx.emit(custom(_SESSION, {"sessionId": link.acp_id}))
            await ctx.stored()
            link.is_recorded = True
        return await Turn(link, ctx, self._quiet_s).play(process)


def _key(place: BaseSession | RunContext) -> tuple[str, str]:
    return place.user_id, place.session_id


def entry_point() -> type[AcpExecutor]:
    """What the entry point ``agentsession.executors: acp`` gives: the class."""
    return AcpExecutor
