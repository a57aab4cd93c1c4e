"""The spans and metrics of a session's streams, waits and model calls, made with opentelemetry-api.

Not for: deciding when (``_telemetry.py`` says what is told), or the names (``agentsession.protocol.telemetry``).
Rules carried: SEC-01 (names, ids and words of the contract; content only where it is switched on; never the text of an
exception). May import: ``agentsession.protocol``, opentelemetry-api.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
    plain_text,
)
from agentsession.protocol.telemetry import (
    AGENT_DURATION,
    COST,
    FIRST_CHUNK,
    OPERATION_DURATION,
    SCOPE,
    TOKENS,
    WAIT_DURATION,
    Instruments,
    Name,
    tells_content,
)

__all__ = ["OtelModelCall", "OtelSpans"]

_logger = logging.getLogger("agentsession.adapters")

_HEADERS: Final = ("traceparent", "tracestate")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_EVENTS: Final = frozenset(
    {
        "elicitation_request",
        "elicitation_response",
        "error",
        "stream_end",
        "tool_decision",
        "tool_request",
        "tool_response",
        "tool_update",
        "usage",
    }
)
_LONGEST: Final = 8_000
"""Characters of content in one attribute."""

_instruments: Final = Instruments(lambda: metrics.get_meter(SCOPE))

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

    def __init__(self, agent: str, session_id: str, version: str | None, *, counts_models: bool) -> None:
        self._agent = agent
        self.session_id = session_id
        self._counts_models = counts_models
        self.events = _EVENTS | {"message"} if tells_content() else _EVENTS
        self._about = {Name.AGENT: agent, Name.CONVERSATION: session_id}
        if version:
            self._about[Name.AGENT_VERSION] = version
        self._tracer = trace.get_tracer(SCOPE)
        self._span: trace.Span | None = None
        self._began = 0.0
        self._said: dict[str, list[dict[str, Any]]] = {}
        self._turn_id: str | None = None
        self._last: trace.SpanContext | None = None
        """The span of the stream before, which the turn's next one is linked to."""
        self._waits: dict[str, tuple[trace.Span | None, float, str]] = {}
        self._error: str | None = None

    @_quiet
    def begin(self, stream_id: str, turn_id: str, carrier: Mapping[str, Any] | None) -> None:
        before, self._span = self._span, None
        if before is not None:  # begun, and nothing came of it
            before.end()
        goes_on = self._last is not None and self._turn_id == turn_id
        self._turn_id, self._error = turn_id, None
        self._began, self._said = time.monotonic(), {}
        self._span = self._tracer.start_span(
            f"invoke_agent {self._agent}",
            context=_parent(carrier),
            kind=trace.SpanKind.INTERNAL,
            attributes={
                Name.OPERATION: "invoke_agent",
                **self._about,
                Name.STREAM: stream_id,
                Name.TURN: turn_id,
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
        elif isinstance(event, ToolUpdate):
            if event.started:  # the host waits no longer, it runs the tool
                self._answered(event.request_id, "started")
        elif isinstance(event, ToolDecision):
            self._answered(event.request_id, event.decision)
        elif isinstance(event, ToolResponse):
            self._answered(event.request_id, event.status)
        elif isinstance(event, ElicitationResponse):
            self._answered(event.request_id, event.action)
        elif isinstance(event, Usage):
            self._use(event)
        elif isinstance(event, Message):
            self._say(event)

    @_quiet
    def close(self) -> None:
        waits, self._waits = self._waits, {}
        for span, _, _ in waits.values():
            if span is not None:
                span.end()

    def model_call(self, model: str | None, provider: str | None) -> OtelModelCall:
        return OtelModelCall(self._tracer, self._about, self._span, model, provider, counts=self._counts_models)

    def _wait(self, request_id: str, kind: str, tool: str | None) -> None:
        span = None
        if self._span is not None and self._span.is_recording():
            attributes = {Name.WAIT_KIND: kind, Name.REQUEST: request_id}
            if tool is not None:
                attributes[Name.TOOL] = tool
            span = self._tracer.start_span(
                "agentsession.wait",
                context=trace.set_span_in_context(self._span),
                kind=trace.SpanKind.INTERNAL,
                attributes=attributes,
            )
        self._waits[request_id] = (span, time.monotonic(), kind)

    def _answered(self, request_id: str, action: str) -> None:
        span, began, kind = self._waits.pop(request_id, (None, None, ""))
        if began is None:
            return
        _instruments.record(WAIT_DURATION, time.monotonic() - began, {Name.WAIT_KIND: kind, Name.WAIT_ACTION: action})
        if span is not None:
            span.set_attribute(Name.WAIT_ACTION, action)
            span.end()

    def _use(self, event: Usage) -> None:
        model = {Name.REQUEST_MODEL: event.model}
        if event.cost is not None and event.cost >= 0:
            _instruments.record(COST, event.cost, model)
        if not self._counts_models:
            return
        out = [count for count in (event.output_tokens, event.reasoning_tokens) if count is not None]
        for kind, tokens in (("input", event.input_tokens), ("output", sum(out) if out else None)):
            if tokens is not None:
                _instruments.record(TOKENS, tokens, {Name.OPERATION: "chat", Name.TOKEN_TYPE: kind, **model})

    def _say(self, event: Message) -> None:
        if event.partial:
            return
        told = self._said.setdefault(Name.INPUT_MESSAGES if event.role == "user" else Name.OUTPUT_MESSAGES, [])
        role = "user" if event.role == "user" else "assistant"
        told.append({"role": role, "parts": [{"type": "text", "content": plain_text(event.content)}]})

    def _end(self, end: StreamEnd) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        self._last = span.get_span_context()
        span.set_attribute(Name.END, end.reason)
        error = (self._error or "failed") if end.reason == "failed" else None
        if error is not None:
            span.set_attribute(Name.ERROR, error)
            span.set_status(trace.StatusCode.ERROR)
        for name, messages in self._said.items():
            span.set_attribute(name, json.dumps(messages, ensure_ascii=False)[:_LONGEST])
        span.end()
        if self._counts_models:
            about = {Name.OPERATION: "invoke_agent", Name.AGENT: self._agent, Name.ERROR: error}
            _instruments.record(AGENT_DURATION, time.monotonic() - self._began, about)


class OtelModelCall:
    """See :class:`agentsession.adapters.base._telemetry.ModelCall`."""

    def __init__(
        self,
        tracer: trace.Tracer,
        about: Mapping[str, str],
        parent: trace.Span | None,
        model: str | None,
        provider: str | None,
        *,
        counts: bool,
    ) -> None:
        self._about: dict[str, str | None] = {
            Name.OPERATION: "chat",
            Name.PROVIDER: provider,
            Name.REQUEST_MODEL: model,
        }
        self._counts = counts
        self._began = time.monotonic()
        self._is_first = True
        self._span: trace.Span | None = None
        if counts:
            known = {name: value for name, value in self._about.items() if value is not None}
            self._span = tracer.start_span(
                f"chat {model}" if model else "chat",
                context=trace.set_span_in_context(parent) if parent is not None else None,
                kind=trace.SpanKind.CLIENT,
                attributes={**known, **about},
            )

    def chunk(self) -> None:
        if self._is_first:
            self._is_first = False
            _instruments.record(FIRST_CHUNK, time.monotonic() - self._began, self._about)

    def response(
        self,
        usage: Usage | None = None,
        *,
        model: str | None = None,
        response_id: str | None = None,
        finish_reasons: Sequence[str] = (),
    ) -> None:
        given: dict[str, Any] = {
            Name.RESPONSE_MODEL: model,
            Name.RESPONSE_ID: response_id,
            Name.FINISH_REASONS: list(finish_reasons) or None,
        }
        if usage is not None:
            out = [count for count in (usage.output_tokens, usage.reasoning_tokens) if count is not None]
            given |= {
                Name.INPUT_TOKENS: usage.input_tokens,
                Name.OUTPUT_TOKENS: sum(out) if out else None,
                Name.CACHED_TOKENS: usage.cached_tokens,
                Name.REASONING_TOKENS: usage.reasoning_tokens,
            }
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in given.items() if value is not None})

    def end(self, error: str | None = None) -> None:
        if self._span is not None:
            if error is not None:
                self._span.set_attribute(Name.ERROR, error)
                self._span.set_status(trace.StatusCode.ERROR)
            self._span.end()
        if self._counts:
            took = time.monotonic() - self._began
            _instruments.record(OPERATION_DURATION, took, {**self._about, Name.ERROR: error})


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
