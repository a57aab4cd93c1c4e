"""A host with several hooks: what they say of a call tightens the policy and is asked once. On asyncio and trio."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor, Step
from agentsession.host import (
    AnnotationPolicy,
    Approval,
    Host,
    Rule,
    RulePolicy,
    ScriptedChannel,
    ToolOutcome,
    allow_all,
    deny_all,
)
from agentsession.host.hooks import ask_user, hook
from agentsession.protocol import (
    Custom,
    Event,
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    Spent,
    ToolCallHook,
    ToolDecision,
    ToolResponse,
    ToolResultHook,
    block,
    modify,
)

pytestmark = pytest.mark.anyio


class Tools:
    """A tool that counts its runs."""

    def __init__(self, gives: Any = "done") -> None:
        self.ran: list[str] = []
        self._gives = gives

    def write(self, path: str) -> Any:
        """Write a file."""
        self.ran.append(path)
        return self._gives


@hook("before_tool", id="odd")
def odd(payload: ToolCallHook) -> HookOutcome:
    return ask_user("that path looks odd")


async def run(host: Host, *steps: Step) -> list[Event]:
    events: list[Event] = []
    script = [[*(steps or [Call("write", {"path": "a"})]), Say("done")]]
    async with ScriptedExecutor(script, store=MemoryRecordStore()) as executor, host.session(executor) as session:
        await host.run_turn(session, "go")
        events += [event async for event in session.events()]
    return events


def only(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(("word", "ran"), [(True, ["a"]), (False, [])])
async def test_a_hook_that_asks_makes_a_question_of_what_the_policy_allows(word: bool, ran: list[str]) -> None:
    tools, channel = Tools(), ScriptedChannel({"write": word})
    await run(Host(tools=[tools.write], policy=allow_all, channel=channel, hooks=[odd]))
    assert (len(channel.asked), tools.ran) == (1, ran)


async def test_a_yes_that_was_remembered_for_the_policys_question_is_no_answer_to_a_hooks() -> None:
    tools = Tools()
    channel = ScriptedChannel([Approval.yes(remember="session")] * 4)

    @hook("before_tool", id="odd")
    def some(payload: ToolCallHook) -> HookOutcome | None:
        return ask_user("odd") if payload.args["path"].startswith("odd") else None

    host = Host(tools=[tools.write], channel=channel, hooks=[some])
    paths = ["a", "b", "odd1", "odd2", "odd1"]
    await run(host, *(Call("write", {"path": path}) for path in paths))
    assert tools.ran == paths
    # Of those that the hook is asked about, only the same arguments are answered by what was remembered.
    assert [request.args["path"] for request, _ in channel.asked] == ["a", "odd1", "odd2"]  # type: ignore[union-attr,index]


async def test_the_person_is_told_which_hook_wants_to_know_and_why() -> None:
    told: list[Any] = []

    class Channel(ScriptedChannel):
        async def approve(self, request: Any, decision: Any, position: Any) -> Approval:
            told.append((decision.decision, decision.by, decision.reason))
            return Approval.no()

    await run(Host(tools=[Tools().write], policy=allow_all, channel=Channel(), hooks=[odd]))
    assert told == [("ask_user", "hook:odd", "that path looks odd")]


@pytest.mark.parametrize("policy", [deny_all, RulePolicy([]), RulePolicy([Rule("deny", "write")])])
async def test_a_hook_that_asks_loosens_no_denial(policy: Any) -> None:
    tools, channel = Tools(), ScriptedChannel({"write": True})
    events = await run(Host(tools=[tools.write], policy=policy, channel=channel, hooks=[odd]))
    assert (channel.asked, tools.ran) == ([], [])
    (decision,) = only(events, ToolDecision)
    assert decision.decision == "denied"
    assert decision.by.startswith("policy:")


async def test_without_anybody_to_ask_a_hook_that_asks_denies() -> None:
    tools = Tools()
    await run(Host(tools=[tools.write], policy=allow_all, hooks=[odd]))
    assert tools.ran == []


async def test_a_hook_that_blocks_is_recorded_like_a_denial_and_nobody_is_asked() -> None:
    @hook("before_tool", id="jail")
    def jail(payload: ToolCallHook) -> HookOutcome:
        return block("outside of the workspace")

    tools, channel = Tools(), ScriptedChannel({"write": True})
    events = await run(Host(tools=[tools.write], channel=channel, hooks=[odd, jail]))
    assert (channel.asked, tools.ran) == ([], [])
    (decision,) = only(events, ToolDecision)
    assert (decision.decision, decision.by) == ("denied", "hook:jail")
    assert only(events, ToolResponse)[0].data["error"] == "outside of the workspace"


async def test_a_persons_arguments_are_shown_to_the_hooks_which_may_still_block_them() -> None:
    seen: list[tuple[str, bool]] = []

    @hook("before_tool", id="jail")
    def jail(payload: ToolCallHook) -> HookOutcome | None:
        seen.append((payload.args["path"], payload.granted))
        return block("not there") if payload.args["path"] == "/etc/passwd" else None

    for path, ran in (("/etc/passwd", []), ("b", ["b"])):
        tools = Tools()
        channel = ScriptedChannel({"write": Approval.yes({"path": path})})
        await run(Host(tools=[tools.write], policy=AnnotationPolicy(), channel=channel, hooks=[jail]))
        assert tools.ran == ran
    assert seen == [("a", False), ("/etc/passwd", True), ("a", False), ("b", True)]


async def test_a_change_of_arguments_that_a_person_gave_blocks() -> None:
    @hook("before_tool", id="jail")
    def jail(payload: ToolCallHook) -> HookOutcome | None:
        return modify(args={"path": "c"}) if payload.granted else None

    tools, channel = Tools(), ScriptedChannel({"write": Approval.yes({"path": "b"})})
    await run(Host(tools=[tools.write], channel=channel, hooks=[jail]))
    assert tools.ran == []


async def test_a_result_is_shown_to_the_hooks_once_before_record_and_agent_have_it() -> None:
    seen: list[Any] = []

    @hook("after_tool")
    def redact(payload: ToolResultHook) -> HookOutcome:
        seen.append((payload.name, payload.args, payload.data, payload.is_error))
        return modify(data={"token": "[removed]"})

    tools = Tools({"token": "sk-1"})
    events = await run(Host(tools=[tools.write], policy=allow_all, hooks=[redact]))
    assert seen == [("write", {"path": "a"}, {"token": "sk-1"}, False)]
    assert only(events, ToolResponse)[0].data == {"token": "[removed]"}
    assert "sk-1" not in "".join(event.to_wire_json() for event in events)


async def test_the_record_says_which_hook_changed_a_result_and_what_of_it_but_not_how() -> None:
    @hook("after_tool", id="redact")
    def redact(payload: ToolResultHook) -> HookOutcome:
        return HookOutcome(modifications={"data": "sk-2"}, reason="a key")

    events = await run(Host(tools=[Tools("sk-1").write], policy=allow_all, hooks=[redact]))
    (told,) = [event for event in only(events, Custom) if event.kind == "hook"]
    (response,) = only(events, ToolResponse)
    assert told.data == {
        "point": "after_tool",
        "action": "modify",
        "changed": ["data"],
        "by": "redact",
        "reason": "a key",
        "requestId": response.request_id,
    }
    assert response.data == "sk-2"


async def test_other_data_takes_the_place_of_parts_and_of_what_is_for_screens() -> None:
    @hook("after_tool")
    def redact(payload: ToolResultHook) -> HookOutcome:
        assert payload.content
        return modify(data="short")

    tools = Tools(ToolOutcome(content="sk-1", display={"raw": "sk-1"}))
    events = await run(Host(tools=[tools.write], policy=allow_all, hooks=[redact]))
    assert "sk-1" not in "".join(event.to_wire_json() for event in events)


async def test_a_blocked_result_is_an_error_that_says_which_hook_it_was() -> None:
    @hook("after_tool", id="dlp")
    def keep(payload: ToolResultHook) -> HookOutcome:
        return block("this may not leave the house")

    events = await run(Host(tools=[Tools("sk-1").write], policy=allow_all, hooks=[keep]))
    (response,) = only(events, ToolResponse)
    assert (response.status, response.data["error"]) == (
        "failed",
        {"code": "hook_blocked", "message": "this may not leave the house", "by": "hook:dlp"},
    )


async def test_what_hooks_said_of_a_call_is_asked_again_by_the_host_that_loads_it() -> None:
    tools, store = Tools(), MemoryRecordStore()
    script: list[list[Step]] = [[Call("write", {"path": "a"}), Say("done")]]
    asked = ScriptedChannel({"write": True})
    async with ScriptedExecutor(script, reenter=True, store=store) as executor:
        first = Host(tools=[tools.write], policy=allow_all, hooks=[odd], on_ask="pause")
        async with first.session(executor) as session:
            assert (await first.run_turn(session, "go")).end.reason == "input_required"
        later = Host(tools=[tools.write], policy=allow_all, hooks=[odd], channel=asked)
        async with later.session(executor, load=session.session_id) as session:
            assert (await later.run_turn(session)).end.reason == "completed"
    assert (len(asked.asked), tools.ran) == (1, ["a"])


async def test_a_host_without_hooks_in_its_list_hands_none_on() -> None:
    seen: list[Any] = []

    class Executor(ScriptedExecutor):
        async def open(self, *args: Any, **given: Any) -> Any:
            seen.append(given.get("hooks"))
            return await super().open(*args, **given)

    host = Host(hooks=[])
    async with Executor([[Say("hi")]]) as executor, host.session(executor):
        pass
    assert seen == [None]


async def test_nothing_is_kept_of_the_calls_of_a_turn_that_is_over() -> None:
    host = Host(tools=[Tools().write], policy=allow_all, hooks=[odd, _nothing])
    await run(host)
    hooks = host._settings.hooks  # a leak has no other sign
    assert hooks is not None
    assert (hooks._before, hooks._after) == ({}, {})


async def test_nothing_is_kept_of_the_calls_of_a_session_that_is_closed_while_it_waits() -> None:
    host = Host(tools=[Tools().write], policy=allow_all, hooks=[odd], on_ask="pause")
    await run(host)
    hooks = host._settings.hooks  # a leak has no other sign
    assert hooks is not None
    assert hooks._before == {}


@hook("after_tool")
def _nothing(payload: HookPayload) -> None: ...


@pytest.mark.parametrize("said", [modify(data="shorter"), block("not for the model")], ids=["changed", "blocked"])
async def test_that_a_call_was_cut_off_and_what_it_has_used_stays_when_a_hook_replaces_its_result(
    said: HookOutcome,
) -> None:
    @hook("after_tool")
    def replace(payload: ToolResultHook) -> HookOutcome:
        return said

    tools = Tools(ToolOutcome(data="long", is_error=True, unknown=True, spent=Spent(model_calls=2, cost=0.5)))
    (answered,) = only(await run(Host(tools=[tools.write], policy=allow_all, hooks=[replace])), ToolResponse)
    assert "long" not in str(answered.data)
    assert (answered.status, answered.spent) == ("unknown", Spent(model_calls=2, cost=0.5))
