"""Messages: text, reasoning, encrypted values and the parts beside them, as AG-UI events."""

from __future__ import annotations

import sys

import pytest
from tests.host.agui.story import Story
from tests.host.agui.streams import Client, kinds, of_type

from agentsession.protocol import (
    AgentStart,
    Code,
    ContentPart,
    FunctionCall,
    Media,
    Message,
    Refusal,
    Text,
    Thought,
)

TEXT = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END")


def told(*pieces: str | ContentPart, **closing: object) -> Story:
    story = Story()
    story.turn()
    story.say("m-1", *pieces, **closing)
    story.end()
    return story


def test_deltas_of_text_are_one_message_opened_with_the_first_and_closed_once() -> None:
    out = of_type(told("Hel", "lo").run(), *TEXT)
    assert out == [
        {"type": "TEXT_MESSAGE_START", "messageId": "m-1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-1", "delta": "Hel"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-1", "delta": "lo"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m-1"},
    ]


def test_events_have_the_time_of_ours_in_milliseconds() -> None:
    story = Story()
    story.now = 1_500
    story.turn()
    story.say("m-1", "x")
    story.end()
    start = next(event for event in story.run() if event["type"] == "TEXT_MESSAGE_START")
    assert start["timestamp"] == 1769860801500


def test_an_empty_delta_is_not_sent() -> None:
    assert kinds(of_type(told("", "a", "").run(), *TEXT)) == list(TEXT)


def test_a_message_without_deltas_is_sent_whole() -> None:
    story = Story()
    story.turn()
    story.add(Message, message_id="m-1", content=[Text(text="All at once.")])
    story.end()
    out = of_type(story.run(), *TEXT)
    assert kinds(out) == list(TEXT)
    assert out[1]["delta"] == "All at once."


def test_the_message_of_the_input_is_not_sent_back() -> None:
    assert not of_type(told().run(), *TEXT)


def test_a_message_of_another_client_is_sent_with_its_role() -> None:
    story = Story()
    story.turn()
    story.add(Message, message_id="steer-1", role="user", content=[Text(text="Stop that.")], source="user")
    story.end()
    out = of_type(story.run(), *TEXT)
    assert out[0] == {"type": "TEXT_MESSAGE_START", "messageId": "steer-1", "role": "user"}
    assert out[1]["delta"] == "Stop that."


def test_media_of_a_user_are_in_snapshots_alone() -> None:
    story = Story()
    story.turn()
    story.add(Message, message_id="x", role="user", content=[Media(mime_type="image/png", data="AA==")], source="user")
    story.end()
    assert not of_type(story.run(), *TEXT)


def test_a_refusal_is_text_that_says_so() -> None:
    out = of_type(told(Refusal(text="I will not.")).run(), *TEXT)
    assert out[0]["metadata"] == {"agentsession": {"refusal": True}}
    assert out[1]["delta"] == "I will not."


def test_a_cut_message_says_so_at_its_end() -> None:
    end = of_type(told("Half", interrupted=True).run(), "TEXT_MESSAGE_END")
    assert end[0]["metadata"] == {"agentsession": {"interrupted": True}}


def test_other_words_at_the_end_are_told_by_a_snapshot_before_the_run_ends() -> None:
    out = told("secret", content=[Text(text="[removed]")], revised=True).run()
    end = of_type(out, "TEXT_MESSAGE_END")
    assert end[0]["metadata"] == {"agentsession": {"revised": True}}
    assert kinds(out)[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    client = Client()
    client.receive(out)
    found = client.message("m-1")
    assert found is not None
    assert found["content"] == "[removed]"


def test_other_words_before_any_was_sent_need_no_snapshot() -> None:
    story = Story()
    story.turn()
    story.add(Message, message_id="m-1", content=[Text(text="new")], revised=True)
    story.end()
    assert "MESSAGES_SNAPSHOT" not in kinds(story.run())


def test_a_thought_is_reasoning_under_an_id_of_its_own() -> None:
    out = told(Thought(text="Hm"), Thought(text="m.", signature="c2ln"), "Yes.").run()
    reasoning = [event for event in out if event["type"].startswith("REASONING")]
    assert of_type(reasoning, *kinds(reasoning)) == [
        {"type": "REASONING_START", "messageId": "m-1.t0"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m-1.t0", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m-1.t0", "delta": "Hm"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m-1.t0", "delta": "m."},
        {"type": "REASONING_MESSAGE_END", "messageId": "m-1.t0"},
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "message",
            "entityId": "m-1.t0",
            "encryptedValue": "c2ln",
        },
        {"type": "REASONING_END", "messageId": "m-1.t0"},
    ]


def test_a_thought_inside_text_leaves_the_text_open() -> None:
    out = told("One", Thought(text="hm"), "two").run()
    assert kinds(of_type(out, *TEXT)) == [TEXT[0], TEXT[1], TEXT[1], TEXT[2]]
    at = kinds(out)
    assert at.index("TEXT_MESSAGE_START") < at.index("REASONING_START") < at.index("TEXT_MESSAGE_END")


def test_each_run_of_thoughts_is_numbered() -> None:
    out = told(Thought(text="a"), "x", Thought(text="b"), "y").run()
    assert [event["messageId"] for event in of_type(out, "REASONING_START")] == ["m-1.t0", "m-1.t1"]


def test_a_signature_alone_is_reasoning_without_content() -> None:
    out = told(Thought(text="", signature="c2ln")).run()
    assert [kind for kind in kinds(out) if kind.startswith("REASONING")] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_END",
    ]


def test_a_signature_that_comes_with_the_whole_message_is_sent_at_its_reasoning() -> None:
    out = told(Thought(text="a"), "x", content=[Thought(text="a", signature="late"), Text(text="x")]).run()
    values = of_type(out, "REASONING_ENCRYPTED_VALUE")
    assert [(value["entityId"], value["encryptedValue"]) for value in values] == [("m-1.t0", "late")]


def test_a_signature_of_the_text_is_sent_after_its_end() -> None:
    out = told(Text(text="x", signature="c2ln")).run()
    value = of_type(out, "REASONING_ENCRYPTED_VALUE")
    assert value == [
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "m-1", "encryptedValue": "c2ln"}
    ]
    assert kinds(out).index("TEXT_MESSAGE_END") < kinds(out).index("REASONING_ENCRYPTED_VALUE")


@pytest.mark.parametrize("first", ["message", "call"])
def test_a_signature_of_a_call_is_sent_after_the_calls_end(first: str) -> None:
    story = Story()
    story.turn()
    part = FunctionCall.model_validate({"type": "function_call", "id": "r-1", "name": "run", "signature": "c2ln"})
    message = {"message_id": "m-1", "content": [part]}
    if first == "call":
        story.call("r-1", needs="none", message_id="m-1")
    else:
        story.delta("m-1", part, 0)
        story.add(AgentStart, agent_id="inner")
        story.call("r-1", needs="none", message_id="m-1")
    story.add(Message, **message)
    story.answer("r-1", source="agent")
    story.end(agents=("root",) if first == "call" else ("inner", "root"))
    out = story.run()
    value = of_type(out, "REASONING_ENCRYPTED_VALUE")
    assert value[0] | {"type": ""} == {
        "type": "",
        "subtype": "tool-call",
        "entityId": "r-1",
        "encryptedValue": "c2ln",
    }
    assert kinds(out).index("TOOL_CALL_END") < kinds(out).index("REASONING_ENCRYPTED_VALUE")


def test_other_parts_are_activities_beside_the_message() -> None:
    out = of_type(told("See:", Code(code="print(1)", language="python")).run(), "ACTIVITY_SNAPSHOT")
    assert out == [
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "m-1.p0",
            "activityType": "agentsession:code",
            "content": {"code": "print(1)", "language": "python"},
            "replace": True,
        }
    ]


def test_a_raw_call_in_a_message_is_not_shown() -> None:
    out = told("x", FunctionCall(name="run", args={"secret": 1})).run()
    assert "ACTIVITY_SNAPSHOT" not in kinds(out)
    assert "secret" not in str(out)


def test_the_last_of_two_thousand_deltas_costs_what_the_first_did() -> None:
    """Counted in calls of functions: nothing of what was said is gone through again."""
    story = Story()
    story.turn()
    for index in range(2_000):
        story.delta("m-1", Text(text="ab"), index)
    mapper, _ = story.open()
    cost: list[int] = []
    for index in range(2_000):
        story.delta("m-1", Text(text="ab"), 2_000 + index)
        event = story.events[-1]
        calls = 0

        def count(frame: object, what: str, argument: object) -> None:
            nonlocal calls
            calls += what in ("call", "c_call")

        sys.setprofile(count)
        try:
            mapper.feed(event)
        finally:
            sys.setprofile(None)
        cost.append(calls)
    assert cost[-1] <= cost[1]


def test_a_signature_of_text_that_says_nothing_has_an_empty_message_to_stand_on() -> None:
    out = told(Text(text="", signature="c2ln")).run()
    assert kinds(of_type(out, *TEXT)) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    assert of_type(out, "REASONING_ENCRYPTED_VALUE")[0]["entityId"] == "m-1"


def test_a_refusal_that_was_in_no_delta_is_sent_with_the_whole() -> None:
    out = told("Well.", content=[Text(text="Well."), Refusal(text=" No.")]).run()
    assert [event["delta"] for event in of_type(out, "TEXT_MESSAGE_CONTENT")] == ["Well.", " No."]
