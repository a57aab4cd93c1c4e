"""A stored session's report: its sub-agents have records of their own, and lanes on its page."""

from __future__ import annotations

from typing import cast

import pytest
from tests.host.report.records import Writer
from tests.host.subagents import agent, calls, read_file

from agentsession.adapters.scripted import Call, Count, Say, ScriptedExecutor
from agentsession.host import Host, Rule, RulePolicy, SubagentTool, allow_all, child_events
from agentsession.host.report import Timeline, html, stored, timeline
from agentsession.protocol import (
    Event,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionNotFound,
    ToolRequest,
    ToolResponse,
)

pytestmark = pytest.mark.anyio

ROOT = RecordKey("coder", "local", "s-root")
OPTIONS = OpenOptions(session_id="s-root", user_id="local")


def sub_agents() -> list[SubagentTool]:
    """``fixer`` calls ``checker``; both read a file."""
    checker = agent("checker", Count(input_tokens=3), Call("read_file", {"path": "b"}), Say("Checked."))
    fixer = agent("fixer", Count(input_tokens=5), Call("read_file", {"path": "a"}), calls("checker"), Say("Mended."))
    return [
        SubagentTool(lambda: fixer, name="mend", tools=["read_file", "checker"]),
        SubagentTool(lambda: checker, tools=["read_file"]),
    ]


def coder(*steps: Call | Say) -> ScriptedExecutor:
    return agent("coder", *steps or (calls("mend"), Say("Done.")))


def shape(told: Timeline) -> list[tuple[str, int, str | None, str | None, str, str]]:
    """All that happened, without times; in the order of each thread, for threads are at work at once."""
    items = [
        (item.kind, item.turn, item.thread_id, item.agent, item.status, item.text)
        for item in told.items
        if item.kind != "note"
    ]
    return sorted(items, key=lambda item: item[2] or "")


async def test_what_sub_agents_did_is_read_with_the_session_as_an_observer_was_told_it() -> None:
    store, seen = MemoryRecordStore(), list[Event]()
    host = Host(tools=[read_file, *sub_agents()], policy=allow_all, observer=seen.append)
    async with coder() as executor:
        await host.run(executor, "go", OPTIONS, store=store)
    live, told = timeline(seen), timeline(await stored(store, ROOT))
    assert told.agents == live.agents
    assert [names for thread, names in told.agents.items() if thread] == [("fixer",), ("checker",)]
    assert shape(told) == shape(live)
    assert (told.input_tokens, told.count("call"), len(told.turns)) == (8, 4, 1)
    assert sorted(span.label for span in told.spans if span.carries) == ["checker", "mend"]
    assert "call that a sub-agent works for" in html(told)


class OneByOne:
    """A store that lists nothing: a record is read by its key."""

    def __init__(self, store: MemoryRecordStore) -> None:
        self.read = store.read


@pytest.mark.parametrize(("name", "lists"), [("mend", True), ("fixer", False)])
async def test_a_sub_agent_that_waits_for_a_person_is_shown_before_its_call_has_a_response(
    name: str, lists: bool
) -> None:
    store = MemoryRecordStore()
    rules = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", name)])
    async with agent("fixer", Call("read_file", {"path": "a"})) as fixer, coder(calls(name)) as executor:
        tools = [read_file, SubagentTool(fixer, name=name, tools=["read_file"])]
        host = Host(tools=tools, policy=rules, on_ask="pause")
        async with host.session(executor, OPTIONS, store=store) as session:
            await host.run_turn(session, "go")
            told = timeline(await stored(store if lists else cast(RecordStore, OneByOne(store)), ROOT))
    calls_told = [(item.agent, item.status) for item in told.items if item.kind == "call"]
    assert calls_told == [("coder", "waiting"), ("fixer", "waiting")]
    assert [(span.kind, span.label, span.carries) for span in told.spans if span.kind != "model"] == [
        ("tool", name, True),  # it is at work; the person is waited for by what its agent asked for
        ("wait", "read_file", False),
    ]
    page = html(told)
    assert page.count("bar tool carries") == 1
    assert "bar tool unknown" not in page


async def test_the_chart_explains_each_look_that_a_bar_has() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r1", "fixer")
    w.after(1).respond("r1", "fixer", display={"subagent": {"agent": "fixer", "sessionId": "s"}})
    assert "effects or end not known ?" not in html(timeline(w.events))
    w.ask_tool("r2", "look", needs="none")
    w.after(1).say("hm")
    page = html(timeline(w.events))
    assert "effects or end not known ?" in page
    assert "call that a sub-agent works for" in page


async def test_a_sub_agent_whose_record_is_gone_leaves_its_call() -> None:
    store = MemoryRecordStore()
    host = Host(tools=[read_file, *sub_agents()], policy=allow_all)
    async with coder() as executor:
        await host.run(executor, "go", OPTIONS, store=store)
    for name in ("fixer", "checker"):
        for info in await store.list(name, "local"):
            await store.delete(info.key)
    events = await stored(store, ROOT)
    assert events == await store.read(ROOT)
    with pytest.raises(SessionNotFound):
        await stored(store, RecordKey("coder", "local", "s-other"))


async def keep(store: MemoryRecordStore, agent_name: str, record: list[Event]) -> None:
    key = RecordKey(agent_name, "local", record[0].session_id)
    await store.create(key)
    await store.append(key, record, reserved_seq=record[-1].seq)


async def test_records_that_name_one_another_are_each_read_once() -> None:
    store = MemoryRecordStore()
    for name, other in (("coder", "fixer"), ("fixer", "coder")):
        w = Writer(f"s-{name}", name)
        w.begin("go")
        w.after(1).ask_tool("r", "work")
        for request in ("r", "r"):
            display = {"subagent": {"agent": other, "sessionId": f"s-{other}"}}
            w.add(ToolResponse, request_id=request, name="work", display=display)
        w.end()
        await keep(store, name, w.events)
    events = await stored(store, RecordKey("coder", "local", "s-coder"))
    assert sum(isinstance(one, ToolRequest) for event in events for one in child_events(event)) == 1


async def test_what_a_sub_agent_did_stays_in_the_turn_of_its_call_whatever_its_clock_says() -> None:
    store = MemoryRecordStore()
    w, late = Writer("s-coder", "coder"), Writer("s-fixer", "fixer")
    w.begin("one")
    w.after(1).ask_tool("r", "work")
    w.after(1).respond("r", "work", display={"subagent": {"agent": "fixer", "sessionId": "s-fixer"}})
    w.end()
    w.after(1).begin("two")
    w.after(1).end()
    late.begin("sub")
    late.after(60).end()
    await keep(store, "coder", w.events)
    await keep(store, "fixer", late.events)
    events = await stored(store, RecordKey("coder", "local", "s-coder"))
    assert [turn.task for turn in timeline(events).turns] == ["one", "two"]
    ended = next(at for at, event in enumerate(events) if isinstance(event, ToolResponse))
    assert [bool(child_events(event)) for event in events[:ended]].count(True) == 2
    assert not any(child_events(event) for event in events[ended:])
