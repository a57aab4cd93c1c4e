"""Text of agents, tools and people as it may stand on the page: masked, made visible, escaped.

Not for: markup of our own. Rules carried: SEC-01 as far as showing goes. May import: ``_masking``, ``cli._text``.

Nothing that a record holds reaches the page but through here. First secrets are masked, then characters that nobody
can see are spelled out, then what is too long is cut, and last HTML is escaped: cut earlier, half a secret would stay.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, Final

from agentsession.host._masking import Masker, leaves, taken_out
from agentsession.host.cli._text import escape
from agentsession.protocol import REDACTED, ElicitationRequest, ElicitationResponse, Event, redact_marked

__all__ = ["LONGEST", "Safe"]

LONGEST: Final = 20_000
"""Characters of one text that are shown."""


class Safe:
    """Makes text of a record safe to show."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._schemas: dict[str, Any] = {}
        self._sign_ins: set[str] = set()
        wires: list[Any] = []
        secrets: list[str] = []
        for event in events:
            wires.append(event.to_wire())
            if isinstance(event, ElicitationRequest):
                self._schemas[event.request_id] = event.requested_schema
                if event.kind == "auth_required":
                    self._sign_ins.add(event.request_id)
            elif isinstance(event, ElicitationResponse):
                secrets += taken_out(event.content, self._answer(event))
        self._masker = Masker(wires, secrets)

    def text(self, text: str, limit: int = LONGEST) -> str:
        """As HTML text or attribute."""
        return html.escape(self.plain(text, limit))

    def plain(self, text: str, limit: int = LONGEST) -> str:
        """Masked, visible and cut, and not yet escaped: for what is put together first."""
        shown = escape(self._masker.text(text))
        if len(shown) <= limit:
            return shown
        if limit < LONGEST:
            return shown[: limit - 1] + "…"
        return f"{shown[:limit]}\n… {len(shown) - limit:,} more characters; the record has all"

    def line(self, text: str, limit: int = 200) -> str:
        """As HTML text of one line."""
        return html.escape(self.plain(text, limit).replace("\n", " "))

    def value(self, value: Any) -> Any:
        """JSON without secrets."""
        return self._masker.json(value)

    def json(self, value: Any) -> str:
        """JSON as HTML text, indented."""
        return html.escape(_cut(escape(json.dumps(self.value(value), ensure_ascii=False, indent=2))))

    def event(self, event: Event) -> str:
        """An event as it is on the wire, on one line, as HTML text."""
        wire = event.to_wire()
        if isinstance(event, ElicitationResponse) and event.content is not None:
            wire["content"] = self._answer(event)
        return html.escape(_cut(escape(json.dumps(self.value(wire), ensure_ascii=False))))

    def answer(self, event: ElicitationResponse) -> str:
        """What a person answered, without what its form marks as secret, as HTML text."""
        return self.json(self._answer(event))

    def _answer(self, event: ElicitationResponse) -> Any:
        if event.request_id in self._sign_ins:
            return leaves(event.content, REDACTED)
        schema = self._schemas.get(event.request_id)
        return redact_marked(event.content, schema) if schema is not None else event.content


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} more characters; the record has all"
