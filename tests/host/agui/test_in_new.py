"""What of a history is new, and that it runs once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host.agui.inputs import assistant, body, said, tool_message, user

from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Memory
from agentsession.host.agui._in_new import New, message_of, new_of, result_of
from agentsession.host.agui._in_read import read_input
from agentsession.protocol import Media, Text


def knowing(*events: Any) -> Memory:
    memory = Memory()
    for event in events:
        memory.add(event)
    return memory


def new(*messages: dict[str, Any], memory: Memory | None = None, calls: tuple[str, ...] = ()) -> New:
    return new_of(read_input(body(*messages)), memory or Memory(), calls)


def ids(found: New) -> list[str]:
    return [message.id for message in found.messages]


def test_the_first_message_of_a_thread_is_new() -> None:
    assert ids(new(user("u1"))) == ["u1"]


def test_a_history_that_is_known_runs_nothing() -> None:
    memory = knowing(said(1, "u1"))
    assert new(user("u1"), memory=memory) == New([], [])
    assert ids(new(user("u1"), assistant("a1"), user("u2"), memory=memory)) == ["u2"]


def test_older_unknown_history_never_runs() -> None:
    assert ids(new(user("x1"), assistant("a1"), user("x2"), assistant("a2"))) == []
    assert ids(new(user("x1"), assistant("a1"), user("x2"))) == ["x2"]
    assert ids(new(user("x1"), user("u1"), user("u2"), memory=knowing(said(1, "u1")))) == ["u2"]


def test_several_new_messages_are_one_message_that_keeps_their_ids() -> None:
    given_ = read_input(body(user("u1", "a"), user("u2", "b"), parentRunId="r0"))
    made = message_of(new_of(given_, Memory(), ()).messages, given_)
    assert [part.text for part in made.content if isinstance(part, Text)] == ["a", "b"]
    assert (made.message_id, made.idempotency_key) == ("u2", "u2")
    event = said(1, "u2", meta=(made.model_extra or {})["_meta"]).model_copy(update={"content": made.content})
    memory = knowing(event)
    assert new(user("u1", "a"), user("u2", "b"), memory=memory) == New([], [])


def test_the_same_id_with_another_text_is_a_conflict() -> None:
    memory = knowing(said(1, "u1", "hello"))
    with pytest.raises(RunRefused) as refused:
        new(user("u1", "hello!"), memory=memory)
    assert refused.value.code == "history_conflict"
    with pytest.raises(RunRefused):
        new(user("u2", "a"), user("u2", "b"))


def test_the_same_text_in_parts_is_the_same() -> None:
    memory = knowing(said(1, "u1", "hello"))
    assert new(user("u1", [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]), memory=memory) == New(
        [], []
    )


def test_a_message_twice_in_one_input_runs_once() -> None:
    assert ids(new(user("u1"), user("u1"))) == ["u1"]


def test_a_message_that_says_nothing_is_refused() -> None:
    given_ = read_input(body(user("u1", "")))
    with pytest.raises(RunRefused) as refused:
        message_of(given_.tail, given_)
    assert refused.value.code == "message_empty"


def test_media_are_handed_on_with_their_bytes_or_address() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "url", "value": "https://example.org/a.pdf"}},
    ]
    given_ = read_input(body(user("u1", content)))
    made = message_of(given_.tail, given_)
    assert made.content == [
        Text(text="look"),
        Media(mime_type="image/png", data="aGk="),
        Media(mime_type="application/pdf", uri="https://example.org/a.pdf"),
    ]


def test_results_of_waiting_calls_are_found_wherever_they_stand() -> None:
    history = (
        user("u1"),
        assistant("a1", None, "c1", "c2"),
        tool_message("c2"),
        tool_message("c0"),
        tool_message("c1"),
    )
    found = new(*history, memory=knowing(said(1, "u1")), calls=("c1", "c2", "c3"))
    assert [message.tool_call_id for message in found.results] == ["c2", "c1"]
    assert found.messages == []


def test_two_results_of_one_call_must_agree() -> None:
    same = (tool_message("c1", id="m1"), tool_message("c1", id="m2"))
    assert len(new(*same, calls=("c1",)).results) == 1
    with pytest.raises(RunRefused) as refused:
        new(tool_message("c1", "a"), tool_message("c1", "b"), calls=("c1",))
    assert refused.value.code == "result_conflict"


@pytest.mark.parametrize(
    ("content", "error", "texts"),
    [
        ("done", None, ["done"]),
        ("", "it broke", ["it broke"]),
        ("half", "it broke", ["half", "it broke"]),
        ("it broke", "it broke", ["it broke"]),
        ("", "", [""]),
    ],
)
def test_the_error_of_a_result_is_kept(content: str, error: str | None, texts: list[str]) -> None:
    more = {} if error is None else {"error": error}
    made = result_of(read_input(body(tool_message("c1", content, **more))).results[0])
    assert made.is_error is (error is not None)
    assert made.display == {"agui": {"messageId": "c1.m"}}
    assert [part.text for part in made.content if isinstance(part, Text)] in (texts, [text for text in texts if text])


_ROLES = st.sampled_from(["user", "assistant", "tool", "activity", "reasoning", "system"])


@given(st.lists(st.tuples(_ROLES, st.integers(0, 8)), max_size=12), st.sets(st.integers(0, 8)))
def test_only_what_is_behind_the_last_known_word_runs(history: list[tuple[str, int]], known: set[int]) -> None:
    messages: list[dict[str, Any]] = []
    for role, number in history:
        made = {"id": f"{role}{number}", "role": role, "content": "hello"}
        messages.append({**made, "toolCallId": f"c{number}"} if role == "tool" else made)
    memory = knowing(*(said(seq, f"user{number}") for seq, number in enumerate(sorted(known), 1)))
    found = ids(new(*messages, memory=memory, calls=("c1",)))
    stops = [
        index
        for index, (role, number) in enumerate(history)
        if role in ("assistant", "reasoning") or (role == "user" and number in known)
    ]
    behind = history[max(stops, default=-1) + 1 :]
    assert set(found) == {f"user{number}" for role, number in behind if role == "user"}
    assert len(found) == len(set(found))
