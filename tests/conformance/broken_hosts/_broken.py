"""A simple host with one fault: a run that overrides one method, and the rule that this breaks.

For: the modules beside it, which hold the faults. Not for: judging them (``test_host_matrix.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from tests.conformance.broken_hosts._simple import SimpleHost, SimpleRun

__all__ = ["BROKEN_HOSTS", "BrokenHost", "broken_host"]


class BrokenHost(SimpleRun):
    """The docstring of a subclass is the fault, in one sentence."""

    rule: ClassVar[str] = ""
    """The rule that is broken, and no other."""

    @classmethod
    def harness(cls) -> SimpleHost:
        """Sets hosts with this fault up."""
        made = type(cls.__name__, (SimpleHost,), {"run_class": cls})
        harness: SimpleHost = made()
        return harness


BROKEN_HOSTS: Final[dict[str, list[type[BrokenHost]]]] = {}
"""Every broken host, by the rule that it breaks."""


def broken_host(rule: str) -> Callable[[type[BrokenHost]], type[BrokenHost]]:
    """Register a class as a host that breaks this rule."""

    def register(cls: type[BrokenHost]) -> type[BrokenHost]:
        cls.rule = rule
        BROKEN_HOSTS.setdefault(rule, []).append(cls)
        return cls

    return register
