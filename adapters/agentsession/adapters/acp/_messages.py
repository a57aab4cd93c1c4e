"""The agent's chunks as messages: deltas, and a closing when another message, another kind or the answer comes.

Not for: tool calls. Rules carried: LIFE-14. May import: ``agentsession.protocol``, ``agentsession.adapters.base``, the
module for content beside it.
"""

from __future__ import annotations

from typing import Any

from agentsession.adapters.acp._content import part_of
from agentsession.adapters.base import MessageWriter, RunContext
from agentsession.protocol import Text, Thought

__all__ = ["Messages"]


class Messages:
    """What the agent says in one turn."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._key: object = None
        self._writer: MessageWriter | None = None
        self._held: list[str] | None = None if ctx.options.streaming is not False else []
        self._is_thought = False

    async def chunk(self, update: dict[str, Any], *, is_thought: bool) -> None:
        """One ``agent_message_chunk`` or ``agent_thought_chunk``."""
        given = update.get("messageId")
        key = given if isinstance(given, str) else ("thought" if is_thought else "text",)
        part = part_of(update.get("content"))
        if not isinstance(part, Text):
            await self.close()
            await self._ctx.say([part])
            return
        if key != self._key or (self._held is not None and is_thought != self._is_thought):
            await self.close()
            self._key, self._is_thought = key, is_thought
        if self._held is not None:
            self._held.append(part.text)
            return
        if self._writer is None:
            self._writer = self._ctx.message()
        await (self._writer.thought(part.text) if is_thought else self._writer.text(part.text))

    async def close(self, *, interrupted: bool = False) -> None:
        """The message is whole."""
        writer, self._writer, self._key = self._writer, None, None
        if writer is not None:
            await writer.close(interrupted=interrupted)
        if self._held:
            text, self._held = "".join(self._held), []
            await self._ctx.say([Thought(text=text) if self._is_thought else Text(text=text)])

    async def before_call(self) -> None:
        """A tool call comes: a message without an id of the agent's is over."""
        if not isinstance(self._key, str):
            await self.close()
