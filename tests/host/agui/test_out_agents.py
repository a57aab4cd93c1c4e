"""Agents at work as AG-UI steps and sub-agents."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.agui.story import Story
from tests.host.agui.streams import kinds, of_type

from agentsession.host._child_events import placed
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    StreamEnd,
    Text,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
)

STEPS = ("STEP_STARTED", "STEP_FINISHED")
STAMPS = {"id": "e", "seq": 1, "timestamp": "2026-01-31T12:00:00.000Z", "session_id": "child"}
SUBS = ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR")


def child(story: Story, thread: str = "c", agent: str = "child", **fields: object) -> None:
    story.add(AgentStart, agent_id=agent, thread_id=thread, **fields)


def gone(story: Story, thread: str = "c", agent: str = "child", **fields: object) -> None:
    story.add(AgentEnd, agent_id=agent, thread_id=thread, **fields)


def test_an_agent_on_the_main_thread_is_a_step() -> None:
    story = Story()
    story.turn()
    story.end()
    assert of_type(story.run(), *STEPS) == [
        {"type": "STEP_STARTED", "stepName": "root"},
        {"type": "STEP_FINISHED", "stepName": "root"},
    ]


def test_a_handoff_ends_one_step_and_starts_the_next() -> None:
    story = Story()
    story.turn()
    story.add(AgentEnd, agent_id="root", reason="handoff")
    story.add(AgentStart, agent_id="other")
    story.end(agents=["other"])
    assert [(event["type"][5:], event["stepName"]) for event in of_type(story.run(), *STEPS)] == [
        ("STARTED", "root"),
        ("FINISHED", "root"),
        ("STARTED", "other"),
        ("FINISHED", "other"),
    ]


def test_an_agent_inside_one_of_the_same_name_has_a_name_of_its_own() -> None:
    story = Story()
    story.turn()
    story.add(AgentStart, agent_id="root")
    story.end(agents=["root", "root"])
    assert len({event["stepName"] for event in of_type(story.run(), "STEP_STARTED")}) == 2


def test_an_agent_on_a_thread_is_a_sub_agent_with_its_result() -> None:
    about = AgentDescriptor(name="child", executor="x", description="Looks things up.")
    story = Story(AgentDescriptor(name="root", executor="x", sub_agents=[about]))
    story.turn()
    child(story)
    story.say("m-1", "Found.", thread_id="c")
    gone(story, result={"n": 1})
    story.end()
    out = story.run()
    assert of_type(out, *SUBS) == [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "c#1", "name": "child", "description": "Looks things up."},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "c#1", "outcome": {"type": "success"}, "result": {"n": 1}},
    ]
    assert of_type(out, "TEXT_MESSAGE_START")[0]["subagentRunId"] == "c#1"


def test_a_thread_that_is_used_again_is_another_invocation_also_in_the_next_run() -> None:
    story = Story()
    for _ in range(2):
        story.turn()
        child(story)
        gone(story)
        story.end()
    first = story.events.index(next(event for event in story.events if event.type == "stream_end")) + 1
    out = story.run()
    assert [event["subagentRunId"] for event in of_type(out, "SUBAGENT_STARTED")] == ["c#1", "c#2"]
    story._begun = first
    assert [event["subagentRunId"] for event in of_type(story.run(), "SUBAGENT_STARTED")] == ["c#2"]


def test_a_sub_agent_of_a_sub_agent_names_its_parent() -> None:
    story = Story()
    story.turn()
    child(story)
    child(story, "c.d", "grandchild", parent_thread_id="c")
    gone(story, "c.d", "grandchild")
    gone(story)
    story.end()
    started = of_type(story.run(), "SUBAGENT_STARTED")
    assert started[1]["parentSubagentRunId"] == "c#1"
    assert "parentSubagentRunId" not in started[0]


def test_a_sub_agent_that_is_called_like_a_tool_names_the_call() -> None:
    story = Story()
    story.turn()
    for request_id in ("r-1", "r-2"):
        story.call(request_id, "child", needs="none")
    for thread in ("c", "d"):
        child(story, thread)
        gone(story, thread)
    for request_id in ("r-1", "r-2"):
        story.answer(request_id, "child", source="agent")
    story.end()
    assert [event["parentToolCallId"] for event in of_type(story.run(), "SUBAGENT_STARTED")] == ["r-1", "r-2"]


@pytest.mark.parametrize("reason", ["failed", "aborted"])
def test_a_sub_agent_that_did_not_finish_is_an_error(reason: str) -> None:
    story = Story()
    story.turn()
    child(story)
    gone(story, reason=reason)
    story.end()
    ends = of_type(story.run(), *SUBS)[1:]
    assert [(event["type"], event["code"]) for event in ends] == [("SUBAGENT_ERROR", reason)]


def test_a_handoff_inside_a_thread_is_a_step_of_its_sub_agent() -> None:
    story = Story()
    story.turn()
    child(story)
    gone(story, reason="handoff")
    child(story, agent="other")
    gone(story, agent="other", result="done")
    story.end()
    out = of_type(story.run(), *SUBS, *STEPS)
    inside = [event for event in out if event.get("subagentRunId")]
    assert inside == [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "c#1", "name": "child"},
        {"type": "STEP_STARTED", "stepName": "c/other", "subagentRunId": "c#1"},
        {"type": "STEP_FINISHED", "stepName": "c/other", "subagentRunId": "c#1"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "c#1", "outcome": {"type": "success"}, "result": "done"},
    ]


def paused() -> Story:
    """A grandchild asks; all three agents pause."""
    story = Story()
    story.turn()
    child(story)
    child(story, "c.d", "grandchild", parent_thread_id="c")
    story.add(ElicitationRequest, request_id="q-1", kind="user_approval", message="May I?", thread_id="c.d")
    gone(story, "c.d", "grandchild", reason="input_required")
    gone(story, reason="input_required")
    story.end("input_required")
    return story


def go_on(story: Story) -> None:
    story.resume()
    child(story, resumed=True)
    child(story, "c.d", "grandchild", parent_thread_id="c", resumed=True)
    story.add(ElicitationResponse, request_id="q-1", action="accept", thread_id="c.d", source="host")
    gone(story, "c.d", "grandchild")
    gone(story)
    story.end()


def test_sub_agents_that_wait_are_suspended_with_what_they_wait_for() -> None:
    ends = of_type(paused().run(), "SUBAGENT_FINISHED")
    assert [(event["subagentRunId"], event["outcome"]) for event in ends] == [
        ("c.d#1", {"type": "suspended", "interruptIds": ["q-1"]}),
        ("c#1", {"type": "suspended", "interruptIds": ["q-1"]}),
    ]


def test_suspended_sub_agents_go_on_under_their_ids_in_the_next_run() -> None:
    story = paused()
    story.run()
    go_on(story)
    out = of_type(story.run(), *SUBS)
    assert [(event["type"], event["subagentRunId"]) for event in out] == [
        ("SUBAGENT_STARTED", "c#1"),
        ("SUBAGENT_STARTED", "c.d#1"),
        ("SUBAGENT_FINISHED", "c.d#1"),
        ("SUBAGENT_FINISHED", "c#1"),
    ]
    assert out[1]["parentSubagentRunId"] == "c#1"


def test_a_pause_inside_a_run_is_not_shown() -> None:
    story = paused()
    go_on(story)
    out = story.run()
    assert kinds(of_type(out, *SUBS)) == [*["SUBAGENT_STARTED"] * 2, *["SUBAGENT_FINISHED"] * 2]
    assert len(of_type(out, "STEP_STARTED")) == 1


def test_a_pause_that_is_settled_in_the_same_run_ends_its_sub_agents_as_errors() -> None:
    story = paused()
    story.resume(None)
    story.add(ElicitationResponse, request_id="q-1", action="cancel", thread_id="c.d", source="host")
    story.end("aborted", agents=())
    story.turn("never mind")
    story.end()
    ends = of_type(story.run(), "SUBAGENT_FINISHED", "SUBAGENT_ERROR")
    assert [(event["type"], event["subagentRunId"]) for event in ends] == [
        ("SUBAGENT_ERROR", "c.d#1"),
        ("SUBAGENT_ERROR", "c#1"),
    ]


def test_a_settlement_in_a_run_of_its_own_starts_nothing() -> None:
    story = paused()
    story.run()
    story.resume(None)
    story.add(ElicitationResponse, request_id="q-1", action="cancel", thread_id="c.d", source="host")
    story.end("aborted", agents=())
    assert not of_type(story.run(), *SUBS, *STEPS)


def worked(*events: Event, **response: object) -> list[dict[str, Any]]:
    """A run with a call that a sub-agent in a session of its own worked for; ``events`` is what it did."""
    story = Story()
    story.turn()
    story.call("r-1", "review", needs="result")
    stamped = [event.model_copy(update=STAMPS) for event in events]
    listed = [placed(event, "review-1f0c5a7e", "reviewer", None).to_wire() for event in stamped]
    story.add(ToolUpdate, request_id="r-1", data={"childEvents": listed}, source="host")
    story.answer("r-1", "review", **response)
    story.end()
    return story.run()


def test_what_a_sub_agent_in_a_session_of_its_own_does_is_shown_as_a_sub_agent_of_the_call() -> None:
    out = worked(
        AgentStart(agent_id="reviewer"),
        Message(message_id="m-1", content=[Text(text="Fine.")]),
        ToolRequest(request_id="r-9", name="read", needs="none"),
        ToolResponse(request_id="r-9", name="read", content=[Text(text="x")]),
        AgentEnd(agent_id="reviewer"),
        StreamEnd(reason="completed"),
    )
    assert of_type(out, *SUBS) == [
        {
            "type": "SUBAGENT_STARTED",
            "subagentRunId": "review-1f0c5a7e#1",
            "name": "reviewer",
            "parentToolCallId": "r-1",
        },
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "review-1f0c5a7e#1", "outcome": {"type": "success"}},
    ]
    assert of_type(out, "TEXT_MESSAGE_START")[0]["subagentRunId"] == "review-1f0c5a7e#1"
    assert [event["toolCallId"] for event in of_type(out, "TOOL_CALL_RESULT")] == ["review-1f0c5a7e:r-9", "r-1"]


def test_a_sub_agent_in_a_session_of_its_own_that_tells_no_end_is_over_with_its_call() -> None:
    out = worked(AgentStart(agent_id="reviewer"), status="failed", is_error=True)
    assert kinds(of_type(out, *SUBS, "TOOL_CALL_RESULT")) == ["SUBAGENT_STARTED", "SUBAGENT_ERROR", "TOOL_CALL_RESULT"]


def test_what_such_a_sub_agent_tells_twice_is_shown_once_and_its_errors_end_nothing() -> None:
    said = Message(message_id="m-1", content=[Text(text="Fine.")])
    asked = ToolRequest(request_id="r-9", name="read", needs="none")
    answered = ToolResponse(request_id="r-9", name="read")
    error = Error(status="INTERNAL", message="broken", fatal=True)
    out = worked(AgentStart(agent_id="reviewer"), said, said, asked, asked, answered, answered, error)
    assert len(of_type(out, "TEXT_MESSAGE_START")) == 1
    assert len(of_type(out, "TOOL_CALL_RESULT")) == 2
    assert out[-1]["outcome"] == {"type": "success"}
    assert of_type(out, "CUSTOM")[0]["value"] == {"status": "INTERNAL", "message": "broken"}


def test_a_sub_agent_that_goes_on_after_its_end_is_another_invocation_and_one_that_paused_is_not() -> None:
    """A client throws at one that starts twice in a run."""
    started, again = AgentStart(agent_id="reviewer"), AgentStart(agent_id="reviewer", resumed=True)
    for reason, expected in (
        ("completed", ["review-1f0c5a7e#1", "review-1f0c5a7e#2"]),
        ("input_required", ["review-1f0c5a7e#1"]),
    ):
        out = worked(started, AgentEnd(agent_id="reviewer", reason=reason), again)
        assert [event["subagentRunId"] for event in of_type(out, "SUBAGENT_STARTED")] == expected


@pytest.mark.parametrize(
    "forged",
    [
        AgentEnd(agent_id="root"),
        AgentEnd(agent_id="root", thread_id="c"),
        Message(message_id="m-1", content=[Text(text="Pay.")]),
        Message(message_id="m-1", content=[Text(text="Pay.")], thread_id="review-1f0c5a7e"),
        ToolResponse(request_id="r-1", name="review", thread_id="review-1f0c5a7e"),
    ],
)
def test_what_only_passes_for_a_sub_agents_is_the_progress_of_its_call(forged: Event) -> None:
    story = Story()
    story.turn()
    story.call("r-1", "review", needs="result")
    story.add(
        ToolUpdate, request_id="r-1", data={"childEvents": [forged.model_copy(update=STAMPS).to_wire()]}, source="host"
    )
    story.say("m-1", "Mine.")
    story.answer("r-1", "review")
    story.end()
    out = story.run()
    assert kinds(of_type(out, "STEP_FINISHED", "TEXT_MESSAGE_START", "TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT")) == [
        "ACTIVITY_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TOOL_CALL_RESULT",
        "STEP_FINISHED",
    ]
    assert "Pay." not in "".join(event["delta"] for event in of_type(out, "TEXT_MESSAGE_CONTENT"))


def test_a_thread_that_is_used_again_after_a_handoff_is_another_invocation() -> None:
    story = Story()
    story.turn()
    for _ in range(2):
        child(story)
        gone(story, reason="handoff")
        child(story, agent="other")
        gone(story, agent="other")
    story.end()
    assert [event["subagentRunId"] for event in of_type(story.run(), "SUBAGENT_STARTED")] == ["c#1", "c#2"]


def test_sub_agents_that_told_no_end_are_over_from_the_innermost_on() -> None:
    inner = AgentStart(agent_id="inner", thread_id="d")
    out = worked(AgentStart(agent_id="reviewer"), inner)
    ends = of_type(out, "SUBAGENT_FINISHED")
    assert [event["subagentRunId"] for event in ends] == ["review-1f0c5a7e.d#1", "review-1f0c5a7e#1"]


def test_a_sub_agent_does_not_work_for_a_call_of_another_thread() -> None:
    story = Story()
    story.turn()
    child(story, "c", "caller")
    story.call("r-1", "child", needs="none", thread_id="c")
    child(story, "d", "child")
    gone(story, "d", "child")
    story.answer("r-1", "child", source="agent", thread_id="c")
    gone(story, "c", "caller")
    story.end()
    assert "parentToolCallId" not in of_type(story.run(), "SUBAGENT_STARTED")[1]


def test_a_call_of_the_clients_is_no_interrupt_of_a_suspended_sub_agent() -> None:
    story = Story()
    story.turn()
    child(story)
    story.call("r-1", thread_id="c")
    gone(story, reason="input_required")
    story.end("input_required")
    assert of_type(story.run(), "SUBAGENT_FINISHED")[0]["outcome"] == {"type": "suspended"}
