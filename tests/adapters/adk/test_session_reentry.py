"""Calls that waited in a run that is gone: answered after a restart, they run as allowed, once, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, history, host_tool, verify

from agentsession.adapters.adk import AdkExecutor, call, calls, map_events, say
from agentsession.protocol import (
    ElicitationRequest,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

OPTIONS = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))
Visit = Callable[[LlmAgent], Any]


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    """Opens the session, and after that loads it, in executors that share only what is stored."""
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    store = MemoryRecordStore()
    seen: list[LlmAgent] = []

    @asynccontextmanager
    async def visited(root: LlmAgent) -> AsyncIterator[Driven]:
        first, seen[:] = not seen, [root]
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            session = await (executor.open(OPTIONS) if first else executor.load("s1", OPTIONS))
            yield Driven(executor, session)
            verify(session)
        assert_valid_history(root.model)

    visited.service = service  # type: ignore[attr-defined]
    return visited


class Ran(list[Any]):
    """What the agent's tools were run with, in order."""

    def write(self, text: str) -> str:
        """Write."""
        self.append(text)
        return f"wrote {text}"

    def delete(self, text: str) -> str:
        """Delete."""
        self.append(f"deleted {text}")
        return "gone"

    def ask(self, tool_context: ToolContext) -> Any:
        """Ask from inside."""
        given = tool_context.tool_confirmation
        if given is None:
            self.append("asked")
            tool_context.request_confirmation(hint="Really?", payload={"copies": 1})
            return {"status": "asked"}
        self.append((given.confirmed, given.hint, given.payload))
        return "told"


def shown(root: LlmAgent) -> list[tuple[str, str]]:
    """The results that the last model call was shown."""
    return [entry for entry in history(root.model) if entry[0].startswith("result")]


async def wait_for_write(visit: Visit, ran: Ran, **fields: Any) -> None:
    async with visit(agent(call("write", {"text": "draft"}, id="c1"), tools=[ran.write], **fields)) as desk:
        turn = await desk.stream("go")
        assert turn.reason == "input_required"
        assert turn.end.data is None


@pytest.mark.rule("HITL-02", "PER-01")
async def test_a_call_that_is_denied_after_a_restart_never_runs_and_the_model_is_told(visit: Visit) -> None:
    ran, root = Ran(), agent(say("ok"))
    await wait_for_write(visit, ran)
    root.tools = [ran.write]
    async with visit(root) as desk:
        turn = await desk.stream(deny(desk.pending("write"), "not today"))
        assert (turn.reason, turn.texts) == ("completed", ["ok"])
        assert desk.responses() == {"write": "denied"}
    assert ran == []
    assert shown(root) == [("result c1", '{"error": "denied: not today"}')]


@pytest.mark.rule("PER-01", "TOOL-11")
async def test_after_a_restart_the_host_may_answer_a_call_with_its_own_result(visit: Visit) -> None:
    ran, root = Ran(), agent(say("ok"))
    await wait_for_write(visit, ran)
    async with visit(root) as desk:
        assert (await desk.stream(result(desk.pending("write"), "by hand"))).reason == "completed"
    assert ran == []
    assert shown(root) == [("result c1", '{"result": "by hand"}')]


@pytest.mark.rule("PER-01", "HITL-03", "HITL-04")
async def test_a_grant_that_was_kept_survives_the_restart_with_its_arguments(visit: Visit) -> None:
    ran = Ran()
    await wait_for_write(visit, ran)
    async with visit(agent(tools=[ran.write])) as desk:
        (receipt,) = await desk.session.respond(grant(desk.pending("write"), {"text": "final"}))
        assert receipt.ok
    root = agent(say("ok"), tools=[ran.write])
    async with visit(root) as desk:
        assert desk.session.pending == []
        assert (await desk.stream()).reason == "completed"
        assert desk.responses() == {"write": "completed"}
    assert ran == ["final"]
    assert shown(root) == [("result c1", '{"result": "wrote final"}')]


@pytest.mark.rule("HITL-02", "PER-01")
async def test_a_confirmation_that_is_declined_after_a_restart_runs_nothing(visit: Visit) -> None:
    ran = Ran()
    tools = [FunctionTool(ran.write, require_confirmation=True)]
    async with visit(agent(call("write", {"text": "x"}, id="c1"), tools=list(tools))) as desk:
        await desk.stream("go")
    root = agent(say("ok"), tools=list(tools))
    async with visit(root) as desk:
        assert (await desk.stream(decline(desk.pending("tool_confirmation")))).reason == "completed"
        assert desk.responses() == {"write": "denied"}
    assert ran == []
    assert shown(root) == [("result c1", '{"error": "the user did not confirm this call"}')]


@pytest.mark.rule("HITL-03", "PER-01")
@pytest.mark.parametrize(("content", "payload"), [(None, {"copies": 1}), ({"payload": {"copies": 3}}, {"copies": 3})])
async def test_a_tool_that_asked_from_inside_is_told_the_answer_of_after_the_restart(
    content: Any, payload: Any, visit: Visit
) -> None:
    ran = Ran()
    async with visit(agent(call("ask", id="c1"), tools=[ran.ask])) as desk:
        await desk.stream("go")
        turn = await desk.stream(grant(desk.pending("ask")))
        assert turn.end.data is None
    root = agent(say("ok"), tools=[ran.ask])
    async with visit(root) as desk:
        assert (await desk.stream(accept(desk.pending("tool_confirmation"), content))).reason == "completed"
        assert desk.responses() == {"ask": "completed"}
    assert ran == ["asked", (True, "Really?", payload)]
    assert shown(root) == [("result c1", '{"result": "told"}')]


@pytest.mark.rule("HITL-01", "PER-01")
async def test_a_condition_for_confirmation_is_asked_for_a_call_that_was_granted_after_a_restart(
    visit: Visit,
) -> None:
    ran = Ran()
    tools = [FunctionTool(ran.write, require_confirmation=lambda text: text == "danger")]
    async with visit(agent(call("write", {"text": "harmless"}, id="c1"), tools=list(tools))) as desk:
        await desk.stream("go")
    async with visit(agent(tools=list(tools))) as desk:
        turn = await desk.stream(grant(desk.pending("write"), {"text": "danger"}))
        assert turn.reason == "input_required"
        assert ran == []
    root = agent(say("ok"), tools=list(tools))
    async with visit(root) as desk:
        assert (await desk.stream(accept(desk.pending("tool_confirmation")))).reason == "completed"
    assert ran == ["danger"]


@pytest.mark.rule("PER-01", "HITL-03")
async def test_a_call_of_an_agent_that_was_handed_over_to_runs_that_agents_tool(visit: Visit) -> None:
    ran: list[str] = []

    def write(text: str) -> str:
        """Write."""
        ran.append(f"child {text}")
        return "by the child"

    def family(*script: Any, child: Any = ()) -> LlmAgent:
        def of_root(text: str) -> str:
            """Write."""
            ran.append(f"root {text}")
            return "by the root"

        of_root.__name__ = "write"
        kid = agent(*child, name="kid", tools=[write])
        return agent(*script, tools=[of_root], sub_agents=[kid])

    first = family(call("transfer_to_agent", {"agent_name": "kid"}), child=[call("write", {"text": "x"}, id="c1")])
    async with visit(first) as desk:
        await desk.stream("go")
    again = family(child=[say("from the kid")])
    async with visit(again) as desk:
        turn = await desk.stream(grant(desk.pending("write")))
        assert (turn.reason, turn.texts) == ("completed", ["from the kid"])
    assert ran == ["child x"]


@pytest.mark.rule("PER-01", "TOOL-01")
async def test_a_message_over_a_loaded_grant_settles_it_and_the_model_reads_that_it_never_began(visit: Visit) -> None:
    ran, root = Ran(), agent(say("next"))
    await wait_for_write(visit, ran)
    async with visit(root) as desk:
        assert (await desk.stream("something else")).texts == ["next"]
        assert desk.responses() == {"write": "cancelled"}
    assert ran == []
    told = '{"error": "this call was cancelled before it began", "status": "cancelled"}'
    assert shown(root) == [("result c1", told)]


@pytest.mark.rule("PER-01")
async def test_what_waits_in_a_child_is_lost_by_a_restart_and_its_sibling_waits_again(visit: Visit) -> None:
    ran = Ran()

    def tree(*script: Any, child: Any = ()) -> LlmAgent:
        kid = agent(*child, name="kid", tools=[ran.write])
        return agent(*script, tools=[ran.write, AgentTool(kid)])

    step = calls(call("write", {"text": "mine"}, id="c1"), call("kid", {"request": "go"}, id="c2"))
    async with visit(tree(step, child=[call("write", {"text": "the child's"}, id="c3")])) as desk:
        turn = await desk.stream("go")
        assert len(turn.end.pending) == 2
        assert (turn.end.data or {})["volatile"] == [
            item.request_id for item in desk.session.record if getattr(item, "name", "") == "kid"
        ] + [item.request_id for item in desk.session.pending if item.thread_id is not None]
    root = tree(say("ok"))
    async with visit(root) as desk:
        assert (await desk.stream(grant(desk.pending("write")))).texts == ["ok"]
        assert desk.responses() == {"write": "cancelled completed", "kid": "unknown"}
    assert ran == ["mine"]


async def test_the_question_that_lets_adk_in_is_shown_nowhere(visit: Visit) -> None:
    ran, root = Ran(), agent(say("ok"))
    await wait_for_write(visit, ran)
    root.tools = [ran.write]
    async with visit(root) as desk:
        await desk.stream(grant(desk.pending("write")))
        assert not any(isinstance(event, ElicitationRequest) for event in desk.session.record)
    found = await visit.service.get_session(app_name="root", user_id="local", session_id="s1")  # type: ignore[attr-defined]
    mapped = list(map_events(found.events))
    assert not any(isinstance(event, ElicitationRequest) for event in mapped)
    assert [event.to_wire()["data"] for event in mapped if event.type == "tool_response"] == ["wrote draft"]


async def test_a_tool_that_is_gone_after_the_restart_ends_the_turn_and_not_the_session(visit: Visit) -> None:
    ran = Ran()
    await wait_for_write(visit, ran)
    root = agent(say("next"))
    async with visit(root) as desk:
        assert (await desk.stream(grant(desk.pending("write")))).reason == "failed"
        assert (await desk.stream("and now?")).texts == ["next"]
    assert ran == []


# -- first the record, then the tool ----------------------------------------------------------------------------------


class Held(MemoryRecordStore):
    """From ``hold`` on, nothing is stored until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.gate.set()
        self.asked = anyio.Event()

    def hold(self) -> None:
        self.gate, self.asked = anyio.Event(), anyio.Event()

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self.asked.set()
        await self.gate.wait()
        await super().append(key, events, reserved_seq=reserved_seq)


@pytest.mark.rule("PER-02", "PER-04", "HITL-03")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("name", ["write", "delete", "ask"])
async def test_no_tool_runs_before_what_lets_it_run_is_stored(name: str, restarted: bool, tmp_path: Path) -> None:
    # Else it would be let run once more after a kill, for the record says that it waits.
    store, service, ran = Held(), SqliteSessionService(str(tmp_path / "adk.db")), Ran()
    tools = [ran.write, FunctionTool(ran.delete, require_confirmation=True), ran.ask]
    args = {} if name == "ask" else {"text": "x"}

    def answers(desk: Driven) -> Any:
        (item,) = desk.session.pending
        return accept(item.request_id) if isinstance(item, ElicitationRequest) else grant(item.request_id)

    early: list[Any] = []

    async def answered_while_held(desk: Driven) -> None:
        before = list(ran)
        store.hold()
        async with anyio.create_task_group() as group:
            group.start_soon(desk.stream, answers(desk))
            await store.asked.wait()
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            early.extend(ran[len(before) :])
            store.gate.set()

    async with AsyncExitStack() as stack:
        first = agent(call(name, args, id="c1"), say("done"), tools=tools)
        executor = await stack.enter_async_context(AdkExecutor(first, session_service=service, store=store))
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        if restarted:
            await stack.aclose()
            root = agent(say("done"), tools=tools)
            executor = await stack.enter_async_context(AdkExecutor(root, session_service=service, store=store))
            desk = Driven(executor, await executor.load("s1", OPTIONS))
        while desk.session.pending:
            await answered_while_held(desk)
        verify(desk.session)
    assert early == []
    assert ran in (["x"], ["deleted x"], ["asked", (True, "Really?", {"copies": 1})])


@pytest.mark.rule("PER-01", "PER-02")
@pytest.mark.parametrize("name", ["look", "write", "delete", "adk_request_input"])
async def test_no_answer_is_in_adks_session_before_it_is_in_the_record(name: str) -> None:
    # Else a killed process leaves a call that waits in the record and is answered in ADK, which hears no other answer.
    store, service, ran = Held(), InMemorySessionService(), Ran()
    tools = [ran.write, FunctionTool(ran.delete, require_confirmation=True), request_input]
    root = agent(call(name, {"message": "?"} if "input" in name else {"text": "x"}, id="c1"), say("done"), tools=tools)

    early: list[Any] = []

    async def responses() -> list[Any]:
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        return [response.id for event in found.events for response in event.get_function_responses()]

    def answered(desk: Driven) -> Any:
        (item,) = desk.session.pending
        if isinstance(item, ElicitationRequest):
            return accept(item.request_id, {"city": "Rome"}) if "input" in name else decline(item.request_id)
        return result(item.request_id, 1) if item.needs == "result" else deny(item.request_id)

    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        store.hold()
        async with anyio.create_task_group() as group:
            group.start_soon(desk.stream, answered(desk))
            await store.asked.wait()
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            early += await responses()
            store.gate.set()
        assert early == []
        assert await responses() == ["c1"]
        verify(desk.session)
