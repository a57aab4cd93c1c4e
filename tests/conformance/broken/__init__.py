"""Executors with one fault each, to show that the suite finds it, and finds nothing else.

For: ``test_matrix.py`` and the page docs/reference/conformance-matrix.md. Not for: use as executors.
A module holds those that break the rules of one group; a comment names the reports from the field (R…) that a fault is
taken from.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from tests.conformance.broken._wrap import BROKEN, Broken

__all__ = ["Broken", "all_broken"]


def all_broken() -> Mapping[str, Sequence[type[Broken]]]:
    """Every broken executor, by the rule that it breaks."""
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("test_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return BROKEN
