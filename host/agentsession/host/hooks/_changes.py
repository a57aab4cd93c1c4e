"""What several hooks change, added up: each sees what those before it left, and the executor gets one change.

Not for: checking that a change fits its point (``agentsession.protocol.read_change``). Pure. May import: ``protocol``.
"""

from __future__ import annotations

from typing import Any

from agentsession.protocol import (
    HookChange,
    HookOutcome,
    HookPayload,
    ModelErrorChange,
    ModelRequestChange,
    ModelRequestHook,
)

__all__ = ["Changes"]


class Changes:
    """The payload as it stands, and the modifications so far."""

    def __init__(self, payload: HookPayload) -> None:
        self.payload = payload
        self.by: list[str] = []
        self.reasons: list[str] = []
        self._made: dict[str, Any] = {}

    def add(self, change: HookChange, outcome: HookOutcome, by: str) -> None:
        """Take the change of one hook, which was checked."""
        given = {name: getattr(change, name) for name in change.model_fields_set}
        if isinstance(change, ModelRequestChange) and isinstance(self.payload, ModelRequestHook):
            given = _of_request(given, self.payload, self._made)
            shown = {**given}
            if "config" in given:
                shown["config"] = _set(self.payload.config, given["config"])
        else:
            shown = given
        if isinstance(change, ModelErrorChange):
            self._made.clear()  # one of several things, which cannot be added up: the last word holds
        self._made.update(given)
        known = type(self.payload).model_fields
        self.payload = self.payload.model_copy(update={name: value for name, value in shown.items() if name in known})
        self.by.append(by)
        if outcome.reason is not None:
            self.reasons.append(outcome.reason)

    @property
    def modifications(self) -> dict[str, Any] | None:
        """What the executor shall change, as JSON."""
        return {name: _plain(value) for name, value in self._made.items()} or None


def _of_request(given: dict[str, Any], payload: ModelRequestHook, made: dict[str, Any]) -> dict[str, Any]:
    """Nothing brings back a tool that an earlier hook took away; settings are added up."""
    # What is null here stays as it was: the executor would read it so.
    out = {name: value for name, value in given.items() if value is not None}
    if "tools" in out:
        out["tools"] = [name for name in payload.tools if name in out["tools"]]
    if "config" in out:
        out["config"] = {**made.get("config", {}), **out["config"]}
    return out


def _set(config: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of a change over them; ``null`` unsets one."""
    return {name: value for name, value in {**config, **changed}.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    wire = getattr(value, "to_wire", None)
    return wire() if callable(wire) else value
