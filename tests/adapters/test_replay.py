"""The replay executor: what was recorded is said and asked again, by ids of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import end_of, only, read, say, session_of, texts

from agentsession.adapters.base import RunContext
from agentsession.adapters.replay import ReplayExecutor, entry_point, read_record
from agentsession.adapters.scripted import (
    Ask,
    Call,
    Calls,
    Count,
    Deltas,
    End,
    Fail,
    Parallel,
    Raise,
    Refuse,
    Say,
    ScriptedExecutor,
    Step,
    Think,
)
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Answer,
    Custom,
    Event,
    InvalidInput,
    Message,
    PendingRequest,
    ProtocolViolation,
    SchemaError,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    ToolResult,
    accept,
    cancel,
    decline,
    deny,
    dump_event,
    grant,
    is_ephemeral,
    result,
)

pytestmark = pytest.mark.anyio

SCRIPT: list[list[Step]] = [
    [
        Think("two files", signature="sig"),
        Deltas(["Loo", "king."]),
        Calls(
            Call("read", {"path": "a"}),
            Call("edit", {"path": "b"}, needs="grant"),
            Call("fail", {}, needs="none", run=lambda args: 1 / 0),
        ),
        Count(input_tokens=3),
        Fail("slow"),
        Parallel(ann=[Say("hi"), Call("look")], bob=[Ask("Bob?")]),
        Ask("Log in", kind="auth_required"),
        Say("done"),
    ],
    [Call("rm", needs="grant"), Say("never")],
    [Deltas(["ha", "lf"]), Raise(ValueError())],
    [Refuse()],
    [Fail("gone", fatal=True)],
    [End("max_tokens", {"limit": 1})],
]


def answer_to(request: PendingRequest) -> Answer:
    if not isinstance(request, ToolRequest):
        content = {"credential": {"type": "api_key", "key": "k"}} if request.kind == "auth_required" else "yes"
        return accept(request.request_id, content)
    return grant(request.request_id) if request.needs == "grant" else result(request.request_id, f"of {request.name}")


async def play(session: Any, answers: Any, turns: int) -> None:
    """Every turn with its answers; the second is aborted while it waits."""
    for number in range(1, turns + 1):
        events = await say(session, f"turn {number}")
        while end_of(events).reason == "input_required":
            if number == 2:
                await session.abort("not that")
                break
            given = [answers(request) for request in session.pending]
            assert None not in given
            events = await read(session.stream(given))


async def record(reenter: bool) -> list[Event]:
    async with session_of(ScriptedExecutor(SCRIPT, reenter=reenter)) as session:
        seen: list[Event] = []

        async def follow() -> None:
            async with session.events(follow=True) as reader:
                async for event in reader:
                    seen.append(event)

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await play(session, answer_to, len(SCRIPT))
            await session.aclose()
        return seen


def plain(events: Sequence[Event], *, pauses: bool) -> list[dict[str, Any]]:
    """Events without what differs between two sessions that do the same: ids are numbered as they appear."""
    numbers: dict[str, str] = {}
    shown = []
    for event in events:
        of_a_pause = (
            (isinstance(event, AgentEnd) and event.reason in ("input_required", "aborted"))
            or (isinstance(event, AgentStart) and event.resumed)
            or (isinstance(event, StreamEnd) and event.reason == "input_required")
        )
        if event.turn_id is None or (of_a_pause and not pauses):
            continue
        wire = event.to_wire()
        for name in ("id", "seq", "timestamp", "sessionId", "_meta", *(() if pauses else ("streamId",))):
            wire.pop(name, None)
        for name in ("streamId", "turnId", "messageId", "requestId", "toolRequestId"):
            if name in wire:
                wire[name] = numbers.setdefault(wire[name], f"#{len(numbers)}")
        if "pending" in wire:
            wire["pending"] = [numbers[item] for item in wire["pending"]]
        if "volatile" in wire.get("data", {}):
            del wire["data"]
        shown.append(wire)
    return shown


async def replayed(executor: ReplayExecutor, turns: int) -> list[Event]:
    async with session_of(executor) as session:
        seen: list[Event] = []

        async def follow() -> None:
            async with session.events(follow=True) as reader:
                async for event in reader:
                    seen.append(event)

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await play(session, executor.recorded_answer, turns)
            await session.aclose()
        return seen


@pytest.mark.parametrize("ephemeral", [True, False], ids=["with_deltas", "stored"])
async def test_a_replay_with_the_recorded_answers_is_the_record_again(reenter: bool, ephemeral: bool) -> None:
    original = [event for event in await record(reenter) if ephemeral or not is_ephemeral(event)]
    executor = ReplayExecutor(original)
    again = await replayed(executor, len(SCRIPT))
    assert plain(again, pauses=True) == plain(original, pauses=True)
    assert executor.mismatches == []


async def test_with_auto_the_recorded_answers_are_given_and_nothing_waits(reenter: bool) -> None:
    original = await record(reenter)
    again = await replayed(ReplayExecutor(original, auto=True), len(SCRIPT))
    assert plain(again, pauses=False) == plain(original, pauses=False)
    assert {end.reason for end in only(again, StreamEnd)} == {
        "completed",
        "aborted",
        "failed",
        "refusal",
        "max_tokens",
    }


async def test_answers_that_differ_are_noted_and_the_record_goes_on(reenter: bool) -> None:
    executor = ReplayExecutor(await record(reenter))

    def otherwise(request: PendingRequest) -> Answer:
        if not isinstance(request, ToolRequest):
            return decline(request.request_id)
        return deny(request.request_id, "no") if request.needs == "grant" else result(request.request_id, "other")

    async with session_of(executor) as session:
        await play(session, otherwise, 1)
        assert texts(session.record)[-1] == "done"
        notes = [event.data for event in only(session.record, Custom) if event.kind == "replay_mismatch"]
        assert notes == executor.mismatches
        assert sorted(note["given"]["kind"] for note in notes) == [
            "elicitation_response",
            "elicitation_response",
            "tool_denial",
            "tool_result",
            "tool_result",
        ]
        assert notes[0]["recorded"] == {"kind": "tool_result", "data": "of read"}
        statuses = [event.status for event in only(session.record, ToolResponse) if event.name == "edit"]
        assert statuses == ["denied"]


async def test_a_grant_for_what_the_record_denied_fails_the_tool_and_goes_on() -> None:
    async with session_of(ScriptedExecutor([[Call("rm", needs="grant"), Say("kept it")]])) as session:
        await say(session)
        await read(session.stream(deny(session.pending[0].request_id, "no")))
        original = list(session.record)
    async with session_of(ReplayExecutor(original)) as session:
        await say(session)
        events = await read(session.stream(grant(session.pending[0].request_id)))
        assert [event.status for event in only(events, ToolResponse)] == ["failed"]
        assert texts(events) == ["kept it"]
        assert end_of(events).reason == "completed"


@pytest.mark.rule("HITL-02")
async def test_a_no_to_what_the_record_confirmed_shows_no_result_and_goes_on() -> None:
    async def confirmed(ctx: RunContext) -> None:
        request = await ctx.emit(ToolRequest(request_id=ctx.new_id("r"), name="wipe", needs="none"))
        answer = await ctx.elicit("tool_confirmation", "Wipe?", tool_request_id=request.request_id)
        if answer.action == "accept":
            await ctx.respond(request, {"wiped": 3})
        await ctx.say("done")

    async with session_of(confirmed) as session:
        await say(session)
        await read(session.stream(accept(session.pending[0].request_id)))
        whole = list(session.record)
    for answer in (accept, decline, cancel):
        async with session_of(ReplayExecutor(whole)) as session:
            await say(session)
            events = await read(session.stream(answer(session.pending[0].request_id)))
            (response,) = only(events, ToolResponse)
            shown = (response.status, response.is_error, response.data)
            no = ("denied", True, {"error": "the call was not confirmed"})
            assert shown == (("completed", False, {"wiped": 3}) if answer is accept else no)
            assert (texts(events), end_of(events).reason) == (["done"], "completed")


async def test_a_turn_that_the_record_left_waiting_waits_and_then_ends(reenter: bool) -> None:
    script: list[list[Step]] = [[Calls(Call("a"), Call("b", needs="grant"))]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        original = list(session.record)
    for auto in (False, True):
        executor = ReplayExecutor(original, auto=auto)
        async with session_of(executor) as session:
            events = await say(session)
            assert len(end_of(events).pending) == 2
            assert [executor.recorded_answer(request) for request in session.pending] == [None, None]
            events = await read(session.stream([answer_to(request) for request in session.pending]))
            assert end_of(events).reason == "completed"
            assert executor.mismatches == []


async def test_the_host_may_answer_what_the_record_aborted_and_the_turn_still_ends_so(reenter: bool) -> None:
    script: list[list[Step]] = [[Call("a"), Say("never")]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        await session.abort("no")
        original = list(session.record)
    async with session_of(ReplayExecutor(original)) as session:
        await say(session)
        events = await read(session.stream(result(session.pending[0].request_id, 1)))
        assert (end_of(events).reason, end_of(events).data) == ("aborted", {"cause": "no"})
        assert [event.status for event in only(events, ToolResponse)] == ["completed"]


async def test_a_record_that_was_cut_ends_failed_where_it_was_cut() -> None:
    original = await record(False)
    cut = next(place for place, event in enumerate(original) if isinstance(event, ToolRequest))
    async with session_of(ReplayExecutor(original[: cut + 1])) as session:
        events = await say(session)
        assert texts(events)[-1] == "Looking."
        assert (end_of(events).reason, end_of(events).data) == ("failed", {"cause": "lost"})
        assert [event.status for event in only(events, ToolResponse)] == ["unknown"]


async def test_after_the_last_turn_it_says_so() -> None:
    async with session_of(ReplayExecutor(await record(False), auto=True)) as session:
        for _ in range(len(SCRIPT)):
            await say(session)
        assert texts(await say(session, "more")) == ["more", "(the record has 6 turns, this is turn 7)"]


async def test_requests_name_what_they_were_called_in_the_record() -> None:
    original = await record(False)
    async with session_of(ReplayExecutor(original)) as session:
        await say(session)
        recorded = [event.request_id for event in only(original, ToolRequest) if event.needs != "none"]
        assert [request.meta["recordedRequestId"] for request in session.pending] == recorded[:2]


async def test_the_descriptor_is_the_recorded_one_with_what_a_replay_can_do() -> None:
    original = await record(False)
    executor = ReplayExecutor(original)
    assert executor.descriptor.name == "scripted"
    assert executor.descriptor.executor == "replay"
    assert not executor.descriptor.supports("steering")
    assert not executor.descriptor.supports("resume")
    assert executor.descriptor.supports("sub_agents")
    assert executor.turns == len(SCRIPT)


async def test_a_record_comes_from_a_path_a_text_or_events(tmp_path: Path) -> None:
    original = await record(False)
    text = "\n".join(map(dump_event, original))
    path = tmp_path / "record.ndjson"
    path.write_text(text + "\n\n", encoding="utf-8")
    assert read_record(path) == read_record(str(path)) == read_record(text) == read_record(original) == original


async def test_a_record_that_breaks_a_rule_is_refused_with_the_rule_and_the_line() -> None:
    lines = list(map(dump_event, await record(False)))
    with pytest.raises(ProtocolViolation) as refused:
        ReplayExecutor("\n".join(lines[1:]))
    assert refused.value.rule == "LIFE-02"
    assert refused.value.blame == "peer"
    with pytest.raises(ProtocolViolation) as refused:
        ReplayExecutor("\n".join([*lines[:5], "", lines[4], *lines[5:]]))
    assert refused.value.rule == "ORD-01"
    assert (refused.value.where or "").startswith("line 7,")


async def test_a_line_that_is_no_event_is_refused_with_its_number() -> None:
    lines = list(map(dump_event, await record(False)))
    with pytest.raises(SchemaError) as refused:
        ReplayExecutor("\n".join([*lines[:3], '{"type": "message"}']))
    assert refused.value.line == 4
    with pytest.raises(SchemaError):
        ReplayExecutor(lines[0] + "\nnot json")


@pytest.mark.rule("WIRE-01")
async def test_characters_that_end_a_line_elsewhere_end_none_in_a_record() -> None:
    said = "a\u2028b\u2029c\x85d\x0be\x1cf"
    async with session_of(ScriptedExecutor([[Say(said)]])) as session:
        await say(session)
        original = list(session.record)
    assert read_record("\n".join(map(dump_event, original))) == original
    assert read_record("\r\n".join(map(dump_event, original))) == original


@pytest.mark.parametrize("source", ["", "  \n", "no/such/file.ndjson", "no\0name", [{"type": "message"}], []])
def test_nothing_to_replay(source: Any) -> None:
    with pytest.raises(InvalidInput):
        ReplayExecutor(source)


async def test_parallel_work_keeps_its_threads_and_agents() -> None:
    original = await record(False)
    again = await replayed(ReplayExecutor(original, auto=True), 1)
    threads = {(event.thread_id, event.agent_id) for event in only(again, Message)}
    assert ("ann", "ann") in threads
    assert {event.thread_id for event in again} >= {None, "ann", "bob"}


def test_the_entry_point_gives_the_class() -> None:
    assert entry_point() is ReplayExecutor
    assert isinstance(result("x", 1), ToolResult)
