"""What a session measures, the spans of model calls, and the switch for content. On asyncio and trio."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from tests.adapters.sessions import read, say, session_of, tool
from tests.tracing import given, measured, span_id, traced

from agentsession.adapters.base import RunContext
from agentsession.protocol import Usage, result

pytestmark = pytest.mark.anyio

STREAM = "invoke_agent puppet"


async def asks_a_model(ctx: RunContext) -> None:
    with ctx.model_call("big", provider="acme") as call:
        call.chunk()
        call.chunk()
        used = await ctx.usage(
            model="big", input_tokens=10, output_tokens=4, reasoning_tokens=3, cached_tokens=2, cost=0.5
        )
        call.response(used, model="big-7", response_id="r1", finish_reasons=["stop"])
    await ctx.say("secret answer")


async def test_a_stream_and_its_tokens_and_cost_are_measured_without_an_id() -> None:
    with measured() as told:
        async with session_of(asks_a_model) as session:
            await say(session, "secret question")
        ((about, count, total),) = told.points("gen_ai.invoke_agent.duration")
        assert (about, count) == ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "puppet"}, 1)
        assert total > 0
        tokens = {item[0]["gen_ai.token.type"]: item for item in told.points("gen_ai.client.token.usage")}
        assert {kind: item[2] for kind, item in tokens.items()} == {"input": 10, "output": 7}
        ((about, _, spent),) = told.points("agentsession.cost")
        assert (about, spent) == ({"gen_ai.request.model": "big"}, 0.5)
        for attributes in told.attributes:
            assert not [name for name in attributes if name.endswith(".id")]
            assert "secret" not in str(attributes)


async def test_a_model_call_is_a_client_span_under_the_streams_and_is_measured() -> None:
    with traced() as told, measured() as metrics:
        async with session_of(asks_a_model) as session:
            await say(session)
            session_id = session.session_id
        (span,) = told.ours("chat big")
        (stream,) = told.ours(STREAM)
        assert span.parent is not None
        assert (span.kind, span.parent.span_id) == (SpanKind.CLIENT, span_id(stream))
        assert given(span) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "acme",
            "gen_ai.request.model": "big",
            "gen_ai.agent.name": "puppet",
            "gen_ai.conversation.id": session_id,
            "gen_ai.response.model": "big-7",
            "gen_ai.response.id": "r1",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 2,
            "gen_ai.usage.reasoning.output_tokens": 3,
        }
        about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme", "gen_ai.request.model": "big"}
        for name in ("gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"):
            ((found, count, _),) = metrics.points(name)
            assert (found, count) == (about, 1)


async def test_a_model_call_that_fails_says_with_what_and_nothing_of_the_text() -> None:
    async def work(ctx: RunContext) -> None:
        with ctx.model_call("big"):
            raise ConnectionError("key=sk-123")

    with traced() as told, measured() as metrics:
        async with session_of(work) as session:
            await say(session)
        (span,) = told.ours("chat big")
        assert (span.status.status_code, given(span)["error.type"]) == (StatusCode.ERROR, "ConnectionError")
        assert "sk-123" not in span.to_json()
        ((about, _, _),) = metrics.points("gen_ai.client.operation.duration")
        assert about["error.type"] == "ConnectionError"
        ((about, _, _),) = metrics.points("gen_ai.invoke_agent.duration")
        assert about["error.type"] == "INTERNAL"


async def test_a_wait_for_the_host_is_measured_by_kind_and_action() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.requests(tool("look"))

    with measured() as told:
        async with session_of(work) as session:
            await say(session)
            assert told.points("agentsession.wait.duration") == []
            await read(session.stream(result("look", 1)))
        ((about, count, total),) = told.points("agentsession.wait.duration")
        assert total > 0
        assert (about, count) == ({"agentsession.wait.kind": "result", "agentsession.wait.action": "completed"}, 1)


@pytest.mark.parametrize("switch", [None, "0", "1"])
async def test_what_is_said_is_in_the_span_only_where_content_is_switched_on(
    switch: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch is not None:
        monkeypatch.setenv("AGENTSESSION_OTEL_CONTENT", switch)
    with traced() as told:
        async with session_of(asks_a_model) as session:
            await say(session, "secret question")
        (span,) = told.ours(STREAM)
        if switch != "1":
            assert "secret" not in span.to_json()
            return
        about = given(span)
        assert about["gen_ai.input.messages"] == (
            '[{"role": "user", "parts": [{"type": "text", "content": "secret question"}]}]'
        )
        assert "secret answer" in about["gen_ai.output.messages"]


async def test_a_model_call_without_a_meter_or_tracer_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ctx: RunContext) -> None:
        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("exporter")

        monkeypatch.setattr("agentsession.adapters.base._otel.OtelModelCall.chunk", broken)
        monkeypatch.setattr("agentsession.adapters.base._otel.OtelModelCall.end", broken)
        with ctx.model_call("big") as call:
            call.chunk()
            call.response(Usage(input_tokens=1))
        await ctx.say("done")

    async with session_of(work) as session:
        assert (await say(session))[-1].to_wire()["reason"] == "completed"
