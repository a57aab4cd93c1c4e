"""The layout holds: one namespace package over four roots, typed, with light imports and honest ``__all__``.

Source: docs/decisions/0001-layout-and-packaging.md. The import arrows are import-linter's (``make check-imports``).
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "adapters", "host", "conformance")
HEAVY = (
    *("google", "sqlalchemy", "starlette", "fastapi", "mcp", "typer", "rich", "prompt_toolkit"),
    *("uvicorn", "ag_ui", "acp", "httpx2"),
)
_PARTS = {"pydantic_core": "pydantic", "referencing": "jsonschema"}
"""Packages that another one brings as a part of itself, and that it documents as such."""
_ONLY_WHERE_THERE = {"trio"}
"""Packages of the user's program, imported only once they are at work there."""

_NOT_EXPORTS = frozenset({"annotations", "Any", "Final", "TYPE_CHECKING"})
"""What a package's __init__ imports for itself to declare its lazy names."""


def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def folder(package: str) -> Path:
    return ROOT / package / "agentsession" / package


def built(package: str) -> bool:
    return (folder(package) / "__init__.py").exists()


def modules_loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after ``statement``."""
    code = f"import sys\n{statement}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_init_file_hides_the_other_roots(package: str) -> None:
    stray = ROOT / package / "agentsession" / "__init__.py"
    assert not stray.exists(), f"{stray.relative_to(ROOT)} hides the other three roots of agentsession: delete it"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_root_holds_one_package_and_nothing_else(package: str) -> None:
    found = {path.name for path in (ROOT / package / "agentsession").iterdir() if path.name != "__pycache__"}
    assert found == {package}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_ships_its_types(package: str) -> None:
    assert (folder(package) / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_all_names_what_the_package_exports(package: str) -> None:
    if not built(package):
        pytest.skip(f"agentsession.{package} has no __init__.py yet")
    module = importlib.import_module(f"agentsession.{package}")
    declared: list[str] = list(getattr(module, "__all__", []))
    exported = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in _NOT_EXPORTS and not isinstance(value, ModuleType)
    }
    assert len(declared) == len(set(declared)), "a name stands twice in __all__"
    # __getattr__ may serve a name lazily: it is declared and can be got, without being in vars().
    assert exported <= set(declared), f"exported, but not in __all__: {sorted(exported - set(declared))}"
    missing = [name for name in declared if not hasattr(module, name)]
    assert not missing, f"in __all__, but not there: {missing}"


def test_importing_protocol_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("from agentsession.protocol import *")
    assert "pydantic" in loaded
    assert not loaded & {*HEAVY, "jsonschema"}


def test_protocol_loads_no_module_before_a_name_is_used() -> None:
    ours = "[name for name in sys.modules if name.startswith('agentsession.protocol.')]"
    assert modules_loaded_by(f"import agentsession.protocol\nassert not {ours}, {ours}")


def test_each_lazy_name_of_protocol_is_found_where_type_checkers_find_it() -> None:
    import agentsession.protocol as protocol

    tree = ast.parse((folder("protocol") / "__init__.py").read_text(encoding="utf-8"))
    for_checkers = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentsession.protocol.")
        for alias in node.names
    }
    assert for_checkers.keys() == set(protocol.__all__)
    for name, module in for_checkers.items():
        assert getattr(protocol, name) is getattr(importlib.import_module(str(module)), name)


def test_protocol_names_what_it_does_not_have() -> None:
    import agentsession.protocol as protocol

    with pytest.raises(AttributeError, match=r"agentsession\.protocol.*NoSuchName"):
        _ = getattr(protocol, "NoSuchName")  # noqa: B009 - a literal attribute would not type-check


@pytest.mark.parametrize("package", ["adapters", "conformance"])
def test_importing_a_lean_package_loads_nothing_heavy(package: str) -> None:
    if not built(package):
        pytest.skip(f"agentsession.{package} has no __init__.py yet")
    assert not modules_loaded_by(f"import agentsession.{package}") & set(HEAVY)


@pytest.mark.parametrize("group", ["agentsession.executors", "agentsession.commands"])
def test_installed_entry_points_are_those_of_pyproject(group: str) -> None:
    declared: dict[str, str] = config()["project"]["entry-points"][group]
    installed = {point.name: point.value for point in entry_points(group=group)}
    assert declared.items() <= installed.items(), "the install is older than pyproject.toml: run `make setup`"


def test_the_lock_holds_names_versions_and_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line.strip().removesuffix("\\").strip() for line in lock.splitlines() if not line.lstrip().startswith("#")]
    pins = [line for line in lines if line and not line.startswith("--hash=sha256:")]
    assert "://" not in lock
    assert all("==" in pin and not pin.startswith(("-", "/", ".")) for pin in pins)
    assert any(pin.startswith("hatchling==") for pin in pins), "the build backend is part of the lock"


def test_every_dependency_is_in_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").lower()
    pinned = {line.partition("==")[0] for line in lock.splitlines() if "==" in line and not line.startswith(("#", " "))}
    project = config()["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {_name(requirement) for requirement in wanted} - {project["name"]}
    assert names <= pinned, f"run `make lock`: {sorted(names - pinned)} missing"


def _name(requirement: str) -> str:
    end = next((at for at, sign in enumerate(requirement) if sign in "[<>=!~; "), len(requirement))
    return requirement[:end].lower().replace("_", "-")


def test_every_package_that_is_imported_is_declared() -> None:
    project = config()["project"]
    extras = {name: given for name, given in project["optional-dependencies"].items() if name != "dev"}
    declared = {_name(line) for lines in (project["dependencies"], *extras.values()) for line in lines}
    known = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in PACKAGES
        for path in folder(package).rglob("*.py")
        for name in imported_by(path)
        if name not in {"agentsession", *_ONLY_WHERE_THERE, *sys.stdlib_module_names}
        if not declared & {_name(one) for one in known.get(_PARTS.get(name, name), [name])}
    }
    assert not undeclared


def imported_by(path: Path) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found
