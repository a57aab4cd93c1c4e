"""What asking a host's hooks costs at one point, and with policy rules in a turn.

Most of what a plain function costs is the way to a thread and back, which stands here by itself; functions that are
asked one after the other share it, and an inline function stays on the loop. The last rows are what 500 rules and two
hooks, before and after the tool, add to a call of a host's tool in a turn, over a policy that allows all.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor, Step
from agentsession.host import HookChain, Host, Policy, allow_all, hook, tool
from agentsession.host.policy import PolicyEngine, builtin_rules, parse_policy
from agentsession.protocol import LifecycleInterceptor, ToolCallHook, ToolResultHook
from benchmarks._rows import Measured, Row, best_of, in_turn
from benchmarks.policy import spread_rules

__all__ = ["rows"]

_CALLS: Final = 1_000
_TURN_CALLS: Final = 300
_GOAL_MS: Final = 0.2
_CALL: Final = ToolCallHook(
    session_id="s", user_id="u", turn_id="t", request_id="r", name="tool3", args={"path": "src/a.py", "text": "x" * 200}
)


def _before(call: ToolCallHook) -> None:
    """Look, and let it pass."""


async def _waits(call: ToolCallHook) -> None:
    """Look, and let it pass."""


def _after(result: ToolResultHook) -> None:
    """Look, and let it pass."""


def _ms(ask: Callable[[], Awaitable[object]]) -> float:
    async def work() -> None:
        for _ in range(_CALLS):
            await ask()

    return best_of(5, lambda: anyio.run(work)) / _CALLS * 1_000


def _fired(*hooks: LifecycleInterceptor) -> float:
    chain = HookChain(hooks)
    return _ms(lambda: chain.fire("before_tool", _CALL))


async def _turn(policy: Policy, hooks: Sequence[LifecycleInterceptor] | None) -> float:
    @tool(name="tool3", read_only=True)
    async def work(path: str) -> None:
        """Do nothing."""

    script: list[list[Step]] = [[*(Call("tool3", {"path": "src/a.py"}) for _ in range(_TURN_CALLS)), Say("Done.")]]
    host = Host(tools=[work], policy=policy, loop_detection=False, hooks=hooks)
    async with ScriptedExecutor(script, name="main") as executor, host.session(executor) as session:
        start = time.process_time()
        await host.run_turn(session, "go")
        return time.process_time() - start


def _added() -> Iterator[Row]:
    engine = PolicyEngine([*builtin_rules(), *parse_policy(spread_rules())])

    def way(policy: Policy, hooks: Sequence[LifecycleInterceptor] | None) -> Measured:
        async def measured() -> float:
            return await _turn(policy, hooks)

        return measured

    ways = {"none": way(allow_all, None), "500 rules and no hook": way(engine, None)}
    for inline, kind in ((True, "inline"), (False, "plain")):
        both: list[LifecycleInterceptor] = [
            hook("before_tool", inline=inline)(_before),
            hook("after_tool", inline=inline)(_after),
        ]
        ways[f"500 rules and two {kind} hooks"] = way(engine, both)
    least = {name: min(times) for name, times in in_turn(9, ways).items()}
    none = least.pop("none")
    for name, seconds in least.items():
        yield Row(f"{name}, added to a call", (seconds - none) / _TURN_CALLS * 1_000, "ms/call", _GOAL_MS)


def rows() -> Iterator[Row]:
    """The measurements."""
    options: dict[str, Any] = {"abandon_on_cancel": True}
    yield Row("a thread and back, no hook", _ms(lambda: anyio.to_thread.run_sync(_before, _CALL, **options)), "ms/call")
    yield Row("one plain function", _fired(hook("before_tool")(_before)), "ms/call", _GOAL_MS)
    yield Row("five plain functions", _fired(*(hook("before_tool")(_before) for _ in range(5))), "ms/call", _GOAL_MS)
    yield Row("one inline function", _fired(hook("before_tool", inline=True)(_before)), "ms/call", _GOAL_MS)
    yield Row("one async function", _fired(hook("before_tool")(_waits)), "ms/call", _GOAL_MS)
    yield from _added()
