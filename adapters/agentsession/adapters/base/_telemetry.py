"""Spans of streams, if opentelemetry-api is there: what a session tells whoever traces it.

Not for: making spans (``_otel.py``, the only module here that imports OpenTelemetry), metrics, or a framework's own
spans, which hang below by the context that a run starts in. Rules carried: SEC-01 (no content). May import: ``_otel``.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsession.protocol import Event

__all__ = ["StreamSpans", "stream_spans"]


class StreamSpans(Protocol):
    """The spans of one session. No call raises, whatever a tracer or an exporter does."""

    def begin(self, stream_id: str, turn_id: str, carrier: Mapping[str, Any] | None) -> None:
        """A stream begins, under the caller's trace: the W3C headers in ``carrier``, else the present context."""
        ...

    def attached(self) -> AbstractContextManager[None]:
        """The stream's span is the current one: what is started inside hangs below it."""
        ...

    def note(self, event: Event) -> None:
        """An event was recorded: a wait begins or ends, the stream ends."""
        ...

    def close(self) -> None:
        """The session is closed: what still waits, waits elsewhere or not at all."""
        ...


def stream_spans(agent: str, session_id: str) -> StreamSpans | None:
    """What makes a session's spans; ``None`` without opentelemetry-api (the extra ``otel``)."""
    made = _maker()
    return made(agent, session_id) if made is not None else None


@functools.cache
def _maker() -> Any:
    try:
        from agentsession.adapters.base._otel import OtelSpans
    except ImportError:
        return None
    return OtelSpans
