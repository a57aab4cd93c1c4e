"""What an App sets up reaches its sessions: compaction of old events, context caches, resumability."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps._configs import EventsCompactionConfig
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, texts
from tests.adapters.adk.services import session_service

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, Step, call, calls, say
from agentsession.protocol import (
    Custom,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    StreamEnd,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

LONG = "words " * 200
OPENED = OpenOptions(session_id="s", execution=ExecutionOptions(tools=[host_tool("look")]))


def compacting(root: Any, summaries: int = 9, **config: Any) -> App:
    model = ScriptedLlm(script=[say(f"sum{number}") for number in range(1, summaries + 1)])
    fields: dict[str, Any] = {"compaction_interval": 1, "overlap_size": 0, **config}
    compaction = EventsCompactionConfig(summarizer=LlmEventSummarizer(llm=model), **fields)
    return App(name="root", root_agent=root, events_compaction_config=compaction)


def compactions(desk: Driven) -> list[Custom]:
    return [event for event in desk.session.record if isinstance(event, Custom) and event.kind == "compaction"]


def read_texts(model: Any) -> list[str]:
    """What the last model call was shown, long texts by their first word."""
    return [text.split(" ")[0] for kind, text in history(model) if not kind.startswith(("call", "result"))]


async def test_a_compaction_is_told_and_the_model_reads_the_summary(service: BaseSessionService) -> None:
    root = agent(say(LONG), say("a2"), say("a3"))
    async with driven(compacting(root, 1), options=OPENED, session_service=service) as desk:
        done = await desk.stream(f"q1 {LONG}")
        (told,) = done.of("custom")
        assert (told.kind, told.source) == ("compaction", "ext:adk")
        assert told.data["content"] == [{"type": "text", "text": "sum1"}]
        assert told.data["start"] <= told.data["end"]
        await desk.stream("q2")
        assert read_texts(root.model) == ["sum1", "q2"]
        assert texts(desk.session.record)[1:] == ["a2"]


@pytest.mark.rule("TOOL-11")
@pytest.mark.parametrize("parked", [False, True])
async def test_r83_an_open_call_is_never_compacted_away(parked: bool, service: BaseSessionService) -> None:
    root = agent(say(LONG), call("look", id="c1"), say("seen"), say("a3"))
    async with driven(compacting(root), options=OPENED, session_service=service, parked=parked) as desk:
        await desk.stream(f"q1 {LONG}")
        await desk.stream(f"q2 {LONG}")
        assert len(compactions(desk)) == (2 if parked else 1)
        await desk.stream([result(desk.pending("look"), "there")])
        assert ("call c1", "look") in history(root.model)
        assert ("result c1", '{"result": "there"}') in history(root.model)
        assert_valid_history(root.model)
        await desk.stream("q3")
        assert_valid_history(root.model)


@pytest.mark.rule("TOOL-09")
async def test_r83_a_confirmation_that_is_left_open_over_many_turns_is_settled_and_its_answer_stale(
    service: BaseSessionService,
) -> None:
    ran: list[str] = []

    def write(tool_context: ToolContext) -> str:
        ran.append("x")
        return "wrote"

    root = agent(call("write", id="c1"), *(say(f"a{number} {LONG}") for number in range(12)), tools=[write])
    app = compacting(root, compaction_interval=2, overlap_size=1)
    async with driven(app, options=OPENED, session_service=service) as desk:
        await desk.stream("q")
        left = desk.pending("write")
        for number in range(12):
            assert (await desk.stream(f"q{number} {LONG}")).reason == "completed"
        assert compactions(desk)
        (receipt,) = await desk.session.respond(grant(left))
        assert receipt.status == "stale"
        assert ran == []
        assert_valid_history(root.model)


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("kind", ["sqlite", "database"])
async def test_r83_a_parked_call_is_answered_after_compaction_and_a_restart(kind: str, tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with session_service(kind, tmp_path) as service:
        app = compacting(agent(say(LONG), call("look", id="c1")))
        async with AdkExecutor(app, session_service=service, store=store, parked=True) as executor:
            desk = Driven(executor, await executor.open(OPENED))
            await desk.stream(f"q1 {LONG}")
            await desk.stream(f"q2 {LONG}")
            assert len(compactions(desk)) == 2
        root = agent(say("seen"))
        async with AdkExecutor(compacting(root), session_service=service, store=store, parked=True) as executor:
            desk = Driven(executor, await executor.load("s", OPENED))
            await desk.stream([result(desk.pending("look"), "there")])
            assert dict(history(root.model))["result c1"] == '{"result": "there"}'
            assert_valid_history(root.model)


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_summary_is_rewound_and_forked_with_the_turns_that_it_stands_for(service: BaseSessionService) -> None:
    root = agent(say("a1"), say(LONG), say("f2"), say("a3"), say("b2"))
    app = compacting(root, 1, compaction_interval=2)
    async with driven(app, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.stream("q1")
        assert compactions(desk) == []
        await desk.stream(f"q2 {LONG}")
        assert len(compactions(desk)) == 1
        first, second = [event.seq for event in desk.session.record if isinstance(event, StreamEnd)]
        copy = Driven(desk.executor, await desk.executor.fork("s", first, OpenOptions(session_id="f")))
        await copy.stream("g2")
        assert read_texts(root.model) == ["q1", "a1", "g2"]
        copy = Driven(desk.executor, await desk.executor.fork("s", second, OpenOptions(session_id="g")))
        await copy.stream("g3")
        assert read_texts(root.model) == ["sum1", "g3"]
        await desk.executor.rewind("s", first)
        await desk.stream("r2")
        assert read_texts(root.model) == ["q1", "a1", "r2"]


async def test_a_summary_that_fails_does_not_fail_the_turn() -> None:
    root = agent(say(LONG), say("a2"))
    async with driven(compacting(root, 0), options=OPENED) as desk:
        assert (await desk.stream(f"q1 {LONG}")).reason == "completed"
        assert compactions(desk) == []
        await desk.stream("q2")
        assert len(read_texts(root.model)) == 3


async def test_a_context_cache_config_reaches_the_model_calls() -> None:
    root = agent(say("a1"))
    config = ContextCacheConfig(cache_intervals=3, ttl_seconds=60, min_tokens=0)
    app = App(name="root", root_agent=root, context_cache_config=config)
    async with driven(app) as desk:
        await desk.stream("q1")
        assert isinstance(root.model, ScriptedLlm)
        assert root.model.requests[0].cache_config == config
    assert app.plugins == []


@pytest.mark.parametrize("parked", [False, True])
async def test_a_resumable_app_pauses_and_goes_on(parked: bool, service: BaseSessionService) -> None:
    script: Sequence[Step] = (calls(call("look", id="c1"), call("look", id="c2")), say("seen"), say("next"))
    root = agent(*script)
    app = App(name="root", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=True))
    async with driven(app, options=OPENED, session_service=service, parked=parked, store=MemoryRecordStore()) as desk:
        await desk.stream("q1")
        assert len(desk.session.pending) == 2
        done = await desk.stream([result(item.request_id, "there") for item in desk.session.pending])
        assert (done.reason, done.texts) == ("completed", ["seen"])
        point = desk.session.last_seq
        await desk.turn("q2")
        assert_valid_history(root.model)
        await desk.executor.rewind("s", point)
        copy = await desk.executor.fork("s", 1, OpenOptions(session_id="f"))
        assert copy.state in ("new", "idle")
