"""Sessions that stay open: how long, how many, and what is left of those that nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.adapters.scripted import Ask, Call, Calls, Delay, Say, ScriptedExecutor, Step
from agentsession.host import Host, SqliteRecordStore, ask_all
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent, TooManySessions
from agentsession.protocol import (
    ConfigurationError,
    ExecutionOptions,
    HostCapabilities,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    SessionBusy,
    SessionConfig,
    SessionNotFound,
    ToolDescriptor,
    accept,
    deny,
    grant,
)

pytestmark = pytest.mark.anyio

SCRIPT: Sequence[Sequence[Step]] = [[Say("One.")], [Say("Two.")]]


class SlowToLeave(ScriptedExecutor):
    """Closing one of its sessions takes until ``go`` is set."""

    def __init__(self, script: Sequence[Sequence[Step]]) -> None:
        super().__init__(script)
        self.leaves = anyio.Event()
        self.go = anyio.Event()

    async def on_close(self, session: Any) -> None:
        self.leaves.set()
        await self.go.wait()


class SlowToOpen(ScriptedExecutor):
    async def on_open(self, session: Any) -> None:
        await anyio.lowlevel.checkpoint()
        await super().on_open(session)


@pytest.mark.parametrize("delay_s", [1.0, 50.0])
def test_a_session_is_closed_some_time_after_its_turn_ended_though_nobody_reads(delay_s: float) -> None:
    async def main() -> tuple[str, int]:
        agent = ServedAgent("agent", ScriptedExecutor([[Delay(delay_s), Say("Late.")]]))
        async with LiveSessions([agent], idle_s=10) as sessions:
            live = await sessions.open("agent", "ann")
            await live.stream("go")
            await anyio.sleep(delay_s + 5)
            before = live.state
            await anyio.sleep(100)
            return before, len(sessions.open_sessions)

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == ("idle", 0)


def test_a_waiting_turn_that_could_not_be_loaded_stays_for_long_and_not_for_ever() -> None:
    async def main() -> list[str]:
        agent = ServedAgent("agent", ScriptedExecutor([[Ask("Where?"), Say("There.")]]))
        assert not agent.executor.descriptor.supports("resume")
        async with LiveSessions([agent], idle_s=10, abandoned_s=1000) as sessions:
            live = await sessions.open("agent", "ann")
            await live.stream("go")
            await anyio.sleep(900)
            states = [live.state]
            await anyio.sleep(200)
            return [*states, live.state]

    states = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert states == ["input_required", "closed"]


async def test_who_asks_for_a_session_that_is_being_closed_gets_it_loaded() -> None:
    executor = SlowToLeave(SCRIPT)
    found: list[LiveSession] = []
    async with LiveSessions([ServedAgent("agent", executor)]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))

        async def get() -> None:
            found.append(await sessions.get("agent", "ann", "s"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sessions.close, live)
                await executor.leaves.wait()
                tasks.start_soon(get)
                await anyio.wait_all_tasks_blocked()
                assert found == []
                executor.go.set()
        await found[0].stream("go")
        await found[0].at_rest()


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_session_that_nobody_uses_is_loaded_with_the_options_of_who_loads_it(is_open: bool) -> None:
    script: Sequence[Sequence[Step]] = [[Ask("Where?"), Say("There.")]]
    deaf = OpenOptions(host=HostCapabilities(elicitation_kinds=[]))
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(script, reenter=True))]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        if not is_open:
            await sessions.close(live)
        loaded = await sessions.load("agent", "ann", "s", deaf)
        assert loaded is not live
        assert await sessions.load("agent", "ann", "s", deaf) is loaded  # these it has
        await loaded.stream("go")
        await loaded.at_rest()
        assert loaded.state == "idle"  # what it cannot be asked was cancelled


async def test_a_session_that_somebody_uses_keeps_its_options_whoever_loads_it() -> None:
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(SCRIPT))]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        deaf = OpenOptions(host=HostCapabilities(elicitation_kinds=[]))
        with live.hold():
            assert await sessions.load("agent", "ann", "s", deaf) is live
        assert live.options.host.elicitation_kinds is None


async def test_who_loads_a_session_with_what_its_host_refuses_closes_nothing() -> None:
    def wipe(path: str) -> str:
        """Delete a file."""
        return path

    agent = ServedAgent("agent", ScriptedExecutor(SCRIPT), Host(tools=[wipe]))
    async with LiveSessions([agent]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        options = OpenOptions(execution=ExecutionOptions(tools=[ToolDescriptor(name="wipe")]))
        with pytest.raises(ConfigurationError):
            await sessions.load("agent", "ann", "s", options)
        assert live.state == "new"
        with pytest.raises(SessionNotFound):
            await sessions.load("agent", "bob", "s", OpenOptions())


async def test_agents_of_one_name_that_are_served_under_two_do_not_meet() -> None:
    """A session of the one that is served bare is not driven without the host of the other."""
    host = Host(policy=ask_all)
    agents = [ServedAgent("bare", ScriptedExecutor(SCRIPT)), ServedAgent("hosted", ScriptedExecutor(SCRIPT), host)]
    async with LiveSessions(agents) as sessions:
        await sessions.open("bare", "ann", OpenOptions(session_id="s"))
        with pytest.raises(SessionNotFound):
            await sessions.get("hosted", "ann", "s")


async def test_no_more_are_open_than_may_be_though_they_are_opened_at_once() -> None:
    made: list[str] = []
    async with LiveSessions([ServedAgent("agent", SlowToOpen(SCRIPT))], max_open=2) as sessions:
        held = [await sessions.open("agent", "ann")]
        with held[0].hold():

            async def open_one() -> None:
                try:
                    with (await sessions.open("agent", "ann")).hold():
                        made.append("opened")
                        await anyio.wait_all_tasks_blocked()
                except TooManySessions as error:
                    made.append(error.id)

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(open_one)
        assert len(sessions.open_sessions) <= 2
    assert sorted(made) == ["opened", *["too-many-sessions"] * 4]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_five_hundred_that_nobody_uses_leave_no_task() -> None:
    agent = ServedAgent("agent", ScriptedExecutor([[Say("Hello.")]]))
    async with LiveSessions([agent]) as sessions:
        before = len(asyncio.all_tasks())
        for index in range(500):
            live = await sessions.open("agent", f"user-{index}")
            await live.stream("go")
            await live.at_rest()
        with anyio.fail_after(10):
            while len(asyncio.all_tasks()) > before:
                await anyio.lowlevel.checkpoint()
        assert len(sessions.open_sessions) == 500


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_clients_that_vanish_in_the_middle_leave_no_task_and_no_lock() -> None:
    store = MemoryRecordStore()

    def wipe(path: str) -> str:
        """Delete a file."""
        return path

    script: Sequence[Sequence[Step]] = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    host = Host(tools=[wipe], policy=ask_all)
    before = len(asyncio.all_tasks())
    async with LiveSessions([ServedAgent("agent", ScriptedExecutor(script, reenter=True), host, store)]) as sessions:
        served = len(asyncio.all_tasks())

        async def client(index: int) -> None:
            with anyio.CancelScope() as gone:
                live = await sessions.open("agent", "ann", OpenOptions(session_id=f"s{index}"))
                with live.hold():
                    started = await live.stream("go")
                    async for _ in live.events(after=started.cursor, follow=True):
                        gone.cancel()

        async with anyio.create_task_group() as clients:
            for index in range(100):
                clients.start_soon(client, index)
        for live in sessions.open_sessions:
            await live.at_rest()
            assert not live.is_held
        with anyio.fail_after(10):
            while len(asyncio.all_tasks()) > served:
                await anyio.lowlevel.checkpoint()
    assert len(asyncio.all_tasks()) == before
    for index in range(100):
        key = RecordKey("scripted", "ann", f"s{index}")
        await store.lock(key, "another")


@pytest.mark.parametrize("hosted", [False, True])
async def test_of_two_over_one_file_the_second_waits_for_the_first_to_close(tmp_path: Path, hosted: bool) -> None:
    def agent(store: SqliteRecordStore) -> ServedAgent:
        executor = ScriptedExecutor([[Ask("Where?"), Say("There.")]], reenter=True)
        return ServedAgent("agent", executor, Host() if hosted else None, store)

    path = tmp_path / "records.db"
    async with SqliteRecordStore(path) as one, SqliteRecordStore(path) as two, LiveSessions([agent(two)]) as second:
        async with LiveSessions([agent(one)]) as first:
            live = await first.open("agent", "ann", OpenOptions(session_id="s"))
            await live.stream("go")
            await live.at_rest()
            events = live.last_seq
            with pytest.raises(SessionBusy):
                await second.get("agent", "ann", "s")
            with pytest.raises(SessionBusy):
                await second.delete("agent", "ann", "s")
            assert live.last_seq == events
        taken = await second.get("agent", "ann", "s")
        (request,) = taken.pending
        await taken.stream(accept(request.request_id, {}))
        await taken.at_rest()
        assert taken.state == "idle"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_model_is_the_served_one_unless_the_client_names_its_own_and_stays_over_a_close() -> None:
    asked: list[str | None] = []

    def answer(request: LlmRequest) -> Any:
        asked.append(request.model)
        return say("Hello.")

    executor = AdkExecutor(LlmAgent(name="clerk", model=ScriptedLlm(forever=answer)))
    async with LiveSessions([ServedAgent("clerk", executor, Host(), model="served")]) as sessions:
        own = OpenOptions(execution=ExecutionOptions(model="own"))
        for options in (None, own):
            live = await sessions.open("clerk", "ann", options)
            await live.stream("hello")
            await live.at_rest()
        copied = await sessions.fork("clerk", "ann", live.session_id, live.last_seq)
        await copied.stream("hello")
        await copied.at_rest()
        assert (await live.update(SessionConfig(model="changed"))).ok
        await sessions.close(live)
        live = await sessions.get("clerk", "ann", live.session_id)
        await live.stream("hello")
        await live.at_rest()
    assert asked == ["served", "own", "served", "changed"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("yes", [True, False])
async def test_a_real_adk_agent_is_driven_by_the_host_and_answered_by_the_client(yes: bool) -> None:
    ran: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    model = ScriptedLlm(script=[call("wipe", {"path": "a"}), say("Done.")])
    executor = AdkExecutor(LlmAgent(name="clerk", model=model, tools=[wipe]))
    async with LiveSessions([ServedAgent("clerk", executor, Host(policy=ask_all))]) as sessions:
        live = await sessions.open("clerk", "ann")
        await live.stream("clean up")
        await live.at_rest()
        (request,) = live.pending
        (receipt,) = await live.respond(grant(request.request_id) if yes else deny(request.request_id, "keep it"))
        await live.at_rest()
        assert receipt.status == "applied"
        assert live.state == "idle"
    assert ran == (["a"] if yes else [])
