"""What the server's answers must look like.

Not for: reading them (``_answers.py``), events (``_folded.py``). Rules carried: none.
May import: pydantic, ``agentsession.protocol``, the modules beside it.

Whatever has another shape is :class:`ConnectionLost`: what answers there does not speak this contract.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from agentsession.adapters.remote._answers import Json
from agentsession.protocol import AbortResult, ConnectionLost, InvalidInput, Receipt, check_id

__all__ = ["malformed", "mapping", "model", "shown"]

M = TypeVar("M", Receipt, AbortResult)


def model(cls: type[M], value: Any) -> M:
    try:
        return cls.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        raise malformed(cls.__name__) from error


def shown(answer: Json, session_id: str | None = None) -> tuple[str, int]:
    """The id and the last seq of a session that the server shows, of that one if an id is given.

    Raises :class:`ConnectionLost` for what is none.
    """
    found, last_seq = answer.get("sessionId"), answer.get("lastSeq")
    if not isinstance(found, str) or not isinstance(last_seq, int) or session_id not in (None, found):
        raise malformed("a session" if session_id is None else f"session {session_id}")
    try:
        return check_id(found, "session id"), last_seq
    except InvalidInput as error:
        raise malformed("a session with an id that can be one") from error


def malformed(what: str) -> ConnectionLost:
    return ConnectionLost(
        "the server's answer is not what was asked for", expected=what, fix="look whether both speak the same version"
    )


def mapping(value: object) -> dict[str, Any]:
    """A JSON object of an answer. Raises :class:`ConnectionLost`."""
    if not isinstance(value, dict):
        raise malformed("an object")
    return value
