"""A report as lines for a person: the levels, then every verdict that is not good, then the headline.

Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: ``agentsession.protocol``, ``results``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from agentsession.conformance.results import LevelScore, Report, Result, Status

__all__ = ["failure", "lines"]

_WIDTH: Final = 100
_SHOWN: Final = (Status.HARNESS_ERROR, Status.FAIL, Status.UNEXPECTED_PASS, Status.NOT_RUN)
_WORD: Final = {
    Status.FAIL: "FAIL",
    Status.UNEXPECTED_PASS: "UNEXPECTED PASS",
    Status.NOT_RUN: "NOT RUN",
    Status.HARNESS_ERROR: "HARNESS ERROR",
}


def lines(report: Report, *, again: str | None = None, verbose: bool = False) -> Iterator[str]:
    """The lines, without colour.

    ``again``: the command that runs one rule again, with ``{rule}`` in it. ``verbose``: every rule has a line.
    """
    yield f"{report.target}   contract {report.version}   seed {report.seed}   {report.seconds:.1f}s"
    width = max(len(score.level) for score in report.scores())
    for score in report.scores():
        yield f"  {score.level.capitalize():<{width}}  {_score(score)}"
    for extra in report.extras:
        yield _printable(f"  {extra.name:<{width}}  {extra.summary}")
    counts = [f"{status.value} {len(report.of(status))}" for status in Status if report.of(status)]
    yield f"  {'   '.join(counts)}"
    for status in _SHOWN:
        for result in report.of(status):
            yield ""
            yield from failure(result, again, verbose=verbose)
    if verbose:
        yield ""
        yield from map(_printable, _all(report.results))
    for missed in report.missed:
        yield from ("", f"FAIL {missed}")
    yield ""
    yield report.headline() or "nothing ran"


def _score(score: LevelScore) -> str:
    if not score.is_declared:
        return f"not declared: n/a {len(score.results)}" if score.results else "not asked"
    word = "pass" if score.is_good else "FAIL"
    return f"{score.passed}/{score.applicable}  {word}"


def failure(result: Result, again: str | None = None, *, verbose: bool = False) -> Iterator[str]:
    """One verdict that is not good: the rule's sentence, what was wrong, and the stretch that shows it.

    ``verbose``: with what the executor logged meanwhile.
    """
    yield from map(_printable, _failure(result, again, verbose))


def _printable(line: str) -> str:
    """What an agent wrote is in it: control characters of its are spelled out, and reach no terminal."""
    if line.isprintable():
        return line
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def _failure(result: Result, again: str | None, verbose: bool) -> Iterator[str]:
    head = f"{_WORD[result.status]} {result.rule}  {result.sentence}"
    yield from textwrap.wrap(head, _WIDTH, subsequent_indent="  ")
    if result.message:
        yield from textwrap.wrap(result.message, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    for item in result.evidence:
        mark = "   <- here" if item.is_break and item.event is not None else ""
        yield from _evidence(item.text + mark)
    if result.log and verbose:
        yield "  logged:"
        for line in result.log:
            yield from _evidence(line)
    elif result.log:
        yield f"  logged: {len(result.log)} lines, shown with -v"
    if result.about.fix and result.about.checked_by == "session" and result.status is Status.FAIL:
        # Of other rules it is said to whoever made the call, perhaps the host.
        yield from textwrap.wrap(f"fix: {result.about.fix}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if result.scenario:
        yield f"  in: {result.scenario}"
    if again is not None and result.status is not Status.HARNESS_ERROR:
        yield f"  again: {result.again(again)}"


def _evidence(text: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield from textwrap.wrap(
            line, _WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
        )


def _all(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        said = f"  {result.message}" if result.message else ""
        yield f"  {result.status.value:<15} {result.rule:<8} {said}".rstrip()
