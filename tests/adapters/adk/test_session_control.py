"""Steers, updates, state and options; what goes into the model and what comes out: media, thoughts, usage, text."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import anyio
import pytest
import trio
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool, model_calls

from agentsession.adapters.adk import AdkExecutor, call, calls, hold, raw, say, stream, think
from agentsession.protocol import (
    ConfigurationError,
    ExecutionOptions,
    Media,
    Message,
    MessageInput,
    SessionConfig,
    Text,
    ToolRequest,
    Usage,
    accept,
    result,
)

pytestmark = pytest.mark.anyio


class Hold:
    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self) -> None:
        self.entered.set()
        await self.release.wait()


# -- steers -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-06")
async def test_a_steer_is_read_before_the_next_model_call_and_stays_in_the_history() -> None:
    root = agent(call("look", id="c1"), say("done"), say("later"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert (await desk.session.steer("be brief")).status == "queued"
        turn = await desk.stream(result(desk.pending("look"), 1))
        assert turn.texts == ["done"]
        assert history(root.model)[-1] == ("user", "be brief")
        steered = [event for event in turn.of("message") if event.source == "user"]
        assert [event.content[0].text for event in steered] == ["be brief"]
        await desk.stream("next")
        assert ("user", "be brief") in history(root.model)
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-06")
async def test_a_steer_after_the_last_model_call_is_answered_in_the_same_turn() -> None:
    held = Hold()
    root = agent(hold(held) + say("done"), say("brief"))
    async with driven(root) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as turn:
                await held.entered.wait()
                await desk.session.steer("be brief")
                held.release.set()
                said = [
                    event.content[0].text  # type: ignore[union-attr]
                    async for event in turn
                    if isinstance(event, Message) and not event.partial
                ]
        assert said == ["go", "done", "be brief", "brief"]
        assert desk.types("stream_end") == ["stream_end"]


@pytest.mark.rule("CTL-06")
async def test_a_steer_that_an_abort_overtakes_is_listed_as_undelivered() -> None:
    async with driven(agent(call("look", id="c1"), say("never")), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        receipt = await desk.session.steer("be brief")
        await desk.session.abort()
        end = desk.session.record[-1]
        assert end.data["undelivered"] == [receipt.request_id]  # type: ignore[attr-defined]


@pytest.mark.rule("CTL-06")
async def test_a_steer_while_a_parked_turn_waits_is_read_when_it_goes_on() -> None:
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")], parked=True) as desk:
        await desk.stream("go")
        await desk.session.steer("be brief")
        assert (await desk.stream(result(desk.pending("look"), 1))).texts == ["done"]
        assert history(root.model)[-1] == ("user", "be brief")
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-06", "TOOL-09")
async def test_a_steer_does_not_have_a_parked_call_answered_twice() -> None:
    def wipe() -> str:
        """Wipe it."""
        return "wiped"

    tool = FunctionTool(wipe, require_confirmation=True)
    root = agent(calls(call("look", id="c1"), call("wipe", id="c2")), call("look", id="c3"), say("done"), tools=[tool])
    execution = {"host_tool_execution": False}
    async with driven(root, tools=[host_tool("look")], execution=execution, parked=True) as desk:
        await desk.stream("go")
        await desk.session.steer("be brief")
        first, question = desk.pending("look"), desk.pending("tool_confirmation")
        await desk.stream([result(first, 1), accept(question)])
        assert (await desk.stream(result(desk.pending("look"), 2))).texts == ["done"]
        assert [entry for entry in history(root.model) if entry[0] == "result c1"] == [("result c1", '{"result": 1}')]
        assert_valid_history(root.model)


async def test_two_steers_to_a_sqlite_session_stay_in_order(tmp_path: Any) -> None:
    root = agent(call("look", id="c1"), call("look", id="c2"), say("done"), say("later"))
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    async with driven(root, tools=[host_tool("look")], session_service=service) as desk:
        await desk.stream("go")
        await desk.session.steer("one")
        await desk.session.steer("two")
        await desk.stream(result(desk.pending("look"), 1))
        await desk.session.steer("three")
        await desk.stream(result(desk.pending("look"), 2))
        await desk.stream("next")
        shown = [text for kind, text in history(root.model) if kind == "user"]
        assert shown == ["go", "one", "two", "three", "next"]
        assert_valid_history(root.model)


# -- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-07")
async def test_an_update_of_the_model_holds_from_the_next_call_on() -> None:
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert (await desk.session.update(SessionConfig(model="other"))).status == "applied"
        await desk.stream(result(desk.pending("look"), 1))
        assert [request.model for request in root.model.requests] == ["scripted", "other"]  # type: ignore[union-attr]


@pytest.mark.rule("CTL-07")
async def test_an_update_of_the_tools_holds_from_the_next_call_on() -> None:
    root = agent(call("look", id="c1"), call("find", id="c2"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.session.update(SessionConfig(tools=[host_tool("find")]))
        turn = await desk.stream(result(desk.pending("look"), 1))
        assert turn.reason == "input_required"
        await desk.stream(result(desk.pending("find"), 2))
        offered = [sorted(request.tools_dict) for request in root.model.requests]  # type: ignore[union-attr]
        assert offered == [["look"], ["find"], ["find"]]


@pytest.mark.rule("CTL-07")
async def test_an_update_that_cannot_be_applied_wholly_changes_nothing() -> None:
    def write() -> str:
        return "written"

    async with driven(agent(say("x"), tools=[write])) as desk:
        before = len(desk.session.record)
        receipt = await desk.session.update(SessionConfig(title="new", tools=[host_tool("write")]))
        assert receipt.status == "rejected"
        assert len(desk.session.record) == before
        assert (await desk.session.update(SessionConfig(config={"x": 1}))).status == "rejected"


async def test_a_turns_own_options_hold_for_that_turn_alone() -> None:
    root = agent(say("one"), say("two"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go", ExecutionOptions(model="other", tools=[host_tool("find")]))
        await desk.stream("go")
        assert [(request.model, sorted(request.tools_dict)) for request in root.model.requests] == [  # type: ignore[union-attr]
            ("other", ["find"]),
            ("scripted", ["look"]),
        ]


async def test_state_goes_in_by_option_and_update_and_comes_out_by_events() -> None:
    seen: list[dict[str, Any]] = []

    def work(tool_context: ToolContext) -> str:
        seen.append(tool_context.state.to_dict())
        tool_context.state["made"] = [1, 2]
        tool_context.state["user:name"] = "Ada"
        tool_context.state["temp:scratch"] = object()
        return "ok"

    root = agent(call("work", id="c1"), say("done"), tools=[work])
    async with driven(root, execution={"state": {"first": 1}, "host_tool_execution": False}) as desk:
        await desk.session.update(SessionConfig(state={"second": 2}))
        turn = await desk.stream("go")
        assert turn.reason == "completed"
        assert (seen[0]["first"], seen[0]["second"]) == (1, 2)
        values = desk.session.state_values
        assert (values["first"], values["second"], values["made"], values["user:name"]) == (1, 2, [1, 2], "Ada")


async def test_r88_both_of_two_parallel_writes_of_state_are_told() -> None:
    def add(item: str, tool_context: ToolContext) -> str:
        tool_context.state["items"] = [*tool_context.state.get("items", []), item]
        return "ok"

    root = agent(calls(call("add", {"item": "a"}), call("add", {"item": "b"})), say("done"), tools=[add])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        await desk.stream("go")
        stored = await desk.executor.session_service.get_session(
            app_name="root", user_id=desk.session.user_id, session_id=desk.session.session_id
        )
        assert stored is not None
        assert desk.session.state_values["items"] == stored.state["items"] == ["a", "b"]


class Point(BaseModel):
    x: int = 1


# -- values that JSON cannot say --------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        b"\xff\x00",
        {"tags": {"a", "b"}},
        Point(),
        {"point": Point(), "deep": [{"n": math.nan}]},
        None,
        "x" * 2_000_000,
        "half \ud83d of an emoji",
        "nul \x00 and \u202e marks",
        object(),
        {"f": print},
        {1: "one", None: "none"},
    ],
    ids=lambda value: type(value).__name__,
)
async def test_r31_whatever_a_tool_returns_the_turn_is_completed_and_the_record_is_json(
    value: Any, lasting: bool, tmp_path: Any
) -> None:
    def odd(tool_context: ToolContext) -> Any:
        tool_context.state["kept"] = value
        return value

    root = agent(call("odd", id="c1"), say("done"), say("again"), tools=[odd])
    service = SqliteSessionService(str(tmp_path / "adk.db")) if lasting else None
    async with driven(root, session_service=service, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        assert (await desk.stream("next")).texts == ["again"]
        assert_valid_history(root.model)
        for event in desk.session.record:
            json.dumps(event.to_wire(), allow_nan=False).encode()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("text", ["parce que c\udcc3\udcb4t", "nul \x00", "\u202ertl", "\ud83d\ude00"])
async def test_r96_text_of_the_user_that_is_no_unicode_is_repaired(text: str, lasting: bool, tmp_path: Any) -> None:
    root = agent(say("one"), say("two"))
    service = SqliteSessionService(str(tmp_path / "adk.db")) if lasting else None
    async with driven(root, session_service=service) as desk:
        assert (await desk.stream(text)).texts == ["one"]
        assert (await desk.stream("next")).texts == ["two"]
        for kind, shown in history(root.model):
            assert kind in ("user", "model")
            shown.encode()


async def test_r96_an_emoji_split_over_two_deltas_is_joined() -> None:
    root = agent(stream("a \ud83d", "\ude00 b"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.texts == ["a \U0001f600 b"]


async def test_a_lone_surrogate_of_the_model_does_not_break_a_stored_session(tmp_path: Any) -> None:
    root = agent(say("half \ud83d"), say("two"))
    async with driven(root, session_service=SqliteSessionService(str(tmp_path / "adk.db"))) as desk:
        assert (await desk.stream("go")).reason == "completed"
        assert (await desk.stream("next")).texts == ["two"]


# -- thoughts, usage, media, structure --------------------------------------------------------------------------------


async def test_thoughts_and_their_signatures_are_kept_for_the_model() -> None:
    root = agent(think("hm", signature=b"sig") + call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        (message,) = [event for event in turn.of("message") if event.source == "agent" and not event.partial][:1]
        assert message.content[0].signature == base64.b64encode(b"sig").decode()
        parts = [part for content in root.model.requests[-1].contents for part in content.parts or []]  # type: ignore[union-attr]
        assert [part.thought_signature for part in parts if part.thought_signature] == [b"sig"]


async def test_r48_a_signature_on_a_call_survives_a_confirmation() -> None:
    from google.adk.models.llm_response import LlmResponse

    part = types.Part(function_call=types.FunctionCall(name="write", id="c1", args={}), thought_signature=b"sig")

    def write() -> str:
        return "written"

    root = agent(
        raw(LlmResponse(content=types.Content(role="model", parts=[part]))),
        say("done"),
        tools=[FunctionTool(write, require_confirmation=True)],
    )
    async with driven(root) as desk:
        assert (await desk.turn("go")).texts == ["done"]
        parts = [part for content in root.model.requests[-1].contents for part in content.parts or []]  # type: ignore[union-attr]
        assert [part.thought_signature for part in parts if part.function_call] == [b"sig"]


async def test_r21_usage_is_told_once_a_model_call_also_on_tool_turns() -> None:
    root = agent(call("look", id="c1").using(input=900, output=40), say("done").using(input=950, output=3))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert [(event.input_tokens, event.output_tokens) for event in turn.of("usage")] == [(900, 40), (950, 3)]


async def test_r21_usage_that_comes_alone_after_the_call_is_not_lost() -> None:
    asks = types.Part(function_call=types.FunctionCall(name="look", args={}, id="c1"))
    counts = types.GenerateContentResponseUsageMetadata(prompt_token_count=900, candidates_token_count=40)
    root = agent(
        raw(
            LlmResponse(content=types.Content(role="model", parts=[asks]), partial=False),
            LlmResponse(usage_metadata=counts),
        ),
        say("done"),
    )
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert turn.texts == ["done"]
        assert [(event.input_tokens, event.output_tokens) for event in turn.of("usage")] == [(900, 40)]


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_usage_of_an_empty_answer_is_told_once(streaming: bool) -> None:
    counts = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=0)
    root = agent(raw(LlmResponse(usage_metadata=counts, finish_reason=types.FinishReason.STOP)))
    async with driven(root) as desk:
        done = await desk.stream("go", ExecutionOptions(streaming=streaming))
        assert [event.input_tokens for event in done.events if isinstance(event, Usage)] == [7]


async def test_media_of_the_user_reaches_the_model() -> None:
    root = agent(say("a cat"))
    picture = base64.b64encode(b"\x89PNG").decode()
    async with driven(root) as desk:
        message = MessageInput(content=[Text(text="what is it?"), Media(data=picture, mime_type="image/png")])
        assert (await desk.stream(message)).texts == ["a cat"]
        parts = root.model.requests[-1].contents[-1].parts  # type: ignore[union-attr]
        assert parts is not None
        assert parts[1].inline_data is not None
        assert (parts[1].inline_data.data, parts[1].inline_data.mime_type) == (b"\x89PNG", "image/png")


async def test_an_output_schema_answers_by_text_without_tools() -> None:
    root = agent(say('{"x": 3}'), output_schema=Point)
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ['{"x": 3}'])


async def test_an_output_schema_beside_tools_is_a_control_call_that_nobody_is_asked_about() -> None:
    def write() -> str:
        return "written"

    root = agent(call("set_model_response", {"x": 3}, id="c1"), output_schema=Point, tools=[write])
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert turn.reason == "completed"
        assert [event.needs for event in turn.of("tool_request")] == ["none"]


async def test_streaming_off_gives_whole_messages() -> None:
    root = agent(stream("a", "b", "c"))
    async with driven(root, execution={"streaming": False}) as desk:
        turn = await desk.stream("go")
        assert [event.partial for event in turn.of("message")] == [False, False]
        assert turn.texts == ["abc"]


async def test_a_turn_without_an_answer_is_marked_empty() -> None:
    root = agent(call("look", id="c1"), say(""))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert turn.reason == "completed"
        assert turn.end.data == {"empty": True}


@pytest.mark.rule("LIFE-07")
async def test_a_host_tool_that_a_toolset_brings_too_is_not_offered_and_said_so() -> None:
    from google.adk.tools.base_toolset import BaseToolset

    ran: list[int] = []

    def look() -> str:
        ran.append(1)
        return "own"

    class Set(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [FunctionTool(look)]

        async def close(self) -> None:
            pass

    root = agent(call("look", id="c1"), say("done"), tools=[Set()])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert [problem.code for problem in first.of("error")] == ["tool-name"]
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.needs, request.owner, ran) == ("grant", "agent", [])
        assert model_calls(root) == 1


def test_under_trio_it_refuses_clearly() -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError) as refused:
            async with AdkExecutor(agent(say("x"))):
                pass
        assert refused.value.id == "asyncio-only"

    trio.run(main)
