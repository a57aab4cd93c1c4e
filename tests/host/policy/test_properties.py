"""Whatever the rules, their order, the arguments and what was remembered: a call that is denied does not run."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.policy.rules import request

from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor, Step
from agentsession.host import Approval, CallbackChannel, Host, PolicyDecision, PolicyRequest, ToolBox
from agentsession.host.policy import MODES, PolicyEngine, PolicyRule, RememberedAnswers, Tier, parse_policy
from agentsession.protocol import ExecutionOptions, OpenOptions, ToolDescriptor

NARROWED = (
    "",
    'args = { "/a" = { eq = "x" } }',
    'args = { "/a" = { in = ["x", 1, true] } }',
    'args = { "/a" = { prefix = "x" } }',
    'args = { "/a" = { glob = "**" } }',
    'args = { "/a" = { regex = ".*" } }',
    'args = { "/a" = { under = "." } }',
    'args = { "/a" = { gt = 0 } }',
    'args = { "/a" = { lt = 5 }, "/b" = { eq = 1 } }',
    'args = { "/a/b/0" = { eq = "x" } }',
    'shell = [["git"], ["rm", "-rf"]]',
    "annotations = { read_only = true }",
    "annotations = { destructive = false }",
    "annotations = { destructive = true }",
    "annotations = { read_only = false, open_world = true }",
    'principals = ["**"]',
    "interactive = true",
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**40), 2**53 + 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["x", "x\0", "\ud800", "x" * 70_000, "../x", "~", "\u202e", "rm -rf x", "git; rm -rf /", "$(", "\r"]
    ),
)
ODD = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=2),
    max_leaves=5,
)
DEEP = st.integers(1, 60).map(lambda depth: _nested(depth))
ARGS = st.dictionaries(st.sampled_from(["a", "b", "command", ""]), st.one_of(ODD, DEEP), max_size=3)


def _nested(depth: int) -> Any:
    found: Any = "x"
    for _ in range(depth):
        found = {"b": [found]}
    return found


def _rule(number: int, decision: str, narrowed: str, priority: int, tier: str, modes: Sequence[str]) -> PolicyRule:
    named = f"modes = {list(modes)}\n" if modes else ""
    text = (
        f'[[rule]]\nid = "r{number}"\ntools = ["*"]\ndecision = "{decision}"\npriority = {priority}\n{named}{narrowed}'
    )
    (rule,) = parse_policy(f"version = 1\n{text}", tier=tier)
    return rule


RULES = st.lists(
    st.tuples(
        st.sampled_from(["allow", "ask_user", "deny"]),
        st.sampled_from(NARROWED),
        st.integers(0, 3),
        st.sampled_from(["builtin", "plugin", "workspace", "user", "admin"]),
        st.lists(st.sampled_from(MODES), max_size=2, unique=True),
    ),
    max_size=8,
).map(lambda found: [_rule(number, *one) for number, one in enumerate(found)])

MARKS = st.fixed_dictionaries({}, optional={name: st.booleans() for name in ("read_only", "destructive", "open_world")})


@given(RULES, ARGS, MARKS, st.sampled_from(MODES), st.booleans(), st.randoms(use_true_random=False))
def test_no_order_changes_a_decision(
    rules: list[PolicyRule], args: dict[str, Any], marks: Any, mode: str, trusted: bool, rng: random.Random
) -> None:
    asked = request("t", args, mode=mode, trusted=trusted, **marks)
    found = PolicyEngine(rules).evaluate(asked)
    shuffled = [*rules]
    rng.shuffle(shuffled)
    assert PolicyEngine(shuffled).evaluate(asked) == found
    assert PolicyEngine(rules).explain(asked).decision == found


_BEGINNINGS = ("x", "xy", "y/", "src/", "src/**", "s*c", "[ab]x", "x?", "é", "**/x", "xy/*")
MANY = st.lists(
    st.tuples(
        st.sampled_from(["allow", "ask_user", "deny"]),
        st.sampled_from(["prefix", "glob"]),
        st.sampled_from(_BEGINNINGS),
        st.integers(0, 3),
    ),
    min_size=8,
    max_size=16,
).map(
    lambda found: [
        _rule(100 + number, decision, f'args = {{ "/a" = {{ {operator} = "{text}" }} }}', priority, "user", ())
        for number, (decision, operator, text, priority) in enumerate(found)
    ]
)
TEXTS = st.sampled_from(
    ["x", "xyz", "xy/a", "src/a", "./src/a", "y/b", "é", "e\u0301", "ax", "sic", "", "q/x", "src\n"]
)


@given(MANY, RULES, st.one_of(TEXTS, ODD), st.booleans())
def test_one_look_for_many_rules_decides_as_one_for_each_does(
    many: list[PolicyRule], others: list[PolicyRule], value: Any, there: bool
) -> None:
    asked = request("t", {"a": value} if there else {"b": 1})
    engine = PolicyEngine([*many, *others])
    assert engine.evaluate(asked) == engine.explain(asked).decision


@given(RULES, RULES, ARGS, MARKS, st.sampled_from(MODES))
def test_nothing_of_a_lower_rank_lifts_a_denial(
    rules: list[PolicyRule], others: list[PolicyRule], args: dict[str, Any], marks: Any, mode: str
) -> None:
    asked = request("t", args, mode=mode, **marks)
    engine = PolicyEngine(rules)
    decided = engine.explain(asked)
    if decided.decision.decision != "deny" or decided.rule is None or decided.rule.only_tightens:
        return
    rank = decided.rule.rank
    more = [_renamed(rule) for rule in others if rule.rank < rank]
    assert PolicyEngine([*rules, *more]).evaluate(asked).decision == "deny"


@given(RULES, ARGS, MARKS, st.sampled_from(MODES))
def test_rules_that_only_tighten_never_loosen(
    rules: list[PolicyRule], args: dict[str, Any], marks: Any, mode: str
) -> None:
    asked = request("t", args, mode=mode, **marks)
    without = PolicyEngine(rule for rule in rules if rule.tier is not Tier.PLUGIN).evaluate(asked)
    assert PolicyEngine(rules).evaluate(asked).strictness >= without.strictness


@given(RULES, ARGS, MARKS, st.sampled_from(MODES))
def test_what_a_provider_claims_never_loosens(
    rules: list[PolicyRule], args: dict[str, Any], marks: Any, mode: str
) -> None:
    silent = request("t", args, mode=mode, trusted=False)
    claims = request("t", args, mode=mode, trusted=False, **marks)
    engine = PolicyEngine(rules)
    assert engine.evaluate(claims).strictness >= engine.evaluate(silent).strictness


def _renamed(rule: PolicyRule) -> PolicyRule:
    return dataclasses.replace(rule, id=f"other-{rule.id}")


# --- driven -------------------------------------------------------------------------------------------------------


class Kept:
    """An evaluator that keeps what it decided, by request."""

    def __init__(self, engine: PolicyEngine) -> None:
        self.engine = engine
        self.decided: dict[str, PolicyDecision] = {}

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        found = self.engine.evaluate(request)
        self.decided[request.request_id] = found
        return found


async def _drive(
    engine: PolicyEngine, calls: list[dict[str, Any]], mode: str, answer: Approval, remembered: RememberedAnswers
) -> tuple[list[str], Kept]:
    ran: list[str] = []
    kept = Kept(engine)

    def work(args: dict[str, Any], context: Any) -> str:
        ran.append(context.request_id)
        return "done"

    tool = ToolDescriptor(name="t", parameters_schema={"type": "object"})
    host = Host(
        tools=ToolBox([(tool, work)]),
        policy=kept,
        channel=CallbackChannel(lambda *args: answer, concurrent=True),
        remembered=remembered,
    )
    options = OpenOptions(execution=ExecutionOptions(permission_mode=mode))
    script: list[list[Step]] = [[Calls(*(Call("t", args) for args in calls)), Say("Done.")]]
    with anyio.fail_after(20):
        async with ScriptedExecutor(script) as executor, host.session(executor, options) as session:
            await host.run_turn(session, "go")
    return ran, kept


@settings(max_examples=40, deadline=None)
@given(
    RULES,
    st.lists(ARGS, min_size=1, max_size=3),
    st.sampled_from(MODES),
    st.sampled_from(["once", "session", "always"]),
    st.booleans(),
)
def test_in_a_host_only_an_allow_or_a_yes_runs(
    rules: list[PolicyRule], calls: list[dict[str, Any]], mode: str, remember: Any, yes: bool
) -> None:
    answer = Approval.yes(remember=remember) if yes else Approval.no()
    ran, kept = anyio.run(_drive, PolicyEngine(rules), calls, mode, answer, RememberedAnswers())
    for request_id in ran:
        word = kept.decided[request_id].decision
        assert word == "allow" or (word == "ask_user" and yes)
    assert len(set(ran)) == len(ran)


@settings(max_examples=25, deadline=None)
@given(RULES, st.lists(ARGS, min_size=1, max_size=3), st.sampled_from(MODES))
def test_in_a_host_nothing_that_was_remembered_runs_what_is_denied_now(
    rules: list[PolicyRule], calls: list[dict[str, Any]], mode: str
) -> None:
    remembered = RememberedAnswers()
    ask = PolicyEngine([_rule(0, "ask_user", "", 0, "user", [])])
    first, _ = anyio.run(_drive, ask, calls, mode, Approval.yes(remember="always"), remembered)
    deny = _rule(99, "deny", "", 999, "admin", [])
    ran, _ = anyio.run(_drive, PolicyEngine([*rules, deny]), calls, mode, Approval.yes(), remembered)
    assert len(first) == len(calls) or mode == "plan"
    assert ran == []
