"""Questions that a running tool asks the person, through its :class:`ToolContext`.

Not for: questions of the agent, which are in its record (``_requests.py``). Rules carried: HITL-08, HITL-11.
May import: anyio, ``_results``, ``protocol``.

Such a question is the host's own: it goes to the channel and not to the session, whose record is the executor's. What
was asked and how it ended is told as a ``tool_update`` of the call; what was answered is not, for it may be a secret.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Final

import anyio

from agentsession.host._results import Stopwatch
from agentsession.protocol import Decision, ElicitationAnswer, ElicitationRequest, ToolRequest, find_problem

__all__ = ["ToolQuestions"]

_TRIES: Final = 3

Ask = Callable[[ElicitationRequest, str | None], Awaitable[ElicitationAnswer | None]]
"""Puts a question to the channel; the text says why the last answer could not be taken."""


class ToolQuestions:
    """The questions of one call."""

    def __init__(self, request: ToolRequest, ask: Ask, time: Stopwatch) -> None:
        self._request = request
        self._ask = ask
        self._time = time
        self._paused = ExitStack()
        self._count = 0
        self._waiting = 0
        self._left_s = math.inf
        self.limit: anyio.CancelScope | None = None
        """The tool's time limit, which stands still while somebody is asked."""

    async def ask(self, question: ElicitationRequest) -> ElicitationAnswer:
        """The person's answer; accepted content fits the question's schema. To leave it waiting counts as cancel."""
        self._count += 1
        question = question.model_copy(
            update={
                "request_id": f"{self._request.request_id}.q{self._count}",
                "tool_request_id": self._request.request_id,
                "session_id": self._request.session_id,
                "stream_id": self._request.stream_id,
                "turn_id": self._request.turn_id,
                "agent_id": self._request.agent_id,
                "thread_id": self._request.thread_id,
                "source": "host",
            }
        )
        problem: str | None = None
        for _ in range(_TRIES):
            with self._standing_still():
                answer = await self._ask(question, problem)
            if answer is None:
                return _cancelled(question, "a question of a tool cannot be left waiting")
            if answer.action != "accept" or question.requested_schema is None:
                return answer
            found = find_problem(question.requested_schema, answer.content)
            if found is None:
                return answer
            problem = str(found)
        return _cancelled(question, "the answers did not fit")

    @contextmanager
    def _standing_still(self) -> Generator[None]:
        if self._waiting == 0 and self.limit is not None:
            self._left_s = self.limit.deadline - anyio.current_time()
            self.limit.deadline = math.inf
            self._paused.enter_context(self._time.paused())
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and self.limit is not None:
                self.limit.deadline = anyio.current_time() + self._left_s
                self._paused.close()


def _cancelled(question: ElicitationRequest, why: str) -> ElicitationAnswer:
    return ElicitationAnswer(request_id=question.request_id, action="cancel", decision=Decision(by="host", reason=why))
