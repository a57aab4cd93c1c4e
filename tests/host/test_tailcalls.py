"""A tool that hands its call over to another: what may run, what the agent gets, what the record says."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.host.fake_session import FakeSession, call
from tests.host.turns import answer_of, run

from agentsession.host import (
    Approval,
    Host,
    NoChannel,
    PolicyRequest,
    Rule,
    RulePolicy,
    ScriptedChannel,
    TailCall,
    Tool,
    ToolContext,
    ToolError,
    ToolOutcome,
    allow_all,
    ask_all,
    hook,
    tool,
)
from agentsession.host._outcome import LEFT_WAITING
from agentsession.protocol import HookOutcome, Spent, ToolDescriptor, ToolProgress, ToolRequest, ToolResult, block

pytestmark = pytest.mark.anyio

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def find(name: str) -> TailCall:  # no thread, which could go on into the next test
    """Find a file, and read it."""
    ran.append(("find", name))
    return TailCall("read", {"path": f"/files/{name}"})


@tool
def read(path: str, context: ToolContext) -> str:
    ran.append(("read", path, context.request_id))
    context.progress(1, 2)
    return f"text of {path}"


@tool
def again(left: int) -> Any:
    ran.append(left)
    return TailCall("again", {"left": left - 1}) if left else "done"


async def found(policy: Any = allow_all, channel: Any = None, **fields: Any) -> tuple[FakeSession, Any]:
    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[find, read], policy=policy, channel=channel, **fields), session)
    return session, answer_of(session, "r1")


def steps(session: FakeSession) -> list[dict[str, Any]]:
    told = [each.data for each in session.answers if isinstance(each, ToolProgress) and each.data is not None]
    return [each["tail_call"] for each in told if "tail_call" in each]


async def test_the_other_tools_result_answers_the_request_and_the_step_is_told() -> None:
    session, answer = await found()
    assert (answer.data, answer.request_id) == ("text of /files/a", "r1")
    assert ran == [("find", "a"), ("read", "/files/a", "r1.t1")]
    (step,) = steps(session)
    assert step == {
        "step": 1,
        "name": "read",
        "args": {"path": "/files/a"},
        "decision": "granted",
        "by": "policy:allow_all",
    }
    assert {each.request_id for each in session.answers} == {"r1"}


@pytest.mark.rule("HITL-01", "HITL-02")
async def test_a_call_that_the_policy_denies_is_not_reached_through_another_tool() -> None:
    asked: list[PolicyRequest] = []

    def policy(request: PolicyRequest) -> str:
        asked.append(request)
        return "deny" if request.tool == "read" else "allow"

    session, answer = await found(policy)
    assert ran == [("find", "a")]
    assert isinstance(answer, ToolResult)  # not a denial: the first tool did run
    assert answer.data["error"]["code"] == "tail_call_denied"
    assert [(each.tool, dict(each.args)) for each in asked] == [("find", {"name": "a"}), ("read", {"path": "/files/a"})]
    assert [each["decision"] for each in steps(session)] == ["denied"]


@pytest.mark.rule("HITL-03")
async def test_the_person_is_asked_about_each_step_with_its_own_arguments() -> None:
    channel = ScriptedChannel({"find": True, "read": Approval.yes({"path": "/other"})})
    _, answer = await found(ask_all, channel)
    asked = [each for each, _ in channel.asked if isinstance(each, ToolRequest)]
    assert [(each.name, each.args) for each in asked] == [("find", {"name": "a"}), ("read", {"path": "/files/a"})]
    assert answer.data == "text of /other"


@pytest.mark.parametrize(
    "channel", [ScriptedChannel({"read": False}), NoChannel(), NoChannel("pause"), ScriptedChannel({})]
)
async def test_where_nobody_says_yes_to_a_step_it_does_not_run_and_the_request_is_answered(channel: Any) -> None:
    policy = RulePolicy([Rule("allow", "find"), Rule("ask_user", "read")])
    _, answer = await found(policy, channel)
    assert ran == [("find", "a")]
    assert answer.data["error"]["code"] == "tail_call_denied"


async def test_a_cancel_at_a_step_answers_the_request_and_ends_the_turn() -> None:
    policy = RulePolicy([Rule("allow", "find"), Rule("ask_user", "read")])
    session = FakeSession([call("r1", "find", name="a"), call("r2", "find", name="b")])
    channel = ScriptedChannel([Approval.cancel("stop"), True])
    result = await run(Host(tools=[find, read], policy=policy, channel=channel), session)
    assert result.end.reason == "aborted"
    assert not [each for each in ran if each[0] == "read"]


@pytest.mark.rule("TOOL-04")
async def test_the_handed_arguments_are_checked_against_the_other_tools_schema() -> None:
    @tool(name="find")
    def wrong(name: str) -> TailCall:
        return TailCall("read", {"pth": name})

    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[wrong, read], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"]["code"] == "invalid_arguments"
    assert ran == []


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (TailCall("raed"), "unknown_tool"),
        (TailCall("read", {"path": object()}), "invalid_arguments"),
        (TailCall("read", 5), "invalid_arguments"),  # type: ignore[arg-type]
    ],
)
async def test_a_call_that_cannot_be_made_is_an_error_result(tail: TailCall, code: str) -> None:
    session = FakeSession([call("r1", "odd")], [])
    await run(Host(tools=[tool(name="odd")(lambda: tail), read], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"]["code"] == code


@pytest.mark.parametrize(("left", "data"), [(3, "done"), (4, None)])
async def test_a_chain_is_at_most_three_calls_long(left: int, data: str | None) -> None:
    session = FakeSession([call("r1", "again", left=left)], [])
    await run(Host(tools=[again], policy=allow_all), session)
    answer = answer_of(session, "r1")
    assert len(ran) == 4  # the first, and three
    assert (answer.data == data) if data else (answer.data["error"]["code"] == "tail_call_limit")


async def test_a_step_cannot_be_left_waiting() -> None:
    @tool(name="read")
    def waits(path: str) -> ToolOutcome:
        return LEFT_WAITING  # as a sub-agent that waits for somebody

    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[find, waits], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"]["code"] == "tail_call_denied"


async def test_an_error_of_the_other_tool_is_the_calls_own() -> None:
    @tool(name="read")
    def fails(path: str) -> None:
        raise ToolError("no such file", code="not_found")

    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[find, fails], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"]["code"] == "not_found"


async def test_hooks_see_each_step_and_may_block_it() -> None:
    seen: list[str] = []

    @hook("before_tool")
    def watch(payload: Any) -> HookOutcome | None:
        seen.append(payload.name)
        return block("not this one", by="hook:watch") if payload.name == "read" else None

    _, answer = await found(hooks=[watch])
    assert "read" in seen
    assert ran == [("find", "a")]
    assert "not this one" in answer.data["error"]["message"]


@pytest.mark.rule("CTL-01")
async def test_an_abort_in_a_step_says_of_the_request_that_its_effects_may_be_partial() -> None:
    begun = anyio.Event()

    @tool(name="read")
    async def hangs(path: str) -> None:
        begun.set()
        await anyio.sleep_forever()

    session = FakeSession([call("r1", "find", name="a")], [])
    host = Host(tools=[find, hangs], policy=allow_all)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await begun.wait()
            await host.abort()
    assert answer_of(session, "r1").data["error"]["code"] == "cancelled"


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("ends", ["returns", "fails", "denied", "too_long"])
async def test_what_every_tool_of_a_chain_has_used_counts_however_it_ends(ends: str) -> None:
    @tool(name="find")
    def pays(name: str) -> ToolOutcome:
        then = TailCall("again", {"left": 5}) if ends == "too_long" else TailCall("read", {"path": name})
        return ToolOutcome(tail=then, spent=Spent(model_calls=2, cost=0.5))

    @tool(name="read")
    def last(path: str) -> ToolOutcome:
        return ToolOutcome(data="text", is_error=ends == "fails", spent=Spent(model_calls=1, cost=0.25))

    policy = RulePolicy([Rule("allow", ["find", "again"]), Rule("deny" if ends == "denied" else "allow", "read")])
    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[pays, last, again], policy=policy), session)
    both = ends in ("returns", "fails")
    assert answer_of(session, "r1").spent == Spent(model_calls=3 if both else 2, cost=0.75 if both else 0.5)


async def test_a_chain_of_which_nobody_knows_a_cost_has_an_unknown_one() -> None:
    @tool(name="find")
    def pays(name: str) -> ToolOutcome:
        return ToolOutcome(tail=TailCall("read", {"path": name}), spent=Spent(model_calls=2))

    @tool(name="read")
    def last(path: str) -> ToolOutcome:
        return ToolOutcome(data="text", spent=Spent(model_calls=1, cost=0.25))

    session = FakeSession([call("r1", "find", name="a")], [])
    await run(Host(tools=[pays, last], policy=allow_all), session)
    assert answer_of(session, "r1").spent == Spent(model_calls=3)


async def test_what_the_first_tool_has_used_counts_when_the_person_ends_the_turn_or_it_is_stopped_at_the_next() -> None:
    begun = anyio.Event()

    @tool(name="find")
    def pays(name: str) -> ToolOutcome:
        return ToolOutcome(tail=TailCall("read", {"path": name}), spent=Spent(model_calls=2, cost=0.5))

    @tool(name="read")
    async def hangs(path: str) -> None:
        begun.set()
        await anyio.sleep_forever()

    policy = RulePolicy([Rule("allow", "find"), Rule("ask_user", "read")])
    session = FakeSession([call("r1", "find", name="a")])
    await run(Host(tools=[pays, hangs], policy=policy, channel=ScriptedChannel([Approval.cancel()])), session)
    assert answer_of(session, "r1").spent == Spent(model_calls=2, cost=0.5)

    session, host = FakeSession([call("r1", "find", name="a")], []), Host(tools=[pays, hangs], policy=allow_all)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await begun.wait()
            await host.abort()
    assert answer_of(session, "r1").spent == Spent(model_calls=2, cost=0.5)


async def test_the_record_has_the_arguments_that_a_step_ran_with() -> None:
    channel = ScriptedChannel({"find": True, "read": Approval.yes({"path": "/other"})})
    session, _ = await found(ask_all, channel)
    assert ran[-1][:2] == ("read", "/other")
    assert [(each["args"], each["decision"]) for each in steps(session)] == [({"path": "/other"}, "granted")]


async def test_what_a_tool_does_to_its_arguments_is_not_what_hooks_are_told_that_it_ran_with() -> None:
    told: list[Any] = []

    def empties(args: dict[str, Any]) -> Any:
        args["names"].clear()
        return TailCall("last", {"names": ["b"]}) if args.pop("more", None) else "done"

    @hook("after_tool")
    def watch(payload: Any) -> None:
        told.append((payload.name, payload.args))

    schema = {"type": "object"}
    tools = [
        Tool(ToolDescriptor(name=name, owner="host", parameters_schema=schema), empties) for name in ("first", "last")
    ]
    session = FakeSession([call("r1", "first", names=["a"], more=True)], [])
    await run(Host(tools=tools, policy=allow_all, hooks=[watch]), session)
    assert told == [("last", {"names": ["b"]}), ("first", {"names": ["a"], "more": True})]


async def test_a_question_of_the_other_tool_reaches_the_person() -> None:
    @tool(name="read")
    async def asks(path: str, context: ToolContext) -> str:
        return (await context.ask("Sure?")).action

    session = FakeSession([call("r1", "find", name="a")], [])
    channel = ScriptedChannel(answers={"clarification": "accept"})
    await run(Host(tools=[find, asks], policy=allow_all, channel=channel), session)
    assert answer_of(session, "r1").data == "accept"
    assert {each.request_id for each in session.answers} == {"r1"}
