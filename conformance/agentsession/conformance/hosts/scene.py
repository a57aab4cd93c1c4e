"""What a scenario of the host suite works with: a host that was set up for it, its turns, and what is in the log.

Not for: rules (``scenarios``, ``checks.py``) or verdicts (``runner.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, the modules beside it, ``engine`` for the exception that is a verdict.

Nothing here sleeps. What must come is waited for until the scenario's limit; for what a broken host would never do, a
scenario waits for :attr:`HostScene.patience_s` and says what it is without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentsession.conformance.engine import Break
from agentsession.conformance.harness import CannotPlay
from agentsession.conformance.hosts.adversary import Adversary
from agentsession.conformance.hosts.agent import Play
from agentsession.conformance.hosts.harness import HostHarness, HostRun, HostTool, Person, Situation, Word
from agentsession.conformance.hosts.log import Log
from agentsession.conformance.hosts.session import AdversarySession
from agentsession.conformance.results import Evidence
from agentsession.conformance.stage import HarnessBroke
from agentsession.protocol import Answer, Event, ToolDescriptor, ToolProgress, ToolResult

__all__ = ["HOST_SCENARIOS", "HostScenario", "HostScene", "Outcome", "Stage", "host_scenario"]

_GRACE_S: Final = 0.02
"""How long a host should wait for an executor that does not end."""
_MOMENTS: Final = 10
"""In so many moments a scenario's patience is parted."""
_SOON: Final = 200
"""Turns of the loop."""
_STRETCH: Final = 18
"""How many entries of the log a failure shows."""

Policy = Mapping[str, str | Exception | None] | Callable[[str, Mapping[str, Any]], str | None]
"""Words by the tool's name, an exception to be raised, or a function."""
Body = Callable[[Mapping[str, Any]], Awaitable[Any]]
_ANY_ARGS: Final = {"type": "object"}
_PATH_ARGS: Final = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


@dataclasses.dataclass(frozen=True, slots=True)
class HostScenario:
    """One course of events that shows whether a host keeps rules."""

    name: str
    rules: tuple[str, ...]
    """The rules that hold if it runs to its end; what is wrong in it counts against the first."""
    needs: frozenset[str]
    """The features that it takes; without one of them it does not apply."""
    play: Callable[[HostScene], Awaitable[None]]


HOST_SCENARIOS: dict[str, HostScenario] = {}
"""All scenarios by name, in the order in which their modules define them; ``scenarios`` fills it."""


def host_scenario(
    *rules: str, needs: Collection[str] = ()
) -> Callable[[Callable[[HostScene], Awaitable[None]]], HostScenario]:
    """Register a coroutine function over a :class:`HostScene` as the scenario of these rules."""

    def register(play: Callable[[HostScene], Awaitable[None]]) -> HostScenario:
        name = play.__name__
        if name in HOST_SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        made = HOST_SCENARIOS[name] = HostScenario(name, rules, frozenset(needs), play)
        return made

    return register


class Outcome:
    """What became of a turn of the host."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: Exception | None = None
        self._over = anyio.Event()

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error, raised or handed back."""
        return self.error is not None or self.reason == "failed"

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def over(self) -> None:
        """Wait for the end of the turn."""
        await self._over.wait()

    def end(self) -> None:
        self._over.set()


class Stage:
    """One host in its situation."""

    def __init__(self, scene: HostScene, run: HostRun, executor: Adversary) -> None:
        self.scene = scene
        self.run = run
        self.executor = executor
        self.is_closed = False

    @property
    def session(self) -> AdversarySession:
        """The session that the host opened."""
        return self.executor.sessions[-1]

    def begin(self, message: str = "go") -> Outcome:
        """Start a turn, and go on."""
        outcome = Outcome()
        self.scene.group.start_soon(self._run, message, outcome)
        return outcome

    async def turn(self, message: str = "go") -> Outcome:
        """A whole turn."""
        outcome = self.begin(message)
        await outcome.over()
        return outcome

    async def abort(self) -> None:
        """The host is told to abort."""
        self.scene.log.add("suite", "tells the host to abort")
        try:
            await self.run.abort()
        except Exception as error:  # noqa: BLE001  # an executor that fails may be told of; else it is a failure
            self.scene.log.add("host", "raised at the abort", type(error).__name__, str(error))
            if self.session.lost is None and not self.session.is_holding:
                self.scene.fail(f"the abort raised {type(error).__name__}: {error}")

    async def close(self) -> None:
        """The host is told to close the session."""
        self.is_closed = True
        self.scene.log.add("suite", "tells the host to close")
        try:
            await self.run.close()
        except Exception as error:  # noqa: BLE001  # as above
            self.scene.log.add("host", "raised as it closed", type(error).__name__, str(error))
            if self.session.lost is None and not self.session.is_holding:
                self.scene.fail(f"closing raised {type(error).__name__}: {error}")

    async def _run(self, message: str, outcome: Outcome) -> None:
        log = self.scene.log
        log.add("suite", "starts a turn of the host")
        try:
            outcome.reason = await self.run.turn(message)
            log.add("host", "ended the turn", data=outcome.reason)
        except Exception as error:  # noqa: BLE001  # what a host raises is what the scenario looks at
            outcome.error = error
            log.add("host", "raised", type(error).__name__, str(error))
        finally:
            outcome.end()
            log.add("suite", "sees the turn over")


class HostScene:
    """One scenario while it runs."""

    def __init__(self, harness: HostHarness, chosen: HostScenario, group: TaskGroup, patience_s: float) -> None:
        self.harness = harness
        self.chosen = chosen
        self.group = group
        self.patience_s = patience_s
        self.log = Log()
        self.secrets: list[str] = []
        """Texts that must be in no log, no error and nothing that is shown."""
        self.lines: list[str] = []
        """What the host has written to its log, where the scenario listens."""
        self.situation: Situation | None = None
        self.stages: list[Stage] = []
        self._marks: dict[str, anyio.Event] = {}

    # -- the situation ------------------------------------------------------------------------------------------------

    async def host(
        self,
        *plays: Play,
        tools: Sequence[HostTool] = (),
        policy: Policy | None = None,
        person: Person | None = None,
        viewer: Callable[[Event], Awaitable[None]] | None = None,
        tool_limit_s: float | None = None,
        quiet_errors: bool = False,
    ) -> Stage:
        """A host with these tools and so on, and an agent that plays this: one play a turn.

        Raises:
            CannotPlay: the harness cannot put a host into this situation.
            HarnessBroke: it raised something else.
        """
        executor = Adversary(plays, self.log, self.group)
        self.situation = Situation(
            log=self.log,
            tools=list(tools),
            policy=_policy({} if policy is None else policy),
            person=person,
            tool_limit_s=tool_limit_s,
            grace_s=_GRACE_S,
            quiet_errors=quiet_errors,
            viewer=viewer or _look,
        )
        await executor.__aenter__()
        try:
            run = await self.harness.open(executor, self.situation)
        except CannotPlay:
            raise
        except Exception as error:
            raise HarnessBroke(f"{type(error).__name__}: {error}") from error
        if not executor.sessions:
            raise HarnessBroke("it opened no session at the executor")
        stage = Stage(self, run, executor)
        self.stages.append(stage)
        return stage

    def tool(self, name: str, body: Body | None = None, schema: dict[str, Any] | None = None) -> HostTool:
        """A tool of the host; without a body it gives its arguments back."""
        descriptor = ToolDescriptor(name=name, description=f"Does {name}.", parameters_schema=schema or _ANY_ARGS)
        return HostTool(descriptor, body or _echo, self.log)

    def path_tool(self, name: str, body: Body | None = None) -> HostTool:
        """A tool that takes a path, which is text, and nothing else."""
        return self.tool(name, body, _PATH_ARGS)

    def held(self, mark: str) -> Body:
        """The body of a tool that runs until the mark is released."""

        async def body(args: Mapping[str, Any]) -> Any:
            await self.hold(mark)
            return {"released": mark}

        return body

    def stubborn(self, mark: str) -> Body:
        """The body of a tool that, when it is cancelled, gives its result all the same."""

        async def body(args: Mapping[str, Any]) -> Any:
            try:
                await self.hold(mark)
            except anyio.get_cancelled_exc_class():
                self.log.add("tool", "is cancelled", mark)
            return {"late": mark}

        return body

    def person(
        self,
        word: Word | Callable[[str, Mapping[str, Any]], Awaitable[Word]] | None = None,
        reply: tuple[str, Any] | Callable[[str, str], Awaitable[tuple[str, Any]]] = ("decline", None),
    ) -> Person:
        """A person who says this to calls and to questions."""
        said = Word("no") if word is None else word

        async def same_word(name: str, args: Mapping[str, Any]) -> Word:
            assert isinstance(said, Word)
            return said

        async def same_reply(kind: str, message: str) -> tuple[str, Any]:
            assert isinstance(reply, tuple)
            return reply

        return Person(same_word if isinstance(said, Word) else said, reply if callable(reply) else same_reply, self.log)

    async def hold(self, mark: str) -> None:
        """Wait until the mark is released."""
        await self._marks.setdefault(mark, anyio.Event()).wait()

    def release(self, mark: str) -> None:
        """Let go on what waits at the mark."""
        self._marks.setdefault(mark, anyio.Event()).set()

    # -- what happened ------------------------------------------------------------------------------------------------

    async def comes(self, holds: Callable[[], bool]) -> bool:
        """Whether this comes to hold, for a host that has something to do for it and nothing to wait for.

        A moment in which the machine stood still is none that the host had: it is not counted.
        """
        moment_s = self.patience_s / _MOMENTS
        counted = 0
        for _ in range(_MOMENTS * _MOMENTS):
            if holds() or counted == _MOMENTS:
                break
            began = anyio.current_time()
            with anyio.move_on_after(moment_s):
                await self.log.until(holds)
            counted += anyio.current_time() - began < 2 * moment_s
        return holds()

    async def returns(self, call: Callable[[], Awaitable[None]]) -> bool:
        """Whether a call of the host returns, likewise; it goes on if it does not."""
        returned: list[bool] = []

        async def run() -> None:
            await call()
            returned.append(True)
            self.log.add("suite", "sees the call return")

        self.group.start_soon(run)
        return await self.comes(lambda: bool(returned))

    async def comes_soon(self, holds: Callable[[], bool]) -> bool:
        """Whether this comes to hold in some turns of the loop; for what no correct host does."""
        for _ in range(_SOON):
            if holds():
                return True
            await checkpoint()
        return holds()

    async def begins(self, name: str) -> None:
        """Wait until a tool has begun."""
        await self.log.until(lambda: self.log.has("tool", "begins", name))

    async def asked(self, about: str, what: str = "approve") -> None:
        """Wait until the person is asked, which a host that asks nobody never does."""
        await self.comes(lambda: self.log.has("person", f"is asked to {what}", about))

    def runs(self, name: str) -> int:
        """How often the body of a tool has begun."""
        return len(self.log.find("tool", "begins", name))

    def has_stopped(self, name: str) -> bool:
        """Whether a tool that had begun was stopped, or the person left alone."""
        return self.log.has("tool", "stops", name) or self.log.has("person", "is left alone with", name)

    def answers(self, request_id: str) -> list[Answer]:
        """What the host answered, progress left out."""
        return [
            entry.data
            for entry in self.log.entries
            if entry.who == "host" and entry.about == request_id and _is_answer(entry.data)
        ]

    def answer(self, request_id: str) -> Answer:
        """The host's last answer to a request; fails the scenario when there is none."""
        found = self.answers(request_id)
        if not found:
            self.fail(f"request {request_id} was not answered", "HOST-11")
        return found[-1]

    # -- what must be -------------------------------------------------------------------------------------------------

    def fail(self, message: str, rule: str | None = None) -> NoReturn:
        """The host breaks a rule, the scenario's first unless another is named."""
        raise Break(rule or self.chosen.rules[0], message, self.evidence(message))

    def require(self, holds: bool, message: str, rule: str | None = None) -> None:
        """Fail with this message unless it holds."""
        if not holds:
            self.fail(message, rule)

    def require_completed(self, outcome: Outcome, rule: str | None = None) -> None:
        """The turn came to its own end."""
        if outcome.error is not None:
            self.fail(f"the turn raised {type(outcome.error).__name__}: {outcome.error}", rule)
        if outcome.reason == "input_required":
            self.fail("the turn was left at a pause", "HOST-29")
        self.require(outcome.reason == "completed", f"the turn ended {outcome.reason}, not completed", rule)

    def require_failed(self, outcome: Outcome) -> None:
        """The turn ended with an error."""
        self.require(outcome.has_failed, f"the turn ended {outcome.reason}, with no error")

    def require_no_error(self, outcome: Outcome) -> None:
        """The turn ended without an error, whatever the reason of its end is."""
        said = "ended failed" if outcome.error is None else f"raised {outcome.error!r}"
        self.require(not outcome.has_failed, f"the turn {said}")

    def require_not_run(self, *names: str) -> None:
        """These tools have not run."""
        for name in names:
            self.require(self.runs(name) == 0, f"{name} ran")

    def require_error(self, request_id: str, rule: str | None = None) -> None:
        """The request was answered, and the model is told that nothing came of it."""
        answer = self.answer(request_id)
        told = answer.kind == "tool_denial" or (isinstance(answer, ToolResult) and answer.is_error)
        self.require(told, f"request {request_id} was answered with a {answer.kind} that is no error", rule)

    def require_denial(self, request_id: str) -> None:
        """The request was answered with a denial."""
        answer = self.answer(request_id)
        kind = answer.kind
        self.require(kind == "tool_denial", f"request {request_id} was answered with a {kind}", "HOST-01")

    def evidence(self, remark: str) -> tuple[Evidence, ...]:
        """The end of the log."""
        shown = [Evidence(str(entry)) for entry in self.log.entries[-_STRETCH:]]
        return (*shown, Evidence(f"<- here: {remark}", is_break=True))


def _is_answer(data: object) -> bool:
    kind = getattr(data, "kind", None)
    return kind is not None and hasattr(data, "request_id") and not isinstance(data, ToolProgress)


def _policy(given: Policy) -> Callable[[str, Mapping[str, Any]], str | None]:
    if callable(given):
        return given

    def decide(name: str, args: Mapping[str, Any]) -> str | None:
        word = given.get(name)
        if isinstance(word, Exception):
            raise word
        return word

    return decide


async def _echo(args: Mapping[str, Any]) -> Any:
    return {"args": dict(args)}


async def _look(event: Event) -> None: ...
