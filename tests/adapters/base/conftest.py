"""Where the tests of the base class keep their records: in memory, and in SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from agentsession.host import SqliteRecordStore
from agentsession.protocol import MemoryRecordStore, RecordStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    if request.param == "memory":
        yield MemoryRecordStore()
        return
    made = SqliteRecordStore(tmp_path / "records.db")
    yield made
    anyio.run(made.aclose)
