"""Tools by name: a host's own, and those of providers, such as a tool server, side by side.

Not for: one tool (``_tools.py``), a connection to a server (``mcp``). Rules carried: none of its own.
May import: ``_outcome``, ``_places``, ``_tools``, ``protocol``.

Two tools of one name are refused: which of them ran would depend on their order. A provider's list may change while
the host runs; a name that it takes then from another is left where it was, so that a server cannot slip its own tool
under a name that people have learned to allow.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from agentsession.host._outcome import ToolOutcome, unknown_tool
from agentsession.host._places import Places
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool
from agentsession.protocol import ConfigurationError, ToolDescriptor

__all__ = [
    "Namespaced",
    "ToolBox",
    "ToolLike",
    "ToolProvider",
    "connected",
    "is_provider",
    "legal_name",
    "provider_name",
]

logger = logging.getLogger("agentsession.host")

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
"""A tool's name that every model takes."""
_PROVIDER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_TAKEN = ("agent", "host")
"""What policies call tools without a provider."""


@runtime_checkable
class ToolProvider(Protocol):
    """Where a host finds tools; a :class:`ToolBox` is one, a connection to a tool server is another."""

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        """What is declared to the agent."""
        ...

    def get(self, name: str | None) -> Tool | None:
        """The tool of this name, if there is one."""
        ...


ToolLike = Tool | Callable[..., Any] | tuple[ToolDescriptor, Callable[..., Any]]
"""What can be one tool: a tool, a typed function, or a descriptor with a function of a dictionary."""


class ToolBox:
    """Tools by name, and providers of tools. Two tools of one name are refused, and the error says whose they are."""

    def __init__(self, tools: Iterable[ToolLike | ToolProvider] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._providers: list[ToolProvider] = []
        self._owners: dict[str, ToolProvider | None] = {}
        """Whose a name is; ``None``: of the box itself."""
        self._known: list[ToolProvider] = []
        """The providers whose first list was seen."""
        for item in tools:
            if is_provider(item):
                self.add_provider(item)
            else:
                self.add(cast(ToolLike, item))

    def add_provider(self, provider: ToolProvider) -> None:
        """Put in all tools that a provider has and will have.

        They are first looked at when they are asked for, because the provider may not be connected yet.
        """
        self._providers.append(provider)

    def add(self, item: ToolLike) -> Tool:
        """Put a tool in. Raises :class:`ConfigurationError` when its name is taken."""
        if isinstance(item, tuple):
            item = Tool(*item)  # pyright: ignore[reportArgumentType]  # it thinks of tuples that are callable
        elif not isinstance(item, Tool):
            item = Tool.from_function(item)
        if item.name in self._owners:
            if self._owners[item.name] is not None:
                raise _clash(item.name, self._owners[item.name], None)
            raise ConfigurationError(f"two tools are called {item.name!r}", fix="rename one: @tool(name=...)")
        self._tools[item.name] = item
        self._owners[item.name] = None
        return item

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        """What is declared to the agent: the box's own in the order of adding, then the providers'.

        Raises :class:`ConfigurationError` when a name is taken twice.
        """
        found = [item.descriptor for item in self._tools.values()]
        for provider in self._providers:
            found += [each for each in provider.descriptors if self._is_owner(provider, each.name)]
            if not any(provider is known for known in self._known):
                self._known.append(provider)
        return found

    def get(self, name: str | None) -> Tool | None:
        """The tool of this name, if there is one."""
        if not name:
            return None
        for provider in self._providers if name not in self._owners else ():
            if provider.get(name) is not None:
                self._owners[name] = provider
                break
        owner = self._owners.get(name)
        return self._tools.get(name) if owner is None else owner.get(name)

    def _is_owner(self, provider: ToolProvider, name: str) -> bool:
        owner = self._owners.setdefault(name, provider)
        if owner is provider:
            return True
        if not any(provider is known for known in self._known):
            raise _clash(name, owner, provider)
        logger.warning("%s lists a tool %r, which is another's; it is left out", _named(provider), name)
        return False

    def __iter__(self) -> Iterator[Tool]:
        for descriptor in self.descriptors:
            tool = self.get(descriptor.name)
            if tool is not None:
                yield tool

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    async def run(self, name: str | None, args: object, context: ToolContext | None = None) -> ToolOutcome:
        """Run a tool by name; a name that is not here is an error result, like bad arguments. Policy is not asked."""
        found = self.get(name)
        if found is None:
            return unknown_tool(name, [descriptor.name for descriptor in self.descriptors])
        return await found.run(args, context)


class Namespaced:
    """Another provider's tools with a prefix: ``Namespaced("fs", provider)`` offers its ``read`` as ``fs_read``.

    Policies know it as ``fs:read`` (:attr:`PolicyRequest.qualified_name`). A name that models do not take is made one
    that they do.
    ``prefix``: instead of the name and ``_``; ``""`` for none.
    ``trusted``: whether the annotations of its tools may loosen; ``None`` leaves each tool as it is.
    ``max_parallel``: how many calls of its tools run at once.

    Raises :class:`ConfigurationError` for a name that is none.
    """

    def __init__(
        self,
        name: str,
        provider: ToolProvider,
        *,
        prefix: str | None = None,
        trusted: bool | None = None,
        max_parallel: int | None = None,
    ) -> None:
        self.name = provider_name(name)
        self.prefix = f"{name}_" if prefix is None else prefix
        self._provider = provider
        self._trusted = trusted
        self._places = None if max_parallel is None else Places(max_parallel, f"provider {name!r}")

    def __repr__(self) -> str:
        return f"Namespaced({self.name!r})"

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        """What is declared to the agent, under its names here."""
        return [
            each.model_copy(update={"name": legal_name(self.prefix, each.name)}) for each in self._provider.descriptors
        ]

    def get(self, name: str | None) -> Tool | None:
        """The tool of this name, if there is one."""
        if not name or not name.startswith(self.prefix):
            return None
        raw = name[len(self.prefix) :]
        if legal_name(self.prefix, raw) != name or self._provider.get(raw) is None:  # it was made legal, or is not here
            names = [each.name for each in self._provider.descriptors]
            raw = next((each for each in names if legal_name(self.prefix, each) == name), "")
        found = self._provider.get(raw)
        return found and found.provided(self.name, name, trusted=self._trusted, places=self._places)


@asynccontextmanager
async def connected(provider: ToolProvider) -> AsyncGenerator[None]:
    """Inside, everything in ``provider`` that can be connected is: for whoever was given tools that are not."""
    async with AsyncExitStack() as stack:
        for each in _connectable(provider):
            await stack.enter_async_context(each)
        yield


def _connectable(provider: object) -> Iterator[AbstractAsyncContextManager[Any]]:
    inner = provider._providers if isinstance(provider, ToolBox) else ()
    inner = [provider._provider] if isinstance(provider, Namespaced) else inner
    for each in inner:
        yield from _connectable(each)
    if isinstance(provider, AbstractAsyncContextManager) and getattr(provider, "is_connected", False) is not True:
        yield provider


def is_provider(item: object) -> TypeGuard[ToolProvider]:
    """Whether ``item`` is a :class:`ToolProvider`; unlike ``isinstance`` it does not ask for the tools."""
    if isinstance(item, (Tool, tuple, type)):
        return False
    return callable(getattr(type(item), "get", None)) and hasattr(type(item), "descriptors")


def legal_name(prefix: str, name: str) -> str:
    """``prefix`` and ``name`` as a name that every model takes: itself, or one that says of which name it was made."""
    whole = prefix + name
    if _LEGAL.fullmatch(whole):
        return whole
    cleaned = re.sub(r"[^A-Za-z0-9_.-]", "_", whole)
    if not re.match(r"[A-Za-z_]", cleaned):
        cleaned = f"_{cleaned}"
    # Two names that are cleaned to the same one must stay two.
    return f"{cleaned[:55]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def provider_name(name: str) -> str:
    """``name`` if it can be a provider's. Raises :class:`ConfigurationError`."""
    if not _PROVIDER.fullmatch(name) or name in _TAKEN:
        raise ConfigurationError(
            f"{name[:60]!r} cannot be the name of a tool provider",
            expected="up to 32 letters, digits, _ and -, not beginning with a digit or -, and not "
            + " or ".join(_TAKEN),
        )
    return name


def _clash(name: str, one: ToolProvider | None, other: ToolProvider | None) -> ConfigurationError:
    owners = [_named(one), _named(other)]
    same = owners[0] == owners[1]
    return ConfigurationError(
        f"two tools are called {name!r}",
        got=f"two providers have one name: {owners[0]}" if same else f"one of {owners[0]}, one of {owners[1]}",
        fix="give each a name of its own" if same else 'give one a prefix: Namespaced("name", provider)',
    )


def _named(provider: ToolProvider | None) -> str:
    if provider is None:
        return "the host itself"
    name = getattr(provider, "name", None)
    return f"provider {name!r}" if isinstance(name, str) else f"a {type(provider).__name__}"
