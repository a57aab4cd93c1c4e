"""What the server's answers must look like.

Not for: reading them (``_answers.py``), events (``_folded.py``). Rules carried: none.
May import: pydantic, ``agentsession.protocol``, the modules beside it.

Whatever has another shape is :class:`ConnectionLost`: what answers there does not speak this contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, get_args

from pydantic import ValidationError

from agentsession.adapters.remote._answers import Json
from agentsession.protocol import (
    AbortResult,
    Answer,
    ConnectionLost,
    HostCapabilities,
    InvalidInput,
    Receipt,
    SessionState,
    check_id,
)

__all__ = ["kinds_of", "malformed", "mapping", "model", "number", "receipts_of", "shown", "state_of", "text"]

_STATES: Final[tuple[SessionState, ...]] = get_args(SessionState)

M = TypeVar("M", Receipt, AbortResult, HostCapabilities)


def model(cls: type[M], value: Any) -> M:
    try:
        return cls.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        raise malformed(cls.__name__) from error


def shown(answer: Json, session_id: str | None = None) -> tuple[str, int]:
    """The id and the last seq of a session that the server shows, of that one if an id is given.

    Raises :class:`ConnectionLost` for what is none.
    """
    found, last_seq = text(answer.get("sessionId")), number(answer.get("lastSeq"))
    if session_id not in (None, found):
        raise malformed(f"session {session_id}")
    try:
        return check_id(found, "session id"), last_seq
    except InvalidInput as error:
        raise malformed("a session with an id that can be one") from error


def kinds_of(answer: Json) -> list[str] | None:
    """The kinds of elicitation that a session which the server shows may ask; ``None``: all.

    What is open there may have been opened by another host. Raises :class:`ConnectionLost`.
    """
    return model(HostCapabilities, answer.get("host")).elicitation_kinds


def malformed(what: str) -> ConnectionLost:
    return ConnectionLost(
        "the server's answer is not what was asked for", expected=what, fix="look whether both speak the same version"
    )


def mapping(value: object) -> dict[str, Any]:
    """A JSON object of an answer. Raises :class:`ConnectionLost`."""
    if not isinstance(value, dict):
        raise malformed("an object")
    return value


def text(value: object) -> str:
    """A text of an answer. Raises :class:`ConnectionLost`."""
    if not isinstance(value, str):
        raise malformed("a text")
    return value


def number(value: object) -> int:
    """A whole number of an answer, from 0. Raises :class:`ConnectionLost`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise malformed("a whole number")
    return value


def receipts_of(value: object, answers: Sequence[Answer]) -> list[Receipt]:
    """A receipt for each answer, in their order. Raises :class:`ConnectionLost`."""
    found = [model(Receipt, each) for each in value] if isinstance(value, list) else []
    of = [receipt.request_id or answer.request_id for receipt, answer in zip(found, answers, strict=False)]
    if len(found) != len(answers) or of != [answer.request_id for answer in answers]:
        raise malformed("a receipt for each answer")
    return found


def state_of(value: object) -> SessionState:
    """The state of a session. Raises :class:`ConnectionLost`."""
    for state in _STATES:
        if value == state:
            return state
    raise malformed("a state")
