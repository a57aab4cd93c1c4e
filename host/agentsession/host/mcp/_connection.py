"""A connection to one MCP server: opened, watched, lost and opened again. The only module that imports the SDK.

Not for: what the tools are to a host (``_provider.py``), what is in a result (``_results.py``).
Rules carried: CTL-01, CTL-05. May import: anyio, mcp, httpx2, ``_owner``, ``_stderr``, ``protocol``.

Theory of operation. One task owns the connection (``_owner.py``). Inside it one child enters and leaves the SDK's
client, lists the tools and lists them again when the server says that they changed; its parent bounds the time that
connecting may take. A call is made in the task of whoever makes it: cancelled there, it tells the server so.
A connection that is lost is not opened again until somebody calls; all who call meanwhile wait for the one attempt.
After a failed attempt calls fail at once for a while, so that a dead server costs a turn no more than one wait.
A call is sent once: one that may have reached the server is never repeated.
"""

from __future__ import annotations

import contextvars
import dataclasses
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self, cast

import anyio
from pydantic import ValidationError

from agentsession.host.mcp._owner import start_owner
from agentsession.host.mcp._stderr import Stderr

try:
    import httpx2
    import mcp.types as types
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError
except ImportError as error:  # pragma: no cover
    raise ImportError(
        'agentsession.host.mcp needs the MCP SDK, version 2: pip install "agent-session-protocol[mcp]"'
    ) from error

__all__ = ["Asks", "Connection", "Lost", "Refused", "Reports", "Unavailable", "over_http", "over_stdio"]

logger = logging.getLogger("agentsession.host")

# A server that prints what is no message makes the SDK log a traceback; where an application set up no logging, Python
# would print that to the terminal.
for _name in ("client", "mcp"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

Asks = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Puts a server's question to a person: the params of ``elicitation/create``, to its result."""
Reports = Callable[[float, float | None, str | None], None]
"""Called with progress, total and message."""
Transport = Callable[[], AbstractAsyncContextManager[Any]]

_PAGES: Final = 100
"""A server that never ends its list has ended here."""
_FORGOTTEN: Final = ("Session not found", "Session terminated")
"""What the SDKs of the server's side and of this one say of a session that the server does not know."""
_GOODBYE_S: Final = 5.0
_LARGEST: Final = 64 * 2**20
"""Bytes of one message over HTTP; the SDK's own bound is smaller than a photograph."""
_FIRST_PAUSE_S: Final = 1.0
_LAST_PAUSE_S: Final = 60.0


class Unavailable(Exception):
    """The server cannot be reached, and the call was not sent."""


class Lost(Exception):
    """The connection was lost while the call was made: nobody knows what became of it."""


class Refused(Exception):
    """The server answered with an error, or with what is no valid result; ``code`` is that of the protocol."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(eq=False, slots=True)
class _Call:
    session_id: str
    ask: Asks | None


_CALL: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("mcp_call", default=None)


class _Attempt:
    """To connect, once; everybody who wants the connection waits for the same."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: str | None = None

    def end(self, error: str | None = None) -> None:
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Connection:
    """``transport`` opens the way to the server, each time anew. All calls from one event loop."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        connect_timeout_s: float,
        on_tools: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self.name = name
        self._transport = transport
        self._connect_timeout_s = connect_timeout_s
        self._on_tools = on_tools
        self.mode = "auto"
        """Which protocol is spoken: the newest that the server knows, or with ``legacy`` that of before 2026."""
        self._client: Client | None = None
        self._attempt: _Attempt | None = None
        self._wanted = anyio.Event()
        self._leave = anyio.Event()
        self._changed = anyio.Event()
        self._stopping = False
        self._ended: anyio.Event | None = None
        self._was_connected = False
        self._failures = 0
        self._not_before = 0.0
        self._last_error = ""
        self._calls: list[_Call] = []

    @property
    def is_connected(self) -> bool:
        """Whether the server is there, as far as is known."""
        return self._client is not None

    async def start(self) -> None:
        """Connect, if it is not. Raises :class:`Unavailable`, and then nothing is left behind."""
        if self._ended is not None and not self._ended.is_set() and not self._stopping:
            await self._connected()  # it has its owner, and perhaps lost the server meanwhile
            return
        self._stopping = False
        self._ended = anyio.Event()
        self._not_before = 0.0
        start_owner(self._own, f"mcp server {self.name}")
        try:
            await self._connected()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise

    async def stop(self) -> None:
        """Disconnect, from any task. Bounded, as the SDK bounds the end of a server; a second call waits for it too."""
        self._stopping = True
        self._client = None
        self._give_up("the connection was closed")
        self._wanted.set()
        self._leave.set()
        if self._ended is not None:
            await self._ended.wait()

    async def call(
        self, name: str, args: Mapping[str, Any], *, session_id: str, report: Reports, ask: Asks | None
    ) -> dict[str, Any]:
        """``tools/call``. Raises :class:`Unavailable`, :class:`Lost` and :class:`Refused`."""
        call = _Call(session_id, ask)
        token = _CALL.set(call)
        self._calls.append(call)
        try:
            client = await self._connected()
            try:
                return await self._send(client, name, args, report)
            except MCPError as error:
                # Neither error is said by a server that has begun the call.
                if error.code == types.URL_ELICITATION_REQUIRED and ask is not None:
                    await _ask_first(ask, error)
                elif error.code == types.INVALID_REQUEST and error.message in _FORGOTTEN:
                    self._lose(client)  # the server was started anew, and knows this session no more
                else:
                    raise
                return await self._send(await self._connected(), name, args, report)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise Lost(error.message) from error
            raise Refused(error.message, error.code) from error
        except (Lost, Refused, Unavailable):
            raise
        except Exception as error:  # the SDK's: a result that is none, or not of the tool's output schema
            logger.info("the answer of %s to %r cannot be used: %s", self.name, name, type(error).__name__)
            logger.debug("the answer of %s", self.name, exc_info=error)
            raise Refused("the server's answer is no valid result of this tool") from error
        finally:
            self._calls.remove(call)
            _CALL.reset(token)

    async def _send(self, client: Client, name: str, args: Mapping[str, Any], report: Reports) -> dict[str, Any]:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            report(progress, total, message)

        result = await client.call_tool(name, dict(args), progress_callback=progress)
        return _wire(result)

    # --- the connection -----------------------------------------------------------------------------------------

    async def _connected(self) -> Client:
        if self._client is not None:
            return self._client
        if self._stopping or self._ended is None or self._ended.is_set():
            raise Unavailable("the connection was closed")
        if self._attempt is None:
            if anyio.current_time() < self._not_before:
                raise Unavailable(self._last_error)
            self._attempt = _Attempt()
            self._wanted.set()
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.error is not None:
            raise Unavailable(attempt.error)
        client = cast("Client | None", self._client)  # it changed while this waited
        if client is None:
            raise Unavailable("the connection was lost at once")
        return client

    async def _own(self) -> None:
        ended = cast(anyio.Event, self._ended)
        try:
            while not self._stopping:
                if self._attempt is None:
                    await self._wanted.wait()
                    self._wanted = anyio.Event()
                else:
                    await self._hold(self._attempt)
        finally:
            self._client = None
            self._give_up("the connection was closed")
            ended.set()

    async def _hold(self, attempt: _Attempt) -> None:
        """Connect, and stay until the connection is lost or no longer wanted."""
        self._leave = anyio.Event()
        left = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._use, attempt, left)
                with anyio.move_on_after(self._connect_timeout_s):
                    await attempt.done.wait()
                if not attempt.done.is_set():
                    attempt.end(f"it did not answer within {self._connect_timeout_s:g} s")
                elif attempt.error is None:
                    await self._leave.wait()
                    if self._stopping:  # in good order: a server over HTTP is told that the session is over
                        self._changed.set()
                        with anyio.move_on_after(_GOODBYE_S):
                            await left.wait()
                tasks.cancel_scope.cancel()
        except Exception as error:  # whoever calls is told; there is no other who could be
            logger.debug("the connection to %s ended", self.name, exc_info=error)
            attempt.end(_kind(error))
        finally:
            self._client = None
            attempt.end("it was given up")
            if self._attempt is attempt:
                self._attempt = None
        if attempt.error is None:
            self._was_connected = True
            self._failures = 0
        else:
            self._failures += 1
            self._last_error = attempt.error
            self._not_before = anyio.current_time() + min(_FIRST_PAUSE_S * 2 ** (self._failures - 1), _LAST_PAUSE_S)
            level = logging.WARNING if self._was_connected else logging.DEBUG  # else whoever connects is told
            logger.log(level, "the tool server %s cannot be reached: %s", self.name, attempt.error)

    async def _use(self, attempt: _Attempt, left: anyio.Event) -> None:
        async with Client(
            cast(Any, self._watched()),
            elicitation_callback=cast(Any, self._elicit),
            message_handler=self._hear,
            client_info=types.Implementation(name="agentsession", version="0"),
            cache=None,
            mode=self.mode,
        ) as client:
            self._changed = anyio.Event()
            self._on_tools(await self._list(client))
            self._client = client
            self._attempt = None
            attempt.end()
            capabilities = client.server_capabilities.tools
            async with anyio.create_task_group() as tasks:
                if capabilities is not None and capabilities.list_changed:
                    tasks.start_soon(self._listen, client)
                while not self._stopping:
                    await self._changed.wait()
                    self._changed = anyio.Event()
                    if not self._stopping:
                        await self._list_again(client)
                tasks.cancel_scope.cancel()
        left.set()

    async def _list_again(self, client: Client) -> None:
        """What cannot be listed again stays as it was."""
        try:
            with anyio.fail_after(self._connect_timeout_s):
                self._on_tools(await self._list(client))
        except (MCPError, TimeoutError, ValueError) as error:
            logger.warning("the tools of %s could not be listed again: %s", self.name, _kind(error))

    async def _list(self, client: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [_wire(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found
        logger.warning("the list of tools of %s has more than %s pages; the rest is left out", self.name, _PAGES)
        return found

    async def _listen(self, client: Client) -> None:
        """Servers of the protocol since 2026 tell of changes only to those who listen; older ones tell anyway."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed.set()
        except Exception as error:  # noqa: BLE001 - the tools are there; only that they change is not heard
            logger.debug("changes of the tools of %s are not listened to: %s", self.name, _kind(error))

    async def _hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()
        await anyio.lowlevel.checkpoint()

    def _lose(self, client: Client | None) -> None:
        """The connection is of no more use: the next call opens another."""
        if client is not None and self._client is not client:
            return  # it was lost before, and there is another already
        self._client = None
        self._leave.set()

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[Any]:
        async with self._transport() as (read, write):
            yield _Watched(read, lambda: self._lose(None)), write

    def _give_up(self, why: str) -> None:
        if self._attempt is not None:
            self._attempt.end(why)
            self._attempt = None

    # --- questions ----------------------------------------------------------------------------------------------

    async def _elicit(self, context: Any, params: Any) -> Any:
        call = _CALL.get() or self._only_call()
        if call is None or call.ask is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="there is nobody to ask")
        return types.ElicitResult.model_validate(await call.ask(_wire(params)))

    def _only_call(self) -> _Call | None:
        """Before 2026 a question does not say of which call it is. Asked in another session, it would tell its person
        what they must not know: so only where all calls that run are of one."""
        sessions = {call.session_id for call in self._calls}
        return self._calls[-1] if len(sessions) == 1 else None


class _Watched:
    """A stream of messages that tells when it has ended."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:  # also cancelled: nobody reads on, and what is sent from now on gets no answer
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:  # as above
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*error)
        return ended


def over_stdio(command: list[str], *, env: Mapping[str, str], cwd: str | None, stderr: Stderr) -> Transport:
    """A server process of this one: its environment is the least that a program needs, and ``env``."""

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(env), cwd=cwd)
        with stderr.pipe() as (file, descriptor):
            async with anyio.create_task_group() as reading:
                reading.start_soon(stderr.read, descriptor)
                async with stdio_client(server, errlog=cast(Any, file)) as streams:
                    file.close()  # this process's end: the other is the server's
                    yield streams
                reading.cancel_scope.cancel()

    return transport


def over_http(
    url: str, *, headers: Mapping[str, str], auth: Any, timeout_s: float, on_status: Callable[[int], None]
) -> Transport:
    """A server at an address, over streamable HTTP. ``headers`` are sent with each request, to that address alone.

    ``on_status`` is told the status of each answer, of which the SDK tells nothing.
    """

    async def told(response: httpx2.Response) -> None:
        on_status(response.status_code)

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        timeout = httpx2.Timeout(timeout_s, read=None)  # a call may take as long as the host lets it
        given: Any = {"auth": auth, "timeout": timeout, "event_hooks": {"response": [told]}}
        async with httpx2.AsyncClient(headers=dict(headers), **given) as client:
            async with streamable_http_client(url, http_client=client, max_sse_event_size=_LARGEST) as streams:
                yield streams

    return transport


async def _ask_first(ask: Asks, error: MCPError) -> None:
    """Ask for what a server wants done before it begins the call. Raises :class:`Refused` where it is not done."""
    wanted = types.ElicitationRequiredErrorData.model_validate(error.data).elicitations
    for each in wanted:
        if (await ask(_wire(each))).get("action") != "accept":
            raise Refused("the person did not do what the server asked for first", error.code) from error


def _wire(model: Any) -> dict[str, Any]:
    """As JSON; what is absent is left out, and a null inside a schema or a result stays."""
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json")
    return {key: value for key, value in dumped.items() if value is not None}


def _kind(error: BaseException) -> str:
    """What may be told of a failure: its type, and what the system said. No other text, which may hold a URL."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    if isinstance(error, ValidationError):
        return "what it said is not of the protocol"
    if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
        return "it ended before it had answered"
    if isinstance(error, MCPError):
        return f"{type(error).__name__} {error.code}"
    return type(error).__name__
