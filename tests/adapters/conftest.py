"""Every async test of the adapters runs on asyncio and on trio; those of ADK, which knows asyncio only, override it."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["kept_open", "reentered"])
def reenter(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
