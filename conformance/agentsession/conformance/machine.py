"""A hypothesis state machine that drives any executor: the steps of a host at random, judged after each.

For: ``agentsession conform … --random N``, the test of ``ExecutorConformance``, and tests. Not for: what a step does or
what must hold (``driven``). Rules carried: those of ``driven``.
May import: ``agentsession.protocol``, anyio, hypothesis (``pip install "agent-session-protocol[conformance]"``), the
modules beside it.

Hypothesis draws a plan (what the agent plays) and the steps, from a seed; each sequence is an executor and a session
of their own. Of the first one in which a rule breaks the smallest is sought that breaks the same rule (``smaller.py``).
One event loop, in a thread, serves all of them: the steps are calls into it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, Final

from anyio.from_thread import BlockingPortal, start_blocking_portal

try:
    from hypothesis import HealthCheck, Phase, Verbosity, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st
    from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
except ImportError as error:  # pragma: no cover  # hypothesis is part of the development environment
    raise ImportError(
        'agentsession.conformance.machine needs hypothesis: pip install "agent-session-protocol[conformance]"'
    ) from error

from agentsession.conformance.driven.control import UPDATES
from agentsession.conformance.driven.hosts import STRANGE
from agentsession.conformance.driven.lives import end
from agentsession.conformance.driven.moves import MOVES, Move, Played, Stuck, bounded, driven_by, play, take
from agentsession.conformance.driven.plans import described, words_for
from agentsession.conformance.driven.session import Driven, Reads, Way
from agentsession.conformance.driven.smaller import Sketch, smallest
from agentsession.conformance.harness import Harness
from agentsession.conformance.logged import shown
from agentsession.conformance.results import Evidence, Extra, Result, Status
from agentsession.conformance.runner import alone, describe, judged

__all__ = ["RANDOM", "RandomReport", "drive_at_random"]

RANDOM: Final = "driven at random"
"""The name of the scenario that a failure is reported under."""

_NO_RULE: Final = "LIFE-12"
"""The rule of what breaks and is none's own: a session takes its next step."""
_LIMIT_S: Final = 20.0
_SOON_S: Final = 1.0
"""The same once a sequence was found that comes to no end: a smaller one shows it sooner."""
_STEPS: Final = 14
_TRIES: Final = 400
"""In how many runs a smaller sequence is sought at the most."""
_SLOW_TRIES: Final = 20
"""The same where what broke is that nothing more happens."""


class _SeedAlone(HypothesisProvider):
    """What hypothesis draws by, less one thing: it takes a part of its draws from the numbers that stand in whatever
    modules are loaded. By those a seed would give other sequences under pytest than in the command.
    """

    def _maybe_draw_constant(self, *about: Any, **more: Any) -> None:
        del about, more


_BY_SEED_ALONE: Final = "agentsession-by-seed-alone"
AVAILABLE_PROVIDERS[_BY_SEED_ALONE] = _SeedAlone  # as hypothesis documents it for backends


@dataclasses.dataclass(frozen=True, slots=True)
class RandomReport:
    """What sequences at random have shown."""

    seed: int
    sequences: int
    """How many were played to their end, those not counted that were played to make a failing one smaller."""
    steps: int
    cut: int = 0
    """How many more were begun and came to no verdict: a rule broke that does not count, or a step cannot be played."""
    why: str = ""
    """Why the first of those came to none."""
    result: Result | None = None
    """The failure, with the smallest sequence that shows it as its evidence; ``None``: nothing broke that counts."""
    sequence: tuple[str, ...] = ()
    """That sequence: what the agent plays, then the steps of the host and what came of them."""

    @property
    def is_good(self) -> bool:
        return self.result is None

    @property
    def extra(self) -> Extra:
        """The same as a part of a report of the suite. Where no sequence came to its end, nothing was tried."""
        found = self.result
        if found is None and self.sequences == 0:
            said = f"no sequence at random came to its end: {self.why}"
            found = Result(_NO_RULE, Status.NOT_RUN, said, scenario=RANDOM)
        return Extra("random", str(self), () if found is None else (found,))

    def __str__(self) -> str:
        said = f"{self.result.rule} broke" if self.result is not None else "nothing broke" if self.sequences else ""
        cut = f"{self.cut}{' more' if self.sequences else ''} came to no verdict: {self.why}" if self.cut else ""
        told = "; ".join(part for part in (said, cut) if part)
        return f"{self.sequences} sequences at random, {self.steps} steps: {told} (seed {self.seed})"


class _Found(Exception):
    """A rule broke."""


class _Run:
    """The sequences so far."""

    def __init__(
        self, harness: Harness, portal: BlockingPortal, capabilities: Collection[str], rules: Collection[str] | None
    ) -> None:
        self.harness = harness
        self.portal = portal
        self.words = words_for(harness.plays, capabilities)
        self.can = frozenset(capabilities)
        self.sequences = self.steps = self.cut = 0
        self.why = ""
        self.found: tuple[Sketch, Played, Result] | None = None
        self._rules = rules

    def counts(self, error: Exception) -> Result | None:
        """What an error says, unless it is of no interest."""
        result = judged((_NO_RULE,), error)[0]
        if result.status is Status.HARNESS_ERROR:
            return result
        wanted = self._rules is None or result.rule in self._rules
        return result if result.status is Status.FAIL and wanted else None

    def passed_over(self, error: Exception) -> None:
        """A sequence came to no verdict by what is of no interest."""
        result = shown(judged((_NO_RULE,), error)[0])
        self.cut += 1
        broke = f"{result.rule} broke, which was not asked for"
        self.why = self.why or (broke if result.status is Status.FAIL else result.message)

    def smaller(self) -> tuple[Played, Result, Sketch] | None:
        """The smallest sequence that breaks the rule that was found broken."""
        if self.found is None:
            return None
        first, played, result = self.found
        best = played, result, first
        if result.status is Status.HARNESS_ERROR:
            return best
        limit_s = _SOON_S if played.is_stuck else _LIMIT_S

        def still(sketch: Sketch) -> Sketch | None:
            nonlocal best
            again = self.portal.call(play, self.harness, sketch.plan, sketch.moves, limit_s)
            broken = self.counts(again.error) if again.error is not None else None
            if broken is None or broken.rule != result.rule:
                return None
            taken = dataclasses.replace(sketch, moves=again.moves)
            best = again, broken, taken
            return taken

        smallest(first, still, _SLOW_TRIES if played.is_stuck else _TRIES)
        return best


_reads: st.SearchStrategy[Reads] = st.sampled_from(["to its end", "later", "not at all"])
_ways: st.SearchStrategy[Way] = st.sampled_from(["respond", "stream", "one by one"])
_place = st.sampled_from(range(12))
_some = st.lists(st.sampled_from(range(4)), min_size=1, max_size=3).map(tuple)
_kinds: st.SearchStrategy[tuple[str, ...] | None] = st.sampled_from(
    [None, None, None, (), ("clarification",), ("tool_confirmation",)]
)


def _can(name: str) -> Callable[[Any], bool]:
    """Whether a step can be taken where the session stands."""
    return lambda machine: machine.can(name)


class _Machine(RuleBasedStateMachine):
    """One sequence."""

    run: _Run

    def __init__(self) -> None:
        super().__init__()
        self._driven: Driven | None = None
        self._context: AbstractContextManager[Driven] | None = None
        self._sketch = Sketch((), True, None, ())
        self._tried: set[str] = set()
        """The steps that were taken where no turn was open."""
        self._is_on = False
        """Whether there is a session, and nothing broke."""

    def can(self, name: str) -> bool:
        """Whether a step can be taken where the session stands.

        Where no turn is open most steps change nothing: each is tried once there.
        """
        driven = self._driven
        if not self._is_on or driven is None or not MOVES[name][0](driven):
            return False
        return driven.course.is_open or name not in self._tried

    def _take(self, name: str, **args: Any) -> None:
        move = Move(name, args)
        if name != "say" and self._driven is not None and not self._driven.course.is_open:
            self._tried.add(name)
        self._sketch = dataclasses.replace(self._sketch, moves=(*self._sketch.moves, move))
        self.run.steps += 1
        self._do(lambda driven: take(driven, move))

    def _do(self, work: Callable[[Driven], Awaitable[object]]) -> None:
        driven = self._driven
        assert driven is not None

        async def made() -> None:
            await bounded(driven, work(driven), _LIMIT_S)

        try:
            self.run.portal.call(made)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a verdict
            self._broke(alone(error))

    def _broke(self, error: Exception) -> None:
        self._is_on = False
        broken: Exception = error.broken if isinstance(error, Stuck) else error
        result = self.run.counts(broken)
        if result is not None:
            lines = tuple(self._driven.lines) if self._driven is not None else ()
            played = Played(broken, lines, self._sketch.moves, isinstance(error, Stuck))
            self.run.found = self.run.found or (self._sketch, played, result)
            raise _Found(result.rule) from None
        self.run.passed_over(broken)

    @initialize(data=st.data())
    def open(self, data: st.DataObject) -> None:
        words = st.lists(st.sampled_from(self.run.words), min_size=1, max_size=4)
        turns = data.draw(st.lists(words, min_size=1, max_size=3))
        is_gated = "host_tool_execution" in self.run.can and data.draw(st.sampled_from([True, True, False]))
        self._sketch = Sketch(tuple(map(tuple, turns)), is_gated, data.draw(_kinds), ())
        if self.run.found is not None:
            return
        self._context = context = self.run.portal.wrap_async_context_manager(
            driven_by(self.run.harness, self._sketch.plan)
        )
        self._driven = context.__enter__()
        self._is_on = True
        self._do(Driven.open)

    def teardown(self) -> None:
        is_whole = sys.exc_info()[0] is None and self._is_on
        try:
            if is_whole:
                self._do(end)
        finally:
            if self._context is not None:
                try:
                    self._context.__exit__(None, None, None)
                except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # raised as the executor was left
                    if is_whole and self._is_on:
                        self._broke(alone(error))
            self.run.sequences += is_whole and self._is_on

    # -- the steps ----------------------------------------------------------------------------------------------------

    @precondition(_can("say"))
    @rule(reads=_reads)
    def say(self, reads: Reads) -> None:
        self._take("say", reads=reads)

    @precondition(_can("release"))
    @rule()
    def release(self) -> None:
        self._take("release")

    @precondition(_can("go_on"))
    @rule(reads=_reads)
    def go_on(self, reads: Reads) -> None:
        self._take("go_on", reads=reads)

    @precondition(_can("answer"))
    @rule(places=_some, ways=_some, way=_ways, reads=_reads)
    def answer(self, places: tuple[int, ...], ways: tuple[int, ...], way: Way, reads: Reads) -> None:
        self._take("answer", places=places, ways=ways, way=way, reads=reads)

    @precondition(_can("answer"))
    @rule(places=_some, ways=_some, way=_ways)
    def answer_and_read(self, places: tuple[int, ...], ways: tuple[int, ...], way: Way) -> None:
        """The same once more: it is what leads on."""
        self._take("answer", places=places, ways=ways, way=way, reads="to its end")

    @precondition(_can("answer_again"))
    @rule(place=_place, by_stream=st.booleans())
    def answer_again(self, place: int, by_stream: bool) -> None:
        self._take("answer_again", place=place, by_stream=by_stream)

    @precondition(_can("answer_strangely"))
    @rule(place=_place, how=st.sampled_from(STRANGE))
    def answer_strangely(self, place: int, how: str) -> None:
        self._take("answer_strangely", place=place, how=how)

    @precondition(_can("progress"))
    @rule()
    def progress(self) -> None:
        self._take("progress")

    @precondition(_can("steer"))
    @rule()
    def steer(self) -> None:
        self._take("steer")

    @precondition(_can("steer_at_once"))
    @rule()
    def steer_at_once(self) -> None:
        self._take("steer_at_once")

    @precondition(_can("abort_at_once"))
    @rule()
    def abort_at_once(self) -> None:
        self._take("abort_at_once")

    @precondition(_can("update"))
    @rule(which=st.sampled_from(list(UPDATES)))
    def update(self, which: str) -> None:
        self._take("update", which=which)

    @precondition(_can("abort"))
    @rule()
    def abort(self) -> None:
        self._take("abort")

    @precondition(_can("attach"))
    @rule(place=_place, enter=st.booleans())
    def attach(self, place: int, enter: bool) -> None:
        self._take("attach", place=place, enter=enter)

    @precondition(_can("read_back"))
    @rule(place=_place, only=st.sampled_from([None, "stream_end", "initialize"]))
    def read_back(self, place: int, only: str | None) -> None:
        self._take("read_back", place=place, only=only)

    @precondition(_can("read_beyond"))
    @rule()
    def read_beyond(self) -> None:
        self._take("read_beyond")

    @precondition(_can("read_on"))
    @rule(place=_place, count=st.sampled_from(range(1, 6)))
    def read_on(self, place: int, count: int) -> None:
        self._take("read_on", place=place, count=count)

    @precondition(_can("leave"))
    @rule(place=_place)
    def leave(self, place: int) -> None:
        self._take("leave", place=place)

    @precondition(_can("kill"))
    @rule()
    def kill(self) -> None:
        self._take("kill")

    @precondition(_can("close"))
    @rule()
    def close(self) -> None:
        self._take("close")

    @precondition(lambda self: not self._is_on)
    @rule()
    def nothing(self) -> None:
        """The sequence is over."""


def drive_at_random(
    harness: Harness,
    *,
    sequences: int = 50,
    seed: int = 1,
    rules: Collection[str] | None = None,
    backend: str = "asyncio",
) -> RandomReport:
    """Drive sessions of the harness's executors at random, until a rule breaks or so many sequences were played.

    It runs an event loop of its own: call it from a thread without one.

    Args:
        harness: Makes the executors.
        sequences: How many are tried.
        seed: Of all that is left to chance: the same one gives the same sequences.
        rules: Ids of the rules that count; ``None``: all.
        backend: Of the event loop: ``asyncio`` or ``trio``.

    Raises:
        HarnessBroke: no executor could be made.
    """
    with start_blocking_portal(backend) as portal:
        descriptor = portal.call(describe, harness)
        run = _Run(harness, portal, descriptor.capabilities, rules)
        machine = type("Machine", (_Machine,), {"run": run})
        try:
            run_state_machine_as_test(seeded(seed)(machine), settings=_settings(sequences))
        except Exception:
            if run.found is None:
                raise
        found = run.smaller()
    if found is None:
        return RandomReport(seed, run.sequences, run.steps, run.cut, run.why)
    played, result, sketch = found
    numbered = [f"{number:>2}  {line}" for number, line in enumerate(played.lines, start=1)]
    sequence = (*described(sketch.plan), *numbered)
    said = f"{result.message} ({len(played.lines)} steps; seed {seed}, {sequences} sequences)"
    evidence = (*map(Evidence, sequence), *result.evidence)
    told = shown(dataclasses.replace(result, message=said, evidence=evidence, scenario=RANDOM))
    return RandomReport(seed, run.sequences, run.steps, run.cut, run.why, told, sequence)


def _settings(sequences: int) -> settings:
    """Nothing is read from or left in a database, no clock is looked at, and the profile of the caller has no say."""
    return settings(
        max_examples=sequences,
        stateful_step_count=_STEPS,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        print_blob=False,
        backend=_BY_SEED_ALONE,
    )
