"""Policy files: what is not understood does not load, and the error says where it stands and what to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.host.policy.rules import decides, request, rules

from agentsession.host.policy import PolicyEngine, builtin_rules, load_policy, parse_policy
from agentsession.protocol import ConfigurationError

RULE = '[[rule]]\nid = "edits"\ntools = ["*"]\ndecision = "ask_user"\n'


def refused(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as told:
        rules(text)
    assert told.value.id == "policy"
    return told.value


def test_the_three_rules_of_the_reference_load_and_their_examples_hold() -> None:
    text = """
[[rule]]  # coding agent
id = "git-push"
tools = ["fs:shell"]
shell = [["git", "push"]]
decision = "ask_user"
remember = "exact"
match = [{ command = "git push origin main" }]
[[rule]]  # support desk
id = "big-refund"
tools = ["shop:refund"]
args = { "/amount" = { gt = 100 } }
decision = "ask_user"
remember = "never"
[[rule]]  # batch job: children stay offline
id = "closed-children"
tools = ["*"]
principals = ["main/**"]
annotations = { open_world = true }
interactive = false
decision = "deny"
priority = 900
"""
    assert [rule.where for rule in rules(text)] == ["policy.toml:3", "policy.toml:10", "policy.toml:16"]
    assert decides(text, request("shop:refund", {"amount": 100.5}))[1] == "big-refund"
    assert decides(text, request("shop:refund", {"amount": 100}))[1] == "no_match"
    offline = request("web", path="main/child", open_world=True, interactive=False)
    assert decides(text, offline) == ("deny", "closed-children")


@pytest.mark.parametrize(
    ("line", "number", "what", "fix"),
    [
        ('decision = "alow"', 5, 'unknown decision "alow"', "allow, deny or ask_user"),
        ("decision = true", 5, "unknown decision True", "allow, deny or ask_user"),
        ('decison = "deny"', 6, "unknown key 'decison'", "did you mean decision?"),
        ("colour = 1", 6, "unknown key 'colour'", "one of: id"),
        ('modes = ["autoedit"]', 6, "unknown mode 'autoedit'", "did you mean auto_edit?"),
        ("modes = []", 6, "modes cannot be read", ""),
        ("priority = 1000", 6, "priority cannot be read", ""),
        ("priority = -1", 6, "priority cannot be read", ""),
        ("priority = true", 6, "priority cannot be read", ""),
        ("priority = 1.5", 6, "priority cannot be read", ""),
        ('principals = "main"', 6, "principals cannot be read", ""),
        ("interactive = 0", 6, "interactive cannot be read", ""),
        ("annotations = { readonly = true }", 6, "unknown annotation 'readonly'", "did you mean read_only?"),
        ('annotations = { read_only = "yes" }', 6, "annotations cannot be read", ""),
        ("annotations = {}", 6, "annotations cannot be read", ""),
        ('args = { path = { eq = "a" } }', 6, "'path' is no JSON pointer", 'args = { "/path" = ... }'),
        ('args = { "/a~2" = { eq = "a" } }', 6, "'/a~2' is no JSON pointer", "write ~0"),
        ('args = { "/path" = "a" }', 6, "/path has no comparison", "eq"),
        ('args = { "/path" = { equals = "a" } }', 6, "unknown comparison 'equals'", "one of: eq"),
        ('args = { "/path" = { regex = "(" } }', 6, "/path regex is no regular expression", ""),
        ('args = { "/path" = { gt = "1" } }', 6, "/path gt cannot be compared", ""),
        ('args = { "/path" = { gt = nan } }', 6, "/path gt cannot be compared", ""),
        ('args = { "/path" = { in = [] } }', 6, "/path in cannot be compared", ""),
        ('args = { "/path" = { in = "ab" } }', 6, "/path in cannot be compared", ""),
        ('args = { "/path" = { eq = [1] } }', 6, "/path eq cannot be compared", ""),
        ('args = { "/path" = { prefix = "" } }', 6, "/path prefix cannot be compared", ""),
        ('args = { "/path" = { under = 1 } }', 6, "/path under cannot be compared", ""),
        ('shell = ["git"]', 6, "shell cannot be read", ""),
        ("shell = []", 6, "shell cannot be read", ""),
        ("shell = [[]]", 6, "shell cannot be read", ""),
        ('shell = [["rm -rf"]]', 6, "a command in one word", 'each word apart: [["rm", "-rf"]]'),
        ('remember = "always"', 6, "remember cannot be read", ""),
        ("reason = 1", 6, "reason cannot be read", ""),
        ("match = [1]", 6, "match cannot be read", ""),
    ],
)
def test_a_word_that_is_not_understood_is_told_with_its_line(line: str, number: int, what: str, fix: str) -> None:
    text = RULE.replace('decision = "ask_user"', line) if line.startswith("decision") else RULE + line
    told = refused(text)
    assert told.what.startswith(what)
    assert told.where == f"policy.toml:{number}, rule edits"
    assert fix in (told.fix or "")


@pytest.mark.parametrize("key", ["id", "decision", "tools"])
def test_a_rule_without_what_it_needs_does_not_load(key: str) -> None:
    text = "\n".join(line for line in RULE.split("\n") if not line.startswith(key))
    assert refused(text).what == f"a rule has no {key}"


def test_remembering_is_for_questions() -> None:
    assert "remember is for questions" in refused(RULE.replace("ask_user", "deny") + 'remember = "exact"').what


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("version = 1\nrule = [", "policy.toml:2", "is not TOML"),
        ("version = 1\n[[rule]]\nid = 'a'\nid = 'b'", "policy.toml:4", "is not TOML"),
        (RULE, "policy.toml", "version 1"),
        ("version = 2", "policy.toml:1", "version 1"),
        ("version = true", "policy.toml:1", "version 1"),
        ("version = 1\n[[rules]]\nid = 'x'", "policy.toml:2", "unknown key 'rules'"),
        ("version = 1\n[tool.policy]\nx = 1", "policy.toml:2", "unknown key 'tool'"),
        ("version = 1\nrule = 7", "policy.toml:2", "not a list"),
        ("version = 1\nrule = [7]", "policy.toml:2", "a rule is a table"),
    ],
)
def test_a_file_that_is_no_policy_does_not_load(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_policy(text, name="policy.toml")
    assert (told.value.id, told.value.where) == ("policy", where)
    assert what in told.value.what


def test_one_rule_that_is_wrong_takes_the_whole_file_with_it() -> None:
    refused(RULE.replace("edits", "good") + RULE.replace("ask_user", "dney"))


def test_two_rules_of_one_id_do_not_load_and_the_other_is_named() -> None:
    told = refused(RULE + RULE)
    assert told.where == "policy.toml:7, rule edits"
    assert told.got == "the other is at policy.toml:2"


def test_an_example_that_does_not_hold_does_not_load() -> None:
    narrowed = RULE + 'args = { "/path" = { under = "src" } }\n'
    rules(narrowed + 'match = [{ path = "src/a" }]\nnot_match = [{ path = "b" }, {}]\n')
    first = refused(narrowed + 'match = [{ path = "b" }]\n')
    assert "example 1 of match does not match" in first.what
    assert first.got == '{"path": "b"}'
    told = refused(narrowed + 'not_match = [{ path = "b" }, { path = "src/a" }]\n')
    assert "example 2 of not_match matches" in told.what


def test_an_allows_examples_need_every_command_of_a_line_and_a_denials_one() -> None:
    shell = RULE + 'shell = [["git"]]\n'
    line = '[{ command = "git log; rm x" }]\n'
    rules(shell.replace("ask_user", "deny") + f"match = {line}")
    rules(shell.replace("ask_user", "allow") + f"not_match = {line}")


def test_lines_are_right_below_texts_that_look_like_rules() -> None:
    text = (
        'reason = """\n[[rule]]\nid = "no"\n"""\n'  # of the first rule
        '[[rule]]\nid = "second"\ntools = ["*"]\ndecision = "dney"\n'
    )
    assert refused(RULE + text).where == "policy.toml:13, rule second"


def test_rules_as_inline_tables_are_read_too() -> None:
    text = 'rule = [{ id = "a", tools = ["*"], decision = "deny" }, { id = "b", tools = ["*"], decision = "x" }]'
    assert refused(text).where == "policy.toml:2, rule b"


# --- files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "policy.toml"
    place.write_text("version = 1\n" + RULE)
    place.chmod(0o600)
    return place


def test_a_file_that_is_not_there_or_not_text_does_not_load(file: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, "a\0b"):
        with pytest.raises(ConfigurationError) as told:
            load_policy(path)
        assert told.value.id == "policy"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        load_policy(file)


@pytest.mark.skipif(os.name == "nt", reason="modes are not Windows'")
@pytest.mark.parametrize("lax", ["file", "folder"])
def test_an_admins_rules_that_others_may_change_do_not_load(file: Path, lax: str) -> None:
    assert load_policy(file, tier="admin")
    (file if lax == "file" else file.parent).chmod(0o777)
    with pytest.raises(ConfigurationError, match=f"the {lax} of an admin policy can be changed by others"):
        load_policy(file, tier="admin")
    with pytest.raises(ConfigurationError):
        PolicyEngine.load({file: "admin"})
    assert load_policy(file, tier="user")


def test_a_tier_that_there_is_not_is_an_error(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown tier"):
        load_policy(file, tier="root")


def test_the_built_in_table_stands_below_every_file(file: Path) -> None:
    engine = PolicyEngine.load({file: "user"})
    assert engine.evaluate(request(read_only=True)).by == "policy:edits"
    assert {rule.tier for rule in builtin_rules()} == {1}
