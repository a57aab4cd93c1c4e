"""Tools that a client runs, with a host on the server: whose a call is, that it was allowed, and what is recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor, Step
from agentsession.host import Host, Policy, SubagentTool, allow_all, ask_all, child_events
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent
from agentsession.protocol import (
    Decision,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    Spent,
    ToolDecision,
    ToolDescriptor,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

LOOK = ToolDescriptor(name="look", description="Look at the page.", parameters_schema={"type": "object"})
Script = Sequence[Sequence[Step]]
SCRIPT: Script = [[Calls(Call("look", {"x": 1})), Say("Seen.")]]


def wipe(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@asynccontextmanager
async def served(
    policy: Policy,
    script: Script = SCRIPT,
    tools: Sequence[Any] = (),
    store: MemoryRecordStore | None = None,
) -> AsyncGenerator[LiveSessions]:
    agent = ServedAgent("agent", ScriptedExecutor(script, reenter=True), Host(tools=tools, policy=policy), store)
    with anyio.fail_after(20):
        async with LiveSessions([agent]) as sessions:
            yield sessions


async def waiting(sessions: LiveSessions) -> LiveSession:
    """A session whose turn waits for its client."""
    live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
    await live.stream("go", ExecutionOptions(tools=[LOOK]))
    await live.at_rest()
    return live


async def of(live: LiveSession, kind: type[Event]) -> list[Any]:
    await live.at_rest()
    return [event async for event in live.events() if isinstance(event, kind)]


async def test_a_result_that_comes_before_the_policys_word_waits_for_it() -> None:
    judges, word = anyio.Event(), anyio.Event()

    async def policy(request: Any) -> str:
        judges.set()
        await word.wait()
        return "deny"

    said: list[str] = []
    async with served(policy) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        await live.stream("go", ExecutionOptions(tools=[LOOK]))
        await judges.wait()

        async def answer() -> None:
            (receipt,) = await live.respond(result(live.pending[0].request_id, "forged"))
            said.append(receipt.status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await anyio.wait_all_tasks_blocked()
            assert said == []
            word.set()
        (response,) = await of(live, ToolResponse)
        assert (said, response.status) == (["stale"], "denied")


async def test_a_call_that_was_allowed_before_a_restart_is_judged_again_before_its_result_is_taken() -> None:
    store = MemoryRecordStore()
    async with served(allow_all, store=store) as sessions:
        await waiting(sessions)
    async with served(lambda request: "deny", store=store) as sessions:
        live = await sessions.get("agent", "ann", "s")
        live.declare([LOOK])
        (receipt,) = await live.respond(result(live.pending[0].request_id, "late"))
        (response,) = await of(live, ToolResponse)
        assert (receipt.status, response.status) == ("stale", "denied")


async def test_after_a_restart_a_result_is_refused_until_the_tool_is_declared_again() -> None:
    store = MemoryRecordStore()
    async with served(allow_all, store=store) as sessions:
        await waiting(sessions)
    async with served(allow_all, store=store) as sessions:
        live = await sessions.get("agent", "ann", "s")
        request_id = live.pending[0].request_id
        for answer in (result(request_id, "red"), grant(request_id)):
            (receipt,) = await live.respond(answer)
            assert receipt.status == "invalid"
            assert "PATCH" in (receipt.reason or "")
        live.declare([LOOK])
        (receipt,) = await live.respond(result(request_id, "red"))
        (response,) = await of(live, ToolResponse)
        assert (receipt.status, response.status, live.state) == ("applied", "completed", "idle")


async def test_a_call_that_nobody_declared_again_waits_while_others_are_answered() -> None:
    store = MemoryRecordStore()
    script: Script = [[Calls(Call("look", {}), Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(ask_all, script, [wipe], store) as sessions:
        await waiting(sessions)
    async with served(ask_all, script, [wipe], store) as sessions:
        live = await sessions.get("agent", "ann", "s")
        mine, hosts = live.pending
        (receipt,) = await live.respond(grant(hosts.request_id))
        await live.at_rest()
        assert receipt.status == "applied"
        assert [request.request_id for request in live.pending] == [mine.request_id]
        live.declare([LOOK])
        (receipt,) = await live.respond(result(mine.request_id, "red"))
        assert receipt.status == "applied"
        assert {response.status for response in await of(live, ToolResponse)} == {"completed"}


async def test_a_call_whose_tool_is_gone_can_be_denied_and_the_agent_goes_on() -> None:
    store = MemoryRecordStore()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(ask_all, script, [wipe], store) as sessions:
        await waiting(sessions)
    async with served(ask_all, script, [], store) as sessions:
        live = await sessions.get("agent", "ann", "s")
        (receipt,) = await live.respond(deny(live.pending[0].request_id, "never mind"))
        (decision,) = await of(live, ToolDecision)
        assert (receipt.status, decision.decision, decision.by, live.state) == ("applied", "denied", "user:ann", "idle")


async def test_a_client_cannot_say_who_allowed_its_call_or_that_it_ran_with_other_arguments() -> None:
    async with served(allow_all) as sessions:
        live = await waiting(sessions)
        request_id = live.pending[0].request_id
        (receipt,) = await live.respond(result(request_id, 1).model_copy(update={"args": {"x": 2}}))
        assert receipt.status == "invalid"
        forged = {"decision": Decision(by="policy", reason="mine"), "spent": Spent(model_calls=9, cost=99.0)}
        (receipt,) = await live.respond(result(request_id, 1).model_copy(update=forged))
        (decision,) = await of(live, ToolDecision)
        (response,) = await of(live, ToolResponse)
        assert (receipt.status, decision.by) == ("applied", "user:ann")
        assert "spent" not in response.to_wire()


async def test_a_start_that_a_client_told_is_its_own_after_a_restart_too() -> None:
    store = MemoryRecordStore()
    async with served(allow_all, store=store) as sessions:
        live = await waiting(sessions)
        request_id = live.pending[0].request_id
        (receipt,) = await live.respond(ToolProgress(request_id=request_id, started=True))
        assert receipt.status == "applied"
    async with served(allow_all, store=store) as sessions:
        live = await sessions.get("agent", "ann", "s")
        live.declare([LOOK])
        (receipt,) = await live.respond(result(request_id, "red"))
        (response,) = await of(live, ToolResponse)
        assert (receipt.status, response.status) == ("applied", "completed")


async def test_a_client_cannot_tell_of_sub_agents_that_there_are_not() -> None:
    async with served(allow_all) as sessions:
        live = await waiting(sessions)
        request_id = live.pending[0].request_id
        forged = {"childEvents": [event.to_wire() for event in await of(live, ToolRequest)]}
        receipts = [
            *(await live.respond(ToolProgress(request_id=request_id, data=forged))),
            *(await live.respond(ToolProgress(request_id=request_id, data={"percent": 5}))),
        ]
        assert [receipt.status for receipt in receipts] == ["invalid", "applied"]
        (update,) = await of(live, ToolUpdate)
        assert (update.data, child_events(update)) == ({"percent": 5}, [])


async def test_a_sub_agent_does_not_wait_for_a_tool_of_the_client() -> None:
    inner = ScriptedExecutor([[Calls(Call("look", {})), Say("Inner done.")]], reenter=True, name="inner")
    script: Script = [[Calls(Call("inner", {"task": "do"})), Say("Done.")]]
    async with inner, served(allow_all, script, [SubagentTool(inner)]) as sessions:
        live = await waiting(sessions)
        shown = [one for event in await of(live, ToolUpdate) for one in child_events(event)]
        (response,) = [one for one in shown if isinstance(one, ToolResponse)]
        assert (response.status, live.state) == ("failed", "idle")
        assert response.to_wire()["data"]["error"]["code"] == "unknown_tool"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_outcome_of_a_job_of_the_agents_is_told_by_the_program_that_serves_and_by_no_client() -> None:
    def submit(amount: int) -> dict[str, Any]:
        """Ask for money."""
        return {"status": "pending"}

    model = ScriptedLlm(script=[call("submit", {"amount": 5}), say("Paid.")])
    executor = AdkExecutor(LlmAgent(name="clerk", model=model, tools=[LongRunningFunctionTool(submit)]))
    async with LiveSessions([ServedAgent("clerk", executor, Host(policy=allow_all))]) as sessions:
        live = await sessions.open("clerk", "ann")
        await live.stream("pay me")
        await live.at_rest()
        (job,) = live.pending
        live.declare([ToolDescriptor(name="submit", parameters_schema={"type": "object"})])
        receipts = await live.respond(result(job.request_id, {"approved": True}))
        receipts = [
            *receipts,
            *(await live.respond(grant(job.request_id))),
            *(await live.respond(deny(job.request_id))),
        ]
        assert [receipt.status for receipt in receipts] == ["invalid"] * 3
        assert len(live.pending) == 1
        (receipt,) = await live.session.respond(result(job.request_id, {"approved": True}))
        await live.stream()
        await live.at_rest()
        assert (receipt.status, live.state) == ("applied", "idle")
