"""What a server says, made fit to be shown: without the token, without control characters, and not endless.

Not for: what is in events, which are the host's to show. Rules carried: SEC-01 as far as the token goes.
May import: ``agentsession.protocol``.

A server, or a proxy before it, may give back what it was sent. An error ends in logs and terminals.
"""

from __future__ import annotations

from typing import Final, TypeVar

from agentsession.protocol import AgentSessionError, SchemaError

__all__ = ["Mask"]

E = TypeVar("E", bound=AgentSessionError)

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

    def error(self, error: E) -> E:
        """The same error, of what the server sent, with its texts made so; what it came from is forgotten."""
        error.what = self(error.what)
        for name, text in error.parts().items():
            setattr(error, name, self(text))
        if isinstance(error, SchemaError):
            error.pointer = self(error.pointer)
        error.args = (error.what,)
        error.__cause__ = error.__context__ = None
        return error
