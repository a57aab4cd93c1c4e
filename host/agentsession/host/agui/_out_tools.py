"""Tool calls: arguments in fragments, decisions, progress, results.

Not for: what waits at the end (``_out_interrupts.py``, ``_out_outcome.py``). Pure. Rules carried: TOOL-01 as far as it
shows. May import: ``protocol``, ``_out_content``, ``_out_json``, ``_out_known``, ``_out_wire``.
"""

from __future__ import annotations

import json
from typing import Any, Final

from agentsession.host.agui._out_content import result_content
from agentsession.host.agui._out_json import ArgsText
from agentsession.host.agui._out_text import encrypted
from agentsession.host.agui._out_wire import Wire, activity, custom, milliseconds, own
from agentsession.protocol import ToolDecision, ToolRequest, ToolResponse, ToolUpdate, dumps

__all__ = ["ToolsOut", "result_id", "status_of"]

_EVERY_MS: Final = 125
"""Between two updates of one call: with the one that its end brings, ten in a second at most."""


def result_id(request_id: str) -> str:
    """The id of the message that a result is, where no client has given it one."""
    return f"{request_id}.r"


def status_of(event: ToolResponse) -> dict[str, Any]:
    """What is said of a result that is not plainly a success: AG-UI's result has no field for it."""
    if event.status == "completed" and not event.is_error:
        return {}
    return {"status": event.status, "isError": event.is_error}


class _Call:
    """One call that is not whole yet."""

    __slots__ = ("name", "tag", "text")

    def __init__(self, name: str, tag: dict[str, str]) -> None:
        self.name = name
        self.tag = tag
        self.text = ArgsText()


class ToolsOut:
    """The calls of one run. ``needs_snapshot``: fragments that were sent say something else than the whole request."""

    def __init__(self, answered: dict[str, str]) -> None:
        self._answered = answered
        self._calls: dict[str, _Call] = {}
        self._ended: set[str] = set()
        self._signatures: dict[str, str] = {}
        self._shown: dict[str, int] = {}
        """When the last update of a call was sent."""
        self._held: dict[str, Wire] = {}
        """The last update of a call that was not."""
        self.needs_snapshot = False

    # -- requests -----------------------------------------------------------------------------------------------------

    def has_begun(self, request_id: str) -> bool:
        """Whether the call was told in this run."""
        return request_id in self._calls or request_id in self._ended

    def request(self, event: ToolRequest, tag: dict[str, str], message_id: str | None = None) -> list[Wire]:
        """A fragment of a request, or the whole of one. ``message_id``: of the message that it belongs to."""
        out: list[Wire] = []
        call = self._calls.get(event.request_id)
        if call is None:
            call = _Call(event.name, tag)
            self._calls[event.request_id] = call
            start: Wire = {"type": "TOOL_CALL_START", "toolCallId": event.request_id, "toolCallName": event.name, **tag}
            if message_id is not None:
                start["parentMessageId"] = message_id
            out.append(start)
        if event.partial:
            return [*out, *_args(event.request_id, call.text.feed(event.args_delta or ""))]
        return [*out, *self._whole(event, call)]

    def _whole(self, event: ToolRequest, call: _Call) -> list[Wire]:
        request_id = event.request_id
        del self._calls[request_id]
        whole = dumps(event.args or {})
        text = call.text.text
        differs: dict[str, Any] = {}
        if whole.startswith(text):
            out = _args(request_id, whole[len(text) :])
        else:
            out = _args(request_id, call.text.close()) if not call.text.is_whole else []
            if not _says(call.text.text, event.args or {}):
                differs = {"args": event.args or {}}
        if call.name != event.name:
            differs["name"] = event.name
        self.needs_snapshot = self.needs_snapshot or bool(differs)
        out.append(_end(request_id, owner=event.owner, needs=event.needs, **differs))
        self._ended.add(request_id)
        signature = self._signatures.pop(request_id, None)
        return [*out, encrypted("tool-call", request_id, signature, call.tag)] if signature else out

    def sign(self, request_id: str, signature: str, tag: dict[str, str]) -> list[Wire]:
        """What a provider signed of a call; it is sent after the call's end."""
        if request_id in self._ended:
            return [encrypted("tool-call", request_id, signature, tag)]
        if request_id in self._calls:
            self._signatures[request_id] = signature
        return []

    def close_all(self) -> list[Wire]:
        """Requests that never became whole: their text is made JSON, and nobody is to answer them."""
        out: list[Wire] = []
        for request_id, call in self._calls.items():
            if not call.text.is_whole:
                out += _args(request_id, call.text.close())
            out.append(_end(request_id, incomplete=True))
            self._ended.add(request_id)
            content = "The call was cut off before it was whole. It did not run."
            out.append(
                _result(request_id, result_id(request_id), content, call.tag, {"status": "cancelled", "isError": True})
            )
        self._calls.clear()
        for request_id in list(self._held):
            out += self._flush(request_id)
        return out

    # -- what becomes of them -----------------------------------------------------------------------------------------

    def decision(self, event: ToolDecision) -> list[Wire]:
        """Who allowed or denied a call, and why."""
        value: dict[str, Any] = {"requestId": event.request_id, "decision": event.decision}
        value |= {"argsDigest": event.args_digest}
        value |= {name: given for name in ("args", "by", "reason") if (given := getattr(event, name)) is not None}
        return [custom("tool_decision", value)]

    def update(self, event: ToolUpdate, tag: dict[str, str]) -> list[Wire]:
        """Progress of a call. One that comes too soon after another waits for the next, or for the result."""
        content = event.to_wire()
        kept = ("content", "data", "progress", "total", "display", "started")
        content = {name: content[name] for name in kept if name in content and content[name] != []}
        shown = activity(f"{event.request_id}.u", "tool_update", {"requestId": event.request_id, **content}, **tag)
        at, last = milliseconds(event.timestamp), self._shown.get(event.request_id)
        if at is not None and last is not None and 0 <= at - last < _EVERY_MS:
            self._held[event.request_id] = shown
            return []
        if at is not None:
            self._shown[event.request_id] = at
        self._held.pop(event.request_id, None)
        return [shown]

    def response(self, event: ToolResponse, message_id: str | None, tag: dict[str, str]) -> list[Wire]:
        """How a call ended. ``message_id``: of the client's own message that said so, which it has already."""
        out = self._flush(event.request_id)
        self._shown.pop(event.request_id, None)
        if message_id is not None or event.request_id in self._answered:
            return out
        content = result_content(event)
        return [*out, _result(event.request_id, result_id(event.request_id), content, tag, status_of(event))]

    def _flush(self, request_id: str) -> list[Wire]:
        held = self._held.pop(request_id, None)
        return [] if held is None else [held]


def _says(text: str, args: dict[str, Any]) -> bool:
    """Whether the text means these arguments; Python takes 1 and True for equal, JSON does not."""
    try:
        return json.dumps(json.loads(text), sort_keys=True) == json.dumps(args, sort_keys=True)
    except ValueError:  # a number that only JSON can say
        return False


def _args(request_id: str, delta: str) -> list[Wire]:
    return [{"type": "TOOL_CALL_ARGS", "toolCallId": request_id, "delta": delta}] if delta else []


def _end(request_id: str, **about: Any) -> Wire:
    return {"type": "TOOL_CALL_END", "toolCallId": request_id, **own(**about)}


def _result(
    request_id: str, message_id: str, content: str | list[Wire], tag: dict[str, str], about: dict[str, Any]
) -> Wire:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message_id,
        "toolCallId": request_id,
        "content": content,
        "role": "tool",
        **tag,
        **own(**about),
    }
