"""Content parts: what a message, a tool's result or an update is made of.

Not for: converting a provider's parts (adapters do that). Rules carried: WIRE-01, WIRE-02.
May import: ``_base``, ``_errors``.

The set is open. A part whose ``type`` is not one of :data:`CONTENT_TYPES` is an :class:`UnknownPart` and is kept as it
came; a part of a known type with a malformed payload is invalid, never "unknown".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag, field_validator

from agentsession.protocol._base import Id, Int, Json, JsonFieldsModel, JsonObject, Model, Str, optional
from agentsession.protocol._errors import InvalidInput

__all__ = [
    "CONTENT_CLASSES",
    "CONTENT_TYPES",
    "Code",
    "CodeResult",
    "Content",
    "ContentPart",
    "Diff",
    "FunctionCall",
    "FunctionResponse",
    "Media",
    "Reference",
    "Refusal",
    "Terminal",
    "Text",
    "Thought",
    "UnknownPart",
    "as_content",
    "merge_parts",
    "plain_text",
    "text_by_type",
]


class Text(Model):
    """What the user or the agent says."""

    type: Literal["text"] = "text"
    text: Str
    signature: Str | None = optional()
    """Opaque provider signature (base64) that must come back unchanged on later calls."""


class Thought(Model):
    """Reasoning, to be shown apart from the answer or not at all."""

    type: Literal["thought"] = "thought"
    text: Str
    signature: Str | None = optional()
    """Opaque provider signature (base64). When parts merge, the last one wins."""


class Media(Model):
    """An image, sound, film or file: inline ``data`` (base64) or a ``uri``, with its MIME type."""

    type: Literal["media"] = "media"
    mime_type: Str
    data: Str | None = optional()
    uri: Str | None = optional()
    name: Str | None = optional()


class Reference(Model):
    """A pointer to something the reader can open: a file, a page, a resource."""

    type: Literal["reference"] = "reference"
    uri: Str
    title: Str | None = optional()
    mime_type: Str | None = optional()


class Refusal(Model):
    """The model or provider declined, with what it said."""

    type: Literal["refusal"] = "refusal"
    text: Str


class Code(Model):
    """Code that the model wrote to be executed."""

    type: Literal["code"] = "code"
    code: Str
    language: Str | None = optional()


class CodeResult(Model):
    """What executed code printed, and how it ended."""

    type: Literal["code_result"] = "code_result"
    output: Str
    outcome: Str | None = optional()


class FunctionCall(Model):
    """A provider's raw call inside a message; a call the host should see is a ``tool_request`` event instead."""

    type: Literal["function_call"] = "function_call"
    id: Str | None = optional()
    name: Str
    args: JsonObject | None = optional()


class FunctionResponse(JsonFieldsModel):
    """A provider's raw result inside a message; a result the host should see is a ``tool_response`` event instead."""

    type: Literal["function_response"] = "function_response"
    id: Str | None = optional()
    name: Str
    response: Json = None


class Diff(Model):
    """A change to one file: old and new text, or a unified ``patch``."""

    type: Literal["diff"] = "diff"
    path: Str
    old_text: Str | None = optional()
    new_text: Str | None = optional()
    patch: Str | None = optional()


class Terminal(Model):
    """A command's terminal: its output so far, or the id of a live terminal the client owns."""

    type: Literal["terminal"] = "terminal"
    terminal_id: Str | None = optional()
    command: Str | None = optional()
    output: Str | None = optional()
    exit_code: Int | None = optional()


CONTENT_CLASSES: Final[Mapping[str, type[Model]]] = {
    "text": Text,
    "thought": Thought,
    "media": Media,
    "reference": Reference,
    "refusal": Refusal,
    "code": Code,
    "code_result": CodeResult,
    "function_call": FunctionCall,
    "function_response": FunctionResponse,
    "diff": Diff,
    "terminal": Terminal,
}
"""The class of each content type that this version knows."""

CONTENT_TYPES: Final = frozenset(CONTENT_CLASSES)
"""The content types that this version knows; others are kept as :class:`UnknownPart`."""


class UnknownPart(Model):
    """A part of a type that this version does not know, kept unchanged."""

    type: Id

    @field_validator("type")
    @classmethod
    def _not_known(cls, value: str) -> str:
        if value in CONTENT_TYPES:
            raise ValueError(f"{value!r} is a known content type; use its own class")
        return value


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) and kind in CONTENT_TYPES else "?"


ContentPart = Annotated[
    Annotated[Text, Tag("text")]
    | Annotated[Thought, Tag("thought")]
    | Annotated[Media, Tag("media")]
    | Annotated[Reference, Tag("reference")]
    | Annotated[Refusal, Tag("refusal")]
    | Annotated[Code, Tag("code")]
    | Annotated[CodeResult, Tag("code_result")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionResponse, Tag("function_response")]
    | Annotated[Diff, Tag("diff")]
    | Annotated[Terminal, Tag("terminal")]
    | Annotated[UnknownPart, Tag("?")],
    Discriminator(_tag),
]
"""One content part, known or not."""

Content = str | ContentPart | Sequence[ContentPart]
"""What calls that take content accept: text, one part, or parts."""


def as_content(content: Content | None) -> list[ContentPart]:
    """Normalise text, a part or parts to a list of parts; empty text and ``None`` become an empty list.

    Raises :class:`InvalidInput` for what is neither.
    """
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    if isinstance(content, Model):
        return [content]
    given: Any = content
    if isinstance(given, (bytes, bytearray, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput("content of the wrong type", got=type(given).__name__, expected="text, a part, or parts")
    return list(given)


def merge_parts(parts: Iterable[ContentPart]) -> list[ContentPart]:
    """Join adjacent text or thought parts: only neighbours of one type merge, and the last signature wins."""
    runs: list[list[ContentPart]] = []
    for part in parts:
        if runs and isinstance(part, (Text, Thought)) and runs[-1][-1].type == part.type:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [_join(run) if len(run) > 1 else run[0] for run in runs]


def _join(run: Sequence[ContentPart]) -> ContentPart:
    texts = [part for part in run if isinstance(part, (Text, Thought))]
    signature = next((part.signature for part in reversed(texts) if part.signature), None)
    extra: dict[str, Any] = {}
    for part in texts:
        extra.update(part.model_extra or {})
    whole = "".join(part.text for part in texts)
    return type(texts[0])(text=whole, signature=signature, **extra)


def text_by_type(parts: Iterable[ContentPart]) -> dict[str, str]:
    """The text of each type of text-carrying part, joined: what rule LIFE-14 compares between deltas and closing."""
    found: dict[str, list[str]] = {}
    for part in parts:
        if isinstance(part, (Text, Thought)):
            found.setdefault(part.type, []).append(part.text)
    return {kind: text for kind, texts in found.items() if (text := "".join(texts))}


def plain_text(parts: Iterable[ContentPart]) -> str:
    """The text parts, joined; thoughts, media and the rest left out."""
    return "".join(part.text for part in parts if isinstance(part, Text))
