"""The points of a session's start and end, which every executor fires. On asyncio and trio."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.adapters.sessions import Puppet, kinds, say

from agentsession.adapters.base import RunContext
from agentsession.protocol import (
    AgentSessionError,
    ExecutionOptions,
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    OpenOptions,
    SessionConfig,
    block,
)

pytestmark = pytest.mark.anyio


async def echo(ctx: RunContext) -> None:
    assert ctx.input is not None
    await ctx.say(ctx.input.content)


def executor_of(**base: Any) -> Puppet:
    return Puppet(echo, **base)


class Desk:
    def __init__(self, **answers: Any) -> None:
        self.seen: list[tuple[str, str, str | None]] = []
        self._answers = answers

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        self.seen.append((hook_point, getattr(payload, "reason", ""), payload.permission_mode))
        answer: Any = self._answers.get(hook_point)
        if answer is None or isinstance(answer, HookOutcome):
            return answer
        made: HookOutcome | None = await answer()
        return made


async def test_a_session_tells_how_it_began_and_that_it_ended_once() -> None:
    desk, store = Desk(), MemoryRecordStore()
    async with executor_of(store=store) as executor:
        session = await executor.open(
            OpenOptions(session_id="s", execution=ExecutionOptions(permission_mode="plan")), hooks=desk
        )
        assert kinds(await say(session))[-1] == "stream_end"
        await session.update(SessionConfig(title="t"))
        await session.aclose()
        await session.aclose()
        loaded = await executor.load("s", hooks=desk)
        await loaded.aclose()
    assert desk.seen == [
        ("session_start", "opened", "plan"),
        ("on_user_message", "", "plan"),
        ("session_end", "closed", "plan"),
        ("session_start", "loaded", None),
        ("session_end", "closed", None),
    ]


async def test_a_session_whose_start_is_blocked_is_not_opened_and_leaves_nothing() -> None:
    desk, store = Desk(session_start=block("not now", by="hours")), MemoryRecordStore()
    async with executor_of(store=store) as executor:
        with pytest.raises(AgentSessionError) as caught:
            await executor.open(OpenOptions(session_id="s"), hooks=desk)
        assert (caught.value.id, caught.value.what, caught.value.got) == ("hook-blocked", "not now", "hook:hours")
        session = await executor.open(OpenOptions(session_id="s"))  # the id is free, the record was removed
        assert kinds(session.record) == ["initialize"]
    assert [point for point, _, _ in desk.seen] == ["session_start"]


async def test_a_load_that_is_blocked_gives_the_record_back() -> None:
    store = MemoryRecordStore()
    async with executor_of(store=store) as executor:
        await (await executor.open(OpenOptions(session_id="s"))).aclose()
        with pytest.raises(AgentSessionError):
            await executor.load("s", hooks=Desk(session_start=block()))
        await executor.load("s")


@pytest.mark.parametrize(("how", "removed"), [("open", ["new"]), ("fork", ["new"]), ("load", [])])
async def test_what_the_agent_behind_made_for_a_session_goes_with_a_start_that_is_blocked(
    how: str, removed: list[str]
) -> None:
    blocks, new = Desk(session_start=block()), OpenOptions(session_id="new")
    async with executor_of(store=MemoryRecordStore()) as executor:
        await (await executor.open(OpenOptions(session_id="s"))).aclose()
        begins = {
            "open": lambda: executor.open(new, hooks=blocks),
            "fork": lambda: executor.fork("s", 1, new, hooks=blocks),
            "load": lambda: executor.load("s", hooks=blocks),
        }
        with pytest.raises(AgentSessionError):
            await begins[how]()
        assert executor.deleted == removed


async def test_a_start_hook_that_fails_does_not_keep_the_session_from_opening() -> None:
    async def boom() -> None:
        raise RuntimeError("x")

    desk = Desk(session_start=boom)
    async with executor_of() as executor:
        session = await executor.open(hooks=desk)
        await session.aclose()
    assert [point for point, _, _ in desk.seen] == ["session_start", "session_end"]


async def test_an_end_hook_that_hangs_holds_the_closing_no_longer_than_the_grace_time() -> None:
    async with executor_of(grace_s=0.01) as executor:
        session = await executor.open(hooks=Desk(session_end=anyio.sleep_forever))
        with anyio.fail_after(5):
            await session.aclose()
        assert session.state == "closed"
