"""A span for each tool that the host runs."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode
from tests.tracing import parent_id, span_id, traced

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, allow_all, tool

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
