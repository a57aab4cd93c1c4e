"""The policy file that a workspace brings along: it only tightens, until a person has agreed to the very file.

Not for: files that a person names (``load_policy``), or keeping who agreed (``agentsession.host._consent``).
Rules carried: none of the contract's. May import: ``_consent`` of the host, ``_reading``, ``_rule`` beside it.

Unlike hooks of a workspace, which run programs, rules that tighten need nobody's trust, so they are read in any case.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Final

from agentsession.host._consent import Consent, is_there
from agentsession.host.policy._reading import digest_of, parse_policy, policy_text, read_policy
from agentsession.host.policy._rule import PolicyRule, Tier

__all__ = ["WORKSPACE_POLICY", "PolicyConsent", "WorkspacePolicy", "workspace_policy"]

WORKSPACE_POLICY: Final = ".agentsession/policy.toml"
"""Where a workspace keeps its rules."""


class PolicyConsent(Consent):
    """Which policy files of workspaces a person has agreed to; by default kept in ``trusted-policies.json``."""

    default_name = "trusted-policies.json"


@dataclasses.dataclass(frozen=True, slots=True)
class WorkspacePolicy:
    """What a workspace brings along."""

    path: Path
    rules: tuple[PolicyRule, ...] = ()
    """Of the tier ``workspace``; where nobody agreed to them they only tighten."""
    refused: str | None = None
    """Why they only tighten, or are gone, to be shown to the person; ``None`` where they count in full, or there is no
    such file."""
    digest: str | None = None
    """What :meth:`PolicyConsent.give` takes: of the bytes that ``rules`` were read from."""


def workspace_policy(workspace: str | os.PathLike[str], consent: Consent | None = None) -> WorkspacePolicy:
    """The rules of a workspace's :data:`WORKSPACE_POLICY`, in full if a person has agreed to the file as it is.

    Raises :class:`ConfigurationError` with the id ``policy`` for a file that cannot be used, agreed to or not: a
    denial must not vanish without a word.
    """
    root = Path(workspace).absolute()
    path = root / WORKSPACE_POLICY
    known = consent or PolicyConsent()
    if not is_there(path):
        gone = f"{path} is not there any more, and was agreed to" if known.knows(path) else None
        return WorkspacePolicy(path, refused=gone)
    raw = read_policy(path, is_admin=False)
    digest = digest_of(raw)
    is_trusted = known.allows(path, digest)
    name = str(path)
    rules = parse_policy(policy_text(raw, name), name=name, tier=Tier.WORKSPACE, workspace=root, is_trusted=is_trusted)
    if is_trusted:
        return WorkspacePolicy(path, tuple(rules), digest=digest)
    why = "it has changed since it was agreed to" if known.knows(path) else "nobody agreed to it"
    return WorkspacePolicy(path, tuple(rules), f"{path} can only tighten: {why}", digest)
