"""Tools under the host's control: host tools, grants, denials, edited arguments. Also: test_session_wrong_calls.py."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import (
    Driven,
    Runs,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    model_calls,
)

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, hold, say
from agentsession.protocol import (
    ElicitationRequest,
    ExecutionOptions,
    OpenOptions,
    SessionConfig,
    ToolRequest,
    accept,
    cancel,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


# -- host tools -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-11")
async def test_a_host_tool_pauses_the_stream_and_its_result_reaches_the_model_under_its_id() -> None:
    root = agent(call("look", {"path": "a"}, id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert first.reason == "input_required"
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.name, request.args, request.needs, request.owner) == ("look", {"path": "a"}, "result", "host")
        second = await desk.stream(result(request.request_id, {"lines": 3}))
        assert (second.reason, second.texts) == ("completed", ["done"])
        assert ("result c1", '{"lines": 3}') in history(root.model)


@pytest.mark.rule("TOOL-13")
@pytest.mark.parametrize("data", ["the disk is full", None, {"error": "full", "code": 28}])
async def test_an_error_result_of_the_host_is_an_error_to_the_model(data: Any) -> None:
    root = agent(call("look", id="c1"), say("sorry"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream(result(desk.pending("look"), data, is_error=True))
        assert desk.responses() == {"look": "failed"}
        assert any(kind == "result c1" and "error" in text for kind, text in history(root.model))


async def test_a_denied_host_tool_tells_the_model_why() -> None:
    root = agent(call("look", id="c1"), say("sorry"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        end = await desk.stream(deny(desk.pending("look"), "not today"))
        assert end.reason == "completed"
        assert desk.responses() == {"look": "denied"}
        assert ("result c1", '{"error": "denied: not today"}') in history(root.model)


@pytest.mark.rule("TOOL-14")
async def test_a_host_tool_cannot_be_granted() -> None:
    async with driven(agent(call("look", id="c1"), say("x")), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (receipt,) = await desk.session.respond(grant(desk.pending("look")))
        assert receipt.status == "invalid"


@pytest.mark.parametrize("value", [None, 7, "text", [1, 2], {"a": {"b": None}}, True])
async def test_any_json_is_a_result(value: Any) -> None:
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert (await desk.stream(result(desk.pending("look"), value))).reason == "completed"
        assert desk.types()[-1] == "stream_end"


async def test_an_answer_while_the_stream_runs_needs_no_pause() -> None:
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                async for event in stream:
                    if isinstance(event, ToolRequest):
                        await desk.session.respond(result(event.request_id, "at once"))
        assert stream.end is not None
        assert stream.end.reason == "completed"
        assert desk.types("stream_end") == ["stream_end"]


# -- the agent's own tools --------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-05", "HITL-03")
async def test_a_granted_tool_runs_once() -> None:
    runs = Runs()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[runs.tool()])
    async with driven(root) as desk:
        first = await desk.stream("go")
        (request,) = first.of("tool_request")
        assert (request.needs, request.owner, runs.count) == ("grant", "agent", 0)
        second = await desk.stream(grant(desk.pending("write")))
        assert (second.reason, runs.args) == ("completed", [{"path": "a", "text": ""}])
        assert desk.responses() == {"write": "completed"}


@pytest.mark.rule("HITL-02")
async def test_a_denied_tool_never_runs() -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool()])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(deny(desk.pending("write"), "no"))
        assert runs.count == 0
        assert desk.responses() == {"write": "denied"}
        assert ("result c1", '{"error": "denied: no"}') in history(root.model)


@pytest.mark.rule("HITL-03", "HITL-04")
@pytest.mark.parametrize("early", [False, True])
async def test_a_grant_with_edited_arguments_runs_with_those(early: bool) -> None:
    """Also when the grant comes before ADK has asked for it."""
    runs = Runs()
    root = agent(call("write", {"path": "/etc"}, id="c1"), say("ok"), tools=[runs.tool()])
    async with driven(root) as desk:
        await _answer(desk, early, lambda asked: grant(asked, {"path": "/srv"}))
        assert runs.args == [{"path": "/srv", "text": ""}]


@pytest.mark.parametrize("early", [False, True])
async def test_the_hosts_own_result_instead_of_a_grant_is_what_the_model_reads(early: bool) -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool()])
    async with driven(root) as desk:
        await _answer(desk, early, lambda asked: result(asked, {"by": "host"}))
        assert runs.count == 0
        assert ("result c1", '{"by": "host"}') in history(root.model)


@pytest.mark.parametrize("early", [False, True])
async def test_a_denial_before_or_after_adk_asks_is_the_same(early: bool) -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool()])
    async with driven(root) as desk:
        await _answer(desk, early, lambda asked: deny(asked, "no"))
        assert runs.count == 0
        assert ("result c1", '{"error": "denied: no"}') in history(root.model)


async def _answer(desk: Driven, early: bool, make: Any) -> None:
    if not early:
        await desk.stream("go")
        assert (await desk.stream(make(desk.session.pending[0].request_id))).reason == "completed"
        return
    with anyio.fail_after(10):
        async with desk.session.stream("go") as stream:
            async for event in stream:
                if isinstance(event, ToolRequest):
                    (receipt,) = await desk.session.respond(make(event.request_id))
                    assert receipt.ok
    assert stream.end is not None
    assert stream.end.reason == "completed"


async def test_with_host_tool_execution_off_the_agent_runs_its_own_tools_unasked() -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool()])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, runs.count) == ("completed", 1)
        assert [event.needs for event in turn.of("tool_request")] == ["none"]


async def test_a_turns_options_may_take_the_tools_from_the_executor_again() -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), call("write", id="c2"), say("ok"), tools=[runs.tool()])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        await desk.stream("go")
        turn = await desk.stream("again", ExecutionOptions(host_tool_execution=True))
        assert (turn.reason, runs.count) == ("input_required", 1)


async def test_a_plugin_of_the_user_that_answers_a_call_is_accepted_as_its_result() -> None:
    from google.adk.apps.app import App
    from google.adk.plugins.base_plugin import BasePlugin

    class Cache(BasePlugin):
        async def before_tool_callback(self, **_: Any) -> dict[str, Any]:
            return {"cached": True}

    runs = Runs()
    root = agent(call("write", id="c1"), call("look", id="c2"), say("ok"), tools=[runs.tool()])
    app = App(name="app", root_agent=root, plugins=[Cache(name="cache")])
    async with driven(app, tools=[host_tool("look")]) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, runs.count) == ("completed", 0)
        assert ("result c1", '{"cached": true}') in history(root.model)
        assert desk.responses()["write"] == "completed"


# -- a tool's own confirmation ----------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03")
async def test_a_tool_that_requires_confirmation_asks_once_and_runs_once() -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool(require_confirmation=True)])
    async with driven(root) as desk:
        first = await desk.stream("go")
        (request,) = first.of("tool_request")
        (question,) = desk.session.pending
        assert (request.needs, isinstance(question, ElicitationRequest), question.tool_request_id) == (  # type: ignore[union-attr]
            "none",
            True,
            request.request_id,
        )
        assert runs.count == 0
        assert (await desk.stream(accept(question.request_id))).reason == "completed"
        assert runs.count == 1
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("refuse", [decline, cancel])
async def test_a_refused_confirmation_runs_nothing(refuse: Any) -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool(require_confirmation=True)])
    async with driven(root) as desk:
        await desk.stream("go")
        assert (await desk.stream(refuse(desk.pending("tool_confirmation")))).reason == "completed"
        assert runs.count == 0
        assert desk.responses() == {"write": "denied"}
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-02")
async def test_a_confirmation_that_contradicts_itself_stays_pending() -> None:
    runs = Runs()
    root = agent(call("write", id="c1"), say("ok"), tools=[runs.tool(require_confirmation=True)])
    async with driven(root) as desk:
        await desk.stream("go")
        (receipt,) = await desk.session.respond(accept(desk.pending("tool_confirmation"), {"confirmed": False}))
        assert (receipt.status, runs.count) == ("invalid", 0)
        assert desk.pending("tool_confirmation")


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize(("path", "asked"), [("/etc", True), ("/srv", False)])
async def test_a_condition_for_confirmation_is_asked_about_the_arguments_that_were_granted(
    path: str, asked: bool
) -> None:
    def dangerous(path: str = "", text: str = "") -> bool:
        return path == "/etc"

    runs = Runs()
    root = agent(call("write", {"path": "/usr"}), say("ok"), tools=[runs.tool(require_confirmation=dangerous)])
    async with driven(root) as desk:
        await desk.stream("go")
        turn = await desk.stream(grant(desk.pending("write"), {"path": path}))
        assert (turn.reason == "input_required") is asked
        if asked:
            assert runs.count == 0
            await desk.stream(accept(desk.pending("tool_confirmation")))
        assert runs.args == [{"path": path, "text": ""}]


async def test_a_condition_for_confirmation_that_raises_runs_nothing() -> None:
    def broken(**_: Any) -> bool:
        raise KeyError("path")

    runs = Runs()
    root = agent(call("write"), say("ok"), tools=[runs.tool(require_confirmation=broken)])
    async with driven(root) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert (runs.count, desk.responses()) == (0, {"write": "failed"})


def asking(entered: list[str], done: list[Any]) -> Any:
    def remove(path: str, tool_context: ToolContext) -> Any:
        """Remove a file."""
        entered.append(path)
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint=f"Really remove {path}?", payload={"how": "slowly"})
            return {"status": "asked"}
        done.append(tool_context.tool_confirmation.payload)
        return {"removed": path}

    return remove


@pytest.mark.rule("HITL-01", "HITL-03")
async def test_a_tool_that_asks_from_inside_is_granted_then_asks_then_runs_to_its_end() -> None:
    entered: list[str] = []
    done: list[Any] = []
    root = agent(call("remove", {"path": "a"}, id="c1"), say("ok"), tools=[asking(entered, done)])
    async with driven(root) as desk:
        await desk.stream("go")
        assert entered == []
        await desk.stream(grant(desk.pending("remove")))
        (question,) = desk.session.pending
        assert (question.message, question.context) == ("Really remove a?", {"how": "slowly"})  # type: ignore[union-attr]
        assert done == []
        turn = await desk.stream(accept(question.request_id, {"payload": {"how": "fast"}}))
        assert (turn.reason, done) == ("completed", [{"how": "fast"}])
        assert ("result c1", '{"removed": "a"}') in history(root.model)
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-02")
async def test_a_question_from_inside_that_is_declined_ends_the_call() -> None:
    entered: list[str] = []
    done: list[Any] = []
    root = agent(call("remove", {"path": "a"}, id="c1"), say("ok"), tools=[asking(entered, done)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("remove")))
        turn = await desk.stream(decline(desk.pending("tool_confirmation")))
        assert (turn.reason, done, desk.responses()) == ("completed", [], {"remove": "denied"})


async def test_a_tool_that_raises_after_its_question_is_an_error_result() -> None:
    def remove(tool_context: ToolContext) -> Any:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Really?")
            return None
        raise OSError("gone")

    root = agent(call("remove", id="c1"), say("ok"), tools=[remove])
    async with driven(root) as desk:
        assert (await desk.turn("go")).reason == "completed"
        assert desk.responses() == {"remove": "failed"}


@pytest.mark.rule("HITL-01")
async def test_r06_a_finished_siblings_result_survives_a_confirmation() -> None:
    runs, other = Runs(), Runs("listed")
    root = agent(
        calls(call("delete", id="c1"), call("list", id="c2")),
        say("both"),
        tools=[runs.tool("delete", require_confirmation=True), other.tool("list")],
    )
    async with driven(root) as desk:
        await desk.stream("go")
        turn = await desk.stream(grant(desk.pending("list")))
        assert turn.reason == "input_required"
        assert (other.count, desk.responses()) == (1, {"list": "completed"})
        turn = await desk.stream(accept(desk.pending("tool_confirmation")))
        assert (turn.texts, runs.count, other.count) == (["both"], 1, 1)
        assert_valid_history(root.model)


# -- parallel calls ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-06", "TOOL-07", "TOOL-08")
@pytest.mark.parametrize("parked", [False, True])
async def test_r05_the_model_is_called_once_when_the_last_of_two_results_has_come(parked: bool) -> None:
    root = agent(calls(call("render", id="c1"), call("ask", id="c2")), say("done"))
    async with driven(root, tools=[host_tool("render"), host_tool("ask")], parked=parked) as desk:
        first = await desk.stream("go")
        assert len(first.of("tool_request")) == 2
        second = await desk.stream(result(desk.pending("ask"), 2))
        assert second.reason == "input_required"
        assert [item.name for item in desk.session.pending] == ["render"]  # type: ignore[union-attr]
        assert model_calls(root) == 1
        third = await desk.stream(result(desk.pending("render"), 1))
        assert (third.texts, model_calls(root)) == (["done"], 2)
        assert_valid_history(root.model)


async def test_a_tool_that_works_while_another_waits_keeps_the_stream_open() -> None:
    release, entered = anyio.Event(), anyio.Event()

    async def slow() -> str:
        entered.set()
        await release.wait()
        return "slow"

    root = agent(calls(call("slow", id="c1"), call("look", id="c2")), say("done"), tools=[slow])
    async with driven(root, tools=[host_tool("look")], execution={"host_tool_execution": False}) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                await entered.wait()
                assert desk.session.state == "running"
                release.set()
                async for _ in stream:
                    pass
        assert stream.end is not None
        assert stream.end.reason == "input_required"
        assert desk.responses() == {"slow": "completed"}
        assert (await desk.stream(result(desk.pending("look"), 1))).texts == ["done"]
        assert_valid_history(root.model)


async def test_forty_sessions_over_one_agent_are_not_mixed_up() -> None:
    def echo(request: Any) -> Any:
        said = [part.text for content in request.contents for part in content.parts or [] if part.text]
        results = [
            part.function_response.response
            for content in request.contents
            for part in content.parts or []
            if part.function_response
        ]
        return say(f"{said[-1]}:{results[-1]['result']}") if results else call("look", {"who": said[-1]})

    def echo_who(request: Any) -> Any:
        return result(request.request_id, request.args["who"])

    root = LlmAgent(name="root", model=ScriptedLlm(forever=echo))
    seen: dict[str, list[str]] = {}
    async with AdkExecutor(root) as executor:

        async def one(name: str) -> None:
            session = await executor.open(OpenOptions(execution=ExecutionOptions(tools=[host_tool("look")])))
            turn = await Driven(executor, session).turn(name, echo_who)
            seen[name] = turn.texts
            await session.aclose()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(40):
                    group.start_soon(one, f"user-{number}")
    assert seen == {f"user-{n}": [f"user-{n}:user-{n}"] for n in range(40)}


async def test_a_held_model_is_not_mistaken_for_a_wait() -> None:
    release, entered = anyio.Event(), anyio.Event()

    async def until() -> None:
        entered.set()
        await release.wait()

    root = agent(hold(until) + say("done"))
    async with driven(root) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as stream:
                await entered.wait()
                assert desk.session.state == "running"
                release.set()
                async for _ in stream:
                    pass
        assert stream.end is not None
        assert stream.end.reason == "completed"


async def test_r60_a_sync_tool_that_returns_none_is_entered_once() -> None:
    entered: list[int] = []

    def note() -> None:
        entered.append(1)

    root = agent(call("note", id="c1"), say("done"), tools=[note])
    async with driven(root) as desk:
        assert (await desk.turn("go")).texts == ["done"]
        assert (entered, desk.responses()) == ([1], {"note": "completed"})


async def test_r62_what_waits_is_listed_as_it_is_after_an_answer_an_abort_and_a_new_turn() -> None:
    root = agent(call("look", id="c1"), call("look", id="c2"), say("x"), call("look", id="c3"), say("y"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream(result(desk.pending("look"), 1))
        assert [item.request_id for item in desk.session.pending] == ["c2"]
        await desk.session.abort()
        assert desk.session.pending == []
        await desk.stream("next")
        await desk.stream("another")
        assert [item.request_id for item in desk.session.pending] == ["c3"]
        await desk.stream("last")
        assert desk.session.pending == []


# -- what the record says of a result ---------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("by", ["agent", "plugin"])
async def test_a_result_that_a_callback_redacts_is_recorded_redacted_also_over_a_pause(by: str) -> None:
    def redact(*_: Any, **__: Any) -> dict[str, Any]:
        return {"result": "[redacted]"}

    class Redactor(BasePlugin):
        async def after_tool_callback(self, **_: Any) -> dict[str, Any] | None:
            return redact()

    root = agent(calls(call("read", id="c1"), call("look", id="c2")), say("ok"), tools=[Runs("s3cret").tool("read")])
    if by == "agent":
        root.after_tool_callback = redact
    made = App(name="app", root_agent=root, plugins=[Redactor("redactor")] if by == "plugin" else [])
    async with driven(made, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        paused = await desk.stream(grant(desk.pending("read")))
        assert paused.reason == "input_required"
        done = await desk.stream(result(desk.pending("look"), "seen"))
        assert done.texts == ["ok"]
        assert desk.responses() == {"read": "completed", "look": "completed"}
        assert "s3cret" not in "".join(event.to_wire_json() for event in desk.session.record)


@pytest.mark.rule("TOOL-05")
async def test_a_host_tool_that_was_taken_back_is_not_asked_for() -> None:
    root = agent(call("look", id="c1"), call("look", id="c2"), say("ok"))
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        assert (await desk.session.update(SessionConfig(tools=[host_tool("find")]))).ok
        done = await desk.stream(result(desk.pending("look"), "seen"))
        assert [request.needs for request in done.of("tool_request")] == ["none"]
        assert (done.reason, desk.responses()) == ("completed", {"look": "completed failed"})


@pytest.mark.rule("TOOL-05")
@pytest.mark.parametrize("parked", [False, True])
async def test_options_of_a_later_stream_of_the_turn_may_take_the_tools_from_the_executor(parked: bool) -> None:
    runs = Runs()
    root = agent(call("look"), call("write"), say("ok"), tools=[runs.tool()])
    async with driven(root, tools=[host_tool("look")], parked=parked) as desk:
        await desk.stream("go", ExecutionOptions(host_tool_execution=False))
        asked = ExecutionOptions(host_tool_execution=True)
        paused = await desk.stream(result(desk.pending("look"), "seen"), asked)
        assert (paused.reason, runs.count) == ("input_required", 0)
        assert (await desk.stream(deny(desk.pending("write")))).reason == "completed"
        assert runs.count == 0
