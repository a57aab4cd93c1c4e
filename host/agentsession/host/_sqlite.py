"""Records in one SQLite file. Not for: other databases (``_sql.py``). Rules carried: PER-01, PER-02.

May import: sqlalchemy, ``_sql``. The file is made readable by its owner alone; deleted content is overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from agentsession.host._sql import SqlRecordStore
from agentsession.protocol import ConfigurationError

import sqlalchemy as sa  # isort: skip  # _sql says how to get it when it is missing
from sqlalchemy.event import listen  # isort: skip

__all__ = ["SqliteRecordStore"]

_BEGIN: Final = "agentsession_begin"


class SqliteRecordStore(SqlRecordStore):
    """Keeps records in the SQLite file ``path``, which is made on first use, with mode 0600.

    Several processes may use the file at once: the write-ahead log lets readers read while one writes, and a writer
    waits up to ``busy_timeout_s`` for another. The file must be on a local disk.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 30.0) -> None:
        self.path = Path(path).expanduser()
        if str(path) in ("", ":memory:"):
            raise ConfigurationError(
                "the SQLite record store needs a file", got=repr(str(path)), fix="use MemoryRecordStore for tests"
            )
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(self.path)),
            connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
            hide_parameters=True,  # an error's text would hold the events
        )
        listen(engine, "connect", _on_connect)
        listen(engine, "begin", _on_begin)
        super().__init__(engine)

    def _transaction(self, *, write: bool) -> AbstractContextManager[sa.Connection]:
        # A write that begins as a read can fail at its first write without waiting; IMMEDIATE waits at the start.
        return _begun(self._engine, "BEGIN IMMEDIATE" if write else "BEGIN")

    def _prepare(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The log and its index get the file's own mode from SQLite.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            got = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(
                "the record file cannot be opened", where=str(self.path), got=got, fix="name another file"
            ) from error

    def _after_delete(self) -> None:
        with self._engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the log may still hold what was deleted

    def _describe(self) -> str:
        return str(self.path)


@contextmanager
def _begun(engine: sa.Engine, begin: str) -> Generator[sa.Connection]:
    with engine.connect() as connection:
        connection = connection.execution_options(**{_BEGIN: begin})
        with connection.begin():
            yield connection


def _on_connect(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late and only for some statements
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _on_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
