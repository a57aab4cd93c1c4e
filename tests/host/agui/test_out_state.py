"""The state as snapshots and deltas, without what is internal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host.agui.story import Story
from tests.host.agui.streams import Client, of_type

from agentsession.conformance.strategies import json_values
from agentsession.host.agui import Known
from agentsession.host.agui._out_state import SharedState, is_hidden, visible
from agentsession.protocol import SessionUpdate

STATE = ("STATE_SNAPSHOT", "STATE_DELTA")


def changed(*updates: dict[str, Any], client_state: Any = None, **fields: Any) -> list[dict[str, Any]]:
    story = Story()
    story.turn()
    for update in updates:
        story.add(SessionUpdate, source="host", **update)
    story.end()
    return of_type(story.run(begin={"client_state": client_state}, **fields), *STATE, "CUSTOM")


def test_a_snapshot_is_a_snapshot() -> None:
    assert changed({"state_snapshot": {"a": 1}}) == [{"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}]


@pytest.mark.parametrize("value", [None, [], 0, "text"])
def test_a_state_may_be_any_json(value: Any) -> None:
    assert changed({"state_snapshot": value}) == [{"type": "STATE_SNAPSHOT", "snapshot": value}]


def test_changed_keys_are_added_under_escaped_pointers() -> None:
    assert changed({"state_delta": {"a/b~c": None, "d": {"e": 1}}}) == [
        {
            "type": "STATE_DELTA",
            "delta": [
                {"op": "add", "path": "/a~1b~0c", "value": None},
                {"op": "add", "path": "/d", "value": {"e": 1}},
            ],
        }
    ]


def test_keys_that_change_a_state_that_is_no_object_make_a_snapshot() -> None:
    out = changed({"state_snapshot": [1]}, {"state_delta": {"a": 1}})
    assert out[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}


def test_a_patch_is_a_delta() -> None:
    patch = [{"op": "add", "path": "/a/-", "value": 2}]
    out = changed({"state_snapshot": {"a": [1]}}, {"state_patch": patch})
    assert out[1]["type"] == "STATE_DELTA"
    client = Client()
    client.state = {"a": [1]}
    client._state_delta(out[1])
    assert client.state == {"a": [1, 2]}


def test_a_patch_that_cannot_be_applied_changes_nothing() -> None:
    assert changed({"state_patch": [{"op": "remove", "path": "/nothing"}]}) == []


@pytest.mark.parametrize("key", ["_internal", "temp:draft", "app:shared", "adk_event"])
def test_internals_are_in_no_delta_and_no_snapshot(key: str) -> None:
    out = changed({"state_delta": {key: "x"}}, {"state_snapshot": {key: "x", "a": 1}}, {"state_delta": {key: "y"}})
    assert out == [{"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}]


def test_a_patch_that_moves_an_internal_into_sight_is_told_and_one_that_hides_a_value_too() -> None:
    out = changed(
        {"state_snapshot": {"_a": 1, "b": 2}},
        {"state_patch": [{"op": "move", "from": "/_a", "path": "/c"}, {"op": "move", "from": "/b", "path": "/_b"}]},
    )
    client = Client()
    client.state = out[0]["snapshot"]
    client._state_delta(out[1])
    assert client.state == {"c": 1}
    assert "_a" not in str(out)


def test_what_is_internal_is_for_an_application_to_say() -> None:
    known = Known(hides=lambda key: key == "mine")
    story = Story()
    story.turn()
    story.add(SessionUpdate, state_snapshot={"mine": 1, "_theirs": 2}, source="host")
    story.end()
    assert of_type(story.run(known=known), "STATE_SNAPSHOT")[0]["snapshot"] == {"_theirs": 2}


def test_a_client_with_another_state_gets_ours_at_once() -> None:
    story = Story()
    story.add(SessionUpdate, state_snapshot={"a": 1, "_b": 2}, source="host")
    story.unseen()
    story.turn()
    story.end()
    assert of_type(story.run(begin={"client_state": {"a": 2}}), *STATE)[0]["snapshot"] == {"a": 1}


def test_a_client_with_our_state_is_not_told_it_again() -> None:
    story = Story()
    story.add(SessionUpdate, state_snapshot={"a": 1, "_b": 2}, source="host")
    story.unseen()
    story.turn()
    story.end()
    assert not of_type(story.run(begin={"client_state": {"a": 1}}), *STATE)


def test_a_client_whose_state_nobody_knows_gets_a_snapshot_in_the_place_of_the_first_delta() -> None:
    story = Story()
    story.turn()
    story.add(SessionUpdate, state_delta={"a": 1}, source="host")
    story.add(SessionUpdate, state_delta={"b": 1}, source="host")
    story.end()
    assert [event["type"] for event in of_type(story.run(), *STATE)] == list(STATE)


def test_what_else_an_update_changes_is_a_custom_event_without_the_open_config() -> None:
    out = changed({"title": "T", "model": "m", "permission_mode": "plan", "config": {"api_key": "k"}, "tools": []})
    assert out == [
        {
            "type": "CUSTOM",
            "name": "agentsession:session_update",
            "value": {"title": "T", "model": "m", "permissionMode": "plan", "tools": []},
        }
    ]


_KEYS = st.sampled_from(["a", "b/c", "_x", "temp:y"])
UPDATES = st.one_of(
    st.fixed_dictionaries({"state_snapshot": st.dictionaries(_KEYS, json_values(), max_size=3)}),
    st.fixed_dictionaries({"state_delta": st.dictionaries(_KEYS, json_values(), max_size=3)}),
    st.fixed_dictionaries(
        {
            "state_patch": st.lists(
                st.fixed_dictionaries(
                    {
                        "op": st.sampled_from(["add", "replace", "remove", "move", "copy", "test"]),
                        "path": st.sampled_from(["/a", "/_x", "/b~1c", "/a/0", "/temp:y", ""]),
                        "from": st.sampled_from(["/a", "/_x", "/temp:y"]),
                        "value": json_values(),
                    }
                ),
                max_size=3,
            )
        }
    ),
)


@given(st.lists(UPDATES, max_size=6))
def test_whatever_changes_a_client_that_follows_has_what_it_may_see(updates: list[dict[str, Any]]) -> None:
    shared, client = SharedState(), Client()
    for update in updates:
        for event in shared.fold(SessionUpdate(**update)):
            (client._state_snapshot if event["type"] == "STATE_SNAPSHOT" else client._state_delta)(event)
            assert not any(is_hidden(step) for op in event.get("delta", ()) for step in op["path"].split("/")[1:2])
    told, expected = (json.dumps(state, sort_keys=True) for state in (client.state, visible(shared.value)))
    assert told == expected  # as JSON: to Python 1 equals true
