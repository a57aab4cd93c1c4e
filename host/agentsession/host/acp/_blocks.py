"""ACP's content blocks and our content parts, both ways.

Not for: updates (``_updates.py``). Rules carried: none of the contract. May import: ``acp.schema``, ``protocol``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from acp import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    ResourceContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    TextResourceContents,
)

from agentsession.protocol import (
    Code,
    CodeResult,
    ContentPart,
    Diff,
    Media,
    Reference,
    Refusal,
    Terminal,
    Text,
    Thought,
)

__all__ = ["Block", "ToolContent", "absolute", "block_of", "data_content", "read_blocks", "tool_content"]

Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
ToolContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


def read_blocks(blocks: Sequence[Any], *, takes_media: bool) -> list[ContentPart]:
    """A prompt's blocks as parts. Raises :class:`RequestError` (-32602) for an empty prompt and undeclared blocks.

    An embedded resource is a reference, and what it holds: text as text, a blob as media.
    """
    parts: list[ContentPart] = []
    for block in blocks:
        if isinstance(block, TextContentBlock):
            if block.text:
                parts.append(Text(text=block.text))
        elif isinstance(block, (ImageContentBlock, AudioContentBlock)):
            if not takes_media:
                raise _undeclared(block.type)
            uri = block.uri if isinstance(block, ImageContentBlock) else None
            parts.append(Media(mime_type=block.mime_type, data=block.data, uri=uri))
        elif isinstance(block, ResourceContentBlock):
            parts.append(Reference(uri=block.uri, title=block.title or block.name, mime_type=block.mime_type))
        elif isinstance(block, EmbeddedResourceContentBlock):
            parts += _resource(block.resource, takes_media=takes_media)
        else:
            raise _undeclared(str(getattr(block, "type", "unknown")))
    if not parts:
        raise RequestError(-32602, "the prompt is empty")
    return parts


def _resource(resource: TextResourceContents | BlobResourceContents, *, takes_media: bool) -> list[ContentPart]:
    reference = Reference(uri=resource.uri, mime_type=resource.mime_type)
    if isinstance(resource, TextResourceContents):
        return [reference, Text(text=resource.text)] if resource.text else [reference]
    if not takes_media:
        raise _undeclared("resource with a blob")
    mime = resource.mime_type or "application/octet-stream"
    return [reference, Media(mime_type=mime, data=resource.blob, uri=resource.uri)]


def _undeclared(kind: str) -> RequestError:
    return RequestError(-32602, f"this agent does not take {kind[:40]} blocks", {"code": "block_undeclared"})


def block_of(part: ContentPart) -> Block | None:
    """A part as a block of a message or a result; ``None`` for what has none."""
    if isinstance(part, (Text, Thought, Refusal)):
        return TextContentBlock(type="text", text=part.text) if part.text else None
    if isinstance(part, Media):
        return _media(part)
    if isinstance(part, Reference):
        return ResourceContentBlock(
            type="resource_link", uri=part.uri, name=part.title or part.uri, mime_type=part.mime_type
        )
    if isinstance(part, Code):
        return TextContentBlock(type="text", text=f"```{part.language or ''}\n{part.code}\n```")
    if isinstance(part, CodeResult):
        return TextContentBlock(type="text", text=f"```\n{part.output}\n```")
    return None


def _media(part: Media) -> Block | None:
    if part.data is not None and part.mime_type.startswith("image/"):
        return ImageContentBlock(type="image", data=part.data, mime_type=part.mime_type, uri=part.uri)
    if part.data is not None and part.mime_type.startswith("audio/"):
        return AudioContentBlock(type="audio", data=part.data, mime_type=part.mime_type)
    if part.uri is None:
        return None
    return ResourceContentBlock(
        type="resource_link", uri=part.uri, name=part.name or part.uri, mime_type=part.mime_type
    )


def tool_content(
    parts: Iterable[ContentPart], *, cwd: str | None, terminals: frozenset[str] | set[str] = frozenset()
) -> list[ToolContent]:
    """A call's content. A diff needs an absolute path and its new text; a terminal must be one that the client made."""
    out: list[ToolContent] = []
    for part in parts:
        if isinstance(part, Diff):
            path = absolute(part.path, cwd)
            if part.new_text is not None and path is not None:
                out.append(
                    FileEditToolCallContent(type="diff", path=path, old_text=part.old_text, new_text=part.new_text)
                )
            elif part.patch is not None:
                out.append(_text(f"```diff\n{part.patch}\n```"))
        elif isinstance(part, Terminal):
            if part.terminal_id is not None and part.terminal_id in terminals:
                out.append(TerminalToolCallContent(type="terminal", terminal_id=part.terminal_id))
            elif part.output:
                out.append(_text(f"```\n{part.output}\n```"))
        else:
            block = block_of(part)
            if block is not None:
                out.append(ContentToolCallContent(type="content", content=block))
    return out


def data_content(data: Any) -> list[ToolContent]:
    """What a tool returned, as text, where it gave nothing for people."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return [_text(text)] if text else []


def _text(text: str) -> ToolContent:
    return ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))


def absolute(path: str, cwd: str | None) -> str | None:
    """``path``, from ``cwd`` where it is relative; ``None`` where nobody knows."""
    if not path or "\0" in path:
        return None
    if os.path.isabs(path):
        return path
    return os.path.normpath(os.path.join(cwd, path)) if cwd is not None else None
