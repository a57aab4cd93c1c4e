"""Policies from files: rules that allow, deny or ask, and the answers that a person wants to be remembered.

``PolicyEngine([*builtin_rules(), *load_policy("policy.toml")])`` is a policy for :class:`agentsession.host.Host`.
"""

from __future__ import annotations

from agentsession.host.policy._builtin import builtin_rules
from agentsession.host.policy._conditions import Condition
from agentsession.host.policy._engine import Explanation, Matched, PolicyEngine
from agentsession.host.policy._reading import load_policy, parse_policy, policy_digest
from agentsession.host.policy._remembered import RememberedAnswers, memory_of, scope_words
from agentsession.host.policy._remembered_file import RememberedAnswer
from agentsession.host.policy._rule import MODES, PolicyRule, Tier
from agentsession.host.policy._workspace import (
    WORKSPACE_POLICY,
    PolicyConsent,
    WorkspacePolicy,
    workspace_policy,
)

__all__ = [
    "MODES",
    "WORKSPACE_POLICY",
    "Condition",
    "Explanation",
    "Matched",
    "PolicyConsent",
    "PolicyEngine",
    "PolicyRule",
    "RememberedAnswer",
    "RememberedAnswers",
    "Tier",
    "WorkspacePolicy",
    "builtin_rules",
    "load_policy",
    "memory_of",
    "parse_policy",
    "policy_digest",
    "scope_words",
    "workspace_policy",
]
