"""From ``resume`` to answers: every entry is checked, then all are given or none.

Not for: giving them (``_app_run.py``). Rules carried: TOOL-09, TOOL-10, HITL-02, HITL-08, HITL-09, HITL-10.
May import: ``ag_ui``, ``_in_faults``, ``_in_memory``, ``_in_payloads``, ``protocol``.

A client sends its answers again when it lost the end of a run, and keeps its interrupts after a ``RUN_ERROR``. So the
same answer again is no fault and does nothing, and what was settled otherwise may be abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ag_ui.core import ResumeEntry

from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Memory, Settled
from agentsession.host.agui._in_payloads import ABSENT, Invalid, No, Yes, read_confirmation
from agentsession.protocol import (
    REDACTED,
    Answer,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    PendingRequest,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    args_digest,
    contradicts_yes,
    dumps,
    find_problem,
)

__all__ = ["Resume", "read_resume"]

_CONFIRMATIONS: Final = frozenset({"tool_confirmation", "user_approval"})
_FORMS: Final = frozenset({"clarification", "model_fallback"})
_CREDENTIALS: Final = ("credential", "auth_response_uri")
_ABANDONED: Final = "the person left the question"

SchemaOf = Callable[[str], Mapping[str, Any] | None]
"""The schema of the arguments of the tool of that name."""


class Resume(NamedTuple):
    """What the entries come to."""

    answers: Sequence[Answer]
    """Those that are to be given; empty where all was settled before."""
    abandons: bool
    """No answer says more than that the person left."""


def read_resume(
    entries: Sequence[ResumeEntry],
    interrupts: Mapping[str, PendingRequest],
    memory: Memory,
    now: datetime,
    schema_of: SchemaOf,
) -> Resume:
    """The answers that ``entries`` give to the open ``interrupts``.

    Raises :class:`RunRefused` where one of them cannot be taken, or some of the open interrupts have none.
    """
    ids = [entry.interrupt_id for entry in entries]
    if len(set(ids)) != len(ids):
        raise RunRefused("interrupt_duplicate", "an interrupt is answered twice")
    answers: list[Answer] = []
    for entry in entries:
        request = interrupts.get(entry.interrupt_id)
        if request is None:
            _check_replay(entry, memory)
        else:
            answers.append(_answer(entry, request, now, schema_of))
    missing = [name for name in interrupts if name not in ids]
    if answers and missing:
        raise RunRefused("interrupt_missing", f"{len(missing)} open interrupts have no answer: answer all of them")
    return Resume(answers, all(entry.status == "cancelled" for entry in entries))


# --- open ones ----------------------------------------------------------------------------------------------------


def _answer(entry: ResumeEntry, request: PendingRequest, now: datetime, schema_of: SchemaOf) -> Answer:
    if entry.status == "cancelled":
        if isinstance(request, ToolRequest):
            return ToolDenial(request_id=request.request_id, reason=_ABANDONED, decision=Decision(by="user"))
        return _elicitation(request, "cancel")
    if isinstance(request, ToolRequest):
        return _grant(entry, request, schema_of(request.name))
    if _is_expired(request.expires_at, now):
        raise RunRefused("interrupt_expired", f"interrupt {request.request_id} can no longer be answered")
    payload = _payload(entry)
    return _confirmation(payload, request) if _is_confirmation(request) else _content(payload, request)


def _is_confirmation(request: ElicitationRequest) -> bool:
    """Whether it wants a yes or a no. A question of an unknown kind that asks for nothing else does."""
    if request.kind in _FORMS or request.kind == "auth_required":
        return False
    return request.kind in _CONFIRMATIONS or request.requested_schema is None


def _grant(entry: ResumeEntry, request: ToolRequest, schema: Mapping[str, Any] | None) -> Answer:
    read = read_confirmation(_payload(entry), edits=True)
    match read:
        case Invalid(why):
            raise _invalid(request.request_id, why)
        case No(reason):
            word = Decision(by="user", reason=reason)
            return ToolDenial(request_id=request.request_id, reason=reason or "the user said no", decision=word)
        case Yes():
            problem = find_problem(schema, read.edited) if schema and read.edited is not None else None
            if problem is not None:
                raise _invalid(request.request_id, "the edited arguments do not fit the tool's schema")
            word = Decision(by="user", reason=read.reason)
            return ToolGrant(request_id=request.request_id, args=read.edited, decision=word)


def _confirmation(payload: Any, request: ElicitationRequest) -> Answer:
    read = read_confirmation(payload, edits=False)
    match read:
        case Invalid(why):
            raise _invalid(request.request_id, why)
        case No(reason):
            return _elicitation(request, "decline", reason=reason)
        case Yes():
            if read.payload is ABSENT:
                return _elicitation(request, "accept", reason=read.reason)
            # ADK's tools are given the payload beside the yes; a question with a schema of its own wants just that.
            content = read.payload if request.requested_schema is not None else {"payload": read.payload}
            if contradicts_yes(content):
                raise _invalid(request.request_id, "the payload contradicts the yes")
            _check_content(content, request)
            return _elicitation(request, "accept", content, reason=read.reason)


def _content(payload: Any, request: ElicitationRequest) -> Answer:
    """The payload is what was asked for."""
    if payload is ABSENT:
        raise _invalid(request.request_id, "there is no payload")
    if request.kind == "auth_required":
        given = [key for key in _CREDENTIALS if payload.get(key)] if isinstance(payload, dict) else []
        if len(given) != 1:
            raise _invalid(request.request_id, "expected a credential, or an auth_response_uri")
    _check_content(payload, request)
    return _elicitation(request, "accept", payload)


def _check_content(content: Any, request: ElicitationRequest) -> None:
    if request.requested_schema is not None:
        problem = find_problem(request.requested_schema, content)
        if problem is not None:  # where, not what: it may be a secret
            raise _invalid(request.request_id, f"the payload does not fit the schema at {problem.pointer}")


def _elicitation(
    request: ElicitationRequest, action: str, content: Any = ABSENT, *, reason: str | None = None
) -> ElicitationAnswer:
    given = {} if content is ABSENT else {"content": content}
    word = Decision(by="user", reason=reason)
    return ElicitationAnswer(request_id=request.request_id, action=action, decision=word, **given)


def _is_expired(expires_at: str | None, now: datetime) -> bool:
    if expires_at is None:
        return False
    try:
        moment = datetime.fromisoformat(expires_at)
    except ValueError:
        return True
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) <= now


# --- settled ones -------------------------------------------------------------------------------------------------


def _check_replay(entry: ResumeEntry, memory: Memory) -> None:
    """An answer to what does not wait: nothing to do where it is the same again, or leaves what is settled."""
    kind = memory.asked.get(entry.interrupt_id)
    settled = memory.settled.get(entry.interrupt_id)
    if kind is None or settled is None:
        raise RunRefused("interrupt_unknown", "no interrupt with this id is open")
    if entry.status == "resolved" and not _says_the_same(_payload(entry), kind, settled):
        raise RunRefused("interrupt_stale", f"interrupt {entry.interrupt_id} was settled otherwise")


def _says_the_same(payload: Any, kind: str, settled: Settled) -> bool:
    if kind in ("grant", "result"):
        read = read_confirmation(payload, edits=True)
        if isinstance(read, Yes):
            digest = args_digest(read.edited) if read.edited is not None else None
            return settled.word == "granted" and digest == settled.digest
        return isinstance(read, No) and settled.word == "denied"
    if settled.word == "accept" and payload is not ABSENT and _is_same(payload, settled.content):
        return True
    if kind not in _FORMS and kind != "auth_required":
        read = read_confirmation(payload, edits=False)
        if isinstance(read, No):
            return settled.word == "decline"
        if isinstance(read, Yes):
            if settled.word != "accept":
                return False
            if read.payload is ABSENT:
                return settled.content is None
            return _is_same(read.payload, settled.content) or _is_same({"payload": read.payload}, settled.content)
    return False


def _is_same(given: Any, recorded: Any) -> bool:
    """Whether an answer is the recorded one. Of a secret the record only tells that there was one."""
    if recorded == REDACTED:
        return True
    if isinstance(given, dict) and isinstance(recorded, dict):
        return given.keys() == recorded.keys() and all(_is_same(given[key], recorded[key]) for key in given)
    if isinstance(given, list) and isinstance(recorded, list):
        return len(given) == len(recorded) and all(map(_is_same, given, recorded))
    return dumps(given) == dumps(recorded)


def _payload(entry: ResumeEntry) -> Any:
    return entry.payload if "payload" in entry.model_fields_set else ABSENT


def _invalid(request_id: str, why: str) -> RunRefused:
    return RunRefused("answer_invalid", f"the answer to {request_id} cannot be taken: {why}; it still waits")
