"""Readers of events that are slow, silent or gone, on a clock that the tests move: nobody waits for them in truth."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from tests.host.http.asgi import Client

from agentsession.adapters.scripted import Deltas, Say, ScriptedExecutor, Step
from agentsession.host.http import Limits, contract_app
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent

S = "/agents/scripted/sessions/s"


@asynccontextmanager
async def opened(script: Sequence[Sequence[Step]]) -> AsyncGenerator[tuple[Any, LiveSession]]:
    """An app on its clock, and a session of it."""
    async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(script))], idle_s=3600) as sessions:
        app = contract_app(sessions, limits=Limits(readers=1))
        made = Client(app, "POST", "/agents/scripted/sessions", [b'{"sessionId": "s"}'])
        await made.run()
        assert made.status == 201
        yield app, await sessions.get("scripted", "local", "s")


def on_a_clock(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(5000):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_reader_that_takes_nothing_is_dropped_after_its_time_with_all_that_was_made_for_it() -> None:
    async def main() -> None:
        async with opened([[Say("Hi.")]]) as (app, live):
            reader = Client(app, "GET", S + "/events")
            taken: list[bytes] = []

            async def take(data: bytes) -> None:
                taken.append(data)
                if data.startswith(b"id:"):
                    await trio.sleep_forever()

            begun = trio.current_time()
            await reader.run(take)  # nobody says that it is gone
            assert trio.current_time() - begun == 30
            assert (reader.status, len(taken)) == (200, 2)
            assert not live.is_held
            again = Client(app, "GET", S + "/events")  # of this user one may read at a time
            async with trio.open_nursery() as tasks:
                tasks.start_soon(again.run, take)
                again.gone.set()
            assert again.status == 200

    on_a_clock(main)


def test_an_agent_that_waits_for_a_reader_goes_on_when_that_is_dropped() -> None:
    async def main() -> None:
        many = [f"{number} " for number in range(5000)]
        async with opened([[Deltas(many), Say("End.")]]) as (app, live):
            reader = Client(app, "POST", S + "/stream", [b'{"input": "go"}'])
            held: list[str] = []

            async def take(data: bytes) -> None:
                if b'"partial":true' in data:
                    await trio.sleep(29)
                    held.append(live.state)
                    await trio.sleep_forever()

            begun = trio.current_time()
            await reader.run(take)
            assert held == ["running"]
            assert trio.current_time() - begun == 30
            await live.at_rest()
            assert (live.state, live.is_held) == ("idle", False)

    on_a_clock(main)


def test_a_reader_is_sent_a_comment_where_nothing_else_was_sent_for_its_time() -> None:
    async def main() -> None:
        async with opened([[Say("Hi.")]]) as (app, live):
            reader = Client(app, "GET", S + "/events", headers=[("last-event-id", str(live.last_seq))])
            comments: list[float] = []
            begun = trio.current_time()

            async def take(data: bytes) -> None:
                if data.startswith(b":"):
                    assert data == b":\n\n"
                    comments.append(trio.current_time() - begun)

            async with trio.open_nursery() as tasks:
                tasks.start_soon(reader.run, take)
                await trio.sleep(40)
                await live.stream("go")  # what is said then puts the next comment off
                await live.at_rest()
                await trio.sleep(25)
                reader.gone.set()
            assert comments == [15, 30, 55]
            assert not live.is_held

    on_a_clock(main)


def test_a_slow_reader_gets_every_event_and_is_not_dropped_while_it_takes_some() -> None:
    async def main() -> None:
        async with opened([[Deltas(["a", "b", "c"]), Say("End.")]]) as (app, live):
            reader = Client(app, "POST", S + "/stream", [b'{"input": "go"}'])
            seen: list[Any] = []

            async def take(data: bytes) -> None:
                await trio.sleep(29)
                if data.startswith(b"id:"):
                    seen.append(json.loads(data.split(b"data: ")[1]))

            await reader.run(take)
            assert seen[-1]["type"] == "stream_end"
            assert "".join(one["content"][0]["text"] for one in seen if one.get("partial")) == "abc"
            durable = [event.to_wire() async for event in live.events() if not getattr(event, "partial", False)]
            assert [one for one in seen if not one.get("partial")] == durable[-len(seen) + 3 :]

    on_a_clock(main)
