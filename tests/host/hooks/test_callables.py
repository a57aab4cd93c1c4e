"""Python functions as hooks: what runs in a thread, what shares one, what runs on the loop. On asyncio and trio."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from agentsession.host.hooks import HookChain, hook
from agentsession.protocol import ConfigurationError, HookOutcome, ToolCallHook, block, modify

pytestmark = pytest.mark.anyio

CALL = ToolCallHook(session_id="s", user_id="u", request_id="r", name="run", args={"path": "a"})


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item for each time that something is handed to a thread."""
    found: list[str] = []
    run_sync = anyio.to_thread.run_sync

    async def counted(*args: Any, **options: Any) -> Any:
        found.append("thread")
        return await run_sync(*args, **options)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
    return found


def plain(answer: Callable[[ToolCallHook], Any], id: str, **options: Any) -> Any:
    return hook("before_tool", id=id, **options)(answer)


async def test_plain_functions_share_a_thread_and_each_sees_what_the_one_before_it_changed(threads: list[str]) -> None:
    def step(name: str) -> Callable[[ToolCallHook], HookOutcome]:
        return lambda call: modify(args={"path": f"{call.args['path']}/{name}"})

    outcome = await HookChain([plain(step(name), name) for name in "bcd"]).fire("before_tool", CALL)
    assert outcome is not None
    assert (outcome.modifications, outcome.by) == ({"args": {"path": "a/b/c/d"}}, "b,c,d")
    assert len(threads) == 1


async def test_a_block_ends_it_and_a_failure_does_not_in_a_thread_that_is_shared() -> None:
    asked: list[str] = []

    def fails(call: ToolCallHook) -> None:
        raise ValueError("secret")

    hooks = [
        plain(fails, "a", on_error="proceed"),
        plain(lambda call: 7, "b", on_error="proceed"),
        plain(lambda call: block("no"), "c"),
        plain(lambda call: asked.append("d"), "d"),
    ]
    outcome = await HookChain(hooks).fire("before_tool", CALL)
    assert outcome is not None
    assert (outcome.action, outcome.by, outcome.message) == ("block", "c", "no")
    assert outcome.failure == ("hook a at before_tool failed with ValueError; hook b at before_tool answered a int")
    assert asked == []


async def test_hooks_that_are_not_about_it_cost_no_thread(threads: list[str]) -> None:
    hooks = [plain(lambda call: block("no"), "a", match="other"), plain(lambda call: block("no"), "b", match="third")]
    assert await HookChain(hooks).fire("before_tool", CALL) is None
    assert threads == []


async def test_a_match_that_raises_fails_its_hook_alone_among_plain_functions() -> None:
    def wrong(call: Any) -> bool:
        raise KeyError("x")

    hooks = [
        plain(lambda call: None, "a", match=wrong, on_error="proceed"),
        plain(lambda call: None, "b"),
        plain(lambda call: None, "c", match=wrong),
        plain(lambda call: modify(args={}), "d"),
    ]
    outcome = await HookChain(hooks).fire("before_tool", CALL)
    assert outcome is not None
    assert (outcome.action, outcome.by) == ("block", "c")
    assert outcome.failure is not None
    assert outcome.failure.startswith("hook a at before_tool failed with KeyError")


async def test_after_a_cancellation_no_further_function_of_the_thread_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release, left = threading.Event(), threading.Event(), threading.Event()
    asked: list[str] = []
    run_sync = anyio.to_thread.run_sync

    async def told(function: Callable[[], Any], **options: Any) -> Any:
        def run() -> Any:
            try:
                return function()
            finally:
                left.set()

        return await run_sync(run, **options)

    monkeypatch.setattr(anyio.to_thread, "run_sync", told)

    def slow(call: ToolCallHook) -> None:
        entered.set()
        assert release.wait(5)

    chain = HookChain([plain(slow, "a"), plain(lambda call: asked.append("b"), "b")])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chain.fire, "before_tool", CALL)
            while not entered.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        release.set()
        while not left.is_set():
            await anyio.lowlevel.checkpoint()
    assert asked == []


async def test_what_a_plain_function_hands_back_to_wait_for_is_awaited_and_the_rest_is_asked(
    threads: list[str],
) -> None:
    async def later() -> HookOutcome:
        return modify(args={"path": "b"})

    def waits(call: ToolCallHook) -> Awaitable[HookOutcome]:
        return later()

    hooks = [plain(waits, "a"), plain(lambda call: modify(args={"path": call.args["path"] * 2}), "b")]
    outcome = await HookChain(hooks).fire("before_tool", CALL)
    assert outcome is not None
    assert outcome.modifications == {"args": {"path": "bb"}}
    assert len(threads) == 2


async def test_a_plain_function_with_a_time_limit_has_a_thread_of_its_own_and_is_given_up_alone() -> None:
    release = threading.Event()
    hooks = [
        plain(lambda call: modify(args={"path": "b"}), "a"),
        plain(lambda call: release.wait(5), "b", timeout_s=0.01, on_error="proceed"),
        plain(lambda call: modify(args={"path": call.args["path"] * 2}), "c"),
    ]
    try:
        outcome = await HookChain(hooks).fire("before_tool", CALL)
    finally:
        release.set()
    assert outcome is not None
    assert outcome.modifications == {"args": {"path": "bb"}}
    assert outcome.failure == "hook b at before_tool took longer than 0.01 s"


async def test_an_inline_function_runs_where_the_loop_runs(threads: list[str]) -> None:
    ran: list[int] = []
    outcome = await HookChain([plain(lambda call: ran.append(threading.get_ident()), "a", inline=True)]).fire(
        "before_tool", CALL
    )
    assert outcome is None
    assert (ran, threads) == ([threading.get_ident()], [])


async def test_an_inline_function_is_isolated_like_others() -> None:
    def fails(call: ToolCallHook) -> None:
        call.args["path"] = "changed"
        raise ValueError

    outcome = await HookChain([plain(fails, "a", inline=True)]).fire("before_tool", CALL)
    assert outcome is not None
    assert outcome.action == "block"
    assert CALL.args == {"path": "a"}


async def test_inline_is_refused_where_it_would_promise_too_much() -> None:
    async def waits(call: ToolCallHook) -> None:
        """Wait."""

    with pytest.raises(ConfigurationError, match="runs on the loop anyway"):
        hook("before_tool", inline=True)(waits)
    with pytest.raises(ConfigurationError, match="cannot be given up in time"):
        plain(lambda call: None, "a", inline=True, timeout_s=1)
