"""One client's stream of events: frames that wait to be sent, keep-alives, and noticing that the client is gone.

Not for: what is in the frames (``_out_wire.py``). Rules carried: none. May import: asyncio, starlette.

Frames are joined and sent together as fast as the client takes them; whoever makes them waits only when much is unsent.
A client that takes nothing for so long is gone, and so is one that closed its connection. What is put into its stream
then is dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import Receive, Send

__all__ = ["Sink"]

_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_FULL: Final = 256 * 1024
"""Bytes that may wait before whoever makes them waits too."""
_BEAT: Final = b": keep-alive\n\n"


class Sink:
    """See the module. Made and served by one request; frames may come from any task of the loop."""

    def __init__(self, send: Send, *, keep_alive_s: float, stalled_s: float) -> None:
        self._send = send
        self._keep_alive_s = keep_alive_s
        self._stalled_s = stalled_s
        self._waiting: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_ended = False
        self._sent_at = 0.0
        self._is_sending = False
        self.is_gone = False
        """Nobody reads any more."""

    def put(self, frame: bytes) -> None:
        """Have a frame sent."""
        if self.is_gone or self._is_ended:
            return
        self._waiting.append(frame)
        self._size += len(frame)
        if self._size > _FULL:
            self._room.clear()
        self._wake.set()

    @property
    def is_full(self) -> bool:
        """Whether more should not be put before there is room."""
        return self._size > _FULL and not self.is_gone

    async def room(self) -> None:
        """Wait until the client has taken enough that more may be put."""
        if self.is_full:
            await self._room.wait()

    def end(self) -> None:
        """Nothing more comes: the response ends when all is sent."""
        self._is_ended = True
        self._wake.set()

    async def serve(self, receive: Receive) -> bool:
        """Send until the end. Returns whether the client stayed so long."""
        loop = asyncio.get_running_loop()
        writing = loop.create_task(self._write())
        listening = loop.create_task(_left(receive))
        beating = loop.create_task(self._beat())
        tasks = (writing, listening, beating)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return writing.done() and writing.exception() is None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.is_gone = True
            self._waiting.clear()
            self._size = 0
            self._room.set()

    async def _write(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        while True:
            if self._waiting:
                frames, self._waiting, self._size = self._waiting, [], 0
                self._room.set()
                self._sent_at = asyncio.get_running_loop().time()
                self._is_sending = True
                await self._send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
                self._is_sending = False
            elif self._is_ended:
                break
            else:
                self._wake.clear()
                await self._wake.wait()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self) -> None:
        """Keep the connection open while nothing happens; ends when the client took nothing for too long."""
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        while not (self._is_sending and loop.time() - self._sent_at >= self._stalled_s):
            await asyncio.sleep(min(self._keep_alive_s, self._stalled_s))
            if not self._is_sending and loop.time() - self._sent_at >= self._keep_alive_s:
                self.put(_BEAT)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
