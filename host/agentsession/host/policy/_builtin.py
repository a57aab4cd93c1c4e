"""The rules that come with the package: what each permission mode makes of a tool's marks (``modes.toml``).

Not for: other tiers. Rules carried: none of the contract's. May import: ``_reading``, ``_rule`` beside it.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Final

from agentsession.host.policy._reading import parse_policy
from agentsession.host.policy._rule import PolicyRule, Tier

__all__ = ["builtin_rules"]

_PLAN_FILE: Final = """\
version = 1
[[rule]]
id = 'plan-file'
tools = ["*"]
modes = ["plan"]
annotations = {{ category = "edit" }}
args = {{ "/path" = {{ under = {path} }} }}
decision = "allow"
priority = 95
"""


def builtin_rules(
    *, workspace: str | os.PathLike[str] = ".", plan_file: str | os.PathLike[str] | None = None
) -> list[PolicyRule]:
    """The table of permission modes as rules, below every other tier.

    Their ids are in ``docs/reference/policy-file.md``. In ``auto_edit`` a trusted tool of the category ``edit`` may
    work on a ``/path`` in ``workspace``; in ``plan`` on ``plan_file`` alone, if there is one.
    """
    rules = _modes(os.path.abspath(workspace))
    if plan_file is None:
        return list(rules)
    text = _PLAN_FILE.format(path=json.dumps(os.fspath(plan_file)))
    return [*rules, *parse_policy(text, name="builtin", tier=Tier.BUILTIN, workspace=workspace)]


@functools.lru_cache(maxsize=8)
def _modes(workspace: str) -> tuple[PolicyRule, ...]:
    from importlib.resources import files  # slow to import, and most programs read no policy

    text = files("agentsession.host.policy").joinpath("modes.toml").read_text(encoding="utf-8")
    return tuple(parse_policy(text, name="builtin", tier=Tier.BUILTIN, workspace=workspace))
