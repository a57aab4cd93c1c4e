"""How turns end: aborts in every place, exceptions, error codes, limits; a new turn always works afterwards."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, model_calls
from tests.adapters.adk.shapes import Gate, pipeline

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, error, fail, hold, say, stream
from agentsession.adapters.adk._stream import MessageBuffer
from agentsession.protocol import (
    AbortTimeout,
    Constraints,
    Error,
    ExecutionOptions,
    Message,
    ToolRequest,
    accept,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from google.adk.agents import LoopAgent, ParallelAgent, SequentialAgent


async def abort_when(desk: Driven, reached: Callable[[], Any], message: str = "go") -> Any:
    """Start a turn, wait until ``reached``, abort; the events of the stream."""
    events: list[Any] = []
    with anyio.fail_after(20):
        async with desk.session.stream(message) as turn:
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    async for event in turn:
                        events.append(event)

                group.start_soon(read)
                await reached()
                outcome = await desk.session.abort()
                assert outcome.status == "aborted"
    assert turn.end is not None
    assert turn.end.reason == "aborted"
    return events


def wraps(kind: str, inner: LlmAgent) -> Any:
    if kind == "plain":
        return inner
    return pipeline({"sequential": SequentialAgent, "loop": LoopAgent, "parallel": ParallelAgent}[kind], inner)


# -- aborts -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-01", "CTL-03", "CTL-05")
@pytest.mark.parametrize("kind", ["plain", "sequential", "loop", "parallel"])
async def test_an_abort_in_a_model_call(kind: str) -> None:
    gate = Gate()
    inner = agent(hold(gate) + say("never"), say("fresh"), name="inner")
    if kind == "loop":
        inner = LlmAgent(name="inner", model=ScriptedLlm(script=[hold(gate) + say("never")], forever=say("fresh")))
    root = wraps(kind, inner)
    if kind == "loop":
        root.max_iterations = 1
    async with driven(root) as desk:
        events = await abort_when(desk, gate.entered.wait)
        assert not [event for event in events if isinstance(event, Error)]
        assert (await desk.stream("again")).texts == ["fresh"]


@pytest.mark.rule("CTL-01", "LIFE-14")
async def test_an_abort_while_text_streams_closes_the_message_with_what_was_said() -> None:
    gate = Gate()
    root = agent(stream("Hello ", "wor") + hold(gate) + say("ld"), say("fresh"))
    async with driven(root) as desk:

        async def two_deltas() -> None:
            while desk.types("message").count("message") < 3:  # the user's message is the first
                await anyio.lowlevel.checkpoint()

        events = await abort_when(desk, two_deltas)
        closing = [event for event in events if isinstance(event, Message) and event.interrupted]
        assert [event.content[0].text for event in closing] == ["Hello wor"]  # type: ignore[union-attr]
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-01", "CTL-05")
@pytest.mark.parametrize("kind", ["plain", "sequential", "parallel"])
async def test_r25_an_abort_in_an_async_tool_leaves_it_unknown(kind: str) -> None:
    gate = Gate()

    async def slow() -> str:
        """Work."""
        return await gate()

    inner = agent(call("slow", id="c1"), say("fresh"), name="inner", tools=[slow])
    async with driven(wraps(kind, inner), execution={"host_tool_execution": False}) as desk:
        await abort_when(desk, gate.entered.wait)
        assert desk.responses() == {"slow": "unknown"}
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(inner.model)


@pytest.mark.rule("CTL-01")
async def test_r25_an_abort_returns_while_a_sync_tool_blocks_a_thread() -> None:
    entered, release = threading.Event(), threading.Event()

    def slow() -> str:
        """Block a thread."""
        entered.set()
        release.wait(20)
        return "late"

    async def until_entered() -> None:
        await asyncio.to_thread(entered.wait, 20)

    root = agent(call("slow", id="c1"), say("fresh"), tools=[slow])
    try:
        async with driven(root, tool_threads=2, execution={"host_tool_execution": False}) as desk:
            await abort_when(desk, until_entered)
            assert desk.responses() == {"slow": "unknown"}
            release.set()
            assert (await desk.stream("again")).texts == ["fresh"]
            assert_valid_history(root.model)
    finally:
        release.set()


@pytest.mark.rule("CTL-01", "LIFE-13")
async def test_work_that_ignores_cancellation_ends_in_an_abort_timeout() -> None:
    gate = Gate()
    root = agent(call("stubborn", id="c1"), say("never"), tools=[gate.stubborn])
    async with AdkExecutor(root, grace_s=0.3) as executor:
        from agentsession.protocol import OpenOptions

        session = await executor.open(OpenOptions(execution=ExecutionOptions(host_tool_execution=False)))
        with anyio.fail_after(20):
            async with session.stream("go"):
                await gate.entered.wait()
                with pytest.raises(AbortTimeout):
                    await session.abort()
                assert session.state == "closed"
                gate.release.set()


@pytest.mark.rule("HITL-06", "CTL-05")
@pytest.mark.parametrize("kind", ["plain", "sequential", "loop", "parallel"])
async def test_an_abort_of_a_turn_that_waits_settles_it_and_the_next_turn_works(kind: str) -> None:
    inner = LlmAgent(
        name="inner",
        model=ScriptedLlm(script=[calls(call("look", id="c1"), call("write", id="c2"))], forever=say("fresh")),
        tools=[_write],
    )
    root = wraps(kind, inner)
    if kind == "loop":
        root.max_iterations = 1
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        request_id = desk.pending("look")
        with anyio.fail_after(10):
            assert (await desk.session.abort()).status == "aborted"
            assert (await desk.session.abort()).status == "idle"
        (receipt,) = await desk.session.respond(result(request_id, 1))
        assert receipt.status == "stale"
        assert desk.responses() == {"look": "cancelled", "write": "cancelled"}
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(inner.model)


def _write() -> str:
    """Write."""
    return "written"


_write.__name__ = "write"


@pytest.mark.rule("CTL-05")
async def test_an_abort_while_one_tool_works_and_another_waits() -> None:
    gate = Gate()

    async def slow() -> str:
        """Work."""
        return await gate()

    root = agent(calls(call("slow", id="c1"), call("look", id="c2")), say("fresh"), tools=[slow])
    async with driven(root, tools=[host_tool("look")], execution={"host_tool_execution": False}) as desk:
        await abort_when(desk, gate.entered.wait)
        assert desk.responses() == {"slow": "unknown", "look": "cancelled"}
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


async def test_an_abort_keeps_the_result_of_a_sibling_that_had_finished() -> None:
    gate = Gate()

    async def slow() -> str:
        """Work."""
        return await gate()

    root = agent(calls(call("write", id="c1"), call("slow", id="c2")), say("fresh"), tools=[_write, slow])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        await abort_when(desk, gate.entered.wait)
        assert desk.responses() == {"write": "completed", "slow": "unknown"}


@pytest.mark.rule("CTL-05")
async def test_a_new_message_over_a_waiting_turn_settles_it_and_is_answered() -> None:
    root = agent(call("look", id="c1"), say("fresh"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        turn = await desk.stream("never mind")
        assert (turn.reason, turn.texts) == ("completed", ["fresh"])
        assert desk.responses() == {"look": "cancelled"}
        assert ("user", "never mind") in history(root.model)
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-05")
async def test_a_new_message_over_a_parked_turn_is_answered_too() -> None:
    root = agent(call("look", id="c1"), say("fresh"))
    async with driven(root, tools=[host_tool("look")], parked=True) as desk:
        await desk.stream("go")
        turn = await desk.stream("never mind")
        assert (turn.reason, turn.texts) == ("completed", ["fresh"])
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-05")
@pytest.mark.parametrize("parked", [False, True])
async def test_thirty_aborts_in_a_row_leave_a_session_that_works(parked: bool) -> None:
    root = LlmAgent(
        name="root", model=ScriptedLlm(script=[call("look", id=f"c{n}") for n in range(30)], forever=say("fresh"))
    )
    async with driven(root, tools=[host_tool("look")], parked=parked) as desk:
        for _ in range(30):
            await desk.stream("go")
            with anyio.fail_after(10):
                await desk.session.abort()
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


async def test_leaving_the_executor_with_waiting_turns_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("look")))
    with anyio.fail_after(20):
        async with AdkExecutor(root) as executor:
            from agentsession.protocol import OpenOptions

            for _ in range(20):
                session = await executor.open(OpenOptions(execution=ExecutionOptions(tools=[host_tool("look")])))
                assert (await Driven(executor, session).stream("go")).reason == "input_required"
        for _ in range(50):
            if asyncio.all_tasks() == before:
                break
            await anyio.lowlevel.checkpoint()
    assert asyncio.all_tasks() == before
    assert executor._states == {}


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-09", "LIFE-12")
@pytest.mark.parametrize("kind", ["plain", "sequential", "parallel"])
async def test_r10_a_model_that_raises_is_one_error_and_one_end(kind: str) -> None:
    inner = agent(fail(RuntimeError("key=s3cret")), say("fresh"), name="inner")
    async with driven(wraps(kind, inner)) as desk:
        turn = await desk.stream("go")
        assert turn.reason == "failed"
        (problem,) = turn.of("error")
        assert (problem.fatal, "s3cret" in problem.message) == (True, False)
        assert len(turn.of("stream_end")) == 1
        assert (await desk.stream("again")).texts == ["fresh"]


@pytest.mark.rule("LIFE-09", "LIFE-14")
async def test_a_model_that_raises_in_the_middle_of_its_answer_closes_the_message() -> None:
    root = agent(stream("half", " of") + fail("cut"), say("fresh"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("failed", ["half of"])
        assert len(turn.of("error")) == 1
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("SAFETY", "refusal"),
        ("MAX_TOKENS", "max_tokens"),
        ("MALFORMED_FUNCTION_CALL", "failed"),
        ("RESOURCE_EXHAUSTED", "failed"),
    ],
)
async def test_an_error_code_of_the_provider_is_one_error_event_and_the_reason(code: str, reason: str) -> None:
    root = agent(error(code, "why"), say("fresh"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, len(turn.of("error"))) == (reason, 1)
        assert (await desk.stream("again")).texts == ["fresh"]


async def test_an_error_that_a_callback_of_the_agent_turned_into_an_answer_ends_nothing() -> None:
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    def recover(**_: Any) -> LlmResponse:
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="recovered")]))

    root = agent(fail("down"), on_model_error_callback=recover)
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts, turn.of("error")) == ("completed", ["recovered"], [])


async def test_a_failing_branch_settles_the_branch_that_waits() -> None:
    gate = Gate()
    left = agent(call("look", id="c1"), say("never"), name="left")
    right = agent(hold(gate) + fail("down"), name="right")
    async with driven(pipeline(ParallelAgent, left, right), tools=[host_tool("look")]) as desk:
        with anyio.fail_after(20):
            async with desk.session.stream("go") as turn:
                await gate.entered.wait()
                while not desk.session.pending:
                    await anyio.lowlevel.checkpoint()
                gate.release.set()
                async for _ in turn:
                    pass
        assert turn.end is not None
        assert turn.end.reason == "failed"
        assert desk.responses() == {"look": "cancelled"}


async def test_r71_a_plugin_that_answers_before_the_run_is_a_message_of_the_agent() -> None:
    from google.adk.apps.app import App
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import types

    class Guard(BasePlugin):
        async def before_run_callback(self, **_: Any) -> types.Content:
            return types.Content(role="model", parts=[types.Part(text="blocked")])

    app = App(name="app", root_agent=agent(say("never")), plugins=[Guard(name="guard")])
    async with driven(app) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["blocked"])


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("parked", [False, True])
async def test_r69_a_model_that_calls_for_ever_ends_at_the_limit_over_all_pauses(parked: bool) -> None:
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("look")))
    limits = Constraints(max_llm_calls=5)
    async with driven(root, tools=[host_tool("look")], execution={"limits": limits}, parked=parked) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, model_calls(root)) == ("max_llm_calls", 5)
        assert [problem.code for problem in turn.of("error")] == ["max_llm_calls"]
        assert desk.responses()["look"].split() == ["completed"] * 5
        again = await desk.turn("again")
        assert (again.reason, model_calls(root)) == ("max_llm_calls", 10)
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-08")
async def test_the_calls_of_children_count_and_steps_do_not() -> None:
    child = LlmAgent(name="child", model=ScriptedLlm(forever=say("child done")))
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("child", {"request": "x"})), tools=[AgentTool(child)])
    async with driven(root, execution={"limits": Constraints(max_llm_calls=5)}) as desk:
        assert (await desk.turn("go")).reason == "max_llm_calls"
        assert (model_calls(root), model_calls(child)) == (3, 2)
    async with driven(root, execution={"limits": Constraints(max_turns=5)}) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, model_calls(root)) == ("max_turns", 8)


@pytest.mark.rule("CTL-08")
async def test_a_limit_ends_a_loop_too() -> None:
    worker = LlmAgent(name="worker", model=ScriptedLlm(forever=say("again")))
    async with driven(pipeline(LoopAgent, worker), execution={"limits": Constraints(max_llm_calls=4)}) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, model_calls(worker)) == ("max_llm_calls", 4)


@pytest.mark.rule("CTL-08")
async def test_a_limit_in_one_branch_settles_the_branch_that_waits() -> None:
    left = agent(call("look", id="c1"), say("never"), name="left")
    right = LlmAgent(name="right", model=ScriptedLlm(forever=call("tick")), tools=[_tick])
    limits = Constraints(max_llm_calls=6)
    async with driven(
        pipeline(ParallelAgent, left, right), tools=[host_tool("look")], execution={"limits": limits}
    ) as desk:
        assert await _grant_all(desk, "tick") == "max_llm_calls"
        assert desk.responses()["look"] == "cancelled"


def _tick() -> str:
    """Tick."""
    return "tock"


_tick.__name__ = "tick"


async def _grant_all(desk: Driven, name: str) -> str:
    """Grant every call of a tool as it comes; the reason of the turn's end."""
    with anyio.fail_after(20):
        async with desk.session.stream("go") as turn:
            async for event in turn:
                if isinstance(event, ToolRequest) and event.name == name:
                    await desk.session.respond(grant(event.request_id))
    assert turn.end is not None
    return turn.end.reason


@pytest.mark.rule("HITL-06")
async def test_an_abort_while_a_confirmation_waits_runs_nothing() -> None:
    ran: list[int] = []

    def delete() -> str:
        ran.append(1)
        return "deleted"

    root = agent(call("delete", id="c1"), say("fresh"), tools=[FunctionTool(delete, require_confirmation=True)])
    async with driven(root) as desk:
        await desk.stream("go")
        question = desk.pending("tool_confirmation")
        with anyio.fail_after(10):
            await desk.session.abort()
        (receipt,) = await desk.session.respond(accept(question))
        assert (receipt.status, ran) == ("stale", [])
        assert desk.responses() == {"delete": "cancelled"}
        assert (await desk.stream("again")).texts == ["fresh"]


# -- exceptions and what they may hold --------------------------------------------------------------------------------


async def adks_session(desk: Driven) -> str:
    """What ADK has stored of the session, as JSON."""
    found = await desk.executor.session_service.get_session(
        app_name=desk.session.descriptor.name, user_id=desk.session.user_id, session_id=desk.session.session_id
    )
    assert found is not None
    return found.model_dump_json()


class Refused(Exception):
    """Like the errors of Google's client: its own word for what happened, in ``status``."""

    status = "PERMISSION_DENIED"


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("kind", [RuntimeError, Refused])
@pytest.mark.parametrize("where", ["root", "pipeline", "child"])
async def test_the_text_of_a_models_exception_is_neither_told_nor_stored(where: str, kind: type[Exception]) -> None:
    broken = agent(fail(kind("GET https://model/?key=s3cret")), name="broken")
    root: Any = broken
    if where == "pipeline":
        root = pipeline(SequentialAgent, broken)
    elif where == "child":
        root = agent(call("broken", {"request": "x"}), say("ok"), tools=[AgentTool(broken)])
    async with driven(root) as desk:
        await desk.turn()
        assert "s3cret" not in "".join(event.to_wire_json() for event in desk.session.record)
        assert "s3cret" not in await adks_session(desk)


@pytest.mark.rule("SEC-01")
async def test_the_text_of_an_exception_that_a_tools_agent_lets_through_is_not_stored() -> None:
    def broken() -> str:
        """Break."""
        raise RuntimeError("s3cret")

    def leave_it(**_: Any) -> None:
        return None

    root = agent(call("broken"), say("next"), tools=[broken], on_tool_error_callback=leave_it)
    async with driven(root) as desk:
        assert (await desk.turn()).reason == "failed"
        assert "s3cret" not in await adks_session(desk)
        assert (await desk.turn("next")).texts == ["next"]
        assert_valid_history(root.model)


async def test_a_providers_own_words_about_an_error_are_kept() -> None:
    async with driven(agent(error("RESOURCE_EXHAUSTED", "quota of 5 a day"))) as desk:
        (told,) = (await desk.turn()).of("error")
        assert told.message == "quota of 5 a day"


@pytest.mark.rule("LIFE-09")
async def test_a_tool_that_is_cancelled_from_inside_ends_the_turn_and_is_named() -> None:
    async def flaky() -> str:
        """Cancel itself, as a client of a network may when its connection breaks."""
        raise asyncio.CancelledError

    root = agent(calls(call("flaky", id="c1"), call("look", id="c2")), say("next"), tools=[flaky])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending("flaky")))
        (told,) = done.of("error")
        assert (done.reason, told.status, told.message) == ("failed", "CANCELLED", "flaky was cancelled from inside")
        assert desk.responses() == {"look": "cancelled", "flaky": "unknown"}
        assert (await desk.turn("next")).texts == ["next"]
        assert_valid_history(root.model)


async def test_answers_that_an_abort_cut_off_are_not_kept_for_the_next_turn() -> None:
    def buffers() -> int:
        gc.collect()
        return sum(isinstance(item, MessageBuffer) for item in gc.get_objects())

    before = buffers()
    gates = [Gate() for _ in range(5)]
    root = agent(*[stream("much ", "text") + hold(gate) + say("never") for gate in gates], say("done"))
    async with driven(root) as desk:
        for gate in gates:
            await abort_when(desk, gate.entered.wait)
        assert (await desk.turn()).texts == ["done"]
        assert buffers() <= before
