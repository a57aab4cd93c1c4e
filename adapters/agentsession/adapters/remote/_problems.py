"""Problems of the server as the contract's errors.

Not for: connections that break (``_wire.py``). Rules carried: none.
May import: ``agentsession.protocol``, ``_mask.py``.

docs/reference/http.md says what a problem has. What is no problem of the contract's, such as a proxy's page, becomes
an error that says its status, and nothing of its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentsession.adapters.remote._mask import Mask
from agentsession.protocol import (
    AbortTimeout,
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    CursorGone,
    InvalidInput,
    NothingToContinue,
    ProtocolViolation,
    RunEnded,
    SchemaError,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExists,
    SessionNotFound,
    StreamActive,
    Unimplemented,
    UnsupportedVersion,
)

__all__ = ["error_of"]

_CLASSES: Final[Mapping[str, type[AgentSessionError]]] = {
    cls.__name__: cls
    for cls in (
        AbortTimeout,
        AgentSessionError,
        ConfigurationError,
        ConnectionLost,
        CursorGone,
        InvalidInput,
        NothingToContinue,
        RunEnded,
        SessionBusy,
        SessionClosed,
        SessionError,
        SessionExists,
        SessionNotFound,
        StreamActive,
        Unimplemented,
        UnsupportedVersion,
    )
}
_BY_CODE: Final[Mapping[str, type[AgentSessionError]]] = {
    **{cls.default_id: cls for cls in _CLASSES.values()},
    "unauthenticated": ConfigurationError,
    "scope": ConfigurationError,
    "host": ConfigurationError,
    "agent-not-found": ConfigurationError,
    "user": InvalidInput,
    "bad-json": InvalidInput,
    "bad-request": InvalidInput,
    "too-large": InvalidInput,
    "key-reused": InvalidInput,
}
_PARTS: Final = ("where", "expected", "got", "fix")
_FIXES: Final[Mapping[int, str]] = {
    401: "pass the token that the server's verifier knows: RemoteExecutor(..., token=...)",
    404: "look at the base URL: the contract is right below it; agentsession serve has it at /api",
    **dict.fromkeys((301, 302, 303, 307, 308), "pass the address that it leads to as base URL: none is followed"),
}


def error_of(status: int, problem: object, mask: Mask) -> AgentSessionError:
    """The error that an answer from 300 on stands for; ``problem`` is its JSON, if it had any."""
    given: Mapping[str, Any] = problem if isinstance(problem, dict) else {}
    code = given.get("code")
    if not isinstance(code, str):
        return ConfigurationError(f"the server answered {status}, without saying why", fix=_FIXES.get(status))
    detail = given.get("detail")
    code = mask(code)
    what = mask(detail) if isinstance(detail, str) else code
    parts: dict[str, Any] = {name: mask(given[name]) for name in _PARTS if isinstance(given.get(name), str)}
    if status in _FIXES:
        parts.setdefault("fix", _FIXES[status])
    rule, name = given.get("rule"), given.get("error")
    if isinstance(rule, str) and name in (None, "ProtocolViolation"):
        blame = given.get("blame")
        return ProtocolViolation(mask(rule), what, blame="host" if blame == "host" else "peer", **parts)
    if name == "SchemaError" or (name is None and code == SchemaError.default_id):
        pointer, line = given.get("pointer"), given.get("line")
        return SchemaError(
            what,
            pointer=mask(pointer) if isinstance(pointer, str) else "/",
            line=line if isinstance(line, int) else None,
            id=code,
            **parts,
        )
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    return (cls or _BY_CODE.get(code, AgentSessionError))(what, id=code, **parts)
