"""What a session's record says live, its stored ADK session says again: in memory, in SQLite, after restarts.

What ADK does not store is left out of the comparison, and only that; docs/adk-mapping.md lists it. The scenarios are
generated: a random script of the model, random tools, a random host.
"""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters.adk.driving import Driven, driven, host_tool, verify
from tests.adapters.adk.make import old_agent
from tests.adapters.adk.trees import ends

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, error, map_events, say, stream, think
from agentsession.protocol import (
    Answer,
    Custom,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own pipelines
]

_DURABLE = {
    *("message", "tool_request", "tool_response", "elicitation_request", "elicitation_response"),
    *("usage", "session_update", "error", "custom"),
}
_RECORD_S_OWN = {"id", "seq", "sessionId", "streamId", "turnId", "timestamp", "_meta"}


def comparable(
    events: Sequence[Event], questions: Collection[str], *, parked: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """The durable events by thread, in order, without what ADK does not store. This is the whole comparison.

    ``questions`` are those that ADK knows of: what an open run asks about its tools is in no event of ADK's.
    ``parked``: a run ended on what its step asked, and another one gave ADK the answers.
    """
    threads: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        wire = event.to_wire()
        if wire["type"] not in _DURABLE or wire.get("partial"):
            continue
        if wire["type"].startswith("elicitation") and wire["requestId"] not in questions:
            continue
        shown = {key: value for key, value in wire.items() if key not in _RECORD_S_OWN}
        if wire["type"] == "message" and wire["role"] == "user":
            del shown["messageId"]  # the record's own; ADK gives its event another
        elif wire["type"] == "tool_request":
            del shown["needs"], shown["owner"]  # the host's policy
        elif wire["type"] == "tool_response":
            del shown["source"]
            if wire["status"] == "denied":
                # A decision. ADK has the words that its model was told.
                shown["status"], shown["data"] = "failed", None
            elif wire["status"] == "failed" and _tells_a_denial(wire.get("data")):
                shown["data"] = None
        threads.setdefault(wire.get("threadId") or "", []).append(shown)
    return {thread: _answers_in_one_order(shown, parked) for thread, shown in threads.items()}


def _tells_a_denial(data: Any) -> bool:
    return isinstance(data, dict) and str(data.get("error", "")).startswith(("denied", "the user did not confirm"))


def _answers_in_one_order(events: list[dict[str, Any]], parked: bool) -> list[dict[str, Any]]:
    """ADK stores the results of one step together, in the order of their calls; live they come as they are ready.

    Parked, it stores the tools that ran in one run with the state and files that they set, and what the host answered
    in another: these come after the answers of their step then, in their own order.
    """
    out: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    effects: list[dict[str, Any]] = []
    for event in [*events, {"type": ""}]:
        if event["type"] in ("tool_response", "elicitation_response"):
            answers.append(event)
        elif parked and answers and (event["type"] == "session_update" or event.get("kind") == "artifact_delta"):
            effects.append(event)
        else:
            out += [*sorted(answers, key=lambda answer: str(answer["requestId"])), *effects, event]
            answers, effects = [], []
    return out[:-1]


async def stored(executor: AdkExecutor, session_id: str) -> list[Event]:
    """The record made again from what ADK's service has."""
    found = await executor.session_service.get_session(app_name="root", user_id="local", session_id=session_id)
    assert found is not None
    return list(map_events(found.events))


# --- generated scenarios ----------------------------------------------------------------------------------------------


def read(path: str) -> Any:
    """Read."""
    return {"text": f"R {path}"}


def plain(path: str) -> str:
    """Read plain text."""
    return f"P {path}"


def broken(path: str) -> str:
    """Fail."""
    raise ValueError(path)


def refuses(path: str) -> Any:
    """Answer with an error."""
    return {"error": f"no {path}"}


def nothing(path: str) -> None:
    """Answer nothing."""


def remember(path: str, tool_context: ToolContext) -> Any:
    """Change state."""
    tool_context.state["seen"] = path
    tool_context.state["user:last"] = path
    return {"ok": True}


async def save(path: str, tool_context: ToolContext) -> Any:
    """Save a file."""
    return {"version": await tool_context.save_artifact("a.txt", types.Part(text=path))}


def delete(path: str) -> str:
    """Delete, with the tool's own confirmation."""
    return f"deleted {path}"


def asks(path: str, tool_context: ToolContext) -> Any:
    """Ask from inside."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint=f"Really {path}?", payload={"copies": 1})
        return {"status": "asked"}
    return {"told": tool_context.tool_confirmation.confirmed}


OWN = ["read", "plain", "broken", "refuses", "nothing", "remember", "save", "delete", "asks"]
TOOLS: list[Any] = [
    read,
    plain,
    broken,
    refuses,
    nothing,
    remember,
    save,
    FunctionTool(delete, require_confirmation=True),
    asks,
    request_input,
    exit_loop,
]

_words = st.text(alphabet="ab é😀\n", min_size=1, max_size=6)
_calls = st.builds(call, st.sampled_from([*OWN, "look", "look"]), st.fixed_dictionaries({"path": _words}))
_said = st.one_of(
    _words.map(say),
    st.lists(_words, min_size=1, max_size=3).map(lambda pieces: stream(*pieces)),
    st.builds(lambda thought, text: think(thought) + say(text), _words, _words),
)
_asked = st.builds(lambda text: call("adk_request_input", {"message": text}), _words)
_exits = st.one_of(
    st.just(call("exit_loop")),
    st.builds(lambda made: calls(made, call("exit_loop")), _calls),
)
_more = st.one_of(
    st.lists(_calls, min_size=1, max_size=3).map(lambda made: calls(*made)),
    st.builds(lambda text, made: text + made, _said, _calls),
    _asked,
    st.builds(lambda made, asked: calls(made) + asked, _calls, _asked),
    _exits,
)
_used = st.builds(lambda step, count: step.using(input=count, output=count + 1), _said, st.integers(1, 9))
_last = st.one_of(_said, _used, st.sampled_from(["SAFETY", "MAX_TOKENS", "Boom"]).map(lambda code: error(code, "no")))
_turns = st.builds(lambda steps, last: [*steps, last], st.lists(_more, max_size=2), _last)
_scripts = st.lists(_turns, min_size=1, max_size=2)
_choices = st.lists(st.integers(0, 3), min_size=1, max_size=6)
_parked = st.booleans()
"""Whether a run ends on what the host is asked, or is kept open for the answers."""


def host(choices: Sequence[int]) -> Callable[[ToolRequest | ElicitationRequest], Answer]:
    """A host that answers by these numbers, over and over."""
    turn = iter(range(10**6))

    def reply(request: ToolRequest | ElicitationRequest) -> Answer:
        choice = choices[next(turn) % len(choices)]
        if isinstance(request, ElicitationRequest):
            if choice == 0:
                return decline(request.request_id)
            return accept(request.request_id, "blue" if request.kind == "clarification" else None)
        if choice == 0:
            return deny(request.request_id, "not now")
        if request.needs == "grant" and choice < 3:
            return grant(request.request_id, {"path": "edited"} if choice == 2 else None)
        return result(request.request_id, {"by": "host"} if choice == 1 else "by the host")

    return reply


def options() -> OpenOptions:
    return OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))


def assert_same(again: list[Event], live: Sequence[Event], *, parked: bool = False) -> None:
    asked = {event.request_id for event in again if isinstance(event, ElicitationRequest)}
    asked |= {event.request_id for event in live if isinstance(event, ElicitationRequest) and _is_stored(event)}
    said, stored_so = (
        json.dumps(comparable(events, asked, parked=parked), indent=1).splitlines() for events in (live, again)
    )
    different = list(difflib.unified_diff(said, stored_so, "live", "rebuilt", lineterm="", n=12))
    assert not different, "\n".join(different)
    assert sorted(map(repr, ends(again))) == sorted(map(repr, ends(live)))
    assert not [event for event in again if isinstance(event, Custom) and event.kind == "adk:unplaced"]


def _is_stored(question: ElicitationRequest) -> bool:
    """Questions of the agent itself are calls in ADK's session, always."""
    return question.kind == "clarification"


def scripted(turns: list[list[Any]]) -> ScriptedLlm:
    return ScriptedLlm(script=[step for turn in turns for step in turn], forever="no more")


def llm(name: str, turns: list[list[Any]], **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=scripted(turns), tools=list(TOOLS), **fields)


async def compare(root: Any, turns: int, choices: Sequence[int], *, parked: bool = False) -> None:
    """All turns in one process; the host answers everything by ``choices``."""
    reply = host(choices)
    async with driven(root, options=options(), artifact_service=InMemoryArtifactService(), parked=parked) as desk:
        for number in range(turns):
            await desk.turn(f"turn {number}", reply)
        assert_same(await stored(desk.executor, "s1"), desk.session.record, parked=parked)


@given(_scripts, _choices, _parked)
@settings(max_examples=60)
async def test_one_agent_says_the_same_live_and_rebuilt(
    script: list[list[Any]], choices: list[int], parked: bool
) -> None:
    await compare(llm("root", script), len(script), choices, parked=parked)


@given(_scripts, _choices, _parked)
@settings(max_examples=30)
async def test_messages_over_what_waits_say_the_same_live_and_rebuilt(
    script: list[list[Any]], choices: list[int], parked: bool
) -> None:
    """What waits is answered, or a new message comes over it; at last everything is answered."""
    reply, turn = host(choices), iter(range(10**6))
    async with driven(llm("root", script), options=options(), parked=parked) as desk:
        for number in range(3):
            done = await desk.stream(f"turn {number}")
            while done.reason == "input_required" and choices[next(turn) % len(choices)] != 3:
                done = await desk.stream([reply(request) for request in desk.session.pending])
        await desk.turn("at last", host([1]))
        assert_same(await stored(desk.executor, "s1"), desk.session.record, parked=parked)


@given(_scripts, _choices, _parked)
@settings(max_examples=16)
async def test_a_restart_at_every_pause_changes_nothing(
    script: list[list[Any]], choices: list[int], parked: bool
) -> None:
    """SQLite; whatever waits is answered in another executor. The adapter's own questions to ADK stay hidden."""
    with tempfile.TemporaryDirectory() as folder:
        service, store, reply = SqliteSessionService(f"{folder}/adk.db"), MemoryRecordStore(), host(choices)
        root = llm("root", script)
        waiting: list[Any] = []
        to_say = [f"turn {number}" for number in range(len(script))]
        opened = False
        while to_say or waiting:
            async with AdkExecutor(root, session_service=service, store=store, parked=parked) as executor:
                session = await (executor.load("s1", options()) if opened else executor.open(options()))
                opened = True
                desk = Driven(executor, session)
                waiting = list(session.pending)
                done = await desk.stream([reply(request) for request in waiting] if waiting else to_say.pop(0))
                waiting = list(session.pending)
                assert bool(waiting) == (done.reason == "input_required")
                verify(session)
                if not to_say and not waiting:
                    assert_same(await stored(executor, "s1"), session.record, parked=parked)


@given(_scripts, _scripts, _choices, _parked)
@settings(max_examples=16)
async def test_a_hand_over_says_the_same_live_and_rebuilt(
    before: list[list[Any]], after: list[list[Any]], choices: list[int], parked: bool
) -> None:
    """The second agent takes over in the first turn, and is the one that is spoken to from then on."""
    first = [*before[0][:-1], call("transfer_to_agent", {"agent_name": "second"})]
    root = llm("root", [first], sub_agents=[llm("second", after)])

    await compare(root, len(after), choices, parked=parked)


@given(st.lists(_turns, min_size=4, max_size=4), _choices)
@settings(max_examples=10)
async def test_a_pipeline_says_the_same_live_and_rebuilt(scripts: list[list[Any]], choices: list[int]) -> None:
    one, two, three, four = scripts
    branches = old_agent("ParallelAgent", name="par", sub_agents=[llm("b", [two]), llm("c", [three])])
    loop = old_agent("LoopAgent", name="loop", max_iterations=2, sub_agents=[llm("d", [four, four])])
    root = old_agent("SequentialAgent", name="root", sub_agents=[llm("a", [one]), branches, loop])

    # An exit in a branch cuts off the other one; ADK is told what became of its calls by the next turn.
    await compare(root, 4, choices)


async def test_the_comparison_sees_lost_state_of_a_parked_run() -> None:
    step = calls(call("remember", {"path": "a"}), call("look"))
    async with driven(llm("root", [[step, say("done")]]), options=options(), parked=True) as desk:
        await desk.turn("go")
        found = await desk.executor.session_service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        assert_same(list(map_events(found.events)), desk.session.record, parked=True)
        for event in found.events:
            event.actions.state_delta.clear()
        with pytest.raises(AssertionError):
            assert_same(list(map_events(found.events)), desk.session.record, parked=True)


async def test_the_comparison_sees_a_lost_result() -> None:
    """The helper would fail: one result less in ADK's session is a difference."""
    async with driven(llm("root", [[call("read", {"path": "a"}), say("done")]]), options=options()) as desk:
        await desk.turn("go")
        found = await desk.executor.session_service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        kept = [event for event in found.events if not event.get_function_responses()]
        assert len(kept) == len(found.events) - 1
        with pytest.raises(AssertionError):
            assert_same(list(map_events(kept)), desk.session.record)
