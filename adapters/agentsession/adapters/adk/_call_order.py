"""The results of a step in the order of its calls, in what a model is shown.

Not for: which result belongs to which call (``_calls.py``). Rules carried: TOOL-07, TOOL-11.
May import: google.adk events, google.genai types.

ADK shows the results of one step in the order in which its session got them. Results that came while no run was open,
or that calls of another process had, come in events of their own, in the order of the answers. And ADK takes the ids
that it made itself out of what a model is shown: of two calls of one tool it could not tell which result is whose.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from google.adk.events.event import Event as AdkEvent
from google.genai import types

__all__ = ["put_in_order"]

_Said = tuple[str | None, Any]
"""The name of a call or result, and its arguments or what it says."""


class _Step:
    """The calls of one event, and the last result of each."""

    def __init__(self, calls: list[types.FunctionCall]) -> None:
        self.calls: list[_Said] = [(call.name, call.args) for call in calls]
        self.results: list[_Said | None] = [None] * len(calls)


def put_in_order(contents: Sequence[types.Content], events: Sequence[AdkEvent]) -> None:
    """Put the results in ``contents``, which ADK has made of ``events``, in the order of their calls, in place.

    What cannot be told to be the results of a step of ``events`` is left as it is.
    """
    steps: list[_Step] | None = None
    for before, content in itertools.pairwise(contents):
        if content.parts is None or len(content.parts) < 2:
            continue
        results = [part for part in content.parts if part.function_response is not None]
        if len(results) < 2:
            continue
        calls = [part.function_call for part in before.parts or () if part.function_call is not None]
        if len(calls) < len(results):
            continue
        if steps is None:
            steps = _steps(events)
        asked: list[_Said] = [(call.name, call.args) for call in calls]
        for step in steps:
            ordered = _ordered(step, results) if step.calls == asked else None
            if ordered is not None:
                rest = [part for part in content.parts if part.function_response is None]
                content.parts = [*ordered, *rest]
                steps.remove(step)
                break


def _steps(events: Sequence[AdkEvent]) -> list[_Step]:
    """The steps of several calls, oldest first."""
    steps: list[_Step] = []
    places: dict[str, tuple[_Step, int]] = {}
    for event in events:
        calls = event.get_function_calls()
        if len(calls) > 1:
            step = _Step(calls)
            steps.append(step)
            places |= {call.id: (step, index) for index, call in enumerate(calls) if call.id}
        for response in event.get_function_responses():
            found = places.get(response.id or "")
            if found is not None:  # of several results of a call ADK shows the last
                found[0].results[found[1]] = (response.name, response.response)
    return steps


def _ordered(step: _Step, parts: list[types.Part]) -> list[types.Part] | None:
    """``parts`` in the order of the step's calls; ``None``: they are not its results."""
    left = list(parts)
    ordered: list[types.Part] = []
    for result in step.results:
        found = next((part for part in left if result is not None and _said(part) == result), None)
        if found is not None:
            left.remove(found)
            ordered.append(found)
    return None if left else ordered


def _said(part: types.Part) -> _Said:
    response = part.function_response
    return (response.name, response.response) if response is not None else (None, None)
