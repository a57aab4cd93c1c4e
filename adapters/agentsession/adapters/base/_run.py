"""One run of the executor: the coroutine that works on a turn, and what waits inside it.

Not for: recording (the session does) or the author's view (``_context.py``). Rules carried: TOOL-06 to TOOL-08, the
detection of a pause. May import: ``agentsession.protocol``, anyio.

A run may *stay open* over several streams (its coroutine waits for answers) or *be re-entered* (it returns while
requests are pending, and is called again with the answers). Both look the same from outside. A run is counted
``busy`` once for each context that works; when none does and something waits for the host, the stream pauses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from agentsession.protocol import Answer, ExecutionOptions, MessageInput, RunEnded

if TYPE_CHECKING:
    from agentsession.adapters.base._grace import GraceCall

__all__ = ["HELD_BREATH", "Outcome", "Reply", "Run"]

HELD_BREATH: Final = 1 << 30
"""A count of :attr:`Run.breath` that no run reaches by itself."""


class Reply:
    """The answers to some requests, when all of them have come; what a context waits on."""

    __slots__ = ("_event", "answers", "counts", "dead", "ids", "released")

    def __init__(self, ids: list[str], *, counts: bool) -> None:
        self.ids = ids
        self.answers: dict[str, Answer] = {}
        self.counts = counts
        """Whether waiting makes its context idle in the run's ``busy`` count."""
        self.released = False
        self.dead = False
        self._event = anyio.Event()

    @property
    def complete(self) -> bool:
        """Whether every request has its answer."""
        return len(self.answers) == len(self.ids)

    def complete_with(self, held: Container[str]) -> bool:
        """Whether every request has its answer, or has one among ``held``."""
        return all(request_id in self.answers or request_id in held for request_id in self.ids)

    def release(self) -> None:
        """Let the waiting context go on."""
        self.released = True
        self._event.set()

    def kill(self) -> None:
        """The requests were settled: the waiting context raises :class:`RunEnded`."""
        self.dead = True
        self._event.set()

    async def wait(self) -> Mapping[str, Answer]:
        """The answers by request id. Raises :class:`RunEnded` when the requests were settled."""
        await self._event.wait()
        if self.dead:
            raise RunEnded("the requests were settled", fix="return from the run")
        return self.answers


@dataclasses.dataclass(slots=True)
class Outcome:
    """How a run's coroutine ended: a reason for the stream_end, or the exception."""

    reason: str | None = None
    data: dict[str, object] | None = None
    error: BaseException | None = None
    cancelled: bool = False
    """It was cancelled, by the session or from elsewhere."""


class Run:
    """The state of one run."""

    def __init__(
        self,
        *,
        turn_id: str,
        message: MessageInput | None,
        answers: Mapping[str, Answer],
        options: ExecutionOptions,
        previous: Sequence[Run] = (),
        grace: GraceCall | None = None,
    ) -> None:
        self.turn_id = turn_id
        self.message = message
        self.answers = answers
        self.options = options
        self.grace = grace
        """Set for the last word of a turn that has reached a limit."""
        self.no_grace = False
        """Somebody has ended the turn while it was ending at a limit: there is no last word."""
        self.previous = list(previous)
        """Runs of earlier turns that have not exited yet: this one starts after them."""
        self.breath = 0
        """How often the run has emitted since it last gave the loop a turn."""
        self.busy = 1
        """How many contexts work, that is, do not wait for the host."""
        self.replies: list[Reply] = []
        self.kept: dict[str, Answer] = {}
        """Every answer that came during this run, for waits that are registered after it came."""
        self.posted: dict[str, None] = {}
        """Requests that were emitted to be re-entered with their answers."""
        self.asked: dict[str, None] = {}
        """What the last pause asked: what a re-entered run is given the answers of."""
        self.dead: set[str] = set()
        """Requests whose wait died inside while no stream was open: they answer stale."""
        self.broken: list[tuple[str | None, str]] = []
        """Threads that an exception left while no stream was open, and with which reason their agents end."""
        self.woken = False
        """A context that waited goes on without its answers, while no stream is open."""
        self.muted = False
        """Its turn was settled: nothing that it emits is recorded."""
        self.aborting: str | None = None
        """The cause, once the end of the turn was asked for."""
        self.end_reason = "aborted"
        """The reason of the stream_end when :attr:`aborting` is set."""
        self.outcome: Outcome | None = None
        self.exited = anyio.Event()
        self.scope: anyio.CancelScope | None = None
        self.on_abort: list[Callable[[], float | None]] = []
        self.attach: anyio.Event | None = None
        """Set while no stream is open for this run; what its emits wait on."""
        self.holding = 0
        """How many tasks of the run wait for the next stream to emit something."""

    @property
    def is_over(self) -> bool:
        """Whether the coroutine has exited."""
        return self.exited.is_set()

    def reply(self, ids: list[str], *, counts: bool) -> Reply:
        """Register a wait for ``ids``."""
        reply = Reply(ids, counts=counts)
        reply.answers.update({request_id: self.kept[request_id] for request_id in ids if request_id in self.kept})
        for request_id in ids:
            self.posted.pop(request_id, None)
        self.replies.append(reply)
        return reply

    def waits_for(self, request_id: str) -> bool:
        """Whether a context waits for that request's answer."""
        return any(request_id in reply.ids for reply in self.replies)

    def deliver(self, answer: Answer) -> None:
        """Keep ``answer`` for whoever waits for it."""
        self.kept[answer.request_id] = answer
        for reply in self.replies:
            if answer.request_id in reply.ids:
                reply.answers[answer.request_id] = answer

    def release_complete(self) -> int:
        """Let every context go on whose answers are all there; how many did."""
        ready = [reply for reply in self.replies if reply.complete]
        for reply in ready:
            self.replies.remove(reply)
            if reply.counts:
                self.busy += 1
            reply.release()
        return len(ready)

    def kill_replies(self) -> None:
        """Nobody will answer any more."""
        replies, self.replies = self.replies, []
        for reply in replies:
            reply.kill()

    def pause(self) -> None:
        """No stream is open for this run from now on."""
        self.attach = anyio.Event()

    def unpause(self) -> None:
        """A stream is open again."""
        attach, self.attach = self.attach, None
        self.woken = False
        if attach is not None:
            attach.set()

    async def attached(self) -> None:
        """Wait until a stream is open. Raises :class:`RunEnded` when the turn was settled."""
        while self.attach is not None and not self.muted:
            self.holding += 1
            try:
                await self.attach.wait()
            finally:
                self.holding -= 1
        if self.muted:
            raise RunEnded("the turn was settled", fix="return from the run")
