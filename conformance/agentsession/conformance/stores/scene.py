"""What a scenario of the store suite works with: a store, its reopening, and events to store.

For: authors of stores, who write a :data:`StoreFactory`. Not for: the scenarios. Rules carried: none.
May import: ``agentsession.protocol``.

::

    def factory(folder: Path) -> RecordStore:
        return MyStore(folder / "records")

A factory is called with a fresh folder for each scenario, and again with the same one where the scenario opens the
store anew: what was acknowledged must be there then. A store that is no file makes a name of its own of the folder's. A
store that is an async context manager is entered and left. ``factory.durable = False`` says that nothing is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from agentsession.protocol import (
    AgentDescriptor,
    Event,
    Initialize,
    Message,
    RecordKey,
    RecordStore,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolResponse,
)

__all__ = [
    "KEY",
    "STORE_SCENARIOS",
    "StoreBreak",
    "StoreFactory",
    "StoreScenario",
    "StoreScene",
    "end",
    "initialize",
    "message",
    "response",
    "store_scenario",
    "update",
]

StoreFactory: TypeAlias = Callable[[Path], RecordStore | Awaitable[RecordStore]]
"""Opens the store that keeps its records in a folder, or under its name."""

_T = TypeVar("_T")
KEY: Final = RecordKey("coder", "ann", "s-1")
"""The record that most scenarios are about."""


class StoreBreak(Exception):
    """The store does not do what a session needs; the text says what, for the store's author."""


class NotOffered(Exception):
    """The store does not offer what the scenario is about."""


class StoreScene:
    """One scenario's store. ``store`` is open; :meth:`reopened` opens it anew."""

    def __init__(self, factory: StoreFactory, folder: Path, store: RecordStore) -> None:
        self._factory = factory
        self._folder = folder
        self.store = store

    @property
    def is_durable(self) -> bool:
        """Whether records outlive the store that wrote them."""
        return is_durable(self._factory)

    @asynccontextmanager
    async def reopened(self) -> AsyncIterator[RecordStore]:
        """Another store on the same records, while this one is still open."""
        if not self.is_durable:
            raise NotOffered("nothing outlives the store")
        async with opened(self._factory, self._folder) as store:
            yield store

    async def filled(self, *seqs: int, key: RecordKey = KEY) -> list[Event]:
        """A record with messages of these seqs, appended one by one."""
        await self.store.create(key)
        events = [message(seq) for seq in seqs]
        for event in events:
            await self.store.append(key, [event], reserved_seq=event.seq)
        return events

    def same(self, found: object, wanted: object, what: str) -> None:
        """Break the scenario unless both are equal."""
        if found != wanted:
            raise StoreBreak(f"{what}: {_short(found)}, expected {_short(wanted)}")

    async def refused(self, call: Awaitable[object], *errors: type[Exception], what: str) -> None:
        """Break the scenario unless ``call`` raises one of ``errors``."""
        with self.refuses(*errors, what=what):
            await call

    @contextlib.contextmanager
    def refuses(self, *errors: type[Exception], what: str) -> Iterator[None]:
        """Break the scenario unless what is done in here raises one of ``errors``."""
        names = " or ".join(error.__name__ for error in errors)
        try:
            yield
        except errors:
            return
        except Exception as error:
            raise StoreBreak(f"{what} raises {type(error).__name__}, expected {names}") from error
        raise StoreBreak(f"{what} is taken, expected {names}")

    async def at_once(self, count: int, work: Callable[[int], Awaitable[_T]]) -> list[_T | Exception]:
        """``work`` in so many tasks; what each returns or raises."""
        found: dict[int, _T | Exception] = {}

        async def one(number: int) -> None:
            try:
                found[number] = await work(number)
            except Exception as error:  # noqa: BLE001 - it is what the scenario judges
                found[number] = error

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(one, number)
        return [found[number] for number in range(count)]


Play: TypeAlias = Callable[[StoreScene], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class StoreScenario:
    """Something that a session needs of a store."""

    name: str
    sentence: str
    play: Play
    is_optional: bool
    """About what a store may offer or not."""


STORE_SCENARIOS: Final[dict[str, StoreScenario]] = {}
"""Every scenario by its name."""


def store_scenario(name: str, *, optional: bool = False) -> Callable[[Play], Play]:
    """Enter a function among the scenarios; its docstring says what is asked."""

    def enter(play: Play) -> Play:
        STORE_SCENARIOS[name] = StoreScenario(name, " ".join((play.__doc__ or "").split()), play, optional)
        return play

    return enter


def is_durable(factory: StoreFactory) -> bool:
    """Whether the factory's stores keep anything."""
    return bool(getattr(factory, "durable", True))


@asynccontextmanager
async def opened(factory: StoreFactory, folder: Path) -> AsyncIterator[RecordStore]:
    """The store of a folder, entered where it can be."""
    made = factory(folder)
    store: Any = await made if inspect.isawaitable(made) else made
    if hasattr(store, "__aenter__"):
        async with store:
            yield store
    else:
        yield store


# --- events -------------------------------------------------------------------------------------------------------

_BASE: Final[dict[str, Any]] = {"timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}


def message(seq: int, text: str = "hello", **more: Any) -> Event:
    """A message."""
    given: dict[str, Any] = {**_BASE, "id": f"e{seq}", **more}
    return Message(seq=seq, message_id=f"m{seq}", content=[Text(text=text)], **given)


def initialize(seq: int = 1) -> Event:
    """A record's first event."""
    descriptor = AgentDescriptor(name="coder", executor="suite")
    return Initialize(id=f"e{seq}", seq=seq, protocol_version="1.0", descriptor=descriptor, **_BASE)


def update(seq: int, **more: Any) -> Event:
    """A change of the session."""
    return SessionUpdate(id=f"e{seq}", seq=seq, **{**_BASE, **more})


def end(seq: int, turn: str, pending: Sequence[str] = ()) -> Event:
    """The end of a stream."""
    reason = "input_required" if pending else "completed"
    more: dict[str, Any] = {"stream_id": f"s{seq}", "turn_id": turn, **_BASE}
    return StreamEnd(id=f"e{seq}", seq=seq, reason=reason, pending=list(pending), **more)


def response(seq: int, request_id: str) -> Event:
    """A response outside a stream."""
    return ToolResponse(id=f"e{seq}", seq=seq, request_id=request_id, name="run", status="denied", **_BASE)


def _short(value: object) -> str:
    text = repr(_seqs(value) or value)
    return text if len(text) <= 200 else text[:197] + "..."


def _seqs(value: Any) -> list[int]:
    """The seqs of a list of events; nothing for anything else."""
    is_list = isinstance(value, list) and all(isinstance(item, Event) for item in value)
    return [event.seq for event in value] if is_list else []
