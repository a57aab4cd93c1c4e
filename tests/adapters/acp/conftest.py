"""The ACP SDK knows asyncio only. Tests look whether a process was left behind."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
