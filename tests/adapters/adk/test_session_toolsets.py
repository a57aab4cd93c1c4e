"""Toolsets whose tools are known only when the agent runs: each call is asked about, whenever and wherever it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, verify
from tests.adapters.adk.trees import loop, parallel, sequential

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.protocol import (
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

List = Callable[[ReadonlyContext | None, int], Sequence[str]]
"""From the context and how often it was asked before: the names of the tools there are."""


class Shelf(BaseToolset):
    """A toolset that may bring other tools each time that it is asked; it notes what ran."""

    def __init__(
        self,
        names: List | Sequence[str] = ("write",),
        *,
        each_model_call: bool = False,
        confirm: bool | Callable[..., bool] = False,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._use_invocation_cache = not each_model_call
        self._names = names if callable(names) else lambda context, asked: names
        self._confirm = confirm
        self.asked = 0
        self.ran: list[tuple[str, str]] = []
        self.closed = 0

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        self.asked += 1
        tools = [self._tool(name) for name in self._names(readonly_context, self.asked - 1)]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    def _tool(self, name: str) -> BaseTool:
        def tool(path: str = "") -> str:
            """Do something with a path."""
            self.ran.append((name, path))
            return f"{name} ran"

        tool.__name__ = name
        return FunctionTool(tool, require_confirmation=self._confirm)

    async def close(self) -> None:
        self.closed += 1


def offered(root: LlmAgent, model_call: int = -1) -> list[str]:
    """The names of the tools that a model call was offered."""
    return sorted(getattr(root.model, "requests")[model_call].tools_dict)  # noqa: B009  # typed as a name or a model


# -- tools that come and go -------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03")
async def test_a_tool_of_a_toolset_runs_once_and_as_granted() -> None:
    shelf = Shelf()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        assert (await desk.stream("go")).reason == "input_required"
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.name, request.args, request.needs, request.owner) == ("write", {"path": "a"}, "grant", "agent")
        assert shelf.ran == []
        done = await desk.stream(grant("c1", args={"path": "b"}))
        assert (done.texts, shelf.ran) == (["done"], [("write", "b")])
        assert history(root.model)[-1] == ("result c1", '{"result": "write ran"}')


@pytest.mark.rule("HITL-02")
async def test_a_denied_tool_of_a_toolset_never_runs() -> None:
    shelf = Shelf()
    async with driven(agent(call("write", id="c1"), say("done"), tools=[shelf])) as desk:
        await desk.stream("go")
        assert (await desk.stream(deny("c1"))).texts == ["done"]
        assert (shelf.ran, desk.responses()) == ([], {"write": "denied"})


@pytest.mark.rule("HITL-01")
async def test_each_turn_has_the_tools_that_the_toolset_has_then() -> None:
    shelf = Shelf(lambda context, asked: (f"tool_{asked}",))
    root = agent(
        *(step for turn in range(3) for step in (call(f"tool_{turn}", id=f"c{turn}"), say("done"))), tools=[shelf]
    )
    async with driven(root) as desk:
        for turn in range(3):
            await desk.stream("go")
            assert len(shelf.ran) == turn
            await desk.stream(grant(desk.pending(f"tool_{turn}")))
            assert (shelf.ran[turn:], offered(root)) == ([(f"tool_{turn}", "")], [f"tool_{turn}"])


async def test_within_a_turn_adk_keeps_what_was_listed() -> None:
    shelf = Shelf(lambda context, asked: (f"tool_{asked}",))
    root = agent(call("tool_0", id="c0"), call("tool_0", id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        await desk.turn("go")
        assert (shelf.asked, shelf.ran) == (1, [("tool_0", "")] * 2)


@pytest.mark.rule("HITL-01")
async def test_each_model_call_has_the_tools_that_the_toolset_has_then() -> None:
    shelf = Shelf(lambda context, asked: (f"tool_{asked}",), each_model_call=True)
    root = agent(call("tool_0", id="c0"), call("tool_1", id="c1"), call("tool_0", id="c2"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        await desk.stream("go")
        assert shelf.ran == []
        await desk.stream(grant(desk.pending("tool_0")))
        assert shelf.ran == [("tool_0", "")]
        # The third call names a tool that is no longer there: ADK answers it, and nothing of that name runs.
        done = await desk.stream(grant(desk.pending("tool_1")))
        assert (done.texts, shelf.ran) == (["done"], [("tool_0", ""), ("tool_1", "")])
        assert desk.responses() == {"tool_0": "completed failed", "tool_1": "completed"}


@pytest.mark.rule("TOOL-05", "HITL-03")
async def test_a_tool_that_vanishes_while_its_call_waits_still_runs_as_it_was_granted() -> None:
    """The call was made of the tool that was there then; ADK holds it."""
    there = ["write"]
    shelf = Shelf(lambda context, asked: tuple(there), each_model_call=True)
    root = agent(call("write", id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        await desk.stream("go")
        there.clear()
        done = await desk.stream(grant("c1", args={"path": "x"}))
        assert (done.reason, done.texts, shelf.ran) == ("completed", ["done"], [("write", "x")])
        assert offered(root) == []


@pytest.mark.rule("TOOL-05", "HITL-01")
@pytest.mark.parametrize("there", [("write",), (), ("other",)])
async def test_a_granted_call_of_a_toolset_is_looked_up_anew_after_a_restart(
    there: tuple[str, ...], tmp_path: Any
) -> None:
    store, path = MemoryRecordStore(), str(tmp_path / "adk.db")
    shelf = Shelf()
    options = OpenOptions(session_id="s1")
    async with AdkExecutor(
        agent(call("write", id="c1"), tools=[shelf]), session_service=SqliteSessionService(path), store=store
    ) as executor:
        desk = Driven(executor, await executor.open(options))
        await desk.stream("go")
    later = Shelf(there)
    root = agent(say("done"), say("again"), tools=[later])
    async with AdkExecutor(root, session_service=SqliteSessionService(path), store=store) as executor:
        desk = Driven(executor, await executor.load("s1"))
        done = await desk.stream(grant("c1", args={"path": "x"}))
        assert shelf.ran == []
        if there == ("write",):
            assert (done.reason, later.ran) == ("completed", [("write", "x")])
        else:
            assert (done.reason, later.ran) == ("failed", [])
            assert (await desk.stream("next")).texts == ["done"]
        verify(desk.session)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize("chosen", [["write"], lambda tool, context=None: tool.name == "write"])
async def test_what_the_tool_filter_leaves_out_is_neither_offered_nor_run(chosen: Any) -> None:
    shelf = Shelf(("write", "erase"), tool_filter=chosen)
    root = agent(calls(call("erase", id="c1"), call("write", id="c2")), say("done"), tools=[shelf])
    async with driven(root) as desk:
        await desk.stream("go")
        assert (offered(root), shelf.ran) == (["write"], [])
        await desk.stream([grant(request.request_id) for request in desk.session.pending])
        assert shelf.ran == [("write", "")]
        assert desk.responses() == {"erase": "failed", "write": "completed"}


@pytest.mark.rule("HITL-01", "HITL-03")
async def test_tools_of_two_toolsets_with_prefixes_are_told_apart() -> None:
    one, other = Shelf(tool_name_prefix="one"), Shelf(tool_name_prefix="other")
    root = agent(calls(call("one_write", id="c1"), call("other_write", id="c2")), say("done"), tools=[one, other])
    async with driven(root) as desk:
        await desk.stream("go")
        assert offered(root) == ["one_write", "other_write"]
        await desk.stream([grant("c1", args={"path": "1"}), deny("c2")])
        assert (one.ran, other.ran) == ([("write", "1")], [])
        assert desk.responses() == {"one_write": "completed", "other_write": "denied"}


@pytest.mark.rule("LIFE-07", "HITL-01")
async def test_a_host_tool_whose_name_a_toolset_takes_in_mid_turn_is_the_agents_from_then_on() -> None:
    shelf = Shelf(lambda context, asked: ("look",) if asked else (), each_model_call=True)
    root = agent(call("look", id="c1"), call("look", id="c2"), say("done"), tools=[shelf, Shelf(("other",))])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert (first.of("error"), [request.needs for request in first.of("tool_request")]) == ([], ["result"])
        second = await desk.stream(result("c1", "the host's"))
        assert [problem.code for problem in second.of("error")] == ["tool-name"]
        (request,) = second.of("tool_request")
        assert (request.needs, request.owner, shelf.ran) == ("grant", "agent", [])
        await desk.stream(grant("c2"))
        assert shelf.ran == [("look", "")]


@pytest.mark.rule("TOOL-05", "HITL-01")
@pytest.mark.parametrize("name", ["exit_loop", "finish_task", "set_model_response", "transfer_to_agent"])
async def test_a_tool_that_a_toolset_names_like_a_control_call_is_never_run(name: str) -> None:
    shelf = Shelf((name,))
    root = agent(call(name, {"path": "a"}, id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        done = await desk.turn("go")
        assert (done.reason, shelf.ran) == ("completed", [])
        assert desk.responses() == {name: "failed"}
        assert "blocked" in history(root.model)[-1][1]


@pytest.mark.rule("TOOL-05", "HITL-01")
@pytest.mark.parametrize(
    "name", ["adk_request_confirmation", "adk_request_credential", "adk_request_input", "agentsession_request_input"]
)
async def test_a_tool_that_a_toolset_names_like_a_question_of_adk_is_never_run(name: str) -> None:
    shelf = Shelf((name,))
    root = agent(call(name, {"path": "a"}, id="c1"), say("done"), say("next"), tools=[shelf])
    async with driven(root) as desk:
        first = await desk.stream("go")
        assert first.reason == ("input_required" if name == "adk_request_input" else "completed")
        await desk.session.abort()  # by that name the person is asked, whoever has a tool of it
        assert shelf.ran == []
        assert (await desk.stream("more")).reason == "completed"
        assert shelf.ran == []


# -- listings that fail -----------------------------------------------------------------------------------------------


class Broken(Shelf):
    """A toolset that cannot be listed while it is broken."""

    broken = True

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        if self.broken:
            self.asked += 1
            raise ConnectionError("no answer from http://tools.example/?key=s3cret")
        return await super().get_tools(readonly_context)


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("each_model_call", [False, True])
async def test_a_toolset_that_cannot_be_listed_is_told_once_a_turn_without_its_words(each_model_call: bool) -> None:
    """ADK would go on without its tools and say so in its log alone."""
    broken = Broken(each_model_call=each_model_call)
    other = Shelf(("find",))
    script = [call("find", id="c1"), say("without"), say("still without"), call("write", id="c2"), say("with")]
    root = agent(*script, tools=[broken, other])
    async with driven(root) as desk:
        first = await desk.turn("go")
        (told,) = first.of("error")
        assert (told.code, told.fatal) == ("toolset-failed", False)
        assert told.message == "the tools of Broken could not be listed: ConnectionError"
        assert (first.texts, other.ran) == (["without"], [("find", "")])
        assert len((await desk.turn("again")).of("error")) == 1
        broken.broken = False
        third = await desk.turn("now")
        assert (third.of("error"), third.texts, broken.ran) == ([], ["with"], [("write", "")])
        assert "s3cret" not in "".join(event.to_wire_json() for event in desk.session.record)


async def test_a_call_of_a_tool_whose_toolset_cannot_be_listed_is_an_error_to_the_model() -> None:
    broken = Broken()
    root = agent(call("write", id="c1"), say("sorry"), tools=[broken])
    async with driven(root) as desk:
        done = await desk.turn("go")
        assert (done.reason, done.texts, broken.ran) == ("completed", ["sorry"], [])
        assert desk.responses() == {"write": "failed"}
        assert_valid_history(root.model)


async def test_a_toolset_that_has_tools_is_asked_no_oftener_than_adk_asks() -> None:
    shelf = Shelf(each_model_call=True)
    async with driven(agent(call("write", id="c1"), say("done"), tools=[shelf])) as desk:
        await desk.turn("go")
        assert shelf.asked == 2


# -- confirmation -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_toolsets_tool_that_requires_confirmation_asks_once(yes: bool) -> None:
    shelf = Shelf(confirm=True)
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        paused = await desk.stream("go")
        assert [request.needs for request in paused.of("tool_request")] == ["none"]
        (question,) = desk.session.pending
        assert shelf.ran == []
        answer = accept(question.request_id) if yes else decline(question.request_id)
        assert (await desk.stream(answer)).reason == "completed"
        assert shelf.ran == ([("write", "a")] if yes else [])
        assert desk.responses() == {"write": "completed" if yes else "denied"}


@pytest.mark.rule("HITL-01", "HITL-03")
async def test_a_toolsets_condition_for_confirmation_is_asked_about_the_arguments_that_were_granted() -> None:
    shelf = Shelf(confirm=lambda path: path == "/etc")
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[shelf])
    async with driven(root) as desk:
        await desk.stream("go")
        assert (await desk.stream(grant("c1", args={"path": "/etc"}))).reason == "input_required"
        assert shelf.ran == []
        await desk.stream(accept(desk.pending("tool_confirmation")))
        assert shelf.ran == [("write", "/etc")]


# -- places in a tree -------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01")
async def test_a_tool_that_appears_only_after_a_transfer_is_asked_about() -> None:
    shelf = Shelf(lambda context, asked: ("write",) if context is not None and context.agent_name == "expert" else ())
    expert = agent(call("write", {"path": "x"}, id="c2"), say("done"), name="expert", tools=[shelf])
    root = agent(
        call("write", id="c0"),
        call("transfer_to_agent", {"agent_name": "expert"}, id="c1"),
        sub_agents=[expert],
        tools=[shelf],
    )
    async with driven(root) as desk:
        # Asked again for the same invocation, ADK gives what it kept: the toolset must say that it cannot be kept.
        shelf._use_invocation_cache = False
        await desk.stream("go")
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.request_id, request.agent_id, request.needs, shelf.ran) == ("c2", "expert", "grant", [])
        await desk.stream(grant("c2", args={"path": "y"}))
        assert shelf.ran == [("write", "y")]


def _in_a_child(work: LlmAgent) -> Any:
    return agent(call(work.name, {"request": "do"}, id="r1"), say("root done"), tools=[AgentTool(work)])


def _in_branches(work: LlmAgent) -> Any:
    return parallel(work, agent(say("beside"), name="beside"))


def _in_a_pipeline(work: LlmAgent) -> Any:
    return sequential(agent(say("before"), name="before"), work, agent(say("after"), name="after"))


def _in_a_loop(work: LlmAgent) -> Any:
    return loop(work, max_iterations=1)


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("place", [_in_a_child, _in_branches, _in_a_pipeline, _in_a_loop])
@pytest.mark.parametrize("confirm", [False, True])
async def test_tools_of_a_toolset_wait_wherever_their_agent_works(place: Any, confirm: bool) -> None:
    shelf = Shelf(("write", "erase"), confirm=confirm)
    work = agent(
        calls(call("write", {"path": "a"}, id="c1"), call("erase", {"path": "b"}, id="c2")),
        say("worked"),
        name="work",
        tools=[shelf],
    )
    async with driven(place(work)) as desk:
        assert (await desk.stream("go")).reason == "input_required"
        assert (shelf.ran, len(desk.session.pending)) == ([], 2)
        tools = {
            request.request_id: request.name for request in desk.session.record if isinstance(request, ToolRequest)
        }
        answers = [_answer(item, tools, confirm=confirm, yes="write") for item in desk.session.pending]
        done = await desk.stream(answers)
        assert done.reason == "completed"
        assert "worked" in done.texts
        assert shelf.ran == [("write", "a" if confirm else "edited")]
        assert desk.responses()["erase"] == "denied"
        assert_valid_history(work.model)


def _answer(item: Any, tools: dict[str, str], *, confirm: bool, yes: str) -> Any:
    name = tools[item.tool_request_id] if confirm else item.name
    if confirm:
        return accept(item.request_id) if name == yes else decline(item.request_id)
    return grant(item.request_id, args={"path": "edited"}) if name == yes else deny(item.request_id)


async def test_two_sessions_with_one_toolset_have_each_their_own_tools() -> None:
    """ADK keeps one listing in the toolset, whoever asked last."""

    def by_state(context: ReadonlyContext | None, asked: int) -> Sequence[str]:
        return (str(context.state.get("tool")),) if context is not None else ()

    shelf = Shelf(by_state)

    def script(request: Any) -> Any:
        (name,) = request.tools_dict
        answered = any(part.function_response for content in request.contents for part in content.parts or [])
        return say(f"used {name}") if answered else call(name)

    root = LlmAgent(name="root", model=ScriptedLlm(forever=script), tools=[shelf])
    said: dict[str, list[str]] = {}
    async with AdkExecutor(root) as executor:

        async def one(name: str) -> None:
            session = await executor.open(OpenOptions(execution=ExecutionOptions(state={"tool": name})))
            said[name] = (await Driven(executor, session).turn("go")).texts
            verify(session)
            await session.aclose()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(one, f"tool_{number}")
    assert said == {f"tool_{number}": [f"used tool_{number}"] for number in range(10)}
    assert sorted(shelf.ran) == sorted((name, "") for name in said)
    assert shelf.closed == 0
