"""What a server says, made fit to be shown: without the token, without control characters, and not endless.

Not for: what is in events, which are the host's to show. Rules carried: SEC-01 as far as the token goes.
May import: ``agentsession.protocol``.

A server, or a proxy before it, may give back what it was sent. An error ends in logs and terminals.
"""

from __future__ import annotations

from typing import Final

from agentsession.protocol import ProtocolViolation

__all__ = ["Mask"]

_MOST: Final = 1000
"""Characters of one text of the server's."""


class Mask:
    """Called with a text, gives it as it may be shown."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    def __call__(self, text: str) -> str:
        if self._token:
            text = text.replace(self._token, "***")
        if len(text) > _MOST:
            text = text[:_MOST] + "…"
        if text.isprintable():
            return text
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)

    def violation(self, error: ProtocolViolation) -> ProtocolViolation:
        """The same violation, of an event of the server's."""
        parts = {name: self(text) for name, text in error.parts().items()}
        return ProtocolViolation(error.rule, self(error.what), blame=error.blame, **parts)
