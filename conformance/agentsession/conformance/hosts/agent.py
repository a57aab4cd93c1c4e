"""The agent of a scene: what a play can do to the host that drives its session.

For: plays in ``scenarios``. Not for: the session's side (``session.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``session`` for types.

A play is a coroutine function of an :class:`Agent`, one for each turn. What it does through the named steps keeps the
contract; :meth:`Agent.put` hands the host anything at all, past the session's own machine and record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from anyio.lowlevel import checkpoint

from agentsession.protocol import (
    Answer,
    ConnectionLost,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    Receipt,
    Text,
    ToolRequest,
    ToolResponse,
)

if TYPE_CHECKING:
    from agentsession.conformance.hosts.session import AdversarySession

__all__ = ["Agent", "Play"]

Play = Callable[["Agent"], Awaitable[None]]
"""What the agent does in one turn."""


class Agent:
    """One turn of the agent."""

    def __init__(self, session: AdversarySession) -> None:
        self.session = session
        self.on_answer: Callable[[Answer], Awaitable[Receipt | None]] | None = None
        """Instead of what the session does with an answer, unless it gives ``None``. May raise, or wait for ever."""
        self.on_abort: Callable[[], Awaitable[None]] | None = None
        """Before the session does what an abort asks for. May raise, or wait for ever."""
        self.on_close: Callable[[], Awaitable[None]] | None = None
        """Before the session closes, likewise."""

    # -- what an agent may do -----------------------------------------------------------------------------------------

    async def emit(self, event: Event) -> None:
        """An event that the contract allows here; waits while the host is far behind."""
        self.session.add(event)
        await self.session.room()

    async def say(self, text: str) -> None:
        """One whole message."""
        await self.emit(Message(message_id=self.session.new_id("m"), content=[Text(text=text)]))

    async def call(self, request_id: str, name: str, args: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """A tool request, of a host tool unless ``needs`` and ``owner`` say otherwise."""
        await self.emit(ToolRequest(request_id=request_id, name=name, args=dict(args or {}), **fields))

    async def grant(self, request_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A request of the agent to run a tool of its own."""
        await self.call(request_id, name, args, needs="grant", owner="agent")

    async def ask(self, request_id: str, kind: str, message: str = "Well?", **fields: Any) -> None:
        """A question to the person."""
        await self.emit(ElicitationRequest(request_id=request_id, kind=kind, message=message, **fields))

    async def answered(self, *request_ids: str) -> None:
        """Wait, while the stream runs, until these requests wait no more."""
        while any(name in self.session.waiting for name in request_ids):
            await self.session.change()

    async def pause(self) -> None:
        """End the stream ``input_required``, and wait until the host continues the turn."""
        await self.session.pause()

    def settle(self, request_id: str) -> None:
        """Answer a request as if another client of the session had, unless the host was first."""
        request = self.session.waiting.get(request_id)
        if request is None:
            return
        if isinstance(request, ToolRequest):
            self.session.settle_tool(request)
        else:
            self.session.add(ElicitationResponse(request_id=request_id, action="cancel", source="host"))

    def finish_own(self, request_id: str, name: str) -> None:
        """A tool of the agent's own that was shown and not asked comes to its end; nobody said that it ran."""
        self.session.add(ToolResponse(request_id=request_id, name=name, status="failed", is_error=True))

    async def flood(self, deltas: int) -> None:
        """A message in very many pieces, none of which is kept by the session."""
        message_id = self.session.new_id("m")
        piece = [Text(text="flood ")]
        for index in range(deltas):
            self.session.add_delta(message_id, piece, index)
            await self.session.room()
        await self.emit(Message(message_id=message_id, content=[Text(text="flood " * deltas)]))

    # -- what no agent may do -----------------------------------------------------------------------------------------

    async def put(self, thing: object) -> None:
        """Hand the host whatever this is as its next event."""
        self.session.push(thing)
        await self.session.room()

    async def shown(self, event: Event, **stamps: Any) -> None:
        """Hand the host an event that is stamped, but not recorded; ``stamps`` replace what it would have."""
        await self.put(self.session.stamped(event, **stamps))

    def lose(self) -> NoReturn:
        """The executor vanishes: this call, the reader and each further call of the session raise."""
        self.session.lost = ConnectionLost("the executor of this scene has vanished")
        raise self.session.lost

    def vanish(self) -> None:
        """The executor vanishes while the play goes on: each reader and each further call of the session raises."""
        self.session.lost = ConnectionLost("the executor of this scene has vanished")
        self.session.notify()

    def end(self, reason: str) -> None:
        """End the stream and the turn for this reason."""
        self.session.end(reason)

    def cut(self) -> None:
        """The iterator just ends, without a stream_end."""
        self.session.cut()

    async def work(self) -> NoReturn:
        """Work without an end, until the turn is stopped."""
        await anyio.sleep_forever()
        raise AssertionError("this is never reached")

    async def unchecked(self, request: ToolRequest) -> None:
        """A request that the session's machine would refuse: it is pending and shown, and not recorded."""
        made = self.session.stamped(request)
        assert isinstance(made, ToolRequest)  # stamping keeps the class
        self.session.waiting[made.request_id] = made
        self.session.log.add("agent", made.type, made.request_id, made.name)
        await self.put(made)

    def drop(self, request_id: str) -> None:
        """A request that was not recorded waits no more."""
        self.session.waiting.pop(request_id)
        self.session.notify()

    async def breathe(self, turns: int = 20) -> None:
        """Let the host do what it would do now."""
        for _ in range(turns):
            await checkpoint()
