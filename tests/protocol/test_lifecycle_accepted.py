"""The state machine: legal records are accepted, and calls, each in the states that the table has for it.

Not for: what is refused by a rule (``test_lifecycle.py``), or any sequence of calls (``test_lifecycle_stateful.py``).
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from tests.protocol.record import (
    GRANTED,
    Record,
    delta,
    question,
    request,
    response,
    running,
    said,
    waiting,
    whole,
)

from agentsession.conformance.strategies import records
from agentsession.protocol import (
    STATES,
    TRANSITIONS,
    AgentEnd,
    AgentStart,
    ElicitationResponse,
    Event,
    MachineSnapshot,
    NothingToContinue,
    ProtocolViolation,
    SessionClosed,
    SessionMachine,
    StreamActive,
    Trigger,
    UnknownEvent,
    cancel,
    is_ephemeral,
)

# --- sequences that are accepted -------------------------------------------------------------------------------------


@pytest.mark.rule("PER-03")
@given(records())
def test_any_legal_record_is_accepted_and_folds_to_the_same_state_without_its_ephemerals(record: list[Event]) -> None:
    machine = SessionMachine.fold(record)
    stored = SessionMachine.fold(event for event in record if not is_ephemeral(event))
    assert stored.snapshot(ephemeral=False) == machine.snapshot(ephemeral=False)


@given(records())
def test_a_machine_restored_anywhere_goes_on_like_the_one_that_was_there(record: list[Event]) -> None:
    machine = SessionMachine()
    for event in record:
        machine.feed(event)
        wire = machine.snapshot().to_wire_json()
        machine = SessionMachine.restore(MachineSnapshot.model_validate_json(wire))
    assert machine.snapshot() == SessionMachine.fold(record).snapshot()


@given(records())
def test_deltas_taken_the_short_way_leave_what_the_long_way_leaves(record: list[Event]) -> None:
    class LongWay(SessionMachine):
        def _extend(self, event: Event) -> bool:
            return False

    assert LongWay.fold(record).snapshot() == SessionMachine.fold(record).snapshot()


@pytest.mark.rule("TURN-01", "LIFE-12")
def test_a_turn_over_three_streams_and_the_next_turn() -> None:
    record = running().add(request(), request("r-2", needs="grant")).pause()
    assert record.machine.pending == ["r-1", "r-2"]
    assert [agent.agent_id for agent in record.machine.paused] == ["coder"]
    record.add(response("r-1"), turn_id="u-1").go_on(2)
    assert record.machine.paused == []
    record.pause().go_on(3)
    record.add(GRANTED.model_copy(update={"request_id": "r-2"}), response("r-2", source="agent")).stop().end()
    assert record.machine.state == "idle"
    record.run(4).stop().end("aborted")


def test_a_waiting_turn_is_settled_in_a_stream_of_its_own() -> None:
    record = waiting(request(), question())
    record.stream = "t-2"
    record.add(response(status="cancelled"), ElicitationResponse(request_id="q-1", action="cancel"))
    record.end("aborted", data={"cause": "superseded"})
    assert record.machine.state == "idle"
    assert record.machine.paused == []
    record.run(3)


def test_every_pending_request_may_be_answered_while_waiting_and_the_turn_still_waits() -> None:
    record = waiting().add(response(), turn_id="u-1")
    assert record.machine.pending == []
    assert record.machine.state == "input_required"
    record.go_on(2).stop().end()


def test_a_handoff_ends_one_agent_and_starts_the_other() -> None:
    record = running().add(AgentEnd(agent_id="coder", reason="handoff"), AgentStart(agent_id="tester"))
    record.add(said("agent", "m-1"), AgentEnd(agent_id="tester")).end()


def test_two_agents_of_one_name_that_paused_are_resumed_one_by_one() -> None:
    record = running().add(AgentStart(agent_id="coder"), request())
    record.add(AgentEnd(agent_id="coder", reason="input_required")).pause().go_on(2)
    assert len(record.machine.paused) == 1
    record.add(AgentStart(agent_id="coder", resumed=True))
    assert record.machine.paused == []


def test_what_a_pause_closed_is_to_be_resumed_outermost_first() -> None:
    record = running().add(AgentStart(agent_id="inner")).add(AgentStart(agent_id="child"), thread_id="a").add(request())
    record.add(AgentEnd(agent_id="child", reason="input_required"), thread_id="a")
    record.add(AgentEnd(agent_id="inner", reason="input_required")).pause()
    assert [(agent.agent_id, agent.thread_id) for agent in record.machine.paused] == [
        ("coder", None),
        ("inner", None),
        ("child", "a"),
    ]


def test_an_unknown_event_type_is_legal_in_any_open_stream() -> None:
    record = running().add(UnknownEvent(type="x_later")).stop().add(UnknownEvent(type="x_later")).end()
    assert record.machine.state == "idle"


# --- calls and the table ---------------------------------------------------------------------------------------------


def in_state(state: str) -> SessionMachine:
    """A machine in each of the states."""
    made = {
        "new": lambda: Record().begin(),
        "idle": lambda: running().stop().end(),
        "running": running,
        "input_required": waiting,
        "closed": running,
    }[state]()
    if state == "closed":
        made.machine.abandon()
    assert made.machine.state == state
    return made.machine


CALLS: tuple[Trigger, ...] = ("message", "continue", "answer", "steer", "update", "abort", "close", "abandon")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_leads_where_the_table_says_or_raises(state: Any, call: Trigger) -> None:
    machine = in_state(state)
    before = machine.snapshot()
    if call in TRANSITIONS[state]:
        assert machine.check_call(call) == TRANSITIONS[state][call]
    else:
        with pytest.raises((SessionClosed, StreamActive, NothingToContinue, ProtocolViolation)):
            machine.check_call(call)
    assert machine.snapshot() == before


def test_the_table_knows_every_state_and_leaves_closed_never() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert not TRANSITIONS["closed"]
    assert {target for row in TRANSITIONS.values() for target in row.values()} <= set(STATES)


def test_an_answer_on_a_closed_session_raises() -> None:
    with pytest.raises(SessionClosed):
        in_state("closed").check_answer(cancel("q-1"))


def test_what_the_machine_tells() -> None:
    record = running().add(delta("m-1", "a"), request())
    machine = record.machine
    assert (machine.session_id, machine.stream_id, machine.turn_id) == ("s-1", "t-1", "u-1")
    assert list(machine.open_messages) == ["m-1"]
    assert dict(machine.agents) == {None: ["coder"]}
    assert not machine.is_resolved("r-1")
    record.add(response(), whole("m-1", "a")).stop().end()
    assert machine.is_resolved("r-1")
    assert machine.is_closed_message("m-1")
    assert machine.ended_streams == {"t-1"}
    assert cast(object, machine.stream_id) is None
