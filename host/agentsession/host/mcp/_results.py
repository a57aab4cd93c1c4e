"""What a server says, as the host's own: its tools as descriptors, its results as outcomes.

Not for: talking to it (``_connection.py``). Rules carried: TOOL-13, SEC-01. May import: ``_outcome``, ``protocol``.

Everything here is JSON as it is on the wire, in camelCase, so that nothing depends on a version of the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from agentsession.host._outcome import ToolOutcome
from agentsession.protocol import (
    ConfigurationError,
    ContentPart,
    Media,
    Reference,
    Text,
    ToolAnnotations,
    ToolDescriptor,
)

__all__ = ["as_descriptor", "as_outcome"]

_UNKNOWN_MIME: Final = "application/octet-stream"
_HINTS: Final = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


def as_descriptor(tool: Mapping[str, Any]) -> ToolDescriptor:
    """One entry of ``tools/list``.

    Raises pydantic's error for what is none, and :class:`ConfigurationError` for a tool that runs as a task alone.
    """
    if _mapping(tool.get("execution")).get("taskSupport") == "required":
        # Experimental in one version of the protocol and gone from the next; each plain call would be refused.
        raise ConfigurationError("its server runs it as a task alone, which is not spoken here")
    claims = _mapping(tool.get("annotations"))
    marks = {ours: claims[theirs] for theirs, ours in _HINTS.items() if isinstance(claims.get(theirs), bool)}
    return ToolDescriptor(
        name=tool["name"],
        display_name=tool.get("title") or claims.get("title"),
        description=tool.get("description"),
        parameters_schema=tool.get("inputSchema"),
        output_schema=tool.get("outputSchema"),
        annotations=ToolAnnotations.model_validate(marks) if marks else None,
        owner="host",
    )


def as_outcome(result: Mapping[str, Any]) -> ToolOutcome:
    """A ``CallToolResult``: structured content is the data; what only repeats it as text is left out."""
    parts = [_part(block) for block in result.get("content") or [] if isinstance(block, Mapping)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    only_text = len(texts) == len(parts)
    if result.get("isError") is True:
        failed = ToolOutcome.failure("tool_failed", "\n".join(texts) or "the tool failed and did not say why")
        return failed if only_text else ToolOutcome(data=failed.data, content=parts, is_error=True)
    if "structuredContent" in result and result["structuredContent"] is not None:
        data = result["structuredContent"]
        content = [part for part in parts if not (isinstance(part, Text) and _repeats(part.text, data))]
        return ToolOutcome(data=data, content=content)
    if only_text:
        return ToolOutcome(data="\n".join(texts) if texts else None)
    return ToolOutcome(content=parts)


def _repeats(text: str, data: Any) -> bool:
    """Whether a text is the structured content once more: as JSON, or as the one value that the SDK wraps."""
    values = [data]
    if isinstance(data, dict) and set(data) == {"result"}:
        values.append(data["result"])
    if text in values:
        return True
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):  # a text of a hundred thousand brackets is a text
        return False
    return any(read == value for value in values)


def _part(block: Mapping[str, Any]) -> ContentPart:
    """One block of content; one that is of no known form is told as the JSON that it is."""
    kind = block.get("type")
    if kind == "text":
        return Text(text=str(block.get("text")))
    if kind in ("image", "audio") and isinstance(block.get("data"), str):
        return Media(mime_type=str(block.get("mimeType") or _UNKNOWN_MIME), data=block["data"])
    if kind == "resource_link" and isinstance(block.get("uri"), str):
        return Reference(
            uri=block["uri"], title=block.get("title") or block.get("name"), mime_type=block.get("mimeType")
        )
    resource = _mapping(block.get("resource"))
    if kind == "resource" and isinstance(resource.get("text"), str):
        return Text(text=resource["text"])
    if kind == "resource" and isinstance(resource.get("blob"), str):
        mime = str(resource.get("mimeType") or _UNKNOWN_MIME)
        return Media(mime_type=mime, data=resource["blob"], uri=resource.get("uri"))
    return Text(text=json.dumps(dict(block), ensure_ascii=False))


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
