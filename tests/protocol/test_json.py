"""JSON at the edge: text is repaired, fields refuse what JSON cannot say, tool results are converted by a table."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import hashlib
import itertools
import json
import pathlib
import types
import uuid
from collections.abc import Callable
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.conformance.strategies import json_objects, json_values
from agentsession.protocol import (
    Custom,
    DeltaJoiner,
    JsonError,
    Message,
    Text,
    UnknownPart,
    _json,
    args_digest,
    check_json,
    dump_event,
    dumps,
    parse_event,
    repair_text,
    to_json,
)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    PAIR = ("a", 1)


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str]


class Inner(pydantic.BaseModel):
    when: datetime.date
    note: str | None = None


class Wide(pydantic.RootModel[list[int]]):
    pass


class Broken(pydantic.BaseModel):
    x: int

    @pydantic.model_serializer
    def _fails(self) -> dict[str, Any]:
        raise RuntimeError("no dump today")


def custom(data: Any, **unknown: Any) -> Custom:
    stamps = {"id": "e", "seq": 1, "timestamp": "2026-01-31T12:00:00Z", "sessionId": "s"}
    return Custom.model_validate({**stamps, "kind": "k", "data": data, **unknown})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("plain", "plain"),
        ("\x00 stays", "\x00 stays"),
        ("\u202eright to left\u202c", "\u202eright to left\u202c"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a�"),
        ("\ude00a", "�a"),
        ("\ude00\ud83d", "��"),
        ("\ud83dx\ude00", "�x�"),
        ("\ud83d\ud83d\ude00", "�😀"),
        ("c\udcc3\udcb4t", "c��t"),
    ],
)
def test_lone_surrogates_are_repaired_and_nothing_else_is_touched(text: str, repaired: str) -> None:
    assert repair_text(text) == repaired


@pytest.mark.rule("WIRE-01")
@given(st.text(st.characters(), max_size=12))
def test_any_python_text_becomes_text_that_utf8_can_say(text: str) -> None:
    repaired = repair_text(text)
    assert repaired.encode().decode() == repaired == repair_text(repaired)
    event = custom({text: text}, x=text)
    assert parse_event(dump_event(event).encode()) == event
    assert Message(message_id="m", content=[Text(text=text)]).content == [Text(text=repaired)]


@pytest.mark.rule("LIFE-14")
@given(st.text(st.characters(), max_size=12), st.lists(st.integers(0, 24), max_size=4))
def test_text_cut_anywhere_even_inside_a_character_joins_to_the_same_text(text: str, cuts: list[int]) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    places = [0, *sorted(2 * min(cut, len(units) // 2) for cut in cuts), len(units)]
    pieces = [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in itertools.pairwise(places)]
    joiner = DeltaJoiner()
    shown = [joiner.feed(piece) for piece in pieces]
    assert "".join([*shown, joiner.flush()]) == repair_text(text)
    assert all(piece == repair_text(piece) for piece in shown)


def test_a_delta_joiner_holds_half_a_character_back() -> None:
    joiner = DeltaJoiner()
    assert joiner.feed("smile \ud83d") == "smile "
    assert joiner.feed("") == ""
    assert joiner.feed("\ude00!") == "😀!"
    assert joiner.feed("\ud83d") == ""
    assert joiner.flush() == "�"
    assert joiner.flush() == ""


# --- fields that hold JSON -------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@given(json_values())
def test_json_passes_unchanged_and_as_a_copy(value: Any) -> None:
    checked = check_json(value)
    assert checked == value
    assert dumps(checked) == dumps(value)
    if isinstance(value, (dict, list)):
        assert checked is not value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "/"),
        ({"a": [float("inf")]}, "/a/0"),
        ({"a": b"x"}, "/a"),
        ({"a": {1}}, "/a"),
        ({"a/b": {"~": object()}}, "/a~1b/~0"),
        ({"a": {1: 2}}, "/a"),
        ({"a": {None: 2}}, "/a"),
        ({f"{half}": 1 for half in ("\ud800", "\udbff")}, "/"),
        ([Text(text="a")], "/0"),
        ([decimal.Decimal(1)], "/0"),
        (nested(201), "/" + "0/" * 199 + "0"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(JsonError) as caught:
        check_json(value)
    assert caught.value.path == path


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(JsonError, match="nesting"):
        check_json(loop)
    with pytest.raises(JsonError, match="contains itself"):
        to_json({"a": loop})


@pytest.mark.rule("WIRE-01")
def test_the_deepest_value_that_is_taken_can_also_be_written_and_read() -> None:
    deep = nested(200)
    event = custom(deep, x={"x": deep[0]})
    assert parse_event(dump_event(event)) == event
    part = UnknownPart.model_validate({"type": "x_deep", "x": deep})
    in_a_part = event.to_wire() | {"type": "message", "messageId": "m", "content": [part.to_wire()]}
    assert parse_event(dumps(in_a_part)).to_wire() == {**parse_event(dumps(in_a_part)).to_wire(), **in_a_part}


def test_large_integers_keep_all_their_digits() -> None:
    event = Custom(kind="k", data=[2**64, -(10**40)])
    assert json.loads(dump_event(event))["data"] == [2**64, -(10**40)]


# --- what tools return -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\ud800", "a�"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Plain.PAIR, ["a", 1]),
        (True, True),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (memoryview(b"ab"), {"$bytes": "YWI="}),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, "1", None}), ["1", 2, None]),
        ((1, (2,)), [1, [2]]),
        (range(3), [0, 1, 2]),
        (collections.deque([1]), [1]),
        (collections.OrderedDict({"a": 1}), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ({"a": 1}.keys(), ["a"]),
        ({7: "a", 2.5: "b", True: "c", Colour.RED: "d"}, {"7": "a", "true": "c", "2.5": "b", "red": "d"}),
        (datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC), "2026-01-31T12:00:00+00:00"),
        (datetime.date(2026, 1, 31), "2026-01-31"),
        (datetime.time(12), "12:00:00"),
        (datetime.timedelta(minutes=1.5), 90.0),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (Point(1, {"b", "a"}), {"x": 1, "tags": ["a", "b"]}),
        (Inner(when=datetime.date(2026, 1, 31)), {"when": "2026-01-31"}),
        ([Inner(when=datetime.date(2026, 1, 31), note="n")], [{"when": "2026-01-31", "note": "n"}]),
        (Wide([1, 2]), [1, 2]),
        (Text(text="a"), {"type": "text", "text": "a"}),
    ],
)
def test_what_a_tool_returns_is_converted_by_the_table(value: Any, expected: Any) -> None:
    converted = to_json(value)
    assert converted == expected
    assert type(converted) is type(expected)
    assert check_json(converted) == converted


@pytest.mark.parametrize(
    ("value", "path", "got"),
    [
        (object(), "/", "object"),
        ({"a": [lambda: 0]}, "/a/0", "function"),
        ({"a": ValueError("x")}, "/a", "ValueError"),
        ({"a": Colour}, "/a", "EnumType"),
        ({"a": Inner}, "/a", "ModelMetaclass"),
        ({"a": (n for n in range(2))}, "/a", "generator"),
        ({"a": complex(1, 2)}, "/a", "complex"),
        ({("a", "b"): 1}, "/", "tuple"),
        ({1: "a", "1": "b"}, "/", "'1'"),
        ({"a": Broken(x=1)}, "/a", "no dump today"),
        ({"a": [nested(300)]}, "/a" + "/0" * 199, "nesting"),
    ],
)
def test_what_has_no_reading_is_refused_with_path_and_type(value: Any, path: str, got: str) -> None:
    with pytest.raises(JsonError) as caught:
        to_json(value)
    assert caught.value.path == path
    assert got in caught.value.got


@given(json_values())
def test_converting_json_changes_nothing(value: Any) -> None:
    assert to_json(value) == value


_any_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=4)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | _any_text
        | st.builds(lambda: 10**4300)
        | st.binary(max_size=2),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_any_text | st.integers(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_plain_json_takes_a_short_way_to_what_the_long_ways_say(value: Any) -> None:
    try:
        plain = _json._plain(value, 0)
    except _json._NotPlain:
        return
    assert plain == _json._check(value, "", 0) == _json._convert(value, "", 0, ())
    assert dumps(plain)


def test_one_value_in_two_places_is_no_loop() -> None:
    shared = [1]
    assert to_json([shared, {"a": shared}]) == [[1], {"a": [1]}]


# --- the digest of arguments -----------------------------------------------------------------------------------------


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize(
    ("args", "canonical"),
    [
        ({}, "{}"),
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        # RFC 8785, section 3.2.2: numbers as ECMAScript writes them, keys by UTF-16 code unit.
        (
            {"numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001]},
            '{"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}',
        ),
        ({"string": '€$\u000f\nA\'B"\\\\"/'}, '{"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'),
        # RFC 8785, section 3.2.3.
        (
            {"€": 1, "\r": 2, "\ufb33": 3, "1": 4, "😀": 5, "\x80": 6, "ö": 7},
            '{"\\r":2,"1":4,"\x80":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
        ),
        ({"n": 2**53 - 1}, '{"n":9007199254740991}'),
        ({"n": 1.0, "zero": -0.0}, '{"n":1,"zero":0}'),
    ],
)
def test_the_digest_is_that_of_rfc_8785_json(args: dict[str, Any], canonical: str) -> None:
    assert args_digest(args) == sha(canonical)


@pytest.mark.rule("HITL-04")
@given(json_objects())
def test_the_digest_does_not_depend_on_the_order_of_keys(args: dict[str, Any]) -> None:
    assert args_digest(args) == args_digest(dict(reversed(args.items())))
    assert args_digest(args) == args_digest(json.loads(dumps(args)))


@pytest.mark.rule("HITL-04")
def test_large_integers_that_a_float_would_merge_have_different_digests() -> None:
    assert args_digest({"n": 2**53 + 1}) != args_digest({"n": 2**53})
    assert args_digest({"n": 2**70}) != args_digest({"n": 2**70 + 1})
    assert args_digest({"a": 2**70, "b": 1}) == args_digest({"b": 1, "a": 2**70})


@pytest.mark.rule("HITL-04")
def test_arguments_that_json_cannot_say_have_no_digest() -> None:
    with pytest.raises(JsonError):
        args_digest({"a": {1}})
    assert args_digest({"a": "\ud800"}) == args_digest({"a": "�"})


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("convert", [check_json, to_json])
def test_an_integer_that_could_not_be_written_is_refused_with_its_path(convert: Callable[[Any], Any]) -> None:
    assert convert({"n": [10**4300 - 1]}) == {"n": [10**4300 - 1]}
    with pytest.raises(JsonError, match="4300 digits") as caught:
        convert({"n": [-(10**4300)]})
    assert caught.value.path == "/n/0"
