"""When a run stands still: the tree of what ADK has started, and the moment in which all of it waits."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from agentsession.adapters.adk._spans import SpanTree
from agentsession.adapters.base._run import Reply

pytestmark = pytest.mark.anyio


class Watch:
    """A tree, and how often it was told quiet."""

    def __init__(self) -> None:
        self.told: list[asyncio.Task[object] | None] = []
        self.tree = SpanTree(lambda: self.told.append(asyncio.current_task()))

    async def turns(self, count: int = 10) -> int:
        for _ in range(count):
            await anyio.lowlevel.checkpoint()
        return len(self.told)


def waiting(request_id: str = "r1") -> Reply:
    return Reply([request_id], counts=False)


async def test_an_agent_that_works_is_not_quiet() -> None:
    watch = Watch()
    watch.tree.open("agent", "a")
    assert await watch.turns() == 0


async def test_quiet_is_told_in_a_task_because_storing_events_starts_tasks() -> None:
    watch = Watch()
    watch.tree.open("tool", "t")
    watch.tree.wait(waiting())
    assert await watch.turns() == 1
    assert watch.told[0] is not None


async def test_a_sibling_that_starts_within_three_turns_is_seen() -> None:
    watch = Watch()

    async def tool(key: str, before: int) -> None:
        for _ in range(before):
            await anyio.lowlevel.checkpoint()
        watch.tree.open("tool", key)
        if before:
            await anyio.sleep_forever()
        watch.tree.wait(waiting())
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(tool, "waits", 0)
        group.start_soon(tool, "works", 2)
        assert await watch.turns(20) == 0
        group.cancel_scope.cancel()


async def test_an_answered_wait_is_work_again() -> None:
    watch = Watch()
    watch.tree.open("tool", "t")
    reply = waiting()
    span = watch.tree.wait(reply)
    reply.release()
    watch.tree.changed()
    assert await watch.turns() == 0
    watch.tree.close(span)
    assert await watch.turns() == 0


async def test_a_task_that_ends_closes_what_it_opened_whatever_callbacks_were_left_out() -> None:
    watch = Watch()

    async def branch() -> None:
        watch.tree.open("agent", "left")

    waits = watch.tree.open("agent", "root")
    async with anyio.create_task_group() as group:
        group.start_soon(branch)
    watch.tree.wait(waiting())
    assert watch.tree.find("agent", "left") is None
    assert watch.tree.find("agent", "root") is waits
    assert await watch.turns() == 1


async def test_after_a_failure_nothing_is_told_for_a_moment() -> None:
    """ADK may be cancelling the sibling that waits."""
    watch = Watch()
    watch.tree.open("tool", "t")
    watch.tree.failed()
    watch.tree.wait(waiting())
    assert await watch.turns(50) == 0
    with anyio.fail_after(10):
        while not watch.told:
            await anyio.lowlevel.checkpoint()


async def fails(tree: SpanTree) -> None:
    tree.open("tool", "t")
    tree.failed()


async def fails_afterwards(tree: SpanTree) -> None:
    tree.end()
    await fails(tree)


async def is_left(tree: SpanTree) -> None:
    tree.open("agent", "left")
    await anyio.sleep_forever()


@pytest.mark.parametrize("does", [fails, fails_afterwards, is_left])
async def test_no_timer_holds_a_tree_that_has_ended(does: Callable[[SpanTree], Coroutine[Any, Any, None]]) -> None:
    """With it the run and its whole session would stay in memory."""
    watch = Watch()
    tree = weakref.ref(watch.tree)
    async with anyio.create_task_group() as group:
        group.start_soon(does, watch.tree)
        await anyio.lowlevel.checkpoint()
        watch.tree.wait(waiting())
        watch.tree.end()
        group.cancel_scope.cancel()
    assert await watch.turns() == 0
    del watch
    gc.collect()
    assert tree() is None
