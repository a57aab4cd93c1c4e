"""The report: one HTML page that needs no network, no script and no other file.

Not for: what the record means (``_build.py``). Rules carried: SEC-01 as far as showing goes.
May import: the modules beside it, ``agentsession.protocol``.

The policy of the page allows no address at all, styles that stand in it, and the one script whose digest it names: what
an agent said could not run even where escaping had failed. Without the script everything is there but the search.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html as stdhtml
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Final

from agentsession.host.report._chart import Part, chart, overview
from agentsession.host.report._items import ItemView
from agentsession.host.report._model import Item, Span, Spent, Timeline, Turn, UsagePoint, spent
from agentsession.host.report._safe import Safe
from agentsession.host.report._table import span_table, turn_table, usage_table
from agentsession.host.report._words import count, duration, money, plural

__all__ = ["MADE_BY", "MANY_SPANS", "html"]

MANY_SPANS: Final = 5000
"""Beyond so many stretches the page shows turns first."""
MADE_BY: Final = '<meta name="generator" content="agentsession report">'
"""Stands in every report, so that one can be told from a file of somebody else."""
_WHOLE: Final = 6_000_000
"""Characters of items that are shown whole; after them, what has no problem is one line."""
_TURNS: Final = 1_000
"""Turns that are shown at all, unless they have a problem, and that have a chart of their own in a long record."""
_LINES: Final = 20_000
"""Items that are shown at all, unless they have a problem; the others are counted."""


def html(timeline: Timeline) -> str:
    """The page. Secrets are masked, also those that the environment of this process holds."""
    safe = Safe(event for item in (*timeline.items, *timeline.others) for event in item.events)
    return _Page(timeline, safe).page()


class _Page:
    def __init__(self, timeline: Timeline, safe: Safe) -> None:
        self._timeline = timeline
        self._safe = safe
        self._view = ItemView(timeline, safe)
        self._is_long = len(timeline.spans) > MANY_SPANS or len(timeline.items) > 2 * MANY_SPANS
        self._spans: dict[int, list[Span]] = {}
        for span in timeline.spans:
            self._spans.setdefault(span.turn, []).append(span)
        self._items: dict[int, list[tuple[int, Item]]] = {}
        for index, item in enumerate(timeline.items):
            self._items.setdefault(item.turn, []).append((index, item))
        self._usage: dict[int, list[UsagePoint]] = {}
        for point in timeline.usage:
            self._usage.setdefault(point.turn, []).append(point)
        self._left = _LINES
        self._left_whole = _WHOLE

    def page(self) -> str:
        style, script = _file("page.css"), _file("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'"
        )
        title = self._safe.line(f"{self._timeline.agent}: {self._timeline.title}", 120)
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{MADE_BY}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{stdhtml.escape(policy, quote=True)}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#happened">to what happened</a>
<header>
{self._header()}
</header>
<main>
{self._time()}
{self._chart()}
{self._happened()}
{self._tables()}
</main>
<script>{script}</script>
</body>
</html>
"""

    # -- the head ----------------------------------------------------------------------------------------------------

    def _header(self) -> str:
        told, safe = self._timeline, self._safe
        reason = told.reason or ("the record stops before an end" if told.turns else "no turn")
        look = "good" if reason == "completed" else "ask" if reason == "input_required" else "bad"
        cause = told.turns[-1].cause if told.turns else None
        because = f" ({safe.line(cause, 80)})" if cause else ""
        facts = [
            duration(told.spent.elapsed_s),
            f"in {count(told.input_tokens)} out {count(told.output_tokens)}",
            money(told.cost, told.is_cost_complete),
            plural(len(told.turns), "turn"),
            plural(told.count("call"), "call"),
        ]
        shares = [point.context_share for point in told.usage if point.context_share is not None]
        facts += [f"context {max(shares):.0%} at most"] if shares else []
        facts += [safe.line(", ".join(told.models), 120)] if told.models else []
        began = told.began.strftime("%Y-%m-%d %H:%M:%S UTC") if told.began is not None else "time unknown"
        return (
            f'<h1><span class="agent">{safe.line(told.agent or "agent", 80)}</span> '
            f'<span class="task" dir="auto">{safe.line(told.title, 200)}</span></h1>\n'
            f'<p class="facts"><strong class="tag big {look}">{safe.line(reason, 60)}</strong>{because} '
            f"{' · '.join(f'<span>{fact}</span>' for fact in facts)}</p>\n"
            f'<p class="dim">session {safe.line(told.session_id, 80)}, began {began}</p>'
        )

    def _time(self) -> str:
        if self._timeline.length_s <= 0:
            return '<p class="dim">The record tells no times: all its events are of the same moment.</p>'
        time = self._timeline.spent
        parts = [
            ("model", "model", time.model_s),
            ("tool", "tools", time.tools_s),
            ("wait", "waiting for you", time.people_s),
        ]
        whole = max(time.elapsed_s, 1e-12)
        bars = "".join(
            f'<i class="bar {look}" style="width:{100 * s / whole:.2f}%"></i>' for look, _, s in parts if s > 0
        )
        rows = "".join(
            f'<li><i class="key {look}"></i>{word} <b>{duration(s)}</b> <span class="dim">{s / whole:.0%}</span></li>'
            for look, word, s in parts
        )
        idle = f'<li class="dim">and {duration(time.idle_s)} between turns</li>' if time.idle_s >= 0.05 else ""
        return (
            '<section aria-labelledby="time"><h2 id=time>Where the time went</h2>'
            f'<div class="split" aria-hidden="true">{bars}</div><ul class="legend">{rows}{idle}</ul></section>'
        )

    def _chart(self) -> str:
        told = self._timeline
        if not told.turns or told.length_s <= 0:
            return ""
        drawn = overview(told, self._safe) if self._is_long else self._part_chart(told.turns)
        title = "Turns over time" if self._is_long else "Who did what when"
        return f'<section aria-labelledby="when"><h2 id=when>{title}</h2>{drawn}</section>'

    def _part_chart(self, turns: Sequence[Turn]) -> str:
        numbers = [turn.number for turn in turns]
        part = Part(
            turns,
            [span for number in numbers for span in self._spans.get(number, ())],
            [point for number in numbers for point in self._usage.get(number, ())],
            [item for number in numbers for item in self._items.get(number, ())],
        )
        return chart(self._timeline, part, self._safe)

    # -- what happened -----------------------------------------------------------------------------------------------

    def _happened(self) -> str:
        told = self._timeline
        words = [
            (plural(told.count("error"), "error"), told.count("error")),
            (f"{told.count('denied')} denied", told.count("denied")),
            (f"{told.count('unknown')} unknown", told.count("unknown")),
            (plural(sum(item.status == "injected" for item in told.items), "steer"), 1),
        ]
        summary = ", ".join(word for word, number in words if number and not word.startswith("0 "))
        problems = sum(item.problem is not None for item in told.items)
        bar = (
            '<div class="tools" role="search"><label for="search">search</label> '
            '<input id=search type="search" autocomplete="off" spellcheck="false"> '
            f'<label><input id=problems type="checkbox"> problems only ({problems})</label> '
            '<button id=open type="button">open all</button> <span id=found role="status"></span>'
            '<span class="dim keys">keys: / search, p problems, j and k next and last, Enter opens</span></div>'
        )
        shown = f"<p>{summary}</p>" if summary else ""
        turns = "".join(self._turn(turn) for turn in [None, *told.turns] if self._shows(turn))
        left_out = sum(not self._shows(turn) for turn in told.turns)
        if left_out:
            rest = f"{left_out:,} more turns without a problem; agentsession report --turn N shows one whole"
            turns += f'<p class="dim">{rest}</p>'
        head = '<h2 id=happened tabindex="-1">What happened</h2>'
        return f'<section aria-labelledby="happened">{head}{shown}{bar}{turns}</section>'

    def _shows(self, turn: Turn | None) -> bool:
        if turn is None or turn.number <= _TURNS:
            return True
        return any(item.problem is not None for _, item in self._items.get(turn.number, ()))

    def _turn(self, turn: Turn | None) -> str:
        number = 0 if turn is None else turn.number
        items = self._items.get(number, [])
        if not items:
            return ""
        rows = "".join(self._rows(items))
        if turn is None:
            return f'<ol class="items">{rows}</ol>'
        time = spent([turn], self._spans.get(number, []))
        look = "good" if turn.reason == "completed" else "warn"
        bad = sum(item.problem is not None for _, item in items)
        notes = [duration(time.elapsed_s), plural(sum(item.kind == "call" for _, item in items), "call")]
        notes += [f"{plural(bad, 'problem')}"] if bad else []
        head = (
            f'Turn {number} <span class="task" dir="auto">{self._safe.line(turn.task, 120)}</span> '
            f'<span class="tag {look}">{self._safe.line(turn.reason or "no end recorded", 40)}</span> '
            f'<span class="dim">{", ".join(notes)}</span>'
        )
        drawn = self._part_chart([turn]) if self._is_long and number <= _TURNS else ""
        is_open = "" if self._is_long and len(self._timeline.turns) > 1 else " open"
        return (
            f'<details class="turn" id="t{number}"{is_open}><summary><h3>{head}</h3></summary>{drawn}'
            f'<ol class="items">{rows}</ol></details>'
        )

    def _rows(self, items: Sequence[tuple[int, Item]]) -> Iterator[str]:
        left_out = 0
        for index, item in items:
            if self._left <= 0 and item.problem is None:
                left_out += 1
                continue
            shown = self._view.item(index, item, short=self._left_whole <= 0 and item.problem is None)
            self._left -= 1
            self._left_whole -= len(shown)
            yield shown
        if left_out:
            rest = f"{left_out:,} more without a problem; agentsession report --turn N shows a turn whole"
            yield f'<li class="note"><time></time><div><p class="dim">{rest}</p></div></li>'

    def _tables(self) -> str:
        told = self._timeline
        if not told.turns:
            return ""
        rows: list[tuple[Turn, Spent, int, int]] = []
        for turn in told.turns[:MANY_SPANS]:
            items = self._items.get(turn.number, [])
            calls = sum(item.kind == "call" for _, item in items)
            bad = sum(item.problem is not None for _, item in items)
            rows.append((turn, spent([turn], self._spans.get(turn.number, [])), calls, bad))
        parts = [turn_table(rows, self._safe)]
        spans = told.spans[:MANY_SPANS]
        parts.append(span_table(told, spans, self._safe))
        if len(told.spans) > len(spans):
            rest = f"{len(told.spans) - len(spans):,} more stretches; agentsession report --turn N shows a turn whole"
            parts.append(f'<p class="dim">{rest}</p>')
        parts.append(usage_table(told, told.usage[:MANY_SPANS], self._safe))
        return (
            '<section aria-labelledby="tables"><h2 id=tables>The same as tables</h2><details>'
            f"<summary>turns, stretches of time, model calls</summary>{''.join(parts)}</details></section>"
        )


@functools.cache
def _file(name: str) -> str:
    return resources.files("agentsession.host.report").joinpath(name).read_text(encoding="utf-8")
