"""The host with the real scripted executor: whole turns, end to end, with a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentsession.adapters.scripted import Ask, Call, Calls, Count, Delay, Parallel, Say, ScriptedExecutor, Step
from agentsession.host import (
    Approval,
    Host,
    Rule,
    RulePolicy,
    ScriptedChannel,
    SqliteRecordStore,
    allow_all,
    ask_all,
    tool,
)
from agentsession.protocol import (
    Event,
    HookPayload,
    MemoryRecordStore,
    OpenOptions,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    args_digest,
)

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


def responses(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.status) for event in events if isinstance(event, ToolResponse)]


@pytest.fixture(params=[False, True], ids=["kept_open", "reentered"])
def reenter(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_a_turn_with_tools_of_both_kinds_a_denial_and_a_question(reenter: bool) -> None:
    edits: list[dict[str, Any]] = []
    form = {"type": "object", "properties": {"region": {"enum": ["eu", "us"]}}, "required": ["region"]}
    script: list[list[Step]] = [
        [
            Say("Looking."),
            Calls(
                Call("read_file", {"path": "a.py"}),
                Call("edit", {"path": "a.py"}, needs="grant", run=edits.append),
                Call("rm", {}, needs="grant", run=lambda args: edits.append({"never": True})),
                Call("invented", {}),
                Call("read_file", {"path": 7}),
            ),
            Ask("Which region?", schema=form),
            Count(input_tokens=10, output_tokens=2),
            Say("Done."),
        ]
    ]
    seen: list[Event] = []
    channel = ScriptedChannel({"edit": True}, {"clarification": ("accept", {"region": "eu"})})
    policy = RulePolicy([Rule("allow", "read_*"), Rule("ask_user", "edit"), Rule("deny", "rm", id="no-rm")])
    host = Host(tools=[read_file], policy=policy, channel=channel, observer=seen.append)
    with anyio.fail_after(10):
        async with ScriptedExecutor(script, reenter=reenter) as executor, host.session(executor) as session:
            result = await host.run_turn(session, "go")
            record = [event async for event in session.events()]
    assert result.completed, result.end
    assert result.text == "Done."
    assert edits == [{"path": "a.py"}]
    assert sorted(responses(seen)) == [
        ("edit", "completed"),
        ("invented", "failed"),
        ("read_file", "completed"),
        ("read_file", "failed"),
        ("rm", "denied"),
    ]
    assert all(item.receipt.ok for item in result.answers)
    denied = [e for e in seen if isinstance(e, ToolDecision) and e.decision == "denied"]
    assert [e.by for e in denied] == ["policy:no-rm"]
    assert result.usage.input_tokens == 10
    assert [event.seq for event in seen] == sorted({event.seq for event in seen})
    durable = {event.id for event in record}
    assert durable <= {event.id for event in seen}


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize("stopped", [False, True])
async def test_the_record_says_with_which_edited_arguments_a_host_tool_ran(reenter: bool, stopped: bool) -> None:
    ran: list[list[int]] = []
    started = anyio.Event()

    @tool
    async def pay(amounts: list[int]) -> int:
        ran.append(list(amounts))
        amounts.append(1)  # a tool may do what it likes with what it is given
        started.set()
        if stopped:
            await anyio.sleep_forever()
        return sum(amounts)

    channel = ScriptedChannel([Approval.yes({"amounts": [10]})])
    host = Host(tools=[pay], policy=ask_all, channel=channel)
    script: list[list[Step]] = [[Call("pay", {"amounts": [100]}), Say("Paid.")]]
    with anyio.fail_after(10):
        async with ScriptedExecutor(script, reenter=reenter) as executor, host.session(executor) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run_turn, session, "go")
                await started.wait()
                if stopped:
                    await host.abort()
            (decision,) = [event async for event in session.events() if isinstance(event, ToolDecision)]
    assert ran == [[10]]
    assert (decision.args, decision.args_digest) == ({"amounts": [10]}, args_digest({"amounts": [10]}))
    assert (decision.decision, decision.by) == ("granted", "user")


async def test_a_paused_turn_is_continued_by_another_process_of_the_host(tmp_path: Path) -> None:
    script: list[list[Step]] = [[Call("read_file", {"path": "a.py"}), Say("Thanks.")]]
    host = Host(tools=[read_file], policy=ask_all, on_ask="pause")
    with anyio.fail_after(10):
        async with SqliteRecordStore(tmp_path / "r.db") as store:
            async with ScriptedExecutor(script, reenter=True) as executor:
                options = OpenOptions(session_id="s-1")
                async with host.session(executor, options, store=store) as session:
                    paused = await host.run_turn(session, "go")
            assert paused.end.reason == "input_required"
            later = Host(tools=[read_file], policy=ask_all, channel=ScriptedChannel([True]))
            async with ScriptedExecutor(script, reenter=True) as executor:
                async with later.session(executor, load="s-1", store=store) as session:
                    assert [request.request_id for request in session.pending] == list(paused.unanswered)
                    result = await later.run_turn(session)
    assert result.completed
    assert result.text == "Thanks."
    assert result.answers[0].answer.data == "text of a.py"  # type: ignore[union-attr]


async def test_a_message_over_a_pause_settles_it_and_runs_nothing(reenter: bool) -> None:
    ran: list[str] = []

    @tool
    def act() -> None:
        ran.append("x")

    seen: list[Event] = []
    host = Host(tools=[act], policy=ask_all, on_ask="pause", observer=seen.append)
    script: list[list[Step]] = [[Call("act")], [Say("second")]]
    with anyio.fail_after(10):
        async with ScriptedExecutor(script, reenter=reenter) as executor, host.session(executor) as session:
            await host.run_turn(session, "one")
            result = await host.run_turn(session, "two")
            record = [event async for event in session.events()]
    assert (result.completed, result.text, ran) == (True, "second", [])
    assert responses(seen) == [("act", "cancelled")]
    assert {event.id for event in record} == {event.id for event in seen}


async def test_abort_ends_the_turn_and_the_next_one_works() -> None:
    started = anyio.Event()

    @tool
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    host = Host(tools=[slow], policy=allow_all)
    script: list[list[Step]] = [[Call("slow"), Say("never")], [Say("again")]]
    results: list[Any] = []
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor, host.session(executor) as session:
            async with anyio.create_task_group() as tasks:

                async def turn() -> None:
                    results.append(await host.run_turn(session, "one"))

                tasks.start_soon(turn)
                await started.wait()
                await host.abort("enough")
            again = await host.run_turn(session, "two")
    assert results[0].end.reason == "aborted"
    assert again.text == "again"


async def test_cancelling_a_running_turn_aborts_it() -> None:
    host = Host(policy=allow_all)
    running = anyio.Event()
    script: list[list[Step]] = [[Say("x"), Delay(until=anyio.Event().wait)], [Say("again")]]
    seen: list[Event] = []

    def observer(event: Event) -> None:
        seen.append(event)
        if event.type == "message" and event.source == "agent":
            running.set()

    host = Host(policy=allow_all, observer=observer)
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor, host.session(executor) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run_turn, session, "one")
                await running.wait()
                tasks.cancel_scope.cancel()
            assert session.state == "idle"
            assert (await host.run_turn(session, "two")).text == "again"


async def test_a_childs_call_is_decided_with_its_path() -> None:
    paths: list[tuple[str, ...]] = []

    def policy(request: Any) -> str:
        paths.append(request.principal_path)
        return "allow"

    script: list[list[Step]] = [
        [Parallel(fixer=[Call("read_file", {"path": "a"})], tester=[Call("read_file", {"path": "b"})])]
    ]
    host = Host(tools=[read_file], policy=policy)
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor, host.session(executor) as session:
            assert (await host.run_turn(session, "go")).completed
    assert sorted(paths) == [("scripted", "fixer"), ("scripted", "tester")]


async def test_a_session_may_be_closed_in_another_task_than_it_was_opened_in() -> None:
    host = Host(tools=[read_file], policy=allow_all)
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Say("hi")]], store=MemoryRecordStore()) as executor:
            session = await host.open(executor)
            assert (await host.run_turn(session, "go")).text == "hi"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.close, session)
    assert session.state == "closed"


async def test_every_request_has_its_one_response() -> None:
    script: list[list[Step]] = [[Calls(*(Call("read_file", {"path": f"{n}"}) for n in range(30))), Say("ok")]]
    host = Host(tools=[read_file], policy=allow_all)
    with anyio.fail_after(20):
        async with ScriptedExecutor(script) as executor, host.session(executor) as session:
            result = await host.run_turn(session, "go")
            events = [event async for event in session.events()]
    asked = [event.request_id for event in events if isinstance(event, ToolRequest)]
    answered = [event.request_id for event in events if isinstance(event, ToolResponse)]
    assert result.completed
    assert len(asked) == 30
    assert sorted(asked) == sorted(answered)


async def test_a_childs_call_that_waited_is_decided_with_its_path_in_a_later_call() -> None:
    paths: list[tuple[str, ...]] = []

    def policy(request: Any) -> str:
        paths.append(request.principal_path)
        return "ask_user"

    script: list[list[Step]] = [[Parallel(fixer=[Call("read_file", {"path": "a"})]), Say("ok")]]
    host = Host(tools=[read_file], policy=policy, on_ask="pause")
    later = Host(tools=[read_file], policy=policy, channel=ScriptedChannel([True]))
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor, host.session(executor) as session:
            assert (await host.run_turn(session, "go")).end.reason == "input_required"
            assert (await later.run_turn(session)).text == "ok"
    assert paths == [("scripted", "fixer")] * 2


async def test_a_host_hands_its_hooks_to_the_sessions_that_it_opens_and_loads() -> None:
    class Hooks:
        def __init__(self) -> None:
            self.seen: list[tuple[str, HookPayload]] = []

        def fire(self, hook_point: str, payload: HookPayload, /) -> None:
            self.seen.append((hook_point, payload))

    hooks = Hooks()
    host = Host(hooks=hooks)
    async with ScriptedExecutor([[Say("hi")]], store=MemoryRecordStore()) as executor:
        async with host.session(executor, OpenOptions(session_id="s", user_id="ada")):
            pass
        async with host.session(executor, OpenOptions(user_id="ada"), load="s"):
            pass
    assert [point for point, _ in hooks.seen] == ["session_start", "session_end"] * 2
    assert {(payload.session_id, payload.user_id) for _, payload in hooks.seen} == {("s", "ada")}


async def test_a_tool_that_a_cancelled_turn_stops_is_reported_as_stopped_and_not_as_never_started() -> None:
    inside = anyio.Event()
    seen: list[Event] = []

    @tool
    async def work() -> None:
        inside.set()
        await anyio.sleep_forever()

    host = Host(tools=[work], policy=allow_all)
    async with ScriptedExecutor([[Call("work", {})]]) as executor, host.session(executor) as session:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run_turn, session, "go")
                await inside.wait()
                tasks.cancel_scope.cancel()
        seen = [event async for event in session.events()]
    (answer,) = [event for event in seen if isinstance(event, ToolResponse)]
    assert answer.data["error"]["code"] == "cancelled"
