"""Sub-agents of hosts: what they may do and see, how they end. The files beside this: people, aborts, restarts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.subagents import agent, calls, limited, read_file, responses, run, seen_of_children

from agentsession.adapters.scripted import Call, Count, Deltas, End, Fail, Parallel, Raise, Say, ScriptedExecutor
from agentsession.host import (
    Host,
    PolicyRequest,
    Rule,
    RulePolicy,
    SessionFactory,
    SubagentTool,
    allow_all,
    tool,
)
from agentsession.protocol import (
    AgentDescriptor,
    AgentStart,
    ConfigurationError,
    Event,
    ExecutionOptions,
    Message,
    OpenOptions,
    ToolAnnotations,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    Usage,
)

pytestmark = pytest.mark.anyio


async def test_a_sub_agent_does_a_task_and_its_last_message_is_the_result() -> None:
    seen: list[Event] = []
    async with agent("fixer", Say("Looking."), Say("Mended.")) as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append)
        result = await run(host, coder)
    assert result.completed
    assert responses(seen)["r1"].data == "Mended."


async def test_its_events_are_progress_of_the_call_on_a_thread_and_under_ids_of_their_own() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="r1"), Say("Mended.")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    inside = seen_of_children(seen)
    (call,) = [event for event in inside if isinstance(event, ToolRequest)]
    (answer,) = [event for event in inside if isinstance(event, ToolResponse)]
    assert {event.thread_id for event in inside} == {call.thread_id}
    assert call.thread_id is not None
    assert call.thread_id.startswith("fixer-")
    assert call.request_id == answer.request_id == f"{call.thread_id}:r1"
    assert answer.data == "text of a"


async def test_deltas_of_a_sub_agent_that_come_close_together_are_joined() -> None:
    seen: list[Event] = []
    async with agent("fixer", Deltas(["a"] * 200)) as fixer, agent("coder", calls("fixer")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    said = [event for event in seen_of_children(seen) if isinstance(event, Message) and event.role == "agent"]
    assert len(said) < 50
    assert "".join(part.text for event in said if event.partial for part in event.content) == "a" * 200  # type: ignore[union-attr]  # texts


async def test_a_huge_event_of_a_sub_agent_is_cut_in_its_callers_session_and_whole_in_its_own() -> None:
    seen: list[Event] = []
    async with agent("fixer", Say("x" * 200_000)) as fixer, agent("coder", calls("fixer")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    said = [event for event in seen_of_children(seen) if isinstance(event, Message) and event.role == "agent"]
    assert all(len(event.to_wire_json()) < 20_000 for event in said)
    assert said[-1].meta == {"cut": True}
    assert responses(seen)["r1"].data == "x" * 200_000


# --- what it may do -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "code"), [((), "unknown_tool"), (("read_file",), None), (("other",), "unknown_tool")]
)
async def test_it_has_those_of_its_callers_tools_that_were_named_and_no_other(named: Any, code: str | None) -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="x"), Say("ok")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=named)]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    (answer,) = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert (answer.data["error"]["code"] if answer.is_error else None) == code


async def test_policy_sees_the_whole_path_and_what_it_denies_is_told_to_the_sub_agent_alone() -> None:
    asked: list[PolicyRequest] = []
    seen: list[Event] = []
    rules = RulePolicy([Rule("deny", "*", principals="coder/*", reason="children stay out"), Rule("allow", "*")])

    def policy(request: PolicyRequest) -> Any:
        asked.append(request)
        return rules.evaluate(request)

    async with (
        agent("fixer", Call("read_file", {"path": "a"}, id="x"), Say("I did without.")) as fixer,
        agent("coder", calls("fixer"), Call("read_file", {"path": "b"}, id="r2")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=policy, observer=seen.append), coder)
    assert result.completed
    assert [request.principal_path for request in asked] == [("coder",), ("coder", "fixer"), ("coder",)]
    assert [event.status for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == ["denied"]
    assert responses(seen)["r1"].data == "I did without."
    assert responses(seen)["r2"].status == "completed"


@pytest.mark.parametrize(
    ("above", "own", "expected"),
    [
        (None, None, "default"),
        ("autonomous", None, "autonomous"),
        ("autonomous", "plan", "plan"),
        ("plan", "autonomous", "plan"),
        ("default", "auto_edit", "default"),
    ],
)
async def test_the_stricter_mode_of_caller_and_sub_agent_holds(above: Any, own: Any, expected: str) -> None:
    modes: list[str] = []

    def policy(request: PolicyRequest) -> str:
        modes.append(request.permission_mode)
        return "allow"

    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("ok")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        options = ExecutionOptions(permission_mode=own)
        marks = ToolAnnotations(read_only=True)  # else it could not be called in plan
        child = SubagentTool(fixer, tools=["read_file"], options=options, annotations=marks)
        host = Host(tools=[read_file, child], policy=policy)
        async with host.session(coder, ExecutionOptions(permission_mode=above)) as session:
            await host.run_turn(session, "go")
    assert modes == [above or "default", expected]


async def test_three_levels_are_run_and_a_fourth_is_refused() -> None:
    seen: list[Event] = []
    async with (
        agent("d", Say("d is deep")) as d,
        agent("c", calls("d"), Say("c said")) as c,
        agent("b", calls("c"), Say("b said")) as b,
        agent("a", calls("b"), Say("a said")) as a,
        agent("root", calls("a"), Say("ok")) as root,
    ):
        tools = [SubagentTool(executor, tools=["b", "c", "d"]) for executor in (a, b, c, d)]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), root)
    assert result.completed
    inside = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert [event.is_error for event in inside] == [True, False, False]
    assert inside[0].data["error"]["code"] == "subagent_refused"
    assert [(event.thread_id or "").count(".") for event in inside] == [2, 1, 0]
    assert not any(event.agent_id == "d" for event in seen_of_children(seen))


async def test_an_agent_is_not_called_in_itself() -> None:
    seen: list[Event] = []
    async with (
        agent("b", calls("a"), Say("b said")) as b,
        agent("a", calls("b"), Say("a said")) as a,
        agent("root", calls("a")) as root,
    ):
        tools = [SubagentTool(a, tools=["a", "b"]), SubagentTool(b, tools=["a", "b"])]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), root)
    inside = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert inside[0].data["error"]["code"] == "subagent_refused"
    assert responses(seen)["r1"].data == "a said"
    begun = {event.session_id for event in seen_of_children(seen) if event.agent_id == "a"}
    assert len(begun) == 1


async def test_the_smallest_depth_of_those_above_holds() -> None:
    seen: list[Event] = []
    async with (
        agent("b", Say("b said")) as b,
        agent("a", calls("b"), Say("a said")) as a,
        agent("root", calls("a")) as root,
    ):
        tools = [SubagentTool(a, tools=["b"], max_depth=1), SubagentTool(b)]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), root)
    inside = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert [event.data["error"]["code"] for event in inside] == ["subagent_refused"]


async def test_only_its_own_tools_are_declared_to_it() -> None:
    fixer, opened = limited("fixer", Say("ok"))
    async with fixer, agent("coder", calls("fixer")) as coder:
        child = SubagentTool(fixer, tools=["read_file"], complete_task=True)
        await run(Host(tools=[read_file, child], policy=allow_all), coder)
    assert [item.name for item in opened[0].execution.tools or []] == ["read_file", "complete_task"]


# --- how it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code", "reason"),
    [
        (End("max_turns"), "subagent_limit", "max_turns"),
        (End("max_tokens"), "subagent_limit", "max_tokens"),
        (Raise(ValueError("secret")), "subagent_failed", "failed"),
        (Fail("no more disk", fatal=True), "subagent_failed", "failed"),
        (End("refusal"), "subagent_failed", "refusal"),
    ],
)
async def test_an_end_that_is_no_success_is_an_error_with_what_it_said_and_the_caller_lives(
    step: Any, code: str, reason: str
) -> None:
    seen: list[Event] = []
    async with agent("fixer", Say("Half of it."), step) as fixer, agent("coder", calls("fixer"), Say("ok")) as coder:
        result = await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    assert result.completed
    answer = responses(seen)["r1"]
    assert answer.is_error
    assert (answer.data["error"]["code"], answer.data["error"]["reason"]) == (code, reason)
    assert answer.data["error"]["partialText"] == "Half of it."
    assert "secret" not in answer.to_wire_json()


async def test_an_executor_that_cannot_open_a_session_is_an_error_result() -> None:
    class Shut(ScriptedExecutor):
        async def on_open(self, session: Any) -> None:
            raise OSError("no")

    seen: list[Event] = []
    async with Shut([], name="fixer") as fixer, agent("coder", calls("fixer"), Say("ok")) as coder:
        result = await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    assert result.completed
    assert responses(seen)["r1"].data["error"]["code"] == "subagent_failed"


async def test_each_usage_of_a_sub_agent_counts_once_in_its_callers_turn() -> None:
    seen: list[Event] = []
    async with (
        agent("c", Count(input_tokens=100, cost=1.0), Say("c")) as c,
        agent("b", Count(input_tokens=10, cost=0.5), calls("c"), Say("b")) as b,
        agent("root", Count(input_tokens=1, cost=0.25), calls("b"), Say("ok")) as root,
    ):
        tools = [SubagentTool(b, tools=["c"]), SubagentTool(c)]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), root)
    assert (result.usage.calls, result.usage.input_tokens, result.usage.cost) == (3, 111, 1.75)
    counted = [event.thread_id for event in seen_of_children(seen) if isinstance(event, Usage)]
    assert [thread.count(".") for thread in counted if thread is not None] == [0, 1]


# --- complete_task --------------------------------------------------------------------------------------------------

_SCORE = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def _complete(result: Any, request_id: str = "done") -> Call:
    return Call("complete_task", {"result": result}, id=request_id)


async def test_a_result_is_taken_by_complete_task_without_asking_the_policy() -> None:
    seen: list[Event] = []
    policy = RulePolicy([Rule("allow", "fixer")])
    async with agent("fixer", _complete({"score": 7}), Say("Bye.")) as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer, result_schema=_SCORE)], policy=policy, observer=seen.append)
        await run(host, coder)
    assert responses(seen)["r1"].data == {"score": 7}


async def test_a_result_that_does_not_fit_is_told_and_may_be_mended() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", _complete({"score": "high"}, "d1"), _complete({"score": 7}, "d2")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        host = Host(tools=[SubagentTool(fixer, result_schema=_SCORE)], policy=allow_all, observer=seen.append)
        await run(host, coder)
    inside = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert [event.is_error for event in inside] == [True, False]
    assert responses(seen)["r1"].data == {"score": 7}


async def test_who_forgets_the_result_is_reminded_once() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Say("All is well."), turns=[[_complete("fine")]]) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        host = Host(tools=[SubagentTool(fixer, complete_task=True)], policy=allow_all, observer=seen.append)
        await run(host, coder)
    assert responses(seen)["r1"].data == "fine"


async def test_who_forgets_the_result_twice_has_failed() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Say("All is well."), turns=[[Say("Really.")], [_complete("late")]]) as fixer,
        agent("coder", calls("fixer"), Say("ok")) as coder,
    ):
        host = Host(tools=[SubagentTool(fixer, complete_task=True)], policy=allow_all, observer=seen.append)
        result = await run(host, coder)
    assert result.completed
    assert responses(seen)["r1"].data["error"]["code"] == "subagent_no_result"


async def test_after_its_result_nothing_of_a_sub_agent_runs() -> None:
    read: list[str] = []

    @tool
    def note(text: str) -> None:
        read.append(text)

    async with (
        agent("fixer", _complete("fine"), Call("note", {"text": "late"}), _complete("other", "d2")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        seen: list[Event] = []
        tools = [note, SubagentTool(fixer, tools=["note"], complete_task=True)]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    assert read == []
    assert responses(seen)["r1"].data == "fine"


# --- how it is made -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["entered", "function", "key", "descriptor"])
async def test_it_is_made_of_an_executor_a_function_a_key_or_a_descriptor(how: str) -> None:
    seen: list[Event] = []
    factory = SessionFactory()
    factory.register("mine", lambda: agent("fixer", Say("Mended.")))
    async with agent("fixer", Say("Mended.")) as entered, agent("coder", calls("fixer")) as coder:
        made = {
            "entered": lambda: SubagentTool(entered),
            "function": lambda: SubagentTool(lambda: agent("fixer", Say("Mended."))),
            "key": lambda: SubagentTool("mine", factory=factory),
            "descriptor": lambda: SubagentTool(AgentDescriptor(name="fixer", executor="mine"), factory=factory),
        }[how]()
        await run(Host(tools=[made], policy=allow_all, observer=seen.append), coder)
    assert made.agent.name == "fixer"
    assert responses(seen)["r1"].data == "Mended."


async def test_the_arguments_are_those_of_the_agents_input_schema() -> None:
    seen: list[Event] = []
    schema = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    fixer = agent("fixer", Say("ok"))
    fixer.descriptor = fixer.descriptor.model_copy(update={"input_schema": schema})
    async with fixer, agent("coder", Call("fixer", {"file": "a.py"}, id="r1")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    (task,) = [event for event in seen_of_children(seen) if isinstance(event, Message) and event.role == "user"]
    assert task.content[0].text == '{"file": "a.py"}'  # type: ignore[union-attr]  # a text


@pytest.mark.parametrize(
    "given",
    [
        {"tools": "read_file"},
        {"max_depth": 0},
        {"options": ExecutionOptions(permission_mode="yolo")},
        {"options": ExecutionOptions(tools=[ToolDescriptor(name="x")])},
        {"tools": ["complete_task"], "complete_task": True},
        {"factory": SessionFactory()},
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_made(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SubagentTool(agent("fixer"), **given)


async def test_it_works_only_within_a_turn_of_a_host() -> None:
    outcome = await SubagentTool(agent("fixer")).run({"task": "x"})
    assert outcome.error_code == "subagent_refused"


async def test_its_session_has_the_user_and_workspace_of_its_callers() -> None:
    opened: list[OpenOptions] = []

    class Seen(ScriptedExecutor):
        async def open(self, options: Any = None, **given: Any) -> Any:
            opened.append(options)
            return await super().open(options, **given)

    async with Seen([[Say("ok")]], name="fixer") as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all)
        async with host.session(coder, OpenOptions(user_id="ann", workspace="/src")) as session:
            await host.run_turn(session, "go")
    assert [(item.user_id, item.workspace) for item in opened] == [("ann", "/src")]


# --- what is told of it ---------------------------------------------------------------------------------------------


async def test_the_response_says_which_session_did_the_work() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Count(input_tokens=3, cost=0.5), Say("ok")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    inside = seen_of_children(seen)
    assert responses(seen)["r1"].display == {
        "subagent": {
            "agent": "fixer",
            "sessionId": inside[0].session_id,
            "threadId": inside[0].thread_id,
            "usage": {"calls": 1, "inputTokens": 3, "cost": 0.5},
        }
    }


@pytest.mark.parametrize("exposes", [True, False])
async def test_why_a_session_could_not_be_opened_is_told_only_where_errors_may_be(exposes: bool) -> None:
    class Shut(ScriptedExecutor):
        async def open(self, *args: Any, **given: Any) -> Any:
            raise ConfigurationError("the key hunter2 was refused")

    seen: list[Event] = []
    async with Shut([], name="fixer") as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append, expose_tool_errors=exposes)
        await run(host, coder)
    assert ("hunter2" in responses(seen)["r1"].to_wire_json()) is exposes


async def test_an_agent_inside_the_caller_calls_one_from_its_own_thread() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Say("ok")) as fixer,
        agent("coder", Parallel(left=[calls("fixer", "r1")], right=[Say("r")])) as coder,
    ):
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    (began,) = [event for event in seen_of_children(seen) if isinstance(event, AgentStart)]
    assert (began.thread_id or "").startswith("left.fixer-")
    assert began.parent_thread_id == "left"


async def test_what_went_wrong_in_a_sub_agent_is_told_by_its_error() -> None:
    seen: list[Event] = []
    async with agent("fixer", Fail("no more disk", fatal=True)) as fixer, agent("coder", calls("fixer")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    assert "no more disk" in responses(seen)["r1"].data["error"]["message"]


async def test_a_tool_that_a_sub_agent_is_given_and_the_host_does_not_have_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agent("checker", Say("Fine.")) as checker, agent("fixer", calls("checker"), Say("Mended.")) as fixer:
        tools = [
            read_file,
            SubagentTool(fixer, tools=["read_fil", "checker"]),
            SubagentTool(checker, tools=["read_file"]),  # its caller has it not, the host does
        ]
        async with agent("coder", calls("fixer"), Say("Done.")) as coder:
            assert (await run(Host(tools=tools, policy=allow_all), coder)).completed
    assert [record.getMessage() for record in caplog.records if "has no tool" in record.getMessage()] == [
        "sub-agent fixer: the host has no tool read_fil"
    ]
