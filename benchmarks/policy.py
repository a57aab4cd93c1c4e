"""What deciding on one call costs with 500 rules: names, arguments, shell commands and annotations, the built-in table
below.

The first rows are the rule engine alone. The last is what it adds to a call of a host's tool in a turn, over a policy
that allows all: the question, the engine, the mode's ceiling and the remembered answers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import anyio

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor, Step
from agentsession.host import Host, Policy, PolicyRequest, allow_all, tool
from agentsession.host.policy import PolicyEngine, builtin_rules, parse_policy
from agentsession.protocol import ToolAnnotations
from benchmarks._rows import Row, best_of

__all__ = ["rows", "spread_rules"]

_RULES: Final = 500
_CALLS: Final = 2_000
_TURN_CALLS: Final = 300
_GOAL_MS: Final = 0.2


def spread_rules() -> str:
    """Rules as a large site has them: most for a few tools, a fifth for all."""
    out = ["version = 1"]
    decisions = itertools.cycle(("allow", "deny", "ask_user"))
    for number in range(_RULES):
        kind = number % 5
        tools = '["*"]' if kind == 0 else json.dumps([f"server{number % 20}:tool{number % 40}", f"tool{number % 40}*"])
        narrowed = (
            f'args = {{ "/path" = {{ glob = "src/part{number}/**" }} }}',
            f'args = {{ "/amount" = {{ gt = {number} }}, "/currency" = {{ eq = "EUR" }} }}',
            f'shell = [["git", "verb{number}"], ["make", "target{number}"]]',
            f'principals = ["main/agent{number}/**"]',
            f'args = {{ "/path" = {{ under = "work{number}" }} }}',
        )[kind]
        out.append(f'[[rule]]\nid = "r{number}"\ntools = {tools}\ndecision = "{next(decisions)}"\n{narrowed}')
    return "\n".join(out)


def _all_look() -> str:
    """The worst of its kind: every rule is about every tool, and looks at an argument in vain."""
    rules = (
        f'[[rule]]\nid = "r{number}"\ntools = ["*"]\ndecision = "deny"\npriority = {number}\n'
        f'args = {{ "/path" = {{ prefix = "never{number}/" }} }}'
        for number in range(_RULES)
    )
    return "\n".join(["version = 1", *rules])


def _request(number: int = 0, **args: Any) -> PolicyRequest:
    return PolicyRequest(
        tool=f"tool{number % 40}",
        args=args or {"path": "src/a.py", "text": "x" * 200},
        annotations=ToolAnnotations(read_only=True),
        principal="main",
        principal_path=("main",),
    )


def _ms(engine: PolicyEngine, *requests: PolicyRequest) -> float:
    def work() -> None:
        for _, request in zip(range(_CALLS), itertools.cycle(requests), strict=False):
            engine.evaluate(request)

    return best_of(3, work) / _CALLS * 1_000


def _added(engine: PolicyEngine) -> float:
    plain = best_of(5, lambda: anyio.run(_turn, allow_all))
    return (best_of(5, lambda: anyio.run(_turn, engine)) - plain) / _TURN_CALLS * 1_000


async def _turn(policy: Policy) -> None:
    @tool(name="tool3", read_only=True)
    def work(path: str) -> None:
        """Do nothing."""

    script: list[list[Step]] = [[*(Call("tool3", {"path": "src/a.py"}) for _ in range(_TURN_CALLS)), Say("Done.")]]
    host = Host(tools=[work], policy=policy, loop_detection=False)
    async with ScriptedExecutor(script, name="main") as executor, host.session(executor) as session:
        await host.run_turn(session, "go")


def rows() -> Iterator[Row]:
    """The measurements."""
    engine = PolicyEngine([*builtin_rules(), *parse_policy(spread_rules())])
    yield Row("500 rules, 40 tools", _ms(engine, *map(_request, range(40))), "ms/call", _GOAL_MS)
    shell = _request(2, command="cd src && git status --short | head -5")
    yield Row("500 rules, a command line of three", _ms(engine, shell), "ms/call", _GOAL_MS)
    yield Row("500 rules, none holds", _ms(engine, _request(3, amount="much")), "ms/call", _GOAL_MS)
    worst = PolicyEngine([*builtin_rules(), *parse_policy(_all_look())])
    yield Row("500 rules, each looks at the arguments", _ms(worst, _request()), "ms/call", _GOAL_MS)
    yield Row("500 rules, added to a call in a turn", _added(engine), "ms/call", _GOAL_MS)
