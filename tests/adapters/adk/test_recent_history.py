"""Long sessions: a run is handed recent events only, and neither the model nor anybody else can tell."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.telemetry import _experimental_semconv
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from hypothesis import given, settings
from pydantic import PrivateAttr
from tests.adapters.adk.driving import Driven, agent, driven, history, host_tool
from tests.adapters.adk.histories import histories, model_event, user_event
from tests.tracing import record_nothing, traced

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say, think
from agentsession.adapters.adk._sessions import AUTO_WINDOW, RecentHistory
from agentsession.protocol import ConfigurationError, MemoryRecordStore, OpenOptions

pytestmark = pytest.mark.anyio

LONG = 5 * AUTO_WINDOW


def memory() -> InMemorySessionService:
    return InMemorySessionService()  # type: ignore[no-untyped-call,unused-ignore]


def small_talk(count: int, start: int = 0) -> list[AdkEvent]:
    """Turns of one question and one answer, ``count`` events."""
    out = []
    for at in range(start, start + count):
        text = types.Part(text=f"text {at}")
        make = user_event if at % 2 == 0 else lambda where, *parts: model_event("root", where, *parts)
        out.append(make(f"inv{at // 2}", text))
    return out


async def put(desk: Driven, events: Sequence[AdkEvent], service: BaseSessionService | None = None) -> None:
    """Let ADK's session have these events, as if they had happened there."""
    service = service or desk.executor.session_service
    name = desk.executor._runner.app_name
    found = await service.get_session(app_name=name, user_id=desk.session.user_id, session_id=desk.session.session_id)
    assert found is not None
    for event in events:
        if event.timestamp < found.last_update_time:
            event.timestamp = found.last_update_time + 1e-3
        await service.append_event(session=found, event=event)


async def recent(desk: Driven) -> list[AdkEvent]:
    """What the next run would find in ``session.events``."""
    found = await desk.executor._tapped.get_session(
        app_name=desk.executor._runner.app_name,
        user_id=desk.session.user_id,
        session_id=desk.session.session_id,
        config=RecentHistory(),
    )
    assert found is not None
    return found.events


def shown(model: Any) -> list[list[dict[str, Any]]]:
    """The contents of each request."""
    return [[content.model_dump(exclude_none=True) for content in request.contents] for request in model.requests]


def script() -> list[Any]:
    return [
        calls(call("look", {"n": 1}, id="one"), call("look", {"n": 2}, id="two")),
        think("hm", signature=b"s") + say("seen"),
        call("ask_host", {"q": 1}, id="three"),
        say("done"),
        call("transfer_to_agent", {"agent_name": "helper"}, id="four"),
        say("again"),
        say("and again"),
    ]


def tree() -> LlmAgent:
    def look(n: int) -> dict[str, int]:
        """Look."""
        return {"n": n}

    helper = LlmAgent(name="helper", model=ScriptedLlm(script=[say("helping"), say("still here")], forever=say("h")))
    return LlmAgent(name="root", model=ScriptedLlm(script=script()), tools=[look], sub_agents=[helper])


async def _shown_after(events: Sequence[AdkEvent], window: int | None, service: BaseSessionService) -> list[Any]:
    root = tree()
    out: list[Any] = []
    async with driven(root, tools=[host_tool("ask_host")], history_window=window, session_service=service) as desk:
        copies = [event.model_copy(deep=True) for event in events]
        await put(desk, copies)
        for number in range(5):
            done = await desk.turn(f"turn {number}")
            out.append(done.reason)
        out += [shown(root.model), shown(root.sub_agents[0].model)]  # type: ignore[attr-defined]
    return out


@settings(max_examples=20)
@given(events=histories(turns=6))
def test_the_models_are_shown_the_same_with_a_window_as_without(events: list[AdkEvent]) -> None:
    async def both() -> None:
        whole = await _shown_after(events, None, memory())
        assert await _shown_after(events, 2, memory()) == whole

    anyio.run(both)


@settings(max_examples=8)
@given(events=histories(turns=5))
def test_the_models_are_shown_the_same_where_sqlite_keeps_the_history(
    tmp_path_factory: pytest.TempPathFactory, events: list[AdkEvent]
) -> None:
    async def both() -> None:
        whole = await _shown_after(events, None, memory())
        service = SqliteSessionService(str(tmp_path_factory.mktemp("adk") / "sessions.db"))
        assert await _shown_after(events, 2, service) == whole
        await service.close()

    anyio.run(both)


async def test_by_default_a_run_of_a_plain_agent_finds_recent_events_only() -> None:
    root = _with()
    async with driven(root) as desk:
        await put(desk, small_talk(LONG))
        for number in range(AUTO_WINDOW):
            assert (await desk.turn(f"turn {number}")).reason == "completed"
            assert AUTO_WINDOW <= len(await recent(desk)) <= 2 * AUTO_WINDOW
    assert len(root.model.requests[-1].contents) == LONG + 2 * AUTO_WINDOW - 1  # type: ignore[union-attr]


async def test_a_service_is_asked_for_the_last_event_only_once_the_history_is_known(tmp_path: Path) -> None:
    asked: list[GetSessionConfig | None] = []

    class Counting(SqliteSessionService):
        async def get_session(self, *, config: GetSessionConfig | None = None, **where: Any) -> Session | None:
            asked.append(config)
            return await super().get_session(config=config, **where)

    service = Counting(str(tmp_path / "sessions.db"))
    root = _with()
    async with driven(root, session_service=service, history_window=8) as desk:
        await put(desk, small_talk(40))
        await desk.turn("first")
        asked.clear()
        for _ in range(3):
            await desk.turn("and")
    assert [config.num_recent_events if config else None for config in asked] == [1, 1, 1]
    await service.close()


def _with(**fields: Any) -> LlmAgent:
    return LlmAgent(name="root", model=ScriptedLlm(forever=say("ok")), **fields)


def _callback(callback_context: CallbackContext) -> None:
    del callback_context


def _tool(n: int, tool_context: ToolContext) -> int:
    """A tool that can see the session."""
    return n


def _other(n: int, context: ToolContext) -> int:
    """A tool that can see it under another name."""
    return n


@pytest.mark.parametrize(
    "root",
    [
        _with(before_agent_callback=_callback),
        _with(after_agent_callback=[_callback]),
        _with(before_model_callback=lambda callback_context, llm_request: None),
        _with(tools=[_tool]),
        _with(tools=[_other]),
        _with(instruction=lambda context: "made"),
        _with(sub_agents=[LlmAgent(name="helper", model=ScriptedLlm(), tools=[_tool])]),
        _with(static_instruction="fixed"),
        _with(mode="task"),
        App(name="root", root_agent=_with(), plugins=[BasePlugin(name="mine")]),
        App(
            name="root",
            root_agent=_with(),
            events_compaction_config=EventsCompactionConfig(compaction_interval=50, overlap_size=1),
        ),
    ],
    ids=lambda root: getattr(root, "name", "app"),
)
async def test_a_run_finds_everything_where_somebody_could_tell(root: Any) -> None:
    async with driven(root) as desk:
        await put(desk, small_talk(LONG))
        assert len(await recent(desk)) == LONG


async def test_a_number_gives_authors_code_that_many_and_the_model_everything() -> None:
    seen: list[int] = []
    in_request: list[int] = []

    def look_back(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        seen.append(len(callback_context.session.events))
        in_request.append(len(llm_request.contents))

    root = _with(before_model_callback=look_back)
    async with driven(root, history_window=5) as desk:
        await put(desk, small_talk(60))
        await desk.turn("go")
    assert seen == [7]  # a turn more than five events, and what was said now
    assert in_request == [61]


async def test_what_a_callback_changes_in_place_changes_nothing_for_the_next_turn() -> None:
    def spoil(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        for event in callback_context.session.events[:-1]:
            event.content = None
        for content in llm_request.contents[:-1]:
            assert content.parts
            content.parts[0].text = "spoilt"

    root = _with(before_model_callback=spoil)
    async with driven(root, history_window=5) as desk:
        await put(desk, small_talk(30))
        await desk.turn("first")
        root.before_model_callback = None
        await desk.turn("second")
    assert [text for _, text in history(root.model)] == [*(f"text {n}" for n in range(30)), "first", "ok", "second"]


class _Spoiling(BaseLlm):
    """A model of somebody's own that writes into the request it is given."""

    model: str = "spoiling"
    _shown: list[list[str]] = PrivateAttr(default_factory=list[list[str]])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._shown.append([(content.parts or [types.Part()])[0].text or "" for content in llm_request.contents])
        for content in llm_request.contents:
            assert content.parts
            content.parts[0].text = "spoilt"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="ok")]))


async def test_a_model_that_changes_its_request_in_place_changes_nothing_for_the_next_call() -> None:
    model = _Spoiling()
    async with driven(LlmAgent(name="root", model=model)) as desk:
        await put(desk, small_talk(LONG))
        await desk.turn("first")
        await desk.turn("second")
        assert len(await recent(desk)) < LONG
    assert model._shown[1] == [*(f"text {n}" for n in range(LONG)), "first", "ok", "second"]


async def test_events_that_somebody_else_appended_are_shown_too() -> None:
    root = _with()
    async with driven(root) as desk:
        await put(desk, small_talk(LONG))
        await desk.turn("first")
        await put(desk, small_talk(2, start=LONG + 10))
        await desk.turn("second")
    assert [text for _, text in history(root.model)][-5:] == [
        "first",
        "ok",
        f"text {LONG + 10}",
        f"text {LONG + 11}",
        "second",
    ]


@pytest.mark.parametrize("key", ["user:colour", "app:colour", "colour"])
async def test_state_that_another_session_changed_is_found_by_the_next_turn(key: str) -> None:
    root = _with(instruction="Paint it {" + key + "}.")
    service = memory()
    async with driven(root, session_service=service, execution={"state": {key: "red"}}) as desk:
        await put(desk, small_talk(LONG))
        await desk.turn("first")
        change = AdkEvent(author="user", invocation_id="x", actions=EventActions(state_delta={key: "blue"}))
        if key == "colour":
            await put(desk, [change])
        else:
            other = await service.create_session(app_name="root", user_id=desk.session.user_id)
            await service.append_event(session=other, event=change)
        await desk.turn("second")
    asked = [str(request.config.system_instruction) for request in root.model.requests]  # type: ignore[union-attr]
    assert ["red" in asked[0], "blue" in asked[1]] == [True, True]


async def test_a_rewind_deep_into_a_long_session_takes_back_what_it_says() -> None:
    root = _with()
    async with driven(root) as desk:
        marks = []
        for number in range(2 * AUTO_WINDOW):
            await desk.turn(f"turn {number}")
            marks.append(desk.session.record[-1].seq)
        assert len(await recent(desk)) <= 2 * AUTO_WINDOW
        await desk.executor.rewind(desk.session.session_id, marks[3])
        await desk.turn("anew")
    assert [text for _, text in history(root.model) if text != "ok"] == [*(f"turn {n}" for n in range(4)), "anew"]


async def test_an_answer_to_an_old_call_brings_its_turn_back_into_the_window() -> None:
    """A tool of the agent appends to ADK's session while it runs, and to something that is far back."""
    root = _with()
    async with driven(root, history_window=2) as desk:
        await put(desk, small_talk(20))
        window = await desk.executor._tapped.get_session(
            app_name="root",
            user_id=desk.session.user_id,
            session_id=desk.session.session_id,
            config=RecentHistory(),
        )
        assert window is not None
        assert [event.invocation_id for event in window.events] == ["inv9", "inv9"]
        await desk.executor._tapped.append_event(window, model_event("root", "inv4", types.Part(text="late")))
        assert [event.invocation_id for event in window.events[:2]] == ["inv4", "inv4"]
        await desk.turn("go")
    assert [text for _, text in history(root.model)] == [*(f"text {n}" for n in range(20)), "late", "go"]


@pytest.mark.parametrize("parked", [False, True])
async def test_a_host_tool_waits_and_is_answered_in_a_long_session(parked: bool, tmp_path: Path) -> None:
    service = SqliteSessionService(str(tmp_path / "sessions.db"))
    root = agent(call("ask_host", {"q": 1}, id="c1"), say("done"))
    async with driven(root, tools=[host_tool("ask_host")], parked=parked, session_service=service) as desk:
        await put(desk, small_talk(LONG))
        done = await desk.turn("go", {"ask_host": {"it": "is"}})
        assert done.texts == ["done"]
        assert len(await recent(desk)) <= 2 * AUTO_WINDOW
    assert history(root.model)[-3:] == [("user", "go"), ("call c1", "ask_host"), ("result c1", '{"it": "is"}')]
    assert len(history(root.model)) == LONG + 3
    await service.close()


async def test_the_window_goes_with_the_database_service_too(tmp_path: Path) -> None:
    """It marks each session with its revision, and refuses to append to one that is stale."""
    service = DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}")
    root = agent(call("ask_host", {"q": 1}, id="c1"), say("done"), say("done again"))
    async with driven(root, tools=[host_tool("ask_host")], session_service=service) as desk:
        await put(desk, small_talk(LONG))
        assert (await desk.turn("go")).texts == ["done"]
        assert (await desk.turn("and")).texts == ["done again"]
        assert len(await recent(desk)) <= 2 * AUTO_WINDOW
    assert len(history(root.model)) == LONG + 5
    await service.close()


async def test_a_call_that_was_left_open_far_back_is_sealed_before_the_next_turn() -> None:
    root = _with()
    async with driven(root) as desk:
        left = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={}))
        await put(desk, [*small_talk(2), user_event("x", types.Part(text="look")), model_event("root", "x", left)])
        await put(desk, small_talk(LONG, start=10))
        assert len(await recent(desk)) >= LONG  # nothing is cut behind a call that waits
        desk.executor._states[desk.session.user_id, desk.session.session_id].needs_sealing = True
        await desk.turn("go")
    assert [name for name, _ in history(root.model)].index("result c1") == 4


async def test_a_closed_or_deleted_session_leaves_nothing_in_the_executor() -> None:
    async with AdkExecutor(_with(), store=MemoryRecordStore()) as executor:
        session = await executor.open(OpenOptions())
        desk = Driven(executor, session)
        await put(desk, small_talk(LONG))
        await desk.turn("go")
        assert executor._tapped._histories
        await session.aclose()
        assert not executor._tapped._histories
        await executor.delete(session.session_id)
        assert not await executor.session_service.get_session(
            app_name="root", user_id=session.user_id, session_id=session.session_id
        )


@pytest.mark.parametrize("records", [False, True])
async def test_spans_that_are_recorded_describe_the_whole_history(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADK describes all contents before each call; where nobody records spans it is not asked to."""
    described: list[int] = []
    describe = _experimental_semconv._to_input_messages

    def counting(contents: Sequence[types.Content]) -> Any:
        made = describe(contents)
        described.append(len(made))
        return made

    monkeypatch.setattr(_experimental_semconv, "_to_input_messages", counting)
    root = _with()
    if not records:
        record_nothing(monkeypatch)
    with traced() if records else nullcontext():
        async with driven(root) as desk:
            await put(desk, small_talk(LONG))
            await desk.turn("go")
    assert described == ([LONG + 1] if records else [])
    assert len(history(root.model)) == LONG + 1


@pytest.mark.parametrize("window", [0, -1, "all", 1.5, True])
def test_a_window_that_is_no_number_of_events_is_refused(window: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        AdkExecutor(_with(), history_window=window)
    assert raised.value.id == "history-window"


async def test_a_session_is_opened_loaded_and_used_by_its_id_without_listing_others() -> None:
    """R118: a user with many sessions waits no longer for a new one."""

    class Unlisted(InMemorySessionService):
        async def list_sessions(self, **where: Any) -> Any:
            raise AssertionError(f"listed {where}")

    class UnlistedRecords(MemoryRecordStore):
        async def list(self, *where: Any, **more: Any) -> Any:
            raise AssertionError(f"listed {where} {more}")

    service = Unlisted()  # type: ignore[no-untyped-call,unused-ignore]
    async with AdkExecutor(_with(), session_service=service, store=UnlistedRecords()) as executor:
        session = await executor.open()
        assert (await Driven(executor, session).turn("one")).texts == ["ok"]
        await session.aclose()
        again = await executor.load(session.session_id)
        assert (await Driven(executor, again).turn("two")).texts == ["ok"]
        await again.aclose()


async def test_the_last_events_of_a_long_record_are_read_without_reading_the_others() -> None:
    """R116: the record is read once, by the load; a tail of it is found by its number."""
    reads: list[Any] = []

    class Counting(MemoryRecordStore):
        async def read(self, *where: Any, **more: Any) -> Any:
            reads.append((where, more))
            return await super().read(*where, **more)

    async with AdkExecutor(_with(), store=Counting()) as executor:
        session = await executor.open()
        desk = Driven(executor, session)
        for number in range(20):
            await desk.turn(f"turn {number}")
        await session.aclose()
        again = await executor.load(session.session_id)
        reads.clear()
        wanted = again.record[-5:]
        assert [event.id async for event in again.events(after=again.record[-6].seq)] == [item.id for item in wanted]
        assert reads == []
        await again.aclose()
