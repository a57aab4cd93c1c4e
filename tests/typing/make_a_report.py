"""A program that makes a report, as a user would write it: type-checked against the wheel, never run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from agentsession.host import trace_headers
from agentsession.host.report import Span, Spent, Timeline, html, timeline, turn
from agentsession.protocol import read_ndjson
from agentsession.protocol.telemetry import METRICS, Metric


def slowest(path: Path) -> Span:
    with path.open("rb") as record:
        told = timeline(read_ndjson(record))
    assert_type(told, Timeline)
    assert_type(told.spent, Spent)
    path.with_suffix(".html").write_text(html(turn(told, 1)), encoding="utf-8")
    return max(told.spans, key=lambda span: span.end - span.start)


HEADERS: dict[str, str] = trace_headers()
NAMES = [assert_type(metric, Metric).name for metric in METRICS]
