"""The last word of a turn of ADK's that reached a limit, in every tree: one model call, no tool, one reason."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    model_calls,
    texts,
    verify,
)
from tests.adapters.adk.shapes import FRESH, SHAPES, plant

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, fail, hold, say, stream
from agentsession.protocol import (
    AgentStart,
    Constraints,
    ElicitationResponse,
    Error,
    ExecutionOptions,
    Grace,
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    Message,
    OpenOptions,
    Price,
    StreamEnd,
    ToolResponse,
    Usage,
    modify,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-08")]


def execution(grace: Any = None, **limits: Any) -> dict[str, Any]:
    return {"limits": Constraints(**limits), "grace": grace or Grace(), "host_tool_execution": False}


def end_data(desk: Driven) -> tuple[str, Any]:
    verify(desk.session)
    ends = [event for event in desk.session.record if isinstance(event, StreamEnd) and event.reason != "input_required"]
    assert (desk.session.state, list(desk.session.pending)) == ("idle", [])
    return ends[-1].reason, ends[-1].data


def _unless_told_the_note(step: Any) -> Any:
    """A model that does as it is told: once it hears of the limit it reports."""

    def answer(request: LlmRequest) -> Any:
        heard = [part.text or "" for part in request.contents[-1].parts or []]
        return say("where I got to") if any("limit of" in text for text in heard) else step

    return answer


def only(desk: Driven, kind: type[Any]) -> list[Any]:
    return [event for event in desk.session.record if isinstance(event, kind)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", ["max_llm_calls", "max_turns"])
async def test_an_agent_of_any_tree_says_where_it_got_to_in_one_more_call(limit: str, shape: str) -> None:
    if limit == "max_turns" and shape in ("child", "grandchild"):
        pytest.skip("the steps of a tool's agent are not the turn's")
    planted = plant(shape, *[call("look") for _ in range(9)])
    for model in planted.models:
        model.script = [_unless_told_the_note(step) for step in (*model.script, *[FRESH] * 9)]
    async with driven(planted.root, tools=[host_tool("look")], execution=execution(**{limit: 4})) as desk:
        await desk.turn("go")
        assert end_data(desk)[0] == limit
        made = sum(len(model.requests) for model in planted.models)
        assert made == 5
        assert end_data(desk)[1] == {"grace": "completed"}
        assert [told.code for told in only(desk, Error)] == [limit]
        for model in planted.models:
            model.script.clear()
            assert_valid_history(model)
        await desk.turn("again")
        assert desk.session.state == "idle"
        planted.check_histories()


async def test_what_it_says_is_the_answer_and_the_model_has_heard_the_note() -> None:
    root = agent(call("look"), call("look"), say("two looked at"), say("fresh"))
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=2)) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        (note,) = [event for event in only(desk, Message) if event.source == "host"]
        assert history(root.model)[-1] == ("user", *texts([note]))
        assert (await desk.turn("again")).texts == ["fresh"]
        assert_valid_history(root.model)


@pytest.mark.parametrize("shape", ["plain", "sequential", "parallel", "child", "workflow"])
async def test_an_agent_that_is_cut_off_at_its_time_has_its_say(shape: str) -> None:
    forever = anyio.Event()
    planted = plant(shape, hold(forever.wait) + say("never"))
    for model in planted.models:
        model.forever = say("cut off")
    async with driven(planted.root, execution=execution(max_time_seconds=0.05)) as desk:
        turn = await desk.stream("go")
        assert end_data(desk) == ("max_time", {"cause": "max_time", "grace": "completed"})
        assert turn.texts[-1] == "cut off"
        await desk.turn("again")
        planted.check_histories()


async def dig() -> str:
    """Dig."""
    RAN.append("dig")
    return "dug"


RAN: list[str] = []


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("gated", [False, True])
async def test_a_defiant_call_of_the_agents_or_the_hosts_tool_is_denied(gated: bool, parked: bool) -> None:
    RAN.clear()
    last = say("I stop.") + calls(call("dig", id="d"), call("look", id="l"))
    root = agent(call("look"), last, say("never"), say("never"), tools=[dig])
    options = {**execution(max_llm_calls=1), "host_tool_execution": gated}
    async with driven(root, tools=[host_tool("look")], execution=options, parked=parked) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert RAN == []
        found = {event.name: event.status for event in only(desk, ToolResponse)[-2:]}
        assert found == {"dig": "denied", "look": "denied"}
        assert model_calls(root) == 2
        await desk.turn("again")
        assert_valid_history(root.model)


async def test_a_hand_over_in_a_last_word_wakes_nobody() -> None:
    other = LlmAgent(name="other", model=ScriptedLlm(forever=say("never")))
    root = agent(call("look"), call("transfer_to_agent", {"agent_name": "other"}), sub_agents=[other])
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=1)) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "failed"})
        assert other.model.requests == []  # type: ignore[union-attr]


async def test_an_agent_that_is_called_as_a_tool_in_a_last_word_does_not_begin() -> None:
    child = LlmAgent(name="child", model=ScriptedLlm(forever=say("never")))
    last = say("I stop.") + call("child", {"request": "go on"})
    root = agent(call("look"), last, tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=1)) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert {event.agent_id for event in only(desk, AgentStart)} == {"root"}
        assert desk.responses()["child"] == "denied"


async def test_a_question_to_a_person_in_a_last_word_is_cancelled() -> None:
    asks = say("One thing:") + call("adk_request_input", {"message": "Go on?"})
    root = agent(call("look"), asks, say("fresh"))
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=1)) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert [event.action for event in only(desk, ElicitationResponse)] in ([], ["cancel"])
        await desk.turn("again")
        assert_valid_history(root.model)


@pytest.mark.parametrize("parked", [False, True])
async def test_the_completion_tool_runs_and_the_model_is_not_called_again(parked: bool) -> None:
    root = agent(call("look"), call("hand_in", id="h"), say("never"), say("fresh"))
    options = execution(Grace(completion_tool="hand_in"), max_llm_calls=1)
    tools = [host_tool("look"), host_tool("hand_in")]
    async with driven(root, tools=tools, execution=options, parked=parked) as desk:
        await desk.stream("go")
        await desk.stream(result(desk.pending("look"), 1))
        await desk.stream(result(desk.pending("hand_in"), "taken"))
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert model_calls(root) == 2


@pytest.mark.rule("PER-01")
async def test_a_last_word_goes_on_as_one_after_a_restart(tmp_path: Any) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    options = OpenOptions(
        session_id="s1",
        execution=ExecutionOptions(
            tools=[host_tool("hand_in")],
            limits=Constraints(max_llm_calls=1),
            grace=Grace(completion_tool="hand_in"),
            host_tool_execution=False,
        ),
    )
    first = agent(call("dig"), call("hand_in", id="h"), tools=[dig])
    async with AdkExecutor(first, session_service=service, store=store) as executor:
        await Driven(executor, await executor.open(options)).stream("go")
    second = agent(say("never"), tools=[dig])
    async with AdkExecutor(second, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", options))
        await desk.stream(result(desk.pending("hand_in"), "taken"))
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert model_calls(second) == 0


class Seen:
    """A hook that sees every call before it runs."""

    def __init__(self) -> None:
        self.calls: list[HookPayload] = []

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        if hook_point == "before_tool":
            self.calls.append(payload)
        return None


async def test_no_hook_is_asked_about_a_call_that_is_denied_anyway() -> None:
    seen = Seen()
    root = agent(call("look", id="a"), say("I stop.") + call("look", id="b"))
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=1), hooks=seen) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert len(seen.calls) == 1


async def test_a_last_word_whose_model_failed_is_asked_for_again_and_counts_once() -> None:
    class Again:
        async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
            return modify(after_s=0.0) if hook_point == "on_model_error" else None

    root = agent(call("look"), fail("overloaded"), say("I stop."), say("never"))
    async with driven(root, tools=[host_tool("look")], execution=execution(max_llm_calls=1), hooks=Again()) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_llm_calls", {"grace": "completed"})
        assert model_calls(root) == 3


# -- money ------------------------------------------------------------------------------------------------------------


def spending(step: Any) -> Any:
    """A model call that costs 0.40 USD by :data:`PRICES`."""
    return step.using(input=400_000, output=0)


PRICES = {"*": Price(input=1, output=10)}


@pytest.mark.parametrize(
    ("reserve", "calls_made", "came"), [(0.4, 3, "completed"), (None, 3, "skipped")], ids=["reserved", "not_reserved"]
)
async def test_prices_keep_the_budget_of_an_adk_agent(reserve: float | None, calls_made: int, came: str) -> None:
    root = agent(*[spending(call("look")) for _ in range(2 if reserve else 3)], spending(say("spent")), say("fresh"))
    options = {**execution(Grace(reserve_usd=reserve), max_budget_usd=1.2), "prices": PRICES}
    async with driven(root, tools=[host_tool("look")], execution=options) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_budget", {"cause": "max_budget", "grace": came})
        assert [event.cost for event in only(desk, Usage)] == [pytest.approx(0.4)] * calls_made
        assert model_calls(root) == calls_made


async def test_a_model_call_that_tells_no_usage_ends_a_turn_that_has_a_budget_before_the_next_one() -> None:
    model = ScriptedLlm(script=[call("look"), say("never"), say("fresh").using(input=1, output=1)])
    root = LlmAgent(name="root", model=model)
    options = {"limits": Constraints(max_budget_usd=9), "prices": PRICES}
    async with driven(root, tools=[host_tool("look")], execution=options) as desk:
        await desk.turn("go")
        assert end_data(desk) == ("max_budget", {"cause": "max_budget"})
        assert model_calls(root) == 1
        (told,) = only(desk, Error)
        assert "did not tell its cost" in told.message
        model.script.pop(0)
        assert (await desk.turn("again")).texts == ["fresh"]
        assert_valid_history(root.model)


async def test_an_answer_of_the_users_own_in_the_place_of_the_model_costs_nothing() -> None:
    answers = [
        LlmResponse(content=types.Content(role="model", parts=[types.Part.from_function_call(name="look", args={})]))
    ]

    def before(callback_context: Any, llm_request: LlmRequest) -> LlmResponse | None:
        return answers.pop() if answers else None

    root = agent(spending(say("done")), before_model_callback=before)
    options = {"limits": Constraints(max_budget_usd=9), "prices": PRICES}
    async with driven(root, tools=[host_tool("look")], execution=options) as desk:
        await desk.turn("go")
        assert end_data(desk)[0] == "completed"
        assert len(only(desk, Usage)) == 1


async def test_a_streamed_call_tells_its_usage_once_and_keeps_its_budget() -> None:
    root = agent(spending(stream("a ", "b ") + call("look")), spending(stream("c ", "d")))
    options = {"limits": Constraints(max_budget_usd=9), "prices": PRICES}
    async with driven(root, tools=[host_tool("look")], execution=options) as desk:
        await desk.turn("go")
        assert end_data(desk)[0] == "completed"
        assert len(only(desk, Usage)) == 2
