"""The limits that a host puts on every session and turn of its own.

Not for: keeping them (the session does) or the limits of a tool (``tool_timeout_s``). Rules carried: CTL-08.
May import: ``protocol``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from agentsession.protocol import ConfigurationError, Constraints, ExecutionOptions, Grace, Price, tightest

__all__ = ["HostLimits"]


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
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise ConfigurationError(f"deadline_s is {self.deadline_s:g}", expected="seconds, more than 0")

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

    def for_turn(self, given: ExecutionOptions | None, session: ExecutionOptions | None) -> ExecutionOptions | None:
        """The options of a new turn: a limit of its own is no way around the host's, and the deadline begins now.

        ``session`` are the options that the session was opened with, where this host knows them: what a turn does not
        give comes from there, but of two deadlines the earlier one holds.
        """
        changes: dict[str, Any] = {}
        if given is not None and given.limits is not None and self.limits is not None:
            changes["limits"] = tightest(self.limits, given.limits)
        if self.deadline_s is not None:
            mine = self.now() + timedelta(seconds=self.deadline_s)
            others = [one.deadline for one in (given, session) if one is not None and one.deadline is not None]
            changes["deadline"] = _earliest(mine, others[0] if others else None)
        if not changes:
            return given
        # Only what was given and what changes: a field that is set here would hide the session's.
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
