"""Sub-agents over real Google ADK: as the caller, as the sub-agent, and both."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from tests.host.subagents import agent, calls, read_file, responses, run, seen_of_children

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.adapters.adk import calls as at_once
from agentsession.adapters.scripted import Call, Say
from agentsession.host import Host, Rule, RulePolicy, ScriptedChannel, SubagentTool, allow_all
from agentsession.protocol import Constraints, Event, ToolRequest, ToolResponse

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _adk(name: str, *answers: Any) -> AdkExecutor:
    return AdkExecutor(LlmAgent(name=name, description="Works.", model=ScriptedLlm(script=list(answers))))


def _delegate(name: str) -> Any:
    return call(name, {"task": "do it"})


async def test_an_adk_agent_calls_a_scripted_one() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer,
        _adk("coder", _delegate("fixer"), say("Done.")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    assert (result.completed, result.text) == (True, "Done.")
    assert [answer.data for answer in responses(seen).values()] == ["Mended."]


async def test_a_scripted_agent_calls_an_adk_one() -> None:
    seen: list[Event] = []
    async with (
        _adk("fixer", call("read_file", {"path": "a"}), say("Mended.")) as fixer,
        agent("coder", calls("fixer"), Say("Done.")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    assert (result.completed, result.text) == (True, "Done.")
    assert responses(seen)["r1"].data == "Mended."
    assert [event.data for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == ["text of a"]


async def test_three_adk_agents_in_one_another_under_one_policy_and_one_person() -> None:
    seen: list[Event] = []
    channel = ScriptedChannel({"read_file": True})
    policy = RulePolicy(
        [Rule("ask_user", "read_file", principals="coder/fixer/helper"), Rule("allow", ["fixer", "helper"])]
    )
    async with (
        _adk("helper", call("read_file", {"path": "a"}), say("It says a.")) as helper,
        _adk("fixer", _delegate("helper"), call("read_file", {"path": "b"}), say("Mended.")) as fixer,
        _adk("coder", _delegate("fixer"), say("Done.")) as coder,
    ):
        tools = [
            read_file,
            SubagentTool(fixer, tools=["helper", "read_file"]),
            SubagentTool(helper, tools=["read_file"]),
        ]
        result = await run(Host(tools=tools, policy=policy, channel=channel, observer=seen.append), coder)
    assert (result.completed, result.text) == (True, "Done.")
    ((request, position),) = channel.asked
    assert isinstance(request, ToolRequest)
    assert position.principals == ("coder", "fixer", "helper")
    answers = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert [(event.name, event.status) for event in answers] == [
        ("read_file", "completed"),
        ("helper", "completed"),
        ("read_file", "denied"),
    ]


async def test_two_adk_sub_agents_work_side_by_side() -> None:
    seen: list[Event] = []
    both = [("left", "l"), ("right", "r")]
    async with (
        _adk("left", call("read_file", {"path": "l"}), say("l")) as left,
        _adk("right", call("read_file", {"path": "r"}), say("r")) as right,
        _adk("coder", at_once(*(_delegate(name) for name, _ in both)), say("Done.")) as coder,
    ):
        tools = [read_file, *(SubagentTool(item, tools=["read_file"]) for item in (left, right))]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    assert result.completed
    assert sorted((answer.name, answer.data) for answer in responses(seen).values()) == both


async def test_adk_sub_agents_side_by_side_share_the_model_calls_that_are_left() -> None:
    reads = [call("read_file", {"path": str(number)}).using(input=1, output=1) for number in range(20)]
    async with (
        _adk("left", *reads) as left,
        _adk("right", *reads) as right,
        _adk("coder", at_once(_delegate("left"), _delegate("right")), say("never")) as coder,
    ):
        tools = [read_file, *(SubagentTool(item, tools=["read_file"]) for item in (left, right))]
        result = await run(Host(tools=tools, policy=allow_all, limits=Constraints(max_llm_calls=7)), coder)
    assert result.end.reason == "max_llm_calls"
    assert 7 <= result.usage.calls <= 7 + 1


async def test_an_adk_agent_gives_its_result_by_complete_task() -> None:
    seen: list[Event] = []
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    async with (
        _adk("judge", call("complete_task", {"result": {"score": 7}}), say("Bye.")) as judge,
        _adk("coder", _delegate("judge"), say("Done.")) as coder,
    ):
        host = Host(tools=[SubagentTool(judge, result_schema=schema)], policy=allow_all, observer=seen.append)
        await run(host, coder)
    assert [answer.data for answer in responses(seen).values()] == [{"score": 7}]
