"""Function calls and their responses, as requests: tool requests and results, questions and answers.

Not for: the rest of an event (``_translate``), or what a question holds (``_elicit``).
Rules carried: TOOL-01, TOOL-03, TOOL-11, TOOL-13, HITL-01. May import: the pure parts beside it, protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from google.genai import types

from agentsession.adapters.adk._calls import Call, CallBook
from agentsession.adapters.adk._content import parts_to_content
from agentsession.adapters.adk._elicit import (
    answer_of,
    asks,
    hint_of,
    is_placeholder,
    kind_of,
    original_id,
    question_of,
)
from agentsession.adapters.adk._errors import ABORTED_CODE, SEALED_CODE, SEALS
from agentsession.adapters.adk._events import code_of, problem_event, with_marks
from agentsession.adapters.adk._mcp_results import files_of
from agentsession.adapters.adk._stream import ArgsWriter, MessageBuffer, StreamedCall
from agentsession.adapters.adk._values import is_mapping, is_object, lossy_json
from agentsession.adapters.base import unvalidated
from agentsession.protocol import (
    ContentPart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    repair_text,
)

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent

__all__ = ["CONTROL_TOOLS", "Needs", "Owner", "Requests", "agent_owns", "is_failure", "result_body", "stored_needs"]

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


class Requests:
    """Turns the calls and responses of a session into requests and answers, and keeps the book of them."""

    def __init__(
        self,
        needs: Needs,
        owner: Owner,
        is_gate: Callable[[str], bool] | None,
        parent: Requests | None,
        long_running: Callable[[str], bool] | None = None,
    ) -> None:
        self.book: CallBook = parent.book if parent is not None else CallBook()
        self.delegated: set[str] = parent.delegated if parent is not None else set()
        self._needs = needs
        self._owner = owner
        self._is_gate = is_gate
        self._long_running = long_running

    def piece(self, buffer: MessageBuffer, piece: types.FunctionCall, common: dict[str, Any]) -> list[Event]:
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
        needs = self._needed(last.name, False)
        if not text or needs is None or asks(last.name):
            return []  # a question is shown when it is whole
        return [
            ToolRequest(
                request_id=last.request_id,
                name=last.name,
                args_delta=text,
                partial=True,
                owner=self._owner(last.name),
                needs=needs,
                **common,
            )
        ]

    def call(
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
        long_running = long_running or (self._long_running is not None and self._long_running(name))
        kind = kind_of(name, made.args, long_running)
        streamed = _streamed(buffer, adk_id, name)
        # A question is shown when it is whole, so the id of pieces that were shown is that of another request.
        goes_on = streamed is not None and (kind == "tool" or asks(streamed.name))
        request_id = streamed.request_id if streamed is not None and goes_on else ""
        call = Call(
            request_id=request_id or self.book.fresh_id(adk_id, f"{event.id or 'call'}.{index}"),
            adk_id=adk_id,
            name=name,
            kind=kind,
            long_running=long_running,
            invocation_id=event.invocation_id or "",
            event_id=event.id or "",
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
        marks: dict[str, Any] = {"callId": repair_text(adk_id)} if adk_id and adk_id != call.request_id else {}
        if not is_object(args):
            marks |= {"invalidArgs": True, "rawArgs": args}
            args = None
        fields = with_marks(common, **marks)
        fields["request_id"] = call.request_id
        fields["name"] = name
        fields["args"] = args
        fields["owner"] = self._owner(name)
        fields["needs"] = needs
        fields["message_id"] = message_id
        fields["long_running"] = long_running
        request = unvalidated(ToolRequest, fields)
        if problems:
            return [request, problem_event(f"the call of {name!r}", problems, common)]
        return [request]

    def _needed(self, name: str, long_running: bool) -> str | None:
        return "none" if name in CONTROL_TOOLS else self._needs(name, long_running)

    def hide(self, made: types.FunctionCall, event: AdkEvent, common: dict[str, Any]) -> None:
        """Enter a call that must not run, so that ADK's response to it is not taken for that of another."""
        name = repair_text(made.name or "")
        request_id = self.book.fresh_id("", f"{event.id or 'call'}.hidden")
        call = Call(request_id, made.id or "", name, hidden=True, thread_id=common.get("thread_id"))
        call.invocation_id, call.event_id = event.invocation_id or "", event.id or ""
        self.book.add(call)

    def _question(self, call: Call, args: Mapping[str, Any], common: dict[str, Any]) -> list[Event]:
        tool = self.book.known(original_id(call.kind, args))
        if tool is not None and tool.kind != "tool":
            tool = None  # a node of a graph asks about itself, under the id of its question
        if call.kind == "tool_confirmation" and self._is_gate is not None and self._is_gate(hint_of(args)):
            call.hidden = True
            return []
        if tool is not None and tool.open and not tool.hidden:
            call.tool_request_id = tool.request_id
        fields = question_of(call.kind, args, tool.name if tool is not None else None)
        marks = {"callId": repair_text(call.adk_id)} if call.adk_id and call.adk_id != call.request_id else {}
        return [
            ElicitationRequest(
                request_id=call.request_id,
                kind=call.kind,
                tool_request_id=call.tool_request_id,
                **fields,
                **with_marks(common, **marks),
            )
        ]

    def response(self, made: types.FunctionResponse, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        adk_id, name = made.id or "", repair_text(made.name or "")
        by_agent = common.get("source") != "host"
        if is_placeholder(event, adk_id):
            return []
        call = self.book.match(adk_id, name, event.invocation_id or "", common.get("thread_id") if by_agent else False)
        if call is None:
            return self._stray(made, name, common)
        if not by_agent:
            # ADK writes a user's answer as the user's; it belongs where the request is, as live.
            common = {**common, "thread_id": call.thread_id}
            if call.agent_id is not None:
                common["agent_id"] = call.agent_id
        if call.kind != "tool":
            return self._answer(call, made, event, common)
        if call.hidden:
            call.open = False
            return []
        data, problems = lossy_json(made.response)
        failed = is_failure(made.response)
        out: list[Event] = [problem_event(f"the result of {name!r}", problems, common)] if problems else []
        body = _body(data, made, out, common)
        if call.long_running and call.needs != "none" and by_agent and not failed and not event.error_code:
            return [*out, ToolUpdate(request_id=call.request_id, **body, **common)]
        call.open = False
        status = "failed" if failed else "completed"
        if code_of(event.error_code) == ABORTED_CODE:
            # ADK says "aborted" of all; a call that only waited for the host never began.
            status = "cancelled" if call.needs == "result" else "unknown"
        elif call.declined:
            status = "denied"  # also where its tool was told of the no, and words that as no error
        elif code_of(event.error_code) == SEALED_CODE and data in SEALS.values():
            status = next(status for status, told in SEALS.items() if told == data)
            body.pop("data", None)  # what the model is told in the place of a result
        shown = name if name == call.name else call.name
        marks = {"responseName": name} if name != shown else {}
        if by_agent and call.needs == "result":
            # ADK itself ran what this request says the host runs: said of whoever keeps the record, not of the agent.
            common = {**common, "source": "ext:adk"}
        fields = with_marks(common, **marks)
        fields["request_id"] = call.request_id
        fields["name"] = shown
        fields["is_error"] = failed
        fields["status"] = status
        fields.update(body)
        out.append(unvalidated(ToolResponse, fields))
        return out

    def _answer(self, call: Call, made: types.FunctionResponse, event: AdkEvent, common: dict[str, Any]) -> list[Event]:
        call.open = False
        if call.hidden:
            return []
        code = code_of(event.error_code)
        # A seal also gives an answer that its agent was left before it could hear.
        sealed = code is not None and (code != SEALED_CODE or made.response in SEALS.values())
        action, content = answer_of(call.kind, made.response, sealed=sealed)
        if call.kind == "tool_confirmation" and action != "accept" and call.tool_request_id is not None:
            tool = self.book.get(call.tool_request_id)
            if tool is not None:
                tool.declined = True
        fields: dict[str, Any] = {"content": content} if content is not None else {}
        common = {**common, "source": "host"}  # somebody's answer, also where ADK writes it as a result of the agent's
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


def is_failure(response: object) -> bool:
    """Whether a tool's response says that it failed: MCP's mark, or an error that says something."""
    if not is_mapping(response):
        return False
    if response.get("isError") is True or response.get("is_error") is True:
        return True
    error = response.get("error")
    return error is not None and error not in (False, "", [], {})


def result_body(data: Any) -> dict[str, Any]:
    """``data`` and ``content`` of a tool's result: ADK wraps what is not an object as ``{"result": …}``."""
    wrapped = is_object(data) and len(data) == 1 and "result" in data
    body: dict[str, Any] = {"data": data["result"] if wrapped else data}
    if files := files_of(data):
        body["content"] = files
    return body


def _body(data: Any, made: types.FunctionResponse, out: list[Event], common: dict[str, Any]) -> dict[str, Any]:
    """``data`` and ``content`` of a result as ADK stores it, which may have files beside it."""
    body = result_body(data) if made.response is not None else {}
    content: list[ContentPart] = body.pop("content", [])
    for part in made.parts or ():
        try:
            content += parts_to_content([types.Part.model_validate(part.model_dump(exclude_none=True))])
        except ValueError as error:  # JsonError and pydantic's ValidationError are both ValueErrors
            out.append(problem_event("a file of the result", [str(error).splitlines()[0]], common))
    if content:
        body["content"] = content
    return body
