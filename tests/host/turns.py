"""Short ways to write tests of whole turns: run one, the tool that adds, the answer to a request."""

from __future__ import annotations

from typing import Any

import anyio
from tests.host.fake_session import FakeSession

from agentsession.host import Host, TurnResult, tool
from agentsession.protocol import ToolProgress

__all__ = ["add", "answer_of", "run"]


async def run(host: Host, session: FakeSession, message: Any = "go") -> TurnResult:
    with anyio.fail_after(5):
        return await host.run_turn(session, message)


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def answer_of(session: FakeSession, request_id: str) -> Any:
    found = [a for a in session.answers if a.request_id == request_id and not isinstance(a, ToolProgress)]
    assert len(found) == 1, found
    return found[0]
