"""Which agents of a run are at work, and on which threads: the brackets of the record from ADK's callbacks.

Not for: events (``_live.py``). Rules carried: LIFE-04, LIFE-16. May import: the modules beside it, google.adk.

On the main thread an agent's end is recorded when the next agent begins or the run ends: only then is its reason
known. Agents on other threads (parallel branches, children of an AgentTool) end when ADK says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext

from agentsession.adapters.adk._spans import CURRENT, Span
from agentsession.adapters.adk._values import is_within, thread_of
from agentsession.protocol import AgentStart, Event

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["Brackets", "agent_key"]


class Brackets:
    """Opens and closes agents in the record of one run."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._done: set[tuple[str | None, str]] = set()
        self._child_threads: dict[str, str] = {}
        """The thread of each session that an AgentTool made for its child."""
        self._callers: dict[str, Span] = {}
        """By the same sessions: the call whose child works there."""
        self._failed: set[tuple[str | None, str]] = set()

    def transfer(self, thread: str | None, agent: str) -> None:
        """The agent of this thread hands over to ``agent``."""
        self._live.state.transfers[thread] = agent

    def child_thread(self, session_id: str) -> str | None:
        """The thread of an AgentTool's child; ``None`` before its agent has begun."""
        return self._child_threads.get(session_id)

    async def begin(self, agent: BaseAgent, context: CallbackContext) -> None:
        """Before an agent runs: its bracket, unless a pause left it open."""
        live = self._live
        thread, parent = self._thread(context, agent)
        live.spans.open("agent", agent_key(context), thread, inherit=False)
        await live.attached()
        transfers = self._live.state.transfers
        # The one that hands over may begin once more before: its run ended on a call beside, and is entered again.
        handed_over = transfers.get(thread) == agent.name
        if handed_over:
            del transfers[thread]
        stack = self._stack(thread)
        while stack and ((thread, stack[-1]) in self._done or (handed_over and stack[-1] != agent.name)):
            top = stack[-1]
            self._done.discard((thread, top))
            live.ctx.close_thread(thread, top, "handoff" if handed_over else "completed")
            stack = self._stack(thread)
        if agent.name not in stack:
            live.ctx.emit_nowait(AgentStart(agent_id=agent.name, thread_id=thread, parent_thread_id=parent))

    async def end(self, agent: BaseAgent, context: CallbackContext, *, speaks: bool = False) -> None:
        """After an agent ran; ``speaks``: its last words are still to come."""
        live = self._live
        span = live.spans.find("agent", agent_key(context))
        thread = span.thread_id if span is not None else self._thread(context, agent)[0]
        if live.ctx.is_settled:
            return
        await live.attached()
        if thread is not None and not speaks and [*self._stack(thread)][-1:] == [agent.name]:
            live.ctx.close_thread(thread, agent.name)
        else:
            self._done.add((thread, agent.name))
        if span is not None:
            live.spans.close(span)

    def failed(self, context: CallbackContext) -> None:
        """An agent raised; its siblings may be about to be cancelled."""
        spans = self._live.spans
        spans.failed()
        span = spans.find("agent", agent_key(context))
        if span is not None:
            self._failed.add((span.thread_id, context.agent_name))
            spans.close(span)

    def end_children(self, call: Span) -> None:
        """A call is over, and with it its child's agents: ADK tells no end of those that failed or were skipped."""
        ctx = self._live.ctx
        for session_id in [session_id for session_id, caller in self._callers.items() if caller is call]:
            del self._callers[session_id]
            base = self._child_threads[session_id]
            below = [thread for thread in ctx.open_agents if thread is not None and is_within(thread, base)]
            for thread in sorted(below, key=lambda name: name.count("."), reverse=True):
                for agent in reversed(self._stack(thread)):
                    failed = (thread, agent) in self._failed
                    ctx.close_thread(thread, agent, "failed" if failed else "completed")

    def see_agent_open(self, event: Event) -> None:
        """An event on a thread on which ADK announced no agent: its author is at work there."""
        ctx = self._live.ctx
        if self._stack(event.thread_id):
            return
        parent = event.thread_id.rpartition(".")[0] or None if event.thread_id else None
        while parent is not None and not self._stack(parent):
            parent = parent.rpartition(".")[0] or None
        if event.thread_id is not None and not self._stack(parent):
            ctx.emit_nowait(AgentStart(agent_id=ctx.agent_id))
        agent_id = event.agent_id or ctx.agent_id
        ctx.emit_nowait(AgentStart(agent_id=agent_id, thread_id=event.thread_id, parent_thread_id=parent))

    def current_thread(self) -> str | None:
        """The thread that the present task works on."""
        return self._around().thread_id

    def _stack(self, thread: str | None) -> list[str]:
        return list(self._live.ctx.open_agents.get(thread, ()))

    def _thread(self, context: CallbackContext, agent: BaseAgent) -> tuple[str | None, str | None]:
        """The thread that an agent works on, and the thread that this one hangs under."""
        around = self._around()
        session_id = context.session.id
        if session_id == self._live.state.adk_session_id:
            thread = thread_of(context._invocation_context.branch)
            return thread, around.thread_id if around.thread_id != thread else None
        # The session of an AgentTool's child: named after the agent, below the thread that called it.
        base = self._child_threads.get(session_id)
        if base is None:
            base = agent.name if around.thread_id is None else f"{around.thread_id}.{agent.name}"
            taken = {*self._live.ctx.open_agents, *self._child_threads.values()}
            first, number = base, 2
            while base in taken:
                base, number = f"{first}-{number}", number + 1
            self._child_threads[session_id] = base
            self._callers[session_id] = around
        branch = thread_of(context._invocation_context.branch)
        known = f"{base}.{branch}" if branch else base
        return known, around.thread_id if around.thread_id != known else known.rpartition(".")[0] or None

    def _around(self) -> Span:
        span = CURRENT.get()
        while span is not None and not span.is_open:
            span = span.parent
        return span or self._live.spans.root


def agent_key(context: CallbackContext) -> tuple[str, str | None, str]:
    """What tells one agent at work from another: the session, the branch, the name."""
    return (context.session.id, context._invocation_context.branch, context.agent_name)
