"""The whole conversation as AG-UI messages, with the ids that a client knows them by.

Not for: streaming. Pure. Rules carried: PER-03 as far as messages go.
May import: ``protocol``, the ``_out`` modules of content, text, tools, agents.

A client throws away what a snapshot leaves out, but activities. So a snapshot has all messages of the record, a tool's
result under the id of the client's own message where it sent one, and what the client has of its own in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentsession.host.agui._out_below import told_below
from agentsession.host.agui._out_content import as_content, result_content
from agentsession.host.agui._out_known import Invocations, client_message_id
from agentsession.host.agui._out_places import CallPlaces
from agentsession.host.agui._out_text import ROLES, call_signature, thoughts
from agentsession.host.agui._out_tools import result_id, status_of
from agentsession.host.agui._out_wire import Wire, own
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    ContentPart,
    Event,
    FunctionCall,
    Message,
    Refusal,
    Text,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    dumps,
    without_rewound,
)

__all__ = ["merged_meta", "message_ids", "messages_snapshot"]

_AGUI = "agui"


def merged_meta(messages: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The ``_meta`` of one message that several of a client's became: the id and the number of parts of each."""
    return {_AGUI: {"messages": [{"id": message_id, "parts": count} for message_id, count in messages]}}


def message_ids(event: Message) -> list[str]:
    """The ids by which clients know a message: one, or those of the messages that it was made of."""
    return [message_id for message_id, _ in _split(event)]


def messages_snapshot(
    events: Iterable[Event],
    *,
    client_messages: Sequence[Mapping[str, Any]] = (),
    answered: Mapping[str, str] | None = None,
    blank_reasoning: Iterable[str] = (),
) -> list[Wire]:
    """The messages of a record, oldest first, for ``MESSAGES_SNAPSHOT``.

    ``client_messages``: those of the input, as they came: what of them the record does not have keeps its place.
    ``answered``: ids of the client's tool messages by request id, where the record does not tell them.
    ``blank_reasoning``: ids of reasoning that is about to be streamed again: no snapshot takes it away, this one
    empties it.
    """
    ours = _Conversation(answered or {})
    for event in without_rewound(events):
        ours.take(event)
    found = ours.messages()
    found += [{"id": item, "role": "reasoning", "content": ""} for item in blank_reasoning]
    return _with_the_clients(found, client_messages)


class _Conversation:
    """The messages, being gathered."""

    def __init__(self, answered: Mapping[str, str]) -> None:
        self._answered = answered
        self._threads = Invocations()
        self._places = CallPlaces()
        self._order: list[Wire] = []
        self._assistants: dict[str, Wire] = {}
        """By message id; of a call without one by its own."""
        self._calls: dict[str, tuple[str, Wire]] = {}
        """Of a request: the id of its assistant message, and the call."""
        self._results: dict[str, list[Wire]] = {}
        self._signatures: dict[str, str] = {}
        self._told: set[str] = set()
        """Ids of the messages and results of sub-agents in sessions of their own, which may be told twice."""

    def messages(self) -> list[Wire]:
        """In order; results behind the message whose calls they answer."""
        out: list[Wire] = []
        for message in self._order:
            out.append(message)
            if message["role"] == "assistant":
                out += self._results.get(message["id"], [])
        return out

    def take(self, event: Event) -> None:
        """Take in the next event."""
        self._places.note(event)
        match event:
            case Message(partial=False):
                self._say(event)
            case ToolRequest(partial=False):
                self._call(event)
            case ToolResponse():
                self._answer(event)
            case AgentStart():
                self._threads.started(event)
            case AgentEnd():
                self._threads.ended(event)
            case ToolUpdate():
                for child in told_below(event):
                    self._take_child(child)
            case _:
                pass

    def _take_child(self, event: Event) -> None:
        """As a run shows it: what such a sub-agent was told is its caller's call."""
        match event:
            case Message(message_id=name, partial=False):
                if event.role in ROLES or name in self._told:
                    return
                self._told.add(name)
            case ToolRequest(request_id=name) if name in self._calls:
                return
            case ToolResponse(request_id=name):
                if result_id(name) in self._told:
                    return
                self._told.add(result_id(name))
            case _:
                pass
        self.take(event)

    def _say(self, event: Message) -> None:
        tag = self._threads.tag(event.thread_id)
        if event.role in ROLES:
            for message_id, parts in _split(event):
                content = as_content(parts)
                if event.role != "user" and not isinstance(content, str):
                    content = "".join(part.text for part in parts if isinstance(part, Text))
                self._order.append({"id": message_id, "role": event.role, "content": content, **tag})
            return
        for index, thought in enumerate(thoughts(event.content)):
            reasoning: Wire = {
                "id": f"{event.message_id}.t{index}",
                "role": "reasoning",
                "content": thought.text,
                **tag,
            }
            if thought.signature:
                reasoning["encryptedValue"] = thought.signature
            self._order.append(reasoning)
        for part in event.content:
            if isinstance(part, FunctionCall) and part.id is not None and (signature := call_signature(part)):
                self._sign(part.id, signature)
        texts = [part for part in event.content if isinstance(part, (Text, Refusal))]
        said = "".join(part.text for part in texts)
        signature = next(
            (part.signature for part in reversed(texts) if isinstance(part, Text) and part.signature), None
        )
        if not said and signature is None:
            return
        message = self._assistant(event.message_id, tag)
        message["content"] = said
        if signature is not None:
            message["encryptedValue"] = signature
        refused = any(isinstance(part, Refusal) for part in texts)
        flags = {"interrupted": event.interrupted, "revised": event.revised, "refusal": refused}
        message.update(own(**{name: True for name, given in flags.items() if given}))

    def _assistant(self, message_id: str, tag: dict[str, str]) -> Wire:
        message = self._assistants.get(message_id)
        if message is None:
            message = {"id": message_id, "role": "assistant", **tag}
            self._assistants[message_id] = message
            self._order.append(message)
        return message

    def _call(self, event: ToolRequest) -> None:
        owner = self._places.of(event) or event.request_id
        self._places.placed(event, owner)
        message = self._assistant(owner, self._threads.tag(event.thread_id))
        function = {"name": event.name, "arguments": dumps(event.args or {})}
        call: Wire = {"id": event.request_id, "type": "function", "function": function}
        message.setdefault("toolCalls", []).append(call)
        self._calls[event.request_id] = (owner, call)
        signature = self._signatures.pop(event.request_id, None)
        if signature is not None:
            call["encryptedValue"] = signature

    def _sign(self, request_id: str, signature: str) -> None:
        if request_id in self._calls:
            self._calls[request_id][1]["encryptedValue"] = signature
        else:
            self._signatures[request_id] = signature

    def _answer(self, event: ToolResponse) -> None:
        if event.request_id not in self._calls:
            return
        message_id = client_message_id(event) or self._answered.get(event.request_id) or result_id(event.request_id)
        content = result_content(event)
        about = status_of(event)
        result: Wire = {"id": message_id, "role": "tool", "toolCallId": event.request_id, "content": content}
        result.update(own(**about))
        if about:
            result["error"] = content if isinstance(content, str) and content else f"The call is {event.status}."
        result.update(self._threads.tag(event.thread_id))
        self._results.setdefault(self._calls[event.request_id][0], []).append(result)


def _split(event: Message) -> list[tuple[str, list[ContentPart]]]:
    """The client's messages that this one was made of; itself where it was one."""
    given = (event.meta or {}).get(_AGUI)
    listed = given.get("messages") if isinstance(given, Mapping) else None
    found: list[tuple[str, list[ContentPart]]] = []
    at = 0
    for item in listed if isinstance(listed, list) else []:
        message_id = item.get("id") if isinstance(item, Mapping) else None
        count = item.get("parts") if isinstance(item, Mapping) else None
        if not isinstance(message_id, str) or not isinstance(count, int):
            return [(event.message_id, list(event.content))]
        found.append((message_id, event.content[at : at + count]))
        at += count
    return found or [(event.message_id, list(event.content))]


def _with_the_clients(ours: list[Wire], theirs: Sequence[Mapping[str, Any]]) -> list[Wire]:
    """Our messages, and the client's own that we do not have, each before the one of ours that it stood before."""
    known = {message["id"] for message in ours}
    before: dict[str | None, list[Wire]] = {}
    waiting: list[Wire] = []
    for message in theirs:
        if message.get("id") in known:
            before.setdefault(message["id"], []).extend(waiting)
            waiting = []
        elif message.get("role") not in ("activity", "reasoning"):
            waiting.append(dict(message))
    out: list[Wire] = []
    for message in ours:
        out += before.pop(message["id"], [])
        out.append(message)
    return out + waiting
