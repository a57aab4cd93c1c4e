"""What a server lets one client take: sizes, times and rates.

Not for: what a turn may cost (``agentsession.protocol.Constraints``). Rules carried: none.
May import: the standard library.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Buckets", "Limits"]


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server. Sizes are in bytes, times in seconds."""

    body_bytes: int = 4 * 1024 * 1024
    """Of a request's body: 413."""
    body_s: float = 30.0
    """For a body to arrive: 408."""
    header_bytes: int = 32 * 1024
    """Of all headers together: 431."""
    target_bytes: int = 8 * 1024
    """Of path and query: 414."""
    requests_per_s: float = 200.0
    """In the long run, for each address and for each user: 429."""
    burst: int = 1000
    """At once, before the rate counts."""
    readers: int = 1000
    """Readers of events, for each user, at one time: 429."""
    stall_s: float = 30.0
    """A reader of events that takes nothing for so long is dropped."""
    ping_s: float = 15.0
    """Between two comments where nothing else is sent to a reader."""
    remembered_keys: int = 2048
    """Answers that are kept for their ``Idempotency-Key``."""


class Buckets:
    """One token bucket for each name; those not used for longest are forgotten beyond ``capacity``."""

    def __init__(
        self, rate: float, burst: int, capacity: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._capacity = capacity
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one token; 0 when there was one, else the seconds until there is."""
        now = self._clock()
        tokens, since = self._known.pop(name, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        wait = 0.0
        if tokens >= 1:
            tokens -= 1
        else:
            wait = (1 - tokens) / self._rate if self._rate > 0 else math.inf
        self._known[name] = (tokens, now)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return wait
