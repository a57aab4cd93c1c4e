"""Finding out when all the work of an ADK run that the executor can see waits for the host.

Not for: what to do then (``_live.py`` pauses the stream). Rules carried: the pause of contract §2, TOOL-06.
May import: the standard library, ``agentsession.adapters.base``.

ADK does not say when a run stands still, so this counts what it starts. A tree of spans, opened by ADK's callbacks:
the run, agents at work, tools that run, waits for the host. A :class:`contextvars.ContextVar` holds the span that the
present task works in; asyncio hands it to the tasks that ADK creates. The run is *quiet* when every leaf is a wait
whose answer has not come. Counters would not do: a parallel branch in its model call has no tool open and still works.

An agent of the user's own may leave another one in the middle, never to go on with it. Such an agent looks at work for
ever, so after a while without any change what waits counts alone.

Three precautions, each from a case that was seen:

- quiet must hold for some turns of the loop, because ADK starts parallel tools one after the other;
- after a failure nothing is decided for a moment: ADK may be cancelling the siblings that wait;
- the task that opened a span closes it when it ends, whatever callbacks ADK left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Final

from agentsession.adapters.base import Reply

__all__ = ["CURRENT", "Span", "SpanTree"]

_TURNS: Final = 3
"""Loop turns that a quiet tree must stay unchanged."""

_AFTER_FAILURE_S: Final = 0.1
"""How long after a failure nothing is decided."""

_SUSPENDED_S: Final = 2.0
"""How long an agent may neither run a tool nor call its model while something waits: whoever runs it has left it."""

_SILENT_TIMES: Final = 30
"""How many times longer a model call may be silent."""


class Span:
    """Something that was started and has not ended: the run, an agent, a tool, a wait."""

    __slots__ = ("calls_model", "children", "is_open", "key", "kind", "parent", "reply", "thread_id")

    def __init__(self, kind: str, key: object, parent: Span | None, thread_id: str | None) -> None:
        self.kind = kind
        self.key = key
        self.parent = parent
        self.thread_id = thread_id
        self.children: dict[int, Span] = {}
        self.reply: Reply | None = None
        """Of a wait: what it waits on."""
        self.is_open = True
        self.calls_model = False
        """Of an agent: its model was called and has not answered."""

    def is_below(self, other: Span) -> bool:
        """Whether this was opened inside ``other``, also when both have ended since."""
        span: Span | None = self
        while span is not None and span is not other:
            span = span.parent
        return span is not None

    @property
    def waits(self) -> bool:
        """Whether this is a wait whose answer has not come."""
        return self.reply is not None and not self.reply.complete and not self.reply.released


CURRENT: contextvars.ContextVar[Span | None] = contextvars.ContextVar("agentsession_adk_span", default=None)
"""The span that the present task works in."""


class SpanTree:
    """The open spans of one run. ``on_quiet`` is called, in a task, when everything waits; it must not raise."""

    def __init__(self, on_quiet: Callable[[], None]) -> None:
        self.root = Span("run", None, None, None)
        self._on_quiet = on_quiet
        self._generation = 0
        self._has_ended = False
        self._loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None
        self._events = 0
        self._at_work = 0
        self._hold: asyncio.TimerHandle | None = None
        """Set while nothing is decided, because something failed."""
        self._watch: asyncio.TimerHandle | None = None

    def open(self, kind: str, key: object, thread_id: str | None = None, *, inherit: bool = True) -> Span:
        """A new span under the current one; the present task works in it from now on."""
        parent = self._nearest(CURRENT.get())
        span = Span(kind, key, parent, parent.thread_id if inherit else thread_id)
        parent.children[id(span)] = span
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda done, span=span: self._task_done(done, span))  # type: ignore[misc]  # mypy cannot type a lambda's default
        CURRENT.set(span)
        self.changed()
        return span

    def wait(self, reply: Reply) -> Span:
        """A leaf that waits for the host, under the current span."""
        parent = self._nearest(CURRENT.get())
        span = Span("wait", tuple(reply.ids), parent, parent.thread_id)
        span.reply = reply
        parent.children[id(span)] = span
        self.changed()
        return span

    def close(self, span: Span) -> None:
        """The span has ended, and all below it."""
        if not span.is_open:
            return
        for child in list(span.children.values()):
            self.close(child)
        span.is_open = False
        if span.parent is not None:
            span.parent.children.pop(id(span), None)
        if CURRENT.get() is span:
            CURRENT.set(span.parent)
        self.changed()

    def close_children(self, span: Span) -> None:
        """A step of this agent is over: whatever it left open is over too."""
        for child in list(span.children.values()):
            self.close(child)

    def find(self, kind: str, key: object) -> Span | None:
        """The open span of that kind and key: the one that the present task works in, else the innermost."""
        found = None
        around = CURRENT.get()
        while around is not None:
            if around.is_open and around.kind == kind and around.key == key:
                return around
            around = around.parent
        for span in self._walk(self.root):
            if span.kind == kind and span.key == key:
                found = span
        return found

    def failed(self) -> None:
        """Something raised: do not decide for a moment."""
        if self._has_ended:
            return
        if self._hold is not None:
            self._hold.cancel()
        self._hold = self._loop.call_later(_AFTER_FAILURE_S, self._held)

    def end(self) -> None:
        """The run is over: nothing is told any more, and no timer keeps it in memory."""
        self._has_ended = True
        self._generation += 1
        for timer in (self._hold, self._watch):
            if timer is not None:
                timer.cancel()
        self._hold = self._watch = None

    def changed(self) -> None:
        """Something was opened, closed or answered: look again whether all is quiet."""
        if self._has_ended:
            return
        self._generation += 1
        if self._is_quiet():
            self._loop.call_soon(self._settle, self._generation, _TURNS)
        elif self._watch is None and self._left_alone(_SILENT_TIMES):
            self._watch = self._loop.call_later(_SUSPENDED_S, self._look, self._generation, self._events, 1)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Something that has no span is at work, such as a hook of the host's: until it is done all is not quiet."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self.changed()

    def stirred(self) -> None:
        """An event came: an agent is at work."""
        self._events += 1

    def _held(self) -> None:
        """The moment after a failure is over."""
        self._hold = None
        self.changed()

    def _look(self, generation: int, events: int, times: int) -> None:
        """Some time is over: whether nothing moved in it."""
        self._watch = None
        if self._is_quiet() or not self._left_alone(_SILENT_TIMES):
            return
        if (generation, events) != (self._generation, self._events):
            times = 0
        elif self._left_alone(times):
            self._telling = self._loop.create_task(self._tell(generation, times), name="agentsession quiet")
            return
        self._watch = self._loop.call_later(_SUSPENDED_S, self._look, self._generation, self._events, times + 1)

    def _left_alone(self, times: int) -> bool:
        """Whether something waits, and all else that is open are agents that do nothing."""
        if self._at_work or self._hold is not None:
            return False
        leaves = [leaf for leaf in self._walk(self.root) if not leaf.children]
        others = [leaf for leaf in leaves if not leaf.waits]
        return len(others) < len(leaves) and all(
            leaf.kind == "agent" and (times >= _SILENT_TIMES or not leaf.calls_model) for leaf in others
        )

    def _settle(self, generation: int, turns: int) -> None:
        if generation != self._generation or not self._is_quiet():
            return  # something moved, and its own change looks again
        if turns > 0:
            self._loop.call_soon(self._settle, generation, turns - 1)
        else:
            # As a task: what is done in a plain callback of the loop cannot start tasks of anyio (storing events does).
            self._telling = self._loop.create_task(self._tell(generation), name="agentsession quiet")

    async def _tell(self, generation: int, times: int = 0) -> None:
        if generation == self._generation and (self._is_quiet() or (times and self._left_alone(times))):
            self._on_quiet()

    def _is_quiet(self) -> bool:
        if self._at_work or self._hold is not None:
            return False
        return all(leaf.waits for leaf in self._walk(self.root) if not leaf.children)

    def _walk(self, span: Span) -> Iterator[Span]:
        yield span
        for child in span.children.values():
            yield from self._walk(child)

    def _nearest(self, span: Span | None) -> Span:
        """The nearest open span of this tree, from ``span`` upwards."""
        top = span
        while top is not None and top.parent is not None:
            top = top.parent
        if top is not self.root:
            return self.root
        while span is not None and not span.is_open:
            span = span.parent
        return span or self.root

    def _task_done(self, task: asyncio.Task[object], span: Span) -> None:
        if span.is_open and span.kind == "tool" and not task.cancelled() and task.exception() is not None:
            self.failed()
        self.close(span)
