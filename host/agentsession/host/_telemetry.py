"""A span around each tool that the host runs, if opentelemetry-api is there (the extra ``otel``).

Not for: the session's own spans, which its executor makes. Rules carried: SEC-01 (no arguments, no results, no text
of an exception). May import: opentelemetry-api, where it is needed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

__all__ = ["tool_span"]

logger = logging.getLogger("agentsession.host")

Failed = Callable[[str], None]
"""Says that the tool failed, with a code."""


@contextmanager
def tool_span(name: str, request_id: str, session_id: str | None) -> Iterator[Failed]:
    """``execute_tool NAME`` is the current span inside, under the caller's; call what it gives when the tool failed."""
    trace = _trace()
    if trace is None:
        with nullcontext():
            yield lambda code: None
        return
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": request_id,
        **({"gen_ai.conversation.id": session_id} if session_id else {}),
    }
    with trace.get_tracer("agentsession").start_as_current_span(
        f"execute_tool {name}", attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:

        def failed(code: str) -> None:
            span.set_attribute("error.type", code)
            span.set_status(trace.StatusCode.ERROR)

        yield failed


@functools.cache
def _trace() -> Any:  # the module, for which there is no type when it is absent
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace
