"""What ADK's own spans may hold: no content, unless the person who runs the process has said otherwise.

Not for: the session's spans (``agentsession.adapters.base``); ADK's hang below by the context that a run starts in.
Rules carried: SEC-01. May import: ``agentsession.protocol``, google.adk, opentelemetry (which ADK brings).
"""

from __future__ import annotations

import functools
import os
from typing import Final

from google.adk.telemetry.context import ContentCapturingMode, TelemetryConfig
from opentelemetry import _logs, metrics, trace

from agentsession.protocol.telemetry import tells_content

__all__ = ["records_nothing", "without_content"]

SWITCHES: Final = ("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
"""Variables that let content into spans. With the older of its two schemas ADK takes the first for set."""


def records_nothing() -> bool:
    """Whether nobody has set up OpenTelemetry: its API has providers of its own, which do nothing, until then."""
    return all(
        type(provider).__module__.startswith(api.__name__)
        for api, provider in (
            (trace, trace.get_tracer_provider()),
            (_logs, _logs.get_logger_provider()),
            (metrics, metrics.get_meter_provider()),
        )
    )


def without_content() -> TelemetryConfig | None:
    """The configuration of a run: no prompts, arguments and results in ADK's spans; ``None``: the variables decide.

    Where nobody records, ADK is kept from describing each chunk of an answer, which is a fifth of what a delta costs.
    """
    if _are_told():
        return None
    return _cheapest() if records_nothing() else _quiet()


@functools.cache
def _are_told() -> bool:
    return tells_content() or any(os.environ.get(name) is not None for name in SWITCHES)


@functools.cache
def _quiet() -> TelemetryConfig:
    return TelemetryConfig(capture_message_content=ContentCapturingMode.NO_CONTENT)


@functools.cache
def _cheapest() -> TelemetryConfig:
    # The older of ADK's schemas describes a call once, at its end.
    return TelemetryConfig(
        capture_message_content=ContentCapturingMode.NO_CONTENT, genai_semconv_stability_opt_in="stable"
    )
