"""Tool calls: arguments in fragments, decisions, progress and results, as AG-UI events."""

from __future__ import annotations

import json

import pytest
from tests.host.agui.story import Story
from tests.host.agui.streams import Client, kinds, of_type

from agentsession.host.agui import Known, messages_snapshot, result_display
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Media,
    Message,
    Reference,
    Text,
    Thought,
    ToolDecision,
    ToolRequest,
    ToolUpdate,
    args_digest,
)

CALL = ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT")


def asked(*fragments: str, **whole: object) -> Story:
    """A turn with one call, in fragments and then whole."""
    story = Story()
    story.turn()
    for fragment in fragments:
        story.add(ToolRequest, request_id="r-1", name="run", args_delta=fragment, partial=True, message_id="m-1")
    if whole:
        story.call("r-1", **{"needs": "none", "message_id": "m-1", **whole})  # type: ignore[arg-type]
    return story


def test_a_whole_call_has_its_arguments_as_json() -> None:
    story = asked(args={"path": "a.py"}, owner="agent")
    story.answer("r-1", content=[Text(text="ok")], source="agent")
    story.end()
    assert of_type(story.run(), *CALL) == [
        {"type": "TOOL_CALL_START", "toolCallId": "r-1", "toolCallName": "run", "parentMessageId": "m-1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "r-1", "delta": '{"path":"a.py"}'},
        {
            "type": "TOOL_CALL_END",
            "toolCallId": "r-1",
            "metadata": {"agentsession": {"owner": "agent", "needs": "none"}},
        },
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "r-1.r",
            "toolCallId": "r-1",
            "content": "ok",
            "role": "tool",
        },
    ]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    story = asked(needs="none")
    story.answer("r-1", source="agent")
    story.end()
    assert of_type(story.run(), "TOOL_CALL_ARGS")[0]["delta"] == "{}"


def test_fragments_are_sent_as_they_come_and_not_again() -> None:
    story = asked('{"a', '": 1', "}", args={"a": 1})
    story.answer("r-1", source="agent")
    story.end()
    assert [event["delta"] for event in of_type(story.run(), "TOOL_CALL_ARGS")] == ['{"a', '": 1', "}"]


def test_what_the_fragments_left_out_is_sent_with_the_whole() -> None:
    story = asked('{"a":', args={"a": 1})
    story.answer("r-1", source="agent")
    story.end()
    out = story.run()
    assert "".join(event["delta"] for event in of_type(out, "TOOL_CALL_ARGS")) == '{"a":1}'
    assert "MESSAGES_SNAPSHOT" not in kinds(out)


@pytest.mark.parametrize("fragment", ['{"a": 2', '{"a": "x', "[1", '{"a": nonsense', '{"a": 1e999'])
def test_fragments_that_say_something_else_are_corrected_by_a_snapshot(fragment: str) -> None:
    story = (
        asked('{"a"', fragment[4:], args={"a": 1}) if fragment.startswith('{"a"') else asked(fragment, args={"a": 1})
    )
    story.answer("r-1", source="agent")
    story.end()
    out = story.run()
    client = Client()
    client.receive(out)
    message = client.message("m-1")
    assert message is not None
    assert json.loads(message["toolCalls"][0]["function"]["arguments"]) == {"a": 1}


def test_true_is_not_one_in_the_arguments() -> None:
    story = asked('{"a": true}', args={"a": 1})
    story.answer("r-1", source="agent")
    story.end()
    end = of_type(story.run(), "TOOL_CALL_END")
    assert end[0]["metadata"]["agentsession"]["args"] == {"a": 1}


def test_calls_in_fragments_may_interleave() -> None:
    story = Story()
    story.turn()
    for request_id in ("r-1", "r-2", "r-1", "r-2"):
        delta = "{" if request_id not in str(story.events[-2:]) else "}"
        story.add(ToolRequest, request_id=request_id, name="run", args_delta=delta, partial=True)
    for request_id in ("r-1", "r-2"):
        story.call(request_id, needs="none", args={})
    for request_id in ("r-2", "r-1"):
        story.answer(request_id, source="agent")
    story.end()
    assert len(of_type(story.run(), "TOOL_CALL_START")) == 2


def test_parallel_calls_of_one_message_are_one_assistant_message() -> None:
    story = Story()
    story.turn()
    for request_id in ("r-1", "r-2", "r-3"):
        story.call(request_id, message_id="m-1")
    story.end("input_required")
    client = Client()
    client.receive(story.run())
    assert [len(item.get("toolCalls", ())) for item in client.messages if item["role"] == "assistant"] == [3]


def test_a_call_that_never_became_whole_is_closed_as_json_and_cancelled() -> None:
    story = asked('{"a": "b\\u00')
    story.end("aborted")
    out = of_type(story.run(), *CALL)
    assert json.loads("".join(event["delta"] for event in out if event["type"] == "TOOL_CALL_ARGS")) == {"a": "b\x00"}
    assert out[-2]["metadata"] == {"agentsession": {"incomplete": True}}
    assert out[-1]["metadata"] == {"agentsession": {"status": "cancelled", "isError": True}}


def test_a_decision_is_told_with_who_and_why() -> None:
    story = asked(needs="grant", args={"a": 1})
    digest = args_digest({"a": 2})
    story.add(
        ToolDecision, request_id="r-1", decision="granted", args={"a": 2}, args_digest=digest, by="user", source="host"
    )
    story.answer("r-1", source="agent")
    story.end()
    assert of_type(story.run(), "CUSTOM")[0] == {
        "type": "CUSTOM",
        "name": "agentsession:tool_decision",
        "value": {"requestId": "r-1", "decision": "granted", "argsDigest": digest, "args": {"a": 2}, "by": "user"},
    }


def test_progress_is_an_activity_that_replaces_the_one_before() -> None:
    story = asked(needs="none")
    story.add(ToolUpdate, request_id="r-1", progress=1.0, total=4.0, content=[Text(text="one")], source="host")
    story.now += 500
    story.add(ToolUpdate, request_id="r-1", progress=2.0, source="host")
    story.answer("r-1", source="agent")
    story.end()
    out = of_type(story.run(), "ACTIVITY_SNAPSHOT")
    assert [event["messageId"] for event in out] == ["r-1.u", "r-1.u"]
    assert out[0]["activityType"] == "agentsession:tool_update"
    assert out[0]["content"] == {
        "requestId": "r-1",
        "content": [{"type": "text", "text": "one"}],
        "progress": 1.0,
        "total": 4.0,
    }


def test_of_much_progress_ten_are_sent_in_a_second_and_the_last_is() -> None:
    story = asked(needs="none")
    for index in range(1_000):
        story.add(ToolUpdate, request_id="r-1", progress=float(index), source="host")
        story.now += 1
    story.answer("r-1", source="agent")
    story.end()
    out = of_type(story.run(), "ACTIVITY_SNAPSHOT")
    assert 5 <= len(out) <= 10
    assert out[-1]["content"]["progress"] == 999.0


def test_a_result_with_media_has_parts() -> None:
    story = asked(needs="none")
    content = [
        Text(text="a picture"),
        Media(mime_type="image/png", data="AA=="),
        Media(mime_type="text/csv", uri="x:1"),
    ]
    story.answer("r-1", source="agent", content=content)
    story.end()
    assert of_type(story.run(), "TOOL_CALL_RESULT")[0]["content"] == [
        {"type": "text", "text": "a picture"},
        {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "url", "value": "x:1", "mimeType": "text/csv"}},
    ]


def test_a_result_without_content_is_its_data() -> None:
    story = asked(needs="none")
    story.answer("r-1", source="agent", data={"n": [1, None]})
    story.end()
    assert of_type(story.run(), "TOOL_CALL_RESULT")[0]["content"] == '{"n":[1,null]}'


def test_what_ag_ui_has_no_part_for_is_text_in_a_result() -> None:
    story = asked(needs="none")
    story.answer("r-1", source="agent", content=[Reference(uri="file:a")])
    story.end()
    assert json.loads(of_type(story.run(), "TOOL_CALL_RESULT")[0]["content"]) == {"type": "reference", "uri": "file:a"}


@pytest.mark.parametrize("status", ["failed", "denied", "cancelled", "unknown"])
def test_a_result_that_is_none_says_why_and_how(status: str) -> None:
    story = asked(needs="none")
    source = "host" if status in ("denied", "cancelled") else "agent"
    story.answer("r-1", status=status, is_error=True, source=source)
    story.end()
    result = of_type(story.run(), "TOOL_CALL_RESULT")[0]
    assert result["content"]
    assert result["metadata"] == {"agentsession": {"status": status, "isError": True}}


def test_an_error_that_completed_is_marked() -> None:
    story = asked(needs="none")
    story.answer("r-1", is_error=True, content=[Text(text="no such file")], source="agent")
    story.end()
    result = of_type(story.run(), "TOOL_CALL_RESULT")[0]
    assert (result["content"], result["metadata"]["agentsession"]["isError"]) == ("no such file", True)


@pytest.mark.parametrize("how", ["record", "input"])
def test_a_result_that_the_client_sent_is_not_sent_back(how: str) -> None:
    story = asked(needs="result")
    story.end("input_required")
    story.run()
    story.resume()
    story.answer("r-1", display=result_display("tool-1") if how == "record" else None)
    story.end()
    answered = {"r-1": "tool-1"} if how == "input" else None
    assert "TOOL_CALL_RESULT" not in kinds(story.run(answered=answered))


def test_a_resumed_run_has_the_result_under_the_old_id_and_no_second_call() -> None:
    story = asked(needs="grant")
    story.end("input_required")
    story.run()
    story.resume()
    story.answer("r-1", source="host")
    story.end()
    out = of_type(story.run(is_resumed=True), *CALL)
    assert [(event["type"], event["toolCallId"]) for event in out] == [("TOOL_CALL_RESULT", "r-1")]


def test_a_result_that_came_between_runs_is_sent_by_the_next() -> None:
    story = asked(needs="result")
    story.call("r-2", message_id="m-1")
    story.end("input_required")
    story.run()
    story.answer("r-1", content=[Text(text="by another")], stream_id=None)
    story.unseen()
    story.resume()
    story.answer("r-2")
    story.end()
    out = story.run(is_resumed=True)
    assert [event["toolCallId"] for event in of_type(out, "TOOL_CALL_RESULT")] == ["r-1", "r-2"]
    assert Known.of(story.events).unsent == []


def test_a_call_that_says_another_agents_message_stands_alone() -> None:
    """Only a faulty executor does that; a client would end the run."""
    story = Story()
    story.turn()
    story.add(Message, message_id="m-1", content=[Text(text="x")])
    story.add(AgentStart, agent_id="child", thread_id="c")
    story.call("r-1", needs="none", thread_id="c", message_id="m-1")
    story.answer("r-1", thread_id="c", source="agent")
    story.add(AgentEnd, agent_id="child", thread_id="c")
    story.end()
    assert "parentMessageId" not in of_type(story.run(), "TOOL_CALL_START")[0]


def test_a_call_that_changes_its_name_is_corrected_by_a_snapshot() -> None:
    story = asked("{}", name="other", args={})
    story.answer("r-1", "other", source="agent")
    story.end()
    out = story.run()
    assert of_type(out, "TOOL_CALL_END")[0]["metadata"]["agentsession"]["name"] == "other"
    assert of_type(out, "MESSAGES_SNAPSHOT")[0]["messages"][1]["toolCalls"][0]["function"]["name"] == "other"


@pytest.mark.parametrize("ends", ["response", "stream"])
def test_progress_that_was_held_back_is_sent_when_nothing_more_comes(ends: str) -> None:
    story = asked(needs="none" if ends == "response" else "result")
    for progress in (1.0, 2.0):
        story.add(ToolUpdate, request_id="r-1", progress=progress, source="host")
    if ends == "response":
        story.answer("r-1", source="agent")
        story.end()
    else:
        story.end("input_required")
    out = of_type(story.run(), "ACTIVITY_SNAPSHOT", "TOOL_CALL_RESULT")
    assert [event["content"]["progress"] for event in out[:2]] == [1.0, 2.0]


def test_a_result_of_the_clients_between_runs_is_not_sent_back() -> None:
    story = asked(needs="result")
    story.end("input_required")
    story.answer("r-1", display=result_display("tool-1"), stream_id=None)
    assert Known.of(story.events).unsent == []


def test_a_result_whose_text_is_empty_is_its_data_and_thoughts_are_in_none() -> None:
    story = asked(needs="none")
    story.answer("r-1", source="agent", content=[Thought(text="hm"), Text(text="")], data={"n": 1})
    story.end()
    assert of_type(story.run(), "TOOL_CALL_RESULT")[0]["content"] == '{"n":1}'


def test_calls_of_one_step_are_one_message_though_they_name_none() -> None:
    story = Story()
    story.turn()
    for request_id in ("r-1", "r-2"):
        story.add(ToolRequest, request_id=request_id, name="run", args_delta="{", partial=True)
    for request_id in ("r-1", "r-2"):
        story.call(request_id, needs="none")
    for request_id in ("r-1", "r-2"):
        story.answer(request_id, source="agent")
    story.say("m-1", "And one more.")
    story.call("r-3", needs="none")
    story.answer("r-3", source="agent")
    story.call("r-4", needs="none")
    story.answer("r-4", source="agent")
    story.end()
    client = Client()
    client.receive(story.run())
    for messages in (client.messages, messages_snapshot(story.events)):
        found = {item["id"]: [call["id"] for call in item["toolCalls"]] for item in messages if item.get("toolCalls")}
        assert found == {"r-1": ["r-1", "r-2"], "m-1": ["r-3"], "r-4": ["r-4"]}
