"""Host tools: typed Python functions that a model may call.

Not for: several of them together (``_toolbox.py``), whether a call may run (``_policy.py``), when it runs
(``_toolruns.py``). Rules carried: TOOL-04, SEC-01 (no traceback in a result).
May import: anyio, ``_choices``, ``_places``, ``_signature``, ``protocol``.

A tool never raises to its caller. Bad arguments, a value that JSON cannot say, an exception: each becomes a result that
the model can read, ``{"error": {"code", "message", ...}}`` with ``is_error``. The codes are in ``_outcome.py``.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast, overload

import anyio
import anyio.to_thread
import pydantic
from pydantic import ValidationError

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._choices import check_seconds
from agentsession.host._outcome import ToolError, ToolOutcome
from agentsession.host._places import Places
from agentsession.host._signature import ArgumentsRefused, Binds, SchemaCheck, read_model_signature, read_signature
from agentsession.host._tailcalls import TailCall
from agentsession.host._toolcontext import ToolContext
from agentsession.protocol import (
    CONTENT_TYPES,
    ConfigurationError,
    JsonError,
    Model,
    ToolAnnotations,
    ToolDescriptor,
    to_json,
)

__all__ = ["Tool", "tool"]

logger = logging.getLogger("agentsession.host")


class Tool:
    """One tool: what the model is told of it, and the function behind it.

    Build one with :func:`tool` or :meth:`from_function`; with a descriptor of your own, the function gets the arguments
    as one dictionary (and the :class:`ToolContext`, if it takes a second parameter). Calling a tool calls its function.
    """

    keeps_time: ClassVar[bool] = False
    """It bounds its own time, which the host's ``tool_timeout_s`` could not measure: people are asked inside."""
    tells_start: ClassVar[bool] = True
    """Once it has started it is not run again (TOOL-16); one that finds out itself where it stood need not say so."""
    is_completion: ClassVar[bool] = False
    """It only takes an agent's result: it does nothing, and no policy is asked about it."""

    def __init__(
        self,
        descriptor: ToolDescriptor,
        function: Callable[..., Any],
        *,
        timeout_s: float | None = None,
        expose_errors: bool | None = None,
        max_parallel: int | None = None,
        _signature: Binds | None = None,
    ) -> None:
        self.descriptor = descriptor
        self.provider: str | None = None
        """The name of the provider that it comes from; ``None`` for what a host was given itself."""
        self.local_name = descriptor.name
        """What the provider calls it; the name for the model may have a prefix."""
        self.trusted = True
        """Whether the host vouches for its annotations; those of an untrusted provider may only tighten."""
        self.places: tuple[Places, ...] = ()
        """What it needs a place in to run: its own limit, and that of its provider."""
        if max_parallel is not None:
            self.places = (Places(max_parallel, f"tool {descriptor.name!r}"),)
        check_seconds(f"timeout_s of tool {descriptor.name!r}", timeout_s)
        self.timeout_s = timeout_s
        """Seconds it may run; ``None`` leaves it to the host."""
        self.expose_errors = expose_errors
        """Whether the model sees the message of an exception; ``None`` leaves it to the host."""
        self._function = function
        self._signature = _signature
        self._schema = SchemaCheck(descriptor.parameters_schema, descriptor.name)
        self._wants_context = _signature is None and _positional_count(function) > 1
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigurationError(
                f"tool {descriptor.name!r} is a generator",
                expected="a function that returns its result",
                fix="return the whole result, and report on the way with ToolContext.progress",
            )
        functools.update_wrapper(self, function, updated=())

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        display_name: str | None = None,
        annotations: ToolAnnotations | None = None,
        output_schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        expose_errors: bool | None = None,
        max_parallel: int | None = None,
        model: type[pydantic.BaseModel] | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> Tool:
        """A tool from a typed function: schema from its signature, texts from its docstring.

        ``model``: the function takes one such pydantic model, whose fields are the arguments.
        ``names`` are local names that its annotations may use. Raises :class:`ConfigurationError`.
        """
        name = name or _name_of(function)
        if name == "<lambda>":
            raise ConfigurationError("a lambda has no name for the model", fix="give name=..., or use a def")
        signature = (
            read_signature(function, name, ToolContext, names)
            if model is None
            else read_model_signature(function, model, name, ToolContext, names)
        )
        descriptor = ToolDescriptor(
            name=name,
            display_name=display_name,
            description=description or signature.description or None,
            parameters_schema=signature.schema,
            output_schema=dict(output_schema) if output_schema is not None else None,
            annotations=annotations,
            owner="host",
        )
        return cls(
            descriptor,
            function,
            timeout_s=timeout_s,
            expose_errors=expose_errors,
            max_parallel=max_parallel,
            _signature=signature,
        )

    def provided(self, provider: str, name: str, *, trusted: bool | None = None, places: Places | None = None) -> Tool:
        """The same tool as one of ``provider``'s, under the ``name`` that the model uses."""
        made = copy.copy(self)
        made.descriptor = self.descriptor.model_copy(update={"name": name})
        made.provider, made.local_name = provider, self.name
        made.trusted = self.trusted if trusted is None else trusted
        made.places = self.places if places is None else (*self.places, places)
        return made

    def refuses(self, context: ToolContext) -> ToolOutcome | None:
        """Why a call of it cannot be made where it stands, asked before it waits for a place; ``None``: it can."""
        return None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.descriptor.name

    def check(self, args: object) -> ToolOutcome | None:
        """The error result for arguments that do not fit the published schema or the function's types, or ``None``.

        The function is not called. Validators of its types are, so that nobody is asked about a call that cannot be
        made; one that fails in another way is left to the run, where a failure is a result.
        """
        try:
            self._schema(args)
            if self._signature is not None:
                self._signature.bind(cast("dict[str, Any]", args), None)
        except ArgumentsRefused as refused:
            return _refusal(refused)
        except Exception as problem:  # noqa: BLE001 - of a validator: the run is where it is a result
            logger.debug("the arguments of %r could not be checked: %s", self.name, type(problem).__name__)
        return None

    async def run(
        self,
        args: object,
        context: ToolContext | None = None,
        *,
        limiter: anyio.CapacityLimiter | None = None,
        expose_errors: bool = True,
        is_checked: bool = False,
    ) -> ToolOutcome:
        """Check the arguments and call the function: async ones here, sync ones in a worker thread of ``limiter``.

        ``is_checked``: :meth:`check` was called before. Raises nothing but cancellation, which leaves a worker thread
        running (``context.thread_running``).
        """
        refused = None if is_checked else self.check(args)
        if refused is not None:
            return refused
        assert isinstance(args, dict)  # the check
        context = context or ToolContext("direct", tool_name=self.name)
        expose = expose_errors if self.expose_errors is None else self.expose_errors
        try:
            value = await self._call(cast("dict[str, Any]", args), context, limiter)
            return _outcome(value)
        except ArgumentsRefused as problem:
            return _refusal(problem)
        except ToolError as problem:
            return _checked(_told(self.name, problem))
        except (JsonError, ValidationError) as problem:
            if not context.returned:
                return _raised(self.name, problem, expose)
            return _unserializable(problem)
        except RuntimeError as problem:
            # A StopIteration cannot leave a coroutine: Python makes it the cause of a RuntimeError.
            cause = problem.__cause__
            return _raised(self.name, cause if isinstance(cause, StopIteration) else problem, expose)
        except failures() as problem:  # a tool's failure is a result
            if isinstance(problem, anyio.get_cancelled_exc_class()):
                context.cancel()
            raise_if_cancelled(problem)
            return _raised(self.name, problem, expose)

    async def _call(self, args: dict[str, Any], context: ToolContext, limiter: anyio.CapacityLimiter | None) -> Any:
        if self._signature is not None:
            positional, named = self._signature.bind(args, context)
        else:
            positional, named = ([args, context] if self._wants_context else [args]), {}
        call = functools.partial(self._function, *positional, **named)
        if _is_async(self._function):
            value = await call()
        else:
            # A thread cannot be stopped: on cancellation it is left, and the host says so (bug report R25).
            failed, value = await anyio.to_thread.run_sync(
                context.run_in_thread, call, abandon_on_cancel=True, limiter=limiter
            )
            if failed:
                raise value
            if inspect.isawaitable(value):
                value = await value
        context.returned = True
        return value


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    display_name: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    long_running: bool | None = None,
    category: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
    expose_errors: bool | None = None,
    max_parallel: int | None = None,
    model: type[pydantic.BaseModel] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    display_name: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    long_running: bool | None = None,
    category: str | None = None,
    output_schema: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
    expose_errors: bool | None = None,
    max_parallel: int | None = None,
    model: type[pydantic.BaseModel] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function: ``@tool`` or ``@tool(read_only=True)``.

    The annotations say what the tool does to the world; policies read them. ``max_parallel`` is how many of its calls
    run at once, over all hosts and sessions of an event loop. With ``model``, a pydantic model, the function takes one
    of these and its fields are the tool's arguments. Raises :class:`ConfigurationError`.
    """
    marks = {
        "read_only": read_only,
        "destructive": destructive,
        "idempotent": idempotent,
        "open_world": open_world,
        "long_running": long_running,
        "category": category,
    }
    given = {mark: value for mark, value in marks.items() if value is not None}
    names = dict(sys._getframe(1).f_locals)  # so that annotations may name types that are local to the caller

    def make(function: Callable[..., Any]) -> Tool:
        return Tool.from_function(
            function,
            name=name,
            description=description,
            display_name=display_name,
            annotations=ToolAnnotations.model_validate(given) if given else None,
            output_schema=output_schema,
            timeout_s=timeout_s,
            expose_errors=expose_errors,
            max_parallel=max_parallel,
            model=model,
            names=names,
        )

    return make if function is None else make(function)


def _refusal(refused: ArgumentsRefused) -> ToolOutcome:
    return ToolOutcome.failure("invalid_arguments", refused.message, path=refused.path, problems=refused.problems)


def _outcome(value: Any) -> ToolOutcome:
    if isinstance(value, ToolOutcome):
        return value if value.tail is not None else _checked(value)
    if isinstance(value, TailCall):
        return ToolOutcome(tail=value)
    if _is_part(value):
        return ToolOutcome(content=[value])
    if isinstance(value, list) and value:
        items: Sequence[Any] = [*value]  # pyright: ignore[reportUnknownVariableType]
        if all(map(_is_part, items)):
            return ToolOutcome(content=items)
    return ToolOutcome(data=to_json(value))


def _checked(outcome: ToolOutcome) -> ToolOutcome:
    outcome.answer("check")
    return outcome


def _is_part(value: Any) -> bool:
    return isinstance(value, Model) and getattr(value, "type", None) in CONTENT_TYPES


def _raised(name: str, error: BaseException, expose: bool) -> ToolOutcome:
    logger.info("tool %r failed: %s", name, type(error).__name__, exc_info=error)
    kind = type(error).__name__
    text = _words(error) if expose else ""
    message = f"{kind}: {text}" if text else kind
    return ToolOutcome.failure("tool_failed", message, type=kind)


def _told(name: str, problem: ToolError) -> ToolOutcome:
    """What the tool said itself. A detail that JSON cannot say is left out: the rest must still reach the model."""
    details: dict[str, Any] = {}
    for key, detail in problem.details.items():
        try:
            details[key] = to_json(detail)
        except JsonError as error:
            logger.info("tool %r: the detail %r of its error was left out: %s", name, key, error)
    return ToolOutcome.failure(str(problem.code), str(problem.message), **details)


def _unserializable(problem: JsonError | ValidationError) -> ToolOutcome:
    if isinstance(problem, JsonError):
        return ToolOutcome.failure("unserializable_result", str(problem), path=problem.path)
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "/" + "/".join(str(step) for step in first["loc"])
    return ToolOutcome.failure("unserializable_result", first["msg"], path=path)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own words fail is told by its type
        return ""


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is wanted, not whether it exists
    return any(inspect.iscoroutinefunction(item) for item in (function, method))


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _positional_count(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins do not say
        return 1
    return sum(parameter.kind in kinds for parameter in parameters)
