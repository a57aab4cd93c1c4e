"""Events to lines: what a person sees of a session. Pure; knows no terminal and no clock.

Not for: the live area and questions at a prompt (``_terminal.py``), colour (``_paint.py``).
Carries no rule; it must show every event, known or not, and obey none of its content.
May import: ``_child_events``, ``agentsession.protocol`` and the pure modules beside it.

A line is returned once it is final: a printed line is never drawn again. Text that still
grows is ``Renderer.speech.tail``.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable
from typing import Any, Final

from agentsession.host._child_events import child_events
from agentsession.host._plan import PlanStep, plan_steps
from agentsession.host.cli._blocks import indented, output_block, output_text, part_lines, question_block
from agentsession.host.cli._hook_lines import hook_note
from agentsession.host.cli._lines import Line, Style, View, line
from agentsession.host.cli._model_lines import model_change, model_note
from agentsession.host.cli._progress import Progress, plan_lines
from agentsession.host.cli._shapes import as_list, as_object
from agentsession.host.cli._speech import Speech
from agentsession.host.cli._text import call_title, cells, count, cut, escape, plural, seconds, wrap
from agentsession.host.cli._totals import Totals, at
from agentsession.protocol import (
    STEER_QUEUED,
    AgentEnd,
    AgentStart,
    Custom,
    Diff,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Initialize,
    Message,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    UnknownEvent,
    Usage,
    plain_text,
)

__all__ = ["Call", "Renderer", "by_whom", "edited_title"]

_STATUS: dict[str, tuple[str, Style]] = {
    "completed": ("ok", "good"),
    "failed": ("FAILED", "bad"),
    "denied": ("DENIED", "bad"),
    "cancelled": ("CANCELLED", "warn"),
    "unknown": ("UNKNOWN", "warn"),
}


_TOLD_ROOM: int = 50
"""Columns that what the model was told has at least; a hint about it goes first."""


def edited_title(name: str, args: dict[str, Any]) -> str:
    """The title of a call whose arguments a person edited."""
    return call_title(name, args) + " (edited)"


@dataclasses.dataclass(slots=True)
class Call:
    """A tool call as it was shown: its number, what it was, what came of it."""

    number: int
    request: ToolRequest
    title: str
    began: float | None
    decision: ToolDecision | None = None
    output: str = ""
    done: bool = False
    started: bool = False
    """Whether the host said when it began to run the tool."""
    progress: Progress = dataclasses.field(default_factory=Progress)
    where: str | None = None
    """The file and line of the rule that decided."""
    helped: bool = False
    """Whether a sub-agent of the host works for it."""

    @property
    def at_work(self) -> bool:
        """Whether it runs; else it waits for a word, or for its turn to be asked about."""
        granted = self.request.needs == "grant" and self.decision is not None
        return self.request.needs == "none" or self.started or self.helped or granted or bool(self.progress.words)

    def why(self, width: int) -> list[Line]:
        """Who decided on it, and for what reason."""
        if self.decision is None:
            return [line(("  no decision was recorded", "dim"))]
        reason = f": {escape(self.decision.reason)}" if self.decision.reason else ""
        by = by_whom(self.decision.by, self.where)
        text = f"[{self.number}] {escape(self.decision.decision)} by {by}{reason}"
        return [line((f"  {row}", "dim")) for row in wrap(text, width - 2)]


class Renderer:
    """Turns the events of one session, in order, into lines."""

    def __init__(self, view: View | None = None, *, questions: bool = True, live: bool = False) -> None:
        self.view = view or View()
        self.questions = questions
        """Whether questions are printed here; a terminal prints them itself, when it asks."""
        self.live = live
        """Whether somebody else shows the progress of what runs."""
        self.where_of: Callable[[str | None], str | None] = lambda by: None
        """Finds the place of the rule that a decision names."""
        self.speech = Speech(self.view)
        self.totals = Totals()
        self.counts: collections.Counter[str] = collections.Counter()
        """How many events of each type came."""
        self.calls: dict[str, Call] = {}
        self._batch: list[Call] = []
        self._turn: str | None = None
        self._said_in_turn = False
        self._agents: dict[str | None, str] = {}
        self._last_call: int | None = None
        self._steers: dict[str, int] = {}
        self._plan: list[PlanStep] = []

    # -- what the terminal asks ------------------------------------------------------------------------------------

    @property
    def running(self) -> list[Call]:
        """The calls that have no response yet, oldest first."""
        return [call for call in self.calls.values() if not call.done]

    def call(self, number: int) -> Call | None:
        """The call with this number."""
        return next((call for call in self.calls.values() if call.number == number), None)

    def steer_queued(self, steer_id: str) -> int:
        """Number a steer that was typed here, so that its injection is told as that and not printed twice."""
        self._steers[steer_id] = len(self._steers) + 1
        return self._steers[steer_id]

    # -- events ----------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> list[Line]:
        """The lines that are final now that ``event`` came."""
        kind: str = getattr(event, "type", "?")
        self.counts[kind] += 1
        if event.turn_id is not None and event.turn_id != self._turn:
            self._turn, self._said_in_turn, self.totals = event.turn_id, False, Totals()
        self.totals.feed(event)
        if inside := child_events(event):
            if (helped := self.calls.get(getattr(event, "request_id", ""))) is not None:
                helped.helped = True
            return [row for child in inside for row in self._child(child)]
        lines = self._lines(event)
        return indented(lines, self._nesting(event)) if lines else []

    def _child(self, event: Event) -> list[Line]:
        """What a sub-agent in a session of its own did: told like that of an agent's own sub-agents."""
        if isinstance(event, StreamEnd) or (isinstance(event, Message) and event.role == "user"):
            return []  # its call tells how it ended, and what it was told
        head = self._header() if any(call.request.thread_id != event.thread_id for call in self._batch) else []
        return [*head, *indented(self._lines(event), self._nesting(event))]

    def _lines(self, event: Event) -> list[Line]:
        match event:
            case Message():
                return self._message(event)
            case ToolRequest():
                return self._request(event)
            case ToolDecision():
                return self._decision(event)
            case ToolResponse():
                return [*self._header(), *self._response(event)]
            case ToolUpdate():
                return self._progress(event)
            case Usage() | Initialize():
                return []
            case ElicitationRequest():
                return [*self._header(), *self._elicitation(event)] if self.questions else []
            case ElicitationResponse():
                return self._answer(event) if self.questions else []
            case AgentStart():
                return self._agent_start(event)
            case AgentEnd():
                return self._agent_end(event)
            case SessionUpdate():
                return self._update(event)
            case Error():
                word = "error" if not event.fatal else "fatal error"
                text = f"{self.view.glyphs.warn} {word} {escape(event.status)}: {escape(event.message)}"
                return [line((row, "bad")) for part in text.split("\n") for row in wrap(part, self.view.width)]
            case StreamEnd():
                return self._end(event)
            case Custom(kind=kind) if kind == STEER_QUEUED:
                return []  # it is shown when it is injected
            case Custom(kind="plan") if (steps := plan_steps(event.data)) is not None:
                before, self._plan = self._plan, steps
                return plan_lines(steps, before, self.view)
            case Custom():
                noted = model_note(event)
                if noted is None and (hooked := hook_note(event)) is not None:
                    noted = hooked, "dim"
                return self._of_models(*noted) if noted is not None else [self._open(f"{event.kind}", event.data)]
            case UnknownEvent():
                extra = event.model_extra or {}
                return [self._open(f"{event.type} (unknown event)", extra)]
            case _:
                return [self._open(type(event).__name__, event.to_wire())]

    def _of_models(self, text: str, style: str) -> list[Line]:
        mark = self.view.glyphs.warn if style == "warn" else "*"
        shown: Style = "warn" if style == "warn" else "dim"
        return [line((row, shown)) for row in wrap(f"{mark} {escape(text)}", self.view.width)] if text else []

    def _open(self, what: str, data: Any) -> Line:
        text = f"* {escape(what)} {escape(json.dumps(data, ensure_ascii=False)) if data is not None else ''}".rstrip()
        return line((cut(text, self.view.width, self.view.glyphs.ellipsis), "dim"))

    def _nesting(self, event: Event) -> str:
        if event.thread_id is None or isinstance(event, StreamEnd):
            return ""
        depth = event.thread_id.count(".") + (not isinstance(event, (AgentStart, AgentEnd)))
        return f"  {self.view.glyphs.nested} " * depth

    # -- what the person says --------------------------------------------------------------------------------------

    def _message(self, event: Message) -> list[Line]:
        if event.role != "user":
            return self.speech.feed(event)
        if event.partial:
            return []
        return self._told(event) if event.source == "host" else self._user(event)

    def _told(self, event: Message) -> list[Line]:
        """What the session itself said to the agent: that it goes in circles, or has reached a limit."""
        rows = wrap(f"told the agent: {escape(plain_text(event.content))}", self.view.width - 4)
        return [line((f"  {row}" if number == 0 else f"    {row}", "dim")) for number, row in enumerate(rows)]

    def _user(self, event: Message) -> list[Line]:
        number = self._steers.get(event.message_id)
        after = f" after [{self._last_call}]" if self._last_call is not None else ""
        if number is not None:
            return [line((f"  steer {number} injected{after}", "dim"))]
        text = plain_text(event.content)
        others = [part for part in event.content if not isinstance(part, Text)]
        rows: list[str] = []
        if text:
            rows = [row for paragraph in escape(text).split("\n") for row in wrap(paragraph, self.view.width - 2)]
        marks = [self.view.glyphs.user, *[" "] * len(rows)]
        out = [line((f"{mark} {row}", "user")) for mark, row in zip(marks, rows, strict=False)]
        out.extend(one for part in others for one in part_lines(part, self.view))
        if self._said_in_turn:
            out.append(line((f"  steer injected{after}", "dim")))
        self._said_in_turn = True
        return out

    # -- tools -----------------------------------------------------------------------------------------------------

    def _request(self, event: ToolRequest) -> list[Line]:
        if event.partial or event.request_id in self.calls:
            return []
        call = Call(len(self.calls) + 1, event, call_title(event.name, event.args), at(event))
        self.calls[event.request_id] = call
        self._batch.append(call)
        return []

    def _header(self) -> list[Line]:
        batch, self._batch = self._batch, []
        if len(batch) < 2:
            return []
        return [line(f"{self.view.glyphs.calls} {len(batch)} calls at once")]

    def _decision(self, event: ToolDecision) -> list[Line]:
        call = self.calls.get(event.request_id)
        if call is None:
            return []
        call.decision, call.where = event, self.where_of(event.by)
        if call.started:
            pass  # since when it ran is known
        elif call.request.needs != "result":  # where the host runs the tool the decision is recorded with the result
            call.began = at(event)
        elif (event.by or "").partition(":")[0] == "user":
            call.began = None  # how long of it a person thought is not in the record
        if event.args is None:
            return []
        call.title = edited_title(call.request.name, event.args)  # from now on it is told as what runs
        title = cut(call_title(call.request.name, event.args), self.view.width - 18, self.view.glyphs.ellipsis)
        return [*self._header(), line(f"  [{call.number}] edited to ", (title, "strong"))]

    def _progress(self, event: ToolUpdate) -> list[Line]:
        call = self.calls.get(event.request_id)
        if call is None or call.done:
            return []
        if event.started:
            call.began = call.progress.told_at = at(event)
            call.started = True
        if handed := as_object((as_object(event.data) or {}).get("tail_call")):
            return [*self._header(), *self._handed(call, handed)]
        if not call.progress.feed(event):
            return []
        if self.live or not call.progress.is_due(at(event)):
            return []
        title = cut(call.title, self.view.width // 3, self.view.glyphs.ellipsis)
        text = f"  [{call.number}] {title}  running: {call.progress.words}"
        return [*self._header(), line((cut(text, self.view.width, self.view.glyphs.ellipsis), "dim"))]

    def _handed(self, call: Call, told: dict[str, Any]) -> list[Line]:
        title = cut(call_title(str(told.get("name")), as_object(told.get("args"))), 40, self.view.glyphs.ellipsis)
        by = f" by {by_whom(str(told['by']))}" if told.get("by") else ""
        text = f"  [{call.number}] hands on to {title}  {escape(str(told.get('decision')))}{by}"
        return [line((cut(text, self.view.width, self.view.glyphs.ellipsis), "dim"))]

    def _response(self, event: ToolResponse) -> list[Line]:
        call = self.calls.get(event.request_id)
        if call is None:
            request = ToolRequest(request_id=event.request_id, name=event.name)
            call = Call(len(self.calls) + 1, request, call_title(event.name, None), None)
            self.calls[event.request_id] = call
        call.done, self._last_call = True, call.number
        call.output = output_text(event.content, event.data, "data" in event.model_fields_set)
        status = _status(event)
        word, style = _STATUS.get(status, (escape(status).upper(), "warn"))
        rows = escape(call.output).rstrip("\n").split("\n") if call.output.strip() else []
        note = self._note(call, event, status, rows)
        mark = self.view.glyphs.denied if status == "denied" else " "
        head = f"{mark} [{call.number}] "
        room = max(20, min(self.view.width // 2, self.view.width - len(head) - len(word) - cells(note) - 10))
        title = cut(call.title, room, self.view.glyphs.ellipsis)
        pad = " " * max(0, min(26, room) - cells(title))
        took = ""
        ended = at(event)
        if call.began is not None and ended is not None and status in ("completed", "failed"):
            took = f"  {seconds(max(0.0, ended - call.began))}"
        start: tuple[str, Style] = (head, "bad" if status == "denied" else "")
        first = [line(start, f"{title}{pad}  ", (f"{word:<6}", style), f"  {note}{took}")]
        if first[0].width > self.view.width:  # a narrow window: the note has a row of its own
            fits = cut(note, self.view.width - 6, self.view.glyphs.ellipsis)
            first = [line(start, f"{title}{pad}  ", (word, style), took), line(f"      {fits}")]
        if status == "denied":
            told = " ".join(rows)
            hint = f"   /w {call.number} says why" if self.view.interactive else ""
            hint = hint if self.view.width - len(hint) >= _TOLD_ROOM else ""
            if told:
                text = cut(f"      model was told: {told}", self.view.width - len(hint), self.view.glyphs.ellipsis)
                return [*first, line((text + hint, "dim"))]
            return first
        changes = [part for part in event.content if isinstance(part, Diff)]
        if changes:
            shown = [
                one
                for part in changes
                for one in part_lines(part, dataclasses.replace(self.view, more=self._more(call)))
            ]
            return [*first, *indented(shown, "      ")]
        if status == "failed" and len(rows) > 1:
            block = output_block(call.output, self.view.width - 6, self.view.glyphs, self._more(call))
            return [*first, *indented(block, "      ")]
        return first

    def _more(self, call: Call) -> str:
        return f"/o {call.number} shows all" if self.view.interactive else self.view.more

    def _note(self, call: Call, event: ToolResponse, status: str, rows: list[str]) -> str:
        decided = by_whom(call.decision.by, call.where) if call.decision is not None else ""
        if status == "denied":
            by = (call.decision.by or "") if call.decision is not None else ""
            if by == "host" and call.decision is not None and call.decision.reason:
                return cut(escape(call.decision.reason), self.view.width // 2, self.view.glyphs.ellipsis)
            return decided
        if status == "cancelled":
            return "never started"
        if status == "unknown":
            return "had started, effects not known"
        summary = (event.display or {}).get("summary")
        if isinstance(summary, str):
            said = cut(escape(summary), self.view.width // 3, self.view.glyphs.ellipsis)
        elif len(rows) == 1:
            said = cut(rows[0], self.view.width // 3, self.view.glyphs.ellipsis)
        else:
            said = plural(len(rows), "line") if rows else ""
        if decided == "you":
            return "granted by you, ran once" if status == "completed" else f"granted by you, {said}"
        return said

    # -- people ----------------------------------------------------------------------------------------------------

    def _elicitation(self, event: ElicitationRequest) -> list[Line]:
        call = self.calls.get(event.tool_request_id or "")
        return question_block(event, self.view, f"[{call.number}] {call.title}" if call else None)

    def _answer(self, event: ElicitationResponse) -> list[Line]:
        words = {"accept": "answered", "decline": "declined", "cancel": "cancelled"}
        text = words.get(event.action, escape(event.action))
        if event.content is not None and "content" in event.model_fields_set:
            text += f" {escape(json.dumps(event.content, ensure_ascii=False))}"
        style: Style = "good" if event.action == "accept" else "warn"
        return [line((cut(f"  {text}", self.view.width, self.view.glyphs.ellipsis), style))]

    # -- session ---------------------------------------------------------------------------------------------------

    def _agent_start(self, event: AgentStart) -> list[Line]:
        thread, before = event.thread_id, self._agents.get(event.thread_id)
        self._agents[thread] = event.agent_id
        if event.resumed or (thread is None and before in (None, event.agent_id)):
            return []
        name = escape(event.agent_id)
        if thread is None:
            return [line((f"{self.view.glyphs.agent} {name} takes over from {escape(before or '')}", "strong"))]
        parent = self._agents.get(event.parent_thread_id)
        inside = f", inside {escape(parent)}" if parent else ""
        return [line((f"{self.view.glyphs.agent} @{name} started{inside}", "strong"))]

    def _agent_end(self, event: AgentEnd) -> list[Line]:
        if event.thread_id is None or event.reason == "input_required":
            return []
        return [line((f"{self.view.glyphs.agent} @{escape(event.agent_id)} {escape(event.reason)}", "strong"))]

    def _update(self, event: SessionUpdate) -> list[Line]:
        changed = model_change(event)
        if changed is not None:
            return self._of_models(changed, "dim")
        parts = {
            "title": event.title,
            "model": event.model,
            "mode": event.permission_mode,
            "tools": None if event.tools is None else len(event.tools),
            "state": event.state_delta,
            "config": event.config,
        }
        known = [f"{name} {json.dumps(part, ensure_ascii=False)}" for name, part in parts.items() if part is not None]
        if not known:
            return []
        text = f"* session: {escape(', '.join(known))}"
        return [line((cut(text, self.view.width, self.view.glyphs.ellipsis), "dim"))]

    def _end(self, event: StreamEnd) -> list[Line]:
        out: list[Line] = []
        for steer in as_list((event.data or {}).get("undelivered")):
            number = self._steers.get(str(steer))
            text = f"  steer {number if number is not None else escape(str(steer))} NOT delivered"
            out.append(line((text + (", text back in box" if self.view.interactive else ""), "warn")))
        if event.reason == "input_required":
            return out
        self._batch.clear()
        self.speech.clear()
        return [*out, *self.summary(event)]

    def summary(self, event: StreamEnd) -> list[Line]:
        """How a turn ended, and what it took."""
        total = self.totals
        style: Style = "good" if event.reason == "completed" else "warn"
        cause = (event.data or {}).get("cause")
        why = f" ({escape(str(cause))})" if cause and cause != event.reason else ""
        why += _LAST_WORDS.get(str((event.data or {}).get("grace")), "")
        empty = " with nothing said" if (event.data or {}).get("empty") else ""
        spent = f"(model {total.model_s:.0f}, tools {total.tools_s:.0f}, you {total.you_s:.0f})"
        used = f"in {count(total.input_tokens)} out {count(total.output_tokens)}"
        head = f"{self.view.glyphs.end} {escape(event.reason)}{why}{empty}"
        tail = f" {seconds(total.elapsed_s)} {spent}"
        context = f"  ctx {total.context_used:.0%}" if total.context_used is not None else ""
        more = f"  {used}  {total.money}{context}  {escape(event.session_id)}"
        if cells(head + tail + more) <= self.view.width:
            return [line((head, style), tail + more)]
        rows = wrap(head + tail, self.view.width - 3)  # one row, but in a narrow window
        first = line((head, style), rows[0].removeprefix(head)) if rows[0].startswith(head) else line((rows[0], style))
        return [
            first,
            *(line(f"   {row}") for text in (*rows[1:], more.strip()) for row in wrap(text, self.view.width - 3)),
        ]


_LAST_WORDS: Final = {"completed": " with a last word", "failed": " (its last word failed)"}
"""How it is said what came of a turn's last word."""


def _status(event: ToolResponse) -> str:
    """What became of a call. A host that stops its own tool can only answer with an error that says so."""
    if event.is_error and event.status in ("completed", "failed"):
        error = as_object((as_object(event.data) or {}).get("error")) or {}
        return "unknown" if error.get("code") == "cancelled" else "failed"
    return event.status


def by_whom(by: str | None, where: str | None = None) -> str:
    """``user`` as *you*, ``policy:no-rm`` as *rule no-rm, policy.toml:4*: who decided, for a person."""
    kind, _, name = (by or "").partition(":")
    words = {"user": "you", "policy": "rule", "remembered": "remembered", "hook": "hook", "host": "host"}
    word = words.get(kind, escape(kind))
    told = f"{word} {escape(name)}" if name and kind != "user" else word
    return f"{told}, {escape(where)}" if where else told
