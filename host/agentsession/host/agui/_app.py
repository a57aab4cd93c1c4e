"""The AG-UI application: one agent's sessions as an endpoint that front ends of AG-UI post their runs to.

Not for: guarding it (``agentsession.host.http``) or what a run does (``_app_run.py``). Rules carried: SEC-01.
May import: asyncio, starlette, ``live``, the ``_app``, ``_in`` and ``_out`` modules.

``POST /`` takes a ``RunAgentInput`` and answers with the run's events, ``GET /capabilities`` tells what the agent can.
What cannot be read, is too large, or would wait behind too many, gets a 4xx and a body that says why; what the
conversation does not allow ends its run with a ``RUN_ERROR``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from agentsession.host.agui._app_folded import FoldedSessions
from agentsession.host.agui._app_join import Join
from agentsession.host.agui._app_live import LiveSessions
from agentsession.host.agui._app_queue import QueueFull, Queues
from agentsession.host.agui._app_run import Disconnect, Endpoint, Run
from agentsession.host.agui._app_sink import Receive, Send, Sink
from agentsession.host.agui._in_faults import Malformed
from agentsession.host.agui._in_read import MAX_BODY, RunInput, read_input
from agentsession.host.agui._out_capabilities import capabilities
from agentsession.protocol import ConfigurationError

__all__ = ["AguiApp", "agui_app"]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_MEDIA: Final = "application/problem+json"


class AguiApp:
    """See :func:`agui_app`, which makes it."""

    def __init__(
        self, endpoint: Endpoint, *, waiters: int, max_body: int, keep_alive_s: float, stalled_s: float
    ) -> None:
        self._endpoint = endpoint
        self._queues = Queues(waiters)
        self._runs: dict[tuple[str, str], list[Run]] = {}
        """Those that run or wait, by user and thread, in their order."""
        self._max_body = max_body
        self._keep_alive_s = keep_alive_s
        self._stalled_s = stalled_s

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
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        method = scope["method"]
        if path == "":
            if method == "POST":
                await self._post(scope, receive, send)
                return
            response = _problem(405, "method_not_allowed", "post a RunAgentInput", allow="POST")
        elif path == "/capabilities":
            if method in ("GET", "HEAD"):
                response = JSONResponse(capabilities(self._executor_descriptor()))
            else:
                response = _problem(405, "method_not_allowed", "get the capabilities", allow="GET, HEAD")
        else:
            response = _problem(404, "not_found", "there is nothing here")
        await response(scope, receive, send)

    def _executor_descriptor(self) -> Any:
        return self._endpoint.sessions.agents[self._endpoint.agent].executor.descriptor

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            given = await self._read(scope, receive)
        except _Refused as refused:
            await refused.response(scope, receive, send)
            return
        if given is None:
            return  # the client went away while it sent
        user_id = _user_of(scope)
        sink = Sink(send, keep_alive_s=self._keep_alive_s, stalled_s=self._stalled_s)
        key = (user_id, given.thread_id)
        run = next((run for run in self._runs.get(key, ()) if self._is_same(run, given)), None)
        if run is not None:
            await self._serve_join(Join(run, given, sink), sink, receive)
            return
        try:
            place = self._queues.place(key)
        except QueueFull:
            full = _problem(429, "too_many_runs", "as many runs of this thread wait as may")
            full.headers["retry-after"] = "1"
            await full(scope, receive, send)
            return
        run = Run(self._endpoint, user_id, given, place, sink)
        self._runs.setdefault(key, []).append(run)
        run.task.add_done_callback(lambda task: self._over(key, run, task))
        if not await sink.serve(receive):
            run.left()

    @staticmethod
    def _is_same(run: Run, given: RunInput) -> bool:
        """Whether an input is that of a run that is at work: its id, or nothing that is not its own already."""
        if run.given.run_id == given.run_id:
            return True
        return run.began is not None and run.covers(given)

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

    async def _read(self, scope: Scope, receive: Receive) -> RunInput | None:
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise _Refused(_problem(415, "unsupported_media_type", "the body must be application/json"))
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_body:
                raise _Refused(_problem(413, "too_large", f"the body is larger than {self._max_body} bytes"))
            if not message.get("more_body", False):
                break
        try:
            return read_input(bytes(body))
        except Malformed as error:
            raise _Refused(_problem(400, "malformed", error.what, pointer=error.pointer)) from error


class _Refused(Exception):
    def __init__(self, response: Response) -> None:
        self.response = response


def _problem(status: int, code: str, detail: str, *, allow: str | None = None, **more: str) -> Response:
    headers = {"cache-control": "no-store"} if allow is None else {"cache-control": "no-store", "allow": allow}
    body = {"type": "about:blank", "status": status, "code": code, "detail": detail, **more}
    return JSONResponse(body, status, headers, _MEDIA)


def _user_of(scope: Scope) -> str:
    return "local"


def agui_app(
    sessions: LiveSessions,
    agent: str | None = None,
    *,
    on_disconnect: Disconnect = "cancel",
    grace_s: float = 2.0,
    cap_s: float = 600.0,
    forwarded: Collection[str] = (),
    waiters: int = 8,
    max_body: int = MAX_BODY,
    keep_alive_s: float = 15.0,
    stalled_s: float = 30.0,
) -> AguiApp:
    """An ASGI application for front ends that speak AG-UI, such as the ``HttpAgent`` of ``@ag-ui/client``.

    ``agent``: its name in ``sessions``; may be left out where there is one. A thread is a session of that agent and the
    user.
    ``on_disconnect``: what becomes of a run whose client went away. ``cancel`` aborts it when nobody has come back
    after ``grace_s`` seconds; ``carry_on`` lets it go on for ``cap_s``, and a client that comes back reads on.
    ``forwarded``: the keys of ``forwardedProps`` that reach the executor, in its turn's config.
    ``waiters``: how many runs of one thread may wait for the one that runs; more get a 429.
    ``max_body``: the most bytes of an input. ``keep_alive_s``: how often a client is told that its connection lives.
    ``stalled_s``: after how long a client that takes nothing is taken for gone.

    Raises :class:`agentsession.protocol.ConfigurationError` for an agent that is not served.
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
    return AguiApp(endpoint, waiters=waiters, max_body=max_body, keep_alive_s=keep_alive_s, stalled_s=stalled_s)
