"""Sub-agents and people: what a sub-agent asks reaches the person of the root, and its time is nobody's tool time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio
import trio.testing
from tests.host.subagents import agent, calls, read_file, responses, run, seen_of_children

from agentsession.adapters.scripted import Ask, Call, Calls, Count, Say, ScriptedExecutor
from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    PolicyRequest,
    Position,
    Rule,
    RulePolicy,
    ScriptedChannel,
    SubagentTool,
    allow_all,
    hook,
    tool,
)
from agentsession.protocol import (
    ElicitationResponse,
    Event,
    ExecutionOptions,
    HookOutcome,
    HostCapabilities,
    MemoryRecordStore,
    Message,
    OpenOptions,
    SessionConfig,
    ToolRequest,
    ToolResponse,
    block,
    proceed,
)
from agentsession.protocol import result as answered

pytestmark = pytest.mark.anyio

_ASKS = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])


async def test_a_call_of_a_sub_agent_asks_the_person_under_its_thread_and_path() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel({"read_file": True})
    async with (
        agent("helper", Call("read_file", {"path": "a"}, id="r1"), Say("read")) as helper,
        agent("fixer", calls("helper"), Say("ok")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [
            read_file,
            SubagentTool(fixer, tools=["helper", "read_file"]),
            SubagentTool(helper, tools=["read_file"]),
        ]
        await run(Host(tools=tools, policy=_ASKS, channel=channel, observer=seen.append), coder)
    ((request, position),) = channel.asked
    (shown,) = [
        event for event in seen_of_children(seen) if isinstance(event, ToolRequest) and event.name == "read_file"
    ]
    assert isinstance(request, ToolRequest)
    assert (request.request_id, request.thread_id, request.agent_id) == (
        shown.request_id,
        shown.thread_id,
        "helper",
    )
    assert position.principals == ("coder", "fixer", "helper")


async def test_a_question_of_a_sub_agent_is_answered_to_it() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel(answers={"clarification": ("accept", {"region": "eu"})})
    form = {"type": "object", "properties": {"region": {"enum": ["eu", "us"]}}, "required": ["region"]}
    async with agent("fixer", Ask("Where?", schema=form), Say("ok")) as fixer, agent("coder", calls("fixer")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, channel=channel, observer=seen.append), coder)
    (answer,) = [event for event in seen_of_children(seen) if isinstance(event, ElicitationResponse)]
    assert (answer.action, answer.content) == ("accept", {"region": "eu"})
    assert responses(seen)["r1"].data == "ok"


async def test_a_question_that_the_host_cannot_show_is_not_put_by_a_sub_agent_either() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel(answers={"clarification": "accept"})
    async with agent("fixer", Ask("Where?"), Say("ok")) as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, channel=channel, observer=seen.append)
        async with host.session(coder, OpenOptions(host=HostCapabilities(elicitation_kinds=[]))) as session:
            await host.run_turn(session, "go")
    assert channel.asked == []
    assert [event.action for event in seen_of_children(seen) if isinstance(event, ElicitationResponse)] == ["cancel"]


async def test_a_denied_call_leaves_the_sub_agent_to_think_again() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel([Approval.no("not that one"), True])
    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="x"), Call("read_file", {"path": "b"}, id="y")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=_ASKS, channel=channel, observer=seen.append), coder)
    assert result.completed
    answers = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert [event.status for event in answers] == ["denied", "completed"]


async def test_two_sub_agents_at_once_ask_one_after_the_other() -> None:
    """One person has one queue: the second is asked when the first was answered, and is told that it is the second."""
    both, asked, most = anyio.Event(), [], 0
    open_now = 0

    async def approve(request: ToolRequest, decision: Any, position: Position) -> bool:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        asked.append((request.agent_id, position.index))
        if len(asked) == 2:
            both.set()
        await anyio.lowlevel.checkpoint()
        open_now -= 1
        return True

    async with (
        agent("left", Call("read_file", {"path": "l"}), Say("l")) as left,
        agent("right", Call("read_file", {"path": "r"}), Say("r")) as right,
        agent("coder", Calls(calls("left", "r1"), calls("right", "r2"))) as coder,
    ):
        tools = [read_file, *(SubagentTool(item, tools=["read_file"]) for item in (left, right))]
        result = await run(Host(tools=tools, policy=_ASKS, channel=CallbackChannel(approve)), coder)
    assert result.completed
    assert most == 1
    assert sorted(name or "" for name, _ in asked) == ["left", "right"]
    assert [place for _, place in asked] == [1, 2]


async def test_a_channel_that_takes_several_questions_gets_those_of_two_sub_agents_at_once() -> None:
    both, asked = anyio.Event(), 0

    async def approve(request: ToolRequest, decision: Any, position: Position) -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return True

    async with (
        agent("left", Call("read_file", {"path": "l"}), Say("l")) as left,
        agent("right", Call("read_file", {"path": "r"}), Say("r")) as right,
        agent("coder", Calls(calls("left", "r1"), calls("right", "r2"))) as coder,
    ):
        tools = [read_file, *(SubagentTool(item, tools=["read_file"]) for item in (left, right))]
        channel = CallbackChannel(approve, concurrent=True)
        assert (await run(Host(tools=tools, policy=_ASKS, channel=channel), coder)).completed


async def test_a_persons_cancel_ends_the_sub_agents_turn_and_not_its_callers() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel({"read_file": Approval.cancel("enough")})
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("never")) as fixer,
        agent("coder", calls("fixer"), Say("I'll do it.")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=_ASKS, channel=channel, observer=seen.append), coder)
    assert (result.completed, result.text) == (True, "I'll do it.")
    assert responses(seen)["r1"].data["error"]["code"] == "cancelled"


@pytest.mark.rule("HITL-11")
def test_an_hour_of_waiting_for_a_person_is_no_time_of_the_sub_agent_tool() -> None:
    async def approve(request: ToolRequest, decision: Any, position: Position) -> bool:
        await anyio.sleep(3600)
        return True

    @tool
    async def read_file(path: str) -> str:  # a thread would be no reason for the clock to stand still
        return path

    async def main() -> tuple[bool, float, float]:
        async with (
            agent("helper", Call("read_file", {"path": "a"}, id="r1"), Say("read")) as helper,
            agent("fixer", calls("helper"), Say("ok")) as fixer,
            agent("coder", calls("fixer")) as coder,
        ):
            tools = [read_file, SubagentTool(fixer, tools=["helper", "read_file"])]
            tools.append(SubagentTool(helper, tools=["read_file"]))
            host = Host(tools=tools, policy=_ASKS, channel=CallbackChannel(approve), tool_timeout_s=1)
            async with host.session(coder) as session:
                result = await host.run_turn(session, "go")
        return result.completed, result.people_s, result.tools_s

    completed, people_s, tools_s = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert completed
    assert people_s == pytest.approx(3600)
    assert tools_s < 1


# --- left waiting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reenter", "entered"),
    [(False, True), (True, True), (True, False)],
    ids=["kept_open", "reentered", "made_for_each_call"],
)
async def test_what_a_sub_agent_asks_may_wait_for_the_next_turn(reenter: bool, entered: bool) -> None:
    seen: list[Event] = []
    channel = ScriptedChannel([Approval.pause(), Approval.pause(), True])

    def fixer() -> ScriptedExecutor:
        return agent("fixer", Call("read_file", {"path": "a"}), Say("Mended."), reenter=reenter)

    async with fixer() as made, agent("coder", calls("fixer"), Say("Done.")) as coder:
        made_tool = SubagentTool(made if entered else fixer, tools=["read_file"])
        host = Host(tools=[read_file, made_tool], policy=_ASKS, channel=channel, observer=seen.append)
        async with host.session(coder, store=MemoryRecordStore()) as session:
            with anyio.fail_after(5):
                first = await host.run_turn(session, "go")
                again = await host.run_turn(session)
                last = await host.run_turn(session)
    assert (first.end.reason, again.end.reason) == ("input_required", "input_required")
    assert first.unanswered == ("r1",)
    assert (last.end.reason, last.text) == ("completed", "Done.")
    assert responses(seen)["r1"].data == "Mended."
    tasks = [event for event in seen_of_children(seen) if isinstance(event, Message) and event.role == "user"]
    assert len(tasks) == 1


async def test_a_sub_agent_that_goes_on_after_a_pause_belongs_to_the_turn_that_goes_on() -> None:
    """What it uses then is in that turn's result, and the time of its person too."""
    channel = ScriptedChannel([Approval.pause(), True])
    async with (
        agent("fixer", Count(cost=1.0), Call("read_file", {"path": "a"}), Count(cost=2.0), Say("Mended.")) as fixer,
        agent("coder", calls("fixer"), Say("Done.")) as coder,
    ):
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=_ASKS, channel=channel)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                first = await host.run_turn(session, "go")
                last = await host.run_turn(session)
    assert (first.usage.cost, last.usage.cost) == (1.0, 2.0)


async def test_what_waited_beside_a_result_does_not_run_after_a_pause() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel([Approval.pause(), True])
    both = Calls(Call("complete_task", {"result": "fine"}), Call("read_file", {"path": "a"}, id="late"))
    async with agent("fixer", both, Say("Bye.")) as fixer, agent("coder", calls("fixer"), Say("Done.")) as coder:
        child = SubagentTool(fixer, tools=["read_file"], complete_task=True)
        host = Host(tools=[read_file, child], policy=_ASKS, channel=channel, observer=seen.append)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                await host.run_turn(session)
    (late,) = [item for item in seen_of_children(seen) if isinstance(item, ToolResponse) and item.name == "read_file"]
    assert late.status == "denied"
    assert responses(seen)["r1"].data == "fine"


async def test_what_waits_in_a_sub_agent_can_be_answered_by_the_program() -> None:
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer,
        agent("coder", calls("fixer"), Say("Done.")) as coder,
    ):
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=_ASKS, on_ask="pause")
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                (child,) = host.children(session)
                (waiting,) = child.session.pending
                await child.session.respond(answered(waiting.request_id, "by hand"))
                last = await host.run_turn(session)
            assert host.children(session) == []
    assert last.text == "Done."


async def test_a_waiting_sub_agent_whose_session_the_program_closed_is_loaded() -> None:
    channel = ScriptedChannel([Approval.pause(), True])
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended."), reenter=True) as fixer,
        agent("coder", calls("fixer"), Say("Done."), reenter=True) as coder,
    ):
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=_ASKS, channel=channel)
        async with host.session(coder, store=MemoryRecordStore()) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                (child,) = host.children(session)
                await host.close(child.session)
                last = await host.run_turn(session)
    assert last.text == "Done."
    assert len(channel.asked) == 2


async def test_what_waits_in_a_sub_agent_goes_on_where_its_callers_session_was_closed_by_hand_and_loaded() -> None:
    channel = ScriptedChannel([Approval.pause(), True])
    store = MemoryRecordStore()
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended."), reenter=True) as fixer,
        agent("coder", calls("fixer"), Say("Done."), reenter=True) as coder,
    ):
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=_ASKS, channel=channel)
        with anyio.fail_after(5):
            session = await host.open(coder, OpenOptions(session_id="s"), store=store)
            await host.run_turn(session, "go")
            await session.aclose()
            async with host.session(coder, load="s", store=store) as again:
                last = await host.run_turn(again)
    assert (last.end.reason, last.text) == ("completed", "Done.")


async def test_a_call_is_not_lost_for_another_sub_agent_that_fails_to_close() -> None:
    """One waits for a session that was closed by hand; the next call of any looks for such, and is not to blame."""

    async def broken() -> None:
        raise OSError("no disk")

    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer,
        agent("coder", calls("fixer"), Say("Done.")) as coder,
        agent("helper", Say("Helped.")) as helper,
        agent("other", calls("helper"), Say("Done too.")) as other,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"]), SubagentTool(helper)]
        seen: list[Event] = []
        host = Host(tools=tools, policy=_ASKS, on_ask="pause", observer=seen.append)
        with anyio.fail_after(5):
            session = await host.open(coder)
            await host.run_turn(session, "go")
            (child,) = host.children(session)
            await session.aclose()
            close, child.session.aclose = child.session.aclose, broken  # type: ignore[method-assign]
            await run(host, other)
            await close()
    assert responses(seen)["r1"].data == "Helped."


async def test_what_waits_in_a_sub_agent_ends_with_the_call_that_it_works_for() -> None:
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer,
        agent("coder", calls("fixer"), Say("Done."), turns=[[Say("Else.")]]) as coder,
    ):
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=_ASKS, on_ask="pause")
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                (child,) = host.children(session)
                last = await host.run_turn(session, "something else")
            assert host.children(session) == []
            assert child.session.state == "closed"
    assert last.text == "Else."


# --- remembered answers, and modes that change -------------------------------------------------------------------


async def test_a_yes_for_the_session_settles_what_waits_in_its_sub_agents() -> None:
    """The root's person says yes for the session: the sub-agent's question is void, and its later call asks nobody."""
    waiting: list[tuple[str, ...]] = []
    both = anyio.Event()
    withdrawn: list[tuple[str, ...]] = []

    async def approve(request: ToolRequest, decision: Any, position: Position) -> Approval:
        waiting.append(position.principals)
        if len(waiting) == 2:
            both.set()
        try:
            await both.wait()
            if position.principals != ("coder",):
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            withdrawn.append(position.principals)
            raise
        return Approval.yes(remember="session")

    seen: list[Event] = []
    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="x"), Call("read_file", {"path": "b"}, id="y")) as fixer,
        agent("coder", Calls(calls("fixer", "r1"), Call("read_file", {"path": "c"}, id="r2"))) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        channel = CallbackChannel(approve, concurrent=True)
        result = await run(Host(tools=tools, policy=_ASKS, channel=channel, observer=seen.append), coder)
    assert result.completed
    assert sorted(waiting) == [("coder",), ("coder", "fixer")]
    assert withdrawn == [("coder", "fixer")]
    assert [event.status for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == ["completed"] * 2


async def test_a_yes_to_a_sub_agent_for_the_session_does_not_hold_for_its_caller() -> None:
    asked: list[tuple[str, ...]] = []

    async def approve(request: ToolRequest, decision: Any, position: Position) -> Approval:
        asked.append(position.principals)
        return Approval.yes(remember="session")

    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="x"), Call("read_file", {"path": "b"}, id="y")) as fixer,
        agent("coder", calls("fixer", "r1"), Call("read_file", {"path": "c"}, id="r2")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        await run(Host(tools=tools, policy=_ASKS, channel=CallbackChannel(approve)), coder)
    assert asked == [("coder", "fixer"), ("coder",)]


async def test_a_mode_that_is_set_above_while_a_sub_agent_asks_withdraws_its_question() -> None:
    asked = anyio.Event()
    seen: list[Event] = []

    async def approve(request: ToolRequest, decision: Any, position: Position) -> Approval:
        asked.set()
        await anyio.sleep_forever()
        return Approval.yes()

    policy = RulePolicy(
        [
            Rule("allow", "fixer", modes=["default", "plan"]),
            Rule("deny", "read_file", modes=["plan"], reason="planning"),
            Rule("ask_user", "read_file"),
        ]
    )

    class Updates(ScriptedExecutor):
        def check_update(self, session: Any, config: Any) -> str | None:
            return None

    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("I only planned.")) as fixer,
        Updates([[calls("fixer"), Say("ok")]], name="coder") as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=policy, channel=CallbackChannel(approve), observer=seen.append)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await asked.wait()
                await session.update(SessionConfig(permission_mode="plan"))
    assert [event.status for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == ["denied"]
    assert responses(seen)["r1"].data == "I only planned."


async def test_hooks_of_the_host_are_asked_about_the_calls_of_a_sub_agent() -> None:
    asked: list[tuple[str, list[str], str]] = []

    @hook("before_tool")
    def guard(payload: Any) -> HookOutcome:
        asked.append((payload.name, payload.principal_path, payload.permission_mode))
        return block("not here") if payload.name == "read_file" else proceed()

    seen: list[Event] = []
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("without")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=allow_all, hooks=[guard], observer=seen.append)
        async with host.session(coder, ExecutionOptions(permission_mode="auto_edit")) as session:
            await host.run_turn(session, "go")
    assert [asked[0][0], *asked[1:]] == ["fixer", ("read_file", ["coder", "fixer"], "auto_edit")]
    assert [event.is_error for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == [True]
    assert responses(seen)["r1"].data == "without"


async def test_a_mode_that_was_set_in_a_sub_agents_session_holds_after_it_was_loaded() -> None:
    modes: list[str] = []
    asked = anyio.Event()

    class Updates(ScriptedExecutor):
        def check_update(self, session: Any, config: Any) -> str | None:
            return None

    def fixer() -> ScriptedExecutor:
        return Updates([[Call("read_file", {"path": "a"}), Say("ok")]], name="fixer", reenter=True)

    def policy(request: PolicyRequest) -> str:
        modes.append(request.permission_mode)
        return "ask_user" if request.tool == "read_file" else "allow"

    async def approve(request: ToolRequest, decision: Any, position: Position) -> Approval:
        if not asked.is_set():
            asked.set()
            (child,) = host.children(session)
            await child.session.update(SessionConfig(permission_mode="auto_edit"))
        return Approval.pause()

    async with agent("coder", calls("fixer"), reenter=True) as coder:
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=policy, channel=CallbackChannel(approve))
        options = ExecutionOptions(permission_mode="autonomous")
        async with host.session(coder, options, store=MemoryRecordStore()) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                modes.clear()
                await host.run_turn(session)
    assert modes[-1] == "auto_edit"
