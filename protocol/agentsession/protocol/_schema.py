"""The published JSON Schema (draft 2020-12) of the wire, made from the models.

Not for: validating at run time (``parse_event`` does, faster). Rules carried: LIFE-01, WIRE-01, WIRE-02.
May import: pydantic, the models, ``_wire``.

Two things differ from what pydantic would write, because its schema describes Python's input and this one the wire:
unions are ``anyOf`` with a fallback whose ``type`` is *not* a known one (pydantic's ``oneOf`` would match a known event
twice), and a field that may be absent does not also allow ``null``.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from agentsession.protocol._base import Model
from agentsession.protocol._content import CONTENT_TYPES
from agentsession.protocol._descriptor import AgentDescriptor
from agentsession.protocol._events import EVENT_TYPES, AgentEvent
from agentsession.protocol._inputs import (
    AbortResult,
    Answer,
    ExecutionOptions,
    OpenOptions,
    Receipt,
    SessionConfig,
    SteerData,
    StreamInput,
)
from agentsession.protocol._snapshot import MachineSnapshot
from agentsession.protocol._wire import PROTOCOL_VERSION, TIMESTAMP_PATTERN

__all__ = ["SCHEMA_ID", "descriptor_schema", "event_schema", "input_schema", "wire_schema"]

SCHEMA_ID: Final = f"urn:agentsession:schema:{PROTOCOL_VERSION}"
"""The ``$id`` of the published schema."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_STAMPED: Final = ("id", "seq", "timestamp", "sessionId", "type")
_NULL: Final = {"type": "null"}


class _WireSchema(GenerateJsonSchema):
    schema_dialect = _DIALECT

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        choices = [self.generate_inner(choice) for choice in schema["choices"].values()]
        return {"anyOf": choices}


def _tidy(node: Any) -> Any:
    """Drop ``null`` where absence is meant, drop generated titles and defaults of null."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _tidy(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if out.get("default", 0) is None:
        del out["default"]
    choices = out.get("anyOf")
    if isinstance(choices, list) and _NULL in choices:
        rest = [choice for choice in choices if choice != _NULL]
        del out["anyOf"]
        out = {**out, **rest[0]} if len(rest) == 1 else {**out, "anyOf": rest}
    return out


def _finish(definitions: dict[str, Any]) -> dict[str, Any]:
    """Apply to the tidy definitions what only this contract knows: fallbacks, and the stamps an event must have."""
    for name, body in definitions.items():
        properties = body.get("properties", {})
        if name in ("UnknownEvent", "UnknownPart"):
            known = EVENT_TYPES if name == "UnknownEvent" else CONTENT_TYPES
            properties["type"] = {**properties["type"], "not": {"enum": sorted(known)}}
        if "seq" in properties and "timestamp" in properties:
            body["required"] = sorted({*body.get("required", ()), *_STAMPED})
            properties["id"] = {**properties["id"], "minLength": 1}
            properties["seq"] = {**properties["seq"], "minimum": 1}
            properties["sessionId"] = {**properties["sessionId"], "minLength": 1}
            properties["timestamp"] = {**properties["timestamp"], "pattern": TIMESTAMP_PATTERN, "format": "date-time"}
            for key in ("id", "seq", "sessionId", "timestamp"):
                properties[key].pop("default", None)
        elif "type" in properties and "const" in properties["type"]:
            body["required"] = sorted({*body.get("required", ()), "type"})
        elif "kind" in properties and "const" in properties["kind"]:
            body["required"] = sorted({*body.get("required", ()), "kind"})
    return definitions


_EXTRA_MODELS: Final[tuple[type[Model], ...]] = (
    AgentDescriptor,
    OpenOptions,
    ExecutionOptions,
    SessionConfig,
    SteerData,
    Receipt,
    AbortResult,
    MachineSnapshot,
)


@functools.cache
def _definitions() -> dict[str, Any]:
    unions: list[tuple[str, Any]] = [("AgentEvent", AgentEvent), ("StreamInput", StreamInput), ("Answer", Answer)]
    out: dict[str, Any] = {}
    for name, union in unions:
        schema = TypeAdapter(union).json_schema(
            by_alias=True, ref_template="#/$defs/{model}", schema_generator=_WireSchema, mode="validation"
        )
        out.update(schema.pop("$defs", {}))
        out[name] = {key: value for key, value in schema.items() if key in ("anyOf", "oneOf")}
        if "oneOf" in out[name]:
            out[name] = {"anyOf": out[name]["oneOf"]}
    _, models = models_json_schema(
        [(model, "validation") for model in _EXTRA_MODELS],
        by_alias=True,
        ref_template="#/$defs/{model}",
        schema_generator=_WireSchema,
    )
    out.update(models.get("$defs", {}))
    return _finish({name: _tidy(out[name]) for name in sorted(out)})


def _document(root: str, title: str) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "$id": f"{SCHEMA_ID}:{root}" if root else SCHEMA_ID,
        "title": title,
        **({"$ref": f"#/$defs/{root}"} if root else {}),
        "$defs": _definitions(),
    }


def wire_schema() -> dict[str, Any]:
    """Everything on the wire: every definition, no root."""
    return _document("", f"agentsession {PROTOCOL_VERSION}")


def event_schema() -> dict[str, Any]:
    """The schema of one event."""
    return _document("AgentEvent", "AgentEvent")


def input_schema() -> dict[str, Any]:
    """The schema of one input of ``stream()``."""
    return _document("StreamInput", "StreamInput")


def descriptor_schema() -> dict[str, Any]:
    """The schema of a descriptor."""
    return _document("AgentDescriptor", "AgentDescriptor")
