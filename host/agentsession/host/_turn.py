"""A whole turn: read the stream, have each request served as soon as it is emitted, continue until the turn's end.

Not for: answering requests (``_serving.py``, ``_requests.py``). Rules carried: TURN-01, CTL-01.
May import: anyio, ``_attached``, ``_lineage``, ``_results``, ``_serving``, ``_settings``, ``_turn_facts``,
``_turn_limits``, ``protocol``.

Theory of operation. One task reads; each pending request is served by a task of its own, in the turn's task group,
which is entered and left inside :meth:`Turn.run`. Answers go to ``respond`` at once, so that a run need not pause.
When the stream ends ``input_required`` the reader waits until every request was answered or left, watching the record
meanwhile (another client may answer, or abort), and then continues with ``stream()``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from agentsession.host._attached import Attached
from agentsession.host._lineage import Caller
from agentsession.host._results import TurnResult
from agentsession.host._serving import Serving, short
from agentsession.host._settings import Settings, observe
from agentsession.host._turn_facts import TurnFacts
from agentsession.host._turn_limits import TurnLimits
from agentsession.protocol import (
    AbortTimeout,
    AgentEnd,
    AgentSession,
    AgentStart,
    Answer,
    ConnectionLost,
    ElicitationResponse,
    Error,
    Event,
    EventStream,
    ExecutionOptions,
    Message,
    MessageInput,
    NothingToContinue,
    ProtocolViolation,
    SessionUpdate,
    StreamActive,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
    as_answers,
    plain_text,
)

__all__ = ["Turn"]

logger = logging.getLogger("agentsession.host")


class Turn:
    """One turn of one session; made and run by :class:`agentsession.host.Host`."""

    def __init__(
        self,
        settings: Settings,
        session: AgentSession,
        attached: Attached,
        on_stream: Callable[[EventStream], None] | None = None,
    ) -> None:
        self._on_stream = on_stream
        self._settings = settings
        self._session = session
        self._attached = attached
        self._facts = TurnFacts(attached)
        self._serving = Serving(settings, attached, self._facts, self, self._caller)
        self._limits = TurnLimits(attached, lambda: self._serving.pipeline.people.total_s)
        self._changed = anyio.Event()
        self._has_stream = False
        self._began = 0
        self._waiting = anyio.CancelScope()
        self._driving = anyio.CancelScope()
        self._abort_done = anyio.Event()
        self._is_abort_lost = False
        self._final: StreamEnd | None = None
        self._failure: Exception | None = None
        self._messages: list[str] = []
        self._errors: list[Error] = []

    async def run(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> TurnResult:
        """Run until the turn ends, or waits for what nobody here will answer."""
        self._limits.begin(options)
        try:
            return await self._run(given, options)
        finally:
            self._limits.end()

    async def _run(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> TurnResult:
        started = anyio.current_time()
        self._began = self._session.last_seq
        for request in () if isinstance(given, (str, MessageInput)) else self._session.pending:
            self._facts.set_turn_mode(request.turn_id, options)
        end: StreamEnd | None = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            self._serving.begin(tasks)
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
            self._serving.end()
        if failure is not None:
            raise failure
        assert end is not None  # _drive returned
        pipeline = self._serving.pipeline
        return TurnResult(
            end=end,
            text=next((text for text in reversed(self._messages) if text), ""),
            messages=tuple(self._messages),
            answers=tuple(self._serving.answers),
            unanswered=tuple(request.request_id for request in self._session.pending),
            usage=self._limits.usage,
            errors=tuple(self._errors),
            still_running=tuple(pipeline.runs.still_running),
            elapsed_s=anyio.current_time() - started,
            people_s=pipeline.people.total_s,
            tools_s=pipeline.runs.time.total_s,
        )

    async def abort(self, reason: str | None) -> None:
        """End the turn: host tools are cancelled, the session is aborted. Raises :class:`AbortTimeout`."""
        self.stop()
        try:
            await self._children_settled()
            with anyio.move_on_after(self._settings.abort_grace_s):
                await self._serving.tell_stopped()
            await self._abort_session(reason)
        except Exception as error:
            self.give_up(error)
            raise
        finally:
            self._abort_done.set()
            self.wake()

    def stop(self) -> None:
        """The first step of an abort, which waits for nothing: nothing more begins, and what is served is cancelled."""
        self._serving.stop()

    def give_up(self, error: Exception) -> None:
        """End the turn with this error: the end that the reader waits for may never come."""
        self._is_abort_lost = True
        self.failed(error, at_once=True)

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
            await self._facts.principals.recall()
            waits_in = next((request.turn_id for request in self._session.pending), None)
            if waits_in is not None:  # its tools, such as sub-agents, run before its stream goes on
                await self._limits.found(waits_in, goes_on=True)
            await self._serving.recall_starts()
        if given is not None and not isinstance(given, (str, MessageInput)):
            await self._serving.give(as_answers(given))
        while end is None or end.reason == "input_required":
            self._serving.serve_pending()
            await self._settled()
            if self._serving.is_stopped:
                await self._abort_done.wait()
            if self._failure is not None:
                raise self._failure
            if self._serving.is_stopped:
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
        with self._serving.between.stream():
            return await self._read(message, options)

    async def _read(self, message: str | MessageInput | None, options: ExecutionOptions | None) -> StreamEnd:
        async with self._session.stream(message, options) as stream:
            self._has_stream = True
            if self._on_stream is not None:
                self._on_stream(stream)
            self._facts.turn_id = stream.turn_id
            await self._limits.found(stream.turn_id, goes_on=message is None)
            self._limits.tell()
            self._facts.set_turn_mode(stream.turn_id, options)
            async for event in stream:
                _require_event(event, f"stream {stream.stream_id}")
                if event.seq > self._attached.cursor + 1:
                    await self._catch_up(event.seq)
                await self._take(event)
                self._serving.serve(event)
        if stream.end is None:
            raise ConnectionLost("the stream stopped without its stream_end", where=f"stream {stream.stream_id}")
        if stream.end.reason != "input_required":
            self._serving.cancel()
        return stream.end

    async def _take(self, event: Event) -> None:
        """Observe one event and keep what the turn needs of it."""
        if event.seq > self._attached.cursor:  # else a re-attached stream: the observer had it
            self._attached.cursor = event.seq
            await observe(self._settings.observer, event)
        turn_id = self._facts.turn_id
        if event.turn_id is not None and turn_id is not None and event.turn_id != turn_id:
            return  # the settlement of the turn before
        match event:
            case AgentStart() | AgentEnd():
                self._facts.principals.bracket(event)
            case ToolRequest(partial=False):
                self._facts.requests[event.request_id] = event
            case ToolUpdate(started=True):
                self._serving.started(event)
            case ToolResponse() | ElicitationResponse():
                self._serving.settled_elsewhere(event.request_id)
                if isinstance(event, ToolResponse):
                    self._limits.count_response(event)
            case Message(partial=False, role="agent", thread_id=None):
                self._messages.append(plain_text(event.content))
            case Usage():
                self._limits.count(event)
            case Error():
                self._errors.append(event)
            case SessionUpdate(source="host") if event.permission_mode is not None:
                self._attached.permission_mode = event.permission_mode
                if event.seq > self._began:  # newer than the turn's options
                    self._attached.turn_mode = None
                self._serving.judge_again()
            case StreamEnd() if event.reason != "input_required":
                self._final = event
            case _:
                pass

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
        if self._serving.is_idle:
            return
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch)
            while not self._is_watched_enough():
                self._changed = anyio.Event()
                await self._changed.wait()
            self._waiting.cancel()

    def _is_watched_enough(self) -> bool:
        return self._serving.is_idle or self._final is not None or self._failure is not None or self._serving.is_stopped

    async def _watch(self) -> None:
        reader = self._session.events(after=self._attached.cursor, follow=True)
        try:
            while not self._is_watched_enough():
                event: Event | None = None
                with anyio.CancelScope() as self._waiting:  # only waiting is cut off, never an observer at its event
                    event = await anext(reader, None)
                if event is None:  # the session was closed; what waits there may go on waiting, for whoever loads it
                    self._serving.cancel()
                    return
                _require_event(event, f"record of session {self._session.session_id}")
                await self._take(event)
                self.wake()
        except Exception as error:  # noqa: BLE001 - raised by the reader, who waits for this
            self._failure = error
            self.wake()
        finally:
            with anyio.CancelScope(shield=True):
                await reader.aclose()

    async def _abort_quietly(self, reason: str) -> None:
        """After a failure or cancellation here: nothing of the turn may go on unattended."""
        self._serving.stop()
        with anyio.CancelScope(shield=True):
            await self._children_settled()
        if not self._has_stream or self._final is not None or self._is_abort_lost:
            return
        with anyio.move_on_after(self._settings.abort_grace_s, shield=True):
            try:
                await self._serving.tell_stopped()
                await self._session.abort(reason)
            except Exception as error:  # noqa: BLE001 - the failure is what is raised
                logger.warning("abort after a failure: %s", short(error))

    @property
    def is_timed(self) -> bool:
        """Whether the turn may be at work for so long and no longer."""
        return self._limits.is_timed

    def wake(self) -> None:
        """Look again whether there is something to wait for."""
        self._changed.set()

    def failed(self, error: Exception, *, at_once: bool) -> None:
        """End the turn with this error; ``at_once`` without waiting for the stream."""
        self._failure = error
        if at_once:
            self._driving.cancel()

    def _caller(self, request: ToolRequest) -> Caller:
        """What a tool that runs an agent needs of this turn."""
        facts, pipeline = self._facts, self._serving.pipeline
        return Caller(
            request=request,
            attached=self._attached,
            settings=self._settings,
            facts=lambda: facts.of(request),
            asker=pipeline.asker,
            tools=pipeline.runs.time,
            send=self._serving.send_progress,
            limits=self._limits,
            answers=request.request_id,
        )


def _require_event(event: object, where: str) -> None:
    """An executor that checks nothing may give anything. Raises :class:`ProtocolViolation`."""
    if not isinstance(event, Event):
        raise ProtocolViolation(
            "WIRE-02",
            f"the session gave a {type(event).__name__}, which is no event",
            where=where,
            fix="read what comes from elsewhere with parse_event()",
        )
