"""Google ADK agents under host control. Needs the ``adk`` extra: ``pip install "agent-session-protocol[adk]"``.

Importing this package is cheap and imports nothing of google; a name is fetched when it is first used, and then the
release of google-adk is checked. ::

    from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, say

Live: ``AdkExecutor`` (``_executor``). Pure: ``describe_agent`` (``_descriptor``), ``Translator`` (``_translate``: ADK
Events to contract events), ``map_session`` (``_record``: a stored session to a whole record), ``read_adk`` (``_read``:
ADK JSON of any form), ``part_to_content`` and back (``_content``). For tests: ``ScriptedLlm`` and its steps.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agentsession.adapters.adk._version import ADK_RANGE, AdkMissing, AdkUnsupported, require_adk

if TYPE_CHECKING:
    from agentsession.adapters.adk._content import (
        content_to_part,
        content_to_parts,
        part_to_content,
        parts_to_content,
    )
    from agentsession.adapters.adk._descriptor import ADK_CAPABILITIES, describe_agent
    from agentsession.adapters.adk._errors import end_reason
    from agentsession.adapters.adk._executor import AdkExecutor, entry_point
    from agentsession.adapters.adk._model import (
        ScriptedLlm,
        ScriptExhausted,
        Step,
        call,
        calls,
        delay,
        error,
        fail,
        hold,
        raw,
        say,
        stream,
        stream_call,
        think,
    )
    from agentsession.adapters.adk._read import AdkSession, read_adk
    from agentsession.adapters.adk._record import map_events, map_session
    from agentsession.adapters.adk._translate import Call, Translator

__all__ = [
    "ADK_CAPABILITIES",
    "ADK_RANGE",
    "AdkExecutor",
    "AdkMissing",
    "AdkSession",
    "AdkUnsupported",
    "Call",
    "ScriptExhausted",
    "ScriptedLlm",
    "Step",
    "Translator",
    "call",
    "calls",
    "content_to_part",
    "content_to_parts",
    "delay",
    "describe_agent",
    "end_reason",
    "entry_point",
    "error",
    "fail",
    "hold",
    "map_events",
    "map_session",
    "part_to_content",
    "parts_to_content",
    "raw",
    "read_adk",
    "require_adk",
    "say",
    "stream",
    "stream_call",
    "think",
]

_WHERE = {
    "_content": ("content_to_part", "content_to_parts", "part_to_content", "parts_to_content"),
    "_descriptor": ("ADK_CAPABILITIES", "describe_agent"),
    "_errors": ("end_reason",),
    "_executor": ("AdkExecutor", "entry_point"),
    "_model": (
        "ScriptExhausted",
        "ScriptedLlm",
        "Step",
        "call",
        "calls",
        "delay",
        "error",
        "fail",
        "hold",
        "raw",
        "say",
        "stream",
        "stream_call",
        "think",
    ),
    "_read": ("AdkSession", "read_adk"),
    "_record": ("map_events", "map_session"),
    "_translate": ("Call", "Translator"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:  # Any: the type of a lazy export is what TYPE_CHECKING imports above
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_adk()
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
