"""Checking a value against a JSON Schema that somebody else wrote: tool arguments, answers to questions.

Not for: the words for what is wrong (``_schema_problems.py``), the wire itself (``parse_event``).
Rules carried: TOOL-04, HITL-08.
May import: ``_patterns``, ``_schema_problems``; ``jsonschema`` inside the functions, so that importing the contract
does not load it.

Fail closed: a schema that cannot be used accepts nothing. References to other documents are not followed, so a schema
from a model or a peer cannot make this process fetch an address. Nor can it make it compute for ever: thirty small
schemas that each refer twice to the one before are a thousand million steps, so steps are counted; and patterns are
tried by an engine that does not go back.
"""

from __future__ import annotations

import contextvars
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentsession.protocol._json import check_json
from agentsession.protocol._patterns import is_found
from agentsession.protocol._schema_problems import SchemaProblem, explain

__all__ = ["SchemaProblem", "SchemaValidator", "check_schema", "find_problem", "find_problems"]

_UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error)

_STEPS: Final = 50_000
"""Subschemas that one check may apply, half a second; of a large value, so many for each thing in it:"""
_STEPS_EACH: Final = 20


class _TooManySteps(ArithmeticError):
    """The check was given up."""


class _Steps:
    """How many subschemas the present check may still apply."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._left = _STEPS
        self._is_measured = False

    def take(self) -> None:
        """One more. Raises :class:`_TooManySteps`."""
        self._left -= 1
        if self._left < 0 and not self._is_measured:
            self._is_measured = True
            self._left = _size(self._value) * _STEPS_EACH - _STEPS
        if self._left < 0:
            raise _TooManySteps


_PRESENT: Final[contextvars.ContextVar[_Steps]] = contextvars.ContextVar("schema_steps")


class SchemaValidator:
    """One schema, read once. In the dialect that it names, else draft 2020-12.

    Raises :class:`SchemaProblem` for a schema that is none; its pointer is that of the place in the schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema.exceptions
        import jsonschema.validators
        import referencing

        self._schema = dict(schema)
        try:
            kind = jsonschema.validators.validator_for(self._schema, default=jsonschema.validators.Draft202012Validator)
            kind.check_schema(self._schema)
        except jsonschema.exceptions.SchemaError as error:
            place = "/" + "/".join(map(str, error.absolute_path))
            raise SchemaProblem(place, f"the schema itself is not valid: {error.message[:300]}") from error
        except _UNUSABLE as error:
            raise SchemaProblem("/", f"the schema cannot be used: {type(error).__name__}") from error
        # An empty registry: jsonschema's own default would fetch remote references over the network.
        self._validator: Any = _counting(kind)(self._schema, registry=referencing.Registry())

    def problems(self, value: Any, *, limit: int = 8) -> list[SchemaProblem]:
        """Why ``value`` does not satisfy the schema, the most telling reason first; empty when it does."""
        import referencing.exceptions

        token = _PRESENT.set(_Steps(value))
        try:
            return explain(self._validator.iter_errors(value), self._schema, value, limit=limit)
        except referencing.exceptions.Unresolvable as error:  # the type that jsonschema raises is one of these
            return [SchemaProblem("/", f"the schema refers to what is not here: {error.ref or 'an anchor'!s:.100}")]
        except _TooManySteps:
            return [SchemaProblem("/", "the schema cannot be used: to check this value by it would take too long")]
        except _UNUSABLE as error:
            return [SchemaProblem("/", f"the schema cannot be used: {type(error).__name__}")]
        finally:
            _PRESENT.reset(token)


@functools.cache
def _counting(kind: Any) -> Any:
    """jsonschema's ``kind`` of validator, which takes a step whenever it applies a subschema."""
    import jsonschema.exceptions
    import jsonschema.validators

    def unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        # jsonschema compares each object with each: three thousand of them are ten seconds.
        if wanted and validator.is_type(instance, "array") and len(set(map(_key, instance))) < len(instance):
            yield jsonschema.exceptions.ValidationError("items are the same")

    def pattern(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not is_found(wanted, instance):
            yield jsonschema.exceptions.ValidationError(f"{instance!r} does not match {wanted!r}")

    def by_pattern(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "object"):
            for each, subschema in wanted.items():
                for name in [name for name in instance if is_found(each, name)]:
                    yield from validator.descend(instance[name], subschema, path=name, schema_path=each)

    def additional(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "object"):
            return
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        extra = [name for name in instance if name not in known and not any(is_found(each, name) for each in patterns)]
        if validator.is_type(wanted, "object"):
            for name in extra:
                yield from validator.descend(instance[name], wanted, path=name)
        elif not wanted and extra:
            yield jsonschema.exceptions.ValidationError(f"{', '.join(map(repr, extra))} may not be there")

    extend: Any = jsonschema.validators.extend
    made = extend(
        kind,
        {
            "uniqueItems": unique,
            "pattern": pattern,
            "patternProperties": by_pattern,
            "additionalProperties": additional,
        },
    )
    evolve = made.evolve

    def counted(self: Any, **changes: Any) -> Any:
        _PRESENT.get().take()
        schema = changes.get("schema")
        if isinstance(schema, dict) and "$schema" in schema:  # it would go on with a validator that does not count
            changes["schema"] = {name: value for name, value in schema.items() if name != "$schema"}
        return evolve(self, **changes)

    made.evolve = counted
    return made


def _size(value: Any) -> int:
    """How many things there are in a JSON value."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += 1
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return count


def _key(value: Any) -> Any:
    """What is equal where JSON values are: 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict):
        return dict, frozenset((name, _key(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return list, tuple(map(_key, value))
    return isinstance(value, bool), value


@functools.lru_cache(maxsize=256)
def _validator(schema_text: str) -> SchemaValidator:
    return SchemaValidator(json.loads(schema_text))


def find_problems(schema: Mapping[str, Any], value: Any, *, limit: int = 8) -> list[SchemaProblem]:
    """Why ``value`` does not satisfy ``schema``, up to ``limit`` reasons; empty when it does."""
    try:
        validator = _validator(json.dumps(check_json(dict(schema))))
    except SchemaProblem as problem:
        return [SchemaProblem("/", problem.message)]  # the place is one in the schema, not in the value
    except _UNUSABLE as error:
        return [SchemaProblem("/", f"the schema cannot be used: {type(error).__name__}")]
    return validator.problems(value, limit=limit)


def find_problem(schema: Mapping[str, Any], value: Any) -> SchemaProblem | None:
    """The most telling reason why ``value`` does not satisfy ``schema``, or ``None`` when it does."""
    return next(iter(find_problems(schema, value, limit=1)), None)


def check_schema(schema: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with ``value``, in one sentence, or ``None``: an ``AnswerCheck``."""
    problem = find_problem(schema, value)
    return None if problem is None else str(problem)
