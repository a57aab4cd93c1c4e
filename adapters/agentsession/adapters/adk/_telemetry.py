"""What ADK's own spans may hold: no content, unless the person who runs the process has said otherwise.

Not for: the session's spans (``agentsession.adapters.base``); ADK's hang below by the context that a run starts in.
Rules carried: SEC-01. May import: ``agentsession.protocol``, google.adk.
"""

from __future__ import annotations

import functools
import os
from typing import Final

from google.adk.telemetry.context import ContentCapturingMode, TelemetryConfig

from agentsession.protocol.telemetry import tells_content

__all__ = ["without_content"]

SWITCHES: Final = ("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
"""Variables that let content into spans. With the older of its two schemas ADK takes the first for set."""


@functools.cache
def without_content() -> TelemetryConfig | None:
    """The configuration of a run: no prompts, arguments and results in ADK's spans; ``None``: the variables decide."""
    if tells_content() or any(os.environ.get(name) is not None for name in SWITCHES):
        return None
    return TelemetryConfig(capture_message_content=ContentCapturingMode.NO_CONTENT)
