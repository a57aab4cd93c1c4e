"""What a sub-agent does, as it is seen from its caller's session: placed, bounded, read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host import child_events
from agentsession.host._child_events import ChildEvents, placed, thread_of
from agentsession.host._lineage import MODES, stricter
from agentsession.protocol import (
    AgentStart,
    Event,
    Message,
    StreamEnd,
    Text,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    plain_text,
)

_REQUEST = ToolRequest(request_id="r1", name="fixer", thread_id="left")
_STAMP: dict[str, Any] = {"id": "e1", "seq": 1, "timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}


def _update(data: object) -> ToolUpdate:
    return ToolUpdate(request_id="r1", data=data)


def test_a_thread_is_its_own_for_each_call_and_the_same_after_a_restart() -> None:
    other = _REQUEST.model_copy(update={"request_id": "r2"})
    assert thread_of(_REQUEST, "fixer").startswith("left.fixer-")
    assert thread_of(_REQUEST, "fixer") == thread_of(_REQUEST.model_copy(), "fixer")
    assert thread_of(_REQUEST, "fixer") != thread_of(other, "fixer")


def test_ids_that_would_be_too_long_stay_unique_and_within_the_contract() -> None:
    asked = [ToolRequest(request_id="x" * 500 + end, name="t") for end in "ab"]
    found = {placed(item, "fixer-1f0c5a7e.helper", "helper", None).request_id for item in asked}
    assert len(found) == 2
    assert all(len(item) <= 512 for item in found)


def test_the_first_thread_of_a_sub_agent_hangs_under_that_of_the_call_and_its_others_under_its_own() -> None:
    main = placed(AgentStart(agent_id="fixer"), "left.fixer", "fixer", "left")
    branch = placed(AgentStart(agent_id="b", thread_id="b"), "left.fixer", "fixer", "left")
    twig = placed(AgentStart(agent_id="c", thread_id="b.c", parent_thread_id="b"), "left.fixer", "fixer", "left")
    assert [(item.thread_id, item.parent_thread_id) for item in (main, branch, twig)] == [
        ("left.fixer", "left"),
        ("left.fixer.b", "left.fixer"),
        ("left.fixer.b.c", "left.fixer.b"),
    ]


def test_what_waits_is_named_as_its_requests_are() -> None:
    end = placed(StreamEnd(reason="input_required", pending=["r1"]), "fixer", "fixer", None)
    assert end.pending == [placed(ToolRequest(request_id="r1", name="t"), "fixer", "fixer", None).request_id]


_NOT_EVENTS = [7, {}, {"type": "message"}]


@pytest.mark.parametrize(
    "data", [None, "x", [], {}, {"childEvents": "x"}, {"childEvents": _NOT_EVENTS}, {"childEvents": None}]
)
def test_what_is_no_event_of_a_sub_agent_is_left_out(data: object) -> None:
    assert child_events(_update(data)) == []


def test_other_events_have_no_events_of_sub_agents() -> None:
    assert child_events(Message(message_id="m", content=[Text(text="x")])) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "event",
    [
        ToolResponse(request_id="r", name="t", data=[["x" * 999] * 40] * 40, **_STAMP),
        ToolResponse(request_id="r", name="t", data={str(n): "x" * 500 for n in range(1000)}, **_STAMP),
        Message(message_id="m", content=[Text(text="x" * 999)] * 200, **_STAMP),
        ToolRequest(request_id="r", name="t" * 100_000, args={"a": "x" * 100_000}, **_STAMP),
    ],
    ids=["lists", "objects", "parts", "name"],
)
async def test_an_event_of_any_size_is_shown_and_can_be_read_back(event: Event) -> None:
    sent: list[ToolProgress] = []

    async def send(progress: ToolProgress) -> None:
        sent.append(progress)

    await ChildEvents(_REQUEST, "fixer", "fixer", send)(event)
    (update,) = sent
    (read,) = child_events(_update(update.data))
    assert type(read) is type(event)
    assert len(read.to_wire_json()) < 70_000
    assert read.meta == {"cut": True}


_MODE = st.sampled_from([*MODES, "custom", "other"])


@given(_MODE, _MODE)
def test_a_sub_agent_is_never_in_a_looser_mode_than_its_caller(above: str, own: str) -> None:
    found = stricter(above, own)
    assert found in (above, "plan", own)
    if above in MODES and found in MODES:
        assert MODES.index(found) <= MODES.index(above)
    if own in MODES and above in MODES:
        assert MODES.index(found) <= MODES.index(own)
    if "plan" in (above, own):
        assert found == "plan"


@pytest.mark.anyio
async def test_deltas_of_two_messages_are_not_joined() -> None:
    sent: list[ToolProgress] = []

    async def send(progress: ToolProgress) -> None:
        sent.append(progress)

    observer = ChildEvents(_REQUEST, "fixer", "fixer", send)
    for number, (message, text) in enumerate([("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("b", "5")], start=1):
        stamp: dict[str, Any] = {**_STAMP, "id": f"e{number}", "seq": number}
        await observer(Message(message_id=message, content=[Text(text=text)], partial=True, index=0, **stamp))
    last: dict[str, Any] = {**_STAMP, "id": "e9", "seq": 9}
    await observer(StreamEnd(reason="completed", **last))
    read = [item for update in sent for item in child_events(_update(update.data)) if isinstance(item, Message)]
    said = {
        name: "".join(plain_text(item.content) for item in read if item.message_id == f"fixer:{name}") for name in "ab"
    }
    assert said == {"a": "124", "b": "35"}
