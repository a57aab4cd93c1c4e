"""What a host is given is looked at when it is made, and not when a call first needs it."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.host import Host, tool
from agentsession.protocol import ConfigurationError


def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"tools": look}, "tools is of type function"),
        ({"tools": tool(look)}, "tools is of type Tool"),
        ({"policy": "allow"}, "policy is of type str"),
        ({"channel": "terminal"}, "channel is of type str"),
        ({"observer": 3}, "observer is of type int"),
        ({"on_answer": 3}, "on_answer is of type int"),
        ({"tool_timeout_s": 0}, "tool_timeout_s is 0"),
        ({"tool_timeout_s": "5"}, "tool_timeout_s is '5'"),
        ({"tool_timeout_s": True}, "tool_timeout_s is True"),
        ({"question_timeout_s": -1}, "question_timeout_s is -1"),
        ({"max_parallel_tools": 0}, "max_parallel_tools is 0"),
        ({"on_ask": "ask"}, "unknown on_ask 'ask'"),
    ],
)
def test_what_a_host_cannot_use_is_refused_with_its_name(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Host(**given)
    assert refused.value.what == what
    assert refused.value.expected


@pytest.mark.parametrize("seconds", [0, -1, "5", float("nan")])
def test_a_tool_has_a_time_above_zero_or_none(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s of tool 'look' is"):
        tool(timeout_s=seconds)(look)
    tool(timeout_s=None)(look)
