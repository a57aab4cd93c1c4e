"""A process at the other end of the wire that does what its first argument says: the broken ones of the tests.

Needs nothing but the standard library, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

DESCRIPTOR = {"name": "peer", "executor": "peer", "capabilities": ["abort"]}


class Peer:
    """Answers what it must, and gives one stream the events of a whole turn."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.seq = 0

    def say(self, value: Any) -> None:
        os.write(1, json.dumps(value).encode() + b"\n")

    def event(self, type: str, **fields: Any) -> dict[str, Any]:
        self.seq += 1
        base = {"id": f"e{self.seq}", "seq": self.seq, "timestamp": "2026-01-31T12:00:00.000Z", "sessionId": "s"}
        return {**base, "type": type, **fields}

    def turn(self) -> list[dict[str, Any]]:
        here = {"streamId": "s1", "turnId": "t1", "agentId": "peer"}
        text = [{"type": "text", "text": "hello"}]
        return [
            self.event("message", **here, messageId="m1", role="user", source="user", content=text),
            self.event("agent_start", **here),
            self.event("message", **here, messageId="m2", content=text),
            self.event("agent_end", **here, reason="completed"),
            self.event("stream_end", **here, reason="completed", pending=[]),
        ]

    def run(self) -> None:
        if self.way == "silent":
            sys.stdin.read()  # to its end: what it is asked is not answered
        if self.way == "chatty":
            os.write(1, b"Listening on port 8080\n")
        for line in sys.stdin:
            request = json.loads(line)
            if "id" in request:
                self.answer(request["id"], request["method"])

    def answer(self, number: int, method: str) -> None:
        match method:
            case "start" if self.way == "no-steps":
                self.say({"id": number, "error": {"code": "CannotPlay", "message": "no delegate, no ask"}})
            case "start":
                self.say({"id": number, "result": {"protocolVersion": "1.0", "descriptor": DESCRIPTOR}})
            case "open":
                first = self.event("initialize", protocolVersion="1.0", descriptor=DESCRIPTOR, source="host")
                self.say({"id": number, "result": {"sessionId": "s", "record": [first]}})
            case "stream":
                self.stream(number)
            case _:
                self.say({"id": number, "error": {"code": "Unimplemented", "message": f"no {method}"}})

    def stream(self, number: int) -> None:
        events = self.turn()
        told = {"id": number, "result": {"streamId": "s1", "turnId": "t1"}}
        if self.way == "mute":
            return
        if self.way == "early":
            self.say({"event": events.pop(0)})
        self.say(told)
        if self.way == "dies":
            self.say({"event": events[0]})
            sys.exit("out of memory, as it seems")
        if self.way == "rubbish":
            self.say({"event": events[0]})
            os.write(1, b"Traceback: ...\n")
        if self.way == "wrong-order":
            events[1], events[2] = events[2], events[1]
            events[1]["seq"], events[2]["seq"] = events[2]["seq"], events[1]["seq"]
        if self.way == "no-reason":
            del events[-1]["reason"]
        for event in events:
            self.say({"event": event})


if __name__ == "__main__":
    Peer(sys.argv[1]).run()
