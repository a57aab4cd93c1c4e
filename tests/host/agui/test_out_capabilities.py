"""A descriptor as AG-UI's capabilities."""

from __future__ import annotations

from ag_ui.core import AgentCapabilities
from hypothesis import given
from pydantic_core import from_json

from agentsession.conformance.strategies import descriptors
from agentsession.host.agui import capabilities
from agentsession.protocol import AgentDescriptor, Composition, Constraints, Metadata, ToolDescriptor


@given(descriptors())
def test_of_any_agent_they_are_what_the_model_writes(descriptor: AgentDescriptor) -> None:
    found = capabilities(descriptor)
    model = AgentCapabilities.model_validate(found)
    assert from_json(model.model_dump_json(by_alias=True)) == found
    assert not model.model_extra


def test_what_is_declared_is_told_and_the_rest_is_left_out() -> None:
    found = capabilities(
        AgentDescriptor(
            name="helper",
            display_name="Helper",
            description="Helps.",
            executor="adk",
            capabilities=["host_tool_execution", "load", "reasoning", "structured_output"],
            own_tools=[ToolDescriptor(name="read", description="Reads.", parameters_schema={"type": "object"})],
            sub_agents=[AgentDescriptor(name="other", executor="adk")],
            composition=Composition(pattern="transfer"),
            constraints=Constraints(max_turns=7, max_time_seconds=1.5),
            metadata=Metadata(version="1.2"),
        )
    )
    assert found["identity"] == {"name": "Helper", "type": "adk", "description": "Helps.", "version": "1.2"}
    assert found["tools"] == {
        "supported": True,
        "parallelCalls": True,
        "clientProvided": True,
        "items": [{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}],
    }
    assert found["multiAgent"] == {"supported": True, "handoffs": True, "subagents": [{"name": "other"}]}
    assert found["humanInTheLoop"]["approveWithEdits"] is True
    assert found["execution"] == {"maxIterations": 7, "maxExecutionTime": 1500}
    assert found["state"]["persistentState"] is True
    assert "multimodal" not in found
