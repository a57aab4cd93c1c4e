"""Fixtures of the command's tests."""

from __future__ import annotations

import pytest
from tests.host.cli.command import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command, called in this process."""
    return Command(monkeypatch, capfd)
