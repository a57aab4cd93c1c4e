"""Agents of ``raw_agent.py`` for tests: what they send, and what they were sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from agentsession.adapters.acp import AcpExecutor
from agentsession.adapters.base import BaseSession
from agentsession.protocol import Answer, Event, StreamEnd

__all__ = [
    "LS",
    "OPTIONS",
    "Acted",
    "agent",
    "answer",
    "ask",
    "asks",
    "chunk",
    "end",
    "of",
    "permission",
    "said",
    "update",
]

AGENT = Path(__file__).with_name("raw_agent.py")
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]

Step = dict[str, Any]


def update(kind: str, /, **fields: Any) -> Step:
    """A ``session/update``."""
    params = {"sessionId": "$SESSION", "update": {"sessionUpdate": kind, **fields}}
    return {"send": {"method": "session/update", "params": params}}


def chunk(text: str, kind: str = "agent_message_chunk", **fields: Any) -> Step:
    """A chunk of text."""
    return update(kind, content={"type": "text", "text": text}, **fields)


def ask(number: Any, method: str, **params: Any) -> Step:
    """A request of the agent's."""
    return {"send": {"id": number, "method": method, "params": {"sessionId": "$SESSION", **params}}}


def permission(number: Any, key: str, options: Sequence[Any] = OPTIONS, **fields: Any) -> Step:
    """A ``session/request_permission``."""
    call = {"toolCallId": key, **fields}
    return ask(number, "session/request_permission", toolCall=call, options=list(options))


def answer(reason: str = "end_turn", **fields: Any) -> Step:
    """The answer to the prompt."""
    return {"answer": {"stopReason": reason, **fields}}


class Acted(AcpExecutor):
    """An executor over such an agent."""

    log: Path

    def pids(self) -> list[int]:
        """The ids of all its processes, in the order of their starts."""
        return [int(line) for line in Path(f"{self.log}.pids").read_text().split()]

    def received(self, method: str | None = None) -> list[dict[str, Any]]:
        """The messages that the agent has got; those of one method, or all."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [message for message in found if method is None or message.get("method") == method]

    def reply_to(self, number: Any) -> dict[str, Any]:
        """What a request of the agent's was answered with."""
        return next(item for item in self.received() if item.get("id") == number and "method" not in item)


def agent(folder: Path, *turns: Sequence[Step], kind: type[Acted] = Acted, **scenario: Any) -> Acted:
    """An agent that plays these turns."""
    base = {name: scenario.pop(name) for name in ("store", "quiet_s", "grace_s", "env", "start_s") if name in scenario}
    file, log = folder / "scenario.json", folder / "log.ndjson"
    file.write_text(json.dumps({"turns": [list(turn) for turn in turns], **scenario}))
    log.touch()
    made = kind([sys.executable, str(AGENT), str(file), str(log)], cwd=folder, **base)
    made.log = log
    return made


LS: dict[str, Any] = {"title": "Run ls", "kind": "execute", "rawInput": {"command": "ls"}}


async def said(session: BaseSession, *given: Answer | str) -> list[Event]:
    """The events of one stream."""
    with anyio.fail_after(20):
        async with session.stream(given[0] if given and isinstance(given[0], str) else list(given) or None) as stream:  # type: ignore[arg-type]
            return [event async for event in stream]


def of(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def end(events: Sequence[Event]) -> StreamEnd:
    assert isinstance(events[-1], StreamEnd)
    return events[-1]


def asks(*after: Any, options: Sequence[Any] = OPTIONS) -> list[Any]:
    """A turn that asks for ``ls`` as request 7."""
    return [update("tool_call", toolCallId="t1", **LS), permission(7, "t1", options), {"read": 1}, *after]
