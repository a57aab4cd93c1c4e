"""Fixtures of the command's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.host.cli.command import Command


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command keeps what was answered always: not in the home of who runs the tests."""
    place = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command, called in this process."""
    return Command(monkeypatch, capfd)
