"""The state that a client and the agent share: what a record makes of it, and what of it a client may see.

Not for: who may write it (``_in`` modules). Pure. Rules carried: PER-03 as far as the state goes.
May import: ``protocol``, jsonpatch, ``_out_wire``.

Internals never leave: a key at the top that a rule calls hidden is in no snapshot and no delta, also where a patch
moves a value from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import jsonpatch

from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import SessionUpdate

__all__ = ["SharedState", "is_hidden", "state_snapshot", "visible"]

_PREFIXES: Final = ("_", "temp:", "app:", "adk:", "adk_", "adk.")
"""What begins with one of these is an executor's own, of one call alone, or shared by the users of an application."""


def is_hidden(key: str) -> bool:
    """Whether a key of the state is an internal, unless an application has a rule of its own."""
    return key.startswith(_PREFIXES)


def visible(state: Any, hides: Callable[[str], bool] = is_hidden) -> Any:
    """The state without what is hidden. A state that is no object has nothing that could be."""
    if not isinstance(state, dict):
        return state
    return {key: value for key, value in cast("dict[str, Any]", state).items() if not hides(key)}


def state_snapshot(state: Any, hides: Callable[[str], bool]) -> Wire:
    """``STATE_SNAPSHOT`` of what may be seen of ``state``."""
    return {"type": "STATE_SNAPSHOT", "snapshot": visible(state, hides)}


class SharedState:
    """The state as the record tells it, hidden keys too: an empty object until something is told."""

    def __init__(self) -> None:
        self.value: Any = {}

    def fold(self, update: SessionUpdate, hides: Callable[[str], bool] = is_hidden) -> list[Wire]:
        """Take in an update; return the events that bring a client from the state before to the one after."""
        found: list[Wire] = []
        if "state_snapshot" in update.model_fields_set:
            self.value = update.state_snapshot
            found.append(state_snapshot(self.value, hides))
        if update.state_patch is not None:
            found += self._patch(update.state_patch, hides)
        if update.state_delta is not None:
            found += self._set(update.state_delta, hides)
        return found

    def _set(self, delta: Mapping[str, Any], hides: Callable[[str], bool]) -> list[Wire]:
        if not isinstance(self.value, dict):
            self.value = dict(delta)
            return [state_snapshot(self.value, hides)]
        self.value = {**cast("dict[str, Any]", self.value), **delta}
        ops = [{"op": "add", "path": f"/{_escaped(key)}", "value": delta[key]} for key in delta if not hides(key)]
        return [{"type": "STATE_DELTA", "delta": ops}] if ops else []

    def _patch(self, patch: Sequence[Mapping[str, Any]], hides: Callable[[str], bool]) -> list[Wire]:
        before = self.value
        try:
            self.value = jsonpatch.apply_patch(before, [dict(op) for op in patch])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, LookupError, ValueError):
            return []  # what cannot be applied changes nothing, here as in the session
        seen = visible(self.value, hides)
        if isinstance(before, dict) and isinstance(seen, dict):
            ops = jsonpatch.make_patch(visible(before, hides), seen).patch
            return [{"type": "STATE_DELTA", "delta": ops}] if ops else []
        return [{"type": "STATE_SNAPSHOT", "snapshot": seen}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
