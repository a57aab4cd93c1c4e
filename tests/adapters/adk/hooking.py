"""Interceptors for tests: each records what it was asked, and answers from a table of functions by point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentsession.protocol import HookOutcome, HookPayload, Text

__all__ = ["Box", "Desk", "errors", "said"]

Answer = Callable[[Any], Any]


class Desk:
    """An interceptor: ``Desk(before_tool=lambda payload: block("no"))``. A function may be async."""

    def __init__(self, **answers: Answer | HookOutcome) -> None:
        self._answers = answers
        self.seen: list[tuple[str, Any]] = []

    def fire(self, hook_point: str, payload: HookPayload, /) -> Any:
        # What goes to a command or a server must be JSON, and must say the same when it is read back.
        assert type(payload).model_validate_json(payload.to_wire_json()) == payload
        self.seen.append((hook_point, payload))
        answer = self._answers.get(hook_point)
        return answer(payload) if callable(answer) else answer

    @property
    def points(self) -> None:
        return None

    def at(self, point: str) -> list[Any]:
        """The payloads that were seen at a point."""
        return [payload for name, payload in self.seen if name == point]


def said(parts: Any) -> str:
    """The text of content parts."""
    return "".join(part.text for part in parts if isinstance(part, Text))


class Box:
    """A tool of the agent that counts its runs."""

    def __init__(self, answer: Any = None) -> None:
        self.ran: list[str] = []
        self.answer = answer

    def write(self, path: str) -> dict[str, Any]:
        """Write a file."""
        self.ran.append(path)
        return self.answer if self.answer is not None else {"written": path}


def errors(turn: Any) -> list[tuple[str | None, str]]:
    """Code and message of each error of a turn."""
    return [(event.code, event.message) for event in turn.of("error")]
