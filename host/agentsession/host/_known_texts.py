"""Finding secrets that are known in a text, also as they stand in JSON, in an address or in Base64.

Not for: what a secret is (``_masking.py``). Rules carried: SEC-01 as far as showing goes. May import: the standard
library.

A record can name thousands of them (each page's token is one), and the search must not take longer for it: from some
number on, places are looked up by what begins there.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["SHORTEST", "KnownTexts", "known_texts"]

SHORTEST: Final = 8
"""A shorter text is masked where it stands, but not looked for elsewhere: masking it would hide more than a secret."""
_FEW: Final = 40
"""So many forms are found faster by a regular expression."""


class KnownTexts:
    """Made by :func:`known_texts`; falsy where there is nothing to find."""

    def __init__(self, texts: Iterable[str]) -> None:
        # The longest first: one may begin with another, and the rest of the longer must not stay.
        forms = sorted({form for text in texts for form in _forms(text)}, key=len, reverse=True)
        begins: dict[str, list[str]] = {}
        if len(forms) > _FEW:
            for form in forms:
                if len(form) >= SHORTEST:
                    begins.setdefault(form[:SHORTEST], []).append(form)
            forms = [form for form in forms if len(form) < SHORTEST]
        self._begins: Mapping[str, list[str]] = begins
        self._either = re.compile("|".join(map(re.escape, forms))) if forms else None

    def __bool__(self) -> bool:
        return bool(self._begins) or self._either is not None

    def sub(self, mask: str, text: str) -> str:
        """``text`` with ``mask`` in the place of each of them."""
        if self._begins:
            text = self._looked_up(mask, text)
        return text if self._either is None else self._either.sub(lambda _: mask, text)

    def _looked_up(self, mask: str, text: str) -> str:
        begins, out, done, at = self._begins, list[str](), 0, 0
        last = len(text) - SHORTEST
        while at <= last:
            found = begins.get(text[at : at + SHORTEST])
            form = next((one for one in found if text.startswith(one, at)), None) if found is not None else None
            if form is None:
                at += 1
                continue
            out += (text[done:at], mask)
            done = at = at + len(form)
        return "".join(out) + text[done:]


@functools.lru_cache(16)
def known_texts(texts: frozenset[str]) -> KnownTexts:
    """What finds these texts."""
    return KnownTexts(texts)


def _forms(text: str) -> Iterator[str]:
    """How it may stand in a text."""
    yield text
    if len(text) < SHORTEST:
        return
    yield from (json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    raw = text.encode("utf-8", "replace")
    yield from (quote(raw, safe=""), quote_plus(raw))
    for before in range(3):  # what stands before it decides on its first signs, and what follows on its last
        whole = base64.b64encode(bytes(before) + raw).decode()
        inner = whole[(0, 2, 3)[before] : len(whole) - (0, 3, 2)[(before + len(raw)) % 3]]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))
