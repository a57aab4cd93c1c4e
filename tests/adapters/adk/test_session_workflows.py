"""Workflows, ADK's graphs of nodes: agents, tools, functions and questions as nodes, under the host's control."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from google.adk.agents.context import Context
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event as AdkEvent
from google.adk.events.request_input import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow, node
from pydantic import BaseModel
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, model_calls
from tests.adapters.adk.trees import brackets, said, write

from agentsession.adapters.adk import AdkExecutor, call, calls, fail, hold, say
from agentsession.protocol import (
    ConfigurationError,
    ElicitationRequest,
    NothingToContinue,
    ToolRequest,
    accept,
    cancel,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


def graph(*steps: Any, name: str = "wf", **fields: Any) -> Workflow:
    """A graph that goes through its steps in a row; a tuple of nodes is a fork."""
    return Workflow(name=name, edges=[(START, *steps)], **fields)


class Ran:
    """A tool that counts its runs, and raises in the first few."""

    def __init__(self, failures: int = 0) -> None:
        self.paths: list[str] = []
        self._failures = failures

    def tool(self, name: str = "save", **fields: Any) -> FunctionTool:
        def save(path: str = "") -> str:
            self.paths.append(path)
            if len(self.paths) <= self._failures:
                raise ValueError("the disk is full, password=hunter2")
            return f"saved {path}"

        save.__name__ = name
        return FunctionTool(save, **fields)


def outputs(events: Any) -> list[Any]:
    return [event.data for event in events if event.to_wire().get("kind") == "output"]


# -- agents as nodes --------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-05", "LIFE-16")
async def test_agents_in_a_graph_ask_for_their_own_and_the_hosts_tools_inside_the_graphs_bracket() -> None:
    first = agent(call("write", {"path": "x"}, id="c1"), call("look", id="c2"), say("one"), name="first", tools=[write])
    second = agent(say("two"), name="second")
    async with driven(graph(first, second), tools=[host_tool("look")]) as desk:
        asked = await desk.stream("go")
        assert [(event.name, event.needs) for event in asked.of("tool_request")] == [("write", "grant")]
        looks = await desk.stream(grant(desk.pending("write"), {"path": "edited"}))
        assert looks.reason == "input_required"
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts) == ("completed", ["one", "two"])
        assert [name for name, _ in brackets(done.events)] == [
            "+wf again",
            "+first again",
            "-first completed",
            "+second",
            "-second completed",
            "-wf completed",
        ]
        assert ("result c1", '{"result": "wrote edited"}') in history(first.model)
        assert_valid_history(first.model)


@pytest.mark.rule("HITL-10", "LIFE-04")
async def test_nodes_that_run_at_once_have_threads_of_their_own_and_wait_together() -> None:
    left = agent(call("look", id="c1"), say("L"), name="left")
    right = agent(call("look", id="c1"), say("R"), name="right")
    async with driven(graph((left, right), JoinNode(name="both")), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert sorted(str(item.thread_id) for item in desk.session.pending) == ["left", "right"]
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        assert done.reason == "completed"
        assert sorted(said(done.events)) == [("left", "left", "L"), ("right", "right", "R")]
        assert outputs(done.events) == [{"left": "L", "right": "R"}]


@pytest.mark.rule("LIFE-04")
async def test_the_runs_of_a_parallel_worker_are_threads_that_nothing_confuses() -> None:
    def items(node_input: Any) -> list[str]:
        del node_input
        return ["a", "b", "c"]

    worker = agent(*[call("look", id="c1")] * 3, *[say("done")] * 3, name="worker")
    async with driven(graph(items, node(worker, parallel_worker=True)), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert [item.thread_id for item in desk.session.pending] == ["worker", "worker-2", "worker-3"]
        done = await desk.stream([result(item.request_id, 1) for item in desk.session.pending])
        assert (done.reason, done.texts) == ("completed", ["done"] * 3)
        assert sorted(str(thread) for _, thread, _ in said(done.events)) == ["worker", "worker-2", "worker-3"]


async def test_a_graph_in_a_graph_and_an_agent_after_it() -> None:
    inner = graph(agent(call("look", id="c1"), say("in"), name="deep"), name="inner")
    async with driven(graph(inner, agent(say("out"), name="last")), tools=[host_tool("look")]) as desk:
        done = await desk.turn("go")
        assert (done.reason, done.texts) == ("completed", ["in", "out"])


async def test_a_branch_that_goes_on_below_a_finished_one_hangs_under_what_is_open() -> None:
    """In a fork of a fork ADK names the branch after a node that is over."""
    leaves = (agent(say("x"), name="x"), agent(say("y"), name="y"))
    other = agent(say("other"), name="other")
    fork = agent(say("fork"), name="fork")
    root = Workflow(name="wf", edges=[(START, (fork, other)), (fork, leaves)])
    root_events: list[Any] = []
    with anyio.fail_after(20):
        async with driven(root) as desk:
            root_events = (await desk.stream("go")).events
    assert {(who, thread) for who, thread, _ in said(root_events)} == {
        ("fork", "fork"),
        ("other", "other"),
        ("x", "fork.x"),
        ("y", "fork.y"),
    }


async def test_the_model_of_a_node_fails_and_with_it_the_graph() -> None:
    async with driven(graph(agent(fail("down"), name="first"), agent(say("never"), name="second"))) as desk:
        turn = await desk.stream("go")
        assert turn.reason == "failed"
        assert len(turn.of("error")) == 1
        assert brackets(turn.events)[-2:] == [("-first failed", None), ("-wf failed", None)]
        assert (await desk.stream("again")).reason == "failed"  # the script is used up: the session still answers


@pytest.mark.rule("CTL-01", "CTL-05")
async def test_an_abort_while_one_node_works_and_another_waits() -> None:
    entered = anyio.Event()

    async def until() -> None:
        entered.set()
        await anyio.sleep_forever()

    left = agent(call("look", id="c1"), say("fresh"), name="left")
    right = agent(hold(until) + say("never"), say("fresh too"), name="right")
    async with driven(graph((left, right), JoinNode(name="both")), tools=[host_tool("look")]) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                await entered.wait()
                while not desk.session.pending:
                    await anyio.lowlevel.checkpoint()
                await desk.session.abort()
                async for _ in stream:
                    pass
        assert stream.end is not None
        assert (stream.end.reason, desk.responses()) == ("aborted", {"look": "cancelled"})
        assert sorted((await desk.stream("again")).texts) == ["fresh", "fresh too"]


# -- tools as nodes ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-01", "TOOL-05", "HITL-01")
async def test_a_tool_node_has_a_request_and_runs_only_when_it_is_granted_with_the_args_of_the_grant() -> None:
    ran = Ran()
    async with driven(graph(ran.tool(), agent(say("ok"), name="last"))) as desk:
        await desk.stream("x.txt")
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.name, request.args, request.owner, request.needs) == (
            "save",
            {"path": "x.txt"},
            "agent",
            "grant",
        )
        assert (ran.paths, request.agent_id) == ([], "wf")
        done = await desk.stream(grant(request.request_id, {"path": "y.txt"}))
        assert (done.reason, ran.paths) == ("completed", ["y.txt"])
        (response,) = done.of("tool_response")
        assert (response.data, response.status) == ("saved y.txt", "completed")
        assert outputs(done.events)[0] == "saved y.txt"


@pytest.mark.rule("HITL-02")
async def test_a_tool_node_that_is_denied_does_not_run_and_the_graph_goes_on_with_the_error() -> None:
    ran, seen = Ran(), []

    def after(node_input: Any) -> str:
        seen.append(node_input)
        return "after"

    async with driven(graph(ran.tool(), after)) as desk:
        await desk.stream("x.txt")
        done = await desk.stream(deny(desk.pending("save"), reason="no"))
        assert (done.reason, ran.paths, desk.responses()) == ("completed", [], {"save": "denied"})
        assert "denied" in seen[0]["error"]


async def test_the_hosts_own_result_takes_the_place_of_a_tool_node() -> None:
    ran = Ran()
    async with driven(graph(ran.tool())) as desk:
        await desk.stream("x.txt")
        done = await desk.stream(result(desk.pending("save"), {"by": "host"}))
        assert (done.reason, ran.paths, outputs(done.events)) == ("completed", [], [{"by": "host"}])


@pytest.mark.rule("SEC-01", "TOOL-13")
async def test_a_tool_node_that_raises_fails_its_graph_and_tells_no_secret() -> None:
    ran = Ran(failures=1)
    async with driven(graph(ran.tool())) as desk:
        await desk.stream("x.txt")
        done = await desk.stream(grant(desk.pending("save")))
        assert (done.reason, desk.responses()) == ("failed", {"save": "failed"})
        assert not any("hunter2" in json.dumps(event.to_wire()) for event in desk.session.record)


@pytest.mark.rule("HITL-03")
async def test_each_try_of_a_tool_node_that_may_be_retried_is_asked_about_anew() -> None:
    ran = Ran(failures=1)
    retried = node(ran.tool(), retry_config=RetryConfig(max_attempts=3, initial_delay=0.001))
    async with driven(graph(retried)) as desk:
        await desk.stream("x.txt")
        again = await desk.stream(grant(desk.pending("save")))
        assert (again.reason, len(ran.paths)) == ("input_required", 1)
        done = await desk.stream(grant(desk.pending("save")))
        assert (done.reason, len(ran.paths)) == ("completed", 2)
        assert desk.responses() == {"save": "failed completed"}


@pytest.mark.rule("CTL-05", "TOOL-01")
async def test_an_abort_settles_a_tool_node_that_waits_and_the_next_turn_works() -> None:
    ran = Ran()
    async with driven(graph(ran.tool())) as desk:
        await desk.stream("x.txt")
        await desk.session.abort()
        assert (desk.responses(), ran.paths) == ({"save": "cancelled"}, [])
        assert (await desk.turn("again")).reason == "completed"
        assert ran.paths == ["again"]


@pytest.mark.rule("HITL-01", "HITL-02")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_tool_node_that_wants_a_confirmation_of_its_own(yes: bool) -> None:
    ran = Ran()
    async with driven(graph(ran.tool(require_confirmation=True))) as desk:
        await desk.stream("x.txt")
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, ran.paths) == ("tool_confirmation", [])
        done = await desk.stream(accept(question.request_id) if yes else decline(question.request_id))
        assert (done.reason, ran.paths) == ("completed", ["x.txt"] if yes else [])


@pytest.mark.rule("HITL-01", "HITL-02")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_tool_node_that_asks_from_inside_is_run_again_only_with_a_yes_and_a_new_grant(yes: bool) -> None:
    runs: list[str] = []

    def ask(path: str, tool_context: ToolContext) -> Any:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            runs.append("asked")
            return None
        runs.append(f"did {path}")
        return "done"

    async with driven(graph(FunctionTool(ask))) as desk:
        await desk.stream("x.txt")
        await desk.stream(grant(desk.pending("ask")))
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, question.message, runs) == ("tool_confirmation", "Really?", ["asked"])
        if yes:
            asked = await desk.stream(accept(question.request_id))
            assert (asked.reason, runs) == ("input_required", ["asked"])
            done = await desk.stream(grant(desk.pending("ask")))
            assert (done.reason, runs) == ("completed", ["asked", "did x.txt"])
        else:
            done = await desk.stream(decline(question.request_id))
            assert (done.reason, runs) == ("completed", ["asked"])


async def test_a_tool_that_a_function_runs_as_a_node_is_asked_about_on_its_thread() -> None:
    ran = Ran()

    async def orchestrate(ctx: Context, node_input: Any) -> str:
        del node_input
        first = await ctx.run_node(ran.tool(), {"path": "dynamic"})
        second = await ctx.run_node(agent(call("look", id="d1"), say("seen"), name="child"), "go")
        return f"{first}, {second}"

    async with driven(graph(node(orchestrate, rerun_on_resume=True)), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("save")))
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, ran.paths) == ("completed", ["dynamic"])
        assert outputs(done.events)[-1] == "saved dynamic, seen"


async def test_a_graph_among_an_agents_tools_is_a_tool_of_the_agents() -> None:
    """Its functions would run with what the model wrote, so it is asked about before, and its agents' calls too."""
    ran: list[str] = []

    def step(node_input: Any) -> str:
        ran.append(str(node_input))
        return "stepped"

    inner = graph(node(step), agent(call("look", id="k1"), say("inner"), name="child"), name="job")
    inner.input_schema = str
    root = agent(call("job", {"request": "x"}, id="c1"), say("done"), tools=[inner])
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert ran == []
        await desk.stream(grant(desk.pending("job")))
        assert len(ran) == 1
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts[-1]) == ("completed", "done")
        assert desk.responses() == {"look": "completed", "job": "completed"}


# -- functions and questions ------------------------------------------------------------------------------------------


async def test_what_functions_give_and_where_they_lead_is_shown() -> None:
    def choose(node_input: Any) -> AdkEvent:
        event = AdkEvent(output={"size": len(str(node_input.parts[0].text))})
        event.actions.route = "short"
        return event

    def short(node_input: Any) -> str:
        return f"short {node_input['size']}"

    root = Workflow(name="wf", edges=[(START, choose), (choose, {"short": short})])
    async with driven(root) as desk:
        turn = await desk.stream("abc")
        assert outputs(turn.events) == [{"size": 3}, "short 3"]
        assert [event.data for event in turn.of("custom") if event.kind == "route"] == ["short"]
        assert (turn.reason, turn.end.data) == ("completed", {"empty": True})


def ask(node_input: Any) -> Any:
    """A node that asks the person under one id for ever."""
    yield RequestInput(message=f"Whose {node_input.parts[0].text}?", interrupt_id="whose", response_schema=None)


def use(node_input: Any) -> str:
    return f"of {node_input}"


@pytest.mark.rule("TOOL-03", "HITL-08")
async def test_a_question_of_a_node_is_a_new_question_each_time_though_its_id_is_one() -> None:
    async with driven(graph(ask, use)) as desk:
        for message, who in (("book", "ann"), ("pen", "bob")):
            asked = await desk.stream(message)
            (question,) = asked.of("elicitation_request")
            assert (asked.reason, question.kind, question.message) == (
                "input_required",
                "clarification",
                f"Whose {message}?",
            )
            done = await desk.stream(accept(question.request_id, {"result": who}))
            assert (done.reason, outputs(done.events)) == ("completed", [f"of {who}"])


class Trip(BaseModel):
    """A form with a field that may be left out."""

    to: str
    days: int | None = None


def plan(node_input: Any) -> Any:
    """A node that asks the person to fill a form in, under one id for ever."""
    del node_input
    yield RequestInput(message="Where to?", interrupt_id="trip", response_schema=Trip)


def plan_back(node_input: Any) -> Any:
    """Another such node."""
    del node_input
    yield RequestInput(message="And back?", interrupt_id="back", response_schema=Trip)


def tell(node_input: Any) -> str:
    return json.dumps(node_input)


@pytest.mark.rule("HITL-02", "HITL-03")
@pytest.mark.parametrize("refused", [decline, cancel])
async def test_a_form_of_a_node_can_be_refused_and_the_next_is_held_to_its_schema_as_ever(refused: Any) -> None:
    async with driven(graph(plan, tell)) as desk:
        await desk.stream("go")
        done = await desk.stream(refused(desk.pending("clarification")))
        assert (done.reason, outputs(done.events)) == ("completed", [json.dumps({"error": refused.__name__})])
        for _ in range(2):
            await desk.stream("go")
            done = await desk.stream(accept(desk.pending("clarification"), {"to": "Rome"}))
            assert (done.reason, outputs(done.events)) == ("completed", [json.dumps({"to": "Rome", "days": None})])


@pytest.mark.rule("HITL-02", "HITL-03")
async def test_after_a_form_that_was_refused_another_node_of_the_turn_can_ask_and_be_answered() -> None:
    async with driven(graph(plan, plan_back, tell)) as desk:
        await desk.stream("go")
        await desk.stream(decline(desk.pending("clarification")))
        done = await desk.stream(accept(desk.pending("clarification"), {"to": "Rome"}))
        assert (done.reason, outputs(done.events)) == ("completed", [json.dumps({"to": "Rome", "days": None})])


@node(rerun_on_resume=True)
async def plan_both(ctx: Context) -> Any:
    """A node that asks for two forms, one after the other, and reads both answers when it has them."""
    answers = ctx.resume_inputs
    for place in ("there", "back"):
        if place not in answers:
            yield RequestInput(message=f"{place}?", interrupt_id=place, response_schema=Trip)
            return
    yield json.dumps(answers)


@pytest.mark.rule("HITL-02", "HITL-03")
async def test_a_node_that_asks_again_is_told_of_the_form_that_was_refused_before() -> None:
    async with driven(graph(plan_both)) as desk:
        await desk.stream("go")
        await desk.stream(decline(desk.pending("clarification")))
        done = await desk.stream(accept(desk.pending("clarification"), {"to": "Rome"}))
        told = {"there": {"error": "decline"}, "back": {"to": "Rome", "days": None}}
        assert (done.reason, outputs(done.events)) == ("completed", [json.dumps(told)])


@pytest.mark.rule("TOOL-07", "TOOL-08")
@pytest.mark.parametrize("first", ["look", "clarification"])
async def test_a_question_of_one_node_and_a_call_of_another_are_answered_in_any_order(first: str) -> None:
    left = agent(call("look", id="c1"), say("L"), name="left")
    async with driven(graph((left, ask), JoinNode(name="both"), use), tools=[host_tool("look")]) as desk:
        await desk.stream("book")

        def answer(name: str) -> Any:
            if name == "look":
                return result(desk.pending("look"), 1)
            return accept(desk.pending("clarification"), {"result": "ann"})

        half = await desk.stream(answer(first))
        assert half.reason == "input_required"
        done = await desk.stream(answer("clarification" if first == "look" else "look"))
        assert done.reason == "completed"
        assert outputs(done.events)[0] == {"ask": "ann", "left": "L"}
        assert model_calls(left) == 2


async def test_a_message_over_a_question_of_a_node_starts_the_graph_anew() -> None:
    async with driven(graph(ask, use)) as desk:
        await desk.stream("book")
        asked = await desk.stream("pen")
        assert [event.message for event in asked.of("elicitation_request")] == ["Whose pen?"]
        await desk.session.abort()
        assert (await desk.turn("cup", {"clarification": {"result": "cy"}})).reason == "completed"


@pytest.mark.rule("LIFE-11")
async def test_a_function_that_succeeds_at_its_second_try_fails_nothing() -> None:
    tries: list[int] = []

    def flaky(node_input: Any) -> str:
        del node_input
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "ok"

    async with driven(graph(node(flaky, retry_config=RetryConfig(max_attempts=3, initial_delay=0.001)))) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, outputs(turn.events)) == ("completed", ["ok"])
        assert [event.fatal for event in turn.of("error")] == [False]


@pytest.mark.rule("SEC-01")
async def test_a_function_that_raises_fails_the_turn_once_and_tells_no_secret() -> None:
    def bad(node_input: Any) -> None:
        raise ValueError(f"no {node_input} password=hunter2")

    async with driven(graph(bad)) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, len(turn.of("error"))) == ("failed", 1)
        assert not any("hunter2" in json.dumps(event.to_wire()) for event in desk.session.record)


@pytest.mark.rule("HITL-01", "HITL-02")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_function_that_wants_a_confirmation_runs_after_a_clear_yes_alone(yes: bool) -> None:
    ran: list[int] = []

    def wipe(node_input: Any) -> str:
        del node_input
        ran.append(1)
        return "wiped"

    async with driven(graph(node(wipe, require_confirmation=True))) as desk:
        await desk.stream("go")
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, ran) == ("tool_confirmation", [])
        unclear = await desk.session.respond(accept(question.request_id, {"confirmed": "no"}))
        assert (unclear[0].status, ran) == ("invalid", [])
        done = await desk.stream(accept(question.request_id) if yes else decline(question.request_id))
        assert (done.reason, ran) == ("completed", [1] if yes else [])


API_KEY = AuthConfig(
    auth_scheme=CustomAuthScheme(type="custom"),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
)


@asynccontextmanager
async def with_credential(used: Callable[[Any], None]) -> AsyncIterator[Driven]:
    def function(ctx: Context, node_input: Any) -> str:
        del node_input
        used(AuthHandler(API_KEY).get_auth_response(ctx.state))
        return "used"

    async with driven(graph(node(function, auth_config=API_KEY, rerun_on_resume=True))) as desk:
        yield desk


@pytest.mark.rule("SEC-01")
async def test_a_credential_of_a_node_reaches_its_function_and_nothing_that_is_stored() -> None:
    used: list[Any] = []
    async with with_credential(used.append) as desk:
        await desk.stream("go")
        answer = accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "api_key": "s3cr3t"}})
        done = await desk.stream(answer)
        assert (done.reason, used[0].api_key) == ("completed", "s3cr3t")
        stored = await desk.executor.session_service.get_session(
            app_name="wf", user_id=desk.session.user_id, session_id=desk.session.session_id
        )
        assert stored is not None
        assert "s3cr3t" not in stored.model_dump_json()
        assert not any("s3cr3t" in json.dumps(event.to_wire()) for event in desk.session.record)


async def test_a_node_whose_credential_is_refused_fails_the_turn_and_runs_nothing() -> None:
    used: list[Any] = []
    async with with_credential(used.append) as desk:
        await desk.stream("go")
        done = await desk.stream(decline(desk.pending("auth_required")))
        assert (done.reason, used) == ("failed", [])


# -- refused, and described -------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-11")
@pytest.mark.parametrize(
    "make",
    [
        lambda: agent(timeout=5.0),
        lambda: graph(agent(name="child", timeout=5.0)),
        lambda: graph(node(FunctionTool(write), timeout=5.0)),
        lambda: graph(graph(agent(name="child"), name="inner", timeout=5.0)),
        lambda: graph(node(agent(name="child"), parallel_worker=True, timeout=5.0)),
        lambda: graph(node(agent(name="child", timeout=5.0), parallel_worker=True)),
    ],
)
async def test_a_timeout_that_would_go_on_while_a_person_thinks_is_refused_unless_it_is_meant(
    make: Callable[[], Any],
) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        AdkExecutor(make())
    AdkExecutor(make(), allows_node_timeouts=True)


async def test_a_function_may_have_a_timeout() -> None:
    def quick(node_input: Any) -> str:
        return str(node_input)

    async with driven(graph(node(quick, timeout=5.0))) as desk:
        assert (await desk.stream("go")).reason == "completed"


async def test_a_timeout_that_is_meant_ends_what_waits_and_a_late_answer_runs_nothing() -> None:
    ran = Ran()
    child = agent(call("save", id="c1"), say("never"), name="child", tools=[ran.tool()], timeout=0.2)
    async with driven(graph(child), allows_node_timeouts=True) as desk:
        turn = await desk.stream("go")
        with anyio.fail_after(10):
            while turn.reason == "input_required":
                await anyio.lowlevel.checkpoint()
                try:
                    turn = await desk.stream()  # goes on as soon as ADK's clock has ended the node
                except NothingToContinue:
                    continue
        assert (turn.reason, ran.paths) == ("failed", [])
        assert [event.code for event in turn.of("error")] == ["NodeTimeoutError"]


async def test_a_graph_cannot_be_parked() -> None:
    with pytest.raises(ConfigurationError, match="parked"):
        AdkExecutor(graph(agent(name="child")), parked=True)


async def test_what_is_refused_of_an_agent_is_refused_of_one_deep_in_a_graph() -> None:
    from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor
    from google.adk.tools.google_search_tool import google_search

    coder = agent(name="coder", code_executor=UnsafeLocalCodeExecutor())
    for root in (
        graph(graph(coder, name="inner")),
        graph(node(coder, parallel_worker=True)),
        agent(tools=[_job(coder)]),
    ):
        with pytest.raises(ConfigurationError, match="code_executor"):
            AdkExecutor(root)
    with pytest.raises(ConfigurationError, match="provider"):
        AdkExecutor(graph(node(agent(name="child", tools=[google_search]), parallel_worker=True)))


def _job(inner: Any) -> Workflow:
    made = graph(inner, name="job")
    made.input_schema = str
    return made


async def test_the_descriptor_of_a_graph_lists_its_nodes_its_agents_and_the_tools_that_are_nodes() -> None:
    root = graph(FunctionTool(write), agent(name="child"), node(agent(name="worker"), parallel_worker=True))
    descriptor = AdkExecutor(root).descriptor
    assert [tool.name for tool in descriptor.own_tools or ()] == ["write"]
    assert [child.name for child in descriptor.sub_agents or ()] == ["child", "worker"]
    assert descriptor.composition is not None
    assert descriptor.composition.pattern == "workflow"


async def test_two_calls_of_one_step_in_a_node_are_told_apart() -> None:
    step = calls(call("look", {"n": 1}, id="c1"), call("look", {"n": 2}, id="c2"))
    child = agent(step, say("done"), name="child")
    async with driven(graph(child), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        answers = [result(item.request_id, item.args) for item in desk.session.pending if isinstance(item, ToolRequest)]
        assert (await desk.stream(answers[::-1])).texts == ["done"]
        assert [text for kind, text in history(child.model) if kind.startswith("result")] == ['{"n": 1}', '{"n": 2}']
