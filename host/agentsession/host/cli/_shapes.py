"""JSON of unknown shape, read without surprises: a value that is not what was hoped for is nothing.

May import: the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["as_list", "as_object", "field_options", "field_schema", "follow", "is_list", "option_titles"]


def as_object(value: object) -> dict[str, Any] | None:
    """The value, if it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any]:
    """The value, if it is a JSON array; else an empty list."""
    return cast("list[Any]", value) if isinstance(value, (list, tuple)) else []


def field_schema(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 8) -> dict[str, Any]:
    """A field's schema as a form can ask for it: a reference, a lone ``allOf`` and "or null" are looked through."""
    found = dict(schema)
    if depth:
        reference = found.pop("$ref", None)
        inner = follow(reference, root) if reference is not None else None
        for key in ("allOf", "anyOf", "oneOf"):
            options = [one for one in map(as_object, as_list(found.get(key))) if one and one.get("type") != "null"]
            if inner is None and len(options) == 1 and "const" not in options[0]:
                inner = options[0]
                del found[key]
        if inner is not None:
            return {**field_schema(inner, root, depth - 1), **found}
        if reference is not None:
            found["$ref"] = reference
    kinds = [kind for kind in as_list(found.get("type")) if kind != "null"]
    if len(kinds) == 1:
        found["type"] = kinds[0]
    return found


def field_options(schema: Mapping[str, Any]) -> list[Any]:
    """What a field's value is one of, where its schema lists that; else nothing."""
    found = as_list(schema.get("enum"))
    return found or [one["const"] for one in map(as_object, as_list(schema.get("oneOf"))) if one and "const" in one]


def option_titles(schema: Mapping[str, Any]) -> dict[str, str]:
    """What each of a field's options means, where its schema says more than the option itself."""
    if as_list(schema.get("enum")):
        return {}
    options = [one for one in map(as_object, as_list(schema.get("oneOf"))) if one and "const" in one]
    titles = [(str(one["const"]), one.get("title")) for one in options]
    return {option: title for option, title in titles if isinstance(title, str) and title not in ("", option)}


def follow(reference: object, root: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema that a reference inside of ``root`` leads to; one to elsewhere is not followed."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference[1:].split("/")[1:]:
        found = (as_object(found) or {}).get(step.replace("~1", "/").replace("~0", "~"))
    return as_object(found)


def is_list(value: object) -> bool:
    """Whether the value is a list or a tuple; told without narrowing, so that its items stay of any type."""
    return isinstance(value, (list, tuple))
