"""The scripted executor: each step gives its events, and both kinds of run give the same ones."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.adapters.sessions import end_of, kinds, only, read, say, session_of, texts

from agentsession.adapters.scripted import (
    Ask,
    Call,
    Calls,
    Count,
    Delay,
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
    entry_point,
)
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Constraints,
    Error,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    Message,
    OpenOptions,
    Refusal,
    StreamEnd,
    Thought,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    Usage,
    accept,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


async def events_of(*steps: Step, reenter: bool = False) -> list[Event]:
    async with session_of(ScriptedExecutor([steps], reenter=reenter)) as session:
        return [event for event in await say(session) if event.source != "user"]


@pytest.mark.parametrize("reenter", [False, True])
async def test_a_tool_that_needs_no_grant_runs_when_its_request_is_stored(reenter: bool) -> None:
    store = MemoryRecordStore()
    asked: list[int] = []

    async def run(args: dict[str, Any]) -> None:
        (info,) = await store.list("scripted", "local")
        asked.append(sum(isinstance(event, ToolRequest) for event in await store.read(info.key)))

    executor = ScriptedExecutor([[Calls(Call("a", needs="none", run=run))]], reenter=reenter, store=store)
    async with session_of(executor) as session:
        await say(session)
    assert asked == [1]


async def test_each_step_gives_its_events() -> None:
    events = await events_of(
        Say("a"), Deltas(["b", "c"]), Think("d", signature="s"), Count(model="m", input_tokens=1), Fail("e", code="c")
    )
    assert kinds(events) == [
        "agent_start",
        "message",
        "message",
        "message",
        "message",
        "message",
        "usage",
        "error",
        "agent_end",
        "stream_end",
    ]
    assert texts(events) == ["a", "bc", ""]
    assert only(events, Message)[-1].content == [Thought(text="d", signature="s")]
    assert only(events, Usage)[0].input_tokens == 1
    assert only(events, Error)[0].code == "c"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Refuse("no"), "refusal"),
        (End("max_tokens", {"limit": 1}), "max_tokens"),
        (Fail("gone", fatal=True), "failed"),
        (Raise(ValueError()), "failed"),
    ],
)
async def test_steps_that_end_the_turn(step: Step, reason: str, reenter: bool) -> None:
    events = await events_of(step, Say("never"), reenter=reenter)
    assert end_of(events).reason == reason
    assert "never" not in texts(events)


async def test_a_refusal_is_a_part_of_its_own() -> None:
    assert only(await events_of(Refuse("no")), Message)[0].content == [Refusal(text="no")]


async def test_a_delay_waits_for_what_it_is_given() -> None:
    go = anyio.Event()
    async with session_of(ScriptedExecutor([[Delay(until=go.wait), Say("now")], [Delay(), Say("at once")]])) as session:
        stream = session.stream("go")
        await anext(stream)
        assert session.state == "running"
        go.set()
        assert texts([event async for event in stream]) == ["now"]
        assert texts(await say(session)) == ["go", "at once"]


@pytest.mark.rule("TOOL-05")
async def test_what_each_kind_of_call_needs(reenter: bool) -> None:
    order: list[str] = []

    def run(name: str) -> Any:
        return lambda args: order.append(name)

    calls = Calls(
        Call("hosts", {"n": 1}, id="h"),
        Call("gated", {"n": 2}, needs="grant", run=run("gated"), id="g"),
        Call("free", {"n": 3}, needs="none", run=run("free"), id="f"),
    )
    async with session_of(ScriptedExecutor([[calls, Say("done")]], reenter=reenter)) as session:
        first = await say(session)
        assert order == ["free"]
        assert sorted(end_of(first).pending) == ["g", "h"]
        assert {event.owner for event in only(first, ToolRequest) if event.request_id == "h"} == {"host"}
        second = await read(session.stream([grant("g"), result("h", "r")]))
        assert order == ["free", "gated"]
        responses = {event.request_id: event for event in only([*first, *second], ToolResponse)}
        assert {name: event.status for name, event in responses.items()} == dict.fromkeys("fgh", "completed")
        assert responses["h"].data == "r"
        assert responses["g"].data is None
        assert texts(second) == ["done"]


async def test_a_step_of_calls_that_need_nobody_does_not_pause(reenter: bool) -> None:
    events = await events_of(Calls(Call("a", needs="none"), Call("b", needs="none")), Say("done"), reenter=reenter)
    assert [event.data for event in only(events, ToolResponse)] == [{"ok": True}] * 2
    assert end_of(events).reason == "completed"


async def test_a_tool_that_fails_or_is_denied_is_an_error_that_the_turn_survives(reenter: bool) -> None:
    def fails(args: dict[str, Any]) -> None:
        raise KeyError

    calls = Calls(Call("a", needs="grant", run=fails, id="a"), Call("b", needs="grant", id="b"))
    async with session_of(ScriptedExecutor([[calls, Say("on")]], reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream([grant("a"), deny("b", "no")]))
        statuses = {event.request_id: (event.status, event.is_error) for event in only(events, ToolResponse)}
        assert statuses == {"a": ("failed", True), "b": ("denied", True)}
        assert texts(events) == ["on"]


async def test_text_may_depend_on_the_answers(reenter: bool) -> None:
    def told(memory: Any) -> str:
        return f"{memory.last.content} of {len(memory.answers)}"

    async with session_of(ScriptedExecutor([[Ask("Who?"), Say(told)]], reenter=reenter)) as session:
        await say(session)
        assert texts(await read(session.stream(accept(session.pending[0].request_id, "me")))) == ["me of 1"]


@pytest.mark.rule("HITL-10")
async def test_sub_agents_have_threads_of_their_own_also_within_each_other(reenter: bool) -> None:
    inner = Parallel(kid=[Say("from the kid")])
    events = await events_of(Parallel(ann=[Say("hi"), inner], bob=[Say("hello")]), Say("both"), reenter=reenter)
    threads = {(event.agent_id, event.thread_id) for event in only(events, AgentStart)}
    assert threads == {("scripted", None), ("ann", "ann"), ("bob", "bob"), ("kid", "ann.kid")}
    ended = [event.agent_id for event in only(events, AgentEnd)]
    assert ended.index("kid") < ended.index("ann") < ended.index("scripted")


@pytest.mark.rule("PER-04")
async def test_what_sub_agents_ask_does_not_survive_and_the_rest_does() -> None:
    script: list[list[Step]] = [[Parallel(ann=[Call("a", id="a")])], [Call("b", id="b"), Say("done")]]
    async with session_of(ScriptedExecutor(script, reenter=True)) as session:
        assert end_of(await say(session)).data == {"volatile": ["a"]}
        await read(session.stream(result("a", 1)))
        assert end_of(await say(session)).data is None


async def test_both_kinds_of_run_give_the_same_events() -> None:
    script: list[list[Step]] = [
        [
            Deltas(["one ", "two"]),
            Calls(Call("a", id="a"), Call("b", id="b", needs="grant"), Call("c", id="c", needs="none")),
            Count(input_tokens=1),
            Ask("Who?"),
            Say("done"),
        ]
    ]

    async def played(reenter: bool) -> list[Any]:
        async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
            await say(session)
            await read(session.stream([grant("b"), result("a", 1)]))
            await read(session.stream(accept(session.pending[0].request_id, "me")))
            skipped = {"id", "seq", "timestamp", "sessionId", "_meta", "descriptor"}
            wires = [{key: value for key, value in e.to_wire().items() if key not in skipped} for e in session.record]
            for wire in wires:  # a run that is kept open is volatile, and says so
                wire.get("data", {}).pop("volatile", None) if wire["type"] == "stream_end" else None
                if not wire.get("data", True):
                    del wire["data"]
            return wires

    assert await played(True) == await played(False)


async def test_beyond_the_script_it_says_so() -> None:
    async with session_of(ScriptedExecutor([])) as session:
        assert texts(await say(session)) == ["go", "(the script has 0 turns, this is turn 1)"]


async def test_the_descriptor_says_what_was_asked_for(reenter: bool) -> None:
    tools = [ToolDescriptor(name="t", owner="agent")]
    executor = ScriptedExecutor([], name="me", own_tools=tools, reenter=reenter)
    assert executor.descriptor.name == "me"
    assert executor.descriptor.own_tools == tools
    assert executor.descriptor.supports("resume") == reenter
    assert ScriptedExecutor([], capabilities=["abort"]).descriptor.capabilities == ["abort"]


async def test_turns_are_counted_over_restarts() -> None:
    store = MemoryRecordStore()
    async with ScriptedExecutor([[Say("one")], [Say("two")]], store=store) as executor:
        session = await executor.open()
        await say(session)
        await session.aclose()
        session = await executor.load(session.session_id)
        assert texts(await say(session))[-1] == "two"
        assert len(only(session.record, StreamEnd)) == 2


def test_the_entry_point_gives_the_class() -> None:
    assert entry_point() is ScriptedExecutor


COUNT = ToolDescriptor(
    name="count",
    owner="agent",
    parameters_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize("reenter", [False, True])
async def test_arguments_of_the_model_that_do_not_fit_the_schema_run_nothing(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    script: list[list[Step]] = [[Call("count", {"n": "many"}, needs="grant", run=runs.append), Say("sorry")]]
    async with session_of(ScriptedExecutor(script, own_tools=[COUNT], reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream(grant(session.pending[0].request_id)))
        (response,) = only(events, ToolResponse)
        assert (response.status, response.is_error, runs) == ("failed", True, [])
        assert texts(events) == ["sorry"]


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize("reenter", [False, True])
async def test_arguments_that_a_reader_changes_in_the_record_are_not_what_runs(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    script: list[list[Step]] = [[Call("write", {"path": "a"}, needs="grant", run=runs.append)]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        (asked,) = only(await say(session), ToolRequest)
        assert asked.args is not None
        asked.args["path"] = "evil"
        await read(session.stream(grant(asked.request_id)))
        assert runs == [{"path": "a"}]
        asked.args["path"] = "a"  # it is the record's own event, which is checked next


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("reenter", [False, True])
@pytest.mark.parametrize("name", ["max_llm_calls", "max_turns"])
async def test_a_turn_makes_no_more_model_calls_than_it_may(name: str, reenter: bool) -> None:
    script: list[list[Step]] = [[Call("a"), Think("hm"), Say("next"), Call("b"), Say("done")], [Say("fresh")]]
    for allowed, reason in ((1, name), (2, name), (3, "completed")):
        options = OpenOptions(execution=ExecutionOptions(limits=Constraints(**{name: allowed})))
        async with session_of(ScriptedExecutor(script, reenter=reenter), options) as session:
            events = await say(session)
            while session.pending:
                events += await read(session.stream(result(session.pending[0].request_id, 1)))
            assert end_of(events).reason == reason
            assert [event.code for event in only(events, Error)] == [name] * (reason == name)
            assert len(only(events, ToolRequest)) == min(allowed, 2)
            assert texts(await say(session)) == ["go", "fresh"]
