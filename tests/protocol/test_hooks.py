"""Hooks as data: payloads and outcomes are JSON, and an outcome is read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsession.protocol import (
    HOOK_POINTS,
    ContentChange,
    HookOutcome,
    HookPayload,
    InvalidInput,
    LifecycleInterceptor,
    Text,
    ToolArgsChange,
    block,
    modify,
    proceed,
    read_change,
    wants_hook,
)

SAMPLES: dict[str, Any] = {
    "session_start": {"reason": "opened"},
    "session_end": {"reason": "closed"},
    "on_user_message": {"content": [{"type": "text", "text": "hi"}]},
    "on_event": {"content": [{"type": "function_call", "id": "c", "name": "n", "args": {}}]},
    "before_model": {
        "model": "m",
        "contents": [{"role": "user", "content": []}],
        "tools": ["t"],
        "config": {"seed": 1},
    },
    "after_model": {"content": [{"type": "thought", "text": "hm"}], "finishReason": "STOP"},
    "on_model_error": {"errorType": "TimeoutError"},
    "before_tool": {"requestId": "r", "name": "n", "args": {"a": 1}},
    "after_tool": {"name": "n", "data": None},
    "on_tool_error": {"name": "n", "errorType": "ValueError"},
    "on_agent_error": {"errorType": "ValueError"},
    "on_run_error": {"errorType": "ValueError"},
}


@pytest.mark.parametrize("point", HOOK_POINTS)
def test_a_payload_is_json_and_reads_back_as_it_was(point: str) -> None:
    kind = HOOK_POINTS[point].payload
    wire = {"sessionId": "s", "userId": "u", "threadId": "t", **SAMPLES.get(point, {})}
    payload = kind.model_validate(wire)
    shown = json.loads(payload.to_wire_json())
    assert shown.items() >= wire.items()
    assert kind.model_validate(shown) == payload


def test_the_points_of_adk_and_of_the_session_are_all_there() -> None:
    assert set(HOOK_POINTS) == {
        *("session_start", "session_end", "on_user_message", "on_event"),
        *(f"{when}_{what}" for when in ("before", "after") for what in ("run", "agent", "model", "tool")),
        *(f"on_{what}_error" for what in ("run", "agent", "model", "tool")),
    }


@pytest.mark.parametrize("point", HOOK_POINTS)
def test_what_stands_before_something_fails_closed_and_can_block(point: str) -> None:
    spec = HOOK_POINTS[point]
    assert spec.fails_closed == point.startswith("before_")
    assert spec.block is not None or not spec.fails_closed


def test_modifications_are_read_as_the_change_of_their_point() -> None:
    assert read_change("before_tool", modify(args={"a": 1})) == ToolArgsChange(args={"a": 1})
    assert read_change("after_model", modify(content="hi")) == ContentChange(content=[Text(text="hi")])
    assert read_change("after_model", modify(content=[Text(text="hi")])) == ContentChange(content=[Text(text="hi")])
    assert read_change("before_tool", proceed()) is None
    assert read_change("before_tool", block("no")) is None


@pytest.mark.parametrize(
    ("point", "outcome"),
    [
        ("before_tool", HookOutcome(action="allow")),
        ("before_tool", HookOutcome(action="ask")),
        ("after_run", block("too late")),
        ("before_run", modify(content="x")),
        ("before_tool", modify(arg={})),
        ("before_tool", modify(args=[1])),
        ("after_tool", modify(result=1)),
        ("on_event", modify(content=7)),
    ],
)
def test_an_outcome_that_cannot_be_done_is_refused(point: str, outcome: HookOutcome) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_change(point, outcome)
    assert caught.value.where == point


def test_a_value_that_json_cannot_say_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="modifications"):
        modify(args={"when": object()})


def test_an_interceptor_is_asked_at_the_points_it_names_or_at_all() -> None:
    class Every:
        def fire(self, hook_point: str, payload: HookPayload, /) -> None:
            del hook_point, payload

    class One(Every):
        points = frozenset({"before_tool"})

    assert isinstance(Every(), LifecycleInterceptor)
    assert wants_hook(Every(), "host_point")
    assert wants_hook(One(), "before_tool")
    assert not wants_hook(One(), "after_tool")
    assert not wants_hook(None, "before_tool")
