"""The history of an ADK session, cut into an older and a recent part such that ADK makes the same of both as of one.

Not for: keeping sessions (``_sessions.py``); what the agents tell (``_window_proof.py``). Rules carried: none of the
contract's; that the model loses nothing. May import: google.adk, google.genai types, opentelemetry's
API, ``_elicit``.

ADK reads the whole history before each model call: it filters, pairs calls with results, drops what was rewound, and
copies what is left. All of that works on groups of events that belong together: an invocation, a call and its results,
a rewind and what it takes back. Between two turns where no group is open the history falls into two parts that do not
know of each other, and the contents of the whole are those of the first followed by those of the second
(docs/decisions/0012-recent-history.md has the proof, ``test_window.py`` the property).
So a run gets the recent part, and the contents of the older one, made once by ADK itself, are put in front of what ADK
made of the recent part before anybody else sees the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events._rewind_events import _apply_rewinds  # private: what ADK itself reads of a session
from google.adk.events.event import Event as AdkEvent
from google.adk.flows.llm_flows.contents import request_processor as adk_contents
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.session import Session
from google.adk.telemetry import _instrumentation
from google.genai import types
from opentelemetry import _logs, trace
from pydantic import BaseModel, PrivateAttr

from agentsession.adapters.adk._elicit import is_placeholder

__all__ = ["History", "WindowedSession", "put_older"]


class History:
    """All events of a session, what of them is older than the window, and what a model is shown of that."""

    def __init__(self, events: list[AdkEvent], *, recent: int, deciding: frozenset[str] | None) -> None:
        """``recent``: how many events a window has at least. ``deciding``: see ``deciding_agents``."""
        self.events: list[AdkEvent] = []
        self.cut = 0
        """Where the window begins; 0: it is the whole history."""
        self.whole_only = False
        """The history holds something that could reach over any cut."""
        self._recent = recent
        self._deciding = deciding
        self._decided: int | None = None
        self._first: dict[str, int] = {}
        """Where each invocation and each call was seen first."""
        self._open: dict[str, int] = {}
        """Calls without a result, and where they were made."""
        self._cuts: list[int] = []
        """Where the history may be cut, ascending."""
        self._older: dict[tuple[Any, ...], _Older] = {}
        for event in events:
            self.add(event)
        self.advance()

    def add(self, event: AdkEvent) -> None:
        """One more event; the cut goes back if this event belongs to something that is before it."""
        at = len(self.events)
        self.events.append(event)
        self.whole_only = self.whole_only or _reaches_anywhere(event)
        if self.whole_only:
            self._cut_at(0)
            return
        invocation = f"i {event.invocation_id}"
        if event.actions.rewind_before_invocation_id:
            self._group(f"i {event.actions.rewind_before_invocation_id}", at)
            self._recount()
        elif _begins_a_turn(event) and invocation not in self._first:
            self._cuts.append(at)
        self._group(invocation, at)
        self._see_calls(event, at)
        if self.cut > self._limit():
            self._cut_at(self._limit())

    def advance(self) -> None:
        """Move the cut on when the window has grown to twice what it must hold."""
        if self.whole_only or len(self.events) - self.cut <= 2 * self._recent:
            return
        wanted = min(len(self.events) - self._recent, self._limit())
        found = self._last_cut(wanted)
        if found > self.cut:
            self.cut = found

    async def older(self, context: InvocationContext, cut: int, prepare: Prepare) -> Sequence[types.Content]:
        """What the agent of ``context`` is shown of the events before ``cut``; made once, then only added to."""
        key = _key(context)
        made = self._older.setdefault(key, _Older())
        if cut in made.ends:
            # A copy touches every content, which is most of what a turn after many costs: only where it must be.
            end = made.ends[cut]
            return made.contents if end == len(made.contents) else made.contents[:end]
        if cut < made.cut:
            made = _Older()  # a run that began before the cut moved on; not worth keeping
        # The first event of the window goes with it, so that ADK does not take the last of the older ones for the
        # last of all, of which it makes something else; what it makes of that event is dropped again.
        events = self.events[made.cut : cut + 1]
        session = context.session.model_copy(update={"events": events})
        request = LlmRequest()
        async for _ in adk_contents.run_async(context.model_copy(update={"session": session}), request):
            pass
        older = request.contents[:-1]
        prepare(older, events)
        made.contents += older
        made.cut = cut
        made.ends[cut] = len(made.contents)
        return made.contents

    def _see_calls(self, event: AdkEvent, at: int) -> None:
        if event.author != "user" and self._decides(event):
            self._decided = at
        for call in event.get_function_calls():
            self._group(f"c {call.id}", at)
            self._open[call.id or ""] = at
        for response in event.get_function_responses():
            self._group(f"c {response.id}", at)
            if not is_placeholder(event, response.id):
                self._open.pop(response.id or "", None)

    def _decides(self, event: AdkEvent) -> bool:
        return (
            self._deciding is not None
            and event.author in self._deciding
            and bool(event.content and event.content.parts)
            and not event.error_code
            and event.actions.agent_state is None
            and not event.actions.end_of_agent
        )

    def _recount(self) -> None:
        """After a rewind: what it took back does not count, neither calls and replies nor results."""
        self._open.clear()
        self._decided = None
        where = {id(event): at for at, event in enumerate(self.events)}
        for event in _apply_rewinds(self.events):
            self._see_calls(event, where[id(event)])

    def _group(self, name: str, at: int) -> None:
        """Nothing may be cut between the first event that has ``name`` and this one."""
        first = self._first.setdefault(name, at)
        while self._cuts and self._cuts[-1] > first:
            self._cuts.pop()
        if self.cut > first:
            self._cut_at(self._last_cut(first))

    def _limit(self) -> int:
        """The last place where a cut may be: not behind a call that waits, nor behind what says which agent goes on."""
        limit = min(self._open.values(), default=len(self.events))
        if self._deciding is not None:
            limit = min(limit, self._decided or 0)
        return limit

    def _last_cut(self, limit: int) -> int:
        index = bisect_right(self._cuts, limit)
        return self._cuts[index - 1] if index else 0

    def _cut_at(self, limit: int) -> None:
        """Move the cut back. What was made of the older events may hold what was taken back, so it is made anew."""
        self.cut = self._last_cut(limit) if limit else 0
        self._older.clear()


class _Older:
    """What one agent is shown of the events before a cut."""

    def __init__(self) -> None:
        self.cut = 0
        self.contents: list[types.Content] = []
        self.ends: dict[int, int] = {}
        """How many of the contents belong to the events before each cut."""


class WindowedSession(Session):
    """ADK's session with the recent part of its history in ``events``, and a way to the older part."""

    _history: History | None = PrivateAttr(default=None)
    _cut: int = PrivateAttr(default=0)
    _copies: bool = PrivateAttr(default=True)

    @classmethod
    def of(cls, session: Session, history: History, *, copies: bool) -> WindowedSession:
        """``session``, whose own events do not matter, with the window of ``history``.

        ``copies``: somebody might change an event or a content in place, which must not change the history.
        """
        window = history.events[history.cut :]
        # All of it, what the service put into private attributes too.
        made = cls.model_construct(
            None, **{**session.__dict__, "events": [_copy(e) for e in window] if copies else window}
        )
        for name, value in (session.__pydantic_private__ or {}).items():
            setattr(made, name, value)
        made._history, made._cut, made._copies = history, history.cut, copies
        return made

    def widen(self) -> bool:
        """Take back into the window what the history no longer holds to be older; whether there was anything."""
        history = self._history
        if history is None or history.cut >= self._cut:
            return False
        self.events[:0] = [_copy(event) for event in history.events[history.cut : self._cut]]
        self._cut = history.cut
        return True


Prepare = Callable[[Sequence[types.Content], Sequence[AdkEvent]], None]
"""Takes contents, and the events that they were made of."""


async def put_older(context: CallbackContext, request: LlmRequest, *, prepare: Prepare, copies: bool) -> None:
    """Put what the model is shown of the older events in front of what ADK made of the recent ones.

    ``prepare`` does once what the caller does to the contents of each request. ``copies``: the caller gives them to
    somebody who might change them in place.
    """
    session = context.session
    if not isinstance(session, WindowedSession) or session._history is None or not session._cut:
        return
    invocation = context._invocation_context  # private, and what ADK's own function takes
    agent = invocation.agent
    if getattr(agent, "include_contents", "default") != "default" or request.previous_interaction_id:
        return  # ADK asked for the current turn alone, and that is in the window
    older = await session._history.older(invocation, session._cut, prepare)
    if copies or session._copies or not _only_reads(getattr(agent, "canonical_model", None)):
        older = [_shallow(content) for content in older]
    request.contents = _Contents([*older, *request.contents])


class _Contents(list[types.Content]):
    """The contents of a request. While ADK fills in a span that nobody records they seem empty.

    ADK describes every content to its telemetry before each model call, also when there is no telemetry, and throws the
    description away. For a long history that is most of what a model call costs.
    """

    def __iter__(self) -> Iterator[types.Content]:
        return iter(()) if _fills_in_vain() else super().__iter__()


def _fills_in_vain() -> bool:
    scope = _instrumentation.inference_scope()
    if scope is None or scope.span is not None:
        return False  # no span is being made: whoever reads, reads for the model
    # The API has providers of its own, which do nothing, for when nobody has set one.
    logs_nothing = type(_logs.get_logger_provider()).__module__.startswith(_logs.__name__)
    return logs_nothing and not trace.get_current_span().is_recording()


M = TypeVar("M", bound=BaseModel)

_READERS: Final = ("google.adk.models.", "agentsession.")


def _only_reads(model: Any) -> bool:
    """Whether a model is known to leave the contents of a request as they are."""
    return type(model).__module__.startswith(_READERS)


def _key(context: InvocationContext) -> tuple[Any, ...]:
    config = context.run_config
    model = getattr(context.agent, "canonical_model", None)
    name = context.agent.name if context.agent is not None else ""
    return (name, type(model), context.branch, config.include_thoughts_from_other_agents if config else False)


def _begins_a_turn(event: AdkEvent) -> bool:
    """Whether an event is what a person said, and something that ADK shows the model whoever the agent is."""
    parts = event.content.parts if event.content is not None and event.content.role else None
    if event.author != "user" or not parts:
        return False
    if any(part.function_call or part.function_response or part.thought for part in parts):
        return False
    return any(part.text or part.inline_data or part.file_data for part in parts)


def _reaches_anywhere(event: AdkEvent) -> bool:
    """Whether an event means something to ADK that could reach over any cut, and is not worth following."""
    return bool(
        event.actions.compaction
        or event.branch
        or event.isolation_scope
        or event.live_session_id
        or event.input_transcription
        or event.output_transcription
        or event.interaction_id
        or event.cache_metadata
        or not event.invocation_id
        or (event.author == "user" and event.node_info.path)
        or not all(call.id for call in event.get_function_calls())
        or not all(response.id for response in event.get_function_responses())
    )


def _copy(event: AdkEvent) -> AdkEvent:
    return event.model_copy(deep=True)


def _shallow(content: types.Content) -> types.Content:
    """As deep a copy as ADK makes of the contents of a request."""
    made = _twin(content)
    vars(made)["parts"] = [_twin(part) for part in content.parts or ()]
    made.__pydantic_fields_set__.add("parts")
    return made


def _twin(model: M) -> M:
    """``model.model_copy()`` in half the time: before each model call the whole history is copied."""
    made = object.__new__(type(model))
    put = object.__setattr__
    put(made, "__dict__", model.__dict__.copy())
    put(made, "__pydantic_fields_set__", model.__pydantic_fields_set__.copy())
    extra, private = model.__pydantic_extra__, model.__pydantic_private__
    put(made, "__pydantic_extra__", None if extra is None else extra.copy())
    put(made, "__pydantic_private__", None if private is None else private.copy())
    return made
