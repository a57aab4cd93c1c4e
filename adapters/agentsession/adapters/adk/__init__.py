"""Google ADK agents under host control. Needs the ``adk`` extra: ``pip install "agent-session-protocol[adk]"``.

Importing this package is cheap and imports nothing of google; a name is fetched when it is first used, and then the
release of google-adk is checked. ::

    from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, say

Live: ``AdkExecutor`` (``_executor``). Pure: ``describe_agent`` (``_descriptor``), ``Translator`` (``_translate``: ADK
Events to contract events), ``map_session`` (``_record``: a stored session to a whole record), ``read_adk`` (``_read``:
ADK JSON of any form), ``part_to_content`` and back (``_content``), ``request_json``, ``response_json`` and back
(``_gemini_requests``, ``_gemini_responses``: the JSON of Gemini's API).

In a provider's place: ``ScriptedLlm`` and its steps, ``HostLlm`` (the host answers), ``RecordingLlm`` and ``ReplayLlm``
with ``Recording`` and ``load_recording``, ``GeminiLoopback`` (a server that google-genai's own client talks to).
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
    from agentsession.adapters.adk._exchanges import (
        ModelExchange,
        Playback,
        Recording,
        RecordingDiffers,
        RecordingExhausted,
    )
    from agentsession.adapters.adk._executor import AdkExecutor, entry_point
    from agentsession.adapters.adk._gemini_loopback import (
        GeminiLoopback,
        HttpReply,
        HttpRequest,
    )
    from agentsession.adapters.adk._gemini_requests import (
        GeminiRead,
        read_request,
        request_json,
    )
    from agentsession.adapters.adk._gemini_responses import (
        adk_response,
        read_response,
        response_json,
    )
    from agentsession.adapters.adk._host_model import (
        MODEL_CALL,
        HostLlm,
        model_answer,
    )
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
        wire,
    )
    from agentsession.adapters.adk._read import AdkSession, read_adk
    from agentsession.adapters.adk._record import map_events, map_session
    from agentsession.adapters.adk._recorded_model import (
        LoopbackPlayback,
        RecordingLlm,
        ReplayLlm,
    )
    from agentsession.adapters.adk._traffic import (
        load_recording,
        read_recording,
    )
    from agentsession.adapters.adk._translate import Call, Translator

__all__ = [
    "ADK_CAPABILITIES",
    "ADK_RANGE",
    "AdkExecutor",
    "AdkMissing",
    "AdkSession",
    "AdkUnsupported",
    "Call",
    "GeminiLoopback",
    "HostLlm",
    "HttpReply",
    "HttpRequest",
    "LoopbackPlayback",
    "MODEL_CALL",
    "ModelExchange",
    "Playback",
    "GeminiRead",
    "Recording",
    "RecordingDiffers",
    "RecordingExhausted",
    "RecordingLlm",
    "ReplayLlm",
    "ScriptExhausted",
    "ScriptedLlm",
    "Step",
    "Translator",
    "adk_response",
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
    "load_recording",
    "map_events",
    "map_session",
    "model_answer",
    "part_to_content",
    "parts_to_content",
    "raw",
    "read_adk",
    "read_recording",
    "read_request",
    "read_response",
    "request_json",
    "require_adk",
    "response_json",
    "say",
    "stream",
    "stream_call",
    "think",
    "wire",
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
        "wire",
    ),
    "_read": ("AdkSession", "read_adk"),
    "_record": ("map_events", "map_session"),
    "_translate": ("Call", "Translator"),
    "_exchanges": ("ModelExchange", "Playback", "Recording", "RecordingDiffers", "RecordingExhausted"),
    "_gemini_loopback": ("GeminiLoopback", "HttpReply", "HttpRequest"),
    "_gemini_requests": ("GeminiRead", "read_request", "request_json"),
    "_gemini_responses": ("adk_response", "read_response", "response_json"),
    "_host_model": ("MODEL_CALL", "HostLlm", "model_answer"),
    "_recorded_model": ("LoopbackPlayback", "RecordingLlm", "ReplayLlm"),
    "_traffic": ("load_recording", "read_recording"),
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
