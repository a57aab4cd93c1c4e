"""A client that comes back to a run that is at work, or a second one: it is shown the run from its beginning.

Not for: the run itself (``_app_run.py``). Rules carried: none of its own.
May import: asyncio, the ``_app``, ``_in`` and ``_out`` modules, ``protocol``.

Such a client may have any part of the run already, and would append what it is sent again. So it first gets the
conversation as it was before the run, which makes it forget the rest, and then the run's events as if nothing had been
lost. That reads the record once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from agentsession.host.agui._app_folded import record_of
from agentsession.host.agui._app_run import Run
from agentsession.host.agui._app_sink import Sink
from agentsession.host.agui._app_steps import CLIENTS_ROLES
from agentsession.host.agui._in_read import RunInput
from agentsession.host.agui._out import RunMapper
from agentsession.host.agui._out_known import Known
from agentsession.host.agui._out_snapshots import messages_snapshot
from agentsession.host.agui._out_wire import Wire, encode
from agentsession.protocol import Event, EventReader

__all__ = ["Join"]


class Join:
    """One client's reading of a run that another request began."""

    def __init__(self, run: Run, given: RunInput, sink: Sink) -> None:
        self._run = run
        self._given = given
        self._sink = sink

    async def work(self) -> None:
        """Show the run to its end."""
        run = self._run
        run.joined()
        try:
            await self._show()
        finally:
            run.left()
            self._sink.end()

    async def _show(self) -> None:
        run, given = self._run, self._given
        await run.begun.wait()
        live, began = run.live, run.began
        if live is None or began is None:  # it ended before it began
            await run.done.wait()
            mapper = RunMapper(thread_id=given.thread_id, run_id=given.run_id, known=Known())
            code, message = run.fault or ("cancelled", "The run was cancelled.")
            self._put([*mapper.start(client_state=given.state), *mapper.fail(code, message)])
            return
        with live.hold():
            record = await record_of(live, before=began)
            known = Known.of(record)
            mapper = RunMapper(
                thread_id=given.thread_id,
                run_id=given.run_id,
                known=known,
                parent_run_id=given.parent_run_id,
                input_message_ids=run.message_ids,
                client_tools=run.client_tools,
            )
            shown = {message["id"] for message in messages_snapshot(record)}
            history = [message for message in given.history if message["role"] in CLIENTS_ROLES]
            self._put(
                mapper.start(
                    session_id=live.session_id,
                    client_state=given.state,
                    history=record,
                    client_messages=history,
                    blank_reasoning=_reasoning(given.history, shown),
                )
            )
            reader = live.events(after=began.seq, follow=True)
            try:
                async for event in _until(reader, run):
                    for wire in mapper.feed(event):
                        self._sink.put(b"id: %d\n" % event.seq + encode(wire))
                    await self._sink.room()
            finally:
                await reader.aclose()
            if run.fault is not None:
                self._put(mapper.fail(*run.fault))
                return
            mapper.end = mapper.end or run.last_end
            whole = await record_of(live) if mapper.needs_history else ()
            self._put(mapper.finish(history=whole, client_messages=history))

    def _put(self, events: list[Wire]) -> None:
        for wire in events:
            self._sink.put(encode(wire))


def _reasoning(history: Any, shown: set[str]) -> list[str]:
    """Reasoning that the client has of this run: a snapshot does not make it forget that."""
    found: dict[str, Mapping[str, Any]] = {
        message["id"]: message for message in history if message["role"] == "reasoning" and message["id"] not in shown
    }
    return list(found)


async def _until(reader: EventReader, run: Run) -> AsyncGenerator[Event]:
    """The events of a run, to its end."""
    loop = asyncio.get_running_loop()
    over = loop.create_task(run.done.wait())
    try:
        while not (run.done.is_set() and reader.cursor >= run.ended):
            coming = asyncio.ensure_future(anext(reader, None))
            await asyncio.wait((coming, over), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                event = coming.result()
                if event is None:
                    return
                yield event
                continue
            if reader.cursor >= run.ended:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                return
            event = await coming
            if event is None:
                return
            yield event
    finally:
        over.cancel()
