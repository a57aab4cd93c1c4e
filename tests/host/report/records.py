"""Records for the tests of the report: written event by event, with the times that the tests expect."""

from __future__ import annotations

import datetime
from typing import Any

from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Initialize,
    Message,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    Usage,
    args_digest,
)

__all__ = ["Writer", "coder_at_work", "long_record"]

_BEGAN = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


class Writer:
    """Appends stamped events at given seconds."""

    def __init__(self, session_id: str = "s-7f3a", agent: str = "coder") -> None:
        self.events: list[Event] = []
        self.session_id = session_id
        self.at = 0.0
        self.stream: str | None = None
        self.turn: str | None = None
        self._streams = 0
        self._turns = 0
        self.add(
            Initialize, protocol_version="1.0", descriptor=AgentDescriptor(name=agent, executor="test"), source="host"
        )

    def add(self, event_class: type[Event], /, **fields: Any) -> None:
        """One event, at the present time."""
        number = len(self.events) + 1
        stamp = _BEGAN + datetime.timedelta(seconds=self.at)
        base: dict[str, Any] = {
            "id": f"e{number}",
            "seq": number,
            "timestamp": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "session_id": self.session_id,
        }
        for name, value in (("stream_id", self.stream), ("turn_id", self.turn)):
            if value is not None:
                base[name] = value
        self.events.append(event_class(**{**base, **fields}))

    def after(self, seconds: float) -> Writer:
        """Let time pass."""
        self.at += seconds
        return self

    def begin(self, task: str | None = None) -> None:
        """A turn begins, or without a task goes on in its next stream."""
        self._streams += 1
        if task is not None:
            self._turns += 1
            self.turn = f"t{self._turns}"
        self.stream = f"s{self._streams}"
        if task is not None:
            self.add(Message, message_id=f"u{len(self.events)}", role="user", content=[Text(text=task)], source="user")

    def end(self, reason: str = "completed", **fields: Any) -> None:
        """The stream ends; with anything but ``input_required`` the turn does."""
        self.add(StreamEnd, reason=reason, source="host", **fields)
        self.stream = None
        if reason != "input_required":
            self.turn = None

    def say(self, text: str, **fields: Any) -> None:
        """The agent says something."""
        self.add(Message, message_id=f"m{len(self.events)}", content=[Text(text=text)], **fields)

    def ask_tool(self, request_id: str, name: str, args: dict[str, Any] | None = None, **fields: Any) -> None:
        """The agent wants a tool to run."""
        self.add(ToolRequest, request_id=request_id, name=name, args=args or {}, **fields)

    def decide(self, request_id: str, by: str, decision: str = "granted", **fields: Any) -> None:
        """Somebody decides on it."""
        given: dict[str, Any] = {"args_digest": args_digest({}), "source": "host", **fields}
        self.add(ToolDecision, request_id=request_id, decision=decision, by=by, **given)

    def respond(self, request_id: str, name: str, data: Any = None, **fields: Any) -> None:
        """How it ended."""
        self.add(ToolResponse, request_id=request_id, name=name, data=data, **{"source": "host", **fields})


def coder_at_work() -> list[Event]:
    """An agent with a sub-agent reads, is refused a command, is asked to wait for a person, is steered and aborted."""
    w = Writer()
    w.begin("Fix the failing test in cart.py")
    w.after(0.2).add(AgentStart, agent_id="coder")
    w.after(4).say("I'll read the code and run the tests.")
    w.add(
        Custom,
        kind="plan",
        data={
            "entries": [
                {"content": "Find the cause", "status": "completed"},
                {"content": "Fix it", "status": "in_progress"},
                {"content": "Run the tests", "status": "pending"},
            ]
        },
    )
    w.ask_tool("r1", "read_file", {"path": "shop/cart.py"})
    w.ask_tool("r2", "run_tests")
    w.add(Usage, model="gemini-x", input_tokens=3_100, output_tokens=220, cost=0.009, context_window=200_000)
    w.after(0.4).decide("r1", "policy:reads")
    w.respond("r1", "read_file", "class Cart: ...")
    w.after(3).decide("r2", "policy:reads")
    w.respond("r2", "run_tests", {"error": {"code": "failed", "message": "1 of 6 failed"}}, is_error=True)
    w.after(5).say("The discount is applied twice.")
    w.ask_tool("r3", "run_shell", {"command": "rm -rf /"})
    w.add(Usage, model="gemini-x", input_tokens=4_000, output_tokens=310, cost=0.011, context_window=200_000)
    w.decide("r3", "policy:no-rm", "denied", reason="outside the workspace")
    w.respond("r3", "run_shell", {"error": "outside the workspace", "denied": True}, is_error=True, status="denied")
    w.after(1.5).add(AgentStart, agent_id="fixer", thread_id="fixer")
    w.after(6).say("I'll patch it.", thread_id="fixer", agent_id="fixer")
    w.add(
        Usage, model="gemini-y", input_tokens=1_800, output_tokens=90, thread_id="fixer", agent_id="fixer", cost=0.002
    )
    w.ask_tool(
        "r4",
        "edit_file",
        {"path": "cart.py", "old_text": "  return s * (1 - pct) * (1 - pct)\n", "new_text": "  return s * (1 - pct)\n"},
        needs="grant",
        owner="agent",
        thread_id="fixer",
        agent_id="fixer",
    )
    w.after(5).decide("r4", "user", thread_id="fixer", agent_id="fixer")
    w.after(1).respond("r4", "edit_file", "cart.py changed", source="agent", thread_id="fixer", agent_id="fixer")
    w.after(0.5).add(AgentEnd, agent_id="fixer", thread_id="fixer")
    w.add(Custom, kind="steer_queued", data={"steerId": "st1"}, source="host")
    w.add(Message, message_id="st1", role="user", content=[Text(text="don't touch the API")], source="user")
    w.after(2).add(
        ElicitationRequest,
        request_id="q1",
        kind="clarification",
        message="Which region?",
        requested_schema={
            "type": "object",
            "properties": {"region": {"enum": ["eu-west", "us-east"]}, "token": {"type": "string", "writeOnly": True}},
        },
    )
    w.after(3).add(
        ElicitationResponse, request_id="q1", action="accept", content={"region": "eu-west", "token": "[redacted]"}
    )
    w.after(6).say("Fixed. I'll run the tests again.")
    w.ask_tool("r5", "run_tests", needs="grant", owner="agent")
    w.add(Usage, model="gemini-x", input_tokens=5_200, output_tokens=330, cost=0.012, context_window=200_000)
    w.decide("r5", "policy:reads")
    w.after(4).respond("r5", "run_tests", None, status="unknown", is_error=True, source="agent")
    w.add(AgentEnd, agent_id="coder", reason="aborted")
    w.end("aborted", data={"cause": "user"})
    return w.events


def long_record(turns: int, calls: int, *, pause_s: float = 30.0) -> list[Event]:
    """Many turns with many calls, a person away between them; one call in forty fails."""
    w = Writer("s-long", "worker")
    for turn in range(turns):
        w.begin(f"Batch {turn + 1}")
        for call in range(calls):
            request_id = f"r{turn}-{call}"
            w.after(0.8).ask_tool(request_id, "lookup", {"row": call})
            w.add(Usage, model="m", input_tokens=100 + call, output_tokens=10, cost=0.0001)
            w.after(0.1).decide(request_id, "policy:reads")
            bad = (turn * calls + call) % 40 == 7
            w.respond(
                request_id,
                "lookup",
                {"error": {"code": "x", "message": "no row"}} if bad else {"row": call},
                is_error=bad,
            )
        w.after(0.5).say(f"Batch {turn + 1} is done.")
        w.end()
        w.after(pause_s)
    return w.events
