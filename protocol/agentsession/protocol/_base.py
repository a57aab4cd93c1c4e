"""The one base of every model of the contract: frozen, camelCase on the wire, unknown fields kept.

Not for: any particular shape. Rules carried: WIRE-01, WIRE-02 (docs/reference/rules.md).
May import: pydantic and ``_json``.

*Strict.* ``"5"`` is no number, ``1`` is no boolean and ``1.0`` is no count: what the published schema calls invalid is
not repaired by guessing. Fields that this version does not know are kept, once they were found to be JSON.

*Absent is not null.* A field typed ``X | None`` uses ``None`` in Python for "absent": it is left out of the wire, and a
JSON ``null`` in its place is refused by :func:`agentsession.protocol.parse_event`. Fields that hold any JSON value
(:data:`Json`) keep the difference: ``null`` that was given explicitly is written and read back as ``null``.
"""

import functools
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    StringConstraints,
    model_serializer,
)
from pydantic.alias_generators import to_camel

from agentsession.protocol._json import check_json, repair_text

__all__ = [
    "Bool",
    "Float",
    "Id",
    "Int",
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

Str = Annotated[str, Strict(), AfterValidator(repair_text)]
"""Text. Lone surrogates are repaired (``_json.repair_text``)."""

Bool = Annotated[bool, Strict()]
"""``true`` or ``false``, nothing that reads like one."""

Int = Annotated[int, Strict()]
"""A count or a place: written without a fraction, of any size."""

Float = Annotated[float, Strict(), Field(allow_inf_nan=False)]
"""A finite number."""

Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=512)]
"""An identifier: opaque, not empty, at most 512 characters; text that UTF-8 cannot encode is refused."""

Json = Annotated[Any, BeforeValidator(check_json)]
"""Any JSON value, checked and copied (``Any`` because JSON is open; see ``_json.check_json``)."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(check_json)]
"""A JSON object, checked and copied."""

OpenStr = Annotated[str, StringConstraints(strict=True, min_length=1)]
"""A value of an open set: the known values are documented at the field, unknown ones are kept."""


def open_str(*known: str) -> Any:
    """Annotation for an open string: any value is accepted and kept; ``known`` goes to the JSON Schema."""
    return Field(strict=True, min_length=1, json_schema_extra={"x-knownValues": list(known)})


def _is_none(value: object) -> bool:
    return value is None


def optional(**extra: Any) -> Any:
    """A field that may be absent: default ``None``, left out of the wire when ``None``."""
    return Field(default=None, exclude_if=_is_none, **extra)


_camel = functools.cache(to_camel)
"""Every event class inherits the same ten fields: their names are worked out once."""


class Model(BaseModel):
    """Base of every model of the contract: frozen, camelCase aliases, unknown fields kept."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )
    # pydantic reads the type of unknown fields here; it is narrower than the base class says.
    __pydantic_extra__: dict[Str, Json] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    def to_wire(self) -> dict[str, Any]:
        """This value as the plain JSON object that goes on the wire."""
        return self.model_dump(mode="json", by_alias=True)

    def to_wire_json(self) -> str:
        """This value as one line of JSON."""
        return self.model_dump_json(by_alias=True)


# Only the annotation is wanted: the value in the class would hide the slot of that name, and every event would have its
# unknown fields in its dictionary too.
delattr(Model, "__pydantic_extra__")


class JsonFieldsModel(Model):
    """Base of models with fields that hold any JSON: such a field is on the wire if and only if it was given.

    So a tool that returned ``null`` differs from one that returned no data.
    """

    @model_serializer(mode="wrap")
    def _leave_out_what_was_not_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        out: dict[str, Any] = handler(self)
        given = self.model_fields_set
        values = self.__dict__
        for name, alias in _plan(type(self)).json_fields:
            # An unknown key that reads like the field's Python name is in model_fields_set too: that is not the field.
            if values[name] is None and (name not in given or (name != alias and name in (self.model_extra or ()))):
                out.pop(alias, None)
        return out


class _Plan(NamedTuple):
    """What has to be looked at in the instances of one class, found out once."""

    json_fields: tuple[tuple[str, str], ...]
    """Name and alias of the fields that hold any JSON and may be absent."""
    optional: frozenset[str]
    """Names of the fields that may be absent and then are ``None``."""
    nested: tuple[tuple[str, str], ...]
    """Name and alias of the fields that hold, or may hold, other models."""
    alias: dict[str, str]


_SCALARS = (str, int, float, bool)


@functools.cache
def _plan(cls: type[Model]) -> _Plan:
    json_fields, optional_names, nested, aliases = [], set(), [], {}
    for name, field in cls.model_fields.items():
        alias = aliases[name] = field.alias or name
        if field.exclude_if is _is_none:
            optional_names.add(name)
        elif field.default is None:
            json_fields.append((name, alias))
        if field.annotation not in _SCALARS:  # pyright: ignore[reportUnnecessaryContains]  # an annotation is any object
            nested.append((name, alias))
    return _Plan(tuple(json_fields), frozenset(optional_names), tuple(nested), aliases)


def null_fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the JSON pointer of each explicit ``null`` where the contract says "absent" (see the module docstring)."""
    if isinstance(value, Model):
        plan = _plan(type(value))
        values = value.__dict__
        extra = value.model_extra or ()
        for name in value.model_fields_set & plan.optional:
            # An unknown key that reads like a Python name is only an unknown key.
            if values[name] is None and (name not in extra or plan.alias[name] == name):
                yield f"{path}/{plan.alias[name]}"
        for name, alias in plan.nested:
            item = values[name]
            if isinstance(item, (Model, list)):
                yield from null_fields(item, f"{path}/{alias}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (Model, list)):
                yield from null_fields(item, f"{path}/{index}")
