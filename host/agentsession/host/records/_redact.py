"""Taking secrets out of events before they leave the host.

Not for: what a session must not record in the first place (the base class and the adapters see to that).
Rules carried: SEC-01. May import: ``agentsession.protocol``, ``_known_texts``, ``_masking``.

What goes: values under names of secrets, answers to sign-ins, what a question's schema marks as secret, the values of
secret-looking variables of the environment, and texts that look like well-known keys. What is a secret in one place is
one in every text, once it was seen. What stays: ids, types, names, seqs, so that a redacted record still folds. Digests
of arguments are made anew where the arguments have changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agentsession.host._known_texts import SHORTEST, known_texts
from agentsession.host._masking import (
    SCHEMAS,
    environment_secrets,
    leaves,
    names_a_secret,
    secrets_named,
    taken_out,
    without_secrets,
)
from agentsession.protocol import REDACTED, Event, args_digest, parse_event, redact_marked

__all__ = ["Redactor"]

_STAYS: Final = frozenset(
    {"type", "id", "seq", "timestamp", "sessionId", "streamId", "turnId", "agentId", "threadId", "source", "name"}
    | {"requestId", "messageId", "toolRequestId", "parentThreadId", "status", "kind", "action", "argsDigest"}
    | {"decision", "needs", "role", "pending", "protocolVersion", "owner", "expiresAt"}
)
"""Fields of an event that say what and where it is; no text of a person, a model or a tool stands in them."""

_ENDS: Final = ("stream_end", "agent_end")
"""Whose ``reason`` is a word of the contract; that of a decision is what somebody said."""


class Redactor:
    """Redacts the events of one record, in their order: ``redact(event)``. It remembers the questions it has seen, and
    the secrets; :meth:`learn` shows it those that come later.

    Deltas are redacted one by one: half a secret is not known to be one. Records hold none.

    Args:
        names: Further names of fields whose values are secrets, compared without case.
        values: Secrets that are known: every text that holds one is redacted.
        environ: Where secret-looking variables are looked up; the process's own when absent, ``{}`` for none.
    """

    def __init__(
        self, *, names: Iterable[str] = (), values: Iterable[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        self._names = frozenset(name.casefold() for name in names)
        found = set(environment_secrets(os.environ if environ is None else environ))
        self._values = found | {value for value in values if value}
        self._known = known_texts(frozenset(self._values))
        self._is_learning = False
        self._questions: dict[str, tuple[str, Any]] = {}
        self._args: dict[str, Any] = {}

    def __call__(self, event: Event) -> Event:
        """The event without secrets. Raises :class:`SchemaError` where what is left would be no event."""
        wire = event.to_wire()
        stays = _STAYS | {"reason"} if event.type in _ENDS else _STAYS
        told = {key: value if key in stays else self._field(key, value) for key, value in wire.items()}
        self._by_type(event.type, wire, told)
        if told == wire:
            return event
        self._remember(wire, told)
        return parse_event(told)

    def learn(self, events: Iterable[Event]) -> None:
        """What is a secret in these events goes from every text from now on, also from those before them."""
        self._is_learning = True  # what is known is put together once, and not with each secret that is found
        try:
            for event in events:
                self(event)
        finally:
            self._is_learning = False
            self._known = known_texts(frozenset(self._values))

    def text(self, text: str) -> str:
        """A text without the secrets that are known and those that look like one."""
        return without_secrets(text, self._known, REDACTED)

    def _remember(self, before: Any, after: Any) -> None:
        found = {text for text in taken_out(before, after) if len(text) >= SHORTEST} - self._values
        if found:
            self._values |= found
            self._known = self._known if self._is_learning else known_texts(frozenset(self._values))

    def _by_type(self, kind: str, wire: Mapping[str, Any], told: dict[str, Any]) -> None:
        request_id = wire.get("requestId")
        if not isinstance(request_id, str):
            return
        if kind == "elicitation_request":
            self._questions[request_id] = (str(wire.get("kind")), wire.get("requestedSchema"))
        elif kind == "elicitation_response" and "content" in wire:
            what, schema = self._questions.pop(request_id, ("auth_required", None))  # not seen: the careful guess
            if what == "auth_required":
                told["content"] = leaves(self._field("content", wire["content"]), REDACTED)
            elif schema is not None:
                told["content"] = self._field("content", redact_marked(wire["content"], schema))
        elif kind == "tool_request" and told.get("args") != wire.get("args"):
            self._args[request_id] = told["args"]
        elif kind == "tool_decision":
            changed = told.get("args") if told.get("args") != wire.get("args") else None
            if changed is None and wire.get("args") is None:
                changed = self._args.get(request_id)
            if changed is not None:
                told["argsDigest"] = args_digest(changed)
        elif kind == "tool_response":
            self._args.pop(request_id, None)

    def _field(self, key: str, value: Any) -> Any:
        return _walk(value, self.text, None if key in SCHEMAS else self._is_secret)

    def _is_secret(self, name: str) -> bool:
        return name.casefold() in self._names or names_a_secret(name)


def _walk(value: Any, text: Callable[[str], str], is_secret: Callable[[str], bool] | None) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_walk(item, text, is_secret) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    named = secrets_named(value, is_secret) if is_secret is not None else ()
    for key, item in value.items():
        name = text(key)
        if key in SCHEMAS:
            found[name] = _walk(item, text, None)
        elif key in named:
            found[name] = leaves(_walk(item, text, None), REDACTED)
        else:
            found[name] = _walk(item, text, is_secret)
    return found
