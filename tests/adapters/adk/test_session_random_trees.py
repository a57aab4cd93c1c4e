"""Random trees of agents with random calls: whatever the shape, each record is sound and each tool runs once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.adapters.adk.driving import agent, assert_valid_history, driven, host_tool
from tests.adapters.adk.trees import loop, parallel, sequential

from agentsession.adapters.adk import ScriptedLlm, call, calls, say
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Event,
    ToolRequest,
    ToolResponse,
    deny,
    grant,
    result,
)

CALLS = ("look", "own", "own denied", "own instead")
"""A call of the host's tool; one of the agent's that is granted, denied, or answered by the host in its place."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a tree is made of; built anew for each run, for agents have one parent and scripts are used up."""

    kind: str
    steps: tuple[tuple[str, ...], ...] = ()
    children: tuple[Plan, ...] = ()


def plans() -> st.SearchStrategy[Plan]:
    steps = st.lists(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3).map(tuple), max_size=2).map(tuple)
    leaf = st.builds(Plan, kind=st.just("llm"), steps=steps)

    def below(children: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
        some = st.lists(children, min_size=1, max_size=3).map(tuple)
        one = st.tuples(children)
        return st.one_of(
            st.builds(Plan, kind=st.sampled_from(["sequential", "parallel", "loop"]), children=some),
            st.builds(Plan, kind=st.sampled_from(["tool", "single"]), steps=steps, children=one),
            st.builds(Plan, kind=st.just("transfer"), steps=steps, children=st.tuples(leaf)),
        )

    return st.recursive(leaf, below, max_leaves=5)


class Forest:
    """Builds a plan, and counts what its tools did."""

    def __init__(self) -> None:
        self.models: list[Any] = []
        self.ran: Counter[str] = Counter()
        self._made = 0

    def build(self, plan: Plan) -> Any:
        self._made += 1
        name = f"a{self._made}"
        if plan.kind in ("sequential", "parallel", "loop"):
            children = [self.build(child) for child in plan.children]
            if plan.kind == "loop":
                return loop(*children, name=name, max_iterations=1)
            return (sequential if plan.kind == "sequential" else parallel)(*children, name=name)

        def own(token: str) -> str:
            self.ran[token] += 1
            return f"ran {token}"

        script = [calls(*(self._call(name, number, made) for number, made in enumerate(step))) for step in plan.steps]
        fields: dict[str, Any] = {"tools": [own]}
        if plan.kind in ("tool", "single"):
            child = self.build(plan.children[0])
            if (
                plan.kind == "single"
                and isinstance(getattr(child, "model", None), ScriptedLlm)
                and not child.sub_agents
            ):
                child.mode = "single_turn"
                child.description = "Helps."
                fields["sub_agents"] = [child]
            else:
                fields["tools"].append(AgentTool(child))
            script.append(call(child.name, {"request": "x"}, id=f"{name}-child"))
        elif plan.kind == "transfer":
            child = self.build(plan.children[0])
            fields["sub_agents"] = [child]
            script.append(call("transfer_to_agent", {"agent_name": child.name}, id=f"{name}-to"))
        made = agent(*script, say(f"{name} done"), name=name, **fields)
        self.models.append(made.model)
        return made

    def _call(self, name: str, number: int, made: str) -> Any:
        self._made += 1
        tool, _, answer = made.partition(" ")
        token = f"{name}-{self._made}-{number}"
        return call(tool, {"token": token, "answer": answer}, id=f"c-{token}")


def answer(request: Any) -> Any:
    assert isinstance(request, ToolRequest)
    token = (request.args or {})["token"]
    if request.needs == "result":
        return result(request.request_id, f"saw {token}")
    how = (request.args or {})["answer"]
    if how == "denied":
        return deny(request.request_id)
    if how == "instead":
        return result(request.request_id, f"host did {token}")
    return grant(request.request_id)


def check(record: Sequence[Event], forest: Forest) -> None:
    """One response for each call; an own tool ran once where it was granted, and never elsewhere; brackets nest."""
    requests = {event.request_id: event for event in record if isinstance(event, ToolRequest) and not event.partial}
    responses = Counter(event.request_id for event in record if isinstance(event, ToolResponse))
    assert responses == Counter(list(requests))
    for request in requests.values():
        if request.name == "own":
            token, how = (request.args or {})["token"], (request.args or {})["answer"]
            assert forest.ran[token] == (1 if how == "" else 0), (token, how)
    stacks: dict[str | None, list[str]] = {}
    for event in record:
        if isinstance(event, AgentStart):
            parent = event.parent_thread_id
            assert event.thread_id is None or event.thread_id in stacks or stacks.get(parent), event
            stacks.setdefault(event.thread_id, []).append(str(event.agent_id))
        elif isinstance(event, AgentEnd):
            assert stacks[event.thread_id].pop() == event.agent_id
            if not stacks[event.thread_id]:
                del stacks[event.thread_id]
    assert stacks == {}


async def play(plan: Plan, order: int, *, graph: bool) -> None:
    forest = Forest()
    root = forest.build(plan)
    if graph:
        root = Workflow(name="wf", edges=[(START, root)])
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.stream("go")
        with anyio.fail_after(60):
            while turn.reason == "input_required":
                pending = desk.session.pending
                chosen = pending if order == 0 else pending[order % len(pending) :][:2]
                turn = await desk.stream([answer(item) for item in chosen])
        assert turn.reason == "completed", turn.of("error")
        check(desk.session.record, forest)
    for model in forest.models:
        assert_valid_history(model)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans(), order=st.integers(0, 5))
def test_any_tree_of_agents_keeps_every_rule_whatever_the_order_of_answers(plan: Plan, order: int) -> None:
    anyio.run(lambda: play(plan, order, graph=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a graph copies the pipelines in it, and ADK warns once more
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans().filter(lambda plan: plan.kind in ("llm", "tool", "sequential")), order=st.integers(0, 5))
def test_a_graph_around_it_changes_nothing(plan: Plan, order: int) -> None:
    anyio.run(lambda: play(plan, order, graph=True))
