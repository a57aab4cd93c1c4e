"""The policy file of a workspace: it only tightens until a person has agreed to the very file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.host.policy.rules import request

from agentsession.host.policy import (
    WORKSPACE_POLICY,
    PolicyConsent,
    PolicyEngine,
    WorkspacePolicy,
    builtin_rules,
    policy_digest,
    workspace_policy,
)
from agentsession.protocol import ConfigurationError

TEXT = """\
version = 1
[[rule]]
id = "edits"
tools = ["edit_file"]
decision = "allow"
[[rule]]
id = "no-look"
tools = ["look"]
decision = "deny"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / ".agentsession").mkdir(parents=True)
    (root / WORKSPACE_POLICY).write_text(TEXT)
    return root


@pytest.fixture
def consent(tmp_path: Path) -> PolicyConsent:
    return PolicyConsent(tmp_path / "config" / "trusted.json")


def agree(workspace: Path, consent: PolicyConsent) -> WorkspacePolicy:
    found = workspace_policy(workspace, consent)
    assert found.digest is not None
    consent.give(found.path, found.digest)
    return workspace_policy(workspace, consent)


def says(found: WorkspacePolicy) -> tuple[str, str]:
    policy = PolicyEngine([*builtin_rules(), *found.rules])
    edit = policy.evaluate(request("edit_file", category="edit"))
    return edit.decision, policy.evaluate(request("look", read_only=True)).decision


def test_a_file_that_nobody_agreed_to_only_tightens_and_that_is_said(workspace: Path, consent: PolicyConsent) -> None:
    found = workspace_policy(workspace, consent)
    assert found.refused == f"{workspace / WORKSPACE_POLICY} can only tighten: nobody agreed to it"
    assert says(found) == ("ask_user", "deny")


def test_a_file_that_was_agreed_to_counts_in_full(workspace: Path, consent: PolicyConsent) -> None:
    found = agree(workspace, consent)
    assert found.refused is None
    assert found.digest == policy_digest(workspace / WORKSPACE_POLICY)
    assert says(found) == ("allow", "deny")


def test_a_workspace_may_be_named_from_a_folder_below_it(
    workspace: Path, consent: PolicyConsent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace / ".agentsession")
    agree(Path(".."), consent)
    monkeypatch.chdir(workspace)
    assert workspace_policy(".", consent).refused is None


def test_a_change_takes_the_consent_away_and_keeps_the_denials(workspace: Path, consent: PolicyConsent) -> None:
    agree(workspace, consent)
    (workspace / WORKSPACE_POLICY).write_text(TEXT + "# other\n")
    found = workspace_policy(workspace, consent)
    assert found.refused is not None
    assert "has changed since it was agreed to" in found.refused
    assert says(found) == ("ask_user", "deny")


def test_a_file_that_was_agreed_to_and_is_gone_is_told_of(workspace: Path, consent: PolicyConsent) -> None:
    agree(workspace, consent)
    (workspace / WORKSPACE_POLICY).unlink()
    found = workspace_policy(workspace, consent)
    assert (found.rules, found.refused) == (
        (),
        f"{workspace / WORKSPACE_POLICY} is not there any more, and was agreed to",
    )


def test_a_workspace_without_a_file_brings_none(tmp_path: Path, consent: PolicyConsent) -> None:
    found = workspace_policy(tmp_path, consent)
    assert (found.rules, found.refused, found.digest) == ((), None, None)


def test_consent_to_hooks_is_none_to_rules_and_the_other_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert PolicyConsent().path == tmp_path / "agentsession" / "trusted-policies.json"


@pytest.mark.skipif(sys.platform == "win32", reason="it has neither")
@pytest.mark.parametrize("kind", ["loop", "pipe", "folder"])
def test_what_is_no_file_is_neither_left_out_nor_waited_for(workspace: Path, consent: PolicyConsent, kind: str) -> None:
    file = workspace / WORKSPACE_POLICY
    file.unlink()
    if kind == "loop":
        file.symlink_to(file)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(ConfigurationError):
        workspace_policy(workspace, consent)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_file_that_cannot_be_used_starts_nothing(workspace: Path, consent: PolicyConsent, is_trusted: bool) -> None:
    if is_trusted:
        agree(workspace, consent)
    (workspace / WORKSPACE_POLICY).write_text(TEXT.replace("deny", "denny"))
    with pytest.raises(ConfigurationError, match="unknown decision"):
        workspace_policy(workspace, consent)
