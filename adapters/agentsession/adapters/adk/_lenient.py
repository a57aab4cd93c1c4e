"""Reading JSON into genai's and ADK's models, which forbid fields they do not know: those are kept beside the value.

Not for: which JSON is which (``_read``, ``_gemini_requests``, ``_gemini_responses``). Rules carried: WIRE-01, WIRE-02.
May import: pydantic, ``_values``, ``agentsession.protocol``.

A newer provider says more than this release of google-genai knows. Refusing that would break a session for a field
that nobody needs; dropping it would lose it without a word. So it is taken out, with its JSON pointer, and the rest is
read again. Everything else that a model refuses is one :class:`SchemaError` that names the place.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from agentsession.adapters.adk._values import is_list, is_object, lossy_json
from agentsession.protocol import SchemaError, repair_text

__all__ = ["pointer_of", "read_model", "refused", "remove", "place_in", "snake", "value_at"]

_MOST_REPAIRS: Final = 200
"""Passes over one value; each takes out all unknown fields that pydantic saw in it."""

Path = tuple[str | int, ...]
Place = Callable[[Path], str]
M = TypeVar("M", bound=BaseModel)


def read_model(
    model: type[M],
    value: Any,
    unread: dict[str, Any],
    *,
    pointer: str | Place = "",
    name: str = "input",
    what: str = "",
) -> M:
    """``value`` as a ``model``; what it has no field for is added to ``unread`` by JSON pointer.

    Args:
        value: Parsed JSON; it is not changed.
        pointer: The place of ``value`` in the document that errors call ``name``; or a function from a path in
            ``value`` to its place, where they differ.
        what: What the value should be, for errors; the model's name when absent.

    Raises:
        SchemaError: the value is not such a model; the error has the pointer of the place.
    """
    wanted = what or model.__name__
    place = pointer if callable(pointer) else lambda path: f"{pointer}{pointer_of(path)}"
    if not is_object(value):
        raise refused(name, place(()), f"not a {wanted}", value, "an object")
    data = copy.deepcopy(value)
    for _ in range(_MOST_REPAIRS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # genai warns of enum values that it does not know, and keeps them
                return model.model_validate(data)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                path = place_in(data, problem["loc"])
                if problem["type"] != "extra_forbidden" or path is None:
                    at = place(path if path is not None else problem["loc"])
                    raise refused(name, at, f"not a {wanted}", problem.get("input"), problem["msg"]) from error
                unread[place(path)] = lossy_json(remove(data, path))[0]
        except (AttributeError, TypeError) as error:
            # genai's enums fail so on what is no text, and pydantic then says no place.
            path = _culprit(model, data)
            got = value_at(data, path)
            raise refused(name, place(path), f"not a {wanted}", got, "a value of the field's type") from error
    raise refused(name, place(()), f"not a {wanted}", f"more than {_MOST_REPAIRS} unknown fields", f"a {wanted}")


def _culprit(model: type[BaseModel], data: Any) -> Path:
    """The place without whose value reading ``data`` no longer fails as it did; the whole where no single one is it."""
    for path in list(_leaves(data, ()))[:_MOST_REPAIRS]:
        without = copy.deepcopy(data)
        value_at(without, path[:-1])[path[-1]] = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.model_validate(without)
        except ValidationError:
            return path
        except (AttributeError, TypeError):
            continue
        return path
    return ()


def _leaves(data: Any, path: Path) -> Iterator[Path]:
    """The places of all values that are neither text nor absent, the innermost first."""
    inside = data.items() if is_object(data) else enumerate(data) if is_list(data) else ()
    for key, item in inside:
        yield from _leaves(item, (*path, key))
    if path and data is not None and not isinstance(data, str):
        yield path


def place_in(data: Any, loc: Path) -> Path | None:
    """The path in ``data`` of a place that pydantic names by aliases, perhaps through steps of its own."""
    path: list[str | int] = []
    here = data
    for step in loc:
        if is_object(here):
            key = next((key for key in (step, snake(str(step))) if key in here), None)
            if key is None:
                continue
            path.append(key)
            here = here[key]
        elif is_list(here) and isinstance(step, int) and step < len(here):
            path.append(step)
            here = here[step]
    return tuple(path) or None


def snake(name: str) -> str:
    """``functionCall`` as ``function_call``."""
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name)


def value_at(data: Any, path: Path) -> Any:
    """The value at ``path``."""
    for step in path:
        data = data[step]
    return data


def remove(data: Any, path: Path) -> Any:
    """Take the value at ``path`` out of ``data``, and return it."""
    return value_at(data, path[:-1]).pop(path[-1])


def pointer_of(path: Path) -> str:
    """The JSON pointer of ``path``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def refused(name: str, pointer: str, what: str, got: Any, expected: str) -> SchemaError:
    """The error for a value that cannot be read, with its place."""
    shown = repair_text(got if isinstance(got, str) and " " in got else repr(got))
    return SchemaError(
        what,
        pointer=pointer or "/",
        where=f"{name} at {pointer or '/'}",
        got=shown if len(shown) <= 60 else shown[:57] + "...",
        expected=expected,
    )
