"""Generated ADK histories: what agents, people, hosts and ADK itself leave in a session, in any order.

Each is a list of events such as a session service holds. Most are what a run leaves; some are what only a broken or
foreign history holds, for the adapter must not lose anything of those either.
"""

from __future__ import annotations

from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import strategies as st

__all__ = ["histories", "model_event", "user_event"]

CONFIRMATION = "adk_request_confirmation"


def user_event(invocation: str, *parts: types.Part, **fields: Any) -> Event:
    return Event(
        author="user", invocation_id=invocation, content=types.Content(role="user", parts=list(parts)), **fields
    )


def model_event(author: str, invocation: str, *parts: types.Part, **fields: Any) -> Event:
    return Event(
        author=author, invocation_id=invocation, content=types.Content(role="model", parts=list(parts)), **fields
    )


def _text(text: str, **fields: Any) -> types.Part:
    return types.Part(text=text, **fields)


def _call(id: str, name: str, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=args))


def _result(id: str, name: str, value: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id, name=name, response={"result": value}))


class _Story:
    """Builds one history; every choice is drawn."""

    def __init__(self, draw: st.DrawFn, *, wild: bool) -> None:
        self.draw = draw
        self.wild = wild
        self.events: list[Event] = []
        self.invocations: list[str] = []
        self.calls: list[tuple[str, str, str, str]] = []
        """Calls that may get another result: id, name, author, invocation."""
        self.number = 0

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def chance(self, of: int = 4) -> bool:
        return self.draw(st.integers(1, of)) == 1

    def turn(self) -> None:
        invocation = self.fresh("inv")
        self.invocations.append(invocation)
        said = [_text(self.fresh("said "))]
        if self.chance(6):
            said.append(types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x")))
        self.events.append(user_event(invocation, *said))
        author = self.draw(st.sampled_from(["root", "helper"]))
        for _ in range(self.draw(st.integers(0, 3))):
            author = self.step(author, invocation)
        if not self.chance(5):
            self.say(author, invocation)

    def step(self, author: str, invocation: str) -> str:
        kind = self.draw(st.sampled_from(["calls", "say", "transfer", "steer", "confirm", "long", "late", "odd"]))
        if kind == "calls":
            self.parallel(author, invocation)
        elif kind == "say":
            self.say(author, invocation)
        elif kind == "transfer":
            other = "helper" if author == "root" else "root"
            call = self.fresh("c")
            self.events.append(model_event(author, invocation, _call(call, "transfer_to_agent", agent_name=other)))
            self.answer(author, invocation, [(call, "transfer_to_agent")], transfer_to_agent=other)
            return other
        elif kind == "steer":
            self.events.append(user_event(invocation, _text(self.fresh("steer "))))
        elif kind == "confirm":
            self.confirmed(author, invocation)
        elif kind == "long":
            self.long_running(author, invocation)
        elif kind == "late" and self.calls:
            again, name, caller, where = self.draw(st.sampled_from(self.calls))
            self.events.append(
                Event(
                    author=self.draw(st.sampled_from([caller, "user"])),
                    invocation_id=self.draw(st.sampled_from([where, invocation])),
                    content=types.Content(role="user", parts=[_result(again, name, self.fresh("late "))]),
                )
            )
        elif kind == "odd":
            self.odd(author, invocation)
        return author

    def say(self, author: str, invocation: str) -> None:
        parts = []
        if self.chance(3):
            parts.append(
                _text(self.fresh("thought "), thought=True, thought_signature=b"sig" if self.chance() else None)
            )
        if not (parts and self.chance(3)):
            parts.append(_text(self.fresh("answer ")))
        self.events.append(model_event(author, invocation, *parts))

    def parallel(self, author: str, invocation: str) -> None:
        calls = [(self.fresh("adk-" if self.chance() else "c"), "look") for _ in range(self.draw(st.integers(1, 3)))]
        if self.wild and self.calls and self.chance(3):
            calls[0] = (self.draw(st.sampled_from(self.calls))[0], "look")  # a model may repeat an id
        self.events.append(model_event(author, invocation, *[_call(made, name, at=1) for made, name in calls]))
        self.calls += [(made, name, author, invocation) for made, name in calls]
        answered = list(self.draw(st.permutations(calls)))
        if self.chance(6):
            answered.pop()  # a run that was cut off
        if len(answered) > 1 and self.chance(2):
            self.answer(author, invocation, answered[:1])
            answered = answered[1:]
            if self.chance(3):
                self.say(author, invocation)
        if answered:
            self.answer(author, invocation, answered)

    def answer(self, author: str, invocation: str, calls: list[tuple[str, str]], **actions: Any) -> None:
        self.events.append(
            Event(
                author=author,
                invocation_id=invocation,
                actions=EventActions(**actions),
                content=types.Content(
                    role="user", parts=[_result(made, name, self.fresh("r")) for made, name in calls]
                ),
            )
        )

    def confirmed(self, author: str, invocation: str) -> None:
        call, question = self.fresh("c"), self.fresh("q")
        made = _call(call, "delete", path="x")
        self.events.append(model_event(author, invocation, made))
        assert made.function_call is not None
        self.events.append(
            model_event(
                author,
                invocation,
                _call(
                    question,
                    CONFIRMATION,
                    originalFunctionCall=made.function_call.model_dump(exclude_none=True),
                    toolConfirmation={},
                ),
                long_running_tool_ids={question},
            )
        )
        wanted = {call: ToolConfirmation(hint="sure?")}
        self.answer(author, invocation, [(call, "delete")], requested_tool_confirmations=wanted)
        if self.chance(5):
            return  # never answered
        if self.chance(3):
            self.turn()  # something else was said before
        self.events.append(user_event(invocation, _result(question, CONFIRMATION, {"confirmed": True})))
        self.answer(author, invocation, [(call, "delete")])

    def long_running(self, author: str, invocation: str) -> None:
        call = self.fresh("c")
        self.events.append(model_event(author, invocation, _call(call, "wait_for"), long_running_tool_ids={call}))
        self.calls.append((call, "wait_for", author, invocation))
        if self.chance(2):
            self.answer(author, invocation, [(call, "wait_for")])

    def odd(self, author: str, invocation: str) -> None:
        kinds = ["state", "error", "rewind", "empty"]
        kinds += ["compaction", "branch", "scope", "idless", "no invocation"] if self.wild else []
        kind = self.draw(st.sampled_from(kinds))
        if kind == "state":
            self.events.append(
                Event(author=author, invocation_id=invocation, actions=EventActions(state_delta={"k": 1}))
            )
        elif kind == "error":
            self.events.append(
                Event(author=author, invocation_id=invocation, error_code="SAFETY", error_message="blocked")
            )
        elif kind == "rewind":
            to = self.draw(st.sampled_from(self.invocations[-4:]))
            marker = EventActions(rewind_before_invocation_id=to)
            self.events.append(Event(author="user", invocation_id=self.fresh("rewind"), actions=marker))
        elif kind == "empty":
            self.events.append(user_event(invocation, _text("")))
        elif kind == "compaction":
            summary = types.Content(role="model", parts=[_text(self.fresh("summary "))])
            first = self.draw(st.sampled_from(self.events))
            marker = EventActions(
                compaction=EventCompaction(
                    start_timestamp=first.timestamp,
                    end_timestamp=self.events[-1].timestamp,
                    compacted_content=summary,
                )
            )
            self.events.append(Event(author="user", invocation_id=self.fresh("compact"), actions=marker))
        elif kind == "branch":
            self.events.append(model_event(author, invocation, _text(self.fresh("aside ")), branch=f"root.{author}"))
        elif kind == "scope":
            self.events.append(model_event(author, invocation, _text(self.fresh("task ")), isolation_scope="task-1"))
        elif kind == "idless":
            call = types.Part(function_call=types.FunctionCall(name="look", args={}))
            response = types.Part(function_response=types.FunctionResponse(name="look", response={"r": 1}))
            self.events.append(model_event(author, invocation, call))
            if self.chance(2):
                self.events.append(model_event(author, invocation, response))
        else:
            self.events.append(user_event("", _text(self.fresh("lost "))))


@st.composite
def histories(draw: st.DrawFn, *, turns: int = 8, wild: bool = False) -> list[Event]:
    """A history of some turns. ``wild``: also with what only few histories hold: summaries, branches, repeated ids."""
    story = _Story(draw, wild=wild)
    for _ in range(draw(st.integers(1, turns))):
        story.turn()
    for at, event in enumerate(story.events):
        event.timestamp = 1_700_000_000.0 + at
        event.id = f"event-{at}"
    return story.events
