"""Clients that wait, leave and come back: one run on a thread at a time, and both policies for those who are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest
from tests.host.agui.inputs import assistant, user
from tests.host.agui.serving import HEADERS, Poster, Watched, outcome, serving
from tests.host.agui.streams import check, kinds, of_type

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Call, Deltas, Memory, Say, ScriptedExecutor, Step
from agentsession.host.agui import AguiApp, _app_steps, agui_app
from agentsession.host.agui._app_run import Run
from agentsession.host.http import Limits
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio


class Gate:
    """A step that says that it was reached, and goes on when it may."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        self.stopped = anyio.Event()

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except anyio.get_cancelled_exc_class():
            self.stopped.set()
            raise


class Served:
    def __init__(self, url: str, watched: Watched, sessions: LiveSessions) -> None:
        self.url = url
        self.app: AguiApp = watched.app
        self.until = watched.until
        self.settled = watched.settled
        self.sessions = sessions

    async def read_by(self, clients: int) -> None:
        """Wait until so many read."""
        await self.until(lambda app: app.clients == clients)

    async def running(self, runs: int) -> None:
        """Wait until so many run or wait."""
        await self.until(lambda app: app.running == runs)


@contextlib.asynccontextmanager
async def served(script: Sequence[Sequence[Step]], **options: Any) -> AsyncGenerator[Served]:
    with anyio.fail_after(20):
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(script))]) as sessions:
            watched = Watched(agui_app(sessions, **options))
            async with serving(watched) as url:
                yield Served(url, watched, sessions)


async def left_at(poster: Poster, gate: Gate, sent: bytes) -> None:
    """Begin a run, and leave when its gate is reached."""
    async with poster.stream(sent):
        await gate.reached.wait()


async def test_a_run_whose_client_left_is_cancelled() -> None:
    gate = Gate()
    async with served([[Deltas(["one"]), gate, Say("never")], [Say("next")]], grace_s=0.01) as server:
        async with Poster(server.url) as poster:
            await left_at(poster, gate, poster.sent(user("u1")))
            await gate.stopped.wait()
            await server.settled()
            live = await server.sessions.get("scripted", "local", "t1")
            assert live.state == "idle"
            events = await poster.say("u2")
            assert outcome(events) == {"type": "success"}


async def test_a_run_carries_on_without_its_client_and_is_there_when_it_comes_back() -> None:
    gate = Gate()
    script: list[list[Step]] = [[Deltas(["one ", "two "]), gate, Deltas(["three"])]]
    async with served(script, on_disconnect="carry_on") as server, Poster(server.url) as poster:
        sent = poster.sent(user("u1"))
        await left_at(poster, gate, sent)
        history = [user("u1"), assistant("m1", "one tw")]
        async with poster.stream(poster.sent(messages=history)) as events:
            gate.opened.set()
            found = [event async for event in events]
        client = check(found)
        assert outcome(found) == {"type": "success"}
        assert [message.get("content") for message in client.messages] == ["hello", "one two ", "three"]


async def test_a_run_that_carries_on_is_ended_at_its_cap() -> None:
    gate = Gate()
    async with served([[gate]], on_disconnect="carry_on", cap_s=0.01) as server, Poster(server.url) as poster:
        await left_at(poster, gate, poster.sent(user("u1")))
        await gate.stopped.wait()
        await server.settled()


async def test_a_client_that_comes_back_in_time_keeps_its_run() -> None:
    gate = Gate()
    async with served([[Deltas(["one"]), gate, Say("two")]], grace_s=30) as server, Poster(server.url) as poster:
        sent = poster.sent(user("u1"))
        await left_at(poster, gate, sent)
        await server.read_by(0)
        (run,) = server.app.runs
        left_before = run.is_left
        async with poster.stream(sent) as events:
            await server.read_by(1)
            assert (left_before, run.is_left) == (True, False)
            gate.opened.set()
            found = [event async for event in events]
        check(found)
        assert outcome(found) == {"type": "success"}
        assert "".join(event["delta"] for event in of_type(found, "TEXT_MESSAGE_CONTENT")) == "onetwo"


async def test_two_clients_read_one_run() -> None:
    gate = Gate()
    async with served([[Deltas(["one"]), gate, Say("two")]]) as server, Poster(server.url) as poster:
        sent = poster.sent(user("u1"))
        async with poster.stream(sent) as first, poster.stream(sent) as second:
            await gate.reached.wait()
            gate.opened.set()
            both = [[event async for event in events] for events in (first, second)]
        for found in both:
            check(found)
            assert "".join(event["delta"] for event in of_type(found, "TEXT_MESSAGE_CONTENT")) == "onetwo"


async def test_runs_of_a_thread_wait_in_order_and_do_not_interleave() -> None:
    gate = Gate()
    script: list[list[Step]] = [[gate, Say("one")], [Say("two")], [Say("three")]]
    async with served(script, limits=Limits(ping_s=0.01)) as server, Poster(server.url) as poster:
        began: list[str] = []

        async def run(number: int) -> list[dict[str, Any]]:
            async with poster.stream(poster.sent(messages=[user(f"u{number}")])) as events:
                found = []
                async for event in events:
                    if event["type"] == "RUN_STARTED":
                        began.append(event["runId"])
                    found.append(event)
                return found

        tasks = []
        for number in (1, 2, 3):
            tasks.append(asyncio.create_task(run(number)))
            await server.running(number)
        await gate.reached.wait()
        gate.opened.set()
        runs = await asyncio.gather(*tasks)
        assert began == ["run-1", "run-2", "run-3"]
        for found, text in zip(runs, ("one", "two", "three"), strict=True):
            check(found)
            assert "".join(event["delta"] for event in of_type(found, "TEXT_MESSAGE_CONTENT")) == text


async def test_a_client_that_waits_is_told_that_its_connection_lives() -> None:
    gate = Gate()
    async with (
        served([[gate, Say("one")], [Say("two")]], limits=Limits(ping_s=0.01)) as server,
        Poster(server.url) as poster,
    ):
        first = asyncio.create_task(poster.run(user("u1")))
        await gate.reached.wait()
        sent = poster.sent(messages=[user("u2")])
        async with poster.http.stream("POST", server.url, content=sent, headers=HEADERS) as response:
            told = response.aiter_text()
            assert await anext(told) == ": keep-alive\n\n"
            gate.opened.set()
            await first
            assert "RUN_FINISHED" in "".join([text async for text in told])


async def test_a_waiter_that_leaves_runs_nothing_and_one_too_many_is_told_so() -> None:
    gate = Gate()
    async with served([[gate, Say("one")], [Say("three")]], waiters=1) as server, Poster(server.url) as poster:
        first = asyncio.create_task(poster.run(user("u1")))
        await gate.reached.wait()
        second = asyncio.create_task(left_at(poster, Gate(), poster.sent(messages=[user("u2")])))
        await server.running(2)
        full = await poster.http.post(server.url, content=poster.sent(messages=[user("u3")]), headers=HEADERS)
        assert (full.status_code, full.json()["code"]) == (429, "too-many-runs")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await server.running(1)
        gate.opened.set()
        await first
        poster.client.messages = [user("u3")]
        events = await poster.run()
        assert "".join(event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT")) == "three"


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_an_id_of_a_run_that_is_used_for_another_message_drops_neither(is_waiting: bool) -> None:
    gate = Gate()
    script: list[list[Step]] = [[gate, Say("one")], [Say("two")], [Say("three")]]
    async with served(script) as server, Poster(server.url) as poster:
        first = asyncio.create_task(poster.run(user("u1"), runId="same"))
        await gate.reached.wait()
        others = [Poster(server.url) for _ in range(2 if is_waiting else 1)]
        tasks = []
        for number, other in enumerate(others):
            tasks.append(asyncio.create_task(other.run(user(f"u{number + 2}"), runId="same")))
            await server.running(number + 2)
        gate.opened.set()
        ended = [await first, *[await task for task in tasks]]
        said = ["".join(event["delta"] for event in of_type(run, "TEXT_MESSAGE_CONTENT")) for run in ended]
        assert said == ["one", "two", "three"][: len(said)]
        for other in others:
            await other.http.aclose()


async def test_a_run_that_is_posted_again_with_another_text_is_a_conflict_and_no_part_of_it() -> None:
    gate = Gate()
    async with served([[gate, Say("one")]]) as server, Poster(server.url) as poster, Poster(server.url) as other:
        first = asyncio.create_task(poster.run(user("u1"), runId="same"))
        await gate.reached.wait()
        second = asyncio.create_task(other.run(user("u1", "else"), runId="same"))
        await server.running(2)
        gate.opened.set()
        assert outcome(await first) == {"type": "success"}
        assert outcome(await second) == "history_conflict"


async def test_answers_that_are_posted_again_join_the_run_that_they_began() -> None:
    gate = Gate()
    script: list[list[Step]] = [[Call("wipe", {}, needs="grant", id="c1"), gate, Say("one")]]
    async with served(script) as server, Poster(server.url) as poster:
        await poster.say("u1")
        sent = poster.sent(resume=[{"interruptId": "c1", "status": "resolved", "payload": True}])
        async with poster.stream(sent) as first:
            await gate.reached.wait()
            async with poster.stream(sent) as second:
                await server.read_by(2)
                assert server.app.running == 1
                gate.opened.set()
                both = [[event async for event in events] for events in (first, second)]
        assert [outcome(found) for found in both] == [{"type": "success"}] * 2


async def test_a_state_with_nothing_new_is_not_set_and_the_client_is_told_which_one_holds() -> None:
    gate = Gate()
    script: list[list[Step]] = [[gate, Say("one")]]
    async with served(script) as server, Poster(server.url) as poster:
        sent = poster.sent(user("u1"), state={"n": 1, "kept": True})
        async with poster.stream(sent) as first:
            await gate.reached.wait()
            async with poster.stream(poster.sent(state={"n": 2})) as second:
                gate.opened.set()
                joined = [event async for event in second]
                assert [event async for event in first]
        shown = await poster.run(state={"n": 3})
        for events in (joined, shown):
            assert of_type(events, "STATE_SNAPSHOT")[0]["snapshot"] == {"n": 1, "kept": True}


async def test_a_run_whose_client_is_gone_for_good_begins_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is free a moment before the host has done: who leaves then must not leave a turn behind."""
    reached, left = anyio.Event(), anyio.Event()
    abandon = Run._abandon

    async def host_is_done(live: LiveSession) -> None:
        reached.set()
        await left.wait()

    def noted(run: Run) -> None:
        abandon(run)
        left.set()

    monkeypatch.setattr(_app_steps, "_host_is_done", host_is_done)
    monkeypatch.setattr(Run, "_abandon", noted)
    async with served([[Say("never")]], grace_s=0.01) as server, Poster(server.url) as poster:
        async with poster.stream(poster.sent(user("u1"))):
            await reached.wait()
        await server.settled()
        live = await server.sessions.get("scripted", "local", "t1")
        assert live.state == "new"
        assert not [event async for event in live.events(types={"message"})]


async def test_a_history_that_is_sent_again_runs_nothing_and_shows_where_the_thread_stands() -> None:
    async with served([[Say("one")]]) as server, Poster(server.url) as poster:
        await poster.say("u1")
        before = [*poster.client.messages]
        events = await poster.run()
        assert kinds(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert poster.client.messages == before
        poster.client = type(poster.client)()  # a page that was loaded anew
        await poster.run(user("u1"))
        assert poster.client.messages == before


async def test_a_page_that_is_loaded_anew_is_told_the_conversation_before_an_interrupt() -> None:
    script: list[list[Step]] = [[Say("one")], [Say("two"), Call("wipe", {}, needs="grant", id="c1")]]
    async with served(script) as server, Poster(server.url) as poster:
        await poster.say("u1")
        await poster.say("u2")
        before = [*poster.client.messages]
        assert [message.get("content") for message in before] == ["hello", "one", "hello", "two"]
        poster.client = type(poster.client)()
        events = await poster.run(user("u1"))
        assert [each["id"] for each in outcome(events)["interrupts"]] == ["c1"]
        assert poster.client.messages == before


async def test_a_message_that_says_something_else_is_a_conflict() -> None:
    async with served([[Say("one")]]) as server, Poster(server.url) as poster:
        await poster.say("u1")
        events = await poster.run(messages=[user("u1", "else")])
        assert outcome(events) == "history_conflict"
