"""Times, counts and money in words, for a page.

May import: the standard library.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MOST", "count", "duration", "money", "plural", "tick"]

MOST: Final = 10**15
"""A count is any whole number that JSON can say; from here on it is only said to be large."""
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def duration(span_s: float) -> str:
    """A time span in two units at most: ``45ms``, ``1.2s``, ``42s``, ``3m05s``, ``2h05m``, ``3d02h``."""
    if span_s < 0.0005:
        return "0s"
    if span_s < 0.9995:
        return f"{span_s * 1000:.0f}ms"
    if span_s < 9.95:
        return f"{span_s:.1f}s"
    whole = round(span_s)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def tick(at_s: float) -> str:
    """A place on the time axis, exactly, without parts that are nothing: ``0``, ``50ms``, ``1m30s``, ``2h``."""
    if at_s == 0:
        return "0"
    if at_s < 1:
        return f"{at_s * 1000:g}ms"
    parts: list[str] = []
    rest = at_s
    for size, unit in _UNITS:
        number = rest // size if unit != "s" else round(rest, 3)
        if number:
            parts.append(f"{number:g}{unit}" if number < 1e6 else f"{int(number)}{unit}")
        rest -= number * size
    return "".join(parts[:2]) or "0"


def count(number: int | None) -> str:
    """A token count: ``812``, ``12.4k``, ``1.2M``; unknown is ``n/a``, never 0."""
    if number is None:
        return "n/a"
    if number < 1000:
        return str(number)
    if number < 999_950:
        return f"{number / 1000:.1f}k"
    return f"{number / 1e6:.1f}M" if number < MOST else "over 1000T"


def money(cost: float | None, is_complete: bool = True) -> str:
    """``$0.031``; ``at least $0.031`` when some model call did not say; ``cost n/a`` when none did."""
    if cost is None:
        return "cost n/a"
    text = f"${cost:.3f}" if abs(cost) < 1e9 else f"${cost:.3g}"
    return text if is_complete else f"at least {text}"


def plural(number: int, noun: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
