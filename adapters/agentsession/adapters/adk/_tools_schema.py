"""What ADK tools look like from outside: their descriptors, and JSON Schema from genai's own schema type.

Not for: running tools or asking toolsets over a network. Rules carried: TOOL-04 (arguments have a schema to validate).
May import: google.adk.tools, google.genai.types, protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.tools._node_tool import NodeTool  # private: ADK itself makes it of a node among an agent's tools
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, BaseNode
from google.genai import types
from pydantic import TypeAdapter

from agentsession.adapters.adk._values import is_list, is_mapping, is_object, lossy_json
from agentsession.protocol import ToolAnnotations, ToolDescriptor, check_schema, repair_text

__all__ = [
    "as_tool",
    "describe_tool",
    "describe_toolset",
    "json_schema_of",
    "nodes_of",
    "schema_to_json",
    "tool_of_node",
    "wrong_args",
]

_log = logging.getLogger("agentsession.adapters.adk")

_NAMES: Final = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "additional_properties": "additionalProperties",
    "defs": "$defs",
    "ref": "$ref",
}
_PLAIN: Final = (
    "title",
    "description",
    "default",
    "enum",
    "format",
    "pattern",
    "required",
    "minimum",
    "maximum",
    "max_items",
    "max_length",
    "max_properties",
    "min_items",
    "min_length",
    "min_properties",
)
_BY_NAME: Final = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_SINGLE: Final = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")


def as_tool(tool: Any) -> BaseTool | BaseToolset:
    """An entry of an agent's ``tools``: a tool or toolset as it is, a function or node as ADK itself would wrap it."""
    if isinstance(tool, (BaseTool, BaseToolset)):
        return tool
    if isinstance(tool, BaseNode):
        return NodeTool(tool)
    return FunctionTool(func=tool)


def nodes_of(agent: Any) -> list[BaseNode]:
    """The nodes of a graph, its start left out; the node that a parallel worker runs."""
    if isinstance(agent, BaseAgent) or not isinstance(agent, BaseNode):
        return []
    # Private, and the only way to what a parallel worker runs.
    return [node for node in agent._iter_static_children() if node.name != START.name]


def tool_of_node(node: Any) -> BaseTool | None:
    """The tool that a node of a graph runs, if it is one for a tool."""
    found = getattr(node, "tool", None)
    return found if isinstance(node, BaseNode) and isinstance(found, BaseTool) else None


def describe_tool(tool: BaseTool) -> ToolDescriptor:
    """The descriptor of one tool of an agent, from its own declaration."""
    declaration, problem = _declaration(tool)
    annotations: dict[str, Any] = _mcp_annotations(tool)
    if tool.is_long_running:
        annotations["long_running"] = True
    if getattr(tool, "_require_confirmation", False):
        annotations["requires_confirmation"] = True
    told = tool.custom_metadata  # ADK has no word of its own for it
    if is_object(told) and told.get("may_repeat") is True:
        annotations["may_repeat"] = True
    if problem is not None:
        annotations["schema_error"] = problem
    elif declaration is None:
        # Run by the model's provider (google_search, url_context …): there is nothing that a host could grant.
        annotations |= {"category": "builtin", "open_world": True}
    parameters = output = None
    if declaration is not None:
        parameters = _parameters(declaration)
        output = _either(declaration.response_json_schema, declaration.response)
    return ToolDescriptor(
        name=repair_text(tool.name),
        description=repair_text(tool.description) if tool.description else None,
        parameters_schema=parameters,
        output_schema=output,
        annotations=ToolAnnotations.model_validate(annotations) if annotations else None,
        owner="agent",
    )


def wrong_args(tool: BaseTool, args: Mapping[str, Any]) -> str | None:
    """What the schema that a tool declares has against ``args``; ``None``: nothing, or it declares none (TOOL-04)."""
    declaration, _ = _declaration(tool)
    schema = _parameters(declaration) if declaration is not None else None
    return check_schema(schema, dict(args)) if schema is not None else None


def describe_toolset(toolset: BaseToolset) -> ToolDescriptor:
    """A stand-in for a toolset: its tools are known only when the agent runs, perhaps over a network."""
    prefix = getattr(toolset, "tool_name_prefix", None)
    name = f"{prefix}_*" if prefix else f"{type(toolset).__name__}.*"
    annotations = ToolAnnotations.model_validate({"category": "toolset", "dynamic": True, "open_world": True})
    return ToolDescriptor(
        name=name,
        description="The tools of this set are known when the agent runs.",
        annotations=annotations,
        owner="agent",
    )


def json_schema_of(schema: Any) -> dict[str, Any] | None:
    """JSON Schema of what ADK takes as ``input_schema`` or ``output_schema``: a model, type, dict or genai Schema."""
    if schema is None:
        return None
    if isinstance(schema, types.Schema):
        return schema_to_json(schema)
    if is_mapping(schema):
        return _as_object(_lower_types(lossy_json(schema)[0]))
    try:
        made = TypeAdapter(schema).json_schema()
    except Exception as error:  # noqa: BLE001  # any type a user wrote; the agent still has a descriptor without it
        _log.warning("no JSON Schema for %r: %s", schema, error)
        return None
    return _as_object(lossy_json(made)[0])


def schema_to_json(schema: types.Schema) -> dict[str, Any]:
    """genai's Schema (types in upper case, ``nullable``) as JSON Schema."""
    out: dict[str, Any] = {}
    kind = schema.type.value.lower() if schema.type is not None else None
    if kind and kind != "type_unspecified":
        out["type"] = [kind, "null"] if schema.nullable and kind != "null" else kind
    for name in _PLAIN:
        value = getattr(schema, name)
        if value is not None:
            out[_NAMES.get(name, name)] = lossy_json(value)[0]
    if out.get("format") == "enum":
        del out["format"]  # genai's mark for "has enum values", not a format of JSON Schema
    if schema.nullable and "enum" in out:
        out["enum"] = [*out["enum"], None]
    if schema.example is not None:
        out["examples"] = [lossy_json(schema.example)[0]]
    if schema.items is not None:
        out["items"] = schema_to_json(schema.items)
    if schema.properties is not None:
        out["properties"] = {name: schema_to_json(item) for name, item in schema.properties.items()}
    if schema.any_of is not None:
        out["anyOf"] = [schema_to_json(item) for item in schema.any_of]
        if schema.nullable and not kind:
            out["anyOf"].append({"type": "null"})
    if schema.defs is not None:
        out["$defs"] = {name: schema_to_json(item) for name, item in schema.defs.items()}
    if schema.ref is not None:
        out["$ref"] = schema.ref.replace("#/defs/", "#/$defs/")
    more = schema.additional_properties
    if more is not None:
        out["additionalProperties"] = schema_to_json(more) if isinstance(more, types.Schema) else lossy_json(more)[0]
    return out


def _declaration(tool: BaseTool) -> tuple[types.FunctionDeclaration | None, str | None]:
    declare: Callable[[], types.FunctionDeclaration | None] = tool._get_declaration  # ADK has no other
    try:
        return declare(), None
    except Exception as error:  # noqa: BLE001  # a signature ADK cannot read; ADK says so again when the agent runs
        _log.warning("ADK cannot declare tool %s: %s", tool.name, error)
        return None, repair_text(f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _parameters(declaration: types.FunctionDeclaration) -> dict[str, Any] | None:
    return _either(declaration.parameters_json_schema, declaration.parameters)


def _either(json_schema: object, schema: types.Schema | None) -> dict[str, Any] | None:
    if json_schema is not None:
        return _as_object(_lower_types(lossy_json(json_schema)[0]))
    return schema_to_json(schema) if schema is not None else None


def _as_object(value: Any) -> dict[str, Any] | None:
    return value if is_object(value) else None


def _lower_types(schema: Any) -> Any:
    """ADK tools may write genai's type names into a JSON Schema; only places of schemas are visited, never values."""
    if not is_object(schema):
        return schema
    out = dict(schema)
    kind = out.get("type")
    if isinstance(kind, str):
        out["type"] = kind.lower()
    elif is_list(kind):
        out["type"] = [item.lower() if isinstance(item, str) else item for item in kind]
    for key in _BY_NAME:
        if is_object(out.get(key)):
            out[key] = {name: _lower_types(item) for name, item in out[key].items()}
    for key in _SINGLE:
        if key in out:
            out[key] = _lower_types(out[key])
    for key in _LISTS:
        if is_list(out.get(key)):
            out[key] = [_lower_types(item) for item in out[key]]
    return out


def _mcp_annotations(tool: BaseTool) -> dict[str, Any]:
    """What an MCP server claims of its tool, in the contract's words."""
    claims = getattr(getattr(tool, "_mcp_tool", None), "annotations", None)
    found = {
        # Version 2 of the MCP SDK has other names for its own fields; ADK takes both versions.
        ours: getattr(claims, theirs, getattr(claims, f"{ours}_hint", None))
        for ours, theirs in (
            ("read_only", "readOnlyHint"),
            ("destructive", "destructiveHint"),
            ("idempotent", "idempotentHint"),
            ("open_world", "openWorldHint"),
        )
    }
    return {name: value for name, value in found.items() if isinstance(value, bool)}
