"""A whole turn: read the stream, serve each request as soon as it is emitted, continue until the turn's end.

Not for: what the answer to a request is (``_requests.py``). Rules carried: TURN-01, TOOL-06 to TOOL-09, CTL-01.
May import: anyio, ``_requests``, ``_results``, ``_settings``, ``protocol``.

Theory of operation. One task reads; each pending request is served by a task of its own, in the turn's task group,
which is entered and left inside :meth:`Turn.run`. Answers go to ``respond`` at once, so that a run need not pause.
When the stream ends ``input_required`` the reader waits until every request was answered or left, watching the record
meanwhile (another client may answer, or abort), and then continues with ``stream()``. Only requests that the session
calls pending are served, and each at most once in a turn: a re-attached stream shows old requests again.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.lowlevel

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._lineage import Above, Caller, Child, stricter
from agentsession.host._outcome import ToolOutcome
from agentsession.host._principals import Principals
from agentsession.host._requests import EndTurn, Pipeline
from agentsession.host._rest import Rest, rest_of
from agentsession.host._results import Answered, TurnResult, UsageTotals, without_secrets
from agentsession.host._settings import Settings, observe
from agentsession.protocol import (
    AbortTimeout,
    AgentEnd,
    AgentSession,
    AgentSessionError,
    AgentStart,
    Answer,
    ConnectionLost,
    Constraints,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    ExecutionOptions,
    Message,
    MessageInput,
    NothingToContinue,
    OpenOptions,
    ProtocolViolation,
    Receipt,
    RecordStore,
    SessionUpdate,
    StreamActive,
    StreamEnd,
    ToolDenial,
    ToolDescriptor,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    Usage,
    as_answers,
    plain_text,
    tightest,
)

if TYPE_CHECKING:
    from agentsession.host._host import Host

__all__ = ["Attached", "Turn", "recorded_mode"]

logger = logging.getLogger("agentsession.host")

_REFUSALS = 3
"""How many answers a session may call invalid before the request is denied."""


@dataclasses.dataclass(slots=True)
class Attached:
    """What a host remembers of a session between turns."""

    session: AgentSession
    cursor: int
    """The last event that the observer saw."""
    permission_mode: str = "default"
    turn_mode: tuple[str | None, str] | None = None
    """A turn whose options set a mode, and that mode: it holds to the end of that turn, over its pauses."""
    user_id: str | None = None
    execution: ExecutionOptions | None = None
    """The options that it was opened with; ``None`` for a session that was opened by hand."""
    declared: tuple[ToolDescriptor, ...] = ()
    """The host's own tools among them."""
    found_seq: int = 0
    """The record's last seq when this host found the session: what was started before, another host has started."""
    host: Host | None = None
    options: OpenOptions | None = None
    """What it was opened with; ``None`` when it was opened by hand."""
    store: RecordStore | None = None
    settings: Settings | None = None
    """A sub-agent's: those of the host, with its own tools."""
    above: Above | None = None
    """A sub-agent's: the call that it works for."""
    children: dict[str, Child] = dataclasses.field(default_factory=dict[str, Child])
    """The sub-agents that are at work or wait, by the id of the request that they work for."""
    usage_below: tuple[str | None, list[Usage]] | None = None
    """A turn, and the model calls of its sub-agents."""


async def recorded_mode(session: AgentSession, default: str = "default") -> str:
    """The permission mode that a host last set in this session; an agent's own word for it does not count."""
    mode = default
    async for event in session.events(types={"session_update"}):
        if isinstance(event, SessionUpdate) and event.source == "host" and event.permission_mode is not None:
            mode = event.permission_mode
    return mode


@dataclasses.dataclass(slots=True)
class _Serving:
    scope: anyio.CancelScope
    is_sending: bool = False


class Turn:
    """One turn of one session; made and run by :class:`agentsession.host.Host`."""

    def __init__(self, settings: Settings, session: AgentSession, attached: Attached) -> None:
        self._settings = settings
        self._session = session
        self._attached = attached
        self._pipeline = Pipeline(
            settings,
            session.descriptor,
            self._facts,
            self._find_request,
            self._send_progress,
            self._tell_start,
            self._caller,
            attached.above,
        )
        self._tasks: anyio.abc.TaskGroup
        self._taken: set[str] = set()
        self._serving: dict[str, _Serving] = {}
        self._judging: set[anyio.CancelScope] = set()
        self._changed = anyio.Event()
        self._has_stream = False
        self._turn_id: str | None = None
        self._began = 0
        self._waiting = anyio.CancelScope()
        self._driving = anyio.CancelScope()
        self._abort_started = False
        self._abort_done = anyio.Event()
        self._is_abort_lost = False
        self._final: StreamEnd | None = None
        self._failure: Exception | None = None
        self._principals = Principals(session)
        self._requests: dict[str, ToolRequest] = {}
        self._started: dict[str, int] = {}
        self._answers: list[Answered] = []
        self._stopped: list[Answer] = []
        self._messages: list[str] = []
        self._errors: list[Error] = []
        self._usage = UsageTotals()
        self._began_at = 0.0
        self._limits = Constraints()
        self._deadline: str | None = None

    async def run(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> TurnResult:
        """Run until the turn ends, or waits for what nobody here will answer."""
        self._began_at = started = anyio.current_time()
        self._set_limits(options)
        self._began = self._session.last_seq
        for request in () if isinstance(given, (str, MessageInput)) else self._session.pending:
            self._set_turn_mode(request.turn_id, options)
        end: StreamEnd | None = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                with self._driving:
                    end = await self._drive(given, options)
                if end is None and self._failure is not None:
                    raise self._failure
            except anyio.get_cancelled_exc_class():
                await self._abort_quietly("the host was cancelled")
                raise
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group that would wrap it
                failure = error
                if not isinstance(error, StreamActive):  # then what runs is another client's
                    await self._abort_quietly("the host failed")
            self._cancel_serving()
            for scope in list(self._judging):
                scope.cancel()
        if failure is not None:
            raise failure
        assert end is not None  # _drive returned
        return TurnResult(
            end=end,
            text=next((text for text in reversed(self._messages) if text), ""),
            messages=tuple(self._messages),
            answers=tuple(self._answers),
            unanswered=tuple(request.request_id for request in self._session.pending),
            usage=self._usage,
            errors=tuple(self._errors),
            still_running=tuple(self._pipeline.runs.still_running),
            elapsed_s=anyio.current_time() - started,
            people_s=self._pipeline.people.total_s,
            tools_s=self._pipeline.runs.time.total_s,
        )

    async def abort(self, reason: str | None) -> None:
        """End the turn: host tools are cancelled, the session is aborted. Raises :class:`AbortTimeout`."""
        self.stop()
        try:
            await self._children_settled()
            with anyio.move_on_after(self._settings.abort_grace_s):
                await self._tell_stopped()
            await self._abort_session(reason)
        except Exception as error:
            self.give_up(error)
            raise
        finally:
            self._abort_done.set()
            self._wake()

    def stop(self) -> None:
        """The first step of an abort, which waits for nothing: nothing more begins, and what is served is cancelled."""
        self._abort_started = True
        self._stop_serving()

    def give_up(self, error: Exception) -> None:
        """End the turn with this error: the end that the reader waits for may never come."""
        self._failure = error
        self._is_abort_lost = True
        self._driving.cancel()

    async def _children_settled(self) -> None:
        """What was served is cancelled: wait until the sub-agents have ended their turns, so that they end first."""
        with anyio.move_on_after(self._settings.abort_grace_s):
            for child in list(self._attached.children.values()):
                await child.at_rest.wait()

    async def _abort_session(self, reason: str | None) -> None:
        """The session bounds its abort itself; this is for one that does not."""
        grace_s = self._settings.abort_grace_s
        with anyio.move_on_after(grace_s) as waiting:
            await self._session.abort(reason)
        if waiting.cancelled_caught:
            raise AbortTimeout(
                f"the session did not end within the host's {grace_s:g} s",
                where=f"session {self._session.session_id}",
                fix="give it longer: Host(abort_grace_s=...), or close the session",
            )

    # --- the reader ---------------------------------------------------------------------------------------------

    async def _drive(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> StreamEnd:
        end: StreamEnd | None = None
        if isinstance(given, (str, MessageInput)):
            end = await self._stream(given, options)
        else:
            await self._principals.recall()
            await self._recall_starts()
        if given is not None and not isinstance(given, (str, MessageInput)):
            answers = as_answers(given)
            self._taken.update(answer.request_id for answer in answers)
            for answer in answers:
                await self._send(answer)
        while end is None or end.reason == "input_required":
            self._serve_pending()
            await self._settled()
            if self._abort_started:
                await self._abort_done.wait()
            if self._failure is not None:
                raise self._failure
            if self._abort_started:
                await self._catch_up()
                return self._final or await self._last_end()
            if self._final is not None:
                return self._final
            if self._session.pending:
                return end or await self._last_end()
            try:
                end = await self._stream(None, options)
            except NothingToContinue:  # unless it was settled meanwhile, such as by its deadline
                await self._catch_up()
                end = self._ended()
                if end is None:
                    raise
        return end

    async def _stream(self, message: str | MessageInput | None, options: ExecutionOptions | None) -> StreamEnd:
        async with self._session.stream(message, options) as stream:
            self._has_stream = True
            self._turn_id = stream.turn_id
            self._set_turn_mode(stream.turn_id, options)
            async for event in stream:
                _require_event(event, f"stream {stream.stream_id}")
                if event.seq > self._attached.cursor + 1:
                    await self._catch_up(event.seq)
                await self._take(event)
                self._serve(event)
        if stream.end is None:
            raise ConnectionLost("the stream stopped without its stream_end", where=f"stream {stream.stream_id}")
        if stream.end.reason != "input_required":
            self._cancel_serving()
        return stream.end

    async def _take(self, event: Event) -> None:
        """Observe one event and keep what the turn needs of it."""
        if event.seq > self._attached.cursor:  # else a re-attached stream: the observer had it
            self._attached.cursor = event.seq
            await observe(self._settings.observer, event)
        if event.turn_id is not None and self._turn_id is not None and event.turn_id != self._turn_id:
            return  # the settlement of the turn before
        match event:
            case AgentStart() | AgentEnd():
                self._principals.bracket(event)
            case ToolRequest(partial=False):
                self._requests[event.request_id] = event
            case ToolUpdate(started=True):
                self._started[event.request_id] = event.seq
            case ToolResponse() | ElicitationResponse():
                self._settled_elsewhere(event.request_id)
            case Message(partial=False, role="agent", thread_id=None):
                self._messages.append(plain_text(event.content))
            case Usage():
                self.add_usage(event)
            case Error():
                self._errors.append(event)
            case SessionUpdate(source="host") if event.permission_mode is not None:
                self._attached.permission_mode = event.permission_mode
                if event.seq > self._began:  # newer than the turn's options
                    self._attached.turn_mode = None
                self._tasks.start_soon(self._judge_again)  # not awaited: a slow policy must not hold up the events
            case StreamEnd() if event.reason != "input_required":
                self._final = event
            case _:
                pass

    def add_usage(self, event: Usage) -> None:
        """Count one model call of this turn's agent or of a sub-agent's, here and in the turns above."""
        self._usage.add(event)
        if event.thread_id is not None and event.session_id != self._session.session_id:
            self._below().append(event)
        if self._attached.above is not None:
            self._attached.above.add_usage(event)

    async def _catch_up(self, before: int | None = None) -> None:
        """Take what was recorded outside of this turn's streams: kept answers, updates, settlements."""
        async for event in self._session.events(after=self._attached.cursor):
            _require_event(event, f"record of session {self._session.session_id}")
            if before is not None and event.seq >= before:
                return
            await self._take(event)

    def _ended(self) -> StreamEnd | None:
        """The turn's end, if it was seen; asked by a call because it changes while others wait."""
        return self._final

    async def _last_end(self) -> StreamEnd:
        end: StreamEnd | None = None
        async for event in self._session.events(types={"stream_end"}):
            if isinstance(event, StreamEnd):
                end = event
        if end is None:
            raise ConnectionLost("the record has no stream_end", where=f"session {self._session.session_id}")
        return end

    async def _settled(self) -> None:
        """Wait until nothing is being served, or the turn ended; watch the record meanwhile."""
        if not self._serving:
            return
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch)
            while not self._is_watched_enough():
                self._changed = anyio.Event()
                await self._changed.wait()
            self._waiting.cancel()

    def _is_watched_enough(self) -> bool:
        return not self._serving or self._final is not None or self._failure is not None or self._abort_started

    async def _watch(self) -> None:
        reader = self._session.events(after=self._attached.cursor, follow=True)
        try:
            while not self._is_watched_enough():
                event: Event | None = None
                with anyio.CancelScope() as self._waiting:  # only waiting is cut off, never an observer at its event
                    event = await anext(reader, None)
                if event is None:  # the session was closed; what waits there may go on waiting, for whoever loads it
                    self._cancel_serving()
                    return
                _require_event(event, f"record of session {self._session.session_id}")
                await self._take(event)
                self._wake()
        except Exception as error:  # noqa: BLE001 - raised by the reader, who waits for this
            self._failure = error
            self._wake()
        finally:
            with anyio.CancelScope(shield=True):
                await reader.aclose()

    # --- serving ------------------------------------------------------------------------------------------------

    def _serve_pending(self) -> None:
        for request in self._session.pending:
            self._start(request)

    def _serve(self, event: Event) -> None:
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

    def _start(self, request: ToolRequest | ElicitationRequest) -> None:
        if request.request_id in self._taken or self._abort_started:
            return
        self._taken.add(request.request_id)
        if isinstance(request, ToolRequest):
            self._requests[request.request_id] = request
            if self._is_anothers(request):
                return
        serving = self._serving[request.request_id] = _Serving(anyio.CancelScope())
        self._tasks.start_soon(self._answer, request, serving)

    async def _answer(self, request: ToolRequest | ElicitationRequest, serving: _Serving) -> None:
        try:
            with serving.scope:
                await self._answer_until_taken(request, serving)
        except AgentSessionError as error:
            logger.warning("request %s could not be answered: %s", request.request_id, error.what)
            self._failure = error
            await self._give_up_reading(error, serving)
        except Exception as error:  # noqa: BLE001 - raised by run(); the stream may wait for this answer for ever
            self._failure = error
            self._driving.cancel()
        finally:
            self._serving.pop(request.request_id, None)
            self._wake()

    async def _give_up_reading(self, error: AgentSessionError, serving: _Serving) -> None:
        """The session is gone. The reader comes to an end of its own, or raises the same; else it is stopped."""
        self._wake()
        if not isinstance(error, ConnectionLost):
            with anyio.CancelScope() as serving.scope:
                await anyio.sleep(self._settings.abort_grace_s)
            if serving.scope.cancel_called:
                return
        self._driving.cancel()

    async def _answer_until_taken(self, request: ToolRequest | ElicitationRequest, serving: _Serving) -> None:
        problem: str | None = None
        for _ in range(_REFUSALS):
            answer: Answer | None
            try:
                if isinstance(request, ToolRequest) and self._is_lost(request):
                    answer = self._pipeline.runs.lost(request)
                else:
                    answer = await self._pipeline.answer(request, problem)
            except EndTurn as end:
                await self._end_by_person(end, serving)
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
            serving.is_sending = True
            receipt = await self._send(answer)
            serving.is_sending = False
            if receipt.status != "invalid":
                return
            problem = receipt.reason or "the session refused the answer"
            if not _is_a_persons(answer):
                break  # asking again would run the tool again
        serving.is_sending = True
        await self._send(_host_error(request, f"the session refused the host's answer: {problem}"))

    async def _end_by_person(self, end: EndTurn, serving: _Serving) -> None:
        # At once and before anything is awaited: no sibling may be asked, or run, after a cancel.
        self._abort_started = True
        serving.is_sending = True
        self._stop_serving(serving)
        try:
            await self._send(end.answer)
        finally:
            self._tasks.start_soon(self._abort_by_person, end.reason)

    async def _abort_by_person(self, reason: str | None) -> None:
        try:
            await self.abort(reason or "cancelled by the user")
        except AgentSessionError as error:
            self._failure = error

    async def _send(self, answer: Answer) -> Receipt:
        # Of a secret nothing stays: neither in the result, nor with an observer.
        shown = without_secrets(answer, self._session)
        (receipt,) = await self._session.respond(answer)
        self._answers.append(Answered(shown, receipt))
        if not receipt.ok:
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

    async def _send_progress(self, progress: ToolProgress) -> None:
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

    async def _recall_starts(self) -> None:
        """The tools that were started before: by a host that is gone, or by another that is at work."""
        waiting = {request.request_id: request.seq for request in self._session.pending}
        if not waiting:
            return
        async for event in self._session.events(after=max(0, min(waiting.values()) - 1), types={"tool_update"}):
            if isinstance(event, ToolUpdate) and event.started and event.request_id in waiting:
                self._started[event.request_id] = event.seq

    def _is_lost(self, request: ToolRequest) -> bool:
        """Whether the tool of this request was started by a host that is gone."""
        started = self._started.get(request.request_id)
        return (
            started is not None and started <= self._attached.found_seq and not self._pipeline.runs.is_running(request)
        )

    def _is_anothers(self, request: ToolRequest) -> bool:
        """Whether another host runs the tool of this request, and will say what became of it."""
        return request.request_id in self._started and not self._is_lost(request)

    def _settled_elsewhere(self, request_id: str) -> None:
        """A response that this host is not just sending: what is asked or run for the request here is void."""
        serving = self._serving.get(request_id)
        if serving is not None and not serving.is_sending:
            serving.scope.cancel()

    async def _judge_again(self) -> None:
        """The mode was changed: decide again on what waits. The turn does not wait for it."""
        with anyio.CancelScope() as scope:
            self._judging.add(scope)
            try:
                await self._settings.waiting.judge_again()
            finally:
                self._judging.discard(scope)

    def _cancel_serving(self) -> None:
        for serving in self._serving.values():
            serving.scope.cancel()

    def _stop_serving(self, spared: _Serving | None = None) -> None:
        """Before an abort: cancel what is served, and keep what is to be said of the tools that run."""
        self._stopped += self._pipeline.runs.stopped()
        for serving in self._serving.values():
            if serving is not spared:
                serving.scope.cancel()

    async def _tell_stopped(self) -> None:
        stopped, self._stopped = self._stopped, []
        waiting = {request.request_id for request in self._session.pending}  # the others were settled elsewhere
        for answer in (item for item in stopped if item.request_id in waiting):
            try:
                await self._send(answer)
            except Exception as error:  # noqa: BLE001 - the abort that follows settles it
                logger.debug("what became of %s could not be said: %s", answer.request_id, _short(error))

    async def _abort_quietly(self, reason: str) -> None:
        """After a failure or cancellation here: nothing of the turn may go on unattended."""
        self._abort_started = True
        self._stop_serving()
        with anyio.CancelScope(shield=True):
            await self._children_settled()
        if not self._has_stream or self._final is not None or self._is_abort_lost:
            return
        with anyio.move_on_after(self._settings.abort_grace_s, shield=True):
            try:
                await self._tell_stopped()
                await self._session.abort(reason)
            except Exception as error:  # noqa: BLE001 - the failure is what is raised
                logger.warning("abort after a failure: %s", _short(error))

    def _wake(self) -> None:
        self._changed.set()

    # --- facts --------------------------------------------------------------------------------------------------

    def _facts(self, request: ToolRequest | ElicitationRequest) -> dict[str, Any]:
        above = self._attached.above
        path = (*(above.path if above is not None else ()), *self._principals.path(request))
        return {
            "principal": path[-1],
            "principal_path": path,
            "session_id": self._session.session_id,
            "turn_id": request.turn_id,
            "user_id": self._attached.user_id,
            "permission_mode": self._mode(request.turn_id),
            "root_session_id": self._session.session_id if above is None else above.root_session_id,
        }

    def _mode(self, turn_id: str | None) -> str:
        chosen, above = self._attached.turn_mode, self._attached.above
        mode = chosen[1] if chosen is not None and chosen[0] == turn_id else self._attached.permission_mode
        return mode if above is None else stricter(above.mode(), mode)

    def _set_turn_mode(self, turn_id: str | None, options: ExecutionOptions | None) -> None:
        if options is not None and options.permission_mode is not None:
            self._attached.turn_mode = (turn_id, options.permission_mode)

    def _caller(self, request: ToolRequest) -> Caller:
        """What a tool that runs an agent needs of this turn."""
        return Caller(
            request=request,
            attached=self._attached,
            settings=self._settings,
            facts=lambda: self._facts(request),
            asker=self._pipeline.asker,
            tools=self._pipeline.runs.time,
            send=self._send_progress,
            add_usage=self.add_usage,
            rest=self._rest,
        )

    def _set_limits(self, options: ExecutionOptions | None) -> None:
        """What a turn does not give comes from its session."""
        given = [item for item in (options, self._attached.execution) if item is not None]
        limits = next((item.limits for item in given if item.limits is not None), None)
        self._limits = tightest(self._session.descriptor.constraints, limits)
        self._deadline = next((item.deadline for item in given if item.deadline is not None), None)

    def _below(self) -> list[Usage]:
        """The model calls of this turn's sub-agents, also of those that were at work before a pause."""
        if self._attached.usage_below is None or self._attached.usage_below[0] != self._turn_id:
            self._attached.usage_below = (self._turn_id, [])
        return self._attached.usage_below[1]

    async def _rest(self) -> Rest:
        """What is left of the turn's limits, and of those of the turns above it."""
        active_s = anyio.current_time() - self._began_at - self._pipeline.people.total_s
        found = await rest_of(self._session, self._turn_id, self._limits, self._below(), active_s)
        found = dataclasses.replace(found, deadline=self._deadline)
        above = self._attached.above
        return found if above is None else found.under(await above.caller.rest())

    async def _find_request(self, request_id: str) -> ToolRequest | None:
        found = self._requests.get(request_id)
        if found is None:
            async for event in self._session.events(types={"tool_request"}):
                if isinstance(event, ToolRequest) and event.request_id == request_id and not event.partial:
                    found = event
        return found


def _short(error: Exception) -> str:
    """What may be logged of an error: one that is not the contract's may hold what a person said."""
    return error.what if isinstance(error, AgentSessionError) else type(error).__name__


def _require_event(event: object, where: str) -> None:
    """An executor that checks nothing may give anything. Raises :class:`ProtocolViolation`."""
    if not isinstance(event, Event):
        raise ProtocolViolation(
            "WIRE-02",
            f"the session gave a {type(event).__name__}, which is no event",
            where=where,
            fix="read what comes from elsewhere with parse_event()",
        )


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
