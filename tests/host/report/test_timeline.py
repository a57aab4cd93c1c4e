"""From a record to its timeline: who was at work when, what was used, what went wrong."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.report.records import Writer, coder_at_work, long_record
from tests.host.subagents import agent, calls, read_file

from agentsession.adapters.scripted import Call, Count, Say, ScriptedExecutor
from agentsession.conformance.strategies import events, records
from agentsession.host import Host, SubagentTool, allow_all
from agentsession.host.cli._totals import Totals
from agentsession.host.report import Timeline, timeline, turn
from agentsession.host.report._stretches import length, minus, union
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
)


def stretches(told: Timeline, kind: str, thread: str | None = None) -> list[tuple[float, float, str]]:
    return [
        (round(span.start, 3), round(span.end, 3), span.status or span.label)
        for span in told.spans
        if span.kind == kind and span.thread_id == thread
    ]


def test_the_model_is_at_work_between_what_is_told_and_each_usage_ends_a_call() -> None:
    w = Writer()
    w.begin("go")
    w.after(3).ask_tool("r1", "look")
    w.add(Usage, model="m1")
    w.after(2).respond("r1", "look")
    w.after(4).add(Usage, model="m2")
    w.after(1).end()
    assert stretches(timeline(w.events), "model") == [(0, 3, "m1"), (5, 9, "m2"), (9, 10, "")]


def test_a_tool_that_the_host_runs_is_at_work_from_its_request_and_one_of_the_agents_from_its_grant() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r1", "look")
    w.ask_tool("r2", "write", needs="grant", owner="agent")
    w.after(2).decide("r1", "policy:reads")  # recorded together with the result
    w.respond("r1", "look")
    w.after(3).decide("r2", "policy:writes")
    w.after(4).respond("r2", "write")
    w.end()
    assert stretches(timeline(w.events), "tool") == [(0, 2, "completed"), (5, 9, "completed")]


def test_where_the_host_says_when_it_starts_a_tool_the_time_before_is_the_persons_and_after_it_the_tools() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("asked", "write")
    w.ask_tool("allowed", "look")
    w.after(1).add(ToolUpdate, request_id="allowed", started=True, source="host")
    w.add(ToolUpdate, request_id="allowed", progress=1)
    w.after(2).decide("allowed", "policy:reads")
    w.respond("allowed", "look")
    w.after(4).add(ToolUpdate, request_id="asked", started=True, source="host")
    w.after(5).decide("asked", "user")
    w.respond("asked", "write")
    w.end()
    told = timeline(w.events)
    assert stretches(told, "wait") == [(0, 7, "granted")]
    assert stretches(told, "tool") == [(1, 3, "completed"), (7, 12, "completed")]
    assert (told.spent.people_s, told.spent.tools_s) == (7, 5)


def test_a_call_that_waited_when_the_mode_was_changed_waited_for_a_person() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r1", "write")
    w.after(4).add(SessionUpdate, permission_mode="plan", source="host")
    w.after(1).decide("r1", "policy:in-plan", decision="denied")
    w.respond("r1", "write", status="denied")
    w.end()
    told = timeline(w.events)
    assert (told.spent.people_s, told.spent.model_s) == (5, 0)
    totals = Totals()
    for event in w.events:
        totals.feed(event)
    assert (totals.you_s, totals.model_s) == (5, 0)


def test_what_a_running_tool_waited_for_an_answer_is_the_persons_time() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r1", "book")
    w.after(1).add(ToolUpdate, request_id="r1", started=True, source="host")
    asked = {"kind": "clarification", "message": "?", "action": "accept", "waitedS": 6.0}
    w.after(7).add(ToolUpdate, request_id="r1", data={"asked": asked}, source="host")
    w.after(1).decide("r1", "policy:reads")
    w.respond("r1", "book")
    w.end()
    told = timeline(w.events)
    assert (told.spent.people_s, told.spent.tools_s) == (6, 2)
    totals = Totals()
    for event in w.events:
        totals.feed(event)
    assert (totals.you_s, totals.tools_s) == (6, 2)


def test_a_person_is_waited_for_until_the_answer_and_the_tool_is_at_work_after_it() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r1", "write", needs="grant", owner="agent")
    w.after(7).decide("r1", "user:ann")
    w.after(2).respond("r1", "write")
    w.add(ElicitationRequest, request_id="q", kind="clarification", message="?")
    w.after(3).add(ElicitationResponse, request_id="q", action="decline")
    w.end()
    told = timeline(w.events)
    assert stretches(told, "wait") == [(0, 7, "granted"), (9, 12, "decline")]
    assert stretches(told, "tool") == [(7, 9, "completed")]


def test_what_overlaps_counts_once_and_a_person_before_a_tool_before_the_model() -> None:
    w = Writer()
    w.begin("go")
    w.after(1).ask_tool("a", "look")
    w.ask_tool("b", "look")
    w.ask_tool("c", "write", needs="grant", owner="agent")
    w.after(2).respond("a", "look")
    w.after(2).respond("b", "look")  # from 1 to 5, over the other and beside the wait
    w.after(1).decide("c", "user", "denied")
    w.respond("c", "write", status="denied", is_error=True)
    w.after(4).end()
    spent = timeline(w.events).spent
    assert (spent.elapsed_s, spent.people_s, spent.tools_s, spent.model_s) == (10, 5, 0, 5)


def test_the_time_of_a_sub_agents_model_is_the_models_although_a_tool_runs_it() -> None:
    w = Writer()
    w.begin("go")
    w.add(AgentStart, agent_id="boss")
    w.after(1).ask_tool("r", "ask_helper", needs="none", owner="agent")
    w.add(AgentStart, agent_id="helper", thread_id="helper")
    w.after(6).say("done", thread_id="helper", agent_id="helper")
    w.add(AgentEnd, agent_id="helper", thread_id="helper")
    w.after(2).respond("r", "ask_helper")
    w.after(1).add(AgentEnd, agent_id="boss")
    w.end()
    told = timeline(w.events)
    assert stretches(told, "model", "helper") == [(1, 7, "")]
    assert [item[:2] for item in stretches(told, "model")] == [(0, 1), (9, 10)]
    assert (told.spent.model_s, told.spent.tools_s) == (8, 2)
    assert told.agents == {None: ("boss",), "helper": ("helper",)}


def test_an_agent_above_is_not_at_work_while_one_below_is() -> None:
    w = Writer()
    w.begin("go")
    w.add(AgentStart, agent_id="boss")
    w.after(2).add(AgentStart, agent_id="helper", thread_id="t9")
    w.after(3).add(AgentStart, agent_id="inner", thread_id="t9.x", parent_thread_id="t9")
    w.after(4).add(AgentEnd, agent_id="inner", thread_id="t9.x")
    w.after(1).add(AgentEnd, agent_id="helper", thread_id="t9")
    w.after(1).add(AgentEnd, agent_id="boss")
    w.end()
    told = timeline(w.events)
    assert [one[:2] for one in stretches(told, "model")] == [(0, 2), (10, 11)]
    assert [one[:2] for one in stretches(told, "model", "t9")] == [(2, 5), (9, 10)]
    assert [one[:2] for one in stretches(told, "model", "t9.x")] == [(5, 9)]


def test_time_between_turns_is_nobodys() -> None:
    w = Writer()
    w.begin("one")
    w.after(2).end()
    w.after(100).begin("two")
    w.after(3).end()
    told = timeline(w.events)
    assert (told.spent.elapsed_s, told.spent.idle_s, told.length_s) == (5, 100, 105)
    assert [one.task for one in told.turns] == ["one", "two"]


def test_a_pause_for_a_person_is_a_wait_over_streams_and_part_of_the_turn() -> None:
    w = Writer()
    w.begin("go")
    w.after(1).ask_tool("r", "write")
    w.end("input_required", pending=["r"])
    w.after(3600).decide("r", "user")
    w.respond("r", "write")
    w.begin()
    w.after(2).end()
    told = timeline(w.events)
    assert (told.spent.people_s, told.spent.elapsed_s, told.spent.model_s) == (3600, 3603, 3)
    assert len(told.turns) == 1


def test_what_has_no_end_in_the_record_lasts_to_the_end_of_the_record_and_says_so() -> None:
    w = Writer()
    w.begin("go")
    w.after(1).ask_tool("waits", "write", needs="grant", owner="agent")
    w.ask_tool("runs", "look", needs="none", owner="agent")
    w.after(4).say("hm")
    told = timeline(w.events)
    assert stretches(told, "wait") == [(1, 5, "open")]
    assert stretches(told, "tool") == [(1, 5, "open")]
    assert told.reason is None


@pytest.mark.parametrize(
    ("given", "status", "problem"),
    [
        ({}, "completed", None),
        ({"is_error": True}, "failed", "error"),
        ({"is_error": True, "data": {"error": {"code": "cancelled"}}}, "unknown", "unknown"),
        ({"is_error": True, "status": "denied"}, "denied", "denied"),
        ({"is_error": True, "status": "unknown"}, "unknown", "unknown"),
        ({"is_error": True, "status": "cancelled"}, "cancelled", None),
        ({"status": "x-new"}, "x-new", None),
    ],
)
def test_a_call_says_what_became_of_it(given: dict[str, Any], status: str, problem: str | None) -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r", "look")
    w.respond("r", "look", **given)
    call = next(item for item in timeline(w.events).items if item.kind == "call")
    assert (call.status, call.problem) == (status, problem)


def test_an_error_and_a_failed_turn_are_problems() -> None:
    w = Writer()
    w.begin("go")
    w.add(Error, status="INTERNAL", message="no", fatal=True)
    w.end("failed")
    assert timeline(w.events).count("error") == 2


def test_tokens_and_cost_are_summed_and_what_was_not_told_is_not_nothing() -> None:
    w = Writer()
    w.begin("go")
    w.add(Usage, input_tokens=10, output_tokens=2, reasoning_tokens=3)
    w.add(Usage, model="m", cost=0.5)
    told = timeline(w.events)
    assert (told.input_tokens, told.output_tokens, told.cost, told.is_cost_complete) == (10, 5, 0.5, False)
    assert timeline(w.events[:2]).input_tokens is None


def test_a_second_message_of_the_person_in_a_turn_is_a_steer() -> None:
    told = timeline(coder_at_work())
    assert [(item.kind, item.status) for item in told.items if item.kind == "steer"] == [
        ("steer", "queued"),
        ("steer", "injected"),
    ]


def test_the_session_is_called_by_its_title_or_by_its_first_task() -> None:
    w = Writer()
    w.begin("Fix the bug")
    assert timeline(w.events).title == "Fix the bug"
    w.add(SessionUpdate, title="Bug 12")
    assert timeline(w.events).title == "Bug 12"


def test_a_message_that_was_never_closed_shows_what_its_deltas_said() -> None:
    w = Writer()
    w.begin("go")
    for index, text in enumerate(("Half a ", "sentence")):
        w.add(Message, message_id="m", partial=True, index=index, content=[Text(text=text)])
    item = timeline(w.events).items[-1]
    assert (item.text, item.status) == ("Half a sentence", "not closed")


def test_of_progress_the_last_word_is_kept() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r", "look")
    for done in range(1000):
        w.add(ToolUpdate, request_id="r", progress=done)
    assert len(timeline(w.events).items[-1].events) == 2


def test_updates_that_hold_data_are_kept_up_to_a_bound() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r", "look")
    for done in range(1000):
        w.add(ToolUpdate, request_id="r", data={"step": done})
    assert len(timeline(w.events).items[-1].events) == 100


def test_a_clock_that_goes_back_or_cannot_be_read_never_makes_time_go_back() -> None:
    w = Writer()
    w.begin("go")
    w.after(5).say("a")
    w.after(-3).say("b")
    w.add(Message, message_id="x", content=[Text(text="c")], timestamp="yesterday")
    w.after(4).end()
    assert [item.start for item in timeline(w.events).items][1:] == [0, 5, 5, 5, 6]


def test_one_turn_of_a_record_stands_alone() -> None:
    whole = timeline(long_record(3, 2))
    one = turn(whole, 2)
    assert (len(one.turns), one.turns[0].number, one.count("call")) == (1, 2, 2)
    assert all(one.items[span.item].kind == "call" for span in one.spans if span.item is not None)


def test_the_report_and_the_terminal_agree_on_where_the_time_went() -> None:
    w = Writer()
    w.begin("go")
    w.after(2).ask_tool("a", "look")
    w.ask_tool("b", "write", needs="grant", owner="agent")
    w.after(3).decide("a", "policy:reads")
    w.respond("a", "look")
    w.after(4).decide("b", "user")
    w.after(5).respond("b", "write")
    w.add(ElicitationRequest, request_id="q", kind="clarification", message="?")
    w.after(6).add(ElicitationResponse, request_id="q", action="accept")
    w.after(1).ask_tool("c", "write")
    w.after(2).add(ToolUpdate, request_id="c", started=True, source="host")
    w.after(3).decide("c", "user")
    w.respond("c", "write")
    w.end()
    totals = Totals()
    for event in w.events[1:]:
        totals.feed(event)
    spent = timeline(w.events).spent
    assert (totals.elapsed_s, totals.model_s, totals.tools_s, totals.you_s) == (
        spent.elapsed_s,
        spent.model_s,
        spent.tools_s,
        spent.people_s,
    )


def check(told: Timeline, given: list[Event]) -> None:
    spent = told.spent
    for part in (spent.elapsed_s, spent.model_s, spent.tools_s, spent.people_s, spent.idle_s):
        assert math.isfinite(part)
        assert part >= 0
    for span in told.spans:
        assert 0 <= span.start <= span.end <= told.length_s
        assert span.item is None or told.items[span.item].kind in ("call", "question")
    for thread in told.agents:
        model = sorted(span.stretch for span in told.spans if span.kind == "model" and span.thread_id == thread)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(model))
    shown = {id(event) for item in told.items for event in item.events}
    requests = {event.request_id for event in given if isinstance(event, ToolRequest) and not event.partial}
    assert requests <= {getattr(item.events[0], "request_id", None) for item in told.items}
    for event in given:
        if isinstance(event, (Error, ElicitationRequest)) or (isinstance(event, Message) and not event.partial):
            assert id(event) in shown
    assert len(told.usage) == sum(isinstance(event, Usage) for event in given)


@settings(max_examples=40)
@given(records())
def test_a_valid_record_is_shown_whole_and_its_time_adds_up(record: list[Event]) -> None:
    told = timeline(record)
    check(told, record)
    spent = told.spent
    if not any(span.status == "open" for span in told.spans):
        assert spent.model_s + spent.tools_s + spent.people_s == pytest.approx(spent.elapsed_s, abs=1e-6)
    ends = [event for event in record if isinstance(event, StreamEnd)]
    assert told.reason == (ends[-1].reason if ends else None) or record[-1].turn_id is not None


@settings(max_examples=60)
@given(st.lists(events(), max_size=12))
def test_events_in_any_order_make_a_timeline(some: list[Event]) -> None:
    check(timeline(some), some)


stretch_lists = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple), max_size=8)


@given(stretch_lists, stretch_lists)
def test_a_union_and_a_difference_hold_the_moments_that_they_should(one: Any, other: Any) -> None:
    left, right = union(one), union(other)
    rest = minus(left, right)
    for moment in range(30):
        middle = moment + 0.5
        within = any(start < middle < end for start, end in one)
        taken = any(start < middle < end for start, end in other)
        assert any(start < middle < end for start, end in rest) == (within and not taken)
    assert length(left) == sum(any(start <= m and m + 1 <= end for start, end in one) for m in range(30))


async def recorded(host: Host, executor: ScriptedExecutor, seen: list[Event]) -> Timeline:
    async with executor, host.session(executor) as session:
        await host.run_turn(session, "go")
    return timeline(seen)


@pytest.mark.anyio
async def test_what_a_sub_agent_of_the_host_did_is_on_a_lane_of_its_own_in_the_turn_of_its_caller() -> None:
    seen: list[Event] = []
    async with agent(
        "fixer", Count(input_tokens=5, output_tokens=1), Call("read_file", {"path": "a"}), Say("Mended.")
    ) as fixer:
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=allow_all, observer=seen.append)
        told = await recorded(host, agent("coder", calls("fixer"), Say("Done.")), seen)
    ((thread, names),) = [(thread, names) for thread, names in told.agents.items() if thread is not None]
    assert names == ("fixer",)
    assert [(item.number, item.thread_id, item.status) for item in told.items if item.kind == "call"] == [
        (1, None, "completed"),
        (2, thread, "completed"),
    ]
    assert len(told.turns) == 1
    assert (told.turns[0].reason, told.turns[0].task, told.count("steer")) == ("completed", "go", 0)
    assert told.input_tokens == 5
    (carrier,) = [span for span in told.spans if span.carries]
    assert carrier.label == "fixer"


def test_a_sub_agents_time_counts_in_the_place_of_the_call_that_it_works_for() -> None:
    w, c = Writer(), Writer("s-child", "fixer")

    def inside(event_class: type[Event], **fields: Any) -> None:
        c.at = w.at
        c.add(event_class, thread_id="fixer-1", agent_id="fixer", **fields)
        w.add(ToolUpdate, request_id="r", data={"childEvents": [c.events[-1].to_wire()]}, source="host")

    w.begin("go")
    w.after(1).ask_tool("r", "fixer")
    w.end("input_required", pending=["r"])
    c.begin()
    c.turn = "t9"
    w.add(ToolUpdate, request_id="r", started=True, source="host")
    inside(AgentStart)
    w.after(4)
    inside(ToolRequest, request_id="fixer-1:x", name="edit", args={})
    w.after(3)
    inside(ToolUpdate, request_id="fixer-1:x", started=True)
    w.after(2)
    inside(ToolDecision, request_id="fixer-1:x", decision="granted", by="user", args_digest="0" * 64)
    inside(ToolResponse, request_id="fixer-1:x", name="edit")
    inside(StreamEnd, reason="aborted")
    w.after(1).decide("r", "policy:x")
    w.respond("r", "fixer")
    w.begin()
    w.after(2).end()
    told = timeline(w.events)
    assert stretches(told, "wait", "fixer-1") == [(5, 8, "granted")]
    assert [one[:2] for one in stretches(told, "model", "fixer-1")] == [(1, 5)]
    spent = told.spent
    assert (spent.people_s, spent.tools_s, spent.elapsed_s) == (3, 2, 13)
    assert told.reason == "completed"
    assert (
        sum(isinstance(item.events[0], StreamEnd) for item in told.items) == 1
    )  # the sub-agent's own is not the turn's
    totals = Totals()
    for event in w.events[1:]:
        totals.feed(event)
    assert (totals.you_s, totals.tools_s, totals.model_s) == (spent.people_s, spent.tools_s, spent.model_s)
