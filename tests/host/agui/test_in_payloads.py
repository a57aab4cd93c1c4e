"""The table of payloads: only a clear yes is a yes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host.agui._in_payloads import ABSENT, Invalid, No, Yes, read_confirmation

_YES: list[Any] = [
    True,
    "yes",
    "approve",
    "approved",
    "accept",
    {"approved": True},
    {"accepted": True},
    {"confirmed": True},
    {"approved": True, "confirmed": True},
    {"action": "accept"},
    *({key: word} for key in ("decision", "type") for word in ("approve", "approved", "accept", "allow")),
    {"approved": True, "action": "accept", "note": "fine"},
    {"approved": True, "reason": "no doubt"},
    {"approved": True, "cancel": False},
    {"approved": True, "edited": False, "edits": None},
]
_NO: list[Any] = [
    False,
    "no",
    *("decline", "cancel", "deny", "denied", "reject", "rejected", "ignore"),
    {"approved": False},
    {"accepted": False},
    {"confirmed": False},
    *(
        {key: word}
        for key in ("action", "decision", "type")
        for word in ("decline", "cancel", "deny", "denied", "reject", "rejected", "ignore")
    ),
    {"approved": False, "editedArgs": {"path": "b"}},
]
_INVALID: list[Any] = [
    ABSENT,
    None,
    {},
    1,
    1.0,
    0,
    "true",
    "Yes",
    "YES",
    " yes",
    "ok",
    "y",
    "false",
    "",
    [],
    [True],
    {"approved": 1},
    {"approved": 0},
    {"approved": "true"},
    {"approved": "yes"},
    {"approved": None},
    {"accepted": True, "approved": False},
    {"approved": True, "action": "decline"},
    {"approved": True, "decision": "deny"},
    {"approved": True, "type": "custom"},
    {"approved": True, "denied": True},
    {"approved": True, "cancelled": "yes"},
    {"approved": True, "answer": "no"},
    {"action": "approve"},
    {"action": True},
    {"decision": "yes"},
    {"decision": ["approve"]},
    {"answer": "yes"},
    {"editedArgs": {"path": "b"}},
    {"args": {"path": "b"}},
    {"type": "edit"},
    {"type": "edit", "args": None},
    {"type": "edit", "args": [1]},
    {"type": "edit", "args": {}, "approved": False},
    {"approved": True, "editedArgs": None},
    {"approved": True, "editedArgs": "{}"},
    {"approved": True, "editedArgs": {}, "args": {}},
    *({"approved": True, key: {"path": "b"}} for key in ("edited_args", "EditedArgs", "arguments", "input")),
    {"approved": True, "arguments": '{"path": "b"}'},
    {"decision": "approve", "edits": ["b"]},
]


@pytest.mark.parametrize("payload", _YES, ids=repr)
@pytest.mark.parametrize("edits", [True, False])
def test_a_clear_yes(payload: Any, edits: bool) -> None:
    assert isinstance(read_confirmation(payload, edits=edits), Yes)


@pytest.mark.parametrize("payload", _NO, ids=repr)
@pytest.mark.parametrize("edits", [True, False])
def test_a_no(payload: Any, edits: bool) -> None:
    assert isinstance(read_confirmation(payload, edits=edits), No)


@pytest.mark.parametrize("payload", _INVALID, ids=repr)
@pytest.mark.parametrize("edits", [True, False])
def test_neither(payload: Any, edits: bool) -> None:
    assert isinstance(read_confirmation(payload, edits=edits), Invalid)


@pytest.mark.parametrize("key", ["editedArgs", "args"])
@pytest.mark.parametrize("yes", [{"approved": True}, {"type": "edit"}, {"decision": "approve"}])
def test_an_edit_replaces_the_whole_arguments(yes: dict[str, Any], key: str) -> None:
    payload = {**yes, key: {"path": "b"}}
    assert read_confirmation(payload, edits=True) == Yes(edited={"path": "b"})
    assert isinstance(read_confirmation(payload, edits=False), Invalid)


def test_a_payload_is_for_a_question_and_no_edit_of_a_call() -> None:
    payload = {"approved": True, "payload": {"path": "b"}}
    assert read_confirmation(payload, edits=False) == Yes(payload={"path": "b"})
    assert isinstance(read_confirmation(payload, edits=True), Invalid)


def test_the_reason_of_a_no_is_kept() -> None:
    assert read_confirmation({"approved": False, "reason": "not today"}, edits=True) == No("not today")


_WORDS = st.sampled_from(["yes", "approve", "deny", "accept", "edit", "no", "true", "allow", "ok", "cancel", "stop"])
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 1), _WORDS, st.text(max_size=4), st.dictionaries(_WORDS, st.booleans())
)
_KEYS = st.sampled_from(
    ["approved", "accepted", "confirmed", "action", "decision", "type", "editedArgs", "args", "denied", "answer", "x"]
)


def _says_yes(payload: Any) -> bool:
    """The table's first row again, in other words."""
    if payload is True:
        return True
    if isinstance(payload, str):
        return payload in {"yes", "approve", "approved", "accept"}
    if not isinstance(payload, dict):
        return False
    yes_of = {
        **dict.fromkeys(("approved", "accepted", "confirmed"), (True,)),
        "action": ("accept",),
        "decision": ("approve", "approved", "accept", "allow"),
        "type": ("approve", "approved", "accept", "allow", "edit"),
    }
    told = [key for key in yes_of if key in payload]
    return bool(told) and all(
        any(type(payload[key]) is type(good) and payload[key] == good for good in yes_of[key]) for key in told
    )


@given(st.one_of(_VALUES, st.lists(_VALUES, max_size=2), st.dictionaries(_KEYS, _VALUES, max_size=4)), st.booleans())
def test_nothing_but_a_clear_yes_is_a_yes(payload: Any, edits: bool) -> None:
    if isinstance(read_confirmation(payload, edits=edits), Yes):
        assert _says_yes(payload)
