"""What is done about an agent that goes in circles: it is told so once, and then its turn is stopped.

Not for: telling that it does (``_loops.py``). Rules carried: LIFE-09, CTL-06.
May import: ``agentsession.protocol``, the modules beside it.

The record is what is watched: requests, responses and deltas, each thread by itself. A closing event repeats its deltas
and is passed over. At the first loop of a thread its agent is told, in the way of a steer, where the executor takes
steers; at the next, or where it takes none, the turn ends with the code ``LOOP_DETECTED``. What was found is acted on
when the run does its next thing, for a response may be recorded while no stream is open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from agentsession.adapters.base._loops import TIMES, CallLoop, CallSteps, TextLoop
from agentsession.adapters.base._run import HELD_BREATH, Run
from agentsession.protocol import (
    AgentDescriptor,
    Error,
    ExecutionOptions,
    Message,
    Text,
    Thought,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    args_digest,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["LOOP_DETECTED", "LoopWatch"]

LOOP_DETECTED: Final = "LOOP_DETECTED"
"""The code of the error, and the cause in the data of the ``stream_end``."""

_ADVICE: Final = (
    "Do not do it again. Change the arguments or the approach, or say what keeps you from going on. "
    "If it goes on like this, the turn is stopped."
)


@dataclasses.dataclass(slots=True)
class _Thread:
    calls: CallLoop = dataclasses.field(default_factory=CallLoop)
    steps: CallSteps = dataclasses.field(default_factory=CallSteps)
    text: TextLoop = dataclasses.field(default_factory=TextLoop)
    saying: tuple[str, str] | None = None
    """The message, and the kind of part, that its text belongs to."""
    found: int = 0
    """How many loops there were."""


class LoopWatch:
    """Watches the present turn of one session."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._recorder = session.recorder
        self._turn_id: str | None = None
        self._threads: dict[str | None, _Thread] = {}
        self._thread_of: dict[str, str | None] = {}
        """By open request."""
        self._may_repeat: frozenset[str] = frozenset()
        self.due: str | None = None
        """Why the turn is to be stopped, as soon as its run does something."""

    def stream_begins(self, turn_id: str, options: ExecutionOptions) -> None:
        """A stream of a turn begins: watch it if the host wants that, a new turn from its beginning."""
        is_watched = bool(options.loop_detection)
        self._recorder.loops = self if is_watched else None
        if turn_id != self._turn_id or not is_watched:
            self._turn_id, self.due = turn_id, None
            self._threads.clear()
            self._thread_of.clear()
        if is_watched:
            self.know_tools(options.tools or ())

    def know_tools(self, tools: Iterable[ToolDescriptor]) -> None:
        """These are the host's tools, beside those of the agents: some may be called again and again."""
        every = [*tools, *_own_tools(self._session.descriptor)]
        named = {tool.name for tool in every if tool.annotations is not None and tool.annotations.may_repeat}
        self._may_repeat = frozenset(named)

    # -- what is recorded ---------------------------------------------------------------------------------------------

    def asked(self, event: ToolRequest) -> None:
        """A whole request was recorded."""
        thread = self._thread(event.thread_id)
        thread.text.reset()
        if event.name not in self._may_repeat:
            self._thread_of[event.request_id] = event.thread_id
            thread.steps.asked(event.request_id, (event.name, args_digest(event.args or {})))

    def answered(self, event: ToolResponse) -> None:
        """A response was recorded."""
        if event.request_id not in self._thread_of:
            return
        thread_id = self._thread_of.pop(event.request_id)
        thread = self._thread(thread_id)
        step = thread.steps.answered(event.request_id, _digest(event))
        length = thread.calls.step(step) if step is not None else None
        if length == 1:
            self._found(thread_id, f"The last {TIMES} steps were the same call of {event.name}, with the same result.")
        elif length is not None:
            self._found(thread_id, f"The same {length} steps were made {TIMES} times in a row, with the same results.")

    def said(self, event: Message) -> None:
        """A delta was recorded."""
        if event.role != "agent":
            return
        thread = self._thread(event.thread_id)
        for part in event.content:
            if isinstance(part, (Text, Thought)):
                saying = (event.message_id, part.type)
                if saying != thread.saying:
                    thread.text.reset()
                    thread.saying = saying
                if thread.text.feed(part.text):
                    self._found(event.thread_id, "The same text was said again and again.")

    def _thread(self, thread_id: str | None) -> _Thread:
        found = self._threads.get(thread_id)
        if found is None:
            found = self._threads[thread_id] = _Thread()
        return found

    # -- what is done -------------------------------------------------------------------------------------------------

    def _found(self, thread_id: str | None, what: str) -> None:
        thread = self._thread(thread_id)
        thread.found += 1
        if thread.found == 1 and self._session.descriptor.supports("steering"):
            self._session.steers.note(thread_id, f"{what} {_ADVICE}", {"loop": {"found": what}})
        else:
            self.due = self.due or what

    def act(self, run: Run) -> None:
        """Stop the turn if that is due. Its first cause counts."""
        what, self.due = self.due, None
        if what is None or run.grace is not None or run.muted or run.aborting is not None:
            return
        if not self._session.machine.fatal:
            message = f"the turn goes in circles and was stopped: {what}"
            self._recorder.record(Error(status="ABORTED", message=message, code=LOOP_DETECTED, source="host"))
        self._session.ending.interrupt(run, "failed", LOOP_DETECTED)
        self._session.ending.expect_exit()
        run.breath = HELD_BREATH


def _own_tools(agent: AgentDescriptor) -> Iterator[ToolDescriptor]:
    """Those of an agent and of all below it."""
    yield from agent.own_tools
    for below in agent.sub_agents:
        yield from _own_tools(below)


def _digest(event: ToolResponse) -> str:
    shown = [part.to_wire() for part in event.content]
    return args_digest({"data": event.data, "content": shown, "status": event.status, "error": event.is_error})
