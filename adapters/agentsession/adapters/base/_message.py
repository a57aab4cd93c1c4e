"""A message that an executor says in deltas.

Not for: closing messages that nobody closes (``_settling.py``). Rules carried: LIFE-14.
May import: ``agentsession.protocol``, the modules beside it.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._stamping import restamp
from agentsession.protocol import ContentPart, DeltaJoiner, Message, Text, Thought

if TYPE_CHECKING:
    from agentsession.adapters.base._context import RunContext

__all__ = ["MessageWriter"]


class MessageWriter:
    """A message in deltas, closed on leaving: whole, or ``interrupted`` when left by an exception.

    A pause inside a message closes it; what is said after it goes on under a new id (LIFE-14).
    """

    def __init__(self, context: RunContext, message_id: str, role: str) -> None:
        self._context = context
        self.message_id = message_id
        self.role = role
        self._index = 0
        self._joiners: dict[str, DeltaJoiner] = {}
        self._parts: list[ContentPart] = []
        self._pieces: list[str] = []
        self._kind = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif self._context.is_attached and self._index and self._context.is_open_message(self.message_id):
            self._context.emit_nowait(restamp(self._whole(), interrupted=True))

    async def text(self, text: str) -> None:
        """Say a piece of text; a character that was cut in two is joined with the next piece."""
        shown = self._joined("text", text)
        if shown:
            if not self._context.is_ready():
                await self._context.ready()
            self._emit("text", shown)

    async def thought(self, text: str) -> None:
        """Think a piece of text."""
        shown = self._joined("thought", text)
        if shown:
            if not self._context.is_ready():
                await self._context.ready()
            self._emit("thought", shown)

    def _joined(self, kind: str, text: str) -> str:
        if not isinstance(text, str):
            need(text, str, "piece of a message", "say text, other parts with say()")  # type: ignore[unreachable]  # untyped
        joiner = self._joiners.get(kind)
        if joiner is None:
            joiner = self._joiners[kind] = DeltaJoiner()
        return joiner.feed(text)

    def _emit(self, kind: str, text: str) -> None:
        context = self._context
        if self._index and context.is_closed_message(self.message_id):
            self._start_over()
        context.emit_delta(kind, text, self.message_id, self.role, self._index)
        self._index += 1
        if kind != self._kind:
            self._end_part()
            self._kind = kind
        self._pieces.append(text)

    def _start_over(self) -> None:
        """A pause closed the message: the rest of it is a message of its own."""
        self.message_id = self._context.new_id("m")
        self._index = 0
        self._parts, self._pieces, self._kind = [], [], ""

    def _end_part(self) -> None:
        if self._pieces:
            text = "".join(self._pieces)
            self._parts.append(Thought(text=text) if self._kind == "thought" else Text(text=text))
            self._pieces = []

    async def close(self, *, interrupted: bool = False) -> Message | None:
        """Emit the closing event with the whole content; nothing if nothing was said."""
        for kind, joiner in self._joiners.items():
            rest = joiner.flush()
            if rest:
                await self._context.ready()
                self._emit(kind, rest)
        if self._index == 0 or not self._context.is_open_message(self.message_id):
            return None
        whole = self._whole()
        return await self._context.emit(restamp(whole, interrupted=True) if interrupted else whole)

    def _whole(self) -> Message:
        self._end_part()
        return Message(message_id=self.message_id, role=self.role, content=self._parts)
