"""Which rule of a policy decides: never the order of a file, never a lower tier, and nothing means no."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.host.policy.rules import decides, engine, request, rules
from tests.host.subagents import agent, calls, run

from agentsession.adapters.scripted import Call, Say
from agentsession.host import Host, SubagentTool, tool
from agentsession.host.policy import PolicyEngine, load_policy, policy_digest
from agentsession.protocol import ConfigurationError

ALLOW = """
[[rule]]
id = "yes"
tools = ["*"]
decision = "allow"
"""
ASK = ALLOW.replace('"yes"', '"ask"').replace('"allow"', '"ask_user"')
DENY = ALLOW.replace('"yes"', '"no"').replace('"allow"', '"deny"')


def test_what_no_rule_names_is_denied() -> None:
    assert decides("", request()) == ("deny", "no_match")
    assert decides(ALLOW.replace("*", "read_*"), request()) == ("deny", "no_match")


@pytest.mark.parametrize("texts", list(itertools.permutations([ALLOW, ASK, DENY])))
def test_of_equal_rules_the_strictest_counts_in_any_order(texts: tuple[str, ...]) -> None:
    assert decides("".join(texts), request()) == ("deny", "no")
    assert decides("".join(text for text in texts if text is not DENY), request()) == ("ask_user", "ask")


def test_a_higher_priority_counts_before_strictness_and_a_higher_tier_before_both() -> None:
    high = ALLOW + "priority = 101\n"
    assert decides(high + DENY, request()) == ("allow", "yes")
    admin = rules(DENY + "priority = 0\n", "admin")
    assert engine(high + "\n", admin).evaluate(request()).decision == "deny"


def test_a_priority_of_999_does_not_reach_the_next_tier() -> None:
    lower = rules(ALLOW + "priority = 999\n", "workspace")
    assert engine(DENY + "priority = 0\n", lower).evaluate(request()).decision == "deny"


# --- tools, agents, modes, situations -------------------------------------------------------------------------------


def test_a_pattern_for_any_server_matches_a_tool_of_any_server() -> None:
    text = ALLOW.replace('"*"', '"*:read"')
    assert decides(text, request("fs:read"))[0] == "allow"
    assert decides(text, request("fs:read_all"))[0] == "deny"


def test_a_bare_name_allows_the_hosts_own_tool_and_not_that_of_a_server() -> None:
    text = ALLOW.replace('"*"', '"read_file"')
    assert decides(text, request("read_file"))[0] == "allow"
    assert decides(text, request("read_file", provider="evil", provider_tool="read_file"))[0] == "deny"


def test_a_bare_name_denies_the_tool_of_a_server_too() -> None:
    text = ALLOW + DENY.replace('"*"', '"shell"')
    assert decides(text, request("shell", provider="box", provider_tool="shell")) == ("deny", "no")


@pytest.mark.parametrize(
    ("glob", "path", "holds"),
    [
        ("main", "main", True),
        ("main", "main/child", False),
        ("main/*", "main/child", True),
        ("main/*", "main/child/leaf", False),
        ("main/**", "main/child/leaf", True),
        ("main/**", "main", False),
        ("**", "main", True),
        ("**/leaf", "main/child/leaf", True),
        ("**/leaf", "leaf", True),
        ("main/**/leaf", "main/leaf", True),
        ("child", "main/child", False),
    ],
)
def test_principals_are_patterns_over_the_whole_path(glob: str, path: str, holds: bool) -> None:
    found = decides(f'{DENY}principals = ["{glob}"]\n{ALLOW}', request(path=path))
    assert found[0] == ("deny" if holds else "allow")


def test_an_agent_whose_name_holds_a_slash_is_one_step() -> None:
    asked = request()
    forged = type(asked)(tool="x", args={}, principal_path=("other", "main/child"))
    assert decides(f'{ALLOW}principals = ["main/*"]', forged)[0] == "deny"


def test_an_allow_without_modes_never_holds_in_plan() -> None:
    assert decides(ALLOW, request(mode="plan"))[0] == "deny"
    assert decides(ALLOW + 'modes = ["plan"]', request(mode="plan"))[0] == "allow"
    assert engine(ALLOW, builtin=True).evaluate(request(mode="plan")).by == "policy:unmarked-in-plan"


def test_a_rule_for_nobody_there_holds_only_without_a_channel() -> None:
    text = ALLOW + DENY + "interactive = false\n"
    assert decides(text, request(interactive=False))[0] == "deny"
    assert decides(text, request())[0] == "allow"


# --- tiers that may not loosen --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ALLOW, ASK])
def test_a_plugin_opens_nothing_that_nobody_else_does(text: str) -> None:
    assert engine("", rules(text + "priority = 999\n", "plugin")).evaluate(request()).decision == "deny"


def test_a_plugin_makes_no_question_of_a_denial_of_the_built_in_table() -> None:
    found = engine("", rules(ASK, "plugin"), builtin=True).evaluate(request(mode="plan"))
    assert (found.decision, found.by) == ("deny", "policy:unmarked-in-plan")


def test_a_plugin_tightens_what_the_built_in_table_allows() -> None:
    asked = request(read_only=True)
    assert engine("", builtin=True).evaluate(asked).is_allow
    assert engine("", rules(DENY, "plugin"), builtin=True).evaluate(asked).by == "policy:no"


def test_a_workspace_opens_nothing_until_its_very_file_was_trusted(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("version = 1\n" + ALLOW)
    digest = policy_digest(file)

    def decision(trusted: str | None) -> str:
        return PolicyEngine(load_policy(file, tier="workspace", trusted_digest=trusted)).evaluate(request()).decision

    assert decision(None) == "deny"
    assert decision(digest) == "allow"
    file.write_text("version = 1\n" + ALLOW + "# changed\n")
    assert decision(digest) == "deny"


@pytest.mark.parametrize("mode", ["plan", "autonomous"])
def test_a_trusted_workspace_allows_nothing_in_plan_and_autonomous(mode: str) -> None:
    found = engine("", rules(ALLOW + f'modes = ["{mode}"]', "workspace"))
    assert found.evaluate(request(mode=mode)).decision == "deny"


def test_a_workspaces_denial_holds_whoever_trusts_it() -> None:
    untrusted = rules(DENY, "workspace", is_trusted=False)
    assert engine("", untrusted, builtin=True).evaluate(request(read_only=True)).decision == "deny"


@pytest.mark.anyio
async def test_a_rule_on_sub_agents_holds_in_the_session_of_one() -> None:
    """Its session is its own; what it is in the tree of agents is what counts."""
    ran: list[str] = []

    @tool
    def work(path: str) -> None:
        ran.append(path)

    text = ALLOW + DENY.replace("*", "work") + 'principals = ["coder/**"]\n'
    async with (
        agent("helper", Call("work", {"path": "below"}), Say("done")) as helper,
        agent("coder", calls("helper"), Call("work", {"path": "above"}), Say("ok")) as coder,
    ):
        result = await run(Host(tools=[work, SubagentTool(helper, tools=["work"])], policy=engine(text)), coder)
    assert result.completed
    assert ran == ["above"]


# --- annotations ----------------------------------------------------------------------------------------------------

READS = ALLOW + "annotations = { read_only = true }\n"


def test_what_an_untrusted_provider_claims_only_tightens() -> None:
    assert decides(READS, request("fs:read", read_only=True, trusted=True))[0] == "allow"
    assert decides(READS, request("fs:read", read_only=True, trusted=False))[0] == "deny"
    text = ALLOW + DENY + "annotations = { destructive = true }\n"
    assert decides(text, request("fs:rm", destructive=True, trusted=False))[0] == "deny"


def test_an_untrusted_claim_does_not_lift_a_rule_on_what_is_not_read_only() -> None:
    text = ALLOW + DENY + "annotations = { read_only = false }\n"
    assert decides(text, request("fs:read", read_only=True, trusted=False)) == ("deny", "no")
    assert decides(text, request("fs:read", read_only=True, trusted=True)) == ("allow", "yes")


def test_destructive_beats_read_only() -> None:
    assert decides(READS, request(read_only=True, destructive=True))[0] == "deny"


def test_the_agents_own_claims_loosen_only_where_the_host_believes_them() -> None:
    asked = request(read_only=True, owner="agent", trusted=False)
    assert decides(READS, asked)[0] == "deny"
    assert decides(READS, asked, believed={"agent"})[0] == "allow"


# --- what is said of a decision -------------------------------------------------------------------------------------


def test_a_decision_says_the_rule_its_line_and_its_reason() -> None:
    found = engine(DENY + 'reason = "not here"\n').evaluate(request())
    assert (found.by, found.where, found.reason) == ("policy:no", "policy.toml:3", "not here")


def test_two_rules_of_a_tier_with_one_id_do_not_load() -> None:
    with pytest.raises(ConfigurationError, match="two rules of the tier user"):
        engine(ALLOW, rules(ALLOW))


def test_an_explanation_names_all_that_hold_and_why_they_did_not_decide() -> None:
    found = engine(ALLOW + DENY, rules(ASK, "plugin"), builtin=True).explain(request(mode="default"))
    assert found.rule is not None
    assert found.rule.id == "no"
    fates = {one.rule.id: one.fate for one in found.matched}
    assert fates == {
        "no": "decided",
        "yes": "at the same priority the stricter no counts",
        "ask": "it only tightens, and no is as strict",
        "unmarked-asks": "the tier user stands above builtin",
    }


@pytest.mark.parametrize("operator", ["prefix", "glob"])
def test_of_many_rules_that_look_for_beginnings_each_holds_for_its_own(operator: str) -> None:
    text = "".join(
        f'[[rule]]\nid = "r{number}"\ntools = ["*"]\ndecision = "deny"\n'
        f'args = {{ "/path" = {{ {operator} = "p{number}/{"**" if operator == "glob" else ""}" }} }}\n'
        for number in range(12)
    )
    found = engine(text + '[[rule]]\nid = "else"\ntools = ["*"]\ndecision = "allow"\n')
    for number in range(12):
        assert found.evaluate(request("edit_file", {"path": f"p{number}/x"})).by == f"policy:r{number}"
    assert found.evaluate(request("edit_file", {"path": "q/x"})).by == "policy:else"
    assert found.evaluate(request("edit_file", {"path": ["p1/x"]})).decision == "deny"
    assert found.evaluate(request("edit_file", {})).by == "policy:else"
