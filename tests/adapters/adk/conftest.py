"""Settings for the tests of the ADK adapter: ADK needs asyncio, and says much on its loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """ADK runs on asyncio only; one test is about what happens elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _quiet_adk() -> Iterator[None]:
    """ADK logs warnings and tracebacks of what the tests provoke."""
    loggers = [logging.getLogger(name) for name in ("google_adk", "google_genai", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers[:2]:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
