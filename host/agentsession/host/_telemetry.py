"""What a host measures and traces, if opentelemetry-api is there (the extra ``otel``): its tools, policy and hooks.

Not for: the session's own spans, which its executor makes, or the names (``agentsession.protocol.telemetry``).
Rules carried: SEC-01 (no arguments and no results unless they are switched on; never the text of an exception).
May import: ``_masking``, ``_outcome``, ``protocol``; opentelemetry-api, where it is needed.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from agentsession.host._masking import Masker
from agentsession.host._outcome import ToolOutcome
from agentsession.protocol.telemetry import (
    HOOK_DURATION,
    POLICY_DURATION,
    SCOPE,
    TOOL_DURATION,
    Instruments,
    Name,
    tells_content,
)

__all__ = ["ToolSpan", "measure_hook", "measure_policy", "tool_span", "trace_headers", "under_trace"]

logger = logging.getLogger("agentsession.host")

_LONGEST: Final = 8_000
"""Characters of content in one attribute."""


class ToolSpan:
    """The span of a tool that runs; does nothing without OpenTelemetry, and never raises."""

    def __init__(self, span: Any = None) -> None:
        self._span = span
        self._told: list[Any] = []
        """What was told: what is a secret in the arguments is one in the result."""
        self.error: str | None = None

    def failed(self, code: str) -> None:
        """The tool failed, with a code."""
        self.error = code
        if self._span is not None:
            self._span.set_attribute(Name.ERROR, code)
            self._span.set_status(_trace().StatusCode.ERROR)

    def arguments(self, args: Mapping[str, Any]) -> None:
        """What the tool is given, where content is switched on; secrets are masked."""
        self._content(Name.TOOL_ARGUMENTS, lambda: dict(args))

    def result(self, outcome: ToolOutcome) -> None:
        """What the tool gave, where content is switched on; secrets are masked."""
        self._content(Name.TOOL_RESULT, lambda: _told(outcome))

    def _content(self, name: str, make: Callable[[], Any]) -> None:
        if self._span is None or not self._span.is_recording() or not tells_content():
            return
        try:
            value = make()
            self._told.append(value)
            text = json.dumps(Masker(self._told).json(value), ensure_ascii=False, default=str)
            self._span.set_attribute(name, text[:_LONGEST])
        except Exception:  # logged; telemetry must not change what happens
            logger.debug("content of a span was lost", exc_info=True)


@contextmanager
def tool_span(
    name: str, request_id: str, session_id: str | None, args: Mapping[str, Any] | None = None
) -> Iterator[ToolSpan]:
    """``execute_tool NAME`` is the current span inside, under the caller's; tell it when the tool failed."""
    trace = _trace()
    if trace is None:
        yield ToolSpan()
        return
    attributes = {
        Name.OPERATION: "execute_tool",
        Name.TOOL: name,
        Name.TOOL_TYPE: "function",
        Name.TOOL_CALL: request_id,
        **({Name.CONVERSATION: session_id} if session_id else {}),
    }
    began = time.monotonic()
    told = ToolSpan()
    try:
        with trace.get_tracer(SCOPE).start_as_current_span(
            f"execute_tool {name}", attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            told = ToolSpan(span)
            if args is not None:
                told.arguments(args)
            yield told
    except BaseException:
        told.error = told.error or "cancelled"
        raise
    finally:
        about = {Name.OPERATION: "execute_tool", Name.TOOL: name, Name.ERROR: told.error}
        _instruments.record(TOOL_DURATION, time.monotonic() - began, about)


@contextmanager
def measure_policy() -> Iterator[Callable[[str], None]]:
    """How long the policy took; call what it gives with the decision."""
    if _trace() is None:
        yield _nothing
        return
    began, decided = time.perf_counter(), list[str]()
    yield decided.append
    _instruments.record(
        POLICY_DURATION, time.perf_counter() - began, {Name.POLICY_DECISION: decided[-1] if decided else None}
    )


@contextmanager
def measure_hook(point: str) -> Iterator[Callable[[str], None]]:
    """How long the hooks took at a point; call what it gives with what they said."""
    if _trace() is None:
        yield _nothing
        return
    began, said = time.perf_counter(), list[str]()
    yield said.append
    about = {Name.HOOK_POINT: point, Name.HOOK_ACTION: said[-1] if said else "proceed"}
    _instruments.record(HOOK_DURATION, time.perf_counter() - began, about)


def trace_headers() -> dict[str, str]:
    """The W3C headers (``traceparent``, ``tracestate``) of the current span, for a call to somewhere else.

    Empty without OpenTelemetry, and where no span is current. Inside a host tool, and at a hook, the current span is
    one of the session's trace.
    """
    if _trace() is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    try:
        TraceContextTextMapPropagator().inject(headers)
    except Exception:  # logged; telemetry must not change what happens
        logger.debug("the trace context could not be told", exc_info=True)
        return {}
    return headers


@contextmanager
def under_trace(carrier: Mapping[str, Any] | None) -> Iterator[None]:
    """What runs inside hangs under the span that the W3C headers of ``carrier`` name, as the session's streams do.

    Headers that cannot be read are passed over.
    """
    if not carrier or _trace() is None:
        yield
        return
    from opentelemetry import context as contexts
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers = {name.lower(): value for name, value in carrier.items() if isinstance(value, str)}
    try:
        found = TraceContextTextMapPropagator().extract(headers, context=contexts.get_current())
    except Exception:  # logged; what a caller sends must not keep a turn from running
        logger.debug("the trace context could not be read", exc_info=True)
        yield
        return
    token = contexts.attach(found)
    try:
        yield
    finally:
        contexts.detach(token)


def _told(outcome: ToolOutcome) -> dict[str, Any]:
    wire = outcome.answer("call").to_wire()
    return {name: wire[name] for name in ("data", "content") if name in wire}


def _nothing(_: str) -> None:
    return None


@functools.cache
def _trace() -> Any:  # the module, for which there is no type when it is absent
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def _meter() -> Any:
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    return metrics.get_meter(SCOPE)


_instruments: Final = Instruments(_meter)
