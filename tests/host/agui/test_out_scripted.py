"""Sessions of a real executor as AG-UI runs: scripts, answers, aborts and messages drawn at random."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.agui.streams import Client, check

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import (
    Ask,
    Call,
    Calls,
    Count,
    Deltas,
    End,
    Fail,
    Memory,
    Parallel,
    Raise,
    Refuse,
    Say,
    ScriptedExecutor,
    Step,
    Think,
)
from agentsession.host.agui import Known, RunMapper, messages_snapshot
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import (
    AgentSession,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    MessageInput,
    SessionUpdate,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    ToolResult,
)

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Fragments:
    """A call whose arguments are streamed; ``whole``: and asked for in the end."""

    def __init__(self, pieces: Sequence[str], whole: bool) -> None:
        self._pieces, self._whole = pieces, whole

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        request_id = ctx.new_id("r")
        for piece in self._pieces:
            await ctx.emit(ToolRequest(request_id=request_id, name="draw", args_delta=piece, partial=True))
        if self._whole:
            asked = ToolRequest(request_id=request_id, name="draw", args={"a": [1, "b"]}, needs="none", owner="agent")
            await ctx.respond(await ctx.emit(asked), {"ok": True})


class State:
    """The agent changes the state."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.emit(SessionUpdate(state_delta={"k": [1], "_hidden": 1}))


def calls() -> st.SearchStrategy[Call]:
    return st.builds(Call, st.sampled_from(["read", "write"]), needs=st.sampled_from(["result", "grant", "none"]))


PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.builds(Say, st.sampled_from(["", "Yes.", "No."])),
    st.builds(Deltas, st.lists(st.sampled_from(["", "a", "bc"]), max_size=4)),
    st.builds(Think, st.sampled_from(["", "Hm."]), st.sampled_from([None, "c2ln"])),
    st.builds(Calls, calls(), calls()),
    st.builds(Calls, calls()),
    st.builds(Ask, st.just("Which?"), st.sampled_from(["clarification", "user_approval", "x_open"])),
    st.just(Ask("Which?", schema=FORM)),
    st.builds(Fragments, st.sampled_from([["{"], ['{"a": [1,', ' "b"]', "}"], ["}"], ['{"a": fals']]), st.booleans()),
    st.builds(Fail),
    st.builds(State),
    st.builds(Count, input_tokens=st.just(3), output_tokens=st.just(2), reasoning_tokens=st.just(1)),
)
NESTED = st.builds(lambda steps: Parallel(inner=steps), st.lists(PLAIN, max_size=3))
STEPS = st.one_of(
    PLAIN,
    PLAIN,
    st.builds(
        lambda a, b: Parallel(left=a, right=b), st.lists(PLAIN | NESTED, max_size=3), st.lists(PLAIN, max_size=3)
    ),
    st.sampled_from([Fail(fatal=True), Raise(ValueError("secret")), Refuse(), End("max_tokens")]),
)
SCRIPTS = st.lists(st.lists(STEPS, max_size=5), min_size=1, max_size=3)


class Driver:
    """A client that answers, aborts or says something else as chance has it; its runs are checked as they end."""

    def __init__(self, session: AgentSession, chance: random.Random) -> None:
        self.session, self.chance = session, chance
        self.known = Known()
        self.client = Client()
        self.record: list[Event] = []
        self.runs: list[list[Wire]] = []

    async def talk(self, turns: int) -> None:
        for turn in range(turns):
            await self.say(turn)
            for _ in range(4):
                if not self.session.pending:
                    break
                if self.chance.random() < 0.2:
                    await self.session.abort()
                    await self.catch_up()
                    break
                if self.chance.random() < 0.15:
                    break  # a message over what waits
                await self.run([self.answer(item) for item in self.chosen()])

    async def between(self, seq: int) -> AsyncIterator[Event]:
        """What came before the event of that seq and was not seen."""
        async for event in self.session.events(after=self.record[-1].seq if self.record else 0):
            if event.seq >= seq:
                return
            yield event

    def take(self, mapper: RunMapper, events: Sequence[Event]) -> list[Wire]:
        """Have events mapped."""
        self.record += events
        return [wire for event in events for wire in mapper.feed(event)]

    async def catch_up(self) -> None:
        """What happened while no run listened."""
        async for event in self.session.events(after=self.known.seq):
            self.known.note(event)
            self.record.append(event)

    def chosen(self) -> list[str]:
        waiting = list(self.known.asked)
        return waiting if self.chance.random() < 0.6 else waiting[: self.chance.randint(1, len(waiting))]

    def answer(self, request_id: str) -> Answer:
        request = self.known.asked[request_id]
        if isinstance(request, ElicitationRequest):
            action = self.chance.choice(["accept", "decline", "cancel"])
            content: dict[str, Any] = {"content": {"n": 1}} if action == "accept" and request.requested_schema else {}
            return ElicitationAnswer(request_id=request_id, action=action, **content)
        if self.chance.random() < 0.3:
            return ToolDenial(request_id=request_id, reason="no")
        if request.needs == "grant":
            return ToolGrant(request_id=request_id)
        return ToolResult(request_id=request_id, data={"ok": True}, is_error=self.chance.random() < 0.3)

    async def say(self, turn: int) -> None:
        self.client.messages.append({"id": f"u-{turn}", "role": "user", "content": f"hi {turn}"})
        message = MessageInput.model_validate({"content": f"hi {turn}", "messageId": f"u-{turn}"})
        await self.run(message, mine=[f"u-{turn}"])

    async def run(self, given: Any, mine: Sequence[str] = ()) -> None:
        """One AG-UI run: a stream, and where something waits perhaps the next ones too."""
        mapper = RunMapper(thread_id="t", run_id=f"r{len(self.runs)}", known=self.known, input_message_ids=mine)
        history = self.record if self.known.is_behind else None
        out = mapper.start(client_state=self.client.state, history=history, client_messages=self.client.messages)
        while True:
            async with self.session.stream(given) as stream:
                first = True
                async for event in stream:
                    if first:  # a message over what waits has settled it, in a stream of its own
                        first = False
                        out += self.take(mapper, [item async for item in self.between(event.seq)])
                    out += self.take(mapper, [event])
            if not self.session.pending or self.chance.random() < 0.5:
                break
            given = [self.answer(item) for item in self.chosen()]
        out += mapper.finish(history=self.record, client_messages=self.client.messages)
        self.runs.append(out)
        check(out, is_resumed=len(self.runs) > 1, client=self.client)
        assert "secret" not in str(out)
        assert "_hidden" not in str(out)
        self._agrees()

    def _agrees(self) -> None:
        """The client, having followed, has what a snapshot would tell it; but calls that never were."""
        assert self.client.state == self.known.seen_state
        told = {item["id"]: item for item in messages_snapshot(self.record)}
        for item in self.client.messages:
            if item["id"] in told:
                assert (item.get("content") or "") == (told[item["id"]].get("content") or ""), item["id"]
        had = {item["id"] for item in self.client.messages}
        called = {call["id"] for item in self.client.messages for call in item.get("toolCalls", ())}
        for item in told.values():
            calls = {call["id"] for call in item.get("toolCalls", ())}
            assert calls <= called
            assert item["id"] in had or (calls and "content" not in item)


@settings(max_examples=150, deadline=None)
@given(SCRIPTS, st.integers(0, 2**32), st.booleans())
def test_whatever_an_executor_and_a_client_do_each_run_is_one_that_clients_accept(
    script: list[list[Step]], seed: int, reenter: bool
) -> None:
    async def play() -> None:
        async with ScriptedExecutor(script, reenter=reenter) as executor:
            session = await executor.open()
            await Driver(session, random.Random(seed)).talk(len(script))
            await session.aclose()

    anyio.run(play)
