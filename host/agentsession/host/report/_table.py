"""The data of the chart as tables: for screen readers, for copying, and for whoever likes numbers.

Not for: the chart. May import: ``_items``, ``_model``, ``_safe``, ``_words``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agentsession.host.report._items import status_word
from agentsession.host.report._model import Span, Spent, Timeline, Turn, UsagePoint
from agentsession.host.report._safe import Safe
from agentsession.host.report._words import count, duration, money, plural

__all__ = ["span_table", "turn_table", "usage_table"]

_KINDS: Final = {"model": "model", "tool": "tool", "wait": "waiting for you"}


def turn_table(rows: Iterable[tuple[Turn, Spent, int, int]], safe: Safe) -> str:
    """The turns: each with where its time went, how many calls it made and how many went wrong."""
    body = "".join(
        f'<tr><td><a href="#t{turn.number}">{turn.number}</a></td><td>{safe.line(turn.task, 80)}</td>'
        f"<td>{safe.line(turn.reason or 'no end recorded', 40)}</td><td class=num>{duration(time.elapsed_s)}</td>"
        f"<td class=num>{duration(time.model_s)}</td><td class=num>{duration(time.tools_s)}</td>"
        f"<td class=num>{duration(time.people_s)}</td><td class=num>{calls}</td><td class=num>{bad or ''}</td></tr>"
        for turn, time, calls, bad in rows
    )
    heads = ("turn", "task", "end", "took", "model", "tools", "you", "calls", "problems")
    return _table("The turns", heads, body)


def span_table(timeline: Timeline, spans: Sequence[Span], safe: Safe) -> str:
    """Every stretch of the chart, in the order of time."""
    body = "".join(_span(timeline, span, safe) for span in spans)
    return _table(plural(len(spans), "stretch").replace("stretchs", "stretches"), _SPAN_HEADS, body)


_SPAN_HEADS: Final = ("from", "took", "what", "name", "agent", "how it ended")


def _span(timeline: Timeline, span: Span, safe: Safe) -> str:
    agents = " → ".join(timeline.agents.get(span.thread_id, ())) or span.thread_id or timeline.agent
    name = safe.line(span.label, 80)
    item = timeline.items[span.item] if span.item is not None else None
    if item is not None:
        number = f"[{item.number}] " if item.number is not None else ""
        name = f'<a href="#i{span.item}">{number}{name}</a>'
    end = safe.line(status_word(span.status), 60)
    return (
        f"<tr><td class=num>{duration(span.start)}</td><td class=num>{duration(span.end - span.start)}</td>"
        f"<td>{_KINDS[span.kind]}</td><td>{name}</td><td>{safe.line(agents, 60)}</td><td>{end}</td></tr>"
    )


def usage_table(timeline: Timeline, points: Sequence[UsagePoint], safe: Safe) -> str:
    """What each model call used."""
    if not points:
        return ""
    body = "".join(
        f"<tr><td class=num>{duration(point.at)}</td><td>{safe.line(point.model or 'n/a', 60)}</td>"
        f"<td>{safe.line(' → '.join(timeline.agents.get(point.thread_id, ())) or timeline.agent, 60)}</td>"
        f"<td class=num>{count(point.input_tokens)}</td><td class=num>{count(point.cached_tokens)}</td>"
        f"<td class=num>{count(point.output_tokens)}</td><td class=num>{money(point.cost)}</td></tr>"
        for point in points
    )
    heads = ("at", "model", "agent", "tokens in", "of them cached", "tokens out", "cost")
    return _table(plural(len(points), "model call"), heads, body)


def _table(caption: str, heads: Sequence[str], body: str) -> str:
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
