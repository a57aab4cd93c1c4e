"""The AG-UI application: one agent's sessions as an endpoint that front ends of AG-UI post their runs to.

Not for: who may call (``agentsession.host.http``) or what a run does (``_app_run.py``). Rules carried: SEC-01.
May import: asyncio, starlette, ``http``, ``live``, the ``_app``, ``_in`` and ``_out`` modules.

``POST /`` takes a ``RunAgentInput`` and answers with the run's events, ``GET /capabilities`` tells what the agent can.
What cannot be read, is too large, or would wait behind too many, gets a 4xx and a body that says why; what the
conversation does not allow ends its run with a ``RUN_ERROR``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agentsession.host.agui._app_folded import FoldedSessions
from agentsession.host.agui._app_join import Join
from agentsession.host.agui._app_queue import QueueFull, Queues
from agentsession.host.agui._app_run import Disconnect, Endpoint, Run
from agentsession.host.agui._app_sink import Sink
from agentsession.host.agui._in_faults import Malformed
from agentsession.host.agui._in_read import RunInput, read_input
from agentsession.host.agui._out_capabilities import capabilities
from agentsession.host.http import LOOPBACK_HOSTS, Limits, Principal, Problem, Verifier, guarded, principal_of
from agentsession.host.live import LiveSessions
from agentsession.protocol import AgentDescriptor, ConfigurationError

__all__ = ["AguiApp", "agui_app"]


class AguiApp:
    """See :func:`agui_app`, which makes it."""

    def __init__(self, endpoint: Endpoint, waiters: int, limits: Limits, **guards: Any) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._guarded: ASGIApp = guarded(self._serve, limits=limits, **guards)
        self._queues = Queues(waiters)
        self._runs: dict[tuple[str, str], list[Run]] = {}
        """Those that run or wait, by user and thread, in their order."""

    @property
    def runs(self) -> list[Run]:
        """Those that are at work or wait for their thread, with or without a client."""
        return [run for runs in self._runs.values() for run in runs]

    @property
    def running(self) -> int:
        """How many they are."""
        return sum(map(len, self._runs.values()))

    @property
    def is_busy(self) -> bool:
        """Whether anything of a run is kept: the run, its place, a task."""
        return bool(self._runs) or len(self._queues) > 0

    @property
    def clients(self) -> int:
        """How many clients read them."""
        return sum(run.readers for run in self.runs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, guarded."""
        await self._guarded(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        method = scope["method"]
        principal = principal_of(scope)
        if path == "":
            if method != "POST":
                raise Problem(405, "method", "post a RunAgentInput", headers={"allow": "POST"})
            _check_scope(principal, "write")
            await self._post(principal.user_id, scope, receive, send)
        elif path == "/capabilities":
            if method not in ("GET", "HEAD"):
                raise Problem(405, "method", "get the capabilities", headers={"allow": "GET, HEAD"})
            _check_scope(principal, "read")
            await JSONResponse(capabilities(self._descriptor))(scope, receive, send)
        else:
            raise Problem(404, "not-found", "there is nothing here")

    @property
    def _descriptor(self) -> AgentDescriptor:
        return self._endpoint.sessions.agents[self._endpoint.agent].executor.descriptor

    async def _post(self, user_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        given = await _read(scope, receive)
        if given is None:
            return  # the client went away while it sent
        sink = Sink(send, keep_alive_s=self._limits.ping_s, stalled_s=self._limits.stall_s)
        key = (user_id, given.thread_id)
        run = next((run for run in self._runs.get(key, ()) if run.covers(given)), None)
        if run is not None:
            await self._serve_join(Join(run, given, sink), sink, receive)
            return
        try:
            place = self._queues.place(key)
        except QueueFull as error:
            why = "as many runs of this thread wait as may"
            raise Problem(429, "too-many-runs", why, headers={"retry-after": "1"}) from error
        run = Run(self._endpoint, user_id, given, place, sink)
        self._runs.setdefault(key, []).append(run)
        run.task.add_done_callback(lambda task: self._over(key, run, task))
        is_read = False
        try:
            is_read = await sink.serve(receive)
        finally:  # a server may cancel its request, too
            if not is_read:
                run.left()

    async def _serve_join(self, join: Join, sink: Sink, receive: Receive) -> None:
        work = asyncio.get_running_loop().create_task(join.work())
        try:
            await sink.serve(receive)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _over(self, key: tuple[str, str], run: Run, task: asyncio.Task[None]) -> None:
        runs = self._runs[key]
        runs.remove(run)
        if not runs:
            del self._runs[key]
        if not task.cancelled():
            task.exception()  # it was logged


def _check_scope(principal: Principal, needed: str) -> None:
    if needed not in principal.scopes:
        raise Problem(403, "forbidden", f"this caller may not {needed}")


async def _read(scope: Scope, receive: Receive) -> RunInput | None:
    """The input; ``None`` where the client is gone. How large a body may be is the guards' to say."""
    kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Problem(415, "unsupported-media-type", "the body must be application/json")
    body = bytearray()
    is_more = True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
    try:
        return read_input(bytes(body))
    except Malformed as error:
        raise Problem(400, "malformed", error.what, pointer=error.pointer, expected=error.expected) from error


def agui_app(
    sessions: LiveSessions,
    agent: str | None = None,
    *,
    on_disconnect: Disconnect = "cancel",
    grace_s: float = 2.0,
    cap_s: float = 600.0,
    forwarded: Collection[str] = (),
    waiters: int = 8,
    verify: Verifier | None = None,
    allowed_hosts: Iterable[str] = LOOPBACK_HOSTS,
    allowed_origins: Iterable[str] = (),
    limits: Limits | None = None,
) -> AguiApp:
    """An ASGI application for front ends that speak AG-UI, such as the ``HttpAgent`` of ``@ag-ui/client``.

    ``agent``: its name in ``sessions``; may be left out where there is one. A thread is a session of that agent and the
    user.
    ``on_disconnect``: what becomes of a run whose client went away. ``cancel`` aborts it when nobody has come back
    after ``grace_s`` seconds; ``carry_on`` lets it go on for ``cap_s``, and a client that comes back reads on.
    ``forwarded``: the keys of ``forwardedProps`` that reach the executor, in its turn's config.
    ``waiters``: how many runs of one thread may wait for the one that runs; more get a 429.
    ``verify``, ``allowed_hosts``, ``allowed_origins``: who may call, see :func:`agentsession.host.http.guarded`.
    ``limits``: of bodies and rates, how often a client is told that its connection lives, and after how long one that
    takes nothing is taken for gone.

    Raises :class:`agentsession.protocol.ConfigurationError` for an agent that is not served, and for hosts and origins
    that are no such.
    """
    names = list(sessions.agents)
    if agent is None and len(names) == 1:
        agent = names[0]
    if agent is None or agent not in names:
        raise ConfigurationError(
            "there is no such agent" if agent is not None else "which agent?",
            got=agent,
            expected=", ".join(names),
            fix="name one: agui_app(sessions, NAME)",
        )
    endpoint = Endpoint(
        sessions=sessions,
        agent=agent,
        folded=FoldedSessions(),
        on_disconnect=on_disconnect,
        grace_s=grace_s,
        cap_s=cap_s,
        forwarded=frozenset(forwarded),
    )
    return AguiApp(
        endpoint,
        waiters,
        limits or Limits(),
        verify=verify,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
    )
