"""The real ``HttpAgent`` of ``@ag-ui/client`` against our server, its verifying stage on; each stream validated too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.tool_context import ToolContext
from tests.host.agui.inputs import tool_message, user
from tests.host.agui.npm_client import Npm
from tests.host.agui.serving import Poster, Watched, outcome, serving
from tests.host.agui.streams import validated
from tests.host.agui.test_app_clients import Gate

from agentsession.adapters.adk import (
    AdkExecutor,
    ScriptedLlm,
    call,
    calls,
    error,
    hold,
    say,
    stream,
    stream_call,
    think,
)
from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Call, Calls, Deltas, Memory, Parallel, Say, ScriptedExecutor
from agentsession.host import Host, SqliteRecordStore
from agentsession.host.agui import agui_app
from agentsession.host.http import Limits
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor, ElicitationRequest

pytestmark = pytest.mark.anyio

TOOL = {"name": "shape", "description": "Show a shape", "parameters": {"type": "object", "properties": {}}}
RUN = {"do": "run"}


@contextlib.asynccontextmanager
async def served(
    executor: AgentExecutor, store: Any = None, host: Host | None = None, **options: Any
) -> AsyncGenerator[tuple[str, Watched]]:
    with anyio.fail_after(60):
        async with LiveSessions([ServedAgent("agent", executor, host=host, store=store)]) as sessions:
            watched = Watched(agui_app(sessions, **options))
            async with serving(watched) as url:
                yield url, watched


class Expired:
    """A question that nobody may answer any more."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        late = "2020-01-01T00:00:00Z"
        await ctx.request(ElicitationRequest(request_id="q1", kind="user_approval", message="May I?", expires_at=late))


def scripted(*turns: Sequence[Any]) -> ScriptedExecutor:
    return ScriptedExecutor(list(turns))


def adk(*script: Any, folder: Path | None = None, **fields: Any) -> AdkExecutor:
    agent = LlmAgent(name="root", model=ScriptedLlm(script=list(script)), **fields)
    if folder is None:
        return AdkExecutor(agent)
    return AdkExecutor(agent, session_service=SqliteSessionService(str(folder / "adk.sqlite3")))


def say_(content: str = "hello", *, name: str) -> dict[str, Any]:
    return {"do": "message", "message": user(name, content)}


def tools_(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"do": "message", "message": message} for message in messages]


def resume(**payloads: Any) -> dict[str, Any]:
    entries = [{"interruptId": name, "status": "resolved", "payload": payload} for name, payload in payloads.items()]
    return {"do": "run", "params": {"resume": entries}}


def cancelled(*names: str) -> dict[str, Any]:
    return {"do": "run", "params": {"resume": [{"interruptId": name, "status": "cancelled"} for name in names]}}


def fine(told: dict[str, Any], *, is_resumed: bool = False) -> dict[str, Any]:
    """A run that the client has taken to its end, and that ``ag-ui-validate`` has nothing against."""
    assert (told["thrown"], told["failed"]) == (None, None), told["events"][-3:]
    faults = [item for item in validated(told["events"]) if not (is_resumed and item.rule == "AGUI207")]
    assert not faults, faults
    return told


def last(told: dict[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = told["events"][-1]
    return event


def code(told: dict[str, Any]) -> Any:
    """The code of the error that the run ended with."""
    assert last(told)["type"] == "RUN_ERROR", last(told)
    assert not validated(told["events"])
    return last(told)["code"]


def contents(told: dict[str, Any], role: str = "assistant") -> list[Any]:
    return [message.get("content") for message in told["messages"] if message["role"] == role]


async def test_two_thousand_deltas(npm: Npm) -> None:
    async with served(scripted([Deltas(["ab "] * 2000)])) as (url, _):
        (told,) = await npm.drive(url, [say_(name="u1"), RUN])
    assert contents(fine(told)) == ["ab " * 2000]


async def test_twenty_threads_at_once(npm: Npm) -> None:
    async with served(ScriptedExecutor([[Deltas(["ab "] * 200)]])) as (url, _):
        (runs,) = await npm.drive(url, [{"do": "parallel", "count": 20, "content": "go"}])
    assert [contents(told) for told in runs] == [["ab " * 200]] * 20
    assert not [told["thrown"] for told in runs if told["thrown"]]


async def test_a_thought_in_text(npm: Npm) -> None:
    async with served(adk(stream("one ") + think("Hm.", signature=b"abc") + stream("two"))) as (url, _):
        (told,) = await npm.drive(url, [say_(name="u1"), RUN])
    assert "".join(contents(fine(told))) == "one two"
    assert contents(told, "reasoning") == ["Hm."]
    assert any(event["type"] == "REASONING_ENCRYPTED_VALUE" for event in told["events"])


async def test_three_calls_of_the_client_one_and_then_two(npm: Npm) -> None:
    three = calls(*(call("shape", {"n": n}, id=f"c{n}") for n in (1, 2, 3)))
    tools = {"do": "run", "params": {"tools": [TOOL]}}
    async with served(adk(three, say("Drawn."))) as (url, _):
        first, second, third = await npm.drive(
            url,
            [
                say_(name="u1"),
                tools,
                *tools_(tool_message("c2", "two")),
                tools,
                *tools_(tool_message("c1", "", error="broke"), tool_message("c3", "three")),
                tools,
            ],
        )
    assert fine(first)["finished"]["pendingToolCallIds"] == ["c1", "c2", "c3"]
    assert fine(second, is_resumed=True)["finished"]["pendingToolCallIds"] == ["c1", "c3"]
    assert contents(fine(third, is_resumed=True))[-1] == "Drawn."
    assert third["finished"]["pendingToolCallIds"] == []


@pytest.mark.parametrize(
    ("payload", "wiped"),
    [
        ({"approved": True}, ["a"]),
        ({"approved": False}, []),
        ({"approved": True, "editedArgs": {"path": "b"}}, ["b"]),
    ],
)
async def test_a_grant(npm: Npm, payload: Any, wiped: list[str]) -> None:
    done: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        done.append(path)
        return "gone"

    async with served(adk(call("wipe", {"path": "a"}, id="c1"), say("Over."), tools=[wipe])) as (url, _):
        first, second = await npm.drive(url, [say_(name="u1"), RUN, resume(c1=payload)])
    assert fine(first)["finished"]["outcome"] == "interrupt"
    assert first["pendingInterrupts"][0]["toolCallId"] == "c1"
    assert contents(fine(second, is_resumed=True))[-1] == "Over."
    assert second["pendingInterrupts"] == []
    assert done == wiped


async def test_payloads_that_are_no_answer(npm: Npm) -> None:
    done: list[Any] = []
    payloads: list[Any] = [None, {}, 1, "true", "Yes", {"approved": "true"}, {"approved": True, "action": "cancel"}]
    script = [Call("wipe", {"path": "a"}, needs="grant", run=done.append, id="c1"), Say("Over.")]
    async with served(scripted(script)) as (url, _):
        steps = [say_(name="u1"), RUN, *(resume(c1=payload) for payload in payloads), resume(c1="yes")]
        first, *others, end = await npm.drive(url, steps)
    fine(first)
    assert [code(told) for told in others] == ["answer_invalid"] * len(payloads)
    assert all(told["pendingInterrupts"] for told in others)
    fine(end, is_resumed=True)
    assert done == [{"path": "a"}]


async def test_answers_again_and_only_some_of_them(npm: Npm) -> None:
    done: list[Any] = []
    both = Call("wipe", {"path": "a"}, needs="grant", run=done.append, id="c1")
    other = Call("wipe", {"path": "b"}, needs="grant", run=done.append, id="c2")
    async with served(scripted([Calls(both, other), Say("Over.")])) as (url, _):
        first, end, again = await npm.drive(
            url,
            [say_(name="u1"), RUN, resume(c1=True, c2=False), resume(c1=True, c2=False)],
        )
        http_only_some = await _post(url, [user("u1")], resume=[{"interruptId": "c9", "status": "cancelled"}])
    fine(first)
    fine(end, is_resumed=True)
    fine(again)
    assert http_only_some == "interrupt_unknown"
    assert done == [{"path": "a"}]


async def _post(url: str, messages: list[dict[str, Any]], **changes: Any) -> Any:
    """What the client would not send."""
    async with Poster(url) as poster:
        return outcome(await poster.run(messages=messages, **changes))


async def test_after_an_error_the_interrupts_are_left_with_a_message(npm: Npm) -> None:
    done: list[Any] = []
    script = [Call("wipe", {"path": "a"}, needs="grant", run=done.append, id="c1"), Say("never")]
    async with served(scripted(script, [Say("Fresh.")])) as (url, _):
        _, wrong, end, after = await npm.drive(
            url,
            [
                say_(name="u1"),
                RUN,
                resume(c1=1),
                say_(name="u2"),
                cancelled("c1"),
                cancelled("c1"),
            ],
        )
    assert code(wrong) == "answer_invalid"
    assert contents(fine(end, is_resumed=True))[-1] == "Fresh."
    fine(after)
    assert done == []


async def test_an_error_in_the_middle_of_a_stream(npm: Npm) -> None:
    async with served(adk(stream("Hel", "lo") + error("INTERNAL", "no"), say("ok"))) as (url, _):
        first, second = await npm.drive(url, [say_(name="u1"), RUN, say_(name="u2"), RUN])
    assert last(first)["type"] == "RUN_ERROR"
    assert not validated(first["events"])
    assert contents(fine(second))[-1] == "ok"


async def test_sub_agents_that_wait_in_one_another(npm: Npm) -> None:
    done: list[Any] = []
    wipe = Call("wipe", {"path": "a"}, needs="grant", run=done.append, id="c1")
    inner = Parallel(inner=[wipe, Say("inside")])
    async with served(scripted([Parallel(outer=[inner, Say("outside")]), Say("Over.")])) as (url, _):
        first, second = await npm.drive(url, [say_(name="u1"), RUN, resume(c1=True)])
    started = [event for event in fine(first)["events"] if event["type"] == "SUBAGENT_STARTED"]
    assert [event["name"] for event in started] == ["outer", "inner"]
    assert started[1]["parentSubagentRunId"] == started[0]["subagentRunId"]
    ended = [event for event in first["events"] if event["type"] == "SUBAGENT_FINISHED"]
    assert [event["outcome"]["type"] for event in ended] == ["suspended", "suspended"]
    assert contents(fine(second, is_resumed=True))[-1] == "Over."
    assert done == [{"path": "a"}]


async def test_a_history_after_a_restart(npm: Npm, tmp_path: Path) -> None:
    async with SqliteRecordStore(tmp_path / "r.sqlite3") as store:
        async with served(adk(say("One."), folder=tmp_path), store) as (url, _):
            (first,) = await npm.drive(url, [say_(name="u1"), RUN])
        async with served(adk(say("Two."), folder=tmp_path), store) as (url, _):
            fresh = {"do": "fresh", "messages": first["messages"]}
            again, second = await npm.drive(url, [fresh, RUN, say_(name="u2"), RUN])
    assert fine(again)["messages"] == first["messages"]
    assert contents(fine(second)) == ["One.", "Two."]


@pytest.mark.parametrize("state", [{}, None, 0, "", False, [], {"n": 1, "deep": {"a": [None, False, 0]}}])
async def test_states_go_round(npm: Npm, state: Any) -> None:
    seen: list[Any] = []

    def look(tool_context: ToolContext) -> str:
        """Look."""
        seen.append(tool_context.state.get("n"))
        tool_context.state["m"] = 2
        return "ok"

    async with served(adk(call("look", id="c1"), say("one"), say("two"), tools=[look])) as (url, _):
        steps = [{"do": "state", "state": state}, say_(name="u1"), RUN, resume(c1=True), say_(name="u2"), RUN]
        _, second, third = await npm.drive(url, steps)
    given = state if isinstance(state, dict) else {}
    assert seen == [given.get("n")]
    assert fine(second, is_resumed=True)["state"] == {**given, "m": 2}
    assert fine(third)["state"] == {**given, "m": 2}


async def test_a_client_that_leaves_in_the_middle_of_arguments(npm: Npm) -> None:
    gate = Gate()

    async def wait() -> None:
        gate.reached.set()
        await gate.opened.wait()

    script = (stream_call("shape", {"name": ["a", "b"]}, id="c1") + hold(wait), say("Next."))
    async with served(adk(*script), grace_s=0.01) as (url, app):
        steps = [say_(name="u1"), {"do": "run", "params": {"tools": [TOOL]}, "leaveAfter": 3}]
        (told,) = await npm.drive(url, steps)
        assert len(told["events"]) >= 3
        await app.settled()
        fresh = {"do": "fresh", "messages": told["messages"]}
        again, end = await npm.drive(url, [fresh, RUN, say_(name="u2"), RUN])
    assert fine(again)["finished"]["outcome"] == "cancelled"
    assert contents(fine(end))[-1] == "Next."


@pytest.mark.parametrize("policy", ["cancel", "carry_on"])
async def test_a_client_that_leaves_and_comes_back(npm: Npm, policy: Any) -> None:
    gate = Gate()
    script = [Deltas(["one ", "two "]), gate, Say("three")]
    async with served(scripted(script, [Say("four")]), on_disconnect=policy, grace_s=0.01) as (url, app):
        (told,) = await npm.drive(url, [say_(name="u1"), {**RUN, "leaveAfter": 4}])
        if policy == "cancel":
            await gate.stopped.wait()
        else:
            gate.opened.set()
        await app.settled()
        fresh = {"do": "fresh", "messages": told["messages"]}
        again, end = await npm.drive(url, [fresh, RUN, say_(name="u2"), RUN])
    assert fine(again)["finished"]["outcome"] == ("cancelled" if policy == "cancel" else "success")
    expected = ["one two "] if policy == "cancel" else ["one two ", "three"]
    assert contents(again) == expected
    assert contents(fine(end)) == [*expected, "four"]


async def test_a_client_that_comes_back_while_its_run_goes_on(npm: Npm) -> None:
    gate = Gate()
    script = [Deltas(["one ", "two "]), gate, Say("three")]
    async with served(scripted(script), on_disconnect="carry_on", limits=Limits(ping_s=0.01)) as (url, app):
        (told,) = await npm.drive(url, [say_(name="u1"), {**RUN, "leaveAfter": 4}])
        await app.until(lambda app: app.clients == 0)

        async def open_later() -> None:
            await app.until(lambda app: app.clients == 1)
            gate.opened.set()

        opening = asyncio.create_task(open_later())
        fresh = {"do": "fresh", "messages": told["messages"]}
        (again,) = await npm.drive(url, [fresh, RUN])
        await opening
    assert contents(fine(again)) == ["one two ", "three"]


async def test_three_waiters(npm: Npm) -> None:
    async with served(scripted([Say("one")], [Say("two")], [Say("three")]), limits=Limits(ping_s=0.01)) as (url, _):
        runs = [{"messages": [user(f"u{n}")]} for n in (1, 2, 3)]
        (told,) = await npm.drive(url, [{"do": "together", "runs": runs}])
    assert sorted(contents(fine(one))[0] for one in told) == ["one", "three", "two"]


async def test_the_ids_of_a_snapshot_are_the_clients(npm: Npm) -> None:
    """A snapshot deletes what it omits: after an interrupt the client has all that it had, under the same ids."""
    script = [Call("shape", {}, id="c1"), Call("wipe", {}, needs="grant", id="c2"), Say("Over.")]
    async with served(scripted(script)) as (url, _):
        _, second = await npm.drive(
            url,
            [
                say_(name="u1"),
                {"do": "run", "params": {"tools": [TOOL]}},
                *tools_(tool_message("c1", "x", id="mine")),
                RUN,
            ],
        )
    assert fine(second, is_resumed=True)["finished"]["outcome"] == "interrupt"
    names = [message["id"] for message in second["messages"]]
    assert names[0] == "u1"
    assert "mine" in names
    assert len(set(names)) == len(names)


async def test_an_expired_question(npm: Npm) -> None:
    async with served(scripted([Expired(), Say("Over.")])) as (url, _):
        first, late, left = await npm.drive(url, [say_(name="u1"), RUN, resume(q1=True), cancelled("q1")])
    fine(first)
    if late["thrown"] is None:
        assert code(late) == "interrupt_expired"
    fine(left, is_resumed=True)
