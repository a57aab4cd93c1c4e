"""Spans and metrics of a session, if opentelemetry-api is there: what it tells whoever traces it.

Not for: making them (``_otel.py``, the only module here that imports OpenTelemetry), or a framework's own spans, which
hang below by the context that a run starts in. Rules carried: SEC-01 (no content unless it is switched on).
May import: ``_otel``.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentsession.protocol import Event, Usage

__all__ = ["ModelCall", "ModelCallSpan", "StreamSpans", "stream_spans"]


class ModelCall(Protocol):
    """One model call that is made: what an executor tells of it. No call raises."""

    def chunk(self) -> None:
        """A piece of the answer came; the first one is measured."""
        ...

    def response(
        self,
        usage: Usage | None = None,
        *,
        model: str | None = None,
        response_id: str | None = None,
        finish_reasons: Sequence[str] = (),
    ) -> None:
        """The answer is whole: what it used, the model that gave it, its id, why it ended."""
        ...

    def end(self, error: str | None = None) -> None:
        """The call is over; ``error`` is the type of what went wrong, never its text."""
        ...


class StreamSpans(Protocol):
    """The spans of one session. No call raises, whatever a tracer or an exporter does."""

    events: frozenset[str]
    """The types of events that it wants to be told."""

    def begin(self, stream_id: str, turn_id: str, carrier: Mapping[str, Any] | None) -> None:
        """A stream begins, under the caller's trace: the W3C headers in ``carrier``, else the present context."""
        ...

    def attached(self) -> AbstractContextManager[None]:
        """The stream's span is the current one: what is started inside hangs below it."""
        ...

    def note(self, event: Event) -> None:
        """An event was recorded: a wait begins or ends, a model call used something, the stream ends."""
        ...

    def model_call(self, model: str | None, provider: str | None) -> ModelCall:
        """A model call begins."""
        ...

    def close(self) -> None:
        """The session is closed: what still waits, waits elsewhere or not at all."""
        ...


class ModelCallSpan:
    """A model call as a ``with`` block: it ends with the block, and by an exception with the type of that.

    Without OpenTelemetry, or where it fails, nothing happens.
    """

    def __init__(self, spans: StreamSpans | None, model: str | None, provider: str | None) -> None:
        self._spans = spans
        self._about = (model, provider)
        self._call: ModelCall | None = None

    def __enter__(self) -> ModelCallSpan:
        if self._spans is not None:
            self._call = _tried(lambda: self._spans.model_call(*self._about) if self._spans is not None else None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        call, self._call = self._call, None
        if call is not None:
            _tried(lambda: call.end(kind.__name__ if kind is not None else None))

    def chunk(self) -> None:
        """A piece of the answer came: call it for each, the first one is measured."""
        if self._call is not None:
            _tried(self._call.chunk)

    def response(
        self,
        usage: Usage | None = None,
        *,
        model: str | None = None,
        response_id: str | None = None,
        finish_reasons: Sequence[str] = (),
    ) -> None:
        """The answer is whole: what it used, the model that gave it, its id, why it ended."""
        call = self._call
        if call is not None:
            _tried(lambda: call.response(usage, model=model, response_id=response_id, finish_reasons=finish_reasons))


def stream_spans(
    agent: str, session_id: str, version: str | None = None, *, counts_models: bool = True
) -> StreamSpans | None:
    """What makes a session's spans; ``None`` without opentelemetry-api (the extra ``otel``).

    ``counts_models``: whether agents, model calls and tokens are measured here; not where a framework does it itself.
    """
    made = _maker()
    return made(agent, session_id, version, counts_models=counts_models) if made is not None else None


@functools.cache
def _maker() -> Any:
    try:
        from agentsession.adapters.base._otel import OtelSpans
    except ImportError:
        return None
    return OtelSpans


def _tried(call: Any) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - a tracer or exporter that raises loses its span, never the turn
        return None
