"""Ids of the calls of an event: plugins of the user's that give others, and callbacks that give one id twice.

Not for: ids that a model repeats (``_model_calls.py``), or the contract's ids (``_calls.py``). Rules carried: TOOL-01.
May import: google.adk types.

An answer that a callback gives in the place of the model's does not pass the callbacks after the model. Two calls of
one id in it would be one to the gate, and what was allowed of the one would run the other.

ADK makes the calls that the model's answer holds, whatever a plugin's ``on_event_callback`` returns in its place; what
it returns is only stored and shown. So the record goes by what the gate, being first, has seen. Of a call that is its
present id, for a plugin that changes the very call changes what ADK goes by; of a result, the id that it came with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.adk.events.event import Event as AdkEvent
from google.genai import types

__all__ = ["CallIds", "make_distinct"]

_QUESTIONS: Final = "adk_request_"

_Marked = types.FunctionCall | types.FunctionResponse


class CallIds:
    """The ids of the calls and results of events that are on their way through the user's plugins."""

    def __init__(self) -> None:
        self._noted: dict[str, list[tuple[_Marked, str | None]]] = {}

    def note(self, event: AdkEvent) -> None:
        """Remember the calls and results of an event that the user's plugins have not seen."""
        marked = _marked(event)
        if marked:
            self._noted[event.id] = [(item, item.id) for item in marked]

    def restored(self, event: AdkEvent) -> AdkEvent:
        """The event as it came out of the plugins, with the ids that ADK goes by."""
        noted = self._noted.pop(event.id, None)
        if noted is None:
            return event
        marked = _marked(event)
        if [item.name for item in marked] != [item.name for item, _ in noted]:
            return event  # other calls, of which nobody can say which they are
        ids = [item.id if isinstance(item, types.FunctionCall) else came for item, came in noted]
        back = {item.id: known for item, known in zip(marked, ids, strict=True)}
        if all(given == original for given, original in back.items()):
            return event
        copied = event.model_copy(deep=True)
        for item, known in zip(_marked(copied), ids, strict=True):
            item.id = known
        if copied.long_running_tool_ids:
            waiting = (back.get(call_id, call_id) for call_id in copied.long_running_tool_ids)
            copied.long_running_tool_ids = {call_id for call_id in waiting if call_id is not None}
        return copied


def make_distinct(event: AdkEvent, is_known: Callable[[str], bool], new_id: Callable[[], str]) -> None:
    """Give each call that repeats an id another, in place: ADK makes the calls of this very event.

    Questions of ADK's own are left alone: what they are asked about goes by their ids.
    """
    marked = _marked(event)
    given = {made.id for made in marked}
    ids: set[str] = set()
    for made in marked:
        if not isinstance(made, types.FunctionCall) or not made.id or (made.name or "").startswith(_QUESTIONS):
            continue
        if made.id in ids or is_known(made.id):
            was, made.id = made.id, new_id()
            while made.id in given:
                made.id = new_id()
            if was in (event.long_running_tool_ids or ()):
                event.long_running_tool_ids = {*(event.long_running_tool_ids or ()), made.id}
        ids.add(made.id)


def _marked(event: AdkEvent) -> list[_Marked]:
    out: list[_Marked] = []
    for part in (event.content.parts if event.content is not None else None) or ():
        if part.function_call is not None:
            out.append(part.function_call)
        elif part.function_response is not None:
            out.append(part.function_response)
    return out
