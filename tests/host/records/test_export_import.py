"""A record goes out as lines and comes in again: whole or not at all, and nothing in it makes a tool run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Host, allow_all
from agentsession.host.records import Redactor, export_record, import_record
from agentsession.protocol import (
    Event,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    SchemaError,
    SessionBusy,
    SessionConfig,
    SessionExists,
    SessionMachine,
    StreamEnd,
    ToolProgress,
    ToolResponse,
    dump_event,
    grant,
    is_ephemeral,
    result,
)

pytestmark = pytest.mark.anyio

KEY = RecordKey("scripted", "local", "s")


async def recorded(store: MemoryRecordStore, steps: Sequence[Step]) -> list[str]:
    """The exported lines of a session with one turn, as it is when its stream ends."""
    with anyio.fail_after(10):
        async with ScriptedExecutor([list(steps)], store=store, reenter=True) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await session.update(SessionConfig(title="Shop tests", state={"a": 1}))
            async with session.stream("go 😀") as stream:
                seen = [event async for event in stream]
            assert seen
            return [line async for line in export_record(store, KEY)]


async def test_what_was_exported_is_imported_equal_under_a_new_id() -> None:
    store = MemoryRecordStore()
    lines = await recorded(store, [Deltas(["one ", "two"]), Say("done")])
    assert len(lines) == len(await store.read(KEY))
    made = await import_record(store, lines, session_id="copy", user_id="bob")
    assert (made.key, made.events, made.settled) == (RecordKey("scripted", "bob", "copy"), len(lines), ())
    copied = await store.read(made.key)
    assert [event.session_id for event in copied] == ["copy"] * len(lines)
    assert [event.model_copy(update={"session_id": "s"}) for event in copied] == await store.read(KEY)
    assert (await store.info(made.key)).title == "Shop tests"


async def test_a_secret_that_is_told_late_is_not_exported_early() -> None:
    store = MemoryRecordStore()
    steps: list[Step] = [
        Say("I try hunter2-and-more."),
        Calls(Call("login", {"password": "hunter2-and-more"}, needs="none")),
    ]
    assert sum("hunter2" in line for line in await recorded(store, steps)) == 2
    redacted = [line async for line in export_record(store, KEY, redact=Redactor(environ={}))]
    assert "hunter2" not in "".join(redacted)
    assert [json.loads(line)["seq"] for line in redacted] == [event.seq for event in await store.read(KEY)]


async def test_an_imported_session_is_loaded_and_goes_on() -> None:
    store, other = MemoryRecordStore(), MemoryRecordStore()
    made = await import_record(other, await recorded(store, [Say("done")]))
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Say("one")], [Say("two")]], store=other) as executor:
            session = await executor.load(made.key.session_id)
            assert session.state_values == {"a": 1}
            async with session.stream("again") as stream:
                assert [event async for event in stream][-1].type == "stream_end"


async def test_deltas_blank_lines_receipts_and_errors_are_passed_over() -> None:
    store = MemoryRecordStore()
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Deltas(["one ", "two"]), Say("done")]], store=store) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            async with session.stream("go") as stream:
                assert any([is_ephemeral(event) async for event in stream])
            events = [event async for event in session.events()]
    assert any(is_ephemeral(event) for event in events)
    lines: list[str | bytes] = [dump_event(event).encode() + b"\r\n" for event in events]
    lines[2:2] = [b"\n", '{"receipt": {"status": "applied"}}\n', '{"error": "x", "what": "y"}']
    made = await import_record(store, lines, session_id="copy")
    assert made.events == sum(not is_ephemeral(event) for event in events)


@pytest.mark.parametrize(
    "steps",
    [
        [Call("wipe", {"n": 1}, needs="grant", run=lambda args: "ran")],
        [Call("wipe", {"n": 1}, needs="result")],
        [Ask("ok?")],
        [Calls(Call("a", {}, needs="result"), Call("b", {}, needs="grant", run=lambda args: "ran"))],
    ],
)
async def test_what_waited_is_settled_and_no_host_can_make_it_run(steps: list[Step]) -> None:
    ran: list[str] = []

    def wipe(n: int = 0) -> str:
        """Wipe it."""
        ran.append("wipe")
        return "wiped"

    store = MemoryRecordStore()
    made = await import_record(store, await recorded(store, steps), session_id="copy")
    events = await store.read(made.key)
    assert set(made.settled) == {event.request_id for event in events if event.type.endswith("_request")}  # type: ignore[attr-defined]  # requests have it
    machine = SessionMachine.fold(events)
    assert machine.state == "idle"
    assert not machine.requests
    end = events[-1]
    assert isinstance(end, StreamEnd)
    assert (end.reason, end.data) == ("aborted", {"cause": "import"})
    host = Host(tools=[wipe], policy=allow_all)
    with anyio.fail_after(10):
        async with ScriptedExecutor([[], [Say("fine")]], store=store, reenter=True) as executor:
            async with host.session(executor, OpenOptions(), load="copy", store=store) as session:
                assert not session.pending
                for request_id in made.settled:
                    receipts = await session.respond(grant(request_id), result(request_id, "x"))
                    assert not any(receipt.ok for receipt in receipts)
                await host.run_turn(session, "go on")
    assert ran == []


async def test_a_question_about_a_call_is_settled_before_the_call() -> None:
    store = MemoryRecordStore()
    *lines, closed, end = await recorded(store, [Call("wipe", id="r-1")])
    told = json.loads(closed)
    asked = {name: told[name] for name in ("timestamp", "sessionId", "streamId", "turnId", "seq", "agentId")}
    asked |= {"type": "elicitation_request", "id": "q", "requestId": "q-1", "kind": "approval", "message": "Sure?"}
    lines += [
        json.dumps({**asked, "toolRequestId": "r-1"}),
        _change(closed, seq=told["seq"] + 1),
        _change(end, seq=told["seq"] + 2, pending=["r-1", "q-1"]),
    ]
    made = await import_record(store, lines, session_id="copy")
    assert len(made.settled) == 2
    assert [event.type for event in await store.read(made.key)][-3:] == [
        "elicitation_response",
        "tool_response",
        "stream_end",
    ]


async def test_a_host_tool_that_had_started_is_unknown_in_the_imported_record() -> None:
    store = MemoryRecordStore()
    async with ScriptedExecutor([[Call("wipe", id="r-1")]], store=store, reenter=True) as executor:
        session = await executor.open(OpenOptions(session_id="source"))
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
        await session.respond(ToolProgress(request_id="r-1", started=True))
        lines = [dump_event(event) async for event in session.events()]
        await session.aclose()
    made = await import_record(store, lines, session_id="copy")
    (ended,) = [event for event in await store.read(made.key) if isinstance(event, ToolResponse)]
    assert (ended.request_id, ended.status) == ("r-1", "unknown")


async def test_a_record_that_was_cut_inside_a_stream_is_closed_by_its_load() -> None:
    store = MemoryRecordStore()
    lines = (await recorded(store, [Call("wipe", {"n": 1}, needs="grant", run=lambda args: "ran")]))[:-2]
    assert '"type":"tool_request"' in lines[-1]
    made = await import_record(store, lines, session_id="cut")
    assert (await store.info(made.key)).state == "running"
    with anyio.fail_after(10):
        async with ScriptedExecutor([[], [Say("fine")]], store=store, reenter=True) as executor:
            session = await executor.load("cut")
            assert session.state == "idle"
            assert not session.pending


def _change(line: str, **changes: Any) -> str:
    return json.dumps({**json.loads(line), **changes})


@pytest.mark.parametrize(
    ("spoil", "number", "error"),
    [
        (lambda lines: [*lines[:3], "{broken", *lines[3:]], 4, SchemaError),
        (lambda lines: [*lines[:3], "[]", *lines[3:]], 4, SchemaError),
        (lambda lines: lines[1:], 1, InvalidInput),
        (lambda lines: [*lines[:4], lines[2], *lines[4:]], 5, InvalidInput),
        (lambda lines: [*lines[:3], *lines[4:]], 4, InvalidInput),
        (lambda lines: [*lines[:2], "", _change(lines[2], seq=0), *lines[3:]], 4, SchemaError),
        (lambda lines: [*lines, lines[0]], 8, InvalidInput),
        (lambda lines: [*lines[:3], _change(lines[3], sessionId="other"), *lines[4:]], 4, InvalidInput),
    ],
)
async def test_a_bad_line_is_named_and_nothing_is_stored(spoil: Any, number: int, error: type[Exception]) -> None:
    store, other = MemoryRecordStore(), MemoryRecordStore()
    lines = await recorded(store, [Say("done")])
    assert len(lines) == 7
    with pytest.raises(error) as caught:
        await import_record(other, spoil(lines))
    assert f"line {number}" in str(caught.value)
    assert await other.browse() == []


async def test_what_is_being_imported_is_locked_until_it_is_there() -> None:
    seen: list[str | None] = []

    class Watched(MemoryRecordStore):
        async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
            seen.append(self._records[key].owner)
            await super().append(key, events, reserved_seq=reserved_seq)

    store = Watched()
    made = await import_record(store, await recorded(MemoryRecordStore(), [Say("done")]))
    (owner,) = seen
    assert owner is not None
    await store.lock(made.key, "another")


async def test_nothing_is_no_record() -> None:
    with pytest.raises(InvalidInput, match="no event to import"):
        await import_record(MemoryRecordStore(), ["", "\n"])


async def test_an_id_that_is_taken_is_refused_and_its_record_stays() -> None:
    store = MemoryRecordStore()
    lines = await recorded(store, [Say("done")])
    before = await store.read(KEY)
    with pytest.raises(SessionExists):
        await import_record(store, lines)
    assert await store.read(KEY) == before


async def test_what_an_import_left_that_was_killed_before_it_stored_anything_is_not_in_the_way() -> None:
    store, left = MemoryRecordStore(), MemoryRecordStore()
    lines = await recorded(store, [Say("done")])
    await left.create(KEY)
    made = await import_record(left, lines)
    assert len(await left.read(KEY)) == made.events
    await left.lock(KEY, "another")  # it was given back


async def test_an_empty_record_that_somebody_is_about_to_fill_is_left_alone() -> None:
    store, other = MemoryRecordStore(), MemoryRecordStore()
    lines = await recorded(store, [Say("done")])
    await other.create(KEY)
    await other.lock(KEY, "another")
    with pytest.raises(SessionBusy):
        await import_record(other, lines)
    assert (await other.info(KEY)).last_seq == 0
    with pytest.raises(SessionBusy):
        await other.lock(KEY, "a third")


async def test_an_empty_record_that_was_filled_meanwhile_stays_as_it_is() -> None:
    class Raced(MemoryRecordStore):
        async def lock(self, key: RecordKey, owner: str) -> None:
            await self.append(key, await store.read(KEY), reserved_seq=1000)
            await super().lock(key, owner)

    store, other = MemoryRecordStore(), Raced()
    lines = await recorded(store, [Say("done")])
    await other.create(KEY)
    with pytest.raises(SessionExists):
        await import_record(other, lines)
    assert await other.read(KEY) == await store.read(KEY)
    await MemoryRecordStore.lock(other, KEY, "another")


@pytest.mark.parametrize("wrong", ["a/b", "..", "x" * 300])
async def test_an_id_that_cannot_be_kept_is_refused(wrong: str) -> None:
    store = MemoryRecordStore()
    lines = await recorded(store, [Say("done")])
    with pytest.raises(InvalidInput):
        await import_record(store, lines, session_id=wrong)
    assert len(await store.browse()) == 1


async def test_a_store_that_fails_in_the_middle_keeps_nothing() -> None:
    class Full(MemoryRecordStore):
        async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
            raise OSError("disk full")

    store, other = MemoryRecordStore(), Full()
    lines = await recorded(store, [Say("done")])
    with pytest.raises(OSError, match="disk full"):
        await import_record(other, lines)
    assert await other.browse() == []
