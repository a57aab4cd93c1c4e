"""An MCP server as a provider of tools: what it lists is declared, what is called is sent to it.

Not for: the connection (``_connection.py``). Rules carried: TOOL-04, TOOL-13, CTL-01, SEC-01.
May import: the modules of this package, ``_toolbox``, ``_tools``, ``protocol``.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import ValidationError

from agentsession.host._outcome import ToolOutcome
from agentsession.host._places import Places
from agentsession.host._toolbox import legal_name, provider_name
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool
from agentsession.host.mcp._connection import Connection, Lost, Refused, Transport, Unavailable, over_http, over_stdio
from agentsession.host.mcp._questions import ask_person
from agentsession.host.mcp._results import as_descriptor, as_outcome
from agentsession.host.mcp._stderr import Stderr
from agentsession.protocol import ConfigurationError, ToolDescriptor

__all__ = ["McpTools"]

logger = logging.getLogger("agentsession.host")

_CONNECT_S: Final = 30.0
_MOST_TOOLS: Final = 1_000
"""Of one server. Each is a millisecond of work whenever the list changes, and no model takes as many."""


class McpTools:
    """The tools of one MCP server, for ``Host(tools=[...])``. Made by :meth:`stdio` or :meth:`http`, then entered::

        async with McpTools.stdio("fs", ["fs-server", "."]) as fs:
            host = Host(tools=[fs, my_function])

    Its ``read`` is called ``fs_read`` by the model and ``fs:read`` in policies. What a server claims of its tools
    loosens nothing unless it is ``trusted``. It is entered and left from any task, also from two.

    A server that dies, or cannot be reached, is an error result of the call (``server_lost``,
    ``server_unavailable``); the next call starts or reaches it anew.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        prefix: str | None = None,
        only: str | Sequence[str] = "*",
        trusted: bool = False,
        timeout_s: float | None = None,
        max_parallel: int | None = None,
        connect_timeout_s: float = _CONNECT_S,
        where: str = "",
        stderr: Stderr | None = None,
    ) -> None:
        """For a transport of the SDK's that is neither: ``transport`` opens it, each time that it is connected."""
        self.name = provider_name(name)
        self.prefix = f"{name}_" if prefix is None else prefix
        self.trusted = trusted
        self._only = (only,) if isinstance(only, str) else tuple(only)
        self._timeout_s = timeout_s
        self._places = None if max_parallel is None else Places(max_parallel, f"tool server {name!r}")
        self._where = where
        self._stderr = stderr
        self._status: Sequence[int] = ()
        """Of the newest answer over HTTP."""
        self._tools: dict[str, Tool] | None = None
        self._listed: list[dict[str, Any]] = []
        self._connection = Connection(name, transport, connect_timeout_s=connect_timeout_s, on_tools=self._take_list)

    @classmethod
    def stdio(
        cls,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: Sequence[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        stderr_to: str | os.PathLike[str] | None = None,
        prefix: str | None = None,
        only: str | Sequence[str] = "*",
        trusted: bool = False,
        timeout_s: float | None = None,
        max_parallel: int | None = None,
        connect_timeout_s: float = _CONNECT_S,
    ) -> McpTools:
        """A server that is started as a process: ``command`` is its program and arguments; no shell reads them.

        ``env``: variables that it gets beside the few that any program needs (PATH, HOME, USER and such);
        ``inherit_env``: the names of variables of this process that it gets as well. Nothing else is handed on.
        ``stderr_to``: a file that its stderr is added to; its newest lines are in :attr:`stderr` in any case.
        ``prefix``: before each tool's name, instead of the name and ``_``; ``""`` for none.
        ``only``: globs on the server's own names; other tools are not offered.
        ``trusted``: its annotations may loosen.
        ``timeout_s``: seconds that each of its tools may run; ``None`` leaves it to the host.
        ``max_parallel``: how many calls it gets at once.
        ``connect_timeout_s``: seconds that starting it and listing its tools may take.

        Raises :class:`ConfigurationError` for an empty command or a name that is none.
        """
        if isinstance(command, str) or not command:
            raise ConfigurationError(
                f"the command of tool server {name!r} is not a list of words",
                got="text" if isinstance(command, str) else "nothing",
                fix='["program", "argument"]',
            )
        given = {**{key: os.environ[key] for key in inherit_env if key in os.environ}, **(env or {})}
        stderr = Stderr(given.values(), stderr_to)
        words = [str(word) for word in command]
        return cls(
            name,
            over_stdio(words, env=given, cwd=None if cwd is None else os.fspath(cwd), stderr=stderr),
            prefix=prefix,
            only=only,
            trusted=trusted,
            timeout_s=timeout_s,
            max_parallel=max_parallel,
            connect_timeout_s=connect_timeout_s,
            where=os.path.basename(words[0]),
            stderr=stderr,
        )

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        prefix: str | None = None,
        only: str | Sequence[str] = "*",
        trusted: bool = False,
        timeout_s: float | None = None,
        max_parallel: int | None = None,
        connect_timeout_s: float = _CONNECT_S,
    ) -> McpTools:
        """A server at an address, over streamable HTTP; see :meth:`stdio` for what both take.

        ``headers``: sent with each request, never shown; https, unless the server is on this machine.
        ``auth``: an ``httpx2.Auth``, such as the SDK's ``OAuthClientProvider``.

        Raises :class:`ConfigurationError` for an address that is not http or https, or headers over plain http to
        another machine.
        """
        parts = urlsplit(url)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"tool server {name!r} has no http address", expected="https://host/path")
        if parts.scheme == "http" and (headers or auth is not None) and not local:
            raise ConfigurationError(
                f"the secrets of tool server {name!r} would be sent readable to everybody on the way", fix="use https"
            )
        newest: deque[int] = deque(maxlen=1)
        opens = over_http(url, headers=headers or {}, auth=auth, timeout_s=connect_timeout_s, on_status=newest.append)
        made = cls(
            name,
            opens,
            prefix=prefix,
            only=only,
            trusted=trusted,
            timeout_s=timeout_s,
            max_parallel=max_parallel,
            connect_timeout_s=connect_timeout_s,
            where=parts.hostname,
        )
        made._status = newest
        return made

    def __repr__(self) -> str:
        return f"McpTools({self.name!r})"  # neither address nor command: both may hold a key

    @property
    def stderr(self) -> str:
        """The newest lines that a server process printed to its stderr, values of its own variables masked."""
        return self._stderr.text if self._stderr is not None else ""

    @property
    def is_connected(self) -> bool:
        """Whether the server is there, as far as is known."""
        return self._connection.is_connected

    # --- connecting ---------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Start or reach the server and list its tools. Raises :class:`ConfigurationError`, which says why not."""
        try:
            await self._connection.start()
        except Unavailable as error:
            raise ConfigurationError(
                f"tool server {self.name!r} cannot be reached: {error}",
                where=self._where,
                got=self._last_words(),
                fix="start it by hand, or look at McpTools.stderr"
                if self._stderr
                else "look at its address and headers",
                id="mcp-unavailable",
            ) from error

    def _last_words(self) -> str | None:
        if self._status and self._status[-1] >= 400:
            return f"an answer with HTTP status {self._status[-1]}"
        last = self.stderr.strip().splitlines()[-1:]
        return f"its last words: {last[0][:200]}" if last else None

    async def aclose(self) -> None:
        """Disconnect, and end a server process with its children. Calls that run fail."""
        await self._connection.stop()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- the provider -------------------------------------------------------------------------------------------

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        """What is declared to the agent. Raises :class:`ConfigurationError` when it was never connected."""
        if self._tools is None:
            raise ConfigurationError(
                f"tool server {self.name!r} is not connected", fix=f"async with {self!r}: before a session is opened"
            )
        return [tool.descriptor for tool in self._tools.values()]

    def get(self, name: str | None) -> Tool | None:
        """The tool of this name, if there is one."""
        return (self._tools or {}).get(name or "")

    def _take_list(self, listed: list[dict[str, Any]]) -> None:
        if self._tools is not None and listed == self._listed:
            return  # a server that says again and again that its list changed is not to cost much
        tools: dict[str, Tool] = {}
        for entry in listed:
            raw = entry.get("name")
            if not isinstance(raw, str) or not any(fnmatch.fnmatchcase(raw, glob) for glob in self._only):
                continue
            try:
                tool = self._made(as_descriptor(entry))
            except (ConfigurationError, ValidationError) as error:
                # A schema that cannot be used would let every argument pass, or none.
                logger.warning("tool %r of %s cannot be used: %s", raw, self.name, str(error).splitlines()[0])
                continue
            if len(tools) == _MOST_TOOLS:
                logger.warning("%s lists more than %s tools; the rest is left out: see only=", self.name, _MOST_TOOLS)
                break
            if tool.name in tools:
                logger.warning("%s lists %r twice; the second is left out", self.name, raw)
                continue
            tools[tool.name] = tool
        if listed and not tools:
            logger.warning("%s has no tool that can be offered; only= is %s", self.name, ", ".join(self._only))
        self._tools, self._listed = tools, listed

    def _made(self, descriptor: ToolDescriptor) -> Tool:
        async def call(args: dict[str, Any], context: ToolContext) -> ToolOutcome:
            return await self._call(descriptor.name, args, context)

        tool = Tool(descriptor, call, timeout_s=self._timeout_s)
        name = legal_name(self.prefix, descriptor.name)
        return tool.provided(self.name, name, trusted=self.trusted, places=self._places)

    async def _call(self, name: str, args: dict[str, Any], context: ToolContext) -> ToolOutcome:
        def report(progress: float, total: float | None, message: str | None) -> None:
            try:
                context.progress(progress, total, content=message)
            except ValueError:  # a number that is none; the call is not the worse for it
                logger.debug("%s reports progress of %r that cannot be told", self.name, name)

        async def ask(params: dict[str, Any]) -> dict[str, Any]:
            return await ask_person(self.name, params, context)

        try:
            result = await self._connection.call(name, args, session_id=context.session_id, report=report, ask=ask)
        except Unavailable as error:
            return ToolOutcome.failure(
                "server_unavailable", f"{self.name} cannot be reached, nothing was done: {error}"
            )
        except Lost:
            return ToolOutcome.failure(
                "server_lost", f"the connection to {self.name} was lost; the call may have had effects"
            )
        except Refused as error:
            return ToolOutcome.failure("tool_failed", str(error))
        return as_outcome(result)
