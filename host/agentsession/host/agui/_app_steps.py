"""The steps of a run that has its thread: what is new is decided and done, and its events are shown.

Not for: the run's place, its clients and its end (``_app_run.py``). Rules carried: LIFE-07, TOOL-09, HITL-08.
May import: asyncio, the host's ``_jobs``, ``live``, the ``_app``, ``_in`` and ``_out`` modules, ``protocol``.

Nothing here reads the record, but for an interrupt, whose client must know the whole conversation, and where nothing is
new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from agentsession.host._jobs import is_a_job
from agentsession.host.agui._app_below import asked_below
from agentsession.host.agui._app_folded import Folded, record_of
from agentsession.host.agui._app_plan import Plan, changed_state, options_of, plan_of
from agentsession.host.agui._app_sink import Sink
from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Mark
from agentsession.host.agui._out import RunMapper
from agentsession.host.agui._out_interrupts import known_interrupt
from agentsession.host.agui._out_known import Known
from agentsession.host.agui._out_wire import Wire, encode, milliseconds
from agentsession.host.live import LiveSession
from agentsession.protocol import (
    Event,
    EventReader,
    PendingRequest,
    SessionConfig,
    StreamEnd,
    ToolDescriptor,
    ToolRequest,
)

if TYPE_CHECKING:
    from agentsession.host.agui._app_run import Run

__all__ = ["CLIENTS_ROLES", "Steps"]

logger = logging.getLogger("agentsession.host")

CLIENTS_ROLES: Final = frozenset({"user", "tool", "system", "developer"})
"""The roles of messages that are a client's own, whatever it has of the agent's."""


class _NotTheHosts(Collection[str]):
    """The names of all tools but the host's own: those that the client runs, also after a restart."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def __contains__(self, name: object) -> bool:
        return name not in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Steps:
    """What a run does while it has its thread."""

    def __init__(self, run: Run, mapper: RunMapper, sink: Sink) -> None:
        self._run = run
        self._mapper = mapper
        self._sink = sink
        self._is_started = False
        self._history: list[Event] | None = None
        """The record, where the client is to be told the conversation first."""
        self._folded: Folded

    def fail(self, code: str, message: str) -> None:
        """End with an error that is not the agent's."""
        self._run.fault = (code, message)
        if self._mapper.is_over:
            return
        if not self._is_started:
            self._start(None)
        self._put(self._mapper.fail(code, message))

    async def run(self, live: LiveSession, folded: Folded) -> None:
        """From the input to the end."""
        run, given = self._run, self._run.given
        self._folded = folded
        self._run.begin(live, folded)
        host = live.agent.host
        names = frozenset(tool.name for tool in host.tools.descriptors) if host is not None else frozenset[str]()
        for tool in host.tools.descriptors if host is not None else ():
            folded.known.tools.setdefault(tool.name, tool)
        run.client_tools = None if host is None else _NotTheHosts(names)
        self._mapper = self._made(())

        def is_clients(request: PendingRequest) -> bool:
            if not isinstance(request, ToolRequest) or request.needs == "grant":
                return False
            return host is None or (request.owner != "agent" and request.name not in names)

        def schema_of(name: str) -> dict[str, Any] | None:
            tool = folded.known.tool(name)
            return tool.parameters_schema if tool is not None else None

        plan = plan_of(given, folded.memory, _waiting(live, folded.known), is_clients, schema_of, datetime.now(UTC))
        if plan.is_empty:
            await self._show(live)
            return
        own = names | {tool.name for tool in _own_tools(live)}
        options = options_of(given, own, run.endpoint.forwarded)
        if options is not None and options.tools:
            live.declare(options.tools)  # after a restart nobody else says whose a waiting call is
        await self._set_state(live)
        run.message_ids = frozenset(plan.message_ids)
        self._mapper = self._made(plan.message_ids)
        run.begin(live, self._folded)
        if self._folded.known.is_behind:  # others drove the session, or this client left before a run's end
            self._history = await record_of(live, before=run.began)
        reader = live.events(after=self._folded.memory.seq, follow=True)
        try:
            await self._answer(live, reader, plan)
            if plan.message is not None and not (plan.goes_on and _waiting(live, self._folded.known)):
                await _host_is_done(live)
                self._require_readers()
                started = await live.stream(plan.message, options)
                self._start(started.turn_id)
                await self._follow(live, reader, started.turn_id)
        finally:
            await reader.aclose()
            run.ended, run.last_end = live.last_seq, self._folded.memory.last_end
            if not run.readers:
                self._folded.known.is_behind = True
        await self._finish(live)

    def _made(self, message_ids: Collection[str]) -> RunMapper:
        given = self._run.given
        return RunMapper(
            thread_id=given.thread_id,
            run_id=given.run_id,
            known=self._folded.known,
            parent_run_id=given.parent_run_id,
            input_message_ids=message_ids,
            client_tools=self._run.client_tools,
        )

    async def _answer(self, live: LiveSession, reader: EventReader, plan: Plan) -> None:
        """Give the answers, and show the turn that goes on with them to its end or its next pause."""
        if not plan.answers:
            return
        self._require_readers()
        turn_id = live.pending[0].turn_id
        if live.is_hosted:
            receipts = await live.respond(*plan.answers)
        else:
            receipts = (await live.stream(plan.answers)).receipts
        self._start(turn_id)
        # A host goes on by itself, and perhaps without a stream.
        if not live.is_hosted or not await self._pause(live, reader):
            await self._follow(live, reader, turn_id)
        refused = next((receipt for receipt in receipts if receipt.status in ("invalid", "not_found")), None)
        # A call that only waits for its sub-agent wants no word: what that asks now is shown in its place.
        if refused is not None and refused.request_id not in asked_below(live, self._folded.known):
            raise RunRefused("answer_invalid", f"the answer to {refused.request_id} was not taken: {refused.reason}")

    def _require_readers(self) -> None:
        """Nothing is begun for a client that is gone for good: what its leaving ended would not end this."""
        if self._run.is_abandoned:
            raise RunRefused("cancelled", "The run was cancelled.")

    async def _show(self, live: LiveSession) -> None:
        """Nothing is new: where the session stands, and how its last run ended."""
        run, mapper = self._run, self._mapper
        if live.state == "running":
            await self._watch(live)
            return
        record = await record_of(live)
        mapper.end = self._folded.memory.last_end
        history = None if mapper.needs_history else record
        given = run.given
        self._is_started = True
        self._put(
            mapper.start(
                session_id=live.session_id,
                client_state=given.state,
                history=history,
                client_messages=given.history,
            )
        )
        below = self._below(live)
        self._put(mapper.finish(history=record, client_messages=given.history, interrupts=below))

    async def _watch(self, live: LiveSession) -> None:
        """Show the stream that runs, which somebody else began, from its beginning."""
        given = self._run.given
        record = [event async for event in live.events()]
        stream_id = next(event.stream_id for event in reversed(record) if event.stream_id is not None)
        began = next(event for event in record if event.stream_id == stream_id)
        before = await record_of(live, before=Mark(began.seq - 1, (milliseconds(began.timestamp) or 0) - 1))
        self._folded = Folded(Known.of(before), self._folded.memory)
        self._mapper = self._made([message.id for message in given.tail])
        self._is_started = True
        history = [message for message in given.history if message["role"] in CLIENTS_ROLES]
        start = self._mapper.start(
            session_id=live.session_id,
            turn_id=began.turn_id,
            client_state=given.state,
            history=before,
            client_messages=history,
        )
        self._put(start)
        reader = live.events(after=began.seq - 1, follow=True)
        try:
            await self._follow(live, reader, began.turn_id)
        finally:
            await reader.aclose()
        await self._finish(live)

    async def _set_state(self, live: LiveSession) -> None:
        known = self._folded.known
        changes = changed_state(self._run.given.state, known.seen_state, known.hides)
        if not changes:
            return
        receipt = await live.update(SessionConfig(state=dict(changes)))
        if not receipt.ok:  # the client is told the state that holds, at the run's start
            logger.info("session %s took no state: %s", live.session_id, receipt.reason)
        self._folded = await self._run.endpoint.folded.of(live)

    # -- events ------------------------------------------------------------------------------------------------------

    async def _follow(self, live: LiveSession, reader: EventReader, turn_id: str | None) -> None:
        """Show the turn until it is over, or waits for somebody."""
        sink, take = self._sink, self._take
        async for event in reader:
            take(event)
            if sink.is_full:
                await sink.room()
            if type(event) is StreamEnd and event.turn_id == turn_id:
                if event.reason != "input_required":
                    return
                if not live.is_hosted or await self._pause(live, reader):
                    return

    async def _pause(self, live: LiveSession, reader: EventReader) -> bool:
        """Between two streams of a turn its host is at work: show that. Returns whether the host has done what it can.

        Events are waited for one by one here, as the rest may come without any.
        """
        rest = asyncio.ensure_future(live.at_rest())
        try:
            while True:
                coming = asyncio.ensure_future(anext(reader))
                await asyncio.wait((coming, rest), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done() and reader.cursor >= live.last_seq:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
                    return True
                event = await coming
                self._take(event)
                if event.stream_id is not None and type(event) is not StreamEnd:
                    return False  # the next stream
        finally:
            rest.cancel()

    def _take(self, event: Event) -> None:
        seq = event.seq
        self._folded.memory.add(event)
        for wire in self._mapper.feed(event):
            self._sink.put(b"id: %d\n" % seq + encode(wire))

    def _start(self, turn_id: str | None) -> None:
        if self._is_started:
            return
        self._is_started = True
        live, state = self._run.live, self._run.given.state
        session_id = live.session_id if live is not None else None
        if self._run.began is None:
            state = self._mapper.known.seen_state  # nothing is known: nothing is said of it
        start = self._mapper.start(
            session_id=session_id,
            turn_id=turn_id,
            client_state=state,
            history=self._history,
            client_messages=self._run.given.history,
        )
        self._put(start)

    async def _finish(self, live: LiveSession) -> None:
        mapper, given = self._mapper, self._run.given
        if mapper.end is None:
            mapper.end = self._folded.memory.last_end
        below = self._below(live)
        history = await record_of(live) if below or mapper.needs_history else ()
        self._put(mapper.finish(history=history, client_messages=given.history, interrupts=below))

    def _below(self, live: LiveSession) -> list[Wire]:
        """What the sub-agents ask that the host runs; the calls that they work for ask nothing themselves."""
        asked = asked_below(live, self._mapper.known)
        for request_id in asked:
            self._mapper.known.asked.pop(request_id, None)
        return [known_interrupt(request, self._mapper.known) for requests in asked.values() for request in requests]

    def _put(self, events: list[Wire]) -> None:
        for wire in events:
            self._sink.put(encode(wire))


async def _host_is_done(live: LiveSession) -> None:
    """A turn ends with an event, and its host a moment later: only then may the next begin."""
    if live.is_hosted and live.state != "running":
        await live.at_rest()


def _own_tools(live: LiveSession) -> Iterator[ToolDescriptor]:
    waiting = [live.descriptor]
    while waiting:
        found = waiting.pop()
        yield from found.own_tools
        waiting += found.sub_agents


def _waiting(live: LiveSession, known: Known) -> list[PendingRequest]:
    """What waits for the client, in the session and in those of the sub-agents below it."""
    below = asked_below(live, known)
    own = [request for request in live.pending if request.request_id not in below]
    if live.is_hosted:
        own = [request for request in own if not is_a_job(request)]
    return [*own, *(request for requests in below.values() for request in requests)]
