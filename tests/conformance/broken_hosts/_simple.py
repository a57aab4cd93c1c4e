"""A small host, whole and correct, of which the broken ones change one thing each.

For: the modules beside it, and to show that the port of the host suite needs no ``agentsession.host``.
Not for: use as a host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

import anyio
from anyio.abc import TaskGroup
from jsonschema import Draft202012Validator

from agentsession.conformance.hosts.harness import FEATURES, HostHarness, HostRun, HostTool, Situation, Word
from agentsession.protocol import (
    AbortTimeout,
    AgentExecutor,
    AgentSession,
    Answer,
    ConnectionLost,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    EventStream,
    ExecutionOptions,
    JsonError,
    Message,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    StreamEnd,
    ToolDenial,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    check_json,
    grant,
    plain_text,
)

_TRIES: Final = 3


class SimpleHost(HostHarness):
    """Sets simple hosts up. A fault overrides :attr:`run_class`."""

    features: Collection[str] = FEATURES
    run_class: ClassVar[type[SimpleRun]]

    async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
        tools = [tool.descriptor for tool in situation.tools]
        session = await executor.open(OpenOptions(execution=ExecutionOptions(tools=tools)))
        return self.run_class(session, situation)


class SimpleRun(HostRun):
    """One session of a simple host."""

    def __init__(self, session: AgentSession, situation: Situation) -> None:
        self.session, self.situation = session, situation
        self.tools: Mapping[str, HostTool] = {tool.name: tool for tool in situation.tools}
        self.calls: dict[str, ToolRequest] = {}
        self.taken: set[str] = set()
        self.started: set[str] = set()
        self.cursor = 0

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def turn(self, message: str) -> str:
        self.serving: dict[str, anyio.CancelScope] = {}
        self.sending: set[str] = set()
        self.is_aborted = False
        self.failure: Exception | None = None
        self.end: StreamEnd | None = None
        self.over = anyio.Event()
        self.changed = anyio.Event()
        try:
            async with anyio.create_task_group() as self.tasks:
                with anyio.CancelScope() as self.driving:
                    try:
                        await self.drive(message)
                    except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                        self.fail(error)
                self.tasks.cancel_scope.cancel()
        finally:
            self.over.set()
        return self.reason()

    def reason(self) -> str:
        self.raise_failure()
        assert self.end is not None
        return self.end.reason

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def drive(self, message: str) -> None:
        await self.read(self.session.stream(message))
        while self.end is not None and self.end.reason == "input_required":
            self.serve()
            await self.all_served()
            self.raise_failure()
            if not self.is_aborted and self.end.reason == "input_required":
                await self.read(self.session.stream())

    async def read(self, stream: EventStream) -> None:
        async with stream:
            await self.follow(stream)
        if stream.end is None:
            self.cut_off()

    async def follow(self, stream: EventStream) -> None:
        async for event in stream:
            self.check(event)
            await self.see(event)

    def check(self, event: object) -> None:
        if not isinstance(event, Event):
            raise ProtocolViolation("WIRE-02", f"a {type(event).__name__} is no event")

    def cut_off(self) -> None:
        raise ConnectionLost("the stream stopped")

    async def see(self, event: Event) -> None:
        self.cursor = max(self.cursor, event.seq)
        await self.show(event)
        if isinstance(event, ToolRequest):
            self.calls[event.request_id] = event
        if isinstance(event, (ToolResponse, ElicitationResponse)):
            self.settled(event.request_id)
        if isinstance(event, StreamEnd):
            self.end = event
        self.serve()

    async def show(self, event: Event) -> None:
        if not (isinstance(event, Message) and event.partial):
            self.situation.prints(self.escaped(_words(event)))
        await self.situation.show(event)

    def escaped(self, text: str) -> str:
        return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)

    def settled(self, request_id: str) -> None:
        if request_id in self.serving and request_id not in self.sending:
            self.serving[request_id].cancel()

    async def all_served(self) -> None:
        """Wait for what is served, and read the record meanwhile: others may answer, or end the turn."""
        async with anyio.create_task_group() as watching:
            watching.start_soon(self.watch)
            while self.serving and self.failure is None and not self.is_aborted:
                await self.changed.wait()
                self.changed = anyio.Event()
            watching.cancel_scope.cancel()

    async def watch(self) -> None:
        try:
            async for event in self.session.events(after=self.cursor, follow=True):
                await self.see(event)
        except Exception as error:  # noqa: BLE001  # raised by the driver
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The turn ends with this error."""
        self.failure = self.failure or error
        self.driving.cancel()
        self.changed.set()

    # -- serving ------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        for request in self.session.pending:
            if self.is_new(request) and not self.is_aborted:
                self.taken.add(request.request_id)
                self.serving[request.request_id] = anyio.CancelScope()
                self.start(self.tasks, request)

    def is_new(self, request: PendingRequest) -> bool:
        return request.request_id not in self.taken

    def start(self, tasks: TaskGroup, request: PendingRequest) -> None:
        tasks.start_soon(self.answer, request)

    async def answer(self, request: PendingRequest) -> None:
        try:
            with self.serving.setdefault(request.request_id, anyio.CancelScope()):
                await self.answer_until_taken(request)
        except Exception as error:  # noqa: BLE001  # raised by the turn
            self.lost(error)
        finally:
            self.serving.pop(request.request_id, None)
            self.changed.set()

    def lost(self, error: Exception) -> None:
        self.fail(error)

    async def answer_until_taken(self, request: PendingRequest) -> None:
        if self.is_void():
            return
        answer = await self.make(request)
        for tries in range(self.tries):
            if self.is_void() or answer is None:
                return
            self.sending.add(request.request_id)
            receipt = await self.send(answer)
            if receipt.status != "invalid":
                return
            answer = self.again(request, answer, tries)

    tries = _TRIES + 1

    def is_void(self) -> bool:
        """Whether nothing may be sent or begun any more."""
        return self.is_aborted

    def again(self, request: PendingRequest, answer: Answer, tries: int) -> Answer:
        """What is sent after an answer that the session refused."""
        if isinstance(request, ElicitationRequest):
            return answer if tries < _TRIES - 1 else self.question(request.request_id, "cancel", None)
        return self.error(request.request_id, "the answer was refused")

    async def send(self, answer: Answer) -> Receipt:
        (receipt,) = await self.session.respond(answer)
        return receipt

    async def make(self, request: PendingRequest) -> Answer | None:
        if isinstance(request, ElicitationRequest):
            return await self.make_question(request)
        try:
            args = self.read_args(request)
        except JsonError as error:
            return self.error(request.request_id, str(error))
        tool = self.tools.get(request.name)
        if request.needs == "result" and tool is None:
            return self.unknown(request)
        if tool is not None and not self.fits_request(tool, args):
            return self.error(request.request_id, "the arguments do not fit")
        if request.needs not in ("result", "grant"):
            return self.unknown_need(request)
        word, decided = await self.decide(request, tool, args)
        if word != "allow":
            return self.denied(request)
        if tool is None:
            return self.grant(request, None if decided == args else decided)
        if not await self.tell_start(request.request_id) or self.is_void():
            return None
        return await self.run(request.request_id, tool, decided)

    async def tell_start(self, request_id: str) -> bool:
        """Whether it is this host that has started the tool."""
        if request_id not in self.started:
            (receipt,) = await self.session.respond(ToolProgress(request_id=request_id, started=True))
            if receipt.status != "applied":
                return False
            self.started.add(request_id)
        return True

    def grant(self, request: ToolRequest, edited: dict[str, Any] | None) -> Answer:
        return grant(request.request_id, edited)

    def unknown_need(self, request: ToolRequest) -> Answer:
        return self.denied(request)

    def unknown(self, request: ToolRequest) -> Answer:
        return self.error(request.request_id, "there is no such tool")

    def denied(self, request: ToolRequest) -> Answer:
        return ToolDenial(request_id=request.request_id, reason="not allowed")

    def read_args(self, request: ToolRequest) -> dict[str, Any]:
        args = check_json({} if request.args is None else request.args)
        if not isinstance(args, dict):
            raise JsonError("", "no object", "an object")
        return args

    def fits_request(self, tool: HostTool, args: dict[str, Any]) -> bool:
        return self.fits(tool, args)

    def fits(self, tool: HostTool, args: dict[str, Any]) -> bool:
        return Draft202012Validator(tool.descriptor.parameters_schema or {}).is_valid(args)

    def copied(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """What others may change."""
        copy: dict[str, Any] = check_json(dict(args))
        return copy

    # -- policy and people --------------------------------------------------------------------------------------------

    async def decide(
        self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        word = self.policy(request, args)
        if word != "ask":
            return word, args
        said = await self.approve(request, args)
        if not self.is_yes(said) or self.is_void():
            return "deny", args
        if said.args is None:
            return "allow", args
        return self.edited(request, tool, said.args), said.args

    def edited(self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]) -> str:
        if tool is not None and not self.fits(tool, args):
            return "deny"
        return "deny" if self.policy(request, args) == "deny" else "allow"

    def policy(self, request: ToolRequest, args: Mapping[str, Any]) -> str:
        try:
            word = self.situation.decide(request.name, self.copied(args))
        except Exception:  # noqa: BLE001  # a policy that fails has denied
            return "deny"
        return self.meaning(word)

    def meaning(self, word: str | None) -> str:
        return word if word in ("allow", "ask") else "deny"

    def is_yes(self, word: Word) -> bool:
        return word.verdict == "yes"

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        if self.situation.person is None:
            return Word("no")
        try:
            return await self.situation.person.approve(request.name, self.copied(args))
        except Exception:  # noqa: BLE001  # a channel that fails has not said yes
            return Word("no")

    async def make_question(self, request: ElicitationRequest) -> Answer:
        call = self.calls.get(request.tool_request_id or "")
        if call is not None and not self.may_be_confirmed(call):
            return self.question(request.request_id, "decline", None)
        if self.situation.person is None:
            return self.question(request.request_id, "decline", None)
        try:
            action, content = await self.situation.person.answer(request.kind, request.message)
        except Exception:  # noqa: BLE001  # a channel that fails has not said yes
            return self.question(request.request_id, "cancel", None)
        return self.question(request.request_id, action, content if action == "accept" else None)

    def may_be_confirmed(self, call: ToolRequest) -> bool:
        return self.policy(call, call.args or {}) != "deny"

    def question(self, request_id: str, action: str, content: Any) -> ElicitationAnswer:
        given = {} if content is None else {"content": content}
        return ElicitationAnswer(request_id=request_id, action=action, **given)

    # -- tools --------------------------------------------------------------------------------------------------------

    async def run(self, request_id: str, tool: HostTool, args: dict[str, Any]) -> Answer:
        try:
            with anyio.move_on_after(self.limit_s()):
                return ToolResult(request_id=request_id, data=await tool.run(args))
        except Exception as error:  # noqa: BLE001  # a tool's failure is a result
            return self.failed(request_id, error)
        return self.error(request_id, "it took too long")

    def limit_s(self) -> float | None:
        return self.situation.tool_limit_s

    def failed(self, request_id: str, error: Exception) -> Answer:
        return self.error(request_id, type(error).__name__)

    def error(self, request_id: str, text: str) -> Answer:
        return ToolResult(request_id=request_id, data={"error": text}, is_error=True)

    # -- ends ---------------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        self.is_aborted = True
        self.stop()
        try:
            await self.abort_session()
        except Exception as error:
            self.fail(error)
            raise
        self.end = StreamEnd(reason="aborted")
        self.changed.set()

    def stop(self) -> None:
        """Cancel what is served."""
        for scope in self.serving.values():
            scope.cancel()

    async def abort_session(self) -> None:
        with anyio.move_on_after(self.situation.grace_s) as waiting:
            await self.session.abort()
        if waiting.cancelled_caught:
            raise AbortTimeout("the executor does not end")

    async def close(self) -> None:
        if hasattr(self, "over") and not self.over.is_set():
            with contextlib.suppress(Exception):
                await self.abort()
            await self.over.wait()
        await self.close_session()

    async def close_session(self) -> None:
        with anyio.move_on_after(self.situation.grace_s):
            await self.session.aclose()


def _words(event: Event) -> str:
    """What a person reads of an event."""
    fields = vars(event)
    found = [event.type, *(str(fields.get(name, "")) for name in ("name", "message", "kind", "reason"))]
    return " ".join([*found, plain_text(event.content) if isinstance(event, Message) else ""])


SimpleHost.run_class = SimpleRun
harness = SimpleHost()
