"""Many sessions at once: one turn in each, so many at a time, each result as it comes.

Not for: a turn (``_turn.py``) or a session's life (``_host.py``). Rules carried: none of its own.
May import: anyio, ``_results``, ``protocol``. Works on asyncio and trio.

Workers take one job after the other, so that jobs may come from a generator that is longer than memory. A result is
handed over before its worker takes the next job: who reads slowly slows the work, and nothing piles up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from agentsession.host._results import TurnResult
from agentsession.protocol import ConfigurationError, ExecutionOptions, MessageInput, OpenOptions

__all__ = ["Job", "JobResult", "Jobs", "side_by_side"]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One turn to be run in a session of its own."""

    message: str | MessageInput
    options: OpenOptions | ExecutionOptions | None = None
    """For its session; absent: those of the call that runs it."""
    load: str | None = None
    """The id of the stored session that the turn goes on with, instead of a new one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What became of one job: a result, or the error that ended it."""

    index: int
    """The job's place among the jobs, from 0."""
    job: Job
    session_id: str | None
    """``None``: its session could not be opened."""
    result: TurnResult | None = None
    error: Exception | None = None

    @property
    def completed(self) -> bool:
        """Whether the turn came to its own end."""
        return self.result is not None and self.result.completed


Jobs = Iterable[str | MessageInput | Job] | AsyncIterable[str | MessageInput | Job]
"""What is to be run; taken one by one, when there is room."""

RunJob = Callable[[int, Job], Awaitable[JobResult]]


class _Source:
    """The jobs, one after the other, to several workers."""

    def __init__(self, jobs: Jobs) -> None:
        self._iterator = aiter(jobs) if isinstance(jobs, AsyncIterable) else _as_async(jobs)
        self._lock = anyio.Lock()
        self._count = 0
        self._is_over = False
        self.failure: Exception | None = None
        """What getting the next job raised: nothing more is taken then, and what runs comes to its end."""

    async def take(self) -> tuple[int, Job] | None:
        """The next job and its place; ``None``: there is none."""
        async with self._lock:  # an async generator may be asked by one at a time
            if self._is_over:
                return None
            try:
                given = await anext(self._iterator)
            except StopAsyncIteration:
                self._is_over = True
                return None
            except Exception as error:  # noqa: BLE001 - raised by the reader, outside of the group that would wrap it
                self._is_over, self.failure = True, error
                return None
            index, self._count = self._count, self._count + 1
        return index, given if isinstance(given, Job) else Job(given)

    async def aclose(self) -> None:
        """Nothing more is taken: a generator runs what it has to clean up."""
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


async def _as_async(jobs: Iterable[str | MessageInput | Job]) -> AsyncGenerator[str | MessageInput | Job]:
    for job in jobs:
        yield job


@asynccontextmanager
async def side_by_side(jobs: Jobs, run: RunJob, max_parallel: int) -> AsyncGenerator[AsyncIterator[JobResult]]:
    """Run every job, ``max_parallel`` at a time; the results in the order in which they come.

    Leaving the block, also by an exception or a cancellation, ends what still runs. ``run`` must not raise for a job
    that fails; what the iteration of ``jobs`` raises is raised after the last result.
    """
    if max_parallel < 1:
        raise ConfigurationError(f"max_parallel is {max_parallel}", expected="1 or more")
    if isinstance(jobs, (str, MessageInput, Job)):
        raise ConfigurationError("one job was given", expected="a list of jobs, or an iterator", fix="put it in a list")
    source = _Source(jobs)
    sender, results = anyio.create_memory_object_stream[JobResult](0)

    async def work(sender: anyio.abc.ObjectSendStream[JobResult]) -> None:
        async with sender:
            while (taken := await source.take()) is not None:
                await sender.send(await run(*taken))

    async def read() -> AsyncGenerator[JobResult]:
        async for result in results:
            yield result
        if source.failure is not None:
            raise source.failure

    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks, results:
            async with sender:
                for _ in range(max_parallel):
                    tasks.start_soon(work, sender.clone())
            reader = read()
            try:
                yield reader
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group that would wrap it
                failure = error
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await reader.aclose()
    finally:
        with anyio.CancelScope(shield=True):
            await source.aclose()
    if failure is not None:
        raise failure
