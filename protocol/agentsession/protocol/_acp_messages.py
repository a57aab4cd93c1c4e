"""ACP's JSON-RPC messages before an SDK sees them: sound lines, sound shapes, and ``_meta`` where it can do no harm.

Not for: the meaning of a message (the ACP adapter and server), or input and output.
Rules carried: none of the contract; WIRE-01's care for what a peer writes. May import: the standard library.

Private: shared by the ACP executor and the ACP server, which may not import each other. Three facts about the Python
SDK (agent-client-protocol 0.12.1) make it needed:

1. Its routers lay the keys of ``_meta`` over the validated arguments of a handler, so that ``_meta.sessionId`` named in
   Python's way replaces the session that was checked. :func:`nest_meta` puts them one level down.
2. A response whose id cannot be hashed, or whose error is no object, ends its receiving loop.
3. It reads NaN and infinities, which JSON does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

__all__ = ["MessageKind", "decode_line", "message_kind", "nest_meta", "nested_meta"]

MessageKind = Literal["request", "notification", "response", "invalid"]

_NEST: Final = "_meta"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object on one line, or ``None`` for a line that holds none, however it is broken."""
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def message_kind(message: Mapping[str, Any]) -> MessageKind:
    """What a message is; ``invalid`` for a shape that must not reach the SDK."""
    if "id" in message and not _is_id(message["id"]):
        return "invalid"
    if "method" in message:
        if not isinstance(message["method"], str):
            return "invalid"
        return "request" if "id" in message else "notification"
    if "id" not in message:
        return "invalid"
    if "result" not in message and not _is_error(message.get("error")):
        return "invalid"
    return "response"


def nest_meta(message: Mapping[str, Any]) -> dict[str, Any]:
    """The same message, with the ``_meta`` of its params one level down: a handler gets it as ``_meta`` alone.

    ``{"params": {"_meta": {"a": 1}}}`` becomes ``{"params": {"_meta": {"_meta": {"a": 1}}}}``. A ``_meta`` that is no
    object stays for the SDK's validation to refuse.
    """
    made = dict(message)
    params = made.get("params")
    if isinstance(params, dict) and isinstance(params.get("_meta"), dict):
        made["params"] = {**params, "_meta": {_NEST: params["_meta"]}}
    return made


def nested_meta(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`nest_meta` has put down, out of the further arguments of a handler; empty where there was none."""
    meta = arguments.get(_NEST)
    return dict(meta) if isinstance(meta, dict) else {}


def _is_id(value: Any) -> bool:
    # True and 1.0 are equal to 1 in Python, so they would answer another request.
    return value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("message"), str) and isinstance(value.get("code"), int)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
