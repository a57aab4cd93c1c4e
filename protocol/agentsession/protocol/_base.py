"""The one base of every model of the contract: frozen, camelCase on the wire, unknown fields kept.

Not for: any particular shape. Rules carried: WIRE-01, WIRE-02 (docs/reference/rules.md).
May import: pydantic and ``_json``.

*Absent is not null.* A field typed ``X | None`` uses ``None`` in Python for "absent": it is left out of the wire, and a
JSON ``null`` in its place is refused by :func:`agentsession.protocol.parse_event`. Fields that hold any JSON value
(:data:`Json`) keep the difference: ``null`` that was given explicitly is written and read back as ``null``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from agentsession.protocol._json import check_json, repair_text

__all__ = [
    "Id",
    "Json",
    "JsonFieldsModel",
    "JsonObject",
    "Model",
    "OpenStr",
    "Str",
    "null_fields",
    "open_str",
    "optional",
]

Str = Annotated[str, AfterValidator(repair_text)]
"""Text. Lone surrogates are repaired (``_json.repair_text``)."""

Id = Annotated[str, StringConstraints(min_length=1, max_length=512)]
"""An identifier: opaque, not empty, at most 512 characters; text that UTF-8 cannot encode is refused."""

Json = Annotated[Any, BeforeValidator(check_json)]
"""Any JSON value, checked and copied (``Any`` because JSON is open; see ``_json.check_json``)."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(check_json)]
"""A JSON object, checked and copied."""

OpenStr = Annotated[str, StringConstraints(min_length=1)]
"""A value of an open set: the known values are documented at the field, unknown ones are kept."""


def open_str(*known: str) -> Any:
    """Annotation for an open string: any value is accepted and kept; ``known`` goes to the JSON Schema."""
    return Field(min_length=1, json_schema_extra={"x-knownValues": list(known)})


def _is_none(value: object) -> bool:
    return value is None


def optional(**extra: Any) -> Any:
    """A field that may be absent: default ``None``, left out of the wire when ``None``."""
    return Field(default=None, exclude_if=_is_none, **extra)


class Model(BaseModel):
    """Base of every model of the contract: frozen, camelCase aliases, unknown fields kept."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """This value as the plain JSON object that goes on the wire."""
        return self.model_dump(mode="json", by_alias=True)

    def to_wire_json(self) -> str:
        """This value as one line of JSON."""
        return self.model_dump_json(by_alias=True)


class JsonFieldsModel(Model):
    """Base of models with fields that hold any JSON: such a field is on the wire if and only if it was given.

    So a tool that returned ``null`` differs from one that returned no data.
    """

    @model_serializer(mode="wrap")
    def _leave_out_what_was_not_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        out: dict[str, Any] = handler(self)
        given = self.model_fields_set
        for name, field in type(self).model_fields.items():
            if name not in given and getattr(self, name) is None:
                out.pop(name, None)
                out.pop(field.alias or name, None)
        return out


def _is_optional(field: FieldInfo) -> bool:
    return field.exclude_if is _is_none


def null_fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the JSON pointer of each explicit ``null`` where the contract says "absent" (see the module docstring)."""
    if isinstance(value, Model):
        fields = type(value).model_fields
        extra = value.model_extra or {}
        for name in value.model_fields_set:
            field = fields.get(name)
            if field is None or name in extra:  # an unknown key that reads like a Python name is only an unknown key
                continue
            item = getattr(value, name)
            where = f"{path}/{field.alias or name}"
            if item is None:
                if _is_optional(field):
                    yield where
            elif isinstance(item, (Model, list)):
                yield from null_fields(item, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (Model, list)):
                yield from null_fields(item, f"{path}/{index}")
