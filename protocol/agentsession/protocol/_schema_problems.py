"""Why a value does not satisfy a JSON Schema, in words that help a model or a person to put it right.

Not for: the validation itself (``_json_schema.py``). Rules carried: TOOL-04, HITL-08, SEC-01 (a value that the schema
marks as secret is not shown). May import: ``_secrets``; jsonschema's errors come in as arguments.

Each problem says where (a JSON pointer), what was expected, and what was there instead: the types or values that would
do, the missing names, the name that was perhaps meant. Of alternatives (``anyOf``, ``oneOf``) the one that comes
closest is explained: that none fits says nothing.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

from agentsession.protocol._secrets import REDACTED, redact_marked

__all__ = ["SchemaProblem", "explain"]

_SHOWN: Final = 60
"""Characters of a value; of a list of names or values, its items."""
_NAMED: Final = 12
_MESSAGE: Final = 400
_READ: Final = 64
"""Errors of one validation that are looked at; a list of a million wrong items has as many."""
_DEEPEST: Final = 8
"""Alternatives within alternatives."""

_TYPES: Final[Mapping[str, str]] = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "pattern": "text that matches {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "minContains": "at least {} items of the form that is asked for",
    "maxContains": "at most {} items of the form that is asked for",
}


class SchemaProblem(ValueError):
    """Why a value does not satisfy a schema; ``pointer`` is the JSON pointer of the place in the value."""

    def __init__(self, pointer: str, message: str, *, expected: str | None = None, got: str | None = None) -> None:
        super().__init__(f"{pointer}: {message}" if pointer != "/" else message)
        self.pointer = pointer
        self.message = message
        self.expected = expected
        """What would do, in words; absent where the message says it all."""
        self.got = got
        """What was there, cut short, as JSON or in words; never what the schema marks as secret."""

    def to_json(self) -> dict[str, str]:
        """``path`` and ``message``, for the result of a call."""
        return {"path": self.pointer, "message": self.message}


def explain(errors: Iterable[Any], schema: Any, value: Any, *, limit: int = 8) -> list[SchemaProblem]:
    """What jsonschema's ``errors`` of ``value`` mean: the ones nearest to the top first, none twice."""
    found: dict[tuple[str, str], SchemaProblem] = {}
    read = sorted(islice(errors, _READ), key=lambda error: len(error.absolute_path))
    shown = redact_marked(value, schema) if read else value  # most values are valid, and the walk costs
    for error in read:
        for problem in _explain(error, shown, 0):
            found.setdefault((problem.pointer, problem.message), problem)
    return list(found.values())[:limit]


def _explain(error: Any, shown: Any, depth: int) -> Iterator[SchemaProblem]:
    kind = error.validator
    if kind in ("anyOf", "oneOf") and error.context and depth < _DEEPEST:
        yield from _closest(error, shown, depth)
    elif kind == "required":
        yield _missing(error)
    elif kind in ("additionalProperties", "unevaluatedProperties") and isinstance(error.instance, dict):
        yield from _unknown_names(error, shown)
    elif kind == "oneOf":
        yield _problem(error, "it fits more than one of the forms that it may have", "exactly one of them")
    else:
        yield _expected(error, _wanted(error), shown, _near_value(error))


# --- one keyword ----------------------------------------------------------------------------------------------------


def _wanted(error: Any) -> str:
    """What would do, in words."""
    kind, wanted = error.validator, error.validator_value
    if kind == "type":
        names = wanted if isinstance(wanted, list) else [wanted]
        return _either(_TYPES.get(str(name), str(name)) for name in names)
    if kind == "enum" and isinstance(wanted, list):
        return _one_of(wanted)
    if kind == "const":
        return _json(wanted)
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(wanted if isinstance(wanted, (int, float, str)) else _json(wanted))
    if kind == "uniqueItems":
        return "items that are all different"
    if kind == "contains":
        return "an item of the form that is asked for"
    if kind == "not":
        return "something that is not of the form that is excluded"
    if kind is None:
        return "nothing here"
    if kind in ("dependentRequired", "dependencies"):
        return str(error.message)  # names alone
    return f"what {kind} asks for: {_json(wanted)}"


def _near_value(error: Any) -> str:
    if error.validator != "enum" or not isinstance(error.instance, str) or not isinstance(error.validator_value, list):
        return ""
    return _meant(error.instance, [each for each in error.validator_value if isinstance(each, str)])


def _missing(error: Any) -> SchemaProblem:
    name = _missing_name(error)
    if name is None:
        return _problem(error, str(error.message), None)
    kind = _form_of(_property(error, name))
    return _problem(error, f"{_json(name)} is missing" + (f"; expected {kind}" if kind else ""), kind or _json(name))


def _missing_name(error: Any) -> str | None:
    """jsonschema makes an error of each missing name, and tells it only in its sentence."""
    names = error.validator_value if error.validator == "required" and isinstance(error.validator_value, list) else []
    return next((each for each in names if isinstance(each, str) and error.message.startswith(repr(each))), None)


def _property(error: Any, name: str) -> Mapping[str, Any]:
    return _mapping(_mapping(_mapping(error.schema).get("properties")).get(name))


def _unknown_names(error: Any, shown: Any) -> Iterator[SchemaProblem]:
    schema = _mapping(error.schema)
    known = [str(name) for name in _mapping(schema.get("properties"))]
    patterns = bool(schema.get("patternProperties"))
    extra = [name for name in error.instance if name not in known]
    if patterns or error.validator == "unevaluatedProperties" or not extra:
        yield _problem(error, f"it has properties that are not asked for: {_listed(map(_json, extra))}", None)
        return
    free = [name for name in known if name not in error.instance]
    for name in extra[:_NAMED]:
        meant = _meant(name, free) or _meant(name, known)
        names = f"; expected {_listed(map(_json, known))}" if known and not meant else ""
        none = "" if known else "; expected no properties"
        yield _problem(
            error, f"{_json(name)} is not a property here{meant}{names}{none}", _listed(map(_json, known)) or "nothing"
        )


def _expected(error: Any, wanted: str, shown: Any, hint: str = "") -> SchemaProblem:
    got = _got(shown, error.absolute_path, error.validator)
    return _problem(error, f"expected {wanted}, got {got}{hint}", wanted, got)


def _problem(error: Any, message: str, expected: str | None, got: str | None = None) -> SchemaProblem:
    short = message if len(message) <= _MESSAGE else message[: _MESSAGE - 3] + "..."
    return SchemaProblem(_pointer(error.absolute_path), short, expected=expected, got=got)


# --- alternatives ---------------------------------------------------------------------------------------------------


def _closest(error: Any, shown: Any, depth: int) -> Iterator[SchemaProblem]:
    """The alternative that comes closest; where none is of the right type, what types and values would do."""
    branches: dict[Any, list[Any]] = {}
    for each in islice(error.context, _READ):
        branches.setdefault(each.schema_path[0], []).append(each)
    tags = _tags(branches)
    if tags is not None:
        tag, values = tags
        wanted = _one_of(values)
        hint = _meant(tag.instance, [each for each in values if isinstance(each, str)])
        yield _expected(tag, wanted, shown, hint)
        return
    absent = _missing_tag(branches)
    if absent is not None:
        name, values = absent
        yield _problem(error, f"{_json(name)} is missing; expected {_one_of(values)}", _one_of(values))
        return
    best = min(branches.values(), key=_distance)
    if any(_is_of_the_whole(each) for each in best):
        wholes = [each for branch in branches.values() for each in branch if _is_of_the_whole(each)]
        wanted = _either(dict.fromkeys(_wanted(each) for each in wholes))
        values = [value for each in wholes if each.validator == "enum" for value in each.validator_value]
        values += [each.validator_value for each in wholes if each.validator == "const"]
        yield _expected(error, wanted, shown, _meant(error.instance, [one for one in values if isinstance(one, str)]))
        return
    for each in sorted(best, key=lambda item: len(item.absolute_path)):
        yield from _explain(each, shown, depth + 1)


def _tags(branches: Mapping[Any, Sequence[Any]]) -> tuple[Any, list[Any]] | None:
    """The property that says which alternative is meant, if its value is that of none, and the values that would do."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for branch in branches.values():
        for each in branch:
            if len(each.relative_path) == 1 and each.validator in ("const", "enum"):
                found.setdefault(tuple(each.relative_path), []).append(each)
    for errors in found.values():
        if len(errors) == len(branches) > 1:
            values = [value for each in errors for value in _values(each)]
            return errors[0], list({_json(value): value for value in values}.values())
    return None


def _missing_tag(branches: Mapping[Any, Sequence[Any]]) -> tuple[str, list[Any]] | None:
    """The property that says which alternative is meant, if it is not there, and the values that would do."""
    found: dict[str, list[Any]] = {}
    for branch in branches.values():
        for each in branch:
            name = _missing_name(each) if not each.relative_path else None
            if name is not None and "const" in _property(each, name):
                found.setdefault(name, []).append(_property(each, name)["const"])
    return next(((name, values) for name, values in found.items() if len(values) == len(branches) > 1), None)


def _values(error: Any) -> list[Any]:
    return list(error.validator_value) if error.validator == "enum" else [error.validator_value]


def _distance(branch: Sequence[Any]) -> tuple[int, int, int]:
    """How far a value is from an alternative: of another type, said to be another, so many things wrong."""
    whole = sum(_is_of_the_whole(each) for each in branch)
    tags = sum(len(each.relative_path) == 1 and each.validator == "const" for each in branch)
    return whole, tags, len(branch)


def _is_of_the_whole(error: Any) -> bool:
    return not error.relative_path and error.validator in ("type", "const", "enum")


# --- words ----------------------------------------------------------------------------------------------------------


def _got(shown: Any, path: Iterable[Any], kind: object) -> str:
    place = shown
    for step in path:
        try:
            place = place[step]
        except (KeyError, IndexError, TypeError):  # what holds it is a secret
            return REDACTED
    if place == REDACTED:
        return REDACTED
    if isinstance(place, str) and kind in ("minLength", "maxLength"):
        return f"{len(place)}"
    if isinstance(place, dict):
        return f"an object with {_listed(map(_json, place), 4)}" if place else "an empty object"
    if isinstance(place, list):
        return f"an array of {len(place)}" if place else "an empty array"
    return _json(place)


def _json(value: Any) -> str:
    """A value as JSON, cut short."""
    if isinstance(value, str) and len(value) > _SHOWN:
        value = value[: _SHOWN - 3] + "..."
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN + 2 else text[: _SHOWN - 3] + "..."


def _listed(items: Iterable[str], limit: int = _NAMED) -> str:
    all_items = list(items)
    more = len(all_items) - limit
    return ", ".join(all_items[:limit]) + (f" and {more} more" if more > 0 else "")


def _either(items: Iterable[str]) -> str:
    words = list(items)
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _meant(word: Any, known: Iterable[str]) -> str:
    if not isinstance(word, str):
        return ""
    lowered = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word[:200].casefold(), list(lowered), n=1, cutoff=0.6)
    return f"; did you mean {_json(lowered[near[0]])}?" if near else ""


def _form_of(schema: Mapping[str, Any]) -> str | None:
    if "const" in schema:
        return _json(schema["const"])
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"])
    kind = schema.get("type")
    return _TYPES.get(kind) if isinstance(kind, str) else None


def _one_of(values: Sequence[Any]) -> str:
    return f"one of {_listed(map(_json, values))}" if len(values) > 1 else _listed(map(_json, values))


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _pointer(path: Iterable[Any]) -> str:
    return "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path)
