"""The tool by which a sub-agent gives its result, ``complete_task``: validated against the wished schema.

Not for: ending the sub-agent's turn, which it does itself. Rules carried: TOOL-04.
May import: ``_tools``, ``protocol``.

It does nothing but take the result, so no policy is asked about it. Once it has one, no other tool of that sub-agent
runs any more, and a second result is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from agentsession.host._outcome import ToolError
from agentsession.host._tools import Tool
from agentsession.protocol import ToolAnnotations, ToolDescriptor

__all__ = ["COMPLETE_TASK", "CompletionTool"]

COMPLETE_TASK: Final = "complete_task"
"""The name by which a sub-agent knows it."""

_RESULT: Final = "result"
_TEXT_RESULT: Final = {"type": "string", "description": "What you found or did, whole: nothing else you said is kept."}


class CompletionTool(Tool):
    """Takes one result of one run."""

    is_completion: ClassVar[bool] = True

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self.is_done = False
        super().__init__(
            ToolDescriptor(
                name=COMPLETE_TASK,
                description="Give the result of your task and end it. Call this once, last, nothing beside it.",
                parameters_schema=_parameters(_TEXT_RESULT if schema is None else schema),
                annotations=ToolAnnotations(read_only=True, open_world=False),
            ),
            self._take,
        )

    async def _take(self, args: dict[str, Any]) -> str:
        if self.is_done:
            raise ToolError("the result was given before; end your turn", code="task_complete")
        self.is_done = True
        return "The result was taken. Say nothing more and end your turn."

    @staticmethod
    def result_of(args: Mapping[str, Any] | None) -> Any:
        """The result in the arguments of a call that was taken."""
        return (args or {}).get(_RESULT)


def _parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the result in it: models call tools with objects only. ``$defs`` move up with it."""
    inner = dict(schema)
    moved: dict[str, Any] = {name: inner.pop(name) for name in ("$defs", "definitions", "$schema") if name in inner}
    return {
        **moved,
        "type": "object",
        "properties": {_RESULT: inner},
        "required": [_RESULT],
        "additionalProperties": False,
    }
