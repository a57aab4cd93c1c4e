"""A process died between two writes: what only one half of the session has, the other is given, once.

The dead process is made from a live session: some of the first events of its record, some of the first of ADK's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, texts, verify
from tests.adapters.adk.hooking import Desk

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.adapters.adk._history import STAMP  # the place in the record, which tells what could be stored when
from agentsession.protocol import (
    AgentStart,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    LifecycleInterceptor,
    MemoryRecordStore,
    Message,
    OpenOptions,
    RecordKey,
    SessionMachine,
    StreamEnd,
    Text,
    ToolRequest,
    ToolResponse,
    accept,
    block,
    decline,
    grant,
    modify,
    result,
)

pytestmark = pytest.mark.anyio

OPTIONS = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))
KEY = RecordKey("root", "local", "s1")


def write(text: str, tool_context: ToolContext) -> str:
    """Write."""
    tool_context.state["written"] = text
    return f"wrote {text}"


def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


TOOLS: list[Any] = [write, FunctionTool(delete, require_confirmation=True)]
STEP = say("I look.") + calls(
    call("look", id="c1"), call("write", {"text": "x"}, id="c2"), call("delete", {"path": "y"}, id="c3")
).using(input=7, output=3)


def yes(desk: Driven) -> list[Any]:
    return [
        accept(item.request_id)
        if isinstance(item, ElicitationRequest)
        else grant(item.request_id)
        if item.needs == "grant"
        else result(item.request_id, "seen")
        for item in desk.session.pending
    ]


async def lived() -> tuple[list[Event], list[AdkEvent]]:
    """The record of a turn with three calls, and what ADK stored of it."""
    service = InMemorySessionService()
    async with AdkExecutor(agent(STEP, say("done"), tools=TOOLS), session_service=service) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        assert (await desk.stream(yes(desk))).texts == ["done"]
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        return list(desk.session.record), list(found.events)


class Dead:
    """What a dead process has left."""

    def __init__(self) -> None:
        self.store = MemoryRecordStore()
        self.service = InMemorySessionService()

    @classmethod
    async def of(cls, record: Sequence[Event], adk: Sequence[AdkEvent]) -> Dead:
        self = cls()
        await self.store.create(KEY)
        await self.store.append(KEY, record, reserved_seq=record[-1].seq + 100)
        session = await self.service.create_session(app_name="root", user_id="local", session_id="s1")
        for event in adk:
            await self.service.append_event(session, event.model_copy(deep=True))
        return self

    def executor(self, *script: Any, **fields: Any) -> tuple[AdkExecutor, Any]:
        root = agent(*script, tools=TOOLS, **fields)
        return AdkExecutor(root, session_service=self.service, store=self.store), root.model

    async def turn(
        self, message: str, *script: Any, hooks: LifecycleInterceptor | None = None
    ) -> list[tuple[str, str]]:
        """What the model is shown in a turn of a new process."""
        executor, model = self.executor(*(script or [say("ok")]))
        async with executor:
            desk = Driven(executor, await executor.load("s1", OPTIONS, hooks=hooks))
            await desk.stream(message)
            verify(desk.session)
            assert_valid_history(model)
        return history(model)

    async def record(self) -> list[Event]:
        return await self.store.read(KEY)


def before(record: Sequence[Event], kind: type[Event], **fields: Any) -> list[Event]:
    """The record up to the first event of a kind with these fields, without it."""
    for number, event in enumerate(record):
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
            return list(record[:number])
    raise AssertionError((kind, fields))


def people(shown: Sequence[tuple[str, str]]) -> list[str]:
    return [text for kind, text in shown if kind == "user"]


# -- anywhere ---------------------------------------------------------------------------------------------------------


def possible(record: Sequence[Event], adk: Sequence[AdkEvent]) -> list[tuple[int, int]]:
    """How many events of the two a dead process can have left, where the record ends in the middle of a stream.

    ADK's session has at least what the record tells of it. It has at most what it got in that stream, and nothing of a
    stream that goes on with answers before they are stored.
    """
    places: list[int] = [(event.custom_metadata or {})[STAMP][0] for event in adk]
    told = [((event.meta or {}).get("adk") or {}).get("eventId") for event in record]
    ids = [event.id for event in adk]
    found = []
    for length in range(2, len(record)):
        if SessionMachine.fold(record[:length]).state != "running":
            continue
        rest = [event for event in record[length:] if event.stream_id == record[length - 1].stream_id]
        stream_end = rest[-1].seq
        answering = any(isinstance(event, AgentStart) and event.resumed for event in rest)
        least = max((ids.index(event_id) + 1 for event_id in told[:length] if event_id in ids), default=0)
        most = sum(place <= stream_end for place in places)
        found += [(length, number) for number in range(least, (least if answering else most) + 1)]
    return found


@pytest.mark.rule("PER-01", "PER-02", "PER-04", "TOOL-01")
async def test_wherever_a_process_died_in_a_stream_both_halves_tell_one_story_afterwards() -> None:
    record, adk = await lived()
    tried = possible(record, adk)
    assert len(tried) > 20
    for length, number in tried:
        dead = await Dead.of(record[:length], adk[:number])
        shown = await dead.turn("go on")
        after = await dead.record()
        assert people(shown) == ["go", "go on"], (length, number)
        assert [text for kind, text in shown if kind == "model"] == texts(after)[:-1], (length, number)
        known = {event.request_id for event in after if isinstance(event, ToolRequest)}
        results = {kind.removeprefix("result "): text for kind, text in shown if kind.startswith("result")}
        assert known <= set(results), (length, number)
        for event in after:
            if isinstance(event, ToolResponse):
                assert (event.status == "completed") == ("error" not in results[event.request_id]), (length, number)
        for call_id in set(results) - known:
            assert "before it began" in results[call_id], (length, number)


# -- what ADK has and the record has not ------------------------------------------------------------------------------


@pytest.mark.rule("PER-04", "TOOL-01")
async def test_a_result_that_only_adk_has_is_known_after_the_kill_and_not_unknown() -> None:
    record, adk = await lived()
    dead = await Dead.of(before(record, ToolResponse, name="write"), adk[:3])
    await dead.turn("go on")
    after = await dead.record()
    made = {event.name: (event.status, event.data) for event in after if isinstance(event, ToolResponse)}
    assert made["write"] == ("completed", "wrote x")
    assert made["delete"] == ("completed", "deleted y")
    assert [(end.reason, end.data) for end in after if isinstance(end, StreamEnd)][1] == ("failed", {"cause": "lost"})


@pytest.mark.rule("PER-04")
@pytest.mark.parametrize("kind", ["message", "usage", "session_update"])
async def test_what_agents_said_used_and_changed_is_in_the_record_once_after_the_kill(kind: str) -> None:
    record, adk = await lived()
    cut = next(number for number, event in enumerate(record) if event.type == kind and event.source == "agent")
    dead = await Dead.of(record[:cut], adk)
    await dead.turn("go on")

    def told(events: Sequence[Event]) -> list[Any]:
        marks = [((event.meta or {}).get("adk") or {}).get("eventId") for event in events if event.type == kind]
        return [mark for mark in marks if mark == first]

    first = ((record[cut].meta or {})["adk"])["eventId"]
    assert len(told(await dead.record())) == 1


@pytest.mark.rule("PER-04", "TOOL-05")
async def test_calls_that_only_adk_has_are_shown_to_nobody_and_the_model_reads_that_none_began() -> None:
    record, adk = await lived()
    dead = await Dead.of(before(record, ToolRequest, name="look"), adk[:2])
    shown = await dead.turn("go on")
    assert not [event for event in await dead.record() if isinstance(event, ToolRequest)]
    results = [text for kind, text in shown if kind.startswith("result")]
    assert len(results) == 3
    assert all("before it began" in text for text in results)


@pytest.mark.rule("PER-04", "TOOL-01")
async def test_a_call_that_asked_nobody_has_its_result_where_the_stream_that_made_it_was_cut() -> None:
    service = InMemorySessionService()
    root = agent(call("write", {"text": "x"}, id="c1"), say("done"), tools=TOOLS)
    async with AdkExecutor(root, session_service=service) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
        await desk.stream("go", ExecutionOptions(host_tool_execution=False))
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        dead = await Dead.of(before(desk.session.record, ToolResponse), found.events)
    shown = await dead.turn("go on")
    after = await dead.record()
    assert [event.request_id for event in after if isinstance(event, ToolRequest)] == ["c1"]
    assert [(event.status, event.data) for event in after if isinstance(event, ToolResponse)] == [
        ("completed", "wrote x")
    ]
    assert ("result c1", '{"result": "wrote x"}') in shown


@pytest.mark.rule("PER-04", "HITL-02")
async def test_a_declined_call_is_denied_also_where_only_adk_has_its_end() -> None:
    service = InMemorySessionService()
    root = agent(call("delete", {"path": "y"}, id="c1"), say("done"), tools=TOOLS)
    async with AdkExecutor(root, session_service=service) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        await desk.stream(decline(desk.pending("tool_confirmation")))
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        dead = await Dead.of(before(desk.session.record, ToolResponse), found.events)
    await dead.turn("go on")
    assert [event.status for event in await dead.record() if isinstance(event, ToolResponse)] == ["denied"]


# -- what the record has and ADK has not ------------------------------------------------------------------------------


@pytest.mark.rule("PER-01", "PER-02")
async def test_what_was_said_in_turns_that_died_before_adk_heard_it_is_heard_once_and_in_order() -> None:
    record, _ = await lived()
    dead = await Dead.of(record[:2], [])
    executor, model = dead.executor(say("never"))
    async with executor:  # a second one, that dies as early: what it says is in the record alone
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        await desk.session.aclose()
    left = await dead.record()
    said = record[1].model_copy(update={"id": "e900", "seq": 900, "stream_id": "s900", "turn_id": "t900"})
    second = said.model_copy(update={"message_id": "m900", "content": [Text(text="hello?")]})
    dead = await Dead.of([*left, second], [])
    assert people(await dead.turn("go on")) == ["go", "hello?", "go on"]
    assert people(await dead.turn("and now?")) == ["go", "hello?", "go on", "and now?"]
    assert not model.requests


@pytest.mark.rule("CTL-05")
async def test_what_was_said_in_a_turn_that_was_aborted_at_once_is_heard_with_the_next() -> None:
    root = agent(say("ok"), say("ok"))
    async with driven(root) as desk:
        desk.session.stream("go")
        await desk.session.abort()
        await desk.stream("again")
        assert people(history(root.model)) == ["go", "again"]
        await desk.stream("and again")
        assert people(history(root.model)) == ["go", "again", "and again"]


async def test_what_was_said_in_a_turn_that_could_not_begin_is_heard_with_the_next() -> None:
    root = agent(say("ok"), tools=[write])
    async with driven(root) as desk:
        clash = ExecutionOptions(tools=[host_tool("write")])
        assert (await desk.stream("go", clash)).reason == "failed"
        await desk.stream("again")
        assert people(history(root.model)) == ["go", "again"]


@pytest.mark.rule("CTL-06")
async def test_a_steer_that_was_injected_and_that_adk_did_not_get_is_heard_with_the_next_turn() -> None:
    service = InMemorySessionService()
    root = agent(call("look", id="c1"), say("done"))
    async with AdkExecutor(root, session_service=service) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        await desk.session.steer("mind the gap")
        await desk.stream(result(desk.pending("look"), "seen"))
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        assert people(history(root.model)) == ["go", "mind the gap"]
        record = list(desk.session.record)
    steered = next(number for number, event in enumerate(record) if event.source == "user" and number > 1)
    unsteered = [event for event in found.events if "mind" not in str(event.content)][:3]
    dead = await Dead.of(record[: steered + 1], unsteered)
    assert people(await dead.turn("go on")) == ["go", "mind the gap", "go on"]
    heard = await Dead.of(record[: steered + 1], found.events[:4])
    assert people(await heard.turn("go on")) == ["go", "mind the gap", "go on"]


@pytest.mark.rule("PER-06")
async def test_what_was_taken_back_is_not_heard_later() -> None:
    record, _ = await lived()
    dead = await Dead.of(record[:2], [])
    executor, model = dead.executor(say("ok"))
    async with executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        await executor.rewind("s1", 1)
        await desk.stream("something else")
        assert people(history(model)) == ["something else"]


@pytest.mark.rule("PER-05")
async def test_a_fork_hears_what_its_source_had_not_heard() -> None:
    record, _ = await lived()
    dead = await Dead.of(record[:2], [])
    executor, model = dead.executor(say("ok"), say("ok"))
    async with executor:
        await (await executor.load("s1", OPTIONS)).aclose()
        at = (await dead.record())[-1].seq
        fork = Driven(executor, await executor.fork("s1", at, OpenOptions(session_id="s2")))
        await fork.stream("in the fork")
        assert people(history(model)) == ["go", "in the fork"]


# -- hooks of the host's ----------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-02")
async def test_a_hook_is_asked_about_what_is_heard_late_and_may_change_it_or_keep_it_back() -> None:
    record, _ = await lived()
    dead = await Dead.of(record[:2], [])

    def change(payload: Any) -> Any:
        return modify(content=[Text(text=payload.content[0].text.upper())])

    assert people(await dead.turn("go on", hooks=Desk(on_user_message=change))) == ["GO", "GO ON"]
    dead = await Dead.of(record[:2], [])

    def keep(payload: Any) -> Any:
        return block("no") if payload.content[0].text == "go" else None

    assert people(await dead.turn("go on", hooks=Desk(on_user_message=keep))) == ["go on"]
    assert people(await dead.turn("and now?")) == ["go on", "and now?"]


async def test_what_a_hook_has_kept_from_the_agent_is_not_heard_later() -> None:
    root = agent(say("ok"))
    hooks = Desk(on_user_message=lambda payload: block("no") if payload.content[0].text == "secret" else None)
    service, store = InMemorySessionService(), MemoryRecordStore()
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OPTIONS, hooks=hooks))
        assert (await desk.stream("secret")).reason == "aborted"
        await desk.stream("hello")
        assert people(history(root.model)) == ["hello"]
    root = agent(say("ok"))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        await desk.stream("again")
        assert people(history(root.model)) == ["hello", "again"]


@pytest.mark.rule("CTL-05")
async def test_an_abort_over_a_hook_that_hangs_at_what_is_heard_late_lets_the_next_turn_work() -> None:
    record, _ = await lived()
    dead = await Dead.of(record[:2], [])
    asked = anyio.Event()

    async def hang(payload: Any) -> None:
        if payload.content[0].text == "go":
            asked.set()
            await anyio.sleep_forever()

    executor, model = dead.executor(say("ok"))
    async with executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS, hooks=Desk(on_user_message=hang)))
        with anyio.fail_after(10):
            desk.session.stream("go on")
            await asked.wait()
            assert (await desk.session.abort()).status == "aborted"
        await desk.stream("again")
        assert people(history(model)) == ["go on", "again"]
        verify(desk.session)
        said = [event for event in desk.session.record if isinstance(event, Message) and event.source == "user"]
        assert len(said) == 3
