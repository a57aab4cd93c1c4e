"""A model call that raises, and what a hook makes of it: called again, on another model, asked about, or failed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.apps.app import App
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from google.genai import errors as genai_errors
from google.genai import types
from tests.adapters.adk.driving import LIMIT_S, agent, driven, history, model_calls
from tests.adapters.adk.hooking import Desk, errors

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, fail, raw, say, stream
from agentsession.protocol import (
    ConfigurationError,
    Constraints,
    FallbackQuestion,
    HookOutcome,
    LifecycleInterceptor,
    MemoryRecordStore,
    Message,
    Price,
    SessionUpdate,
    Usage,
    accept,
    block,
    decline,
    modify,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own parallel agents
]


def provider(code: int, status: str, *details: Any, message: str = "sk-SECRET") -> genai_errors.APIError:
    kind = genai_errors.ClientError if code < 500 else genai_errors.ServerError
    body = {"error": {"code": code, "status": status, "message": message, "details": list(details)}}
    return kind(code, body)


def overloaded() -> genai_errors.APIError:
    return provider(503, "UNAVAILABLE")


class Waits:
    """The executor's wait, which only notes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def models_told(turn: Any) -> list[tuple[str | None, str | None]]:
    return [(event.agent_id, event.model) for event in turn.of("session_update") if event.model]


def answered_by(turn: Any) -> list[str | None]:
    return [event.model for event in turn.of("usage")]


async def test_a_call_that_failed_is_made_again_after_the_hooks_delay() -> None:
    waits, desk = Waits(), Desk(on_model_error=modify(after_s=7.0, by="router"))
    root = agent(overloaded(), say("there"))
    async with driven(root, hooks=desk, retry_wait=waits) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, turn.texts, waits.seconds) == ("completed", ["there"], [7.0])
    assert history(root.model, 0) == history(root.model, 1) == [("user", "go")]
    (told,) = turn.of("custom")
    assert told.data == {
        "point": "on_model_error",
        "action": "modify",
        "changed": ["after_s"],
        "by": "router",
        "from": "scripted",
        "to": "scripted",
        "status": "UNAVAILABLE",
        "code": 503,
        "attempt": 1,
        "afterS": 7.0,
    }


async def test_the_model_that_a_hook_names_is_the_one_that_is_called_and_told_of() -> None:
    spare = ScriptedLlm(model="spare-1", script=[say("from the spare").using(input=3, output=4)])
    root = agent(overloaded())
    desk = Desk(on_model_error=modify(next_model="spare"))
    async with driven(root, hooks=desk, models={"spare": spare}) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, turn.texts) == ("completed", ["from the spare"])
    assert [request.model for request in spare.requests] == ["spare-1"]
    assert models_told(turn) == [("root", "spare")]
    assert answered_by(turn) == ["spare-1"]


async def test_a_model_that_is_changed_before_the_call_is_the_one_that_is_called() -> None:
    spare = ScriptedLlm(model="spare", script=[say("cheap")])
    root = agent(say("dear"), say("dear again"))
    switched = [True, False]
    desk = Desk(before_model=lambda _: modify(model="spare") if switched.pop(0) else None)
    desk_points: LifecycleInterceptor = desk
    async with driven(root, hooks=desk_points, models={"spare": spare}) as driver:
        first, second = await driver.stream("go"), await driver.stream("go")
    assert (first.texts, second.texts) == (["cheap"], ["dear"])
    assert (models_told(first), models_told(second)) == ([("root", "spare")], [("root", "scripted")])


async def test_the_model_of_the_options_is_called_where_the_executor_has_one_of_that_name() -> None:
    spare = ScriptedLlm(model="spare", script=[say("cheap").using(input=1)])
    async with driven(agent(say("dear")), execution={"model": "spare"}, models={"spare": spare}) as driver:
        turn = await driver.stream("go")
    assert (turn.texts, answered_by(turn), models_told(turn)) == (["cheap"], ["spare"], [])


async def test_a_hook_is_told_numbers_and_names_and_never_the_text() -> None:
    details = (
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"},
    )
    desk = Desk(on_model_error=lambda p: modify(after_s=0.0) if p.attempt < 3 else None)
    root = agent(provider(429, "RESOURCE_EXHAUSTED", *details), ConnectionError("sk-SECRET"), fail("sk-SECRET"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert "sk-SECRET" not in "".join(event.to_wire_json() for event in driver.session.record)
    first, second, third = desk.at("on_model_error")
    assert "sk-SECRET" not in first.to_wire_json() + second.to_wire_json() + third.to_wire_json()
    assert (first.code, first.status, first.reason) == (429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED")
    assert (first.retry_after_s, first.exhausted, first.attempt, first.can_retry) == (34.5, False, 1, True)
    assert (second.code, second.status, second.attempt) == (None, "UNAVAILABLE", 2)
    assert (third.code, third.status, third.attempt, third.error_type) == (None, None, 3, "RuntimeError")
    assert (turn.reason, [code for code, _ in errors(turn)]) == ("failed", ["RuntimeError"])


async def test_an_answer_that_broke_off_is_closed_interrupted_and_the_next_is_another_message() -> None:
    desk = Desk(on_model_error=modify(after_s=0.0))
    root = agent(stream("Half ", "an ", "ans") + fail(overloaded()), stream("A whole ", "answer."), say("more"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        await driver.stream("go on")
    assert desk.at("on_model_error")[0].began
    whole = [event for event in turn.of("message") if not event.partial and event.source == "agent"]
    assert [(event.interrupted, event.content[0].text) for event in whole] == [
        (True, "Half an ans"),
        (False, "A whole answer."),
    ]
    assert whole[0].message_id != whole[1].message_id
    deltas = [event.message_id for event in turn.of("message") if event.partial]
    assert deltas == [whole[0].message_id] * 3 + [whole[1].message_id] * 2
    assert turn.reason == "completed"
    assert history(root.model)[:2] == [("user", "go"), ("model", "A whole answer.")]


async def test_repeated_calls_count_against_the_turns_model_calls() -> None:
    desk = Desk(on_model_error=modify(after_s=0.0))
    root = agent(*[overloaded()] * 9)
    async with driven(root, hooks=desk, execution={"limits": Constraints(max_llm_calls=4)}) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, model_calls(root)) == ("max_llm_calls", 4)


async def test_nobody_waits_for_a_call_that_is_one_too_many() -> None:
    waits, desk = Waits(), Desk(on_model_error=modify(after_s=30.0))
    limited = {"limits": Constraints(max_llm_calls=2)}
    async with driven(agent(overloaded(), overloaded()), hooks=desk, execution=limited, retry_wait=waits) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, waits.seconds) == ("max_llm_calls", [30.0])


async def test_what_a_broken_off_answer_has_used_is_told_of_its_model_and_counts() -> None:
    half = LlmResponse(
        content=types.Content(role="model", parts=[types.Part(text="Ha")]),
        partial=True,
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1000, candidates_token_count=2),
    )
    spare = ScriptedLlm(model="spare", script=[say("Whole.").using(input=1000, output=5)])
    options = {
        "limits": Constraints(max_budget_usd=9),
        "prices": {name: Price(input=1, output=1) for name in ("scripted", "spare")},
    }
    desk = Desk(on_model_error=modify(next_model="spare"))
    root = agent(raw(half) + fail(overloaded()))
    async with driven(root, hooks=desk, execution=options, models={"spare": spare}) as driver:
        turn = await driver.stream("go")
    assert turn.reason == "completed"
    assert [(usage.model, usage.output_tokens) for usage in turn.of("usage")] == [("scripted", 2), ("spare", 5)]


async def test_a_call_that_is_made_again_is_no_further_step() -> None:
    desk = Desk(on_model_error=modify(after_s=0.0))
    root = agent(overloaded(), call("look"), say("done"), tools=[look])
    async with driven(root, hooks=desk, execution={"limits": Constraints(max_turns=2)}) as driver:
        assert (await driver.turn("go")).reason == "completed"


async def test_a_repeated_call_is_asked_what_the_first_was_whatever_a_model_did_to_its_request() -> None:
    def spoil(request: LlmRequest) -> Exception:
        request.contents.append(types.Content(role="user", parts=[types.Part(text="added by a model")]))
        request.config.temperature = 2.0
        return overloaded()

    root = agent(spoil, spoil, say("done"))
    async with driven(root, hooks=Desk(on_model_error=modify(after_s=0.0))) as driver:
        await driver.stream("go")
    assert isinstance(root.model, ScriptedLlm)
    assert [history(root.model, number) for number in range(3)] == [[("user", "go")]] * 3
    assert root.model.requests[2].config.temperature is None


async def test_an_abort_ends_the_wait_at_once() -> None:
    waiting, ended_early = anyio.Event(), list[bool]()

    async def wait(seconds: float) -> None:
        waiting.set()
        await anyio.sleep_forever()

    root, turns = agent(overloaded(), say("late")), list[Any]()
    desk = Desk(on_model_error=modify(after_s=300.0))
    async with driven(root, hooks=desk, retry_wait=wait) as driver:
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as tasks:

                async def abort() -> None:
                    await waiting.wait()
                    tasks.start_soon(driver.session.abort, "enough")
                    for _ in range(500):  # what can happen in no time, so before anybody's patience is over
                        await anyio.lowlevel.checkpoint()
                    ended_early.append(bool(turns))

                tasks.start_soon(abort)
                turns.append(await driver.stream("go"))
    assert (turns[0].reason, model_calls(root), ended_early) == ("aborted", 1, [True])


def asking(payload: Any) -> HookOutcome | None:
    if payload.answer is None:
        schema = {"type": "object", "properties": {"intent": {"enum": ["retry_once", "stop"]}}, "required": ["intent"]}
        return modify(ask=FallbackQuestion(message="scripted is overloaded. Use spare?", requested_schema=schema))
    if payload.answer.get("content") == {"intent": "retry_once"}:
        return modify(next_model="spare")
    return modify(fail_as="MODEL_UNAVAILABLE", reason="no model is left")


async def test_a_person_is_asked_and_the_answer_comes_back_to_the_hook() -> None:
    spare = ScriptedLlm(model="spare", script=[say("from the spare")])
    desk = Desk(on_model_error=asking)
    async with driven(agent(stream("Ha", "lf") + fail(overloaded())), hooks=desk, models={"spare": spare}) as driver:
        waiting = await driver.stream("go")
        (question,) = waiting.of("elicitation_request")
        assert (waiting.reason, question.kind, question.agent_id) == ("input_required", "model_fallback", "root")
        assert [event.interrupted for event in waiting.of("message") if not event.partial][1:] == [True]
        done = await driver.stream(accept(question.request_id, {"intent": "retry_once"}))
    assert (done.reason, done.texts) == ("completed", ["from the spare"])
    assert [payload.answer for payload in desk.at("on_model_error")] == [
        None,
        {"action": "accept", "content": {"intent": "retry_once"}},
    ]


async def test_a_hook_gives_the_failure_its_code() -> None:
    desk = Desk(on_model_error=asking)
    async with driven(agent(overloaded()), hooks=desk) as driver:
        await driver.stream("go")
        done = await driver.stream(decline(driver.pending("model_fallback")))
    assert (done.reason, errors(done)) == ("failed", [("MODEL_UNAVAILABLE", "no model is left")])
    assert done.of("error")[0].status == "UNAVAILABLE"


@pytest.mark.parametrize(
    "answer",
    [
        modify(ask=FallbackQuestion(message="again?", requested_schema={}), by="asks-for-ever"),
        modify(next_model="spare", content="and text"),
        modify(after_s=-1),
        modify(fail_as="not a code"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_a_failure_of_the_hook_and_the_call_fails(answer: HookOutcome) -> None:
    async with driven(agent(overloaded()), hooks=Desk(on_model_error=answer)) as driver:
        turn = await driver.stream("go")
        if turn.reason == "input_required":
            turn = await driver.stream(accept(driver.pending("model_fallback"), {}))
    assert (turn.reason, [code for code, _ in errors(turn)]) == ("failed", ["hook-failed", "503"])


async def test_an_answer_in_the_models_place_and_a_block_are_as_ever() -> None:
    desk = Desk(on_model_error=lambda p: block("sorry") if p.attempt == 1 else None)
    async with driven(agent(overloaded()), hooks=desk) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, turn.texts) == ("completed", ["sorry"])


async def test_a_call_that_raised_after_its_whole_answer_cannot_be_made_again() -> None:
    desk = Desk(on_model_error=modify(after_s=0.0))
    root = agent(lambda _: _raising_after("whole"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
    assert not desk.at("on_model_error")[0].can_retry
    assert turn.reason == "failed"
    assert errors(turn)[0][0] == "hook-failed"


def _raising_after(text: str) -> Any:
    return raw(LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))) + fail(overloaded())


async def test_agents_at_once_and_children_are_repeated_each_on_its_own() -> None:
    left, right = agent(overloaded(), say("left"), name="left"), agent(overloaded(), say("right"), name="right")
    desk = Desk(on_model_error=modify(after_s=0.0))
    async with driven(ParallelAgent(name="both", sub_agents=[left, right]), hooks=desk) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, sorted(turn.texts)) == ("completed", ["left", "right"])

    child = agent(stream("ha", "lf") + fail(overloaded()), stream("look", "ed"), name="looker")
    root = agent(call("looker", {"request": "x"}), say("done"), tools=[AgentTool(child)])
    async with driven(root, hooks=desk) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, turn.texts[-1]) == ("completed", "done")
    assert (history(root.model)[-1][0][:6], history(root.model)[-1][1][12:18]) == ("result", "looked")


async def test_the_users_agent_is_put_back_and_its_callbacks_see_the_call() -> None:
    seen: list[Any] = []

    def before(callback_context: Any, llm_request: LlmRequest) -> None:
        seen.append(callback_context._invocation_context.agent.name)

    root = agent(overloaded(), call("look"), say("done"), tools=[look], before_model_callback=before)
    plain = dict(vars(root))
    async with driven(root, hooks=Desk(on_model_error=modify(after_s=0.0))) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, seen) == ("completed", ["root", "root"])
    assert dict(vars(root)) == plain


def look() -> str:
    """Look."""
    return "looked"


async def test_the_models_that_agents_call_are_known_after_a_load() -> None:
    store = MemoryRecordStore()
    spare = ScriptedLlm(model="spare", script=[say("from the spare")])
    root = agent(overloaded(), say("back"), say("on"))
    async with AdkExecutor(root, store=store, models={"spare": spare}) as executor:
        session = await executor.open(hooks=Desk(on_model_error=modify(next_model="spare")))
        async with session.stream("go") as events:
            _ = [event async for event in events]
        await session.aclose()
        loaded = await executor.load(session.session_id, hooks=Desk())
        for _ in range(2):
            async with loaded.stream("go") as events:
                _ = [event async for event in events]
        told = [event.model for event in loaded.record if isinstance(event, SessionUpdate) and event.model]
        assert told == ["spare", "scripted"]
        assert [event.interrupted for event in loaded.record if isinstance(event, Message)] == [False] * 6
        assert not [event for event in loaded.record if isinstance(event, Usage)]
        await loaded.aclose()


def test_a_table_of_models_holds_models() -> None:
    with pytest.raises(ConfigurationError, match="no model of ADK"):
        AdkExecutor(LlmAgent(name="root"), models={"a": "gemini"})  # type: ignore[dict-item]  # what the check is for


@pytest.mark.parametrize("dropped", ["function_call", "function_response"])
async def test_a_hook_cannot_part_a_call_from_its_result(dropped: str) -> None:
    def cut(payload: Any) -> HookOutcome | None:
        kept = [item for item in payload.contents if item.content[0].type != dropped]
        return modify(contents=kept) if len(kept) < len(payload.contents) else None

    root = agent(call("look"), say("never"), tools=[look])
    async with driven(root, hooks=Desk(before_model=cut)) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, model_calls(root)) == ("aborted", 1)
    assert errors(turn)[0][0] == "hook-failed"


async def test_a_hook_can_show_other_results_and_drop_whole_pairs() -> None:
    def show(payload: Any) -> HookOutcome | None:
        if payload.contents[-1].content[0].type != "function_response":
            return modify(contents=payload.contents[:1]) if len(payload.contents) > 2 else None
        part = payload.contents[-1].content[0]
        less = part.model_copy(update={"response": {"result": "less"}})
        return modify(contents=[*payload.contents[:-1], payload.contents[-1].model_copy(update={"content": [less]})])

    root = agent(call("look", id="c1"), say("one"), say("two"), tools=[look])
    async with driven(root, hooks=Desk(before_model=show)) as driver:
        await driver.turn("go")
        await driver.turn("on")
    assert history(root.model, 1) == [("user", "go"), ("call c1", "look"), ("result c1", '{"result": "less"}')]
    assert history(root.model, 2) == [("user", "go")]


async def test_without_streaming_a_call_is_made_again_as_well() -> None:
    spare = ScriptedLlm(model="spare", script=[stream("from ", "the spare")])
    root = agent(stream("ha", "lf") + fail(overloaded()))
    desk = Desk(on_model_error=modify(next_model="spare"))
    async with driven(root, hooks=desk, models={"spare": spare}, execution={"streaming": False}) as driver:
        turn = await driver.stream("go")
    assert (turn.reason, turn.texts, desk.at("on_model_error")[0].began) == ("completed", ["from the spare"], False)


async def test_agents_of_a_graph_and_those_that_are_handed_over_to_are_repeated() -> None:
    first, second = agent(overloaded(), say("one"), name="first"), agent(overloaded(), say("two"), name="second")
    graph = Workflow(name="graph", edges=[("START", first), (first, second)])
    desk = Desk(on_model_error=modify(after_s=0.0))
    async with driven(graph, hooks=desk) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, turn.texts) == ("completed", ["one", "two"])

    other = agent(overloaded(), say("other here"), name="other")
    root = agent(overloaded(), call("transfer_to_agent", {"agent_name": "other"}), sub_agents=[other])
    async with driven(root, hooks=desk) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, turn.texts[-1]) == ("completed", "other here")


async def test_a_plugin_that_answers_in_the_models_place_leaves_the_agent_in_its_place() -> None:
    class Cache(BasePlugin):
        async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> Any:
            seen.append(callback_context._invocation_context.agent)
            return answers.pop(0)

    made = types.Part(function_call=types.FunctionCall(name="look", args={}, id="c1"))
    answers: list[Any] = [LlmResponse(content=types.Content(role="model", parts=[made])), None]
    seen: list[Any] = []
    root = agent(say("done"), tools=[look])
    app = App(name="root", root_agent=root, plugins=[Cache(name="cache")])
    async with driven(app, hooks=Desk(on_model_error=modify(after_s=0.0))) as driver:
        turn = await driver.turn("go")
    assert (turn.reason, turn.texts, [one.name for one in seen]) == ("completed", ["done"], ["root", "root"])


async def test_a_question_about_a_model_does_not_outlive_its_process_and_the_session_goes_on() -> None:
    kept: dict[str, Any] = {"store": MemoryRecordStore(), "session_service": InMemorySessionService()}
    desk = Desk(on_model_error=asking)
    async with AdkExecutor(agent(overloaded()), **kept) as executor:
        session = await executor.open(hooks=desk)
        async with session.stream("go") as events:
            _ = [event async for event in events]
        assert events.end is not None
        assert events.end.reason == "input_required"
        assert list((events.end.data or {})["volatile"]) == [session.pending[0].request_id]
    async with AdkExecutor(agent(say("on")), **kept) as executor:
        loaded = await executor.load(session.session_id, hooks=desk)
        assert not loaded.pending
        async with loaded.stream("go on") as events:
            _ = [event async for event in events]
        assert events.end is not None
        assert events.end.reason == "completed"
        await loaded.aclose()


async def test_an_abort_while_the_person_is_asked_ends_the_turn() -> None:
    async with driven(agent(overloaded()), hooks=Desk(on_model_error=asking)) as driver:
        await driver.stream("go")
        await driver.session.abort("enough")
        assert not driver.session.pending
        assert driver.types("stream_end", "error")[-1] == "stream_end"
