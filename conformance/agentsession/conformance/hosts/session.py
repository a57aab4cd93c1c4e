"""The session of a scene: faithful in what it records, and otherwise what its play makes of it.

For: scenes. Not for: any other use. Rules carried: none; it keeps those of executors as long as its play does.
May import: ``agentsession.protocol``, anyio, ``agent``, ``log``, ``readers``; ``adversary`` for types.

The play runs in a task of the suite's, not in the host's reader: a host that leaves or cancels its reading does not
stop it. An event goes through the contract's own state machine into the record and to the reader; what a play *puts*
goes to the reader alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.hosts.agent import Agent, Play
from agentsession.conformance.hosts.readers import RecordReader, Stream
from agentsession.protocol import (
    PROTOCOL_VERSION,
    AbortResult,
    AgentEnd,
    AgentSessionError,
    AgentStart,
    Answer,
    Content,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    ExecutionOptions,
    Initialize,
    Message,
    MessageInput,
    PendingRequest,
    Receipt,
    SessionConfig,
    SessionMachine,
    SessionState,
    SteerData,
    StreamEnd,
    Text,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    Unimplemented,
    args_digest,
    as_answers,
    as_content,
)

if TYPE_CHECKING:
    from agentsession.conformance.hosts.adversary import Adversary

__all__ = ["ROOT", "WINDOW", "AdversarySession"]

WINDOW: Final = 64
"""How many events wait for the host's reader at most."""
_TIME: Final = "2026-01-31T12:00:00.000Z"
ROOT: Final = "adversary"
"""The name of the agent."""


class AdversarySession:
    """One session: faithful in what it records, and otherwise what its play makes of it."""

    def __init__(self, executor: Adversary, session_id: str) -> None:
        self.session_id = session_id
        self.descriptor = executor.descriptor
        self.log = executor.log
        self.record: list[Event] = []
        self.waiting: dict[str, PendingRequest] = {}
        self.lost: AgentSessionError | None = None
        self.taken = 0
        """How many events the host's reader has taken."""
        self._executor = executor
        self._machine = SessionMachine(blame="peer")
        self._seqs = itertools.count(1)
        self._names = itertools.count(1)
        self._changed = anyio.Event()
        self._live: Stream | None = None
        self._ids: dict[str, str] = {}
        self._agent: Agent | None = None
        self._playing = anyio.CancelScope()
        self._is_paused = False
        self._open_message: str | None = None
        self._granted: list[ToolRequest] = []
        self.add(Initialize(protocol_version=PROTOCOL_VERSION, descriptor=self.descriptor))

    # -- what plays use -----------------------------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """An id that was not used yet."""
        return f"{prefix}-{next(self._names)}"

    def stamped(self, event: Event, **stamps: Any) -> Event:
        """The event as the next one of the stream that runs."""
        seq = next(self._seqs)
        made = {"id": f"e-{seq}", "seq": seq, "timestamp": _TIME, "session_id": self.session_id, **self._ids}
        return event.model_copy(update=made | stamps)

    def add(self, event: Event) -> None:
        """The event is recorded and goes to the reader."""
        made = self.stamped(event)
        self._machine.feed(made)
        self.record.append(made)
        match made:
            case ToolRequest() if not made.partial and made.needs != "none":
                self.waiting[made.request_id] = made
            case ElicitationRequest():
                self.waiting[made.request_id] = made
            case ToolResponse() | ElicitationResponse() | ToolDecision():
                self.waiting.pop(made.request_id, None)
            case Message(partial=False) if made.message_id == self._open_message:
                self._open_message = None
            case _:
                pass
        about = getattr(made, "request_id", None) or getattr(made, "reason", None) or ""
        self.log.add("agent", made.type, about, getattr(made, "name", None) or getattr(made, "kind", None))
        self.push(made)

    def add_delta(self, message_id: str, piece: list[Any], index: int) -> None:
        """A piece of a message, which nobody keeps."""
        # Made without validation: very many of them are made, and they are all the same.
        delta = self.stamped(
            Message.model_construct(
                type="message", message_id=message_id, role="agent", content=piece, partial=True, index=index
            )
        )
        self._open_message = message_id
        self._machine.feed(delta)
        self.push(delta)

    def push(self, thing: object) -> None:
        """To the reader, whatever it is."""
        if self._live is not None:
            self._live.push(thing)
        self.notify()

    async def room(self) -> None:
        """Wait until the reader is not far behind."""
        await checkpoint()
        while self._live is not None and len(self._live.queue) >= WINDOW:
            await self.change()

    def notify(self) -> None:
        """Something changed."""
        self._changed.set()

    async def change(self) -> None:
        """Wait for the next change."""
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()

    async def pause(self) -> None:
        """End the stream while requests wait, until it is continued."""
        self.add(AgentEnd(agent_id=ROOT, reason="input_required"))
        self._end("input_required")
        self._is_paused = True
        while self._is_paused:
            await self.change()

    def end(self, reason: str) -> None:
        """End the stream and the turn."""
        self.add(AgentEnd(agent_id=ROOT))
        self._end(reason)

    def cut(self) -> None:
        """The reader's iteration is over."""
        if self._live is not None:
            self._live.finish()
        self.notify()

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def _play(self, play: Play, agent: Agent) -> None:
        with anyio.CancelScope() as self._playing:
            try:
                await play(agent)
                while self.waiting and not self._is_over:
                    await self.pause()
                if not self._is_over:
                    self.end("completed")
            except AgentSessionError as error:
                if error is not self.lost:
                    raise  # a defect of the play
                self.push(error)
                self.cut()

    @property
    def _is_over(self) -> bool:
        """Whether the play has ended the turn itself, or cut it off."""
        return self._live is None or self._live.is_finished

    def _begin(self) -> Stream:
        self._ids = {"stream_id": self.new_id("t"), "turn_id": self._ids.get("turn_id") or self.new_id("u")}
        self._live = Stream(self, self._ids["stream_id"], self._ids["turn_id"])
        return self._live

    def _end(self, reason: str) -> None:
        self.add(StreamEnd(reason=reason, pending=list(self.waiting)))
        if self._live is not None:
            self._live.finish()
        self._live = None
        turn = self._ids.get("turn_id")
        self._ids = {"turn_id": turn} if reason == "input_required" and turn is not None else {}

    def settle_tool(self, request: ToolRequest) -> None:
        """Answer a call that nobody will answer: what the host has started is unknown (TOOL-16)."""
        status = self._machine.requests[request.request_id].status_if_left
        self.add(ToolResponse(request_id=request.request_id, name=request.name, status=status, source="host"))

    def _stop(self) -> None:
        """End the turn as an abort does."""
        self._playing.cancel()
        was_paused, self._is_paused = self._is_paused, False
        if was_paused:
            self._ids["stream_id"] = self.new_id("t")
        for request in [*self.waiting.values()]:
            if isinstance(request, ToolRequest):
                self.settle_tool(request)
            else:
                self.add(ElicitationResponse(request_id=request.request_id, action="cancel", source="host"))
        for request in self._granted:
            self.add(ToolResponse(request_id=request.request_id, name=request.name, status="unknown", source="host"))
        self._granted.clear()
        if self._open_message is not None:
            self.add(Message(message_id=self._open_message, content=[Text(text="")], interrupted=True, revised=True))
        if not was_paused:
            self.add(AgentEnd(agent_id=ROOT, reason="aborted"))
        self._end("aborted")

    # -- calls of the host --------------------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        return "closed" if self.lost is not None else self._machine.state

    @property
    def is_holding(self) -> bool:
        """Whether an abort, or closing, does not get through to this executor."""
        return self._agent is not None and (self._agent.on_abort is not None or self._agent.on_close is not None)

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return list(self.waiting.values())

    @property
    def last_seq(self) -> int:
        return self.record[-1].seq

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Stream:
        self._alive()
        if isinstance(input, (str, MessageInput)):
            return self._start(input)
        self.log.add("host", "continues the turn")
        self._machine.check_call("continue")
        for answer in () if input is None else as_answers(input):
            self.log.add("host", answer.kind, answer.request_id, answer)
            self._take(answer)
        stream = self._begin()
        self.add(AgentStart(agent_id=ROOT, resumed=True))
        for request in self._granted:
            self._run_own(request)
        self._granted.clear()
        self._is_paused = False
        self.notify()
        return stream

    def _start(self, given: str | MessageInput) -> Stream:
        self.log.add("host", "starts a turn")
        self._machine.check_call("message")
        if self._is_paused:
            self._stop()
        message = given if isinstance(given, MessageInput) else MessageInput(content=as_content(given))
        stream = self._begin()
        self.add(
            Message(
                message_id=message.message_id or self.new_id("m"), role="user", content=message.content, source="user"
            )
        )
        self.add(AgentStart(agent_id=ROOT))
        self._agent = Agent(self)
        play = self._executor.plays.pop(0) if self._executor.plays else _nothing
        self._executor.tasks.start_soon(self._play, play, self._agent)
        return stream

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        for answer in answers:
            self.log.add("host", answer.kind, answer.request_id, answer)
        await checkpoint()
        receipts: list[Receipt] = []
        for answer in answers:
            self._alive()
            own: Receipt | None = None
            if self._agent and self._agent.on_answer and not isinstance(answer, ToolProgress):  # which is no answer yet
                own = await self._agent.on_answer(answer)
            receipt = own if own is not None else self._take(answer)
            if receipt.status != "applied":
                self.log.add("agent", f"calls {receipt.status}", answer.request_id)
            receipts.append(receipt)
        return receipts

    def _take(self, answer: Answer) -> Receipt:
        request = self.waiting.get(answer.request_id)
        receipt = self._machine.check_answer(answer)
        if receipt.status != "applied" or request is None:
            return receipt
        if isinstance(request, ElicitationRequest):
            assert isinstance(answer, ElicitationAnswer)  # the machine has checked it
            shown = {} if answer.content is None or request.kind == "auth_required" else {"content": answer.content}
            self.add(ElicitationResponse(request_id=request.request_id, action=answer.action, source="host", **shown))
            return receipt
        self._take_tool(request, answer)
        return receipt

    def _take_tool(self, request: ToolRequest, answer: Answer) -> None:
        stamps: dict[str, Any] = {"request_id": request.request_id, "source": "host"}
        response: dict[str, Any] = stamps | {"name": request.name}
        match answer:
            case ToolProgress():
                self.add(ToolUpdate(**stamps, progress=answer.progress, started=answer.started or None))
            case ToolResult():
                status = "unknown" if answer.unknown else "failed" if answer.is_error else "completed"
                self.add(ToolResponse(**response, data=answer.data, is_error=answer.is_error, status=status))
            case ToolDenial():
                self.add(ToolDecision(**stamps, decision="denied", args_digest=args_digest(request.args or {})))
                self.add(ToolResponse(**response, status="denied"))
            case ToolGrant():
                args = request.args or {} if answer.args is None else answer.args
                self.add(ToolDecision(**stamps, decision="granted", args=answer.args, args_digest=args_digest(args)))
                if self._machine.state == "running":
                    self._run_own(request)
                else:
                    self._granted.append(request)
            case _:
                raise AssertionError(f"the machine let a {answer.kind} pass")

    def _run_own(self, request: ToolRequest) -> None:
        self.log.add("agent", "runs its own", request.name)
        self.add(ToolResponse(request_id=request.request_id, name=request.name))

    async def steer(self, data: Content | SteerData) -> Receipt:
        raise Unimplemented("the executor of a scene takes no steer")

    async def update(self, config: SessionConfig) -> Receipt:
        raise Unimplemented("the executor of a scene takes no update")

    async def abort(self, reason: str | None = None) -> AbortResult:
        self.log.add("host", "aborts")
        await checkpoint()
        if self._agent is not None and self._agent.on_abort is not None:
            await self._agent.on_abort()
        self._alive()
        if self._machine.state not in ("running", "input_required"):
            return AbortResult(status="idle")
        self._stop()
        return AbortResult(status="aborted")

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> RecordReader:
        def wanted(event: Event) -> bool:
            return (
                (types is None or event.type in types)
                and stream_id in (None, event.stream_id)
                and thread_id in (None, event.thread_id)
            )

        return RecordReader(self, after or 0, follow, wanted)

    async def aclose(self) -> None:
        self.log.add("host", "closes the session")
        await checkpoint()
        if self._agent is not None and self._agent.on_close is not None:
            await self._agent.on_close()
        if self.lost is None and self._machine.state in ("running", "input_required"):
            self._stop()
        self._playing.cancel()
        self._machine.close()
        self.notify()

    def _alive(self) -> None:
        if self.lost is not None:
            raise self.lost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _nothing(agent: Agent) -> None:
    """The host takes a turn that the scene has no play for."""
