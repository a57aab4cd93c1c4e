"""Rewinding a session of any executor: what is recorded, what is settled, what is refused."""

from __future__ import annotations

import anyio
import pytest
from tests.adapters.sessions import check, end_of, only, read, say

from agentsession.adapters.base import BaseSession
from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    CursorGone,
    Custom,
    Event,
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    Message,
    MessageInput,
    OpenOptions,
    RecordStore,
    SessionClosed,
    SessionConfig,
    SessionNotFound,
    StreamActive,
    ToolResponse,
    Unimplemented,
    plain_text,
    result,
    without_rewound,
)

pytestmark = pytest.mark.anyio


def script() -> list[list[Step]]:
    return [[Say("one")], [Say("two")], [Calls(Call("look", id="c1")), Say("three")], [Say("four")]]


class Remembering(ScriptedExecutor):
    """Notes what it was told to forget."""

    rewound: list[int]

    async def on_rewind(self, session: BaseSession, to: int) -> None:
        self.rewound = [*getattr(self, "rewound", []), to]


def texts(events: list[Event]) -> list[str]:
    """What the agent said."""
    return [plain_text(event.content) for event in only(events, Message) if event.source == "agent"]


def counting(session: BaseSession) -> list[Event]:
    return without_rewound(session.record)


@pytest.mark.rule("PER-06")
async def test_a_rewind_keeps_the_record_and_takes_the_turns_out_of_what_counts(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with Remembering(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await say(session)
            await say(session)
            before = list(session.record)
            await executor.rewind("s", first[-1].seq)
            assert list(session.record)[:-1] == before
            marker = session.record[-1]
            assert isinstance(marker, Custom)
            assert (marker.kind, marker.data, marker.source) == ("rewind", {"to_seq": first[-1].seq}, "host")
            assert texts(counting(session)) == ["one"]
            assert executor.rewound == [first[-1].seq]
            check(session)
            await session.aclose()
            loaded = await executor.load("s")
            assert texts(counting(loaded)) == ["one"]
            check(loaded)


@pytest.mark.rule("PER-06", "ORD-02")
async def test_no_id_and_no_seq_of_a_rewound_turn_is_used_again(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await executor.rewind("s", 1)
            await say(session)
            record = list(session.record)
            assert len({event.id for event in record}) == len(record)
            assert len({event.turn_id for event in record if event.turn_id}) == 2
            assert len({event.stream_id for event in record if event.stream_id}) == 2
            assert [event.seq for event in record] == sorted({event.seq for event in record})


@pytest.mark.rule("PER-06", "TOOL-09")
async def test_what_waits_is_settled_before_the_rewind_and_a_late_answer_is_stale(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script()[2:], store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            (waiting,) = session.pending
            await executor.rewind("s", 1)
            assert (session.state, session.pending) == ("idle", [])
            end = end_of(list(session.record)[:-1])
            assert (end.reason, end.data) == ("aborted", {"cause": "rewind"})
            assert [event.status for event in only(session.record, ToolResponse)] == ["cancelled"]
            (receipt,) = await session.respond(result(waiting.request_id, 1))
            assert receipt.status == "stale"
            assert [event.type for event in counting(session)] == ["initialize"]
            check(session)


@pytest.mark.rule("PER-06", "PER-03")
async def test_the_state_is_again_what_it_was(store: RecordStore) -> None:
    opened = OpenOptions(session_id="s", execution=ExecutionOptions(state={"a": 1}))
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(opened)
            first = await say(session)
            await session.update(SessionConfig(state={"a": 2, "b": 3}))
            assert session.state_values == {"a": 2, "b": 3}
            await executor.rewind("s", first[-1].seq)
            assert session.state_values == {"a": 1}
            await session.update(SessionConfig(state={"c": 4}))
            await session.aclose()
            assert (await executor.load("s")).state_values == {"a": 1, "c": 4}


@pytest.mark.rule("PER-06")
async def test_a_stored_session_is_rewound_without_being_opened(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await say(session)
            await say(session)
            await session.aclose()
            await executor.rewind("s", first[-1].seq)
            assert texts(without_rewound(await store.read(session.recorder.key))) == ["one"]
            assert texts(counting(await executor.load("s"))) == ["one"]
            with pytest.raises(SessionNotFound):
                await executor.rewind("s", 1, "somebody")


@pytest.mark.rule("PER-06")
async def test_a_seq_that_is_unknown_rewound_or_inside_a_turn_is_refused_and_records_nothing(
    store: RecordStore,
) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script()[1:], store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await say(session)
            waiting = await say(session)
            assert session.state == "input_required"
            before = list(session.record)
            for to in (0, -1, 10**9):
                with pytest.raises(CursorGone):
                    await executor.rewind("s", to)
            for to in (first[0].seq, first[-1].seq - 1, waiting[-1].seq):
                with pytest.raises(InvalidInput):
                    await executor.rewind("s", to)
            assert list(session.record) == before
            await read(session.stream([result("c1", 1)]))
            await executor.rewind("s", 1)
            with pytest.raises(InvalidInput) as refused:
                await executor.rewind("s", first[-1].seq)
            assert refused.value.got == "it was rewound"


@pytest.mark.rule("PER-06")
async def test_a_running_and_a_closed_session_are_not_rewound(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            async with session.stream("go") as stream:
                with pytest.raises(StreamActive):
                    await executor.rewind("s", 1)
                async for _ in stream:
                    pass
            assert texts(list(session.record)) == ["one"]
            from agentsession.adapters.base._rewinding import rewind_session

            await session.aclose()
            with pytest.raises(SessionClosed):
                await rewind_session(session, 1)


@pytest.mark.rule("PER-06")
async def test_nothing_begins_and_nothing_changes_while_the_executor_forgets(store: RecordStore) -> None:
    seen: list[str] = []

    class Slow(ScriptedExecutor):
        async def on_rewind(self, session: BaseSession, to: int) -> None:
            with pytest.raises(StreamActive):
                session.stream("too early")
            with pytest.raises(StreamActive):
                await self.rewind("s", 1)
            seen.append((await session.update(SessionConfig(title="no"))).status)

    with anyio.fail_after(10):
        async with Slow(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await executor.rewind("s", 1)
            assert seen == ["rejected"]
            assert texts(await say(session)) == ["two"]


@pytest.mark.rule("PER-06")
async def test_an_executor_that_cannot_forget_closes_the_session_and_the_next_load_is_told(store: RecordStore) -> None:
    class Failing(ScriptedExecutor):
        async def on_rewind(self, session: BaseSession, to: int) -> None:
            raise InvalidInput("cannot forget")

    with anyio.fail_after(10):
        async with Failing(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            with pytest.raises(InvalidInput, match="cannot forget"):
                await executor.rewind("s", 1)
            assert session.state == "closed"
            loaded = await executor.load("s")
            assert [event.type for event in counting(loaded)] == ["initialize"]


async def test_a_rewind_to_the_end_records_nothing(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await say(session)
            await executor.rewind("s", first[-1].seq)
            assert session.last_seq == first[-1].seq


@pytest.mark.rule("PER-06")
async def test_a_late_duplicate_of_a_rewound_message_runs_nothing(store: RecordStore) -> None:
    message = MessageInput.model_validate({"content": [{"type": "text", "text": "go"}], "idempotency_key": "k"})
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await read(session.stream(message))
            await executor.rewind("s", 1)
            before = list(session.record)
            assert await read(session.stream(message)) == [event for event in first if event in before]
            assert list(session.record) == before


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_fork_from_before_a_rewind_has_the_turns_that_were_rewound(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            second = await say(session)
            await executor.rewind("s", 1)
            marker = session.last_seq
            then = await executor.fork("s", second[-1].seq, OpenOptions(session_id="then"))
            now = await executor.fork("s", marker, OpenOptions(session_id="now"))
            assert texts(counting(then)) == ["one", "two"]
            assert texts(counting(now)) == []


async def test_only_an_executor_that_declares_it_rewinds() -> None:
    async with ScriptedExecutor(script(), capabilities=["load"], store=MemoryRecordStore()) as executor:
        await executor.open(OpenOptions(session_id="s"))
        with pytest.raises(Unimplemented):
            await executor.rewind("s", 1)
