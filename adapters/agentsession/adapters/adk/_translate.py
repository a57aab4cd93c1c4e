"""ADK Events to contract events: one pure translator, the same for a live run, a stored session and a file.

Not for: brackets (``agent_start``, ``agent_end``), ``stream_end`` and decisions: whoever drives it adds those, the live
session from ADK's callbacks and ``_record`` from the whole record. It reads no clock and makes no random id.
Rules carried: LIFE-14, TOOL-01, TOOL-03, TOOL-11, HITL-01, SEC-01 as far as the translation goes.
May import: the pure parts beside it, protocol, google types for annotations.

One ADK Event fans out into several contract events, in this order: message, tool requests and responses and questions
in the order of their parts, usage, error, state, custom. docs/adk-mapping.md is the table; a test reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.genai import types

from agentsession.adapters.adk._calls import Call, CallBook
from agentsession.adapters.adk._content import parts_to_content
from agentsession.adapters.adk._elicit import answer_of, hint_of, kind_of, original_id, question_of
from agentsession.adapters.adk._errors import ABORTED_CODE, EndReason, end_reason, is_empty_reply, is_error
from agentsession.adapters.adk._events import (
    action_events,
    code_of,
    common_fields,
    error_event,
    problem_event,
    reports_error,
    usage_event,
    with_marks,
)
from agentsession.adapters.adk._stream import ArgsWriter, MessageBuffer, StreamedCall, visible_parts
from agentsession.adapters.adk._values import clean_id, iso_timestamp, lossy_json
from agentsession.protocol import (
    ContentPart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    JsonError,
    Message,
    Text,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    repair_text,
)

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent

__all__ = ["CONTROL_TOOLS", "Call", "Translator"]

CONTROL_TOOLS: Final = frozenset(
    {"exit_loop", "finish_task", "set_model_response", "transfer_to_agent", "transfer_to_other_agent"}
)
"""Calls that steer ADK itself: shown with needs none, never gated."""

Needs = Callable[[str, bool], str | None]
"""From a tool's name and whether it is long-running: what its request needs; ``None``: the call is not shown at all."""

Owner = Callable[[str], str]
"""From a tool's name: who owns it, ``agent`` or ``host``."""


def stored_needs(name: str, long_running: bool) -> str:
    """What a request needs in a stored session: only a long-running call still waits for somebody."""
    del name
    return "result" if long_running else "none"


def agent_owns(name: str) -> str:
    """Every tool of a stored session was the agent's own, as far as its events say."""
    del name
    return "agent"


class Translator:
    """Translates the events of one ADK session, in their order.

    Args:
        needs: What a call needs from the host; see :func:`stored_needs` for the default. A live session passes its
            policy. Control tools never need anything and are not asked about.
        owner: Who owns a tool.
        is_gate: Whether a confirmation's hint marks the adapter's own gate, which is not shown.
        thread_prefix: For the session of an AgentTool's child: the thread that its events hang under.
        parent: The translator whose ids this one must not repeat, and whose calls it may answer.
    """

    def __init__(
        self,
        *,
        needs: Needs = stored_needs,
        owner: Owner = agent_owns,
        is_gate: Callable[[str], bool] | None = None,
        thread_prefix: str | None = None,
        parent: Translator | None = None,
    ) -> None:
        self.book: CallBook = parent.book if parent is not None else CallBook()
        """Every call so far, by contract id and by ADK id."""
        self.delegated: set[str] = parent.delegated if parent is not None else set()
        """ADK ids of calls that are task delegations: shown as brackets, not as requests."""
        self._needs = needs
        self._owner = owner
        self._is_gate = is_gate
        self._thread_prefix = thread_prefix
        self._message_ids: set[str] = parent._message_ids if parent is not None else set()
        self._buffers: dict[tuple[str, str, str], tuple[MessageBuffer, dict[str, Any]]] = {}
        self._fed: set[tuple[str, float, str, int]] = set()
        self._code: str | None = None
        self._said = False

    # --- what the driver asks and tells -------------------------------------------------------------------------------

    @property
    def end_reason(self) -> EndReason:
        """Why the stream would end now, by the last model response of the turn; pending requests not considered."""
        return end_reason(self._code)

    @property
    def said_something(self) -> bool:
        """Whether the agent said anything but thoughts in this turn."""
        return self._said

    def begin_turn(self) -> None:
        """A new turn starts: forget how the last model response of the turn before ended."""
        self._code = None
        self._said = False

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

    def close_messages(self, *, interrupted: bool = True) -> list[Event]:
        """The closing events of messages that stopped streaming in the middle: at an abort, a failure, a pause."""
        out: list[Event] = []
        for buffer, common in self._buffers.values():
            out += self._closing(buffer, common, interrupted=interrupted)
            if buffer.code is not None and is_error(buffer.code):
                self._code = buffer.code
        self._buffers.clear()
        return out

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
            out += self._response(response, event, {**common, "source": "host"})
        out += action_events(event, {**common, "source": "host"})
        return out

    def _partial_event(self, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        key = _slot(event)
        out: list[Event] = []
        held = self._buffers.get(key)
        if held is not None and event.id != held[0].adk_id and held[0].repeats > 0:
            # ADK gives one id to all partials of a response: the response before ended without its closing event.
            out += self._closing(*self._buffers.pop(key), interrupted=True)
            held = None
        if held is None:
            buffer = MessageBuffer(event.id, "")
            self._buffers[key] = (buffer, common)
        else:
            buffer = held[0]
            buffer.repeats += event.id == buffer.adk_id
            self._buffers[key] = (buffer, common)
        parts = _parts(event)
        for delta in buffer.feed(parts):
            out.append(self._delta(buffer, delta, common))
        for part in parts:
            if part.function_call is not None:
                out += self._call_piece(buffer, part.function_call, common)
        if event.usage_metadata is not None:
            buffer.usage = event.usage_metadata  # streamed counts are cumulative: the last one is the call's
        buffer.code = code_of(event.error_code) or code_of(event.finish_reason) or buffer.code
        return out

    def _agent_event(self, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        parts = _parts(event)
        problems: list[str] = []
        content = visible_parts(parts, problems)
        answers = any(part.function_response is not None for part in parts)
        calls = [part for part in parts if part.function_call is not None]
        code = reports_error(event)
        out: list[Event] = []

        held = self._buffers.get(_slot(event))
        if held is not None and not (answers or content or calls or code or event.id == held[0].adk_id):
            held = None  # a state or bookkeeping event in between; the response still streams
        buffer = self._buffers.pop(_slot(event))[0] if held is not None else None
        interrupted = bool(event.interrupted)
        message_id = None
        if buffer is not None and buffer.started:
            cut = interrupted or (not content and not calls and not answers and code is not None)
            out += self._closing(buffer, common, content, interrupted=cut)
            message_id = buffer.message_id
        elif content:
            message_id = (buffer.message_id if buffer is not None else "") or self._message_id(event.id)
            out.append(Message(message_id=message_id, content=content, interrupted=interrupted, **common))
        self._said = self._said or any(not _is_thought(part) for part in content) or bool(calls)
        if problems:
            out.append(problem_event("the message", problems, common))

        unreadable = _readable(code, calls, buffer)
        for index, part in enumerate(parts):
            if part.function_call is not None and id(part) not in unreadable:
                out += self._call(part.function_call, index, buffer, event, message_id, common)
            elif part.function_response is not None:
                out += self._response(part.function_response, event, common)

        usage = event.usage_metadata or (buffer.usage if buffer is not None else None)
        if usage is not None:
            counted = usage_event(usage, event.model_version, common)
            out += [counted] if counted is not None else []
        out += self._outcome(event, code, answers, [part for part in calls if id(part) in unreadable], common)
        out += action_events(event, common)
        return out

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
                    self._hide(part.function_call, event)
            return [error_event(code, event.error_message, common, calls=calls or None)]
        if event.content is not None and not answers:
            self._code = None
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

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call_piece(self, buffer: MessageBuffer, piece: types.FunctionCall, common: dict[str, Any]) -> list[Event]:
        """A partial event with a call: pieces of arguments are shown; a whole call waits for the final event."""
        last = buffer.calls[-1] if buffer.calls else None
        streams = bool(piece.partial_args) or piece.will_continue is not None
        goes_on = last is not None and not last.complete and (not piece.name or piece.name == last.name)
        if not streams and not (goes_on and not piece.args and not piece.name):
            return []
        if not goes_on or last is None:
            if not piece.name:
                return []
            adk_id = piece.id or ""
            request_id = self.book.fresh_id(adk_id, f"{buffer.adk_id}.{len(buffer.calls)}")
            last = StreamedCall(adk_id, request_id, repair_text(piece.name), ArgsWriter())
            buffer.calls.append(last)
        text = last.writer.feed(piece.partial_args or ())
        if not piece.will_continue:
            last.complete = True
            text += last.writer.finish()
        if not text:
            return []
        return [
            ToolRequest(
                request_id=last.request_id,
                name=last.name,
                args_delta=text,
                partial=True,
                owner=self._owner(last.name),
                needs=self._needed(last.name, False) or "none",
                **common,
            )
        ]

    def _call(
        self,
        made: types.FunctionCall,
        index: int,
        buffer: MessageBuffer | None,
        event: AdkEvent,
        message_id: str | None,
        common: dict[str, Any],
    ) -> list[Event]:
        name = repair_text(made.name or "")
        adk_id = made.id or ""
        long_running = adk_id in (event.long_running_tool_ids or ())
        kind = kind_of(name, made.args, long_running)
        streamed = _streamed(buffer, adk_id, name)
        request_id = streamed.request_id if streamed is not None else ""
        call = Call(
            request_id=request_id or self.book.fresh_id(adk_id, f"{event.id or 'call'}.{index}"),
            adk_id=adk_id,
            name=name,
            kind=kind,
            long_running=long_running,
            invocation_id=event.invocation_id or "",
            agent_id=common.get("agent_id"),
            thread_id=common.get("thread_id"),
        )
        self.book.add(call)
        if kind != "tool":
            return self._question(call, made.args or {}, common)
        needs = self._needed(name, long_running)
        if needs is None or adk_id in self.delegated:
            call.hidden = True
            return []
        call.needs = needs
        args, problems = lossy_json(made.args if made.args is not None else {})
        marks: dict[str, Any] = {"callId": adk_id} if adk_id and adk_id != call.request_id else {}
        if not isinstance(args, dict):
            marks |= {"invalidArgs": True, "rawArgs": args}
            args = None
        request = ToolRequest(
            request_id=call.request_id,
            name=name,
            args=args,
            owner=self._owner(name),
            needs=needs,
            message_id=message_id,
            long_running=long_running,
            **with_marks(common, **marks),
        )
        if problems:
            return [request, problem_event(f"the call of {name!r}", problems, common)]
        return [request]

    def _needed(self, name: str, long_running: bool) -> str | None:
        return "none" if name in CONTROL_TOOLS else self._needs(name, long_running)

    def _hide(self, made: types.FunctionCall, event: AdkEvent) -> None:
        """Enter a call that must not run, so that ADK's response to it is not taken for that of another."""
        name = repair_text(made.name or "")
        request_id = self.book.fresh_id("", f"{event.id or 'call'}.hidden")
        self.book.add(Call(request_id, made.id or "", name, hidden=True, invocation_id=event.invocation_id or ""))

    def _question(self, call: Call, args: Mapping[str, Any], common: dict[str, Any]) -> list[Event]:
        tool = self.book.known(original_id(call.kind, args))
        if call.kind == "tool_confirmation" and self._is_gate is not None and self._is_gate(hint_of(args)):
            call.hidden = True
            return []
        if tool is not None and not tool.hidden:
            call.tool_request_id = tool.request_id
        fields = question_of(call.kind, args, tool.name if tool is not None else None)
        marks = {"callId": call.adk_id} if call.adk_id and call.adk_id != call.request_id else {}
        return [
            ElicitationRequest(
                request_id=call.request_id,
                kind=call.kind,
                tool_request_id=call.tool_request_id,
                **fields,
                **with_marks(common, **marks),
            )
        ]

    # --- responses ----------------------------------------------------------------------------------------------------

    def _response(self, made: types.FunctionResponse, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        adk_id, name = made.id or "", repair_text(made.name or "")
        by_agent = common.get("source") != "host"
        if by_agent and not event.error_code and _is_placeholder(adk_id, event):
            return []
        call = self.book.match(adk_id, name, event.invocation_id or "")
        if call is None:
            return self._stray(made, name, common)
        if call.kind != "tool":
            return self._answer(call, made, event, common)
        if call.hidden:
            call.open = False
            return []
        data, problems = lossy_json(made.response)
        failed = _is_failure(made.response)
        out: list[Event] = [problem_event(f"the result of {name!r}", problems, common)] if problems else []
        body = _body(data, made, out, common)
        if call.long_running and call.needs != "none" and by_agent and not failed and not event.error_code:
            return [*out, ToolUpdate(request_id=call.request_id, **body, **common)]
        call.open = False
        status = "failed" if failed else "completed"
        if code_of(event.error_code) == ABORTED_CODE:
            # ADK says "aborted" of all; a call that only waited for the host never began.
            status = "cancelled" if call.needs == "result" else "unknown"
        elif failed and call.declined:
            status = "denied"
        shown = name if name == call.name else call.name
        marks = {"responseName": name} if name != shown else {}
        out.append(
            ToolResponse(
                request_id=call.request_id,
                name=shown,
                is_error=failed,
                status=status,
                **body,
                **with_marks(common, **marks),
            )
        )
        return out

    def _answer(self, call: Call, made: types.FunctionResponse, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        call.open = False
        if call.hidden:
            return []
        action, content = answer_of(call.kind, made.response, sealed=bool(event.error_code))
        if call.kind == "tool_confirmation" and action != "accept" and call.tool_request_id is not None:
            tool = self.book.get(call.tool_request_id)
            if tool is not None:
                tool.declined = True
        fields: dict[str, Any] = {"content": content} if content is not None else {}
        return [ElicitationResponse(request_id=call.request_id, action=action, **fields, **common)]

    def _stray(self, made: types.FunctionResponse, name: str, common: dict[str, Any]) -> list[Event]:
        """A response without an open call: said twice, or to a call outside this record. Shown; resolves nothing."""
        known = self.book.known(made.id or "") if made.id else None
        if known is not None and (known.settled or known.hidden or known.kind != "tool"):
            return []
        data, problems = lossy_json(made.response)
        body = {"id": repair_text(made.id or ""), "name": name, "response": data}
        if known is not None:
            body["requestId"] = known.request_id
        out: list[Event] = [
            Custom(kind="late_response" if known is not None else "stray_response", data=body, **common)
        ]
        return [*out, problem_event(f"the result of {name!r}", problems, common)] if problems else out


def _slot(event: AdkEvent) -> tuple[str, str, str]:
    return (event.invocation_id or "", event.author or "", event.branch or "")


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


def _readable(code: str | None, calls: list[types.Part], buffer: MessageBuffer | None) -> set[int]:
    """The parts (by ``id``) whose call must not be shown or run: malformed, or cut off inside its arguments."""
    if code == "MALFORMED_FUNCTION_CALL":
        return {id(part) for part in calls}
    if code == "MAX_TOKENS" and buffer is not None:
        cut = {call.name for call in buffer.calls if not call.complete}
        return {id(part) for part in calls if part.function_call is not None and part.function_call.name in cut}
    return set()


def _streamed(buffer: MessageBuffer | None, adk_id: str, name: str) -> StreamedCall | None:
    """The streamed pieces that a final call belongs to: by id, else the first of its name that has no call yet."""
    if buffer is None:
        return None
    left = [call for call in buffer.calls if not call.matched]
    found = next((call for call in left if adk_id and call.adk_id == adk_id), None)
    found = found or next((call for call in left if call.name == name), None)
    if found is not None:
        found.matched = True
    return found


def _call_as_json(made: types.FunctionCall) -> dict[str, Any]:
    return {"id": made.id, "name": made.name, "args": lossy_json(made.args)[0]}


def _is_placeholder(adk_id: str, event: AdkEvent) -> bool:
    """Whether a response only says that its tool waits for a confirmation or a credential: the tool has not run."""
    actions = event.actions
    if actions is None or not adk_id:
        return False
    return adk_id in (actions.requested_tool_confirmations or {}) or adk_id in (actions.requested_auth_configs or {})


def _is_failure(response: object) -> bool:
    if not isinstance(response, Mapping):
        return False
    if response.get("isError") is True or response.get("is_error") is True:
        return True
    return response.get("error") not in (None, False, "", [], {})


def _body(data: Any, made: types.FunctionResponse, out: list[Event], common: dict[str, Any]) -> dict[str, Any]:
    """``data`` and ``content`` of a result: ADK wraps what is not an object as ``{"result": …}``; files are content."""
    body: dict[str, Any] = {}
    if isinstance(data, dict) and set(data) == {"result"}:
        body["data"] = data["result"]
    elif made.response is not None:
        body["data"] = data
    content: list[ContentPart] = []
    for part in made.parts or ():
        try:
            content += parts_to_content([types.Part.model_validate(part.model_dump(exclude_none=True))])
        except ValueError as error:  # JsonError and pydantic's ValidationError are both ValueErrors
            out.append(problem_event("a file of the result", [str(error).splitlines()[0]], common))
    if content:
        body["content"] = content
    return body
