"""The state machine, rule by rule: what breaks a rule is refused with that rule's id and changes nothing.

Rules that show in receipts (TOOL-09, TOOL-10, TOOL-14, HITL-08, HITL-09) are also in ``test_answers.py``.
What is accepted is in ``test_lifecycle_accepted.py``.
"""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.record import (
    DESCRIPTOR,
    GRANTED,
    Record,
    confirmation,
    delta,
    question,
    request,
    response,
    running,
    said,
    waiting,
    whole,
)

from agentsession.protocol import (
    RULES,
    AgentEnd,
    AgentStart,
    ContentPart,
    Custom,
    ElicitationResponse,
    Error,
    Event,
    Initialize,
    Message,
    NothingToContinue,
    ProtocolViolation,
    Receipt,
    SessionClosed,
    SessionMachine,
    SessionUpdate,
    StreamActive,
    StreamEnd,
    Text,
    Thought,
    ToolRequest,
    ToolUpdate,
    Trigger,
    UnknownEvent,
    Usage,
    accept,
    args_digest,
    check_schema,
    grant,
    result,
)

DENIED = GRANTED.model_copy(update={"decision": "denied"})
ACCEPTED = ElicitationResponse(request_id="q-1", action="accept", source="host")
DECLINED = ElicitationResponse(request_id="q-1", action="decline", source="host")
FATAL = Error(status="INTERNAL", message="broken", fatal=True)
DONE = StreamEnd(reason="completed")


# --- a session -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-02")
def test_a_record_that_does_not_begin_with_initialize_is_refused() -> None:
    record = Record()
    record.stream, record.turn = "t-1", "u-1"
    record.refuse("LIFE-02", said("user", "m-1"))
    record.refuse("LIFE-02", SessionUpdate(title="t"), stream_id=None, turn_id=None)
    assert record.machine.state == "new"


@pytest.mark.rule("LIFE-03")
def test_a_second_initialize_is_refused_in_and_between_streams() -> None:
    again = Initialize(protocol_version="1.0", descriptor=DESCRIPTOR)
    Record().begin().refuse("LIFE-03", again)
    running().refuse("LIFE-03", again)


@pytest.mark.rule("LIFE-15")
def test_initialize_inside_a_stream_is_refused() -> None:
    record = Record()
    record.stream, record.turn = "t-1", "u-1"
    record.refuse("LIFE-15", Initialize(protocol_version="1.0", descriptor=DESCRIPTOR))


@pytest.mark.rule("LIFE-13")
def test_nothing_follows_on_a_closed_session() -> None:
    record = running().stop().end()
    record.machine.close()
    record.refuse("LIFE-13", SessionUpdate(title="t"))
    with pytest.raises(SessionClosed):
        record.machine.check_call("message")
    record.machine.close()  # idempotent


@pytest.mark.rule("LIFE-13")
def test_a_session_cannot_be_closed_over_a_running_stream_but_can_be_abandoned() -> None:
    machine = running().machine
    with pytest.raises(ProtocolViolation) as caught:
        machine.close()
    assert (caught.value.rule, caught.value.blame, machine.state) == ("LIFE-13", "host", "running")
    machine.abandon()
    assert machine.state == "closed"
    machine.abandon()
    assert machine.state == "closed"


@pytest.mark.rule("LIFE-13")
def test_a_client_closes_over_what_its_peer_never_ended() -> None:
    machine = SessionMachine.restore(running().machine.snapshot(), blame="peer")
    machine.close()
    assert machine.state == "closed"


@pytest.mark.rule("ORD-01")
@pytest.mark.parametrize("seq", [0, 1, 3])
def test_a_seq_that_does_not_increase_is_refused(seq: int) -> None:
    record = running()
    assert record.machine.seq == 3
    record.refuse("ORD-01", Usage(), seq=seq)


@pytest.mark.rule("ORD-01")
def test_gaps_in_seq_are_legal() -> None:
    assert running().add(Usage(), seq=1_000).machine.seq == 1_000


@pytest.mark.rule("ORD-02")
def test_an_event_id_that_was_used_is_refused_for_deltas_too() -> None:
    record = running().add(delta("m-1", "a"))
    record.refuse("ORD-02", Usage(), id="e1")
    record.refuse("ORD-02", delta("m-1", "b"), id="e4")


@pytest.mark.rule("ORD-02")
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["own", "e", "e0", "x"]), st.integers(0, 30))))
def test_an_id_is_refused_if_and_only_if_it_was_used(steps: list[tuple[int, str, int]]) -> None:
    record = running()
    used = {event.id for event in record.events}
    for gap, form, number in steps:
        seq = record.machine.seq + gap
        name = f"e{seq}" if form == "own" else f"{form}{number}"
        if name in used:
            record.refuse("ORD-02", Usage(), id=name, seq=seq)
        else:
            record.add(Usage(), id=name, seq=seq)
            used.add(name)


def objects_of(root: object) -> int:
    """How many objects can be reached from ``root``, leaving out classes and functions."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) not in seen and not isinstance(item, (type, types.FunctionType, types.ModuleType)):
            seen[id(item)] = item
            waiting += gc.get_referents(item)
    return len(seen)


def test_what_is_kept_does_not_grow_with_the_deltas_of_a_session() -> None:
    def kept(deltas: int) -> int:
        record = running().add(*(delta("m-1", "a") for _ in range(deltas)), whole("m-1", "a" * deltas))
        return objects_of(record.machine)

    assert kept(2_000) == kept(2)


# --- a stream and its turn -------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-05")
def test_an_event_under_a_stream_that_ended_is_refused() -> None:
    record = running().stop().end()
    record.refuse("LIFE-05", said("user", "m-2"), stream_id="t-1", turn_id="u-1")
    record.refuse("LIFE-05", DONE, stream_id="t-1", turn_id="u-1")
    assert record.machine.is_ended("t-1")


@pytest.mark.rule("ORD-09")
def test_an_event_of_an_old_stream_while_another_runs_is_refused() -> None:
    record = running().stop().end().run(2)
    record.refuse("ORD-09", said("agent", "m-2"), stream_id="t-1", turn_id="u-1")


@pytest.mark.rule("LIFE-07")
def test_a_second_stream_while_one_runs_is_refused() -> None:
    record = running()
    record.refuse("LIFE-07", said("user", "m-2"), stream_id="t-2", turn_id="u-2")
    record.refuse("LIFE-07", said("user", "m-2"), stream_id="t-2")


@pytest.mark.rule("LIFE-07")
@pytest.mark.parametrize("call", ["message", "continue"])
def test_a_call_of_stream_while_one_runs_raises_and_changes_nothing(call: Trigger) -> None:
    machine = running().machine
    before = machine.snapshot()
    with pytest.raises(StreamActive) as caught:
        machine.check_call(call)
    assert "t-1" in str(caught.value)
    assert machine.snapshot() == before


@pytest.mark.rule("LIFE-15")
@pytest.mark.parametrize(
    "event",
    [said("user", "m"), AgentStart(agent_id="a"), request(), question(), Usage(), FATAL, DONE, UnknownEvent(type="x")],
    ids=lambda event: event.type,
)  # fmt: skip
def test_what_belongs_in_a_stream_is_refused_outside(event: Event) -> None:
    Record().begin().refuse("LIFE-15", event)


@pytest.mark.rule("LIFE-15")
def test_an_event_without_a_stream_while_one_runs_is_refused() -> None:
    running().refuse("LIFE-15", SessionUpdate(title="t"), stream_id=None, turn_id=None)


@pytest.mark.rule("LIFE-15")
def test_updates_kept_answers_and_background_may_stand_outside_a_stream() -> None:
    record = waiting(request("r-1"), request("r-2"), question())
    record.add(SessionUpdate(title="t"), Custom(kind="artifact_delta"), response("r-1"), DECLINED, turn_id="u-1")
    record.add(SessionUpdate(title="t"), turn_id=None)
    assert record.machine.pending == ["r-2"]
    assert record.machine.state == "input_required"


@pytest.mark.rule("TURN-01")
def test_a_stream_keeps_its_turn() -> None:
    record = running()
    record.refuse("TURN-01", Usage(), turn_id="u-2")
    record.refuse("TURN-01", Usage(), turn_id=None)


@pytest.mark.rule("TURN-01")
def test_a_stream_needs_a_turn_and_a_waiting_turn_is_continued_first() -> None:
    Record().begin().refuse("TURN-01", said("user", "m"), stream_id="t-1")
    record = waiting()
    record.refuse("TURN-01", said("user", "m"), stream_id="t-2", turn_id="u-2")
    record.refuse("TURN-01", SessionUpdate(title="t"), turn_id="u-2")
    record.go_on(2)
    assert record.machine.turn_id == "u-1"


@pytest.mark.rule("TURN-01")
def test_a_turn_that_ended_is_never_taken_up_again() -> None:
    record = running().stop().end()
    record.refuse("TURN-01", said("user", "m"), stream_id="t-2", turn_id="u-1")
    record.refuse("TURN-01", SessionUpdate(title="t"), turn_id="u-1")


@pytest.mark.rule("LIFE-17")
@pytest.mark.parametrize(
    ("reason", "pending"),
    [
        ("input_required", []),
        ("input_required", ["r-2"]),
        ("input_required", ["r-1", "r-2"]),
        ("input_required", ["r-1", "r-1"]),
        ("completed", ["r-1"]),
        ("completed", []),
        ("x-later", ["r-2"]),
    ],
)
def test_a_stream_end_lists_exactly_what_waits(reason: str, pending: list[str]) -> None:
    record = running().add(request()).stop()
    record.refuse("LIFE-17", StreamEnd(reason=reason, pending=pending))


@pytest.mark.rule("LIFE-17")
def test_input_required_with_nothing_pending_is_refused() -> None:
    record = running().stop()
    record.refuse("LIFE-17", StreamEnd(reason="input_required"))
    record.refuse("LIFE-17", StreamEnd(reason="completed", pending=["r-1"]))


@pytest.mark.rule("LIFE-17")
def test_with_a_reason_that_is_not_known_the_state_follows_pending() -> None:
    record = running().add(request()).stop().add(StreamEnd(reason="x-later", pending=["r-1"]))
    assert record.machine.state == "input_required"
    record = running().stop().add(StreamEnd(reason="x-later"))
    assert record.machine.state == "idle"


# --- fatal errors ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-10")
@pytest.mark.parametrize(
    "event",
    [Usage(), request(), question(), said("agent", "m-2"), delta("m-2", "a"), AgentStart(agent_id="b"), FATAL,
     Custom(kind="plan"), SessionUpdate(title="t")],
    ids=lambda event: event.type,
)  # fmt: skip
def test_after_a_fatal_error_the_agent_emits_only_closings(event: Event) -> None:
    running().add(FATAL).refuse("LIFE-10", event)


@pytest.mark.rule("LIFE-10")
def test_a_delta_of_an_open_message_after_a_fatal_error_is_refused() -> None:
    record = running().add(delta("m-1", "a"), FATAL)
    record.refuse("LIFE-10", delta("m-1", "b"))
    record.add(whole("m-1", "a", interrupted=True))


@pytest.mark.rule("LIFE-10")
def test_closings_of_all_kinds_may_follow_a_fatal_error() -> None:
    record = running().add(request(), question(), delta("m-1", "a"), FATAL)
    record.add(response(status="cancelled"), ElicitationResponse(request_id="q-1", action="cancel"))
    record.refuse("LIFE-10", whole("m-1", "a"))
    record.add(whole("m-1", "a", interrupted=True), UnknownEvent(type="x_later")).stop().end("failed")
    assert not record.machine.fatal


@pytest.mark.rule("LIFE-18")
@pytest.mark.parametrize("end", [DONE, StreamEnd(reason="input_required", pending=["r-1"])])
def test_a_stream_with_a_fatal_error_ends_neither_completed_nor_waiting(end: StreamEnd) -> None:
    record = running().add(request(), FATAL).stop()
    record.refuse("LIFE-18", end)


@pytest.mark.rule("LIFE-18")
def test_a_fatal_error_forbids_waiting_under_an_unknown_reason_too() -> None:
    running().add(request(), FATAL).stop().refuse("LIFE-18", StreamEnd(reason="x-later", pending=["r-1"]))


@pytest.mark.rule("LIFE-11")
def test_an_error_that_is_not_fatal_ends_nothing() -> None:
    record = running().add(Error(status="UNAVAILABLE", message="again"), said("agent", "m-1")).stop().end()
    assert record.machine.state == "idle"


# --- agents and messages ---------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-04")
@pytest.mark.parametrize(
    "event",
    [said("agent", "m"), delta("m", "a"), request(), request(partial=True), question(), Usage(), Custom(kind="plan")],
    ids=lambda event: event.type,
)
def test_what_an_agent_emits_needs_an_open_agent_on_its_thread(event: Event) -> None:
    record = running()
    record.refuse("LIFE-04", event, thread_id="elsewhere")
    record.stop().refuse("LIFE-04", event)


@pytest.mark.rule("LIFE-04")
def test_a_thread_hangs_under_a_thread_with_an_open_agent() -> None:
    record = running()
    record.refuse("LIFE-04", AgentStart(agent_id="child", parent_thread_id="nowhere"), thread_id="nowhere.a")
    record.stop().refuse("LIFE-04", AgentStart(agent_id="child"), thread_id="a")


@pytest.mark.rule("LIFE-04")
def test_users_hosts_and_unknown_events_need_no_agent() -> None:
    record = running().stop()
    record.add(said("user", "m-2"), UnknownEvent(type="x"), SessionUpdate(title="t", source="host"))


@pytest.mark.rule("LIFE-16")
def test_only_the_innermost_agent_of_a_thread_ends() -> None:
    record = running().add(AgentStart(agent_id="inner"))
    record.refuse("LIFE-16", AgentEnd(agent_id="coder"))
    record.refuse("LIFE-16", AgentEnd(agent_id="inner"), thread_id="elsewhere")
    record.add(AgentEnd(agent_id="inner")).stop()
    record.refuse("LIFE-16", AgentEnd(agent_id="coder"))


@pytest.mark.rule("LIFE-16")
def test_children_end_before_their_parent() -> None:
    record = running().add(AgentStart(agent_id="child"), thread_id="a")
    record.add(AgentStart(agent_id="grandchild", parent_thread_id="a"), thread_id="a.b")
    record.refuse("LIFE-16", AgentEnd(agent_id="coder"))
    record.refuse("LIFE-16", AgentEnd(agent_id="child"), thread_id="a")
    record.add(AgentEnd(agent_id="grandchild"), thread_id="a.b").add(AgentEnd(agent_id="child"), thread_id="a").stop()


@pytest.mark.rule("LIFE-16")
def test_messages_are_closed_before_their_agent_ends() -> None:
    record = running().add(AgentStart(agent_id="child"), thread_id="a").add(delta("m-1", "x"), thread_id="a")
    record.refuse("LIFE-16", AgentEnd(agent_id="child"), thread_id="a")
    record.add(whole("m-1", "x"), thread_id="a").add(AgentEnd(agent_id="child"), thread_id="a")


@pytest.mark.rule("LIFE-16")
def test_a_stream_ends_with_no_agent_open() -> None:
    running().refuse("LIFE-16", DONE)


@pytest.mark.rule("LIFE-14")
@pytest.mark.parametrize(
    "closing",
    [
        whole("m-1", "Hello"),
        whole("m-1", "Hello world!", interrupted=True),
        Message(message_id="m-1", content=[Thought(text="Hello world")]),
        Message(message_id="m-1", content=[]),
        whole("m-1", "Hello world", role="user"),
        whole("m-1", "Hello world", thread_id="a"),
    ],
)
def test_a_closing_event_that_does_not_agree_with_its_deltas_is_refused(closing: Message) -> None:
    record = running().add(AgentStart(agent_id="child"), thread_id="a")
    record.add(delta("m-1", "Hello "), delta("m-1", "world"))
    record.refuse("LIFE-14", closing, thread_id=closing.thread_id)


@pytest.mark.rule("LIFE-14")
def test_a_delta_in_another_role_or_on_another_thread_is_refused() -> None:
    record = running().add(AgentStart(agent_id="child"), thread_id="a").add(delta("m-1", "x"))
    record.refuse("LIFE-14", delta("m-1", "y", role="developer"))
    record.refuse("LIFE-14", delta("m-1", "y"), thread_id="a")


@pytest.mark.rule("LIFE-14")
def test_a_message_is_closed_once() -> None:
    record = running().add(delta("m-1", "a"), whole("m-1", "a"), said("agent", "m-2"))
    record.refuse("LIFE-14", whole("m-1", "a"))
    record.refuse("LIFE-14", delta("m-1", "b"))
    record.refuse("LIFE-14", delta("m-2", "b"))
    record.stop().end().run(2).refuse("LIFE-14", said("agent", "m-1"))


@pytest.mark.rule("LIFE-14")
def test_a_stream_ends_with_no_message_open() -> None:
    record = running().stop().add(delta("m-1", "typing", role="user", source="user"))
    record.refuse("LIFE-14", DONE)


@pytest.mark.rule("LIFE-14")
def test_a_closing_event_may_merge_parts_and_revise_text() -> None:
    record = running()
    parts: list[ContentPart] = [Text(text="a"), Thought(text="hm"), Text(text="b")]
    record.add(*(Message(message_id="m-1", content=[part], partial=True) for part in parts))
    record.add(Message(message_id="m-1", content=[Thought(text="hm", signature="s"), Text(text="ab")]))
    record.add(delta("m-2", "secret"), whole("m-2", "removed", revised=True))


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-01")
def test_a_request_has_one_response() -> None:
    record = running().add(request(), response(), question(), DECLINED)
    record.refuse("TOOL-01", response())
    record.refuse("TOOL-01", DECLINED)


@pytest.mark.rule("TOOL-01")
@pytest.mark.parametrize("reason", ["completed", "failed", "x-later"])
def test_a_final_end_with_a_request_in_flight_is_refused(reason: str) -> None:
    record = running().add(request(needs="none")).stop()
    record.refuse("TOOL-01", StreamEnd(reason=reason))


@pytest.mark.rule("TOOL-01")
def test_a_granted_request_may_stay_open_over_a_pause_but_not_over_the_end() -> None:
    record = running().add(request(needs="grant"), GRANTED, request("r-2")).pause()
    assert record.machine.pending == ["r-2"]
    record.go_on(2).add(response("r-2")).stop().refuse("TOOL-01", DONE)
    record.add(response(source="agent")).end()


@pytest.mark.rule("TOOL-02")
@pytest.mark.parametrize(
    "event",
    [response("r-9"), ToolUpdate(request_id="r-9"), GRANTED.model_copy(update={"request_id": "r-9"}),
     ElicitationResponse(request_id="q-9", action="cancel"), confirmation(tool="r-9")],
    ids=lambda event: event.type,
)  # fmt: skip
def test_what_answers_no_request_is_refused(event: Event) -> None:
    running().add(request()).refuse("TOOL-02", event)


@pytest.mark.rule("TOOL-02")
def test_a_question_is_not_answered_like_a_tool_and_a_tool_not_like_a_question() -> None:
    record = running().add(request(), question())
    record.refuse("TOOL-02", response("q-1"))
    record.refuse("TOOL-02", ToolUpdate(request_id="q-1"))
    record.refuse("TOOL-02", GRANTED.model_copy(update={"request_id": "q-1"}))
    record.refuse("TOOL-02", ElicitationResponse(request_id="r-1", action="accept"))
    record.refuse("TOOL-02", confirmation("q-2", tool="q-1"))


@pytest.mark.rule("TOOL-02")
def test_a_request_that_was_only_streamed_in_part_cannot_be_answered() -> None:
    record = running().add(ToolRequest(request_id="r-1", name="read", args_delta='{"pa', partial=True))
    record.refuse("TOOL-02", response())
    record.refuse("TOOL-02", ToolUpdate(request_id="r-1"))
    assert record.machine.pending == []


@pytest.mark.rule("TOOL-03")
def test_a_request_id_is_never_used_again() -> None:
    record = running().add(request(), question())
    record.refuse("TOOL-03", request())
    record.refuse("TOOL-03", question("r-1"))
    record.refuse("TOOL-03", request("q-1"))
    record.refuse("TOOL-03", request(partial=True))
    record.add(response(), DECLINED).stop().end().run(2)
    record.refuse("TOOL-03", request())
    record.refuse("TOOL-03", question())


@pytest.mark.rule("TOOL-03")
def test_the_id_of_a_streamed_request_belongs_to_it_even_if_it_never_became_whole() -> None:
    record = running().add(request(partial=True))
    record.refuse("TOOL-03", question("r-1"))
    record.stop().end().run(2)
    record.refuse("TOOL-03", request())
    assert record.machine.check_answer(result("r-1")).status == "not_found"


@pytest.mark.rule("TOOL-05")
@pytest.mark.parametrize("status", ["completed", "failed", "x-later"])
def test_the_executor_runs_nothing_without_the_grant_it_needs(status: str) -> None:
    record = running().add(request(needs="grant"))
    record.refuse("TOOL-05", response(status=status, source="agent"))
    record.add(GRANTED, response(status=status, source="agent"))


@pytest.mark.rule("TOOL-05")
@pytest.mark.parametrize("needs", ["result", "x-later"])
def test_the_executor_never_runs_what_the_host_runs(needs: str) -> None:
    record = running().add(request(needs=needs))
    record.refuse("TOOL-05", response(status="completed", source="agent"))
    record.add(GRANTED)
    record.refuse("TOOL-05", response(status="failed", source="agent"))


@pytest.mark.rule("TOOL-05")
@pytest.mark.parametrize("needs", ["result", "grant"])
def test_a_denied_tool_does_not_complete(needs: str) -> None:
    record = running().add(request(needs=needs), DENIED)
    record.refuse("TOOL-05", response(status="completed"))
    record.refuse("TOOL-05", response(status="x-later"))
    record.add(response(status="denied"))


@pytest.mark.rule("TOOL-05")
def test_a_decision_that_is_not_known_grants_nothing() -> None:
    record = running().add(request(needs="grant"), GRANTED.model_copy(update={"decision": "x-later"}))
    record.refuse("TOOL-05", response(status="completed", source="agent"))


@pytest.mark.rule("TOOL-12")
def test_an_update_after_the_response_is_refused() -> None:
    record = running().add(request(), ToolUpdate(request_id="r-1", source="host"), response())
    record.refuse("TOOL-12", ToolUpdate(request_id="r-1", source="host"))


@pytest.mark.rule("TOOL-15")
def test_a_request_is_decided_once_before_its_response_and_only_if_it_asks() -> None:
    record = running().add(request(needs="grant"), GRANTED)
    record.refuse("TOOL-15", GRANTED)
    record.refuse("TOOL-15", DENIED)
    record.add(response(source="agent")).refuse("TOOL-15", GRANTED)
    running().add(request(needs="none")).refuse("TOOL-15", GRANTED)


@pytest.mark.rule("TOOL-16")
def test_a_host_tool_starts_once_and_what_has_started_is_never_cancelled() -> None:
    started = ToolUpdate(request_id="r-1", source="host", started=True)
    record = running().add(request(), started)
    assert record.machine.pending == ["r-1"]
    record.refuse("TOOL-16", started)
    for status in ("cancelled", "denied"):
        record.refuse("TOOL-16", response(status=status, source="host"))
    record.add(ToolUpdate(request_id="r-1", source="host", progress=0.5), response(status="unknown", source="host"))
    for needs in ("grant", "none"):
        running().add(request(needs=needs)).refuse("TOOL-16", started)


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize(
    "decision",
    [
        {"args_digest": args_digest({"path": "b.py"})},
        {"args_digest": ""},
        {"args": {"path": "b.py"}},
        {"decision": "denied", "args_digest": "0" * 64},
    ],
)
def test_a_decision_whose_digest_is_not_that_of_its_arguments_is_refused(decision: dict[str, Any]) -> None:
    running().add(request(needs="grant")).refuse("HITL-04", GRANTED.model_copy(update=decision))


@pytest.mark.rule("HITL-04")
def test_a_decision_over_edited_or_absent_arguments_carries_their_digest() -> None:
    edited = {"args": {"path": "b.py"}, "args_digest": args_digest({"path": "b.py"})}
    running().add(request(needs="grant"), GRANTED.model_copy(update=edited))
    running().add(request(args=None), GRANTED.model_copy(update={"args_digest": args_digest({})}))


@pytest.mark.rule("TOOL-09")
def test_a_second_answer_is_stale_and_changes_nothing() -> None:
    record = running().add(request(), request("r-2", needs="grant"), response())
    record.add(GRANTED.model_copy(update={"request_id": "r-2"}))
    before = record.machine.snapshot()
    for answer in (result("r-1"), grant("r-2"), result("r-2")):
        receipt = record.machine.check_answer(answer)
        assert (receipt.status, receipt.rule, receipt.ok) == ("stale", "TOOL-09", False)
    assert record.machine.snapshot() == before


@pytest.mark.rule("TOOL-10")
def test_an_answer_to_an_unknown_id_is_not_found() -> None:
    receipt = running().machine.check_answer(result("r-9"))
    assert (receipt.status, receipt.rule) == ("not_found", "TOOL-10")


@pytest.mark.rule("TOOL-14")
def test_an_answer_of_the_wrong_kind_is_invalid_and_the_request_stays_pending() -> None:
    record = running().add(request())
    assert record.machine.check_answer(grant("r-1")).rule == "TOOL-14"
    assert record.machine.check_answer(accept("r-1")).rule == "TOOL-14"
    assert record.machine.pending == ["r-1"]


# --- people ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize("needs", ["none", "grant"])
def test_a_tool_does_not_complete_before_its_confirmation_is_answered(needs: str) -> None:
    record = running().add(request(needs=needs), *([GRANTED] if needs == "grant" else []), confirmation())
    record.refuse("HITL-01", response(source="agent"))
    record.add(ACCEPTED, response(source="agent"))


@pytest.mark.rule("HITL-01")
def test_a_tool_that_asks_twice_needs_both_answers() -> None:
    record = running().add(request(needs="none"), confirmation("q-1"), confirmation("q-2"), ACCEPTED)
    record.refuse("HITL-01", response(source="agent"))
    record.add(ACCEPTED.model_copy(update={"request_id": "q-2"}), response(source="agent"))


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("action", ["decline", "cancel", "x-later"])
def test_a_tool_that_was_not_clearly_confirmed_does_not_complete(action: str) -> None:
    record = running().add(request(needs="none"), confirmation(), ElicitationResponse(request_id="q-1", action=action))
    record.refuse("HITL-02", response(source="agent"))
    record.refuse("HITL-02", response(status="x-later", source="agent"))
    record.add(response(status="denied", source="agent"))


@pytest.mark.rule("HITL-02")
def test_one_no_among_several_answers_stays_a_no() -> None:
    record = running().add(request(needs="none"), confirmation("q-1"), confirmation("q-2"), DECLINED)
    record.add(ACCEPTED.model_copy(update={"request_id": "q-2"}))
    record.refuse("HITL-02", response(source="agent"))


@pytest.mark.rule("HITL-02")
def test_a_tool_may_ask_again_after_a_no() -> None:
    record = running().add(request(needs="none"), confirmation("q-1"), DECLINED, confirmation("q-2"))
    record.refuse("HITL-01", response(source="agent"))
    record.add(ACCEPTED.model_copy(update={"request_id": "q-2"}), response(source="agent"))


@pytest.mark.rule("HITL-02")
def test_an_answer_to_another_question_about_the_tool_confirms_nothing() -> None:
    record = running().add(request(needs="none"), confirmation("q-1"))
    record.add(question("q-2", "clarification", tool_request_id="r-1"))
    record.add(ElicitationResponse(request_id="q-2", action="accept"))
    record.refuse("HITL-01", response(source="agent"))


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize("content", [False, "no", {"confirmed": False}, {"decision": "deny"}, 0])
def test_a_recorded_acceptance_that_contradicts_itself_is_refused(content: Any) -> None:
    record = running().add(request(needs="none"), confirmation())
    record.refuse("HITL-08", ElicitationResponse(request_id="q-1", action="accept", content=content))
    record.add(ElicitationResponse(request_id="q-1", action="accept", content={"confirmed": True}))


@pytest.mark.rule("HITL-08")
def test_an_acceptance_that_the_schema_does_not_take_is_invalid_and_stays_pending() -> None:
    record = running().add(question(requested_schema={"type": "object", "required": ["branch"]}))
    receipt = record.machine.check_answer(accept("q-1", {"tag": "v1"}), check_schema)
    assert (receipt.status, receipt.rule) == ("invalid", "HITL-08")
    assert record.machine.pending == ["q-1"]


@pytest.mark.rule("HITL-09")
@pytest.mark.parametrize("action", ["decline", "cancel", "x-later"])
def test_only_an_acceptance_carries_content(action: str) -> None:
    record = running().add(question())
    record.refuse("HITL-09", ElicitationResponse(request_id="q-1", action=action, content={"why": "no"}))


@pytest.mark.rule("HITL-07")
def test_a_kind_that_the_host_cannot_show_is_cancelled_in_the_next_event() -> None:
    record = Record(SessionMachine(host_kinds={"clarification"})).begin().run()
    record.add(question("q-0"), request(needs="none"), confirmation())
    record.refuse("HITL-07", Usage())
    record.refuse("HITL-07", ACCEPTED)
    record.refuse("HITL-07", DECLINED)
    record.refuse("HITL-07", ElicitationResponse(request_id="q-0", action="cancel"))
    restored = SessionMachine.restore(record.machine.snapshot(), host_kinds={"clarification"})
    Record(restored).refuse("HITL-07", Usage(), stream_id="t-1", turn_id="u-1")
    record.add(ElicitationResponse(request_id="q-1", action="cancel"))
    record.refuse("HITL-02", response(source="agent"))
    record.add(Usage())


# --- steering --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-06")
def test_a_completed_end_waits_for_every_steer() -> None:
    record = running()
    record.machine.queue_steer("m-s")
    record.stop()
    record.refuse("CTL-06", DONE)
    record.refuse("CTL-06", StreamEnd(reason="completed", data={"undelivered": ["m-s"]}))
    record.add(said("user", "m-s")).end()


@pytest.mark.rule("CTL-06")
@pytest.mark.parametrize("data", [None, {}, {"undelivered": "m-s"}, {"undelivered": ["m-other"]}])
def test_another_end_lists_what_was_not_delivered(data: dict[str, Any] | None) -> None:
    record = running()
    record.machine.queue_steer("m-s")
    record.stop()
    record.refuse("CTL-06", StreamEnd(reason="aborted", data=data))
    record.end("aborted", data={"undelivered": ["m-s"]})
    assert record.machine.steers == {}


@pytest.mark.rule("CTL-06")
def test_a_steer_is_injected_once() -> None:
    record = running()
    record.machine.queue_steer("m-s")
    record.add(said("user", "m-s"))
    record.refuse("CTL-06", said("user", "m-s"))
    record.stop().refuse("CTL-06", StreamEnd(reason="aborted", data={"undelivered": ["m-s"]}))


@pytest.mark.rule("CTL-06")
def test_what_was_listed_as_undelivered_is_not_injected_later() -> None:
    record = running()
    record.machine.queue_steer("m-s")
    record.stop().end("aborted", data={"undelivered": ["m-s"]}).run(2)
    record.refuse("CTL-06", said("user", "m-s"))


@pytest.mark.rule("CTL-06")
def test_an_id_is_queued_once() -> None:
    machine = running().machine
    machine.queue_steer("m-s")
    for used in ("m-s", "m-user-1"):
        before = machine.snapshot()
        with pytest.raises(ProtocolViolation) as caught:
            machine.queue_steer(used)
        assert caught.value.rule == "CTL-06"
        assert machine.snapshot() == before


@pytest.mark.rule("CTL-06", "PER-03")
def test_steers_go_with_a_snapshot_and_are_no_part_of_what_is_stored() -> None:
    machine = running().machine
    stored = machine.snapshot(ephemeral=False)
    machine.queue_steer("m-s")
    assert machine.snapshot(ephemeral=False) == stored
    restored = SessionMachine.restore(machine.snapshot())
    assert list(restored.steers) == ["m-s"]
    with pytest.raises(ProtocolViolation, match="queued before"):
        restored.queue_steer("m-s")
    Record(restored).add(said("user", "m-s"), stream_id="t-1", turn_id="u-1")
    assert restored.steers == {}


@pytest.mark.rule("CTL-06")
def test_a_steer_waits_over_a_pause_and_needs_a_turn() -> None:
    with pytest.raises(NothingToContinue):
        Record().begin().machine.queue_steer("m-s")
    record = waiting()
    record.machine.queue_steer("m-s")
    record.go_on(2).add(response()).stop().refuse("CTL-06", DONE)


# --- what a refusal says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blame", ["executor", "peer"])
def test_a_violation_says_who_what_where_and_how_to_mend_it(blame: Any) -> None:
    machine = SessionMachine(blame=blame)
    record = Record(machine).begin().run()
    error = record.refuse("TOOL-02", response("r-9"))
    assert (error.blame, error.id, error.got) == (blame, "TOOL-02", "tool_response")
    assert error.where == "session s-1, stream t-1, event #4 (id e4)"
    assert (error.expected, error.fix) == (RULES["TOOL-02"].sentence, RULES["TOOL-02"].fix)
    assert str(error).splitlines()[0] == f"ProtocolViolation[TOOL-02]: there is no request r-9 (blame: {blame})"


def test_a_receipt_is_ok_when_it_took_effect() -> None:
    ok = [Receipt(status=status).ok for status in ("applied", "queued", "stale", "not_found", "invalid", "rejected")]
    assert ok == [True, True, False, False, False, False]
