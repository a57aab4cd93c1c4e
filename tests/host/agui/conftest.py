"""Servers are uvicorn's, which runs on asyncio; their clients in JavaScript are installed once."""

from __future__ import annotations

import pytest
from tests.host.agui.npm_client import Npm, installed


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def npm() -> Npm:
    return installed()
