"""Readers that are cut off after any byte, and go on at the last event that came whole: nothing is lost or repeated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.http.asgi import Client

from agentsession.adapters.scripted import Ask, Deltas, Say, ScriptedExecutor, Step
from agentsession.host.http import contract_app
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent
from agentsession.protocol import accept

S = "/agents/scripted/sessions/s"
SCRIPT: Sequence[Sequence[Step]] = [
    [Deltas(["Grüße", " 你好 ", "\n\ndata: x\r\n", "🙂"]), Say("One."), Ask("Which?"), Say("Two.")]
]


class Cut(Client):
    """A reader that is cut off after so many bytes of the answer's body, or once it has had all that there is."""

    def __init__(self, app: Any, method: str, path: str, left: int, after: int, body: bytes = b"") -> None:
        super().__init__(app, method, path, [body] if body else [], [("last-event-id", str(after))])
        self._left = left
        self._after = after
        self._kept = b""

    def events(self) -> list[dict[str, Any]]:
        """Those that came whole."""
        whole = [block.decode() for block in self._kept.split(b"\n\n")[:-1]]
        return [json.loads(block.split("\ndata: ", 1)[1]) for block in whole if block.startswith("id: ")]

    async def read(self, live: LiveSession) -> list[dict[str, Any]]:
        more = anyio.Event()

        async def take(data: bytes) -> None:
            nonlocal more
            self._kept += data[: self._left - len(self._kept)]
            before, more = more, anyio.Event()
            before.set()
            if len(self._kept) >= self._left:
                self.gone.set()
                await anyio.sleep_forever()  # the server hears that it is gone, and lets go

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run, take)
            await live.at_rest()
            while not self.gone.is_set() and [self._after, *(one["seq"] for one in self.events())][-1] < live.last_seq:
                await more.wait()
            self.gone.set()
        return self.events()


@given(
    cuts=st.lists(st.integers(1, 3000), max_size=30),
    is_post=st.booleans(),
    pauses=st.lists(st.integers(0, 3), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_readers_that_are_cut_at_any_byte_get_each_event_once(
    cuts: list[int], is_post: bool, pauses: list[int]
) -> None:
    seen: list[dict[str, Any]] = []

    async def main() -> list[dict[str, Any]]:
        agent = ServedAgent("scripted", ScriptedExecutor(SCRIPT, reenter=True))
        async with LiveSessions([agent]) as sessions:
            app = contract_app(sessions)
            await Client(app, "POST", S.rsplit("/", 1)[0], [b'{"sessionId": "s"}']).run()
            live = await sessions.get("scripted", "local", "s")
            if is_post:  # who begins it reads it from its first event
                seen.extend([event.to_wire() async for event in live.events()])
                left = cuts[0] if cuts else 10**9
                seen.extend(await Cut(app, "POST", S + "/stream", left, 0, b'{"input": "go"}').read(live))
            else:
                await live.stream("go")
            for number, left in enumerate(cuts):
                for _ in range(pauses[number % len(pauses)]):
                    await anyio.lowlevel.checkpoint()
                after = seen[-1]["seq"] if seen else 0
                seen.extend(await Cut(app, "GET", S + "/events", left, after).read(live))
                if number == len(cuts) // 2:
                    await answered(live)
            await answered(live)
            await live.at_rest()
            if live.last_seq > (seen[-1]["seq"] if seen else 0):
                await rest(app, live, seen)
            return [event.to_wire() async for event in live.events()]

    record = anyio.run(main)
    seqs = [event["seq"] for event in seen]
    assert seqs == sorted(set(seqs))
    known = {event["seq"]: event for event in record}
    assert [event for event in seen if not event.get("partial")] == [
        event for event in record if not event.get("partial")
    ]
    assert all(known[event["seq"]] == event for event in seen if event["seq"] in known)


async def answered(live: LiveSession) -> None:
    """The question is answered, once it is there."""
    await live.at_rest()
    for request in live.pending:
        await live.session.respond(accept(request.request_id, {}))
        await live.stream()


async def rest(app: Any, live: LiveSession, seen: list[dict[str, Any]]) -> None:
    """What is left, to the last event."""
    after = seen[-1]["seq"] if seen else 0
    reader = Client(app, "GET", S + "/events", headers=[("last-event-id", str(after))], query=b"follow=false")
    await reader.run()
    for block in reader.data.decode().split("\n\n"):
        if block.startswith("id: "):
            seen.append(json.loads(block.split("\ndata: ", 1)[1]))
