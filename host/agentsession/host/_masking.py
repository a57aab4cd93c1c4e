"""Secrets out of what is shown: values of the environment, well-known forms of keys, what stands under such a name.

Not for: the record itself, which redacts marked answers on its way in. Rules carried: SEC-01 as far as showing goes.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from agentsession.protocol import REDACTED

__all__ = ["MASK", "Masker", "masked"]

MASK: Final = "***"
"""What stands in the place of a secret."""

_NAMES_A_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_NAMES_A_VALUE: Final = re.compile(
    r"(?:^|[_\-. ])(?:api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|secret|passwd|password|passphrase"
    r"|token|bearer|authorization|cookie|set-cookie|credentials?)$"
    r"|[a-z](?:ApiKey|AccessKey|PrivateKey|Secret|Password|Token)$",
    re.IGNORECASE,
)
_FORMS: Final = re.compile(
    r"\b(?:AIza[\w-]{20,}|sk-[\w-]{16,}|ya29\.[\w-]{16,}|gh[pousr]_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
    r"|(?<=Bearer )\S{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_ASSIGNED: Final = re.compile(
    r"""((?:api[_-]?key|access[_-]?token|client[_-]?secret|secret|password|passwd|authorization)["']?\s*(?:=|:(?=\s*["']))"""
    r"""\s*["']?)([^\s"',;&}<>]{4,})""",
    re.IGNORECASE,
)
_SHORTEST: Final = 8
"""A shorter text is masked where it stands, but not looked for elsewhere: masking it would hide more than a secret."""


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without the values of secret-looking environment variables and without well-known forms of keys."""
    for secret in _environment(os.environ if environ is None else environ):
        text = text.replace(secret, MASK)
    return _FORMS.sub(MASK, text)


class Masker:
    """Masks a whole record: what is a secret in one place of it is one everywhere.

    ``values``: all JSON in which names are looked at; ``secrets``: what is known to be one, such as a form's answer.
    """

    def __init__(
        self, values: Iterable[Any] = (), secrets: Iterable[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        known = set(_environment(os.environ if environ is None else environ))
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
        return _ASSIGNED.sub(rf"\g<1>{MASK}", _FORMS.sub(MASK, text))

    def json(self, value: Any) -> Any:
        """The JSON without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): MASK if isinstance(item, str) and _names_a_secret(name) else self.json(item)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.json(item) for item in value]
        return value


def _environment(environ: Mapping[str, str]) -> Iterator[str]:
    for name, secret in environ.items():
        if len(secret) >= _SHORTEST and _NAMES_A_VARIABLE.search(name):
            yield secret


def _named(value: Any) -> Iterator[str]:
    """The texts that stand under a name for a secret."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            for name, inner in item.items():
                if isinstance(inner, str) and _names_a_secret(name):
                    yield inner
                else:
                    waiting.append(inner)
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)


@functools.lru_cache(4096)
def _names_a_secret(name: object) -> bool:
    return isinstance(name, str) and _NAMES_A_VALUE.search(name) is not None
