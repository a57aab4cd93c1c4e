"""Which message a call belongs to, where its request does not say: calls of one step of the model are one message.

Not for: calls that name their message. Pure. Rules carried: none of the contract's. May import: ``protocol``.

All calls of a step are asked before one is answered (TOOL-06). So a call goes with the words and the calls before it on
its thread, up to an answer or a change of agents. The stream and the snapshots ask the same object.
"""

from __future__ import annotations

from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Event,
    Message,
    Refusal,
    StreamEnd,
    Text,
    ToolRequest,
    ToolResponse,
)

__all__ = ["CallPlaces"]


class CallPlaces:
    """See the module. Every event is shown to :meth:`note`, a call after it was placed."""

    def __init__(self) -> None:
        self._last: dict[str | None, str] = {}
        """By thread, the message that the next call of the step goes to."""

    def of(self, event: ToolRequest) -> str | None:
        """The message of a call; ``None`` for the first of a step without words, whose message has the call's id."""
        return event.message_id or self._last.get(event.thread_id)

    def placed(self, event: ToolRequest, owner: str | None) -> None:
        """A call has its message."""
        self._last[event.thread_id] = owner or event.request_id

    def note(self, event: Event) -> None:
        """What ends a step, or begins one with words."""
        match event:
            case Message(partial=False) if event.role == "agent":
                if any(isinstance(part, (Text, Refusal)) and part.text for part in event.content):
                    self._last[event.thread_id] = event.message_id
            case ToolResponse() | AgentStart() | AgentEnd():
                self._last.pop(event.thread_id, None)
            case StreamEnd():
                self._last.clear()
            case _:
                pass
