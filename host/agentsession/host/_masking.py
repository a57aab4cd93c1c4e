"""Secrets out of what is shown: values of the environment, well-known forms of keys, what stands under such a name.

Not for: the record itself, which redacts marked answers on its way in. Rules carried: SEC-01 as far as showing goes.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from agentsession.protocol import REDACTED

__all__ = ["KNOWN_FORMS", "MASK", "SCHEMAS", "Masker", "environment_secrets", "leaves", "masked", "names_a_secret"]

MASK: Final = "***"
"""What stands in the place of a secret."""

SCHEMAS: Final = frozenset({"requestedSchema", "parametersSchema", "configSchema", "inputSchema", "outputSchema"})
"""Names of secrets in a schema are names of fields, with no values."""
KNOWN_FORMS: Final = re.compile(
    r"\b(?:AIza[\w-]{20,}|sk-[\w-]{16,}|ya29\.[\w-]{16,}|gh[pousr]_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
    r"|(?<=Bearer )[\w.~+/=-]{8,}|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
"""Texts that look like well-known keys."""
_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_WORDS: Final = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "credential", "credentials"}
    | {"authorization", "cookie", "cookies", "apikey", "jwt", "bearer"}
)
_SECRET_PAIRS: Final = frozenset(
    {("api", "key"), ("private", "key"), ("access", "key"), ("signing", "key"), ("secret", "key")}
)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ASSIGNED: Final = re.compile(
    r"""((?:api[_-]?key|access[_-]?token|client[_-]?secret|secret|password|passwd|authorization)["']?\s*(?:=|:(?=\s*["']))"""
    r"""\s*["']?)([^\s"',;&}<>]{4,})""",
    re.IGNORECASE,
)
_SHORTEST: Final = 8
"""A shorter text is masked where it stands, but not looked for elsewhere: masking it would hide more than a secret."""


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without the values of secret-looking environment variables and without well-known forms of keys."""
    for secret in environment_secrets(os.environ if environ is None else environ):
        text = text.replace(secret, MASK)
    return KNOWN_FORMS.sub(MASK, text)


class Masker:
    """Masks a whole record: what is a secret in one place of it is one everywhere.

    ``values``: all JSON in which names are looked at; ``secrets``: what is known to be one, such as a form's answer.
    """

    def __init__(
        self, values: Iterable[Any] = (), secrets: Iterable[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        known = set(environment_secrets(os.environ if environ is None else environ))
        known.update(secrets)
        for value in values:
            known.update(_named(value))
        known = {one for one in known if len(one) >= _SHORTEST and one != REDACTED}
        # The longest first: one may be within another.
        either = "|".join(re.escape(one) for one in sorted(known, key=len, reverse=True))
        self._known = re.compile(either) if known else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        if len(text) < _SHORTEST:  # no form of a secret is that short
            return text
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _ASSIGNED.sub(rf"\g<1>{MASK}", KNOWN_FORMS.sub(MASK, text))

    def json(self, value: Any) -> Any:
        """The JSON without secrets."""
        return self._walk(value, by_name=True)

    def _walk(self, value: Any, *, by_name: bool) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): leaves(item, MASK)
                if by_name and names_a_secret(name)
                else self._walk(item, by_name=by_name and name not in SCHEMAS)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._walk(item, by_name=by_name) for item in value]
        return value


def leaves(value: Any, instead: str) -> Any:
    """``value`` with ``instead`` in the place of everything in it, but whether something is there."""
    if isinstance(value, Mapping):
        return {key: leaves(item, instead) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [leaves(item, instead) for item in value]
    return value if value is None or isinstance(value, bool) else instead


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables that are named like secrets."""
    for name, secret in environ.items():
        if len(secret) >= _SHORTEST and _VARIABLE.search(name):
            yield secret


@functools.lru_cache(4096)
def names_a_secret(name: object) -> bool:
    """Whether a value under this name is one: ``password``, ``apiKey``, ``refresh_token``; not ``max_tokens``."""
    words = [word.casefold() for word in _WORDS.findall(name)] if isinstance(name, str) else []
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or words[-1:] == ["token"]
        or any(pair in _SECRET_PAIRS for pair in itertools.pairwise(words))
    )


def _named(value: Any) -> Iterator[str]:
    """The texts that stand under a name for a secret."""
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        item, is_secret = waiting.pop()
        if isinstance(item, Mapping):
            for name, inner in item.items():
                if name not in SCHEMAS:
                    waiting.append((inner, is_secret or names_a_secret(name)))
        elif isinstance(item, (list, tuple)):
            waiting.extend((inner, is_secret) for inner in item)
        elif isinstance(item, str) and is_secret:
            yield item
