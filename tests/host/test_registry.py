"""From executor keys to executors."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import anyio
import pytest

from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.host import Host, SessionFactory
from agentsession.protocol import AgentDescriptor, ConfigurationError

HERE = "tests.host.test_registry"


def announce_scripted() -> type[ScriptedExecutor]:
    return ScriptedExecutor


def announce_missing() -> Any:
    raise ImportError("no module named 'acme'")


NOTHING = None


def announce_an_executor() -> Any:
    return ScriptedExecutor([])


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


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (f"{HERE}:announce_an_executor", "ScriptedExecutor"),
        ("agentsession.adapters.scripted:ScriptedExecutor", "needs arguments"),
    ],
)
def test_what_is_announced_in_the_place_of_a_creators_function_is_told_apart_from_what_is_missing(
    announced: dict[str, list[str]], value: str, got: str
) -> None:
    announced["acme"] = [value]
    with pytest.raises(ConfigurationError, match="does not return a creator") as caught:
        SessionFactory().creator("acme")
    assert got in (caught.value.got or "")
    assert (caught.value.id, caught.value.fix) == (
        "configuration",
        f"announce one that says: return {value.partition(':')[2]}",
    )


@pytest.mark.parametrize("name", ["HERE", "NOTHING"])
def test_what_is_announced_and_cannot_be_called_is_told(announced: dict[str, list[str]], name: str) -> None:
    announced["acme"] = [f"{HERE}:{name}"]
    with pytest.raises(ConfigurationError, match="does not return a creator") as caught:
        SessionFactory().creator("acme")
    assert (caught.value.got, caught.value.fix) == (type(globals()[name]).__name__, None)


async def _run(executor: Any) -> None:
    await Host().run(executor, "go")


async def _run_many(executor: Any) -> None:
    Host().run_many(executor, ["go"])


def test_a_key_whose_creator_needs_arguments_says_which(announced: dict[str, list[str]]) -> None:
    announced["played"] = [f"{HERE}:announce_scripted"]
    with pytest.raises(ConfigurationError) as caught:
        anyio.run(_run, "played")
    assert (caught.value.got, "register(" in (caught.value.fix or "")) == (
        "missing a required argument: 'script'",
        True,
    )


@pytest.mark.parametrize(("use", "given"), [(_run, object()), (_run_many, object()), (_run_many, "scripted")])
def test_what_is_no_executor_is_refused_with_what_to_make_of_it(use: Any, given: object) -> None:
    with pytest.raises(ConfigurationError, match="is no executor") as caught:
        anyio.run(use, given)
    assert "as executor:" in (caught.value.fix or "")
