"""A process that is killed at any moment: what was acknowledged stays, no tool runs twice, the session ends well.

The sessions are played and killed by ``killed_anywhere.py``, and judged from what is left on the disk alone. The seed
is fixed and printed; ``AGENTSESSION_KILLS=200`` kills more often, ``AGENTSESSION_SEED=2`` elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters.adk.driving import check_schema_of
from tests.adapters.adk.killed_anywhere import SAID, SESSION, Plan, edited
from tests.killing import folders, notes_in

from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    RecordKey,
    SessionMachine,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    is_ephemeral,
    parse_event,
)

REPO = Path(__file__).resolve().parents[3]
KILLS = int(os.environ.get("AGENTSESSION_KILLS", "16"))
SEED = os.environ.get("AGENTSESSION_SEED", "1")


class Left:
    """What a session has left: its record, and what was known outside."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.notes = notes_in(folder)
        self.record: list[Event] = anyio.run(self._read)

    async def _read(self) -> list[Event]:
        async with SqliteRecordStore(self.folder / "record.db") as store:
            return await store.read(RecordKey("root", "local", SESSION))

    def noted(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["note"] == kind]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.record if isinstance(event, kind)]

    @cached_property
    def responses(self) -> Mapping[str, ToolResponse]:
        """By request id."""
        return {event.request_id: event for event in self.of(ToolResponse)}

    @cached_property
    def decisions(self) -> Mapping[str, ToolDecision]:
        return {event.request_id: event for event in self.of(ToolDecision)}

    def confirmation(self, request_id: str) -> str | None:
        """What a person said of a call of this id; ``None`` where nobody was asked or nobody answered."""
        asked = {item.request_id for item in self.of(ElicitationRequest) if item.tool_request_id == request_id}
        said = [item.action for item in self.of(ElicitationResponse) if item.request_id in asked]
        return said[-1] if said else None

    @cached_property
    def lost(self) -> set[str | None]:
        """The streams that were cut."""
        return {end.stream_id for end in self.of(StreamEnd) if (end.data or {}).get("cause") == "lost"}

    def problems(self) -> Iterator[str]:
        yield from self.of_readers()
        yield from self.of_rules()
        yield from self.of_tools()
        yield from self.of_history()
        yield from self.of_end()

    # -- what readers and hosts were told -----------------------------------------------------------------------------

    def of_readers(self) -> Iterator[str]:
        """Nothing that was acknowledged is lost or told otherwise."""
        stored = {event.seq: event.to_wire() for event in self.record}
        told: dict[int, Any] = {}
        for note in self.noted("saw"):
            wire = note["event"]
            event = parse_event(json.dumps(wire))
            if told.setdefault(event.seq, wire) != wire:
                yield f"seq {event.seq} was two events: {told[event.seq]} and {wire}"
            if stored.get(event.seq, wire if is_ephemeral(event) else None) != wire:
                yield f"a reader was given {wire}; the record has {stored.get(event.seq)}"
        said = {
            *((event.request_id, event.decision) for event in self.of(ToolDecision)),
            *((event.request_id, event.status) for event in self.of(ToolResponse)),
            *((event.request_id, event.action) for event in self.of(ElicitationResponse)),
        }
        given = Counter(note["request"] for note in self.noted("receipt"))
        yield from (
            f"{name} was asked again, and its answer was acknowledged before" for name in given if given[name] > 1
        )
        for note in self.noted("receipt"):
            if (note["request"], note["said"]) not in said:
                yield f"the answer {note['said']} to {note['request']} was acknowledged, and is not in the record"

    def of_rules(self) -> Iterator[str]:
        machine = SessionMachine.fold(self.record)  # raises what is broken
        if machine.state != "idle" or machine.pending:
            yield f"the record ends {machine.state}, waiting for {machine.pending}"
        for event in self.record:
            check_schema_of(event)

    # -- tools --------------------------------------------------------------------------------------------------------

    def of_tools(self) -> Iterator[str]:
        """Each body was entered at most once, as it was allowed, and the record says what became of it."""
        entered = Counter(note["call"] for note in self.noted("entered"))
        left = Counter(note["call"] for note in self.noted("left"))
        asked = Counter(note["call"] for note in self.noted("asked"))
        seen = {note["call"]: note for note in self.noted("entered")}
        requests = {call_id(event): event for event in self.of(ToolRequest)}
        for call, times in (*entered.items(), *asked.items()):
            if times > 1:
                yield f"{call} was run {times} times"
            if call not in requests:
                yield f"{call} ran, and is not in the record"
        for call, request in requests.items():
            response = self.responses[request.request_id]
            allowed = self.is_allowed(request)
            if entered[call] and not allowed:
                yield f"{call} ({request.name}) ran, and nobody had allowed it"
            if entered[call] and request.name in self.declined_tools:
                yield f"{call} ({request.name}) ran, and the host had said no"
            if entered[call] and seen[call]["args"] != self.allowed_args(request):
                yield f"{call} ran with {seen[call]['args']}, not with {self.allowed_args(request)}"
            if entered[call] and request.name == "ask" and seen[call]["payload"] != {"how": "gently"}:
                yield f"{call} was given {seen[call]['payload']}"
            yield from self.of_status(call, request, response, entered[call], left[call])

    def of_status(
        self, call: str, request: ToolRequest, response: ToolResponse, entered: int, left: int
    ) -> Iterator[str]:
        status, own = response.status, request.name != "look"
        if own and entered > left and status != "unknown":
            yield f"{call} was cut, and the record says {status}"
        if own and status == "completed" and not (entered == left == 1):
            yield f"{call} is completed; it was entered {entered} times and left {left} times"
        if status in ("denied", "cancelled") and entered:
            yield f"{call} ran, and the record says {status}"
        if status not in ("completed", "denied", "cancelled", "unknown"):
            yield f"{call} is {status}"
        if status in ("unknown", "cancelled") and response.stream_id not in self.lost:
            yield f"{call} is {status}, and no process had died over it"
        if status == "unknown" and request.needs == "grant" and request.request_id not in self.decisions:
            yield f"{call} is unknown, and could not have begun"

    def is_allowed(self, request: ToolRequest) -> bool:
        decision = self.decisions.get(request.request_id)
        granted = request.needs == "none" or (decision is not None and decision.decision == "granted")
        confirms = request.name in ("delete", "ask")
        return granted and (not confirms or self.confirmation(request.request_id) == "accept")

    def allowed_args(self, request: ToolRequest) -> Any:
        return edited(request.args) if request.name == "write" else request.args

    @cached_property
    def declined_tools(self) -> set[str]:
        declined = set(self.plan.declined)
        return declined | ({"ask"} if "question about ask" in declined else set())

    # -- the model ----------------------------------------------------------------------------------------------------

    def of_history(self) -> Iterator[str]:
        """In each model call, every call has one result after it; in the last, what the record says."""
        shown: list[list[Any]] = []
        for note in self.noted("model"):
            shown = note["shown"]
            open_calls: list[str] = []
            made: set[str] = set()
            for kind, call, _ in shown:
                if kind == "call":
                    if call in made:
                        yield f"the model is shown the call {call} twice"
                    made.add(call)
                    open_calls.append(call)
                elif call in open_calls:
                    open_calls.remove(call)
                else:
                    yield f"the model is shown a result of {call} too many"
            if open_calls:
                yield f"the model is shown no result of {', '.join(open_calls)}"
        results = {call: given for kind, call, given in shown if kind == "result"}
        for request in self.of(ToolRequest):
            response = self.responses[request.request_id]
            given = results.get(call_id(request))
            if given is None:
                if response.stream_id not in self.lost:
                    yield f"the model is not shown {call_id(request)}"
                continue
            if response.status == "completed" and given != as_shown(response):
                yield f"the model reads {given} of {call_id(request)}; the record has {response.data}"
            if response.status != "completed" and "error" not in given:
                yield f"the model reads {given} of {call_id(request)}, which is {response.status}"

    def of_end(self) -> Iterator[str]:
        """Both turns are completed, and whatever ended before its time was a process that died."""
        ends = [end for end in self.of(StreamEnd) if end.reason != "input_required"]
        if [end.reason for end in ends].count("completed") != len(SAID):
            yield f"the turns ended {[end.reason for end in ends]}"
        for stream_id in self.lost:
            events = [event for event in self.record if event.stream_id == stream_id]
            if not any(isinstance(event, AgentStart) or event.source == "user" for event in events):
                yield f"the turn of {events[-1].stream_id} waited, and was settled by a load"
        for end in ends:
            if end.reason != "completed" and end.stream_id not in self.lost:
                yield f"a turn ended {end.reason} {end.data}"
        said = [text_of(event) for event in self.of(Message) if event.source == "user"]
        if [text for text in said if text != "go on"] != list(SAID):
            yield f"the person said {said}"
        heard = self.noted("model")[-1]["said"]
        if heard != said:
            yield f"the person said {said}; the model heard {heard}"
        told = [text_of(event) for event in self.of(Message) if event.source == "agent"]
        spoke = self.noted("model")[-1]["spoke"]
        if told[:-1] != spoke:  # the last is what that model call said
            yield f"the agent said {told}; its model knows of {spoke}"


def call_id(request: ToolRequest) -> str:
    """The id under which the agent and its model know a call."""
    marks = (request.meta or {}).get("adk") or {}
    return str(marks.get("callId") or request.request_id)


def as_shown(response: ToolResponse) -> Any:
    return response.data if isinstance(response.data, dict) else {"result": response.data}


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, Text))


def played(place: Path, mode: str) -> None:
    """Play and kill sessions, in processes of their own."""
    paths = [REPO, *(REPO / name for name in ("protocol", "adapters", "host", "conformance"))]
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.adapters.adk.killed_anywhere",
            str(place),
            mode,
            str(KILLS),
            SEED,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        timeout=120 + 10 * KILLS,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.rule(
    "PER-01", "PER-02", "PER-03", "PER-04", "ORD-01", "TOOL-01", "TOOL-05", "HITL-01", "HITL-02", "HITL-03"
)
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_a_session_that_is_killed_anywhere_keeps_what_it_acknowledged_and_comes_to_its_end(
    mode: str, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    played(tmp_path, mode)
    found: list[str] = []
    kills = 0
    for number, folder in enumerate(folders(tmp_path)):
        left = Left(folder, Plan.of(SEED, number, parked=mode == "parked"))
        deaths = [f"life {note['life']}: {note['at']}" for note in left.noted("killed")]
        kills += len(deaths)
        found += [f"{folder.name}, killed {'; '.join(deaths)}:\n    {problem}" for problem in left.problems()]
    assert not found, "\n".join(found)
    assert kills == KILLS
