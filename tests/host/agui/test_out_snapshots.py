"""The whole conversation as messages: complete, in order, under the ids that the client knows."""

from __future__ import annotations

from ag_ui.core import Message as AgMessage
from pydantic import TypeAdapter
from tests.host.agui.story import Story
from tests.host.agui.streams import Client, check, kinds

from agentsession.host.agui import Known, RunMapper, merged_meta, message_ids, messages_snapshot, result_display
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Custom,
    Event,
    Media,
    Message,
    Refusal,
    SessionUpdate,
    StreamEnd,
    Text,
    Thought,
)

_MESSAGES: TypeAdapter[list[AgMessage]] = TypeAdapter(list[AgMessage])


def snapshot(events: list[Event], **fields: object) -> list[Wire]:
    found = messages_snapshot(events, **fields)  # type: ignore[arg-type]
    _MESSAGES.validate_python(found)
    return found


def conversation() -> Story:
    story = Story()
    story.turn("List it", message_id="u-1")
    story.say("m-1", Thought(text="Two.", signature="sig"), "On it.")
    for request_id in ("r-1", "r-2"):
        story.call(request_id, needs="none", message_id="m-1", args={"n": 1})
    story.answer("r-2", content=[Text(text="two")], source="agent")
    story.answer("r-1", status="failed", is_error=True, content=[Text(text="no")], source="agent")
    story.say("m-2", Text(text="Done.", signature="text-sig"))
    story.end()
    return story


def test_a_conversation_is_messages_with_calls_and_results_in_place() -> None:
    assert snapshot(conversation().events) == [
        {"id": "u-1", "role": "user", "content": "List it"},
        {"id": "m-1.t0", "role": "reasoning", "content": "Two.", "encryptedValue": "sig"},
        {
            "id": "m-1",
            "role": "assistant",
            "content": "On it.",
            "toolCalls": [
                {"id": request_id, "type": "function", "function": {"name": "run", "arguments": '{"n":1}'}}
                for request_id in ("r-1", "r-2")
            ],
        },
        {"id": "r-2.r", "role": "tool", "toolCallId": "r-2", "content": "two"},
        {
            "id": "r-1.r",
            "role": "tool",
            "toolCallId": "r-1",
            "content": "no",
            "error": "no",
            "metadata": {"agentsession": {"status": "failed", "isError": True}},
        },
        {"id": "m-2", "role": "assistant", "content": "Done.", "encryptedValue": "text-sig"},
    ]


def test_a_snapshot_is_what_a_client_has_that_followed_the_stream() -> None:
    story = conversation()
    client = Client()
    client.receive(story.run(input_message_ids=[]))
    assert [(item["id"], item["content"]) for item in client.messages] == [
        (item["id"], item["content"]) for item in snapshot(story.events)
    ]


def test_media_of_the_user_are_parts() -> None:
    story = Story()
    story.turn(agent=None)
    content = [Text(text="See"), Media(mime_type="image/png", uri="https://x.example/a.png")]
    story.add(Message, message_id="u-2", role="user", content=content, source="user")
    story.end(agents=())
    assert snapshot(story.events)[1]["content"] == [
        {"type": "text", "text": "See"},
        {
            "type": "image",
            "source": {"type": "url", "value": "https://x.example/a.png", "mimeType": "image/png"},
        },
    ]


def test_a_message_that_was_several_of_the_clients_is_several_again() -> None:
    story = Story()
    story.turn(agent=None)
    event = story.add(
        Message,
        message_id="u-3",
        role="user",
        content=[Text(text="one"), Text(text="two"), Text(text="three")],
        meta=merged_meta([("u-2", 2), ("u-3", 1)]),
        source="user",
    )
    story.end(agents=())
    assert message_ids(event) == ["u-2", "u-3"]
    found = snapshot(story.events)[1:]
    assert [(item["id"], item["content"]) for item in found] == [("u-2", "onetwo"), ("u-3", "three")]


def test_the_result_of_the_clients_tool_has_the_clients_id() -> None:
    story = Story()
    story.turn(message_id="u-1")
    story.call("r-1")
    story.end("input_required")
    story.resume()
    story.answer("r-1", display=result_display("tool-7"))
    story.end()
    assert snapshot(story.events)[-1]["id"] == "tool-7"


def test_what_the_record_does_not_have_keeps_its_place_at_the_client() -> None:
    theirs = [
        {"id": "sys", "role": "system", "content": "Be brief."},
        {"id": "u-1", "role": "user", "content": "List it"},
        {"id": "old", "role": "assistant", "content": "from elsewhere"},
        {"id": "m-2", "role": "assistant", "content": "Done."},
    ]
    found = [item["id"] for item in snapshot(conversation().events, client_messages=theirs)]
    assert found == ["sys", "u-1", "m-1.t0", "m-1", "r-2.r", "r-1.r", "old", "m-2"]


def test_what_was_rewound_is_gone() -> None:
    story = conversation()
    story.add(Custom, kind="rewind", data={"to_seq": 1}, source="host")
    assert snapshot(story.events) == []


def test_how_a_message_ended_is_kept() -> None:
    story = Story()
    story.turn(message_id="u-1")
    story.add(Message, message_id="m-1", content=[Refusal(text="No.")], interrupted=True)
    story.end()
    assert snapshot(story.events)[1]["metadata"] == {"agentsession": {"interrupted": True, "refusal": True}}


def test_what_a_sub_agent_said_has_its_tag() -> None:
    story = Story()
    story.turn(message_id="u-1")
    story.add(AgentStart, agent_id="child", thread_id="c")
    story.say("m-1", "Found.", thread_id="c")
    story.add(AgentEnd, agent_id="child", thread_id="c")
    story.end()
    assert snapshot(story.events)[1]["subagentRunId"] == "c#1"


def test_joining_a_stream_that_runs_leaves_nothing_twice() -> None:
    """The client has half of a message and of a thought; the run that it joins streams both from their beginning."""
    story = Story()
    story.turn(message_id="u-1")
    story.end()
    before = list(story.events)
    story.turn(message_id="u-2")
    story.delta("m-1", Thought(text="Hm"), 0)
    story.delta("m-1", Text(text="Half"), 1)
    client = Client()
    client.messages = [{"id": item, "role": "user", "content": "hi"} for item in ("u-1", "u-2")]
    client.receive(story.open(input_message_ids=["u-1", "u-2"])[1])
    story.add(Message, message_id="m-1", content=[Thought(text="Hm"), Text(text="Half")])
    story.end()
    again = RunMapper(thread_id="t", run_id="r", known=Known.of(before), input_message_ids=["u-2"])
    theirs = [item for item in client.messages if item["role"] == "user"]
    out = again.start(history=before, client_messages=theirs, blank_reasoning=["m-1.t0"])
    for event in story.events[len(before) :]:
        out += again.feed(event)
    out += again.finish()
    client.state_of_run = "over"
    check(out, client=client)
    assert [(item["id"], item["content"]) for item in client.messages] == [
        ("u-1", "hi"),
        ("u-2", "hi"),
        ("m-1.t0", "Hm"),
        ("m-1", "Half"),
    ]


def test_a_run_in_which_nothing_is_new_tells_the_conversation_and_the_last_outcome() -> None:
    story = conversation()
    end = story.events[-1]
    assert isinstance(end, StreamEnd)
    mapper = RunMapper(thread_id="t", run_id="r", known=Known.of(story.events))
    out = [*mapper.start(history=story.events), *mapper.finish(end)]
    check(out)
    assert kinds(out) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_a_turn_of_another_client_makes_the_next_run_begin_with_the_history() -> None:
    story = conversation()
    known = Known()
    for event in story.events:
        known.note(event)
    behind = known.is_behind
    RunMapper(thread_id="t", run_id="r", known=known).start(history=story.events)
    assert (behind, known.is_behind) == (True, False)


def test_the_id_of_a_result_that_only_the_input_tells_is_the_clients_too() -> None:
    story = Story()
    story.turn(message_id="u-1")
    story.call("r-1")
    story.end("input_required")
    story.resume()
    story.answer("r-1")
    story.end()
    assert snapshot(story.events, answered={"r-1": "tool-7"})[-1]["id"] == "tool-7"


def test_what_was_rewound_is_not_known() -> None:
    story = Story()
    story.add(SessionUpdate, state_snapshot={"a": 1}, source="host")
    story.add(SessionUpdate, state_snapshot={"a": 2}, source="host")
    story.add(Custom, kind="rewind", data={"to_seq": 2}, source="host")
    assert Known.of(story.events).seen_state == {"a": 1}
    live = Known()
    for event in story.events:
        live.note(event)
    assert live.is_stale
