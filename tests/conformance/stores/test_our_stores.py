"""Our own stores under the suite that authors of stores run."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from agentsession.conformance.stores.suite import RecordStoreConformance
from agentsession.host import SqliteRecordStore, SqlRecordStore
from agentsession.protocol import MemoryRecordStore, RecordStore


class TestMemory(RecordStoreConformance):
    durable = False

    def factory(self, folder: Path) -> RecordStore:
        return MemoryRecordStore()


class TestSqlite(RecordStoreConformance):
    def factory(self, folder: Path) -> RecordStore:
        return SqliteRecordStore(folder / "records.db")


class TestSqliteOnTrio(TestSqlite):
    backend = "trio"


class TestSqlOnAnEngine(RecordStoreConformance):
    def factory(self, folder: Path) -> RecordStore:
        return SqlRecordStore(
            sa.create_engine(
                sa.URL.create("sqlite", database=str(folder / "records.db")),
                connect_args={"check_same_thread": False, "timeout": 30},
            )
        )
