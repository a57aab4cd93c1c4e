"""The points of messages and tool calls, which the base class fires for every executor. On asyncio and trio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import Puppet, check, only, read, say, texts

from agentsession.adapters.base import HookBlocked, RunContext
from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor
from agentsession.protocol import (
    Custom,
    Error,
    Event,
    ExecutionOptions,
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    Message,
    OpenOptions,
    StreamEnd,
    ToolCallHook,
    ToolDecision,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    ToolResultHook,
    UserMessageHook,
    args_digest,
    block,
    deny,
    grant,
    modify,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio


class Desk:
    """Answers at some points, and keeps what it was told at all of them."""

    def __init__(self, **answers: Any) -> None:
        self.seen: list[tuple[str, HookPayload]] = []
        self._answers = answers

    def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        if hook_point.startswith("session_"):
            return None
        self.seen.append((hook_point, payload))
        answer: Any = self._answers.get(hook_point)
        given: Any = answer(payload) if callable(answer) else answer
        return given  # type: ignore[no-any-return]  # a test answers what it likes

    @property
    def points(self) -> tuple[str, ...]:
        return ("on_user_message", "before_tool", "after_tool")

    def of(self, point: str) -> list[Any]:
        return [payload for name, payload in self.seen if name == point]


@pytest.fixture(params=[False, True], ids=["kept_open", "reentered"])
def reenter(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Tool:
    def __init__(self) -> None:
        self.ran: list[Any] = []

    def run(self, args: dict[str, Any]) -> Any:
        self.ran.append(args)
        return {"secret": 1}


class Driven:
    """A session with a desk."""

    def __init__(self, desk: Desk, *steps: Any, reenter: bool = False, **options: Any) -> None:
        self.desk = desk
        self.executor = ScriptedExecutor([[*steps, Say("done")]], reenter=reenter, store=MemoryRecordStore(), **options)
        self.session: Any = None
        self.events: list[Event] = []

    async def go(self, *answers: Any, tools: Sequence[ToolDescriptor] = ()) -> list[Event]:
        with anyio.fail_after(5):
            async with self.executor:
                options = OpenOptions(execution=ExecutionOptions(tools=list(tools)))
                self.session = await self.executor.open(options, hooks=self.desk)
                await say(self.session, "go")
                for answer in answers:
                    await read(self.session.stream(answer))
                self.events = list(self.session.record)
                await self.session.aclose()
                check(self.session)
        return self.events

    def responses(self) -> dict[str, tuple[str, Any]]:
        return {event.name: (event.status, event.data) for event in only(self.events, ToolResponse)}


async def test_each_point_is_fired_once_for_each_call_with_who_asks(reenter: bool) -> None:
    tool, desk = Tool(), Desk()
    calls = Calls(
        Call("alone", {"a": 1}, needs="none", run=tool.run, id="r1"),
        Call("own", {"a": 2}, needs="grant", run=tool.run, id="r2"),
        Call("host", {"a": 3}, id="r3"),
    )
    await Driven(desk, calls, reenter=reenter).go([grant("r2"), result("r3", "text")])
    assert [(p.request_id, p.name, p.args, p.owner, p.agent_id) for p in desk.of("before_tool")] == [
        ("r1", "alone", {"a": 1}, "agent", "scripted"),
        ("r2", "own", {"a": 2}, "agent", "scripted"),
        ("r3", "host", {"a": 3}, "host", "scripted"),
    ]
    told = {p.request_id: (p.name, p.args, p.data, p.is_error) for p in desk.of("after_tool")}
    assert told == {
        "r1": ("alone", {"a": 1}, {"secret": 1}, False),
        "r2": ("own", {"a": 2}, {"secret": 1}, False),
        "r3": ("host", {"a": 3}, "text", False),
    }
    assert len(desk.of("after_tool")) == 3


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("needs", ["none", "grant", "result"])
async def test_a_blocked_call_never_runs_nobody_is_asked_and_it_is_recorded_as_denied(
    needs: str, reenter: bool
) -> None:
    tool, desk = Tool(), Desk(before_tool=block("not on Fridays", by="calendar", reason="freeze"))
    driven = Driven(desk, Call("write", {"a": 1}, needs=needs, run=tool.run), reenter=reenter)
    events = await driven.go()
    assert tool.ran == []
    assert driven.responses() == {"write": ("denied", {"error": "not on Fridays", "denied": True})}
    (decision,) = only(events, ToolDecision)
    assert (decision.decision, decision.by, decision.reason) == ("denied", "hook:calendar", "freeze")
    (end,) = only(events, StreamEnd)
    assert end.reason == "completed"
    (note,) = [event.data for event in only(events, Custom)]
    assert (note["point"], note["action"], note["by"]) == ("before_tool", "block", "calendar")


@pytest.mark.rule("HITL-04")
async def test_changed_arguments_are_what_is_recorded_what_is_approved_and_what_runs(reenter: bool) -> None:
    tool = Tool()
    desk = Desk(before_tool=lambda p: modify(args={"path": "/safe" + p.args["path"]}, by="jail"))
    calls = Calls(
        Call("alone", {"path": "/a"}, needs="none", run=tool.run, id="r1"),
        Call("own", {"path": "/b"}, needs="grant", run=tool.run, id="r2"),
    )
    events = await Driven(desk, calls, reenter=reenter).go(grant("r2"))
    assert [(event.args, event.meta["hook"]) for event in only(events, ToolRequest)] == [
        ({"path": "/safe/a"}, {"by": "hook:jail", "changed": ["args"]}),
        ({"path": "/safe/b"}, {"by": "hook:jail", "changed": ["args"]}),
    ]
    assert tool.ran == [{"path": "/safe/a"}, {"path": "/safe/b"}]
    assert [event.args_digest for event in only(events, ToolDecision)] == [args_digest({"path": "/safe/b"})]


async def test_arguments_that_do_not_fit_the_tool_block_it(reenter: bool) -> None:
    tool, desk = Tool(), Desk(before_tool=modify(args={"path": 3}))
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    own = [ToolDescriptor(name="own", parameters_schema=schema)]
    calls = Calls(Call("own", {"path": "a"}, needs="grant", run=tool.run), Call("host", {"path": "b"}))
    driven = Driven(desk, calls, reenter=reenter, own_tools=own)
    events = await driven.go(tools=[ToolDescriptor(name="host", parameters_schema=schema)])
    assert tool.ran == []
    assert [status for status, _ in driven.responses().values()] == ["denied", "denied"]
    assert [event.code for event in only(events, Error)] == ["hook-failed"] * 2


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize(
    ("answer", "ran"),
    [(None, [{"a": 2}]), (block("no"), []), (modify(args={"a": 3}), [])],
    ids=["lets_pass", "blocks", "changes"],
)
async def test_a_grant_with_other_arguments_is_shown_to_the_hooks_which_can_only_block(
    answer: HookOutcome | None, ran: list[Any], reenter: bool
) -> None:
    tool, desk = Tool(), Desk(before_tool=lambda p: answer if p.granted else None)
    driven = Driven(desk, Call("own", {"a": 1}, needs="grant", run=tool.run, id="r1"), reenter=reenter)
    await driven.go(grant("r1", {"a": 2}))
    assert tool.ran == ran
    assert [(p.args, p.granted) for p in desk.of("before_tool")] == [({"a": 1}, False), ({"a": 2}, True)]
    assert driven.responses()["own"][0] == ("completed" if ran else "denied")


async def test_a_changed_result_is_so_in_the_record_and_for_the_agent(reenter: bool) -> None:
    tool, desk = Tool(), Desk(after_tool=modify(data="[removed]"))
    driven = Driven(
        desk,
        Calls(Call("own", needs="grant", run=tool.run, id="r1"), Call("host", id="r2")),
        Say(lambda memory: f"got {memory.answers['r2'].data}"),  # type: ignore[union-attr]  # it is a result
        reenter=reenter,
    )
    events = await driven.go([grant("r1"), result("r2", "sk-1")])
    assert driven.responses()["own"] == ("completed", "[removed]")
    assert "got [removed]" in texts(events)


async def test_a_result_that_its_host_has_shown_to_the_hooks_is_not_shown_again(reenter: bool) -> None:
    class Host(Desk):
        def has_seen(self, hook_point: str, session_id: str, request_id: str) -> bool:
            return (hook_point, session_id, request_id) == ("after_tool", driven.session.session_id, "r2")

    tool, desk = Tool(), Host(after_tool=modify(data="[removed]"))
    driven = Driven(
        desk,
        Calls(Call("own", needs="grant", run=tool.run, id="r1"), Call("host", id="r2")),
        Say(lambda memory: f"got {memory.answers['r2'].data}"),  # type: ignore[union-attr]  # it is a result
        reenter=reenter,
    )
    events = await driven.go([grant("r1"), result("r2", "as shown")])
    assert [payload.request_id for payload in desk.of("after_tool")] == ["r1"]
    assert driven.responses()["own"] == ("completed", "[removed]")
    assert "got as shown" in texts(events)


async def test_a_blocked_result_is_an_error_with_what_the_hook_says(reenter: bool) -> None:
    tool, desk = Tool(), Desk(after_tool=block("not for you"))
    driven = Driven(desk, Call("own", needs="grant", run=tool.run, id="r1"), reenter=reenter)
    await driven.go(grant("r1"))
    assert driven.responses() == {"own": ("failed", {"error": "not for you"})}


async def test_a_refused_call_is_told_after_the_tool_too(reenter: bool) -> None:
    desk = Desk()
    await Driven(desk, Call("own", needs="grant", id="r1"), reenter=reenter).go(deny("r1", "too risky"))
    (told,) = desk.of("after_tool")
    assert (told.data, told.is_error) == ({"error": "too risky", "denied": True}, True)


# --- messages ---------------------------------------------------------------------------------------------------------


async def echo(ctx: RunContext) -> None:
    assert ctx.input is not None
    await ctx.say(f"heard {plain_text(ctx.input.content)}")


async def run(work: Any, desk: Desk) -> list[Event]:
    with anyio.fail_after(5):
        async with Puppet(work) as executor:
            session = await executor.open(hooks=desk)
            await say(session, "my card is 4111")
            await session.aclose()
            check(session)
            return list(session.record)


async def test_a_changed_message_is_what_the_agent_hears_and_what_was_said_is_in_the_record() -> None:
    desk = Desk(on_user_message=modify(content="my card is [card]"))
    events = await run(echo, desk)
    assert texts(events) == ["my card is 4111", "heard my card is [card]"]
    (told,) = desk.of("on_user_message")
    assert isinstance(told, UserMessageHook)
    assert (plain_text(told.content), told.steer) == ("my card is 4111", False)


@pytest.mark.parametrize("brackets", [False, True])
async def test_a_blocked_message_is_answered_by_the_hook_and_the_turn_is_aborted(brackets: bool) -> None:
    class Other(Puppet):
        brackets_itself = brackets

    with anyio.fail_after(5):
        async with Other(echo) as executor:
            session = await executor.open(hooks=Desk(on_user_message=block("ask something else", by="tone")))
            events = await say(session, "go")
            await session.aclose()
            check(session)
    assert texts(events)[-1] == "ask something else"
    (end,) = only(events, StreamEnd)
    assert (end.reason, end.data) == ("aborted", {"cause": "hook:tone"})


async def test_a_blocked_steer_is_not_heard_and_the_turn_goes_on() -> None:
    said = anyio.Event()

    async def work(ctx: RunContext) -> None:
        await said.wait()
        await ctx.say(f"heard {[plain_text(steer.content) for steer in await ctx.steers()]}")

    desk = Desk(
        on_user_message=lambda p: (
            None if not p.steer else block() if plain_text(p.content) == "bad" else modify(content="better")
        )
    )
    with anyio.fail_after(5):
        async with Puppet(work) as executor:
            session = await executor.open(hooks=desk)
            stream = session.stream("go")
            await session.steer("bad")
            await session.steer("good")
            said.set()
            events = await read(stream)
            await session.aclose()
    assert texts(events)[-1] == "heard ['better']"
    assert [plain_text(event.content) for event in only(events, Message) if event.role == "user"] == [
        "go",
        "bad",
        "good",
    ]


# --- executors of others ----------------------------------------------------------------------------------------------


async def test_an_executor_that_knows_nothing_of_hooks_cannot_run_what_they_block() -> None:
    ran: list[str] = []

    async def work(ctx: RunContext) -> None:
        request = ToolRequest(request_id="r1", name="write", args={}, needs="none", owner="agent")
        await ctx.emit(request)
        ran.append("write")

    events = await run(work, Desk(before_tool=block("no")))
    assert ran == []
    (end,) = only(events, StreamEnd)
    assert end.reason == "failed"


async def test_a_blocked_call_tells_its_executor_of_the_denial() -> None:
    async def work(ctx: RunContext) -> None:
        try:
            await ctx.emit(ToolRequest(request_id="r1", name="write", args={}, needs="none", owner="agent"))
        except HookBlocked as blocked:
            await ctx.say(f"denied: {blocked.denial.reason}")

    events = await run(work, Desk(before_tool=block("no")))
    assert texts(events)[-1] == "denied: no"


async def test_partial_requests_are_shown_to_no_hook() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(ToolRequest(request_id="r1", name="write", partial=True, needs="none", owner="agent"))
        await ctx.emit(ToolRequest(request_id="r1", name="write", args={}, needs="none", owner="agent"))
        await ctx.emit(ToolResponse(request_id="r1", name="write", data=1))

    desk = Desk()
    await run(work, desk)
    assert [point for point, _ in desk.seen] == ["on_user_message", "before_tool", "after_tool"]


async def test_an_abort_cancels_a_hook_that_hangs() -> None:
    asked = anyio.Event()

    class Hangs:
        points = ("before_tool",)

        async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
            assert isinstance(payload, (ToolCallHook, ToolResultHook))
            asked.set()
            await anyio.sleep_forever()
            return None

    with anyio.fail_after(5):
        async with ScriptedExecutor([[Call("write")]]) as executor:
            session = await executor.open(hooks=Hangs())
            stream = session.stream("go")
            await asked.wait()
            await session.abort()
            events = await read(stream)
    assert events[-1].type == "stream_end"
    assert not only(events, ToolRequest)
