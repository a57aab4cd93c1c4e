"""What the payload of a resolved interrupt says: a clear yes, a no, an edit, or nothing that can be used.

Not for: which interrupt it answers (``_in_answers.py``). Rules carried: HITL-02, HITL-08. May import: ``protocol``.

The table is docs/how-to/serve-ag-ui.md's. Only what is in it counts, letter for letter: everything else is invalid and
leaves the question open, so that no spelling nobody thought of runs a tool. ``1`` is no ``true``, though Python says
that they are equal.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agentsession.protocol import contradicts_yes

__all__ = ["ABSENT", "Invalid", "No", "Yes", "read_confirmation"]

_FLAGS: Final = ("approved", "accepted", "confirmed")
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "action": frozenset({"accept"}),
    "decision": frozenset({"approve", "approved", "accept", "allow"}),
    "type": frozenset({"approve", "approved", "accept", "allow"}),
}
_YES_TEXTS: Final = frozenset({"yes", "approve", "approved", "accept"})
_NO_WORDS: Final = frozenset({"decline", "cancel", "deny", "denied", "reject", "rejected", "ignore"})
_NO_TEXTS: Final = _NO_WORDS | {"no"}
_EDITS: Final = ("editedArgs", "args")
_TELLING: Final = frozenset({*_FLAGS, *_WORDS, *_EDITS})
_OPEN: Final = frozenset({*_EDITS, "payload", "reason", "message", "type"})
"""Keys that the second look leaves out: they hold what a person wrote or chose, or were read by their own row."""


class _Absent(enum.Enum):
    """One value, which JSON has not."""

    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""A payload that is not there, which is not ``null``."""


class Yes(NamedTuple):
    """It may run, with ``edited`` in the place of the whole arguments if there are any."""

    edited: dict[str, Any] | None = None
    payload: Any = ABSENT
    """What the yes carries for whoever asked."""
    reason: str | None = None


class No(NamedTuple):
    """It may not."""

    reason: str | None = None


class Invalid(NamedTuple):
    """Neither: the question stays open."""

    why: str


def read_confirmation(payload: Any, *, edits: bool) -> Yes | No | Invalid:
    """Read a payload. ``edits``: whether arguments may be edited; whether they fit is not looked at."""
    if payload is ABSENT or payload is None:
        return Invalid("there is no payload")
    if payload is True:
        return Yes()
    if payload is False:
        return No()
    if type(payload) is str:
        if payload in _YES_TEXTS:
            return Yes()
        return No() if payload in _NO_TEXTS else Invalid("this word is neither a yes nor a no")
    if not isinstance(payload, dict):
        return Invalid(f"a payload of type {type(payload).__name__} is neither a yes nor a no")
    return _read_object(payload, edits)


def _read_object(payload: Mapping[str, Any], edits: bool) -> Yes | No | Invalid:
    said: set[bool] = set()
    for key in _FLAGS:
        if key in payload:
            value = payload[key]
            if value is not True and value is not False:
                return Invalid(f"{key} is neither true nor false")
            said.add(value)
    is_edit = payload.get("type") == "edit"
    for key, yes in _WORDS.items():
        if key not in payload or (key == "type" and is_edit):
            continue
        value = payload[key]
        if type(value) is not str or value not in yes | _NO_WORDS:
            return Invalid(f"{key} is neither a yes nor a no")
        said.add(value in yes)
    if is_edit:
        said.add(True)
    if len(said) != 1:
        return Invalid("its keys disagree" if said else "it says neither yes nor no")
    if said == {False}:
        return No(_reason(payload))
    if contradicts_yes({key: value for key, value in payload.items() if key not in _OPEN}):
        return Invalid("its keys disagree")
    for key, value in payload.items():
        if _may_be_an_edit(key, value) and (edits or key != "payload"):
            return Invalid("what may be an edit is under a key that is not read: it would run without")
    edited = _edited(payload, edits, is_edit)
    if isinstance(edited, Invalid):
        return edited
    return Yes(edited, payload.get("payload", ABSENT), _reason(payload))


def _may_be_an_edit(key: str, value: Any) -> bool:
    """Whether a key that no row has may hold other arguments: an object or list, or a name that says so."""
    if key in _TELLING:
        return False
    if isinstance(value, (dict, list)):
        return True
    return value is not None and value is not False and any(sign in key.lower() for sign in ("edit", "arg"))


def _edited(payload: Mapping[str, Any], edits: bool, is_edit: bool) -> dict[str, Any] | Invalid | None:
    given = [payload[key] for key in _EDITS if key in payload]
    if not given:
        return Invalid("an edit without arguments") if is_edit else None
    if not edits:
        return Invalid("arguments cannot be edited here")
    if len(given) > 1:
        return Invalid("two sets of edited arguments")
    return given[0] if isinstance(given[0], dict) else Invalid("edited arguments are not an object")


def _reason(payload: Mapping[str, Any]) -> str | None:
    for key in ("reason", "message"):
        value = payload.get(key)
        if type(value) is str and value:
            return value[:4000]
    return None
