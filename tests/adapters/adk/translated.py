"""What a translator makes of ADK Events, for tests of the mapping."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic
from google.adk.events.event import Event as AdkEvent
from google.genai import types

from agentsession.adapters.adk import Translator
from agentsession.protocol import Event

__all__ = ["Report", "all_of", "feed", "only", "usage_of"]

E = TypeVar("E", bound=Event)


def feed(*events: AdkEvent, translator: Translator | None = None) -> list[Event]:
    made = translator or Translator()
    return [item for adk_event in events for item in made.feed(adk_event)]


def only(kind: type[E], events: list[Event]) -> E:
    (found,) = [item for item in events if isinstance(item, kind)]
    return found


def all_of(kind: type[E], events: list[Event]) -> list[E]:
    return [item for item in events if isinstance(item, kind)]


def usage_of(**counts: Any) -> types.GenerateContentResponseUsageMetadata:
    return types.GenerateContentResponseUsageMetadata(**counts)


class Report(pydantic.BaseModel):
    title: str
    tags: set[str]
