"""ADK's own spans hang under the span of the session's stream, in every shape of agent, and hold no content."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import ParallelAgent
from google.adk.tools.agent_tool import AgentTool
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.adapters.adk.driving import agent, driven, host_tool
from tests.tracing import given, measured, parent_id, record_nothing, scope, span_id, traced

from agentsession.adapters.adk import call, say
from agentsession.adapters.adk._telemetry import SWITCHES, _are_told, without_content
from agentsession.protocol import result

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own parallel agent
]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_all_of_adks_spans_are_in_the_callers_trace_under_the_streams_span() -> None:
    def write(path: str) -> str:
        """Write."""
        with trace.get_tracer("user").start_as_current_span("inside the tool"):
            return path

    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[write])
    with traced() as told:
        async with driven(root, execution={"trace_context": {"traceparent": PARENT}}) as driver:
            await driver.turn("go")
        assert {f"{span.context.trace_id:032x}" for span in told.spans if span.context} == {PARENT.split("-")[1]}
        adks = [span for span in told.spans if scope(span) == "gcp.vertex.agent"]
        assert {span.name for span in adks} >= {
            "invoke_workflow root",
            "invoke_agent root",
            "generate_content scripted",
            "execute_tool write",
        }
        assert {told.above(span)[-1] for span in adks} == {"ours:invoke_agent root"}
        (inside,) = told.named("inside the tool")
        assert told.above(inside)[0] == "execute_tool write"


async def test_a_run_that_is_kept_open_stays_under_its_first_stream_which_the_next_is_linked_to() -> None:
    root = agent(call("look", id="c1"), say("done"))
    with traced() as told:
        async with driven(root, tools=[host_tool("look")]) as driver:
            await driver.stream("go")
            await driver.stream(result(driver.pending("look"), 1))
        one, two = told.ours("invoke_agent root")
        (invocation,) = told.named("invoke_workflow root")
        assert parent_id(invocation) == span_id(one)
        assert [link.context.span_id for link in two.links] == [span_id(one)]


async def test_a_run_that_is_entered_again_is_under_the_stream_that_enters_it() -> None:
    root = agent(call("look", id="c1"), say("done"))
    with traced() as told:
        async with driven(root, tools=[host_tool("look")], parked=True) as driver:
            await driver.stream("go")
            await driver.stream(result(driver.pending("look"), 1))
        streams = [span_id(span) for span in told.ours("invoke_agent root")]
        assert [parent_id(span) for span in told.named("invoke_workflow root")] == streams


async def test_spans_of_parallel_branches_hang_under_their_own_agent() -> None:
    members = [agent(call("look", id=f"c-{name}"), say(name), name=name) for name in ("one", "two")]
    root = ParallelAgent(name="root", sub_agents=list(members))
    with traced() as told:
        async with driven(root, tools=[host_tool("look")]) as driver:
            await driver.turn("go")
        looks = [told.above(span) for span in told.named("execute_tool look")]
        agents = sorted(next(name for name in above if name.startswith("invoke_agent")) for above in looks)
        assert agents == ["invoke_agent one", "invoke_agent two"]
        assert {above[-1] for above in looks} == {"ours:invoke_agent root"}


async def test_spans_of_a_child_hang_under_the_call_that_runs_it() -> None:
    child = agent(say("child done"), name="child")
    root = agent(call("child", {"request": "do it"}, id="c1"), say("done"), tools=[AgentTool(child)])
    with traced() as told:
        async with driven(root) as driver:
            await driver.turn("go")
        (inner,) = told.named("invoke_agent child")
        above = told.above(inner)
        assert "execute_tool child" in above
        assert above[-1] == "ours:invoke_agent root"


async def test_sessions_at_the_same_time_have_traces_of_their_own() -> None:
    import anyio

    root = agent(*(say("done") for _ in range(8)))
    with traced() as told:
        async with driven(root) as driver, anyio.create_task_group() as group:

            async def one() -> None:
                session = await driver.executor.open()
                async with session.stream("go") as events:
                    async for _ in events:
                        pass

            for _ in range(6):
                group.start_soon(one)
        by_trace: dict[int, list[str]] = {}
        for span in told.spans:
            assert span.context is not None
            by_trace.setdefault(span.context.trace_id, []).append(span.name)
        assert len(by_trace) == 6
        assert len({tuple(sorted(names)) for names in by_trace.values()}) == 1


@pytest.mark.parametrize("schema", ["1", "2"])
async def test_adks_spans_hold_no_prompt_argument_or_result(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", schema)
    _are_told.cache_clear()

    def write(path: str) -> str:
        """Write."""
        return "result-planted"

    child = agent(say("answer-planted"), name="child")
    root = agent(
        call("write", {"path": "argument-planted"}, id="c1"),
        call("child", {"request": "request-planted"}, id="c2"),
        say("answer-planted"),
        tools=[write, AgentTool(child)],
    )
    with traced() as told:
        async with driven(root) as driver:
            await driver.turn("prompt-planted")
        assert told.named("execute_tool write")
        shown = "".join(span.to_json() for span in told.spans)
        assert "planted" not in shown
        assert bool(told.named("call_llm")) == (schema == "1")
    _are_told.cache_clear()


@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_variable_of_the_process_decides_where_it_is_set(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _are_told.cache_clear()
    try:
        assert without_content() is not None
        _are_told.cache_clear()
        monkeypatch.setenv(switch, "true")
        assert without_content() is None
    finally:
        _are_told.cache_clear()


async def test_an_abort_ends_the_streams_span_and_what_waits() -> None:
    with traced() as told:
        async with driven(agent(call("look", id="c1"), say("never")), tools=[host_tool("look")]) as driver:
            await driver.stream("go")
            await driver.session.abort()
        reasons: list[Any] = [given(span)["agentsession.stream_end.reason"] for span in told.ours("invoke_agent root")]
        assert reasons == ["input_required", "aborted"]
        (wait,) = told.ours("agentsession.wait")
        assert given(wait)["agentsession.wait.action"] == "cancelled"


async def test_adk_writes_the_text_of_an_exception_into_its_spans_as_the_guide_says() -> None:
    """Not ours to mend: when this fails, ADK has stopped, and docs/how-to/trace-sessions.md can say so."""

    def broken() -> str:
        raise RuntimeError("key=sk-123")

    root = agent(call("broken", id="c1"), RuntimeError("key=sk-456"), tools=[broken])
    with traced() as told:
        async with driven(root) as driver:
            await driver.turn("go")
        ours = "".join(span.to_json() for span in told.spans if scope(span) == "agentsession")
        adks = "".join(span.to_json() for span in told.spans if scope(span) == "gcp.vertex.agent")
        assert "sk-" not in ours
        assert "sk-456" in adks


async def test_what_adk_measures_is_not_measured_twice_and_the_first_chunk_which_it_does_not_is() -> None:
    root = agent(call("look", id="c1"), say("done").using(input=7, output=3))
    with measured() as told:
        async with driven(root, tools=[host_tool("look")]) as driver:
            await driver.stream("go")
            await driver.stream(result(driver.pending("look"), 1))
        names = told.names
        ours = {name for owner, name in names if owner == "agentsession"}
        adks = {name for owner, name in names if owner == "gcp.vertex.agent"}
        assert ours == {"gen_ai.client.operation.time_to_first_chunk", "agentsession.wait.duration"}
        assert adks >= {"gen_ai.client.operation.duration", "gen_ai.client.token.usage", "gen_ai.invoke_agent.duration"}
        ((_, count, total),) = told.points("gen_ai.client.operation.time_to_first_chunk")
        assert count == 2
        assert total >= 0


def test_chunks_are_not_described_for_spans_that_nobody_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    _are_told.cache_clear()
    record_nothing(monkeypatch)
    unrecorded = without_content()
    assert unrecorded is not None
    assert unrecorded.genai_semconv_stability_opt_in == "stable"
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    recorded = without_content()
    assert recorded is not None
    assert recorded.genai_semconv_stability_opt_in is None
