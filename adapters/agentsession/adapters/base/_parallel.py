"""Agents of one run that work side by side, each on a thread of its own.

Not for: what each of them does (``_context.py``). Rules carried: TOOL-06, LIFE-14, LIFE-16.
May import: ``agentsession.protocol``, anyio, the modules beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from agentsession.adapters.base._run import Run
from agentsession.protocol import AgentStart

if TYPE_CHECKING:
    from agentsession.adapters.base._context import RunContext
    from agentsession.adapters.base._session import BaseSession

__all__ = ["side_by_side"]

Child = tuple[str, "Callable[[RunContext], Awaitable[None]]"]


async def side_by_side(
    session: BaseSession,
    run: Run,
    thread_id: str | None,
    children: Sequence[Child],
    context: Callable[[str, str], RunContext],
) -> None:
    """Run ``children`` below the thread of the context that starts them; wait for all (see ``RunContext.parallel``).

    ``context`` makes that of an agent on a thread.
    """
    if not children:
        return
    work = session.work
    working, held, failing = len(children), 0, False
    run.busy += working

    async def one(child: RunContext, act: Callable[[RunContext], Awaitable[None]]) -> None:
        nonlocal working, held, failing
        try:
            start = AgentStart(
                agent_id=child.agent_id, thread_id=child.thread_id, parent_thread_id=thread_id
            )  # validated here: nested names may be too long for an id
            await child.emit(start)
            await act(child)
            await child.attached()
            work.close_thread(run, child.thread_id, child.agent_id)
        except BaseException as error:
            failing = True
            work.break_thread(run, child.thread_id, "failed" if isinstance(error, Exception) else "aborted")
            raise
        finally:
            working -= 1
            # The last one's count becomes that of this context again. After a failure this context will go on as
            # soon as all have ended, so the run is not idle however many of them wait.
            if working and not failing:
                work.idle(run)
            else:
                held += 1

    try:
        async with anyio.create_task_group() as group:
            taken: set[str | None] = set()
            for agent_id, act in children:
                child = context(agent_id, _free_thread(session, thread_id, agent_id, taken))
                taken.add(child.thread_id)
                group.start_soon(one, child, act)
            work.idle(run)  # this context waits; only its children work, and they count already
    finally:
        run.busy -= held - 1


def _free_thread(session: BaseSession, above: str | None, agent_id: str, taken: set[str | None]) -> str:
    """A thread id below ``above`` that no thread has that is open or was closed by a pause."""
    machine = session.machine
    used = {*taken, *machine.agents, *(agent.thread_id for agent in machine.paused)}
    base = agent_id if above is None else f"{above}.{agent_id}"
    name, number = base, 2
    while name in used:
        name, number = f"{base}-{number}", number + 1
    return name
