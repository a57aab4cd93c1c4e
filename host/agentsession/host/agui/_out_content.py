"""Content parts as AG-UI says them: the content of a result or of a user's message, and what stands for other parts.

Not for: streaming (``_out_text.py``). Pure. Rules carried: none of the contract's.
May import: ``protocol``, ``_out_wire``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Code, CodeResult, ContentPart, Media, Refusal, Text, Thought, ToolResponse, dumps

__all__ = ["as_content", "is_side_part", "result_content", "side_part"]

_WHY: Final = {
    "failed": "The tool failed.",
    "denied": "The call was denied.",
    "cancelled": "The call was cancelled.",
    "unknown": "The call had started and was cut off: what it did is not known.",
}
_MEDIA: Final = frozenset({"image", "audio", "video"})
_IN_TEXT: Final = frozenset({"text", "thought", "refusal", "function_call", "function_response"})


def is_side_part(part: ContentPart) -> bool:
    """Whether a part of a message is shown beside its text: not what streams as text, nor a provider's raw call."""
    return part.type not in _IN_TEXT


def side_part(part: ContentPart) -> Wire:
    """The content of the activity that shows such a part."""
    content = part.to_wire()
    content.pop("type", None)
    return content


def as_content(parts: Sequence[ContentPart]) -> str | list[Wire]:
    """The content of a user's message: one text, or parts where there is media."""
    shown = [part for part in parts if not isinstance(part, Thought)]
    if any(_source(part) is not None for part in shown):
        return [_part(part) for part in shown]
    return "".join(_text(part) for part in shown)


def result_content(response: ToolResponse) -> str | list[Wire]:
    """The content of a result: what the tool said, else its data as JSON, else why there is none."""
    if response.content:
        content = as_content(response.content)
        if content:
            return content
    if response.data is not None:
        return response.data if isinstance(response.data, str) else dumps(response.data)
    return _WHY.get(response.status, "The tool failed." if response.is_error else "")


def _text(part: ContentPart) -> str:
    if isinstance(part, (Text, Refusal)):
        return part.text
    if isinstance(part, Code):
        return part.code
    if isinstance(part, CodeResult):
        return part.output
    return dumps(part.to_wire())


def _part(part: ContentPart) -> Wire:
    source = _source(part)
    if source is None:
        return {"type": "text", "text": _text(part)}
    family = source["mimeType"].partition("/")[0]
    return {"type": family if family in _MEDIA else "document", "source": source}


def _source(part: ContentPart) -> dict[str, Any] | None:
    """Where the bytes of a media part are; ``None`` for any other, and for one that has none."""
    if not isinstance(part, Media):
        return None
    if part.data is not None:
        return {"type": "data", "value": part.data, "mimeType": part.mime_type}
    if part.uri is None:
        return None
    provider = (part.model_extra or {}).get("provider")
    if isinstance(provider, str):
        return {"type": "file", "value": part.uri, "provider": provider, "mimeType": part.mime_type}
    return {"type": "url", "value": part.uri, "mimeType": part.mime_type}
