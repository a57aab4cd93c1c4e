"""Agents that work for another: tasks that are delegated and span turns, and agents that are called for one answer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool, model_calls
from tests.adapters.adk.trees import brackets, said, sequential, write

from agentsession.adapters.adk import AdkExecutor, call, calls, fail, hold, say
from agentsession.protocol import MemoryRecordStore, OpenOptions, accept, decline, deny, grant, result

pytestmark = pytest.mark.anyio


def helper(*script: Any, name: str = "helper", **fields: Any) -> Any:
    return agent(*script, name=name, mode="task", description="Helps.", **fields)


def finish(value: str = "42", id: str = "f1") -> Any:
    return call("finish_task", {"result": value}, id=id)


def delegate(name: str = "helper", id: str = "c1") -> Any:
    return call(name, {"request": "do it"}, id=id)


@pytest.mark.rule("LIFE-16", "TOOL-05")
async def test_a_delegation_is_brackets_on_a_thread_of_its_own_and_no_request() -> None:
    child = helper(call("write", {"path": "x"}, id="k1"), call("look", id="k2"), finish(), tools=[write])
    root = agent(delegate(), say("root done"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert [(event.name, event.needs, event.thread_id) for event in first.of("tool_request")] == [
            ("write", "grant", "helper@c1")
        ]
        await desk.stream(grant(desk.pending("write"), {"path": "edited"}))
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts) == ("completed", ["root done"])
        assert brackets(done.events) == [
            ("+root again", None),
            ("+helper again", "helper@c1"),
            ("-helper completed", "helper@c1"),
            ("-root completed", None),
        ]
        assert desk.responses() == {"write": "completed", "look": "completed", "finish_task": "completed"}
        assert history(root.model)[-1] == ("result c1", '{"result": "42"}')
        assert ("result k1", '{"result": "wrote edited"}') in history(child.model)
        assert_valid_history(root.model)
        assert_valid_history(child.model)


async def test_the_usage_of_a_task_is_counted() -> None:
    counted = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)
    part = types.Part.from_function_call(name="finish_task", args={"result": "42"})
    child = helper(LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=counted))
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert [(event.agent_id, event.thread_id) for event in turn.of("usage")] == [("helper", "helper@c1")]
        assert turn.of("usage")[0].input_tokens == 7


async def test_a_task_that_asks_in_words_goes_on_with_what_its_user_says_next() -> None:
    child = helper(say("Which city?"), finish("Rome"))
    root = agent(delegate(), say("It is Rome"), say("bye"), sub_agents=[child])
    async with driven(root) as desk:
        asked = await desk.stream("go")
        assert (asked.reason, said(asked.events)) == ("completed", [("helper", "helper@c1", "Which city?")])
        assert model_calls(root) == 1
        done = await desk.stream("Rome")
        assert done.texts == ["It is Rome"]
        assert brackets(done.events) == [
            ("+root", None),
            ("+helper", "helper@c1"),
            ("-helper completed", "helper@c1"),
            ("-root completed", None),
        ]
        assert history(child.model)[-1] == ("user", "Rome")
        assert (await desk.stream("more")).texts == ["bye"]
        assert_valid_history(root.model)


@pytest.mark.rule("PER-01")
async def test_a_task_goes_on_in_another_process(tmp_path: Any) -> None:
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    store = MemoryRecordStore()
    child = helper(say("Which city?"), finish("Rome"))
    root = agent(delegate(), say("It is Rome"), sub_agents=[child])
    async with AdkExecutor(root, session_service=service, store=store) as first:
        session = await first.open(OpenOptions(session_id="s1"))
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
        await session.aclose()
    async with AdkExecutor(root, session_service=service, store=store) as second:
        session = await second.load("s1")
        async with session.stream("Rome") as stream:
            texts = [event async for event in stream]
        assert said(texts) == [("root", None, "It is Rome")]
        await session.aclose()
    assert_valid_history(root.model)


@pytest.mark.parametrize("yes", [True, False])
async def test_a_tasks_question_for_input_is_put_and_answered(yes: bool) -> None:
    child = helper(call("adk_request_input", {"message": "Which?"}, id="k1"), finish(), tools=[request_input])
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        await desk.stream("go")
        (question,) = desk.session.pending
        assert (question.kind, question.thread_id) == ("clarification", "helper@c1")  # type: ignore[union-attr]
        answer = accept(question.request_id, {"result": "this"}) if yes else decline(question.request_id)
        done = await desk.stream(answer)
        assert (done.reason, done.texts) == ("completed", ["done"])
        assert ("result k1", '{"result": "this"}' if yes else '{"error": "decline"}') in history(child.model)


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_confirmation_in_a_task(yes: bool) -> None:
    ran: list[str] = []

    def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    child = helper(
        call("delete", {"path": "x"}, id="k1"), finish(), tools=[FunctionTool(delete, require_confirmation=True)]
    )
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        await desk.stream("go")
        question = desk.pending("tool_confirmation")
        done = await desk.stream(accept(question) if yes else decline(question))
        assert (done.reason, done.texts, ran) == ("completed", ["done"], ["x"] if yes else [])


@pytest.mark.rule("HITL-02")
async def test_a_denied_call_in_a_task_lets_the_task_go_on() -> None:
    child = helper(call("write", {"path": "x"}, id="k1"), finish(), tools=[write])
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(deny(desk.pending("write")))
        assert (done.texts, desk.responses()) == (["done"], {"write": "denied", "finish_task": "completed"})


async def test_a_task_that_finishes_wrongly_is_told_so_and_finishes_again() -> None:
    child = helper(call("finish_task", {"wrong": 1}, id="f1"), finish(id="f2"))
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.texts, desk.responses()) == (["done"], {"finish_task": "failed completed"})


@pytest.mark.rule("TOOL-06")
async def test_a_delegation_beside_calls_in_one_step_keeps_all_of_their_results() -> None:
    child = helper(finish())
    step = calls(call("look", id="c0"), delegate(), call("write", {"path": "x"}, id="c2"))
    root = agent(step, say("done"), sub_agents=[child], tools=[write])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        done = await desk.stream([grant(desk.pending("write")), result(desk.pending("look"), 1)])
        assert (done.reason, done.texts) == ("completed", ["done"])
        assert_valid_history(root.model)


async def test_two_tasks_in_one_step_have_their_own_threads() -> None:
    one, two = helper(finish("1"), name="one"), helper(call("look", id="k1"), finish("2"), name="two")
    root = agent(calls(delegate("one", "c1"), delegate("two", "c2")), say("done"), sub_agents=[one, two])
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        threads = {name: thread for name, thread in brackets(turn.events) if thread is not None}
        assert (threads["+one"], threads["+two"]) == ("one@c1", "two@c2")
        assert_valid_history(root.model)


async def test_a_task_in_a_task() -> None:
    inner = helper(call("look", id="g1"), finish("deep"), name="inner")
    outer = helper(delegate("inner", "k1"), finish("mid", id="f2"), name="outer", sub_agents=[inner])
    root = agent(delegate("outer"), say("top"), sub_agents=[outer])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        assert request.thread_id == "outer@c1.inner@k1"
        done = await desk.stream(result(request.request_id, 1))
        assert (done.reason, done.texts) == ("completed", ["top"])
        assert [name for name, _ in brackets(done.events)] == [
            "+root again",
            "+outer again",
            "+inner again",
            "-inner completed",
            "-outer completed",
            "-root completed",
        ]


async def test_a_hand_over_and_a_delegation_in_one_turn_fail_loudly_and_the_next_turn_delegates() -> None:
    """ADK 2.13 cannot delegate in the turn of a hand-over: docs/adk-limits.md."""
    child = helper(say("Which?"), finish())
    other = agent(delegate(), say("other done"), name="other", sub_agents=[child])
    root = agent(call("transfer_to_agent", {"agent_name": "other"}, id="t1"), sub_agents=[other])
    async with driven(root) as desk:
        failed = await desk.stream("go")
        assert (failed.reason, len(failed.of("error"))) == ("failed", 1)
        assert (await desk.stream("again")).texts == ["Which?"]
        done = await desk.stream("this")
        assert done.texts == ["other done"]
        assert [name for name, thread in brackets(done.events) if thread is None] == ["+other", "-other completed"]


@pytest.mark.rule("CTL-01", "CTL-05")
async def test_an_abort_in_a_task_that_waits_ends_the_task_and_the_root_answers_next() -> None:
    child = helper(call("look", id="k1"), say("never"))
    root = agent(delegate(), say("fresh"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        with anyio.fail_after(10):
            await desk.session.abort()
        assert desk.responses() == {"look": "cancelled"}
        done = await desk.stream("again")
        assert (done.reason, done.texts) == ("completed", ["fresh"])
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-01")
async def test_an_abort_while_a_tasks_model_works() -> None:
    entered = anyio.Event()

    async def until() -> None:
        entered.set()
        await anyio.sleep_forever()

    child = helper(hold(until) + say("never"))
    root = agent(delegate(), say("fresh"), sub_agents=[child])
    async with driven(root) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                await entered.wait()
                await desk.session.abort()
                async for _ in stream:
                    pass
        assert stream.end is not None
        assert stream.end.reason == "aborted"
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


async def test_a_message_over_a_call_that_waits_in_a_task_goes_to_the_task() -> None:
    child = helper(call("look", id="k1"), finish("other way"))
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        done = await desk.stream("never mind the look")
        assert (done.reason, done.texts, desk.responses()) == (
            "completed",
            ["done"],
            {"look": "cancelled", "finish_task": "completed"},
        )
        assert history(child.model)[-1] == ("user", "never mind the look")
        assert_valid_history(root.model)
        assert_valid_history(child.model)


async def test_a_task_whose_model_fails_fails_the_turn_and_the_session_goes_on() -> None:
    child = helper(fail("down"), finish())
    root = agent(delegate(), say("done"), sub_agents=[child])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, brackets(turn.events)[-2:]) == (
            "failed",
            [("-helper failed", "helper@c1"), ("-root failed", None)],
        )
        assert (await desk.stream("again")).texts == ["done"]
        assert_valid_history(root.model)


async def test_a_task_below_an_agent_tools_child() -> None:
    task = helper(call("look", id="g1"), finish())
    child = agent(delegate(id="k1"), say("child done"), name="child", sub_agents=[task])
    root = agent(call("child", {"request": "x"}, id="c1"), say("done"), tools=[AgentTool(child)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        assert request.thread_id == "child.helper@k1"
        done = await desk.stream(result(request.request_id, 1))
        assert (done.reason, done.texts) == ("completed", ["child done", "done"])


async def test_a_task_inside_a_pipeline_is_followed_by_the_next_agent() -> None:
    child = helper(call("look", id="k1"), finish())
    first = agent(delegate(), say("one"), name="first", sub_agents=[child])
    async with driven(sequential(first, agent(say("two"), name="second")), tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["one", "two"])


# -- agents that are called for one answer ----------------------------------------------------------------------------


def single(*script: Any, name: str = "child", **fields: Any) -> Any:
    return agent(*script, name=name, mode="single_turn", description="Answers.", **fields)


@pytest.mark.rule("LIFE-16", "TOOL-05")
async def test_a_single_turn_agents_own_tools_are_gated_on_its_thread() -> None:
    child = single(call("write", {"path": "x"}, id="k1"), say("child done"), tools=[write])
    root = agent(call("child", {"request": "x"}, id="c1"), say("root done"), sub_agents=[child])
    async with driven(root) as desk:
        first = await desk.stream("go")
        assert [(event.name, event.needs) for event in first.of("tool_request")] == [
            ("child", "none"),
            ("write", "grant"),
        ]
        done = await desk.stream(grant(desk.pending("write")))
        assert said(done.events) == [("child", "child@c1", "child done"), ("root", None, "root done")]
        assert ("-child completed", "child@c1") in brackets(done.events)
        assert ("result c1", '{"result": "child done"}') in history(root.model)


async def test_one_single_turn_agent_called_twice_at_once_is_two_threads() -> None:
    child = single(call("look", id="k1"), call("look", id="k1"), say("done"), say("done"))
    step = calls(call("child", {"request": "a"}, id="c1"), call("child", {"request": "b"}, id="c2"))
    root = agent(step, say("root done"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert sorted(str(item.thread_id) for item in desk.session.pending) == ["child@c1", "child@c2"]
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        assert (done.reason, done.texts) == ("completed", ["done", "done", "root done"])


async def test_a_single_turn_agent_that_fails_is_an_error_of_its_call() -> None:
    root = agent(call("child", {"request": "x"}, id="c1"), say("sorry"), sub_agents=[single(fail("down"))])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["sorry"])
        assert ("-child failed", "child@c1") in brackets(turn.events)


@pytest.mark.rule("CTL-05")
async def test_an_abort_while_a_single_turn_agent_waits() -> None:
    child = single(call("look", id="k1"), say("never"))
    root = agent(call("child", {"request": "x"}, id="c1"), say("fresh"), sub_agents=[child])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.session.abort()
        assert desk.responses() == {"look": "cancelled", "child": "unknown"}
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)
