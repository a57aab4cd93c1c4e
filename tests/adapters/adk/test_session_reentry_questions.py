"""What a tool asks when it was let run after a restart: its question is put, outlives the process, and is answered.

ADK enters such a call on a path where it does not hear what the tool asks for: it would show its model the words that
stand for a result, and never ask.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.credential_kinds import KINDS, Kind, Weather, weather_tool
from tests.adapters.adk.driving import Driven, Turn, agent, assert_valid_history, history, model_calls, verify
from tests.adapters.adk.hooking import Desk
from tests.adapters.adk.make import old_agent
from tests.adapters.adk.provider import Provider, provider
from tests.adapters.adk.test_live_and_rebuilt import assert_same, stored

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    ElicitationRequest,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    ToolResponse,
    accept,
    decline,
    deny,
    grant,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own pipelines
]

REFUSED = '{"error": "the user gave no credential for this call"}'
Visit = Callable[..., AbstractAsyncContextManager[Driven]]


@pytest.fixture
def server() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    """Opens the session, and after that loads it, in executors that share only what is stored."""
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    store = MemoryRecordStore()
    seen: list[Any] = []

    @asynccontextmanager
    async def visited(root: Any, hooks: Desk | None = None) -> AsyncIterator[Driven]:
        seen.append(root)
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            options = OpenOptions(session_id="s1")
            opened = executor.open(options) if len(seen) == 1 else executor.load("s1", options, hooks=hooks)
            session = await opened
            yield Driven(executor, session)
            verify(session)
            if session.state == "idle":
                assert_same(await stored(executor, "s1"), session.record)
        if hasattr(root, "model"):
            assert_valid_history(root.model)

    return visited


class Case:
    """An agent that calls one tool, however often in a step, and a kind of credential that the tool needs."""

    def __init__(self, server: Provider, *, kind: str = "api_key", how: str = "declared", calls_made: int = 1) -> None:
        self.kind: Kind = KINDS[kind]
        self.server = server
        self.how = how
        self.weather = Weather(server)
        self.step = calls(*[call("weather", id=f"c{number}") for number in range(calls_made)])
        self.after: list[Any] = [say("done")]

    def root(self, *script: Any) -> Any:
        return agent(*script, tools=[weather_tool(self.weather, self.kind.config(self.server), self.how)])

    async def waits_for_grants(self, visit: Visit) -> None:
        async with visit(self.root(self.step)) as desk:
            turn = await desk.stream("go")
            assert (turn.reason, turn.end.data) == ("input_required", None)

    def yes(self, question: ElicitationRequest) -> Any:
        return accept(question.request_id, self.kind.give(self.server, question))


def grants(desk: Driven) -> list[Any]:
    return [grant(item.request_id) for item in desk.session.pending if isinstance(item, ToolRequest)]


def question_of(desk: Driven) -> ElicitationRequest:
    (question,) = desk.session.pending
    assert isinstance(question, ElicitationRequest)
    return question


async def granted(desk: Driven) -> ElicitationRequest:
    """Everything is granted; the credential that the tools then ask for, about which nobody was asked before."""
    turn = await desk.stream(grants(desk))
    assert turn.reason == "input_required"
    assert turn.end.data is None, "the question outlives the process"
    question = question_of(desk)
    assert question.kind == "auth_required"
    return question


@asynccontextmanager
async def asked(visit: Visit, root: Any, *, restarts: bool) -> AsyncIterator[tuple[Driven, ElicitationRequest]]:
    """The question that comes when everything is granted, perhaps in yet another process."""
    async with visit(root) as desk:
        question = await granted(desk)
        if not restarts:
            yield desk, question
    if restarts:
        async with visit(root) as desk:
            assert question_of(desk) == question
            yield desk, question


def of_tools(desk: Driven) -> list[ToolResponse]:
    return [event for event in desk.session.record if isinstance(event, ToolResponse)]


def shown(root: Any) -> list[tuple[str, str]]:
    """The results that the last model call was shown."""
    return [entry for entry in history(root.model) if entry[0].startswith("result")]


# -- one call ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03", "PER-01")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["declared", "inside"])
@pytest.mark.parametrize("name", ["api_key", "oauth2"])
async def test_a_tool_that_is_granted_after_a_restart_asks_for_its_credential_and_runs_once_with_it(
    name: str, how: str, restarts: bool, server: Provider, visit: Visit
) -> None:
    case = Case(server, kind=name, how=how)
    await case.waits_for_grants(visit)
    root = case.root(say("done"))
    async with asked(visit, root, restarts=restarts) as (desk, question):
        assert (model_calls(root), case.weather.runs) == (0, 0)
        done = await desk.stream(case.yes(question))
    assert (done.reason, done.texts) == ("completed", ["done"])
    assert case.weather.statuses == [200]
    (response,) = of_tools(desk)
    assert response.request_id == question.tool_request_id
    assert (response.status, response.data) == ("completed", {"sky": "blue"})
    assert desk.types("elicitation_request") == ["elicitation_request"]
    assert shown(root) == [("result c0", '{"sky": "blue"}')]


@pytest.mark.rule("HITL-02", "PER-01")
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_credential_that_is_refused_after_a_restart_runs_nothing_and_is_not_asked_for_again(
    restarts: bool, server: Provider, visit: Visit
) -> None:
    case = Case(server)
    await case.waits_for_grants(visit)
    root = case.root(say("done"))
    async with asked(visit, root, restarts=restarts) as (desk, question):
        done = await desk.stream(decline(question.request_id))
    assert (done.reason, done.texts, case.weather.runs) == ("completed", ["done"], 0)
    assert [event.status for event in of_tools(desk)] == ["failed"]
    assert desk.types("elicitation_request") == ["elicitation_request"]
    assert shown(root) == [("result c0", REFUSED)]


@pytest.mark.rule("TOOL-01", "PER-01")
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_message_over_the_question_closes_it_and_the_model_reads_no_placeholder(
    restarts: bool, server: Provider, visit: Visit
) -> None:
    case = Case(server)
    await case.waits_for_grants(visit)
    root = case.root(say("next"))
    async with asked(visit, root, restarts=restarts) as (desk, _):
        turn = await desk.stream("something else")
    assert (turn.texts, case.weather.runs) == (["next"], 0)
    ((name, told),) = shown(root)
    assert name == "result c0"
    assert "Pending" not in told
    assert '"error"' in told


@pytest.mark.rule("HITL-01", "PER-01")
async def test_a_sign_in_that_failed_is_asked_for_anew_and_that_question_outlives_the_process_too(
    server: Provider, visit: Visit
) -> None:
    case = Case(server, kind="oauth2")
    await case.waits_for_grants(visit)
    async with visit(case.root()) as desk:
        question = await granted(desk)
        server.refuses = True
        turn = await desk.stream(case.yes(question))
        assert (turn.reason, turn.end.data, case.weather.runs) == ("input_required", None, 0)
        again = question_of(desk)
        assert again.url != question.url
    server.refuses = False
    async with visit(case.root(say("done"))) as desk:
        assert question_of(desk) == again
        done = await desk.stream(case.yes(again))
        assert (done.reason, case.weather.statuses) == ("completed", [200])


@pytest.mark.rule("HITL-01", "PER-01", "LIFE-04")
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_pipeline_goes_on_after_the_question_with_what_it_has_left(
    restarts: bool, server: Provider, visit: Visit
) -> None:
    case = Case(server)

    def pipe(*first: Any, last: Any = ()) -> App:
        inner = case.root(*first).model_copy(update={"name": "first"})
        steps = [inner, agent(*last, name="last")]
        pipeline = old_agent("SequentialAgent", name="root", sub_agents=steps)
        return App(name="root", root_agent=pipeline, resumability_config=ResumabilityConfig(is_resumable=True))

    async with visit(pipe(case.step)) as desk:
        await desk.stream("go")
    rest = pipe(say("first done"), last=[say("all done")])
    async with asked(visit, rest, restarts=restarts) as (desk, question):
        assert desk.responses() == {}
        done = await desk.stream(case.yes(question))
    assert (done.reason, done.texts, case.weather.statuses) == ("completed", ["first done", "all done"], [200])


@pytest.mark.rule("HITL-01", "PER-01")
async def test_an_agent_that_was_handed_over_to_asks_for_its_own_tool(server: Provider, visit: Visit) -> None:
    case = Case(server)

    def family(*script: Any, kid: Any = ()) -> Any:
        inner = case.root(*kid).model_copy(update={"name": "kid"})
        return agent(*script, sub_agents=[inner])

    async with visit(family(call("transfer_to_agent", {"agent_name": "kid"}), kid=[case.step])) as desk:
        await desk.stream("go")
    async with visit(family()) as desk:
        question = await granted(desk)
        assert question.agent_id == "kid"
    async with visit(family(kid=[say("from the kid")])) as desk:
        done = await desk.stream(case.yes(question))
        assert (done.reason, done.texts, case.weather.statuses) == ("completed", ["from the kid"], [200])


@pytest.mark.rule("HITL-01", "PER-01")
async def test_a_tool_that_is_confirmed_after_a_restart_asks_for_its_credential_too(
    server: Provider, visit: Visit
) -> None:
    """Its confirmation is the one question about it, so there is no grant by which it is entered."""
    case = Case(server)

    def root(*script: Any) -> Any:
        tool = weather_tool(case.weather, case.kind.config(server), "inside")
        assert isinstance(tool, FunctionTool)
        return agent(*script, tools=[FunctionTool(tool.func, require_confirmation=True)])

    async with visit(root(case.step)) as desk:
        await desk.stream("go")
    async with visit(root()) as desk:
        await desk.stream(accept(question_of(desk).request_id))
        question = question_of(desk)
        assert (question.kind, case.weather.runs) == ("auth_required", 0)
    async with visit(root(say("done"))) as desk:
        done = await desk.stream(case.yes(question))
        assert (done.reason, done.texts, case.weather.statuses) == ("completed", ["done"], [200])
        assert desk.types("elicitation_request") == ["elicitation_request"] * 2


class Answers(BasePlugin):
    """A plugin of the author's that answers every call in the place of its tool, all but those of one name."""

    def __init__(self, lets: str) -> None:
        super().__init__(name="answers")
        self.lets = lets
        self.seen: list[str] = []

    async def before_tool_callback(self, *, tool: BaseTool, **_: Any) -> Any:
        self.seen.append(tool.name)
        return None if tool.name == self.lets else {"result": "by the plugin"}

    async def after_tool_callback(self, *, tool: BaseTool, **_: Any) -> Any:
        self.seen.append(tool.name)

    async def before_model_callback(self, **_: Any) -> Any:
        self.seen.append("model")


@pytest.mark.rule("HITL-01", "SEC-01")
async def test_the_question_is_no_call_to_plugins_callbacks_and_hooks(server: Provider, visit: Visit) -> None:
    case, plugin, hooks = Case(server), Answers("weather"), Desk()

    def callback(tool: BaseTool, args: Any, tool_context: ToolContext) -> Any:
        return {"result": "by the callback"} if tool.name != "weather" else None

    def app(*script: Any) -> App:
        root = case.root(*script)
        root.before_tool_callback = callback
        return App(name="root", root_agent=root, plugins=[plugin])

    await case.waits_for_grants(visit)
    async with visit(app(say("done")), hooks) as desk:
        question = await granted(desk)
        assert plugin.seen == ["weather", "weather"]
        assert [(point, payload.name) for point, payload in hooks.seen if "tool" in point] == []
        assert hooks.at("before_model") == []
        done = await desk.stream(case.yes(question))
        assert (done.reason, done.texts, case.weather.statuses) == ("completed", ["done"], [200])


# -- several calls ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03", "PER-01")
@pytest.mark.parametrize("how", ["declared", "inside"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_calls_of_one_step_that_need_one_credential_have_one_question_after_a_restart(
    restarts: bool, how: str, server: Provider, visit: Visit
) -> None:
    case = Case(server, calls_made=3, how=how)
    await case.waits_for_grants(visit)
    async with visit(case.root()) as desk:  # one after the other: all but the last are kept
        (receipt,) = await desk.session.respond(grants(desk)[0])
        assert receipt.ok
    root = case.root(say("done"))
    async with asked(visit, root, restarts=restarts) as (desk, question):
        done = await desk.stream(case.yes(question))
    assert (done.reason, done.texts, case.weather.statuses) == ("completed", ["done"], [200] * 3)
    assert [event.status for event in of_tools(desk)] == ["completed"] * 3
    assert shown(root) == [(f"result c{number}", '{"sky": "blue"}') for number in range(3)]


@pytest.mark.rule("HITL-02", "PER-01")
@pytest.mark.parametrize("restarts", [False, True])
async def test_one_refusal_holds_for_all_calls_that_need_the_credential(
    restarts: bool, server: Provider, visit: Visit
) -> None:
    case = Case(server, calls_made=2)
    await case.waits_for_grants(visit)
    root = case.root(say("done"))
    async with asked(visit, root, restarts=restarts) as (desk, question):
        done = await desk.stream(decline(question.request_id))
    assert (done.reason, case.weather.runs) == ("completed", 0)
    assert shown(root) == [("result c0", REFUSED), ("result c1", REFUSED)]


@pytest.mark.rule("HITL-01", "HITL-02", "TOOL-07")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_different_credentials_of_one_step_each_have_a_question_and_are_answered_in_any_order(
    order: tuple[int, int], server: Provider, visit: Visit
) -> None:
    work = {"key": Weather(server), "sign_in": Weather(server)}
    kinds = {"key": KINDS["api_key"], "sign_in": KINDS["oauth2"]}

    def root(*script: Any) -> Any:
        return agent(*script, tools=[weather_tool(work[name], kinds[name].config(server), name=name) for name in work])

    async with visit(root(calls(call("key", id="c1"), call("sign_in", id="c2")))) as desk:
        await desk.stream("go")
    async with visit(root()) as desk:
        await desk.stream(grants(desk))
        asked = [item for item in desk.session.pending if isinstance(item, ElicitationRequest)]
        assert [item.url is None for item in asked] == [True, False]
    async with visit(root(say("done"))) as desk:
        for left in (1, 0):
            item = asked[order[1 - left]]
            kind = kinds["sign_in" if item.url else "key"]
            done = await desk.stream(accept(item.request_id, kind.give(server, item)))
            assert done.reason == ("input_required" if left else "completed")
    assert [made.statuses for made in work.values()] == [[200], [200]]


@pytest.mark.rule("HITL-02", "HITL-03")
async def test_a_call_beside_is_denied_and_the_question_of_the_other_one_is_put_all_the_same(
    server: Provider, visit: Visit
) -> None:
    case = Case(server, calls_made=2)
    await case.waits_for_grants(visit)
    root = case.root(say("done"))
    async with visit(root) as desk:
        one, two = [item.request_id for item in desk.session.pending]
        await desk.stream([deny(one, "no"), grant(two)])
        assert question_of(desk).tool_request_id == two
    async with visit(root) as desk:
        done = await desk.stream(case.yes(question_of(desk)))
        assert (done.reason, case.weather.statuses) == ("completed", [200])
    assert sorted(shown(root)) == [("result c0", '{"error": "denied: no"}'), ("result c1", '{"sky": "blue"}')]


@pytest.mark.rule("HITL-01")
async def test_a_call_beside_that_would_end_its_agent_keeps_nobody_from_being_asked(
    server: Provider, visit: Visit
) -> None:
    case, ran = Case(server), list[str]()

    def quiet(tool_context: ToolContext) -> str:
        """Say that the model need not be called."""
        ran.append("quiet")
        tool_context.actions.skip_summarization = True
        return "shown elsewhere"

    def root(*script: Any) -> Any:
        made = case.root(*script)
        made.tools.append(quiet)
        return made

    async with visit(root(calls(call("quiet", id="c1"), call("weather", id="c2"), call("quiet", id="c3")))) as desk:
        await desk.stream("go")
    async with visit(root(say("done"))) as desk:
        question = await granted(desk)
        done = await desk.stream(case.yes(question))
        assert (done.reason, case.weather.statuses, ran) == ("completed", [200], ["quiet", "quiet"])


# -- both questions ---------------------------------------------------------------------------------------------------


class Both:
    """A tool that wants a confirmation with a payload, and a credential, in either order."""

    def __init__(self, server: Provider, first: str) -> None:
        self.config = KINDS["api_key"].config(server)
        self.first = first
        self.ran: list[Any] = []

    def write(self, text: str, tool_context: ToolContext) -> Any:
        """Write."""
        for wanted in (self.first, "key" if self.first == "yes" else "yes"):
            if wanted == "yes" and tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="Really?", payload={"copies": 1})
                return {"status": "asked"}
            if wanted == "key" and tool_context.get_auth_response(self.config) is None:
                tool_context.request_credential(self.config)
                return {"status": "asked"}
        given = tool_context.tool_confirmation
        assert given is not None
        self.ran.append((text, given.hint, given.payload))
        return "written"


@pytest.mark.rule("HITL-01", "HITL-03", "PER-01")
@pytest.mark.parametrize("restarts", ["at the grant", "at every pause"])
@pytest.mark.parametrize("first", ["yes", "key"])
async def test_a_tool_that_wants_a_yes_and_a_credential_gets_both_and_runs_once(
    first: str, restarts: str, server: Provider, visit: Visit
) -> None:
    tool = Both(server, first)
    key = {"credential": {"type": "api_key", "api_key": "k"}}

    async def answer(desk: Driven) -> Turn:
        (item,) = desk.session.pending
        if isinstance(item, ToolRequest):
            return await desk.stream(grant(item.request_id, {"text": "edited"}))
        given = {"payload": {"copies": 3}} if item.kind == "tool_confirmation" else key
        return await desk.stream(accept(item.request_id, given))

    async with visit(agent(call("write", {"text": "x"}, id="c1"), tools=[tool.write])) as desk:
        await desk.stream("go")
    kinds: list[str] = []
    done = None
    while done is None or done.reason == "input_required":
        async with visit(agent(say("done"), tools=[tool.write])) as desk:
            while done is None or done.reason == "input_required":
                done = await answer(desk)
                assert done.end.data is None
                kinds += [getattr(item, "kind", "") for item in desk.session.pending]
                if restarts == "at every pause":
                    break
    assert done.texts == ["done"]
    assert tool.ran == [("edited", "Really?", {"copies": 3})]
    # A credential is not kept over a restart, so it may be asked for once more; a yes is.
    assert sorted(set(kinds)) == ["auth_required", "tool_confirmation"]
    assert kinds.count("tool_confirmation") == 1
