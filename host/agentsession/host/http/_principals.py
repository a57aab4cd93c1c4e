"""Who calls: principals, verifiers of requests, one-use tickets, and the check of an address that is served.

Not for: what a principal may do to a session (a session belongs to its user, which ``LiveSessions`` keeps).
Rules carried: none. May import: starlette, ``agentsession.protocol``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from starlette.requests import HTTPConnection

from agentsession.protocol import ConfigurationError, check_id

__all__ = ["LOCAL", "BearerTokens", "Principal", "Tickets", "Verifier", "check_exposure", "is_loopback"]

READ: Final = "read"
WRITE: Final = "write"


@dataclasses.dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who may call: sessions belong to ``user_id``; ``scopes`` are what is allowed, of ``read`` and ``write``.

    Raises :class:`InvalidInput` for a user id that cannot be one.
    """

    user_id: str
    scopes: frozenset[str] = frozenset({READ, WRITE})
    name: str | None = None
    """Shown to people; absent, the user id is."""

    def __post_init__(self) -> None:
        check_id(self.user_id, "user id")


LOCAL: Final = Principal("local")
"""The one user of a server that serves its own machine without a verifier."""


class Verifier(Protocol):
    """Says who a request comes from, by its headers alone: the body was not read yet."""

    async def verify(self, request: HTTPConnection) -> Principal | None:
        """Who it is; ``None`` for nobody that is known: the request gets 401."""
        ...


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class BearerTokens:
    """A verifier of fixed tokens in ``Authorization: Bearer TOKEN``. Only their SHA-256 is kept.

    All are compared, each in constant time, so that the time taken tells nothing of them.
    Raises :class:`ConfigurationError` for a token shorter than 16 characters, or with characters that no header holds.
    """

    def __init__(self, tokens: Mapping[str, Principal]) -> None:
        for token in tokens:
            if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
                raise ConfigurationError(
                    "a bearer token cannot be used",
                    expected="16 or more printable ASCII characters without spaces",
                    fix="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
                )
        self._known: Final = [(_digest(token), principal) for token, principal in tokens.items()]

    def __repr__(self) -> str:
        return f"BearerTokens({len(self._known)} tokens)"

    async def verify(self, request: HTTPConnection) -> Principal | None:
        """The principal of the request's token."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not token:
            return None
        digest = _digest(token.strip())
        found: Principal | None = None
        for known, principal in self._known:
            if hmac.compare_digest(known, digest):
                found = principal
        return found


class Tickets:
    """One-use tickets for readers that cannot send headers; each is for one path, and lives ``lifetime_s``."""

    def __init__(
        self, lifetime_s: float = 30.0, capacity: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lifetime_s = lifetime_s
        self._capacity = capacity
        self._clock = clock
        self._open: OrderedDict[bytes, tuple[float, str, Principal]] = OrderedDict()

    def issue(self, principal: Principal, path: str) -> str:
        """A new ticket for one GET of ``path``. The oldest goes where there are too many."""
        now = self._clock()
        while self._open and (len(self._open) >= self._capacity or next(iter(self._open.values()))[0] < now):
            self._open.popitem(last=False)
        ticket = secrets.token_urlsafe(32)
        self._open[_digest(ticket)] = (now + self.lifetime_s, path, principal)
        return ticket

    def take(self, ticket: str, path: str) -> Principal | None:
        """Whose ticket it is; it is used up by this, whatever path it is shown at."""
        until, of_path, principal = self._open.pop(_digest(ticket), (0.0, "", None))
        return principal if of_path == path and self._clock() <= until else None


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address of this machine alone. A name is not, but for ``localhost``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, verify: Verifier | None) -> None:
    """Refuse to serve others than this machine without a verifier. Call it with the address before binding it.

    Raises :class:`ConfigurationError`.
    """
    if verify is None and not is_loopback(host):
        raise ConfigurationError(
            "a server that other machines can reach needs to know who calls",
            where=f"the address {host or 'of all interfaces'}",
            expected="a verifier, or an address of this machine alone such as 127.0.0.1",
            fix="pass verify=BearerTokens({...}), or serve on 127.0.0.1",
        )
