"""The host's hooks at each point of a real ADK run: what they see, what a block does, what a change does."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from tests.adapters.adk.driving import (
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    model_calls,
    texts,
)
from tests.adapters.adk.hooking import Box, Desk, errors, said
from tests.adapters.adk.shapes import LoopTime

from agentsession.adapters.adk import ScriptedLlm, call, raw, say, stream
from agentsession.protocol import (
    SessionConfig,
    block,
    modify,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own sequential and parallel agents
]


def hook_events(turn: Any) -> list[dict[str, Any]]:
    return [event.data for event in turn.of("custom") if event.kind == "hook"]


# -- what they see -----------------------------------------------------------------------------------------------------


async def test_all_points_of_a_turn_are_fired_in_their_order_with_where_they_are() -> None:
    box, desk = Box(), Desk()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=desk, execution={"permission_mode": "plan"}) as driver:
        turn = await driver.turn("go")
        assert turn.texts == ["done"]
    assert [point for point, _ in desk.seen] == [
        "session_start",
        "on_user_message",
        "before_run",
        "before_agent",
        "before_model",
        "after_model",
        "on_event",
        "before_tool",
        "after_tool",
        "on_event",
        "before_model",
        "after_model",
        "on_event",
        "after_agent",
        "after_run",
        "session_end",
    ]
    for point, payload in desk.seen:
        assert (payload.user_id, payload.permission_mode) == ("local", "plan")
        assert (payload.turn_id is None) == point.startswith("session_")
    assert said(desk.at("on_user_message")[0].content) == "go"
    request = desk.at("before_model")[0]
    assert (request.tools, [said(item.content) for item in request.contents]) == (["write"], ["go"])
    asked, told = desk.at("before_tool")[0], desk.at("after_tool")[0]
    assert (asked.name, asked.args, asked.owner, asked.agent_id) == ("write", {"path": "a"}, "agent", "root")
    assert (told.request_id, told.data) == (asked.request_id, {"written": "a"})


async def test_an_interceptor_is_asked_only_at_the_points_it_names() -> None:
    class OnlyTools(Desk):
        points = ("before_tool",)  # type: ignore[assignment]  # the attribute, not a property

    desk = OnlyTools()
    async with driven(agent(call("look", id="c1"), say("done")), tools=[host_tool("look")], hooks=desk) as driver:
        await driver.turn("go")
    assert [point for point, _ in desk.seen] == ["before_tool"]


async def test_hooks_see_a_name_that_no_tool_has() -> None:
    desk = Desk()
    async with driven(agent(call("search_resumez", id="c1"), say("done")), hooks=desk) as driver:
        await driver.turn("go")
    assert [payload.name for payload in desk.at("before_tool")] == ["search_resumez"]


async def test_the_mode_that_hooks_are_told_is_the_one_that_was_last_set() -> None:
    desk = Desk()
    async with driven(agent(say("one"), say("two")), hooks=desk) as driver:
        await driver.stream("go")
        await driver.session.update(SessionConfig(permission_mode="autonomous"))
        await driver.stream("go")
    assert [payload.permission_mode for payload in desk.at("before_model")] == [None, "autonomous"]


# -- messages ----------------------------------------------------------------------------------------------------------


async def test_a_changed_user_message_is_what_the_model_reads_and_the_record_has_what_was_said() -> None:
    desk = Desk(on_user_message=modify(content="the number is ***"))
    root = agent(say("ok"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("the number is 4711")
        assert history(root.model) == [("user", "the number is ***")]
        assert said(turn.of("message")[0].content) == "the number is 4711"
        assert hook_events(turn) == [{"point": "on_user_message", "action": "modify", "changed": ["content"]}]


async def test_a_blocked_user_message_is_never_heard_and_the_turn_ends_with_the_hooks_words() -> None:
    desk = Desk(on_user_message=lambda p: block("not here", by="dlp") if "secret" in said(p.content) else None)
    root = agent(say("hello"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("a secret")
        assert (turn.reason, turn.texts, turn.end.data) == ("aborted", ["not here"], {"cause": "hook:dlp"})
        assert model_calls(root) == 0
        again = await driver.stream("hi")
        assert (again.reason, again.texts) == ("completed", ["hello"])
        assert history(root.model) == [("user", "hi")]


async def test_a_steer_passes_the_same_hook_and_a_blocked_one_is_not_heard() -> None:
    def gate(payload: Any) -> Any:
        return block("no") if "evil" in said(payload.content) else modify(content=f"<{said(payload.content)}>")

    desk = Desk(on_user_message=gate)
    root = agent(call("look", id="c1"), say("done"), say("more"))
    async with driven(root, tools=[host_tool("look")], hooks=desk) as driver:
        await driver.stream("go")
        await driver.session.steer("evil")
        await driver.session.steer("brief")
        turn = await driver.stream(result(driver.pending("look"), 1))
        assert turn.reason == "completed"
        assert [text for kind, text in history(root.model) if kind == "user"] == ["<go>", "<brief>"]
        assert [payload.steer for payload in desk.at("on_user_message")] == [False, True, True]
        assert [said(event.content) for event in turn.of("message") if event.source == "user"] == ["evil", "brief"]


# -- runs and agents ---------------------------------------------------------------------------------------------------


async def test_a_blocked_run_says_the_message_as_the_agent_and_works_no_more() -> None:
    desk = Desk(before_run=block("closed on Sundays", by="hours", reason="calendar"))
    root = agent(say("never"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, model_calls(root)) == ("aborted", ["closed on Sundays"], 0)
        assert turn.end.data == {"cause": "hook:hours"}
        expected = {"point": "before_run", "action": "block", "by": "hours", "reason": "calendar"}
        assert hook_events(turn) == [expected]
    assert "before_agent" not in [point for point, _ in desk.seen]
    assert [said(payload.content) for payload in desk.at("on_event")] == ["closed on Sundays"]


async def test_a_run_that_goes_on_with_answers_says_so() -> None:
    desk = Desk()
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")], parked=True, hooks=desk) as driver:
        await driver.turn("go")
    assert [payload.resumed for payload in desk.at("before_run")] == [False, True]
    assert len(desk.at("on_user_message")) == 1


async def test_a_blocked_agent_of_a_pipeline_says_the_message_and_the_next_one_works() -> None:
    one, two = agent(say("one"), name="one"), agent(say("two"), name="two")
    desk = Desk(before_agent=lambda p: block("skipped") if p.agent_id == "one" else None)
    async with driven(SequentialAgent(name="root", sub_agents=[one, two]), hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, model_calls(one)) == ("completed", ["skipped", "two"], 0)
        assert [(event.agent_id, event.reason) for event in turn.of("agent_end")][-1] == ("root", "completed")


async def test_a_blocked_branch_does_not_keep_the_turn_from_pausing() -> None:
    one = agent(say("never"), name="one")
    two = agent(call("look", id="c1"), say("two"), name="two")
    desk = Desk(before_agent=lambda p: block("skipped") if p.agent_id == "one" else None)
    root = ParallelAgent(name="root", sub_agents=[one, two])
    async with driven(root, tools=[host_tool("look")], hooks=desk) as driver:
        turn = await driver.stream("go")
        assert turn.reason == "input_required"
        turn = await driver.stream(result(driver.pending("look"), 1))
        assert (turn.reason, turn.texts) == ("completed", ["two"])
        assert "skipped" in texts(driver.session.record)


async def test_what_a_hook_adds_after_an_agent_is_said_by_it() -> None:
    desk = Desk(after_agent=modify(content="(checked)"))
    async with driven(agent(say("done")), hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["done", "(checked)"])
        assert {event.agent_id for event in turn.of("message") if event.source == "agent"} == {"root"}


# -- events ------------------------------------------------------------------------------------------------------------


async def test_changed_content_of_an_event_is_what_is_shown_and_what_is_stored() -> None:
    desk = Desk(on_event=lambda p: modify(content="***") if "4711" in said(p.content) else None)
    root = agent(say("it is 4711"), say("again"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert turn.texts == ["***"]
        await driver.stream("go")
        assert ("model", "***") in history(root.model)


async def test_a_blocked_event_keeps_its_calls_so_that_the_history_stays_valid() -> None:
    desk = Desk(on_event=lambda p: block("[withheld]") if "chatter" in said(p.content) else None)
    spoken = types.Part(text="chatter")
    made = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}))
    root = agent(raw(LlmResponse(content=types.Content(role="model", parts=[spoken, made]))), say("done"))
    async with driven(root, tools=[host_tool("look")], hooks=desk) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["[withheld]", "done"])
        assert_valid_history(root.model)
        assert ("call c1", "look") in history(root.model)


@pytest.mark.parametrize("drops", [False, True])
async def test_a_hook_cannot_change_or_drop_a_call_of_an_event(drops: bool) -> None:
    def forge(payload: Any) -> Any:
        parts = [part.to_wire() for part in payload.content]
        if not any(part["type"] == "function_call" for part in parts):
            return None
        return modify(content=[] if drops else [{**part, "name": "other"} for part in parts])

    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")], hooks=Desk(on_event=forge)) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, driver.responses()) == ("completed", {"look": "completed"})
        assert [code for code, _ in errors(turn)] == ["hook-failed"]


# -- models ------------------------------------------------------------------------------------------------------------


async def test_a_blocked_model_is_not_called_and_the_message_is_its_answer() -> None:
    desk = Desk(before_model=block("over budget", by="money"))
    root = agent(say("never"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, model_calls(root)) == ("aborted", ["over budget"], 0)
        assert turn.end.data == {"cause": "hook:money"}


async def test_changes_to_a_model_call_hold_for_that_call_alone() -> None:
    first = iter([True, False])

    def change(payload: Any) -> Any:
        if not next(first):
            return None
        contents = [{"role": "user", "content": [{"type": "text", "text": "other"}]}]
        settings = {"temperature": 0.5, "max_output_tokens": 7}
        return modify(model="small", contents=contents, system_instruction="be kind", config=settings, tools=["look"])

    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look"), host_tool("find")], hooks=Desk(before_model=change)) as driver:
        turn = await driver.turn("go")
        assert turn.reason == "completed"
    one, two = root.model.requests  # type: ignore[union-attr]
    assert (one.model, one.config.temperature, one.config.max_output_tokens) == ("small", 0.5, 7)
    assert one.config.system_instruction == "be kind"
    assert [part.text for content in one.contents for part in content.parts] == ["other"]
    assert (sorted(one.tools_dict), sorted(two.tools_dict)) == (["look"], ["find", "look"])
    declared = [item.name for tool in one.config.tools for item in tool.function_declarations or ()]
    assert declared == ["look"]
    assert (two.model, two.config.temperature) == ("scripted", None)
    assert two.contents[0].parts[0].text == "go"


@pytest.mark.parametrize(
    "change",
    [
        {"tools": ["wipe"]},
        {"config": {"response_schema": {}}},
        {"config": {"temperature": "hot"}},
        {"contents": "text"},
        {"nonsense": 1},
    ],
    ids=lambda change: str(*change),
)
async def test_a_change_to_a_model_call_that_cannot_be_made_blocks_it(change: dict[str, Any]) -> None:
    root = agent(say("never"))
    async with driven(root, hooks=Desk(before_model=modify(**change))) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, model_calls(root)) == ("aborted", 0)
        assert [code for code, _ in errors(turn)] == ["hook-failed"]


async def test_parts_that_a_hook_leaves_alone_stay_the_very_ones_they_were() -> None:
    """A part has fields that only its provider reads, such as a signature."""
    signed = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}), thought_signature=b"sig")
    root = agent(raw(LlmResponse(content=types.Content(role="model", parts=[signed]))), say("done"))

    def reverse(payload: Any) -> Any:
        kept = [item.to_wire() for item in payload.contents]
        return modify(contents=[*kept, {"role": "user", "content": [{"type": "text", "text": "note"}]}])

    async with driven(root, tools=[host_tool("look")], hooks=Desk(before_model=reverse)) as driver:
        await driver.turn("go")
    shown = [part for content in root.model.requests[1].contents for part in content.parts]  # type: ignore[union-attr]
    assert [part.thought_signature for part in shown if part.function_call] == [b"sig"]
    assert shown[-1].text == "note"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_changed_answer_is_what_is_shown_as_whole_and_stored(streams: bool) -> None:
    desk = Desk(after_model=lambda p: modify(content=said(p.content).replace("4711", "***")))
    root = agent(stream("it is", " 4711") if streams else say("it is 4711"), say("two"))
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert turn.texts == ["it is ***"]
        closing = [event for event in turn.of("message") if event.source == "agent" and not event.partial]
        assert bool(closing[0].revised) == streams
        await driver.stream("go")
        assert ("model", "it is ***") in history(root.model)


async def test_a_blocked_answer_makes_none_of_its_calls() -> None:
    box = Box()
    root = agent(call("write", {"path": "a"}, id="c1"), say("never"), tools=[box.write])
    async with driven(root, hooks=Desk(after_model=block("no"))) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, box.ran, turn.of("tool_request")) == ("completed", ["no"], [], [])


async def test_a_hook_cannot_make_a_call_in_a_models_answer() -> None:
    box = Box()
    forged = {"type": "function_call", "id": "x", "name": "write", "args": {"path": "a"}}
    root = agent(say("hello"), tools=[box.write])
    async with driven(root, hooks=Desk(after_model=modify(content=[forged]))) as driver:
        turn = await driver.stream("go")
        assert (turn.texts, box.ran, turn.of("tool_request")) == (["hello"], [], [])
        assert [code for code, _ in errors(turn)] == ["hook-failed"]


@pytest.mark.parametrize("answer", [modify(content="sorry"), block("sorry")], ids=["modify", "block"])
async def test_an_answer_of_a_hook_takes_the_place_of_a_failed_model_call(answer: Any) -> None:
    desk = Desk(on_model_error=answer)
    async with driven(agent(RuntimeError("key=sk-123")), hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, errors(turn)) == ("completed", ["sorry"], [])
    (payload,) = desk.at("on_model_error")
    assert (payload.error_type, payload.model) == ("RuntimeError", "scripted")
    assert "sk-123" not in payload.to_wire_json()


async def test_a_model_error_that_hooks_let_pass_is_told_to_the_hooks_of_agent_and_run() -> None:
    desk = Desk()
    async with driven(agent(RuntimeError("key=sk-123")), hooks=desk) as driver:
        turn = await driver.stream("go")
        assert turn.reason == "failed"
    for point in ("on_model_error", "on_agent_error", "on_run_error"):
        assert [payload.error_type for payload in desk.at(point)] == ["RuntimeError"], point
        assert "sk-123" not in desk.at(point)[0].to_wire_json()
    assert desk.at("after_run") == []


# -- handovers ---------------------------------------------------------------------------------------------------------


async def test_a_blocked_handover_leaves_the_agent_at_work() -> None:
    helper = agent(say("never"), name="helper")
    root = agent(call("transfer_to_agent", {"agent_name": "helper"}, id="c1"), say("myself"), sub_agents=[helper])
    async with driven(root, hooks=Desk(before_tool=block("stay"))) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, model_calls(helper)) == ("completed", ["myself"], 0)


# -- children and branches ---------------------------------------------------------------------------------------------


async def test_hooks_hold_in_the_child_of_an_agent_tool() -> None:
    box = Box()
    child = agent(call("write", {"path": "a"}, id="k1"), say("child done"), name="child", tools=[box.write])
    root = agent(call("child", {"request": "do it"}, id="c1"), say("done"), tools=[AgentTool(child)])
    desk = Desk(
        before_tool=lambda p: block("no") if p.name == "write" else None,
        on_user_message=lambda p: modify(content="softly") if p.source == "agent" else None,
    )
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, box.ran, driver.responses()) == (
            "completed",
            [],
            {"write": "denied", "child": "completed"},
        )
        assert history(child.model, 0) == [("user", "softly")]
    (asked,) = [payload for payload in desk.at("before_tool") if payload.name == "write"]
    assert (asked.agent_id, asked.thread_id) == ("child", "child")
    assert [payload.thread_id for payload in desk.at("before_model")] == [None, "child", "child", None]
    assert len(desk.at("before_run")) == 2


@pytest.mark.parametrize("point", ["before_agent", "before_model", "before_run", "on_user_message"])
async def test_a_block_in_a_child_is_the_result_of_its_call_and_the_turn_goes_on(point: str) -> None:
    child = agent(say("never"), name="child")
    root = agent(call("child", {"request": "do it"}, id="c1"), say("done"), tools=[AgentTool(child)])
    inside = {"before_agent": "agent_id", "before_model": "agent_id", "before_run": "agent_id"}

    def stop(payload: Any) -> Any:
        is_child = (
            payload.source == "agent" if point == "on_user_message" else getattr(payload, inside[point]) == "child"
        )
        return block("no children") if is_child else None

    async with driven(root, hooks=Desk(**{point: stop})) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts[-1], model_calls(child)) == ("completed", "done", 0)
        assert "no children" in dict(history(root.model))["result c1"]


async def test_hooks_of_parallel_branches_are_told_apart_by_their_threads() -> None:
    members = [agent(call("look", id="c1"), say("done"), name=name) for name in ("one", "two")]
    desk = Desk(before_tool=lambda p: block("no") if p.agent_id == "one" else None)
    root = ParallelAgent(name="root", sub_agents=list(members))
    async with driven(root, tools=[host_tool("look")], hooks=desk) as driver:
        turn = await driver.turn("go")
        assert turn.reason == "completed"
        assert sorted(driver.responses()["look"].split()) == ["completed", "denied"]
    assert {(p.agent_id, p.thread_id) for p in desk.at("before_tool")} == {("one", "root.one"), ("two", "root.two")}


# -- hooks that fail or hang -------------------------------------------------------------------------------------------


def boom(_: Any) -> Any:
    raise RuntimeError("the password is hunter2")


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("before_run", "aborted"),
        ("before_agent", "aborted"),
        ("before_model", "aborted"),
        ("before_tool", "completed"),
        ("on_user_message", "completed"),
        ("after_run", "completed"),
        ("on_event", "completed"),
        ("after_agent", "completed"),
        ("after_model", "completed"),
        ("after_tool", "completed"),
    ],
)
async def test_a_hook_that_raises_blocks_before_and_lets_pass_elsewhere(point: str, reason: str) -> None:
    box = Box()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=Desk(**{point: boom})) as driver:
        turn = await driver.turn("go")
        assert turn.reason == reason
        assert box.ran == ([] if point.startswith("before_") else ["a"])
        assert set(errors(turn)) == {("hook-failed", f"the hook at {point} failed with RuntimeError")}
        assert "hunter2" not in str([event.to_wire() for event in driver.session.record])


async def test_a_hook_that_answers_something_else_counts_as_failed() -> None:
    root = agent(say("never"))
    async with driven(root, hooks=Desk(before_model=lambda _: {"action": "proceed"})) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, model_calls(root)) == ("aborted", 0)
        assert errors(turn) == [("hook-failed", "a hook answered a dict")]


async def test_a_hook_that_is_cancelled_from_inside_counts_as_failed() -> None:
    import asyncio

    async def cancelled(_: Any) -> None:
        raise asyncio.CancelledError

    root = agent(say("never"))
    async with driven(root, hooks=Desk(before_model=cancelled)) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, model_calls(root)) == ("aborted", 0)


@pytest.mark.rule("CTL-01")
@pytest.mark.parametrize(
    "point", ["on_user_message", "before_run", "before_agent", "before_model", "after_model", "on_event", "before_tool"]
)
async def test_an_abort_cancels_a_hook_that_hangs_and_the_next_turn_works(point: str) -> None:
    entered, ended, hang = anyio.Event(), anyio.Event(), [True]

    async def hanging(_: Any) -> None:
        if hang[0]:
            entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

    root = agent(call("look", id="c1"), call("look", id="c2"), say("done"), say("done"))
    async with driven(root, tools=[host_tool("look")], hooks=Desk(**{point: hanging})) as driver:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group, driver.session.stream("go") as events:

                async def stop() -> None:
                    await entered.wait()
                    await driver.session.abort()

                group.start_soon(stop)
                async for _ in events:
                    pass
        assert (events.end.reason, ended.is_set()) == ("aborted", True)  # type: ignore[union-attr]
        hang[0] = False
        assert (await driver.turn("again")).reason == "completed"


async def test_a_slow_hook_of_one_branch_does_not_end_the_stream_while_the_other_waits() -> None:
    release = anyio.Event()

    async def slow(payload: Any) -> None:
        if payload.agent_id == "two":
            await release.wait()

    one = agent(call("look", id="c1"), say("one"), name="one")
    two = agent(say("two"), name="two")
    root = ParallelAgent(name="root", sub_agents=[one, two])
    async with driven(root, tools=[host_tool("look")], hooks=Desk(before_model=slow)) as driver:
        with anyio.fail_after(10):
            async with driver.session.stream("go") as events:
                async for event in events:
                    if event.type == "tool_request":
                        release.set()
        assert events.end is not None
        assert events.end.reason == "input_required"
        turn = await driver.stream(result(driver.pending("look"), 1))
        assert turn.reason == "completed"
        assert sorted(texts(driver.session.record)) == ["one", "two"]


@pytest.mark.parametrize("point", ["before_agent", "before_tool", "on_event"])
async def test_a_hook_that_is_slower_than_an_agent_may_be_silent_keeps_the_stream_open(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, waits = LoopTime(monkeypatch), anyio.Event()

    async def slow(payload: Any) -> None:
        if payload.agent_id == "two":
            await waits.wait()
            await time.goes_on(3)

    box = Box()
    one = agent(call("look", id="c1"), say("one"), name="one")
    two = agent(call("write", {"path": "a"}, id="c2"), say("two"), name="two", tools=[box.write])
    root = ParallelAgent(name="root", sub_agents=[one, two])
    without = {"host_tool_execution": False}
    async with driven(root, tools=[host_tool("look")], execution=without, hooks=Desk(**{point: slow})) as driver:
        events: list[Any] = []
        with anyio.fail_after(60):
            async with driver.session.stream("go") as stream:
                async for event in stream:
                    events.append(event)
                    if driver.session.pending:
                        waits.set()
        assert stream.end is not None
        assert (stream.end.reason, texts(events), len(box.ran)) == ("input_required", ["two"], 1)
        assert (await driver.stream(result(driver.pending("look"), 1))).reason == "completed"


async def test_a_session_without_hooks_has_nothing_that_could_fire_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentsession.adapters.adk import _live

    def never(*_: Any) -> None:
        raise AssertionError("made without hooks")

    monkeypatch.setattr(_live, "RunHooks", never)
    monkeypatch.setattr(_live, "HookedCalls", never)
    async with driven(LlmAgent(name="root", model=ScriptedLlm(script=[say("done")]))) as driver:
        assert (await driver.stream("go")).texts == ["done"]
