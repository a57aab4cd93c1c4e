"""Hosts that are wrong in requests, answers and questions. Rules broken: HOST-09 to HOST-21, HOST-34."""

from __future__ import annotations

import contextlib
import copy
import logging
import traceback
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from tests.conformance.broken_hosts._broken import BrokenHost, broken_host

from agentsession.conformance.hosts.harness import HostTool
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    EventStream,
    PendingRequest,
    Receipt,
    ToolRequest,
    ToolResult,
)


@broken_host("HOST-09")
class DoesNotCheckArguments(BrokenHost):
    """The arguments go to the tool as the model sent them."""

    def fits_request(self, tool: HostTool, args: dict[str, Any]) -> bool:
        return True


@broken_host("HOST-09")
class TrustsThatArgumentsAreJson(BrokenHost):
    """Nobody looks whether the arguments are JSON at all."""

    def read_args(self, request: ToolRequest) -> dict[str, Any]:
        return request.args or {}

    def copied(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(args))


@broken_host("HOST-10")
class FallsOverAnUnknownTool(BrokenHost):
    """A call of a tool that there is not ends the turn."""

    def unknown(self, request: ToolRequest) -> Answer:
        raise LookupError(request.name)


@broken_host("HOST-10")
class SaysThatAnUnknownToolRan(BrokenHost):
    """A call of a tool that there is not is answered with an empty result."""

    def unknown(self, request: ToolRequest) -> Answer:
        return ToolResult(request_id=request.request_id)


@broken_host("HOST-11")
class AnswersTwice(BrokenHost):
    """Each answer is sent again, to be sure."""

    async def send(self, answer: Answer) -> Receipt:
        receipt = await super().send(answer)
        await super().send(answer)
        return receipt


@broken_host("HOST-11")
class SharesOneVariable(BrokenHost):
    """The calls that run side by side share the variable that holds their arguments."""

    async def run(self, request_id: str, tool: HostTool, args: dict[str, Any]) -> Answer:
        self.args = args
        await checkpoint()
        return await super().run(request_id, tool, self.args)


@broken_host("HOST-12")
class BeginsAgainAfterAPause(BrokenHost):
    """What is pending after a pause is served, also where its tool runs already."""

    async def read(self, stream: EventStream) -> None:
        await super().read(stream)
        self.taken.clear()


@broken_host("HOST-12")
class RunsAgainWhatWasRefused(BrokenHost):
    """When the session refuses a result, the tool is run for another one."""

    async def answer_until_taken(self, request: PendingRequest) -> None:
        if isinstance(request, ElicitationRequest):
            await super().answer_until_taken(request)
            return
        for _ in range(self.tries):
            answer = None if self.is_void() else await self.make(request)
            if self.is_void() or answer is None:
                return
            self.sending.add(request.request_id)
            if (await self.send(answer)).status != "invalid":
                return


@broken_host("HOST-13")
class KeepsOnWithWhatWasSettled(BrokenHost):
    """A response that somebody else caused is not looked at."""

    def settled(self, request_id: str) -> None: ...


@broken_host("HOST-13")
class ReadsNothingInAPause(BrokenHost):
    """The record is read while a stream runs, and not while the turn is paused."""

    async def watch(self) -> None: ...


@broken_host("HOST-11")
class InsistsOnAStaleAnswer(BrokenHost):
    """An answer that came too late is given again."""

    async def send(self, answer: Answer) -> Receipt:
        receipt = await super().send(answer)
        return await super().send(answer) if receipt.status == "stale" else receipt


@broken_host("HOST-14")
class ServesWhateverItSees(BrokenHost):
    """A request that is seen is served, whether it waits or not."""

    async def see(self, event: Event) -> None:
        await super().see(event)
        if isinstance(event, ToolRequest) and self.is_new(event) and not self.is_aborted:
            self.taken.add(event.request_id)
            self.serving[event.request_id] = anyio.CancelScope()
            self.start(self.tasks, event)


@broken_host("HOST-14")
class ServesWhatComesUnderAUsedId(BrokenHost):
    """A request that is told from the one before by its tool alone is served under the same id."""

    async def see(self, event: Event) -> None:
        known = self.calls.get(event.request_id) if isinstance(event, ToolRequest) else None
        await super().see(event)
        if isinstance(event, ToolRequest) and known is not None and known.name != event.name:
            self.start(self.tasks, event)


@broken_host("HOST-15")
class DoesOneThingAtATime(BrokenHost):
    """A request is served when the one before it was answered."""

    def start(self, tasks: TaskGroup, request: PendingRequest) -> None:
        if not hasattr(self, "lock"):
            self.lock = anyio.Lock()
        tasks.start_soon(self._in_turn, request)

    async def _in_turn(self, request: PendingRequest) -> None:
        async with self.lock:
            await self.answer(request)


@broken_host("HOST-16")
class TellsTheTraceback(BrokenHost):
    """The model is told of a tool's failure with its traceback."""

    def failed(self, request_id: str, error: Exception) -> Answer:
        return self.error(request_id, "".join(traceback.format_exception(error)))


@broken_host("HOST-16")
class FallsOverItsTools(BrokenHost):
    """What a tool raises ends the turn."""

    def failed(self, request_id: str, error: Exception) -> Answer:
        raise error


@broken_host("HOST-17")
class TellsWhatTheExceptionSays(BrokenHost):
    """The model is told of a tool's failure in the exception's own words."""

    def failed(self, request_id: str, error: Exception) -> Answer:
        return self.error(request_id, str(error))


@broken_host("HOST-18")
class HasNoLimit(BrokenHost):
    """The time limit of a tool is not looked at."""

    def limit_s(self) -> float | None:
        return None


@broken_host("HOST-19")
class SendsContentWithANo(BrokenHost):
    """What was typed goes along with a decline, which the session refuses."""

    def question(self, request_id: str, action: str, content: Any) -> ElicitationAnswer:
        if action == "decline" and content is None and self.situation.person is not None:
            content = {"region": "us"}
        return super().question(request_id, action, content)


@broken_host("HOST-19")
class AnswersForThePerson(BrokenHost):
    """A question that the person has closed is answered with a default."""

    async def make_question(self, request: ElicitationRequest) -> Answer:
        answer = await super().make_question(request)
        if isinstance(answer, ElicitationAnswer) and answer.action == "cancel" and request.requested_schema is not None:
            return self.question(request.request_id, "accept", {"region": "eu"})
        return answer


@broken_host("HOST-19")
class AcceptsWhereTheChannelFails(BrokenHost):
    """An approval that was cancelled, as it is where the channel fails, is accepted for the turn to go on."""

    async def make_question(self, request: ElicitationRequest) -> Answer:
        answer = await super().make_question(request)
        is_cancelled = isinstance(answer, ElicitationAnswer) and answer.action == "cancel"
        if is_cancelled and request.kind == "user_approval":
            return self.question(request.request_id, "accept", None)
        return answer


@broken_host("HOST-20")
class TriesForEver(BrokenHost):
    """The same answer is given until the session takes it."""

    tries = 1_000

    def again(self, request: PendingRequest, answer: Answer, tries: int) -> Answer:
        return answer if isinstance(request, ElicitationRequest) else super().again(request, answer, tries)


@broken_host("HOST-21")
class LogsAnswers(BrokenHost):
    """Each answer is logged, for debugging."""

    async def send(self, answer: Answer) -> Receipt:
        logging.getLogger("a.host").debug("sent: %s", answer.to_wire_json())
        return await super().send(answer)


@broken_host("HOST-21")
class PutsTheAnswerIntoItsError(BrokenHost):
    """The error of a turn that was lost says what was to be answered."""

    async def send(self, answer: Answer) -> Receipt:
        try:
            return await super().send(answer)
        except Exception as error:
            with contextlib.suppress(AttributeError):
                raise RuntimeError(f"could not send {answer.content}") from error  # type: ignore[union-attr]
            raise


@broken_host("HOST-21")
class TellsWhatItCouldNotSendAsItCloses(BrokenHost):
    """An answer that was lost is kept, and the error of closing says what it was."""

    unsent: Any = None

    async def send(self, answer: Answer) -> Receipt:
        try:
            return await super().send(answer)
        except Exception:
            self.unsent = answer.content if isinstance(answer, ElicitationAnswer) else None
            raise

    async def close(self) -> None:
        await super().close()
        if self.unsent is not None:
            raise RuntimeError(f"never sent: {self.unsent}")


@broken_host("HOST-34")
class RunsBeforeItTells(BrokenHost):
    """Tools run with nothing in the record, so that after a crash they run again."""

    async def tell_start(self, request_id: str) -> bool:
        return True


@broken_host("HOST-34")
class DoesNotReadTheReceiptOfAStart(BrokenHost):
    """That another host has started the tool is not looked at."""

    async def tell_start(self, request_id: str) -> bool:
        await super().tell_start(request_id)
        return True
