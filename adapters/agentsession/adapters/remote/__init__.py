"""Agents behind the contract over HTTP. Needs the ``remote`` extra: ``pip install "agent-session-protocol[remote]"``.

Not for: serving (``agentsession.host.http``). Rules carried: none here. May import: the modules beside it, when a name
of theirs is first used; importing this package imports nothing of httpx2. ::

    async with RemoteExecutor("https://agents.example", token=token) as executor:
        session = await executor.open()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsession.adapters.remote._backoff import Backoff
    from agentsession.adapters.remote._executor import RemoteExecutor, entry_point
    from agentsession.adapters.remote._session import RemoteSession

__all__ = ["Backoff", "RemoteExecutor", "RemoteSession", "entry_point"]

_HOMES = {"Backoff": "_backoff", "RemoteExecutor": "_executor", "RemoteSession": "_session", "entry_point": "_executor"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
