"""Results of MCP tools: the files in them as content, and ADK's own words about a server that failed left out.

Not for: calling a server (ADK does), or whether a result is a failure (``_requests.is_failure``).
Rules carried: TOOL-13, SEC-01. May import: ``_values``, google.adk, protocol.

ADK hands an MCP result to the model as an object whose ``content`` is a list of MCP's blocks. A host that shows results
would have to know MCP to find an image in it. MCP is optional, so nothing of it is imported: its blocks are told by
their shape, in stored sessions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.adk.tools.base_tool import BaseTool

from agentsession.adapters.adk._values import is_list, is_mapping
from agentsession.protocol import ContentPart, Media, Reference, Text

__all__ = ["files_of", "without_exception"]

_UNKNOWN_MIME: Final = "application/octet-stream"
_EXCEPTION: Final = "Unexpected error during MCP tool execution: "
"""How ADK begins the result that it makes of any exception but a server's answer; the exception's text follows."""


def files_of(result: object) -> list[ContentPart]:
    """The blocks of an MCP result, where one of them is more than text; else nothing, for the data says it all."""
    blocks = result.get("content") if is_mapping(result) else None
    if not is_list(blocks) or all(is_mapping(block) and block.get("type") == "text" for block in blocks):
        return []
    parts = [_part(block) if is_mapping(block) else None for block in blocks]
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else []  # somebody else's "content"


def without_exception(tool: BaseTool, result: object) -> str | None:
    """What the model reads instead of a result that holds the text of an exception, which may be a URL with a key."""
    if "McpTool" not in {kind.__name__ for kind in type(tool).__mro__} or not is_mapping(result):
        return None
    error = result.get("error")
    if not isinstance(error, str) or not error.startswith(_EXCEPTION):
        return None
    return f"{tool.name} failed: its MCP server could not be used"


def _part(block: Mapping[str, Any]) -> ContentPart | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return Text(text=text) if isinstance(text, str) else None
    if kind in ("image", "audio"):
        data, mime = block.get("data"), block.get("mimeType")
        return Media(mime_type=mime, data=data) if isinstance(data, str) and isinstance(mime, str) else None
    if kind == "resource_link":
        return _link(block)
    resource = block.get("resource")
    return _resource(resource) if kind == "resource" and is_mapping(resource) else None


def _resource(resource: Mapping[str, Any]) -> ContentPart | None:
    uri, text, blob = resource.get("uri"), resource.get("text"), resource.get("blob")
    if not isinstance(uri, str):
        return None
    if isinstance(text, str):
        return Text(text=text)
    if not isinstance(blob, str):
        return None
    return Media(mime_type=_mime(resource) or _UNKNOWN_MIME, data=blob, uri=uri)


def _link(block: Mapping[str, Any]) -> ContentPart | None:
    uri, title = block.get("uri"), block.get("title", block.get("name"))
    if not isinstance(uri, str):
        return None
    return Reference(uri=uri, title=title if isinstance(title, str) else None, mime_type=_mime(block))


def _mime(block: Mapping[str, Any]) -> str | None:
    mime = block.get("mimeType")
    return mime if isinstance(mime, str) else None
