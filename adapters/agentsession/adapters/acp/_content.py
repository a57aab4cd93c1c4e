"""Content of ACP as content of ours, and back. What is not known is kept.

Not for: events. Rules carried: WIRE-01 (unknown content survives). May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentsession.protocol import ContentPart, Diff, InvalidInput, Media, Reference, Terminal, Text, UnknownPart

__all__ = ["part_of", "prompt_blocks", "tool_parts"]


def part_of(block: Any) -> ContentPart:
    """A content block as a part."""
    if not isinstance(block, dict):
        return UnknownPart.model_validate({"type": "acp:unknown", "block": block})
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and isinstance(text, str):
        return Text(text=text)
    mime, data, uri = block.get("mimeType"), block.get("data"), block.get("uri")
    if kind in ("image", "audio") and isinstance(mime, str) and isinstance(data, str):
        return Media(mime_type=mime, data=data, uri=uri if isinstance(uri, str) else None)
    if kind == "resource_link" and isinstance(uri, str):
        name = block.get("title") or block.get("name")
        return Reference(
            uri=uri, title=name if isinstance(name, str) else None, mime_type=mime if isinstance(mime, str) else None
        )
    return UnknownPart.model_validate(
        {"type": f"acp:{kind}" if isinstance(kind, str) else "acp:unknown", "block": block}
    )


def tool_parts(items: Any) -> list[ContentPart]:
    """The content of a tool call: blocks, diffs, terminals."""
    parts: list[ContentPart] = []
    for item in items if isinstance(items, list) else ():
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "content":
            parts.append(part_of(item.get("content")))
        elif kind == "diff" and isinstance(item.get("path"), str) and isinstance(item.get("newText"), str):
            old = item.get("oldText")
            parts.append(
                Diff(path=item["path"], old_text=old if isinstance(old, str) else None, new_text=item["newText"])
            )
        elif kind == "terminal" and isinstance(item.get("terminalId"), str):
            parts.append(Terminal(terminal_id=item["terminalId"]))
        else:
            parts.append(part_of(item))
    return parts


def prompt_blocks(content: Iterable[ContentPart], accepts: frozenset[str]) -> list[dict[str, Any]]:
    """What the user said as the blocks of a prompt. ``accepts``: ``image`` and ``audio`` where the agent takes them.

    Raises :class:`InvalidInput` for a part that ACP has no block for, or that the agent does not take.
    """
    return [_block(part, accepts) for part in content]


def _block(part: ContentPart, accepts: frozenset[str]) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reference(uri=uri):
            link: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": part.title or uri}
            return link if part.mime_type is None else {**link, "mimeType": part.mime_type}
        case Media(mime_type=mime, data=str(data)) if mime.split("/")[0] in accepts:
            return {"type": mime.split("/")[0], "mimeType": mime, "data": data}
        case _:
            raise InvalidInput(
                f"this ACP agent takes no {part.type} content in a message",
                got=getattr(part, "mime_type", part.type),
                expected=", ".join(["text", "reference", *sorted(accepts)]),
            )
