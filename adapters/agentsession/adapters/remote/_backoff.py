"""How long to wait before a connection is tried again: exponential, with jitter.

Not for: waiting. Rules carried: none. May import: the standard library.
"""

from __future__ import annotations

import dataclasses
import random

__all__ = ["Backoff"]


@dataclasses.dataclass(frozen=True)
class Backoff:
    """``first_s`` after the first failure, twice as long after each further one, ``most_s`` at most.

    Of each wait a part between a half and all is taken, by ``chance``, so that clients which were cut off together do
    not come back together. ``chance`` may be seeded.
    """

    first_s: float = 0.1
    most_s: float = 5.0
    chance: random.Random = dataclasses.field(default_factory=random.Random, repr=False, compare=False)

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row, 1 or more."""
        whole = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return whole * (0.5 + 0.5 * self.chance.random())
