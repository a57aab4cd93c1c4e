"""Reports from the field about state, files and stored sessions, each with the input that set it off."""

from __future__ import annotations

import asyncio
import datetime
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps.app import App
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    host_tool,
    model_calls,
)

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    Error,
    ExecutionOptions,
    OpenOptions,
    SessionBusy,
    SessionUpdate,
    accept,
    grant,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own pipelines
]

OPTIONS = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look"), host_tool("find")]))


class Report(BaseModel):
    title: str = "t"


@pytest.mark.rule("WIRE-01")
async def test_r31_state_and_results_that_are_no_json_are_dumped_or_named_and_end_nothing(tmp_path: Path) -> None:
    """R31: the run died when its event was stored."""

    def odd(tool_context: ToolContext) -> dict[str, Any]:
        """Odd."""
        tool_context.state["m"] = Report()
        tool_context.state["s"] = {1, 2}
        tool_context.state["f"] = lambda: 0
        return {"when": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), "tags": set[str](), "n": math.nan}

    root = agent(call("odd", id="c1"), say("done"), say("next"), tools=[odd])
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    async with (
        SqliteRecordStore(tmp_path / "record.db") as store,
        AdkExecutor(root, session_service=service, store=store) as executor,
    ):
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        turn = await desk.stream(grant(desk.pending("odd")))
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        (response,) = turn.of("tool_response")
        assert response.data == {"when": "2026-01-31T00:00:00+00:00", "tags": [], "n": "NaN"}
        (delta,) = [event.state_delta for event in turn.events if isinstance(event, SessionUpdate)]
        assert delta == {"m": {"title": "t"}, "s": [1, 2], "f": {"$unserializable": "function"}}
        (told,) = [event.message for event in turn.events if isinstance(event, Error)]
        assert "'f'" in told
        await desk.session.aclose()
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        assert (await desk.stream("and now?")).texts == ["next"]


def write(text: str) -> str:
    """Write."""
    return text


def delete(path: str) -> str:
    """Delete."""
    return path


@pytest.mark.rule("PER-01")
async def test_r54_what_waits_for_approval_is_listed_as_it_was_by_another_process(tmp_path: Path) -> None:
    """R54: after the page was loaded anew there was nothing to approve."""
    tools: list[Any] = [write, FunctionTool(delete, require_confirmation=True), request_input]
    step = calls(
        call("write", {"text": "x"}, id="c1"),
        call("delete", {"path": "y"}, id="c2"),
        call("adk_request_input", {"message": "Where?"}, id="c3"),
        call("look", {"n": 1}, id="c4"),
    )
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    async with SqliteRecordStore(tmp_path / "record.db") as store:
        async with AdkExecutor(agent(step, tools=tools), session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.open(OPTIONS))
            await desk.stream("go")
            listed = [item.to_wire() for item in desk.session.pending]
            assert len(listed) == 4
        for _ in range(2):
            async with AdkExecutor(agent(tools=tools), session_service=service, store=store) as executor:
                session = await executor.load("s1", OPTIONS)
                assert [item.to_wire() for item in session.pending] == listed


def contents(path: Path) -> dict[str, list[Any]]:
    """All rows of a database but those that say who has it open."""
    database = sqlite3.connect(path)
    try:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names if "lock" not in name}
    finally:
        database.close()


@pytest.mark.rule("PER-01", "PER-02")
@pytest.mark.parametrize("waits", [False, True])
async def test_r77_loading_a_session_again_and_again_at_once_destroys_nothing(waits: bool, tmp_path: Path) -> None:
    """R77: a session that was loaded within the minute in which it was made was written over by an empty one."""
    files = (tmp_path / "record.db", tmp_path / "adk.db")
    service = SqliteSessionService(str(files[1]))

    def executor(store: SqliteRecordStore) -> AdkExecutor:
        return AdkExecutor(agent(say("again"), tools=[write]), session_service=service, store=store)

    async with SqliteRecordStore(files[0]) as store, SqliteRecordStore(files[0]) as other_store:
        root = agent(call("write", {"text": "x"}, id="c1"), tools=[write]) if waits else agent(say("hi"))
        async with AdkExecutor(root, session_service=service, store=store) as first, executor(other_store) as other:
            session = await first.open(OPTIONS)
            await Driven(first, session).stream("go")
            before = [contents(path) for path in files]
            assert before[0]["agentsession_events"]
            assert before[1]["events"]
            with pytest.raises(SessionBusy):  # while it is open
                await other.load("s1", OPTIONS)
            assert [contents(path) for path in files] == before
            await session.aclose()
            for _ in range(2):
                await (await other.load("s1", OPTIONS)).aclose()
        after = [contents(path) for path in files]
        for old, new in zip(before, after, strict=True):
            for name in old:
                if name != "agentsession_records":  # whose reserved seq rises, so that none is used twice
                    assert new[name] == old[name], name
        async with executor(store) as last:
            desk = Driven(last, await last.load("s1", OPTIONS))
            assert len(desk.session.pending) == int(waits)
            assert (await desk.stream("and now?")).texts == ["again"]


@pytest.mark.rule("TOOL-09", "PER-01")
@pytest.mark.parametrize("confirms", [False, True])
async def test_r83_a_confirmation_that_is_left_open_over_twelve_turns_is_stale_and_runs_nothing(
    confirms: bool,
) -> None:
    """R83: the call that waited was compacted away, and a late answer broke the run."""
    from google.adk.apps.app import EventsCompactionConfig
    from google.adk.apps.llm_event_summarizer import LlmEventSummarizer

    ran: list[str] = []

    def work() -> str:
        """Work."""
        ran.append("x")
        return "done"

    root = agent(call("work", id="c1"), tools=[FunctionTool(work, require_confirmation=confirms)])
    root.model.forever = say("ok")  # type: ignore[union-attr]
    summariser = LlmEventSummarizer(llm=agent().model)  # type: ignore[arg-type]  # an agent's model may be a name
    summariser._llm.forever = say("a summary")  # type: ignore[attr-defined]
    app = App(
        name="root",
        root_agent=root,
        events_compaction_config=EventsCompactionConfig(compaction_interval=10, overlap_size=1, summarizer=summariser),
    )
    async with driven(app, options=OPTIONS) as desk:
        await desk.stream("go")
        (left,) = desk.session.pending
        for number in range(12):
            assert (await desk.stream(f"q{number}")).reason == "completed"
        assert [event for event in desk.session.record if getattr(event, "kind", "") == "compaction"]
        (receipt,) = await desk.session.respond((accept if confirms else grant)(left.request_id))
        assert (receipt.status, ran) == ("stale", [])
        assert_valid_history(root.model)


def adding(order: list[str]) -> Callable[..., Any]:
    """A tool that sets a list of its one item; the calls finish in ``order``."""
    turns = {item: asyncio.Event() for item in order}
    turns[order[0]].set()

    async def add_item(item: str, tool_context: ToolContext) -> str:
        """Add."""
        await turns[item].wait()
        tool_context.state["items"] = [item]
        tool_context.state["by_item"] = {item: 1}
        following = order[order.index(item) + 1 :]
        if following:
            turns[following[0]].set()
        return "ok"

    return add_item


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
async def test_r88_of_two_values_for_one_key_one_is_kept_and_the_conflict_is_told(order: list[str]) -> None:
    """R88: two parallel calls each set a list of one item, and one item was gone without a word."""
    step = calls(call("add_item", {"item": "a"}), call("add_item", {"item": "b"}))
    root = agent(step, say("done"), tools=[adding(order)])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        stored = await desk.executor.session_service.get_session(
            app_name="root", user_id=desk.session.user_id, session_id=desk.session.session_id
        )
        assert stored is not None
        assert desk.session.state_values == stored.state
        assert stored.state["items"] in (["a"], ["b"])
        assert stored.state["by_item"] == {"a": 1, "b": 1}
        (told,) = turn.of("error")
        assert (told.code, told.fatal, "'items'" in told.message) == ("state-conflict", False, True)
        assert (turn.reason, turn.texts) == ("completed", ["done"])


async def test_r88_a_call_that_builds_on_what_another_has_set_is_no_conflict() -> None:
    def add(item: str, tool_context: ToolContext) -> str:
        """Add."""
        tool_context.state["items"] = [*tool_context.state.get("items", []), item]
        tool_context.state["last"] = "same"
        return "ok"

    root = agent(calls(call("add", {"item": "a"}), call("add", {"item": "b"})), say("done"), tools=[add])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        assert turn.of("error") == []
        assert desk.session.state_values["items"] == ["a", "b"]
    assert model_calls(root) == 2


@pytest.mark.parametrize("order", [["x", "y", "z"], ["z", "x", "y"], ["y", "z", "x"]])
async def test_r89_of_one_file_that_parallel_calls_save_the_newest_version_is_told(order: list[str]) -> None:
    """R89: versions one, three and two of a file, and the second hid the third."""
    turns = {name: asyncio.Event() for name in order}
    turns[order[0]].set()

    async def save(name: str, tool_context: ToolContext) -> int:
        """Save."""
        await turns[name].wait()
        version = await tool_context.save_artifact("a.txt", types.Part(text=name))
        await tool_context.save_artifact(f"{name}.txt", types.Part(text=name))
        following = order[order.index(name) + 1 :]
        if following:
            turns[following[0]].set()
        return version

    step = calls(*(call("save", {"name": name}) for name in ("x", "y", "z")))
    files = InMemoryArtifactService()
    root = agent(step, say("done"), tools=[save])
    async with driven(root, artifact_service=files, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        (told,) = turn.of("custom")
        assert told.data == {"a.txt": 2, "x.txt": 0, "y.txt": 0, "z.txt": 0}
        newest = await files.load_artifact(
            app_name="root", user_id="local", session_id=desk.session.session_id, filename="a.txt"
        )
        assert newest is not None
        assert newest.text == order[-1]
