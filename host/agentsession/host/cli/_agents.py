"""From what the user named to an executor: an executor as it is, an ADK agent through its adapter, a factory's result.

Not for: importing adapters. They are found by the entry points ``agentsession.executors``, under the key that a
descriptor's ``executor`` field uses. May import: ``agentsession.protocol``, ``_load``, ``_out``.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from agentsession.host.cli._load import Kind, call_factory, kind_of, load_object, members, needed_arguments
from agentsession.host.cli._out import CommandError
from agentsession.protocol import AgentDescriptor, AgentExecutor, ConfigurationError

__all__ = ["AGENT", "check_credentials", "descriptor_of", "find_executor", "is_agent", "load_executor"]

_GROUP: Final = "agentsession.executors"
_ADAPTER_BY_PACKAGE: Final = {"google.adk": "adk"}
"""Which adapter takes objects of which package. A package without a line here hands over executors."""
_OWN_SESSIONS: Final = ".adapter"
"""What is appended to the record's file name for the sessions that an adapter keeps itself."""
_ADK_DEFAULT_MODEL: Final = "gemini"


def load_executor(target: str, command: str) -> AgentExecutor:
    """The executor for ``MODULE:NAME``: an ADK agent or App, an executor, or a function that returns one of these."""
    return find_executor(load_object(target, command, AGENT), target, command)


def find_executor(found: Any, target: str, command: str, *, store: str | None = None) -> AgentExecutor:
    """The executor for an object. Raises ``not-an-agent``, and what the adapter raises for an agent it cannot host.

    With ``store``, the file of the record, an adapter that keeps sessions of its own keeps them in a file beside it, if
    its class has ``kept_in(agent, path)``: without them the record alone could not be continued.
    """
    if not is_agent(found):
        found = _made(found, target, command)
    if _is_executor(found):
        return cast(AgentExecutor, found)
    executor_class = _adapter(_adapter_key(found) or "", target)
    if store is not None and hasattr(executor_class, "kept_in"):
        return cast(AgentExecutor, executor_class.kept_in(found, store + _OWN_SESSIONS))
    return cast(AgentExecutor, executor_class(found))


async def descriptor_of(executor: AgentExecutor) -> AgentDescriptor:
    """Its descriptor; one whose agent is elsewhere is entered for it, since it asks for it there."""
    try:
        return executor.descriptor
    except ConfigurationError as error:
        if error.id != "executor-not-entered":
            raise
    async with executor:
        return executor.descriptor


def is_agent(found: Any) -> bool:
    """Whether an object can be run as it is: no class, no function, no module."""
    if isinstance(found, type) or inspect.ismodule(found) or inspect.isroutine(found):
        return False
    return _is_executor(found) or _adapter_key(found) is not None


AGENT: Final = Kind(
    noun="an agent",
    error="not-an-agent",
    expected="an ADK agent, App, an executor, or a function without arguments that returns one",
    fits=is_agent,
)
"""What ``MODULE:AGENT`` names."""


def _is_executor(found: object) -> bool:
    # Looked up on the type: a descriptor may be costly to make, and isinstance() of a runtime protocol would make it.
    return all(hasattr(type(found), name) for name in ("open", "load", "__aenter__", "__aexit__"))


def _adapter_key(found: Any) -> str | None:
    for base in type(found).__mro__:
        for package, key in _ADAPTER_BY_PACKAGE.items():
            fits = base.__module__.startswith(package + ".") and base.__name__ in ("BaseAgent", "App", "Workflow")
            if fits:
                return key
    return None


def _made(found: Any, target: str, command: str) -> Any:
    """The agent that a factory returns."""
    if not inspect.isroutine(found) or inspect.iscoroutinefunction(found) or needed_arguments(found):
        raise _not_an_agent(f"{target} is {kind_of(found)}", target, command)
    made = call_factory(found, target, command)
    if not is_agent(made):
        what = "None" if made is None else f"what is {kind_of(made)}"
        raise _not_an_agent(f"{target}() returned {what}", target, command)
    return made


def _not_an_agent(what: str, target: str, command: str) -> CommandError:
    module = sys.modules.get(target.partition(":")[0])
    near = members(module, is_agent) if module is not None else []
    return CommandError(
        what,
        id="not-an-agent",
        expected=AGENT.expected,
        fix=f"agentsession {command} {near[0]}" if near else f"agentsession {command} MODULE:NAME",
    )


def _adapter(key: str, target: str) -> Any:
    """The executor class behind an entry point, which is a function that returns it."""
    points = list(importlib.metadata.entry_points(group=_GROUP, name=key))
    if not points:
        raise CommandError(
            f"no adapter for {key!r} is installed",
            id="extra-missing",
            where=target,
            fix=f'pip install "agent-session-protocol[{key}]"',
        )
    return points[0].load()()


# -- credentials, before anything is sent ------------------------------------------------------------------------------


def check_credentials(found: Any, model: str | None, environ: Mapping[str, str] | None = None) -> None:
    """Raise ``no-key`` when a Gemini model would be called and no key is set. Other models are left alone."""
    environ = os.environ if environ is None else environ
    if _adapter_key(found) is None or any(environ.get(name) for name in _GEMINI_KEYS):
        return
    names = {model} if model else set(_models(found))
    needing = sorted(name for name in names if name.startswith(("gemini", "gemma", "models/gemini")))
    if needing:
        raise CommandError(
            f"no credentials for model {needing[0]}",
            id="no-key",
            where="GEMINI_API_KEY is unset",
            fix="export it, or try: agentsession demo",
        )


_GEMINI_KEYS: Final = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_ENTERPRISE",
    "GOOGLE_CLOUD_PROJECT",
)


def _models(agent: object, inherited: str = "") -> Iterator[str]:
    """The names of the models that an agent tree calls; an agent without one inherits its parent's."""
    agent = getattr(agent, "root_agent", agent)
    kind: object = type(agent)
    model: object = getattr(agent, "model", None)
    if isinstance(model, str):
        inherited = model or inherited or str(getattr(kind, "DEFAULT_MODEL", _ADK_DEFAULT_MODEL))
        yield inherited
    elif model is not None:
        name = getattr(model, "model", "")
        inherited = "" if type(model).__name__ != "Gemini" or getattr(model, "api_client", None) else str(name)
    for child in getattr(agent, "sub_agents", None) or ():
        yield from _models(child, inherited)
