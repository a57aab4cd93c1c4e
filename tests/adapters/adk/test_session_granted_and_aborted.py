"""A grant that is followed by an abort: what never began is cancelled, what may have begun is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.credential_kinds import KINDS
from tests.adapters.adk.driving import Driven, Visit, agent, assert_valid_history, driven, history, verify
from tests.adapters.adk.provider import Provider

from agentsession.adapters.adk import AdkExecutor, call, say
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    ToolResponse,
    accept,
    grant,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-05", "TOOL-05", "HITL-06")]

NEVER_BEGAN = '{"error": "this call was cancelled before it began", "status": "cancelled"}'


class Slow:
    """A tool that goes on for ever."""

    def __init__(self) -> None:
        self.began = 0
        self.entered = anyio.Event()

    async def slow(self) -> str:
        """Work."""
        self.began += 1
        self.entered.set()
        await anyio.sleep_forever()
        return "never"


def tree(shape: str, tool: Any, *, after: bool = True) -> Any:
    """A root agent that comes to call ``tool``: itself, or in the child of an AgentTool."""
    last = [say("next")] if after else []
    if shape == "child":
        kid = agent(call("slow", id="c1"), name="kid", tools=[tool])
        return agent(call("kid", {"request": "go"}), *last, tools=[AgentTool(kid)])
    return agent(call("slow", id="c1"), *last, tools=[tool])


def yes(desk: Driven) -> Answer:
    (item,) = desk.session.pending
    return accept(item.request_id) if isinstance(item, ElicitationRequest) else grant(item.request_id)


async def abort_after(desk: Driven, turns: int | anyio.Event) -> str:
    """Allow the call that waits and, some turns of the loop later, abort; its status."""
    stream = desk.session.stream(yes(desk))
    with anyio.fail_after(20):
        if isinstance(turns, int):
            for _ in range(turns):  # the race: how far the grant has come when the abort does
                await anyio.lowlevel.checkpoint()
        else:
            await turns.wait()
        await desk.session.abort()
        async with stream:
            async for _ in stream:
                pass
    assert stream.end is not None
    assert stream.end.reason == "aborted"
    return desk.responses()["slow"]


TURNS = range(0, 60, 5)


@pytest.mark.parametrize("asks", ["grant", "confirmation"])
@pytest.mark.parametrize("shape", ["plain", "child"])
async def test_however_soon_the_abort_comes_only_what_began_is_unknown(shape: str, asks: str) -> None:
    seen: set[str] = set()
    for turns in TURNS:
        slow = Slow()
        tool = FunctionTool(slow.slow, require_confirmation=asks == "confirmation")
        async with driven(tree(shape, tool)) as desk:
            await desk.stream("go")
            status = await abort_after(desk, turns)
            assert status == ("unknown" if slow.began else "cancelled"), turns
            seen.add(status)
            assert (await desk.stream("again")).texts == ["next"]
            assert slow.began <= 1
    assert seen == {"cancelled", "unknown"}


async def test_however_soon_the_abort_comes_after_a_restart_only_what_began_is_unknown(tmp_path: Path) -> None:
    seen: set[str] = set()
    for turns in (*TURNS, None):  # the last: as soon as the tool has begun, for a store on disk takes its time
        slow, store = Slow(), MemoryRecordStore()
        service = SqliteSessionService(str(tmp_path / f"{turns}.db"))
        options = OpenOptions(session_id="s1")
        async with AdkExecutor(tree("plain", slow.slow), session_service=service, store=store) as executor:
            await Driven(executor, await executor.open(options)).stream("go")
        root = agent(say("next"), tools=[slow.slow])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s1", options))
            status = await abort_after(desk, turns if turns is not None else slow.entered)
            assert status == ("unknown" if slow.began else "cancelled"), turns
            seen.add(status)
            assert (await desk.stream("again")).texts == ["next"]
            assert_valid_history(root.model)
            verify(desk.session)
    assert seen == {"cancelled", "unknown"}


@pytest.mark.parametrize("end", ["abort", "message"])
@pytest.mark.parametrize("shape", ["plain", "child"])
async def test_a_grant_that_no_stream_has_taken_is_cancelled_with_its_turn(shape: str, end: str) -> None:
    slow = Slow()
    root = tree(shape, slow.slow)
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.session.respond(yes(desk))
        if end == "abort":
            await desk.session.abort()
        assert (await desk.stream("again")).texts == ["next"]
        assert (desk.responses()["slow"], slow.began) == ("cancelled", 0)
    if shape == "plain":
        assert ("result c1", NEVER_BEGAN) in history(root.model)


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("restarts", [1, 2])
async def test_a_grant_that_no_process_has_taken_is_cancelled_with_its_turn(restarts: int, visit: Visit) -> None:
    slow = Slow()
    async with visit(tree("plain", slow.slow, after=False)) as desk:
        await desk.stream("go")
        if restarts == 1:
            await desk.session.respond(yes(desk))
    if restarts == 2:
        async with visit(agent(tools=[slow.slow])) as desk:
            await desk.session.respond(yes(desk))
    root = agent(say("next"), tools=[slow.slow])
    async with visit(root) as desk:
        await desk.session.abort()
        assert (desk.responses()["slow"], slow.began) == ("cancelled", 0)
        assert (await desk.stream("again")).texts == ["next"]
    assert ("result c1", NEVER_BEGAN) in history(root.model)


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_tool_that_has_run_up_to_its_question_has_begun(restarts: bool, visit: Visit) -> None:
    config = KINDS["api_key"].config(Provider())

    def ask(tool_context: ToolContext) -> Any:
        """Ask for a credential."""
        tool_context.request_credential(config)
        return {"status": "asked"}

    root = agent(call("ask", id="c1"), say("next"), tools=[ask])
    async with visit(root) as desk:
        await desk.stream("go")
        await desk.stream(yes(desk))
        if not restarts:
            await desk.session.abort()
            assert desk.responses() == {"ask": "unknown"}
    if restarts:
        async with visit(root) as desk:
            await desk.session.abort()
            assert desk.responses() == {"ask": "unknown"}


@pytest.mark.rule("PER-04")
async def test_a_fork_does_not_claim_that_what_was_allowed_never_began(visit: Visit) -> None:
    """Its own executor has let nothing in; that of the session it comes from may have."""
    slow = Slow()
    root = tree("plain", slow.slow)
    async with visit(root) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        await desk.session.respond(yes(desk))
        fork = await desk.executor.fork("s1", desk.session.last_seq)
        (response,) = [event for event in fork.record if isinstance(event, ToolResponse)]
        assert response.status == "unknown"
        verify(fork)
        await desk.session.abort()
