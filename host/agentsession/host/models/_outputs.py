"""Keeping a model's requests small: long tool outputs are shortened, old ones masked, and all of them kept in files.

Not for: what is shown of an output (``_output_view.py``), or the files (``_output_files.py``).
Rules carried: none of its own. May import: anyio, ``_tools``, ``_toolcontext``, ``protocol``, the modules beside it.

A view only: the hook changes one request, never the record or the executor's own history. What cannot be kept in a
file is shown whole, however long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import anyio.to_thread

from agentsession.host._outcome import ToolError
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool, tool
from agentsession.host.models._output_files import OutputFiles
from agentsession.host.models._output_view import (
    Limits,
    Output,
    estimate_tokens,
    masked,
    outputs_of,
    preview,
    shortened,
    shown_as,
)
from agentsession.protocol import (
    ContentPart,
    HookOutcome,
    HookPayload,
    ModelContent,
    ModelRequestHook,
    modify,
)

__all__ = ["READ_OUTPUT", "ToolOutputs"]

READ_OUTPUT: Final = "read_output"
"""The name of the tool that reads what was left out."""

_MOST: Final = 20_000
"""Characters that one reading gives at most."""

_READ_AGAIN: Final = f"[What was read here is old, and left out. Call {READ_OUTPUT} again where it is needed.]"


class ToolOutputs:
    """Shows a model less of long and of old tool outputs, and lets it read the rest.

    ::

        outputs = ToolOutputs("outputs")
        Host(tools=[*tools, outputs.read_tool()], hooks=[outputs])

    ``directory``: where whole outputs are kept, a folder for each session; it is made when it is needed.
    ``limits``: when less is shown. ``estimate``: how many tokens a text is.

    An interceptor; see ``docs/how-to/keep-long-outputs-short.md``.
    """

    id: str = "outputs"
    order: int = 900
    """After others, so that what they took out of an output is not in its file."""
    on_error = "proceed"
    points = frozenset({"before_model"})

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        estimate: Callable[[str], int] = estimate_tokens,
    ) -> None:
        self.files = OutputFiles(directory)
        self.limits = limits or Limits()
        self._estimate = estimate

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """See :class:`agentsession.protocol.LifecycleInterceptor`."""
        if not isinstance(payload, ModelRequestHook) or hook_point != "before_model":
            return None
        return await self._view(payload)

    async def _view(self, payload: ModelRequestHook) -> HookOutcome | None:
        limits, outputs = self.limits, list(outputs_of(payload.contents))
        long = {
            index
            for index, output in enumerate(outputs)
            if len(output.text) > limits.longest and output.part.name != READ_OUTPUT
        }
        sizes = [
            (output.place[0], self._estimate(_cut(output.text, limits) if index in long else output.text))
            for index, output in enumerate(outputs)
        ]
        # One that is hardly longer than its preview is left alone.
        hidden = {index for index in masked(sizes, limits) if len(outputs[index].text) > 4 * limits.preview}
        parts: dict[tuple[int, int], ContentPart] = {}
        counts = {"masked": 0, "shortened": 0}
        for index in sorted(long | hidden):
            output = outputs[index]
            if output.part.name == READ_OUTPUT:  # it is in a file already
                parts[output.place] = shown_as(output.part, _READ_AGAIN)
                counts["masked"] += 1
                continue
            name = await anyio.to_thread.run_sync(
                self.files.save, payload.user_id, payload.session_id, output.request_id, output.text
            )
            if name is None:
                continue
            counts["masked" if index in hidden else "shortened"] += 1
            parts[output.place] = _shown(output, name, limits, is_hidden=index in hidden)
        if not parts:
            return None
        contents = [
            ModelContent(
                role=content.role,
                content=[parts.get((index, number), part) for number, part in enumerate(content.content)],
            )
            for index, content in enumerate(payload.contents)
        ]
        reason = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return modify(contents=contents, by=self.id, reason=f"tool outputs: {reason}")

    def read_tool(self) -> Tool:
        """The tool by which a model reads what was left out: a range of one output of its own session."""

        @tool(name=READ_OUTPUT, read_only=True)
        async def read_output(context: ToolContext, name: str, offset: int = 0, limit: int = 10_000) -> dict[str, Any]:
            """Read a part of a tool output that was too long to be shown whole.

            Args:
                name: the name that the shortened output gives.
                offset: how many characters to skip.
                limit: how many characters to read, 20000 at most.
            """
            text = await anyio.to_thread.run_sync(self.files.read, context.user_id, context.session_id, name)
            if text is None:
                raise ToolError(f"no output of this session has the name {name!r}", code="not_found")
            start = min(max(0, offset), len(text))
            end = min(len(text), start + min(max(1, limit), _MOST))
            more = {"next_offset": end} if end < len(text) else {}
            return {"text": text[start:end], "offset": start, "total": len(text), **more}

        return read_output


def _cut(text: str, limits: Limits) -> str:
    """About what is shown of a long text: its estimate counts."""
    return text[: limits.longest]


def _shown(output: Output, name: str, limits: Limits, *, is_hidden: bool) -> ContentPart:
    if is_hidden:
        left = len(output.text) - 2 * limits.preview
        text = preview(output.text, limits, _pointer(left, name, "This output is old."))
    else:
        text = shortened(output.text, limits, _pointer(len(output.text) - limits.longest, name, "Too long to show."))
    return shown_as(output.part, text)


def _pointer(left: int, name: str, why: str) -> str:
    return f"[{why} {left:,} characters are left out here. All of it: {READ_OUTPUT}(name={name!r}, offset=0)]"
