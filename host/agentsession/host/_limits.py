"""The limits that a host puts on every session and turn of its own.

Not for: keeping them (the session does) or the limits of a tool (``tool_timeout_s``). Rules carried: CTL-08.
May import: ``protocol``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agentsession.protocol import ConfigurationError, Constraints, ExecutionOptions, Grace, Price, tightest

__all__ = ["HostLimits"]


_LONGEST_S: Final = 1e9
"""Some thirty years: a moment further off may be none that can be written."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """See :class:`agentsession.host.Host` for what each of them means."""

    limits: Constraints | None = None
    deadline_s: float | None = None
    grace: Grace | None = None
    prices: Mapping[str, Price] | None = None
    loop_detection: bool = True
    now: Callable[[], datetime] = _now

    def __post_init__(self) -> None:
        if self.deadline_s is not None and not 0 < self.deadline_s <= _LONGEST_S:
            raise ConfigurationError(f"deadline_s is {self.deadline_s:g}", expected="seconds, more than 0, to 1e9")

    def for_session(self, given: ExecutionOptions) -> ExecutionOptions:
        """The options of a session, where these are the defaults; of two limits the tighter one holds."""
        changes: dict[str, Any] = {}
        if self.limits is not None:
            changes["limits"] = tightest(self.limits, given.limits)
        if given.grace is None and self.grace is not None:
            changes["grace"] = self.grace
        if given.prices is None and self.prices is not None:
            changes["prices"] = dict(self.prices)
        if given.loop_detection is None:
            changes["loop_detection"] = self.loop_detection
        return given.model_copy(update=changes) if changes else given

    def for_rest(self, given: ExecutionOptions | None) -> ExecutionOptions | None:
        """The options of a turn that goes on: as :meth:`for_turn`, but that its deadline has begun already."""
        if given is None or given.limits is None or self.limits is None:
            return given
        return given.model_copy(update={"limits": tightest(self.limits, given.limits)})

    def for_turn(self, given: ExecutionOptions | None, session: ExecutionOptions | None) -> ExecutionOptions | None:
        """The options of a new turn: a limit of its own is no way around the host's, and the deadline begins now.

        ``session`` are the options that the session was opened with, where this host knows them: what a turn does not
        give comes from there, but of two deadlines the earlier one holds.
        """
        given = self.for_rest(given)
        if self.deadline_s is None:
            return given
        mine = self.now() + timedelta(seconds=self.deadline_s)
        others = [one.deadline for one in (given, session) if one is not None and one.deadline is not None]
        # Only what was given and what changes: a field that is set here would hide the session's.
        changes = {"deadline": _earliest(mine, others[0] if others else None)}
        return (given or ExecutionOptions()).model_copy(update=changes)


def _earliest(mine: datetime, other: str | None) -> str:
    shown = mine.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if other is None:
        return shown
    try:
        moment = datetime.fromisoformat(other)
    except ValueError:
        return other  # the session says what is wrong with it
    return other if moment.tzinfo is None or moment < mine else shown
