"""Conditions on arguments: what holds, what does not, and what cannot be judged and so closes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.host.policy.rules import engine, request

BIG = "src/" + "x" * 70_000


def word(decision: str, condition: str, args: dict[str, Any]) -> bool:
    """Whether a rule of this decision holds for these arguments."""
    pointer = condition.partition(" ")[0]
    tests = condition.partition(" ")[2]
    text = f'[[rule]]\nid = "it"\ntools = ["*"]\ndecision = "{decision}"\nargs = {{ "{pointer}" = {tests} }}'
    return engine(text).evaluate(request("t", args)).by == "policy:it"


@pytest.mark.parametrize(
    ("condition", "args", "holds"),
    [
        ('/a { eq = "x" }', {"a": "x"}, True),
        ('/a { eq = "x" }', {"a": "X"}, False),
        ("/a { eq = 1 }", {"a": 1.0}, True),
        ("/a { eq = true }", {"a": False}, False),
        ('/a { in = ["x", 2] }', {"a": 2}, True),
        ('/a { in = ["x", 2] }', {"a": "y"}, False),
        ('/a { prefix = "ab" }', {"a": "abc"}, True),
        ('/a { glob = "src/*.py" }', {"a": "src/a.py"}, True),
        ('/a { glob = "src/*.py" }', {"a": "src/b/a.py"}, False),
        ('/a { glob = "src/**/*.py" }', {"a": "src/b/c/a.py"}, True),
        ('/a { glob = "src/**/*.py" }', {"a": "src/a.py"}, True),
        ('/a { glob = "**" }', {"a": "anything/at all"}, True),
        ('/a { glob = "[ab]?" }', {"a": "bz"}, True),
        ('/a { glob = "[!ab]?" }', {"a": "bz"}, False),
        ('/a { regex = "a+" }', {"a": "aaa"}, True),
        ('/a { regex = "a+" }', {"a": "aaab"}, False),
        ('/a { regex = "x\\ny" }', {"a": "x\ny"}, True),
        ('/a { regex = "DROP.*" }', {"a": "x\nDROP"}, False),
        ('/a { eq = "\\u00e9" }', {"a": "o\u0301"}, False),
        ('/a { eq = "e\\u0301" }', {"a": "e\u0301"}, True),
        ('/a { prefix = "secrets/" }', {"a": "./README"}, False),
        ('/a { prefix = "https://a.example/" }', {"a": "https://a.example/x?y=https://b"}, True),
        ('/a { glob = "src/*" }', {"a": "src/a..b"}, True),
        ('/a { glob = "src/*/" }', {"a": "src/a/"}, True),
        ('/a { prefix = "src/" }', {"a": "src/"}, True),
        ('/a { glob = "/" }', {"a": "/"}, True),
        ('/a { under = "src" }', {"a": "src"}, True),
        ('/a { under = "src" }', {"a": "src/./b/../a"}, True),
        ('/a { under = "src" }', {"a": "src2/a"}, False),
        ('/a { under = "src" }', {"a": "src/../b"}, False),
        ("/a { gt = 10 }", {"a": 10}, False),
        ("/a { gt = 10, lt = 12 }", {"a": 11}, True),
        ("/a { gt = 10 }", {"a": 10**300}, True),
        ('/a/b { eq = "x" }', {"a": {"b": "x"}}, True),
        ('/a/1 { eq = "x" }', {"a": ["y", "x"]}, True),
        ('/a~1b/~0 { eq = "x" }', {"a/b": {"~": "x"}}, True),
        ('/ { eq = "x" }', {"": "x"}, True),
    ],
)
def test_a_condition_holds_alike_for_every_decision(condition: str, args: dict[str, Any], holds: bool) -> None:
    assert word("allow", condition, args) is holds
    assert word("ask_user", condition, args) is holds
    assert word("deny", condition, args) is holds


@pytest.mark.parametrize(
    ("condition", "args"),
    [
        ('/a { eq = "x" }', {"a": 1}),
        ('/a { eq = "x" }', {"a": None}),
        ('/a { eq = "x" }', {"a": ["x"]}),
        ("/a { eq = 1 }", {"a": True}),
        ("/a { eq = true }", {"a": 1}),
        ("/a { eq = true }", {"a": "true"}),
        ('/a { in = ["x"] }', {"a": {}}),
        ('/a { prefix = "src/" }', {"a": BIG}),
        ('/a { prefix = "src/" }', {"a": "src/a\0"}),
        ('/a { prefix = "src/" }', {"a": "src/\ud800"}),
        ('/a { prefix = "src" }', {"a": "src/\ufffd"}),
        ('/a { prefix = "src/" }', {"a": "src/../../etc/passwd"}),
        ('/a { glob = "src/**" }', {"a": "src/../../etc/passwd"}),
        ('/a { regex = ".*DROP.*" }', {"a": "x\nDROP TABLE y"}),
        ('/a { eq = "\\u00e9" }', {"a": "e\u0301"}),
        ('/a { in = ["\\u00e9", 1] }', {"a": "e\u0301"}),
        ('/a { under = "\\u00e9" }', {"a": "e\u0301/x"}),
        ('/a { prefix = "/etc/" }', {"a": "//etc/passwd"}),
        ('/a { prefix = "/etc/" }', {"a": "/./etc/passwd"}),
        ('/a { glob = "secrets/*" }', {"a": "./secrets/key"}),
        ('/a { glob = "secrets/*" }', {"a": "secrets/folder/"}),
        ('/a { glob = "/data" }', {"a": "/data/."}),
        ('/a { glob = "/data" }', {"a": "/data//"}),
        ('/a { prefix = "https://a.example/pub/" }', {"a": "https://a.example/pub/..?x"}),
        ('/a { prefix = "https://a.example/pub/" }', {"a": "https://a.example/pub/%2E%2e/x"}),
        ('/a { prefix = "https://a.example/pub/" }', {"a": "https://a.example/pub/.\t./x"}),
        ('/a { prefix = "https://a.example/pub/" }', {"a": "https://a.example//pub/x"}),
        ('/a { prefix = "é" }', {"a": "é" * 40_000}),
        ('/a { regex = "a*" }', {"a": "a" * 5_000}),
        ('/a { under = "." }', {"a": ""}),
        ('/a { under = "." }', {"a": "~/x"}),
        ('/a { under = "." }', {"a": "file:///etc/passwd"}),
        ("/a { gt = 10 }", {"a": "11"}),
        ("/a { gt = 0 }", {"a": True}),
        ("/a { gt = 0 }", {"a": float("nan")}),
        ('/a/b { eq = "x" }', {"a": "x"}),
        ('/a/b { eq = "x" }', {"a": ["x"]}),
        ('/a/01 { eq = "x" }', {"a": ["y", "x"]}),
    ],
)
def test_what_cannot_be_judged_closes(condition: str, args: dict[str, Any]) -> None:
    assert not word("allow", condition, args)
    assert word("ask_user", condition, args)
    assert word("deny", condition, args)


@pytest.mark.parametrize("args", [{}, {"b": 1}, {"a": {}}, {"a": {"c": 1}}, {"a": []}])
@pytest.mark.parametrize("decision", ["allow", "ask_user", "deny"])
def test_an_absent_key_is_no_match(decision: str, args: dict[str, Any]) -> None:
    pointer = "/a/0" if args == {"a": []} else "/a/b"
    assert not word(decision, f'{pointer} {{ eq = "x" }}', args)


def test_a_denial_behind_a_link_is_not_passed_by(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "secret")
    text = f'/a {{ under = "{tmp_path}/secret" }}'
    assert word("deny", text, {"a": f"{tmp_path}/way/key"})
    assert not word("allow", text, {"a": f"{tmp_path}/way/key"})


def test_all_conditions_of_a_rule_must_hold() -> None:
    text = '[[rule]]\nid = "it"\ntools = ["*"]\ndecision = "deny"\nargs = { "/a" = { eq = 1 }, "/b" = { eq = 2 } }'
    assert engine(text).evaluate(request("t", {"a": 1, "b": 2})).by == "policy:it"
    assert engine(text).evaluate(request("t", {"a": 1, "b": 3})).by == "policy:no_match"
    assert engine(text).evaluate(request("t", {"a": "odd", "b": 2})).by == "policy:it"
    assert engine(text).evaluate(request("t", {"a": "odd", "b": 3})).by == "policy:no_match"


@pytest.mark.parametrize(("path", "holds"), [("SECRETS/key", True), ("Secrets2/key", False), ("README", False)])
def test_where_the_file_system_takes_letters_for_the_same_a_denial_holds_for_both(
    monkeypatch: pytest.MonkeyPatch, path: str, holds: bool
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert word("deny", '/a { under = "secrets" }', {"a": path}) is holds
    assert not word("allow", '/a { under = "secrets" }', {"a": path})
