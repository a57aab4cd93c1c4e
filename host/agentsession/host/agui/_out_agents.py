"""Agents at work: steps on the main thread, sub-agents on the others, handoffs between them.

Not for: numbering invocations (``_out_known.py``). Pure. Rules carried: LIFE-16 as far as it shows.
May import: ``protocol``, ``_out_known``, ``_out_wire``.

One AG-UI run may cover several streams of a turn. A pause between them is not shown: a sub-agent that is started twice
in a run is an error to a client. What is still paused at the run's end is closed there, a sub-agent as suspended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from agentsession.host.agui._out_known import Invocations
from agentsession.host.agui._out_wire import Wire, own
from agentsession.protocol import AgentEnd, AgentStart

__all__ = ["AgentsOut"]

_FAILED: Final = {"failed": "The agent failed.", "aborted": "The agent was aborted."}


@dataclasses.dataclass(slots=True)
class _Agent:
    """One open agent. ``step`` is absent for the one that its thread's sub-agent is."""

    agent_id: str
    step: str | None
    tag: dict[str, str]
    paused: bool = False


@dataclasses.dataclass(slots=True)
class _Sub:
    """The open sub-agent of a thread."""

    run_id: str
    agents: list[_Agent]


class AgentsOut:
    """The brackets of one run."""

    def __init__(self, threads: Invocations) -> None:
        self._threads = threads
        self._main: list[_Agent] = []
        self._subs: dict[str, _Sub] = {}
        """By thread, in the order in which they started."""
        self._started: dict[str, str] = {}
        """The run ids of this run's sub-agents, by thread."""
        self._for: dict[str, str] = {}
        """The calls that sub-agents work for, by thread."""
        self._names: set[str] = set()
        """Names of the open steps, over all agents."""

    @property
    def parent_calls(self) -> Collection[str]:
        """The calls that a sub-agent of this run works for."""
        return self._for.values()

    def start(self, event: AgentStart, parent_call: str | None = None, description: str | None = None) -> list[Wire]:
        """An agent starts; its invocation is counted already. ``parent_call``: the call that it works for."""
        thread = event.thread_id
        agents = self._main if thread is None else self._subs[thread].agents if thread in self._subs else []
        for agent in agents:
            if event.resumed and agent.paused and agent.agent_id == event.agent_id:
                agent.paused = False
                return []
        if thread is None:
            return [*self._close_paused(agents), self._step(agents, event.agent_id, event.agent_id, {})]
        run_id = self._threads.run_id(thread) or f"{thread}#1"
        sub = self._subs.get(thread)
        out: list[Wire] = []
        if sub is not None and sub.run_id != run_id:
            out += self._end_sub(thread, _suspended([]))
            sub = None
        if sub is not None:
            out += self._close_paused(sub.agents)
            tag = {"subagentRunId": run_id}
            return [*out, self._step(sub.agents, event.agent_id, f"{thread}/{event.agent_id}", tag)]
        self._subs[thread] = _Sub(run_id, [_Agent(event.agent_id, None, {})])
        started = self._sub_started(event, thread, run_id, parent_call)
        if description is not None:
            started["description"] = description
        return [*out, started]

    def end(self, event: AgentEnd) -> list[Wire]:
        """An agent ends."""
        thread = event.thread_id
        sub = self._subs.get(thread) if thread is not None else None
        agents = self._main if thread is None else sub.agents if sub is not None else []
        agent = next((item for item in reversed(agents) if not item.paused), None)
        if agent is None:
            return []  # it was open before this run
        if event.reason == "input_required":
            agent.paused = True
            return []
        agents.remove(agent)
        out = self._finish_step(agent)
        if thread is None or agents or event.reason == "handoff":
            return out
        if event.reason in _FAILED:
            return [*out, *self._end_sub(thread, lambda run_id: _error(run_id, event.reason))]
        return [*out, *self._end_sub(thread, lambda run_id: _finished(run_id, event))]

    def end_call(self, request_id: str, is_error: bool) -> list[Wire]:
        """A call has its result: sub-agents that worked for it and told no end are over."""
        out: list[Wire] = []
        for thread in [thread for thread, call in self._for.items() if call == request_id]:
            del self._for[thread]
            for open_thread in reversed(
                [item for item in self._subs if item == thread or item.startswith(f"{thread}.")]
            ):
                out += self._end_sub(open_thread, self._over("failed" if is_error else "completed"))
        return out

    def end_stream(self, reason: str) -> list[Wire]:
        """A stream ends for good: what paused before it will not go on."""
        return [] if reason == "input_required" else self._close_all(lambda thread: self._over(reason))

    def end_run(self, waiting: Callable[[str], Iterable[str]], reason: str = "input_required") -> list[Wire]:
        """The run ends. ``waiting``: the interrupts of a thread and of those under it."""
        if reason != "input_required":
            return self.end_stream(reason)
        return self._close_all(lambda thread: _suspended(list(waiting(thread))))

    # -- closing ------------------------------------------------------------------------------------------------------

    def _close_all(self, ending: Callable[[str], Callable[[str], Wire]]) -> list[Wire]:
        out: list[Wire] = []
        for thread in reversed(list(self._subs)):
            out += self._end_sub(thread, ending(thread))
        while self._main:
            out += self._finish_step(self._main.pop())
        return out

    def _over(self, reason: str) -> Callable[[str], Wire]:
        if reason in ("completed", "handoff"):
            return lambda run_id: {
                "type": "SUBAGENT_FINISHED",
                "subagentRunId": run_id,
                "outcome": {"type": "success"},
            }
        return lambda run_id: _error(run_id, reason)

    def _end_sub(self, thread: str, ending: Callable[[str], Wire]) -> list[Wire]:
        sub = self._subs.pop(thread)
        out: list[Wire] = []
        while sub.agents:
            out += self._finish_step(sub.agents.pop())
        return [*out, ending(sub.run_id)]

    def _close_paused(self, agents: list[_Agent]) -> list[Wire]:
        """Agents that paused and do not go on, since another starts in their place."""
        out: list[Wire] = []
        while agents and agents[-1].paused:
            out += self._finish_step(agents.pop())
        return out

    # -- steps --------------------------------------------------------------------------------------------------------

    def _step(self, agents: list[_Agent], agent_id: str, name: str, tag: dict[str, str]) -> Wire:
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name} ({number})"
        self._names.add(unique)
        agents.append(_Agent(agent_id, unique, tag))
        return {"type": "STEP_STARTED", "stepName": unique, **tag}

    def _finish_step(self, agent: _Agent) -> list[Wire]:
        if agent.step is None:
            return []
        self._names.discard(agent.step)
        return [{"type": "STEP_FINISHED", "stepName": agent.step, **agent.tag}]

    def _sub_started(self, event: AgentStart, thread: str, run_id: str, parent_call: str | None) -> Wire:
        out: Wire = {"type": "SUBAGENT_STARTED", "subagentRunId": run_id, "name": event.agent_id}
        above = event.parent_thread_id or thread.rpartition(".")[0]
        if above in self._started:
            out["parentSubagentRunId"] = self._started[above]
        if parent_call is not None:
            out["parentToolCallId"] = parent_call
            self._for[thread] = parent_call
        self._started[thread] = run_id
        return out


def _finished(run_id: str, event: AgentEnd) -> Wire:
    out: Wire = {"type": "SUBAGENT_FINISHED", "subagentRunId": run_id, "outcome": {"type": "success"}}
    if event.result is not None:
        out["result"] = event.result
    return out if event.reason == "completed" else {**out, **own(reason=event.reason)}


def _error(run_id: str, reason: str) -> Wire:
    message = _FAILED.get(reason, "The agent did not finish.")
    return {"type": "SUBAGENT_ERROR", "subagentRunId": run_id, "message": message, "code": reason}


def _suspended(interrupts: list[str]) -> Callable[[str], Wire]:
    outcome: dict[str, Any] = {"type": "suspended"}
    if interrupts:
        outcome["interruptIds"] = interrupts
    return lambda run_id: {"type": "SUBAGENT_FINISHED", "subagentRunId": run_id, "outcome": outcome}
