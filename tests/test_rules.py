"""Every rule has a test and every test that names a rule names one that exists.

The marks are read from the source: nothing is imported or run. A rule without a test yet stands in ``AWAITED``, which
may only shrink: a rule that has got its test and still stands there fails, and so does one that never stood there.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsession.protocol import HOST_RULES, RESERVED_RULES, RULES

TESTS = Path(__file__).resolve().parent

ALL = {**RULES, **HOST_RULES}

AWAITED: frozenset[str] = frozenset()
"""Rules whose tests are not written yet."""


def marks(path: Path) -> Iterator[tuple[str, str]]:
    """Each rule id that a ``pytest.mark.rule(...)`` in the file names, with its place."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "rule"):
            continue
        if not (isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"):
            continue
        where = f"{path.relative_to(TESTS.parent)}:{node.lineno}"
        for arg in node.args:
            assert isinstance(arg, ast.Constant), f"{where}: a rule is named by its id alone, as text"
            assert isinstance(arg.value, str), f"{where}: a rule is named by its id alone, as text"
            yield arg.value, where


@functools.cache
def all_marks() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for rule_id, where in marks(path):
            found.setdefault(rule_id, []).append(where)
    return found


def test_every_rule_has_a_test_or_awaits_one() -> None:
    missing = ALL.keys() - all_marks().keys() - AWAITED
    assert not missing, "mark the tests of these rules with @pytest.mark.rule(id)"


def test_no_rule_that_has_a_test_is_still_awaited() -> None:
    assert not AWAITED & all_marks().keys(), "take these out of AWAITED"
    assert ALL.keys() >= AWAITED


def test_every_rule_that_a_test_names_exists() -> None:
    strange = {rule_id: places for rule_id, places in all_marks().items() if rule_id not in ALL}
    assert not strange


def test_every_rule_of_the_machine_is_broken_in_its_tests() -> None:
    broken = {rule_id for rule_id, _ in marks(TESTS / "protocol" / "test_lifecycle.py")}
    assert {rule.id for rule in RULES.values() if rule.checked_by == "machine"} <= broken


@pytest.mark.parametrize("rule_id", ALL)
def test_a_rule_is_one_sentence_and_says_what_to_do(rule_id: str) -> None:
    rule = ALL[rule_id]
    assert rule.id == rule_id
    assert rule.sentence.endswith(".")
    assert "\n" not in rule.sentence
    assert rule.fix or rule.checked_by != "machine", "the error that names this rule has nothing to say"
    assert not rule.fix.endswith(".")
    assert rule.source


def test_the_rules_of_hosts_are_a_table_of_their_own() -> None:
    assert not RULES.keys() & HOST_RULES.keys()
    assert {rule.level for rule in HOST_RULES.values()} == {"host"}
    assert "host" not in {rule.level for rule in RULES.values()}


def test_reserved_ids_are_not_used() -> None:
    assert not RESERVED_RULES & ALL.keys()
    assert not RESERVED_RULES & all_marks().keys()
