"""The swim-lane chart: a lane for the person, for each agent's thread and for tools, and tokens and cost over time.

Not for: the table of the same data (``_table.py``). May import: ``_axis``, ``_model``, ``_safe``, ``_stretches``,
``_words``.

Bars are HTML placed in percent, not a picture: text keeps its size on a narrow screen, and a click leads to the call.
The chart is hidden from screen readers, for which the table is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from html import escape
from typing import Final

from agentsession.host.report._axis import Axis
from agentsession.host.report._model import Item, Span, Timeline, Turn, UsagePoint
from agentsession.host.report._safe import Safe
from agentsession.host.report._stretches import union
from agentsession.host.report._words import MOST, count, duration, money, plural

__all__ = ["Part", "chart", "overview"]

_THIN: Final = 0.25
"""Of the width: no bar is thinner."""
_MERGED: Final = 0.12
"""Of the width: thin bars of one kind that are nearer to each other become one."""
_NAMED: Final = 3.0
"""Of the width: narrower bars have no name in them."""
_ROWS: Final = 6
"""Rows of a lane in which bars overlap."""
_LANES: Final = 24
"""Threads that have a lane of their own."""
_WORDS: Final = {"failed": "FAILED", "denied": "DENIED", "unknown": "UNKNOWN", "open": "no end recorded"}


@dataclasses.dataclass(slots=True)
class _Bar:
    x: float
    end: float
    look: str
    name: str
    title: str
    item: int | None
    count: int = 1
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What is drawn of a record: some turns that follow each other, with all that is theirs."""

    turns: Sequence[Turn]
    spans: Sequence[Span]
    usage: Sequence[UsagePoint]
    items: Sequence[tuple[int, Item]]
    """Each with its index in the record."""


def chart(whole: Timeline, part: Part, safe: Safe) -> str:
    """The chart of a part of the record."""
    return _chart(whole, part.spans, part.usage, part.items, _axis(part.turns, part.spans), safe)


def overview(whole: Timeline, safe: Safe) -> str:
    """The chart of a long record: a bar for each turn, which leads to the turn."""
    axis = _axis(whole.turns, [])
    bars = [
        _Bar(
            axis.x(turn.start),
            axis.x(turn.end),
            "turn" if turn.reason == "completed" else "turn bad",
            str(turn.number),
            safe.line(f"turn {turn.number}, {turn.reason or 'without an end'}, {duration(turn.end - turn.start)}"),
            None,
            seconds=turn.end - turn.start,
        )
        for turn in whole.turns
    ]
    for bar, turn in zip(bars, whole.turns, strict=True):
        bar.item = -turn.number
    lanes = [_lane("turns", _drawn([bars], axis), safe)]
    lanes += _counters(whole.usage, axis, safe)
    return _figure(lanes, axis, f"{plural(len(whole.turns), 'turn')} over time", "")


def _axis(turns: Sequence[Turn], spans: Sequence[Span]) -> Axis:
    start = min((turn.start for turn in turns), default=0.0)
    end = max((turn.end for turn in turns), default=0.0)
    busy = union(span.stretch for span in spans if span.kind != "wait")
    return Axis(start, end, busy or [(turn.start, turn.end) for turn in turns])


def _chart(
    whole: Timeline,
    spans: Sequence[Span],
    usage: Sequence[UsagePoint],
    items: Sequence[tuple[int, Item]],
    axis: Axis,
    safe: Safe,
) -> str:
    waits = [_bar(span, axis, safe) for span in spans if span.kind == "wait"]
    asked = _drawn(_rows(waits), axis) if waits else ""
    lanes = [_lane("you", _marks(items, axis, safe) + asked, safe)]
    threads: dict[str | None, list[Span]] = {}
    for span in spans:
        if span.kind == "model":
            threads.setdefault(span.thread_id, []).append(span)
    shown = [thread for thread in whole.agents if thread in threads]
    for thread in shown[:_LANES]:
        names = " → ".join(whole.agents[thread]) or (thread or whole.agent or "agent")
        depth = 0 if thread is None else thread.count(".") + 1
        lanes.append(_lane(names, _drawn([[_bar(span, axis, safe) for span in threads[thread]]], axis), safe, depth))
    if len(shown) > _LANES:
        more = [_bar(span, axis, safe) for thread in shown[_LANES:] for span in threads[thread]]
        lanes.append(_lane(f"{len(shown) - _LANES} more agents", _drawn(_rows(more), axis), safe))
    tools = [_bar(span, axis, safe) for span in spans if span.kind == "tool"]
    refused = [_point(index, item, axis, safe) for index, item in items if item.kind == "call" and _never_ran(item)]
    if tools or refused:
        lanes.append(_lane("tools", _drawn(_rows(sorted([*tools, *refused], key=lambda bar: bar.x)), axis), safe))
    lanes += _counters(usage, axis, safe)
    looks = {bar.look for bar in tools}
    parts = [plural(len(waits), "wait"), plural(len(shown), "agent"), plural(len(tools), "tool run")]
    return _figure(lanes, axis, ", ".join(parts), _legend(looks, bool(waits), bool(refused), bool(axis.gaps)))


def _never_ran(item: Item) -> bool:
    return item.status in ("denied", "cancelled")


# -- bars --------------------------------------------------------------------------------------------------------------


def _bar(span: Span, axis: Axis, safe: Safe) -> _Bar:
    name = "model" if span.kind == "model" else span.label
    word = _WORDS.get(span.status, span.status)
    lasted = duration(span.end - span.start)
    what = f"{span.label} " if span.label else ""
    lasted += ", a sub-agent worked for it" if span.carries else ""
    titles = {
        "model": f"{what}model, {lasted}",
        "tool": f"{what}{word}, {lasted}",
        "wait": f"waiting for you, {what}{lasted}: {word}",
    }
    look: str = span.kind
    if span.kind == "tool" and span.status in ("unknown", "open") and not (span.carries and span.status == "open"):
        look, name = "tool unknown", f"{name} ?"
    elif span.kind == "tool" and span.status not in ("completed", "open"):
        look, name = "tool bad", f"{name} !"
    elif span.carries:
        look = "tool carries"
    shown, title = safe.line(name, 60), safe.line(titles[span.kind])
    return _Bar(axis.x(span.start), axis.x(span.end), look, shown, title, span.item, 1, span.end - span.start)


def _point(index: int, item: Item, axis: Axis, safe: Safe) -> _Bar:
    x = axis.x(item.end)
    name = getattr(item.events[0], "name", "")
    return _Bar(
        x, x, "tool bad mini", "✗", safe.line(f"{name} {_WORDS.get(item.status, item.status)}: it did not run"), index
    )


def _rows(bars: Sequence[_Bar]) -> list[list[_Bar]]:
    """Bars in as few rows as they need so as not to overlap."""
    rows: list[list[_Bar]] = []
    ends: list[float] = []
    for bar in bars:
        place = next((row for row, end in enumerate(ends) if end <= bar.x), None)
        if place is None and len(rows) >= _ROWS:
            place = min(range(len(ends)), key=ends.__getitem__)
        if place is None:
            rows.append([])
            ends.append(0.0)
            place = len(rows) - 1
        rows[place].append(bar)
        ends[place] = bar.end
    return rows or [[]]


def _drawn(rows: Sequence[Sequence[_Bar]], axis: Axis) -> str:
    return "".join(f'<div class="row">{_gaps(axis)}{"".join(_html(bar) for bar in _merged(row))}</div>' for row in rows)


def _merged(bars: Sequence[_Bar]) -> list[_Bar]:
    """Bars too thin to be told apart become one that says how many they are; a look of its own stays."""
    out: list[_Bar] = []
    for bar in bars:
        last = out[-1] if out else None
        thin = bar.end - bar.x < _THIN
        if last is not None and thin and last.look == bar.look and bar.x - max(last.end, last.x) < _MERGED:
            last.end = max(last.end, bar.end)
            last.count += bar.count
            last.seconds += bar.seconds
        else:
            out.append(dataclasses.replace(bar))
    return out


def _html(bar: _Bar) -> str:
    width = max(_THIN, bar.end - bar.x)
    x = min(bar.x, 100.0 - width)
    name = bar.name if width >= _NAMED or bar.name == "✗" else ""
    title = bar.title if bar.count == 1 else f"{bar.count} stretches, {duration(bar.seconds)}; first: {bar.title}"
    look = f'class="bar {bar.look}" style="left:{x:.2f}%;width:{width:.2f}%" title="{title}"'
    if bar.item is None:
        return f"<span {look}>{name}</span>"
    target = f"t{-bar.item}" if bar.item < 0 else f"i{bar.item}"
    return f'<a {look} href="#{target}" tabindex="-1">{name}</a>'


def _marks(items: Sequence[tuple[int, Item]], axis: Axis, safe: Safe) -> str:
    """What the person said, as signs in a row of its own."""
    signs: list[str] = []
    before = -100.0
    for index, item in items:
        said = item.kind == "message" and item.thread_id is None and getattr(item.events[0], "role", "") == "user"
        if not said and not (item.kind == "steer" and item.status == "injected"):
            continue
        x = axis.x(item.start)
        if x - before < 0.4:
            continue
        before = x
        sign, word = ("›", "you said something") if said else ("s", "a steer went in")
        signs.append(
            f'<a class="mark" href="#i{index}" tabindex="-1" style="left:{min(x, 99.0):.2f}%" title="{word}">{sign}</a>'
        )
    return f'<div class="row marks">{_gaps(axis)}{"".join(signs)}</div>' if signs else ""


def _gaps(axis: Axis) -> str:
    return "".join(f'<i class="gap" style="left:{gap.x:.2f}%;width:{gap.width:.2f}%"></i>' for gap in axis.gaps)


# -- counters ----------------------------------------------------------------------------------------------------------


def _counters(usage: Sequence[UsagePoint], axis: Axis, safe: Safe) -> list[str]:
    """Tokens and cost as they grew."""
    out: list[str] = []
    tokens = [(point.at, (point.input_tokens or 0) + (point.output_tokens or 0)) for point in usage]
    if any(amount for _, amount in tokens):
        total = sum(amount for _, amount in tokens)
        out.append(_lane("tokens", _area(tokens, axis, count(total), "tokens"), safe))
    costs = [(point.at, point.cost) for point in usage if point.cost is not None]
    if any(amount for _, amount in costs):
        text = money(sum(amount for _, amount in costs), all(point.cost is not None for point in usage))
        out.append(_lane("cost", _area(costs, axis, text, "cost"), safe))
    return out


def _area(points: Sequence[tuple[float, float]], axis: Axis, total: str, look: str) -> str:
    steps: list[tuple[float, float]] = [(0.0, 0.0)]
    grown = 0.0
    for at, amount in points:
        x = axis.x(at)
        before = grown
        grown += min(amount, MOST)
        if x - steps[-1][0] < 0.05 and len(steps) > 1:
            steps[-1] = (steps[-1][0], grown)
        else:
            steps += [(x, before), (x, grown)]
    steps.append((100.0, grown))
    top = max(grown, 1e-12)
    path = " ".join(f"{x:.2f},{28 - 26 * amount / top:.2f}" for x, amount in steps)
    drawn = f'<polygon points="0,28 {path} 100,28"/>'
    return (
        f'<div class="row area {look}">{_gaps(axis)}<svg viewBox="0 0 100 28" preserveAspectRatio="none">{drawn}</svg>'
        f"<b>{escape(total)}</b></div>"
    )


# -- the frame ---------------------------------------------------------------------------------------------------------


def _lane(name: str, rows: str, safe: Safe, depth: int = 0) -> str:
    shown = safe.line(name, 60)
    inner = f' style="--depth:{min(depth, 4)}"' if depth else ""
    return (
        f'<div class="lane"><div class="name" title="{shown}"{inner}>{shown}</div><div class="track">{rows}</div></div>'
    )


def _figure(lanes: Sequence[str], axis: Axis, summary: str, legend: str) -> str:
    ticks = "".join(
        f'<span class="{"tick minor" if index % 2 else "tick"}" style="left:{one.x:.2f}%">{one.text}</span>'
        for index, one in enumerate(axis.ticks)
    )
    notes = "; ".join(f"{duration(gap.end - gap.start)} from {duration(gap.start)}" for gap in axis.gaps[:12])
    more = f"; and {len(axis.gaps) - 12} more" if len(axis.gaps) > 12 else ""
    quiet = f'<p class="quiet">Squeezed, because no model or tool was at work: {notes}{more}.</p>' if notes else ""
    labels = _gap_labels(axis)
    head = f'<div class="name"></div><div class="track"><div class="row">{ticks}{labels}</div></div>'
    return (
        '<figure class="chart" role="img" aria-label="Chart of who did what when: '
        f'{escape(summary)}. The tables below have the same data."><div aria-hidden="true">'
        f'<div class="lane axis">{head}</div>{"".join(lanes)}</div></figure>{legend}{quiet}'
    )


def _gap_labels(axis: Axis) -> str:
    out: list[str] = []
    before = -100.0
    for gap in axis.gaps:
        middle = gap.x + gap.width / 2
        if middle - before >= 7:
            out.append(f'<span class="gaplabel" style="left:{middle:.2f}%">{duration(gap.end - gap.start)}</span>')
            before = middle
    return "".join(out)


def _legend(looks: Collection[str], waits: bool, refused: bool, gaps: bool) -> str:
    parts = [("model", "model, and what is not told apart from it"), ("tool", "tool"), ("tool bad", "failed !")]
    parts += [("tool unknown", "effects or end not known ?")] if "tool unknown" in looks else []
    parts += [("tool carries", "call that a sub-agent works for")] if "tool carries" in looks else []
    parts += [("wait", "waiting for you")] if waits else []
    parts += [("tool bad", "✗ denied or cancelled, did not run")] if refused else []
    parts += [("gap", "quiet, squeezed")] if gaps else []
    shown = "".join(f'<li><i class="key {look}"></i>{word}</li>' for look, word in parts)
    return f'<ul class="legend" aria-hidden="true">{shown}</ul>'
