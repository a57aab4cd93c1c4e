"""The session state machine: the one object that every rule about the order of events and calls is kept by.

Theory of operation
-------------------
:class:`SessionMachine` does no I/O, knows no clock and makes no ids. It is fed events, one at a time, by whoever has
them: the executor base class before it appends one to the record, a host or a remote client when it receives one, the
conformance suite when it reads a record. It *accepts* an event (checks first, then changes itself) or raises
:class:`ProtocolViolation` with the id of the rule and is unchanged. What it knows is a function of the events it was
fed, so folding a record gives the live state (PER-03); the queue of steers is the one thing that no rule reads there.

It has four parts: the state table in ``_transitions.py``, the rules about each event in ``_event_rules.py``, what an
answer must look like in ``_answers.py``, and here the calls, feeding and snapshots.

Rules carried: those of ``_rules.RULES`` that are marked ``machine``. May import: the models, ``_errors``, the parts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Self

from agentsession.protocol._answers import AnswerCheck, RequestState, check_answer
from agentsession.protocol._errors import Blame, NothingToContinue, ProtocolViolation, SessionClosed, StreamActive
from agentsession.protocol._event_rules import CLOSINGS, HANDLERS, NEEDS_AGENT, EventRules, Talk, collect, joined
from agentsession.protocol._events import Event
from agentsession.protocol._inputs import Answer, Receipt
from agentsession.protocol._session import SessionState
from agentsession.protocol._snapshot import MachineSnapshot, OpenAgent, OpenMessage, OpenRequest
from agentsession.protocol._transitions import STATES, TRANSITIONS, Trigger

__all__ = ["STATES", "TRANSITIONS", "SessionMachine", "Trigger"]


class SessionMachine(EventRules):
    """The rules of one session's record and calls; see the module's docstring.

    ``blame`` is who fed the events: ``executor`` in this process, ``peer`` behind a connection.
    ``host_kinds`` are the elicitation kinds that the host can show, ``None`` for all (HITL-07).
    """

    # Declared again because they are set here too: a type checker must not infer them anew.
    state: SessionState
    seq: int
    stream_id: str | None
    turn_id: str | None

    # -- what can be asked ------------------------------------------------------------------------------------------

    @property
    def open_messages(self) -> Mapping[str, Talk]:
        """Messages with deltas and no closing event."""
        return MappingProxyType(self._talks)

    def is_ended(self, stream_id: str) -> bool:
        """Whether that stream has had its stream_end."""
        return stream_id in self._ended_streams

    @property
    def ended_streams(self) -> Set[str]:
        """The ids of the streams that have had their stream_end."""
        return self._ended_streams.keys()

    def is_closed_message(self, message_id: str) -> bool:
        """Whether that message_id is used up."""
        return message_id in self._closed_messages

    def is_resolved(self, request_id: str) -> bool:
        """Whether that request has had its response."""
        return request_id in self._resolved

    # -- host calls -------------------------------------------------------------------------------------------------

    def check_call(self, trigger: Trigger) -> SessionState:
        """The state that ``trigger`` leads to; raises what the call raises if the table has none. Changes nothing."""
        row = TRANSITIONS[self.state]
        if trigger in row:
            return row[trigger]
        if self.state == "closed":
            raise SessionClosed(
                "the session is closed", where=f"session {self.session_id}", fix="load it, or open another one"
            )
        if self.state == "running" and trigger in ("message", "continue"):
            raise StreamActive(
                "a stream runs already",
                where=f"session {self.session_id}, stream {self.stream_id}",
                expected="one stream at a time (LIFE-07)",
                fix="read it to its end, or abort() it; answer with respond(), intervene with steer()",
            )
        if trigger in ("continue", "steer"):
            raise NothingToContinue(
                "no turn is waiting",
                where=f"session {self.session_id}, state {self.state}",
                fix="start a turn with a message",
            )
        raise ProtocolViolation(
            "LIFE-13", f"{trigger} while {self.state}", blame="host", fix="abort() the running stream before closing"
        )

    def check_answer(self, answer: Answer, check: AnswerCheck | None = None) -> Receipt:
        """The receipt that ``answer`` gets; changes nothing. The events that record it come through :meth:`feed`."""
        self.check_call("answer")
        return check_answer(self.requests, self._resolved, answer, check)

    def queue_steer(self, steer_id: str) -> None:
        """A steer was accepted under ``steer_id``, the message_id of its injection. Rule: CTL-06."""
        self.check_call("steer")
        if steer_id in self._known_steers or steer_id in self._closed_messages:
            self._refuse("CTL-06", f"steer {steer_id} was queued before", None)
        self._known_steers.add(steer_id)
        self.steers[steer_id] = None

    def close(self) -> None:
        """The session is closed. Raises ``LIFE-13`` while a stream runs, unless ``blame`` is ``peer``."""
        if self.state == "running" and self.blame == "peer":
            self.abandon()
        elif self.state != "closed":
            self.state = self.check_call("close")

    def abandon(self) -> None:
        """The session is closed with a stream that never ended: AbortTimeout, or a violation by a peer."""
        if self.state != "closed":
            self.state = self.check_call("abandon")

    # -- events -----------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Accept the next event of the record, or raise :class:`ProtocolViolation` and change nothing."""
        kind: str = event.type
        if kind == "message" and self._extend(event):
            return
        if self.state == "closed":
            self._refuse("LIFE-13", f"{kind} on a closed session", event)
        if event.seq <= self.seq:
            self._refuse("ORD-01", f"seq {event.seq} after {self.seq}", event)
        if self._ids.has(event.id, event.seq):
            self._refuse("ORD-02", f"event id {event.id} was used before", event)
        if self._initialized:
            if kind == "initialize":
                self._refuse("LIFE-03", "a second initialize", event)
        elif kind != "initialize":
            self._refuse("LIFE-02", f"the record begins with {kind}", event)
        opens = self._place(event, kind)
        source = event.source
        if source == "agent":
            if self.fatal and not opens and kind not in CLOSINGS and kind in HANDLERS:
                self._refuse("LIFE-10", f"{kind} after a fatal error", event)
            if kind in NEEDS_AGENT and event.stream_id is not None and not self.agents.get(event.thread_id):
                self._refuse("LIFE-04", f"{kind} without an open agent on its thread", event)
        if self._must_cancel is not None:
            self._check_cancelled(event, kind)
        handler = HANDLERS.get(kind)
        apply = handler(self, event) if handler is not None else None
        # Nothing below may raise: the event is accepted.
        self.seq = event.seq
        self._ids.add(event.id, event.seq)
        if opens:
            self.state = TRANSITIONS[self.state]["open"]
            self.stream_id = event.stream_id
            self.turn_id = event.turn_id
            self._just_paused = []
        if apply is not None:
            apply()

    def _extend(self, event: Event) -> bool:
        """Accept a further delta of an open message, by far the most frequent event, with all its checks in one breath.

        False when one of them fails or it is not a delta: the long way knows why, and refuses.
        """
        fields = event.__dict__
        talk = self._talks.get(fields["message_id"])
        thread_id = fields["thread_id"]
        seq = fields["seq"]
        if (
            talk is None
            or not fields["partial"]
            or seq <= self.seq
            or fields["stream_id"] != self.stream_id
            or fields["turn_id"] != self.turn_id
            or thread_id != talk.thread_id
            or fields["role"] != talk.role
            or self.fatal
            or self._must_cancel is not None
            or self.state != "running"
            or (fields["source"] == "agent" and thread_id not in self.agents)
        ):
            return False
        ids = self._ids
        if seq == ids.next and fields["id"] == f"e{seq}" and not ids.others:
            ids.next = seq + 1
        elif ids.has(fields["id"], seq):
            return False
        else:
            ids.add(fields["id"], seq)
        self.seq = seq
        collect(talk.texts, fields["content"])
        return True

    # -- starting in the middle -------------------------------------------------------------------------------------

    def used_up(self) -> tuple[int, int, int, int]:
        """How many ids are used up, of each kind: a place for :meth:`snapshot` to go on from."""
        return len(self._resolved), len(self._ended_streams), len(self._ended_turns), len(self._closed_messages)

    def snapshot(self, *, ephemeral: bool = True, since: tuple[int, int, int, int] = (0, 0, 0, 0)) -> MachineSnapshot:
        """All that is known, as data. ``ephemeral=False`` leaves out what only deltas and steers tell: what folding a
        stored record gives. Event ids are not in it: after :meth:`restore`, ORD-02 sees new ids only.

        ``since``, which :meth:`used_up` gave earlier: without the ids that were used up by then, which make up most of
        a long session's snapshot; :meth:`restore` takes them from the earlier ones."""
        resolved, streams, turns, messages = since
        return MachineSnapshot(
            state=self.state,
            seq=self.seq if ephemeral else 0,
            session_id=self.session_id,
            stream_id=self.stream_id,
            turn_id=self.turn_id,
            initialized=self._initialized,
            fatal=self.fatal,
            requests=[OpenRequest(**dataclasses.asdict(request)) for request in self.requests.values()],
            agents=[
                OpenAgent(agent_id=agent, thread_id=thread, parent_thread_id=self.parents.get(thread))
                for thread, stack in self.agents.items()
                for agent in stack
            ],
            paused=list(self.paused),
            just_paused=list(self._just_paused),
            messages=[
                OpenMessage(
                    message_id=message_id,
                    thread_id=talk.thread_id,
                    agent_id=talk.agent_id,
                    role=talk.role,
                    texts=joined(talk.texts),
                )
                for message_id, talk in self._talks.items()
            ]
            if ephemeral
            else [],
            partial_requests=list(self._partial_requests) if ephemeral else [],
            steers=list(self.steers) if ephemeral else [],
            known_steers=sorted(self._known_steers) if ephemeral else [],
            must_cancel=self._must_cancel,
            resolved=_newest(self._resolved, resolved),
            abandoned=sorted(self._abandoned) if ephemeral else [],
            ended_streams=_newest(self._ended_streams, streams),
            ended_turns=_newest(self._ended_turns, turns),
            closed_messages=_newest(self._closed_messages, messages),
        )

    @classmethod
    def restore(
        cls,
        snapshot: MachineSnapshot,
        *,
        blame: Blame = "peer",
        host_kinds: Iterable[str] | None = None,
        earlier: Iterable[MachineSnapshot] = (),
    ) -> Self:
        """A machine that goes on where ``snapshot`` was taken.

        ``earlier`` are those before it, oldest first, where each was taken ``since`` the one before."""
        machine = cls(blame=blame, host_kinds=host_kinds)
        machine.state = snapshot.state
        machine.seq = snapshot.seq
        machine.session_id = snapshot.session_id
        machine.stream_id = snapshot.stream_id
        machine.turn_id = snapshot.turn_id
        machine.fatal = snapshot.fatal
        machine._initialized = snapshot.initialized
        names = [field.name for field in dataclasses.fields(RequestState)]
        machine.requests = {
            request.id: RequestState(**{name: getattr(request, name) for name in names})
            for request in snapshot.requests
        }
        for agent in snapshot.agents:
            machine.agents.setdefault(agent.thread_id, []).append(agent.agent_id)
            if agent.thread_id is not None:
                machine.parents[agent.thread_id] = agent.parent_thread_id
        machine.paused = list(snapshot.paused)
        machine._just_paused = list(snapshot.just_paused)
        machine._talks = {
            talk.message_id: Talk(talk.thread_id, talk.agent_id, talk.role, {k: [v] for k, v in talk.texts.items()})
            for talk in snapshot.messages
        }
        machine._partial_requests = dict.fromkeys(snapshot.partial_requests)
        machine.steers = dict.fromkeys(snapshot.steers)
        machine._known_steers = set(snapshot.known_steers)
        machine._must_cancel = snapshot.must_cancel
        for past in (*earlier, snapshot):
            machine._resolved.update(dict.fromkeys(past.resolved))
            machine._ended_streams.update(dict.fromkeys(past.ended_streams))
            machine._ended_turns.update(dict.fromkeys(past.ended_turns))
            machine._closed_messages.update(dict.fromkeys(past.closed_messages))
        machine._abandoned = set(snapshot.abandoned)
        return machine

    @classmethod
    def fold(
        cls, events: Iterable[Event], *, blame: Blame = "executor", host_kinds: Iterable[str] | None = None
    ) -> Self:
        """The machine after a whole record. Raises :class:`ProtocolViolation` at the first event that breaks a rule."""
        machine = cls(blame=blame, host_kinds=host_kinds)
        for event in events:
            machine.feed(event)
        return machine


def _newest(ids: dict[str, None], known: int) -> list[str]:
    return sorted(itertools.islice(reversed(ids), len(ids) - known))
