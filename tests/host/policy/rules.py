"""Short ways to write tests of rules: a file's text, a request, the engine of both."""

from __future__ import annotations

from typing import Any

from agentsession.host import PolicyRequest
from agentsession.host.policy import PolicyEngine, PolicyRule, Tier, builtin_rules, parse_policy
from agentsession.protocol import ToolAnnotations

__all__ = ["decides", "engine", "request", "rules"]


def rules(text: str, tier: str | Tier = "user", **more: Any) -> list[PolicyRule]:
    """The rules of a file's text, without its first line."""
    return parse_policy(f"version = 1\n{text}", name="policy.toml", tier=tier, **more)


def engine(text: str = "", *others: list[PolicyRule], builtin: bool = False, **more: Any) -> PolicyEngine:
    """An engine of one user's file, and what else is given."""
    found = [*(builtin_rules() if builtin else ()), *rules(text)]
    for other in others:
        found += other
    return PolicyEngine(found, **more)


def request(tool: str = "edit_file", args: dict[str, Any] | None = None, /, **more: Any) -> PolicyRequest:
    """A call; ``provider:name`` makes it one of a provider's tools. Marks such as ``read_only`` are its annotations."""
    provider, _, name = tool.rpartition(":")
    marks = {key: more.pop(key) for key in list(more) if key in ToolAnnotations.model_fields}
    path = tuple(more.pop("path", "main").split("/"))
    return PolicyRequest(
        tool=tool.replace(":", "_"),
        args=args or {},
        annotations=ToolAnnotations(**marks) if marks else None,
        provider=more.pop("provider", provider or None),
        provider_tool=more.pop("provider_tool", name if provider else None),
        permission_mode=more.pop("mode", "default"),
        principal=path[-1],
        principal_path=path,
        **more,
    )


def decides(text: str, asked: PolicyRequest, **more: Any) -> tuple[str, str]:
    """What a file's text says of a call: the word, and the rule."""
    found = engine(text, **more).evaluate(asked)
    return found.decision, found.by.removeprefix("policy:")
