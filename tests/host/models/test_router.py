"""The router in a whole host with a real ADK agent: what is called, what is recorded, who is asked."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.genai import errors as genai_errors

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, fail, say, stream
from agentsession.host import Host, ScriptedChannel, SubagentTool, TurnResult, allow_all
from agentsession.host.models import ModelRouter
from agentsession.protocol import (
    AgentSession,
    ConfigurationError,
    ElicitationRequest,
    Event,
    ModelRequestHook,
    OpenOptions,
    SessionConfig,
    Text,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def provider(code: int, *details: Any, message: str = "sk-SECRET") -> genai_errors.APIError:
    status = {
        429: "RESOURCE_EXHAUSTED",
        503: "UNAVAILABLE",
        404: "NOT_FOUND",
        500: "INTERNAL",
        400: "INVALID_ARGUMENT",
    }[code]
    kind = genai_errors.ClientError if code < 500 else genai_errors.ServerError
    return kind(code, {"error": {"code": code, "status": status, "message": message, "details": list(details)}})


SPENT = {"@type": "QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}


class Rig:
    """A host with models that answer from scripts; nothing sleeps, and the clock stands."""

    def __init__(self, models: dict[str, list[Any]], router: ModelRouter, tools: list[Any], **host: Any) -> None:
        self.models = {name: ScriptedLlm(model=name, script=script) for name, script in models.items()}
        self.agent = LlmAgent(name="root", model=next(iter(self.models.values())), tools=tools)
        self.host = Host(policy=allow_all, hooks=[router], observer=self._note, **host)
        self.events: list[Event] = []
        self.waits: list[float] = []
        self.called: list[str] = []
        for model in self.models.values():
            model.script = [self._counted(model.model, item) for item in model.script]

    def _counted(self, name: str, item: Any) -> Callable[[Any], Any]:
        def answer(_: Any) -> Any:
            self.called.append(name)
            return item

        return answer

    def _note(self, event: Event) -> None:
        self.events.append(event)

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    @asynccontextmanager
    async def session(self, options: OpenOptions | None = None) -> AsyncIterator[AgentSession]:
        async with (
            AdkExecutor(self.agent, models=self.models, retry_wait=self._wait) as executor,
            self.host.session(executor, options) as session,
        ):
            yield session

    async def turns(self, *messages: str) -> list[TurnResult]:
        async with self.session() as session:
            return [await self.host.run_turn(session, message) for message in messages]

    def recorded(self) -> list[str]:
        """The models that the record says agents went over to."""
        return [str(event.model) for event in self.events if event.type == "session_update" and event.model]  # type: ignore[attr-defined]  # SessionUpdate has

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]


def rig(
    models: dict[str, list[Any]], *fallbacks: str, tools: Any = (), host: dict[str, Any] | None = None, **router: Any
) -> Rig:
    made = ModelRouter(fallbacks, clock=router.pop("clock", lambda: 0.0), rng=random.Random(7), **router)
    return Rig(models, made, list(tools), **(host or {}))


def look() -> str:
    """Look."""
    return "looked"


async def test_the_next_model_answers_and_the_record_says_so() -> None:
    desk = rig({"a": [provider(429, SPENT)], "b": [say("from b").using(input=1, output=2), say("again")]}, "b")
    first, second = await desk.turns("go", "and?")
    assert (first.end.reason, first.text, second.text) == ("completed", "from b", "again")
    assert (desk.called, desk.recorded(), desk.waits) == (["a", "b", "b"], ["b"], [])
    assert [usage.model for usage in desk.of("usage")] == ["b"]
    why = [event.data["reason"] for event in desk.of("custom") if event.data["point"] == "on_model_error"]
    assert why == ["a has no quota left (429 RESOURCE_EXHAUSTED)"]
    assert "sk-SECRET" not in "".join(event.to_wire_json() for event in desk.events)


async def test_an_overloaded_model_is_tried_again_shortly_and_then_the_next() -> None:
    desk = rig({"a": [provider(503)] * 9, "b": [say("from b")]}, "b")
    (turn,) = await desk.turns("go")
    assert (turn.text, desk.called, desk.waits) == ("from b", ["a", "a", "a", "b"], [1.0, 3.0])


async def test_without_another_model_one_is_tried_ten_times_and_the_turn_fails_by_its_code() -> None:
    desk = rig({"a": [provider(503)] * 20})
    (turn,) = await desk.turns("go")
    assert (turn.end.reason, len(desk.called), len(desk.waits)) == ("failed", 10, 9)
    assert [event.code for event in desk.of("error")] == ["MODEL_UNAVAILABLE"]
    assert desk.of("error")[0].message == "no model is left: a is overloaded (503 UNAVAILABLE)"
    assert 3.5 <= desk.waits[0] <= 6.5
    assert 21 <= desk.waits[-1] <= 39


async def test_each_model_is_gone_over_to_once_and_what_is_recorded_is_what_was_called() -> None:
    desk = rig({"a": [provider(429, SPENT)] * 5, "b": [provider(503)] * 5, "c": [provider(404)] * 5}, "b", "c")
    (turn,) = await desk.turns("go")
    assert (turn.end.reason, desk.called, desk.recorded(), desk.waits) == ("failed", ["a", "b", "c"], ["b", "c"], [])
    assert "a has no quota left" in desk.of("error")[0].message
    assert "c does not exist" in desk.of("error")[0].message


async def test_a_model_that_was_tried_for_an_answer_is_not_gone_back_to() -> None:
    desk = rig({"a": [provider(500)] * 9, "b": [provider(500)] * 9}, "b")
    (turn,) = await desk.turns("go")
    assert (turn.end.reason, desk.called) == ("failed", ["a", "a", "a", "b"])


async def test_what_no_other_call_helps_fails_at_once_as_it_did() -> None:
    desk = rig({"a": [provider(400)], "b": [say("never")]}, "b")
    (turn,) = await desk.turns("go")
    assert (turn.end.reason, desk.called, [event.code for event in desk.of("error")]) == ("failed", ["a"], ["400"])


async def test_the_provider_says_how_long_to_wait() -> None:
    retry = {"@type": "google.rpc.RetryInfo", "retryDelay": "20s"}
    desk = rig({"a": [provider(429, retry), say("there")]})
    (turn,) = await desk.turns("go")
    assert turn.text == "there"
    assert 20 <= desk.waits[0] <= 24
    assert len(desk.waits) == 1


async def test_a_half_answer_is_left_interrupted_and_another_model_says_it_anew() -> None:
    desk = rig({"a": [stream("Half", " of") + fail(provider(429, SPENT))], "b": [stream("All ", "of it")]}, "b")
    (turn,) = await desk.turns("go")
    said = [(event.interrupted, event.content[0].text) for event in desk.of("message") if not event.partial]
    assert said[1:] == [(True, "Half of"), (False, "All of it")]
    assert turn.text.endswith("All of it")


async def test_a_fallback_holds_through_the_tool_calls_and_the_next_message_goes_back_once_the_model_is_well() -> None:
    now = [0.0]
    models: dict[str, list[Any]] = {
        "a": [*[provider(503)] * 3, say("a is back")],
        "b": [call("look"), say("b is done")],
    }
    desk = rig(models, "b", tools=[look], clock=lambda: now[0])
    async with desk.session() as session:
        first = await desk.host.run_turn(session, "go")
        now[0] = 31.0
        second = await desk.host.run_turn(session, "more")
    assert (first.text, second.text) == ("b is done", "a is back")
    assert (desk.called, desk.recorded()) == (["a", "a", "a", "b", "b", "a"], ["b", "a"])


async def test_a_model_that_is_down_is_not_called_by_other_sessions_and_their_choice_is_their_own() -> None:
    now = [0.0]
    models: dict[str, list[Any]] = {"a": [*[provider(503)] * 3, say("a again")], "b": [say("b one"), say("b two")]}
    desk = rig(models, "b", clock=lambda: now[0])
    async with AdkExecutor(desk.agent, models=desk.models, retry_wait=desk._wait) as executor:
        async with desk.host.session(executor) as one, desk.host.session(executor) as two:
            await desk.host.run_turn(one, "go")
            await desk.host.run_turn(two, "go")
            now[0] = 31.0
            await desk.host.run_turn(two, "go")
    assert desk.called == ["a", "a", "a", "b", "b", "a"]


async def test_what_is_used_for_a_model_that_is_down_stays_until_the_tool_calls_are_done() -> None:
    now = [0.0]

    def later(_: Any) -> Any:
        desk.called.append("b")
        now[0] = 31.0
        return call("look")

    models: dict[str, list[Any]] = {"a": [provider(503)] * 3, "b": [say("b one"), later, say("b two")]}
    desk = rig(models, "b", tools=[look], clock=lambda: now[0])
    desk.models["b"].script[1] = later
    async with AdkExecutor(desk.agent, models=desk.models, retry_wait=desk._wait) as executor:
        async with desk.host.session(executor) as one, desk.host.session(executor) as two:
            await desk.host.run_turn(one, "go")
            turn = await desk.host.run_turn(two, "go")
    assert (turn.text, desk.called) == ("b two", ["a", "a", "a", "b", "b", "b"])


async def test_a_childs_fallback_does_not_move_its_parent() -> None:
    child_model = ScriptedLlm(model="c", script=[provider(429, SPENT), say("unused")])
    child = LlmAgent(name="helper", model=child_model)
    desk = rig(
        {"a": [call("helper", {"request": "x"}), say("done")], "b": [say("helped")]}, "b", tools=[AgentTool(child)]
    )
    (turn,) = await desk.turns("go")
    assert (turn.text, desk.called) == ("done", ["a", "b", "a"])
    assert [(event.agent_id, event.model) for event in desk.of("session_update")] == [("helper", "b")]


async def test_a_childs_fallback_does_not_move_a_parent_of_the_same_model() -> None:
    script = [call("helper", {"request": "x"}), *[provider(500)] * 3, say("done")]
    desk = rig({"a": script, "b": [say("helped")]}, "b", tools=[])
    desk.agent.tools.append(AgentTool(LlmAgent(name="helper", model=desk.models["a"])))
    (turn,) = await desk.turns("go")
    assert (turn.text, desk.called) == ("done", ["a", "a", "a", "a", "b", "a"])


def choose(intent: str) -> ScriptedChannel:
    return ScriptedChannel(answers={"model_fallback": ("accept", {"intent": intent})})


async def test_a_person_who_says_once_has_the_next_call_on_the_first_model_again() -> None:
    channel = choose("retry_once")
    desk = rig(
        {"a": [provider(429, SPENT), say("a again")], "b": [call("look")]},
        "b",
        tools=[look],
        policy="ask",
        host={"channel": channel},
    )
    (turn,) = await desk.turns("go")
    assert (turn.text, desk.called, desk.recorded()) == ("a again", ["a", "b", "a"], ["b", "a"])
    (asked,) = [request for request, _ in channel.asked if isinstance(request, ElicitationRequest)]
    assert (asked.kind, asked.message) == (
        "model_fallback",
        "a has no quota left (429 RESOURCE_EXHAUSTED). Use b instead?",
    )
    assert asked.context == {"model": "a", "fallback": "b", "kind": "terminal", "code": 429, "calls": 1} | {
        "status": "RESOURCE_EXHAUSTED"
    }


async def test_a_person_who_says_always_moves_the_session_until_its_model_is_set_anew() -> None:
    desk = rig(
        {"a": [provider(429, SPENT), say("a again")], "b": [say("one"), say("two")], "c": [say("set")]},
        "b",
        policy="ask",
        host={"channel": choose("retry_always")},
    )
    async with desk.session() as session:
        for message in ("go", "more"):
            await desk.host.run_turn(session, message)
        await session.update(SessionConfig(model="c"))
        await desk.host.run_turn(session, "on c")
        await session.update(SessionConfig(model="a"))
        await desk.host.run_turn(session, "on a")
    assert desk.called == ["a", "b", "b", "c", "a"]


@pytest.mark.parametrize("intent", ["stop", "retry_later", "upgrade"])
async def test_any_other_word_stops_and_changes_nothing(intent: str) -> None:
    desk = rig(
        {"a": [provider(429, SPENT), say("a again")], "b": [say("never")]},
        "b",
        policy="ask",
        host={"channel": choose(intent)},
    )
    first, second = await desk.turns("go", "again")
    assert (first.end.reason, second.text, desk.called) == ("failed", "a again", ["a", "a"])
    assert [event.code for event in desk.of("error")] == ["MODEL_UNAVAILABLE"]


async def test_where_nobody_can_be_asked_the_turn_stops() -> None:
    desk = rig({"a": [provider(429, SPENT)], "b": [say("never")]}, "b", policy={"a": "ask"})
    (turn,) = await desk.turns("go")
    assert (turn.end.reason, desk.called) == ("failed", ["a"])
    assert [event.code for event in desk.of("error")] == ["MODEL_UNAVAILABLE"]


async def test_a_route_holds_while_the_agent_works_and_is_asked_anew_when_somebody_speaks() -> None:
    seen: list[int] = []

    def short(request: ModelRequestHook) -> str | None:
        words = sum(len(part.text) for part in request.contents[-1].content if isinstance(part, Text))
        seen.append(words)
        return "b" if words < 10 else None

    desk = rig({"a": [say("a, thoroughly")], "b": [call("look"), say("b, briefly")]}, route=short, tools=[look])
    first, second = await desk.turns("short", "a long question, all told")
    assert (first.text, second.text) == ("b, briefly", "a, thoroughly")
    assert (desk.called, desk.recorded(), len(seen)) == (["b", "b", "a"], ["b", "a"], 2)


async def test_a_routing_that_fails_leaves_the_agents_own_model() -> None:
    def broken(request: ModelRequestHook) -> str | None:
        raise ValueError("no")

    desk = rig({"a": [say("a")], "b": []}, route=broken)
    (turn,) = await desk.turns("go")
    assert (turn.text, desk.called) == ("a", ["a"])


def test_names_and_policies_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        ModelRouter([""])
    with pytest.raises(ConfigurationError):
        ModelRouter(policy="loud")  # type: ignore[arg-type]  # what the check is for


async def test_the_fallback_of_a_sub_agent_of_the_host_does_not_move_its_caller() -> None:
    desk = rig({"a": [call("helper", {"task": "x"}), *[provider(500)] * 3, say("done")], "b": [say("helped")]}, "b")
    child = AdkExecutor(LlmAgent(name="helper", model=desk.models["a"]), models=desk.models, retry_wait=desk._wait)
    async with child:
        host = Host(
            tools=[SubagentTool(child)],
            policy=allow_all,
            hooks=[ModelRouter(["b"], clock=lambda: 0.0)],
            observer=desk._note,
        )
        async with AdkExecutor(desk.agent, models=desk.models, retry_wait=desk._wait) as executor:
            async with host.session(executor) as session:
                turn = await host.run_turn(session, "go")
    assert (turn.text, desk.called) == ("done", ["a", "a", "a", "a", "b", "a"])
