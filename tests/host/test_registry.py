"""From executor keys to executors."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.host import SessionFactory
from agentsession.protocol import AgentDescriptor, ConfigurationError

HERE = "tests.host.test_registry"


def announce_scripted() -> type[ScriptedExecutor]:
    return ScriptedExecutor


def announce_missing() -> Any:
    raise ImportError("no module named 'acme'")


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}

    def entry_points(*, group: str, name: str | None = None) -> list[importlib.metadata.EntryPoint]:
        assert group == "agentsession.executors"
        return [
            importlib.metadata.EntryPoint(key, value, group)
            for key, found in values.items()
            for value in found
            if name in (None, key)
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return values


def test_an_announced_executor_is_made_from_its_key_or_a_descriptor(announced: dict[str, list[str]]) -> None:
    announced["played"] = [f"{HERE}:announce_scripted"]
    factory = SessionFactory()
    assert isinstance(factory.create("played", []), ScriptedExecutor)
    assert isinstance(factory.create(AgentDescriptor(name="a", executor="played"), []), ScriptedExecutor)


def test_a_registered_creator_comes_before_an_announced_one(announced: dict[str, list[str]]) -> None:
    announced["played"] = [f"{HERE}:announce_missing"]
    factory = SessionFactory()
    factory.register("played", ScriptedExecutor)
    assert isinstance(factory.create("played", []), ScriptedExecutor)
    assert factory.keys() == ["played"]
    with pytest.raises(ConfigurationError, match="registered twice"):
        factory.register("played", ScriptedExecutor)


def test_an_unknown_key_names_the_near_one_and_all(announced: dict[str, list[str]]) -> None:
    announced["scripted"] = [f"{HERE}:announce_scripted"]
    with pytest.raises(ConfigurationError) as caught:
        SessionFactory().create("scriptde")
    assert caught.value.fix == "did you mean 'scripted'?"
    assert caught.value.expected == "scripted"


def test_what_an_announced_executor_lacks_is_said(announced: dict[str, list[str]]) -> None:
    announced["acme"] = [f"{HERE}:announce_missing"]
    with pytest.raises(ConfigurationError) as caught:
        SessionFactory().creator("acme")
    assert caught.value.id == "extra-missing"
    assert "acme" in (caught.value.got or "")


def test_two_announcements_of_one_key_are_not_chosen_between(announced: dict[str, list[str]]) -> None:
    announced["acme"] = [f"{HERE}:announce_scripted", f"{HERE}:announce_missing"]
    with pytest.raises(ConfigurationError, match="several distributions"):
        SessionFactory().creator("acme")


def test_a_creator_that_makes_something_else_is_refused() -> None:
    factory = SessionFactory()
    factory.register("odd", lambda: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="made no executor"):
        factory.create("odd")
