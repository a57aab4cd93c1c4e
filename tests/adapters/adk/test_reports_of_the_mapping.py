"""Reports from the field about the mapping, with the input that set them off, through a real Runner.

The translator's own tests hold the same numbers event by event; here ADK makes the events.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.adapters.adk.driving import agent, driven, host_tool

from agentsession.adapters.adk import call, calls, raw, say, stream_call, think
from agentsession.protocol import ToolResponse, result

pytestmark = pytest.mark.anyio


@pytest.mark.rule("TOOL-01", "TOOL-10")
async def test_a_streamed_call_without_an_id_is_answered_by_the_id_that_was_seen_first() -> None:
    """R01: ADK invents an id for the partial event and another one for the whole."""
    root = agent(stream_call("look", {"q": ["x", "y"]}), say("found"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.stream("go")
        seen = [event.request_id for event in turn.of("tool_request")]
        assert len(set(seen)) == 1
        assert len(seen) >= 2

        done = await desk.stream(result(seen[0], "there"))

        assert (done.reason, done.texts) == ("completed", ["found"])


@pytest.mark.rule("TOOL-03")
async def test_an_id_that_a_model_gives_again_in_a_later_turn_is_a_new_request() -> None:
    """R26: one id, another tool, each with its own result."""
    root = agent(call("a", id="call_807"), say("1"), call("b", id="call_807"), say("2"))
    async with driven(root, tools=[host_tool("a"), host_tool("b")]) as desk:
        await desk.turn("one", {"a": "of a"})
        await desk.turn("two", {"b": "of b"})

        answers = [event for event in desk.session.record if isinstance(event, ToolResponse)]
        assert [(event.name, event.data) for event in answers] == [("a", "of a"), ("b", "of b")]
        assert len({event.request_id for event in answers}) == 2


async def test_the_files_of_two_tools_that_run_side_by_side_are_both_told() -> None:
    """R89: neither file hides the other, and a file saved again has its newest version."""

    async def save(name: str, tool_context: ToolContext) -> Any:
        """Save."""
        return await tool_context.save_artifact(name, types.Part(text=name))

    root = agent(
        calls(call("save", {"name": "a.txt"}), call("save", {"name": "b.txt"})),
        call("save", {"name": "a.txt"}),
        say("done"),
        tools=[save],
    )
    async with driven(root, artifact_service=InMemoryArtifactService()) as desk:
        turn = await desk.turn("go")

        told: dict[str, int] = {}
        for event in turn.of("custom"):
            assert event.kind == "artifact_delta"
            told |= event.data
        assert told == {"a.txt": 1, "b.txt": 0}


@pytest.mark.rule("LIFE-04")
async def test_all_events_of_two_parallel_calls_are_of_their_turn() -> None:
    """R92: ADK merges the results into one event of its own."""

    def read(path: str) -> str:
        """Read."""
        return path

    root = agent(calls(call("read", {"path": "a"}), call("read", {"path": "b"})), say("done"), tools=[read])
    async with driven(root) as desk:
        turn = await desk.turn("go")

        answers = turn.of("tool_response")
        assert [answer.data for answer in answers] == ["a", "b"]
        assert len({event.turn_id for event in turn.events}) == 1


async def test_reasoning_is_never_the_answer() -> None:
    """R15: beside the text of the last response, and alone in a response before it."""
    root = agent(think("I should look.") + call("look"), think("Easy.") + say("Paris."))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")

        assert turn.texts[-1] == "Paris."
        thoughts = [part.text for event in turn.of("message") for part in event.content if part.type == "thought"]
        assert thoughts == ["I should look.", "Easy."]


async def test_the_usage_of_a_response_that_is_only_a_call_is_told() -> None:
    """R21: nothing was said, and 940 tokens were spent."""
    root = agent(call("look").using(input=900, output=40), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")

        (usage,) = turn.of("usage")
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (900, 40, None)


async def test_an_empty_reply_with_stop_as_its_error_code_is_no_error() -> None:
    """R124."""
    async with driven(agent(raw(LlmResponse(error_code="STOP")))) as desk:
        turn = await desk.turn("go")

        assert turn.reason == "completed"
        assert turn.of("error") == []
        assert turn.end.data == {"empty": True}


async def test_a_malformed_call_is_an_error_that_says_so_and_runs_nothing() -> None:
    """R40: no content, no message; the counts stand."""
    used = types.GenerateContentResponseUsageMetadata(prompt_token_count=2595, total_token_count=2595)
    malformed = LlmResponse(error_code="MALFORMED_FUNCTION_CALL", usage_metadata=used)
    async with driven(agent(raw(malformed)), tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")

        (told,) = turn.of("error")
        assert (turn.reason, told.code) == ("failed", "MALFORMED_FUNCTION_CALL")
        assert [usage.input_tokens for usage in turn.of("usage")] == [2595]
        assert turn.of("tool_request") == []


@pytest.mark.rule("WIRE-01")
async def test_text_with_halves_of_characters_is_taken_and_stays_valid_utf_8() -> None:
    """R96: surrogateescape input of a person, NUL and marks from right to left."""
    root = agent(say("b\x00\u202eien"))
    async with driven(root) as desk:
        turn = await desk.turn("parce que c\udcc3\udcb4t")

        for event in desk.session.record:
            event.to_wire_json().encode("utf-8")
        assert turn.texts == ["b\x00\u202eien"]
