"""A host that is killed at any moment: what was acknowledged stays, no tool runs twice, what was cut off is unknown.

The sessions are played and killed by ``killed_host.py``, and judged from what is left on the disk alone. The seed is
fixed and printed; ``AGENTSESSION_KILLS=200`` kills more often, ``AGENTSESSION_SEED=2`` elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.host.killed_host import SESSION, TURNS, key_of, says_no
from tests.killing import folders, notes_in

from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    ElicitationResponse,
    Event,
    RecordKey,
    SessionMachine,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    is_ephemeral,
    parse_event,
)

REPO = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("AGENTSESSION_KILLS", "100"))
SEED = os.environ.get("AGENTSESSION_SEED", "1")


class Left:
    """What a session has left: its record, and what was known outside."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.seed = seed
        self.notes = notes_in(folder)
        self.record: list[Event] = anyio.run(self._read, folder)

    async def _read(self, folder: Path) -> list[Event]:
        async with SqliteRecordStore(folder / "record.db") as store:
            return await store.read(RecordKey("scripted", "local", SESSION))

    def noted(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["note"] == kind]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.record if isinstance(event, kind)]

    def problems(self) -> Iterator[str]:
        yield from self.of_readers()
        yield from self.of_tools()
        yield from self.of_ends()

    def of_readers(self) -> Iterator[str]:
        """Nothing that was acknowledged is lost or told otherwise."""
        stored = {event.seq: event.to_wire() for event in self.record}
        for note in self.noted("saw"):
            event = parse_event(json.dumps(note["event"]))
            kept = stored.get(event.seq, note["event"] if is_ephemeral(event) else None)
            if kept != note["event"]:
                yield f"the observer was given {note['event']}; the record has {kept}"
        said = {
            *((event.request_id, event.decision) for event in self.of(ToolDecision)),
            *((event.request_id, event.status) for event in self.of(ToolResponse)),
            *((event.request_id, event.action) for event in self.of(ElicitationResponse)),
        }
        for note in self.noted("receipt"):
            if (note["request"], note["said"]) not in said:
                yield f"the answer {note['said']} to {note['request']} was acknowledged, and is not in the record"

    def of_tools(self) -> Iterator[str]:
        """Each ran at most once, as it was allowed, and the record says what became of it."""
        entered = Counter(note["call"] for note in self.noted("entered"))
        left = Counter(note["call"] for note in self.noted("left"))
        responses = {event.request_id: event for event in self.of(ToolResponse)}
        started = {event.request_id for event in self.of(ToolUpdate) if event.started}
        granted = {event.request_id for event in self.of(ToolDecision) if event.decision == "granted"}
        requests = {key_of(event.name, event.args): event for event in self.of(ToolRequest)}
        yield from (f"{call} ran, and is not in the record" for call in entered if call not in requests)
        yield from (f"{call} ran {times} times" for call, times in entered.items() if times > 1)
        for call, request in requests.items():
            status = responses[request.request_id].status
            begun = request.request_id in (started if request.needs == "result" else granted)
            if entered[call] and not begun:
                yield f"{call} ran, and the record did not know that it would"
            if entered[call] and says_no(self.seed, request.name, request.args):
                yield f"{call} ran, and the person had said no"
            if entered[call] > left[call] and status != "unknown":
                yield f"{call} was cut off, and the record says {status}"
            if status == "completed" and not entered[call] == left[call] == 1:
                yield f"{call} is completed; it was entered {entered[call]} times and left {left[call]} times"
            if status in ("denied", "cancelled") and (entered[call] or begun):
                yield f"{call} had begun, and the record says {status}"
            if status not in ("completed", "denied", "cancelled", "unknown"):
                yield f"{call} is {status}"

    def of_ends(self) -> Iterator[str]:
        machine = SessionMachine.fold(self.record)  # raises what is broken
        if machine.state != "idle" or machine.pending:
            yield f"the record ends {machine.state}, waiting for {machine.pending}"
        ends = [event for event in self.of(StreamEnd) if event.reason != "input_required"]
        if [event.reason for event in ends].count("completed") != TURNS:
            yield f"the turns ended {[event.reason for event in ends]}"
        yield from (
            f"a turn ended {event.reason} {event.data}"
            for event in ends
            if event.reason != "completed" and (event.data or {}).get("cause") != "lost"
        )


@pytest.mark.rule("PER-02")
@pytest.mark.rule("TOOL-16")
def test_a_host_that_is_killed_anywhere_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    sys.stdout.write(f"seed {SEED}, {KILLS} kills\n")
    words = [sys.executable, "-W", "ignore", "-m", "tests.host.killed_host", str(tmp_path), str(KILLS), SEED]
    played = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=600, check=False)
    assert played.returncode == 0, played.stderr[-3000:]
    every = [Left(folder, f"{SEED} {number}") for number, folder in enumerate(folders(tmp_path))]
    found = [f"{number}: {problem}" for number, left in enumerate(every) for problem in left.problems()]
    assert not found, "\n".join(found)
    # What is to be seen was there to be seen.
    assert sum(len(left.noted("killed")) for left in every) == KILLS
    ended = Counter(event.status for left in every for event in left.of(ToolResponse))
    assert ended["completed"] > KILLS
    assert ended["unknown"] > KILLS / 20
