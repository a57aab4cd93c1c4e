"""ADK's session services for tests, by name, and closed when the test is done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

__all__ = ["SERVICES", "session_ids", "session_service"]

SERVICES = ("memory", "sqlite", "database")


@asynccontextmanager
async def session_service(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    """A new service of this kind; what lasts is kept in ``folder``."""
    if kind == "memory":
        yield InMemorySessionService()
    elif kind == "sqlite":
        yield SqliteSessionService(str(folder / "adk.db"))
    else:
        from google.adk.sessions.database_session_service import DatabaseSessionService

        async with DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk-sqlalchemy.db'}") as service:
            yield service


async def session_ids(service: BaseSessionService) -> list[str]:
    """The ids of the sessions that the service has for the agent ``root``."""
    listed = await service.list_sessions(app_name="root", user_id="local")
    return sorted(found.id for found in listed.sessions)
