"""One session with the server's host in between: the calls of a client, and the tools that it declared.

Not for: driving turns (``_turns.py``) or what answers mean (``_answers.py``). Rules carried: none of its own.
May import: anyio, ``_answers``, ``_turns``, ``agentsession.host``, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio.abc

from agentsession.host._child_events import works_for
from agentsession.host._host import Host
from agentsession.host._settings import ClientTools
from agentsession.host.live._answers import Answers
from agentsession.host.live._desk import Desk
from agentsession.host.live._turns import Begun, Turns
from agentsession.protocol import (
    AbortResult,
    AgentSession,
    Answer,
    ExecutionOptions,
    InvalidInput,
    MessageInput,
    NothingToContinue,
    PendingRequest,
    Receipt,
    SessionConfig,
    StreamActive,
    ToolDescriptor,
    ToolRequest,
    as_answers,
    as_content,
)

__all__ = ["Hosted"]

_GOES_ON: Final = "the host of this server goes on by itself: read the events; another host wants it bare: serve --bare"


class Hosted:
    """The calls of one session whose turns the server's host drives."""

    def __init__(self, host: Host, user_id: str, tasks: anyio.abc.TaskGroup) -> None:
        self._turns = Turns(host, tasks)
        self._answers = Answers(self._turns, user_id)

    def begin(self, session: AgentSession) -> None:
        """Take up the session, once the host has opened it with :attr:`desk` and :attr:`tools`."""
        self._turns.begin(session)

    @property
    def desk(self) -> Desk:
        """The channel of the session's person."""
        return self._turns.desk

    @property
    def client_tools(self) -> set[str]:
        """The names of the tools that the client declared."""
        return self._turns.client_tools

    @property
    def is_driving(self) -> bool:
        """Whether the host is at work in a turn."""
        return self._turns.is_driving

    @property
    def pending(self) -> list[PendingRequest]:
        """The session's requests, with why the host asks about them."""
        return [self.desk.shown(request) for request in self._turns.session.pending]

    @property
    def asked_below(self) -> list[PendingRequest]:
        """What sub-agents ask, as the caller's session knows it."""
        calls = [request for request in self._turns.session.pending if isinstance(request, ToolRequest)]
        return [request for request in self.desk.waiting if any(_asks_for(request, call) for call in calls)]

    @property
    def tools(self) -> ClientTools:
        """The client's tools, as the host asks for them."""
        return self._turns

    async def update(self, config: SessionConfig) -> Receipt:
        """Change the session. A change of the tools is one of the client's, and the host's stay."""
        if config.tools is None:
            return await self._turns.session.update(config)
        before = set(self._turns.client_tools)
        given = self.declare(config.tools)
        full = config.model_copy(update={"tools": [*given, *self._turns.host.tools.descriptors]})
        is_declared = False
        try:
            receipt = await self._turns.session.update(full)
            is_declared = receipt.ok
            return receipt
        finally:
            if not is_declared:
                self._turns.client_tools &= before

    def declare(self, tools: Sequence[ToolDescriptor]) -> list[ToolDescriptor]:
        """Note that the client runs these. Raises :class:`InvalidInput` for a name of the host's own."""
        taken = next((tool.name for tool in tools if self._turns.host.tools.get(tool.name) is not None), None)
        if taken is not None:
            raise InvalidInput(f"the server has a tool {taken!r} of its own", fix="give the client's another name")
        self._turns.client_tools.update(tool.name for tool in tools)
        return list(tools)

    async def stream(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> Begun:
        """Begin a turn with a message, or go on with the one that waits; answers are the person's."""
        if isinstance(given, str):
            given = MessageInput(content=as_content(given))
        if options is not None and options.tools is not None:
            clients = self.declare(options.tools)
            options = options.model_copy(update={"tools": [*clients, *self._turns.host.tools.descriptors]})
        if isinstance(given, MessageInput):
            return await self._turns.message(given, options)
        session = self._turns.session
        cursor, before = session.last_seq, self._turns.last
        if given is not None:
            receipts = await self._answers.respond(as_answers(given))
            if not any(receipt.ok for receipt in receipts):
                raise NothingToContinue(
                    "no answer applied", got=", ".join(receipt.status for receipt in receipts), where=self._turns.where
                )
            driven = self._turns.driving
        else:
            receipts = []
            if self._turns.is_driving or session.state == "running":
                raise StreamActive(f"a turn of session {session.session_id} runs", fix=_GOES_ON)
            if session.state != "input_required":
                raise NothingToContinue("nothing waits", where=self._turns.where, fix=_GOES_ON)
            if session.pending and not self._turns.begins_work():
                raise NothingToContinue("it waits for answers", where=self._turns.where, fix="answer first: respond")
            driven = self._turns.drive(None, options)
        if driven is None and self._turns.last is not before:
            driven = self._turns.last  # the answers had it run, and it is over already
        begun = await self._turns.begins(driven) if driven is not None else None
        if begun is None:  # it still waits: that is its last stream
            stream_id = next((request.stream_id for request in session.pending if request.stream_id), "")
            turn_id = next((request.turn_id for request in session.pending if request.turn_id), "")
            return stream_id, turn_id, receipts, cursor
        return begun[0], begun[1], receipts, min(cursor, begun[3])

    async def respond(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Take what a client says to requests; the turn goes on by itself."""
        return await self._answers.respond(answers)

    async def abort(self, reason: str | None) -> AbortResult:
        """End the turn; the host's tools are cancelled first."""
        return await self._turns.abort(reason)

    async def at_rest(self) -> None:
        """Wait until no turn is being driven."""
        await self._turns.at_rest()

    async def aclose(self) -> None:
        """Close the session; a running turn of it is aborted."""
        await self._turns.aclose()


def _asks_for(request: PendingRequest, call: ToolRequest) -> bool:
    """Whether a sub-agent that works for ``call``, or one below it, asks."""
    path = (request.thread_id or "").split(".")
    return any(works_for(".".join(path[:end]), call) for end in range(1, len(path) + 1))
