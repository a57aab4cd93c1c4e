"""What ADK makes of an older and a recent part of a history is what it makes of the whole."""

from __future__ import annotations

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.flows.llm_flows.contents import request_processor
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters.adk.histories import histories, model_event, user_event
from tests.adapters.adk.strategies import parts

from agentsession.adapters.adk import ScriptedLlm
from agentsession.adapters.adk._window import History, WindowedSession, _shallow

DECIDING = frozenset({"root", "helper"})


def _context(name: str, events: list[Event], *, thoughts: bool = False) -> InvocationContext:
    agent = LlmAgent(name=name, model=ScriptedLlm())
    return InvocationContext(
        session_service=InMemorySessionService(),  # type: ignore[no-untyped-call,unused-ignore]
        invocation_id="now",
        agent=agent,
        session=Session(id="s", app_name="a", user_id="u", events=events),
        run_config=RunConfig(include_thoughts_from_other_agents=thoughts),
    )


async def _contents(name: str, events: list[Event], *, thoughts: bool = False) -> list[types.Content]:
    request = LlmRequest()
    async for _ in request_processor.run_async(_context(name, events, thoughts=thoughts), request):
        pass
    return request.contents


def _nothing(contents: object, events: object) -> None:
    del contents, events


async def _parts_are_the_whole(history: History, events: list[Event], thoughts: bool) -> None:
    cut = history.cut
    for name in ("root", "helper"):
        older = await history.older(_context(name, [], thoughts=thoughts), cut, _nothing) if cut else []
        recent = await _contents(name, events[cut:], thoughts=thoughts)
        assert [*older, *recent] == await _contents(name, events, thoughts=thoughts), (name, cut)


@pytest.mark.parametrize("wild", [False, True])
@settings(max_examples=60)
@given(data=st.data(), recent=st.integers(1, 4), thoughts=st.booleans())
def test_the_contents_of_both_parts_are_those_of_the_whole_after_every_event(
    wild: bool, data: st.DataObject, recent: int, thoughts: bool
) -> None:
    events = data.draw(histories(wild=wild))
    known = data.draw(st.integers(0, len(events)))

    async def walk() -> None:
        history = History(events[:known], recent=recent, deciding=DECIDING)
        await _parts_are_the_whole(history, events[:known], thoughts)
        for at in range(known, len(events)):
            history.add(events[at])
            if data.draw(st.booleans()):
                history.advance()  # a run begins here
            if data.draw(st.booleans()):
                await _parts_are_the_whole(history, events[: at + 1], thoughts)
        await _parts_are_the_whole(history, events, thoughts)
        note("cut" if history.cut else "whole")

    anyio.run(walk)


def _turn(author: str, invocation: str, *parts: types.Part) -> list[Event]:
    said = types.Part(text=f"said in {invocation}")
    return [user_event(invocation, said), model_event(author, invocation, *(parts or [types.Part(text="reply")]))]


def _rewind(before: str) -> Event:
    marker = EventActions(rewind_before_invocation_id=before)
    return Event(author="user", invocation_id=f"back to {before}", actions=marker)


def _turns(author: str, *invocations: str) -> list[Event]:
    return [event for invocation in invocations for event in _turn(author, invocation)]


def test_the_window_holds_the_reply_that_says_which_agent_goes_on() -> None:
    events = [*_turns("root", "a", "b"), *_turns("helper", "c"), *_turns("bystander", "d", "e", "f")]
    history = History(events, recent=2, deciding=DECIDING)
    assert history.events[history.cut].invocation_id == "c"
    assert History(events, recent=2, deciding=None).cut > history.cut


def test_a_rewind_that_takes_back_that_reply_brings_an_older_one_into_the_window() -> None:
    events = [*_turns("root", "a", "b"), *_turns("helper", "c"), *_turns("bystander", "d", "e")]
    history = History(events, recent=1, deciding=DECIDING)
    assert history.events[history.cut].invocation_id == "c"
    history.add(_rewind("c"))
    assert history.events[history.cut].invocation_id == "b"


def test_what_a_rewind_takes_back_is_gone_from_the_older_contents_too() -> None:
    async def walk() -> None:
        history = History(_turns("root", "a", "b", "c"), recent=1, deciding=None)
        await _parts_are_the_whole(history, history.events, False)  # made, and kept
        for event in [_rewind("b"), *_turns("root", "d", "e")]:
            history.add(event)
        history.advance()
        assert history.cut == 9
        await _parts_are_the_whole(history, history.events, False)

    anyio.run(walk)


def test_a_call_that_waits_holds_the_cut_until_it_is_answered_or_taken_back() -> None:
    call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}))
    answer = types.Part(function_response=types.FunctionResponse(id="c1", name="look", response={}))
    waiting = [*_turns("root", "a"), *_turn("root", "b", call), *_turns("root", "c", "d")]
    assert History(waiting, recent=1, deciding=None).cut == 2
    answered = [*waiting[:4], model_event("root", "b", answer), *waiting[4:]]
    assert History(answered, recent=1, deciding=None).cut == 7
    rewound = [*waiting, _rewind("b"), *_turns("root", "e", "f")]
    assert History(rewound, recent=1, deciding=None).cut == 11


def test_the_window_grows_to_twice_its_size_before_it_is_cut_again() -> None:
    history = History([], recent=4, deciding=None)
    sizes = []
    for number in range(12):
        for event in _turn("root", f"inv{number}"):
            history.add(event)
        history.advance()
        sizes.append(len(history.events) - history.cut)
    assert sizes == [2, 4, 6, 8, 4, 6, 8, 4, 6, 8, 4, 6]


def test_a_session_with_a_window_is_a_copy_of_the_service_s_in_all_but_its_events() -> None:
    events = _turns("root", "a", "b", "c")
    given = Session(id="s", app_name="a", user_id="u", state={"k": 1}, events=events[-1:], last_update_time=7.0)
    given._storage_update_marker = "revision 7"
    window = WindowedSession.of(given, History(events, recent=1, deciding=None), copies=True)
    assert isinstance(window, Session)
    assert [event.invocation_id for event in window.events] == ["c", "c"]
    assert (window.id, window.app_name, window.user_id, window.state) == ("s", "a", "u", {"k": 1})
    assert (window.last_update_time, window._storage_update_marker) == (7.0, "revision 7")
    assert window.model_copy(update={"events": []})._storage_update_marker == "revision 7"


@given(st.lists(parts(), max_size=3))
def test_a_content_is_copied_as_adk_copies_it(made: list[types.Part]) -> None:
    content = types.Content(role="user", parts=made)

    copied = _shallow(content)

    assert copied == content
    assert copied.model_fields_set == content.model_fields_set
    copied.parts = None
    copied.role = "model"
    assert (content.role, content.parts) == ("user", made)


@given(parts())
def test_a_copied_part_is_not_the_history_s(made: types.Part) -> None:
    content = types.Content(role="user", parts=[made])
    before = made.model_copy(deep=True)

    copied = (_shallow(content).parts or [])[0]
    copied.text = "another"
    copied.thought = True

    assert content.parts == [before]
    assert made.model_fields_set == before.model_fields_set
