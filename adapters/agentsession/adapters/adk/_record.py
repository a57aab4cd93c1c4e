"""A stored ADK session as a whole record of the contract: initialize, turns, streams, brackets, every request settled.

Not for: live sessions (the base class stamps and brackets those). Rules carried: all of the record, for what ADK kept;
the session machine checks each event before it is given out.
May import: ``_translate``, ``_read``, ``_reentry``, protocol.

ADK keeps no streams. They are found again from who speaks: a user's text starts a turn; a user's answer to something
that waits ends a stream ``input_required`` and continues its turn; a user's text while something waits first settles
that. Nothing here reads a clock: times are ADK's own, and the epoch where ADK has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.adk.events.event import Event as AdkEvent
from google.genai import types

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._read import AdkSession, ReadEvent
from agentsession.adapters.adk._reentry import is_gate
from agentsession.adapters.adk._translate import Translator
from agentsession.adapters.adk._values import clean_id, is_within, iso_timestamp, lossy_json, redact, thread_of
from agentsession.protocol import (
    PROTOCOL_VERSION,
    REWIND,
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    Custom,
    ElicitationResponse,
    Event,
    Initialize,
    ProtocolViolation,
    SessionMachine,
    SessionUpdate,
    StreamEnd,
    ToolResponse,
    repair_text,
)

__all__ = ["map_events", "map_session"]

_EPOCH: Final = "1970-01-01T00:00:00.000Z"


def map_events(
    events: Iterable[AdkEvent | ReadEvent],
    descriptor: AgentDescriptor | None = None,
    *,
    session_id: str = "adk-session",
) -> Iterator[Event]:
    """The record of a stored session, stamped and valid, from its ADK Events in their order.

    ``descriptor`` is that of the agent, where it is at hand; else one is made from the name of the first author.
    """
    read = [event if isinstance(event, ReadEvent) else ReadEvent(event) for event in events]
    return map_session(AdkSession(clean_id(session_id) or "adk-session", read), descriptor)


def map_session(session: AdkSession, descriptor: AgentDescriptor | None = None) -> Iterator[Event]:
    """The record of a session that was read from a file; see :func:`map_events`."""
    recorder = _Recorder(session, descriptor or _guess_descriptor(session))
    yield from recorder.begin()
    for read in session.events:
        yield from recorder.feed(read)
    yield from recorder.finish()


def _guess_descriptor(session: AdkSession) -> AgentDescriptor:
    authors = (read.event.author for read in session.events if read.event.author not in ("", "user", None))
    name = next(authors, None) or session.app_name or "agent"
    if not name.isidentifier():
        plain = re.sub(r"[^0-9A-Za-z_]", "_", name)
        name = plain if plain.isidentifier() else f"agent_{plain}"
    return AgentDescriptor(name=name[:128], executor="adk")


class _Recorder:
    """Builds the record event by event; everything it gives out has passed the session machine."""

    def __init__(self, session: AdkSession, descriptor: AgentDescriptor) -> None:
        self._session = session
        self._descriptor = descriptor
        self._translator = Translator(is_gate=is_gate)
        self._machine = SessionMachine()
        self._out: list[Event] = []
        self._seq = 0
        self._time_before = self._time = next((t for t in map(_time_of, session.events) if t), _EPOCH)
        self._turn = 0
        self._stream = 0
        self._open: dict[str | None, tuple[str, str | None]] = {}
        """The agent at work on each open thread and the thread it hangs under, in the order of opening."""
        self._paused: set[tuple[str | None, str]] = set()
        self._escalated: set[tuple[str | None, str]] = set()
        """Agents that told whoever runs them to stop, by thread and name."""
        self._acted: set[str] = set()
        """Ids of ADK's events whose actions were looked at: some workflows yield one twice."""
        self._before: dict[str, int] = {}
        """The seq before the first event of each invocation, where no turn was open there."""
        scopes = {read.event.isolation_scope for read in session.events if read.event.isolation_scope}
        self._translator.delegated.update(scopes)

    # --- the whole ----------------------------------------------------------------------------------------------------

    def begin(self) -> list[Event]:
        """Initialize, and the state that the file says the session began with."""
        self._emit(
            Initialize(
                agent_id=self._descriptor.name,
                protocol_version=PROTOCOL_VERSION,
                descriptor=self._descriptor,
                source="host",
                meta={"adopted": True},
            )
        )
        self._snapshot(self._session.first_state)
        return self._taken()

    def feed(self, read: ReadEvent) -> list[Event]:
        """The events of one ADK Event, with the brackets and ends that it calls for."""
        self._time_before, self._time = self._time, _time_of(read) or self._time
        event = read.event
        if event.author == "user":
            self._user(event, read)
        else:
            self._agent(event, read)
        return self._taken()

    def finish(self) -> list[Event]:
        """The end of the last stream, and the state that the file says the session had in the end."""
        self._settle_begun()
        self._end_stream()
        self._snapshot(self._session.last_state)
        return self._taken()

    def _settle_begun(self) -> None:
        """Nobody can say what became of a call that was begun and has no response: its process is gone.

        A call that waits for its own confirmation or credential has not begun.
        """
        if self._machine.stream_id is None:
            return
        open_calls = self._translator.book.open_calls()
        asked = {call.tool_request_id for call in open_calls if call.kind != "tool"}
        begun = [
            request_id
            for request_id, request in self._machine.requests.items()
            if request.status != "waiting" and request_id not in asked
        ]
        self._close_requests("unknown", "cancel", begun)

    def _snapshot(self, state: Any) -> None:
        if state:
            shown = {key: value for key, value in state.items() if not str(key).startswith("_adk")}
            self._emit(SessionUpdate(state_snapshot=redact(lossy_json(shown)[0]), source="host"))

    # --- who speaks ---------------------------------------------------------------------------------------------------

    def _user(self, event: AdkEvent, read: ReadEvent) -> None:
        parts = (event.content.parts or []) if event.content is not None else []
        answers = [part for part in parts if part.function_response is not None]
        says = event.content is not None and len(answers) < max(len(parts), 1)
        if answers and says:  # ADK refuses both in one message; a file may hold it
            said = [part for part in parts if part.function_response is None]
            self._user(_with_parts(event, answers), ReadEvent(_with_parts(event, answers), read.unread))
            bare = _with_parts(event, said).model_copy(
                update={"id": f"{event.id}.text", "actions": type(event.actions)()}
            )
            self._user(bare, ReadEvent(bare))
            return
        if says:
            # The turn before ended when the agent was done, not when the person came back.
            now, self._time = self._time, self._time_before
            self._end_stream()
            self._time = now
            self._settle("message")
            self._before.setdefault(event.invocation_id, self._seq)
            self._begin_turn()
        elif event.actions.rewind_before_invocation_id:
            self._end_stream()
            self._settle(REWIND)
        elif answers and self._answers_something(answers, event):
            if self._stream_open:
                self._end_stream()
            self._begin_stream()
        elif answers and not self._stream_open:
            self._continue_or_begin()
        translated = self._translator.feed(event, unread=read.unread)
        self._close_delegations(event)
        for item in translated:
            if item.type == "error" and not self._stream_open:
                self._continue_or_begin()
            if isinstance(item, Custom) and item.kind == REWIND:
                item = self._rewind(item, event.actions.rewind_before_invocation_id)
            self._emit(item)

    def _rewind(self, item: Custom, invocation: str | None) -> Custom:
        """ADK's rewind with the seq that it goes to, so that what it took back counts no more here either."""
        to = self._before.get(invocation or "")
        if to is None or not isinstance(item.data, dict):
            return item
        return item.model_copy(update={"data": {**item.data, "to_seq": to}})

    def _agent(self, event: AdkEvent, read: ReadEvent) -> None:
        if not self._stream_open:
            self._continue_or_begin()
        translated = self._translator.feed(event, unread=read.unread)
        self._close_delegations(event)
        for item in translated:
            self._emit_of_agent(item)
        self._see_actions(event)

    def _see_actions(self, event: AdkEvent) -> None:
        """How an agent's event says that the agent ends: it hands over, or leaves the loop around it."""
        to, escalates = event.actions.transfer_to_agent, event.actions.escalate
        author, thread = clean_id(event.author), thread_of(event.branch)
        if not author or event.partial or not (to or escalates) or event.id in self._acted:
            return
        if event.id:
            self._acted.add(event.id)
        self._work(author, thread)  # it may say nothing else
        if to:
            self._leave(thread, "handoff", {"to": repair_text(to)})
        else:
            self._escalated.add((thread, author))

    def _answers_something(self, answers: list[types.Part], event: AdkEvent) -> bool:
        """Whether one of a user's responses answers a call that waits; a delegation's own response does not."""
        for part in answers:
            made = part.function_response
            if made is not None:
                call = self._translator.book.match(made.id or "", made.name or "", event.invocation_id or "")
                # What broke a rule when it was asked is not in the record as a request.
                if call is not None and call.waits and call.request_id in self._machine.requests:
                    return True
        return False

    # --- turns and streams --------------------------------------------------------------------------------------------

    @property
    def _stream_open(self) -> bool:
        return self._machine.stream_id is not None or self._pending_stream is not None

    _pending_stream: tuple[str, str] | None = None
    """The stream and turn that the next event opens."""

    def _begin_turn(self) -> None:
        self._turn += 1
        self._paused.clear()
        self._escalated.clear()
        self._translator.begin_turn()
        self._begin_stream()

    def _begin_stream(self) -> None:
        if self._turn == 0:
            self._turn = 1
        self._stream += 1
        self._pending_stream = (f"stream-{self._stream}", f"turn-{self._turn}")

    def _continue_or_begin(self) -> None:
        """An agent speaks and no stream runs: its turn goes on if something of it waits, else a turn without a user."""
        if self._machine.state == "input_required":
            self._begin_stream()
        else:
            self._begin_turn()

    def _end_stream(self) -> None:
        """The closing order: messages, requests, agents with children first, stream_end."""
        if self._machine.stream_id is None and self._pending_stream is None:
            return
        closings = self._translator.close_messages()
        if self._machine.stream_id is None and not closings:
            self._pending_stream = None  # nothing happened in it
            return
        # First of the agents at work, whose messages are open. A response that was cut may be all that others did.
        for item in sorted(closings, key=lambda item: not self._is_at_work(item)):
            self._emit_of_agent(item)
        pending = self._machine.pending
        data: dict[str, Any] | None = None
        if pending:
            reason = "input_required"
        else:
            reason = self._translator.end_reason
            self._close_requests("unknown", "cancel")
            if reason == "completed" and not self._translator.said_something:
                data = {"empty": True}
        if reason not in ("completed", "input_required"):
            self._escalated.clear()  # then that is how they ended
        for thread in list(reversed(self._open)):
            self._leave(thread, reason if reason in ("input_required", "failed", "aborted") else "completed")
        self._emit(StreamEnd(reason=reason, pending=pending, data=data, source="host"))

    def _settle(self, cause: str) -> None:
        """A message or a rewind came over what waits: a stream of its own settles that and ends the turn."""
        if self._machine.state != "input_required":
            return
        self._begin_stream()
        self._close_requests("cancelled", "cancel")
        self._emit(StreamEnd(reason="aborted", data={"cause": cause}, source="host"))

    def _close_requests(self, status: str, action: str, ids: Iterable[str] | None = None) -> None:
        calls = {call.request_id: call for call in self._translator.book}
        for request_id in list(self._machine.requests if ids is None else ids):
            request = self._machine.requests[request_id]
            call = calls.get(request_id)
            self._translator.resolve(request_id)
            base: dict[str, Any] = {"thread_id": request.thread_id, "agent_id": request.agent_id, "source": "host"}
            if request.kind == "elicitation":
                self._emit(ElicitationResponse(request_id=request_id, action=action, **base))
            else:
                self._emit(
                    ToolResponse(
                        request_id=request_id, name=request.name, status=_status(status, call, request), **base
                    )
                )

    # --- agents -------------------------------------------------------------------------------------------------------

    def _is_at_work(self, event: Event) -> bool:
        at_work = self._open.get(event.thread_id)
        return at_work is not None and event.agent_id in (None, at_work[0])

    def _emit_of_agent(self, event: Event) -> None:
        """What names no agent is of whoever works on its thread."""
        agent = event.agent_id
        if agent is None:
            agent = self._open.get(event.thread_id, (self._descriptor.name, None))[0]
        self._work(agent, event.thread_id)
        self._emit(event)

    def _work(self, agent: str, thread: str | None) -> None:
        """Let ``agent`` be the one at work on ``thread``: whoever was ends, parents are opened first."""
        at_work = self._open.get(thread)
        if at_work is not None and at_work[0] == agent:
            return
        if at_work is not None:
            self._leave(thread, "completed")
        parent = None
        if thread is not None:
            parent, orchestrator = _above(thread)
            if orchestrator is not None:
                self._work(orchestrator, parent)
            elif parent not in self._open:
                self._work(parent.rpartition(".")[2] if parent else self._descriptor.name, parent)
        resumed = (thread, agent) in self._paused
        self._paused.discard((thread, agent))
        self._emit(AgentStart(agent_id=agent, thread_id=thread, parent_thread_id=parent, resumed=resumed))
        self._open[thread] = (agent, parent)

    def _close_delegations(self, event: AdkEvent) -> None:
        """A response to a delegating call is the end of the agent that worked on the thread of that call."""
        for part in (event.content.parts or ()) if event.content is not None else ():
            call_id = part.function_response.id if part.function_response is not None else None
            for thread in [t for t in self._open if call_id and t is not None and t.endswith(f"@{call_id}")]:
                self._leave(thread, "completed")

    def _leave(self, thread: str | None, reason: str, data: dict[str, Any] | None = None) -> None:
        """End the agent on ``thread``, the agents below it first."""
        for below in [t for t in reversed(self._open) if t != thread and is_within(t, thread)]:
            if below in self._open:
                self._leave(below, reason if reason != "handoff" else "completed")
        agent, _ = self._open[thread]
        for item in self._translator.close_messages(thread=thread, agent=agent):
            self._emit(item)
        del self._open[thread]
        if reason == "input_required":
            self._paused.add((thread, agent))
        elif reason == "completed" and (thread, agent) in self._escalated:
            data = {"escalate": True}
        fields: dict[str, Any] = {"data": data} if data is not None else {}
        self._emit(AgentEnd(agent_id=agent, thread_id=thread, reason=reason, **fields))

    # --- the record ---------------------------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        stamped = self._stamp(event)
        try:
            self._machine.feed(stamped)
        except ProtocolViolation as error:
            # ADK's session breaks a rule of the contract, or is a fragment: keep what it says, as what it is.
            note = {"rule": error.rule, "event": stamped.to_wire()}
            stamped = self._stamp(Custom(kind="adk:unplaced", data=note, source="ext:adk", meta=event.meta))
            self._machine.feed(stamped)
        self._seq = stamped.seq
        self._pending_stream = None if stamped.stream_id is not None else self._pending_stream
        self._out.append(stamped)

    def _stamp(self, event: Event) -> Event:
        stream, turn = self._machine.stream_id, self._machine.turn_id
        if self._pending_stream is not None:
            stream, turn = self._pending_stream
        update: dict[str, Any] = {
            "id": f"e{self._seq + 1}",
            "seq": self._seq + 1,
            "timestamp": event.timestamp or self._time,
            "session_id": self._session.session_id,
        }
        if stream is not None:
            update |= {"stream_id": stream, "turn_id": turn}
        return event.model_copy(update=update)

    def _taken(self) -> list[Event]:
        out, self._out = self._out, []
        return out


def _status(status: str, call: Call | None, request: Any) -> str:
    """A call that had started may have had effects; one that waited for the host never began."""
    if status == "unknown" or (call is not None and call.needs == "none" and request.confirmation is None):
        return "unknown"
    return status


def _above(thread: str) -> tuple[str | None, str | None]:
    """The thread that ``thread`` hangs under, and the ParallelAgent that opened it, if its branch names one.

    ADK writes two segments for a branch of a ParallelAgent (``par.b``) and one for a delegation (``kid@call``).
    """
    segments = thread.split(".")
    if len(segments) >= 2 and "@" not in segments[-2] and "@" not in segments[-1]:
        return ".".join(segments[:-2]) or None, segments[-2]
    return ".".join(segments[:-1]) or None, None


def _time_of(read: ReadEvent) -> str:
    return iso_timestamp(read.event.timestamp)


def _with_parts(event: AdkEvent, parts: list[types.Part]) -> AdkEvent:
    role = event.content.role if event.content is not None else "user"
    return event.model_copy(update={"content": types.Content(role=role, parts=parts)})
