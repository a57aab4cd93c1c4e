"""The options of ``run`` that limit its turns, as they are typed.

Not for: what a limit does (``docs/how-to/set-limits.md``). May import: ``agentsession.protocol``, ``_out``.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from agentsession.host.cli._out import CommandError
from agentsession.protocol import Constraints, ExecutionOptions, Grace, Price

__all__ = ["LimitOptions", "read_duration"]

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S: Final = 1e9
"""Some thirty years: a moment further off may be none that can be written."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """What was asked for on the command line; made by :meth:`read`, which checks it."""

    limits: Constraints = dataclasses.field(default_factory=Constraints)
    deadline: str | None = None
    prices: dict[str, Price] = dataclasses.field(default_factory=dict)
    grace: bool = True
    loop_detection: bool | None = None
    words: tuple[str, ...] = ()
    """The options that say the same again, for the command that resumes; without the deadline, which is a moment."""

    @classmethod
    def read(
        cls,
        *,
        max_turns: int | None = None,
        max_calls: int | None = None,
        max_time: str | None = None,
        max_budget: float | None = None,
        deadline: str | None = None,
        prices: Sequence[str] = (),
        grace: bool = True,
        loop_detection: bool | None = None,
    ) -> LimitOptions:
        """Raises :class:`CommandError` (``usage``) for what is no duration, moment or price."""
        seconds = None if max_time is None else read_duration(max_time, "--max-time")
        for option, number in (("--max-turns", max_turns), ("--max-calls", max_calls), ("--max-budget", max_budget)):
            if number is not None and not 0 < number < math.inf:
                raise _wrong(option, f"{number:g}", "more than 0", f"{option} 5")
        words: list[str] = []
        typed = (
            ("--max-turns", max_turns),
            ("--max-calls", max_calls),
            ("--max-time", max_time),
            ("--max-budget", max_budget),
        )
        for option, value in typed:
            words += [option, str(value)] if value is not None else []
        for price in prices:
            words += ["--price", price]
        words += [] if grace else ["--no-grace"]
        words += {None: [], True: ["--loop-detection"], False: ["--no-loop-detection"]}[loop_detection]
        return cls(
            limits=Constraints(
                max_turns=max_turns, max_llm_calls=max_calls, max_time_seconds=seconds, max_budget_usd=max_budget
            ),
            deadline=None if deadline is None else _moment(deadline),
            prices=dict(map(_price, prices)),
            grace=grace,
            loop_detection=loop_detection,
            words=tuple(words),
        )

    def execution(self, model: str | None) -> ExecutionOptions:
        """What a session is opened with."""
        limited = bool(self.limits.to_wire())
        return ExecutionOptions(
            model=model,
            limits=self.limits if limited else None,
            deadline=self.deadline,
            grace=Grace() if limited and self.grace else None,
            prices=self.prices or None,
            loop_detection=self.loop_detection,
        )


def read_duration(text: str, option: str) -> float:
    """Seconds: ``90``, ``90s``, ``5m`` or ``1.5h``."""
    found = _DURATION.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS[found[2]] if found is not None else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise _wrong(option, text, "a time such as 90s, 5m or 1.5h", f"{option} 5m")
    return seconds


def _moment(text: str) -> str:
    """A moment as it is, or a time from now."""
    if _DURATION.fullmatch(text.strip().lower()):
        moment = datetime.now(UTC) + timedelta(seconds=read_duration(text, "--deadline"))
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            expected = "a time from now such as 10m, or a moment such as 2026-01-31T12:00:00Z"
            raise _wrong("--deadline", text, expected, "--deadline 10m") from error
        if moment.tzinfo is None:
            raise _wrong("--deadline", text, "a moment with its zone", f"--deadline {text}Z")
        if not 1 < moment.year < datetime.max.year:  # in another zone it may be in a year that there is none of
            raise _wrong("--deadline", text, "a moment of these days", "--deadline 10m")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _price(text: str) -> tuple[str, Price]:
    """``MODEL=INPUT,OUTPUT`` or ``MODEL=INPUT,OUTPUT,CACHED``, US dollars for a million tokens."""
    model, _, numbers = text.rpartition("=")
    try:
        given = [float(number) for number in numbers.split(",")]
        if not model or len(given) not in (2, 3):
            raise ValueError(text)
        return model, Price(input=given[0], output=given[1], cached_input=given[2] if len(given) > 2 else None)
    except ValueError as error:  # also what pydantic raises for a price below 0
        expected = "MODEL=INPUT,OUTPUT, US dollars for a million tokens"
        raise _wrong("--price", text, expected, "--price 'gemini-2.5-flash=0.30,2.50'") from error


def _wrong(option: str, got: str, expected: str, fix: str) -> CommandError:
    return CommandError(
        f"{option} {got[:60]} cannot be used", id="usage", where=option, expected=expected, fix=f"try {fix}"
    )
