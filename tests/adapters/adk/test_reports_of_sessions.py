"""Reports from the field about how sessions live, run tools, ask and last, with the input that set them off.

Other files hold the same numbers for the kind around each; here is what was reported, through a real Runner and, where
it was about storing, through files.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import ParallelAgent, SequentialAgent
from google.adk.apps.app import App
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    verify,
)

from agentsession.adapters.adk import AdkExecutor, call, calls, raw, say, stream
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    SessionConfig,
    ToolRequest,
    accept,
    deny,
    grant,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own pipelines
]

OPTIONS = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look"), host_tool("find")]))
UNGATED = ExecutionOptions(host_tool_execution=False)


def adk_events(path: Path) -> list[Any]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT id, event_data FROM events ORDER BY rowid").fetchall()
    database.close()
    return rows


# -- lifecycle --------------------------------------------------------------------------------------------------------


def shaped(shape: str, inner: Any) -> Any:
    if shape == "child":
        parent = agent(call("inner", {"request": "x"}), tools=[AgentTool(inner)])
        parent.model.forever = say("parent")  # type: ignore[union-attr]
        return parent
    kinds = {"sequential": SequentialAgent, "parallel": ParallelAgent}
    return kinds[shape](name="root", sub_agents=[inner]) if shape in kinds else inner


@pytest.mark.rule("LIFE-05", "LIFE-09", "LIFE-12", "LIFE-14")
@pytest.mark.parametrize("shape", ["plain", "sequential", "parallel", "child"])
@pytest.mark.parametrize("lets_through", [False, True])
async def test_r10_a_tool_that_raises_in_the_middle_of_a_streamed_turn_gives_one_end(
    lets_through: bool, shape: str
) -> None:
    """R10: an end came after the error, and a client that took the error for the end broke."""

    def broken() -> str:
        """Break."""
        raise RuntimeError("disk full")

    def leave_it(**_: Any) -> None:
        return None

    more: dict[str, Any] = {"on_tool_error_callback": leave_it} if lets_through else {}
    step = stream("I ", "try.") + call("broken", id="c1")
    script = [step, say("fresh")] if lets_through else [step, say("sorry"), say("fresh")]
    root = shaped(shape, agent(*script, name="inner", tools=[broken], **more))
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        ends = [event.type for event in turn.events if event.type in ("stream_end", "error")]
        # An AgentTool makes a result of what its child raised, and so does the adapter where no callback decides.
        fails = lets_through and shape != "child"
        assert turn.reason == ("failed" if fails else "completed")
        assert ends.count("stream_end") == 1
        assert ends[-1] == "stream_end"
        assert len([event for event in turn.of("error") if event.fatal]) == int(fails)
        assert turn.of("message")[-1 if fails else 1].content
        assert (await desk.stream("again")).reason == "completed"


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("restarted", [False, True])
async def test_r67_after_two_hand_overs_the_last_agent_answers_the_next_message(
    restarted: bool, tmp_path: Path
) -> None:
    """R67: root handed to x, x to y; the next message went to an older one."""
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()

    def tree(*said: Any) -> Any:
        y = agent(*said, name="y")
        x = agent(call("transfer_to_agent", {"agent_name": "y"}, id="t2"), name="x", sub_agents=[y])
        return agent(call("transfer_to_agent", {"agent_name": "x"}, id="t1"), sub_agents=[x])

    async with AdkExecutor(tree(say("one"), say("two")), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        first = await desk.stream("go")
        assert [event.agent_id for event in first.of("agent_start")] == ["root", "x", "y"]
        if not restarted:
            second = await desk.stream("next")
            verify(desk.session)
    if restarted:
        async with AdkExecutor(tree(say("two")), session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s1", OPTIONS))
            second = await desk.stream("next")
            verify(desk.session)
    assert [(event.agent_id, event.reason) for event in second.of("agent_end")] == [("y", "completed")]  # pyright: ignore[reportPossiblyUnboundVariable]
    assert second.texts == ["two"]  # pyright: ignore[reportPossiblyUnboundVariable]


# -- mapping ----------------------------------------------------------------------------------------------------------


def half_call() -> types.Part:
    piece = types.PartialArg(json_path="$.text", string_value="half")
    return types.Part(function_call=types.FunctionCall(name="write", id="c1", will_continue=True, partial_args=[piece]))


def model_says(*parts: types.Part, **fields: Any) -> LlmResponse:
    content = types.Content(role="model", parts=list(parts)) if parts else None
    return LlmResponse(content=content, **fields)


LENGTH = types.FinishReason.MAX_TOKENS


@pytest.mark.rule("LIFE-14", "TOOL-01")
@pytest.mark.parametrize("shape", ["plain", "sequential", "parallel"])
@pytest.mark.parametrize("said", [half_call(), types.Part(text="half")], ids=["call", "text"])
@pytest.mark.parametrize(
    ("last", "reason", "code"),
    [
        ([], "failed", "ANSWER_BROKEN_OFF"),
        ([model_says(finish_reason=LENGTH)], "max_tokens", "MAX_TOKENS"),
        ([model_says(finish_reason=LENGTH, partial=True)], "max_tokens", "MAX_TOKENS"),
        ([model_says(finish_reason=LENGTH, error_code="MAX_TOKENS")], "max_tokens", "MAX_TOKENS"),
        ([model_says(types.Part(text=" "), finish_reason=LENGTH, partial=True)], "max_tokens", "MAX_TOKENS"),
    ],
    ids=["nothing", "finish", "partial finish", "error", "on a delta"],
)
async def test_r38_an_answer_that_is_cut_without_its_end_is_never_an_empty_success(
    last: list[LlmResponse], reason: str, code: str, said: types.Part, shape: str
) -> None:
    """R38: the arguments of a call were cut at the token limit, and the stream just ended."""
    ran: list[str] = []

    def write(text: str) -> None:
        """Write."""
        ran.append(text)

    inner = agent(raw(model_says(said, partial=True), *last), say("fresh"), name="inner", tools=[write])
    async with driven(shaped(shape, inner), tools=[host_tool("look")]) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, [event.code for event in turn.of("error")]) == (reason, [code])
        assert [event.partial for event in turn.of("tool_request")] in ([], [True])
        assert all(event.interrupted for event in turn.of("message") if event.source == "agent" and not event.partial)
        assert ran == []
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(inner.model)


async def test_r38_the_next_steps_answer_counts_and_the_broken_one_is_told() -> None:
    first = agent(raw(model_says(types.Part(text="half"), partial=True)), name="a")
    async with driven(SequentialAgent(name="root", sub_agents=[first, agent(say("whole"), name="b")])) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["half", "whole"])
        assert [(event.code, event.agent_id) for event in turn.of("error")] == [("ANSWER_BROKEN_OFF", "a")]


@pytest.mark.rule("TOOL-03")
@pytest.mark.parametrize("equal", [1, 2])
async def test_r08_a_call_that_is_streamed_whole_three_times_is_asked_about_once(equal: int) -> None:
    """R08: partial, aggregated and final, each under an id of its own, were two cards to approve."""

    def asked(**fields: Any) -> LlmResponse:
        made = types.FunctionCall(name="look", args={"q": 1})
        return model_says(*(types.Part(function_call=made.model_copy()) for _ in range(equal)), **fields)

    root = agent(raw(asked(partial=True), asked(partial=True), asked(partial=False)), say("done"))
    async with driven(root, options=OPTIONS) as desk:
        turn = await desk.stream("go")
        whole = [event.request_id for event in turn.of("tool_request") if not event.partial]
        assert len(set(whole)) == len(whole) == equal
        assert [item.request_id for item in desk.session.pending] == whole
        assert (await desk.stream([result(request_id, "seen") for request_id in whole])).texts == ["done"]
        assert_valid_history(root.model)


class Strays(BasePlugin):
    """Gives the event that holds a step's results an invocation of its own, as ADK's merge once did."""

    def __init__(self) -> None:
        super().__init__(name="strays")

    async def on_event_callback(self, *, invocation_context: Any, event: AdkEvent) -> AdkEvent | None:
        if event.get_function_responses():
            return event.model_copy(update={"invocation_id": "another"})
        return None


@pytest.mark.rule("LIFE-04", "TOOL-11")
async def test_r92_results_that_are_merged_under_another_invocation_are_of_their_turn() -> None:
    """R92: the merged results of two parallel calls could not be grouped with their turn."""

    async def read(path: str) -> str:
        """Read."""
        return path

    root = agent(calls(call("read", {"path": "a"}, id="c1"), call("read", {"path": "b"}, id="c2")), tools=[read])
    app = App(name="root", root_agent=root, plugins=[Strays()])
    root.model.forever = say("done")  # type: ignore[union-attr]
    async with driven(app, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        assert {(event.turn_id, event.stream_id) for event in turn.events} == {(turn.end.turn_id, turn.end.stream_id)}
        assert [(event.request_id, event.data) for event in turn.of("tool_response")] == [("c1", "a"), ("c2", "b")]


ODD = ["parce que c\udcc3\udcb4t", "half \ud83d", "a\x00b", "\u202eabc", "‏שלום"]


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("text", ODD, ids=["surrogateescape", "half", "nul", "override", "rtl"])
async def test_r96_odd_text_is_taken_wherever_the_host_hands_it_in(text: str, tmp_path: Path) -> None:
    """R96: lone surrogates of a person killed the run when its events were stored."""
    shown = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    asked = call("adk_request_input", {"message": text}, id="c4")
    step = calls(
        call("look", {"q": text}, id="c1"), call("write", {"text": text}, id="c2"), call("find", id="c3"), asked
    )
    wrote: list[str] = []

    def write(text: str, tool_context: ToolContext) -> str:
        """Write."""
        wrote.append(text)
        tool_context.state["said"] = text
        return text

    root = agent(step, say(text), say("next"), tools=[write, request_input])
    async with (
        SqliteRecordStore(tmp_path / "record.db") as store,
        AdkExecutor(root, session_service=service, store=store) as executor,
    ):
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream(text)
        assert (await desk.session.steer(text)).status == "queued"
        updated = await desk.session.update(SessionConfig(title=text, state={"mine": text}))
        assert updated.status == "applied"
        turn = await desk.stream(
            [
                result("c1", {"found": text, text: 1}),
                grant(desk.pending("write"), {"text": text}),
                deny(desk.pending("find"), text),
                accept(desk.pending("clarification"), {"city": text}),
            ]
        )
        assert (turn.reason, turn.texts) == ("completed", [shown])
        assert wrote == [shown]
        for event in desk.session.record:
            event.to_wire_json().encode("utf-8")
        verify(desk.session)
        await desk.session.aclose()
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        assert (await desk.stream("and now?")).texts == ["next"]
        assert_valid_history(root.model)
        for _, part in history(root.model):
            part.encode("utf-8")


# -- the host's tools, and the agent's --------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-09", "TOOL-11")
@pytest.mark.parametrize("parked", [False, True])
async def test_r42_of_calls_of_two_turns_that_are_answered_together_each_has_its_own(parked: bool) -> None:
    """R42: two waiting tools of different turns, one message for both, and the provider refused the history."""
    root = agent(call("look", id="c1"), call("find", id="c2"), say("two"))
    async with driven(root, options=OPTIONS, parked=parked) as desk:
        await desk.stream("go")
        first = desk.pending("look")
        await desk.stream("something else")
        second = desk.pending("find")
        async with desk.session.stream([result(first, "of look"), result(second, "of find")]) as answered:
            receipts = [(receipt.request_id, receipt.status) for receipt in answered.receipts]
            [event async for event in answered]
        assert receipts == [(first, "stale"), (second, "applied")]
        assert answered.end is not None
        assert answered.end.reason == "completed"
        assert_valid_history(root.model)
        results = dict(entry for entry in history(root.model) if entry[0].startswith("result"))
        assert "cancelled" in results["result c1"]
        assert results["result c2"] == '{"result": "of find"}'


@pytest.mark.rule("TOOL-08", "TOOL-09")
async def test_r53_a_call_that_was_done_inline_is_not_waited_for_and_its_replay_is_no_harm() -> None:
    """R53: a loader had run, two gated calls were answered, and the host was told that results are missing."""
    ran: list[str] = []

    def loader() -> str:
        """Load."""
        ran.append("loader")
        return "loaded"

    def tool(name: str) -> FunctionTool:
        def work() -> str:
            """Work."""
            ran.append(name)
            return name

        work.__name__ = name
        return FunctionTool(work, require_confirmation=True)

    step = calls(call("loader", id="c0"), call("t1", id="c1"), call("t2", id="c2"))
    root = agent(step, say("done"), tools=[loader, tool("t1"), tool("t2")])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        await desk.stream("go")
        assert ran == ["loader"]
        asked = [item.request_id for item in desk.session.pending]
        assert len(asked) == 2
        async with desk.session.stream([result("c0", "replayed"), *map(accept, asked)]) as answered:
            assert [receipt.status for receipt in answered.receipts] == ["stale", "applied", "applied"]
            [event async for event in answered]
        assert (ran, desk.responses()) == (["loader", "t1", "t2"], dict.fromkeys(("loader", "t1", "t2"), "completed"))
        assert_valid_history(root.model)


# -- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03", "PER-01")
@pytest.mark.parametrize("restarted", [False, True])
async def test_r06_an_ungated_siblings_result_is_kept_over_the_pause_for_a_confirmation(
    restarted: bool, tmp_path: Path
) -> None:
    """R06: the confirmed tool ran, its sibling's result was gone, and the last message was empty."""
    ran: list[str] = []

    def delete_record() -> str:
        """Delete."""
        ran.append("delete")
        return "deleted"

    def list_records() -> str:
        """List."""
        ran.append("list")
        return "three"

    tools: list[Any] = [FunctionTool(delete_record, require_confirmation=True), list_records]
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    options = OpenOptions(session_id="s1", execution=UNGATED)
    root = agent(calls(call("delete_record", id="c1"), call("list_records", id="c2")), say("done"), tools=tools)
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(options))
        assert (await desk.stream("go")).reason == "input_required"
        assert (ran, desk.responses()) == (["list"], {"list_records": "completed"})
        if not restarted:
            assert (await desk.stream(accept(desk.pending("tool_confirmation")))).texts == ["done"]
    if restarted:
        root = agent(say("done"), tools=tools)
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s1", options))
            assert (await desk.stream(accept(desk.pending("tool_confirmation")))).texts == ["done"]
            verify(desk.session)
    assert ran == ["list", "delete"]
    results = sorted(entry for entry in history(root.model) if entry[0].startswith("result"))
    assert results == [("result c1", '{"result": "deleted"}'), ("result c2", '{"result": "three"}')]


@pytest.mark.rule("PER-01", "HITL-04")
@pytest.mark.parametrize("edits", [False, True])
async def test_r48_the_signature_of_a_call_is_kept_when_it_is_granted_after_a_restart(
    edits: bool, tmp_path: Path
) -> None:
    """R48: after any confirmation the model refused the history, for a call had lost its signature."""

    def write(text: str) -> str:
        """Write."""
        return f"wrote {text}"

    made = types.FunctionCall(name="write", id="c1", args={"text": "x"})
    part = types.Part(function_call=made, thought_signature=b"\xffsig\x00")
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    first = agent(raw(model_says(part)), tools=[write])
    async with AdkExecutor(first, session_service=service, store=store) as executor:
        await Driven(executor, await executor.open(OPTIONS)).stream("go")
    root = agent(say("done"), tools=[write])
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        await desk.stream(grant(desk.pending("write"), {"text": "y"} if edits else None))
    sent = [part for content in root.model.requests[-1].contents for part in content.parts or []]  # type: ignore[union-attr]
    assert [part.thought_signature for part in sent if part.function_call] == [b"\xffsig\x00"]
    assert_valid_history(root.model)


def yes(item: ToolRequest | ElicitationRequest) -> Answer:
    if isinstance(item, ElicitationRequest):
        return accept(item.request_id, {"city": "Rome"} if item.kind == "clarification" else None)
    return grant(item.request_id) if item.needs == "grant" else result(item.request_id, "seen")


@pytest.mark.rule("TOOL-09")
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_r100_whatever_waits_its_answer_is_stored_once_and_a_second_one_refused(
    restarted: bool, parked: bool, tmp_path: Path
) -> None:
    """R100: a response was appended and handed over as well, and was in the session twice."""

    def write() -> str:
        """Write."""
        return "written"

    def delete() -> str:
        """Delete."""
        return "deleted"

    tools: list[Any] = [write, FunctionTool(delete, require_confirmation=True), request_input]
    asked = call("adk_request_input", {"message": "Where?"}, id="c4")
    step = calls(call("look", id="c1"), call("write", id="c2"), call("delete", id="c3"), asked)
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()

    async def answered(desk: Driven) -> None:
        answers = [yes(item) for item in desk.session.pending]
        assert len(answers) == 4
        assert (await desk.stream(answers)).reason == "completed"
        again = await desk.session.respond(*answers)
        assert [receipt.status for receipt in again] == ["stale"] * 4
        verify(desk.session)

    root = agent(step, say("done"), tools=tools)
    async with AdkExecutor(root, session_service=service, store=store, parked=parked) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        if not restarted:
            await answered(desk)
    if restarted:
        root = agent(say("done"), tools=tools)
        async with AdkExecutor(root, session_service=service, store=store, parked=parked) as executor:
            await answered(Driven(executor, await executor.load("s1", OPTIONS)))
    stored = [AdkEvent.model_validate_json(data) for _, data in adk_events(tmp_path / "adk.db")]
    # A placeholder only stands for the result that is to come, as in any confirmation of ADK's own.
    responses = [
        response.id
        for event in stored
        for response in event.get_function_responses()
        if response.id in ("c1", "c2", "c3", "c4") and not event.actions.requested_tool_confirmations
    ]
    assert sorted(map(str, responses)) == ["c1", "c2", "c3", "c4"]
    assert_valid_history(root.model)
