"""The rule table: every rule of the contract, once. It feeds the docs, the conformance suite and ``explain``.

Not for: the rules of hosts (``_host_rules.py``), or checking rules (``_lifecycle.py`` and its parts do, if marked
``machine``). May import: the standard library.

Ids are stable: a rule that is dropped stays reserved and its id is never used again (ORD-08 and HITL-05 are reserved).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["RESERVED_RULES", "RULES", "CheckedBy", "Level", "Rule"]

Level = Literal["core", "interactive", "durable", "full"]
"""The conformance level at which a rule is first required."""

CheckedBy = Literal["machine", "session", "wire"]
"""Where it can be seen broken: in the order of events and calls (``machine``), only in the behaviour of a live session
(``session``), or in the text of one event (``wire``)."""

RESERVED_RULES: Final = frozenset({"ORD-08", "HITL-05"})


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract."""

    id: str
    sentence: str
    level: Level | Literal["host"]
    """``host``: it is asked of hosts, not of executors."""
    checked_by: CheckedBy
    capability: str | None = None
    """Required only of executors that declare it, or of hosts that have it; ``None``: of all."""
    fix: str = ""
    """What to do about it, for whom the error blames."""
    source: str = "contract §4"


_LIFE = (
    Rule("LIFE-01", "The descriptor validates against the published schema.", "core", "wire"),
    Rule(
        "LIFE-02",
        "The record begins with initialize.",
        "core",
        "machine",
        fix="let the base class open the session, or emit initialize first",
    ),
    Rule("LIFE-03", "initialize appears once.", "core", "machine", fix="emit initialize only when a session is new"),
    Rule(
        "LIFE-04",
        "Agent events need an open agent on their thread.",
        "core",
        "machine",
        fix="emit agent_start on that thread first, or set the thread_id that is open",
    ),
    Rule("LIFE-05", "Each stream has one stream_end, and it is last.", "core", "machine", fix="emit stream_end last"),
    Rule("LIFE-06", "The stream id is known to the caller before any event of that stream.", "core", "session"),
    Rule(
        "LIFE-07",
        "One stream runs at a time; a second call raises and records nothing.",
        "core",
        "machine",
        fix="end, abort or wait for the running stream first",
    ),
    Rule(
        "LIFE-08",
        "An iterator ends only at stream_end; an executor that vanishes raises ConnectionLost; attaching to an ended"
        " stream terminates.",
        "core",
        "session",
    ),
    Rule("LIFE-09", "An executor exception gives error{fatal}, then stream_end{failed}.", "core", "session"),
    Rule(
        "LIFE-10",
        "After a fatal error the agent emits only closings.",
        "core",
        "machine",
        fix="return from the run after a fatal error",
    ),
    Rule("LIFE-11", "A non-fatal error ends nothing.", "core", "session"),
    Rule("LIFE-12", "After a stream the session accepts another.", "core", "session"),
    Rule(
        "LIFE-13",
        "aclose ends a running stream within the grace time; nothing follows on a closed session.",
        "core",
        "machine",
        fix="open or load the session again",
    ),
    Rule(
        "LIFE-14",
        "Every message_id with a delta has one closing event that agrees with its deltas.",
        "core",
        "machine",
        fix="close each message once, with the text of its deltas, or set revised",
    ),
    Rule(
        "LIFE-15",
        "Without a stream_id only initialize, kept answers, updates and background events appear, never while a stream"
        " runs.",
        "core",
        "machine",
        fix="put the running stream's id on the event",
    ),
    Rule(
        "LIFE-16",
        "Agent brackets balance per thread: children first, messages before their agent.",
        "core",
        "machine",
        fix="close messages, then child threads, then the agent",
    ),
    Rule(
        "LIFE-17",
        "stream_end.pending equals what waits; the reason is input_required if and only if it is not empty; a reason"
        " that is not known counts by pending.",
        "core",
        "machine",
        fix="list exactly the request ids that wait for the host",
    ),
    Rule(
        "LIFE-18",
        "A fatal error ends the stream, which then ends neither completed nor input_required.",
        "core",
        "machine",
        fix="end the stream with reason failed",
    ),
    Rule(
        "TURN-01",
        "A stream continues its turn until that turn's one final end.",
        "core",
        "machine",
        fix="keep the turn_id until the turn ended, and make a new one for the next",
    ),
)

_ORD = (
    Rule(
        "ORD-01",
        "seq increases; gaps are legal; none is used again.",
        "core",
        "machine",
        fix="take seq from the session",
    ),
    Rule("ORD-02", "Event ids are unique in their session.", "core", "machine", fix="derive the id from seq"),
    Rule("ORD-03", "All readers see one order.", "core", "session"),
    Rule("ORD-04", "A reader's leaving affects nobody.", "core", "session"),
    Rule(
        "ORD-05",
        "Replay after any cursor and then live gives the original suffix; ended streams may lack ephemeral events.",
        "core",
        "session",
    ),
    Rule("ORD-06", "Replayed durable events equal the originals.", "core", "session"),
    Rule("ORD-07", "A cursor beyond the last event, or compacted away, raises CursorGone.", "core", "session"),
    Rule(
        "ORD-09",
        "No event appears under a stream's id after its stream_end, also while another stream runs.",
        "core",
        "machine",
        fix="stop the old run before the next stream starts",
    ),
    Rule("ORD-10", "A filtered reader's cursor moves over what it skips.", "core", "session"),
    Rule("ORD-11", "An entered, caught-up, stalled reader bounds the producer, never the closings.", "core", "session"),
)

_TOOL = (
    Rule(
        "TOOL-01",
        "One response for each whole request; none is open after a final end.",
        "core",
        "machine",
        fix="respond to every tool request once before the final stream_end",
    ),
    Rule(
        "TOOL-02",
        "No decision, update or response without a request.",
        "core",
        "machine",
        fix="emit the tool_request or elicitation_request first",
    ),
    Rule("TOOL-03", "Request ids are never reused.", "core", "machine", fix="rewrite ids that the model repeats"),
    Rule(
        "TOOL-04",
        "Arguments validate against the declared schema, or a typed error answers.",
        "core",
        "session",
        fix="check what the model wrote against the tool's schema before the tool runs",
    ),
    Rule(
        "TOOL-05",
        "needs=grant: no run before the grant; needs=result: the executor never runs it.",
        "core",
        "machine",
        "host_tool_execution",
        fix="wait for the host's answer before running the tool",
    ),
    Rule("TOOL-06", "Parallel requests all appear before any answer is needed.", "interactive", "session"),
    Rule("TOOL-07", "Answers come in any order.", "interactive", "session", "host_tool_execution"),
    Rule(
        "TOOL-08",
        "Partial answers keep the rest pending, and what was answered is not asked again.",
        "interactive",
        "session",
        "host_tool_execution",
    ),
    Rule("TOOL-09", "A second answer is stale and has no effect.", "core", "machine", fix="answer each request once"),
    Rule(
        "TOOL-10",
        "An answer to an unknown id is not_found.",
        "core",
        "machine",
        fix="use a request_id of session.pending",
    ),
    Rule("TOOL-11", "A result reaches the model under its own id.", "core", "session"),
    Rule(
        "TOOL-12", "No update after the response.", "core", "machine", fix="stop reporting progress when it is answered"
    ),
    Rule("TOOL-13", "is_error is preserved.", "core", "session"),
    Rule(
        "TOOL-14",
        "An answer whose name or kind does not fit its request is invalid.",
        "core",
        "machine",
        fix="answer needs=result with a result or denial, needs=grant also with a grant, a question with an elicitation"
        " response",
    ),
    Rule(
        "TOOL-15",
        "One decision for each request, before its response.",
        "core",
        "machine",
        fix="decide once, and before the tool runs",
    ),
    Rule(
        "TOOL-16",
        "A start that the host tells is recorded once, before its receipt; a tool that started is never cancelled.",
        "core",
        "machine",
        fix="record a tool_update with started; without a result, end the request unknown",
    ),
)

_HITL = (
    Rule(
        "HITL-01",
        "A gated tool has run zero times before accept; one that asks from inside, no further than its question.",
        "interactive",
        "machine",
        "elicitation",
        fix="wait for the answer to the linked confirmation",
    ),
    Rule(
        "HITL-02",
        "Decline, cancel, an unknown option and a timeout mean zero runs.",
        "interactive",
        "machine",
        "elicitation",
        fix="answer the model with status denied when the confirmation was not accepted",
    ),
    Rule(
        "HITL-03", "Accept means exactly one run, with the approved arguments.", "interactive", "session", "elicitation"
    ),
    Rule(
        "HITL-04",
        "An approval is bound to a digest of the arguments.",
        "interactive",
        "machine",
        fix="set args_digest to args_digest(the arguments decided on)",
    ),
    Rule("HITL-06", "Abort resolves all that is pending as cancelled.", "interactive", "session", "abort"),
    Rule(
        "HITL-07",
        "A kind that the host did not advertise is requested and cancelled in one step.",
        "interactive",
        "machine",
        "elicitation",
        fix="cancel the question right after it",
    ),
    Rule(
        "HITL-08",
        "Accepted content validates against requested_schema and does not contradict the yes; else it is invalid and"
        " still pending.",
        "interactive",
        "machine",
        "elicitation",
        fix="send content that the question's schema accepts",
    ),
    Rule(
        "HITL-09",
        "Decline and cancel carry no content.",
        "interactive",
        "machine",
        "elicitation",
        fix="leave the content out, or accept",
    ),
    Rule(
        "HITL-10",
        "A child's request surfaces on the parent's stream with its thread_id, and the answer is routed back.",
        "interactive",
        "session",
        "sub_agents",
    ),
    Rule("HITL-11", "Waiting for a person does not count against tool or turn time.", "interactive", "session"),
)

_CTL = (
    Rule(
        "CTL-01", "Abort returns after a final stream_end, or raises AbortTimeout.", "interactive", "session", "abort"
    ),
    Rule("CTL-02", "Abort is idempotent.", "interactive", "session", "abort"),
    Rule("CTL-03", "Abort is never an error event.", "interactive", "session", "abort"),
    Rule("CTL-04", "A race of abort and end gives one reason.", "interactive", "session", "abort"),
    Rule("CTL-05", "After an abort the next turn works.", "interactive", "session", "abort"),
    Rule(
        "CTL-06",
        "An accepted steer appears exactly once: injected, or listed as undelivered.",
        "interactive",
        "machine",
        "steering",
        fix="take every queued steer before a completed end",
    ),
    Rule("CTL-07", "An update is recorded if and only if it was wholly applied.", "interactive", "session"),
    Rule("CTL-08", "Each limit has its own reason.", "interactive", "session"),
)

_REST = (
    Rule(
        "PER-01",
        "Killed while waiting and loaded: the same requests are pending, and answering them completes the turn.",
        "durable",
        "session",
        "resume",
    ),
    Rule("PER-02", "What was acknowledged is never lost.", "durable", "session", "load"),
    Rule("PER-03", "Folding the record gives the state.", "core", "session"),
    Rule("PER-04", "load repairs a stream that was cut.", "durable", "session", "load"),
    Rule("PER-05", "A fork settles what was pending at its point.", "full", "session", "fork"),
    Rule(
        "PER-06",
        "A rewind settles what was pending; what came after its point is folded no more, and its ids stay used.",
        "full",
        "session",
        "rewind",
        source="decision 0014",
    ),
    Rule("WIRE-01", "Events survive the round trip through JSON, validate, and keep what is unknown.", "core", "wire"),
    Rule("WIRE-02", "A known type with a malformed payload is invalid.", "core", "wire"),
    Rule(
        "SEC-01",
        "No planted secret and no traceback appears in events.",
        "core",
        "session",
        fix="say the type of an exception, not its text, which may hold anything",
    ),
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {rule.id: rule for group in (_LIFE, _ORD, _TOOL, _HITL, _CTL, _REST) for rule in group}
)
"""Every rule by its id, in the order of the contract."""
