"""A span for each tool that the host runs, what a host measures, and trace context for calls to elsewhere."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode
from tests.host.subagents import agent, calls
from tests.tracing import given, measured, parent_id, span_id, traced

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    Rule,
    RulePolicy,
    SubagentTool,
    ToolContext,
    allow_all,
    hook,
    tool,
    trace_headers,
)
from agentsession.protocol import ExecutionOptions

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file."""
    with trace.get_tracer("user").start_as_current_span("reading"):
        if path == "bad":
            raise ValueError("key=sk-123")
        return "secret text"


@pytest.mark.parametrize("path", ["a", "bad"])
async def test_a_host_tool_runs_in_a_span_under_the_callers_without_arguments_or_results(path: str) -> None:
    host = Host(tools=[read_file], policy=allow_all)
    with traced() as told, trace.get_tracer("host").start_as_current_span("request") as caller:
        async with ScriptedExecutor([[Call("read_file", {"path": path}), Say("done")]]) as executor:
            async with host.session(executor) as session:
                await host.run_turn(session, "go")
                session_id = session.session_id
        (span,) = told.ours("execute_tool read_file")
        (inside,) = told.named("reading")
        given: Any = dict(span.attributes or {})
        assert given.pop("gen_ai.tool.call.id")
        failed = given.pop("error.type", None)
        assert given == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "read_file",
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": session_id,
        }
        assert (failed is not None) == (path == "bad") == (span.status.status_code is StatusCode.ERROR)
        assert (parent_id(span), parent_id(inside)) == (caller.get_span_context().span_id, span_id(span))
        assert span.events == ()
        assert "secret" not in span.to_json()
        assert "sk-123" not in span.to_json()


@tool(read_only=True)
def log_in(user: str, password: str) -> dict[str, str]:
    """Log in."""
    return {"user": user, "said": f"welcome, {password}"}


async def one_turn(host: Host, *calls: Call) -> None:
    async with ScriptedExecutor([[*calls, Say("done")]]) as executor, host.session(executor) as session:
        await host.run_turn(session, "go")


async def test_tools_policy_and_hooks_are_measured_without_an_id_or_an_argument() -> None:
    @hook("before_tool")
    def watch(payload: Any) -> None:
        return None

    policy = RulePolicy([Rule("allow", "read_*"), Rule("deny", "log_in")])
    host = Host(tools=[read_file, log_in], policy=policy, hooks=[watch])
    with measured() as told:
        await one_turn(
            host,
            Call("read_file", {"path": "secret"}),
            Call("read_file", {"path": "bad"}),
            Call("log_in", {"user": "ann", "password": "secret"}),
        )
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read_file"}
        points = told.points("gen_ai.execute_tool.duration")
        assert sorted((str(found.get("error.type")), count) for found, count, _ in points) == [
            ("None", 1),
            ("tool_failed", 1),
        ]
        assert all(about.items() <= found.items() for found, _, _ in points)
        policies = told.points("agentsession.policy.duration")
        assert {found["agentsession.policy.decision"]: count for found, count, _ in policies} == {"allow": 2, "deny": 1}
        hooks = told.points("agentsession.hook.duration")
        assert [(found, count) for found, count, _ in hooks] == [
            ({"agentsession.hook.point": "before_tool", "agentsession.hook.action": "proceed"}, 3)
        ]
        assert "secret" not in str(told.attributes)
        assert not [name for attributes in told.attributes for name in attributes if name.endswith(".id")]


@pytest.mark.parametrize("switch", ["", "1"])
async def test_arguments_and_results_are_in_the_span_only_where_content_is_switched_on_and_without_secrets(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSESSION_OTEL_CONTENT", switch)
    with traced() as told:
        await one_turn(Host(tools=[log_in], policy=allow_all), Call("log_in", {"user": "ann", "password": "hunter22"}))
        (span,) = told.ours("execute_tool log_in")
        about = given(span)
        if not switch:
            assert "ann" not in span.to_json()
            return
        assert about["gen_ai.tool.call.arguments"] == '{"user": "ann", "password": "***"}'
        assert "welcome, ***" in about["gen_ai.tool.call.result"]


async def test_the_headers_for_a_call_to_elsewhere_are_those_of_the_span_that_is_current() -> None:
    seen: list[dict[str, str]] = []

    @tool(read_only=True)
    async def fetch(context: ToolContext) -> str:
        """Fetch."""
        seen.append(trace_headers())
        return "ok"

    assert trace_headers() == {}
    with traced() as told:
        await one_turn(Host(tools=[fetch], policy=allow_all), Call("fetch"))
        (span,) = told.ours("execute_tool fetch")
        assert span.context is not None
        (headers,) = seen
        assert set(headers) == {"traceparent"}
        assert headers["traceparent"].startswith(f"00-{span.context.trace_id:032x}-{span_id(span):016x}-")


TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("of", ["session", "turn"])
async def test_host_tools_hang_under_the_headers_that_a_session_or_a_turn_was_given_as_its_streams_do(of: str) -> None:
    options = ExecutionOptions(trace_context={"traceparent": f"00-{TRACE}-{ABOVE}-01"})
    host = Host(tools=[read_file], policy=allow_all)
    with traced() as told:
        async with ScriptedExecutor([[Call("read_file", {"path": "a"}), Say("done")]]) as executor:
            async with host.session(executor, options if of == "session" else None) as session:
                await host.run_turn(session, "go", options if of == "turn" else None)
        spans = [*told.ours("execute_tool read_file"), *told.ours("invoke_agent scripted")]
        assert len(spans) == 3
        for span in spans:
            assert span.context is not None
            assert (f"{span.context.trace_id:032x}", parent_id(span)) == (TRACE, int(ABOVE, 16))
    assert trace_headers() == {}


async def test_headers_that_cannot_be_read_keep_no_turn_from_running() -> None:
    odd = ExecutionOptions(trace_context={"traceparent": "not one", "tracestate": 7})
    host = Host(tools=[read_file], policy=allow_all)
    with traced() as told:
        async with ScriptedExecutor([[Call("read_file", {"path": "a"}), Say("done")]]) as executor:
            assert (await host.run(executor, "go", odd)).completed
        (span,) = told.ours("execute_tool read_file")
        assert span.parent is None


async def test_a_sub_agents_tools_hang_under_the_call_that_it_works_for() -> None:
    options = ExecutionOptions(trace_context={"traceparent": f"00-{TRACE}-{ABOVE}-01"})
    async with agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer:
        host = Host(tools=[read_file, SubagentTool(fixer, tools=["read_file"])], policy=allow_all)
        with traced() as told:
            async with agent("coder", calls("fixer"), Say("Done.")) as coder:
                await host.run(coder, "go", options)
            (span,) = told.ours("execute_tool read_file")
            (call,) = told.ours("execute_tool fixer")
    assert (parent_id(span), parent_id(call)) == (span_id(call), int(ABOVE, 16))


async def test_the_wait_for_a_person_ends_where_the_tool_starts() -> None:
    async def think(request: Any, decision: Any, position: Any) -> Approval:
        await anyio.lowlevel.checkpoint()
        return Approval.yes()

    host = Host(tools=[read_file], policy=RulePolicy([Rule("ask_user", "*")]), channel=CallbackChannel(think))
    with traced() as told, measured() as metrics:
        await one_turn(host, Call("read_file", {"path": "a"}))
        (wait,), (run,) = told.ours("agentsession.wait"), told.ours("execute_tool read_file")
        assert given(wait)["agentsession.wait.action"] == "started"
        assert wait.end_time is not None
        assert run.start_time is not None
        assert wait.end_time <= run.start_time
        ((about, count, _),) = metrics.points("agentsession.wait.duration")
        assert (about, count) == ({"agentsession.wait.kind": "result", "agentsession.wait.action": "started"}, 1)
