"""A walk through a session: makes events in an order that the contract allows, from a bookkeeping of its own.

For: the strategy ``records()``, and the test that walks the state machine beside this. It must not import or ask the
``SessionMachine``: two tellings of the same rules are what that test compares.
Not for: checking anything. May import: ``agentsession.protocol`` (the models).

A step is named; :meth:`Walk.legal` lists the steps that can be taken now, :meth:`Walk.step` takes one and returns its
events. Where a step has a choice it asks the function that the walk was made with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ContentPart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Initialize,
    Message,
    SessionUpdate,
    StreamEnd,
    Text,
    Thought,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    UnknownEvent,
    Usage,
    args_digest,
)

__all__ = ["Ask", "Talk", "Walk"]

T = TypeVar("T")
E = TypeVar("E", bound=Event)

_WORDS: Final = ("", "a", "bc", "😀", "\x00", "\u202e")
_REASONS: Final = ("completed", "failed", "aborted", "refusal", "max_tokens", "max_time", "x-not-known")
_MAX_THREADS: Final = 3
_FORM: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@dataclasses.dataclass
class Ask:
    """A request that is not answered yet."""

    id: str
    kind: str
    needs: str
    thread: str | None
    name: str
    args: dict[str, Any] | None = None
    status: str = "waiting"
    about: str | None = None
    schema: dict[str, Any] | None = None
    """Of a question: what an acceptance must hold."""
    confirmed: str | None = None
    """Of a tool with a confirmation: how that was answered, or ``waiting``."""

    @property
    def waits(self) -> bool:
        """Whether the host must do something."""
        return self.needs != "none" and self.status == "waiting"


@dataclasses.dataclass
class Talk:
    """A message with deltas that is not closed yet."""

    id: str
    thread: str | None
    parts: list[ContentPart]


class Walk:
    """One session being made up, event by event."""

    def __init__(self, choose: Callable[[list[Any]], Any], session_id: str = "s-1") -> None:
        self._choose = choose
        self.session_id = session_id
        self.events: list[Event] = []
        self.begun = False
        self.stream: str | None = None
        self.turn: str | None = None
        self.waiting = False
        """Whether the turn waits between two streams."""
        self.fatal = False
        self.asks: dict[str, Ask] = {}
        self.talks: dict[str, Talk] = {}
        self.agents: dict[str | None, list[str]] = {}
        self.parents: dict[str | None, str | None] = {}
        self.partial: list[str] = []
        """Ids of tool requests that are being streamed."""
        self.steers: list[str] = []
        """Ids of steers that wait to be injected: whoever walks puts them here."""
        self.answered: list[str] = []
        self.abandoned: list[str] = []
        """Ids of tool requests that never became whole."""
        self.said: list[str] = []
        """Ids of the closed messages."""
        self.ended: list[str] = []
        """Ids of the streams that have ended."""
        self.ended_turns: list[str] = []
        self._made = 0

    # -- what is so ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state of the session as the contract names it."""
        if self.stream is not None:
            return "running"
        if self.waiting:
            return "input_required"
        return "idle" if self.ended else "new"

    @property
    def pending(self) -> list[str]:
        """The requests that wait for the host, oldest first."""
        return [ask.id for ask in self.asks.values() if ask.waits]

    def tools(self) -> list[Ask]:
        """The tool requests without a response."""
        return [ask for ask in self.asks.values() if ask.kind == "tool"]

    def questions(self) -> list[Ask]:
        """The questions without an answer."""
        return [ask for ask in self.asks.values() if ask.kind == "question"]

    # -- steps --------------------------------------------------------------------------------------------------------

    def legal(self) -> list[str]:
        """The names of the steps that can be taken now."""
        if not self.begun:
            return ["initialize"]
        if self.stream is None:
            if not self.waiting:
                return ["user_message", "update"]
            return ["resume", "settle", "update", *(["kept_answer"] if self.pending else [])]
        if self.fatal:
            return ["finish"]
        # What is rare in a session is named once, what makes it interesting more often.
        steps = ["aside", "finish"]
        if not self.agents:
            return [*steps, "start_agent", "start_agent", *(["pause"] if self.pending else [])]
        steps += ["start_agent", "fatal", "say", "stream_args", *["delta", "ask_tool"] * 3, "ask", "ask"]
        if self.talks:
            steps += ["delta", "close_message"]
        if self._closable() is not None:
            steps.append("end_agent")
        if self.tools():
            steps += ["progress", "respond", "respond"]
        if any(ask.waits for ask in self.tools()):
            steps += ["decide"] * 3
        if self.questions():
            steps += ["answer"] * 3
        if self.pending:
            steps += ["pause"] * 3
        return steps

    def step(self, name: str) -> list[Event]:
        """Take the step and return its events."""
        before = len(self.events)
        getattr(self, f"_{name}")()
        return self.events[before:]

    def make(self, cls: type[E], **fields: Any) -> E:
        """A stamped event that would come next, without taking it into the record."""
        self._made += 1
        stamps: dict[str, Any] = {
            "id": f"e-{self._made}",
            "seq": self._made,
            "timestamp": f"2026-01-31T12:00:{self._made % 60:02}.000Z",
            "session_id": self.session_id,
        }
        if "stream_id" not in fields:
            stamps |= {"stream_id": self.stream, "turn_id": self.turn}
        return cls(**{key: value for key, value in {**stamps, **fields}.items() if value is not None})

    def new_id(self, prefix: str) -> str:
        """An id that was not used yet."""
        self._made += 1
        return f"{prefix}-{self._made}"

    def _emit(self, cls: type[E], **fields: Any) -> E:
        event = self.make(cls, **fields)
        self.events.append(event)
        return event

    def _one(self, options: Sequence[T]) -> T:
        chosen: T = self._choose(list(options))
        return chosen

    def _outside(self) -> dict[str, Any]:
        return {"stream_id": None, "turn_id": self.turn}

    def _thread(self) -> str | None:
        return self._one(list(self.agents))

    # opening, pausing and ending

    def _initialize(self) -> None:
        self._emit(
            Initialize, protocol_version="1.0", descriptor=AgentDescriptor(name="root", executor="walk"), source="host"
        )
        self.begun = True

    def _user_message(self) -> None:
        self.stream, self.turn = self.new_id("stream"), self.new_id("turn")
        self._user_says()

    def _resume(self) -> None:
        self.stream, self.waiting = self.new_id("stream"), False
        self._emit(AgentStart, agent_id="root", resumed=True)
        self.agents[None] = ["root"]

    def _settle(self) -> None:
        """A stream of its own that ends a waiting turn: abort, or a message over what is pending."""
        self.stream, self.waiting = self.new_id("stream"), False
        self._end("aborted")

    def _pause(self) -> None:
        self._close_all("input_required")
        self._emit(StreamEnd, reason="input_required", pending=self.pending, source="host")
        self._after_stream()
        self.waiting = True

    def _finish(self) -> None:
        self._end(self._one(_REASONS if not self.fatal else ("failed", "aborted")))

    def _end(self, reason: str) -> None:
        for ask in list(self.asks.values()):
            if ask.kind == "tool":
                status = "unknown" if ask.status in ("granted", "in_flight") else "cancelled"
                self._resolve_tool(ask, status, "host")
            else:
                self._resolve_question(ask, "cancel")
        self._close_all("completed")
        data = {"undelivered": list(self.steers)} if self.steers else None
        if self.steers and reason == "completed":
            reason = "aborted"
        self.steers.clear()
        self._emit(StreamEnd, reason=reason, data=data, source="host")
        self._after_stream()
        if self.turn is not None:
            self.ended_turns.append(self.turn)
        self.turn = None

    def _after_stream(self) -> None:
        if self.stream is not None:
            self.ended.append(self.stream)
        self.abandoned += self.partial
        self.partial.clear()
        self.stream, self.fatal = None, False

    def _close_all(self, reason: str) -> None:
        for talk in list(self.talks.values()):
            self._say_whole(talk, interrupted=True)
        while (thread := self._closable()) is not None:
            self._end_on(thread[0], reason)

    # agents

    def _start_agent(self) -> None:
        if not self.agents:
            self._emit(AgentStart, agent_id="root")
            self.agents[None] = ["root"]
            return
        parent = self._thread()
        nested = len(self.agents) >= _MAX_THREADS or self._one([True, False])
        agent = self.new_id("agent")
        if nested:
            self._emit(AgentStart, agent_id=agent, thread_id=parent)
            self.agents[parent].append(agent)
            return
        thread = self.new_id("t") if parent is None else f"{parent}.{self.new_id('t')}"
        self._emit(AgentStart, agent_id=agent, thread_id=thread, parent_thread_id=parent)
        self.agents[thread] = [agent]
        self.parents[thread] = parent

    def _closable(self) -> tuple[str | None] | None:
        """The newest thread whose innermost agent may end: no child thread open, no message of the thread open."""
        for thread in reversed(self.agents):
            has_child = any(parent == thread and child in self.agents for child, parent in self.parents.items())
            if not has_child and not any(talk.thread == thread for talk in self.talks.values()):
                return (thread,)
        return None

    def _end_agent(self) -> None:
        thread = self._closable()
        if thread is not None:
            self._end_on(thread[0], self._one(["completed", "handoff", "x-not-known"]))

    def _end_on(self, thread: str | None, reason: str) -> None:
        self._emit(AgentEnd, agent_id=self.agents[thread].pop(), thread_id=thread, reason=reason)
        if not self.agents[thread]:
            del self.agents[thread]
            self.parents.pop(thread, None)

    # messages

    def _user_says(self) -> None:
        message_id = self.steers.pop(0) if self.steers else self.new_id("m")
        self._emit(Message, message_id=message_id, role="user", content=[Text(text="hello")], source="user")
        self.said.append(message_id)

    def _say(self) -> None:
        message_id = self.new_id("m")
        self._emit(Message, message_id=message_id, content=[Text(text="whole")], thread_id=self._thread())
        self.said.append(message_id)

    def _delta(self) -> None:
        if not self.talks or (self.agents and self._one([True, False, False])):
            talk = Talk(self.new_id("m"), self._thread(), [])
            self.talks[talk.id] = talk
        else:
            talk = self._one(list(self.talks.values()))
        part = self._one([Text, Thought])(text=self._one(_WORDS))
        self._emit(
            Message,
            message_id=talk.id,
            content=[part],
            partial=True,
            index=len(talk.parts),
            thread_id=talk.thread,
        )
        talk.parts.append(part)

    def _close_message(self) -> None:
        self._say_whole(self._one(list(self.talks.values())), interrupted=False)

    def _say_whole(self, talk: Talk, *, interrupted: bool) -> None:
        revised = self._one([False, False, True])
        content: list[ContentPart] = [Text(text="other words")] if revised else talk.parts
        self._emit(
            Message,
            message_id=talk.id,
            content=content,
            revised=revised,
            interrupted=interrupted,
            thread_id=talk.thread,
        )
        del self.talks[talk.id]
        self.said.append(talk.id)

    # requests and answers

    def _stream_args(self) -> None:
        request_id = self.new_id("r")
        self._emit(
            ToolRequest, request_id=request_id, name="run", args_delta='{"a":', partial=True, thread_id=self._thread()
        )
        self.partial.append(request_id)

    def _ask_tool(self) -> None:
        streamed = bool(self.partial) and self._one([True, False])
        ask = Ask(
            id=self.partial.pop() if streamed else self.new_id("r"),
            kind="tool",
            needs=self._one(["result", "grant", "none", "x-not-known"]),
            thread=self._thread(),
            name=self._one(["run", "read", ""]),
            args=self._one([None, {}, {"path": "a.py", "n": 1}]),
        )
        if ask.needs == "none":
            ask.status = "in_flight"
        self._emit(ToolRequest, request_id=ask.id, name=ask.name, needs=ask.needs, args=ask.args, thread_id=ask.thread)
        self.asks[ask.id] = ask

    def _ask(self) -> None:
        tools = [tool for tool in self.tools() if tool.confirmed != "waiting"]
        about = self._one([None, *tools])
        kind = "tool_confirmation" if about else self._one(["clarification", "user_approval", "x-not-known"])
        ask = Ask(
            id=self.new_id("q"),
            kind="question",
            needs="answer",
            thread=self._thread(),
            name=kind,
            about=about.id if about else None,
            schema=self._one([None, _FORM]) if kind == "clarification" else None,
        )
        self._emit(
            ElicitationRequest,
            request_id=ask.id,
            kind=kind,
            message="May I?",
            tool_request_id=ask.about,
            requested_schema=ask.schema,
            thread_id=ask.thread,
        )
        self.asks[ask.id] = ask
        if about:
            about.confirmed = "waiting"

    def _decide(self) -> None:
        ask = self._one([tool for tool in self.tools() if tool.waits])
        edited = self._one([None, {"path": "b.py"}])
        granted = self._one([True, False])
        self._emit(
            ToolDecision,
            request_id=ask.id,
            decision="granted" if granted else self._one(["denied", "x-not-known"]),
            args=edited,
            args_digest=args_digest((ask.args if edited is None else edited) or {}),
            source="host",
        )
        ask.status = "granted" if granted else "denied"

    def _progress(self) -> None:
        ask = self._one(self.tools())
        self._emit(ToolUpdate, request_id=ask.id, progress=1.0, source="host", thread_id=ask.thread)

    def outcomes(self, ask: Ask) -> list[tuple[str, str]]:
        """The statuses, each with a source, with which a tool request may end."""
        found = [("cancelled", "host"), ("denied", "host")]
        if ask.status != "denied" and ask.needs != "none":
            found += [("completed", "host"), ("failed", "host")]
        if ask.needs == "none" or (ask.needs == "grant" and ask.status == "granted"):
            found.append(("failed", "agent"))
            if ask.confirmed in (None, "accept"):
                found += [("completed", "agent"), ("x-not-known", "agent")]
        return found

    def _respond(self) -> None:
        ask = self._one(self.tools())
        status, source = self._one(self.outcomes(ask))
        self._resolve_tool(ask, status, source)

    def _resolve_tool(self, ask: Ask, status: str, source: str) -> None:
        self._emit(ToolResponse, request_id=ask.id, name=ask.name, status=status, source=source, thread_id=ask.thread)
        self._forget(ask)

    def _answer(self) -> None:
        ask = self._one(self.questions())
        self._resolve_question(ask, self._one(["accept", "decline", "cancel", "x-not-known"]))

    def _resolve_question(self, ask: Ask, action: str) -> None:
        content: dict[str, Any] = {}
        if action == "accept" and ask.schema is not None:
            content = {"content": {"n": 7}}
        elif action == "accept" and self._one([True, False]):
            content = {"content": {"confirmed": True}}
        self._emit(
            ElicitationResponse,
            request_id=ask.id,
            action=action,
            source="host",
            thread_id=ask.thread,
            **({} if self.stream else self._outside()),
            **content,
        )
        tool = self.asks.get(ask.about or "")
        if tool is not None:
            tool.confirmed = action
        self._forget(ask)

    def _kept_answer(self) -> None:
        """An answer while no stream runs."""
        ask = self._one([ask for ask in self.asks.values() if ask.waits])
        if ask.kind == "question":
            self._resolve_question(ask, "decline")
            return
        self._emit(
            ToolResponse,
            request_id=ask.id,
            name=ask.name,
            status="cancelled",
            source="host",
            thread_id=ask.thread,
            **self._outside(),
        )
        self._forget(ask)

    def _forget(self, ask: Ask) -> None:
        del self.asks[ask.id]
        self.answered.append(ask.id)

    # the rest

    def _aside(self) -> None:
        """Something that may stand anywhere in a stream and changes nothing."""
        anywhere = [self._user_says, self._update_in_stream, self._hiccup, self._unknown]
        self._one([*anywhere, self._usage, self._note] if self.agents else anywhere)()

    def _update(self) -> None:
        self._emit(SessionUpdate, title="a title", source="host", **self._outside())

    def _update_in_stream(self) -> None:
        self._emit(SessionUpdate, state_delta={"k": None}, source="host")

    def _usage(self) -> None:
        self._emit(Usage, input_tokens=1, thread_id=self._thread())

    def _note(self) -> None:
        self._emit(Custom, kind="plan", data=None, thread_id=self._thread())

    def _unknown(self) -> None:
        self._emit(UnknownEvent, type="x_later", hello={"a": None})

    def _hiccup(self) -> None:
        self._emit(Error, status="UNAVAILABLE", message="again in a moment")

    def _fatal(self) -> None:
        self._emit(Error, status="INTERNAL", message="broken", fatal=True)
        self.fatal = True
