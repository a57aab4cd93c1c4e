"""A Python signature as a tool's arguments: the published JSON Schema, the check against it, the typed values.

Not for: running anything. Rules carried: TOOL-04 (arguments validate against the declared schema).
May import: pydantic, jsonschema, ``protocol``.

Two steps on purpose: the model's arguments are checked against the schema *that the model was shown* (jsonschema), and
only then made into the types that the function asks for (pydantic), which may still refuse what a schema cannot say.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, cast

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
import pydantic
import pydantic.fields
import referencing
import referencing.exceptions
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError

from agentsession.host._docstrings import parse_docstring
from agentsession.protocol import ConfigurationError, JsonError, check_json

__all__ = ["ArgumentsRefused", "SchemaCheck", "Signature", "read_signature"]

_MESSAGE_LIMIT = 300
_BestMatch = Callable[[Iterable[jsonschema.ValidationError]], jsonschema.ValidationError | None]
_best_match = cast(_BestMatch, vars(jsonschema.exceptions)["best_match"])  # its stub leaves the result open


class ArgumentsRefused(Exception):
    """Arguments that do not fit; ``path`` is the JSON pointer of the place."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.message = message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "..."
        self.path = path


class SchemaCheck:
    """Checks arguments against one JSON Schema. References are never fetched from anywhere.

    Raises :class:`ConfigurationError` for a schema that is not one.
    """

    def __init__(self, schema: Mapping[str, Any] | None, owner: str) -> None:
        self._schema = dict(schema) if schema is not None else {"type": "object"}
        kind = jsonschema.validators.validator_for(self._schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(self._schema)
        except jsonschema.exceptions.SchemaError as error:
            raise ConfigurationError(
                f"the parameters schema of tool {owner!r} is not a JSON Schema",
                where=_pointer(error.absolute_path),
                got=error.message[:_MESSAGE_LIMIT],
                expected="JSON Schema, draft 2020-12",
            ) from error
        # An empty registry: jsonschema's own default would fetch remote references over the network.
        self._validator = kind(self._schema, registry=referencing.Registry())

    def __call__(self, args: object) -> None:
        """Raise :class:`ArgumentsRefused` for the first thing that does not fit."""
        if not isinstance(args, dict):
            raise ArgumentsRefused(f"the arguments must be an object, not {type(args).__name__}", "/")
        try:
            error = _best_match(self._validator.iter_errors(cast("dict[str, Any]", args)))
        except (referencing.exceptions.Unresolvable, RecursionError) as problem:
            raise ArgumentsRefused(f"the tool's schema cannot be applied: {type(problem).__name__}", "/") from problem
        if error is not None:
            raise ArgumentsRefused(error.message, _pointer(error.absolute_path))


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
            first = error.errors(include_url=False, include_context=False)[0]
            raise ArgumentsRefused(first["msg"], _pointer(first["loc"])) from error
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
