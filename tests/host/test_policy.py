"""Policies: closed by default, strict about what they understand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host import (
    AnnotationPolicy,
    PolicyDecision,
    PolicyRequest,
    Rule,
    RulePolicy,
    StrictestPolicy,
    allow_all,
    ask_all,
    deny_all,
)
from agentsession.host._policy import decide
from agentsession.protocol import ConfigurationError, ToolAnnotations

pytestmark = pytest.mark.anyio


def request(name: str = "read_file", **more: Any) -> PolicyRequest:
    return PolicyRequest(tool=name, args=more.pop("args", {}), **more)


@pytest.mark.parametrize("answer", [None, True, 1, {"decision": "allow"}, PolicyDecision(True)])  # type: ignore[arg-type]
async def test_what_is_no_decision_denies_and_the_host_is_told(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    decision = await decide(lambda _: answer, request())  # type: ignore[arg-type,return-value]
    assert decision.strictness == 2
    assert decision.reason is not None
    assert decision.reason.startswith("policy_error")
    assert f"the policy answered a {type(answer).__name__} at 'read_file'" in caplog.text


@pytest.mark.parametrize("word", ["never", "Allow", "ALLOW", "yes", "", "allow ", "allowed"])
async def test_an_unknown_word_denies_and_the_host_is_told(word: str, caplog: pytest.LogCaptureFixture) -> None:
    decision = await decide(lambda _: word, request())
    assert f"the policy answered {word!r} at 'read_file'" in caplog.text
    assert decision.decision == "deny"
    assert (decision.reason or "").startswith("unknown_decision")


async def test_an_exception_denies_and_does_not_say_more_than_its_type() -> None:
    class Broken:
        async def evaluate(self, request: PolicyRequest) -> PolicyDecision:
            raise ValueError("password is hunter2")

    decision = await decide(Broken(), request())
    assert (decision.decision, decision.reason) == ("deny", "policy_error: ValueError")


async def test_a_policy_that_leaves_the_process_denies() -> None:
    def leave(request: PolicyRequest) -> str:
        raise SystemExit(3)

    assert (await decide(leave, request())).reason == "policy_error: SystemExit"


async def test_a_policy_whose_own_awaiting_was_cancelled_denies(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("on trio nobody can raise a cancellation by hand")

    async def ask_a_server_that_went_away(request: PolicyRequest) -> str:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        return str(await answer)

    assert (await decide(ask_a_server_that_went_away, request())).reason == "policy_error: CancelledError"


@pytest.mark.parametrize("more", [{"by": 7}, {"by": None}, {"reason": 7}])
async def test_a_decision_that_cannot_be_recorded_denies(more: dict[str, Any]) -> None:
    decision = await decide(lambda _: PolicyDecision("allow", **more), request())
    assert (decision.decision, decision.by) == ("deny", "policy")


async def test_functions_and_evaluators_sync_and_async_are_policies() -> None:
    async def later(request: PolicyRequest) -> str:
        return "ask_user"

    assert (await decide(allow_all, request())).is_allow
    assert (await decide(later, request())).is_ask
    assert (await decide(RulePolicy([Rule("allow")]), request())).is_allow


async def test_the_first_matching_rule_decides_and_none_denies() -> None:
    policy = RulePolicy(
        [
            Rule("deny", "*_file", when=lambda args: ".." in args.get("path", ""), id="inside", reason="outside"),
            Rule("allow", ["read_*", "list_*"], id="reads"),
            Rule("ask_user", "edit_file"),
        ]
    )
    assert policy.evaluate(request(args={"path": "../x"})) == PolicyDecision("deny", "policy:inside", "outside")
    assert policy.evaluate(request(args={"path": "x"})).by == "policy:reads"
    assert policy.evaluate(request("edit_file")) == PolicyDecision("ask_user", "policy:3", None)
    assert policy.evaluate(request("run_shell")).decision == "deny"
    assert policy.evaluate(request("READ_file")).decision == "deny"


async def test_a_condition_that_raises_denies_also_where_a_later_rule_would_allow() -> None:
    policy = RulePolicy([Rule("deny", when=lambda args: args["path"] == "x"), Rule("allow")])
    assert (await decide(policy, request())).reason == "policy_error: KeyError"


async def test_a_condition_that_must_be_awaited_does_not_load() -> None:
    async def is_small(args: Any) -> bool:
        return False

    with pytest.raises(ConfigurationError, match="async"):
        Rule("allow", when=is_small)  # type: ignore[arg-type]  # what a user may write


async def test_a_condition_that_returns_an_awaitable_denies() -> None:
    async def is_small(args: Any) -> bool:
        return False

    policy = RulePolicy([Rule("allow", when=lambda args: is_small(args))])  # type: ignore[arg-type,return-value]
    decision = await decide(policy, request())
    assert (decision.decision, decision.reason) == ("deny", "policy_error: TypeError")


async def test_rules_can_be_for_some_principals_and_modes() -> None:
    policy = RulePolicy([Rule("deny", principals="main/*"), Rule("allow", modes=["default"])])
    assert policy.evaluate(request(principal_path=("main",))).is_allow
    assert policy.evaluate(request(principal_path=("main", "child"))).decision == "deny"
    assert policy.evaluate(request(permission_mode="other")).decision == "deny"


async def test_an_allow_without_modes_never_holds_in_plan() -> None:
    assert RulePolicy([Rule("allow")]).evaluate(request(permission_mode="plan")).decision == "deny"
    assert RulePolicy([Rule("allow", modes=["plan"])]).evaluate(request(permission_mode="plan")).is_allow


@pytest.mark.parametrize("word", ["alow", "Allow", "ask", ""])
async def test_a_rule_with_a_mistyped_decision_does_not_load(word: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown decision"):
        Rule(word)


@pytest.mark.parametrize(
    ("marks", "owner", "mode", "expected"),
    [
        ({"read_only": True}, "host", "default", "allow"),
        ({"read_only": True, "destructive": True}, "host", "default", "ask_user"),
        ({"read_only": True}, "agent", "default", "ask_user"),
        ({"destructive": True}, "host", "default", "ask_user"),
        ({}, "host", "default", "ask_user"),
        (None, "host", "default", "ask_user"),
        ({"read_only": True}, "host", "plan", "allow"),
        ({"read_only": True, "open_world": True}, "host", "plan", "ask_user"),
        ({}, "host", "plan", "deny"),
    ],
)
async def test_annotations_allow_what_only_reads(marks: Any, owner: str, mode: str, expected: str) -> None:
    annotations = None if marks is None else ToolAnnotations(**marks)
    decision = AnnotationPolicy().evaluate(request(annotations=annotations, owner=owner, permission_mode=mode))
    assert decision.decision == expected


async def test_an_owner_that_is_trusted_is_believed() -> None:
    asked = request(annotations=ToolAnnotations(read_only=True), owner="agent")
    assert AnnotationPolicy(trusted=("host", "agent")).evaluate(asked).is_allow


async def test_of_several_policies_the_strictest_holds() -> None:
    assert (await StrictestPolicy(allow_all, ask_all).evaluate(request())).is_ask
    assert (await StrictestPolicy(allow_all, deny_all, ask_all).evaluate(request())).decision == "deny"
    assert (await StrictestPolicy().evaluate(request())).decision == "deny"
    assert (await StrictestPolicy(allow_all, lambda _: 1 / 0).evaluate(request())).decision == "deny"  # type: ignore[arg-type,return-value]


RULES = st.builds(
    Rule,
    st.sampled_from(["allow", "ask_user"]),
    st.sampled_from(["*", "read_*", "r?ad_file", "other"]),
)


@given(st.lists(RULES), st.lists(RULES), st.text(max_size=20))
def test_no_later_rule_loosens_a_denial(before: list[Rule], after: list[Rule], name: str) -> None:
    before = [rule for rule in before if not rule.matches(request(name))]
    policy = RulePolicy([*before, Rule("deny"), *after])
    assert policy.evaluate(request(name)).decision == "deny"
