"""Transactions of the SQL record store: in worker threads, on tables that are ready, with errors that tell no values.

Not for: what is read and written (``_sql.py``). Rules carried: SEC-01. May import: sqlalchemy, anyio, ``_sql_schema``,
``protocol``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from agentsession.host._sql_schema import METADATA, set_version  # first: it says how to get SQLAlchemy
from agentsession.protocol import AgentSessionError, ConfigurationError, InvalidInput

import sqlalchemy as sa  # isort: skip
import sqlalchemy.exc  # isort: skip

__all__ = ["SqlTransactions"]

_T = TypeVar("_T")
_THREADS: Final = 4


class SqlTransactions:
    """The database behind a store."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._is_ready = False
        self._getting_ready = threading.Lock()
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"agentsession.sql.{id(self)}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. The store opens new ones when it is used again."""
        await self._in_thread(self._engine.dispose)

    # --- for a database's own class -----------------------------------------------------------------------------

    def _transaction(self, *, write: bool) -> AbstractContextManager[sa.Connection]:
        """A connection in a transaction."""
        return self._engine.begin()

    def _prepare(self) -> None:
        """Before the first use of the database."""

    def _after_delete(self) -> None:
        """After a record was deleted."""

    def _describe(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    # --- the work -----------------------------------------------------------------------------------------------

    async def _write(self, work: Callable[[sa.Connection], _T]) -> _T:
        return await self._in_thread(self._transact, work, True)

    async def _read(self, work: Callable[[sa.Connection], _T]) -> _T:
        return await self._in_thread(self._transact, work, False)

    def _transact(self, work: Callable[[sa.Connection], _T], write: bool) -> _T:
        self._get_ready()
        try:
            with self._transaction(write=write) as connection:
                return work(connection)
        except sqlalchemy.exc.DBAPIError as error:
            error.hide_parameters = True  # its text would hold the events
            if isinstance(error, sqlalchemy.exc.IntegrityError):
                raise  # the caller's to explain
            raise self._failed(error.orig) from error
        except UnicodeDecodeError as error:  # damaged text; the driver's own message could not be read either
            raise self._failed(error) from error
        except OverflowError as error:
            raise InvalidInput("a number is larger than a database holds", expected="less than 2**63") from error
        except UnicodeEncodeError as error:
            raise InvalidInput("a text holds half a character", got="a surrogate without its other half") from error

    def _failed(self, error: BaseException | None) -> AgentSessionError:
        """What to tell of a driver's exception, whose text holds no values."""
        got = str(error)
        if "locked" in got or "busy" in got:
            fix = "end the other program that writes to it, then go on: what was acknowledged is stored"
        else:
            fix = "mend the database (disk, rights, a copy of it), then load the session"
        return AgentSessionError(
            "the record database failed", where=self._describe(), got=got, fix=fix, id="record-store"
        )

    async def _in_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        # A limiter of its own, one for each event loop: what fills the default one must not hold up the record.
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(_THREADS)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(function, *args, limiter=limiter)

    def _get_ready(self) -> None:
        with self._getting_ready:
            if self._is_ready:
                return
            try:
                self._prepare()
                with self._transaction(write=True) as connection:
                    METADATA.create_all(connection)
                    set_version(connection, self._describe())
            except sqlalchemy.exc.DBAPIError as error:
                if "locked" in str(error.orig):
                    raise self._failed(error.orig) from error
                raise ConfigurationError(
                    "the record database cannot be used",
                    where=self._describe(),
                    got=str(error.orig),
                    fix="name another file, or one that was made by agentsession",
                ) from error
            except UnicodeDecodeError as error:
                raise self._failed(error) from error
            self._is_ready = True
