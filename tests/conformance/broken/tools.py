"""Executors that break the rules of TOOL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.conformance.broken._script import replaced
from tests.conformance.broken._wrap import Broken, Session, Stream, StreamInput, answers_in, beside, broken

from agentsession.conformance.script import Calls, Say, Script, Step
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Answer,
    Event,
    ExecutionOptions,
    Message,
    Receipt,
    StreamEnd,
    Text,
    ToolDecision,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
)


@broken("TOOL-01")
class ForgetsTheResponseOfAToolOfItsOwn(Broken):
    """A tool that nobody had to be asked about gets no response."""

    # R06, R25: a call without a response stays in the history.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        asked: set[str] = session.memory.setdefault("asked", set())
        if isinstance(event, ToolRequest) and event.needs == "none":
            asked.add(event.request_id)
        if not (isinstance(event, ToolResponse) and event.request_id in asked):
            yield event


@broken("TOOL-01")
class AnswersACallTwice(Broken):
    """The response to a call is recorded when it comes and once more with the next message."""

    # R100: the same response is stored twice.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, ToolResponse):
            session.memory["last"] = event
        last: ToolResponse | None = session.memory.get("last")
        if isinstance(event, AgentStart) and last is not None and last.turn_id == event.turn_id:
            del session.memory["last"]
            yield last.model_copy(update={"id": f"{event.id}-again", "stream_id": event.stream_id})


@broken("TOOL-02")
class ReportsOnACallThatNobodyMade(Broken):
    """Progress comes under the model's id of a call, which no request has."""

    # R01, R42: a response and its call do not find each other.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, ToolRequest) and not event.partial:
            yield beside(event, ToolUpdate, "on", request_id=f"call_{event.request_id}", progress=0.0)


@broken("TOOL-03")
class ShowsACallTwice(Broken):
    """A call is requested once as it is streamed and once as it is whole, both times to be answered."""

    # R08: the card for an approval is rendered twice.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, ToolRequest):
            yield event.model_copy(update={"id": f"{event.id}-again"})


@broken("TOOL-04")
class TrustsTheModelsArguments(Broken):
    """Arguments go to a tool as they came, whatever its schema says."""

    # R11, R58: what the model made up runs.
    def script(self, script: Script) -> Script:
        def change(step: Step) -> Sequence[Step]:
            if not isinstance(step, Calls):
                return [step]
            calls = [call.model_copy(update={"parameters": None}) for call in step.calls]
            return [step.model_copy(update={"calls": calls})]

        return replaced(script, change)


@broken("TOOL-06")
class AsksOneAfterTheOther(Broken):
    """Of the calls that the model makes at once the second is shown when the first is answered."""

    # R05, R18: a turn with several calls is taken for one with the first.
    def script(self, script: Script) -> Script:
        def change(step: Step) -> Sequence[Step]:
            return [Calls(calls=[call]) for call in step.calls] if isinstance(step, Calls) else [step]

        return replaced(script, change)


@broken("TOOL-07")
class TakesAnswersInTheirOrderAlone(Broken):
    """An answer that comes before that of an earlier call is refused."""

    # R42, R53: what comes in another order is not paired with its call.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        got: list[Receipt] = []
        for answer in answers:
            first = next((request.request_id for request in session.inner.pending), answer.request_id)
            waits = answer.request_id in [request.request_id for request in session.inner.pending]
            if waits and answer.request_id != first:
                got.append(Receipt(status="invalid", request_id=answer.request_id, reason="not its turn"))
            else:
                got += await session.inner.respond(answer)
        return got


@broken("TOOL-08")
class GoesOnWithTheFirstAnswer(Broken):
    """The model is called with the first result while the other calls still wait."""

    # R05
    stride = 4

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, AgentStart) and event.thread_id is None:
            session.memory["agent"] = event
        agent: AgentStart | None = session.memory.get("agent")
        waits = isinstance(event, StreamEnd) and event.reason == "input_required"
        says = [step.text for step in session.executor.play.script.steps() if isinstance(step, Say)]
        if waits and says and agent is not None and agent.stream_id != event.stream_id:
            who = {"agent_id": agent.agent_id}
            yield beside(event, AgentStart, "on", resumed=True, **who)
            yield beside(event, Message, "more", message_id=f"m-{event.id}", content=[Text(text=says[0])], **who)
            yield beside(event, AgentEnd, "off", reason="input_required", **who)
        yield event


@broken("TOOL-09")
class TakesASecondAnswer(Broken):
    """An answer to a call that was answered before is acknowledged as if it counted."""

    # R100
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        taken: set[str] = session.memory.setdefault("taken", set())
        got: list[Receipt] = []
        for answer, receipt in zip(answers, await session.inner.respond(*answers), strict=True):
            again = receipt.status == "stale" and receipt.request_id in taken and answer.kind != "tool_progress"
            got.append(Receipt(status="applied", request_id=receipt.request_id) if again else receipt)
            if receipt.status == "applied" and receipt.request_id is not None:
                taken.add(receipt.request_id)
        return got


@broken("TOOL-10")
class IgnoresAnIdThatItDoesNotKnow(Broken):
    """An answer to an id that was never given is called stale."""

    # R14: the answer is ignored in silence.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        return [
            receipt.model_copy(update={"status": "stale"}) if receipt.status == "not_found" else receipt
            for receipt in await session.inner.respond(*answers)
        ]


@broken("TOOL-11")
class PairsResultsByTheirOrder(Broken):
    """Results of one tool that come together are given to its calls in the order in which they came."""

    # R26, R42: a call is paired with another one's response.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        answers = answers_in(given)
        return super().stream(session, given if answers is None else _paired(session, answers), options)


def _paired(session: Session, answers: Sequence[Answer]) -> list[Answer]:
    waiting = {request.request_id: request for request in session.inner.pending}
    kinds: dict[tuple[object, object], list[str]] = {}
    for name, request in waiting.items():
        if any(answer.request_id == name for answer in answers):
            kinds.setdefault((getattr(request, "name", None), request.thread_id), []).append(name)
    made: list[Answer] = []
    for answer in answers:
        asked = waiting.get(answer.request_id)
        if isinstance(asked, ToolRequest) and isinstance(answer, ToolResult):
            name = kinds[asked.name, asked.thread_id].pop(0)
            answer = answer.model_copy(update={"request_id": name})
        made.append(answer)
    return made


@broken("TOOL-12")
class ReportsProgressOfWhatIsDone(Broken):
    """The last progress of a call is shown after its response."""

    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, ToolResponse):
            yield beside(event, ToolUpdate, "late", request_id=event.request_id, progress=1.0)


@broken("TOOL-13")
class TakesAFailureForAResult(Broken):
    """That a tool of the host's failed is forgotten: its text becomes a result."""

    # R58: an error is no error to the model.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        answers = answers_in(given)
        if answers is not None:
            given = [
                answer.model_copy(update={"is_error": False}) if isinstance(answer, ToolResult) else answer
                for answer in answers
            ]
        return super().stream(session, given, options)


@broken("TOOL-14")
class DoesNotLookAtTheNameOfAnAnswer(Broken):
    """A result under another tool's name is taken for the call whose id it has."""

    # R26: an id is enough to pair a call of one tool with the response of another.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        return await session.inner.respond(*(answer.model_copy(update={"name": None}) for answer in answers))


@broken("TOOL-15")
class DecidesTwice(Broken):
    """A call that is granted is decided on once for the host's answer and once for the tool's run."""

    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, ToolDecision):
            yield event.model_copy(update={"id": f"{event.id}-again"})


@broken("TOOL-15")
class KeepsNoDecision(Broken):
    """A denial leaves no decision in the record."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if not (isinstance(event, ToolDecision) and event.decision == "denied"):
            yield event


@broken("TOOL-16")
class ForgetsStarts(Broken):
    """That a tool of the host's started is taken for progress, and is not in the record."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if not (isinstance(event, ToolUpdate) and event.started):
            yield event


@broken("TOOL-16")
class CancelsWhatHasStarted(Broken):
    """A tool of the host's that had started is settled as if it had waited."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        started: set[str] = session.memory.setdefault("started", set())
        if isinstance(event, ToolUpdate) and event.started:
            started.add(event.request_id)
        if isinstance(event, ToolResponse) and event.status == "unknown" and event.request_id in started:
            event = event.model_copy(update={"status": "cancelled"})
        yield event


@broken("TOOL-16")
class StartsTwice(Broken):
    """A second host may start what a first one has started."""

    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        receipts = await super().respond(session, answers)
        is_start = [isinstance(answer, ToolProgress) and answer.started for answer in answers]
        return [
            Receipt(status="applied", request_id=receipt.request_id) if started else receipt
            for started, receipt in zip(is_start, receipts, strict=True)
        ]
