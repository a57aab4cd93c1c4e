"""JSON values at the edge: what may enter an event, how text is repaired, how arguments are digested.

Not for: the shapes of events (``_events.py``) or reading a stream of lines (``_wire.py``).
Rules carried: WIRE-01 (every event is valid JSON) and HITL-04 (an approval is bound to a digest of the arguments).
May import: the standard library; ``rfc8785`` inside the function that needs it.

Three stated rules, so that nothing fails later and far away (docs/decisions/0003-json-at-the-edge.md):

1. Text is *repaired*: two halves of a surrogate pair that meet are joined, a lone half becomes U+FFFD. NUL and every
   other character stay.
2. A field that holds JSON *refuses* what JSON cannot say (NaN, infinities, bytes, sets, objects) or nobody could read
   (nesting beyond 200 levels, integers beyond 4300 digits), naming the path.
3. :func:`to_json` *converts* what a tool in Python may return, by the table in its docstring, and refuses the rest.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import hashlib
import json
import math
import pathlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

__all__ = ["JsonError", "args_digest", "check_json", "dumps", "repair_text", "to_json"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 200
"""Nesting beyond this is refused: the JSON parsers of common languages stop between 128 and 1000 levels."""

_INT_BOUND = 10**4300
"""Integers from here on are refused: Python neither writes nor reads more digits, so none could be stored."""


class JsonError(ValueError):
    """A value that JSON cannot say, or nested too deep; ``path`` is the JSON pointer of the offending place."""

    def __init__(self, path: str, got: str, expected: str) -> None:
        super().__init__(f"{path or '/'}: got {got}, expected {expected}")
        self.path: str = path or "/"
        self.got = got
        self.expected = expected


def repair_text(text: str) -> str:
    """Return ``text`` without lone surrogates: pairs are joined to their character, lone halves become U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_json(value: Any) -> Any:
    """Return a copy of ``value`` that is plain JSON, text repaired. Raises :class:`JsonError` with the path.

    The copy is on purpose: an executor that later changes the dictionary it handed in cannot change the record.
    """
    try:
        return _plain(value, 0)
    except _NotPlain:
        return _check(value, "", 0)


class _NotPlain(Exception):
    """The value is not plain JSON, or not allowed: the slow way says which, and where."""


def _plain(value: Any, depth: int) -> Any:
    """The copy of a value that is plain JSON already, which most are; it keeps no path, which costs more than the rest.

    Anything else raises :class:`_NotPlain`. What this returns, ``_check`` and ``_convert`` would return too.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else repair_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if -_INT_BOUND < value < _INT_BOUND:
            return value
        raise _NotPlain
    if kind is float:
        if math.isfinite(value):
            return value
        raise _NotPlain
    if depth >= _MAX_DEPTH:
        raise _NotPlain
    if kind is dict:
        out: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _NotPlain
            # Most items are short texts: a call for each would cost more than the copy.
            if type(item) is not str:
                item = _plain(item, depth + 1)
            elif not item.isascii():
                item = repair_text(item)
            out[key if key.isascii() else repair_text(key)] = item
        if len(out) != len(value):
            raise _NotPlain  # two keys that read the same
        return out
    if kind is list:
        return [_plain(item, depth + 1) for item in value]
    raise _NotPlain


def _check(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return repair_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if -_INT_BOUND < value < _INT_BOUND:
            return value
        raise JsonError(path, "an integer of more than 4300 digits", "a smaller number, or its digits as text")
    if kind is float:
        if math.isfinite(value):
            return value
        raise JsonError(path, repr(value), "a finite number")
    if depth >= _MAX_DEPTH:
        raise JsonError(path, f"nesting beyond {_MAX_DEPTH} levels", "a flatter value")
    if kind is dict:
        out: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise JsonError(path, f"a key of type {type(key).__name__}", "string keys")
            fixed = repair_text(key)
            if fixed in out:
                raise JsonError(path, f"two keys that read {fixed!r}", "distinct keys")
            out[fixed] = _check(item, f"{path}/{_escape(fixed)}", depth + 1)
        return out
    if kind is list:
        return [_check(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]
    if kind is tuple:
        return [_check(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str):  # a str subclass, such as StrEnum
        return repair_text(str.__str__(value))
    raise JsonError(path, f"a value of type {kind.__name__}", "a JSON value (use agentsession.protocol.to_json)")


def to_json(value: Any) -> Any:
    """Convert what Python code returns to plain JSON; raise :class:`JsonError` with the path for what has no reading.

    ====================================  =======================================================
    Python                                JSON
    ====================================  =======================================================
    str                                   string, repaired
    NaN, infinities                       the strings "NaN", "Infinity", "-Infinity"
    bytes, bytearray, memoryview          ``{"$bytes": base64}``
    set, frozenset                        list, sorted by the text of the items' JSON
    tuple, other sequences                list
    mapping                               object; keys that are numbers, booleans or enums become text
    datetime, date, time, timedelta       ISO 8601 string (timedelta: seconds as a number)
    Decimal, UUID, Path, Enum             string (an Enum: its value)
    pydantic model                        its JSON dump, converted by this table
    dataclass                             object of its fields
    anything else                         refused
    ====================================  =======================================================
    """
    try:
        return _plain(value, 0)
    except _NotPlain:
        return _convert(value, "", 0, ())


def _convert(value: Any, path: str, depth: int, seen: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _convert(value.value, path, depth, seen)
    if isinstance(value, str):
        return repair_text(str.__str__(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _check(int(value), path, depth)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
        return repair_text(str(value))
    if id(value) in seen:
        raise JsonError(path, "a value that contains itself", "a finite tree")
    if depth >= _MAX_DEPTH:
        raise JsonError(path, f"nesting beyond {_MAX_DEPTH} levels", "a flatter value")
    seen = (*seen, id(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _convert_mapping(fields, path, depth, seen)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return _convert(_dumped(dump, value, path), path, depth + 1, seen)
    if isinstance(value, Mapping):
        return _convert_mapping(value, path, depth, seen)
    if isinstance(value, Set):
        items = [_convert(item, f"{path}/{index}", depth + 1, seen) for index, item in enumerate(value)]
        return sorted(items, key=dumps)
    if isinstance(value, Sequence):
        return [_convert(item, f"{path}/{index}", depth + 1, seen) for index, item in enumerate(value)]
    raise JsonError(path, f"a value of type {type(value).__name__}", "a JSON value, model, dataclass, set or date")


def _dumped(dump: Callable[..., Any], value: Any, path: str) -> Any:
    try:
        # warnings=False: pydantic would warn of a field that does not hold what it declares; it is checked here anyway.
        return dump(mode="python", by_alias=True, exclude_none=True, warnings=False)
    except Exception as error:  # a model's own serializers may raise anything; the path is what helps
        raise JsonError(
            path, f"a {type(value).__name__} whose dump failed ({type(error).__name__}: {error})", "a model that dumps"
        ) from error


def _convert_mapping(value: Mapping[Any, Any], path: str, depth: int, seen: tuple[int, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        plain = key.value if isinstance(key, enum.Enum) else key
        if isinstance(plain, bool):
            plain = "true" if plain else "false"
        elif isinstance(plain, (int, float)):
            plain = str(plain)
        if not isinstance(plain, str):
            raise JsonError(path, f"a key of type {type(key).__name__}", "string keys")
        name = repair_text(plain)
        if name in out:
            raise JsonError(path, f"two keys that read {name!r}", "distinct keys")
        out[name] = _convert(item, f"{path}/{_escape(name)}", depth + 1, seen)
    return out


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def dumps(value: Any) -> str:
    """One line of JSON, UTF-8 text as it is, keys in the order given. Raises ValueError for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def args_digest(args: Mapping[str, Any]) -> str:
    """The digest that binds an approval to its arguments: lower-case hex SHA-256 of RFC 8785 canonical JSON.

    Integers beyond 2**53 - 1 are outside RFC 8785, which would round two of them to one digest; arguments that hold
    one are written with sorted keys and all their digits instead. Rule: HITL-04.
    """
    import rfc8785

    plain = check_json(dict(args))
    try:
        canonical = rfc8785.dumps(plain)
    except rfc8785.CanonicalizationError:
        canonical = json.dumps(
            plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
        ).encode()
    return hashlib.sha256(canonical).hexdigest()
