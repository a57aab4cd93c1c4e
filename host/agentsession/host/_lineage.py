"""How the turn of a sub-agent hangs under the turn that called it: path, mode, the person, ids.

Not for: running the sub-agent (``_child_run.py``) or what it shows (``_child_events.py``).
Rules carried: HITL-11 (time in which a person is asked is no tool's time). May import: anyio, ``_child_events``,
``_elicitation``, ``_results``, ``_settings``, ``protocol``.

A sub-agent has a session and a turn of its own. Whatever of it could be looser than its caller's is bounded here: its
principal path begins with the caller's, its mode is the stricter of both, its questions join the root's one queue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio

from agentsession.host._child_events import placed
from agentsession.host._elicitation import Position
from agentsession.host._results import Stopwatch
from agentsession.host._settings import Settings
from agentsession.protocol import AgentSession, Event, HookPayload, ToolProgress, ToolRequest

if TYPE_CHECKING:
    from agentsession.host._attached import Attached
    from agentsession.host._turn_limits import TurnLimits

__all__ = ["LOOSEST_MODE", "MODES", "Above", "Caller", "Child", "stricter"]

MODES: Final = ("plan", "default", "auto_edit", "autonomous")
"""The permission modes with a meaning, from strict to loose."""

LOOSEST_MODE: Final = MODES[-1]
"""A sub-agent without a mode of its own is bounded by its caller's alone."""

E = TypeVar("E", bound=Event)


def stricter(above: str, own: str) -> str:
    """The stricter of a caller's and a sub-agent's mode. One that is not known cannot be compared: the caller's holds,
    but for ``plan``, which is stricter than any."""
    if "plan" in (above, own):
        return "plan"
    if above not in MODES or own not in MODES:
        return above
    return min(above, own, key=MODES.index)


class _Asker(Protocol):
    def queued(self) -> AbstractAsyncContextManager[Callable[[str | None], Position]]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The turn that a running tool belongs to, as far as a tool that runs a whole agent needs it."""

    request: ToolRequest
    attached: Attached
    settings: Settings
    facts: Callable[[], dict[str, Any]]
    asker: _Asker
    tools: Stopwatch
    send: Callable[[ToolProgress], Awaitable[None]]
    limits: TurnLimits
    answers: str
    """The request that is answered by it: ``request``, or the one whose tool handed over to it."""

    @property
    def path(self) -> tuple[str, ...]:
        """The agents from the root to the one that made the call."""
        path: tuple[str, ...] = self.facts()["principal_path"]
        return path

    @property
    def agents(self) -> list[str]:
        """The agents whose sessions are this one and those above it."""
        above, own = self.attached.above, self.attached.session.descriptor.name
        return [own] if above is None else [*above.caller.agents, own]

    @property
    def depth(self) -> int:
        """How many sub-agents of hosts stand above and in this turn: 0 in the root's."""
        above = self.attached.above
        return 0 if above is None else above.caller.depth + 1

    @property
    def max_depth(self) -> int | None:
        """The smallest depth that a sub-agent above allows, ``None`` for the root."""
        above = self.attached.above
        return None if above is None else above.max_depth


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """What stands over a sub-agent's session."""

    caller: Caller
    thread_id: str
    """The sub-agent's thread in its caller's session."""
    agent: str
    max_depth: int
    is_done: Callable[[], bool]
    """Whether it has given its result: nothing more runs then."""

    @property
    def path(self) -> tuple[str, ...]:
        """The agents above."""
        return self.caller.path

    @property
    def root_session_id(self) -> str:
        """The session that all of this works for."""
        found: str = self.caller.facts()["root_session_id"]
        return found

    def mode(self) -> str:
        """The permission mode above, as it is now."""
        mode: str = self.caller.facts()["permission_mode"]
        return mode

    @property
    def shown_thread(self) -> str:
        """The sub-agent's thread as the root's session sees it."""
        above = self.caller.attached.above
        return self.thread_id if above is None else f"{above.shown_thread}.{self.thread_id}"

    def shown(self, event: E) -> E:
        """``event`` as it is to be seen from the root's session: under its threads, with ids that are unique there."""
        event = placed(event, self.thread_id, self.agent, self.caller.request.thread_id)
        above = self.caller.attached.above
        return event if above is None else above.shown(event)

    def told(self, payload: HookPayload) -> HookPayload:
        """What a hook is told of the sub-agent: who stands above it, and the mode that really holds."""
        inside = [] if payload.agent_id in (None, self.agent) else [payload.agent_id]
        path = payload.principal_path or [*self.path, self.agent, *inside]
        mode = self.mode() if payload.permission_mode is None else stricter(self.mode(), payload.permission_mode)
        return payload.model_copy(update={"principal_path": path, "permission_mode": mode})

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[Callable[[str | None], Position]]:
        """A place in the root's queue of questions; the tool that this sub-agent is does not run meanwhile. HITL-11."""
        with self.caller.tools.paused():
            async with self.caller.asker.queued() as place:
                yield place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A sub-agent that is at work, or waits for a person. Steer it with ``child.session.steer(...)``, end it with
    ``host.abort(session=child.session)``: that ends the sub-agent's turn and not its caller's."""

    session: AgentSession
    request_id: str
    """The request of the caller's session that it works for."""
    thread_id: str
    """Its thread, as its events in the caller's session name it."""
    principal_path: tuple[str, ...]
    """The agents from the root to it."""
    at_rest: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    """Set when no turn of it runs any more."""
