"""AG-UI content as our parts and back to one number: how a message that is sent again is known to be the same.

Not for: which messages run (``_in_new.py``). Rules carried: none of its own. May import: ``ag_ui``, ``protocol``.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from ag_ui.core import ContentPart as AgPart
from ag_ui.core import ImagePart, TextPart
from pydantic import TypeAdapter, ValidationError

from agentsession.protocol import ContentPart, Media, Text, dumps, repair_text

__all__ = ["fingerprint", "parts_of", "raw_fingerprint"]

_ANY: Final[Mapping[str, str]] = {
    "image": "image/*",
    "audio": "audio/*",
    "video": "video/*",
    "document": "application/octet-stream",
}
_PARTS: Final[TypeAdapter[list[AgPart]]] = TypeAdapter(list[AgPart])


def parts_of(content: str | Sequence[AgPart]) -> list[ContentPart]:
    """The content of a user or tool message as parts; media keep their bytes, address or handle."""
    if isinstance(content, str):
        return [Text(text=content)] if content else []
    return [_part(part) for part in content]


def _part(part: AgPart) -> ContentPart:
    if isinstance(part, TextPart):
        return Text(text=part.text)
    source = cast("ImagePart", part).source  # the media parts differ only in their type
    kind = source.mime_type or (mimetypes.guess_type(source.value)[0] if source.type == "url" else None)
    mime_type = kind or _ANY[part.type]
    if source.type == "data":
        return Media(mime_type=mime_type, data=source.value)
    if source.type == "file" and source.provider:
        return Media.model_validate({"mimeType": mime_type, "uri": source.value, "provider": source.provider})
    return Media(mime_type=mime_type, uri=source.value)


def fingerprint(parts: Iterable[ContentPart]) -> int:
    """A number that is the same, in this process, for parts that say the same. Texts side by side count as one."""
    said: list[str] = []
    others: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            said.append(part.text)
        elif isinstance(part, Media):
            others.append(f"{part.mime_type}\n{part.data or ''}\n{part.uri or ''}")
        else:
            others.append(dumps(part.to_wire()))
    text = "".join(said)
    return hash((text, *others)) if others else hash(text)


def raw_fingerprint(content: Any) -> int | None:
    """That of a message in the history, as it came; ``None`` for what cannot be read, which is no message of ours."""
    if type(content) is str:
        return hash(content if content.isascii() else repair_text(content))
    if not isinstance(content, list):
        return None
    try:
        return fingerprint(parts_of(_PARTS.validate_python(content, strict=True)))
    except ValidationError:
        return None
