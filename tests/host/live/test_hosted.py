"""Sessions that stay open, with a host on the server: what clients say is what a person says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

import anyio
import pytest

from agentsession.adapters.scripted import Ask, Call, Calls, Delay, Say, ScriptedExecutor, Step
from agentsession.host import Host, Policy, SubagentTool, allow_all, ask_all, child_events, deny_all
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent
from agentsession.protocol import (
    ConfigurationError,
    Event,
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    StreamActive,
    ToolDecision,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

Script = Sequence[Sequence[Step]]


class Wiper:
    """A host's tool, and what it was called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def wipe(self, path: str) -> str:
        """Delete a file."""
        self.ran.append(path)
        return f"{path} is gone"


@asynccontextmanager
async def served(
    script: Script, policy: Policy = ask_all, tools: Sequence[Any] = (), *, reenter: bool = True, **options: Any
) -> AsyncGenerator[tuple[LiveSessions, LiveSession]]:
    agent = ServedAgent("agent", ScriptedExecutor(script, reenter=reenter), Host(tools=list(tools), policy=policy))
    async with LiveSessions([agent]) as sessions:
        yield sessions, await sessions.open("agent", "ann", OpenOptions(session_id="s", **options))


async def ends(live: LiveSession) -> list[str]:
    await live.at_rest()
    return [event.reason async for event in live.events(types={"stream_end"})]  # type: ignore[attr-defined]


async def of(live: LiveSession, kind: type[Event]) -> list[Any]:
    return [event async for event in live.events() if isinstance(event, kind)]


async def test_what_the_policy_allows_runs_and_nobody_is_asked() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, allow_all, [wiper.wipe]) as (_, live):
        started = await live.stream("go")
        assert started.stream_id
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == ["a"]


async def test_a_waiting_turn_keeps_no_task_and_goes_on_with_a_yes() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        assert await ends(live) == ["input_required"]
        assert not live.is_busy
        assert wiper.ran == []
        (request,) = live.pending
        (receipt,) = await live.respond(grant(request.request_id))
        assert receipt.status == "applied"
        assert await ends(live) == ["input_required", "completed"]
        assert wiper.ran == ["a"]
        (response,) = await of(live, ToolResponse)
        assert response.status == "completed"


async def test_a_no_runs_nothing_and_the_reason_is_told() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        (receipt,) = await live.respond(deny(live.pending[0].request_id, "too risky"))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        (decision,) = await of(live, ToolDecision)
        assert (decision.decision, decision.by, decision.reason) == ("denied", "user:ann", "too risky")
        assert wiper.ran == []


async def test_edited_arguments_run_and_those_that_do_not_fit_are_refused() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        (request,) = live.pending
        (receipt,) = await live.respond(grant(request.request_id, {"path": 7}))
        assert receipt.status == "invalid", receipt
        assert "path" in (receipt.reason or "")
        await live.at_rest()
        (receipt,) = await live.respond(grant(request.request_id, {"path": "b"}))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == ["b"]


async def test_no_client_can_grant_what_the_policy_denies() -> None:
    ran: list[Any] = []
    script: Script = [[Calls(Call("wipe", {"path": "a"}, needs="grant", run=ran.append)), Say("Done.")]]
    async with served(script, deny_all) as (_, live):
        await live.stream("go")
        await live.at_rest()
        (decision,) = await of(live, ToolDecision)
        assert decision.decision == "denied"
        (receipt,) = await live.respond(grant(decision.request_id))
        assert receipt.status == "stale"
        assert ran == []


async def test_the_policy_of_the_moment_of_the_yes_counts() -> None:
    wiper = Wiper()
    asked: list[str] = []

    def policy(request: Any) -> str:
        asked.append(request.tool)
        return "ask_user" if len(asked) == 1 else "deny"

    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, policy, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        await live.respond(grant(live.pending[0].request_id))
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == []


async def test_a_clients_own_result_for_a_tool_of_the_host_is_refused() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        (receipt,) = await live.respond(result(live.pending[0].request_id, "forged"))
        assert receipt.status == "invalid"
        assert len(live.pending) == 1


LOOK = ToolDescriptor(name="look", description="Look at the page.", parameters_schema={"type": "object"})


async def test_a_tool_that_the_client_declared_waits_for_its_result() -> None:
    script: Script = [[Calls(Call("look", {}), Call("look", {"x": 1})), Say("Seen.")]]
    async with served(script, ask_all) as (_, live):
        await live.stream("go", ExecutionOptions(tools=[LOOK]))
        assert await ends(live) == ["input_required"]
        first, second = live.pending
        (receipt,) = await live.respond(result(first.request_id, {"seen": 1}))
        assert receipt.status == "applied"
        assert await ends(live) == ["input_required"]
        (receipt,) = await live.respond(result(second.request_id, {"seen": 2}))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        (again,) = await live.respond(result(second.request_id, {"seen": 2}))
        assert again.status == "stale"


async def test_a_denial_holds_for_tools_of_the_client_too() -> None:
    script: Script = [[Calls(Call("look", {})), Say("Seen.")]]
    async with served(script, deny_all) as (_, live):
        await live.stream("go", ExecutionOptions(tools=[LOOK]))
        assert (await ends(live))[-1] == "completed"
        (decision,) = await of(live, ToolDecision)
        assert decision.decision == "denied"


async def test_a_tool_that_nobody_declared_is_unknown() -> None:
    script: Script = [[Calls(Call("loook", {})), Say("Seen.")]]
    async with served(script, ask_all) as (_, live):
        await live.stream("go", ExecutionOptions(tools=[LOOK]))
        assert (await ends(live))[-1] == "completed"
        (response,) = await of(live, ToolResponse)
        assert response.data["error"]["code"] == "unknown_tool"


async def test_a_client_cannot_take_the_name_of_a_tool_of_the_host() -> None:
    async with served([[Say("Hi.")]], ask_all, [Wiper().wipe]) as (_, live):
        with pytest.raises(InvalidInput):
            await live.stream("go", ExecutionOptions(tools=[LOOK.model_copy(update={"name": "wipe"})]))


async def test_partial_answers_are_kept_and_the_agent_goes_on_when_all_are_there() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"}), Call("wipe", {"path": "b"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        first, second = live.pending
        (receipt,) = await live.respond(grant(first.request_id))
        assert receipt.status == "applied"
        await live.at_rest()
        assert [request.request_id for request in live.pending] == [second.request_id]
        receipts = await live.respond(grant(first.request_id), deny(second.request_id))
        assert [each.status for each in receipts] == ["stale", "applied"]
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == ["a"]


async def test_questions_are_answered_and_wrong_content_is_refused() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    script: Script = [[Ask("How many?", schema=schema), Say("Done.")], [Ask("And?", schema=schema), Say("Done.")]]
    async with served(script) as (_, live):
        await live.stream("go")
        await live.at_rest()
        (receipt,) = await live.respond(accept(live.pending[0].request_id, {"n": "many"}))
        assert receipt.status == "invalid"
        await live.at_rest()
        (receipt,) = await live.respond(accept(live.pending[0].request_id, {"n": 2}))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        await live.stream("more")
        await live.at_rest()
        (receipt,) = await live.respond(decline(live.pending[0].request_id))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"


async def test_a_waiting_turn_is_judged_again_after_its_session_was_closed() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (sessions, live):
        await live.stream("go")
        await live.at_rest()
        await sessions.close(live)
        live = await sessions.get("agent", "ann", "s")
        (request,) = live.pending
        (receipt,) = await live.respond(grant(request.request_id))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == ["a"]


async def test_answers_given_to_stream_begin_the_next_one() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        first = await live.stream("go")
        await live.at_rest()
        started = await live.stream([grant(live.pending[0].request_id)])
        assert started.stream_id != first.stream_id
        assert [receipt.status for receipt in started.receipts] == ["applied"]
        assert (await ends(live))[-1] == "completed"


async def test_an_abort_ends_a_turn_whose_tool_runs_and_the_next_one_works() -> None:
    entered = anyio.Event()

    async def long(path: str) -> str:
        """Work for long."""
        entered.set()
        await anyio.sleep_forever()
        return path

    script: Script = [[Calls(Call("long", {"path": "a"})), Say("Done.")], [Say("Again.")]]
    async with served(script, allow_all, [long]) as (_, live):
        await live.stream("go")
        with anyio.fail_after(10):
            await entered.wait()
            found = await live.abort("enough")
        assert found.status == "aborted"
        assert (await ends(live))[-1] == "aborted"
        await live.stream("again")
        assert (await ends(live))[-1] == "completed"


async def test_a_message_while_a_turn_runs_is_refused() -> None:
    script: Script = [[Delay(0.2), Say("Done.")], [Say("Again.")]]
    async with served(script) as (_, live):
        await live.stream("go")
        with pytest.raises(StreamActive):
            await live.stream("more")
        assert (await ends(live))[-1] == "completed"


async def test_a_message_over_a_waiting_turn_settles_it_and_runs_nothing() -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")], [Say("Another.")]]
    async with served(script, ask_all, [wiper.wipe]) as (_, live):
        await live.stream("go")
        await live.at_rest()
        await live.stream("something else")
        assert await ends(live) == ["input_required", "aborted", "completed"]
        assert wiper.ran == []


@pytest.mark.parametrize("reloaded", [False, True])
async def test_what_a_sub_agent_asks_is_answered_under_the_id_that_is_shown(reloaded: bool) -> None:
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"}, id="r-inner")), Say("Inner done.")]]
    inner = ScriptedExecutor(script, reenter=True, name="inner")

    def policy(request: Any) -> str:
        return "allow" if request.tool == "inner" else "ask_user"

    tools = [wiper.wipe, SubagentTool(inner, tools=["wipe"])]
    outer: Script = [[Calls(Call("inner", {"task": "do"})), Say("Done.")]]
    async with inner, served(outer, policy, tools) as (sessions, live):
        await live.stream("go")
        await live.at_rest()
        assert wiper.ran == []
        shown = [inner for event in await of(live, ToolUpdate) for inner in child_events(event)]
        (request_id,) = [each.request_id for each in shown if isinstance(each, ToolRequest)]
        if reloaded:
            await sessions.close(live)
            live = await sessions.get("agent", "ann", "s")
        (receipt,) = await live.respond(grant(request_id))
        assert receipt.status == "applied"
        assert (await ends(live))[-1] == "completed"
        assert wiper.ran == ["a"]


async def test_a_tool_declared_at_open_is_still_the_clients_after_its_session_was_closed() -> None:
    script: Script = [[Say("Hi.")], [Calls(Call("look", {})), Say("Done.")]]
    async with served(script, allow_all, execution=ExecutionOptions(tools=[LOOK])) as (sessions, live):
        await live.stream("hello")
        await live.at_rest()
        await sessions.close(live)
        live = await sessions.get("agent", "ann", "s")
        assert live.options.execution.tools == [LOOK]
        await live.stream("go")
        assert (await ends(live))[-1] == "input_required"
        (receipt,) = await live.respond(result(live.pending[0].request_id, "red"))
        assert receipt.status == "applied"


async def test_a_fork_keeps_the_tools_that_the_client_declares_for_it() -> None:
    async with served([[Say("Hi.")]], allow_all) as (sessions, live):
        await live.stream("hello")
        await live.at_rest()
        options = OpenOptions(execution=ExecutionOptions(tools=[LOOK]))
        made = await sessions.fork("agent", "ann", "s", live.last_seq, options)
        assert made.options.execution.tools == [LOOK]
        assert made.client_tools == {"look"}


async def test_a_fork_with_a_tool_of_the_hosts_name_is_refused_before_it_is_made() -> None:
    async with served([[Say("Hi.")]], allow_all, [Wiper().wipe]) as (sessions, live):
        options = OpenOptions(execution=ExecutionOptions(tools=[LOOK.model_copy(update={"name": "wipe"})]))
        with pytest.raises(ConfigurationError):
            await sessions.fork("agent", "ann", "s", live.last_seq, options)
        assert [info.key.session_id for info in await sessions.list("agent", "ann")] == ["s"]


@pytest.mark.parametrize("how", ["opened", "loaded", "loaded while used"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_the_mode_that_a_session_was_opened_or_loaded_with_holds_when_it_is_loaded_again(
    restarted: bool, how: str
) -> None:
    modes: list[str] = []

    def policy(request: Any) -> str:
        modes.append(request.permission_mode)
        return "deny"

    store = MemoryRecordStore()
    plan = OpenOptions(session_id="s", execution=ExecutionOptions(permission_mode="plan"))

    def agent() -> ServedAgent:
        script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
        return ServedAgent("agent", ScriptedExecutor(script, reenter=True), Host(policy=policy), store)

    async with AsyncExitStack() as stack:
        sessions = await stack.enter_async_context(LiveSessions([agent()]))
        live = await sessions.open("agent", "ann", plan if how == "opened" else OpenOptions(session_id="s"))
        if how != "opened":
            with live.hold() if how == "loaded while used" else nullcontext():
                live = await sessions.load("agent", "ann", "s", plan)
        if restarted:
            await stack.aclose()
            sessions = await stack.enter_async_context(LiveSessions([agent()]))
        else:
            await sessions.close(live)
        live = await sessions.get("agent", "ann", "s")
        live.declare([LOOK.model_copy(update={"name": "wipe"})])
        await live.stream("go")
        await live.at_rest()
    assert modes == ["plan"]


async def test_a_call_left_by_a_tool_that_the_host_dropped_is_not_the_clients() -> None:
    store = MemoryRecordStore()
    wiper = Wiper()
    script: Script = [[Calls(Call("wipe", {"path": "a"})), Say("Done.")]]
    before = ServedAgent(
        "agent", ScriptedExecutor(script, reenter=True), Host(tools=[wiper.wipe], policy=ask_all), store
    )
    async with LiveSessions([before]) as sessions:
        live = await sessions.open("agent", "ann", OpenOptions(session_id="s"))
        await live.stream("go")
        await live.at_rest()
    after = ServedAgent("agent", ScriptedExecutor(script, reenter=True), Host(policy=ask_all), store)
    async with LiveSessions([after]) as sessions:
        live = await sessions.get("agent", "ann", "s")
        (receipt,) = await live.respond(result(live.pending[0].request_id, "forged"))
        assert receipt.status == "invalid"


async def test_a_message_right_after_the_last_event_of_a_turn_begins_the_next() -> None:
    async with served([[Say("One.")], [Say("Two.")]]) as (_, live):
        reader = live.events(follow=True, types={"stream_end"})
        await live.stream("go")
        await anext(reader)
        assert live.is_busy  # its task has not left yet
        await live.stream("and again")
        assert await ends(live) == ["completed", "completed"]
