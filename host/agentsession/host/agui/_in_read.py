"""Reading a ``RunAgentInput`` strictly: JSON, ids, sizes, roles.

Not for: what it means for the conversation (``_in_new.py``, ``_in_answers.py``). Rules carried: SEC-01.
May import: ``ag_ui``, pydantic, ``_in_faults``.

The models of ``ag_ui.core`` take an empty id, a lone surrogate, a million messages. Clients send the whole history with
each run, so what is behind the last word of the agent is only looked at, not validated: it never runs.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ag_ui.core import Context, ResumeEntry, RunAgentInput, Tool, ToolMessage, UserMessage
from pydantic import ValidationError
from pydantic_core import from_json

from agentsession.host.agui._in_faults import Malformed

__all__ = ["RunInput", "read_input"]

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MAX_OLD_ID: Final = 1024
_MAX_MESSAGES: Final = 20_000
_MAX_LISTS: Final[Mapping[str, int]] = {"tools": 256, "context": 256, "resume": 256}
_MAX_NEW: Final = 64
_MAX_NAME: Final = 256
_ROLES: Final = frozenset({"developer", "system", "assistant", "user", "tool", "activity", "reasoning"})
_AGENTS: Final = frozenset({"assistant", "reasoning"})
"""The roles of what only the agent says: what is before it in the history was answered."""


class RunInput(NamedTuple):
    """One input, read. Nothing of it was checked against the conversation."""

    thread_id: str
    run_id: str
    parent_run_id: str | None
    history: Sequence[Mapping[str, Any]]
    """Every message as it came, in order."""
    tail: Sequence[UserMessage]
    """User messages after the last word of the agent, in order: those of which some may be new."""
    results: Sequence[ToolMessage]
    """Tool messages anywhere, in order."""
    tools: Sequence[Tool]
    context: Sequence[Context]
    state: Any
    """``{}``, which clients send when they have none, where it is absent or null."""
    forwarded: Any
    resume: Sequence[ResumeEntry]


def read_input(body: bytes) -> RunInput:
    """Read a body. Raises :class:`Malformed`."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Malformed(f"the body is not JSON: {_jiter(error)}", expected="a RunAgentInput as JSON, UTF-8") from None
    if not isinstance(raw, dict):
        raise Malformed("the body is not an object", expected="a RunAgentInput")
    messages = raw.get("messages")
    if not isinstance(messages, list):
        raise Malformed("messages is not a list", pointer="/messages", expected="the messages so far")
    if len(messages) > _MAX_MESSAGES:
        raise Malformed("too many messages", pointer="/messages", expected=f"at most {_MAX_MESSAGES}")
    for name, most in _MAX_LISTS.items():
        given = raw.get(name)
        if isinstance(given, list) and len(given) > most:
            raise Malformed(f"too many {name}", pointer=f"/{name}", expected=f"at most {most}")
    tail, results = _messages(messages)
    try:
        head = RunAgentInput.model_validate({**raw, "messages": []}, strict=True)
    except ValidationError as error:
        raise _malformed(error, "", raw) from None
    for name, value in (("threadId", head.thread_id), ("runId", head.run_id), ("parentRunId", head.parent_run_id)):
        if value is not None:
            _check_id(value, f"/{name}")
    tools = head.tools or []
    for index, tool in enumerate(tools):
        _check_tool(tool, f"/tools/{index}")
    return RunInput(
        thread_id=head.thread_id,
        run_id=head.run_id,
        parent_run_id=head.parent_run_id,
        history=messages,
        tail=tail,
        results=results,
        tools=tools,
        context=head.context or [],
        state={} if head.state is None else head.state,
        forwarded=head.forwarded_props,
        resume=head.resume or [],
    )


def _messages(messages: Sequence[Any]) -> tuple[list[UserMessage], list[ToolMessage]]:
    begin = 0
    tools: list[int] = []
    for index, message in enumerate(messages):
        if type(message) is not dict:
            raise Malformed("a message is not an object", pointer=f"/messages/{index}")
        role = message.get("role")
        if type(role) is not str or role not in _ROLES:
            raise Malformed("unknown role", pointer=f"/messages/{index}/role", expected=", ".join(sorted(_ROLES)))
        given = message.get("id")
        if type(given) is not str or not 0 < len(given) <= _MAX_OLD_ID:
            raise Malformed("a message without a usable id", pointer=f"/messages/{index}/id", expected="a short text")
        if role == "tool":
            tools.append(index)
        elif role in _AGENTS:
            begin = index + 1
    tail: list[UserMessage] = []
    for index in range(begin, len(messages)):
        if messages[index]["role"] == "user":
            tail.append(_user(messages[index], f"/messages/{index}"))
    if len(tail) > _MAX_NEW:
        raise Malformed("too many messages after the agent's last", pointer="/messages", expected=f"at most {_MAX_NEW}")
    return tail, [_tool_message(messages[index], f"/messages/{index}") for index in tools]


def _user(raw: Mapping[str, Any], pointer: str) -> UserMessage:
    try:
        message = UserMessage.model_validate(raw, strict=True)
    except ValidationError as error:
        raise _malformed(error, pointer, raw) from None
    _check_id(message.id, f"{pointer}/id")
    if not isinstance(message.content, str):
        for index, part in enumerate(message.content):
            source = getattr(part, "source", None)
            if source is not None and source.type == "data":
                _check_base64(source.value, f"{pointer}/content/{index}/source/value")
    return message


def _tool_message(raw: Mapping[str, Any], pointer: str) -> ToolMessage:
    try:
        message = ToolMessage.model_validate(raw, strict=True)
    except ValidationError as error:
        raise _malformed(error, pointer, raw) from None
    if not 0 < len(message.tool_call_id) <= _MAX_OLD_ID:
        raise Malformed("a tool message without a usable toolCallId", pointer=f"{pointer}/toolCallId")
    return message


def _check_tool(tool: Tool, pointer: str) -> None:
    if not 0 < len(tool.name) <= _MAX_NAME or not tool.name.isprintable():
        raise Malformed("a tool without a usable name", pointer=f"{pointer}/name", expected="1 to 256 characters")
    if tool.parameters is not None and not isinstance(tool.parameters, dict):
        raise Malformed("parameters are not a JSON Schema", pointer=f"{pointer}/parameters", expected="an object")


def _check_id(value: str, pointer: str) -> None:
    if _ID.fullmatch(value) is None:
        raise Malformed("not an id", pointer=pointer, expected="1 to 128 of A-Z a-z 0-9 . _ : -")


def _check_base64(value: str, pointer: str) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("not base64", pointer=pointer, expected="bytes, base64-encoded") from None


def _malformed(error: ValidationError, pointer: str, raw: Any) -> Malformed:
    """The problem that lies deepest, without the value: it may be a secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    deepest = max(problems, key=lambda problem: len(problem["loc"]))
    at: Any = raw
    part: Any
    for part in deepest["loc"]:
        if (isinstance(at, dict) and part in at) or (isinstance(at, list) and isinstance(part, int)):
            pointer += f"/{part}"
            at = at[part]  # what is not there is pydantic's name for a branch
    if deepest["type"] == "missing":
        pointer += f"/{deepest['loc'][-1]}"
    return Malformed(f"not a RunAgentInput: {deepest['msg']}"[:300], pointer=pointer or "/")


def _jiter(error: ValueError) -> str:
    """Where the parser stopped; it says nothing of what was sent."""
    return str(error)[:120]
