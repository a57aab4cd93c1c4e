"""A Python signature as a tool's arguments: the published JSON Schema, the check against it, the typed values.

Not for: running anything. Rules carried: TOOL-04 (arguments validate against the declared schema).
May import: pydantic, ``_docstrings``, ``protocol``.

Two steps on purpose: the model's arguments are checked against the schema *that the model was shown* (jsonschema), and
only then made into the types that the function asks for (pydantic), which may still refuse what a schema cannot say.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import pydantic
import pydantic.fields
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError

from agentsession.host._docstrings import parse_docstring
from agentsession.protocol import ConfigurationError, JsonError, SchemaProblem, SchemaValidator, check_json

__all__ = [
    "ArgumentsRefused",
    "Binds",
    "SchemaCheck",
    "Signature",
    "read_model_signature",
    "read_signature",
]

_MESSAGE_LIMIT = 400
_PROBLEMS = 8


class ArgumentsRefused(Exception):
    """Arguments that do not fit; ``path`` is the JSON pointer of the place, ``problems`` are all that are told."""

    def __init__(self, message: str, path: str, problems: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.message = message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "..."
        self.path = path
        self.problems = [dict(each) for each in problems] or [{"path": self.path, "message": self.message}]


class SchemaCheck:
    """Checks arguments against one JSON Schema. References are never fetched from anywhere.

    Raises :class:`ConfigurationError` for a schema that is not one.
    """

    def __init__(self, schema: Mapping[str, Any] | None, owner: str) -> None:
        try:
            self._validator = SchemaValidator(schema if schema is not None else {"type": "object"})
        except SchemaProblem as problem:
            raise ConfigurationError(
                f"the parameters schema of tool {owner!r} is not a JSON Schema",
                where=problem.pointer,
                got=problem.message,
                expected="JSON Schema, draft 2020-12",
            ) from problem

    def __call__(self, args: object) -> None:
        """Raise :class:`ArgumentsRefused` for what does not fit."""
        if not isinstance(args, dict):
            raise ArgumentsRefused(f"the arguments must be an object, not {type(args).__name__}", "/")
        problems = self._validator.problems(args, limit=_PROBLEMS)
        if problems:
            told = [problem.to_json() for problem in problems]
            raise ArgumentsRefused(problems[0].message, problems[0].pointer, told)


def _refused_values(error: pydantic.ValidationError, args: Mapping[str, Any]) -> ArgumentsRefused:
    """What pydantic would not take of arguments that fit the schema. The values are not told: one may be a secret."""
    told = [
        {
            "path": _place(each["loc"], args, each["type"] == "missing"),
            "message": each["msg"].removeprefix("Value error, "),
        }
        for each in error.errors(include_url=False, include_context=False, include_input=False)[:_PROBLEMS]
    ]
    return ArgumentsRefused(told[0]["message"], told[0]["path"], told)


def _place(steps: Sequence[Any], args: Any, is_missing: bool) -> str:
    """The pointer of a place that pydantic names: it also names the alternatives of a union, which are no places."""
    kept: list[Any] = []
    for number, step in enumerate(steps, start=1):
        is_list = isinstance(args, list) and isinstance(step, int) and step < len(args)
        if is_list or (isinstance(args, Mapping) and step in args):
            args = args[step]
            kept.append(step)
        elif is_missing and number == len(steps):
            kept.append(step)
    return _pointer(kept)


class Binds(Protocol):
    """Makes what a function is called with of checked arguments."""

    def bind(self, args: Mapping[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named. Raises :class:`ArgumentsRefused`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSignature:
    """A function of one pydantic model, whose fields are the tool's arguments."""

    schema: dict[str, Any]
    description: str
    _model: type[pydantic.BaseModel]
    _parameter: inspect.Parameter
    _contexts: tuple[str, ...]

    def bind(self, args: Mapping[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """The model made of the arguments. Raises :class:`ArgumentsRefused`."""
        try:
            value = self._model.model_validate(dict(args))
        except pydantic.ValidationError as error:
            raise _refused_values(error, args) from error
        named = dict.fromkeys(self._contexts, context)
        if self._parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            return [value], named
        return [], {self._parameter.name: value, **named}


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """A function's parameters, read once."""

    schema: dict[str, Any]
    description: str
    _model: type[pydantic.BaseModel]
    _parameters: tuple[inspect.Parameter, ...]
    _contexts: frozenset[str]
    """The parameters that get the :class:`ToolContext`."""
    _kept: frozenset[str]
    """Names that open keywords must not use: what the host gives itself, the model may not."""

    def bind(self, args: Mapping[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """Make typed values of checked arguments. Raises :class:`ArgumentsRefused`."""
        try:
            values = self._model.model_validate(dict(args))
        except pydantic.ValidationError as error:
            raise _refused_values(error, args) from error
        taken = next((name for name in values.model_extra or {} if name in self._kept), None)
        if taken is not None:
            raise ArgumentsRefused(f"{taken} is not an argument of this tool", _pointer([taken]))
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for index, parameter in enumerate(self._parameters):
            field = f"arg_{index}"
            if parameter.name in self._contexts:
                value = context
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named.update(values.model_extra or {})
                continue
            elif field not in values.model_fields_set and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
                if not isinstance(parameter.default, pydantic.fields.FieldInfo):
                    continue  # Python's own default applies, unchanged and not copied
                value = getattr(values, field)
            else:
                value = getattr(values, field)
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


class _Schema(GenerateJsonSchema):
    """No invented titles; a default that JSON cannot say is left out without a warning."""

    ignored_warning_kinds: typing.ClassVar[set[JsonSchemaWarningKind]] = {  # type: ignore[misc]  # pydantic has it unmarked
        "skipped-choice",
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        found = super().encode_default(dft)
        try:
            return check_json(found)
        except JsonError as error:  # an infinity is a fine default for Python, and no JSON
            raise PydanticSerializationError(str(error)) from error


def read_signature(
    function: Callable[..., Any], name: str, context_type: type, names: Mapping[str, Any] | None = None
) -> Signature:
    """Read ``function``'s parameters. ``names`` are local names that its annotations may use.

    Raises :class:`ConfigurationError` naming the parameter that has no JSON Schema.
    """
    if not callable(function):
        raise ConfigurationError(
            f"tool {name!r} is not a function", got=repr(function)[:80], expected="a typed function"
        )
    hints = _hints(function, name, names)
    doc = parse_docstring(_docstring(function))
    # What a partial binds by keyword is still in its signature, with the value as a default: it is the host's own.
    bound = _bound(function)
    parameters = tuple(item for item in _parameters(function, name) if item.name not in bound)
    contexts: set[str] = set()
    fields: dict[str, Any] = {}
    extra: Any = None
    for index, parameter in enumerate(parameters):
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation, context_type):
            contexts.add(parameter.name)
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise ConfigurationError(
                f"tool {name!r} takes *{parameter.name}", fix="give it a list parameter instead: JSON has no *args"
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if typing.get_origin(annotation) is typing.Unpack:
                raise ConfigurationError(
                    f"tool {name!r} takes **{parameter.name} as one type", fix="write its keywords as parameters"
                )
            extra = annotation
            continue
        default: Any = pydantic.Field(default=parameter.default, alias=parameter.name)
        if parameter.default is inspect.Parameter.empty:
            default = pydantic.Field(alias=parameter.name)
        elif isinstance(parameter.default, pydantic.fields.FieldInfo):
            annotation = Annotated[annotation, parameter.default]
            default = pydantic.Field(alias=parameter.name)
        fields[f"arg_{index}"] = (annotation, default)
    model, schema = _model(name, fields, extra, {f"arg_{i}": p.name for i, p in enumerate(parameters)})
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for argument, text in doc.arguments.items():
        field: Any = schema["properties"].get(argument)  # JSON
        if isinstance(field, dict) and text and "description" not in field:
            field["description"] = text
    return Signature(schema, doc.description, model, parameters, frozenset(contexts), bound | contexts)


def read_model_signature(
    function: Callable[..., Any],
    model: type[pydantic.BaseModel],
    name: str,
    context_type: type,
    names: Mapping[str, Any] | None = None,
) -> ModelSignature:
    """A ``function`` that takes one ``model``, and perhaps the context.

    A name that the model does not have is refused, whatever the model does with it elsewhere, unless it keeps such
    names (``extra="allow"``): it is a slip of the one who calls. Raises :class:`ConfigurationError`.
    """
    hints = _hints(function, name, names)
    bound = _bound(function)
    parameters = [item for item in _parameters(function, name) if item.name not in bound]
    contexts = tuple(item.name for item in parameters if _is_context(hints.get(item.name), context_type))
    rest = [item for item in parameters if item.name not in contexts]
    needed = [item for item in rest if item.default is inspect.Parameter.empty] or rest
    if len(needed) != 1 or needed[0].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise ConfigurationError(
            f"tool {name!r} takes the model {model.__name__}, and its function more or less than that",
            got=", ".join(item.name for item in rest) or "no parameter",
            expected="one parameter for the model, and one for the ToolContext if it wants it",
        )
    try:
        schema: dict[str, Any] = check_json(model.model_json_schema(schema_generator=_Schema))
    except Exception as error:  # whatever a field's own code raises
        raise ConfigurationError(
            f"the model {model.__name__} of tool {name!r} has no JSON Schema",
            got=next(iter(str(error).splitlines()), type(error).__name__),
        ) from error
    schema.pop("title", None)
    about = schema.pop("description", "")
    if model.model_config.get("extra") != "allow":
        schema.setdefault("additionalProperties", False)
    text = parse_docstring(_docstring(function)).description
    return ModelSignature(schema, text or about, model, needed[0], contexts)


def _model(
    name: str, fields: dict[str, Any], extra: Any, names: Mapping[str, str]
) -> tuple[type[pydantic.BaseModel], dict[str, Any]]:
    config = pydantic.ConfigDict(
        extra="forbid" if extra is None else "allow", protected_namespaces=(), hide_input_in_errors=True
    )
    if extra not in (None, Any):
        fields["__pydantic_extra__"] = (dict[str, extra], pydantic.Field(init=False))
    try:
        model = pydantic.create_model(f"{name}_arguments", __config__=config, **fields)
        schema = model.model_json_schema(schema_generator=_Schema)
        return model, check_json(schema)
    except Exception as error:  # whatever an annotation's own code raises
        culprit = next((field for field, spec in fields.items() if not _has_schema(spec[0])), "")
        what = (
            f"parameter {names[culprit]!r} of tool {name!r}" if culprit in names else f"the signature of tool {name!r}"
        )
        raise ConfigurationError(
            f"{what} has no JSON Schema",
            got=next(iter(str(error).splitlines()), type(error).__name__),
            expected="str, int, float, bool, list, dict, Literal, Enum, a dataclass, a pydantic model, or a union",
            fix="annotate it with such a type, or give the tool as a (ToolDescriptor, callable) pair",
        ) from error


def _has_schema(annotation: Any) -> bool:
    try:
        check_json(pydantic.TypeAdapter(annotation).json_schema(schema_generator=_Schema))
    except Exception:  # noqa: BLE001 - only asked for the name of the parameter that is to blame
        return False
    return True


def _bound(function: Callable[..., Any]) -> frozenset[str]:
    """The keywords that a partial, or a partial of one, has bound."""
    if not isinstance(function, functools.partial):
        return frozenset()
    return frozenset(function.keywords) | _bound(function.func)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)  # as inspect.signature does, whose parameters these annotations are for
    if not (inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function)):
        call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is wanted, not whether it exists
        return call if call is not None and not inspect.isclass(function) else function
    return function


def _docstring(function: Callable[..., Any]) -> str | None:
    if isinstance(function, functools.partial):
        return _docstring(function.func)
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return function.__doc__
    return _unwrapped(function).__doc__ or type(function).__doc__


def _parameters(function: Callable[..., Any], name: str) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except ValueError as error:  # some builtins do not say
        raise ConfigurationError(
            f"tool {name!r} has no signature that can be read",
            fix="wrap it in a typed function, or give it as a (ToolDescriptor, callable) pair",
        ) from error


def _hints(function: Callable[..., Any], name: str, names: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_unwrapped(function), localns=dict(names or {}) or None, include_extras=True)
    except Exception as error:  # an annotation is code, and may raise anything
        raise ConfigurationError(
            f"the annotations of tool {name!r} cannot be read",
            got=f"{type(error).__name__}: {error}",
            fix="import the type at run time (not under TYPE_CHECKING), or define it at module level",
        ) from error


def _is_context(annotation: Any, context_type: type) -> bool:
    if annotation is context_type:
        return True
    return any(_is_context(item, context_type) for item in typing.get_args(annotation) if isinstance(item, type))


def _pointer(path: Sequence[Any] | Any) -> str:
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "/" + "/".join(steps)
