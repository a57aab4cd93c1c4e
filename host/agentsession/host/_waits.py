"""What a record says of how long people were waited for, beside the answers to its own questions.

Not for: adding it up (``cli/_totals.py``, ``report``). May import: ``protocol``.
"""

from __future__ import annotations

import math
from typing import Any, cast

from agentsession.protocol import ToolDecision, ToolUpdate

__all__ = ["is_answer", "waited_s"]


def is_answer(event: ToolDecision) -> bool:
    """Whether a person decided: on this call, or earlier on one like it, which settles those that wait."""
    return (event.by or "").partition(":")[0] in ("user", "remembered")


def waited_s(event: ToolUpdate) -> float | None:
    """How many seconds a running tool waited for a person, where this update says that it asked one."""
    asked: Any = cast("dict[str, Any]", event.data).get("asked") if isinstance(event.data, dict) else None
    waited: Any = cast("dict[str, Any]", asked).get("waitedS") if isinstance(asked, dict) else None
    is_time = isinstance(waited, (int, float)) and not isinstance(waited, bool) and 0 <= waited < math.inf
    return float(waited) if is_time else None
