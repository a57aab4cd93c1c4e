"""What happened, in order, as HTML: what was said, each call with request, decision and result, errors, steers.

Not for: the page around it (``_page.py``). Rules carried: SEC-01 as far as showing goes, by ``_safe``.
May import: ``agentsession.protocol``, ``_model``, ``_safe``, ``_words``, ``_plan``, the pure modules of ``cli``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsession.host._plan import plan_steps
from agentsession.host.cli._blocks import output_text
from agentsession.host.cli._text import diff_lines, old_and_new
from agentsession.host.report._model import Item, Timeline
from agentsession.host.report._safe import Safe
from agentsession.host.report._words import duration
from agentsession.protocol import (
    Code,
    CodeResult,
    ContentPart,
    Custom,
    Diff,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Initialize,
    Media,
    Message,
    Reference,
    Refusal,
    SessionUpdate,
    StreamEnd,
    Terminal,
    Text,
    Thought,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    plain_text,
)

__all__ = ["STATUS", "ItemView", "by_whom", "status_word"]

STATUS: Final[Mapping[str, str]] = {
    "completed": "ok",
    "failed": "FAILED",
    "denied": "DENIED",
    "cancelled": "CANCELLED, never started",
    "unknown": "UNKNOWN, had started, effects not known",
    "open": "no end recorded",
    "waiting": "waits",
    "accept": "answered",
    "decline": "declined",
    "cancel": "cancelled",
}
_DIFF_ROWS: Final = 400
_BY: Final = {"user": "you", "policy": "rule", "remembered": "remembered answer", "hook": "hook", "host": "the host"}


def status_word(status: str) -> str:
    """A status for a person; one that is not known, as it came."""
    return STATUS.get(status, status)


def by_whom(by: str | None) -> str:
    """``user`` as *you*, ``policy:no-rm`` as *rule no-rm*."""
    kind, _, name = (by or "").partition(":")
    word = _BY.get(kind, kind)
    return f"{word} {name}".strip() if kind != "user" else word


class ItemView:
    """Makes the HTML of items; knows whose threads they are on."""

    def __init__(self, timeline: Timeline, safe: Safe) -> None:
        self._timeline = timeline
        self._safe = safe
        self._numbers = {
            event.request_id: item.number
            for item in timeline.items
            if item.kind == "call" and isinstance(event := item.events[0], (ToolRequest, ToolResponse, ToolDecision))
        }

    def item(self, index: int, item: Item, *, short: bool = False) -> str:
        """One item as a list item; ``short``: its line alone, without what it opens to."""
        event = item.events[0]
        look = f' data-problem="{item.problem}"' if item.problem else ""
        if item.kind == "call":
            inner = self._folded(self._call_line(item), "" if short else self._call_body(item))
        elif item.kind == "question":
            inner = self._folded(self._question_line(item), "" if short else self._question_body(item))
        elif isinstance(event, Message) and short:
            inner = f"<p>{self._safe.line(item.text or plain_text(event.content), 200)}</p>"
        elif isinstance(event, Message):
            inner = self._message(item, event)
        elif isinstance(event, Error):
            inner = self._error(event)
        elif isinstance(event, Initialize):
            inner = self._folded(f"<b>{self._safe.line(event.descriptor.name)}</b> ready", self._raw(item.events))
        elif isinstance(event, StreamEnd):
            inner = self._end(event)
        else:
            inner = self._note(event, item)
        inside = f" data-depth={min(item.thread_id.count('.') + 1, 4)}" if item.thread_id is not None else ""
        when = f"<time>{duration(item.start)}</time>"
        return f'<li id="i{index}" class="{item.kind}"{look}{inside}>{when}<div>{inner}</div></li>'

    def _folded(self, line: str, body: str) -> str:
        return f"<details><summary>{line}</summary>{body}</details>" if body else f"<p>{line}</p>"

    def _who(self, item: Item) -> str:
        if item.thread_id is None and item.agent in (None, self._timeline.agent):
            return ""
        names = self._timeline.agents.get(item.thread_id, ())
        return (
            f' <span class="who">{self._safe.line(item.agent or " → ".join(names) or item.thread_id or "", 60)}</span>'
        )

    # -- what is said ------------------------------------------------------------------------------------------------

    def _message(self, item: Item, event: Message) -> str:
        name = item.agent or next(iter(self._timeline.agents.get(item.thread_id, ())), "") or self._timeline.agent
        told = "you" if event.thread_id is None else f"to {name}"
        who = told if event.role == "user" else name if event.role == "agent" else event.role
        steer = ' <span class="tag">steer, injected</span>' if item.kind == "steer" else ""
        cut = ' <span class="tag warn">interrupted</span>' if event.interrupted or item.status == "not closed" else ""
        head = f'<p class="speaker">{self._safe.line(who, 60)}{steer}{cut}</p>'
        if item.status == "not closed":
            return head + self._said(item.text)
        return head + "".join(self._part(part) for part in event.content)

    def _said(self, text: str) -> str:
        return f'<div class="said" dir="auto">{self._safe.text(text)}</div>' if text.strip() else ""

    def _part(self, part: ContentPart) -> str:
        if isinstance(part, Text):
            return self._said(part.text)
        if isinstance(part, Thought):
            return self._folded('<span class="dim">thought</span>', self._said(part.text)) if part.text.strip() else ""
        if isinstance(part, Refusal):
            return f'<p class="tag bad">refused</p>{self._said(part.text)}'
        if isinstance(part, Code):
            return self._pre(part.code)
        if isinstance(part, CodeResult):
            return self._pre(part.output)
        if isinstance(part, Terminal):
            return self._pre(f"$ {part.command or part.terminal_id or ''}\n{part.output or ''}")
        if isinstance(part, Diff):
            head = f"<p><code>{self._safe.line(part.path)}</code></p>"
            # Before it is taken apart: a secret may have several lines.
            patch, old, new = self._safe.value([part.patch, part.old_text or "", part.new_text or ""])
            if patch is not None:
                return head + self._rows((row[:1], row[1:]) for row in patch.splitlines())
            return head + self._diff(old, new)
        if isinstance(part, Media):
            size = f", {len(part.data) * 3 // 4:,} bytes" if part.data else ""
            return f'<p class="dim">{self._safe.line(f"{part.mime_type}{size} {part.name or part.uri or chr(32)}")}</p>'
        if isinstance(part, Reference):
            return f'<p class="dim">{self._safe.line(f"{part.title or chr(32)} {part.uri}")}</p>'
        return f"<pre>{self._safe.json(part.to_wire())}</pre>"

    def _pre(self, text: str) -> str:
        return f'<pre dir="auto">{self._safe.text(text)}</pre>' if text.strip() else ""

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call_line(self, item: Item) -> str:
        event = item.events[0]
        name = getattr(event, "name", "") or "(no name)"
        args = self._safe.line(_shown(self._safe.value(event.args)), 120) if isinstance(event, ToolRequest) else ""
        look = "bad" if item.problem in ("error", "denied") else "warn" if item.problem else "good"
        look = "ask" if item.status in ("open", "waiting") else look
        took = f' <span class="dim">{duration(item.end - item.start)}</span>' if item.end > item.start else ""
        return (
            f'<span class="no">[{item.number}]</span> <b>{self._safe.line(name, 80)}</b> '
            f'<span class="args">{args}</span> '
            f'<span class="tag {look}">{self._safe.line(status_word(item.status), 60)}</span>{took}{self._who(item)}'
        )

    def _call_body(self, item: Item) -> str:
        request = next((event for event in item.events if isinstance(event, ToolRequest)), None)
        decision = next((event for event in item.events if isinstance(event, ToolDecision)), None)
        response = next((event for event in item.events if isinstance(event, ToolResponse)), None)
        progress = next((event for event in reversed(item.events) if isinstance(event, ToolUpdate)), None)
        parts: list[str] = []
        if request is not None:
            parts += ["<h4>Request</h4>", self._args(request.args)]
        parts += ["<h4>Decision</h4>", self._decision(decision)]
        handed = [told for event in item.events if isinstance(event, ToolUpdate) and (told := _tail_call(event))]
        if handed:
            parts += ["<h4>Handed on</h4>", *(self._handed(told) for told in handed)]
        if progress is not None and (progress.progress is not None or progress.content):
            parts += ["<h4>Progress</h4>", f"<p>{self._progress(progress)}</p>"]
        parts += ["<h4>Result</h4>", self._result(response)]
        return "".join(parts) + self._raw(item.events)

    def _args(self, args: Mapping[str, Any] | None) -> str:
        if not args:
            return '<p class="dim">no arguments</p>'
        shown: dict[str, Any] = self._safe.value(args)  # before it is taken apart: a secret may have several lines
        pair = old_and_new(shown)
        if pair is None:
            return f'<pre dir="auto">{self._safe.json(shown)}</pre>'
        rest = {name: value for name, value in shown.items() if value not in pair}
        others = f'<pre dir="auto">{self._safe.json(rest)}</pre>' if rest else ""
        return others + self._diff(*pair)

    def _diff(self, old: str, new: str) -> str:
        return self._rows(diff_lines(old, new)) or '<p class="dim">no change</p>'

    def _rows(self, rows: Iterable[tuple[str, str]]) -> str:
        marks = {"+": "added", "-": "removed", "@": "dim"}
        all_rows = list(rows)
        out = "".join(
            f'<span class="{marks.get(sign, "same")}">{sign} {self._safe.text(text)}</span>\n'
            for sign, text in all_rows[:_DIFF_ROWS]
        )
        more = (
            f"… {len(all_rows) - _DIFF_ROWS:,} more lines; the record has all\n" if len(all_rows) > _DIFF_ROWS else ""
        )
        return f'<pre class="diff" dir="auto">{out}{more}</pre>' if out else ""

    def _decision(self, event: ToolDecision | None) -> str:
        if event is None:
            return '<p class="dim">none recorded</p>'
        by = f" by {self._safe.line(by_whom(event.by), 120)}" if event.by else ""
        reason = f": {self._safe.line(event.reason, 600)}" if event.reason else ""
        edited = f"<p>with edited arguments:</p>{self._args(event.args)}" if event.args is not None else ""
        return f"<p>{self._safe.line(event.decision, 60)}{by}{reason}</p>{edited}"

    def _handed(self, told: Mapping[str, Any]) -> str:
        """A tool that gave its call to another: which, and who decided on it."""
        by = f" by {by_whom(str(told['by']))}" if told.get("by") else ""
        reason = f": {told['reason']}" if told.get("reason") else ""
        line = self._safe.line(f"to {told.get('name')}, {told.get('decision')}{by}{reason}", 600)
        args: Any = told.get("args")
        return f"<p>{line}</p>{self._args(args if isinstance(args, Mapping) else None)}"

    def _progress(self, event: ToolUpdate) -> str:
        said = plain_text(event.content or [])
        share = ""
        if event.progress is not None:
            share = f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
        return self._safe.line(f"last told: {share} {said}".strip(), 600)

    def _result(self, event: ToolResponse | None) -> str:
        if event is None:
            return '<p class="dim">no response in the record</p>'
        text = output_text(event.content, self._safe.value(event.data), "data" in event.model_fields_set)
        word = f"<p>{self._safe.line(status_word(event.status))}</p>" if event.status != "completed" else ""
        return word + (self._pre(text) or '<p class="dim">nothing</p>')

    def _raw(self, events: Iterable[Event]) -> str:
        told = list(events)
        seqs = f"#{told[0].seq}" if len(told) == 1 else f"#{told[0].seq} to #{told[-1].seq}"
        lines = "\n".join(self._safe.event(event) for event in told)
        return f'<details class="raw"><summary>raw JSON, {seqs}</summary><pre>{lines}</pre></details>'

    # -- people ------------------------------------------------------------------------------------------------------

    def _question_line(self, item: Item) -> str:
        event = item.events[0]
        number = self._numbers.get(getattr(event, "tool_request_id", None) or "")
        about = f" about [{number}]" if number else ""
        kind = event.kind.replace("_", " ") if isinstance(event, ElicitationRequest) else "answer"
        text = self._safe.line(event.message, 140) if isinstance(event, ElicitationRequest) else ""
        waited = f' <span class="dim">waited {duration(item.end - item.start)}</span>' if item.end > item.start else ""
        look = "good" if item.status == "accept" else "warn"
        return (
            f'<span class="tag ask">question</span> <b>{self._safe.line(kind, 60)}</b>{about} {text} '
            f'<span class="tag {look}">{self._safe.line(status_word(item.status), 60)}</span>{waited}{self._who(item)}'
        )

    def _question_body(self, item: Item) -> str:
        event = item.events[0]
        parts: list[str] = []
        if isinstance(event, ElicitationRequest):
            parts.append(self._said(event.message))
            if event.url:
                parts.append(f"<p>address: <code>{self._safe.line(event.url, 2000)}</code></p>")
            if event.requested_schema:
                parts.append(f"<h4>Asked for</h4><pre>{self._safe.json(event.requested_schema)}</pre>")
        answer = next((one for one in item.events if isinstance(one, ElicitationResponse)), None)
        if answer is not None:
            word = self._safe.line(status_word(answer.action), 60)
            given = f"<pre>{self._safe.answer(answer)}</pre>" if answer.content is not None else ""
            parts.append(f"<h4>Answer</h4><p>{word}</p>{given}")
        return "".join(parts) + self._raw(item.events)

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _error(self, event: Error) -> str:
        word = "fatal error" if event.fatal else "error"
        code = f" ({self._safe.line(event.code, 60)})" if event.code else ""
        line = f'<span class="tag bad">{word}</span> <b>{self._safe.line(event.status, 60)}</b>{code} '
        return self._folded(line + self._safe.line(event.message, 300), self._said(event.message) + self._raw([event]))

    def _end(self, event: StreamEnd) -> str:
        data = event.data or {}
        look = "good" if event.reason == "completed" else "bad" if event.reason == "failed" else "warn"
        cause = f", cause {self._safe.line(str(data['cause']))}" if data.get("cause") else ""
        lost = data.get("undelivered")
        steers = f", {len(lost)} steer(s) NOT delivered" if isinstance(lost, list) and lost else ""
        line = f'turn ended: <span class="tag {look}">{self._safe.line(event.reason, 60)}</span>{cause}{steers}'
        return self._folded(line, self._raw([event]))

    def _note(self, event: Event, item: Item) -> str:
        if item.kind == "steer" and isinstance(event, Custom):
            return self._folded('<span class="tag">steer</span> queued', self._raw(item.events))
        if isinstance(event, Custom):
            steps = plan_steps(event.data) if event.kind == "plan" else None
            if steps is not None:
                words = {"open": "to do", "working": "doing", "done": "done", "dropped": "dropped"}
                rows = "".join(
                    f'<li class="{step.state}"><span class="tag">{words[step.state]}</span> '
                    f"{self._safe.line(step.text, 400)}</li>"
                    for step in steps
                )
                done = sum(step.state == "done" for step in steps)
                return f'<p><b>plan</b> {done} of {len(steps)} done</p><ul class="plan">{rows}</ul>'
            line = f"<b>{self._safe.line(event.kind, 80)}</b> "
        elif isinstance(event, SessionUpdate):
            line = "<b>session changed</b> "
        else:
            line = f"<b>{self._safe.line(str(getattr(event, 'type', 'event')), 80)}</b> "
        return self._folded(line + self._safe.line(_told(self._safe, event), 160), self._raw(item.events))


def _tail_call(event: ToolUpdate) -> Mapping[str, Any] | None:
    told = event.data.get("tail_call") if isinstance(event.data, Mapping) else None
    return told if isinstance(told, Mapping) else None


def _told(safe: Safe, event: Event) -> str:
    """The parts of an event that are its own."""
    common = {"id", "seq", "timestamp", "sessionId", "streamId", "turnId", "agentId", "threadId", "source", "_meta"}
    wire = {name: value for name, value in event.to_wire().items() if name not in common and name != "type"}
    return json.dumps(safe.value(wire), ensure_ascii=False)


def _shown(args: Any) -> str:
    """Arguments on one line."""
    if not isinstance(args, Mapping) or not args:
        return ""
    hidden = old_and_new(args) or ()
    words = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in args.values()
        if value not in hidden
    ]
    return " ".join(words)
