"""Finds the harness that a command line names: ``MODULE:NAME``, looked for in the working directory too.

Not for: running it (``runner.py``). Rules carried: none. May import: ``agentsession.protocol``, ``harness``, ``hosts``,
``stores``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agentsession.conformance.harness import Harness
from agentsession.conformance.hosts.harness import HostHarness
from agentsession.conformance.stores.scene import StoreFactory
from agentsession.protocol import ConfigurationError

__all__ = ["load_harness", "load_host_harness", "load_store_factory"]


def load_harness(target: str) -> Harness:
    """The harness of executors, or what a class or function of that name makes when called without arguments.

    Raises:
        ConfigurationError: there is no such module or name, or it is no harness.
    """
    found: Harness = _load(target, Harness)
    return found


def load_host_harness(target: str) -> HostHarness:
    """The same for a harness of hosts."""
    found: HostHarness = _load(target, HostHarness)
    return found


def load_store_factory(target: str) -> StoreFactory:
    """The function of that name, which opens the record store of a folder."""
    module, name = _module_of(target)
    found: Any = getattr(module, name, None)
    if not callable(found):
        raise ConfigurationError(
            f"{target} is no function that opens a record store",
            got="nothing of that name" if found is None else type(found).__name__,
            expected="a function of a folder, as agentsession.conformance.stores.scene.StoreFactory says",
            fix="see docs/how-to/keep-records.md",
            id="not-a-harness",
        )
    return cast(StoreFactory, found)


def _load(target: str, kind: type[Any]) -> Any:
    module, name = _module_of(target)
    module_name = module.__name__
    found = getattr(module, name, None)
    if found is None:
        names = [key for key, value in vars(module).items() if isinstance(value, kind)]
        raise ConfigurationError(
            f"{module_name} has no {name!r}",
            expected=f"one of {', '.join(names)}" if names else f"a {kind.__name__}",
            fix=f"agentsession conform {module_name}:{names[0] if names else 'NAME'}",
            id="not-a-harness",
        )
    if not isinstance(found, kind) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise _broken(target, error) from error
    if not isinstance(found, kind):
        other = isinstance(found, (Harness, HostHarness))
        flag = "leave --host out" if kind is HostHarness else "agentsession conform --host MODULE:NAME"
        page = "docs/how-to/test-your-host.md" if kind is HostHarness else "docs/tutorial/write-an-executor.md"
        raise ConfigurationError(
            f"{target} is no harness",
            got=type(found).__name__,
            expected=f"an object of a subclass of {kind.__module__}.{kind.__name__}",
            fix=flag if other else f"see {page}",
            id="not-a-harness",
        )
    return found


def _module_of(target: str) -> tuple[ModuleType, str]:
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise ConfigurationError(
            "what to prove is not named",
            got=repr(target),
            expected="MODULE:NAME, such as my_package.conformance:harness, or with --store my_package.stores:factory",
            fix="agentsession conform MODULE:NAME, see agentsession conform --help",
            id="usage",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _broken(target, error) from error
        raise ConfigurationError(
            f'no module "{error.name}"',
            where=f"conform {target}, looked in .",
            fix="go to its directory, or install it",
            id="module-missing",
        ) from error
    except Exception as error:
        raise _broken(target, error) from error
    return module, name


def _broken(target: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"the module of {target} cannot be imported",
        got=f"{type(error).__name__}: {error}",
        fix="import it in Python to see where it fails",
        id="module-broken",
    )
