"""What it costs to translate ADK's events: events per second of this adapter's translator and of ag-ui-adk's.

The same ADK events, in the same process, one translator after the other. Translating alone: nothing is recorded, stored
or sent. ag-ui-adk is no dependency; ``python -m benchmarks.ag_ui`` (``make bench-ag-ui``) makes an environment with it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from google.adk.events.event import Event
from google.genai import types

from agentsession.adapters.adk._translate import Translator
from benchmarks._rows import Row, ratio

__all__ = ["rows"]

_DELTAS = 5_000
_CALLS = 2_000
_ROUNDS = 9
_GOAL = 2.0
"""At least this many times as many as ag-ui-adk."""


def _event(author: str, invocation: str, *parts: types.Part, role: str = "model", **fields: Any) -> Event:
    content = types.Content(role=role, parts=list(parts))
    return Event(author=author, invocation_id=invocation, content=content, **fields)


def deltas() -> list[Event]:
    """One long answer in pieces, and the whole of it at the end."""
    pieces = [
        _event("root", "i", types.Part(text="token "), partial=True, id="message", timestamp=1_700_000_000.0 + at)
        for at in range(_DELTAS)
    ]
    whole = types.Part(text="token " * _DELTAS)
    return [*pieces, _event("root", "i", whole, partial=False, turn_complete=True, id="message")]


def calls() -> list[Event]:
    """Calls with two arguments, each answered."""
    out = []
    for at in range(_CALLS):
        args = {"path": f"src/file{at}.py", "line": at}
        call = types.FunctionCall(id=f"c{at}", name="look", args=args)
        response = types.FunctionResponse(id=f"c{at}", name="look", response={"result": "three lines of text", **args})
        out.append(_event("root", "i", types.Part(function_call=call)))
        out.append(_event("root", "i", types.Part(function_response=response), role="user"))
    return out


def translated(events: list[Event]) -> float:
    """The seconds of this adapter: a delta by the short way where there is one, as a live session does."""
    translator = Translator()
    start = time.perf_counter()
    for event in events:
        if translator.quick_delta(event) is None:
            translator.feed(event)
    return time.perf_counter() - start


def by_ag_ui(events: list[Event]) -> float:
    """The seconds of ag-ui-adk's translator."""
    from ag_ui_adk.event_translator import EventTranslator  # type: ignore[import-not-found,unused-ignore]

    async def run() -> float:
        translator = EventTranslator()
        start = time.perf_counter()
        for event in events:
            async for _ in translator.translate(event, "thread", "run"):
                pass
        return time.perf_counter() - start

    return asyncio.run(run())


def rows() -> Iterator[Row]:
    """Deltas and calls, ours alone and beside ag-ui-adk."""
    ways: dict[str, Callable[[list[Event]], float]] = {"ours": translated}
    beside = importlib.util.find_spec("ag_ui_adk") is not None
    if beside:
        ways["ag-ui-adk"] = by_ag_ui
    for what, events in (("deltas", deltas()), ("calls and results", calls())):
        times: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(_ROUNDS):
            for way, measured in ways.items() if number % 2 else reversed(ways.items()):
                times[way].append(measured(events))
        for way, taken in times.items():
            yield Row(f"{what}: {way}", len(events) / statistics.median(taken))
        if beside:
            yield Row(f"{what}: ours in ag-ui-adk's", ratio(times["ag-ui-adk"], times["ours"]), "times", _GOAL)
    if not beside:
        yield Row(
            "ag-ui-adk", 0.0, note="skipped: it is not installed; `make bench-ag-ui` makes an environment with it"
        )
