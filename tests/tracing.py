"""Spans of tests. OpenTelemetry takes one provider for the whole process: this one records while a test wants it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult

__all__ = ["Traced", "given", "parent_id", "scope", "span_id", "traced"]


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
