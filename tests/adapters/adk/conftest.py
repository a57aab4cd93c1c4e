"""Settings for the tests of the ADK adapter: ADK needs asyncio, and says much on its loggers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from google.adk.sessions.base_session_service import BaseSessionService
from tests.adapters.adk.services import SERVICES, session_service


@pytest.fixture
def anyio_backend() -> str:
    """ADK runs on asyncio only; one test is about what happens elsewhere."""
    return "asyncio"


@pytest.fixture(params=SERVICES)
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    """ADK's session services, one after the other."""
    async with session_service(request.param, tmp_path) as made:
        yield made


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
