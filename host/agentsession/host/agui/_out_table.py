"""The outbound mapping as a table: what each of our events becomes. The reference page is made of it.

Not for: mapping (``_out.py``), which the tests hold to this. Rules carried: none of its own. May import: the ``_out``
modules, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from agentsession.host.agui._out_interrupts import interrupt_of
from agentsession.host.agui._out_known import Asked, Known
from agentsession.host.agui._out_outcome import outcome_of
from agentsession.protocol import ElicitationRequest, StreamEnd, ToolRequest

__all__ = ["MAPPING", "UNUSED", "Row", "interrupts", "outcomes"]


class Row(NamedTuple):
    """One row: an event of ours, in which case, the AG-UI events, and what is worth knowing of them."""

    event: str
    case: str
    becomes: tuple[str, ...]
    note: str


_MESSAGE: Final = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END")
_REASONING: Final = (
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_ENCRYPTED_VALUE",
    "REASONING_END",
)

MAPPING: Final = (
    Row("(a run begins)", "", ("RUN_STARTED",), "always first; `protocolVersion`; `agentsession`: session, turn"),
    Row("initialize", "", (), "what the agent can do is told by its capabilities"),
    Row("message", "of this run's input", (), "the client has it"),
    Row("message", "of another client", _MESSAGE, "role user or developer; media in snapshots alone"),
    Row("message", "text, refusal", _MESSAGE, "opened with the first text; no empty deltas"),
    Row("message", "closing", ("TEXT_MESSAGE_END",), "`agentsession`: interrupted, revised, refusal"),
    Row("message", "revised after deltas", ("MESSAGES_SNAPSHOT",), "before the run ends"),
    Row("message", "thought", _REASONING, "under `ID.t0`, `ID.t1` …; a signature alone has no content"),
    Row("message", "signature of text or call", ("REASONING_ENCRYPTED_VALUE",), "after the end of what is signed"),
    Row("message", "media, code, diff, other parts", ("ACTIVITY_SNAPSHOT",), "under `ID.p0` …; raw calls: nothing"),
    Row(
        "tool_request",
        "partial",
        ("TOOL_CALL_START", "TOOL_CALL_ARGS"),
        "may interleave; those of a step are one assistant message",
    ),
    Row("tool_request", "whole", ("TOOL_CALL_ARGS", "TOOL_CALL_END"), "what is missing; `agentsession`: owner, needs"),
    Row(
        "tool_request", "other than its fragments", ("MESSAGES_SNAPSHOT",), "the right arguments also in `agentsession`"
    ),
    Row(
        "tool_request",
        "never whole",
        ("TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
        "made JSON, `agentsession`: incomplete; cancelled",
    ),
    Row("tool_decision", "", ("CUSTOM",), "who allowed or denied it, and the digest of the arguments"),
    Row("tool_update", "", ("ACTIVITY_SNAPSHOT",), "under `ID.u`, replaced, ten in a second at most"),
    Row("tool_update", "of a sub-agent's own session", (), "what the sub-agent's events become, on a thread"),
    Row("tool_response", "", ("TOOL_CALL_RESULT",), "under `ID.r`; not completed: `agentsession` status, isError"),
    Row("tool_response", "of a client's tool message", (), "the client has it"),
    Row("elicitation_request", "", (), "an interrupt, when the run ends with it open"),
    Row("elicitation_response", "", ("CUSTOM",), "the action, never what was said"),
    Row("agent_start", "main thread", ("STEP_STARTED",), "of the agent's name"),
    Row("agent_end", "main thread", ("STEP_FINISHED",), "a handoff: the old one, then the new one's start"),
    Row("agent_start", "child thread", ("SUBAGENT_STARTED",), "`THREAD#N`; its call and parent where known"),
    Row("agent_end", "child thread", ("SUBAGENT_FINISHED",), "with its result; suspended where it waits"),
    Row("agent_end", "failed, aborted", ("SUBAGENT_ERROR",), ""),
    Row("agent_start", "inside a child thread", ("STEP_STARTED", "STEP_FINISHED"), "`THREAD/AGENT`, tagged"),
    Row("session_update", "state_snapshot", ("STATE_SNAPSHOT",), "without internals"),
    Row("session_update", "state_delta, state_patch", ("STATE_DELTA",), "RFC 6902, without internals"),
    Row("session_update", "title, model, mode, tools", ("CUSTOM",), "the open config stays here"),
    Row("usage", "", ("RUN_FINISHED", "RUN_ERROR"), "summed for each model; output with reasoning; cost apart"),
    Row("error", "not fatal", ("CUSTOM",), ""),
    Row("error", "fatal", ("RUN_ERROR",), "with its message and code"),
    Row("custom", "", ("CUSTOM",), "`agentsession:KIND`"),
    Row("custom", "plan, ui_widget", ("ACTIVITY_SNAPSHOT",), "a plan replaces the one before"),
    Row("(unknown type)", "", ("RAW",), "only where asked for"),
    Row("stream_end", "", ("RUN_FINISHED", "RUN_ERROR"), "see below; what is open is closed before"),
)
"""Every event of ours, in the order of the contract."""

UNUSED: Final = {
    "TEXT_MESSAGE_CHUNK": "messages have a start and an end",
    "TOOL_CALL_CHUNK": "so have calls",
    "REASONING_MESSAGE_CHUNK": "and reasoning",
    "ACTIVITY_DELTA": "an activity is replaced whole",
}
"""Events of AG-UI that are never sent, and why."""

_REASONS: Final = (
    *("completed", "refusal", "max_tokens", "aborted"),
    *("failed", "max_turns", "max_llm_calls", "max_budget", "max_time", "deadline"),
)


def outcomes() -> Iterator[tuple[str, str]]:
    """Each end of a stream and what the run's end is: asked of the code that decides it."""
    for reason in _REASONS:
        found = outcome_of(StreamEnd(reason=reason), Known(), None, None)
        yield reason, f"`RUN_ERROR`, code `{found.code}`" if found.outcome is None else f"`{found.outcome['type']}`"
    yield "a fatal error", "`RUN_ERROR` with its code, else its status"
    yield "input_required, for results of the client's tools alone", "`success` with `pendingToolCallIds`"
    yield "input_required, for anything else", "`STATE_SNAPSHOT`, `MESSAGES_SNAPSHOT`, `interrupt`"


def interrupts() -> Iterator[tuple[str, str, str, str]]:
    """Each request that waits for a person: its interrupt's reason, whose call it names, and the answer's fields."""
    waiting: list[tuple[str, Asked]] = [
        ("a call that needs a grant", ToolRequest(request_id="r", name="x", needs="grant"))
    ]
    for kind in ("tool_confirmation", "user_approval", "auth_required", "clarification", "model_fallback"):
        about = "r" if kind == "tool_confirmation" else None
        url = "https://example.org" if kind == "auth_required" else None
        schema = {"type": "object", "properties": {"(the question's own)": {}}}
        asked = ElicitationRequest(
            request_id="q", kind=kind, message="?", tool_request_id=about, url=url, requested_schema=schema
        )
        waiting.append((f"`{kind}`", asked))
    for name, request in waiting:
        found = interrupt_of(request)
        fields = ", ".join(found["responseSchema"]["properties"])
        yield name, f"`{found['reason']}`", "the call" if "toolCallId" in found else "", fields
