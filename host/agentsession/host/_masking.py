"""Secrets out of what is shown: values of the environment, well-known forms of keys, what stands under such a name.

Not for: the record itself, which redacts marked answers on its way in. Rules carried: SEC-01 as far as showing goes.
May import: ``agentsession.protocol``, ``_known_texts``.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from agentsession.host._known_texts import SHORTEST, KnownTexts, known_texts
from agentsession.protocol import REDACTED

__all__ = [
    "MASK",
    "SCHEMAS",
    "Masker",
    "environment_secrets",
    "leaves",
    "masked",
    "names_a_secret",
    "secrets_named",
    "taken_out",
    "without_secrets",
]

MASK: Final = "***"
"""What stands in the place of a secret."""

SCHEMAS: Final = frozenset({"requestedSchema", "parametersSchema", "configSchema", "inputSchema", "outputSchema"})
"""Names of secrets in a schema are names of fields, with no values."""
_KNOWN_FORMS: Final = re.compile(
    r"\b(?:AIza[\w-]{20,}|sk-[\w-]{16,}|[sr]k_(?:live|test)_\w{16,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}"
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|npm_\w{30,}|hf_\w{30,}"
    r"|A[KS]IA[0-9A-Z]{16}|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]+)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}|(?<=uthorization: Basic )[\w+/=-]{4,}|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
"""Texts that look like well-known keys."""
_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
_SECRET_WORDS: Final = frozenset(
    {"password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "credential", "credentials"}
    | {"authorization", "cookie", "cookies", "apikey", "jwt", "bearer"}
)
_SECRET_PAIRS: Final = frozenset(
    {("api", "key"), ("private", "key"), ("access", "key"), ("signing", "key"), ("secret", "key")}
)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAMES: Final = (
    r"api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|access[_-]?token|refresh[_-]?token|auth[_-]?token"
    r"|id[_-]?token|client[_-]?secret|secret|password|passwd|passphrase|authorization"
)
_ASSIGNED: Final = re.compile(
    rf"""(?:(?:{_NAMES}|token(?=\\*["']))\\*["']?\s*(?:=|:(?=\s*\\*["']))\s*"""
    r"""|--(?:[a-z]+-){0,3}(?:password|passphrase|token|secret|key)(?:=|\ +)"""
    r"""|[?&;][\w.-]{0,40}(?:token|key|secret|sig(?:nature)?)=)"""
    r"""(?:\\*(?P<quote>["'])(?P<quoted>(?:(?!\\{0,8}(?P=quote))[^\n])+)|(?P<bare>[^\s"',;&}<>\\]{4,}))""",
    re.IGNORECASE,
)
"""A value behind a name, in a text: as in code, in a file of settings, in JSON, on a command line, in an address."""


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without the values of secret-looking environment variables and without well-known forms of keys."""
    known = known_texts(frozenset(environment_secrets(os.environ if environ is None else environ)))
    return without_secrets(text, known, MASK, assigned=False)


def without_secrets(text: str, known: KnownTexts, mask: str, *, assigned: bool = True) -> str:
    """``text`` with ``mask`` in the place of what ``known`` finds and of well-known forms of keys.

    ``assigned``: and of what stands behind a name for a secret; it hides some values that are none.
    """
    text = known.sub(mask, text)
    text = _KNOWN_FORMS.sub(lambda _: mask, text)
    return _ASSIGNED.sub(lambda found: _masked_value(found, mask), text) if assigned else text


def _masked_value(found: re.Match[str], mask: str) -> str:
    start, end = found.span("bare" if found["quoted"] is None else "quoted")
    whole = found.group()
    return whole[: start - found.start()] + mask + whole[end - found.start() :]


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
        known = {one for one in known if len(one) >= SHORTEST and one != REDACTED}
        self._known = known_texts(frozenset(known))

    def text(self, text: str) -> str:
        """The text without secrets."""
        if len(text) < SHORTEST:  # no form of a secret is that short
            return text
        return without_secrets(text, self._known, MASK)

    def json(self, value: Any) -> Any:
        """The JSON without secrets."""
        return self._walk(value, by_name=True)

    def _walk(self, value: Any, *, by_name: bool) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            named = secrets_named(value) if by_name else ()
            return {
                self.text(str(name)): leaves(item, MASK)
                if name in named
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


def taken_out(before: Any, after: Any) -> Iterator[str]:
    """The texts in ``before`` of which nothing is left in ``after``, which is ``before`` redacted."""
    if before == after:
        return
    if isinstance(before, str):
        if after == REDACTED or not isinstance(after, str):
            yield before
    elif isinstance(before, Mapping):
        for name, item in before.items():
            yield from taken_out(item, after.get(name, item) if isinstance(after, Mapping) else None)
    elif isinstance(before, (list, tuple)):
        kept = after if isinstance(after, (list, tuple)) else [None] * len(before)
        for item, other in zip(before, kept, strict=False):
            yield from taken_out(item, other)


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables that are named like secrets."""
    for name, secret in environ.items():
        if len(secret) >= SHORTEST and _VARIABLE.search(name):
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


def secrets_named(value: Mapping[str, Any], is_secret: Callable[[str], bool] = names_a_secret) -> frozenset[str]:
    """Under which names of ``value`` secrets stand; of a pair such as ``{"name": "API_KEY", "value": …}`` it is one."""
    found = {name for name in value if is_secret(name)}
    said = value.get("name", value.get("key"))
    if "value" in value and isinstance(said, str) and is_secret(said):
        found.add("value")
    return frozenset(found)


def _named(value: Any) -> Iterator[str]:
    """The texts that stand under a name for a secret."""
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        item, is_secret = waiting.pop()
        if isinstance(item, Mapping):
            named = secrets_named(item)
            for name, inner in item.items():
                if name not in SCHEMAS:
                    waiting.append((inner, is_secret or name in named))
        elif isinstance(item, (list, tuple)):
            waiting.extend((inner, is_secret) for inner in item)
        elif isinstance(item, str) and is_secret:
            yield item
