"""Which model answers to a name: those that were given, another provider's, or the agent's own under another name."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.models.google_llm import Gemini
from google.adk.models.registry import LLMRegistry

from agentsession.adapters.adk import ScriptedLlm
from agentsession.adapters.adk._routed_model import ModelTable
from agentsession.protocol import ConfigurationError


class Other(Gemini):
    """Another provider's."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of Gemini and of one other provider."""

    def resolve(name: str) -> Any:
        for begin, kind in (("gemini", Gemini), ("other", Other)):
            if name.startswith(begin):
                return kind
        raise ValueError(name)

    monkeypatch.setattr(LLMRegistry, "resolve", staticmethod(resolve))


@pytest.mark.usefixtures("registry")
def test_a_name_of_the_same_provider_is_the_agents_own_model_under_another_name() -> None:
    own, table = Gemini(model="gemini-large"), ModelTable()
    for name in (None, "gemini-large", "gemini-small", "tuned-by-us"):
        assert table.find(name, own) is own
        assert table.sent_name(name, own) == name


@pytest.mark.usefixtures("registry")
def test_a_name_of_another_provider_is_another_model_made_once() -> None:
    own, table = Gemini(model="gemini-large"), ModelTable()
    found = table.find("other-1", own)
    assert (type(found), found.model) == (Other, "other-1")
    assert table.find("other-1", own) is found


@pytest.mark.usefixtures("registry")
def test_a_class_of_the_users_takes_every_name_for_its_own() -> None:
    own, table = ScriptedLlm(model="gemini-large"), ModelTable()
    assert table.find("other-1", own) is own


@pytest.mark.usefixtures("registry")
def test_a_model_that_was_given_comes_first_and_is_sent_its_own_name() -> None:
    spare = ScriptedLlm(model="spare-1")
    table = ModelTable({"gemini-small": spare})
    assert table.find("gemini-small", Gemini(model="gemini-large")) is spare
    assert table.sent_name("gemini-small", spare) == "spare-1"


@pytest.mark.parametrize(("name", "model"), [("", ScriptedLlm()), ("spare", "gemini-small")])
def test_what_is_no_model_or_has_no_name_is_refused(name: str, model: Any) -> None:
    with pytest.raises(ConfigurationError):
        ModelTable({name: model})
