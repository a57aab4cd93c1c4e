"""What of an input is new: the messages that run, and the results of the client's own tools.

Not for: answers to interrupts (``_in_answers.py``). Rules carried: TOOL-09 (a settled call takes no second result).
May import: ``ag_ui``, ``_in_faults``, ``_in_memory``, ``_in_parts``, ``_in_read``, ``protocol``.

Clients send the history with every run. A message runs once: its id is that of the record's message and its idempotency
key. What stands before the last word of the agent, or before a message that is known, never runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ag_ui.core import ToolMessage, UserMessage

from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import META, Memory
from agentsession.host.agui._in_parts import parts_of, raw_fingerprint
from agentsession.host.agui._in_read import RunInput
from agentsession.protocol import ContentPart, MessageInput, Text, ToolResult

__all__ = ["New", "message_of", "new_of", "result_of"]


class New(NamedTuple):
    """What an input adds to its thread."""

    messages: Sequence[UserMessage]
    results: Sequence[ToolMessage]


def new_of(given: RunInput, memory: Memory, calls: Collection[str]) -> New:
    """What is new; ``calls`` are the ids of the client's calls that wait for their results.

    Raises :class:`RunRefused` for a message that says something else than it did, and two results of one call.
    """
    texts = memory.texts
    for message in given.history:
        if message["role"] == "user":
            known = texts.get(message["id"])
            if known is not None and known != raw_fingerprint(message.get("content")):
                raise RunRefused("history_conflict", f"message {message['id']} says something else than it did")
    messages: list[UserMessage] = []
    for said in reversed(given.tail):
        if said.id in texts:
            break
        messages.append(said)
    messages.reverse()
    return New(_each_once(messages), _results(given.results, calls))


def _each_once(messages: Sequence[UserMessage]) -> list[UserMessage]:
    found: dict[str, UserMessage] = {}
    for message in messages:
        same = found.setdefault(message.id, message)
        if same is not message and same.content != message.content:
            raise RunRefused("history_conflict", f"two messages have the id {message.id}")
    return list(found.values())


def _results(results: Sequence[ToolMessage], calls: Collection[str]) -> list[ToolMessage]:
    found: dict[str, ToolMessage] = {}
    for message in results:
        if message.tool_call_id in calls:
            same = found.setdefault(message.tool_call_id, message)
            if (same.content, same.error) != (message.content, message.error):
                raise RunRefused("result_conflict", f"two results for the call {message.tool_call_id}")
    return list(found.values())


def message_of(messages: Sequence[UserMessage], given: RunInput) -> MessageInput:
    """The message that starts a turn; several in one, their ids and places kept in its ``_meta``.

    Raises :class:`RunRefused` for one that says nothing.
    """
    each = [parts_of(message.content) for message in messages]
    if not any(each):
        raise RunRefused("message_empty", "the message says nothing")
    last = messages[-1].id
    meta: dict[str, Any] = {"runId": given.run_id}
    if given.parent_run_id is not None:
        meta["parentRunId"] = given.parent_run_id
    if len(messages) > 1:
        places = zip(messages, each, strict=True)
        meta["messages"] = [{"id": message.id, "parts": len(parts)} for message, parts in places]
    content = [part for parts in each for part in parts]
    return MessageInput.model_validate(
        {
            "content": [part.to_wire() for part in content],
            "messageId": last,
            "idempotencyKey": last,
            "_meta": {META: meta},
        }
    )


def result_of(message: ToolMessage) -> ToolResult:
    """The result of a client's tool. Its error is kept: the model reads it, as the text of a call that failed."""
    content: list[ContentPart] = parts_of(message.content)
    if message.error is not None and message.content != message.error:
        content.append(Text(text=message.error))
    display = {META: {"messageId": message.id}}  # the id that the client knows the result by
    is_error = message.error is not None
    return ToolResult(request_id=message.tool_call_id, content=content, is_error=is_error, display=display)
