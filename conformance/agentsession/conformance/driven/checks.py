"""What must hold of a session after each step of its host, whatever that was.

Not for: what one step must do (``session.py``). Rules carried: those of the record; PER-03; ORD-01, ORD-02; LIFE-17,
TOOL-05 to TOOL-08, TOOL-11, TOOL-13, HITL-01 to HITL-03, CTL-06 and LIFE-12 as far as the small model can tell.
May import: ``agentsession.protocol``, the modules of the suite.

Each function raises ``Break`` of the rule that it finds broken. They are called in an order in which what is nearer to
the cause comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from agentsession.conformance.driven.course import Rest
from agentsession.conformance.driven.hosts import EDITED
from agentsession.conformance.engine import Break, check, evidence_of
from agentsession.conformance.hosting import content_for
from agentsession.conformance.looking import of, recited, requests, texts
from agentsession.conformance.results import Evidence, Status
from agentsession.conformance.script import Ask, Call, Calls, Delegate, Fail, Recite
from agentsession.protocol import (
    Answer,
    Event,
    Message,
    PendingRequest,
    SessionMachine,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    ToolResult,
    is_ephemeral,
)

if TYPE_CHECKING:
    from agentsession.conformance.driven.session import Driven

__all__ = ["Numbers", "names_of", "record_holds", "stands_where_it_must", "told", "tools_ran_as_allowed", "volatile_in"]


class Numbers:
    """Which seqs and ids were ever given to which events, ephemeral ones too."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._seqs: dict[str, int] = {}

    def add(self, event: Event) -> None:
        """Raises :class:`Break` of ORD-01 or ORD-02 where a seq or an id is another event's."""
        if self._ids.setdefault(event.seq, event.id) != event.id:
            raise Break("ORD-01", f"seq {event.seq} was given to two events", evidence_of([], event))
        if self._seqs.setdefault(event.id, event.seq) != event.seq:
            raise Break("ORD-02", f"the id {event.id} was given to two events", evidence_of([], event))


# -- the record -------------------------------------------------------------------------------------------------------


def record_holds(driven: Driven, record: Sequence[Event], state: str) -> None:
    """The record is as every record must be, has what readers were given, and folds to the session's state."""
    session, stage = driven.session, driven.stage
    whole = driven.scene.seen.with_record(session.session_id, record)
    kinds = stage.kinds(session)
    found = check(
        whole, session.descriptor, secrets=driven.scene.secrets, host_kinds=kinds, complete=state != "running"
    )
    for result in found:
        if result.status is Status.FAIL:
            raise Break(result.rule, result.message, result.evidence)
    folded, waiting = SessionMachine.fold(record), [request.request_id for request in session.pending]
    if folded.state != state:
        raise Break("PER-03", f"the record says {folded.state}, the session {state}", _end(record))
    if folded.pending != waiting:
        said = f"by the record {folded.pending} wait, by the session {waiting}"
        raise Break("PER-03", said, _end(record))


def volatile_in(record: Sequence[Event]) -> list[str]:
    """The requests that the last pause says will not survive the process."""
    ends = of(record, StreamEnd)
    named = (ends[-1].data or {}).get("volatile") if ends else None
    return [str(name) for name in named] if isinstance(named, list) else []


def names_of(waiting: Iterable[PendingRequest], record: Sequence[Event]) -> dict[str, PendingRequest]:
    """What waits, by the names that the plan has for it."""
    asked = {request.request_id: request for request in requests(record)}
    return {_name(request, asked): request for request in waiting}


def _name(request: PendingRequest, asked: Mapping[str, ToolRequest]) -> str:
    if isinstance(request, ToolRequest):
        return f"call {(request.args or {}).get('n')}"
    about = asked.get(request.tool_request_id or "")
    if about is not None:
        return f"question {(about.args or {}).get('n')}"
    return request.message.lower().rstrip("?")


# -- where it stands --------------------------------------------------------------------------------------------------


def stands_where_it_must(driven: Driven, record: Sequence[Event], state: str, rest: Rest) -> None:
    """State, what waits, and how the last turn ended are what the script and the answers lead to."""
    waiting = names_of(driven.session.pending, record)
    if state == "idle" and rest.state == "idle":
        ends = [event for event in of(record, StreamEnd) if event.turn_id == driven.turn_id]
        if ends and rest.reason is not None and ends[-1].reason != rest.reason:
            said = f"the turn ended {ends[-1].reason}, not {rest.reason}"
            raise Break(_reason_rule(driven, rest), said, _end(record))
    _said_no_more(driven, record)
    if state != rest.state:
        said = f"the session is {state}, not {rest.state}{_named(rest.waits)}"
        raise Break(_state_rule(driven, rest, state, record), said, _end(record))
    if rest.state == "input_required" and set(waiting) != rest.waits:
        said = f"{_listed(waiting)} wait{'s' if len(waiting) == 1 else ''}, not {_listed(rest.waits)}"
        raise Break(_waits_rule(driven, set(waiting), rest), said, _end(record))


def _state_rule(driven: Driven, rest: Rest, state: str, record: Sequence[Event]) -> str:
    ends = of(record, StreamEnd)
    if rest.state == "running" or (ends and ends[-1].reason == "aborted"):
        return driven.blame("LIFE-12" if state != "running" else "LIFE-17")
    if state == "idle" and ends and ends[-1].reason == "failed" and _has_failed(driven):
        return "LIFE-11"
    if state == "idle" and ends and ends[-1].reason in ("failed", "completed"):
        return driven.blame("LIFE-17") if rest.state == "input_required" else _reason_rule(driven, rest)
    return driven.blame("LIFE-17")


def _reason_rule(driven: Driven, rest: Rest) -> str:
    """The rule that is broken where a turn ends for another reason than it should."""
    if rest.reason == "failed":
        return "LIFE-09"
    if rest.reason in ("refusal", "max_tokens"):
        return "CTL-08"
    before = {"failed": "LIFE-12", "aborted": "CTL-05"}.get(driven.before or "")
    if before is None and _has_failed(driven):
        before = "LIFE-11"
    return driven.blame(before or "LIFE-12")


def _has_failed(driven: Driven) -> bool:
    """Whether the agent has reported an error in this turn that is not fatal."""
    return any(isinstance(step, Fail) for step in driven.course.steps[: driven.course.rest().place])


def _waits_rule(driven: Driven, waiting: set[str], rest: Rest) -> str:
    if waiting - rest.waits and any(name in driven.course.given for name in waiting - rest.waits):
        return driven.blame("TOOL-08")
    is_first = not any(name in driven.course.given for name in driven.in_this_turn)
    several = len(rest.waits) > 1 and all(name.startswith("call") for name in rest.waits)
    return driven.blame("TOOL-06" if is_first and several else "LIFE-17" if is_first else "TOOL-08")


def _said_no_more(driven: Driven, record: Sequence[Event]) -> None:
    turn = [event for event in record if event.turn_id == driven.turn_id]
    said = texts(turn)
    early = [text for text in driven.course.unsaid() if text in said] if driven.course.is_open else []
    if early:
        raise Break("TOOL-08", f"the agent said {early[0]!r} before all before it was answered", _end(record))


# -- tools ------------------------------------------------------------------------------------------------------------


def tools_ran_as_allowed(driven: Driven, record: Sequence[Event]) -> None:
    """Each body has begun once at the most, only where it was let, with the arguments that were let."""
    runs: dict[int, list[Mapping[str, object]]] = {}
    for run in driven.runs:
        runs.setdefault(int(run.args.get("n", 0)), []).append(run.args)
    asked = {int((request.args or {}).get("n", 0)): request for request in requests(record)}
    answered = {event.request_id: event for event in of(record, ToolResponse)}
    for number, request in asked.items():
        call = driven.plan.call(number)
        if call is not None and request.name == call.name:
            about = [event for event in record if getattr(event, "request_id", None) == request.request_id]
            _ran(driven, call, runs.get(number, []), answered.get(request.request_id), about)
    for number, each in runs.items():
        if number not in asked:
            raise Break("TOOL-05", f"a tool ran with {dict(each[0])}, and no request asks for it", _end(record))


def _ran(
    driven: Driven,
    call: Call,
    runs: Sequence[Mapping[str, object]],
    response: ToolResponse | None,
    about: Sequence[Event],
) -> None:
    what, shown = f"{call.name} {call.args}", evidence_of(about[-6:])
    if len(runs) > 1:
        raise Break("HITL-03", f"the body of {what} has begun {len(runs)} times", shown)
    if runs and not driven.course.runs(call):
        raise Break(_unlet(driven, call), f"{what} ran, and nobody has let it", shown)
    edited = driven.course.given.get(f"call {call.args['n']}") == "edit"
    wanted = {**call.args, EDITED: True} if edited else call.args
    if runs and dict(runs[0]) != wanted:
        raise Break("HITL-03", f"{what} ran with {dict(runs[0])}, not {wanted}", shown)
    is_own = call.needs != "result" and driven.course.given.get(f"call {call.args['n']}") != "result"
    if not runs and is_own and response is not None and response.status == "completed":
        raise Break("HITL-03", f"{what} is answered completed, and its body has not begun", shown)
    if not runs and driven.has_passed(call) and driven.course.runs(call):
        raise Break("HITL-03", f"{what} was let run, and its body has not begun", shown)


def _unlet(driven: Driven, call: Call) -> str:
    """The rule that is broken where a tool ran that was not let."""
    if call.needs == "grant" and driven.course.given.get(f"call {call.args['n']}") not in ("grant", "edit"):
        return "TOOL-05"
    return "HITL-02" if f"question {call.args['n']}" in driven.course.given else "HITL-01"


# -- what was answered, steered and told ------------------------------------------------------------------------------


def told(driven: Driven, record: Sequence[Event]) -> None:
    """Results are in the record as they were given, steers once, and what the model recites is what it was told."""
    given = {answer.request_id: answer for answer in driven.applied}
    for response in of(record, ToolResponse):
        _recorded(given.get(response.request_id), response)
    _steers(driven, record)
    _recitals(driven, record)


def _recorded(answer: Answer | None, response: ToolResponse) -> None:
    if not isinstance(answer, ToolResult) or response.status not in ("completed", "failed"):
        return
    if response.data != answer.data:
        said = f"the result of {response.name} is recorded as {response.data}, not {answer.data}"
        raise Break("TOOL-11", said, evidence_of([], response))
    if response.is_error != answer.is_error:
        said = f"is_error of {response.name} is recorded as {response.is_error}, not {answer.is_error}"
        raise Break("TOOL-13", said, evidence_of([], response))


def _steers(driven: Driven, record: Sequence[Event]) -> None:
    shown = Counter(event.message_id for event in of(record, Message) if not is_ephemeral(event))
    listed = Counter(str(name) for end in of(record, StreamEnd) for name in (end.data or {}).get("undelivered") or ())
    for steer, turn_id in driven.steers.items():
        times, is_over = shown[steer] + listed[steer], turn_id != driven.turn_id or not driven.course.is_open
        if times > 1 or (is_over and times != 1):
            rule = "PER-02" if times == 0 and driven.was_killed else "CTL-06"
            raise Break(rule, f"a steer that was queued is told {times} times, not once", _end(record))
    said = [event for event in of(record, Message) if event.source == "user" and not is_ephemeral(event)]
    known = driven.said + sum(shown[steer] for steer in driven.steers)
    if len(said) > known:
        raise Break("CTL-06", f"{known} messages and steers are shown as {len(said)}", evidence_of(said[-4:]))


def _recitals(driven: Driven, record: Sequence[Event]) -> None:
    rest = driven.course.rest()
    steps = driven.course.steps[: rest.place]
    places = [place for place, step in enumerate(steps) if isinstance(step, Recite)]
    has_children = any(isinstance(step, Delegate) for step in steps)  # whose calls may be told of, too, or not
    if not places or has_children or not (driven.course.is_open or driven.is_natural):
        return
    turn = [event for event in record if event.turn_id == driven.turn_id]
    heard = recited(turn)
    if heard is None:
        raise Break("TOOL-11", "the model did not say what it was told", _end(turn))
    asked = [one for step in steps[: places[-1]] for one in _asked(step)]
    wanted = [_wanted(driven, one) for one in asked]
    if len(heard) != len(wanted):
        raise Break("TOOL-11", f"the model was told of {len(heard)} calls and questions, not {len(wanted)}", _end(turn))
    # Calls at once may be shown in another order than the model made them in, so each is looked for.
    for got, want in zip(sorted(heard, key=_which), sorted(wanted, key=_which), strict=True):
        wrong = [name for name, value in want.items() if got.get(name) != value]
        if wrong:
            rule = "TOOL-13" if wrong == ["is_error"] else "TOOL-11"
            raise Break(rule, f"the model was told {got}, not {want}", _end(turn))


def _which(told: Mapping[str, object]) -> tuple[str, str]:
    """Which call something tells of; questions are told of in their order."""
    return str(told.get("name", "")), str(told.get("args", ""))


def _asked(step: object) -> list[Call | Ask]:
    if isinstance(step, Calls):
        return list(step.calls)
    return [step] if isinstance(step, Ask) else []


def _wanted(driven: Driven, asked: Call | Ask) -> dict[str, object]:
    """What the model must have been told of a call or a question, as far as that is not up to the executor."""
    if isinstance(asked, Ask):
        action = driven.course.given.get(asked.message.lower().rstrip("?"), "cancel")
        content = content_for(asked.kind, asked.requested_schema) if action == "accept" else None
        return {"action": action, "content": content}
    number = asked.args["n"]
    given = driven.course.given.get(f"call {number}")
    told: dict[str, object] = {"name": asked.name, "args": asked.args}
    if given in ("result", "error"):
        return told | {"data": {"of": asked.name, "args": asked.args}, "is_error": given == "error"}
    if not driven.course.runs(asked) or asked.fails:
        return told | {"is_error": True}
    args = {**asked.args, EDITED: True} if given == "edit" else asked.args
    return told | {"data": {"ran": asked.name, "args": args}, "is_error": False}


# -- words ------------------------------------------------------------------------------------------------------------


def _end(record: Sequence[Event]) -> tuple[Evidence, ...]:
    return evidence_of(record[-5:])


def _named(names: Iterable[str]) -> str:
    return f" with {_listed(names)} waiting" if names else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
