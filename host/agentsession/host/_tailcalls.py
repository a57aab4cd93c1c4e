"""A tool that hands its call over to another: ``return TailCall("save", {...})``.

Not for: deciding about it or running it (``_tailchain.py``). Rules carried: HITL-01 (the other call is decided on like
any). May import: ``protocol``.

The agent sees one call and one result. The other call passes the whole pipeline once more, so that a tool cannot reach
through another what the policy, a hook or the person would refuse. Each step is told as a ``tool_update`` of the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from agentsession.protocol import Decision, ToolProgress, ToolRequest, to_json

__all__ = ["MAX_TAIL_CALLS", "TailCall"]

MAX_TAIL_CALLS: Final = 3
"""How long a chain may be."""


@dataclasses.dataclass(frozen=True, slots=True)
class TailCall:
    """Returned by a tool of a host: what another of its tools returns for ``args`` is to be the result."""

    name: str
    """The tool's name, as the model would say it."""
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def request(self, first: ToolRequest, step: int) -> ToolRequest:
        """The call as a request, for policy, hooks and person. It is not in the record: ``first`` is.

        Raises :class:`JsonError` for arguments that JSON cannot say.
        """
        return first.model_copy(
            update={
                "request_id": f"{first.request_id}.t{step}",
                "name": str(self.name),
                "args": to_json(dict(self.args)),
                "owner": "host",
                "needs": "result",
                "display": None,
                "long_running": False,
            }
        )

    @staticmethod
    def told(
        first: ToolRequest,
        call: ToolRequest,
        step: int,
        decision: Decision | None,
        says: str,
        edited: Mapping[str, Any] | None = None,
    ) -> ToolProgress:
        """What the record has of a step: which tool, whether it was ``granted`` or ``denied``, by whom and why.

        ``edited``: the arguments that it runs with, where a person changed them.
        """
        word = {} if decision is None else {"by": decision.by, "reason": decision.reason}
        args = call.args or {} if edited is None else dict(edited)
        told = {"step": step, "name": call.name, "args": args, "decision": says, **word}
        return ToolProgress(
            request_id=first.request_id,
            data={"tail_call": {key: value for key, value in told.items() if value is not None}},
        )
