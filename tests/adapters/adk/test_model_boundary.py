"""One agent, three models: played by the host, replayed from what was recorded then, and served to ADK's own Gemini.

What the session's record says is the same in all three.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.tools.agent_tool import AgentTool
from google.genai import Client, types
from tests.adapters.adk.driving import driven, host_tool

from agentsession.adapters.adk import (
    MODEL_CALL,
    GeminiLoopback,
    HostLlm,
    LoopbackPlayback,
    RecordingLlm,
    ReplayLlm,
    load_recording,
)
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Answer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    StreamEnd,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

USAGE = {"promptTokenCount": 90, "candidatesTokenCount": 12, "thoughtsTokenCount": 3, "totalTokenCount": 105}


def said(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, **fields}],
        "modelVersion": "gemini-2.5-flash-001",
    }


def called(name: str, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}}


PLAYED: list[Any] = [
    # a thought with a signature, text, and two calls at once: the host's tool and the agent's own
    [
        said({"text": "I must look ", "thought": True}),
        said({"text": "and add.", "thought": True, "thoughtSignature": "+/+/"}),
        said({"text": "One moment."}, called("look", file_name="a.txt"), called("add", a=1, b=2)),
        {**said(finishReason="STOP"), "usageMetadata": USAGE},
    ],
    {"text": "Let me ask.", "calls": [{"name": "expert", "args": {"request": "why?"}}]},
    "Because.",  # the expert, the child of an AgentTool
    {"calls": [{"name": "add", "args": {"a": 5, "b": 5}}]},  # which the host denies
    [said({"text": "It is "}), {**said({"text": "3."}, finishReason="STOP"), "usageMetadata": USAGE}],
    {"candidates": [{"finishReason": "SAFETY"}], "usageMetadata": USAGE},
    [said({"text": "Wai"}), {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}],
    {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}},
]
"""What the host plays, call by call: four turns."""

MESSAGES = ["start", "is it safe?", "and now?", "once more"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def tree(model: BaseLlm) -> LlmAgent:
    expert = LlmAgent(name="expert", model=model, description="Knows why.", instruction="You know.")
    config = types.GenerateContentConfig(temperature=0.5, max_output_tokens=100)
    return LlmAgent(
        name="root",
        model=model,
        instruction="Be exact.",
        tools=[add, AgentTool(expert)],
        generate_content_config=config,
    )


async def session(model: BaseLlm, plays: list[Any] | None = None) -> list[Event]:
    """All events of four turns; ``plays`` are the answers to the model's calls, where the host is asked."""
    left = list(plays or ())

    def reply(item: ToolRequest | ElicitationRequest) -> Answer:
        if isinstance(item, ElicitationRequest):
            return accept(item.request_id, left.pop(0)) if item.kind == MODEL_CALL else decline(item.request_id)
        if item.name == "look":
            return result(item.request_id, {"text": "größer", "lines": [1, None]})
        return deny(item.request_id, "too large") if (item.args or {}).get("a") == 5 else grant(item.request_id)

    events: list[Event] = []
    async with driven(tree(model), tools=[host_tool("look")]) as desk:
        for message in MESSAGES:
            events += (await desk.turn(message, reply)).events
    assert left == []
    return events


def comparable(events: list[Event]) -> list[dict[str, Any]]:
    """The events without times, with ids by the order in which they come, and without the questions to the model's
    player and the pauses, which only the played run has at the model's calls."""
    asked = {event.request_id for event in events if isinstance(event, ElicitationRequest) and event.kind == MODEL_CALL}
    numbers: dict[str, dict[str, int]] = {}
    out: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, (ElicitationRequest, ElicitationResponse)) and event.request_id in asked:
            continue
        if isinstance(event, (AgentEnd, StreamEnd)) and event.reason == "input_required":
            continue
        if isinstance(event, AgentStart) and event.resumed:
            continue
        out.append(_numbered(event.to_wire(), numbers))
    return out


_IDS = ("messageId", "requestId", "toolRequestId", "turnId", "invocationId", "eventId", "callId")
_GONE = ("id", "seq", "timestamp", "sessionId", "streamId")


def _numbered(value: Any, numbers: dict[str, dict[str, int]]) -> Any:
    if isinstance(value, list):
        return [_numbered(item, numbers) for item in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in _IDS and isinstance(item, str):
            known = numbers.setdefault("requestId" if key == "toolRequestId" else key, {})
            out[key] = known.setdefault(item, len(known))
        elif key not in _GONE:
            out[key] = _numbered(item, numbers)
    return out


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Gemini, LoopbackPlayback, GeminiLoopback]]:
    """ADK's own Gemini, whose API is the recording in ``path``."""
    replies = await LoopbackPlayback.of(load_recording(path))
    with GeminiLoopback(replies) as server:
        client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        yield Gemini(model="gemini-2.5-flash", client=client), replies, server
        await client.aio.aclose()
        client.close()


async def test_a_played_a_replayed_and_a_served_run_have_the_same_record(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    played = comparable(await session(RecordingLlm(llm=HostLlm(), path=path), PLAYED))

    replay = ReplayLlm.of(path)
    replayed = comparable(await session(replay))
    async with served(path) as (gemini, replies, server):
        real = comparable(await session(gemini))

    assert replayed == played
    assert real == played
    assert (replay.calls_left, replies.playback.left, replies.problems) == (0, (), [])
    assert len(server.requests) == len(PLAYED)
    signed = [part for part in server.requests[1].body["contents"][1]["parts"] if "thoughtSignature" in part]
    assert [part["thoughtSignature"] for part in signed] == ["-_-_"]  # R48: what the provider signed goes back to it
    kinds = [event["type"] for event in played]
    assert kinds.count("tool_response") == 4
    assert [event["reason"] for event in played if event["type"] == "stream_end"] == [
        "completed",
        "refusal",
        "failed",
        "failed",
    ]
    assert [event["code"] for event in played if event["type"] == "error"] == ["SAFETY", "503", "429"]
    assert kinds.count("usage") == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # ADK's own loop agent
async def test_a_loop_asks_all_three_the_same_although_its_contents_end_with_the_model_s(tmp_path: Path) -> None:
    def looped(model: BaseLlm) -> LoopAgent:
        inner = LlmAgent(name="inner", model=model, instruction="Go on.")
        return LoopAgent(name="root", sub_agents=[inner], max_iterations=3)

    async def said_by(model: BaseLlm) -> list[str]:
        def reply(item: ToolRequest | ElicitationRequest) -> Answer:
            assert isinstance(item, ElicitationRequest)
            assert isinstance(item.context, dict)
            assert item.context["contents"][-1]["role"] == "user"
            return accept(item.request_id, f"step {len(item.context['contents'])}")

        async with driven(looped(model)) as desk:
            return (await desk.turn("go", reply)).texts

    path = tmp_path / "run.ndjson"
    played = await said_by(RecordingLlm(llm=HostLlm(), path=path))
    replayed = await said_by(ReplayLlm.of(path))
    async with served(path) as (gemini, replies, _):
        real = await said_by(gemini)

    assert len(set(played)) == 3
    assert replayed == played
    assert (real, replies.problems) == (played, [])


async def test_a_host_may_answer_from_a_recording(tmp_path: Path) -> None:
    """The question holds what a recording is looked up by, so a host needs no replaying model."""
    from agentsession.adapters.adk import Playback

    path = tmp_path / "run.ndjson"
    played = comparable(await session(RecordingLlm(llm=HostLlm(), path=path), PLAYED))
    playback = Playback(load_recording(path))

    def reply(item: ToolRequest | ElicitationRequest) -> Answer:
        if isinstance(item, ElicitationRequest):
            assert isinstance(item.context, dict)
            return accept(item.request_id, list(playback.take(item.context).responses))
        if item.name == "look":
            return result(item.request_id, {"text": "größer", "lines": [1, None]})
        return deny(item.request_id, "too large") if (item.args or {}).get("a") == 5 else grant(item.request_id)

    events: list[Event] = []
    async with driven(tree(HostLlm()), tools=[host_tool("look")]) as desk:
        for message in MESSAGES:
            events += (await desk.turn(message, reply)).events

    assert comparable(events) == played
    assert playback.left == ()
