"""Sessions that stay open, with a host on the server: clients that are quick, late, two at once, or gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor, Step
from agentsession.host import Host, Policy, allow_all, ask_all, tool
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent
from agentsession.protocol import (
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    StreamActive,
    ToolDescriptor,
    as_content,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

Script = Sequence[Sequence[Step]]

MOMENTS = [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 23]
"""How many turns of the loop a client takes before it does something: between them the host leaves the turn."""


class Wiper:
    """A host's tool, what it was called with, and, if held, that it runs until it is let go."""

    def __init__(self, *, held: bool = False) -> None:
        self.ran: list[str] = []
        self.runs = anyio.Event()
        self.go = anyio.Event()
        if not held:
            self.go.set()

    @property
    def wipe(self) -> Any:
        @tool
        async def wipe(path: str) -> str:
            """Delete a file."""
            self.ran.append(path)
            self.runs.set()
            await self.go.wait()
            return f"{path} is gone"

        return wipe


@asynccontextmanager
async def served(
    script: Script, policy: Policy = ask_all, tools: Sequence[Any] = (), **options: Any
) -> AsyncGenerator[LiveSession]:
    agent = ServedAgent("agent", ScriptedExecutor(script, reenter=True), Host(tools=list(tools), policy=policy))
    with anyio.fail_after(20):
        async with LiveSessions([agent]) as sessions:
            yield await sessions.open("agent", "ann", OpenOptions(session_id="s", **options))


async def paused(live: LiveSession, turns_of_the_loop: int = 0) -> None:
    """The first pause was seen, and so many turns of the loop went by."""
    async for event in live.events(follow=True, types={"stream_end"}):
        assert event.reason == "input_required"  # type: ignore[attr-defined]  # a stream_end
        break
    for _ in range(turns_of_the_loop):
        await anyio.lowlevel.checkpoint()


async def ends(live: LiveSession) -> list[str]:
    await live.at_rest()
    return [event.reason async for event in live.events(types={"stream_end"})]  # type: ignore[attr-defined]


WIPE: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_yes_that_comes_while_the_turn_is_being_left_counts(moment: int) -> None:
    wiper = Wiper()
    async with served(WIPE, tools=[wiper.wipe]) as live:
        await live.stream("go")
        await paused(live, moment)
        (receipt,) = await live.respond(grant(live.pending[0].request_id))
        assert receipt.status == "applied"
        assert await ends(live) == ["input_required", "completed"]
    assert wiper.ran == ["a"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_result_of_a_client_that_comes_while_the_turn_is_being_left_lets_it_go_on(moment: int) -> None:
    execution = ExecutionOptions(tools=[ToolDescriptor(name="pick", parameters_schema={"type": "object"})])
    script: Script = [[Calls(Call("pick", {})), Say("Picked.")]]
    async with served(script, execution=execution) as live:
        await live.stream("go")
        await paused(live, moment)
        (receipt,) = await live.respond(result(live.pending[0].request_id, "red"))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_abort_that_comes_while_the_turn_is_being_left_ends_it(moment: int) -> None:
    async with served(WIPE, tools=[Wiper().wipe]) as live:
        await live.stream("go")
        await paused(live, moment)
        assert (await live.abort()).status == "aborted"
        assert live.state == "idle"
        assert (await ends(live))[-1] == "aborted"


async def test_a_no_to_a_tool_that_runs_already_is_stale() -> None:
    wiper = Wiper(held=True)
    async with served(WIPE, allow_all, [wiper.wipe]) as live:
        await live.stream("go")
        await wiper.runs.wait()
        (receipt,) = await live.respond(deny(live.pending[0].request_id))
        assert receipt.status == "stale"
        wiper.go.set()
        assert (await ends(live))[-1] == "completed"


async def test_of_two_who_answer_at_once_one_is_told_that_it_was_answered() -> None:
    wiper = Wiper()
    async with served(WIPE, tools=[wiper.wipe]) as live:
        await live.stream("go")
        await live.at_rest()
        request_id = live.pending[0].request_id
        said: list[str] = []

        async def say(answer: Any) -> None:
            (receipt,) = await live.respond(answer)
            said.append(receipt.status)

        async with anyio.create_task_group() as both:
            both.start_soon(say, grant(request_id))
            both.start_soon(say, deny(request_id))
        assert sorted(said) == ["applied", "stale"]
        assert (await ends(live))[-1] == "completed"


async def test_a_yes_of_a_client_that_goes_at_once_counts() -> None:
    wiper = Wiper()
    async with served(WIPE, tools=[wiper.wipe]) as live:
        await live.stream("go")
        await live.at_rest()
        with anyio.CancelScope() as gone:
            gone.cancel()
            await live.respond(grant(live.pending[0].request_id))
        assert (await ends(live))[-1] == "completed"
    assert wiper.ran == ["a"]


async def test_an_answer_to_what_is_settled_is_stale_and_to_what_never_was_is_not_found() -> None:
    async with served(WIPE, tools=[Wiper().wipe]) as live:
        await live.stream("go")
        await live.at_rest()
        request_id = live.pending[0].request_id
        await live.respond(deny(request_id))
        receipts = await live.respond(grant(request_id), grant("nothing"))
        assert [each.status for each in receipts] == ["stale", "not_found"]


async def test_an_answer_that_leaves_others_waiting_names_the_stream_that_waits() -> None:
    wiper = Wiper()
    script: Script = [[Say("Hello.")], [Calls(Call("wipe", {"path": "a"}), Call("wipe", {"path": "b"})), Say("Done.")]]
    async with served(script, tools=[wiper.wipe]) as live:
        await live.stream("hello")
        await live.at_rest()
        waiting = await live.stream("go")
        await live.at_rest()
        first, second = live.pending
        started = await live.stream(grant(first.request_id))
        assert (started.stream_id, started.turn_id) == (waiting.stream_id, waiting.turn_id)
        started = await live.stream(grant(second.request_id))
        assert started.stream_id != waiting.stream_id
        assert (await ends(live))[-1] == "completed"


async def test_a_message_sent_again_while_a_tool_runs_between_streams_is_attached() -> None:
    wiper = Wiper(held=True)
    message = MessageInput(content=as_content("go"), idempotency_key="k1")
    async with served(WIPE, allow_all, [wiper.wipe]) as live:
        started = await live.stream(message)
        await paused(live)
        await wiper.runs.wait()
        again = await live.stream(message)
        assert again.turn_id == started.turn_id
        with pytest.raises(StreamActive):
            await live.stream(MessageInput(content=as_content("other"), idempotency_key="k2"))
        wiper.go.set()
        assert (await ends(live))[-1] == "completed"
    assert wiper.ran == ["a"]


async def test_a_thousand_answers_to_nothing_read_the_record_once() -> None:
    async with served(WIPE, tools=[Wiper().wipe]) as live:
        await live.stream("go")
        await live.at_rest()
        asked = live.pending[0].request_id
        await live.respond(deny(asked))
        await live.at_rest()
        reads: list[int] = []
        events = live.session.events

        def counted(*given: Any, **options: Any) -> Any:
            reads.append(1)
            return events(*given, **options)

        live.session.events = counted  # type: ignore[method-assign]  # to see what is read
        receipts = await live.respond(*[grant(f"none-{number}") for number in range(1000)], grant(asked))
        assert [each.status for each in receipts] == ["not_found"] * 1000 + ["stale"]
        assert len(reads) == 1


async def test_a_session_whose_host_runs_a_tool_between_streams_is_not_rewound() -> None:
    wiper = Wiper(held=True)
    agent = ServedAgent("agent", ScriptedExecutor(WIPE, reenter=True), Host(tools=[wiper.wipe], policy=allow_all))
    with anyio.fail_after(20):
        async with LiveSessions([agent]) as sessions:
            live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
            await live.stream("go")
            await paused(live)
            await wiper.runs.wait()
            with pytest.raises(StreamActive):
                await sessions.rewind("agent", "ann", "s", 1)
            wiper.go.set()
            assert (await ends(live))[-1] == "completed"
            await sessions.rewind("agent", "ann", "s", 1)
