"""One hook of a chain: what it is called, where it stands, and what it is asked about.

Not for: running hooks (``_chain.py``). Rules carried: none of its own. May import: ``protocol``.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Literal

from agentsession.protocol import (
    HOOK_POINTS,
    ConfigurationError,
    HookPayload,
    LifecycleInterceptor,
    ModelErrorHook,
    ModelRequestHook,
    ModelResponseHook,
    SessionHook,
    ToolCallHook,
    ToolErrorHook,
    ToolResultHook,
)

__all__ = ["ASK", "ON_ERROR", "TIERS", "Entry", "HookFailed", "Match", "OnError", "entries_of", "subject_of"]

TIERS: Final = ("builtin", "plugin", "workspace", "user", "admin")
"""Whose hook it is. Later ones see what earlier ones changed, and have the last word."""

ASK: Final = "ask"
"""At ``before_tool``: a person shall be asked, whatever the policy allows. A word of hosts, not of executors."""

ON_ERROR: Final = ("block", "proceed")

OnError = Literal["block", "proceed"]

Match = str | Sequence[str] | Callable[[HookPayload], bool]
"""Globs on what a payload is about (:func:`subject_of`), or a function of the payload."""

DEFAULT_ORDER: Final = 100


class HookFailed(Exception):
    """A hook that has no usable answer. ``what`` is recorded, so it holds nothing that the hook was told or said."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A hook with its place in the chain."""

    hook: LifecycleInterceptor
    id: str
    tier: int
    order: int
    has_own_id: bool
    points: frozenset[str] | None
    """``None``: every point."""
    match: Match | None
    on_error: str | None
    """``None``: as the point says, closed at ``before_…``, open elsewhere."""
    observes: bool
    """It is only told; it runs beside the others, and what it answers counts for nothing."""

    def wants(self, point: str) -> bool:
        """Whether it is asked at this point at all."""
        return self.points is None or point in self.points

    def matches(self, payload: HookPayload) -> bool:
        """Whether it is asked about this. Raises what its function raises."""
        if self.match is None:
            return True
        if callable(self.match):
            return self.match(payload) is True
        subject = subject_of(payload)
        listed = (self.match,) if isinstance(self.match, str) else self.match
        return subject is not None and any(fnmatch.fnmatchcase(subject, pattern) for pattern in listed)

    def blocks_on_error(self, point: str) -> bool:
        """Whether its failure at this point has blocked."""
        spec = HOOK_POINTS.get(point)
        if spec is None or spec.block is None:
            return False
        return spec.fails_closed if self.on_error is None else self.on_error == "block"


def subject_of(payload: HookPayload) -> str | None:
    """What globs are matched with: a tool's name, a model's, why a session begins, else the agent's name."""
    match payload:
        case ToolCallHook() | ToolResultHook() | ToolErrorHook():
            return payload.name
        case ModelRequestHook() | ModelResponseHook() | ModelErrorHook():
            return payload.model
        case SessionHook():
            return payload.reason
        case _:
            return payload.agent_id


def entries_of(hooks: Iterable[LifecycleInterceptor]) -> tuple[Entry, ...]:
    """The hooks in the order in which they are asked: by tier, order and id; without an id of their own, as given.

    Raises :class:`ConfigurationError` (``hooks-invalid``) for what is no hook, and for two of the same id.
    """
    made = [_entry(hook, number) for number, hook in enumerate(hooks, start=1)]
    seen: set[str] = set()
    entries: list[Entry] = []
    for entry in made:
        name, number = entry.id, 2
        while entry.id in seen:
            if entry.has_own_id:
                raise ConfigurationError(
                    f"two hooks have the id {name!r}", where="hooks", fix="give each its own id", id="hooks-invalid"
                )
            entry, number = dataclasses.replace(entry, id=f"{name}-{number}"), number + 1
        seen.add(entry.id)
        entries.append(entry)
    # Python's sort keeps the given order among those without an id of their own.
    return tuple(sorted(entries, key=lambda one: (one.tier, one.order, one.id if one.has_own_id else "")))


def _entry(hook: LifecycleInterceptor, number: int) -> Entry:
    where = f"hook {number}"
    if not callable(getattr(hook, "fire", None)):
        raise _wrong(where, f"a {type(hook).__name__} is no hook", "an object with fire(point, payload), or @hook(...)")
    given: Any = getattr(hook, "id", None)
    named = isinstance(given, str) and bool(given)
    tier: Any = getattr(hook, "tier", "user")
    if tier not in TIERS:
        raise _wrong(where, f"unknown tier {tier!r}", " or ".join(TIERS))
    order: Any = getattr(hook, "order", DEFAULT_ORDER)
    if not isinstance(order, int) or isinstance(order, bool):
        raise _wrong(where, f"the order is a {type(order).__name__}", "a whole number")
    on_error: Any = getattr(hook, "on_error", None)
    if on_error is not None and on_error not in ON_ERROR:
        raise _wrong(where, f"unknown on_error {on_error!r}", "block or proceed")
    points: Collection[str] | None = getattr(hook, "points", None)
    return Entry(
        hook=hook,
        id=given if named else _name_of(hook),
        tier=TIERS.index(tier),
        order=order,
        has_own_id=named and getattr(hook, "has_own_id", True) is True,
        points=None if points is None else frozenset(points),
        match=getattr(hook, "match", None),
        on_error=on_error,
        observes=getattr(hook, "observes", False) is True,
    )


def _name_of(hook: object) -> str:
    return type(hook).__name__.lower()


def _wrong(where: str, what: str, expected: str) -> ConfigurationError:
    return ConfigurationError(what, where=where, expected=expected, id="hooks-invalid")
