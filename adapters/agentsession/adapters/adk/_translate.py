"""ADK Events to contract events: one pure translator, the same for a live run, a stored session and a file.

Not for: brackets (``agent_start``, ``agent_end``), ``stream_end`` and decisions: whoever drives it adds those, the live
session from ADK's callbacks and ``_record`` from the whole record. It reads no clock and makes no random id.
Rules carried: LIFE-14, TOOL-01, TOOL-03, TOOL-11, HITL-01, SEC-01 as far as the translation goes.
May import: the pure parts beside it, protocol, google types for annotations.

One ADK Event fans out into several contract events, in this order: message, tool requests and responses and questions
in the order of their parts, usage, error, state, custom. docs/adk-mapping.md is the table; a test reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.genai import types

from agentsession.adapters.adk._calls import Call, CallBook
from agentsession.adapters.adk._content import is_plain_text, parts_to_content
from agentsession.adapters.adk._errors import ABORTED_CODE, BROKEN_OFF, EndReason, end_reason, is_empty_reply, is_error
from agentsession.adapters.adk._events import (
    action_events,
    code_of,
    common_fields,
    error_event,
    lone_marks,
    problem_event,
    reports_error,
    usage_event,
)
from agentsession.adapters.adk._requests import CONTROL_TOOLS, Needs, Owner, Requests, agent_owns, stored_needs
from agentsession.adapters.adk._stream import MessageBuffer, visible_parts
from agentsession.adapters.adk._values import clean_id, iso_timestamp, lossy_json
from agentsession.protocol import ContentPart, Custom, Event, JsonError, Message, Text, repair_text

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent
    from google.adk.models.llm_response import LlmResponse

__all__ = ["CONTROL_TOOLS", "Call", "Slot", "TextDelta", "Translator"]

Slot = tuple[str, str, str]
"""Where one answer at a time can stream: its invocation, agent and branch, ``""`` where ADK has none."""


@dataclasses.dataclass(slots=True)
class TextDelta:
    """A piece of text of a message that is open; ``text`` is empty while half of a character is held back."""

    kind: str
    text: str
    message_id: str
    index: int
    agent_id: str | None
    thread_id: str | None


class Translator:
    """Translates the events of one ADK session, in their order.

    Args:
        needs: What a call needs from the host; see :func:`stored_needs` for the default. A live session passes its
            policy. Control tools never need anything and are not asked about.
        owner: Who owns a tool.
        is_gate: Whether a confirmation's hint marks the adapter's own gate, which is not shown.
        long_running: Whether a tool is long-running of which ADK's events do not say it.
        thread_prefix: For the session of an AgentTool's child: the thread that its events hang under.
        parent: The translator whose ids this one must not repeat, and whose calls it may answer.
    """

    def __init__(
        self,
        *,
        needs: Needs = stored_needs,
        owner: Owner = agent_owns,
        is_gate: Callable[[str], bool] | None = None,
        long_running: Callable[[str], bool] | None = None,
        thread_prefix: str | None = None,
        parent: Translator | None = None,
    ) -> None:
        above: Requests | None = parent._requests if parent is not None else None
        self._requests: Requests = Requests(needs, owner, is_gate, above, long_running)
        self._thread_prefix = thread_prefix
        self._message_ids: set[str] = parent._message_ids if parent is not None else set()
        self._buffers: dict[Slot, tuple[MessageBuffer, dict[str, Any]]] = {}
        self._finishes: dict[Slot, str] = {}
        self._fed: set[tuple[str, float, str, int]] = set()
        self._code: str | None = None
        self._said = False

    # --- what the driver asks and tells -------------------------------------------------------------------------------

    @property
    def book(self) -> CallBook:
        """Every call so far, by contract id and by ADK id."""
        return self._requests.book

    @property
    def delegated(self) -> set[str]:
        """ADK ids of calls that are task delegations: shown as brackets, not as requests. The driver adds to it."""
        return self._requests.delegated

    @property
    def end_reason(self) -> EndReason:
        """Why the stream would end now, by the last model response of the turn; pending requests not considered."""
        return end_reason(self._code)

    @property
    def said_something(self) -> bool:
        """Whether the agent said anything but thoughts in this turn."""
        return self._said

    def begin_turn(self) -> None:
        """A new turn starts: forget how the last model response of the turn before ended, also one that never did."""
        self._code = None
        self._said = False
        self._buffers.clear()
        self._finishes.clear()

    def adk_call_id(self, request_id: str) -> str | None:
        """The id that a FunctionResponse for this request must carry; ``None`` when ADK knows no such call."""
        call = self.book.get(request_id)
        return (call.adk_id or None) if call is not None else None

    def request_id(self, adk_id: str) -> str | None:
        """The contract request of the latest call with this ADK id."""
        call = self.book.known(adk_id)
        return call.request_id if call is not None else None

    def resolve(self, request_id: str) -> None:
        """The driver has closed this request itself; what ADK says of it later is not shown."""
        call = self.book.get(request_id)
        if call is not None:
            call.open = False
            call.settled = True

    def close_messages(
        self,
        *,
        interrupted: bool = True,
        thread: str | None = "*",
        agent: str | None = None,
        broken: Collection[str] = (),
    ) -> list[Event]:
        """The closing events of messages that stopped streaming in the middle: at an abort, a failure, a pause.

        ``thread``: only those of one thread (``None``: the main one); as it is, all.
        ``agent``: only its own and those that name no agent: where it hands over, its successor may speak already.
        ``broken``: agents that have ended by themselves, so that their models' answers should have had an end.
        """
        out: list[Event] = []
        for slot, (buffer, common) in list(self._buffers.items()):
            if thread not in ("*", common["thread_id"]):
                continue
            if agent is not None and common.get("agent_id") not in (None, agent):
                continue
            del self._buffers[slot]
            buffer.code = buffer.code or self._finishes.pop(slot, None)
            out += self._cut_short(buffer, common, interrupted=interrupted, broken=common.get("agent_id") in broken)
        return out

    def note_finish(self, invocation_id: str, agent: str, branch: str | None, reason: str) -> None:
        """What a model says last of an answer that streams, and ADK makes no event of; perhaps ahead of its deltas."""
        self._finishes[(invocation_id, agent, branch or "")] = reason

    # --- the translation ----------------------------------------------------------------------------------------------

    def feed(self, event: AdkEvent, *, unread: Mapping[str, Any] | None = None) -> list[Event]:
        """The contract events of one ADK Event, unstamped. Never raises for any event that ADK can build.

        ``unread`` is what a reader found in the event's JSON and ADK has no field for; it is kept in ``_meta.adk``.
        """
        if self._is_repeat(event):
            return []
        common = common_fields(event, iso_timestamp(event.timestamp), self._thread_prefix, unread)
        author = clean_id(event.author)
        if author == "user":
            common["source"] = "user"
            return self._user_event(event, common)
        if author:
            common["agent_id"] = author
        if event.partial:
            return self._partial_event(event, common)
        return self._agent_event(event, common)

    def quick_delta(self, event: AdkEvent) -> TextDelta | None:
        """The delta of a partial event that goes on with plain text: the frequent case, without building an event.

        ``None``: feed the event instead; nothing was taken from it.
        """
        held = self._buffers.get(_slot(event))
        if held is None or held[0].adk_id != event.id or event.actions.state_delta:
            return None
        delta = _text_delta(*held, event)
        if delta is not None:
            held[0].newest = event.content
        return delta

    def has_seen_last(self, slot: Slot, content: types.Content) -> bool:
        """Whether ``content`` came with the partial event that ADK has shown last of the answer open at ``slot``."""
        held = self._buffers.get(slot)
        return held is not None and held[0].newest is content

    def chunk_delta(self, slot: Slot, chunk: LlmResponse) -> TextDelta | None:
        """As :meth:`quick_delta`, of a chunk of the open answer that ADK need not make an event of."""
        held = self._buffers.get(slot)
        return _text_delta(*held, chunk) if held is not None else None

    def _is_repeat(self, event: AdkEvent) -> bool:
        """Whether this whole event was fed before: some ADK workflows yield one event twice while they unwind."""
        if event.partial:
            return False
        parts = event.content.parts if event.content is not None else None
        key = (event.id or "", event.timestamp or 0.0, event.author or "", len(parts or ()))
        if key in self._fed:
            return True
        if event.id:
            self._fed.add(key)
        return False

    def _user_event(self, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        parts = _parts(event)
        responses = [part.function_response for part in parts if part.function_response is not None]
        out: list[Event] = []
        said = [part for part in parts if part.function_response is None]
        if said or (event.content is not None and not responses):
            problems: list[str] = []
            content = _forged_calls_as_content(said, problems)
            message_id = self._message_id(event.id)
            out.append(Message(message_id=message_id, role="user", content=content, **common))
            out += [problem_event("the message", problems, common)] if problems else []
        for response in responses:
            out += self._requests.response(response, event, {**common, "source": "host"})
        out += action_events(event, {**common, "source": "host"})
        return out

    def _partial_event(self, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        key = _slot(event)
        out: list[Event] = []
        held = self._buffers.get(key)
        if held is not None and event.id != held[0].adk_id and held[0].repeats > 0:
            # ADK gives one id to all partials of a response: the response before ended without its closing event.
            out += self._cut_short(*self._buffers.pop(key), interrupted=True)
            held = None
        if held is None:
            buffer = MessageBuffer(event.id, "")
            self._buffers[key] = (buffer, common)
        else:
            buffer = held[0]
            buffer.repeats += event.id == buffer.adk_id
            self._buffers[key] = (buffer, common)
        buffer.newest = event.content
        parts = _parts(event)
        for delta in buffer.feed(parts):
            out.append(self._delta(buffer, delta, common))
        for part in parts:
            if part.function_call is not None:
                out += self._requests.piece(buffer, part.function_call, common)
        if event.usage_metadata is not None:
            buffer.usage = event.usage_metadata  # streamed counts are cumulative: the last one is the call's
        buffer.code = code_of(event.error_code) or code_of(event.finish_reason) or buffer.code
        return out

    def _agent_event(self, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        parts = _parts(event)
        problems: list[str] = []
        content: list[ContentPart] = []
        calls: list[types.Part] = []
        answers = False
        for part in parts:
            if part.function_call is not None:
                calls.append(part)
            elif part.function_response is not None:
                answers = True
            else:
                content += visible_parts((part,), problems)
        code = reports_error(event)
        out: list[Event] = []

        held = self._buffers.get(_slot(event)) if self._buffers else None
        if held is not None and not (answers or content or calls or code or event.id == held[0].adk_id):
            held = None  # a state or bookkeeping event in between; the response still streams
        buffer = self._buffers.pop(_slot(event))[0] if held is not None else None
        if self._finishes:
            self._finishes.pop(_slot(event), None)  # the event says it itself
        interrupted = bool(event.interrupted)
        message_id = None
        if buffer is not None and buffer.started:
            cut = interrupted or (not content and not calls and not answers and code is not None)
            out += self._closing(buffer, common, content, interrupted=cut)
            message_id = buffer.message_id
        elif content:
            message_id = (buffer.message_id if buffer is not None else "") or self._message_id(event.id)
            out.append(Message(message_id=message_id, content=content, interrupted=interrupted, **common))
        if not self._said:
            self._said = bool(calls) or any(not _is_thought(part) for part in content)
        if problems:
            out.append(problem_event("the message", problems, common))

        unreadable = _unreadable(code, calls, buffer) if code is not None else ()
        for index, part in enumerate(parts):
            if part.function_call is not None and (not unreadable or id(part) not in unreadable):
                out += self._requests.call(part.function_call, index, buffer, event, message_id, common)
            elif part.function_response is not None:
                out += self._requests.response(part.function_response, event, common)

        usage = event.usage_metadata or (buffer.usage if buffer is not None else None)
        if usage is not None:
            counted = usage_event(usage, event.model_version, common)
            out += [counted] if counted is not None else []
        dropped = [part for part in calls if id(part) in unreadable] if unreadable else []
        out += self._outcome(event, code, answers, dropped, common)
        out += action_events(event, common)
        return out or list(lone_marks(event, common))

    def _outcome(
        self, event: AdkEvent, code: str | None, answers: bool, dropped: list[types.Part], common: dict[str, Any]
    ) -> list[Event]:
        """How the response ended: remembered for the stream's end, and an error event if it is one."""
        said = code_of(event.error_code)
        if said == ABORTED_CODE:
            self._code = said
            return []
        if code is not None:
            self._code = code
            calls = [_call_as_json(part.function_call) for part in dropped if part.function_call is not None]
            for part in dropped:
                if part.function_call is not None and part.function_call.id:
                    self._requests.hide(part.function_call, event, common)
            return [error_event(code, event.error_message, common, calls=calls or None)]
        if (event.content is not None and not answers) or event.output is not None:
            self._code = None  # it went on: the model tried again, or a graph its node
        if is_empty_reply(said):
            data = {"code": said, "message": repair_text(event.error_message or "")}
            return [Custom(kind="empty_reply", data=data, **common)]
        return []

    # --- messages -----------------------------------------------------------------------------------------------------

    def _message_id(self, adk_id: str | None) -> str:
        base = clean_id(adk_id) or "message"
        name, number = base, 2
        while name in self._message_ids:
            name, number = f"{base}.{number}", number + 1
        self._message_ids.add(name)
        return name

    def _delta(self, buffer: MessageBuffer, content: list[ContentPart], common: Mapping[str, Any]) -> Message:
        if not buffer.message_id:
            buffer.message_id = self._message_id(buffer.adk_id)
        return Message(message_id=buffer.message_id, content=content, partial=True, index=buffer.next_index(), **common)

    def _cut_short(
        self, buffer: MessageBuffer, common: dict[str, Any], *, interrupted: bool, broken: bool = False
    ) -> list[Event]:
        """A response without its closing event: what was shown of it, and why it ended, as far as that is known."""
        code = buffer.code or (BROKEN_OFF if broken else "")
        out = self._closing(buffer, common, interrupted=interrupted and code != "STOP")
        if not is_error(code):
            return out
        self._code = code
        usage = usage_event(buffer.usage, None, common) if buffer.usage is not None else None
        return [*out, *([usage] if usage is not None else []), error_event(code, None, common)]

    def _closing(
        self, buffer: MessageBuffer, common: dict[str, Any], final: Sequence[ContentPart] = (), *, interrupted: bool
    ) -> list[Event]:
        if not buffer.started:
            return []
        deltas, content, revised = buffer.close(final)
        out: list[Event] = [self._delta(buffer, delta, common) for delta in deltas]
        if not buffer.message_id:
            # Everything shown was held back and turned out to be the whole: there were no deltas.
            buffer.message_id = self._message_id(buffer.adk_id)
        out.append(
            Message(message_id=buffer.message_id, content=content, interrupted=interrupted, revised=revised, **common)
        )
        return out


def _slot(event: AdkEvent) -> Slot:
    return (event.invocation_id or "", event.author or "", event.branch or "")


def _text_delta(buffer: MessageBuffer, common: Mapping[str, Any], chunk: LlmResponse) -> TextDelta | None:
    parts = chunk.content.parts if chunk.partial and chunk.content is not None else None
    if parts is None or len(parts) != 1 or chunk.usage_metadata is not None:
        return None
    part = parts[0]
    if not buffer.message_id or not is_plain_text(part):
        return None
    if chunk.error_code or chunk.finish_reason or chunk.custom_metadata:
        return None
    kind = "thought" if part.thought else "text"
    shown = buffer.feed_text(kind, part.text or "")
    if shown is None:
        return None
    buffer.repeats += 1
    index = buffer.next_index() if shown else 0
    return TextDelta(kind, shown, buffer.message_id, index, common.get("agent_id"), common.get("thread_id"))


def _parts(event: AdkEvent) -> list[types.Part]:
    return list(event.content.parts or ()) if event.content is not None else []


def _is_thought(part: ContentPart) -> bool:
    return part.type == "thought" or (isinstance(part, Text) and not part.text.strip())


def _forged_calls_as_content(parts: list[types.Part], problems: list[str]) -> list[ContentPart]:
    """A user's parts as content; a function call that a user's message holds is only content and runs nothing."""
    out: list[ContentPart] = []
    for part in parts:
        try:
            out += parts_to_content([part])
        except JsonError as error:
            problems.append(f"{error.path}: {error.got}")
    return out


def _unreadable(code: str, calls: list[types.Part], buffer: MessageBuffer | None) -> set[int]:
    """The parts (by ``id``) whose call must not be shown or run: malformed, or cut off inside its arguments."""
    if code == "MALFORMED_FUNCTION_CALL":
        return {id(part) for part in calls}
    if code == "MAX_TOKENS" and buffer is not None:
        cut = {call.name for call in buffer.calls if not call.complete}
        return {id(part) for part in calls if part.function_call is not None and part.function_call.name in cut}
    return set()


def _call_as_json(made: types.FunctionCall) -> dict[str, Any]:
    return {"id": made.id, "name": made.name, "args": lossy_json(made.args)[0]}
