"""Hosts with one fault each, to show that the suite for hosts finds it, and finds nothing else.

For: ``test_host_matrix.py`` and the page docs/reference/conformance-matrix.md. Not for: use as hosts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from tests.conformance.broken_hosts._broken import BROKEN_HOSTS, BrokenHost

__all__ = ["BrokenHost", "all_broken_hosts"]


def all_broken_hosts() -> Mapping[str, Sequence[type[BrokenHost]]]:
    """Every broken host, by the rule that it breaks."""
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("test_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return BROKEN_HOSTS
