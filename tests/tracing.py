"""Spans and metrics of tests. OpenTelemetry takes one provider of each for the whole process: these record while a test
wants it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult

__all__ = ["Measured", "Traced", "given", "measured", "parent_id", "record_nothing", "scope", "span_id", "traced"]


class _Switch(Sampler):
    def __init__(self) -> None:
        self.on = False

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return (ALWAYS_ON if self.on else ALWAYS_OFF).should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return "on while a test wants it"


@functools.cache
def _provider() -> tuple[_Switch, InMemorySpanExporter]:
    switch, exporter = _Switch(), InMemorySpanExporter()
    provider = TracerProvider(sampler=switch, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return switch, exporter


def record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not set up OpenTelemetry; in that of the tests another test may have."""
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(_logs, "get_logger_provider", _logs.NoOpLoggerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)


class Traced:
    """The spans that ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def ours(self, name: str) -> list[ReadableSpan]:
        """Those of this project: ADK has spans of the same names."""
        return [span for span in self.named(name) if scope(span) == "agentsession"]

    def above(self, span: ReadableSpan) -> list[str]:
        """The names of the spans that a span hangs under, nearest first, ``ours:`` before those of this project."""
        by_id = {item.context.span_id: item for item in self.spans if item.context is not None}
        out: list[str] = []
        while span.parent is not None and span.parent.span_id in by_id:
            span = by_id[span.parent.span_id]
            out.append(f"ours:{span.name}" if scope(span) == "agentsession" else span.name)
        return out


def given(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    made: int = span.context.span_id
    return made


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def scope(span: ReadableSpan) -> str:
    return span.instrumentation_scope.name if span.instrumentation_scope is not None else ""


@contextmanager
def traced() -> Iterator[Traced]:
    """Record spans."""
    switch, exporter = _provider()
    exporter.clear()
    switch.on = True
    try:
        yield Traced(exporter)
    finally:
        switch.on = False
        exporter.clear()


@functools.cache
def _reader() -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader], shutdown_on_exit=False))
    return reader


class Measured:
    """What was measured since the block began, by metric and attributes."""

    def __init__(self) -> None:
        self._before = self._read()

    def _read(self) -> dict[tuple[str, str, tuple[Any, ...]], tuple[int, float]]:
        found: dict[tuple[str, str, tuple[Any, ...]], tuple[int, float]] = {}
        data = _reader().get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scoped in resource.scope_metrics:
                for metric in scoped.metrics:
                    for point in metric.data.data_points:
                        key = (scoped.scope.name, metric.name, tuple(sorted((point.attributes or {}).items())))
                        if isinstance(point, HistogramDataPoint):
                            found[key] = (point.count, point.sum)
                        elif isinstance(point, NumberDataPoint):
                            found[key] = (1, float(point.value))
        return found

    def points(self, name: str, scope: str | None = "agentsession") -> list[tuple[dict[str, Any], int, float]]:
        """The attributes, how often and the sum, of each time series that grew; ``None``: of all scopes."""
        out: list[tuple[dict[str, Any], int, float]] = []
        for key, (count, total) in self._read().items():
            before = self._before.get(key, (0, 0.0))
            if key[1] == name and scope in (None, key[0]) and (count, total) != before:
                grown = round(total - before[1], 9)  # what one process adds up in many tests is not exact
                out.append((dict(key[2]), count - before[0], grown))
        return out

    @property
    def names(self) -> set[tuple[str, str]]:
        """The scope and name of each metric that grew."""
        return {key[:2] for key, found in self._read().items() if found != self._before.get(key)}

    @property
    def attributes(self) -> list[dict[str, Any]]:
        """Of our own measurements that were made since."""
        now = self._read().items()
        return [dict(key[2]) for key, found in now if key[0] == "agentsession" and found != self._before.get(key)]


@contextmanager
def measured() -> Iterator[Measured]:
    """Read what is measured in the block."""
    _reader()
    yield Measured()
