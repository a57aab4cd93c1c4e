"""From an executor's key to the executor: what a descriptor's ``executor`` field names.

Not for: executors themselves; the host never imports one. May import: the standard library, ``protocol``.
"""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Callable
from typing import Any, Final, cast

from agentsession.protocol import AgentDescriptor, AgentExecutor, AgentSessionError, ConfigurationError

__all__ = ["ENTRY_POINT_GROUP", "ExecutorCreator", "SessionFactory"]

ENTRY_POINT_GROUP: Final = "agentsession.executors"
"""Where an installed distribution announces its executors: a key, and a function that returns the creator.

The function takes no arguments; it is called when the key is first asked for.
"""

ExecutorCreator = Callable[..., AgentExecutor]
"""Makes an executor; what it takes is its own."""


class SessionFactory:
    """Maps executor keys to creators: those registered here first, then those of installed distributions."""

    def __init__(self) -> None:
        self._registered: dict[str, ExecutorCreator] = {}

    def register(self, key: str, creator: ExecutorCreator) -> None:
        """Use ``creator`` for ``key``, also when a distribution announces one.

        Raises :class:`ConfigurationError` when the key was registered before.
        """
        if key in self._registered:
            raise ConfigurationError(f"executor {key!r} is registered twice", fix="choose another key")
        self._registered[key] = creator

    def keys(self) -> list[str]:
        """The keys that can be asked for; what an announced one needs may still be missing."""
        announced = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
        return sorted({*self._registered, *(point.name for point in announced)})

    def creator(self, key: str) -> ExecutorCreator:
        """The creator for ``key``. Raises :class:`ConfigurationError`: unknown, ambiguous, or an extra is missing."""
        if key in self._registered:
            return self._registered[key]
        points = list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=key))
        distinct = {point.value: point for point in points}
        if not distinct:
            near = difflib.get_close_matches(key, self.keys(), n=1)
            raise ConfigurationError(
                f"no executor is called {key!r}",
                expected=", ".join(self.keys()) or "none is installed",
                fix=f"did you mean {near[0]!r}?" if near else "install the distribution that has it, or register one",
            )
        if len(distinct) > 1:
            raise ConfigurationError(
                f"several distributions announce an executor {key!r}",
                got=", ".join(sorted(distinct)),
                fix="uninstall one, or register the one you mean",
            )
        (point,) = distinct.values()
        try:
            found = point.load()()
        except AgentSessionError:  # it says itself what is missing
            raise
        except (ImportError, AttributeError, TypeError) as error:
            raise ConfigurationError(
                f"executor {key!r} cannot be loaded",
                where=point.value,
                got=f"{type(error).__name__}: {error}",
                fix=_how_to_install(point, key),
                id="extra-missing",
            ) from error
        if not callable(found):
            raise ConfigurationError(f"executor {key!r} is not callable", where=point.value, got=type(found).__name__)
        return cast(ExecutorCreator, found)

    def create(self, executor: str | AgentDescriptor, /, *args: Any, **kwargs: Any) -> AgentExecutor:
        """Make the executor of a key, or the one that a descriptor names; ``args`` go to its creator."""
        key = executor.executor if isinstance(executor, AgentDescriptor) else executor
        made = self.creator(key)(*args, **kwargs)
        if not isinstance(made, AgentExecutor):
            raise ConfigurationError(f"the creator of {key!r} made no executor", got=type(made).__name__)
        return made


def _how_to_install(point: importlib.metadata.EntryPoint, key: str) -> str:
    distribution = point.dist
    if distribution is None:
        return "install what it needs"
    extras = distribution.metadata.get_all("Provides-Extra") or []
    return f'pip install "{distribution.name}[{key}]"' if key in extras else f"reinstall {distribution.name}"
