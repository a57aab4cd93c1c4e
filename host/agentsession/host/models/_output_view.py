"""How much of tool outputs a model is shown: which are shortened, which are masked, and what stands in their place.

Pure. Not for: keeping the whole outputs (``_output_files.py``). Rules carried: none of its own. May import:
``protocol``.

*Shortened*: an output that is too long alone; its head and its tail are shown. *Masked*: an old one, once all outputs
together are too many; its first and last words are shown. What is masked follows from sizes and places alone, never
from what a text says, and is found anew for each request: so it is the same after a restart, and a rewind undoes it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentsession.protocol import FunctionResponse, ModelContent

__all__ = ["Limits", "Output", "estimate_tokens", "masked", "outputs_of", "preview", "shortened", "shown_as"]

Estimate = Callable[[str], int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a model is shown less. Lengths in characters, ``tokens`` as estimated."""

    longest: int = 40_000
    """A longer output is shortened to this."""
    head: float = 0.2
    """The share of that which is its beginning; the rest is its end."""
    kept_tokens: int = 50_000
    """The newest outputs, up to this, are never masked."""
    least_tokens: int = 30_000
    """Nothing is masked until so much beyond them can be: each time changes what the provider has cached."""
    preview: int = 250
    """Of a masked output: how much of its beginning and of its end is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """One tool output in a request."""

    place: tuple[int, int]
    """Content and part."""
    part: FunctionResponse
    text: str
    """All of it; JSON where it is not one text."""

    @property
    def request_id(self) -> str:
        return self.part.id or self.part.name


def estimate_tokens(text: str) -> int:
    """Roughly how many tokens a text is: a quarter for an ASCII character, 1.3 for another."""
    if text.isascii():
        return len(text) // 4
    plain = sum(character < "\x80" for character in text)
    return int(plain * 0.25 + (len(text) - plain) * 1.3)


def outputs_of(contents: Sequence[ModelContent]) -> Iterator[Output]:
    """The tool outputs of a request, oldest first."""
    for index, content in enumerate(contents):
        for number, part in enumerate(content.content):
            if isinstance(part, FunctionResponse):
                yield Output((index, number), part, _text_of(part.response))


def masked(outputs: Sequence[tuple[int, int]], limits: Limits) -> set[int]:
    """Which outputs are masked, by their place in ``outputs``: each the content it is in, and its estimated tokens.

    What was masked for an earlier request stays so: the requests before this one are gone through in their order.
    """
    hidden: set[int] = set()
    total, start = 0, 0
    for end in range(1, len(outputs) + 1):
        total += outputs[end - 1][1]
        if end < len(outputs) and outputs[end][0] == outputs[end - 1][0]:
            continue  # results of one step reach the model together
        if total < limits.kept_tokens + limits.least_tokens:
            continue
        newest, beyond = 0, list[int]()
        for index in range(end - 1, start - 1, -1):
            if index in hidden:
                continue
            newest += outputs[index][1]
            if newest > limits.kept_tokens and outputs[index][0] != outputs[end - 1][0]:
                beyond.append(index)
        size = sum(outputs[index][1] for index in beyond)
        if size >= limits.least_tokens:
            hidden.update(beyond)
            total -= size
            start = beyond[0] + 1  # everything before is hidden
    return hidden


def shortened(text: str, limits: Limits, pointer: str) -> str:
    """The beginning and the end of a long text, with the pointer between them."""
    head = int(limits.longest * limits.head)
    return _around(text, head, limits.longest - head, pointer)


def preview(text: str, limits: Limits, pointer: str) -> str:
    """The first and last words of a masked text, with the pointer between them."""
    return _around(text, limits.preview, limits.preview, pointer)


def _around(text: str, head: int, tail: int, pointer: str) -> str:
    return f"{text[:head]}\n\n{pointer}\n\n{text[len(text) - tail :]}"


def shown_as(part: FunctionResponse, text: str) -> FunctionResponse:
    """The same result with another text: under the key that it had, or ``output``."""
    key = _only_text(part.response)
    return part.model_copy(update={"response": {key or "output": text}})


def _text_of(response: Any) -> str:
    key = _only_text(response)
    if key is not None:
        return str(response[key])
    return json.dumps(response, ensure_ascii=False, indent=1) if response is not None else ""


def _only_text(response: Any) -> str | None:
    """The key of a response that is one text."""
    if not isinstance(response, dict) or len(response) != 1:
        return None
    ((key, value),) = response.items()
    return key if isinstance(value, str) else None
