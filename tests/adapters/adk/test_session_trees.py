"""Trees of agents: transfers, pipelines, parallel branches, loops, agents as tools. Brackets and threads."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool, model_calls
from tests.adapters.adk.trees import brackets, said, write

from agentsession.adapters.adk import AdkExecutor, call, calls, fail, hold, say
from agentsession.protocol import (
    ConfigurationError,
    ElicitationRequest,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from google.adk.agents import LoopAgent, ParallelAgent, SequentialAgent


def pipeline(kind: Any, *agents: Any, name: str = "pipe", **fields: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return kind(name=name, sub_agents=list(agents), **fields)


# -- transfers --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-16")
async def test_a_transfer_ends_one_agent_and_starts_the_other() -> None:
    child = agent(say("child here"), name="child")
    root = agent(call("transfer_to_agent", {"agent_name": "child"}, id="t1"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.reason == "completed"
        assert brackets(turn.events) == [
            ("+root", None),
            ("-root handoff", None),
            ("+child", None),
            ("-child completed", None),
        ]
        assert said(turn.events) == [("child", None, "child here")]
        assert [(event.name, event.needs) for event in turn.of("tool_request")] == [("transfer_to_agent", "none")]
        assert desk.responses() == {"transfer_to_agent": "completed"}


async def test_r67_the_agent_that_was_handed_to_answers_the_next_turn() -> None:
    child = agent(say("one"), say("two"), name="child")
    root = agent(call("transfer_to_agent", {"agent_name": "child"}, id="t1"), sub_agents=[child])
    async with driven(root) as desk:
        await desk.stream("go")
        second = await desk.stream("next")
        assert said(second.events) == [("child", None, "two")]
        assert brackets(second.events) == [("+child", None), ("-child completed", None)]


async def test_an_agent_that_was_handed_to_may_wait_for_the_host() -> None:
    child = agent(call("look", id="c1"), say("seen"), name="child")
    root = agent(call("transfer_to_agent", {"agent_name": "child"}, id="t1"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert first.reason == "input_required"
        assert [event.agent_id for event in first.of("tool_request")] == ["root", "child"]
        second = await desk.stream(result(desk.pending("look"), 1))
        assert said(second.events) == [("child", None, "seen")]
        assert brackets(second.events)[0] == ("+child again", None)


async def test_a_transfer_there_and_back() -> None:
    child = agent(call("transfer_to_agent", {"agent_name": "root"}, id="t2"), name="child")
    root = agent(call("transfer_to_agent", {"agent_name": "child"}, id="t1"), say("back"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["back"])
        assert [name for name, _ in brackets(turn.events)] == [
            "+root",
            "-root handoff",
            "+child",
            "-child handoff",
            "+root",
            "-root completed",
        ]


# -- pipelines --------------------------------------------------------------------------------------------------------


async def test_r56_a_pipeline_waits_in_its_first_agent_and_goes_on_to_the_second() -> None:
    first = agent(call("look", id="c1"), say("one"), name="first")
    second = agent(say("two"), name="second")
    async with driven(pipeline(SequentialAgent, first, second), tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert (paused.reason, model_calls(second)) == ("input_required", 0)
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts) == ("completed", ["one", "two"])
        assert_valid_history(second.model)


async def test_a_denied_call_in_a_pipeline_lets_the_pipeline_go_on() -> None:
    first = agent(call("write", id="c1"), say("one"), name="first", tools=[write])
    second = agent(say("two"), name="second")
    async with driven(pipeline(SequentialAgent, first, second)) as desk:
        await desk.stream("go")
        done = await desk.stream(deny(desk.pending("write")))
        assert done.texts == ["one", "two"]


async def test_a_confirmation_in_a_pipeline_lets_the_pipeline_go_on() -> None:
    """Raw ADK loses the rest of a nested pipeline after an approval."""
    tool = FunctionTool(write, require_confirmation=True)
    inner = pipeline(
        SequentialAgent, agent(call("write", id="c1"), say("one"), name="first", tools=[tool]), name="inner"
    )
    root = pipeline(SequentialAgent, inner, agent(say("two"), name="second"))
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(accept(desk.pending("tool_confirmation")))
        assert done.texts == ["one", "two"]


@pytest.mark.rule("HITL-10", "LIFE-16")
async def test_branches_of_a_parallel_agent_have_threads_and_wait_together() -> None:
    left = agent(call("look", {"who": "left"}, id="c1"), say("left done"), name="left")
    right = agent(call("look", {"who": "right"}, id="c2"), say("right done"), name="right")
    async with driven(pipeline(ParallelAgent, left, right), tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        threads = {request.args["who"]: request.thread_id for request in desk.session.pending}  # type: ignore[union-attr,index]
        assert paused.reason == "input_required"
        assert threads["left"] != threads["right"]
        assert None not in threads.values()
        one, other = desk.session.pending
        half = await desk.stream(result(one.request_id, 1))
        assert half.reason == "input_required"
        assert half.texts == ["left done"]
        done = await desk.stream(result(other.request_id, 2))
        assert (done.reason, done.texts) == ("completed", ["right done"])
        assert_valid_history(left.model)
        assert_valid_history(right.model)


async def test_a_branch_that_works_keeps_the_stream_open_while_another_waits() -> None:
    release, entered = anyio.Event(), anyio.Event()

    async def until() -> None:
        entered.set()
        await release.wait()

    left = agent(call("look", id="c1"), say("left done"), name="left")
    right = agent(hold(until) + say("right done"), name="right")
    async with driven(pipeline(ParallelAgent, left, right), tools=[host_tool("look")]) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                await entered.wait()
                while not desk.session.pending:
                    await anyio.lowlevel.checkpoint()
                assert desk.session.state == "running"
                release.set()
                async for _ in stream:
                    pass
        assert stream.end is not None
        assert stream.end.reason == "input_required"
        done = await desk.stream(result(desk.pending("look"), 1))
        assert done.texts == ["left done"]


async def test_r64_branches_named_like_a_prefix_of_each_other_are_two_threads() -> None:
    one = agent(call("look", id="c1"), say("1"), name="agent_1")
    ten = agent(call("look", id="c2"), say("10"), name="agent_10")
    async with driven(pipeline(ParallelAgent, one, ten), tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        spoke = {agent_id: thread for agent_id, thread, _ in said(turn.events)}
        assert spoke["agent_1"] != spoke["agent_10"]
        assert not any("agent_1)" in text for _, text in history(ten.model))


async def test_a_loop_goes_round_until_exit_loop_is_called() -> None:
    worker = agent(
        call("look", id="c1"), say("round 1"), call("look", id="c2"), calls(call("exit_loop", id="x1")), name="worker",
        tools=[exit_loop],
    )  # fmt: skip
    async with driven(pipeline(LoopAgent, worker, max_iterations=5), tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert turn.reason == "completed"
        assert desk.responses() == {"look": "completed completed", "exit_loop": "completed"}
        assert [event.needs for event in turn.of("tool_request") if event.name == "exit_loop"] == ["none"]


class Custom(BaseAgent):
    """An agent that runs its children in its own way."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        for child in self.sub_agents:
            async for event in child.run_async(ctx):
                yield event
        yield AdkEvent(
            author=self.name,
            invocation_id=ctx.invocation_id,
            content=types.Content(role="model", parts=[types.Part(text="all done")]),
        )


async def test_an_agent_of_ones_own_waits_and_goes_on() -> None:
    child = agent(call("look", id="c1"), say("one"), name="child")
    async with driven(Custom(name="custom", sub_agents=[child]), tools=[host_tool("look")]) as desk:
        assert (await desk.stream("go")).reason == "input_required"
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts) == ("completed", ["one", "all done"])


# -- agents as tools --------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-10", "TOOL-05")
async def test_an_agent_tools_child_asks_the_host_on_a_thread_of_its_own() -> None:
    ran: list[str] = []

    def save(path: str) -> str:
        ran.append(path)
        return "saved"

    child = agent(
        call("save", {"path": "x"}, id="k1"), call("look", id="k2"), say("child done"), name="child", tools=[save]
    )
    root = agent(call("child", {"request": "do it"}, id="c1"), say("root done"), tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.name, request.args, request.needs, request.agent_id, request.thread_id) == (
            "save",
            {"path": "x"},
            "grant",
            "child",
            "child",
        )
        assert (ran, first.reason) == ([], "input_required")
        second = await desk.stream(grant(request.request_id))
        assert ran == ["x"]
        assert second.reason == "input_required"
        third = await desk.stream(result(desk.pending("look"), 1))
        assert (third.reason, third.texts) == ("completed", ["child done", "root done"])
        assert desk.responses() == {"save": "completed", "look": "completed", "child": "completed"}
        assert ("child", "child", "child done") in said(third.events)
        assert_valid_history(root.model)
        assert_valid_history(child.model)


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize("yes", [True, False])
async def test_r19_a_confirmation_inside_an_agent_tool_reaches_the_host(yes: bool) -> None:
    ran: list[str] = []

    def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    tool = FunctionTool(delete, require_confirmation=True)
    child = agent(call("delete", {"path": "x"}, id="k1"), say("child done"), name="child", tools=[tool])
    root = agent(call("child", {"request": "do it"}, id="c1"), say("root done"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        await desk.stream("go")
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, question.thread_id, ran) == ("tool_confirmation", "child", [])
        answer = accept(question.request_id) if yes else decline(question.request_id)
        done = await desk.stream(answer)
        assert done.texts == ["child done", "root done"]
        assert ran == (["x"] if yes else [])
        assert ("result c1", '{"result": "child done"}') in history(root.model)


async def test_a_question_from_inside_a_childs_tool_is_asked_and_answered() -> None:
    done: list[Any] = []

    def remove(tool_context: ToolContext) -> Any:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            return None
        done.append(tool_context.tool_confirmation.confirmed)
        return "removed"

    child = agent(call("remove", id="k1"), say("child done"), name="child", tools=[remove])
    root = agent(call("child", {"request": "do it"}, id="c1"), say("root done"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        turn = await desk.turn("go")
        assert (turn.texts, done) == (["child done", "root done"], [True])


async def test_two_children_at_once_with_the_same_call_ids_are_told_apart() -> None:
    def child(name: str) -> Any:
        return agent(call("look", {"who": name}, id="k1"), say(f"{name} done"), name=name)

    left, right = child("left"), child("right")
    root = agent(
        calls(call("left", {"request": "a"}, id="c1"), call("right", {"request": "b"}, id="c2")),
        say("root done"),
        tools=[AgentTool(left), AgentTool(right)],
    )
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert len(desk.session.pending) == 2
        answers = [result(item.request_id, item.args["who"]) for item in desk.session.pending]  # type: ignore[union-attr,index]
        done = await desk.stream(answers)
        assert sorted(done.texts) == ["left done", "right done", "root done"]
        for one in (left, right):
            assert any(text == f'{{"result": "{one.name}"}}' for _, text in history(one.model))


async def test_a_childs_child_asks_too() -> None:
    grandchild = agent(call("look", id="g1"), say("deep"), name="grandchild")
    child = agent(
        call("grandchild", {"request": "x"}, id="k1"), say("mid"), name="child", tools=[AgentTool(grandchild)]
    )
    root = agent(call("child", {"request": "x"}, id="c1"), say("top"), tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        assert request.thread_id == "child.grandchild"
        done = await desk.stream(result(request.request_id, 1))
        assert done.texts == ["deep", "mid", "top"]


async def test_r94_a_childs_thoughts_stay_thoughts() -> None:
    from agentsession.adapters.adk import think

    child = agent(think("hmm") + say("42"), name="child")
    root = agent(call("child", {"request": "x"}, id="c1"), say("top"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        turn = await desk.turn("go")
        (message,) = [event for event in turn.of("message") if event.agent_id == "child"]
        assert [part.type for part in message.content] == ["thought", "text"]
        (response,) = turn.of("tool_response")
        assert response.data == "42"


async def test_a_child_that_fails_is_an_error_result_of_its_call() -> None:
    from agentsession.adapters.adk import fail

    child = agent(fail("provider down"), name="child")
    root = agent(call("child", {"request": "x"}, id="c1"), say("sorry"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["sorry"])
        (response,) = turn.of("tool_response")
        assert (response.is_error, response.status) == (True, "failed")
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-05")
async def test_an_abort_while_a_child_waits_settles_all_and_the_next_turn_works() -> None:
    child = agent(call("look", id="k1"), say("never"), name="child")
    root = agent(call("child", {"request": "x"}, id="c1"), say("fresh"), tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        with anyio.fail_after(10):
            await desk.session.abort()
        assert desk.responses() == {"look": "cancelled", "child": "unknown"}
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


# -- sub-agents that ADK runs as tools --------------------------------------------------------------------------------


async def test_a_single_turn_sub_agent_asks_the_host_within_the_parents_session() -> None:
    child = agent(call("look", id="k1"), say("child done"), name="child", mode="single_turn", description="Helps.")
    root = agent(call("child", {"request": "x"}, id="c1"), say("root done"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert first.reason == "input_required"
        (request,) = desk.session.pending
        assert request.agent_id == "child"
        done = await desk.stream(result(request.request_id, 1))
        assert (done.reason, done.texts[-1]) == ("completed", "root done")
        assert_valid_history(root.model)


# -- refused ----------------------------------------------------------------------------------------------------------


async def test_an_agent_tool_without_plugins_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="include_plugins"):
        AdkExecutor(agent(tools=[AgentTool(agent(name="child"), include_plugins=False)]))


async def test_code_executors_are_refused_also_deep_in_the_tree() -> None:
    from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor

    child = agent(name="child", code_executor=UnsafeLocalCodeExecutor())
    with pytest.raises(ConfigurationError, match="code_executor"):
        AdkExecutor(pipeline(SequentialAgent, agent(tools=[AgentTool(child)])))


async def test_a_tool_that_the_provider_runs_is_refused_unless_it_is_meant() -> None:
    from google.adk.tools.google_search_tool import google_search

    with pytest.raises(ConfigurationError, match="provider"):
        AdkExecutor(agent(tools=[google_search]))
    AdkExecutor(agent(tools=[google_search]), allows_uncontrolled=True)


async def test_a_pipeline_cannot_be_parked() -> None:
    with pytest.raises(ConfigurationError, match="parked"):
        AdkExecutor(pipeline(SequentialAgent, agent()), parked=True)


@pytest.mark.parametrize("args", [{"agent_name": "nobody"}, {"agent_name": "root"}, {"agent_name": 5}, {}])
async def test_a_transfer_to_no_agent_is_an_error_that_the_model_can_mend(args: dict[str, Any]) -> None:
    mended = call("transfer_to_agent", {"agent_name": "other"}, id="c2")
    root = agent(call("transfer_to_agent", args, id="c1"), mended, sub_agents=[agent(say("here"), name="other")])
    async with driven(root) as desk:
        done = await desk.turn()
        assert (done.reason, done.texts) == ("completed", ["here"])
        assert desk.responses() == {"transfer_to_agent": "failed completed"}
        assert brackets(done.events)[1:3] == [("-root handoff", None), ("+other", None)]


# -- agents of which ADK tells no end ---------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-16")
async def test_a_childs_agent_that_a_callback_skips_ends_with_its_call() -> None:
    def skip(**_: Any) -> types.Content:
        return types.Content(role="model", parts=[types.Part(text="not today")])

    kid = agent(name="kid", before_agent_callback=skip)
    step = calls(call("kid", {"request": "x"}, id="c1"), call("look", id="c2"))
    async with driven(agent(step, say("ok"), tools=[AgentTool(kid)]), tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert brackets(paused.events)[1:3] == [("+kid", "kid"), ("-kid completed", "kid")]
        done = await desk.stream(result(desk.pending("look"), "seen"))
        assert brackets(done.events) == [("+root again", None), ("-root completed", None)]


@pytest.mark.rule("LIFE-16")
async def test_a_childs_agent_that_fails_ends_with_its_call() -> None:
    kid = agent(fail(RuntimeError("no")), name="kid")
    root = agent(call("kid", {"request": "x"}, id="c1"), call("look", id="c2"), say("ok"), tools=[AgentTool(kid)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        paused = await desk.stream("go")
        assert brackets(paused.events)[1:3] == [("+kid", "kid"), ("-kid failed", "kid")]
        assert (await desk.stream(result(desk.pending("look"), "seen"))).texts == ["ok"]


@pytest.mark.rule("LIFE-16")
@pytest.mark.parametrize("parked", [False, True])
async def test_a_transfer_beside_a_call_of_the_host_is_a_handoff_when_the_call_is_answered(parked: bool) -> None:
    step = calls(call("transfer_to_agent", {"agent_name": "other"}, id="c1"), call("look", id="c2"))
    root = agent(step, sub_agents=[agent(say("here"), name="other")])
    async with driven(root, tools=[host_tool("look")], parked=parked) as desk:
        await desk.stream("go")
        done = await desk.stream(result(desk.pending("look"), "seen"))
        assert brackets(done.events) == [
            ("+root again", None),
            ("-root handoff", None),
            ("+other", None),
            ("-other completed", None),
        ]
