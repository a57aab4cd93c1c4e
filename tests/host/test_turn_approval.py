"""Whole turns of the host: what the policy and the person say of a call, and in which mode, before anything runs."""

from __future__ import annotations

import asyncio
import datetime
import math
from typing import Any

import anyio
import anyio.lowlevel
import pydantic
import pytest
import trio.testing
from tests.host.fake_session import FakeExecutor, FakeSession, call
from tests.host.turns import add, answer_of, run

from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    NoChannel,
    PolicyDecision,
    PolicyRequest,
    Rule,
    RulePolicy,
    ScriptedChannel,
    TurnResult,
    allow_all,
    ask_all,
    deny_all,
    tool,
)
from agentsession.protocol import (
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    SessionUpdate,
    ToolDenial,
    ToolGrant,
    ToolRequest,
)

pytestmark = pytest.mark.anyio


async def test_the_policys_no_is_a_denial_with_its_rule_and_reason() -> None:
    policy = RulePolicy([Rule("deny", "add", id="no-add", reason="no sums today")])
    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=policy), session)
    answer = answer_of(session, "r1")
    assert isinstance(answer, ToolDenial)
    assert answer.reason == "no sums today"
    assert answer.decision is not None
    assert answer.decision.by == "policy:no-add"


@pytest.mark.rule("TOOL-05")
async def test_an_own_tool_of_the_agent_gets_a_grant_and_is_not_run_here() -> None:
    session = FakeSession([call("r1", "add", "grant", a=1)], [])
    await run(Host(tools=[add], policy=allow_all), session)
    assert isinstance(answer_of(session, "r1"), ToolGrant)


async def test_an_unknown_need_is_denied() -> None:
    session = FakeSession([call("r1", "add", "blessing", a=1)], [])
    await run(Host(tools=[add], policy=allow_all), session)
    answer = answer_of(session, "r1")
    assert isinstance(answer, ToolDenial)
    assert answer.reason is not None
    assert answer.reason.startswith("unsupported_needs")


@pytest.mark.rule("TOOL-04")
async def test_nobody_is_asked_about_a_call_whose_types_cannot_be_made() -> None:
    asked: list[Any] = []

    @tool
    def book(when: datetime.date) -> str:
        raise AssertionError("it runs")

    def approve(request: ToolRequest, decision: PolicyDecision, position: Any) -> bool:
        asked.append(request.args)
        return True

    session = FakeSession([call("r1", "book", when="tomorrow")], [])
    await run(Host(tools=[book], policy=ask_all, channel=CallbackChannel(approve)), session)
    assert asked == []
    error = answer_of(session, "r1").data["error"]
    assert (error["code"], error["path"]) == ("invalid_arguments", "/when")


async def test_a_validator_that_breaks_is_a_failure_of_the_run_and_not_of_the_host() -> None:
    class Odd(pydantic.BaseModel):
        side: int

        @pydantic.field_validator("side")
        @classmethod
        def _breaks(cls, value: int) -> int:
            raise RuntimeError("the catalogue is away")

    @tool(model=Odd)
    def draw(it: Odd) -> None: ...

    session = FakeSession([call("r1", "draw", side=1)], [])
    result = await run(Host(tools=[draw], policy=allow_all), session)
    assert result.completed
    assert answer_of(session, "r1").data["error"]["code"] == "tool_failed"


@pytest.mark.rule("HITL-03")
async def test_a_yes_runs_the_tool_once() -> None:
    channel = ScriptedChannel({"add": True})
    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=ask_all, channel=channel), session)
    answer = answer_of(session, "r1")
    assert answer.data == 2
    assert answer.decision.by == "user"


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("word", [False, Approval.no("too risky"), "yes", 1, None, "y", {"confirmed": True}])
async def test_anything_but_a_clear_yes_runs_nothing(word: object) -> None:
    session = FakeSession([call("r1", "add", a=1)], [])
    channel = CallbackChannel(approve=lambda request, decision, position: word)
    await run(Host(tools=[add], policy=ask_all, channel=channel), session)
    assert isinstance(answer_of(session, "r1"), ToolDenial)


@pytest.mark.rule("HITL-02")
async def test_a_channel_that_raises_has_said_no() -> None:
    def approve(request: Any, decision: Any, position: Any) -> bool:
        raise ValueError("terminal gone")

    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=ask_all, channel=CallbackChannel(approve)), session)
    assert answer_of(session, "r1").reason == "channel_error: ValueError"


@pytest.mark.rule("HITL-02")
async def test_a_channel_whose_own_awaiting_was_cancelled_has_said_no(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("on trio nobody can raise a cancellation by hand")

    async def a_browser_that_went_away(*args: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        return await answer

    question = ElicitationRequest(request_id="q1", kind="clarification", message="Which?")
    session = FakeSession([call("r1", "add", a=1), question], [])
    channel = CallbackChannel(approve=a_browser_that_went_away, ask=a_browser_that_went_away)
    assert (await run(Host(tools=[add], policy=ask_all, channel=channel), session)).completed
    assert answer_of(session, "r1").reason == "channel_error: CancelledError"
    assert answer_of(session, "q1").action == "cancel"


async def test_without_a_channel_what_would_be_asked_is_denied() -> None:
    question = ElicitationRequest(request_id="q1", kind="clarification", message="Which?")
    session = FakeSession([call("r1", "add", a=1), question], [])
    await run(Host(tools=[add], policy=ask_all), session)
    assert answer_of(session, "r1").reason.startswith("no_channel")
    assert answer_of(session, "q1").action == "decline"


@pytest.mark.rule("HITL-04")
async def test_edited_arguments_pass_schema_and_policy_again() -> None:
    policy = RulePolicy([Rule("deny", when=lambda args: args["a"] > 100, reason="too big"), Rule("ask_user")])
    words = iter([Approval.yes({"a": "x"}), Approval.yes({"a": 500})])
    problems: list[str | None] = []

    def approve(request: Any, decision: Any, position: Any) -> Approval:
        problems.append(position.problem)
        return next(words)

    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=policy, channel=CallbackChannel(approve)), session)
    assert problems == [None, '/a: expected an integer, got "x"']
    assert isinstance(answer_of(session, "r1"), ToolDenial)
    assert answer_of(session, "r1").reason == "too big"


async def test_edited_arguments_are_what_runs_and_what_is_granted() -> None:
    channel = ScriptedChannel({"add": Approval.yes({"a": 40, "b": 2})})
    session = FakeSession([call("r1", "add", a=1), call("r2", "add", "grant", a=1)], [])
    await run(Host(tools=[add], policy=ask_all, channel=channel), session)
    assert answer_of(session, "r1").data == 42
    assert answer_of(session, "r1").args == {"a": 40, "b": 2}
    assert answer_of(session, "r2").args == {"a": 40, "b": 2}


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize("needs", ["result", "grant"])
@pytest.mark.parametrize("edited", [{"a": math.nan}, {"a": math.inf}, {"a": object()}, {"a": 1, 2: 3}, [1], "x"])
async def test_an_edit_that_cannot_be_recorded_runs_nothing(edited: Any, needs: str) -> None:
    ran: list[float] = []

    @tool
    def scale(a: float) -> None:
        ran.append(a)

    channel = CallbackChannel(approve=lambda request, decision, position: Approval.yes(edited))
    session = FakeSession([call("r1", "scale", needs, a=1)], [])
    await run(Host(tools=[scale], policy=ask_all, channel=channel), session)
    assert ran == []
    answer = answer_of(session, "r1")
    assert isinstance(answer, ToolDenial)
    assert (answer.reason or "").startswith("invalid_edit")


@pytest.mark.rule("HITL-04")
async def test_a_channel_that_changes_the_request_changes_neither_the_run_nor_the_record() -> None:
    def approve(request: ToolRequest, decision: Any, position: Any) -> bool:
        assert request.args is not None
        request.args["a"] = 99
        return True

    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=ask_all, channel=CallbackChannel(approve)), session)
    assert answer_of(session, "r1").data == 2
    assert [event.args for event in session.record if isinstance(event, ToolRequest)] == [{"a": 1}]


@pytest.mark.rule("HITL-02")
async def test_a_yes_does_not_outlive_the_mode_in_which_it_was_asked_for() -> None:
    policy = RulePolicy([Rule("deny", modes=["plan"], reason="only planning"), Rule("ask_user")])
    session = FakeSession([call("r1", "add", a=1)], [])

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        while session.state != "input_required":
            await anyio.lowlevel.checkpoint()
        session.add(SessionUpdate(permission_mode="plan", source="host"))
        while not any(isinstance(event, SessionUpdate) for event in seen):
            await anyio.lowlevel.checkpoint()
        return True

    seen: list[Event] = []
    host = Host(tools=[add], policy=policy, channel=CallbackChannel(approve), observer=seen.append)
    await run(host, session)
    assert answer_of(session, "r1").reason == "only planning"


class Modes:
    """A policy that only keeps the modes in which it was asked."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        self.seen.append(request.permission_mode)
        return PolicyDecision("allow")


async def test_the_mode_of_a_turns_options_holds_for_that_turn() -> None:
    modes = Modes()
    session = FakeSession([call("r1", "add", a=1)], [], [call("r2", "add", a=1)], [])
    host = Host(tools=[add], policy=modes)
    with anyio.fail_after(5):
        await host.run_turn(session, "go", ExecutionOptions(permission_mode="plan"))
        await host.run_turn(session, "go")
    assert modes.seen == ["plan", "default"]


async def test_the_mode_of_a_turns_options_holds_over_its_pause() -> None:
    modes = Modes()
    question = ElicitationRequest(request_id="q1", kind="clarification", message="Which?")
    session = FakeSession([question], [call("r1", "add", a=1)], [])
    host = Host(tools=[add], policy=modes, on_ask="pause")
    with anyio.fail_after(5):
        await host.run_turn(session, "go", ExecutionOptions(permission_mode="plan"))
        await host.run_turn(session, ElicitationAnswer(request_id="q1", action="decline"))
    assert modes.seen == ["plan"]


@pytest.mark.parametrize(("given", "expected"), [(None, "plan"), ("auto_edit", "auto_edit")])
async def test_a_loaded_session_is_in_the_mode_that_its_host_last_set(given: str | None, expected: str) -> None:
    modes = Modes()
    session = FakeSession([call("r1", "add", a=1)], [])
    session.add(SessionUpdate(permission_mode="plan", source="host"))
    host = Host(tools=[add], policy=modes)
    options = ExecutionOptions(permission_mode=given)
    async with host.session(FakeExecutor(session), options, load="s-1") as opened:  # type: ignore[arg-type]
        await run(host, opened)  # type: ignore[arg-type]
    assert modes.seen == [expected]


async def test_a_session_that_was_opened_by_hand_is_in_the_mode_that_its_record_says() -> None:
    modes = Modes()
    session = FakeSession([call("r1", "add", a=1)], [])
    session.add(SessionUpdate(permission_mode="plan", source="host"))
    await run(Host(tools=[add], policy=modes), session)
    assert modes.seen == ["plan"]


async def test_an_agent_does_not_change_the_mode() -> None:
    modes = Modes()
    update = SessionUpdate(permission_mode="autonomous", source="agent")
    session = FakeSession([update, call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=modes), session)
    assert modes.seen == ["default"]


async def test_people_are_asked_one_at_a_time_and_told_the_place() -> None:
    asked = 0
    places: list[tuple[int, int]] = []

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        nonlocal asked
        asked += 1
        assert asked == 1
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        asked -= 1
        places.append((position.index, position.total))
        return True

    session = FakeSession([call(f"r{i}", "add", a=i) for i in range(3)], [])
    await run(Host(tools=[add], policy=ask_all, channel=CallbackChannel(approve)), session)
    assert [index for index, _ in places] == [1, 2, 3]
    assert places[-1] == (3, 3)


@pytest.mark.rule("HITL-11")
def test_waiting_for_a_person_is_not_the_tools_time() -> None:
    """On a clock that jumps: the person takes an hour, the tool 30 of the 60 seconds it may take."""

    @tool
    async def slow(a: int) -> int:
        await anyio.sleep(30)
        return a

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        await anyio.sleep(3600)
        return True

    async def turn() -> tuple[FakeSession, TurnResult]:
        session = FakeSession([call("r1", "slow", a=2)], [])
        host = Host(tools=[slow], policy=ask_all, channel=CallbackChannel(approve), tool_timeout_s=60)
        return session, await host.run_turn(session, "go")

    clock = trio.testing.MockClock(autojump_threshold=0)
    session, result = anyio.run(turn, backend="trio", backend_options={"clock": clock})
    assert answer_of(session, "r1").data == 2
    assert (round(result.people_s), round(result.tools_s)) == (3600, 30)


async def test_a_question_goes_to_the_person_and_an_invalid_answer_is_asked_again() -> None:
    answers = iter(["eu", "us"])
    problems: list[str | None] = []

    def ask(request: Any, position: Any) -> ElicitationAnswer:
        problems.append(position.problem)
        return ElicitationAnswer(request_id=request.request_id, action="accept", content={"region": next(answers)})

    question = ElicitationRequest(request_id="q1", kind="clarification", message="Where?")
    session = FakeSession([question], [])
    session.refuse["q1"] = 1
    assert (await run(Host(channel=CallbackChannel(ask=ask)), session)).completed
    assert problems == [None, "does not fit"]
    assert [a.content["region"] for a in session.answers] == ["eu", "us"]  # type: ignore[union-attr,call-overload]


@pytest.mark.rule("HITL-09")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_what_a_channel_gives_with_a_no_is_left_out(action: str) -> None:
    def ask(request: Any, position: Any) -> ElicitationAnswer:
        return ElicitationAnswer(request_id="q1", action=action, content={"pin": "sk-planted"})

    session = FakeSession([ElicitationRequest(request_id="q1", kind="clarification", message="Where?")], [])
    await run(Host(channel=CallbackChannel(ask=ask)), session)
    answer = answer_of(session, "q1")
    assert (answer.action, "content" in answer.model_fields_set) == (action, False)


@pytest.mark.rule("HITL-02")
async def test_what_was_said_to_another_question_is_not_given_to_whoever_asked_this_one() -> None:
    def ask(request: Any, position: Any) -> ElicitationAnswer:
        return ElicitationAnswer(request_id="q2", action="accept", content={"pin": "sk-planted"})

    session = FakeSession([ElicitationRequest(request_id="q1", kind="clarification", message="Where?")], [])
    await run(Host(channel=CallbackChannel(ask=ask)), session)
    answer = answer_of(session, "q1")
    assert (answer.action, answer.content) == ("cancel", None)
    assert answer.decision.reason == "unclear_answer: it answers another request"


async def test_a_confirmation_that_an_own_tool_brings_obeys_the_policys_no() -> None:
    confirm = ElicitationRequest(request_id="q1", kind="tool_confirmation", message="Sure?", tool_request_id="r1")
    channel = ScriptedChannel(answers=[("accept", {"confirmed": True})])
    session = FakeSession([call("r1", "wipe", "none"), confirm], [])
    await run(Host(policy=deny_all, channel=channel), session)
    assert answer_of(session, "q1").action == "decline"
    assert channel.asked == []


async def test_a_policy_sees_who_asks_and_cannot_change_the_arguments() -> None:
    requests: list[Any] = []

    def policy(request: Any) -> str:
        requests.append(request)
        request.args["a"] = 100
        return "allow"

    session = FakeSession([call("r1", "add", a=1)], [])
    await run(Host(tools=[add], policy=policy), session)
    assert answer_of(session, "r1").data == 2
    assert requests[0].principal == "fake"
    assert requests[0].principal_path == ("fake",)
    assert requests[0].turn_id == "u-1"


async def test_no_channel_in_pause_mode_is_like_on_ask_pause() -> None:
    session = FakeSession([call("r1", "add", a=1)])
    result = await run(Host(tools=[add], policy=ask_all, channel=NoChannel("pause")), session)
    assert result.unanswered == ("r1",)
