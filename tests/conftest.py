"""Settings of the whole suite: one seed for every hypothesis test, printed in the header.

Nothing here may import ``agentsession``: what an import loads is itself tested (``test_layout.py``).

The seed is fixed, so that a run can be repeated; ``--hypothesis-seed=N`` chooses another, ``--hypothesis-seed=random``
draws one. In CI (the variable ``CI`` is set) hypothesis derives its examples from each test alone, and stores none.
"""

from __future__ import annotations

import os
import random

import hypothesis
import pytest
from hypothesis import HealthCheck

_SEED = 20_131
_SLOW_MACHINES = [HealthCheck.too_slow]

# No deadline and no check of speed: the machine may be busy, and a test never asserts a time.
hypothesis.settings.register_profile("local", deadline=None, suppress_health_check=_SLOW_MACHINES, print_blob=True)
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("local"), derandomize=True, database=None)
hypothesis.settings.register_profile("thorough", hypothesis.settings.get_profile("local"), max_examples=2_000)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") is None:
        hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")
    seed = config.getoption("--hypothesis-seed")
    if seed == "random":
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))
    elif seed is None and not os.environ.get("CI"):
        config.option.hypothesis_seed = str(_SEED)


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed")
    if seed is None:
        return "hypothesis seed: derived from each test (derandomize)"
    return f"hypothesis seed: {seed} (repeat with --hypothesis-seed={seed})"
