"""The requests of a turn that are served: each is taken once, and answered until its session takes the answer.

Not for: what the answer is (``_requests.py``) or when the turn goes on (``_turn.py``).
Rules carried: TOOL-06 to TOOL-09, TOOL-16. May import: anyio, ``_attached``, ``_requests``, ``_results``,
``_settings``, ``_turn_facts``, ``protocol``.

Each request has a task of its own in the turn's task group. Only requests that the session calls pending are served,
and each at most once in a turn: a re-attached stream shows old requests again.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from agentsession.host._attached import Attached
from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._lineage import Caller
from agentsession.host._outcome import ToolOutcome
from agentsession.host._requests import EndTurn, Pipeline
from agentsession.host._results import Answered, TimeBetweenStreams, without_secrets
from agentsession.host._settings import Settings
from agentsession.host._turn_facts import TurnFacts
from agentsession.protocol import (
    AgentSessionError,
    Answer,
    ConnectionLost,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    Receipt,
    Spent,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResult,
    ToolUpdate,
)

__all__ = ["Serving", "short"]

logger = logging.getLogger("agentsession.host")

_REFUSALS = 3
"""How many answers a session may call invalid before the request is denied."""


class _Turn(Protocol):
    """What is told to the turn, and asked of it."""

    @property
    def is_timed(self) -> bool:
        """Whether it may be at work for so long and no longer."""
        ...

    def wake(self) -> None:
        """Something that it waits for may have changed."""

    def failed(self, error: Exception, *, at_once: bool) -> None:
        """It must end with this error; ``at_once`` without waiting for the stream."""

    async def abort(self, reason: str | None) -> None:
        """End it."""


@dataclasses.dataclass(slots=True)
class _Served:
    scope: anyio.CancelScope
    is_sending: bool = False


class Serving:
    """Those of one turn."""

    def __init__(
        self,
        settings: Settings,
        attached: Attached,
        facts: TurnFacts,
        turn: _Turn,
        caller: Callable[[ToolRequest], Caller],
    ) -> None:
        self._settings = settings
        self._attached = attached
        self._session = attached.session
        self._facts = facts
        self._turn = turn
        self.pipeline = Pipeline(
            settings,
            attached.session.descriptor,
            facts.of,
            facts.find_request,
            self.send_progress,
            self._tell_start,
            caller,
            attached.above,
        )
        self.between = TimeBetweenStreams(self.pipeline.runs.time)
        """That of the tools; it is told with their results, so that it counts as the turn's."""
        self._tasks: anyio.abc.TaskGroup
        self._taken: set[str] = set()
        self._served: dict[str, _Served] = {}
        self._judging: set[anyio.CancelScope] = set()
        self._started: dict[str, int] = {}
        self._stopped: list[Answer] = []
        self.answers: list[Answered] = []
        """What was answered, without secrets."""
        self.is_stopped = False
        """The turn is being aborted: nothing more begins."""

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """The task group of the turn, in which requests are served."""
        self._tasks = tasks

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being served."""
        return not self._served

    # --- which requests -----------------------------------------------------------------------------------------

    def serve_pending(self) -> None:
        """Serve all that waits and was not taken yet."""
        for request in self._session.pending:
            self._start(request)

    def serve(self, event: Event) -> None:
        """Serve the request that this event is, if it waits."""
        if isinstance(event, ToolRequest) and not event.partial and event.needs != "none":
            waits = True
        else:
            waits = isinstance(event, ElicitationRequest)
        if not waits:
            return
        # Not everything that is shown waits: a re-attached stream repeats, a question may be cancelled in one step.
        for request in self._session.pending:
            if request.request_id == event.request_id:  # type: ignore[attr-defined]  # one of the two request classes
                self._start(request)

    async def give(self, answers: Iterable[Answer]) -> None:
        """Send answers that were made elsewhere; their requests are not served here."""
        answers = list(answers)
        self._taken.update(answer.request_id for answer in answers)
        for answer in answers:
            await self._send(answer)

    def _start(self, request: ToolRequest | ElicitationRequest) -> None:
        if request.request_id in self._taken or self.is_stopped:
            return
        self._taken.add(request.request_id)
        if isinstance(request, ToolRequest):
            self._facts.requests[request.request_id] = request
            if self._is_anothers(request):
                return
        served = self._served[request.request_id] = _Served(anyio.CancelScope())
        self._tasks.start_soon(self._answer, request, served)

    # --- starts -------------------------------------------------------------------------------------------------

    async def recall_starts(self) -> None:
        """The tools that were started before: by a host that is gone, or by another that is at work."""
        waiting = {request.request_id: request.seq for request in self._session.pending}
        if not waiting:
            return
        async for event in self._session.events(after=max(0, min(waiting.values()) - 1), types={"tool_update"}):
            if isinstance(event, ToolUpdate) and event.started and event.request_id in waiting:
                self.started(event)

    def started(self, event: ToolUpdate) -> None:
        """A tool was started, here or elsewhere."""
        self._started[event.request_id] = event.seq

    def _is_lost(self, request: ToolRequest) -> bool:
        """Whether the tool of this request was started by a host that is gone."""
        started = self._started.get(request.request_id)
        if started is None or started > self._attached.found_seq or self._is_clients(request):
            return False
        return not self.pipeline.runs.is_running(request)

    def _is_anothers(self, request: ToolRequest) -> bool:
        """Whether another host runs the tool of this request, and will say what became of it."""
        if request.request_id not in self._started or self._is_clients(request):
            return False
        return not self._is_lost(request)

    def _is_clients(self, request: ToolRequest) -> bool:
        """Whether a client of this host runs it: a start is the client's then, which is there or comes back."""
        clients = self._settings.client_tools
        return clients is not None and clients.has(request.name)

    # --- answering ----------------------------------------------------------------------------------------------

    async def _answer(self, request: ToolRequest | ElicitationRequest, served: _Served) -> None:
        try:
            with served.scope:
                await self._answer_until_taken(request, served)
        except AgentSessionError as error:
            logger.warning("request %s could not be answered: %s", request.request_id, error.what)
            self._turn.failed(error, at_once=False)
            await self._give_up_reading(error, served)
        except Exception as error:  # noqa: BLE001 - raised by the turn; the stream may wait for this answer for ever
            self._turn.failed(error, at_once=True)
        finally:
            if isinstance(request, ToolRequest):
                self.pipeline.runs.over(request)
            self._served.pop(request.request_id, None)
            self._turn.wake()

    async def _give_up_reading(self, error: AgentSessionError, served: _Served) -> None:
        """The session is gone. The reader comes to an end of its own, or raises the same; else it is stopped."""
        self._turn.wake()
        if not isinstance(error, ConnectionLost):
            with anyio.CancelScope() as served.scope:
                await anyio.sleep(self._settings.abort_grace_s)
            if served.scope.cancel_called:
                return
        self._turn.failed(error, at_once=True)

    async def _answer_until_taken(self, request: ToolRequest | ElicitationRequest, served: _Served) -> None:
        problem: str | None = None
        for _ in range(_REFUSALS):
            answer: Answer | None
            try:
                if isinstance(request, ToolRequest) and self._is_lost(request):
                    answer = self.pipeline.runs.lost(request)
                else:
                    answer = await self.pipeline.answer(request, problem)
            except EndTurn as end:
                await self._end_by_person(end, served)
                return
            except AgentSessionError:  # the session is gone
                raise
            except Exception as error:  # a defect of this host must not leave the agent waiting
                logger.exception("the host failed at request %s", request.request_id)
                answer = _host_error(request, type(error).__name__)
            if answer is None:
                return
            # A channel or tool may have gone on over its cancellation: what it says then is void, a yes above all.
            await anyio.lowlevel.checkpoint_if_cancelled()
            served.is_sending = True
            receipt = await self._send(answer)
            served.is_sending = False
            if receipt.status != "invalid":
                return
            problem = receipt.reason or "the session refused the answer"
            if not _is_a_persons(answer):
                break  # asking again would run the tool again
        served.is_sending = True
        await self._send(_host_error(request, f"the session refused the host's answer: {problem}"))

    async def _end_by_person(self, end: EndTurn, served: _Served) -> None:
        # At once and before anything is awaited: no sibling may be asked, or run, after a cancel.
        served.is_sending = True
        self.stop(served)
        try:
            await self._send(end.answer)
        finally:
            self._tasks.start_soon(self._abort_by_person, end.reason)

    async def _abort_by_person(self, reason: str | None) -> None:
        try:
            await self._turn.abort(reason or "cancelled by the user")
        except AgentSessionError as error:
            self._turn.failed(error, at_once=False)

    # --- what changes while it is being answered ----------------------------------------------------------------

    def settled_elsewhere(self, request_id: str) -> None:
        """A response that this host is not just sending: what is asked or run for the request here is void."""
        served = self._served.get(request_id)
        if served is not None and not served.is_sending:
            served.scope.cancel()

    def judge_again(self) -> None:
        """The mode was changed: decide again on what waits. Not awaited: a slow policy must not hold up the events."""
        self._tasks.start_soon(self._judge_again)

    async def _judge_again(self) -> None:
        with anyio.CancelScope() as scope:
            self._judging.add(scope)
            try:
                await self._settings.waiting.judge_again()
            finally:
                self._judging.discard(scope)

    def cancel(self) -> None:
        """Cancel what is served: nothing waits for it any more, or somebody else will answer it."""
        for served in self._served.values():
            served.scope.cancel()

    def end(self) -> None:
        """The turn is over here: leave nothing in its task group."""
        self.cancel()
        for scope in list(self._judging):
            scope.cancel()

    def stop(self, spared: _Served | None = None) -> None:
        """Before an abort: begin nothing more, cancel what is served, keep what is to be said of the tools that run."""
        self.is_stopped = True
        self._stopped += self.pipeline.runs.stopped()
        for served in self._served.values():
            if served is not spared:
                served.scope.cancel()

    async def tell_stopped(self) -> None:
        """Say of the tools that were stopped what is known."""
        stopped, self._stopped = self._stopped, []
        waiting = {request.request_id for request in self._session.pending}  # the others were settled elsewhere
        for answer in (item for item in stopped if item.request_id in waiting):
            try:
                await self._send(answer)
            except Exception as error:  # noqa: BLE001 - the abort that follows settles it
                logger.debug("what became of %s could not be said: %s", answer.request_id, short(error))

    # --- sending ------------------------------------------------------------------------------------------------

    async def _send(self, answer: Answer) -> Receipt:
        seconds = self.between.take() if isinstance(answer, ToolResult) and self._turn.is_timed else 0.0
        if seconds > 0 and isinstance(answer, ToolResult):
            spent = (answer.spent or Spent()).model_copy(update={"seconds": round(seconds, 3)})
            answer = answer.model_copy(update={"spent": spent})
        # Of a secret nothing stays: neither in the result, nor with an observer.
        shown = without_secrets(answer, self._session)
        (receipt,) = await self._session.respond(answer)
        self.answers.append(Answered(shown, receipt))
        if not receipt.ok:
            self.between.put_back(seconds)
            # Stale is what a race with another client or an abort looks like; the others are somebody's mistake.
            level = logging.INFO if receipt.status == "stale" else logging.WARNING
            logger.log(level, "answer to %s: %s %s", answer.request_id, receipt.status, receipt.reason or "")
        if self._settings.on_answer is not None:
            try:
                called = self._settings.on_answer(shown, receipt)
                if inspect.isawaitable(called):
                    await called
            except failures() as error:
                raise_if_cancelled(error)
                logger.exception("on_answer failed")
        return receipt

    async def send_progress(self, progress: ToolProgress) -> None:
        """Send it; what is refused or lost is logged, and changes nothing."""
        try:
            receipts = await self._session.respond(progress)
        except AgentSessionError as error:
            logger.debug("progress of %s was lost: %s", progress.request_id, error.what)
            return
        if any(not receipt.ok for receipt in receipts):
            logger.debug("progress of %s was refused", progress.request_id)

    async def _tell_start(self, request_id: str) -> bool:
        """Have it in the record that the tool runs from here on; whether it was this host that started it."""
        (receipt,) = await self._session.respond(ToolProgress(request_id=request_id, started=True))
        if not receipt.ok:
            logger.info("tool of %s was not started: %s %s", request_id, receipt.status, receipt.reason or "")
        return receipt.ok


def short(error: Exception) -> str:
    """What may be logged of an error: one that is not the contract's may hold what a person said."""
    return error.what if isinstance(error, AgentSessionError) else type(error).__name__


def _is_a_persons(answer: Answer) -> bool:
    return isinstance(answer, ElicitationAnswer) or (isinstance(answer, ToolGrant) and answer.args is not None)


def _host_error(request: ToolRequest | ElicitationRequest, message: str) -> Answer:
    why = Decision(by="host", reason=message)
    if isinstance(request, ElicitationRequest):
        return ElicitationAnswer(request_id=request.request_id, action="cancel", decision=why)
    if request.needs == "result":
        result: ToolResult = ToolOutcome.failure("host_error", message).answer(request.request_id)
        return result
    return ToolDenial(request_id=request.request_id, reason=f"host_error: {message}", decision=why)
