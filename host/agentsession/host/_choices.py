"""What a host was given, looked at before anything runs: a wrong kind of thing would else fail at its first use.

Not for: what the choices mean (``_host.py``). Rules carried: none of its own. May import: ``protocol``.
"""

from __future__ import annotations

import math

from agentsession.protocol import ConfigurationError

__all__ = ["check_choices", "check_seconds"]


def check_choices(
    *,
    tools: object,
    policy: object,
    channel: object,
    observer: object,
    on_answer: object,
    on_ask: object,
    tool_timeout_s: object,
    max_parallel_tools: int,
    question_timeout_s: object,
) -> None:
    """Raise :class:`ConfigurationError` for what a host cannot use."""
    if on_ask not in ("channel", "deny", "pause"):
        raise ConfigurationError(f"unknown on_ask {on_ask!r}", expected="channel, deny or pause")
    if max_parallel_tools < 1:
        raise ConfigurationError(f"max_parallel_tools is {max_parallel_tools}", expected="1 or more")
    check_seconds("question_timeout_s", question_timeout_s)
    check_seconds("tool_timeout_s", tool_timeout_s)
    if not hasattr(tools, "__iter__") and not hasattr(type(tools), "descriptors"):
        raise ConfigurationError(
            f"tools is of type {type(tools).__name__}", expected="a list of tools", fix="tools=[...]"
        )
    if policy is not None and not callable(policy) and not callable(getattr(policy, "evaluate", None)):
        raise ConfigurationError(
            f"policy is of type {type(policy).__name__}",
            expected="a function of a PolicyRequest, or an object with evaluate",
            fix="policy=allow_all, ask_all, deny_all or PolicyEngine([...])",
        )
    if channel is not None and not all(callable(getattr(channel, name, None)) for name in ("approve", "ask")):
        raise ConfigurationError(
            f"channel is of type {type(channel).__name__}",
            expected="an object with approve and ask",
            fix="channel=CallbackChannel(approve)",
        )
    for name, given in (("observer", observer), ("on_answer", on_answer)):
        if given is not None and not callable(given):
            raise ConfigurationError(f"{name} is of type {type(given).__name__}", expected="a function")


def check_seconds(what: str, value: object) -> None:
    """Raise :class:`ConfigurationError` for what is neither a time above 0 nor ``None``."""
    if value is None:
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return
    raise ConfigurationError(f"{what} is {value!r}", expected="seconds, more than 0, or None for no limit")
