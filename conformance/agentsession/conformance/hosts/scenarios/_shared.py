"""What several scenarios ask of the log, and a person whom several of them have.

Not for: what a scene is (``scene.py``). Rules carried: none.
May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession.conformance.hosts.harness import Person, Word
from agentsession.conformance.hosts.scene import HostScene
from agentsession.protocol import ElicitationAnswer

__all__ = ["ran_with", "said", "thinking_person"]


def ran_with(scene: HostScene, name: str) -> list[Any]:
    """The arguments of each run of a tool."""
    return [entry.data for entry in scene.log.find("tool", "begins", name)]


def said(scene: HostScene, request_id: str) -> tuple[str, Any]:
    """How a question was answered, and with which content; fails the scenario when it was not."""
    answer = scene.answer(request_id)
    return (answer.action, answer.content) if isinstance(answer, ElicitationAnswer) else (answer.kind, None)


def thinking_person(scene: HostScene) -> Person:
    """A person who says yes, or accepts, when the mark ``person`` is released."""

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        await scene.hold("person")
        return Word("yes")

    async def reply(kind: str, message: str) -> tuple[str, Any]:
        await scene.hold("person")
        return ("accept", {})

    return scene.person(word, reply)
