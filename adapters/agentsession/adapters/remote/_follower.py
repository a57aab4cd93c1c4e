"""Follows a session's events on the server, over as many connections as it takes.

Not for: what the events mean (``_session.py``). Rules carried: ORD-05 over the wire, and its part of ORD-11.
May import: anyio, ``agentsession.protocol``, the modules beside it.

Each connection begins behind the last event that came, so that nothing is lost or repeated however often it is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.adapters.remote._mask import Mask
from agentsession.adapters.remote._problems import error_of
from agentsession.adapters.remote._readers import Log
from agentsession.adapters.remote._wire import Cut, Wire
from agentsession.protocol import AgentSessionError, ConnectionLost, SchemaError, parse_json

__all__ = ["Follower"]

_BREATH: Final = 64


class Follower:
    """Brings the events of one session, until it is closed, stopped or given up."""

    def __init__(self, wire: Wire, path: str, log: Log, take: Callable[[str, str], None]) -> None:
        """``take`` gets the id and the JSON of each event, and closes the log where they break a rule."""
        self._wire = wire
        self._path = path
        self._log = log
        self._take = take
        self._scope = anyio.CancelScope()
        self._answered_at: float | None = None
        """When the server began to send events over the connection that is tried now."""
        self.is_closing = False
        """The server was asked to close the session: a new connection would load it again."""
        self.is_cut = False
        """The last connection broke while the session was being closed: what came last may be missing."""

    def stop(self) -> None:
        """Follow no further."""
        self._scope.cancel()

    async def run(self) -> None:
        """Until the log is closed. Closes it, with the reason, unless it :attr:`is_cut`."""
        with self._scope:
            try:
                await self._run()
            except AgentSessionError as error:
                self._log.close(error)
        if self.is_cut:
            self._log.wake()
        else:
            self._log.close()

    async def _run(self) -> None:
        failures, began, until = 0, self._log.last_seq, 0.0
        while not self._log.is_closed:
            try:
                if await self._one():
                    return
                why = "the server ended the events"
            except Cut as cut:
                why = str(cut)
            if self.is_closing:
                self.is_cut = True
                return
            now, since = anyio.current_time(), self._answered_at
            if since is not None or not failures:
                until = now + self._wire.give_up_s
            # One that was answered and ended at once is no reason to come back at once.
            if self._log.last_seq > began or (since is not None and now - since > self._wire.backoff.most_s):
                failures = 0
            failures, began = failures + 1, self._log.last_seq
            wait_s = self._wire.backoff.wait_s(failures)
            if anyio.current_time() + wait_s > until:
                raise ConnectionLost(
                    "the connection to the server is lost",
                    where=self._path,
                    got=f"{why}, tried {failures} times",
                    fix="load the session again when the server answers",
                )
            await anyio.sleep(wait_s)

    async def _one(self) -> bool:
        """One connection, to its end; whether nothing more will come. Raises :class:`Cut`."""
        log, breath = self._log, 0
        self._answered_at = None
        async with self._wire.events(self._path, log.last_seq) as events:
            if events is None:
                return True
            self._answered_at = anyio.current_time()
            async for name, event_id, data in events:
                if not data:  # a block without data, such as one that only sets retry, is no event
                    continue
                if name == "message":
                    self._take(event_id, data)
                elif name == "closed":
                    return True
                elif name == "problem":
                    raise _problem(data, self._wire.mask)
                if log.is_closed:
                    return True
                while log.is_full:  # the socket is not read meanwhile
                    await log.changed()
                breath += 1
                if breath % _BREATH == 0:
                    await checkpoint()
        return False


def _problem(data: str, mask: Mask) -> AgentSessionError:
    try:
        problem = parse_json(data)
    except SchemaError:
        problem = None
    status = problem.get("status") if isinstance(problem, dict) else None
    return error_of(status if isinstance(status, int) else 500, problem, mask)
