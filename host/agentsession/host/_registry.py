"""From an executor's key to the executor: what a descriptor's ``executor`` field names.

Not for: executors themselves; the host never imports one. May import: the standard library, ``protocol``.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
from collections.abc import Callable
from typing import Any, Final, cast

from agentsession.protocol import AgentDescriptor, AgentExecutor, AgentSessionError, ConfigurationError

__all__ = ["ENTRY_POINT_GROUP", "ExecutorCreator", "SessionFactory", "checked_executor"]

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
            announced = point.load()
            is_callable = callable(announced)
            found = announced() if is_callable and _fits(announced) is None else announced
        except AgentSessionError:  # it says itself what is missing
            raise
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"executor {key!r} cannot be loaded",
                where=point.value,
                got=f"{type(error).__name__}: {error}",
                fix=_how_to_install(point, key),
                id="extra-missing",
            ) from error
        if found is announced or not callable(found):
            raise ConfigurationError(
                f"what is announced for executor {key!r} does not return a creator",
                where=point.value,
                got=f"{_shown(announced)}, which needs arguments"
                if is_callable and found is announced
                else type(found).__name__,
                expected="a function without arguments that returns the executor's class, or a function that makes one",
                fix=f"announce one that says: return {_shown(announced)}" if is_callable else None,
            )
        return cast(ExecutorCreator, found)

    def create(self, executor: str | AgentDescriptor, /, *args: Any, **kwargs: Any) -> AgentExecutor:
        """Make the executor of a key, or the one that a descriptor names; ``args`` go to its creator.

        Raises :class:`ConfigurationError`, also where the creator needs other arguments.
        """
        key = executor.executor if isinstance(executor, AgentDescriptor) else executor
        creator = self.creator(key)
        wrong = _fits(creator, *args, **kwargs)
        if wrong is not None:
            raise ConfigurationError(
                f"executor {key!r} cannot be made of these arguments",
                where=_shown(creator),
                got=wrong,
                fix=f"create({key!r}, ...) with what it takes, or register a key of your own: "
                f"register('my-{key}', lambda: {_shown(creator)}(...))",
            )
        made = creator(*args, **kwargs)
        if not isinstance(made, AgentExecutor):
            raise ConfigurationError(f"the creator of {key!r} made no executor", got=type(made).__name__)
        return made


def checked_executor(executor: object) -> None:
    """Raise :class:`ConfigurationError` for what is no executor, such as the agent that one is made of."""
    if not callable(getattr(executor, "open", None)):
        is_key = isinstance(executor, (str, AgentDescriptor))
        raise ConfigurationError(
            f"{_shown(executor)} is no executor",
            got=type(executor).__name__,
            expected="an executor that was entered",
            fix="async with SessionFactory().create(...) as executor:"
            if is_key
            else "make one of it: async with AdkExecutor(agent) as executor: does for an agent of Google ADK",
        )


def _fits(creator: Callable[..., object], /, *args: Any, **kwargs: Any) -> str | None:
    """Why it cannot be called so; ``None``: it can, as far as can be seen."""
    try:
        signature = inspect.signature(creator)
    except (TypeError, ValueError):  # some callables of C have none
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _shown(value: object) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__


def _how_to_install(point: importlib.metadata.EntryPoint, key: str) -> str:
    distribution = point.dist
    if distribution is None:
        return "install what it needs"
    extras = distribution.metadata.get_all("Provides-Extra") or []
    return f'pip install "{distribution.name}[{key}]"' if key in extras else f"reinstall {distribution.name}"
