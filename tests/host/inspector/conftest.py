"""One real browser for each test of the inspector that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.browser import find_browser
from tests.host.inspector.chrome import Chrome, chrome


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def browser() -> AsyncIterator[Chrome]:
    async with chrome(find_browser()) as found:
        yield found
