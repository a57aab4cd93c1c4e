"""Descriptors of agent trees, without running anything."""

from __future__ import annotations

import enum
import json
from typing import Any, Literal

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps.app import App
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel
from tests.adapters.adk.make import old_agent, schema_validator

from agentsession.adapters.adk import ADK_CAPABILITIES, ScriptedLlm, describe_agent
from agentsession.adapters.adk._tools_schema import schema_to_json
from agentsession.protocol import (
    AgentDescriptor,
    ConfigurationError,
    ToolDescriptor,
    descriptor_schema,
    parse_descriptor,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # ADK's own sequential, parallel, loop agents


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    item: str
    count: int = 1


def weather(city: str, days: int = 3, unit: Literal["c", "f"] = "c") -> dict[str, str]:
    """The weather of a city."""
    return {"city": city, "days": str(days), "unit": unit}


class Network(BaseToolset):
    """A toolset that must not be asked: it would use a network."""

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        raise AssertionError("a descriptor asks no toolset")

    async def close(self) -> None:
        return None


def agent(name: str = "root", **fields: Any) -> LlmAgent:
    values: dict[str, Any] = {"name": name, "model": ScriptedLlm()}
    return LlmAgent(**(values | fields))


def tool_of(described: AgentDescriptor, name: str) -> ToolDescriptor:
    (found,) = [tool for tool in described.own_tools if tool.name == name]
    return found


def claims(tool: ToolDescriptor) -> dict[str, Any]:
    return tool.annotations.to_wire() if tool.annotations is not None else {}


def test_a_descriptor_is_plain_data_and_validates() -> None:
    described = describe_agent(agent(tools=[weather], description="forecasts", output_schema=Order))

    wire = described.to_wire()
    schema_validator(descriptor_schema()).validate(json.loads(json.dumps(wire)))
    assert parse_descriptor(wire) == described
    assert (described.name, described.executor, described.description) == ("root", "adk", "forecasts")
    assert described.capabilities == list(ADK_CAPABILITIES)


def test_a_function_is_a_tool_with_a_schema_of_its_arguments() -> None:
    tool = tool_of(describe_agent(agent(tools=[weather])), "weather")

    assert (tool.description, tool.owner) == ("The weather of a city.", "agent")
    validator = schema_validator(tool.parameters_schema or {})
    assert validator.is_valid({"city": "Oslo", "unit": "f"})
    assert not validator.is_valid({"days": 3})
    assert not validator.is_valid({"city": "Oslo", "unit": "k"})


def test_marks_of_tools_become_annotations() -> None:
    described = describe_agent(
        agent(
            tools=[
                FunctionTool(weather, require_confirmation=True),
            ]
        )
    )
    waiting = describe_agent(agent(tools=[LongRunningFunctionTool(weather)]))

    assert claims(tool_of(described, "weather")) == {"requires_confirmation": True}
    assert claims(tool_of(waiting, "weather")) == {"longRunning": True}


def test_a_toolset_is_not_asked_and_marked_dynamic() -> None:
    (tool,) = describe_agent(agent(tools=[Network()])).own_tools

    assert tool.name == "Network.*"
    assert claims(tool)["dynamic"] is True


def test_a_tool_that_the_provider_runs_is_marked() -> None:
    assert claims(tool_of(describe_agent(agent(tools=[google_search])), "google_search"))["category"] == "builtin"


def test_a_tool_that_adk_cannot_declare_has_no_schema_and_says_so() -> None:
    class Broken(BaseTool):
        def _get_declaration(self) -> types.FunctionDeclaration:
            raise ValueError("no idea")

    tool = tool_of(describe_agent(agent(tools=[Broken(name="odd", description="d")])), "odd")

    assert tool.parameters_schema is None
    assert claims(tool)["schema_error"] == "ValueError: no idea"


def test_the_agent_in_an_agent_tool_is_a_tool_and_a_child() -> None:
    described = describe_agent(agent(tools=[AgentTool(agent("kid"))]))

    assert claims(tool_of(described, "kid"))["category"] == "agent"
    assert [child.name for child in described.sub_agents] == ["kid"]
    assert described.composition is not None
    assert described.composition.pattern == "hierarchical"


def test_sub_agents_are_targets_of_a_transfer_unless_they_are_tools() -> None:
    described = describe_agent(agent(sub_agents=[agent("a"), agent("b", mode="task")]))

    assert described.composition is not None
    assert (described.composition.pattern, described.composition.transfer_targets) == ("transfer", ["a"])
    assert claims(tool_of(described, "b"))["mode"] == "task"


@pytest.mark.parametrize(
    ("kind", "pattern"), [("SequentialAgent", "sequential"), ("ParallelAgent", "parallel"), ("LoopAgent", "loop")]
)
def test_workflow_agents_have_their_pattern(kind: str, pattern: str) -> None:
    described = describe_agent(old_agent(kind, name="root", sub_agents=[agent("a"), agent("b")]))

    assert described.composition is not None
    assert described.composition.pattern == pattern
    assert [child.name for child in described.sub_agents] == ["a", "b"]


def test_a_loop_says_how_often() -> None:
    described = describe_agent(old_agent("LoopAgent", name="root", max_iterations=3, sub_agents=[agent("a")]))

    assert described.composition is not None
    assert described.composition.max_iterations == 3


def test_a_workflow_lists_its_nodes_and_describes_its_agents() -> None:
    def finish(node_input: str) -> str:
        return node_input

    described = describe_agent(Workflow(name="flow", edges=[("START", agent("writer"), finish)]))

    assert described.composition is not None
    assert described.composition.to_wire() == {
        "pattern": "workflow",
        "nodes": [{"name": "writer", "kind": "LlmAgent"}, {"name": "finish", "kind": "FunctionNode"}],
    }
    assert [child.name for child in described.sub_agents] == ["writer"]


def test_an_agent_of_its_own_kind_is_custom() -> None:
    class Mine(BaseAgent):
        pass

    described = describe_agent(Mine(name="mine"))

    assert described.composition is not None
    assert described.composition.pattern == "custom"


def test_an_app_is_described_by_its_root() -> None:
    assert describe_agent(App(name="shop", root_agent=agent("seller"))).name == "seller"


def test_a_sub_agent_is_described_as_itself() -> None:
    child = agent("child")
    agent("parent", sub_agents=[child])

    assert describe_agent(child).name == "child"


def test_the_model_is_named_and_inherited() -> None:
    described = describe_agent(LlmAgent(name="root", model="gemini-x", sub_agents=[LlmAgent(name="kid")]))

    assert described.metadata is not None
    assert described.metadata.to_wire()["model"] == "gemini-x"
    assert described.sub_agents[0].metadata is not None
    assert described.sub_agents[0].metadata.to_wire()["model"] == "gemini-x"


def digest(described: AgentDescriptor) -> str | None:
    return described.metadata.hash if described.metadata is not None else None


def test_the_hash_is_that_of_the_tree() -> None:
    plain = digest(describe_agent(agent()))

    assert plain == digest(describe_agent(agent()))
    assert plain != digest(describe_agent(agent(instruction="be brief")))
    assert plain != digest(describe_agent(agent(tools=[weather])))
    assert plain != digest(describe_agent(agent(sub_agents=[agent("kid")])))


def test_a_deep_change_changes_the_hash_of_the_root() -> None:
    def tree(instruction: str) -> LlmAgent:
        return agent(sub_agents=[agent("a", sub_agents=[agent("b", instruction=instruction)])])

    assert digest(describe_agent(tree("x"))) != digest(describe_agent(tree("y")))


@pytest.mark.parametrize("name", ["user", "two words", "1st", "é-è", "", None, 7])
def test_a_name_that_cannot_be_used_is_refused_with_what_to_do(name: Any) -> None:
    odd = agent("fine")
    object.__setattr__(odd, "name", name)

    with pytest.raises(ConfigurationError) as caught:
        describe_agent(odd)

    assert caught.value.id == "agent-name"
    assert caught.value.fix == "rename the agent"


@pytest.mark.parametrize("value", [7, "agent", weather, None, Order(item="x")])
def test_what_is_no_agent_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        describe_agent(value)

    assert caught.value.id == "not-an-agent"


def test_a_genai_schema_becomes_json_schema() -> None:
    schema = types.Schema(
        type=types.Type.OBJECT,
        properties={
            "size": types.Schema(type=types.Type.STRING, enum=["S", "M"], format="enum", nullable=True),
            "tags": types.Schema(type=types.Type.ARRAY, items=types.Schema(type=types.Type.INTEGER), max_items=3),
            "either": types.Schema(any_of=[types.Schema(type=types.Type.STRING)], nullable=True),
            "pet": types.Schema(ref="#/defs/Pet"),
        },
        required=["size"],
        additional_properties=False,
        defs={"Pet": types.Schema(type=types.Type.STRING, min_length=1, example="Rex")},
    )

    assert schema_to_json(schema) == {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": ["string", "null"], "enum": ["S", "M", None]},
            "tags": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "pet": {"$ref": "#/$defs/Pet"},
        },
        "additionalProperties": False,
        "$defs": {"Pet": {"type": "string", "minLength": 1, "examples": ["Rex"]}},
    }


def test_upper_case_types_in_a_json_schema_are_lowered_and_values_left_alone() -> None:
    class Old(BaseTool):
        def _get_declaration(self) -> types.FunctionDeclaration:
            schema = {"type": "OBJECT", "properties": {"type": {"type": "STRING", "default": "STRING"}}}
            return types.FunctionDeclaration(name="old", parameters_json_schema=schema)

    tool = tool_of(describe_agent(agent(tools=[Old(name="old", description="d")])), "old")

    assert tool.parameters_schema == {
        "type": "object",
        "properties": {"type": {"type": "string", "default": "STRING"}},
    }
