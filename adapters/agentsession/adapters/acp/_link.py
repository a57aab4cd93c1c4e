"""One session with an ACP agent: its process, its id there, and the queue of what the agent sends.

Not for: what a turn makes of it (``_turn.py``). Rules carried: LIFE-13, LIFE-15.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, ``acp``, asyncio, the modules beside it.

Each session has a process of its own: one that must be killed takes no other session with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.schema import RequestPermissionResponse
from anyio.lowlevel import checkpoint

from agentsession.adapters.acp._peer import AgentProcess, Incoming
from agentsession.adapters.base import BaseSession
from agentsession.protocol import AgentSessionError, ConfigurationError, Custom, JsonError, check_json

if TYPE_CHECKING:
    from agentsession.adapters.acp._executor import AcpExecutor

__all__ = ["AgentFailed", "AgentLost", "Initialized", "Link", "custom", "failed", "refuse_late"]

_ROOM: Final = 1024
"""How many messages may wait: an agent that writes faster than its events are read has to wait itself."""

_CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


class AgentLost(AgentSessionError):
    """The agent's process has ended, or its connection has."""

    default_id = "acp-agent-lost"


class AgentFailed(AgentSessionError):
    """The agent answered with an error."""

    default_id = "acp-agent-error"


@dataclasses.dataclass(frozen=True)
class Initialized:
    """What an agent said of itself."""

    loads: bool
    accepts: frozenset[str]
    name: str | None
    version: str | None

    @classmethod
    def of(cls, answer: Any) -> Initialized:
        """Read it. Raises :class:`ConfigurationError` for another version of the protocol."""
        if not isinstance(answer, dict) or answer.get("protocolVersion") != PROTOCOL_VERSION:
            got = answer.get("protocolVersion") if isinstance(answer, dict) else None
            raise ConfigurationError(
                "the agent speaks another version of ACP",
                expected=str(PROTOCOL_VERSION),
                got=repr(got)[:40],
                id="acp-agent-start",
            )
        able = _object(answer.get("agentCapabilities"))
        prompt, info = _object(able.get("promptCapabilities")), _object(answer.get("agentInfo"))
        return cls(
            loads=able.get("loadSession") is True,
            accepts=frozenset(kind for kind in ("image", "audio") if prompt.get(kind) is True),
            name=_text(info.get("name")),
            version=_text(info.get("version")),
        )


class Link:
    """What the executor keeps for a session."""

    def __init__(self, executor: AcpExecutor, session: BaseSession, acp_id: str | None = None) -> None:
        self.executor, self.session = executor, session
        self.acp_id = acp_id
        self.is_recorded = acp_id is not None
        self.process: AgentProcess | None = None
        self.about: Initialized | None = None
        self.queue: deque[Incoming] = deque()
        self.arrived = asyncio.Event()
        self.in_turn = False
        self.begun: set[str] = set()
        self.options: dict[str, list[dict[str, str]]] = {}
        """The options of each permission request that waits, by our request id."""
        self.args: dict[str, dict[str, Any]] = {}
        """The arguments that the agent runs each of them with; a hook may have put others into the record."""
        self.on_lost: Callable[[], None] | None = None
        """Told at once when the agent is gone, also while the turn reads nothing."""
        self.cost = 0.0
        self._late: bool = False
        self._loading = False
        self._opening = False

    # -- the process --------------------------------------------------------------------------------------------------

    async def ensure(self) -> AgentProcess:
        """The agent's process, with the session open in it. Raises :class:`AgentLost` where it cannot be had."""
        if self.process is not None and self.process.is_alive:
            return self.process
        await self.drop(kill=True)
        if self.acp_id is not None and self.about is not None and not self.about.loads:
            raise AgentLost("the agent's process has ended, and it cannot load sessions", fix="open a new session")
        try:
            self.process, self.about = await self.executor.start_agent(self.deliver, self.session)
            await self._open(self.process, self.about)
        except BaseException as error:  # a cancellation too: no process may be left; each is raised again
            with anyio.CancelScope(shield=True):
                await self.drop(kill=True)
            if isinstance(error, RequestError):
                raise failed(error) from None  # its text may hold a secret
            if isinstance(error, ConnectionError):
                raise AgentLost("the agent's process ended before its session was open") from None
            raise
        return self.process

    async def _open(self, process: AgentProcess, about: Initialized) -> None:
        place = {"cwd": self.executor.root_of(self.session), "mcpServers": self.executor.mcp_servers}
        if self.acp_id is None:
            answer = await self._ask(process, "session/new", place)
            found = _text(_object(answer).get("sessionId"))
            if not found:
                raise AgentFailed("the agent opened a session without an id")
            self.acp_id = found
        elif about.loads:
            self._loading = True
            try:
                await self._ask(process, "session/load", {**place, "sessionId": self.acp_id})
            finally:
                self._loading = False
        else:
            raise AgentLost("this agent cannot load sessions", fix="open a new session")

    async def _ask(self, process: AgentProcess, method: str, params: dict[str, Any]) -> Any:
        limit = self.executor.start_s
        self._opening = True
        try:
            with anyio.fail_after(limit):
                return await process.request(method, params)
        except TimeoutError:
            raise AgentLost(
                f"the agent did not answer {method} within {limit:g} s",
                fix="look into the agent's own log, or give it more time: AcpExecutor(start_s=...)",
                id="acp-agent-timeout",
            ) from None
        finally:
            self._opening = False

    async def drop(self, *, kill: bool = False) -> None:
        """End the process, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            await process.close(kill=kill)
        for item in self.queue:
            item.refuse(ConnectionError("the session is closed"))
        self.queue.clear()

    # -- what it sends ------------------------------------------------------------------------------------------------

    def deliver(self, item: Incoming) -> None:
        """Take one message, in the order of the wire."""
        if self._loading and item.kind == "update":
            return  # the history, which our record has
        if self._opening and item.kind == "request":
            refuse_late(item)  # at once: its answer may wait for ours
            return
        self.queue.append(item)
        if self.process is not None and len(self.queue) >= _ROOM:
            self.process.wire.room.clear()
        self.arrived.set()
        if item.kind == "end" and self.on_lost is not None:
            self.on_lost()
        self._look()

    def turn_over(self) -> None:
        """The turn reads no more; what has come after its answer is late."""
        self.in_turn = False
        if self.queue:
            self._look()

    def _look(self) -> None:
        if not self.in_turn and not self._late and not self._loading:
            self._late = True
            self.executor.task_group.start_soon(self._between_turns, name="agentsession acp late")

    def take(self) -> Incoming | None:
        """The next message, if one is there."""
        if not self.queue:
            self.arrived.clear()
            return None
        if self.process is not None and len(self.queue) <= _ROOM // 2:
            self.process.wire.room.set()
        return self.queue.popleft()

    async def _between_turns(self) -> None:
        """What comes while no turn works: updates are kept as custom events, what is asked is refused."""
        try:
            while not self.in_turn and self.session.state != "closed":
                if self.session.state == "running":  # the turn's last step
                    await checkpoint()
                    continue
                item = self.take()
                if item is None:
                    return
                if item.kind == "request":
                    refuse_late(item)
                elif item.kind == "update":
                    self.session.recorder.record(custom("acp:late_update", item.params, source="ext:acp"))
        finally:
            self._late = False


def refuse_late(item: Incoming) -> None:
    """Nobody is there to be asked."""
    if item.method == "session/request_permission":
        item.answer(RequestPermissionResponse.model_validate(_CANCELLED))
    else:
        item.refuse(RequestError(-32600, "no prompt turn is running"))


def custom(kind: str, data: Any, source: str | None = None) -> Custom:
    """A custom event; what JSON cannot say, or is nested too deep, is left out."""
    try:
        kept = check_json(data)
    except JsonError:
        kept = {"unreadable": True}
    return Custom(kind=kind, data=kept) if source is None else Custom(kind=kind, data=kept, source=source)


def failed(error: RequestError) -> AgentFailed:
    """The error of ours: what it says may hold a secret, its code may not."""
    code = error.code if isinstance(error.code, int) else -32603
    if code == -32000:
        fix = "log in with the agent's own command"
        return AgentFailed("the agent wants a login first", id="acp-auth-required", fix=fix)
    return AgentFailed(f"the agent answered with error {code}")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
