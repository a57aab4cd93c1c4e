"""Settings for the tests of the ADK adapter: ADK needs asyncio, and says much on its loggers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adapters.adk.driving import Driven, Visit, assert_valid_history, verify
from tests.adapters.adk.services import SERVICES, session_service

from agentsession.adapters.adk import AdkExecutor
from agentsession.protocol import HostCapabilities, MemoryRecordStore, OpenOptions


@pytest.fixture
def anyio_backend() -> str:
    """ADK runs on asyncio only; one test is about what happens elsewhere."""
    return "asyncio"


@pytest.fixture(params=SERVICES)
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    """ADK's session services, one after the other."""
    async with session_service(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    """Opens the session, and after that loads it, in executors that share only what is stored."""
    service, store, visits = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore(), itertools.count()

    @asynccontextmanager
    async def visited(
        root: LlmAgent, host: HostCapabilities | None = None, *, parked: bool = False
    ) -> AsyncIterator[Driven]:
        options = OpenOptions(session_id="s1", host=host or HostCapabilities())
        async with AdkExecutor(root, session_service=service, store=store, parked=parked) as executor:
            opened = next(visits) == 0
            session = await (executor.open(options) if opened else executor.load("s1", options))
            yield Driven(executor, session)
            verify(session)
        assert_valid_history(root.model)

    return visited


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
