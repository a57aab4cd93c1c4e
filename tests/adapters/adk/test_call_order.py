"""What puts the results of a step in the order of its calls, on events and contents as ADK has them."""

from __future__ import annotations

from typing import Any

from google.adk.events.event import Event as AdkEvent
from google.genai import types

from agentsession.adapters.adk._call_order import put_in_order

Said = tuple[str | None, str, Any]


def content(kind: str, *said: Said) -> types.Content:
    if kind == "calls":
        parts = [types.Part(function_call=types.FunctionCall(id=i, name=name, args=args)) for i, name, args in said]
    else:
        made = [types.FunctionResponse(id=i, name=name, response=response) for i, name, response in said]
        parts = [types.Part(function_response=response) for response in made]
    return types.Content(role="model" if kind == "calls" else "user", parts=parts)


def event(kind: str, *said: Said) -> AdkEvent:
    return AdkEvent(author="root" if kind == "calls" else "user", content=content(kind, *said))


def read(contents: list[types.Content]) -> list[Any]:
    parts = [part for shown in contents for part in shown.parts or ()]
    return [part.function_response.response for part in parts if part.function_response is not None]


def without_ids(*said: Said) -> list[Said]:
    return [(None, name, value) for _, name, value in said]


CALLS: list[Said] = [("c1", "look", {"n": 1}), ("c2", "look", {"n": 2})]
ONE: Said = ("c1", "look", {"r": 1})
TWO: Said = ("c2", "look", {"r": 2})


def test_results_that_came_the_other_way_round_are_shown_in_the_order_of_the_calls() -> None:
    events = [event("calls", *CALLS), event("results", TWO), event("results", ONE)]
    contents = [content("calls", *without_ids(*CALLS)), content("results", *without_ids(TWO, ONE))]
    put_in_order(contents, events)
    assert read(contents) == [{"r": 1}, {"r": 2}]


def test_of_several_results_of_a_call_the_last_is_the_one_that_is_shown() -> None:
    waits: Said = ("c1", "look", {"status": "pending"})
    events = [event("calls", *CALLS), event("results", waits), event("results", TWO), event("results", ONE)]
    contents = [content("calls", *without_ids(*CALLS)), content("results", *without_ids(TWO, ONE))]
    put_in_order(contents, events)
    assert read(contents) == [{"r": 1}, {"r": 2}]


def test_equal_calls_of_two_turns_each_get_their_own_results_in_order() -> None:
    again: list[Said] = [("d1", "look", {"n": 1}), ("d2", "look", {"n": 2})]
    three, four = ("d1", "look", {"r": 3}), ("d2", "look", {"r": 4})
    events = [
        *(event("calls", *CALLS), event("results", TWO), event("results", ONE)),
        *(event("calls", *again), event("results", four), event("results", three)),
    ]
    contents = [
        *(content("calls", *without_ids(*CALLS)), content("results", *without_ids(TWO, ONE))),
        *(content("calls", *without_ids(*again)), content("results", *without_ids(four, three))),
    ]
    put_in_order(contents, events)
    assert read(contents) == [{"r": 1}, {"r": 2}, {"r": 3}, {"r": 4}]


def test_what_is_no_result_of_a_known_step_is_left_as_it_is() -> None:
    contents = [content("calls", *CALLS), content("results", TWO, ("c1", "look", {"r": "changed"}))]
    put_in_order(contents, [event("calls", *CALLS), event("results", ONE, TWO)])
    assert read(contents) == [{"r": 2}, {"r": "changed"}]
    put_in_order(contents, [])
    assert read(contents) == [{"r": 2}, {"r": "changed"}]


def test_the_events_of_the_session_are_not_changed() -> None:
    events = [event("calls", *CALLS), event("results", TWO, ONE)]
    shown = [found.content.model_copy() for found in events if found.content is not None]
    put_in_order(shown, events)
    assert read(shown) == [{"r": 1}, {"r": 2}]
    assert [response.id for response in events[1].get_function_responses()] == ["c2", "c1"]
