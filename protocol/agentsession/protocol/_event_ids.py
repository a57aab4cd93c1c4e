"""Which event ids a record has used: exact, and without remembering one by one what follows from the seq.

Not for: making ids. Rules carried: ORD-02. May import: the standard library.

A session derives its ids from the seq: the event with seq 7 is ``e7``. Seqs only rise, so of such *derived* ids it is
enough to know which seqs have had theirs, and those stand in runs: a session's deltas add no object to what is kept.
Any other id, one that a peer chose or one that reads like that of another seq, is remembered as it is.
"""

from __future__ import annotations

import bisect
import dataclasses

__all__ = ["EventIds"]


@dataclasses.dataclass(slots=True)
class EventIds:
    """The ids that were used. Seqs must be added in rising order."""

    next: int = 0
    """The seq after the last one whose event had a derived id."""
    others: set[str] = dataclasses.field(default_factory=set)
    """The ids that were used and are not derived."""
    start: int = 0
    """The first seq of the last run of derived ids."""
    runs: list[int] = dataclasses.field(default_factory=list)
    """First and last seq of each run before it: first, last, first, last, …"""

    def has(self, id: str, seq: int) -> bool:
        """Whether ``id`` was used, asked for the event with ``seq``, which is above all that were added."""
        if id in self.others:
            return True
        return id[:1] == "e" and id != f"e{seq}" and self._is_derived(id[1:])

    def _is_derived(self, digits: str) -> bool:
        if len(digits) > 4300 or not (digits.isascii() and digits.isdecimal()) or digits != str(seq := int(digits)):
            return False
        if seq >= self.start:
            return seq < self.next
        place = bisect.bisect_left(self.runs, seq)
        return place % 2 == 1 or (place < len(self.runs) and self.runs[place] == seq)

    def add(self, id: str, seq: int) -> None:
        """``id`` is used, by the event with ``seq``."""
        if id != f"e{seq}":
            self.others.add(id)
            return
        if seq != self.next:
            if self.next > self.start:
                self.runs += (self.start, self.next - 1)
            self.start = seq
        self.next = seq + 1
