"""From the events of a record to its :class:`Timeline`. Pure: no clock, no file, the same for the same events.

Not for: drawing. Rules carried: none; it must take every list of events, also one that breaks rules, and lose none.
May import: ``agentsession.protocol``, ``_child_events``, ``_waits``, ``_model``, ``_stretches``,
``_work``.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsession.host._child_events import child_events, works_for
from agentsession.host._waits import is_answer, waited_s
from agentsession.host.report._model import Item, ItemKind, Problem, Span, Timeline, Turn, UsagePoint
from agentsession.host.report._stretches import moment_of
from agentsession.host.report._work import Work
from agentsession.protocol import (
    STEER_QUEUED,
    AgentEnd,
    AgentStart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Initialize,
    Message,
    SessionUpdate,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
    plain_text,
)

__all__ = ["label", "status_of", "timeline", "turn"]

_UPDATES: Final = 100
"""Updates of a call that are kept because they hold data."""
_PROBLEMS: Final[Mapping[str, Problem]] = {"failed": "error", "denied": "denied", "unknown": "unknown"}


def timeline(events: Iterable[Event]) -> Timeline:
    """The record of one session, in its order, as a timeline. Takes any events; what is not understood is a note."""
    builder = _Builder()
    for event in events:
        builder.feed(event)
    return builder.finish()


def turn(whole: Timeline, number: int) -> Timeline:
    """One turn of a record as a timeline of its own; times stay those of the record."""
    places: dict[int, int] = {}
    for index, item in enumerate(whole.items):
        if item.turn == number:
            places[index] = len(places)
    spans = [
        dataclasses.replace(span, item=None if span.item is None else places.get(span.item))
        for span in whole.spans
        if span.turn == number
    ]
    return dataclasses.replace(
        whole,
        turns=tuple(one for one in whole.turns if one.number == number),
        items=tuple(whole.items[index] for index in places),
        spans=tuple(spans),
        usage=tuple(point for point in whole.usage if point.turn == number),
        others=tuple(item for item in (*whole.items, *whole.others) if item.turn != number),
    )


class _Builder:
    def __init__(self) -> None:
        self._items: list[Item] = []
        self._spans: list[Span] = []
        self._turns: list[Turn] = []
        self._usage: list[UsagePoint] = []
        self._models: dict[str, None] = {}
        self._calls: dict[str, int] = {}
        self._questions: dict[str, int] = {}
        self._decided: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._decided_anew: set[str] = set()
        self._carriers: set[int] = set()
        """Calls that a sub-agent works for."""
        self._deltas: dict[str, list[Message]] = {}
        self._work = Work()
        self._began: datetime.datetime | None = None
        self._now = 0.0
        self._session_id = ""
        self._agent = ""
        self._title = ""
        self._has_spoken: set[str] = set()

    # -- events ----------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        if inside := child_events(event):
            self._children(event, inside)
            return
        self._clock(event)
        self._session_id = self._session_id or event.session_id
        self._enter_turn(event)
        self._work.note(event, self._now, self._turn)
        self._take(event)

    def _children(self, event: Event, inside: Iterable[Event]) -> None:
        """What a sub-agent in a session of its own did: it belongs to the turn and the call that it works for."""
        index = self._calls.get(getattr(event, "request_id", ""))
        if index is not None:
            self._carriers.add(index)
        for child in inside:
            self._clock(child)
            self._enter_turn(event)
            self._work.note(child, self._now, self._turn, inside=True)
            if isinstance(child, StreamEnd):
                continue  # of the sub-agent's turn; its call tells how it ended
            if isinstance(child, Message) and child.role == "user":
                if not child.partial:
                    self._add("message", child)
                continue
            self._take(child)
        if index is not None:
            self._items[index].end = self._now

    def _take(self, event: Event) -> None:
        match event:
            case Initialize():
                self._agent = event.descriptor.name
                self._add("note", event)
            case Message():
                self._message(event)
            case ToolRequest():
                self._request(event)
            case ToolDecision():
                self._decision(event)
            case ToolUpdate():
                self._update(event)
            case ToolResponse():
                self._response(event)
            case ElicitationRequest():
                self._questions[event.request_id] = len(self._items)
                self._add("question", event, status="open")
            case ElicitationResponse():
                self._answer(event)
            case Usage():
                self._use(event)
            case Error():
                self._add("error", event, problem="error")
            case StreamEnd():
                self._end(event)
            case AgentStart() | AgentEnd():
                self._work.bracket(event, self._now)
            case SessionUpdate():
                self._title = event.title or self._title
                if event.permission_mode is not None:  # what waits is decided anew, by a rule: it waited until now
                    self._decided_anew.update(self._calls.keys() - self._decided.keys() - self._started.keys())
                self._add("note", event)
            case Custom(kind=kind) if kind == STEER_QUEUED:
                self._add("steer", event, status="queued")
            case _:
                self._add("note", event)

    def _clock(self, event: Event) -> None:
        moment = moment_of(event.timestamp)
        if moment is None:
            return
        if self._began is None:
            self._began = moment
        self._now = max(self._now, (moment - self._began).total_seconds())

    def _enter_turn(self, event: Event) -> None:
        if event.turn_id is None:
            return
        if not self._turns or self._turns[-1].turn_id != event.turn_id:
            self._turns.append(Turn(len(self._turns) + 1, event.turn_id, self._now, self._now))
        self._turns[-1].end = self._now

    @property
    def _turn(self) -> int:
        return len(self._turns)

    def _add(self, kind: ItemKind, event: Event, *, status: str = "", problem: Problem | None = None) -> Item:
        item = Item(
            kind,
            self._now,
            self._now,
            self._turn,
            event.thread_id,
            event.agent_id,
            [event],
            status=status,
            problem=problem,
        )
        self._items.append(item)
        return item

    # -- what is said ------------------------------------------------------------------------------------------------

    def _message(self, event: Message) -> None:
        if event.partial:
            self._deltas.setdefault(event.message_id, []).append(event)
            return
        self._deltas.pop(event.message_id, None)
        item = self._add("message", event)
        if event.role != "user" or event.turn_id is None:
            return
        if event.turn_id in self._has_spoken:  # a second one in a turn goes to an agent at work
            item.kind = "steer"
            item.status = "injected"
        else:
            self._turns[-1].task = plain_text(event.content)  # whole: secrets are masked before it is cut
        self._has_spoken.add(event.turn_id)

    def _unclosed(self) -> None:
        """Messages that were begun and never closed: what was said of them stands where it began."""
        for deltas in self._deltas.values():
            item = self._add("message", deltas[0], status="not closed")
            item.text = "".join(plain_text(delta.content) for delta in deltas)
        self._deltas.clear()

    # -- calls -------------------------------------------------------------------------------------------------------

    def _request(self, event: ToolRequest) -> None:
        if event.partial or event.request_id in self._calls:
            return
        self._calls[event.request_id] = len(self._items)
        item = self._add("call", event, status="open")
        item.number = len(self._calls)

    def _call(self, event: ToolDecision | ToolResponse | ToolUpdate) -> Item:
        index = self._calls.get(event.request_id)
        if index is None:  # its request is not in the record
            self._calls[event.request_id] = len(self._items)
            item = self._add("call", event, status="open")
            item.number = len(self._calls)
            return item
        item = self._items[index]
        item.events.append(event)
        item.end = self._now
        return item

    def _decision(self, event: ToolDecision) -> None:
        item = self._call(event)
        if event.decision != "granted":
            item.problem = "denied"
        request = _request_of(item)
        # Where the host runs the tool, the decision is recorded with its result: the mark of its start came before.
        started = self._started.get(event.request_id)
        decided = self._decided[event.request_id] = self._now if started is None else started
        if is_answer(event) or event.request_id in self._decided_anew:
            self._span("wait", item, item.start, decided, event.decision)
        elif started is None and request is not None and request.needs == "result":
            self._decided[event.request_id] = item.start

    def _update(self, event: ToolUpdate) -> None:
        if event.request_id not in self._calls:
            self._call(event)
            return
        item = self._items[self._calls[event.request_id]]
        if event.started:
            self._started.setdefault(event.request_id, self._now)
        if (waited := waited_s(event)) is not None:
            self._span("wait", item, max(item.start, self._now - waited), self._now, "answered")
        last = item.events[-1]
        is_first = not isinstance(last, ToolUpdate) or last.started
        has_data = event.data is not None or (isinstance(last, ToolUpdate) and last.data is not None)
        if is_first or event.started or (has_data and len(item.events) < _UPDATES):
            item.events.append(event)
        else:
            item.events[-1] = event  # of progress the last word is enough
        item.end = self._now

    def _response(self, event: ToolResponse) -> None:
        item = self._call(event)
        if "subagent" in (event.display or {}):  # also where the caller is a sub-agent itself
            self._carriers.add(self._calls[event.request_id])
        item.status = status_of(event)
        item.problem = _PROBLEMS.get(item.status)
        if item.problem is None and event.is_error and item.status != "cancelled":
            item.problem = "error"
        request = _request_of(item)
        decided = self._decided.get(event.request_id, self._started.get(event.request_id))
        if item.status == "cancelled":
            if request is not None and request.needs in ("result", "grant") and decided is None:
                self._span("wait", item, item.start, self._now, "cancelled")  # it waited until the turn was ended
        elif item.status != "denied":
            self._span("tool", item, item.start if decided is None else decided, self._now, item.status)

    # -- people ------------------------------------------------------------------------------------------------------

    def _answer(self, event: ElicitationResponse) -> None:
        index = self._questions.get(event.request_id)
        if index is None:
            self._add("question", event, status=event.action)
            return
        item = self._items[index]
        if item.status == "open":
            self._span("wait", item, item.start, self._now, event.action)
        item.events.append(event)
        item.end, item.status = self._now, event.action

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _use(self, event: Usage) -> None:
        if event.model:
            self._models[event.model] = None
        out = [count for count in (event.output_tokens, event.reasoning_tokens) if count is not None]
        share = None
        if event.context_window and event.input_tokens is not None:
            share = min(event.input_tokens, 1000 * event.context_window) / event.context_window
        self._usage.append(
            UsagePoint(
                self._now,
                self._turn,
                event.thread_id,
                event.model,
                event.input_tokens,
                sum(out) if out else None,
                event.cached_tokens,
                event.cost,
                share,
            )
        )

    def _end(self, event: StreamEnd) -> None:
        if self._turns:
            self._turns[-1].reason = event.reason
            cause: object = (event.data or {}).get("cause")
            self._turns[-1].cause = cause if isinstance(cause, str) else None
        if event.reason == "failed":
            self._add("error", event, problem="error")
        elif event.reason != "input_required" or (event.data or {}).get("undelivered"):
            self._add("note", event)

    def _span(self, kind: Any, item: Item, start: float, end: float, status: str) -> None:
        index = self._index(item)
        carries = kind == "tool" and index in self._carriers
        self._spans.append(
            Span(kind, start, end, item.thread_id, label(item), status, item.turn, index, carries=carries)
        )

    def _index(self, item: Item) -> int:
        event = item.events[0]
        places = self._calls if item.kind == "call" else self._questions
        return places[event.request_id]  # type: ignore[attr-defined]  # requests and their answers have one

    def finish(self) -> Timeline:
        self._unclosed()
        last = self._turns[-1] if self._turns else None
        for index, item in enumerate(self._items):
            if item.status != "open":
                continue
            if last is not None and item.turn == last.number:
                last.end = self._now
            item.end = self._now
            request = _request_of(item)
            if request is not None and any(works_for(thread, request) for thread in self._work.agents if thread):
                self._carriers.add(index)
            if item.kind == "question" or (request is not None and request.needs in ("result", "grant")):
                asked = request.request_id if request is not None else ""
                decided = self._decided.get(asked, self._started.get(asked))
                kind = "tool" if decided is not None or index in self._carriers else "wait"
                self._span(kind, item, item.start if decided is None else decided, self._now, "open")
                if decided is None and last is not None and (item.turn, last.reason) == (last.number, "input_required"):
                    item.status = "waiting"
            elif item.kind == "call":
                self._span("tool", item, item.start, self._now, "open")
        self._spans += self._work.spans(self._spans, self._usage)
        self._spans.sort(key=lambda span: (span.start, span.end))
        task = next((turn.task for turn in self._turns if turn.task), "")
        return Timeline(
            session_id=self._session_id,
            agent=self._agent or next(iter(self._work.agents.get(None, ())), ""),
            title=self._title or task,
            began=self._began,
            length_s=self._now,
            turns=tuple(self._turns),
            items=tuple(self._items),
            spans=tuple(self._spans),
            usage=tuple(self._usage),
            agents=self._work.agents,
            models=tuple(self._models),
        )


def label(item: Item) -> str:
    """The name of the tool, or the kind of question."""
    event = item.events[0]
    if isinstance(event, (ToolRequest, ToolResponse)):
        return event.name
    return event.kind.replace("_", " ") if isinstance(event, ElicitationRequest) else ""


def status_of(event: ToolResponse) -> str:
    """What became of a call. A host that stops its own tool can only answer with an error that says so."""
    if event.is_error and event.status in ("completed", "failed"):
        data: Any = event.data
        error = data.get("error") if isinstance(data, dict) else None
        return "unknown" if isinstance(error, dict) and error.get("code") == "cancelled" else "failed"
    return event.status


def _request_of(item: Item) -> ToolRequest | None:
    event = item.events[0]
    return event if isinstance(event, ToolRequest) else None
