"""Restarts, forks, deletions: what was acknowledged is kept, what was cut is repaired, no id comes twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import (
    MortalStore,
    Puppet,
    check,
    end_of,
    kinds,
    only,
    read,
    say,
    session_of,
    stored,
    texts,
    three_turns,
    tool,
)

from agentsession.adapters.base import BaseSession, RunContext
from agentsession.adapters.scripted import Ask, Call, Deltas, Parallel, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    ConfigurationError,
    ConnectionLost,
    CursorGone,
    Event,
    ExecutionOptions,
    HostCapabilities,
    InvalidInput,
    MemoryRecordStore,
    MessageInput,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SessionUpdate,
    StreamEnd,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    Unimplemented,
    UnsupportedVersion,
    accept,
    grant,
    is_ephemeral,
    result,
)

pytestmark = pytest.mark.anyio


async def killed_while_waiting(store: RecordStore, **options: Any) -> tuple[BaseSession, MortalStore, list[Event]]:
    mortal = MortalStore(store)
    async with ScriptedExecutor(three_turns(), store=mortal, **options) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        await say(session)
        seen = list(session.record)
        return session, await mortal.kill(), seen
    raise AssertionError


@pytest.mark.rule("PER-01")
async def test_killed_while_waiting_and_loaded_the_same_requests_wait_and_the_turn_completes(
    store: RecordStore,
) -> None:
    with anyio.fail_after(10):
        old, again, seen = await killed_while_waiting(store, reenter=True)
        async with ScriptedExecutor(three_turns(), store=again, reenter=True) as executor:
            session = await executor.load("s")
            assert [request.request_id for request in session.pending] == ["a", "b"]
            assert session.state == "input_required"
            assert list(session.record) == [event for event in seen if not is_ephemeral(event)]
            events = await read(session.stream([result("a", 1), grant("b")]))
            assert texts(events) == ["done"]
            assert end_of(events).turn_id == seen[-1].turn_id
            check(session)
            assert texts(await say(session, "two")) == ["two", "next"]
        assert old.state == "closed"


@pytest.mark.rule("PER-01")
@pytest.mark.rule("TOOL-08")
async def test_partial_answers_are_kept_across_a_restart(store: RecordStore) -> None:
    told: list[list[str]] = []

    class Told(ScriptedExecutor):
        async def run(self, ctx: RunContext) -> Any:
            told.append(sorted(ctx.answers))
            return await super().run(ctx)

    mortal = MortalStore(store)
    with anyio.fail_after(10):
        async with Told(three_turns(), store=mortal, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await read(session.stream(result("a", "kept")))
            mortal = await mortal.kill()
        async with Told(three_turns(), store=mortal, reenter=True) as executor:
            session = await executor.load("s")
            assert [request.request_id for request in session.pending] == ["b"]
            (late,) = await session.respond(result("a", "again"))
            assert late.status == "stale"
            assert texts(await read(session.stream(grant("b")))) == ["done"]
            assert told == [[], ["a", "b"]]
            check(session)


@pytest.mark.rule("PER-01")
async def test_an_answer_that_came_before_the_pause_is_given_to_a_loaded_run_too(store: RecordStore) -> None:
    told: list[dict[str, Any]] = []
    answered = anyio.Event()

    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.post(tool("early"), tool("late"))
            await answered.wait()
        else:
            told.append({name: answer.data for name, answer in ctx.answers.items()})  # type: ignore[union-attr]

    mortal = MortalStore(store)
    with anyio.fail_after(10):
        async with Puppet(work, store=mortal, resume=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            async with session.stream("go") as stream:
                async for event in stream:
                    if isinstance(event, ToolRequest) and event.request_id == "early":
                        await session.respond(result("early", 1))
                        answered.set()
            mortal = await mortal.kill()
        async with Puppet(work, store=mortal, resume=True) as executor:
            session = await executor.load("s")
            await read(session.stream(result("late", 2)))
            assert told == [{"early": 1, "late": 2}]


@pytest.mark.rule("PER-04")
async def test_requests_of_a_run_that_was_kept_open_are_settled_by_load(store: RecordStore) -> None:
    with anyio.fail_after(10):
        _, again, seen = await killed_while_waiting(store, reenter=False)
        async with ScriptedExecutor(three_turns(), store=again) as executor:
            session = await executor.load("s")
            assert session.state == "idle"
            assert session.pending == []
            new = list(session.record)[len([event for event in seen if not is_ephemeral(event)]) :]
            assert kinds(new) == ["tool_response", "tool_response", "stream_end"]
            assert (end_of(new).reason, end_of(new).data) == ("failed", {"cause": "lost"})
            check(session)
            assert texts(await say(session, "two")) == ["two", "next"]


@pytest.mark.rule("PER-04")
async def test_what_is_volatile_is_settled_and_what_is_not_still_waits(store: RecordStore) -> None:
    steps: list[list[Step]] = [[Parallel(kid=[Call("inner", id="inner")]), Say("done")]]

    class Both(ScriptedExecutor):
        async def run(self, ctx: RunContext) -> Any:
            if ctx.input is not None:
                await ctx.post(tool("outer", meta={"step": 5, "call": 0}))
                return await super().run(ctx)
            await ctx.say(" ".join(sorted(ctx.answers)))
            return None

    mortal = MortalStore(store)
    with anyio.fail_after(10):
        async with Both(steps, store=mortal, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            events = await say(session)
            assert end_of(events).data == {"volatile": ["inner"]}
            mortal = await mortal.kill()
        async with Both(steps, store=mortal, reenter=True) as executor:
            session = await executor.load("s")
            assert [request.request_id for request in session.pending] == ["outer"]
            assert [event.status for event in only(session.record, ToolResponse)] == ["cancelled"]
            assert session.state == "input_required"
            events = await read(session.stream(result("outer", 1)))
            assert "outer" in texts(events)[-1]
            check(session)


@pytest.mark.rule("PER-04")
@pytest.mark.parametrize("dies_at", range(3, 13))
async def test_killed_at_any_write_the_cut_stream_is_closed_under_its_id(store: RecordStore, dies_at: int) -> None:
    async def work(ctx: RunContext) -> None:
        if ctx.turn_number > 1:
            await ctx.say("next")
            return
        await ctx.emit(tool("started", needs="none"))
        async with ctx.message() as message:
            await message.text("half ")
            await anyio.lowlevel.checkpoint()
            await message.text("a message")
        await ctx.emit(tool("asked"))
        reply = ctx.expect("asked")
        await anyio.lowlevel.checkpoint()
        await ctx.say("more")
        await anyio.lowlevel.checkpoint()
        await ctx.say("and more")
        await reply.wait()

    mortal = MortalStore(store, dies_at=dies_at)
    seen: list[Event] = []
    with anyio.fail_after(10):
        async with Puppet(work, store=mortal, resume=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            try:
                async with session.stream("go") as stream:
                    async for event in stream:
                        seen.append(event)
                        if texts(seen)[-1] == "and more":
                            break  # this store takes larger bites: it is killed here
            except ConnectionLost:
                pass
            again = await mortal.kill()
        async with Puppet(work, store=again, resume=True) as executor:
            session = await executor.load("s")
            assert session.state in ("new", "idle")
            record = list(session.record)
            assert [event for event in seen if not is_ephemeral(event)] == [event for event in record if event in seen]
            if seen:
                end = end_of(record)
                assert (end.stream_id, end.reason, end.data) == (seen[0].stream_id, "failed", {"cause": "lost"})
                statuses = {event.request_id: event.status for event in only(record, ToolResponse)}
                assert statuses.get("started", "unknown") == "unknown"
                assert statuses.get("asked", "cancelled") == "cancelled"
                assert end.seq > seen[-1].seq
            check(session)
            events = await say(session, "two")
            assert end_of(events).reason == "completed"
            assert not {event.seq for event in events} & {event.seq for event in seen}


@pytest.mark.rule("ORD-01")
@pytest.mark.rule("ORD-02")
async def test_no_seq_and_no_id_comes_twice_after_a_restart_not_even_an_ephemeral_one(store: RecordStore) -> None:
    seen: list[Event] = []
    names: set[str] = set()

    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            names.add(message.message_id)
            for _ in range(20):
                await message.text("x")
            await anyio.sleep_forever()

    session_id = "s"
    with anyio.fail_after(20):
        for life in range(4):
            mortal = MortalStore(store)
            async with Puppet(work, store=mortal) as executor:
                options = OpenOptions(session_id=session_id)
                session = await (executor.load(session_id, options) if life else executor.open(options))
                async with session.stream("go") as stream:
                    async for event in stream:
                        seen.append(event)
                        if event.type == "message" and event.index == 19:  # type: ignore[attr-defined]
                            break
                await mortal.kill()
    assert len(names) == 4
    assert len({event.seq for event in seen}) == len(seen)
    assert len({event.id for event in seen}) == len(seen)
    assert len({event.stream_id for event in seen}) == 4


async def test_a_block_of_seqs_lasts_for_thousands_of_deltas_and_then_another_is_reserved() -> None:
    store = MortalStore()

    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            for _ in range(9_000):
                await message.text("x")

    with anyio.fail_after(10):
        async with Puppet(work, store=store) as executor:
            session = await executor.open()
            before = store.appends
            await say(session)
            assert store.appends - before < 12
            info = await store.info(session.recorder.key)
            assert info.reserved_seq > session.last_seq


@pytest.mark.rule("PER-03")
async def test_state_values_survive(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            options = OpenOptions(session_id="s", execution=ExecutionOptions(state={"a": 1, "b": 1}))
            session = await executor.open(options)
            assert [event.state_delta for event in only(session.record, SessionUpdate)] == [{"a": 1, "b": 1}]
            from agentsession.protocol import SessionConfig

            await session.update(SessionConfig(state={"b": 2}))
            await session.aclose()
            session = await executor.load("s")
            assert session.state_values == {"a": 1, "b": 2}


async def test_a_closed_session_with_resume_still_waits_when_it_is_loaded(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await session.aclose()
            session = await executor.load("s")
            assert [request.request_id for request in session.pending] == ["a", "b"]
            await read(session.stream([result("a", 1), grant("b")]))
            assert session.state == "idle"


async def test_idempotency_keys_survive(store: RecordStore) -> None:
    message = MessageInput(content="once", idempotency_key="k")  # type: ignore[arg-type]  # text is taken
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Say("done")]], store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            events = await read(session.stream(message))
            await session.aclose()
            session = await executor.load("s")
            assert await read(session.stream(message)) == [event for event in events if not is_ephemeral(event)]
            assert session.turn_number == 1


async def test_a_cursor_from_before_the_restart_is_valid_after_it(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Deltas(["a", "b"]), Say("x")]], store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            events = await say(session)
            await session.aclose()
            session = await executor.load("s")
            for event in events:
                rest = [later async for later in session.events(after=event.seq)]
                assert rest == [later for later in events if later.seq > event.seq and not is_ephemeral(later)]


@pytest.mark.rule("PER-02")
async def test_load_is_read_only_for_a_session_that_was_closed_well(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await session.aclose()
            before = await stored(store, session)
            for _ in range(2):
                session = await executor.load("s")
                await session.aclose()
            assert await stored(store, session) == before


# -- who may have it --------------------------------------------------------------------------------------------------


async def test_a_session_is_open_once(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            with pytest.raises(SessionBusy):
                await executor.load("s")
            with pytest.raises(SessionBusy):
                await executor.delete("s")
            async with ScriptedExecutor(three_turns(), store=store) as other:
                with pytest.raises(SessionBusy):
                    await other.load("s")
            with pytest.raises(SessionExists):
                await executor.open(OpenOptions(session_id="s"))
            assert texts(await say(session))[0] == "go"
            await session.aclose()
            with pytest.raises(SessionExists):
                await executor.open(OpenOptions(session_id="s"))
            assert (await executor.load("s")).session_id == "s"


async def test_users_do_not_meet(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            for user in ("ann", "bob"):
                session = await executor.open(OpenOptions(session_id="s", user_id=user))
                assert session.user_id == user
                await read(session.stream(f"from {user}"))
                await session.aclose()
            loaded = await executor.load("s", OpenOptions(user_id="bob"))
            assert texts(loaded.record)[0] == "from bob"
            with pytest.raises(SessionNotFound):
                await executor.load("s", OpenOptions(user_id="eve"))
            with pytest.raises(SessionNotFound):
                await executor.delete("s", "eve")
            assert [info.key.user_id for info in await executor.list("ann")] == ["ann"]
            assert await executor.list("eve") == []


@pytest.mark.parametrize("bad", ["../x", "a/b", "a\\b", "..", "%2e%2e", "a\x00b", " a", "x" * 300, "a\nb"])
async def test_ids_that_could_leave_their_place_are_refused(bad: str) -> None:
    async with ScriptedExecutor(three_turns(), store=MemoryRecordStore()) as executor:
        with pytest.raises(InvalidInput):
            await executor.open(OpenOptions(session_id=bad))
        with pytest.raises(InvalidInput):
            await executor.open(OpenOptions(user_id=bad))
        with pytest.raises(InvalidInput):
            await executor.load(bad)
        with pytest.raises(InvalidInput):
            await executor.delete(bad)
        with pytest.raises(InvalidInput):
            await executor.list(bad)
        assert executor.open_sessions == {}


async def test_delete_removes_everything(store: RecordStore) -> None:
    deleted: list[RecordKey] = []

    class Deleting(ScriptedExecutor):
        async def on_delete(self, key: RecordKey) -> None:
            deleted.append(key)

    with anyio.fail_after(10):
        async with Deleting(three_turns(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await session.aclose()
            await executor.delete("s")
            assert [key.session_id for key in deleted] == ["s"]
            assert await executor.list() == []
            for call in (executor.load("s"), executor.delete("s"), executor.fork("s", 3)):
                with pytest.raises(SessionNotFound):
                    await call
            assert (await executor.open(OpenOptions(session_id="s"))).last_seq == 1


async def test_an_ephemeral_session_leaves_nothing(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            session = await executor.open(OpenOptions(execution=ExecutionOptions(ephemeral=True)))
            await say(session)
            await session.aclose()
            assert await executor.list() == []


async def test_calls_without_their_capability_or_a_store_say_so() -> None:
    async with ScriptedExecutor(three_turns(), capabilities=["abort"]) as executor:
        for call in (executor.load("s"), executor.list(), executor.delete("s"), executor.fork("s", 1)):
            with pytest.raises(Unimplemented):
                await call
        with pytest.raises(Unimplemented):
            await executor.rewind("s", 1)
    async with ScriptedExecutor(three_turns()) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await executor.load("s")
        assert refused.value.id == "store-missing"


async def test_tools_that_the_agent_needs_must_be_offered() -> None:
    executor = ScriptedExecutor(three_turns(), store=MemoryRecordStore())
    executor.descriptor = executor.descriptor.model_copy(update={"required_tools": ["read_file"]})
    offered = OpenOptions(
        session_id="s", execution=ExecutionOptions(tools=[ToolDescriptor(name="read_file", owner="host")])
    )
    async with executor:
        with pytest.raises(ConfigurationError) as refused:
            await executor.open()
        assert refused.value.id == "tools-missing"
        await (await executor.open(offered)).aclose()
        with pytest.raises(ConfigurationError):
            await executor.load("s")
        assert (await executor.load("s", offered)).state == "new"


async def test_a_session_whose_opening_was_cut_off_is_not_found_and_can_be_deleted() -> None:
    store = MemoryRecordStore()
    async with ScriptedExecutor(three_turns(), store=store) as executor:
        await store.create(RecordKey("scripted", "local", "s"))
        with pytest.raises(SessionNotFound):
            await executor.load("s")
        await executor.delete("s")


async def test_a_record_of_another_major_version_is_refused() -> None:
    store = MemoryRecordStore()
    async with ScriptedExecutor(three_turns(), store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        await session.aclose()
        (first,) = store._records[session.recorder.key].events
        store._records[session.recorder.key].events[0] = first.model_copy(update={"protocol_version": "2.0"})
        with pytest.raises(UnsupportedVersion):
            await executor.load("s")
        await store.lock(session.recorder.key, "somebody")  # the refused load has given it back


async def test_a_refused_record_is_left_as_it_is_though_something_waits_in_it() -> None:
    class Picky(ScriptedExecutor):
        def check_record(self, events: Sequence[Event]) -> None:
            raise InvalidInput("not this one")

    store = MemoryRecordStore()
    async with ScriptedExecutor([[Call("look")]], reenter=True, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
        await session.aclose()
        before = await store.read(session.recorder.key)
    async with Picky([[Call("look")]], store=store) as executor:  # one that cannot resume would settle what waits
        with pytest.raises(InvalidInput, match="not this one"):
            await executor.load("s")
    assert await store.read(session.recorder.key) == before


async def test_an_on_load_that_raises_gives_the_session_back() -> None:
    class Picky(ScriptedExecutor):
        async def on_load(self, session: BaseSession) -> None:
            raise InvalidInput("no")

    store = MemoryRecordStore()
    async with Picky(three_turns(), store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        await session.aclose()
        for _ in range(2):
            with pytest.raises(InvalidInput):
                await executor.load("s")
        assert executor.open_sessions == {}


@pytest.mark.rule("HITL-07")
async def test_a_host_that_can_show_less_than_the_one_before_can_still_load() -> None:
    store = MemoryRecordStore()
    steps: list[list[Step]] = [[Ask("Who?"), Ask("And?"), Say("done")]]
    with anyio.fail_after(5):
        async with ScriptedExecutor(steps, store=store, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await read(session.stream(accept(session.pending[0].request_id, "me")))
            await session.aclose()
            less = OpenOptions(host=HostCapabilities(elicitation_kinds=[]))
            session = await executor.load("s", less)
            (question,) = session.pending
            assert texts(await read(session.stream(accept(question.request_id, "that")))) == ["done"]


# -- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-05")
async def test_a_fork_has_the_prefix_settles_what_waited_and_leaves_the_original_alone(
    store: RecordStore, reenter: bool
) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store, reenter=reenter) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = await say(session)
            before = await stored(store, session)
            fork = await executor.fork("s", first[-1].seq, OpenOptions(session_id="f"))
            assert {event.session_id for event in fork.record} == {"f"}
            prefix = list(fork.record)[: len(before)]
            assert [event.model_copy(update={"session_id": "s"}) for event in prefix] == before
            end = end_of(list(fork.record))
            assert (end.reason, end.data) == ("aborted", {"cause": "fork"})
            assert {event.status for event in only(fork.record, ToolResponse)} == {"cancelled"}
            check(fork)
            assert texts(await say(fork, "other")) == ["other", "next"]
            await read(session.stream([result("a", 1), grant("b")]))
            assert session.state == "idle"
            assert (await stored(store, session))[: len(before)] == before


@pytest.mark.rule("PER-05")
async def test_a_fork_inside_a_stream_or_beyond_the_end_is_refused_and_leaves_nothing(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            events = await say(session)
            for at in (events[0].seq, events[-1].seq - 1, 0):
                with pytest.raises(InvalidInput):
                    await executor.fork("s", at)
            with pytest.raises(CursorGone):
                await executor.fork("s", 10**9)
            assert len(await executor.list()) == 1


@pytest.mark.rule("PER-05")
async def test_an_on_fork_that_raises_removes_the_fork() -> None:
    class Picky(ScriptedExecutor):
        async def on_fork(self, source: RecordKey, session: BaseSession, at: int) -> None:
            raise InvalidInput("no")

    store = MemoryRecordStore()
    async with Picky(three_turns(), store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        with pytest.raises(InvalidInput, match="no"):
            await executor.fork("s", 1)
        assert [info.key.session_id for info in await executor.list()] == ["s"]
        assert list(executor.open_sessions) == [session.recorder.key]


async def test_a_loaded_waiting_turn_can_be_steered_and_has_a_deadline(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await say(session)
            await session.aclose()
            session = await executor.load("s")
            assert (await session.steer("mind")).status == "queued"
            assert texts(await read(session.stream([result("a", 1), grant("b")]))) == ["mind", "done"]
            await session.aclose()

            session = await executor.open(OpenOptions(session_id="d"))
            await say(session)
            await session.aclose()
            late = OpenOptions(execution=ExecutionOptions(deadline="2001-01-01T00:00:00Z"))
            session = await executor.load("d", late)
            async with session.events(session.last_seq, follow=True, types={"stream_end"}) as reader:
                end = await anext(reader)
            assert isinstance(end, StreamEnd)
            assert end.data == {"cause": "deadline"}


async def test_a_session_without_a_store_works_the_same() -> None:
    async with session_of(ScriptedExecutor(three_turns())) as session:
        await say(session)
        await session.stored()
