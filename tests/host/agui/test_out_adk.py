"""Real Google ADK as AG-UI runs: reasoning, streamed calls, an agent behind a tool, a sub-agent of the host's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from tests.host.agui.streams import Client, check, of_type
from tests.host.subagents import run

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say, stream, stream_call, think
from agentsession.host import Host, SubagentTool, allow_all
from agentsession.host.agui import Known, RunMapper
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Event

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _agent(name: str, *answers: Any, tools: Any = ()) -> LlmAgent:
    return LlmAgent(name=name, description="Works.", model=ScriptedLlm(script=list(answers)), tools=list(tools))


def look(path: str) -> str:
    """Look at a file."""
    return f"text of {path}"


async def told(agent: LlmAgent, tools: Any = ()) -> tuple[list[Wire], Client]:
    """A turn of the agent's under a host that allows all, as one run."""
    seen: list[Event] = []
    async with AdkExecutor(agent) as executor:
        result = await run(Host(tools=list(tools), policy=allow_all, observer=seen.append), executor)
    assert result.completed
    mapper = RunMapper(thread_id="t", run_id="r", known=Known())
    out = mapper.start()
    for event in seen:
        out += mapper.feed(event)
    out += mapper.finish(history=seen)
    return out, check(out)


async def test_thoughts_with_signatures_and_text_in_deltas() -> None:
    out, client = await told(_agent("root", calls(think("Let me ", "see.", signature=b"sig"), stream("Hel", "lo"))))
    assert "".join(event["delta"] for event in of_type(out, "TEXT_MESSAGE_CONTENT")[1:]) in ("Hello", "lo")
    reasoning = [item for item in client.messages if item["role"] == "reasoning"]
    assert [item["content"] for item in reasoning] == ["Let me see."]
    assert "encryptedValue" in reasoning[0]


async def test_arguments_in_fragments_of_parallel_calls_are_one_message() -> None:
    script = [calls(stream_call("look", {"path": ["a", ".py"]}), call("look", {"path": "b.py"})), say("Done.")]
    _, client = await told(_agent("root", *script, tools=[look]))
    asked = [item for item in client.messages if item.get("toolCalls")]
    assert len(asked) == 1
    given = [json.loads(one["function"]["arguments"]) for one in asked[0]["toolCalls"]]
    assert given == [{"path": "a.py"}, {"path": "b.py"}]
    assert [item["content"] for item in client.messages if item["role"] == "tool"] == [
        "text of a.py",
        "text of b.py",
    ]


async def test_an_agent_behind_a_tool_is_a_sub_agent_of_its_call() -> None:
    helper = _agent("helper", say("Fine."))
    out, _ = await told(_agent("root", call("helper", {"request": "look"}), say("Done."), tools=[AgentTool(helper)]))
    (started,) = of_type(out, "SUBAGENT_STARTED")
    assert started["name"] == "helper"
    assert started["parentToolCallId"] == of_type(out, "TOOL_CALL_START")[0]["toolCallId"]


async def test_a_sub_agent_that_the_host_runs_is_one_of_its_call_too() -> None:
    async with AdkExecutor(_agent("fixer", stream("Men", "ded."))) as fixer:
        script = [call("fixer", {"task": "mend"}), say("Done.")]
        out, client = await told(_agent("root", *script), [SubagentTool(fixer)])
    (started,) = of_type(out, "SUBAGENT_STARTED")
    assert (started["name"], started["parentToolCallId"]) == ("fixer", of_type(out, "TOOL_CALL_START")[0]["toolCallId"])
    assert "Mended." in [item.get("content") for item in client.messages]
