"""The state machine beside a simple model with a bookkeeping of its own, step by step.

The model (``agentsession.conformance._walk.Walk``) knows which steps are legal; the machine must take each of them. In
between, steps that the model knows to be wrong are tried: the machine must refuse each with the rule that the model
names, and be unchanged. After every event a second machine, fed only what a store would keep, must know the same
(PER-03), and so must a third that was restored from a snapshot somewhere on the way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentsession.conformance._walk import Walk
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    ElicitationResponse,
    Event,
    Initialize,
    Message,
    ProtocolViolation,
    SessionMachine,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
    args_digest,
    is_ephemeral,
    result,
)

Wrong = tuple[str, Event]


def wrong_steps(walk: Walk) -> Iterator[Wrong]:
    """Events that break a rule where the walk stands, each with that rule."""
    if not walk.begun:
        yield "LIFE-02", walk.make(SessionUpdate, title="t")
        return
    yield "ORD-01", walk.make(SessionUpdate, title="t", seq=walk.events[-1].seq)
    yield "ORD-02", walk.make(SessionUpdate, title="t", id=walk.events[0].id)
    yield "LIFE-03", walk.make(Initialize, protocol_version="1.0", descriptor=AgentDescriptor(name="a", executor="x"))
    for old in walk.ended[:1]:
        yield ("ORD-09" if walk.stream else "LIFE-05"), walk.make(Usage, stream_id=old, turn_id="turn-x")
    if walk.stream is None:
        yield from _wrong_between_streams(walk)
        return
    yield "LIFE-07", walk.make(SessionUpdate, title="t", stream_id="stream-x", turn_id=walk.turn)
    yield "LIFE-15", walk.make(SessionUpdate, title="t", stream_id=None)
    yield "TURN-01", walk.make(SessionUpdate, title="t", stream_id=walk.stream, turn_id="turn-x")
    if (rule_id := _why_it_cannot_complete(walk)) is not None:
        yield rule_id, walk.make(StreamEnd, reason="completed")
    if walk.fatal:
        yield "LIFE-10", walk.make(Usage)
        yield "LIFE-10", walk.make(Message, message_id="m-x", content=[Text(text="a")], partial=True)
        return
    yield "LIFE-04", walk.make(Usage, thread_id="thread-x")
    yield "LIFE-16", walk.make(AgentEnd, agent_id="agent-x")
    for child, parent in walk.parents.items():
        if child in walk.agents and len(walk.agents[parent]) == 1:
            yield "LIFE-16", walk.make(AgentEnd, agent_id=walk.agents[parent][0], thread_id=parent)
    yield from _wrong_answers(walk)
    yield from _wrong_messages(walk)


def _wrong_between_streams(walk: Walk) -> Iterator[Wrong]:
    yield "LIFE-15", walk.make(Usage)
    yield "TURN-01", walk.make(SessionUpdate, title="t", stream_id="stream-x")
    if walk.waiting:
        yield "TURN-01", walk.make(SessionUpdate, title="t", stream_id="stream-x", turn_id="turn-x")
    yield "TURN-01", walk.make(SessionUpdate, title="t", stream_id=None, turn_id="turn-x")
    for turn in walk.ended_turns[-1:]:
        yield "TURN-01", walk.make(SessionUpdate, title="t", stream_id="stream-x", turn_id=turn)


def _why_it_cannot_complete(walk: Walk) -> str | None:
    reasons: list[tuple[Any, str]] = [
        (walk.talks, "LIFE-14"),
        (walk.agents, "LIFE-16"),
        (walk.fatal, "LIFE-18"),
        (walk.pending, "LIFE-17"),
        (walk.asks, "TOOL-01"),
        (walk.steers, "CTL-06"),
    ]
    return next((rule_id for so, rule_id in reasons if so), None)


def _wrong_answers(walk: Walk) -> Iterator[Wrong]:
    yield "TOOL-02", walk.make(ToolResponse, request_id="r-x", name="run")
    for used in walk.answered[-1:]:
        yield "TOOL-01", walk.make(ToolResponse, request_id=used, name="run", source="host")
        yield "TOOL-01", walk.make(ElicitationResponse, request_id=used, action="cancel")
        yield "TOOL-12", walk.make(ToolUpdate, request_id=used)
        yield "TOOL-15", walk.make(ToolDecision, request_id=used, decision="granted", args_digest=args_digest({}))
    for thread in list(walk.agents)[:1]:
        for used in [*walk.answered[-1:], *walk.abandoned[-1:], *list(walk.asks)[:1]]:
            yield "TOOL-03", walk.make(ToolRequest, request_id=used, name="run", thread_id=thread)
    for ask in walk.tools():
        ran = walk.make(ToolResponse, request_id=ask.id, name=ask.name, status="completed")
        if ask.waits:
            yield "TOOL-05", ran
            yield "HITL-04", walk.make(ToolDecision, request_id=ask.id, decision="granted", args_digest="0" * 64)
        else:
            digest = args_digest(ask.args or {})
            yield "TOOL-15", walk.make(ToolDecision, request_id=ask.id, decision="granted", args_digest=digest)
            if ask.needs == "none" and ask.confirmed == "waiting":
                yield "HITL-01", ran
            elif ask.needs == "none" and ask.confirmed not in (None, "accept"):
                yield "HITL-02", ran
        yield "TOOL-02", walk.make(ElicitationResponse, request_id=ask.id, action="accept")
    for ask in walk.questions():
        yield "HITL-09", walk.make(ElicitationResponse, request_id=ask.id, action="decline", content="because")
        yield "TOOL-02", walk.make(ToolUpdate, request_id=ask.id)
        if ask.name in ("tool_confirmation", "user_approval"):
            yield "HITL-08", walk.make(ElicitationResponse, request_id=ask.id, action="accept", content=False)


def _wrong_messages(walk: Walk) -> Iterator[Wrong]:
    for talk in walk.talks.values():
        content = [*talk.parts, Text(text="more")]
        yield "LIFE-14", walk.make(Message, message_id=talk.id, content=content, thread_id=talk.thread)
    for used in walk.said[-1:]:
        rule_id = "CTL-06" if used.startswith("steer") else "LIFE-14"
        yield rule_id, walk.make(Message, message_id=used, content=[], source="user")


class MachineBesideModel(RuleBasedStateMachine):
    """One session, its events chosen by hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = SessionMachine()
        self.stored = SessionMachine()
        self.twin: SessionMachine | None = None
        self.data: st.DataObject | None = None
        self.walk = Walk(self.choose)

    def choose(self, options: list[Any]) -> Any:
        assert self.data is not None
        return self.data.draw(st.sampled_from(options))

    def machines(self) -> list[SessionMachine]:
        return [self.machine, *([self.twin] if self.twin else [])]

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.try_every_wrong_step()
        self.take_a_legal_step(data)

    @rule(data=st.data())
    def take_a_legal_step(self, data: st.DataObject) -> None:
        self.data = data
        for event in self.walk.step(self.choose(self.walk.legal())):
            for machine in self.machines():
                machine.feed(event)
            if not is_ephemeral(event):
                self.stored.feed(event)
            assert self.stored.snapshot(ephemeral=False) == self.machine.snapshot(ephemeral=False)

    @rule(data=st.data())
    def take_several_legal_steps(self, data: st.DataObject) -> None:
        for _ in range(5):
            self.take_a_legal_step(data)
            self.they_agree()

    @rule()
    def try_every_wrong_step(self) -> None:
        for machine in self.machines():
            before, ids = machine.snapshot(), copy.deepcopy(machine._ids)
            for rule_id, event in wrong_steps(self.walk):
                if rule_id == "ORD-02" and machine is self.twin:
                    continue  # a snapshot holds no ids of events
                with pytest.raises(ProtocolViolation) as caught:
                    machine.feed(event)
                assert (caught.value.rule, caught.value.blame) == (rule_id, machine.blame)
                assert (machine.snapshot(), machine._ids) == (before, ids)

    @precondition(lambda self: self.walk.state in ("running", "input_required") and not self.walk.fatal)
    @rule()
    def steer(self) -> None:
        steer = self.walk.new_id("steer")
        self.walk.steers.append(steer)
        for machine in self.machines():
            machine.queue_steer(steer)

    @rule()
    def start_another_machine_here(self) -> None:
        self.twin = SessionMachine.restore(self.machine.snapshot())

    @invariant()
    def they_agree(self) -> None:
        walk, machine = self.walk, self.machine
        assert machine.state == walk.state
        assert machine.pending == walk.pending
        assert (machine.stream_id, machine.turn_id, machine.fatal) == (walk.stream, walk.turn, walk.fatal)
        assert machine.agents == walk.agents
        assert list(machine.open_messages) == list(walk.talks)
        assert list(machine.requests) == list(walk.asks)
        assert list(machine.steers) == walk.steers
        assert all(machine.check_answer(result(used)).status == "stale" for used in walk.answered[-1:])
        if self.twin is not None:
            assert self.twin.snapshot() == machine.snapshot()


@pytest.mark.rule("PER-03")
def test_the_machine_takes_what_the_model_allows_and_refuses_what_it_forbids() -> None:
    run_state_machine_as_test(MachineBesideModel, settings=settings(max_examples=60, stateful_step_count=40))
