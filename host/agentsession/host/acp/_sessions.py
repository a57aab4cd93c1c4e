"""One session of an editor: its host, its tools, its channel and the turn that runs.

Not for: requests (``_agent.py``). Rules carried: LIFE-07, CTL-01, CTL-07, LIFE-13.
May import: ``acp``, the modules beside it, the host, ``protocol``.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from acp import RequestError
from acp.agent import AgentSideConnection
from acp.schema import (
    ClientCapabilities,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PromptResponse,
    SessionNotification,
    Usage,
)

from agentsession.host._attached import recorded_mode
from agentsession.host._host import Host
from agentsession.host._policy import Policy
from agentsession.host._results import TurnResult, UsageTotals
from agentsession.host._settings import AnswerObserver
from agentsession.host._toolbox import ToolBox, ToolProvider, connected
from agentsession.host.acp._channel import AcpChannel
from agentsession.host.acp._client_servers import client_servers
from agentsession.host.acp._editor_tools import EditorTools
from agentsession.host.acp._errors import as_request_error
from agentsession.host.acp._modes import config_options
from agentsession.host.acp._tool_calls import own_tool
from agentsession.host.acp._transport import WireTransport
from agentsession.host.acp._updates import Update, Updates
from agentsession.host.policy import RememberedAnswers
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    AgentSessionError,
    Constraints,
    ContentPart,
    Error,
    Event,
    Grace,
    LifecycleInterceptor,
    MessageInput,
    OpenOptions,
    Price,
    RecordStore,
    SessionConfig,
    SessionUpdate,
    ToolDescriptor,
)

__all__ = ["HostOptions", "Link", "Served"]

logger = logging.getLogger("agentsession.host")

_REASONS = {
    "completed": "end_turn",
    "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests",
    "max_llm_calls": "max_turn_requests",
    "refusal": "refusal",
    "aborted": "cancelled",
}


class HostOptions(TypedDict, total=False):
    """Of :class:`agentsession.host.Host`, for the host of every session; the channel and the observer are ours."""

    policy: Policy | None
    on_answer: AnswerObserver | None
    tool_timeout_s: float | None
    max_parallel_tools: int
    expose_tool_errors: bool
    hooks: LifecycleInterceptor | Sequence[LifecycleInterceptor] | None
    abort_grace_s: float
    limits: Constraints | None
    deadline_s: float | None
    grace: Grace | None
    prices: Mapping[str, Price] | None
    loop_detection: bool
    remembered: RememberedAnswers | None
    question_timeout_s: float | None


class Link:
    """The connection to one client, and what it declared."""

    def __init__(self, connection: AgentSideConnection, transport: WireTransport, client: ClientCapabilities) -> None:
        self.connection = connection
        self.transport = transport
        self.client = client

    def put(self, session_id: str, update: Any) -> None:
        """Hand an update over now, before anything is awaited: this is what keeps the order."""
        told = SessionNotification(session_id=session_id, update=update)
        params = told.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.transport.put({"jsonrpc": "2.0", "method": "session/update", "params": params})


class Served:
    """A session that is open for the client. Make one with :meth:`open`."""

    def __init__(
        self,
        link: Link,
        executor: AgentExecutor,
        tools: ToolProvider,
        options: HostOptions,
        *,
        cwd: str,
        roots: Sequence[str],
        mcp_servers: Sequence[Any],
    ) -> None:
        self.session_id = ""
        self.cwd = cwd
        self.mode = "default"
        self.is_running = False
        self._is_cancelled = False
        self._is_loading = True
        self._link = link
        self._executor = executor
        self._updates = Updates(cwd=cwd, lookup=self._lookup)
        editor = EditorTools(link.connection, link.client, self, [cwd, *roots], self._updates.terminals.add).provider()
        given = [tools, *client_servers(mcp_servers, cwd), *([editor] if editor is not None else [])]
        self.tools = ToolBox(given)
        self._channel = AcpChannel(link.connection, link.client, cwd, self._lookup)
        self._host = Host(tools=self.tools, channel=self._channel, observer=self._observe, **options)
        self._stack = contextlib.AsyncExitStack()
        self.session: AgentSession | None = None

    async def open(self, options: OpenOptions, *, load: str | None, store: RecordStore | None) -> None:
        """Connect the tools and open or load the session; nothing is left of one that fails."""
        try:
            await self._stack.enter_async_context(connected(self.tools))
            self.session = await self._host.open(self._executor, options, load=load, store=store)
            self.session_id = self._channel.session_id = self.session.session_id
            self.mode = options.execution.permission_mode or await recorded_mode(self.session)
        except BaseException:
            await self.close()
            raise
        self._is_loading = False

    async def replay(self) -> None:
        """Tell the client what was: whole messages and final calls, before the answer to its request."""
        assert self.session is not None
        events = [event async for event in self.session.events()]
        for update in self._updates.replay(events):
            self.put(update)
        await self._link.transport.flush()

    async def prompt(self, parts: list[ContentPart]) -> PromptResponse:
        """One whole turn. The caller has set :attr:`is_running`, before anything was awaited.

        Raises :class:`RequestError` for a turn that failed, unless it was cancelled.
        """
        assert self.session is not None
        message = MessageInput(content=parts, message_id=f"user-{uuid.uuid4().hex}")
        self._updates.own_messages = {message.message_id or ""}
        self._is_cancelled = False
        try:
            result = await self._host.run_turn(self.session, message)
        except Exception as error:  # noqa: BLE001 - its text may hold anything
            if self._is_cancelled:
                logger.warning("a cancelled turn ended with %s", type(error).__name__)
                return PromptResponse(stop_reason="cancelled")
            raise as_request_error(error) from None
        finally:
            self.is_running = False
        return self._answer(result)

    def _answer(self, result: TurnResult) -> PromptResponse:
        reason = "cancelled" if self._is_cancelled else _REASONS.get(result.end.reason)
        if reason is None:
            raise _failed(result.end.reason, result.errors)
        return PromptResponse.model_validate({"stopReason": reason, "usage": _usage(result.usage)})

    async def cancel(self) -> None:
        """End the turn; its prompt is answered with ``cancelled`` after its last event."""
        if not self.is_running or self._is_cancelled or self.session is None:
            return
        self._is_cancelled = True
        try:
            await self._host.abort("cancelled by the client", session=self.session)
        except AgentSessionError as error:
            logger.warning("a turn did not end in time: %s", error.what)

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode. Raises :class:`RequestError` where the session refuses."""
        assert self.session is not None
        before, self.mode = self.mode, mode
        receipt = await self.session.update(SessionConfig(permission_mode=mode))
        if not receipt.ok:
            self.mode = before
            raise RequestError(-32600, "the session does not take this now", {"code": receipt.rule or "rejected"})

    async def close(self) -> None:
        """End what runs, close the session and its tools; nothing is left."""
        self._is_cancelled = self._is_cancelled or self.is_running
        try:
            if self.session is not None:
                await self._host.close(self.session)
        except Exception as error:  # noqa: BLE001 - what is left of it counts more
            logger.warning("session %s did not close: %s", self.session_id, type(error).__name__)
        finally:
            await self._stack.aclose()

    def put(self, update: Update | CurrentModeUpdate | ConfigOptionUpdate | Any) -> None:
        """Hand an update over, at its place."""
        self._link.put(self.session_id, update)

    async def _observe(self, event: Event) -> None:
        if self._is_loading or event.session_id != self.session_id:
            return
        for update in self._updates.live(event):
            self.put(update)
        if isinstance(event, SessionUpdate) and event.source == "host" and event.permission_mode is not None:
            self._mode_changed(event.permission_mode)
        await self._link.transport.flush()

    def _mode_changed(self, mode: str) -> None:
        if mode == self.mode:
            return
        self.mode = mode
        self.put(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode))
        self.put(ConfigOptionUpdate(session_update="config_option_update", config_options=config_options(mode)))

    def _lookup(self, name: str) -> ToolDescriptor | None:
        found = self.tools.get(name)
        return found.descriptor if found is not None else own_tool(self._executor.descriptor, name)


def _failed(reason: str, errors: Sequence[Error]) -> RequestError:
    data: dict[str, Any] = {"code": reason}
    if errors:
        data["errors"] = [
            {"status": error.status} if error.code is None else {"status": error.status, "code": error.code}
            for error in errors
        ]
    return RequestError(-32603, f"the turn ended: {reason}", data)


def _usage(totals: UsageTotals) -> Usage | None:
    if not totals.calls or totals.input_tokens is None:
        return None
    output = totals.output_tokens or 0
    total = totals.total_tokens
    if total is None:
        total = totals.input_tokens + output + (totals.reasoning_tokens or 0)
    return Usage(
        total_tokens=total,
        input_tokens=totals.input_tokens,
        output_tokens=output,
        thought_tokens=totals.reasoning_tokens,
        cached_read_tokens=totals.cached_tokens,
    )
