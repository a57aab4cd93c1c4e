"""Who is at work on which thread: brackets are balanced and nested in every shape of tree."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.genai import types
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool
from tests.adapters.adk.trees import brackets, loop, parallel, said, sequential

from agentsession.adapters.adk import call, calls, fail, say
from agentsession.protocol import result

pytestmark = pytest.mark.anyio


def counted(words: str, tokens: int) -> LlmResponse:
    """An answer of a model with what it cost."""
    return LlmResponse(
        content=types.Content(role="model", parts=[types.Part(text=words)]),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=tokens, candidates_token_count=1),
    )


def hand_over(to: str, id: str) -> Any:
    return call("transfer_to_agent", {"agent_name": to}, id=id)


def skip(**_: Any) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text="not today")])


def add(**_: Any) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text="one more thing")])


def names(events: Any, thread: str | None = None) -> list[str]:
    return [name for name, where in brackets(events) if where == thread]


@pytest.mark.rule("LIFE-16")
async def test_each_round_of_a_loop_has_its_own_brackets_inside_that_of_the_loop() -> None:
    worker = agent(say("1"), say("2"), name="worker")
    checker = agent(say("no"), call("exit_loop", id="x1"), name="checker", tools=[exit_loop])
    async with driven(loop(worker, checker, max_iterations=5)) as desk:
        turn = await desk.stream("go")
        assert names(turn.events) == [
            "+round",
            *["+worker", "-worker completed", "+checker", "-checker completed"] * 2,
            "-round completed",
        ]


@pytest.mark.rule("LIFE-16")
async def test_pipelines_inside_branches_nest_on_the_threads_of_their_branches() -> None:
    left = sequential(agent(say("a"), name="a"), agent(call("look", id="c1"), say("b"), name="b"), name="left")
    right = sequential(agent(say("c"), name="c"), agent(say("d"), name="d"), name="right")
    async with driven(
        sequential(parallel(left, right), agent(say("last"), name="last")), tools=[host_tool("look")]
    ) as desk:
        turn = await desk.turn("go")
        assert turn.reason == "completed"
        assert names(turn.events)[-4:] == ["-par completed", "+last", "-last completed", "-pipe completed"]
        threads = {who: thread for who, thread, _ in said(turn.events)}
        assert threads["a"] == threads["b"] != threads["c"] == threads["d"]
        on_right = names(turn.events, threads["d"])
        assert on_right == ["+right", "+c", "-c completed", "+d", "-d completed", "-right completed"]


@pytest.mark.rule("HITL-10", "LIFE-16")
@pytest.mark.parametrize("depth", [2, 3])
async def test_agents_as_tools_of_agents_as_tools_have_threads_below_each_other_and_their_usage_is_told(
    depth: int,
) -> None:
    child = agent(call("look", id="g0"), counted("deep", 10), name="n0")
    for level in range(1, depth + 1):
        step = call(f"n{level - 1}", {"request": "x"}, id=f"g{level}")
        child = agent(step, counted(f"level {level}", 10 + level), name=f"n{level}", tools=[AgentTool(child)])
    async with driven(child, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        deepest = ".".join(f"n{level}" for level in range(depth - 1, -1, -1))
        assert request.thread_id == deepest
        done = await desk.stream(result(request.request_id, 1))
        assert done.reason == "completed"
        told = [(event.agent_id, event.thread_id, event.input_tokens) for event in done.of("usage")]
        assert told[0] == ("n0", deepest, 10)
        assert told[-1] == (f"n{depth}", None, 10 + depth)
        assert len(told) == depth + 1
        assert [name for name, _ in brackets(done.events) if name.startswith("-")] == [
            f"-n{level} completed" for level in range(depth + 1)
        ]


@pytest.mark.rule("LIFE-16")
async def test_one_agent_called_twice_at_once_as_a_tool_is_two_threads() -> None:
    child = agent(*[call("look", id="k1")] * 2, *[say("seen")] * 2, name="child")
    step = calls(call("child", {"request": "a"}, id="c1"), call("child", {"request": "b"}, id="c2"))
    root = agent(step, say("done"), tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert sorted(str(item.thread_id) for item in desk.session.pending) == ["child", "child-2"]
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        assert (done.reason, done.texts) == ("completed", ["seen", "seen", "done"])
        assert_valid_history(root.model)


async def test_one_agent_called_by_two_branches_as_a_tool_hangs_below_each() -> None:
    def branch(name: str) -> Any:
        child = agent(call("look", id="k1"), say("seen"), name="child")
        return agent(call("child", {"request": "x"}, id="c1"), say(name), name=name, tools=[AgentTool(child)])

    async with driven(parallel(branch("left"), branch("right")), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        threads = sorted(str(item.thread_id) for item in desk.session.pending)
        assert [thread.rpartition(".")[2] for thread in threads] == ["child", "child"]
        assert len({thread.rpartition(".")[0] for thread in threads}) == 2
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        assert sorted(done.texts) == ["left", "right", "seen", "seen"]


@pytest.mark.rule("LIFE-16")
async def test_an_agent_that_a_callback_skips_ends_before_the_next_begins() -> None:
    first = agent(say("never"), name="first", before_agent_callback=skip)
    root = sequential(first, agent(call("look", id="c1"), say("two"), name="second"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert names(paused.events)[:4] == ["+pipe", "+first", "-first completed", "+second"]
        assert said(paused.events) == [("first", None, "not today")]
        assert (await desk.stream(result(desk.pending("look"), 1))).texts == ["two"]


@pytest.mark.rule("LIFE-16")
async def test_a_branch_that_a_callback_skips_is_over_while_the_other_waits() -> None:
    left = agent(say("never"), name="left", before_agent_callback=skip)
    right = agent(call("look", id="c1"), say("right"), name="right")
    async with driven(parallel(left, right), tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert [name for name, _ in brackets(paused.events) if "left" in name] == ["+left", "-left completed"]
        done = await desk.stream(result(desk.pending("look"), 1))
        assert not [name for name, _ in brackets(done.events) if "left" in name]


@pytest.mark.rule("LIFE-04", "LIFE-16")
async def test_what_an_agent_says_after_its_work_is_said_inside_its_bracket_on_every_thread() -> None:
    def child(name: str) -> Any:
        return agent(say(name), name=name, after_agent_callback=add)

    root = sequential(parallel(child("left"), child("right")), child("last"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.texts.count("one more thing") == 3
        for who in ("left", "right", "last"):
            assert [name for name, _ in brackets(turn.events) if who in name] == [f"+{who}", f"-{who} completed"]


@pytest.mark.rule("LIFE-09", "LIFE-16")
async def test_a_branch_that_raises_fails_the_turn_and_leaves_no_bracket_and_no_request_open() -> None:
    left = agent(call("look", id="c1"), say("never"), name="left")
    right = agent(fail("down"), say("fresh"), name="right")
    async with driven(parallel(left, right), tools=[host_tool("look")]) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, desk.session.pending) == ("failed", [])
        assert [name for name, _ in brackets(turn.events) if name.startswith("-right")] == ["-right failed"]
        assert set(desk.responses().values()) <= {"cancelled"}


async def test_r67_hand_overs_inside_a_pipeline_leave_the_pipeline_open() -> None:
    expert = agent(say("I know"), name="expert")
    first = agent(hand_over("expert", "t1"), name="first", sub_agents=[expert])
    root = sequential(first, agent(say("two"), name="second"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.texts == ["I know", "two"]
        assert names(turn.events) == [
            "+pipe",
            "+first",
            "-first handoff",
            "+expert",
            "-expert completed",
            "+second",
            "-second completed",
            "-pipe completed",
        ]


async def test_hand_overs_back_and_forth_within_a_turn() -> None:
    child = agent(hand_over("root", "t2"), say("child again"), name="child")
    root = agent(hand_over("child", "t1"), hand_over("child", "t3"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.texts == ["child again"]
        assert names(turn.events) == [
            "+root",
            "-root handoff",
            "+child",
            "-child handoff",
            "+root",
            "-root handoff",
            "+child",
            "-child completed",
        ]


async def test_agents_of_one_name_in_the_children_of_two_agent_tools_are_told_apart() -> None:
    def child(name: str, words: str) -> Any:
        inner = agent(call("look", {"of": words}, id="g1"), say(words), name="same")
        return agent(call("same", {"request": "x"}, id="k1"), say(name), name=name, tools=[AgentTool(inner)])

    one, two = child("one", "first"), child("two", "second")
    step = calls(call("one", {"request": "a"}, id="c1"), call("two", {"request": "b"}, id="c2"))
    root = agent(step, say("done"), tools=[AgentTool(one), AgentTool(two)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert sorted(str(item.thread_id) for item in desk.session.pending) == ["one.same", "two.same"]
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        spoke = {thread: words for who, thread, words in said(done.events) if who == "same"}
        assert spoke == {"one.same": "first", "two.same": "second"}
        assert ("result c1", '{"result": "one"}') in history(root.model)
