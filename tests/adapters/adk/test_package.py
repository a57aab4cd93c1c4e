"""The package itself: cheap to import, honest about what is missing, equal to what it says."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentsession.adapters import adk
from agentsession.adapters.adk import _version
from agentsession.adapters.adk._version import ADK_RANGE, AdkMissing, AdkUnsupported, check_adk_version, require_adk
from agentsession.protocol import ConfigurationError

_ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    require_adk.cache_clear()


def test_importing_the_package_imports_nothing_of_google() -> None:
    code = "import sys, agentsession.adapters.adk; print('google.genai' in sys.modules, 'google.adk' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_the_pure_parts_do_not_import_the_runner() -> None:
    code = (
        "import sys; from agentsession.adapters.adk import map_events, read_adk, describe_agent, ScriptedLlm;"
        "print('google.adk.runners' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_every_public_name_is_there() -> None:
    for name in adk.__all__:
        assert getattr(adk, name) is not None, name
    assert set(adk.__all__) <= set(dir(adk))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = adk.nothing


def test_the_range_is_that_of_the_extra() -> None:
    with (_ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]

    assert extras["adk"] == [f"google-adk{ADK_RANGE}"]


@pytest.mark.parametrize("version", ["2.13.0", "2.13.7", "2.13.1rc1"])
def test_tested_releases_are_taken(version: str) -> None:
    check_adk_version(version)


@pytest.mark.parametrize("version", ["1.2.0", "2.12.9", "2.14.0", "3.0.0", "unknown"])
def test_other_releases_are_refused_with_the_range(version: str) -> None:
    with pytest.raises(AdkUnsupported) as caught:
        check_adk_version(version)

    assert str(caught.value).splitlines()[0] == f"error[adk-version]: google-adk {version} is not supported"
    assert caught.value.expected == "google-adk>=2.13,<2.14"
    assert caught.value.fix == 'pip install -U "agent-session-protocol[adk]"'


def _not_found(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def _cannot(name: str) -> bool:
    del name
    return False


def _old(name: str) -> str:
    del name
    return "1.2.0"


def test_a_missing_adk_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", _not_found)
    monkeypatch.setattr(_version, "_can_import", _cannot)

    with pytest.raises(AdkMissing) as caught:
        require_adk()

    assert str(caught.value) == (
        "error[extra-missing]: google-adk is not installed\n"
        "  where:    adapter adk\n"
        '  fix:      pip install "agent-session-protocol[adk]"'
    )
    assert isinstance(caught.value, (ImportError, ConfigurationError))


def test_a_vendored_adk_without_metadata_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", _not_found)

    require_adk()


def test_a_public_name_asks_for_adk_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", _old)
    monkeypatch.delitem(adk.__dict__, "describe_agent", raising=False)

    with pytest.raises(AdkUnsupported):
        _ = adk.describe_agent
