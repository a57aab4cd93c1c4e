"""What the calls of one step did to state and files, call by call: ADK tells of the step as a whole.

Not for: telling it (``_events.py`` translates what is stored). Rules carried: none. May import: google.adk.

ADK merges what parallel calls did in the order of the calls. So the version of a file that was saved last may be hidden
by an older one, and of two values for one key of the state one is gone without a word.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents.context import Context
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions

__all__ = ["StepActions"]


class StepActions:
    """The actions of the calls of one run whose step is not stored yet."""

    def __init__(self) -> None:
        self._of_calls: dict[tuple[str, str], EventActions] = {}
        """By session and call id."""

    def note(self, context: Context) -> None:
        """A call begins; what it does will be in its context's actions."""
        self._of_calls[(context.session.id, context.function_call_id or "")] = context.actions

    def settle(self, session_id: str, event: AdkEvent) -> list[str]:
        """Put right, in the event that answers a step's calls, what ADK has merged of them; the newest version of each
        file counts. The keys of the state for which a value is lost; ``temp:`` ones end with the run anyway."""
        ids = [(session_id, response.id or "") for response in event.get_function_responses()]
        done = [self._of_calls.pop(call_id) for call_id in ids if call_id in self._of_calls]
        if len(done) < 2:
            return []
        files, state = event.actions.artifact_delta, event.actions.state_delta
        for actions in done:
            for name, version in actions.artifact_delta.items():
                files[name] = max(version, files.get(name, version))
        return [
            key
            for key, kept in state.items()
            if not key.startswith("temp:")
            and not all(_holds(kept, one.state_delta[key]) for one in done if key in one.state_delta)
        ]


def _holds(kept: Any, value: Any) -> bool:
    """Whether ``value`` is in what was kept: it, or a mapping or list that has all of it."""
    if kept is value:
        return True
    if isinstance(kept, dict) and isinstance(value, dict):
        return all(key in kept and _holds(kept[key], item) for key, item in value.items())
    if isinstance(kept, list) and isinstance(value, list):
        return all(any(_holds(one, item) for one in kept) for item in value)
    try:
        return bool(kept == value)
    except Exception:  # noqa: BLE001  # such as an array's: whose values cannot be compared nobody can say it was lost
        return True
