"""Strategies for any model of google-genai, made from its own fields: a field that a release adds is tried as well."""

from __future__ import annotations

import datetime
import enum
import types as python_types
import typing
from typing import Any

from google.genai import types
from hypothesis import strategies as st
from pydantic import BaseModel

__all__ = ["JSON", "config_field", "model"]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.sampled_from(["a", "city", "größe", "x1"])
"""Without underscores: the client spells some names of its own in snake_case, and the test puts that right."""
SCALARS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXT
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=2)
FLOATS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))

_DEPTH = 5


def model(
    kind: type[BaseModel], depth: int = _DEPTH, *, leave_out: frozenset[str] = frozenset()
) -> st.SearchStrategy[Any]:
    """Instances of ``kind`` with any of its fields set."""
    fields = {name: field.annotation for name, field in kind.model_fields.items() if name not in leave_out}
    if depth <= 0 and not any(field.is_required() for field in kind.model_fields.values()):
        return st.just(kind())

    def build(given: dict[str, Any]) -> BaseModel:
        return kind(**given)

    needed = [name for name in fields if kind.model_fields[name].is_required()]
    names = st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True) if fields else st.just([])
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries(
            {name: _value(fields[name], depth - 1) for name in {*chosen, *needed}}
        ).map(build)
    )


def config_field(name: str) -> st.SearchStrategy[Any]:
    """Values of one field of the configuration, each in the form in which ADK gives it."""
    special: dict[str, st.SearchStrategy[Any]] = {
        "response_schema": model(types.Schema, 3, leave_out=frozenset({"defs", "ref"}))
        | st.sampled_from([int, list[str]]),
        "response_json_schema": OBJECTS,
        "speech_config": TEXT.filter(bool) | model(types.SpeechConfig),
        "system_instruction": TEXT | model(types.Part) | model(types.Content),
        "tools": st.lists(model(types.Tool), min_size=1, max_size=2),
        "cached_content": st.just("cachedContents/c1"),
    }
    if name in special:
        return special[name]
    return _value(types.GenerateContentConfig.model_fields[name].annotation, _DEPTH)


def _value(annotation: Any, depth: int) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, python_types.UnionType):
        kinds = [arg for arg in args if arg is not type(None)]
        return st.one_of([_value(kind, depth) for kind in kinds])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is typing.Annotated:
        return _value(args[0], depth)
    if origin is list:
        return st.lists(_value(args[0], depth), min_size=1, max_size=2)
    if origin is dict:
        return st.dictionaries(NAMES, _value(args[1], depth), max_size=2)
    if annotation is Any or annotation is dict:
        return OBJECTS
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return st.sampled_from(list(annotation))
        if issubclass(annotation, BaseModel):
            return model(annotation, depth)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(0, 2**31),
        float: FLOATS,
        bytes: st.binary(max_size=6),
        datetime.datetime: st.just(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        datetime.date: st.just(datetime.date(2026, 1, 2)),
    }
    return plain[annotation]
