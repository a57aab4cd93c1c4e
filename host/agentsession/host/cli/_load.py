"""From ``MODULE:NAME`` on the command line to an object, with an error that helps when it is not there.

Not for: what is done with it (``_agents.py``). May import: ``_out``.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import os
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from agentsession.host.cli._out import CommandError

__all__ = ["Kind", "call_factory", "kind_of", "load_object", "members", "needed_arguments", "split_target"]

_EXTRAS = {"google": "adk", "sqlalchemy": "sqlite", "prompt_toolkit": "cli", "rich": "cli", "typer": "cli"}


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What is looked for in a module."""

    noun: str
    """``an agent``, as in: names a module, not an agent in it."""
    error: str
    """The id of the error when it is not there."""
    expected: str
    fits: Callable[[Any], bool]
    """Whether an object is one as it stands; it finds what to suggest when the name is not there."""


def split_target(target: str, command: str) -> tuple[str, str]:
    """``MODULE:NAME`` as its two halves; the second is empty when it was left out. A path to a file is put right."""
    module, _, name = target.partition(":")
    if module.endswith(".py") or "/" in module or os.sep in module:
        path = Path(module.removesuffix(".py"))
        if path.is_absolute() or ".." in path.parts:  # no dotted name leads there from here
            fix = f"cd {shlex.quote(str(path.parent))} && agentsession {command} {path.name}:{name or 'agent'}"
        else:
            fix = f"agentsession {command} {'.'.join(path.parts)}:{name or 'agent'}"
        raise CommandError(
            f"{module} is a path, not a module", where=f"{command} {target}", expected="MODULE:NAME", fix=fix
        )
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise CommandError(
            f"{target!r} names no module",
            where=command,
            expected="MODULE:NAME, such as my_agent:root_agent",
            fix=f"agentsession {command} --help",
        )
    return module, name


def load_object(target: str, command: str, kind: Kind) -> Any:
    """Import what ``MODULE:NAME`` names, from the current directory first."""
    module_name, name = split_target(target, command)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, target, command)
    found: Any = module
    for step in name.split(".") if name else ():
        if not hasattr(found, step):
            raise _no_such_name(module, name, target, command, kind)
        found = getattr(found, step)
    if not name:
        raise _no_such_name(module, name, target, command, kind)
    return found


def call_factory(found: Callable[[], Any], target: str, command: str) -> Any:
    """What a user's function returns. What it raises is told as its failure, not as one of this command."""
    try:
        return found()
    except (Exception, SystemExit) as error:
        if hasattr(error, "headline"):  # an error of ours: it says enough
            raise
        raise CommandError(
            f"{target}() failed: {_words(error)}",
            id="module-broken",
            where=f"{command} {target}",
            fix="add --debug for the traceback",
        ) from error


def kind_of(found: object) -> str:
    """``a class``, ``an async function``, ``of type int``: what an object is, after "is"."""
    if inspect.iscoroutinefunction(found):
        return "an async function"
    if inspect.isroutine(found):
        needed = needed_arguments(found)
        return f"a function that needs arguments: {', '.join(needed)}" if needed else "a function"
    if inspect.isclass(found):
        return "a class"
    return "a module" if inspect.ismodule(found) else f"of type {type(found).__name__}"


def needed_arguments(found: Callable[..., Any]) -> list[str]:
    """The parameters that a call must give."""
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return ["?"]
    return [
        name
        for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def members(module: ModuleType, wanted: Callable[[Any], bool]) -> list[str]:
    """``MODULE:NAME`` of each wanted object in the module and in its own sub-modules that are loaded."""
    out: list[str] = []
    for name in sorted(sys.modules):
        if name == module.__name__ or name.startswith(module.__name__ + "."):
            names = vars(sys.modules[name]).copy()
            out += [f"{name}:{key}" for key, item in names.items() if not key.startswith("_") and wanted(item)]
    return out


def _import(name: str, target: str, command: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (name == missing or name.startswith(missing + ".")):
            raise _module_missing(name, target, command) from error
        extra = _EXTRAS.get(missing.partition(".")[0])
        if extra is not None:
            package = "google-adk" if extra == "adk" else missing.partition(".")[0]
            raise CommandError(
                f"{package} is not installed",
                id="extra-missing",
                where=f"{command} {target}: {_place(error)}",
                fix=f'pip install "agent-session-protocol[{extra}]"',
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        if hasattr(error, "headline"):  # an error of ours, raised while the module was imported: it says enough
            raise
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> CommandError:
    return CommandError(
        f"importing {name} failed: {_words(error)}",
        id="module-broken",
        where=_place(error),
        fix=f"python -c 'import {name}'",
    )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _place(error: BaseException) -> str:
    """The last line of the traceback that is not the import machinery: file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    own = [
        frame for frame in frames if frame.filename != __file__ and not frame.filename.endswith("importlib/__init__.py")
    ]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else "its import"


def _module_missing(name: str, target: str, command: str) -> CommandError:
    near = difflib.get_close_matches(name, _modules_here(), n=1, cutoff=0.6)
    _, colon, attribute = target.partition(":")
    fix = (
        f"agentsession {command} {near[0]}{colon}{attribute}"
        if near
        else "run it from the folder that holds the module, or put that folder into PYTHONPATH"
    )
    return CommandError(f'no module "{name}"', id="module-missing", where=f"{command} {target}, looked in .", fix=fix)


def _modules_here() -> list[str]:
    """The modules of the current directory and, one level down, of its packages."""
    out: list[str] = []
    for found in pkgutil.iter_modules([os.getcwd()]):
        out.append(found.name)
        if found.ispkg:
            out += [
                f"{found.name}.{inner.name}" for inner in pkgutil.iter_modules([os.path.join(os.getcwd(), found.name)])
            ]
    return out


def _no_such_name(module: ModuleType, name: str, target: str, command: str, kind: Kind) -> CommandError:
    fitting = members(module, kind.fits)
    short = [one.partition(":")[2] for one in fitting]
    near = difflib.get_close_matches(name, short, n=1, cutoff=0.5) if name else []
    best = next((one for one in fitting if near and one.endswith(":" + near[0])), fitting[0] if fitting else None)
    what = f"{module.__name__} has no {name!r}" if name else f"{target!r} names a module, not {kind.noun} in it"
    names = [key for key in vars(module) if not key.startswith("_")]
    return CommandError(
        what,
        id=kind.error,
        where=f"{command} {target}",
        got=f"the names {_listed(names)}" if names else "an empty module",
        expected=kind.expected,
        fix=f"agentsession {command} {best}" if best else f"agentsession {command} {module.__name__}:NAME",
    )


def _listed(names: Iterable[str], limit: int = 8) -> str:
    shown = list(names)
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
