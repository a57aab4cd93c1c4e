"""Secrets in forms: which values a JSON Schema marks as secret, and a form's content without them.

Not for: credentials, or secrets that only their name gives away (adapters know those). Rules carried: SEC-01.
May import: the standard library.

A schema marks a secret with ``"writeOnly": true`` or ``"format": "password"``, as OpenAPI and pydantic's ``SecretStr``
do. Every doubt counts as a secret: a mark in one of several branches, a pattern that may match, a reference that leads
out of the schema or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["REDACTED", "marks_secret", "redact_marked"]

REDACTED: Final = "[redacted]"
"""What stands in the record in the place of a secret."""

_SECRET: Final[Mapping[str, Any]] = {"writeOnly": True}
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def marks_secret(schema: Any, root: Any = None) -> bool:
    """Whether a value of ``schema`` may hold a secret: anything in it is marked, or in what its references lead to.

    ``root`` is the schema that references are relative to; absent when ``schema`` is the whole.
    """
    root = schema if root is None else root
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, (list, tuple)):
            waiting += item
        if not isinstance(item, Mapping) or id(item) in seen:
            continue
        seen.add(id(item))
        if _is_marked(item):
            return True
        waiting += item.values()
        waiting += [_resolve(item[key], root) for key in _REFERENCES if isinstance(item.get(key), str)]
    return False


def redact_marked(content: Any, schema: Any) -> Any:
    """``content``, which was given for ``schema``, with :data:`REDACTED` in the place of what it marks as secret."""
    return _redact([schema], content, schema) if marks_secret(schema) else content


def _is_marked(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _redact(schemas: Iterable[Any], content: Any, root: Any) -> Any:
    """``content`` without what any schema that bears on it marks as a secret: of several branches, one is enough."""
    bearing = _bearing(schemas, root)
    if any(_is_marked(schema) for schema in bearing):
        return REDACTED
    if isinstance(content, dict):
        return {key: _redact(_of_key(bearing, key), value, root) for key, value in content.items()}
    if isinstance(content, list):
        return [_redact(_of_index(bearing, index), item, root) for index, item in enumerate(content)]
    return content


def _bearing(schemas: Iterable[Any], root: Any) -> list[Mapping[str, Any]]:
    """Every schema that bears on the same value as ``schemas`` do: their branches, and what they refer to."""
    found: list[Mapping[str, Any]] = []
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or any(schema is item for item in found):
            continue
        found.append(schema)
        for key in _BRANCHES:
            waiting += _items(schema.get(key))
        waiting += [schema.get(key) for key in _CONDITIONS]
        waiting += _mapping(schema.get("dependentSchemas")).values()
        waiting += [_resolve(schema[key], root) for key in _REFERENCES if key in schema]
    return found


def _of_key(schemas: Iterable[Mapping[str, Any]], key: str) -> Iterator[Any]:
    """The schemas of the value under ``key``."""
    for schema in schemas:
        named = _mapping(schema.get("properties"))
        if key in named:
            yield named[key]
        else:
            yield schema.get("additionalProperties")
            yield schema.get("unevaluatedProperties")
        # Every pattern counts, matched or not: a secret is not to depend on two readings of a regular expression.
        yield from _mapping(schema.get("patternProperties")).values()


def _of_index(schemas: Iterable[Mapping[str, Any]], index: int) -> Iterator[Any]:
    """The schemas of the item at ``index``."""
    for schema in schemas:
        first = _items(schema.get("prefixItems")) or _items(schema.get("items"))  # a list of items: before 2020-12
        yield from first[index : index + 1]
        for key in ("items", "additionalItems", "unevaluatedItems", "contains"):
            yield schema.get(key)


def _resolve(ref: Any, root: Any) -> Any:
    """What a reference inside the same schema leads to; what is not found there counts as a secret: fail closed."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return _SECRET
    place = root
    for step in unquote(ref).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return _SECRET
    return place


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
