"""The port that the author of a host fills in: set the host up for a situation, run turns, abort, close.

For: authors of hosts, who write one :class:`HostHarness`. Not for: checking (``scenarios``, ``checks.py``).
Rules carried: none. May import: ``agentsession.protocol``, ``log``.

::

    class MyHarness(HostHarness):
        async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
            host = MyHost(tools=..., policy=situation.decide, person=situation.person, show=situation.show)
            return MyRun(host, await host.open(executor))

The executor is the suite's, entered already, and misbehaves. The situation holds what a host has of its own: tools
with bodies that tell when they run, a policy, a person who may be asked. What the host has none of is left out of
:attr:`HostHarness.features`.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal

from agentsession.conformance.hosts.log import Log
from agentsession.protocol import AgentExecutor, Event, ToolDescriptor

__all__ = [
    "FEATURES",
    "HostHarness",
    "HostRun",
    "HostTool",
    "Person",
    "PolicyBroke",
    "Situation",
    "ToolBroke",
    "Word",
]

FEATURES: Final = ("ask", "edit", "questions", "quiet_errors", "tool_limit", "show", "terminal")
"""What some hosts have and others have not:

- ``ask``: a person may be asked whether a call may run (:meth:`Person.approve`)
- ``edit``: who says yes may change the arguments (:attr:`Word.args`)
- ``questions``: questions of the agent reach a person (:meth:`Person.answer`)
- ``quiet_errors``: the agent can be kept from reading what a tool's exception says (:attr:`Situation.quiet_errors`)
- ``tool_limit``: a tool may be given a time limit (:attr:`Situation.tool_limit_s`)
- ``show``: the host shows events as they come (:meth:`Situation.show`)
- ``terminal``: the host prints what it shows (:meth:`Situation.prints`)
"""


class PolicyBroke(Exception):
    """What a policy raises that the scene says must fail."""


class ToolBroke(Exception):
    """What a tool's body raises that the scene says must fail."""


@dataclasses.dataclass(frozen=True)
class HostTool:
    """A tool of the host."""

    descriptor: ToolDescriptor
    body: Callable[[Mapping[str, Any]], Awaitable[Any]]
    log: Log

    @property
    def name(self) -> str:
        return self.descriptor.name

    async def run(self, args: Mapping[str, Any]) -> Any:
        """The body: await it when the call may run. It may wait, and raise anything."""
        self.log.add("tool", "begins", self.name, dict(args))
        try:
            value = await self.body(args)
        except BaseException as error:
            self.log.add("tool", "stops", self.name, type(error).__name__)
            raise
        self.log.add("tool", "ends", self.name)
        return value


@dataclasses.dataclass(frozen=True)
class Word:
    """What the person says to a call."""

    verdict: Literal["yes", "no", "closed"]
    """``closed``: the question went away without an answer."""
    args: dict[str, Any] | None = None
    """With ``yes``: the whole arguments, when they were edited."""


@dataclasses.dataclass(frozen=True)
class Person:
    """The person behind a host. Both calls may wait for as long as the turn lasts, and may raise."""

    word: Callable[[str, Mapping[str, Any]], Awaitable[Word]]
    reply: Callable[[str, str], Awaitable[tuple[str, Any]]]
    log: Log

    async def approve(self, name: str, args: Mapping[str, Any]) -> Word:
        """May this call run? Called with what is shown of it."""
        said: Word = await self._asked("approve", name, copy.deepcopy(dict(args)), self.word(name, args))
        return said

    async def answer(self, kind: str, message: str) -> tuple[str, Any]:
        """An action (accept, decline, cancel) and, with accept, content, which is ``None`` where there is none."""
        said: tuple[str, Any] = await self._asked("answer", kind, message, self.reply(kind, message))
        return said

    async def _asked(self, what: str, about: str, shown: Any, word: Awaitable[Any]) -> Any:
        self.log.add("person", f"is asked to {what}", about, shown)
        try:
            said = await word
        except BaseException as error:
            self.log.add("person", "is left alone with", about, type(error).__name__)
            raise
        self.log.add("person", "said", about, getattr(said, "verdict", "something"))
        return said


@dataclasses.dataclass(frozen=True)
class Situation:
    """What a host is to have in one scene."""

    log: Log
    tools: Sequence[HostTool]
    policy: Callable[[str, Mapping[str, Any]], str | None]
    person: Person | None
    """``None``: nobody can be asked."""
    tool_limit_s: float | None
    """How long a tool may run; ``None``: no limit, or the host's own."""
    grace_s: float
    """How long the host should wait for an executor that does not end, where that can be set."""
    quiet_errors: bool
    """Whether the agent must not read what a tool's exception says, where that can be set."""
    viewer: Callable[[Event], Awaitable[None]]

    def decide(self, name: str, args: Mapping[str, Any]) -> str | None:
        """The policy: ``allow``, ``deny`` or ``ask``; also other words; ``None`` where no rule names the tool.

        May raise.
        """
        try:
            word = self.policy(name, args)
        except Exception as error:
            self.log.add("policy", "fails at", name, type(error).__name__)
            raise
        self.log.add("policy", "decides on", name, word)
        return word

    async def show(self, event: Event) -> None:
        """The host shows an event; it awaits this, as it would wait for a slow page."""
        await self.viewer(event)

    def prints(self, text: str) -> None:
        """The host has printed this to a terminal; its own colours and moves must be left out, as with ``NO_COLOR``."""
        if text:
            self.log.add("host", "prints", data=text)


class HostRun(abc.ABC):
    """One session of a host that was set up for a situation. Each call may be made while another one waits."""

    @abc.abstractmethod
    async def turn(self, message: str) -> str:
        """Run a whole turn and return the reason of its end. Raises what the host raises.

        A host that hands its errors back instead gives ``failed``.
        """
        ...

    @abc.abstractmethod
    async def abort(self) -> None:
        """Abort the turn that runs."""
        ...

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the session, as the host does when the user leaves, also while a turn runs."""
        ...


class HostHarness(abc.ABC):
    """Sets a host up for situations. One harness serves a whole run of the suite, one situation at a time."""

    name: str = ""
    """As reports name it; the class's name when empty."""
    features: Collection[str] = FEATURES
    """What the host has of :data:`FEATURES`; another name is refused. Rules about the others are not applicable."""

    @abc.abstractmethod
    async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
        """A host in this situation, with a session that it has opened at the executor.

        Raises :class:`agentsession.conformance.harness.CannotPlay` for a situation that it cannot be put in.
        """
        ...
