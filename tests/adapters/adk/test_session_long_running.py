"""Long-running tools of the agent: a first word at once, the outcome later, from outside."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, Workflow
from tests.adapters.adk.driving import agent, assert_valid_history, driven, history, host_tool, model_calls
from tests.adapters.adk.hooking import Desk
from tests.adapters.adk.trees import sequential

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    ToolProgress,
    ToolRequest,
    ToolUpdate,
    block,
    deny,
    grant,
    modify,
    result,
)

pytestmark = pytest.mark.anyio

TICKET = {"status": "pending", "ticket": 7}


class Jobs:
    """A tool that starts jobs."""

    def __init__(self, first: Any = TICKET) -> None:
        self.entered: list[int] = []
        self.first = first

    @property
    def tool(self) -> LongRunningFunctionTool:
        def submit(shot: int = 0) -> Any:
            """Start a job."""
            self.entered.append(shot)
            return self.first

        return LongRunningFunctionTool(submit)


def outcome_of(pending: Any) -> ToolRequest:
    """The one request that waits for an outcome."""
    found = [item for item in pending if isinstance(item, ToolRequest) and item.needs == "result"]
    assert len(found) == 1, pending
    return found[0]


@pytest.mark.rule("TOOL-01", "TOOL-08")
@pytest.mark.parametrize("first", [TICKET, None, "started"])
async def test_the_first_word_answers_the_call_and_the_outcome_is_waited_for(first: Any) -> None:
    jobs = Jobs(first)
    root = agent(call("submit", {"shot": 3}, id="c1"), say("approved"), tools=[jobs.tool])
    async with driven(root) as desk:
        await desk.stream("go")
        started = await desk.stream(grant(desk.pending("submit")))
        assert (started.reason, jobs.entered, model_calls(root)) == ("input_required", [3], 1)
        (response,) = started.of("tool_response")
        assert response.data == (first or {"status": "pending"})
        request = outcome_of(desk.session.pending)
        assert (request.name, request.args, request.owner, request.long_running) == (
            "submit",
            {"shot": 3},
            "agent",
            True,
        )
        assert (request.meta or {})["adk"]["continues"] == response.request_id
        done = await desk.stream(result(request.request_id, {"approved": True}))
        assert (done.reason, done.texts, jobs.entered) == ("completed", ["approved"], [3])
        assert history(root.model) == [("user", "go"), ("call c1", "submit"), ("result c1", '{"approved": true}')]


@pytest.mark.parametrize(
    "first", [{"status": "error", "why": "quantity is 0"}, {"error": "no"}, {"status": "Completed", "n": 1}]
)
async def test_r58_an_error_or_an_outcome_at_once_is_given_to_the_model_without_a_pause(first: dict[str, Any]) -> None:
    jobs = Jobs(first)
    root = agent(call("submit", id="c1"), say("I see"), tools=[jobs.tool])
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending("submit")))
        assert (done.reason, done.texts, len(jobs.entered)) == ("completed", ["I see"], 1)
        assert set(desk.responses()) == {"submit"}
        assert len(done.of("tool_response")) == 1


async def test_a_denied_one_never_starts_and_nothing_is_waited_for() -> None:
    jobs = Jobs()
    root = agent(call("submit", id="c1"), say("then not"), tools=[jobs.tool])
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(deny(desk.pending("submit")))
        assert (done.texts, jobs.entered) == (["then not"], [])


async def test_the_hosts_own_result_in_its_place_is_the_outcome() -> None:
    jobs = Jobs()
    root = agent(call("submit", id="c1"), say("done"), tools=[jobs.tool])
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(result(desk.pending("submit"), {"status": "pending"}))
        assert (done.reason, done.texts, jobs.entered) == ("completed", ["done"], [])


async def test_it_waits_also_where_the_host_left_the_tools_to_the_agent() -> None:
    jobs = Jobs()
    root = agent(call("submit", id="c1"), say("done"), tools=[jobs.tool])
    async with driven(root, execution={"host_tool_execution": False}) as desk:
        paused = await desk.stream("go")
        assert (paused.reason, len(jobs.entered)) == ("input_required", 1)
        assert (await desk.stream(result(outcome_of(desk.session.pending).request_id, 1))).texts == ["done"]


@pytest.mark.rule("TOOL-06", "TOOL-07", "TOOL-08")
async def test_r05_r18_of_several_none_is_entered_twice_and_the_model_is_called_once_after_all() -> None:
    jobs = Jobs()
    step = calls(*(call("submit", {"shot": n}, id=f"c{n}") for n in range(4)))
    root = agent(step, say("all done"), tools=[jobs.tool])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream([grant(item.request_id) for item in desk.session.pending])
        waiting = [item for item in desk.session.pending if isinstance(item, ToolRequest)]
        assert sorted(item.args["shot"] for item in waiting if item.args) == [0, 1, 2, 3]
        done = None
        for item in waiting[::-1]:
            assert model_calls(root) == 1
            done = await desk.stream(result(item.request_id, {"of": (item.args or {})["shot"]}))
        assert done is not None
        assert (done.reason, done.texts, sorted(jobs.entered)) == ("completed", ["all done"], [0, 1, 2, 3])
        assert [text for kind, text in history(root.model) if kind == "result c2"] == ['{"of": 2}']
        assert_valid_history(root.model)


async def test_progress_of_the_job_is_shown_and_not_told_to_the_model() -> None:
    root = agent(call("submit", id="c1"), say("done"), tools=[Jobs().tool])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        request_id = outcome_of(desk.session.pending).request_id
        await desk.session.respond(ToolProgress(request_id=request_id, data={"percent": 50}))
        done = await desk.stream(result(request_id, "ready"))
        assert any(isinstance(event, ToolUpdate) for event in desk.session.record)
        assert (done.texts, history(root.model)[-1]) == (["done"], ("result c1", '{"result": "ready"}'))


# -- in trees ---------------------------------------------------------------------------------------------------------


async def test_r56_a_pipeline_holds_at_the_job_and_goes_on_after_its_outcome() -> None:
    first = agent(call("submit", id="c1"), say("one"), name="first", tools=[Jobs().tool])
    second = agent(say("two"), name="second")
    async with driven(sequential(first, second)) as desk:
        await desk.stream("go")
        paused = await desk.stream(grant(desk.pending("submit")))
        assert (paused.reason, model_calls(second)) == ("input_required", 0)
        done = await desk.stream(result(outcome_of(desk.session.pending).request_id, "yes"))
        assert (done.reason, done.texts) == ("completed", ["one", "two"])
        assert_valid_history(second.model)


async def test_a_graph_holds_at_the_job_and_goes_on_after_its_outcome() -> None:
    first = agent(call("submit", id="c1"), say("one"), name="first", tools=[Jobs().tool])
    second = agent(say("two"), name="second")
    async with driven(Workflow(name="wf", edges=[(START, first, second)])) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        done = await desk.stream(result(outcome_of(desk.session.pending).request_id, "yes"))
        assert (done.reason, done.texts) == ("completed", ["one", "two"])


async def test_the_child_of_an_agent_tool_holds_at_the_job_and_the_caller_gets_its_words() -> None:
    """ADK gives the caller an error: the child's session is gone before the outcome comes."""
    child = agent(call("submit", id="k1"), say("child done"), name="child", tools=[Jobs().tool])
    root = agent(call("child", {"request": "x"}, id="c1"), say("root done"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        request = outcome_of(desk.session.pending)
        assert request.thread_id == "child"
        done = await desk.stream(result(request.request_id, "yes"))
        assert done.texts == ["child done", "root done"]
        assert ("result c1", '{"result": "child done"}') in history(root.model)


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-05", "TOOL-01")
async def test_an_abort_while_the_outcome_is_waited_for_leaves_a_usable_session() -> None:
    root = agent(call("submit", id="c1"), say("fresh"), tools=[Jobs().tool])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        request_id = outcome_of(desk.session.pending).request_id
        with anyio.fail_after(10):
            await desk.session.abort()
        assert desk.responses() == {"submit": "completed cancelled"}
        assert (await desk.session.respond(result(request_id, 1)))[0].status == "stale"
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


async def test_a_message_over_a_job_tells_the_model_its_first_word() -> None:
    root = agent(call("submit", id="c1"), say("fresh"), tools=[Jobs().tool])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        assert (await desk.stream("never mind")).texts == ["fresh"]
        assert ("result c1", '{"status": "pending", "ticket": 7}') in history(root.model)
        assert_valid_history(root.model)


async def test_the_first_word_is_not_shown_where_a_callback_may_take_secrets_out_of_it() -> None:
    def clean(**fields: Any) -> Any:
        return {"clean": True, "approved": fields["tool_response"].get("approved")}

    jobs = Jobs({"status": "pending", "link": "https://x/?key=hunter2"})
    root = agent(call("submit", id="c1"), say("done"), tools=[jobs.tool], after_tool_callback=clean)
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("submit")))
        await desk.stream(result(outcome_of(desk.session.pending).request_id, {"approved": True}))
        assert "hunter2" not in "".join(str(event.to_wire()) for event in desk.session.record)
        assert ("result c1", '{"approved": true, "clean": true}') in history(root.model)


@pytest.mark.rule("SEC-01")
async def test_the_first_word_is_shown_as_a_hook_leaves_it() -> None:
    jobs = Jobs({"status": "pending", "ticket": "s3cret"})
    hooks = Desk(after_tool=lambda p: modify(data={**p.data, "ticket": "***"}) if "ticket" in p.data else None)
    root = agent(call("submit", id="c1"), say("ok"), tools=[jobs.tool])
    async with driven(root, hooks=hooks) as desk:
        await desk.stream("go")
        started = await desk.stream(grant(desk.pending("submit")))
        assert [response.data for response in started.of("tool_response")] == [{"status": "pending", "ticket": "***"}]
        done = await desk.stream(result(outcome_of(desk.session.pending).request_id, {"approved": True}))
        assert done.reason == "completed"
        assert "s3cret" not in "".join(event.to_wire_json() for event in desk.session.record)


async def test_a_hook_that_withholds_the_first_word_ends_the_call_and_is_asked_once() -> None:
    jobs, hooks = Jobs(), Desk(after_tool=block("not yours"))
    root = agent(call("submit", id="c1"), say("ok"), tools=[jobs.tool])
    async with driven(root, hooks=hooks) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending("submit")))
        assert (done.reason, desk.responses(), len(hooks.at("after_tool"))) == ("completed", {"submit": "failed"}, 1)
        assert history(root.model)[-1] == ("result c1", '{"error": "not yours"}')


@pytest.mark.rule("PER-01", "TOOL-08")
@pytest.mark.parametrize("beside", [False, True])
async def test_the_outcome_may_come_to_another_process(tmp_path: Any, beside: bool) -> None:
    jobs = Jobs()
    store = MemoryRecordStore()
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    step = calls(call("submit", id="c1"), call("look", id="c2")) if beside else call("submit", id="c1")
    root = agent(step, say("approved"), tools=[jobs.tool])
    options = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))
    async with AdkExecutor(root, session_service=service, store=store) as first:
        session = await first.open(options)
        await _all(session.stream("go"))
        own = [item for item in session.pending if isinstance(item, ToolRequest) and item.needs == "grant"]
        events = await _all(session.stream(grant(own[0].request_id)))
        ends = [event for event in events if event.to_wire()["type"] == "stream_end"]
        assert [end.to_wire().get("data") for end in ends] == [None]  # nothing is volatile
        await session.aclose()
    async with AdkExecutor(root, session_service=service, store=store) as second:
        session = await second.load("s1", options)
        for item in session.pending:
            assert isinstance(item, ToolRequest)
            answer = {"approved": True} if item.name == "submit" else {"seen": 1}
            await session.respond(result(item.request_id, answer))
        await _all(session.stream())
        assert session.state == "idle"
        await session.aclose()
    assert jobs.entered == [0]
    assert ("result c1", '{"approved": true}') in history(root.model)
    assert_valid_history(root.model)


async def _all(stream: Any) -> list[Any]:
    with anyio.fail_after(20):
        async with stream as opened:
            return [event async for event in opened]
