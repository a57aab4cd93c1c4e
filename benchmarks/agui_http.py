"""AG-UI over HTTP beside ag-ui-adk, on the same scripted model: throughput, first content, and the cost of late turns.

Each server is a process of its own; the client only counts lines. ``make bench-ag-ui`` runs it where ag-ui-adk is
installed; elsewhere our figures stand alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks._rows import Row

_DELTAS: Final = 2000
_STREAMS: Final = 20
_TURNS: Final = 200
_ROUNDS: Final = 3
_CONTENT: Final = b"TEXT_MESSAGE_CONTENT"


@dataclasses.dataclass(slots=True)
class _Run:
    """What one run came to, in seconds; ``events`` counts all of them."""

    seconds: float
    first: float
    events: int
    message_id: str
    text: str


@contextmanager
def _server(whose: str, deltas: int) -> Iterator[int]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks._agui_server", whose, str(deltas)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.communicate("", timeout=30)


async def _run(port: int, thread: str, messages: list[dict[str, Any]]) -> _Run:
    """One run over a connection of its own."""
    body = json.dumps(
        {
            "threadId": thread,
            "runId": uuid.uuid4().hex,
            "state": {},
            "messages": messages,
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
    ).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(head + body)
    first, events, received = 0.0, 0, bytearray()
    while chunk := await reader.read(2**16):
        received += chunk
        if not first and _CONTENT in received:
            first = time.perf_counter() - begun
    took = time.perf_counter() - begun
    writer.close()
    message_id, text = "", []
    for line in received.split(b"\n"):
        if not line.startswith(b"data: "):
            continue
        events += 1
        event = json.loads(line[6:])
        if event["type"] == "TEXT_MESSAGE_START":
            message_id = event["messageId"]
        elif event["type"] == "TEXT_MESSAGE_CONTENT":
            text.append(event["delta"])
        elif event["type"] == "RUN_ERROR":
            raise AssertionError(event)
    assert b"RUN_FINISHED" in received, received[-500:]
    return _Run(took, first, events, message_id, "".join(text))


def _user(text: str) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex, "role": "user", "content": text}


async def _throughput(port: int, streams: int) -> tuple[float, float]:
    """Events a second over all streams, and the seconds to the first content, the median."""
    begun = time.perf_counter()
    runs = await asyncio.gather(*(_run(port, uuid.uuid4().hex, [_user("go")]) for _ in range(streams)))
    took = max(run.seconds for run in runs) if streams == 1 else time.perf_counter() - begun
    assert all(run.text.count("word") >= _DELTAS for run in runs), "words were lost"
    return sum(run.events for run in runs) / took, statistics.median(run.first for run in runs)


async def _turns(port: int) -> list[float]:
    """The milliseconds of each turn of one thread, the history sent again each time as clients do."""
    messages, took, thread = list[dict[str, Any]](), list[float](), uuid.uuid4().hex
    for _ in range(_TURNS + 2):
        messages.append(_user("short"))
        run = await _run(port, thread, messages)
        took.append(run.seconds * 1000)
        messages.append({"id": run.message_id, "role": "assistant", "content": run.text})
    return took


def _around(took: list[float], turn: int) -> float:
    """The median of the five turns around one, so that one hiccup does not count. The very first warms the server."""
    at = max(turn - 1, 3)
    return statistics.median(took[at - 2 : at + 3])


def _measure(whose: str) -> dict[str, float]:
    """The best of some rounds for throughput, the medians of one long thread for turns."""
    found: dict[str, float] = {}
    with _server(whose, _DELTAS) as port:
        asyncio.run(_throughput(port, 1))  # warm
        for streams, name in ((1, "one"), (_STREAMS, "twenty")):
            rounds = [asyncio.run(_throughput(port, streams)) for _ in range(_ROUNDS)]
            found[name] = max(rate for rate, _ in rounds)
            found[f"{name} first"] = min(first for _, first in rounds) * 1000
    with _server(whose, 1) as port:
        asyncio.run(_run(port, "warm", [_user("short")]))
        took = asyncio.run(_turns(port))
        for turn in (1, 50, _TURNS):
            found[f"turn {turn}"] = _around(took, turn)
    return found


def rows() -> Iterator[Row]:
    """Ours, and with ag-ui-adk theirs and the ratios, one measured right after the other."""
    ours = _measure("ours")
    theirs = _measure("theirs") if importlib.util.find_spec("ag_ui_adk") is not None else None
    yield Row("one stream of 2,000 deltas", ours["one"])
    yield Row("twenty streams of 2,000 deltas", ours["twenty"])
    yield Row("first content, one stream", ours["one first"], "ms")
    yield Row("first content, twenty streams", ours["twenty first"], "ms")
    for turn in (1, 50, _TURNS):
        yield Row(f"turn {turn} of a thread", ours[f"turn {turn}"], "ms")
    yield Row("turn 200 beside turn 1", ours["turn 200"] / ours["turn 1"], "times", goal=1.5)
    if theirs is None:
        return
    yield Row("ag-ui-adk: one stream", theirs["one"])
    yield Row("ag-ui-adk: twenty streams", theirs["twenty"])
    yield Row("ag-ui-adk: first content, one stream", theirs["one first"], "ms")
    yield Row("ag-ui-adk: first content, twenty streams", theirs["twenty first"], "ms")
    for turn in (1, 50, _TURNS):
        yield Row(f"ag-ui-adk: turn {turn} of a thread", theirs[f"turn {turn}"], "ms")
    yield Row("ag-ui-adk: turn 200 beside turn 1", theirs["turn 200"] / theirs["turn 1"], "times")
    ratio: Callable[[str], float] = lambda name: ours[name] / theirs[name]  # noqa: E731
    yield Row("ours beside ag-ui-adk, one stream", ratio("one"), "times")
    yield Row("ours beside ag-ui-adk, twenty streams", ratio("twenty"), "times", goal=2.0)
