"""Agents that a host on the server controls, driven by the real ``HttpAgent``: what its policy asks, a page answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.agui.inputs import tool_message
from tests.host.agui.npm_client import Npm
from tests.host.agui.test_app_hosted import Desk
from tests.host.agui.test_npm_client import (
    RUN,
    TOOL,
    adk,
    cancelled,
    code,
    contents,
    fine,
    resume,
    say_,
    scripted,
    served,
    tools_,
)

from agentsession.adapters.adk import call, calls, say
from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, Rule, RulePolicy, SubagentTool
from agentsession.protocol import AgentExecutor

pytestmark = pytest.mark.anyio

RULES = RulePolicy(
    [
        Rule("deny", "wipe", when=lambda args: args["path"] == "secret"),
        Rule("allow", "look"),
        Rule("allow", "fixer"),
        Rule("ask_user", "*"),
    ]
)
FIRST = [say_(name="u1"), RUN]


def wiping(kind: str) -> AgentExecutor:
    if kind == "adk":
        return adk(call("wipe", {"path": "a"}, id="c1"), say("Over."))
    return scripted([Call("wipe", {"path": "a"}, id="c1"), Say("Over.")])


@pytest.mark.parametrize("kind", ["adk", "scripted"])
@pytest.mark.parametrize(
    ("payload", "done", "result"),
    [
        ({"approved": True}, ["a"], "a is gone"),
        ({"approved": False, "reason": "not that one"}, [], "not that one"),
        ({"approved": True, "editedArgs": {"path": "b"}}, ["b"], "b is gone"),
        ({"approved": True, "editedArgs": {"path": "secret"}}, [], ""),
    ],
)
async def test_what_the_policy_asks_is_accepted_denied_or_edited(
    npm: Npm, kind: str, payload: Any, done: list[str], result: str
) -> None:
    desk = Desk()
    async with served(wiping(kind), host=Host(tools=[desk.wipe], policy=RULES)) as (url, _):
        first, second = await npm.drive(url, [*FIRST, resume(c1=payload)])
    assert fine(first)["finished"]["outcome"] == "interrupt"
    (interrupt,) = first["pendingInterrupts"]
    assert interrupt["toolCallId"] == "c1"
    assert interrupt["responseSchema"]["properties"]["editedArgs"]["required"] == ["path"]
    assert fine(second, is_resumed=True)["finished"]["outcome"] == "success"
    assert second["pendingInterrupts"] == []
    assert desk.done == done
    (told,) = contents(second, "tool")
    assert result in told
    assert contents(second)[-1] == "Over."


async def test_what_is_no_answer_runs_nothing_and_an_answer_again_runs_nothing_more(npm: Npm) -> None:
    desk = Desk()
    payloads: list[Any] = [None, 1, "true", {"approved": "true"}, {"approved": True, "editedArgs": {"path": 5}}]
    steps = [*FIRST, *(resume(c1=payload) for payload in payloads), resume(c1="yes"), resume(c1="yes")]
    async with served(wiping("adk"), host=Host(tools=[desk.wipe], policy=RULES)) as (url, _):
        _, *others, end, again = await npm.drive(url, steps)
    assert [code(told) for told in others] == ["answer_invalid"] * len(payloads)
    assert all(told["pendingInterrupts"] for told in others)
    fine(end, is_resumed=True)
    fine(again)
    assert desk.done == ["a"]


async def test_a_message_leaves_what_the_policy_asks(npm: Npm) -> None:
    desk = Desk()
    script = scripted([Call("wipe", {"path": "a"}, id="c1"), Say("never")], [Say("Fresh.")])
    async with served(script, host=Host(tools=[desk.wipe], policy=RULES)) as (url, _):
        _, end = await npm.drive(url, [*FIRST, say_(name="u2"), cancelled("c1")])
    assert contents(fine(end, is_resumed=True))[-1] == "Fresh."
    assert desk.done == []


async def test_tools_of_the_host_and_of_the_client_in_one_step(npm: Npm) -> None:
    desk = Desk()
    three = calls(
        call("look", {"path": "b"}, id="c1"), call("wipe", {"path": "a"}, id="c2"), call("shape", {"n": 1}, id="c3")
    )
    tools = {"tools": [TOOL]}
    answer = resume(c2=True)
    async with served(adk(three, say("Over.")), host=Host(tools=[desk.look, desk.wipe], policy=RULES)) as (url, _):
        first, second, third = await npm.drive(
            url,
            [
                say_(name="u1"),
                {"do": "run", "params": tools},
                {"do": "run", "params": {**answer["params"], **tools}},
                *tools_(tool_message("c3", "a square")),
                {"do": "run", "params": tools},
            ],
        )
    assert [each["id"] for each in fine(first)["pendingInterrupts"]] == ["c2"]
    assert fine(second, is_resumed=True)["finished"]["pendingToolCallIds"] == ["c3"]
    assert contents(fine(third, is_resumed=True))[-1] == "Over."
    assert desk.done == ["look b", "a"]


@pytest.mark.parametrize(
    ("payload", "done"), [(True, ["a"]), (False, []), ({"approved": True, "args": {"path": "b"}}, ["b"])]
)
async def test_what_a_sub_agent_of_the_host_asks(npm: Npm, payload: Any, done: list[str]) -> None:
    desk = Desk()
    fixer = ScriptedExecutor([[Say("I look."), Call("wipe", {"path": "a"}, id="w1"), Say("Mended.")]], name="fixer")
    async with fixer:
        host = Host(tools=[desk.wipe, SubagentTool(fixer, tools=["wipe"])], policy=RULES)
        async with served(adk(call("fixer", {"task": "mend it"}, id="c1"), say("Over.")), host=host) as (url, _):
            (first,) = await npm.drive(url, FIRST)
            (interrupt,) = fine(first)["pendingInterrupts"]
            asked = [each for message in first["messages"] for each in message.get("toolCalls") or ()]
            assert interrupt["toolCallId"] in [each["id"] for each in asked]
            fresh = {"do": "fresh", "messages": first["messages"]}
            again, end = await npm.drive(url, [fresh, RUN, resume(**{interrupt["id"]: payload})])
    assert fine(again)["pendingInterrupts"] == [interrupt]
    assert fine(end, is_resumed=True)["finished"]["outcome"] == "success"
    assert {"I look.", "Mended.", "Over."} <= set(contents(end))
    assert desk.done == done
