"""The names of spans, metrics and attributes, and the switch for content."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.protocol.telemetry import (
    CONTENT_SWITCH,
    COST,
    METRICS,
    SCOPE,
    TOKENS,
    Instruments,
    Name,
    tells_content,
)


def test_the_names_are_those_that_dashboards_were_made_for() -> None:
    names = {name: value for name, value in vars(Name).items() if not name.startswith("_")}
    assert names == {
        "OPERATION": "gen_ai.operation.name",
        "PROVIDER": "gen_ai.provider.name",
        "AGENT": "gen_ai.agent.name",
        "AGENT_VERSION": "gen_ai.agent.version",
        "CONVERSATION": "gen_ai.conversation.id",
        "REQUEST_MODEL": "gen_ai.request.model",
        "RESPONSE_MODEL": "gen_ai.response.model",
        "RESPONSE_ID": "gen_ai.response.id",
        "FINISH_REASONS": "gen_ai.response.finish_reasons",
        "INPUT_TOKENS": "gen_ai.usage.input_tokens",
        "OUTPUT_TOKENS": "gen_ai.usage.output_tokens",
        "CACHED_TOKENS": "gen_ai.usage.cache_read.input_tokens",
        "REASONING_TOKENS": "gen_ai.usage.reasoning.output_tokens",
        "TOKEN_TYPE": "gen_ai.token.type",
        "TOOL": "gen_ai.tool.name",
        "TOOL_TYPE": "gen_ai.tool.type",
        "TOOL_CALL": "gen_ai.tool.call.id",
        "TOOL_ARGUMENTS": "gen_ai.tool.call.arguments",
        "TOOL_RESULT": "gen_ai.tool.call.result",
        "INPUT_MESSAGES": "gen_ai.input.messages",
        "OUTPUT_MESSAGES": "gen_ai.output.messages",
        "ERROR": "error.type",
        "STREAM": "agentsession.stream.id",
        "TURN": "agentsession.turn.id",
        "END": "agentsession.stream_end.reason",
        "REQUEST": "agentsession.request.id",
        "WAIT_KIND": "agentsession.wait.kind",
        "WAIT_ACTION": "agentsession.wait.action",
        "POLICY_DECISION": "agentsession.policy.decision",
        "HOOK_POINT": "agentsession.hook.point",
        "HOOK_ACTION": "agentsession.hook.action",
    }
    assert [(metric.name, metric.unit, metric.kind) for metric in METRICS] == [
        ("gen_ai.client.operation.duration", "s", "histogram"),
        ("gen_ai.client.operation.time_to_first_chunk", "s", "histogram"),
        ("gen_ai.client.token.usage", "{token}", "histogram"),
        ("gen_ai.invoke_agent.duration", "s", "histogram"),
        ("gen_ai.execute_tool.duration", "s", "histogram"),
        ("agentsession.policy.duration", "s", "histogram"),
        ("agentsession.hook.duration", "s", "histogram"),
        ("agentsession.wait.duration", "s", "histogram"),
        ("agentsession.cost", "USD", "counter"),
    ]
    assert (SCOPE, CONTENT_SWITCH) == ("agentsession", "AGENTSESSION_OTEL_CONTENT")


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("1", True),
        ("true", True),
        (" YES ", True),
        ("on", True),
        ("0", False),
        ("", False),
        ("false", False),
        ("no", False),
    ],
)
def test_content_is_told_only_where_the_switch_clearly_says_so(value: str, on: bool) -> None:
    assert tells_content({CONTENT_SWITCH: value}) is on
    assert tells_content({}) is False


def test_a_meter_that_fails_loses_the_measurement_and_nothing_else() -> None:
    class Broken:
        def create_histogram(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("exporter")

    Instruments(lambda: Broken()).record(TOKENS, 1, {})
    Instruments(lambda: None).record(COST, 1, {})
