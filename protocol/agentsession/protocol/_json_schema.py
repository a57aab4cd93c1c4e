"""Checking a value against a JSON Schema that somebody else wrote: tool arguments, answers to questions.

Not for: the words for what is wrong (``_schema_problems.py``), the wire itself (``parse_event``).
Rules carried: TOOL-04, HITL-08.
May import: ``_schema_problems``; ``jsonschema`` inside the functions, so that importing the contract does not load it.

Fail closed: a schema that cannot be used accepts nothing. References to other documents are not followed, so a schema
from a model or a peer cannot make this process fetch an address.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from agentsession.protocol._json import check_json
from agentsession.protocol._schema_problems import SchemaProblem, explain

__all__ = ["SchemaProblem", "SchemaValidator", "check_schema", "find_problem", "find_problems"]

_UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error)


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
        self._validator: Any = kind(self._schema, registry=referencing.Registry())

    def problems(self, value: Any, *, limit: int = 8) -> list[SchemaProblem]:
        """Why ``value`` does not satisfy the schema, the most telling reason first; empty when it does."""
        import referencing.exceptions

        try:
            return explain(self._validator.iter_errors(value), self._schema, value, limit=limit)
        except referencing.exceptions.Unresolvable as error:  # the type that jsonschema raises is one of these
            return [SchemaProblem("/", f"the schema refers to a document that is not here: {error}"[:300])]
        except _UNUSABLE as error:
            return [SchemaProblem("/", f"the schema cannot be used: {type(error).__name__}")]


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
