"""The checks that a record alone can decide: pure, the same for the suite, the command, CI and a record from anywhere.

Not for: what only a live session shows (``scenarios``). Rules carried: every rule that is checked by the machine, the
wire rules, SEC-01. May import: ``agentsession.protocol``, ``hosting``, ``logged``, ``results``.

The record is walked with the contract's own state machine up to its first break. Behind a break nothing can be said
for sure, so one break is one failure: the rules that the record has shown to hold until then have passed, the broken
one has failed, and of the others this record says nothing.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import jsonschema
import jsonschema.exceptions

from agentsession.conformance.hosting import CONFIRMATIONS
from agentsession.conformance.logged import masked
from agentsession.conformance.results import Evidence, Result, Status
from agentsession.protocol import (
    RULES,
    AgentDescriptor,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    ProtocolViolation,
    SchemaError,
    SessionMachine,
    check_schema,
    descriptor_schema,
    marks_secret,
    parse_event,
)

__all__ = ["RECORD_RULES", "Break", "check", "check_descriptor", "evidence_of"]

_STRETCH: Final = 6
"""How many lines of a record a failure shows at most before the one that breaks the rule."""

_TOLD: Final = 100
"""How much of an error's message is in its line."""

_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\)|^\s+File \"[^\"]+\", line \d+", re.MULTILINE)

Line = Event | Mapping[str, Any] | str | bytes
"""One event: parsed, as JSON, or as the text of it."""


class Break(Exception):
    """A rule is broken: which, how, and where in the record."""

    def __init__(self, rule: str, message: str, evidence: Iterable[Evidence] = ()) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.evidence = tuple(evidence)


def check(
    record: Iterable[Line],
    descriptor: AgentDescriptor | None = None,
    *,
    secrets: Collection[str] = (),
    host_kinds: Collection[str] | None = None,
    complete: bool = True,
) -> list[Result]:
    """What a record shows: a failure for the rule that it breaks, and a pass for each that it had occasion to break.

    Args:
        record: The events of one session from its first, in any of three forms.
        descriptor: What the agent says of itself; the one in ``initialize`` when left out.
        secrets: Texts that no event may hold (SEC-01).
        host_kinds: The kinds of question that the host could show; ``None``: all.
        complete: Whether the record was taken when no stream ran, so that nothing may be left open.
    """
    machine = SessionMachine(blame="peer", host_kinds=host_kinds)
    seen: list[Event] = []
    touched: set[str] = set()
    questions: dict[str, ElicitationRequest] = {}
    try:
        with warnings.catch_warnings():  # what pydantic warns of in a malformed event is said better below
            warnings.filterwarnings("ignore", "Pydantic serializer warnings")
            for number, line in enumerate(record, start=1):
                event, wire = _read(line, number)
                _check_round_trip(event, wire)
                _check_secrets(event, wire, secrets, seen)
                _feed(machine, event, seen)
                _check_content(event, questions, seen)
                _check_confession(event, seen)
                seen.append(event)
                touched |= _touched(event)
                if event.type == "initialize" and descriptor is None:
                    described = wire.get("descriptor")
                    descriptor = AgentDescriptor.model_validate(described) if described is not None else None
        if complete and machine.state == "running":
            raise Break("LIFE-05", "the record ends inside a stream", evidence_of(seen))
        if descriptor is not None:
            check_descriptor(descriptor)
            touched.add("LIFE-01")
    except Break as broken:
        passed = touched - {broken.rule}
        failed = [Result(broken.rule, Status.FAIL, broken.message, broken.evidence)]
    else:
        passed, failed = touched, []
    return failed + [Result(rule, Status.PASS) for rule in RULES if rule in passed]


def check_descriptor(descriptor: AgentDescriptor) -> None:
    """Raises :class:`Break` of LIFE-01 for a descriptor that its published schema refuses."""
    problem = _problem_of(descriptor.to_wire_json())
    if problem is not None:
        raise Break("LIFE-01", problem)


@functools.lru_cache(maxsize=64)
def _problem_of(descriptor: str) -> str | None:
    """What is wrong with a descriptor, which is the same in all records of an executor."""
    error = jsonschema.exceptions.best_match(_descriptor_validator().iter_errors(json.loads(descriptor)))
    if error is None:
        return None
    return f"the descriptor is not valid at /{'/'.join(str(step) for step in error.absolute_path)}: {error.message}"


@functools.cache
def _descriptor_validator() -> Any:
    return jsonschema.Draft202012Validator(descriptor_schema())


def evidence_of(events: Sequence[Event], broken: Event | None = None, remark: str = "") -> tuple[Evidence, ...]:
    """The end of a record as evidence: what came last, then the event that broke the rule, or a remark."""
    shown = [Evidence(_line(event), event.to_wire()) for event in _stretch(events, broken)]
    if broken is not None:
        shown.append(Evidence(_line(broken), broken.to_wire(), is_break=True))
    if remark:
        shown.append(Evidence(remark, is_break=broken is None))
    return tuple(shown)


def _read(line: Line, number: int) -> tuple[Event, dict[str, Any]]:
    if isinstance(line, Event):
        return line, line.to_wire()
    text = line if isinstance(line, (str, bytes)) else json.dumps(line)
    try:
        event = parse_event(text, line=number)
        wire = json.loads(text)
    except SchemaError as error:
        (shown,) = masked([text.decode("utf-8", "replace") if isinstance(text, bytes) else text])
        raise Break(
            "WIRE-02", f"line {number} is no event: {error.what}", [Evidence(shown[:400], is_break=True)]
        ) from error
    return event, wire


def _check_round_trip(event: Event, wire: Mapping[str, Any]) -> None:
    """What was read says the same when it is written: nothing unknown was lost, and no null became absent."""
    try:
        again = parse_event(event.to_wire_json())
    except SchemaError as error:
        raise Break("WIRE-02", f"this is no {event.type} event: {error.what}", evidence_of([], event)) from error
    if again.to_wire() != event.to_wire() or {**event.to_wire(), **wire} != event.to_wire():
        raise Break("WIRE-01", "an event says something else after a round trip through JSON", evidence_of([], event))


def _check_confession(event: Event, seen: Sequence[Event]) -> None:
    """An executor that was kept from breaking a rule, by the machine that guards it, says which rule it was."""
    if isinstance(event, Error) and event.fatal and event.code is not None and event.code in RULES:
        raise Break(
            event.code, f"the executor was stopped as it broke the rule: {event.message}", evidence_of(seen, event)
        )


def _check_content(event: Event, questions: dict[str, ElicitationRequest], seen: Sequence[Event]) -> None:
    """What a person accepted fits the schema of the question; ``questions`` are those that are open."""
    if isinstance(event, ElicitationRequest):
        questions[event.request_id] = event
    if not isinstance(event, ElicitationResponse):
        return
    asked = questions.pop(event.request_id, None)
    if asked is None or event.action != "accept" or asked.requested_schema is None:
        return
    if asked.kind == "auth_required" or marks_secret(asked.requested_schema):
        return  # what stands in the record is not what was answered
    if asked.kind in CONFIRMATIONS and "content" not in event.model_fields_set:
        return  # a bare yes is a whole answer
    wrong = check_schema(asked.requested_schema, event.content)
    if wrong is not None:
        raise Break(
            "HITL-08",
            f"the record holds an acceptance that the question's schema refuses: {wrong}",
            evidence_of(seen, event),
        )


def _check_secrets(event: Event, wire: Mapping[str, Any], secrets: Collection[str], seen: Sequence[Event]) -> None:
    text = json.dumps(wire, ensure_ascii=False)
    if any(secret in text for secret in secrets):
        raise Break("SEC-01", f"a secret is in a {event.type} event", evidence_of(seen, event))
    if event.source != "user" and any(_TRACEBACK.search(text) for _, text in _texts(wire)):
        where = next(place for place, text in _texts(wire) if _TRACEBACK.search(text))
        raise Break("SEC-01", f"a traceback is in a {event.type} event, at {where}", evidence_of(seen, event))


def _texts(value: Any, where: str = "") -> Iterable[tuple[str, str]]:
    """Every text in a value, and its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{where}/{name}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _texts(item, f"{where}/{place}")


def _feed(machine: SessionMachine, event: Event, seen: Sequence[Event]) -> None:
    try:
        machine.feed(event)
    except ProtocolViolation as error:
        parts = [error.what, error.expected and f"expected: {error.expected}", error.got and f"got: {error.got}"]
        raise Break(error.rule, "; ".join(part for part in parts if part), evidence_of(seen, event)) from error


_ALWAYS: Final = frozenset({"LIFE-02", "LIFE-03", "LIFE-15", "ORD-01", "ORD-02", "WIRE-01", "WIRE-02", "SEC-01"})
_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "agent_start": frozenset({"LIFE-04", "LIFE-16"}),
    "agent_end": frozenset({"LIFE-16"}),
    "message": frozenset({"LIFE-04", "LIFE-14"}),
    "tool_request": frozenset({"TOOL-03"}),
    "tool_decision": frozenset({"TOOL-02", "TOOL-15", "HITL-04"}),
    "tool_update": frozenset({"TOOL-02", "TOOL-12", "TOOL-16"}),
    "tool_response": frozenset({"TOOL-01", "TOOL-02", "TOOL-12", "TOOL-16"}),
    "elicitation_response": frozenset({"HITL-09"}),
    "stream_end": frozenset({"LIFE-05", "LIFE-17", "ORD-09", "TURN-01", "TOOL-01"}),
}


_ON_FATAL: Final = frozenset({"LIFE-10", "LIFE-18"})

RECORD_RULES: Final = _ALWAYS.union(_ON_FATAL, {"LIFE-01"}, *_BY_TYPE.values())
"""The rules that a record alone can be seen to keep. It may be seen to break others too."""


def _touched(event: Event) -> frozenset[str]:
    """The rules that an event had occasion to break."""
    touched = _ALWAYS | _BY_TYPE.get(event.type, frozenset())
    if event.type == "error" and getattr(event, "fatal", False):
        touched |= _ON_FATAL
    return touched


def _stretch(events: Sequence[Event], broken: Event | None) -> list[Event]:
    """The events that a failure is about: those of the same request, message or agent, else the last few."""
    if broken is not None:
        for name in ("request_id", "message_id"):
            key = getattr(broken, name, None)
            same = [event for event in events if key is not None and getattr(event, name, None) == key]
            if same:
                return same[-_STRETCH:]
    return list(events[-_STRETCH:])


def _line(event: Event) -> str:
    """One event in one line."""
    parts = [f"#{event.seq} {event.type}"]
    for name in ("name", "request_id", "message_id", "agent_id", "reason", "status", "decision", "action", "kind"):
        value = getattr(event, name, None)
        if isinstance(value, str) and value:
            parts.append(value if name in ("name", "reason", "kind") else f"{name}={value}")
    for name in ("partial", "fatal", "is_error"):
        if getattr(event, name, False) is True:
            parts.append(name)
    if event.thread_id:
        parts.append(f"on {event.thread_id}")
    if isinstance(event, Error):
        parts.append(f"{next(masked([event.message]))[:_TOLD]!r}")  # cut last: half a secret is one too
    return " ".join(parts)
