"""The credentials of one session that must outlast a run: in memory, never in ADK's stored state.

Not for: answers on their way to a tool (``_credentials.py``). Rules carried: SEC-01.
May import: google.adk, ``_values``.

ADK's tools put tokens into the session's state, where every session service stores them in plain text. Here they are
taken out of each event before it is stored, and put into the state of each later run. They end with the process.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set
from typing import Any, Final

from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes

from agentsession.adapters.adk._values import is_mapping, lossy_json, redact

__all__ = ["Vault"]

_TYPES: Final = frozenset(kind.value for kind in AuthCredentialTypes)
_OF_NO_USE: Final = 2
"""Failures in a row after which a credential is forgotten; one that never was of use begins with one."""

Caller = tuple[str, str | None]
"""An ADK session and the call in it that uses a credential; no call: its agent lists its toolsets."""


class _Held:
    __slots__ = ("credential", "failures")

    def __init__(self, credential: AuthCredential, failures: int) -> None:
        self.credential = credential
        self.failures = failures


class Vault:
    """What of one session is secret. Its repr has only names."""

    def __init__(self) -> None:
        self._entries: dict[str, Any] = {}
        """Entries of ADK's session state, by key."""
        self._held: dict[str, _Held] = {}
        """What the credential service was given, by credential key."""
        self._used: dict[Caller, set[str]] = {}

    def __repr__(self) -> str:
        return f"Vault(entries={sorted(self._entries)}, held={sorted(self._held)})"

    # -- entries of ADK's state ---------------------------------------------------------------------------------------

    def withhold(self, delta: dict[str, Any]) -> None:
        """Take the credentials out of a change of state that is about to be stored."""
        for key in list(delta):
            if _is_credential(delta[key]):
                value = delta.pop(key)
                if not key.startswith("temp:"):
                    self._entries[key] = value
            elif key in self._entries:
                del self._entries[key]  # something else took its place, or ADK's tool dropped it

    def put_back(self, state: dict[str, Any]) -> None:
        """Give a run's copy of the state what the stored one has not."""
        for key, value in self._entries.items():
            if state.get(key) is None:
                state[key] = value

    # -- the credential service ---------------------------------------------------------------------------------------

    def hold(self, key: str, credential: AuthCredential, caller: Caller) -> None:
        """Keep a credential that was got for ``caller``."""
        known = self._held.get(key)
        self._held[key] = _Held(credential.model_copy(deep=True), known.failures if known is not None else 1)
        self._used.setdefault(caller, set()).add(key)

    def held(self, key: str, caller: Caller) -> AuthCredential | None:
        """The credential of this key, which ``caller`` is about to use."""
        known = self._held.get(key)
        if known is None:
            return None
        self._used.setdefault(caller, set()).add(key)
        return known.credential.model_copy(deep=True)

    def in_use(self, caller: Caller) -> Set[str]:
        """The keys of what ``caller`` uses."""
        return self._used.get(caller, frozenset())

    def used(self, caller: Caller, failed: Container[str] | bool) -> None:
        """How it went with what ``caller`` used: whether it failed, or the keys of what did. A credential that is of no
        use is forgotten, to be asked for again."""
        for key in self._used.pop(caller, ()):
            known = self._held.get(key)
            if known is None:
                continue
            bad = failed if isinstance(failed, bool) else key in failed
            known.failures = known.failures + 1 if bad else 0
            if known.failures >= _OF_NO_USE:
                del self._held[key]


def _is_credential(value: Any) -> bool:
    """Whether a state's value is one of ADK's credentials with a secret in it."""
    if isinstance(value, AuthCredential):
        return True
    if not is_mapping(value):
        return False
    kind: Mapping[str, Any] = value
    if kind.get("authType", kind.get("auth_type")) not in _TYPES:
        return False
    plain, _ = lossy_json(dict(value))
    return bool(redact(plain) != plain)
