"""Second readers of a driven session: from any cursor, bit by bit, filtered, from beyond the end, and their leaving.

Not for: what they must be given (``readings.py``). Rules carried: ORD-04, ORD-05, ORD-07, ORD-10.
May import: ``agentsession.protocol``, the modules of the suite.
"""

from __future__ import annotations

from typing import Final

from agentsession.conformance.driven.readings import Reading
from agentsession.conformance.driven.session import Driven
from agentsession.protocol import CursorGone

__all__ = ["attach", "leave", "read_back", "read_beyond", "read_on"]

_FAR: Final = 2**40
"""A seq that no record reaches. Right behind the last one of a record that was loaded stand those of ephemeral events
that are gone: who has read them may go on from there."""


async def attach(driven: Driven, place: int, enter: bool) -> None:
    """One more reader, from some seq of the record on."""
    after = await _seq(driven, place)
    await driven.step(f"events(after={after}, follow=True)", _attach(driven, after, enter))


async def _attach(driven: Driven, after: int, enter: bool) -> str:
    driven.follow(after, f"a reader from {after}", enter=enter)
    return ""


async def read_back(driven: Driven, place: int, only: str | None) -> None:
    """Read what the record has after some seq, or one type of event of it."""
    after = await _seq(driven, place)
    more = "" if only is None else f", types={only}"
    await driven.step(f"events(after={after}{more})", _read_back(driven, after, only))


async def _read_back(driven: Driven, after: int, only: str | None) -> str:
    types = None if only is None else [only]
    reader = driven.session.events(after, types=types)
    reading = Reading(reader, f"a reader from {after}", after=after, types=types, follow=False)
    driven.start(reading, enter=True)
    await driven.until(lambda: reading.is_done)
    reading.judge(await driven.record())
    return "what comes after it"


async def read_beyond(driven: Driven) -> None:
    """Read from a seq that the record has not reached."""
    await driven.step("events(after=a seq beyond the last)", _read_beyond(driven))


async def _read_beyond(driven: Driven) -> str:
    beyond = driven.session.last_seq + (_FAR if driven.was_loaded else 1)

    async def read() -> None:
        async with driven.session.events(beyond) as reader:
            [event async for event in reader]

    await driven.scene.refused(read, CursorGone, "ORD-07", f"events({beyond})")
    return "CursorGone"


async def read_on(driven: Driven, place: int, count: int) -> None:
    """Let a reader that reads bit by bit have some more events."""
    reading = driven.slow[place % len(driven.slow)]
    await driven.step(f"{reading.name} takes {count} events", _read_on(driven, reading, count))


async def _read_on(driven: Driven, reading: Reading, count: int) -> str:
    record = await driven.record()
    there = len([event for event in reading.wanted(record) if event.seq > (reading.given or record)[-1].seq])
    there = there if reading.given else len(reading.wanted(record))
    await reading.some(min(count, there))
    return ""


async def leave(driven: Driven, place: int) -> None:
    """A reader leaves."""
    reading = driven.leaving[place % len(driven.leaving)]
    await driven.step(f"{reading.name} leaves", _leave(driven, reading), suspect="ORD-04")


async def _leave(driven: Driven, reading: Reading) -> str:
    driven.readings.remove(reading)
    await reading.leave()
    return ""


async def _seq(driven: Driven, place: int) -> int:
    """Some seq of the record, or 0."""
    seqs = [0, *(event.seq for event in await driven.record())]
    return seqs[-1 - place % len(seqs)]
