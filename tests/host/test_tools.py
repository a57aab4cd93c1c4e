"""Tools from functions: schemas, checks, typed values, results that never raise."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import math
import sys
import threading
from typing import Annotated, Any, Literal, TypedDict, Unpack

import anyio
import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host import Tool, ToolBox, ToolCancelled, ToolContext, ToolError, ToolOutcome, tool
from agentsession.host._docstrings import parse_docstring
from agentsession.protocol import ConfigurationError, Media, Text, ToolDescriptor

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(pydantic.BaseModel):
    street: str
    number: int = 1


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@tool(read_only=True, category="files", timeout_s=3)
def paint(
    path: str,
    count: Annotated[int, pydantic.Field(ge=1, description="how many")] = 3,
    colour: Colour = Colour.RED,
    address: Address | None = None,
    point: Point | None = None,
    mode: Literal["fast", "slow"] = "fast",
    size: int = pydantic.Field(5, le=9),
    *,
    context: ToolContext,
) -> dict[str, Any]:
    """Paint a file.

    With care.

    Args:
        path: where it is,
            relative to the root.
        count: not this text, the annotation has one.
        colour (Colour): which paint

    Returns:
        What was done.
    """
    assert isinstance(context, ToolContext)
    return {"path": path, "count": count, "colour": colour, "address": address, "point": point, "size": size}


def error_of(outcome: ToolOutcome) -> dict[str, Any]:
    assert outcome.is_error
    return dict(outcome.data["error"])


async def test_the_schema_comes_from_signature_and_docstring() -> None:
    descriptor = paint.descriptor
    assert descriptor.name == "paint"
    assert descriptor.description == "Paint a file.\n\nWith care."
    assert descriptor.owner == "host"
    assert descriptor.annotations is not None
    assert descriptor.annotations.to_wire() == {"readOnly": True, "category": "files"}
    schema = descriptor.parameters_schema
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["path"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert list(properties) == ["path", "count", "colour", "address", "point", "mode", "size"]
    assert properties["path"] == {"type": "string", "description": "where it is, relative to the root."}
    assert properties["count"] == {"type": "integer", "minimum": 1, "default": 3, "description": "how many"}
    assert properties["colour"]["description"] == "which paint"
    assert properties["mode"]["enum"] == ["fast", "slow"]
    assert properties["size"] == {"type": "integer", "maximum": 9, "default": 5}


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({}, "/"),
        ({"path": 1}, "/path"),
        ({"path": "a", "count": 0}, "/count"),
        ({"path": "a", "count": True}, "/count"),
        ({"path": "a", "colour": "green"}, "/colour"),
        ({"path": "a", "address": {"street": 1}}, "/address/street"),
        ({"path": "a", "other": 1}, "/"),
        ({"path": "a", "size": 10}, "/size"),
        (None, "/"),
        ([1], "/"),
        ("text", "/"),
    ],
)
async def test_bad_arguments_are_an_error_with_the_place(args: object, path: str) -> None:
    error = error_of(await paint.run(args))
    assert error["code"] == "invalid_arguments"
    assert error["path"].startswith(path)


async def test_arguments_become_the_types_that_the_function_asks_for() -> None:
    seen: list[Any] = []

    @tool
    def look(when: datetime.date, address: Address, point: Point, colour: Colour, tags: set[str]) -> None:
        seen.extend([when, address, point, colour, tags])

    args = {"when": "2026-01-31", "address": {"street": "x"}, "point": {"x": 1}, "colour": "blue", "tags": ["a"]}
    assert not (await look.run(args)).is_error
    assert seen == [datetime.date(2026, 1, 31), Address(street="x"), Point(1.0), Colour.BLUE, {"a"}]
    args["when"] = "yesterday"
    assert error_of(await look.run(args))["path"] == "/when"


async def test_names_that_pydantic_keeps_for_itself_can_be_parameters() -> None:
    @tool
    def odd(model_config: str, schema: int, json: bool, copy: str = "c", _hidden: str = "h") -> list[Any]:
        return [model_config, schema, json, copy, _hidden]

    assert (await odd.run({"model_config": "m", "schema": 1, "json": True})).data == ["m", 1, True, "c", "h"]


async def test_positional_only_defaults_and_open_keywords() -> None:
    @tool
    def mixed(a: int, b: int = 2, /, c: int = 3, **rest: Any) -> list[Any]:
        return [a, b, c, rest]

    assert (await mixed.run({"a": 1, "c": 9, "extra": "x"})).data == [1, 2, 9, {"extra": "x"}]
    assert (await mixed.run({"a": 1})).data == [1, 2, 3, {}]


async def test_a_method_a_partial_and_a_callable_object_are_tools() -> None:
    class Shop:
        def price(self, item: str) -> str:
            """The price."""
            return f"{item}: 3"

    class Caller:
        """Calls."""

        async def __call__(self, number: int) -> int:
            return number + 1

    def scale(factor: int, number: int) -> int:
        return factor * number

    assert (await Tool.from_function(Shop().price).run({"item": "tea"})).data == "tea: 3"
    assert (await Tool.from_function(Caller(), name="caller").run({"number": 1})).data == 2
    double = Tool.from_function(functools.partial(scale, 2), name="double")
    assert (await double.run({"number": 4})).data == 8


@pytest.mark.rule("SEC-01")
async def test_what_a_partial_binds_is_neither_shown_to_the_model_nor_taken_from_it() -> None:
    def search(api_key: str, query: str, limit: int = 3, **rest: Any) -> list[Any]:
        """Search."""
        return [api_key, query, limit, rest]

    bound = Tool.from_function(functools.partial(functools.partial(search, api_key="sk-planted"), limit=9))
    assert bound.name == "search"
    assert bound.descriptor.description == "Search."
    assert "sk-planted" not in bound.descriptor.to_wire_json()
    assert list((bound.descriptor.parameters_schema or {})["properties"]) == ["query"]
    assert (await bound.run({"query": "tea"})).data == ["sk-planted", "tea", 9, {}]
    error = error_of(await bound.run({"query": "tea", "api_key": "the model's"}))
    assert (error["code"], error["path"]) == ("invalid_arguments", "/api_key")


async def test_a_model_cannot_give_the_context_of_a_tool_with_open_keywords() -> None:
    @tool
    def look(context: ToolContext, **rest: Any) -> str:
        return type(context).__name__

    assert (await look.run({"other": 1})).data == "ToolContext"
    assert error_of(await look.run({"context": "mine"}))["path"] == "/context"


async def test_every_parameter_that_wants_the_context_gets_it() -> None:
    @tool
    def twice(first: ToolContext, n: int, second: ToolContext | None = None) -> list[Any]:
        return [n, first is second]

    assert (await twice.run({"n": 1})).data == [1, True]


@pytest.mark.rule("TOOL-04")
async def test_typed_open_keywords_are_declared_and_checked() -> None:
    @tool
    def add(**numbers: int) -> int:
        return sum(numbers.values())

    assert (add.descriptor.parameters_schema or {})["additionalProperties"] == {"type": "integer"}
    assert (await add.run({"a": 1, "b": 2})).data == 3
    assert error_of(await add.run({"a": "x"}))["path"] == "/a"


async def test_a_function_behind_a_decorator_keeps_its_types() -> None:
    @functools.lru_cache
    def double(n: int) -> int:
        return 2 * n

    made = Tool.from_function(double)
    assert (made.descriptor.parameters_schema or {})["properties"] == {"n": {"type": "integer"}}
    assert (await made.run({"n": 4})).data == 8


async def test_a_default_that_json_cannot_say_is_left_out_and_applies() -> None:
    @tool
    def wait(limit_s: float = math.inf, steps: list[float] = [math.nan]) -> list[Any]:  # noqa: B006 - a default is the point
        return [limit_s, steps]

    assert "default" not in (wait.descriptor.parameters_schema or {})["properties"]["limit_s"]
    assert (await wait.run({})).data == ["Infinity", ["NaN"]]


async def test_a_raw_pair_gets_the_arguments_as_a_dictionary() -> None:
    descriptor = ToolDescriptor(
        name="raw", parameters_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )

    def raw(args: dict[str, Any], context: ToolContext) -> list[Any]:
        return [args, context.request_id]

    box = ToolBox([(descriptor, raw)])
    assert (await box.run("raw", {"n": 1}, ToolContext("r-7"))).data == [{"n": 1}, "r-7"]
    assert error_of(await box.run("raw", {"n": "x"}))["path"] == "/n"


async def test_a_schema_with_a_remote_reference_is_not_fetched() -> None:
    descriptor = ToolDescriptor(name="raw", parameters_schema={"$ref": "http://example.invalid/schema.json"})
    error = error_of(await Tool(descriptor, dict).run({}))
    assert error["code"] == "invalid_arguments"


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text", [], {}, [1, {"a": None}]], ids=lambda value: repr(value))
async def test_json_results_come_back_as_they_are(value: object) -> None:
    @tool
    def give() -> object:
        return value

    outcome = await give.run({})
    assert outcome.data == value
    assert not outcome.is_error
    assert outcome.answer("r-1").to_wire()["data"] == value


async def test_values_beyond_json_are_converted_by_the_stated_table_or_refused_with_the_path() -> None:
    @tool
    def give() -> object:
        return {"when": datetime.date(2026, 1, 31), "tags": {"b", "a"}, "bad": float("nan"), "raw": b"hi"}

    assert (await give.run({})).data == {
        "when": "2026-01-31",
        "tags": ["a", "b"],
        "bad": "NaN",
        "raw": {"$bytes": "aGk="},
    }

    @tool
    def refuse() -> object:
        return {"ok": 1, "deep": [lambda: 0]}

    error = error_of(await refuse.run({}))
    assert (error["code"], error["path"]) == ("unserializable_result", "/deep/0")


async def test_content_parts_are_content_and_an_outcome_gives_both() -> None:
    @tool
    def picture() -> Media:
        return Media(mime_type="image/png", data="AA==")

    @tool
    def both() -> ToolOutcome:
        return ToolOutcome(data={"n": 1}, content="one", display={"title": "T"})

    assert (await picture.run({})).answer("r").to_wire() == {
        "requestId": "r",
        "kind": "tool_result",
        "content": [{"type": "media", "mimeType": "image/png", "data": "AA=="}],
        "isError": False,
    }
    answer = (await both.run({})).answer("r")
    assert (answer.data, answer.content, answer.display) == ({"n": 1}, [Text(text="one")], {"title": "T"})


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_exception_is_a_result_with_type_and_message_and_no_traceback(is_async: bool) -> None:
    def fails() -> None:
        raise KeyError("secret path /home/ann")

    async def fails_too() -> None:
        fails()

    made = Tool.from_function(fails_too if is_async else fails, name="fails")
    error = error_of(await made.run({}))
    assert error == {"code": "tool_failed", "message": "KeyError: 'secret path /home/ann'", "type": "KeyError"}
    assert error_of(await made.run({}, expose_errors=False)) == {
        "code": "tool_failed",
        "message": "KeyError",
        "type": "KeyError",
    }


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), StopAsyncIteration(), RecursionError("deep")])
async def test_exceptions_that_would_upset_an_event_loop_are_results_too(error: BaseException) -> None:
    @tool
    def fails() -> None:
        raise error

    assert error_of(await fails.run({}))["type"] == type(error).__name__


async def test_a_tool_may_say_on_purpose_what_went_wrong() -> None:
    @tool(expose_errors=False)
    def find(name: str) -> None:
        raise ToolError(f"no file {name}", code="not_found", near=["b.py"])

    assert error_of(await find.run({"name": "a.py"})) == {
        "code": "not_found",
        "message": "no file a.py",
        "near": ["b.py"],
    }


@pytest.mark.parametrize("detail", [math.inf, object(), {1, object()}])
async def test_what_a_tool_says_of_its_failure_is_kept_also_where_a_detail_is_not_json(detail: Any) -> None:
    @tool
    def fail() -> None:
        raise ToolError("out of paint", code="no_paint", missing=detail, left=0)

    error = error_of(await fail.run({}))
    assert (error["code"], error["message"], error["left"]) == ("no_paint", "out of paint", 0)


async def test_an_exception_that_cannot_be_printed_is_told_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @tool
    def fail() -> None:
        raise Mute

    assert error_of(await fail.run({})) == {"code": "tool_failed", "message": "Mute", "type": "Mute"}


async def test_an_outcome_that_does_not_fit_is_told_in_one_line() -> None:
    @tool
    def odd() -> ToolOutcome:
        return ToolOutcome(data=1, is_error="yes")  # type: ignore[arg-type]

    error = error_of(await odd.run({}))
    assert error == {"code": "unserializable_result", "message": "Input should be a valid boolean", "path": "/is_error"}


async def test_the_body_of_a_tool_that_returns_none_is_entered_once() -> None:
    entered: list[int] = []

    @tool
    def append() -> None:
        entered.append(threading.get_ident())

    assert (await append.run({})).data is None
    assert len(entered) == 1
    assert entered[0] != threading.get_ident()  # sync tools do not hold the loop


async def test_unknown_empty_and_missing_names_are_error_results() -> None:
    box = ToolBox([paint])
    for name in ("pain", "", None):
        assert error_of(await box.run(name, {}))["code"] == "unknown_tool"
    assert error_of(await box.run("pain", {}))["message"] == 'there is no tool "pain"; did you mean "paint"?'


async def test_two_tools_of_one_name_are_refused() -> None:
    box = ToolBox([paint])
    with pytest.raises(ConfigurationError, match="two tools are called 'paint'"):
        box.add(paint)
    assert (len(box), "paint" in box, [item.name for item in box]) == (1, True, ["paint"])


async def test_signatures_that_no_model_can_call_are_refused_with_the_parameter() -> None:
    def star(*items: int) -> None: ...

    def odd(ok: int, thing: threading.Lock) -> None: ...  # type: ignore[valid-type,unused-ignore]

    def stream() -> Any:
        yield 1

    with pytest.raises(ConfigurationError, match=r"takes \*items"):
        tool(star)
    with pytest.raises(ConfigurationError, match="'thing'"):
        tool(odd)
    with pytest.raises(ConfigurationError, match="generator"):
        tool(stream)
    with pytest.raises(ConfigurationError, match="no signature"):
        tool(dict)
    with pytest.raises(ConfigurationError, match="lambda"):
        tool(lambda: 1)
    with pytest.raises(ConfigurationError, match="not a JSON Schema"):
        Tool(ToolDescriptor(name="bad", parameters_schema={"type": 7}), dict)
    with pytest.raises(ConfigurationError, match="not a function"):
        Tool.from_function(7)  # type: ignore[arg-type]  # what a list of tools may hold by mistake


@pytest.mark.parametrize("annotation", ["Missing", "math.no_such_name", "list[", "1 / 0"])
async def test_an_annotation_that_cannot_be_evaluated_is_named_with_its_tool(annotation: str) -> None:
    def odd(value: Any) -> None: ...

    odd.__annotations__["value"] = annotation
    with pytest.raises(ConfigurationError, match="annotations of tool 'odd'"):
        tool(odd)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, pydantic.Field(pattern="(")],
        Annotated[float, pydantic.Field(examples=[math.inf])],
        Annotated[float, pydantic.Field(json_schema_extra={"at": object()})],  # type: ignore[dict-item]  # what is refused
    ],
)
async def test_a_constraint_that_no_schema_can_say_is_refused_with_its_tool(annotation: Any) -> None:
    def odd(value: Any) -> None: ...

    odd.__annotations__["value"] = annotation
    with pytest.raises(ConfigurationError, match="'odd'"):
        tool(odd)


class Options(TypedDict):
    n: int


async def test_keywords_that_are_described_as_a_whole_are_refused() -> None:
    def odd(**options: Unpack[Options]) -> None: ...

    with pytest.raises(ConfigurationError, match=r"\*\*options"):
        tool(odd)


async def test_annotations_may_name_types_that_are_local_to_the_caller() -> None:
    class Local(pydantic.BaseModel):
        n: int

    @tool
    def local(value: Local) -> int:
        return value.n

    assert (await local.run({"value": {"n": 3}})).data == 3


async def test_a_tool_still_is_its_function() -> None:
    @tool
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice."
    assert repr(double) == "Tool('double')"


async def test_a_cancellation_from_elsewhere_inside_a_tool_is_its_failure(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("on trio nobody can raise a cancellation by hand")
    import asyncio

    @tool
    async def awaits_a_dead_task() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    assert error_of(await awaits_a_dead_task.run({}))["type"] == "CancelledError"


async def test_cancelling_the_caller_cancels_the_tool_and_tells_its_context() -> None:
    context = ToolContext("r-1")
    no_args: dict[str, Any] = {}
    running = threading.Event()
    ended = threading.Event()

    @tool
    def loop(ctx: ToolContext) -> None:
        running.set()
        try:
            while True:
                ctx.raise_if_cancelled()
        finally:
            ended.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, no_args, context)
            await anyio.to_thread.run_sync(running.wait)
            tasks.cancel_scope.cancel()
    assert context.cancelled
    assert ended.wait(10)
    with pytest.raises(ToolCancelled):
        context.raise_if_cancelled()


@pytest.mark.rule("TOOL-12")
async def test_progress_after_the_end_is_dropped() -> None:
    context = ToolContext("r-1")
    context.progress(1, 2, content="half", data={"k": {1}})
    context.finish()
    context.progress(2, 2)
    (update,) = context.take_updates()
    assert (update.progress, update.total, update.data) == (1, 2, {"k": [1]})
    assert update.content == [Text(text="half")]


GOOGLE = """Do it.

Args:
    a (int, optional): the a: with a colon
        over two lines
    *rest: the rest

Raises:
    ValueError: never
"""
NUMPY = """Do it.

Parameters
----------
a : int, optional
    the a: with a colon
    over two lines
rest
    the rest

Returns
-------
int
"""
SPHINX = """Do it.

:param int a: the a: with a colon
    over two lines
:param rest: the rest
:returns: nothing
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
async def test_three_styles_of_docstring_say_the_same(text: str) -> None:
    read = parse_docstring(text)
    assert read.description == "Do it."
    assert read.arguments == {"a": "the a: with a colon over two lines", "rest": "the rest"}


async def test_what_a_docstring_says_in_no_known_style_stays_in_the_description() -> None:
    read = parse_docstring(
        "Do it.\n\nArgs:\n    a (Tuple[int, Callable(str)]): the a\n    b - the b\n        goes on\n    c: the c\n"
    )
    assert read.arguments == {"a": "the a", "c": "the c"}
    assert read.description == "Do it.\n\nb - the b\n    goes on"


@given(st.text(alphabet=st.sampled_from(list("Args:\n -xyz().*Parmetsu")), max_size=200))
def test_no_docstring_breaks_the_reader(text: str) -> None:
    parse_docstring(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_no_arguments_break_a_check(args: object) -> None:
    outcome = paint.check(args)
    assert outcome is not None
    assert outcome.error_code == "invalid_arguments"
    assert paint.check({"path": args}) is None or not isinstance(args, str)


def test_importing_the_host_loads_no_database_and_no_framework() -> None:
    import subprocess

    script = "import sys, agentsession.host; print([m for m in ('google', 'sqlalchemy', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- pydantic models -------------------------------------------------------------------------------------------------


class Refund(pydantic.BaseModel):
    """Money back."""

    order: str = pydantic.Field(pattern="^o-")
    cents: int = pydantic.Field(gt=0, description="how much")
    notes: list[str] = pydantic.Field(default_factory=list)

    @pydantic.model_validator(mode="after")
    def _explained(self) -> Refund:
        if self.cents > 100 and not self.notes:
            raise ValueError("a refund of more than 100 needs a note")
        return self

    @pydantic.field_validator("notes")
    @classmethod
    def _short(cls, value: list[str]) -> list[str]:
        if any(len(note) > 9 for note in value):
            raise ValueError("a note is at most 9 characters")
        return value


@tool(model=Refund, destructive=True)
def refund(asked: Refund, context: ToolContext) -> list[Any]:
    """Give money back."""
    return [type(asked).__name__, asked.order, asked.cents, context.tool_name]


async def test_a_models_fields_are_the_arguments_and_the_function_gets_the_model() -> None:
    schema = refund.descriptor.parameters_schema or {}
    assert list(schema["properties"]) == ["order", "cents", "notes"]
    assert (schema["required"], schema["additionalProperties"]) == (["order", "cents"], False)
    assert refund.descriptor.description == "Give money back."
    assert (await refund.run({"order": "o-1", "cents": 5})).data == ["Refund", "o-1", 5, "refund"]


@pytest.mark.rule("TOOL-04")
async def test_every_field_that_does_not_fit_is_told() -> None:
    error = error_of(await refund.run({"order": "x", "cents": "5", "note": []}))
    assert (error["code"], error["path"]) == ("invalid_arguments", "/")
    assert error["problems"] == [
        {"path": "/", "message": '"note" is not a property here; did you mean "notes"?'},
        {"path": "/order", "message": 'expected text that matches ^o-, got "x"'},
        {"path": "/cents", "message": 'expected an integer, got "5"'},
    ]


@pytest.mark.parametrize(
    ("args", "path", "message"),
    [
        ({"order": "o-1", "cents": 500}, "/", "a refund of more than 100 needs a note"),
        ({"order": "o-1", "cents": 5, "notes": ["sk-planted-key"]}, "/notes", "a note is at most 9 characters"),
    ],
)
async def test_what_only_the_model_can_refuse_is_told_in_its_words_without_the_value(
    args: dict[str, Any], path: str, message: str
) -> None:
    error = error_of(await refund.run(args))
    assert error["problems"] == [{"path": path, "message": message}]
    assert "planted" not in str(error)


async def test_the_place_of_a_fault_in_a_union_is_one_in_the_arguments() -> None:
    class Box(pydantic.BaseModel):
        side: int

        @pydantic.field_validator("side")
        @classmethod
        def _even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    @tool
    def draw(shapes: list[Box | str]) -> None: ...

    places = {each["path"] for each in error_of(await draw.run({"shapes": [{"side": 1}]}))["problems"]}
    assert places <= {"/shapes/0/side", "/shapes/0"}
    assert "/shapes/0/side" in places


async def test_a_model_that_keeps_other_names_may_get_them() -> None:
    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        name: str

    @tool(model=Open)
    def take(it: Open, /) -> Any:
        return it.model_extra

    assert (await take.run({"name": "a", "more": 1})).data == {"more": 1}
    assert take.descriptor.description is None


@pytest.mark.parametrize("number", [0, 2])
def test_a_function_of_a_model_takes_one(number: int) -> None:
    functions: list[Any] = [lambda: None, None, lambda a, b: None]
    with pytest.raises(ConfigurationError, match="takes the model Refund"):
        Tool.from_function(functions[number], name="bad", model=Refund)
