"""The user's own plugins and callbacks beside the gate and the host's hooks: all are called, in their order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.apps.app import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from tests.adapters.adk.driving import agent, driven, history, host_tool, model_calls
from tests.adapters.adk.hooking import Desk, said

from agentsession.adapters.adk import call, say
from agentsession.protocol import HookOutcome, modify, result

pytestmark = pytest.mark.anyio

CALLBACKS = sorted(
    name for name, _ in inspect.getmembers(BasePlugin, inspect.iscoroutinefunction) if name.endswith("_callback")
)


class Witness(BasePlugin):
    """A user's plugin with every callback that ADK has; each is told to ``seen`` and answers nothing."""

    def __init__(self, seen: list[str], mark: str = "plugin", **answers: Callable[..., Any]) -> None:
        super().__init__(name=mark)
        for name in CALLBACKS:

            async def callback(*, _name: str = name, **given: Any) -> Any:
                seen.append(f"{mark}:{_name.removesuffix('_callback')}")
                return answers[_name](**given) if _name in answers else None

            setattr(self, name, callback)


class Told(Desk):
    """Hooks that tell the same list as the plugins."""

    def __init__(self, told: list[str], **answers: Any) -> None:
        super().__init__(**answers)
        self._told = told

    def fire(self, hook_point: str, payload: Any, /) -> Any:
        self._told.append(f"hook:{hook_point}")
        return super().fire(hook_point, payload)


def write(path: str) -> dict[str, Any]:
    """Write a file."""
    return {"written": path}


def broken(path: str) -> dict[str, Any]:
    """Fail."""
    raise RuntimeError(path)


def app(root: Any, *plugins: BasePlugin) -> App:
    return App(name="app", root_agent=root, plugins=list(plugins))


async def test_adk_has_the_plugin_callbacks_that_the_gate_knows() -> None:
    """A new one in a later ADK would pass the host's hooks by."""
    assert CALLBACKS == [
        "after_agent_callback",
        "after_model_callback",
        "after_run_callback",
        "after_tool_callback",
        "before_agent_callback",
        "before_model_callback",
        "before_run_callback",
        "before_tool_callback",
        "on_agent_error_callback",
        "on_event_callback",
        "on_model_error_callback",
        "on_run_error_callback",
        "on_tool_error_callback",
        "on_user_message_callback",
    ]


@pytest.mark.parametrize("hooked", [False, True])
async def test_every_callback_of_two_plugins_is_called_in_their_order_and_after_the_hooks(hooked: bool) -> None:
    seen: list[str] = []
    root = agent(
        call("write", {"path": "a"}, id="c1"),
        call("broken", {"path": "a"}, id="c2"),
        say("done"),
        tools=[write, broken],
    )
    made = app(root, Witness(seen, "one"), Witness(seen, "two"))
    async with driven(made, hooks=Told(seen) if hooked else None) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        assert driver.responses() == {"write": "completed", "broken": "failed"}
    fired = [name for name in seen if not name.startswith("hook:session_")]
    points = [name.removeprefix("one:") for name in fired if name.startswith("one:")]
    assert points[:5] == ["on_user_message", "before_run", "before_agent", "before_model", "after_model"]
    assert set(points) >= {"before_tool", "after_tool", "on_tool_error", "on_event", "after_agent", "after_run"}
    assert [name.removeprefix("two:") for name in fired if name.startswith("two:")] == points
    for point in set(points):
        of_point = [name.partition(":")[0] for name in fired if name.endswith(f":{point}")]
        assert of_point == (["hook", "one", "two"] if hooked else ["one", "two"]) * points.count(point), point


async def test_a_failed_model_is_told_to_hooks_and_plugins() -> None:
    seen: list[str] = []
    async with driven(app(agent(RuntimeError("x")), Witness(seen)), hooks=Told(seen)) as driver:
        assert (await driver.stream("go")).reason == "failed"
    for point in ("on_model_error", "on_agent_error", "on_run_error"):
        assert [name for name in seen if name.endswith(f":{point}")] == [f"hook:{point}", f"plugin:{point}"]


async def test_callbacks_of_the_agent_work_on_what_the_hooks_left_them() -> None:
    """Each kind of an agent's callbacks: none is skipped because a hook changed something, and each sees the change."""
    seen: dict[str, Any] = {}

    def before_agent(callback_context: Any) -> None:
        seen["before_agent"] = callback_context.agent_name

    def after_agent(callback_context: Any) -> None:
        seen["after_agent"] = callback_context.agent_name

    def before_model(callback_context: Any, llm_request: Any) -> None:
        seen.setdefault("before_model", llm_request.config.temperature)

    def after_model(callback_context: Any, llm_response: Any) -> None:
        seen["after_model"] = llm_response.content.parts[0].text

    def before_tool(tool: Any, args: Any, tool_context: Any) -> None:
        seen["before_tool"] = dict(args)

    def after_tool(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> dict[str, Any]:
        seen["after_tool"] = dict(tool_response)
        return {**tool_response, "seen": True}

    root = agent(
        call("write", {"path": "a"}, id="c1"),
        say("done"),
        tools=[write],
        before_agent_callback=before_agent,
        after_agent_callback=after_agent,
        before_model_callback=before_model,
        after_model_callback=after_model,
        before_tool_callback=before_tool,
        after_tool_callback=after_tool,
    )
    desk = Desk(
        before_model=modify(config={"temperature": 0.25}),
        after_model=lambda p: modify(content="finished") if said(p.content) == "done" else None,
        before_tool=modify(args={"path": "b"}),
        after_tool=modify(data={"written": "***"}),
    )
    async with driven(root, hooks=desk) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["finished"])
        (response,) = turn.of("tool_response")
        assert response.data == {"written": "***", "seen": True}
    assert seen == {
        "before_agent": "root",
        "after_agent": "root",
        "before_model": 0.25,
        "after_model": "finished",
        "before_tool": {"path": "b"},
        "after_tool": {"written": "***"},
    }


@pytest.mark.parametrize("hooked", [False, True])
async def test_r71_what_a_plugin_answers_before_the_run_passes_the_same_hooks_as_any_message(hooked: bool) -> None:
    seen: list[str] = []
    content = types.Content(role="model", parts=[types.Part(text="blocked: pin 4711")])
    guard = Witness(seen, before_run_callback=lambda **_: content)
    root = agent(say("never"))
    desk = Desk(on_event=lambda p: modify(content=said(p.content).replace("4711", "***")))
    async with driven(app(root, guard), hooks=desk if hooked else None) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, model_calls(root)) == ("completed", 0)
        assert turn.texts == ["blocked: pin ***" if hooked else "blocked: pin 4711"]
        kinds = [event.type for event in turn.events if event.type in ("agent_start", "message", "agent_end")]
        assert kinds == ["message", "agent_start", "message", "agent_end"]
    assert "plugin:on_event" in seen


async def test_r71_a_plugin_may_answer_before_the_run_of_a_child() -> None:
    seen: list[str] = []

    def answer(invocation_context: Any) -> Any:
        if invocation_context.agent.name == "child":
            return types.Content(role="model", parts=[types.Part(text="no children")])
        return None

    child = agent(say("never"), name="child")
    root = agent(call("child", {"request": "x"}, id="c1"), say("done"), tools=[AgentTool(child)])
    async with driven(app(root, Witness(seen, before_run_callback=answer)), hooks=Desk()) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts[-1], model_calls(child)) == ("completed", "done", 0)
        assert "no children" in dict(history(root.model))["result c1"]


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_plugin_that_replaces_a_result_has_the_last_word_on_what_model_and_record_read(hooked: bool) -> None:
    seen: list[str] = []
    got: list[Any] = []

    def replace(**given: Any) -> dict[str, Any]:
        got.append(dict(given["result"]))
        return {"replaced": True}

    desk = Desk(after_tool=modify(data={"by": "hook"}))
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[write])
    made = app(root, Witness(seen, after_tool_callback=replace))
    async with driven(made, hooks=desk if hooked else None) as driver:
        turn = await driver.turn("go")
        (response,) = turn.of("tool_response")
        assert response.data == {"replaced": True}
        assert dict(history(root.model))["result c1"] == '{"replaced": true}'
    assert got == [{"by": "hook"} if hooked else {"written": "a"}]


async def test_a_plugin_that_answers_in_the_models_place_is_mapped_and_passes_the_hook_of_events() -> None:
    seen: list[str] = []
    from google.adk.models.llm_response import LlmResponse

    answer = LlmResponse(content=types.Content(role="model", parts=[types.Part(text="cached")]))
    root = agent(say("never"))
    desk = Desk()
    async with driven(app(root, Witness(seen, before_model_callback=lambda **_: answer)), hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, model_calls(root)) == ("completed", ["cached"], 0)
    assert [said(payload.content) for payload in desk.at("on_event")] == ["cached"]


@pytest.mark.parametrize("answer", [None, HookOutcome()], ids=["none", "proceed"])
async def test_a_hook_that_lets_pass_changes_no_record(answer: Any) -> None:
    records: list[list[str]] = []
    points = ("before_model", "before_tool", "after_tool", "on_event")
    for hooks in (None, Desk(**{point: lambda _: answer for point in points})):
        root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[write])
        async with driven(root, hooks=hooks) as driver:
            await driver.turn("go")
            records.append(driver.types())
    assert records[0] == records[1]


# -- plugins that give calls other ids ---------------------------------------------------------------------------------


def renamed(event: Any, marked: Callable[[Any], list[Any]]) -> Any:
    for item in marked(event):
        item.id = f"re-{item.id}"
    if event.long_running_tool_ids:
        event.long_running_tool_ids = {f"re-{call_id}" for call_id in event.long_running_tool_ids}
    return event


def other_calls(event: Any, **_: Any) -> Any:
    if event.partial or not event.get_function_calls():
        return None
    return renamed(event.model_copy(deep=True), lambda made: made.get_function_calls())


def other_results(event: Any, **_: Any) -> Any:
    if event.partial or not event.get_function_responses():
        return None
    return renamed(event.model_copy(deep=True), lambda made: made.get_function_responses())


def very_calls(event: Any, **_: Any) -> None:
    renamed(event, lambda made: made.get_function_calls())


def very_results(event: Any, **_: Any) -> None:
    renamed(event, lambda made: made.get_function_responses())


@pytest.mark.rule("TOOL-01")
@pytest.mark.parametrize("rewrite", [other_calls, other_results, very_calls, very_results])
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("call_id", ["c1", None])
async def test_calls_are_answered_once_whatever_ids_a_plugin_gives_their_events(
    rewrite: Callable[..., Any], parked: bool, call_id: str | None
) -> None:
    ran: list[str] = []

    def note(path: str) -> dict[str, Any]:
        ran.append(path)
        return {"written": path}

    root = agent(call("note", {"path": "a"}, id=call_id), say("done"), tools=[note])
    made = app(root, Witness([], on_event_callback=rewrite))
    async with driven(made, parked=parked) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, turn.texts, ran) == ("completed", ["done"], ["a"])
        assert driver.responses() == {"note": "completed"}
        assert len(turn.of("tool_request")) == 1


@pytest.mark.rule("TOOL-01")
async def test_a_host_tools_call_that_a_plugin_renamed_is_answered_by_the_host() -> None:
    root = agent(call("look", id="c1"), say("done"))
    made: Any = app(root, Witness([], on_event_callback=other_calls))
    async with driven(made, tools=[host_tool("look")]) as driver:
        await driver.stream("go")
        turn = await driver.stream(result(driver.pending("look"), 1))
        assert (turn.reason, driver.responses()) == ("completed", {"look": "completed"})
