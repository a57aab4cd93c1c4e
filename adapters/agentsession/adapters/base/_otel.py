"""The spans of a session's streams and waits, made with opentelemetry-api.

Not for: deciding when (``_telemetry.py`` says what is told). Rules carried: SEC-01 (names, ids and words of the
contract; never content, arguments, or the text of an exception). May import: ``agentsession.protocol``,
opentelemetry-api.

The names of ``gen_ai`` attributes are our own strings: OpenTelemetry has moved its constants for them to a package that
is not released. A test holds each of them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
)

__all__ = ["OtelSpans"]

_logger = logging.getLogger("agentsession.adapters")

_HEADERS: Final = ("traceparent", "tracestate")
_PROPAGATOR: Final = TraceContextTextMapPropagator()

P = ParamSpec("P")


def _quiet(method: Callable[Concatenate[OtelSpans, P], None]) -> Callable[Concatenate[OtelSpans, P], None]:
    """A tracer or exporter that raises loses its span, never the turn."""

    @functools.wraps(method)
    def quiet(self: OtelSpans, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:  # logged; telemetry must not change what happens
            _logger.debug("session %s: a span was lost", self.session_id, exc_info=True)

    return quiet  # type: ignore[return-value]  # mypy names its first argument, the others do not


class OtelSpans:
    """See :class:`agentsession.adapters.base._telemetry.StreamSpans`."""

    def __init__(self, agent: str, session_id: str) -> None:
        self._agent = agent
        self.session_id = session_id
        self._tracer = trace.get_tracer("agentsession")
        self._span: trace.Span | None = None
        self._turn_id: str | None = None
        self._last: trace.SpanContext | None = None
        """The span of the stream before, which the turn's next one is linked to."""
        self._waits: dict[str, trace.Span] = {}
        self._error: str | None = None

    @_quiet
    def begin(self, stream_id: str, turn_id: str, carrier: Mapping[str, Any] | None) -> None:
        before, self._span = self._span, None
        if before is not None:  # begun, and nothing came of it
            before.end()
        goes_on = self._last is not None and self._turn_id == turn_id
        self._turn_id, self._error = turn_id, None
        self._span = self._tracer.start_span(
            f"invoke_agent {self._agent}",
            context=_parent(carrier),
            kind=trace.SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._agent,
                "gen_ai.conversation.id": self.session_id,
                "agentsession.stream.id": stream_id,
                "agentsession.turn.id": turn_id,
            },
            links=[trace.Link(self._last)] if goes_on and self._last is not None else (),
        )

    @contextmanager
    def attached(self) -> Iterator[None]:
        if self._span is None:
            yield
            return
        token = contexts.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            contexts.detach(token)

    @_quiet
    def note(self, event: Event) -> None:
        if isinstance(event, StreamEnd):
            self._end(event)
        elif isinstance(event, Error):
            self._error = event.code or event.status
        elif isinstance(event, ToolRequest):
            if event.needs != "none" and not event.partial:
                self._wait(event.request_id, event.needs, event.name)
        elif isinstance(event, ElicitationRequest):
            self._wait(event.request_id, event.kind, None)
        elif isinstance(event, ToolDecision):
            self._answered(event.request_id, event.decision)
        elif isinstance(event, ToolResponse):
            self._answered(event.request_id, event.status)
        elif isinstance(event, ElicitationResponse):
            self._answered(event.request_id, event.action)

    @_quiet
    def close(self) -> None:
        waits, self._waits = self._waits, {}
        for span in waits.values():
            span.end()

    def _wait(self, request_id: str, kind: str, tool: str | None) -> None:
        if self._span is None or not self._span.is_recording():
            return
        attributes = {"agentsession.wait.kind": kind, "agentsession.request.id": request_id}
        if tool is not None:
            attributes["gen_ai.tool.name"] = tool
        self._waits[request_id] = self._tracer.start_span(
            "agentsession.wait",
            context=trace.set_span_in_context(self._span),
            kind=trace.SpanKind.INTERNAL,
            attributes=attributes,
        )

    def _answered(self, request_id: str, action: str) -> None:
        span = self._waits.pop(request_id, None)
        if span is not None:
            span.set_attribute("agentsession.wait.action", action)
            span.end()

    def _end(self, end: StreamEnd) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        self._last = span.get_span_context()
        span.set_attribute("agentsession.stream_end.reason", end.reason)
        if end.reason == "failed":
            span.set_attribute("error.type", self._error or "failed")
            span.set_status(trace.StatusCode.ERROR)
        span.end()


def _parent(carrier: Mapping[str, Any] | None) -> contexts.Context:
    """The caller's context: what the headers say, if they can be read."""
    present = contexts.get_current()
    if not carrier:
        return present
    headers = {name.lower(): value for name, value in carrier.items() if isinstance(value, str)}
    try:
        return _PROPAGATOR.extract({name: headers[name] for name in _HEADERS if name in headers}, context=present)
    except Exception:  # logged; what a caller sends must not keep a turn from running
        _logger.debug("the trace context could not be read", exc_info=True)
        return present
