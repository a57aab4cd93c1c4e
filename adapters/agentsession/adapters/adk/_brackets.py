"""Which agents of a run are at work, and on which threads: the brackets of the record from ADK's callbacks.

Not for: events (``_live.py``). Rules carried: LIFE-04, LIFE-16. May import: the modules beside it, google.adk.

An agent's end is recorded when something shows what came after it: the next agent on its thread, the next model call of
the agent above, the end of the call that it worked for, a pause, or the end of the run. Only then is the reason known,
and ADK may yet tell what an ``after_agent_callback`` said. ADK does not tell every end: of an agent that a callback
skipped, that raised, or whose generator was closed, there is none. So an agent is over when its span is closed, or when
ADK marked its context as ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.context import Context
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent

from agentsession.adapters.adk._spans import CURRENT, Span
from agentsession.adapters.adk._values import is_within, thread_of
from agentsession.protocol import AgentStart, Event, repair_text

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["Brackets", "agent_key"]


class _AtWork(NamedTuple):
    """An agent whose bracket is open."""

    span: Span
    context: InvocationContext

    def __repr__(self) -> str:
        return f"_AtWork({self.span!r})"  # a context shows its session's state, where a tool may keep a token

    @property
    def is_over(self) -> bool:
        # ADK gives each agent a context of its own, and marks it where a callback spoke in the agent's place.
        return not self.span.is_open or self.context.end_invocation


class Brackets:
    """Opens and closes agents in the record of one run."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._at_work: dict[tuple[str | None, str], _AtWork] = {}
        self._child_threads: dict[str, str] = {}
        """The thread of each session that an AgentTool made for its child."""
        self._openers: dict[str, Span] = {}
        """By thread: what its first agent was started in."""
        self._failed: set[tuple[str | None, str]] = set()
        self._are_cut = False

    def cut(self) -> None:
        """The host ends the turn: who is at work now has not completed, and nobody begins any more.

        ADK's pipelines go on over an abort: they enter every agent that is left, none of which does anything. The base
        class closes what is open, with the reason of the stream's end.
        """
        self.sweep(None)
        self._are_cut = True

    def see_actions(self, event: AdkEvent, above: str | None = None) -> None:
        """What an event says of how its agent ends: it hands over, or leaves the loop around it.

        ``above``: of an AgentTool's child, the thread that it works below.
        """
        actions, state = event.actions, self._live.state
        if actions is None or event.partial:
            return
        thread = _below(above, thread_of(event.branch))
        if actions.transfer_to_agent:
            state.transfers[thread] = (event.author, actions.transfer_to_agent)
        if actions.escalate:
            state.escalated.add((thread, event.author))

    def end_escalated(self) -> None:
        """The run is done: an agent that escalated says so in its end, which would come with the stream's."""
        if self._are_cut:
            return
        for thread, agent in sorted(self._live.state.escalated, key=lambda at: _depth(at[0]), reverse=True):
            if self._stack(thread)[-1:] == [agent]:
                self._close(thread)

    def child_thread(self, session_id: str) -> str | None:
        """The thread of an AgentTool's child; ``None`` before its agent has begun."""
        return self._child_threads.get(session_id)

    def begin_graph(self, name: str) -> None:
        """A run of a graph begins, of which ADK tells no agent: the graph is at work on the main thread."""
        if not self._stack(None) and not self._are_cut:
            self._live.ctx.emit_nowait(AgentStart(agent_id=name))

    async def begin(self, agent: BaseAgent, context: CallbackContext) -> None:
        """Before an agent runs: its bracket, unless a pause left it open."""
        live = self._live
        invocation = context._invocation_context  # private: the branch and the mark of its end are there only
        thread = self._thread(context, agent)
        around = self._around()
        span = live.spans.open("agent", agent_key(context), thread, inherit=False)
        await live.attached()
        if self._are_cut:
            return
        transfers = live.state.transfers
        # The one that hands over may begin once more before: its run ended on a call beside, and is entered again.
        source, target = transfers.get(thread, ("", ""))
        if target == agent.name:
            while source in self._stack(thread):  # a pipeline above it stays
                self._close(thread)
            del transfers[thread]
        self.sweep(thread)
        if thread is not None:
            self._openers.setdefault(thread, around)
        if agent.name not in self._stack(thread):
            parent = self._open_parent(thread, agent.parent_agent.name if agent.parent_agent is not None else None)
            live.ctx.emit_nowait(AgentStart(agent_id=agent.name, thread_id=thread, parent_thread_id=parent))
        self._failed.discard((thread, agent.name))
        self._at_work[(thread, agent.name)] = _AtWork(span, invocation)

    async def end(self, agent: BaseAgent, context: CallbackContext) -> None:
        """After an agent ran; its last words may be still to come."""
        live = self._live
        if live.ctx.is_settled:
            return
        await live.attached()
        span = live.spans.find("agent", agent_key(context))
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

    def step_begins(self, agent: Span) -> None:
        """An agent goes on: the agents that its last step started are over, whether ADK told so or not."""
        self._sweep_below(agent)

    def end_children(self, call: Span) -> None:
        """A call is over, and with it its child's agents."""
        self._live.spans.close(call)
        self._sweep_below(call)

    def sweep(self, thread: str | None) -> None:
        """Close every agent that is over, on this thread and below it."""
        if self._are_cut:
            return
        threads = [name for name in self._live.ctx.open_agents if is_within(name, thread)]
        for name in sorted(threads, key=_depth, reverse=True):
            while self._is_over(name):
                self._close(name)

    def see_agent_open(self, event: Event) -> None:
        """An event on a thread on which ADK announced no agent: its author is at work there."""
        ctx = self._live.ctx
        if self._stack(event.thread_id) or self._are_cut:
            return
        parent = self._open_parent(event.thread_id, None)
        if event.thread_id is not None:
            self._openers.setdefault(event.thread_id, self._around())
        agent_id = event.agent_id or ctx.agent_id
        ctx.emit_nowait(AgentStart(agent_id=agent_id, thread_id=event.thread_id, parent_thread_id=parent))

    def thread_at(self, context: Context) -> str | None:
        """The thread that a call of this context belongs to."""
        branch = thread_of(context._invocation_context.branch)  # private, and the only way to the branch
        return _below(self._child_threads.get(context.session.id), branch)

    def current_thread(self) -> str | None:
        """The thread that the present task works on."""
        return self._around().thread_id

    def _stack(self, thread: str | None) -> list[str]:
        return list(self._live.ctx.open_agents.get(thread, ()))

    def _is_over(self, thread: str | None) -> bool:
        """Whether the innermost agent of a thread is over, and nothing that it started is still open."""
        stack = self._stack(thread)
        known = self._at_work.get((thread, stack[-1])) if stack else None
        return known is not None and known.is_over and not self._below(thread)

    def _below(self, thread: str | None) -> list[str]:
        """The threads that must be closed before the innermost agent of a thread, deepest first."""
        stack = self._stack(thread)
        known = self._at_work.get((thread, stack[-1])) if stack else None
        found = []
        for name in self._live.ctx.open_agents:
            if name is None or name == thread or not self._stack(name) or not is_within(name, thread):
                continue
            opener = self._openers.get(name)
            if len(stack) == 1 or (known is not None and opener is not None and opener.is_below(known.span)):
                found.append(name)
        return sorted(found, key=_depth, reverse=True)

    def _close(self, thread: str | None) -> None:
        """Close the innermost agent of a thread, after all that it started."""
        for name in self._below(thread):
            while self._stack(name):
                self._close(name)
        agent = self._stack(thread)[-1]
        self._at_work.pop((thread, agent), None)
        state, reason = self._live.state, "completed"
        data: dict[str, Any] = {}
        source, target = state.transfers.get(thread, ("", ""))
        if (thread, agent) in self._failed:
            self._failed.discard((thread, agent))
            reason = "failed"
        elif source == agent:
            reason, data = "handoff", {"to": repair_text(target)}
        elif (thread, agent) in state.escalated:
            data = {"escalate": True}
        state.escalated.discard((thread, agent))
        if reason != "failed" and not self._live.ctx.aborting:
            for made in state.translator.close_messages(thread=thread, agent=agent, broken=self._live.models.asked):
                self._live.ctx.emit_nowait(made)
        self._live.ctx.close_thread(thread, agent, reason, data)

    def _sweep_below(self, span: Span) -> None:
        """Close the agents that were started inside a span whose work is over."""
        if self._are_cut:
            return
        threads = [name for name, opener in self._openers.items() if opener.is_below(span)]
        for name in sorted(threads, key=_depth, reverse=True):
            while self._stack(name):
                self._close(name)
            del self._openers[name]

    def _open_parent(self, thread: str | None, main_agent: str | None) -> str | None:
        """The thread that a new one hangs under: the nearest above it on which an agent is at work."""
        if thread is None:
            return None
        parent = thread.rpartition(".")[0] or None
        while parent is not None and not self._stack(parent):
            parent = parent.rpartition(".")[0] or None
        if parent is None and not self._stack(None):
            # A task goes on before the agent that delegated it; a branch speaks before the graph does.
            ctx = self._live.ctx
            ctx.emit_nowait(AgentStart(agent_id=main_agent or ctx.agent_id))
        return parent

    def _thread(self, context: CallbackContext, agent: BaseAgent) -> str | None:
        """The thread that an agent works on; a child of an AgentTool gets one, below the thread that called it."""
        session_id = context.session.id
        if session_id != self._live.state.adk_session_id and session_id not in self._child_threads:
            above = self._around().thread_id
            first = agent.name if above is None else f"{above}.{agent.name}"
            taken = {*self._live.ctx.open_agents, *self._child_threads.values()}
            base, number = first, 2
            while base in taken:
                base, number = f"{first}-{number}", number + 1
            self._child_threads[session_id] = base
        return self.thread_at(context)

    def _around(self) -> Span:
        span = CURRENT.get()
        while span is not None and not span.is_open:
            span = span.parent
        return span or self._live.spans.root


def _below(base: str | None, branch: str | None) -> str | None:
    """The thread of a branch of an agent that works below the thread ``base``."""
    return branch if base is None else f"{base}.{branch}" if branch else base


def _depth(thread: str | None) -> int:
    return -1 if thread is None else thread.count(".")


def agent_key(context: CallbackContext) -> tuple[str, str | None, str]:
    """What tells one agent at work from another: the session, the branch, the name."""
    return (context.session.id, context._invocation_context.branch, context.agent_name)
