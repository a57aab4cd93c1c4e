"""Plugins of the user's that give the calls of an event other ids: which calls they are all the same.

Not for: ids that a model repeats (``_model_calls.py``), or the contract's ids (``_calls.py``). Rules carried: TOOL-01.
May import: google.adk types.

ADK makes the calls that the model's answer holds, whatever a plugin's ``on_event_callback`` returns in its place; what
it returns is only stored and shown. So the record goes by what the gate, being first, has seen. Of a call that is its
present id, for a plugin that changes the very call changes what ADK goes by; of a result, the id that it came with.
"""

from __future__ import annotations

from google.adk.events.event import Event as AdkEvent
from google.genai import types

__all__ = ["CallIds"]

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


def _marked(event: AdkEvent) -> list[_Marked]:
    out: list[_Marked] = []
    for part in (event.content.parts if event.content is not None else None) or ():
        if part.function_call is not None:
            out.append(part.function_call)
        elif part.function_response is not None:
            out.append(part.function_response)
    return out
