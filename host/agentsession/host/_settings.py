"""A host's choices, made once and shared by its turns.

May import: ``_cancellation``, ``_elicitation``, ``_limits``, ``_policy``, ``_toolbox``, ``_waiting``, ``hooks``,
``policy``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._elicitation import ElicitationChannel
from agentsession.host._limits import HostLimits
from agentsession.host._policy import Policy
from agentsession.host._toolbox import ToolProvider
from agentsession.host._waiting import WaitingRequests
from agentsession.host.hooks._host_hooks import HostHooks
from agentsession.host.policy._remembered import RememberedAnswers
from agentsession.protocol import Answer, Event, Receipt, ToolRequest

__all__ = ["AnswerObserver", "ClientTools", "Observer", "Settings", "observe"]

logger = logging.getLogger("agentsession.host")

Observer = Callable[[Event], Awaitable[None] | None]
"""Called for every event of the record, in order; what it raises is logged and changes nothing."""

AnswerObserver = Callable[[Answer, Receipt], Awaitable[None] | None]
"""Called for every answer that the host gave, with its receipt."""


class ClientTools(Protocol):
    """The tools that a client of the host runs, in one session."""

    def has(self, name: str) -> bool:
        """Whether the client declared the tool, and the host has none of this name."""
        ...

    def takes(self, request: ToolRequest) -> bool:
        """Whether the call is left to the client: of a tool of its, or of one that it may yet declare again."""
        ...

    def allow(self, request: ToolRequest) -> None:
        """Neither hooks nor policy have anything against the call: it waits for the client's result."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See :class:`agentsession.host.Host` for what each of them means."""

    tools: ToolProvider
    policy: Policy
    channel: ElicitationChannel
    observer: Observer | None
    on_answer: AnswerObserver | None
    tool_timeout_s: float | None
    max_parallel_tools: int
    expose_tool_errors: bool
    hooks: HostHooks | None
    abort_grace_s: float
    remembered: RememberedAnswers
    waiting: WaitingRequests
    limits: HostLimits = dataclasses.field(default_factory=HostLimits)
    question_timeout_s: float | None = None
    client_tools: ClientTools | None = None
    """The tools that a client of this host runs, beside the host's own: their calls wait for its results."""


async def observe(observer: Observer | None, event: Event) -> None:
    """Call an observer, sync or async; what it raises is logged."""
    if observer is None:
        return
    try:
        called = observer(event)
        if inspect.isawaitable(called):
            await called
    except failures() as error:
        raise_if_cancelled(error)
        logger.exception("the observer failed at event #%s", event.seq)
