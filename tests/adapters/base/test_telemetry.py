"""The spans of a session's streams and waits. On asyncio and trio."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.adapters.sessions import read, say, session_of, tool
from tests.tracing import given, parent_id, span_id, traced

from agentsession.adapters.base import RunContext, RunResult
from agentsession.protocol import ElicitationRequest, ExecutionOptions, ToolResponse, accept, grant, result

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
STREAM = "invoke_agent puppet"


async def talk(ctx: RunContext) -> None:
    await ctx.say("done")


async def ask(ctx: RunContext) -> None:
    await ctx.requests(tool("look"), tool("write", needs="grant"))
    await ctx.emit(ToolResponse(request_id="write", name="write", data="written"))
    await ctx.say("done")


def only(spans: list[Any]) -> Any:
    (span,) = spans
    return span


async def test_a_stream_is_a_span_with_the_names_of_agent_session_and_end() -> None:
    with traced() as told:
        async with session_of(talk) as session:
            end = (await say(session))[-1]
            span = only(told.ours(STREAM))
            assert (span.kind, span.parent, span.links) == (SpanKind.INTERNAL, None, ())
            assert dict(span.attributes) == {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "puppet",
                "gen_ai.conversation.id": session.session_id,
                "agentsession.stream.id": end.stream_id,
                "agentsession.turn.id": end.turn_id,
                "agentsession.stream_end.reason": "completed",
            }
            assert span.status.status_code is StatusCode.UNSET


async def test_the_span_hangs_under_the_callers_trace_context() -> None:
    with traced() as told:
        async with session_of(talk) as session:
            await read(
                session.stream("go", ExecutionOptions(trace_context={"traceparent": PARENT, "tracestate": "a=b"}))
            )
        span = only(told.ours(STREAM))
        assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
        assert span.context.trace_state.get("a") == "b"


async def test_without_headers_the_span_hangs_under_the_callers_own() -> None:
    with traced() as told, trace.get_tracer("host").start_as_current_span("request") as caller:
        async with session_of(talk) as session:
            await say(session)
        assert only(told.ours(STREAM)).parent.span_id == caller.get_span_context().span_id


@pytest.mark.parametrize(
    "carrier",
    [
        {"traceparent": "nonsense"},
        {"traceparent": 7, "tracestate": ["a"]},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": "", "tracestate": "\x00,,==" * 100},
        {"other": {"deep": None}},
        {},
    ],
    ids=range(7),
)
async def test_headers_that_cannot_be_read_begin_a_trace_of_their_own_and_break_nothing(carrier: Any) -> None:
    with traced() as told:
        async with session_of(talk) as session:
            events = await read(session.stream("go", ExecutionOptions(trace_context=carrier)))
            assert events[-1].to_wire()["reason"] == "completed"
        assert only(told.ours(STREAM)).parent is None


async def test_the_work_of_a_run_hangs_under_its_streams_span() -> None:
    async def work(ctx: RunContext) -> None:
        with trace.get_tracer("executor").start_as_current_span("work"):
            await ctx.say("done")

    with traced() as told:
        async with session_of(work) as session:
            await say(session)
            assert trace.get_current_span() is trace.INVALID_SPAN
        assert told.above(only(told.named("work"))) == [f"ours:{STREAM}"]


async def test_the_streams_of_a_turn_are_linked_and_those_of_the_next_turn_are_not() -> None:
    with traced() as told:
        async with session_of(ask) as session:
            await say(session)
            await read(session.stream([result("look", 1), grant("write")]))
            first, second = told.ours(STREAM)
            assert [link.context.span_id for link in second.links] == [span_id(first)]
            reasons = [given(span)["agentsession.stream_end.reason"] for span in (first, second)]
            assert reasons == ["input_required", "completed"]

    with traced() as told:
        async with session_of(talk) as session:
            await say(session)
            await say(session)
            assert [span.links for span in told.ours(STREAM)] == [(), ()]


async def test_a_wait_is_a_span_from_its_request_to_its_answer() -> None:
    async def work(ctx: RunContext) -> None:
        question = ElicitationRequest(request_id="q", kind="clarification", message="?")
        await ctx.requests(tool("look"), tool("write", needs="grant"), question)
        await ctx.emit(ToolResponse(request_id="write", name="write", data="written"))

    with traced() as told:
        async with session_of(work) as session:
            await say(session)
            assert told.ours("agentsession.wait") == []
            await read(session.stream([result("look", {"pin": "hush"}), grant("write"), accept("q", {"a": "hush"})]))
            waits = told.ours("agentsession.wait")
            shown = {given(span)["agentsession.request.id"]: given(span) for span in waits}
            assert {
                name: (item["agentsession.wait.kind"], item["agentsession.wait.action"]) for name, item in shown.items()
            } == {"look": ("result", "completed"), "write": ("grant", "granted"), "q": ("clarification", "accept")}
            assert (shown["look"]["gen_ai.tool.name"], "gen_ai.tool.name" in shown["q"]) == ("look", False)
            assert {tuple(told.above(span)) for span in waits} == {(f"ours:{STREAM}",)}
            assert "hush" not in "".join(span.to_json() for span in told.spans)


async def test_a_turn_that_fails_says_with_what_and_nothing_of_the_text() -> None:
    async def work(_: RunContext) -> None:
        raise RuntimeError("key=sk-123")

    with traced() as told:
        async with session_of(work) as session:
            await say(session)
        span = only(told.ours(STREAM))
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "INTERNAL")
        assert "sk-123" not in span.to_json()


async def test_a_settlement_is_a_stream_with_a_span_of_its_own_and_ends_the_waits() -> None:
    with traced() as told:
        async with session_of(ask) as session:
            await say(session)
            await session.abort()
        last = told.ours(STREAM)[-1]
        assert given(last)["agentsession.stream_end.reason"] == "aborted"
        actions = {given(span)["agentsession.wait.action"] for span in told.ours("agentsession.wait")}
        assert actions == {"cancelled"}


async def test_a_run_that_is_entered_again_works_under_the_span_of_its_own_stream() -> None:
    async def work(ctx: RunContext) -> RunResult | None:
        with trace.get_tracer("executor").start_as_current_span("again" if ctx.answers else "first"):
            if not ctx.answers:
                await ctx.post(tool("look"))
        return None

    with traced() as told:
        async with session_of(work) as session:
            await say(session)
            await read(session.stream(result("look", 1)))
        one, two = told.ours(STREAM)
        parents = [parent_id(told.named(name)[0]) for name in ("first", "again")]
        assert parents == [span_id(one), span_id(two)]


async def test_a_tracer_that_raises_breaks_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def start_span(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("exporter")

    monkeypatch.setattr(trace, "get_tracer", lambda *_: Broken())
    async with session_of(talk) as session:
        assert (await say(session))[-1].to_wire()["reason"] == "completed"


def test_without_opentelemetry_a_session_works_and_the_base_does_not_ask_for_it() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import anyio
from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host import Host, trace_headers
async def main():
    async with ScriptedExecutor([[Say("hi")]]) as executor, Host().session(executor) as session:
        assert session.spans is None
        print((await Host().run_turn(session, "go")).end.reason, trace_headers())
anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("completed {}", 0), done.stderr


def test_a_base_that_is_only_imported_has_not_imported_opentelemetry() -> None:
    program = "import sys, agentsession.adapters.base, agentsession.host; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
