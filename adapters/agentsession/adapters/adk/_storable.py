"""Making an ADK event one that any session service can store, before ADK stores it.

Not for: translation (``_translate.py`` reads what is left here). Rules carried: WIRE-01, PER-02.
May import: ``_values``, ``agentsession.protocol``, google.adk.

A tool may return a set, a model, bytes or NaN, and a model may say half of a character. ADK keeps such values as they
are, until a session service writes JSON: then the run dies, or the stored session cannot be read again. They become
JSON here by the one rule of ``agentsession.protocol.to_json``; what has no reading becomes a marker, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.events.event import Event as AdkEvent

from agentsession.adapters.adk._values import lossy_json
from agentsession.protocol import repair_text

__all__ = ["make_storable"]

_NEVER_STORED = ("temp:", "_adk")
"""State under these keys stays in memory and may hold any object."""


def make_storable(event: AdkEvent) -> list[str]:
    """Put JSON in the place of what JSON cannot say; what had no reading, each with its place."""
    return list(_problems(event))


def _problems(event: AdkEvent) -> Iterator[str]:
    for part in (event.content.parts if event.content is not None else None) or ():
        if part.text is not None and not part.text.isascii():
            part.text = repair_text(part.text)
        call, response = part.function_call, part.function_response
        if call is not None and call.args is not None:
            call.args, problems = lossy_json(call.args)
            yield from (f"the arguments of {call.name!r}: {problem}" for problem in problems)
        if response is not None and response.response is not None:
            response.response, problems = lossy_json(response.response)
            yield from (f"the result of {response.name!r}: {problem}" for problem in problems)
    delta: dict[str, Any] = event.actions.state_delta if event.actions is not None else {}
    for key, value in delta.items():
        if not key.startswith(_NEVER_STORED):
            delta[key], problems = lossy_json(value)
            yield from (f"the state {key!r}: {problem}" for problem in problems)
