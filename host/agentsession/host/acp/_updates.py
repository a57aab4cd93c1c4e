"""Events as ACP's session updates: what an editor shows of a turn, and of a session that it loads.

Not for: sending them (``_sessions.py``), or the end of a turn (``_sessions.py``).
Rules carried: none of the contract. May import: ``acp.schema``, ``_blocks``, ``_tool_calls``, ``protocol``.

A pure object for each session: no input or output, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    Cost,
    PlanEntry,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from agentsession.host.acp._blocks import ToolContent, block_of, data_content, tool_content
from agentsession.host.acp._tool_calls import Lookup, Status, kind_of, locations_of, tool_meta
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    ContentPart,
    Custom,
    Event,
    Message,
    SessionUpdate,
    Thought,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
    plain_text,
)

__all__ = ["Update", "Updates"]

Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

_PRIORITIES = ("high", "medium", "low")
_STATUSES = ("pending", "in_progress", "completed")


class Updates:
    """What one session's client was told, and so what an event adds to it."""

    def __init__(self, *, cwd: str | None, lookup: Lookup) -> None:
        self.cwd = cwd
        self.terminals: set[str] = set()
        """Those that the client made for us: others it does not know."""
        self.own_messages: set[str] = set()
        """The client's own, which it need not be told."""
        self._lookup = lookup
        self._with_deltas: set[str] = set()
        self._calls: dict[str, str] = {}
        """The tool of each call that was announced."""
        self._at_work: set[str] = set()
        """Those of which the client knows that they run."""
        self._progress: dict[str, list[ContentPart]] = {}
        self._threads: dict[str, list[str]] = {}
        """What the agents of each child thread said."""
        self._cost: float | None = None

    def live(self, event: Event) -> list[Update]:
        """What to send for an event of a running turn."""
        if isinstance(event, Message):
            return self._message(event)
        if isinstance(event, ToolRequest):
            return self._request(event)
        if isinstance(event, ToolDecision):
            return self._decision(event)
        if isinstance(event, ToolUpdate):
            return self._update(event)
        if isinstance(event, ToolResponse):
            return self._response(event)
        if isinstance(event, (AgentStart, AgentEnd)):
            return self._agent(event)
        if isinstance(event, Usage):
            return self._usage(event)
        if isinstance(event, SessionUpdate):
            return [] if event.title is None else [_titled(event.title)]
        if isinstance(event, Custom) and event.kind == "plan":
            return _plan(event.data)
        return []

    def replay(self, events: Iterable[Event]) -> list[Update]:
        """A stored session: whole messages, and each call once, as it ended."""
        out: list[Update] = []
        requests: dict[str, ToolRequest] = {}
        for event in events:
            if isinstance(event, Message):
                if not event.partial:
                    out += self._whole(event)
            elif isinstance(event, ToolRequest):
                if not event.partial:
                    requests[event.request_id] = event
            elif isinstance(event, ToolResponse):
                request = requests.pop(event.request_id, None)
                out.append(self._final(event, request))
            elif isinstance(event, (SessionUpdate, Custom)):
                out += self.live(event)
            elif isinstance(event, Usage) and event.cost is not None:
                self._cost = (self._cost or 0.0) + event.cost
        for request in requests.values():
            out += self._request(request)
        return out

    def _message(self, event: Message) -> list[Update]:
        if event.thread_id is not None:
            return self._said_below(event)
        if event.partial:
            self._with_deltas.add(event.message_id)
            return self._chunks(event)
        if event.message_id in self._with_deltas:
            self._with_deltas.discard(event.message_id)
            return []
        if event.role != "agent" and event.message_id in self.own_messages:
            return []
        return self._chunks(event)

    def _whole(self, event: Message) -> list[Update]:
        return self._said_below(event) if event.thread_id is not None else self._chunks(event)

    def _chunks(self, event: Message) -> list[Update]:
        out: list[Update] = []
        for part in event.content:
            block = block_of(part)
            if block is None:
                continue
            if event.role != "agent":
                if event.role == "user":
                    out.append(_chunk(UserMessageChunk, "user_message_chunk", block, event.message_id))
            elif isinstance(part, Thought):
                out.append(_chunk(AgentThoughtChunk, "agent_thought_chunk", block, event.message_id))
            else:
                out.append(_chunk(AgentMessageChunk, "agent_message_chunk", block, event.message_id))
        return out

    def _request(self, event: ToolRequest) -> list[Update]:
        is_known = event.request_id in self._calls
        if event.partial and is_known:
            return []
        self._calls[event.request_id] = event.name
        found = self._lookup(event.name)
        given: dict[str, Any] = {
            "tool_call_id": event.request_id,
            "title": _title(event, found.display_name if found is not None else None),
            "kind": kind_of(found),
            "status": "in_progress" if event.needs == "none" and not event.partial else "pending",
            "field_meta": tool_meta(event.name),
        }
        if not event.partial:
            given |= {"raw_input": event.args or {}, "locations": locations_of(event.args, self.cwd)}
        if is_known:
            return [ToolCallProgress(session_update="tool_call_update", **given)]
        return [ToolCallStart(session_update="tool_call", **given)]

    def _decision(self, event: ToolDecision) -> list[Update]:
        if event.decision != "granted" or event.request_id not in self._calls:
            return []
        given: dict[str, Any] = {}
        if event.args is not None:
            given = {"raw_input": event.args, "locations": locations_of(event.args, self.cwd)}
        elif event.request_id in self._at_work:
            return []
        self._at_work.add(event.request_id)
        return [_progress(event.request_id, "in_progress", **given)]

    def _update(self, event: ToolUpdate) -> list[Update]:
        if event.request_id not in self._calls:
            return []
        if not event.content and event.request_id in self._at_work:
            return []
        self._at_work.add(event.request_id)
        parts = self._progress.setdefault(event.request_id, [])
        parts += event.content
        del parts[:-100]  # content replaces content, so each update holds all of it
        content = tool_content(parts, cwd=self.cwd, terminals=self.terminals)
        return [_progress(event.request_id, "in_progress", content=content or None)]

    def _response(self, event: ToolResponse) -> list[Update]:
        self._progress.pop(event.request_id, None)
        self._at_work.discard(event.request_id)
        if self._calls.pop(event.request_id, None) is None:
            return [self._final(event, None)]
        return [ToolCallProgress(session_update="tool_call_update", **self._ended(event))]

    def _final(self, event: ToolResponse, request: ToolRequest | None) -> Update:
        args = request.args if request is not None else None
        found = self._lookup(event.name)
        return ToolCallStart(
            session_update="tool_call",
            title=_title(request, found.display_name if found is not None else None, event.name),
            kind=kind_of(found),
            raw_input=args or {},
            locations=locations_of(args, self.cwd),
            **self._ended(event),
        )

    def _ended(self, event: ToolResponse) -> dict[str, Any]:
        is_done = event.status == "completed" and not event.is_error
        content = tool_content(event.content, cwd=self.cwd, terminals=self.terminals)
        if not content and event.data is not None:
            content = data_content(event.data)
        if not content and not is_done:
            content = data_content(event.status)
        given: dict[str, Any] = {
            "tool_call_id": event.request_id,
            "status": "completed" if is_done else "failed",
            "content": content,
            "raw_output": event.data,
        }
        more = {} if is_done else {"status": event.status, "isError": event.is_error}
        return given | {"field_meta": tool_meta(event.name, **more)}

    def _agent(self, event: AgentStart | AgentEnd) -> list[Update]:
        if event.thread_id is None:
            return []
        call_id = f"thread:{event.thread_id}"
        if isinstance(event, AgentStart):
            if event.thread_id in self._threads:
                return [_progress(call_id, "in_progress")]
            self._threads[event.thread_id] = []
            return [
                ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=call_id,
                    title=f"agent: {event.agent_id}",
                    kind="think",
                    status="in_progress",
                )
            ]
        if event.reason in ("input_required", "handoff") or event.thread_id not in self._threads:
            return []
        status: Status = "completed" if event.reason == "completed" else "failed"
        content = self._below(event.thread_id)
        self._threads.pop(event.thread_id, None)
        return [_progress(call_id, status, content=content or None, raw_output=event.result)]

    def _said_below(self, event: Message) -> list[Update]:
        thread = event.thread_id
        if event.partial or event.role != "agent" or thread is None or thread not in self._threads:
            return []
        text = plain_text(event.content)
        if not text:
            return []
        self._threads[thread].append(text)
        return [_progress(f"thread:{thread}", "in_progress", content=self._below(thread))]

    def _below(self, thread: str) -> list[ToolContent]:
        return [
            ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))
            for text in self._threads.get(thread, ())
        ]

    def _usage(self, event: Usage) -> list[Update]:
        if event.cost is not None:
            self._cost = (self._cost or 0.0) + event.cost
        if event.context_window is None or event.thread_id is not None:
            return []
        used = event.total_tokens
        if used is None:
            used = sum(n or 0 for n in (event.input_tokens, event.output_tokens, event.reasoning_tokens))
        cost = None if self._cost is None else Cost(amount=self._cost, currency="USD")
        return [UsageUpdate(session_update="usage_update", used=used, size=event.context_window, cost=cost)]


def _chunk(made: Any, name: str, block: Any, message_id: str) -> Update:
    return cast(Update, made(session_update=name, content=block, message_id=message_id))


def _progress(call_id: str, status: Status, **given: Any) -> ToolCallProgress:
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status, **given)


def _title(request: ToolRequest | None, display_name: str | None, name: str = "") -> str:
    shown = (request.display or {}).get("title") if request is not None else None
    if isinstance(shown, str) and shown:
        return shown
    return display_name or (request.name if request is not None else name) or "tool"


def _titled(title: str) -> SessionInfoUpdate:
    return SessionInfoUpdate(session_update="session_info_update", title=title)


def _plan(data: Any) -> list[Update]:
    """All entries, each time; what is no entry of a plan is left out."""
    listed = data.get("entries") if isinstance(data, dict) else data
    entries: list[PlanEntry] = []
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("content"), str):
            continue
        priority, status = one.get("priority"), one.get("status")
        entries.append(
            PlanEntry(
                content=one["content"],
                priority=priority if priority in _PRIORITIES else "medium",
                status=status if status in _STATUSES else "pending",
            )
        )
    return [AgentPlanUpdate(session_update="plan", entries=entries)] if entries else []
