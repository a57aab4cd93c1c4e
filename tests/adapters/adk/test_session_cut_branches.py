"""Branches that are cut off: another one of their ParallelAgent leaves by ADK's ``escalate``, and ADK cancels them."""

from __future__ import annotations

import anyio
import pytest
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool
from tests.adapters.adk.trees import parallel, sequential

from agentsession.adapters.adk import call, calls, map_events, say
from agentsession.protocol import (
    Answer,
    ElicitationResponse,
    ToolRequest,
    accept,
    deny,
    result,
)

pytestmark = pytest.mark.anyio


@pytest.mark.rule("TOOL-01")
async def test_a_tool_that_a_branch_cut_off_by_its_exit_is_unknown_and_the_turn_completes() -> None:
    begun = anyio.Event()

    async def dig() -> str:
        """Dig for ever."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def wait() -> str:
        """Wait for the other one."""
        await begun.wait()
        return "it digs"

    one = agent(call("wait"), call("exit_loop"), say("again"), name="one", tools=[wait, exit_loop])
    two = agent(
        calls(call("dig", id="c1"), call("exit_loop", id="c2")), say("and me"), name="two", tools=[dig, exit_loop]
    )
    async with driven(parallel(one, two, name="root"), execution={"host_tool_execution": False}) as desk:
        done = await desk.stream("go")
        assert (done.reason, done.of("error")) == ("completed", [])
        assert desk.responses() == {"wait": "completed", "exit_loop": "completed completed", "dig": "unknown"}
        assert sorted((await desk.stream("again")).texts) == ["again", "and me"]
        assert_valid_history(two.model)


async def test_a_steer_after_an_exit_that_cut_off_a_branch_finds_a_valid_history() -> None:
    begun, steered = anyio.Event(), anyio.Event()

    async def dig() -> str:
        """Dig for ever."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def wait() -> str:
        """Wait for the other one."""
        await begun.wait()
        await steered.wait()
        return "it digs"

    one = agent(calls(call("wait"), call("exit_loop")), say("again"), name="one", tools=[wait, exit_loop])
    two = agent(call("dig", id="c1"), say("and me"), name="two", tools=[dig])
    async with driven(parallel(one, two, name="root"), execution={"host_tool_execution": False}) as desk:
        with anyio.fail_after(20):
            async with desk.session.stream("go") as stream:
                async for event in stream:
                    if isinstance(event, ToolRequest) and event.name == "dig":
                        assert (await desk.session.steer("hurry")).ok
                        steered.set()
        assert stream.end is not None
        assert stream.end.reason == "completed"
        assert_valid_history(two.model)
        shown = history(two.model)
        assert "not known" in dict(shown)["result c1"]
        assert shown[-1] == ("user", "hurry")


@pytest.mark.rule("TOOL-11")
async def test_an_agent_that_is_cut_off_when_its_tool_had_finished_finds_a_valid_history() -> None:
    def delete() -> str:
        """Delete, with the tool's own confirmation."""
        return "deleted"

    one = agent(calls(call("look", id="o1"), call("exit_loop")), say("1"), name="one", tools=[exit_loop])
    two = agent(call("delete", id="c1"), say("2"), name="two", tools=[FunctionTool(delete, require_confirmation=True)])
    last = agent(call("look", id="l1"), say("3"), say("4"), name="last")
    root = sequential(parallel(one, two), last, name="root")
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream([result(desk.pending("look"), 1), accept(desk.pending("tool_confirmation"))])
        assert desk.responses()["delete"] == "completed"  # told when the last agent waits
        assert (await desk.stream(result(desk.pending("look"), 2))).reason == "completed"
        await desk.stream("again")
        assert_valid_history(two.model)
        assert ("result c1", '{"result": "deleted"}') in history(two.model)


@pytest.mark.rule("TOOL-11")
async def test_what_an_agent_that_was_cut_off_had_been_told_reaches_its_model_in_the_next_turn() -> None:
    """An answer, a result of the host's, a denial and a result of its own, beside a tool that never ends."""
    begun = anyio.Event()

    def peek() -> str:
        """Look at once."""
        return "peeked"

    async def dig() -> str:
        """Dig for ever."""
        for _ in range(20):  # the other tools of this step come first
            await anyio.lowlevel.checkpoint()
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def wait() -> str:
        """Wait for the other one."""
        await begun.wait()
        return "it digs"

    question = call("adk_request_input", {"message": "Which?"}, id="c1")
    step = calls(call("look", id="c2"), call("find", id="c3"), call("peek", id="c4"), call("dig", id="c5"))
    one = agent(
        calls(call("wait"), call("look", id="o1"), call("exit_loop")), say("1"), name="one", tools=[wait, exit_loop]
    )
    two = agent(question + step, say("2"), name="two", tools=[request_input, peek, dig])
    answers: dict[str, Answer] = {"c1": accept("c1", "blue"), "c2": result("c2", "seen"), "c3": deny("c3", "no")}
    without = {"host_tool_execution": False}
    hosts = [host_tool("look"), host_tool("find")]
    async with driven(parallel(one, two, name="root"), tools=hosts, execution=without) as desk:
        with anyio.fail_after(20):
            async with desk.session.stream("go") as stream:
                async for _ in stream:
                    waiting = {item.request_id for item in desk.session.pending}
                    for answer in [answers.pop(request_id) for request_id in waiting & answers.keys()]:
                        assert [receipt.ok for receipt in await desk.session.respond(answer)] == [True]
                    if not answers and waiting == {"o1"}:
                        await desk.session.respond(result("o1", 1))
        assert stream.end is not None
        assert stream.end.reason == "completed"
        assert desk.responses()["peek"] == "completed"
        assert (await desk.stream("again")).reason == "completed"
        assert_valid_history(two.model)
        told = dict(history(two.model))
        assert (told["result c1"], told["result c2"]) == ('{"result": "blue"}', '{"result": "seen"}')
        assert (told["result c3"], told["result c4"]) == ('{"error": "denied: no"}', '{"result": "peeked"}')
        assert "not known" in told["result c5"]
        found = await desk.executor.session_service.get_session(
            app_name="root", user_id="local", session_id=desk.session.session_id
        )
        assert found is not None
        assert [item.content for item in map_events(found.events) if isinstance(item, ElicitationResponse)] == ["blue"]
