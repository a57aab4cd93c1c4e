"""The page on policy rules: its files load, its commands and its program print what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.doc_pages import ROOT, read_page

from agentsession.host.policy import MODES, builtin_rules, parse_policy
from agentsession.host.policy._reading import _KEYS

PAGE = "docs/how-to/write-policy-rules.md"
REFERENCE = ROOT / "docs/reference/policy-file.md"


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, coding = re.findall(r"^```toml\n(.*?)^```$", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "policy.toml").write_text(first)
    parse_policy(coding)
    for shown in read_page(PAGE):
        if shown.name:
            shown.save(tmp_path)
        printed = shown.run(tmp_path)
        assert shown.prints is None or printed == shown.prints


def test_the_reference_names_every_key_mode_and_built_in_rule() -> None:
    text = REFERENCE.read_text("utf-8")
    ids = [rule.id for rule in builtin_rules(plan_file="plan.md")]
    assert not [word for word in (*_KEYS, *MODES, *ids) if f"`{word}`" not in text]
