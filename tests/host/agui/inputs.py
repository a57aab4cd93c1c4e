"""Short ways to write AG-UI inputs and the requests that they answer."""

from __future__ import annotations

import json
from typing import Any

from agentsession.protocol import ElicitationRequest, Text, ToolRequest
from agentsession.protocol import Message as OurMessage

__all__ = ["assistant", "body", "grant_request", "question", "said", "tool_message", "user"]


def body(*messages: dict[str, Any], **changes: Any) -> bytes:
    whole = {"threadId": "t1", "runId": "r1", "state": {}, "messages": list(messages), "tools": [], "context": []}
    return json.dumps({**whole, "forwardedProps": {}, **changes}).encode()


def user(id: str, content: Any = "hello") -> dict[str, Any]:
    return {"id": id, "role": "user", "content": content}


def assistant(id: str, content: str | None = "hi", *calls: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, "role": "assistant", "content": content}
    if calls:
        made["toolCalls"] = [
            {"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call in calls
        ]
    return made


def tool_message(call: str, content: Any = "done", id: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id or f"{call}.m", "role": "tool", "toolCallId": call, "content": content, **more}


def said(seq: int, id: str, text: str = "hello", **more: Any) -> OurMessage:
    return OurMessage(seq=seq, message_id=id, role="user", content=[Text(text=text)], source="user", **more)


def grant_request(id: str = "r1", args: dict[str, Any] | None = None) -> ToolRequest:
    return ToolRequest(seq=1, request_id=id, name="wipe", args=args or {"path": "a"}, owner="agent", needs="grant")


def question(id: str = "q1", kind: str = "tool_confirmation", **more: Any) -> ElicitationRequest:
    return ElicitationRequest(seq=1, request_id=id, kind=kind, message="May it?", **more)
