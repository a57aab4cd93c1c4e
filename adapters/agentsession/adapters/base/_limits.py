"""The limits that the session itself keeps for every executor: a turn's deadline, its active seconds, its budget.

Not for: limits that only the executor can count (model calls and steps: ``RunContext.limits``), or how a turn ends
(``_ending.py``). Rules carried: CTL-04, CTL-08, HITL-11. May import: ``agentsession.protocol``, anyio, the modules
beside it.

A *deadline* is a moment: it comes whether the turn runs or waits. *Active seconds* are those in which a stream of the
turn is open: at a pause the count stops, so that nobody is cut off by a person who thinks. The count goes on in the
turn's next stream, also in that of another process, which finds in the record how long the earlier ones were open.
What the host's tools worked meanwhile is told with their results (``spent.seconds``), and counts like a stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from agentsession.adapters.base._run import HELD_BREATH, Run
from agentsession.protocol import (
    AgentDescriptor,
    ConfigurationError,
    Constraints,
    Error,
    Event,
    ExecutionOptions,
    Grace,
    InvalidInput,
    Price,
    Spent,
    ToolResponse,
    Usage,
    tightest,
    usage_cost,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

E = TypeVar("E", bound=Event)
N = TypeVar("N", int, float)

__all__ = ["Limits", "check_limits", "deadline_ms"]

_PRICES: Final = (
    "say what its models cost: ExecutionOptions(prices={MODEL: Price(...)}), or --price MODEL=INPUT,OUTPUT"
    " for the command"
)


def check_limits(
    descriptor: AgentDescriptor,
    limits: Constraints | None,
    *,
    counts_calls: bool = True,
    prices: Mapping[str, Price] | None = None,
) -> None:
    """Raise :class:`ConfigurationError` (``limit-unsupported``) for a limit that would be taken and never kept.

    ``counts_calls``: the executor counts its model calls (see :attr:`BaseExecutor.counts_model_calls`). ``prices``: by
    them the cost of a call is known where the executor only tells its tokens.
    """
    given = {} if limits is None else {name: getattr(limits, name) for name in Constraints.model_fields}
    problem = None
    fix = None
    if given.get("max_budget_usd") is not None and not descriptor.supports("cost"):
        counted = descriptor.supports("usage")
        if not (counted and prices):
            problem = "does not report what its model calls cost", "max_budget_usd"
            fix = _PRICES if counted else None
    for name in ("max_llm_calls", "max_turns"):
        if given.get(name) is not None and not counts_calls:
            problem = "does not count its model calls", name
    if problem is None:
        return
    why, name = problem
    kept = ["max_turns", "max_llm_calls"] * counts_calls + ["max_time_seconds"]
    raise ConfigurationError(
        f"agent {descriptor.name} {why}, so this limit cannot be kept",
        got=f"{name}={given[name]:g}",
        expected=f"limits that this executor can keep: {', '.join(kept)}",
        fix=fix or f"leave {name} out",
        id="limit-unsupported",
    )


def deadline_ms(options: ExecutionOptions) -> int | None:
    """The deadline in milliseconds since 1970. Raises :class:`InvalidInput` for what is not a moment in time."""
    if options.deadline is None:
        return None
    try:
        moment = datetime.fromisoformat(options.deadline)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            "the deadline is not a moment in time",
            got=options.deadline[:40],
            expected="ISO 8601 with a zone, such as 2026-01-31T12:00:00.000Z",
        )
    return int(moment.timestamp() * 1000)


class Limits:
    """Watches the present turn of one session. At most one limit ends it: whichever comes first (CTL-04)."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._executor = session.executor
        self._recorder = session.recorder
        self._machine = session.recorder.machine
        self._deadline: anyio.CancelScope | None = None
        self._timer: anyio.CancelScope | None = None
        self._turn_id: str | None = None
        self._used_s = 0.0
        """Active seconds of the turn in the streams that have ended."""
        self._since: float | None = None
        """When the open stream began, on the clock of :meth:`_clock`."""
        self._spent_turn: str | None = None
        self._spent = 0.0
        """US dollars that the model calls of that turn have cost."""
        self._grace_until: float | None = None
        self._others_turn: str | None = None
        self._others_calls = 0
        """Model calls that the tools of that turn have made."""
        self._others_cost = 0.0
        self._own_turn: str | None = None
        """The turn of which others use the limits too."""
        self._own_calls: int | None = None
        self._own_cost: float | None = None
        """What its own model calls may come to, beside what the others use."""
        self.due = False
        """What others have used is known, such as a tool's call: :meth:`check_spent` is due."""
        self._recorder.on_spent = self.note_spent
        self.expires_at: str | None = None
        """The present turn's deadline as the host gave it: until when what is asked may be answered."""

    # -- the deadline -------------------------------------------------------------------------------------------------

    def watch_deadline(self, turn_id: str, options: ExecutionOptions | None) -> None:
        """End the turn when its deadline comes, whether it runs or waits. A later call for the turn replaces it."""
        moment = deadline_ms(options) if options is not None else None
        if options is None or moment is None or self._machine.turn_id != turn_id:
            return
        self._forget_deadline()
        self.expires_at = options.deadline
        scope = self._deadline = anyio.CancelScope()
        self._start(self._watch, turn_id, moment, scope, name=f"agentsession deadline {turn_id}")

    async def _watch(self, turn_id: str, moment: int, scope: anyio.CancelScope) -> None:
        now: Callable[[], int] = self._executor.now or _now_ms
        with scope:
            await anyio.sleep(max(0, moment - now()) / 1000)
        if scope.cancel_called or self._machine.turn_id != turn_id:
            return
        self._deadline = None
        if self._machine.state == "input_required":
            self._session.ending.settle_turn("aborted", "deadline")
            await self._session.ending.wait_or_close(self._session.turns.unfinished())
        elif self._machine.state == "running":
            await self._end("deadline", "DEADLINE_EXCEEDED", "the turn's deadline has come")

    # -- active time --------------------------------------------------------------------------------------------------

    def stream_opened(self) -> None:
        """A stream of the present turn has begun and the turn is at work: its time counts from here."""
        turn_id, run = self._machine.turn_id, self._session.turns.run
        if self._machine.state != "running" or run is None or turn_id is None or self._since is not None:
            return
        if turn_id != self._turn_id:
            self._turn_id, self._used_s = turn_id, self._recorded_s(turn_id)
        self._since = self._clock()
        limit = self.of(run).max_time_seconds
        if run.grace is not None:
            limit = self._last_word_until(run)
        if limit is not None:
            self._start_timer(turn_id, limit)

    def _start_timer(self, turn_id: str, limit: float) -> None:
        scope = self._timer = anyio.CancelScope()
        self._start(self._time, turn_id, limit, scope, name=f"agentsession time {turn_id}")

    def last_word_begins(self, run: Run) -> None:
        """From now on the time of the turn is that of its last word."""
        scope, self._timer = self._timer, None
        if scope is not None:
            scope.cancel()
        self._grace_until = None
        self._start_timer(run.turn_id, self._last_word_until(run))

    def _last_word_until(self, run: Run) -> float:
        """How many active seconds the turn has had when the time of its last word is over."""
        if self._grace_until is None:
            grace = run.options.grace or Grace()
            self._grace_until = self.active_s + grace.seconds
        return self._grace_until

    def stream_ended(self, *, final: bool) -> None:
        """The open stream is ending: the count stops, with the turn for good."""
        if self._since is not None:
            self._used_s += self._clock() - self._since
        self._since = None
        scope, self._timer = self._timer, None
        if scope is not None:
            scope.cancel()
        if final:
            self._turn_id = self._grace_until = None
            self._forget_deadline()

    @property
    def active_s(self) -> float:
        """How many seconds the present turn has been at work."""
        return self._used_s + (self._clock() - self._since if self._since is not None else 0.0)

    async def _time(self, turn_id: str, limit: float, scope: anyio.CancelScope) -> None:
        with scope:
            while (left := limit - self.active_s) > 0:  # noqa: ASYNC110  # time is what it waits for
                await anyio.sleep(left)
        if scope.cancel_called or self._machine.turn_id != turn_id or self._machine.state != "running":
            return
        self._timer = None
        await self._end("max_time", "DEADLINE_EXCEEDED", f"the turn was at work for its {limit:g} s")

    def _clock(self) -> float:
        """Seconds that only go on; those of the executor's own clock where it was given one."""
        now = self._executor.now
        return now() / 1000 if now is not None else time.monotonic()

    def _recorded_s(self, turn_id: str) -> float:
        """How long the turn was at work before, by the record: in the streams of another process, or in none."""
        spans: dict[str, tuple[datetime, datetime]] = {}
        between = 0.0
        for event in reversed(self._recorder.log.events):
            if isinstance(event, ToolResponse) and event.turn_id == turn_id and event.spent is not None:
                between += event.spent.seconds or 0.0
            if event.stream_id is None or event.stream_id == self._machine.stream_id:
                continue
            if event.turn_id != turn_id:
                break
            try:
                moment = datetime.fromisoformat(event.timestamp)
            except ValueError:
                continue  # a foreign record with another form of time
            spans[event.stream_id] = (moment, spans.get(event.stream_id, (moment, moment))[1])
        return between + sum((last - first).total_seconds() for first, last in spans.values())

    # -- the budget ---------------------------------------------------------------------------------------------------

    def priced(self, run: Run, event: E) -> E:
        """A usage event with what the call has cost, where its executor does not tell and the host's prices do."""
        prices = run.options.prices
        if not prices or not isinstance(event, Usage) or event.cost is not None:
            return event
        cost = usage_cost(event, prices)
        return event if cost is None else event.model_copy(update={"cost": cost})

    def spent(self, run: Run, usage: Usage) -> None:
        """A model call's usage was recorded: end the turn when its calls have cost what it may cost.

        So does one whose cost nobody knows: what cannot be counted cannot be kept below a limit.
        """
        if self.of(run).max_budget_usd is None and self._own_budget(run) is None:
            self._spent_turn = None  # a later stream of the turn may have a budget
            return
        self._cost_before(run, usage.seq)
        self._spent += math.inf if usage.cost is None else usage.cost
        limit = self._budget(run)
        if limit is None:
            return
        if usage.cost is None:
            model = usage.model or "a model without a name"
            message = f"a call of {model} did not tell its cost, and no price is known: the budget cannot be kept"
            self._interrupt_itself("max_budget", "RESOURCE_EXHAUSTED", message)
            return
        self._end_over_budget(run, limit)

    def note_spent(self, event: ToolResponse, spent: Spent) -> None:
        """A tool's call has used something: it counts, and is acted on when the run does its next thing.

        The response may be recorded while no stream is open.
        """
        if event.turn_id == self._turn_id:  # else it is found in the record when the turn goes on
            self._used_s += spent.seconds or 0.0
        if event.turn_id != self._others_turn:
            self._others_turn, self._others_calls, self._others_cost = event.turn_id, 0, 0.0
        self._others_calls += spent.model_calls
        if spent.cost is None and spent.model_calls:
            self._others_cost = math.inf
        else:
            self._others_cost += spent.cost or 0.0
        self.due = True

    def limit_own(self, model_calls: int | None, cost: float | None) -> None:
        """What the present turn's own model calls may come to in all: the others use the rest of what it has."""
        turn_id = self._machine.turn_id
        if turn_id is None:
            return
        if turn_id != self._own_turn:
            self._own_turn, self._own_calls, self._own_cost = turn_id, None, None
        self._own_calls = _least(self._own_calls, model_calls)
        self._own_cost = _least(self._own_cost, cost)
        self.due = True

    def check_spent(self, run: Run) -> None:
        """End the turn when it, its tools' calls and who shares its limits have cost more than it may cost."""
        self.due = False
        limit = self._budget(run)
        if limit is None or run.turn_id not in (self._others_turn, self._own_turn):
            return
        self._cost_before(run, self._recorder.seq + 1)
        if self._others_cost == math.inf and run.turn_id == self._others_turn:
            self._spent = math.inf
            message = "a tool made model calls of which nobody knows the cost: the budget cannot be kept"
            self._interrupt_itself("max_budget", "RESOURCE_EXHAUSTED", message)
            return
        self._end_over_budget(run, limit)

    def _end_over_budget(self, run: Run, limit: float) -> None:
        cost, own = self._cost(run), self._own_budget(run)
        if cost >= limit:
            message = f"the turn has cost {cost:g} USD, and may cost {limit:g}"
            if cost == math.inf:
                message = "nobody knows what an earlier call of the turn has cost: the budget cannot be kept"
        elif own is not None and self._spent >= own - self._reserve(run):
            message = f"the turn has cost {self._spent:g} USD, and others the rest of what they share with it"
        else:
            return
        self._interrupt_itself("max_budget", "RESOURCE_EXHAUSTED", message)

    def _budget(self, run: Run) -> float | None:
        """What the turn may cost before its last word; ``None`` where nothing is to be ended for it."""
        limit = self.of(run).max_budget_usd
        if limit is None and self._own_budget(run) is not None:
            limit = math.inf
        if limit is None or run.aborting is not None or run.grace is not None:
            return None
        return limit - self._reserve(run)

    def _reserve(self, run: Run) -> float:
        """The part of the budget that is kept for a last word."""
        kept = run.options.grace
        return kept.reserve_usd or 0.0 if kept is not None and self._executor.gives_grace else 0.0

    def _own_budget(self, run: Run) -> float | None:
        """What the turn's own model calls may cost, where others share its budget."""
        return self._own_cost if run.turn_id == self._own_turn else None

    def _cost(self, run: Run) -> float:
        """US dollars that the turn has cost, by its own model calls and by what its tools have used."""
        others = self._others_cost if self._others_turn == run.turn_id else 0.0
        return self._spent + others

    def _cost_before(self, run: Run, seq: int) -> None:
        """Find out once what the turn's model calls have cost before that seq."""
        if self._spent_turn != run.turn_id:
            self._spent_turn, self._spent = run.turn_id, self._recorded_cost(run, before=seq)

    def has_reserve(self, run: Run, grace: Grace) -> bool:
        """Whether the part of the budget that is kept for a last word is still there."""
        limit = self.of(run).max_budget_usd
        own = self._own_budget(run)
        if grace.reserve_usd is None or limit is None or (own is not None and self._spent >= own):
            return False
        return self._cost(run) < limit

    def _recorded_cost(self, run: Run, *, before: int) -> float:
        """What the turn's earlier calls have cost, by the record: those of another process, or of before it had a
        budget. Infinity where nobody knows."""
        cost = 0.0
        for event in reversed(self._recorder.log.events):
            if event.turn_id is not None and event.turn_id != run.turn_id:
                break
            if isinstance(event, Usage) and event.seq < before:
                known = usage_cost(event, run.options.prices or {})
                cost += math.inf if known is None else known
        return cost

    # -- ending a turn ------------------------------------------------------------------------------------------------

    def of(self, run: Run) -> Constraints:
        """The limits of a run: the tighter ones of the agent's own and the host's.

        Of its model calls those that remain beside what its tools and who shares its limits have made, so perhaps none.
        """
        limits = tightest(self._executor.descriptor.constraints, run.options.limits)
        calls = limits.max_llm_calls
        if calls is not None and self._others_turn == run.turn_id:
            calls = max(0, calls - self._others_calls)
        if self._own_turn == run.turn_id:
            calls = _least(calls, self._own_calls)
        return limits if calls == limits.max_llm_calls else limits.model_copy(update={"max_llm_calls": calls})

    @property
    def present(self) -> Constraints:
        """Those of the present turn."""
        run = self._session.turns.run
        return self.of(run) if run is not None else tightest(self._executor.descriptor.constraints)

    def _interrupt(self, reason: str, status: str, message: str) -> None:
        run = self._session.turns.run
        if run is None or run.muted:
            return
        if run.aborting is None and run.grace is None and not self._machine.fatal:
            self._recorder.record(Error(status=status, message=message, code=reason, source="host"))
        self._session.ending.interrupt(run, reason, reason)
        run.breath = HELD_BREATH  # it may emit without ever waiting: its next event gives the loop a turn

    def _interrupt_itself(self, reason: str, status: str, message: str) -> None:
        """The same, in a step of the run's own: nobody waits for it to exit."""
        self._interrupt(reason, status, message)
        self._session.ending.expect_exit()

    async def _end(self, reason: str, status: str, message: str) -> None:
        self._interrupt(reason, status, message)
        await self._session.ending.wait_or_close(self._session.turns.unfinished())

    def forget(self) -> None:
        """The session is over: nothing is watched any more."""
        self.stream_ended(final=True)

    def _forget_deadline(self) -> None:
        scope, self._deadline = self._deadline, None
        self.expires_at = None
        if scope is not None:
            scope.cancel()

    def _start(self, watch: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str) -> None:
        self._executor.task_group.start_soon(watch, *args, name=name)


def _least(first: N | None, second: N | None) -> N | None:
    return min((value for value in (first, second) if value is not None), default=None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
