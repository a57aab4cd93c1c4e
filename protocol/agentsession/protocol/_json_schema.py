"""Checking a value against a JSON Schema that somebody else wrote: tool arguments, answers to questions.

Not for: the wire itself (``parse_event``). Rules carried: TOOL-04, HITL-08.
May import: ``jsonschema`` inside the functions, so that importing the contract does not load it.

Fail closed: a schema that cannot be used accepts nothing. References to other documents are not followed, so a schema
from a model or a peer cannot make this process fetch an address.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from agentsession.protocol._json import check_json

__all__ = ["SchemaProblem", "check_schema", "find_problem"]


class SchemaProblem(ValueError):
    """Why a value does not satisfy a schema; ``pointer`` is the JSON pointer of the place in the value."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer}: {message}" if pointer != "/" else message)
        self.pointer = pointer
        self.message = message


@functools.lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    import jsonschema.validators
    import referencing

    schema = json.loads(schema_text)
    validator_class = jsonschema.validators.validator_for(schema, default=jsonschema.validators.Draft202012Validator)
    validator_class.check_schema(schema)
    return validator_class(schema, registry=referencing.Registry())


def find_problem(schema: Mapping[str, Any], value: Any) -> SchemaProblem | None:
    """The most telling reason why ``value`` does not satisfy ``schema``, or ``None`` when it does."""
    import jsonschema.exceptions
    import referencing.exceptions

    try:
        validator = _validator(json.dumps(check_json(dict(schema)), sort_keys=True))
        problem = jsonschema.exceptions.best_match(validator.iter_errors(value))
    except jsonschema.exceptions.SchemaError as error:
        return SchemaProblem("/", f"the schema itself is not valid: {error.message}")
    except referencing.exceptions.Unresolvable as error:  # the type that jsonschema raises is one of these
        return SchemaProblem("/", f"the schema refers to a document that is not here: {error}")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error) as error:
        return SchemaProblem("/", f"the schema cannot be used: {type(error).__name__}")
    if problem is None:
        return None
    pointer = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in problem.absolute_path)
    return SchemaProblem(pointer, cast(str, problem.message)[:300])


def check_schema(schema: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with ``value``, in one sentence, or ``None``: an ``AnswerCheck``."""
    problem = find_problem(schema, value)
    return None if problem is None else str(problem)
