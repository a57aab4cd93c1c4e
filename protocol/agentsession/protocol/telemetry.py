"""The names that spans and metrics have, what is measured, and whether content may be told: one place for all of them.

Not for: making spans (``agentsession.adapters.base``, ``agentsession.host``). Rules carried: SEC-01 (no content and no
arguments unless :func:`tells_content`). May import: the standard library; whoever uses it brings OpenTelemetry.

The ``gen_ai`` names are our own strings: OpenTelemetry deprecates its constants for them, and moves them to a package
that is not released. A test holds each of them. Attributes of metrics never hold an id: each would be a time series.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

__all__ = [
    "AGENT_DURATION",
    "CONTENT_SWITCH",
    "COST",
    "FIRST_CHUNK",
    "HOOK_DURATION",
    "METRICS",
    "OPERATION_DURATION",
    "POLICY_DURATION",
    "SCOPE",
    "TOKENS",
    "TOOL_DURATION",
    "WAIT_DURATION",
    "Instruments",
    "Metric",
    "Name",
    "tells_content",
]

_logger = logging.getLogger("agentsession.protocol")

SCOPE: Final = "agentsession"
"""The name of the tracer and of the meter."""
CONTENT_SWITCH: Final = "AGENTSESSION_OTEL_CONTENT"
"""The variable that lets content into spans: what is said, arguments and results."""


def tells_content(environ: Mapping[str, str] | None = None) -> bool:
    """Whether spans may hold content. Only ``1``, ``true``, ``yes`` and ``on`` say so; metrics never hold any."""
    value = (os.environ if environ is None else environ).get(CONTENT_SWITCH, "")
    return value.strip().lower() in ("1", "true", "yes", "on")


class Name:
    """Attributes of spans and metrics."""

    OPERATION: Final = "gen_ai.operation.name"
    PROVIDER: Final = "gen_ai.provider.name"
    AGENT: Final = "gen_ai.agent.name"
    AGENT_VERSION: Final = "gen_ai.agent.version"
    CONVERSATION: Final = "gen_ai.conversation.id"
    REQUEST_MODEL: Final = "gen_ai.request.model"
    RESPONSE_MODEL: Final = "gen_ai.response.model"
    RESPONSE_ID: Final = "gen_ai.response.id"
    FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
    INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
    CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
    REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
    TOKEN_TYPE: Final = "gen_ai.token.type"
    TOOL: Final = "gen_ai.tool.name"
    TOOL_TYPE: Final = "gen_ai.tool.type"
    TOOL_CALL: Final = "gen_ai.tool.call.id"
    TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
    TOOL_RESULT: Final = "gen_ai.tool.call.result"
    INPUT_MESSAGES: Final = "gen_ai.input.messages"
    OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
    ERROR: Final = "error.type"
    STREAM: Final = "agentsession.stream.id"
    TURN: Final = "agentsession.turn.id"
    END: Final = "agentsession.stream_end.reason"
    REQUEST: Final = "agentsession.request.id"
    WAIT_KIND: Final = "agentsession.wait.kind"
    WAIT_ACTION: Final = "agentsession.wait.action"
    POLICY_DECISION: Final = "agentsession.policy.decision"
    HOOK_POINT: Final = "agentsession.hook.point"
    HOOK_ACTION: Final = "agentsession.hook.action"


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """Something that is measured."""

    name: str
    unit: str
    description: str
    kind: Literal["histogram", "counter"] = "histogram"
    buckets: tuple[float, ...] | None = None


_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_LONG: Final = (0.1, 0.4, 1.6, 6.4, 25.6, 102.4, 409.6, 1638.4, 6553.6, 26214.4, 104857.6)
_SHORT: Final = (0.00001, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.02, 0.1, 1.0, 10.0, 60.0)
_COUNTS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)

OPERATION_DURATION: Final = Metric(
    "gen_ai.client.operation.duration", "s", "How long a model call took.", buckets=_SECONDS
)
FIRST_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk", "s", "From a model call to the first piece of its answer.",
    buckets=_SECONDS,
)  # fmt: skip
TOKENS: Final = Metric("gen_ai.client.token.usage", "{token}", "Tokens of a model call.", buckets=_COUNTS)
AGENT_DURATION: Final = Metric("gen_ai.invoke_agent.duration", "s", "How long a stream of a turn took.", buckets=_LONG)
TOOL_DURATION: Final = Metric("gen_ai.execute_tool.duration", "s", "How long a host's tool ran.", buckets=_SECONDS)
POLICY_DURATION: Final = Metric(
    "agentsession.policy.duration", "s", "How long the policy took to decide on a call.", buckets=_SHORT
)
HOOK_DURATION: Final = Metric("agentsession.hook.duration", "s", "How long the hooks took at a point.", buckets=_SHORT)
WAIT_DURATION: Final = Metric(
    "agentsession.wait.duration", "s", "From a request for the host to its answer.", buckets=_LONG
)
COST: Final = Metric("agentsession.cost", "USD", "What model calls were reported to cost.", "counter")
METRICS: Final = (
    OPERATION_DURATION,
    FIRST_CHUNK,
    TOKENS,
    AGENT_DURATION,
    TOOL_DURATION,
    POLICY_DURATION,
    HOOK_DURATION,
    WAIT_DURATION,
    COST,
)


class Instruments:
    """Records what was measured; ``meter`` gives OpenTelemetry's meter, or ``None`` where there is none.

    No call raises: a meter or an exporter that fails loses the measurement, and nothing else.
    """

    def __init__(self, meter: Callable[[], Any]) -> None:
        self._meter = meter
        self._made: dict[str, Any] = {}

    def record(self, metric: Metric, value: float, attributes: Mapping[str, str | None]) -> None:
        """Record a value; attributes that are ``None`` are left out."""
        try:
            instrument = self._made.get(metric.name) or self._make(metric)
            if instrument is None:
                return
            known = {name: given for name, given in attributes.items() if given is not None}
            if metric.kind == "counter":
                instrument.add(value, known)
            else:
                instrument.record(value, known)
        except Exception:  # logged; telemetry must not change what happens
            _logger.debug("a measurement of %s was lost", metric.name, exc_info=True)

    def _make(self, metric: Metric) -> Any:
        meter = self._meter()
        if meter is None:
            return None
        about = {"unit": metric.unit, "description": metric.description}
        if metric.kind == "counter":
            made = meter.create_counter(metric.name, **about)
        else:
            made = meter.create_histogram(metric.name, **about, explicit_bucket_boundaries_advisory=metric.buckets)
        self._made[metric.name] = made
        return made
