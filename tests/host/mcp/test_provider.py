"""Tools of an MCP server in a host: real turns against a real server over HTTP, in both ages of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.host.fake_session import FakeSession, call
from tests.host.mcp.server import PIXEL, URL
from tests.host.mcp.serving import LIMIT_S, Log, relisted, served
from tests.host.turns import answer_of
from tests.tracing import traced

from agentsession.host import (
    AnnotationPolicy,
    CallbackChannel,
    Host,
    NoChannel,
    PolicyRequest,
    ScriptedChannel,
    ToolBox,
    ToolContext,
    TurnResult,
    allow_all,
)
from agentsession.host.mcp import McpTools
from agentsession.host.mcp._questions import ask_person
from agentsession.protocol import (
    ElicitationAnswer,
    ElicitationRequest,
    Media,
    Reference,
    Text,
    ToolDenial,
    ToolProgress,
)

pytestmark = pytest.mark.anyio

AGES = ["auto", "legacy"]


@pytest.fixture
def anyio_backend() -> str:
    """trio has a test of its own, the last one: a server that works costs the same on both, and time."""
    return "asyncio"


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Log, int]]:
    """One server for all tests that change nothing in it."""
    log = Log()
    with served(log) as port:
        yield log, port


@pytest.fixture
def log(shared: tuple[Log, int]) -> Log:
    shared[0].lines.clear()
    return shared[0]


@pytest.fixture
def port(shared: tuple[Log, int]) -> int:
    return shared[1]


def tools_at(port: int, name: str = "fs", *, age: str = "auto", **fields: Any) -> McpTools:
    tools = McpTools.http(name, f"http://127.0.0.1:{port}/mcp", **fields)
    tools._connection.mode = age
    return tools


@asynccontextmanager
async def connected(port: int, **fields: Any) -> AsyncIterator[McpTools]:
    with anyio.fail_after(LIMIT_S):
        async with tools_at(port, **fields) as tools:
            yield tools


async def turn(host: Host, *calls: Any) -> FakeSession:
    session = FakeSession([*calls], [])
    await host.run_turn(session, "go")
    return session


async def answered(tools: McpTools, name: str, channel: Any = None, **args: Any) -> Any:
    """The answer to a call of a tool that is allowed."""
    session = await turn(Host(tools=[tools], policy=allow_all, channel=channel), call("r1", f"fs_{name}", **args))
    return answer_of(session, "r1")


# --- what is declared ------------------------------------------------------------------------------------------------


async def test_a_servers_tools_are_declared_with_its_name_before_theirs_and_with_what_it_claims(port: int) -> None:
    async with connected(port) as tools:
        found = {each.name: each for each in tools.descriptors}
    assert all(name.startswith("fs_") for name in found)
    write = found["fs_write"]
    assert (write.description, write.display_name, write.owner) == ("Write a file.", "Write a file", "host")
    assert write.annotations is not None
    assert write.annotations.to_wire() == {"readOnly": False, "destructive": True}
    assert write.parameters_schema is not None
    assert write.parameters_schema["required"] == ["path"]
    assert found["fs_weather"].output_schema is not None
    assert found["fs_say"].annotations is None


async def test_only_the_tools_that_are_wanted_are_offered_and_a_prefix_may_be_left_out(port: int) -> None:
    async with connected(port, only=["wr*", "say"], prefix="") as tools:
        assert sorted(each.name for each in tools.descriptors) == ["say", "write"]
        write = tools.get("write")
        assert write is not None
        assert (write.provider, write.local_name) == ("fs", "write")


async def test_a_server_of_which_no_tool_is_wanted_is_said(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(port, only=["raed"]) as tools:
        assert tools.descriptors == []
    assert "fs has no tool that can be offered; only= is raed" in caplog.text


async def test_two_servers_with_the_same_tools_live_in_one_host(port: int, log: Log) -> None:
    async with connected(port) as one, connected(port, name="other") as other:
        host = Host(tools=[one, other], policy=allow_all)
        session = await turn(host, call("r1", "fs_write", path="a"), call("r2", "other_write", path="b"))
    assert answer_of(session, "r2").data == {"result": "wrote b"}
    assert sorted(log.lines) == ["write a 1", "write b 1"]


async def test_a_tool_that_a_server_gets_is_found_without_connecting_again() -> None:
    with served(Log()) as port:
        async with connected(port) as tools:
            box = ToolBox([tools])
            assert "fs_new" not in [each.name for each in box.descriptors]
            changed = relisted(tools)
            await answered(tools, "grow")
            await changed.wait()
            assert (await answered(tools, "new")).data == "new"
            assert "fs_new" in [each.name for each in box.descriptors]


# --- control ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-02")
async def test_a_call_passes_the_policy_under_its_providers_name_and_a_denied_one_is_never_sent(
    port: int, log: Log
) -> None:
    asked: list[PolicyRequest] = []

    def policy(request: PolicyRequest) -> str:
        asked.append(request)
        return "deny" if request.qualified_name == "fs:write" else "allow"

    async with connected(port) as tools:
        host = Host(tools=[tools], policy=policy)
        session = await turn(host, call("r1", "fs_write", path="a"), call("r2", "fs_weather", city="b"))
    assert isinstance(answer_of(session, "r1"), ToolDenial)
    assert log.lines == ["weather b"]
    assert {(each.qualified_name, each.trusted) for each in asked} == {("fs:write", False), ("fs:weather", False)}


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_servers_claim_that_it_only_reads_counts_when_it_is_trusted(trusted: bool, port: int, log: Log) -> None:
    async with connected(port, trusted=trusted) as tools:
        host = Host(tools=[tools], policy=AnnotationPolicy(), channel=NoChannel())
        await turn(host, call("r1", "fs_weather", city="b"))
    assert log.lines == (["weather b"] if trusted else [])


@pytest.mark.rule("TOOL-04")
async def test_arguments_that_do_not_fit_are_not_sent(port: int, log: Log) -> None:
    async with connected(port) as tools:
        answer = await answered(tools, "write", path=3)
    assert answer.data["error"]["code"] == "invalid_arguments"
    assert log.lines == []


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", AGES)
async def test_structured_content_is_the_data_and_the_same_as_text_is_left_out(age: str, port: int) -> None:
    async with connected(port, age=age) as tools:
        answer = await answered(tools, "weather", city="b")
        assert (answer.data, answer.content) == ({"degrees": 21.5, "sky": None}, [])
        wrote = await answered(tools, "write", path="a")
        assert (wrote.data, wrote.content) == ({"result": "wrote a"}, [])


async def test_texts_are_one_text(port: int) -> None:
    async with connected(port) as tools:
        assert (await answered(tools, "say", text="hi")).data == "hi\nHI"


async def test_files_and_links_are_content(port: int) -> None:
    async with connected(port) as tools:
        answer = await answered(tools, "files")
    assert "data" not in answer.model_fields_set
    assert answer.content == [
        Text(text="five"),
        Media(mime_type="image/png", data=PIXEL),
        Media(mime_type="audio/wav", data=PIXEL),
        Text(text="a note"),
        Media(mime_type="application/pdf", data=PIXEL, uri="file:///a.pdf"),
        Reference(uri="https://example.com/page", title="page", mime_type="text/html"),
    ]


@pytest.mark.parametrize("age", AGES)
async def test_r122_a_result_of_many_megabytes_comes_whole(age: str, port: int) -> None:
    """In the reports a line or event of more than one mebibyte broke whoever read it."""
    async with connected(port, age=age) as tools:
        answer = await answered(tools, "photograph", size=6_000_000)
    assert len(answer.content[0].data) == 8_000_000


@pytest.mark.rule("TOOL-13")
async def test_an_error_result_is_an_error_with_the_servers_words(port: int) -> None:
    async with connected(port) as tools:
        answer = await answered(tools, "refuse")
    assert answer.is_error
    assert answer.data["error"]["code"] == "tool_failed"
    assert "the disk is full" in answer.data["error"]["message"]


# --- progress, cancelling, time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", AGES)
async def test_progress_is_told(age: str, port: int) -> None:
    async with connected(port, age=age) as tools:
        session = await turn(Host(tools=[tools], policy=allow_all), call("r1", "fs_count"))
    told = [each for each in session.answers if isinstance(each, ToolProgress)]
    assert [(each.progress, each.total, each.content) for each in told] == [
        (1.0, 2.0, [Text(text="one")]),
        (2.0, 2.0, [Text(text="two")]),
    ]


@pytest.mark.rule("CTL-01", "CTL-05")
@pytest.mark.parametrize("age", AGES)
async def test_an_abort_tells_the_server_to_stop_and_the_next_call_works(age: str, port: int, log: Log) -> None:
    async with connected(port, age=age) as tools:
        host = Host(tools=[tools], policy=allow_all)
        results: list[TurnResult] = []

        async def hang() -> None:
            results.append(await host.run_turn(FakeSession([call("r1", "fs_hang")], []), "go"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await log.wait_for("hang")
            await host.abort()
        assert results[0].end.reason == "aborted"
        await log.wait_for("hang cancelled")
        assert (await answered(tools, "write", path="a")).data == {"result": "wrote a"}


async def test_a_call_that_takes_too_long_is_given_up_and_the_server_told(port: int, log: Log) -> None:
    for limit_s in (0.2, 1, 5, 25):  # on a busy machine the call may be given up before it was sent
        async with connected(port, timeout_s=limit_s) as tools:
            answer = await answered(tools, "hang")
            assert answer.data["error"]["code"] == "tool_timeout"
            if "hang" in log.lines:
                await log.wait_for("hang cancelled")
                return
    raise AssertionError("the call never came to the server")


async def test_a_server_gets_no_more_calls_at_once_than_it_may(port: int, log: Log) -> None:
    async with connected(port, max_parallel=1) as tools:
        host = Host(tools=[tools], policy=allow_all)
        async with anyio.create_task_group() as tasks:
            session = FakeSession([call("r1", "fs_hang"), call("r2", "fs_hang")], [])
            tasks.start_soon(host.run_turn, session, "go")
            await log.wait_for("hang")
            await anyio.wait_all_tasks_blocked()
            assert log.lines == ["hang"]
            await host.abort()
        await log.wait_for("hang cancelled")  # else it comes in the middle of the next test


async def test_many_sessions_share_one_server(port: int, log: Log) -> None:
    async with connected(port) as tools:
        host = Host(tools=[tools], policy=allow_all)
        sessions = [FakeSession([call("r1", "fs_write", path=str(n))], []) for n in range(8)]
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(host.run_turn, session, "go")
    assert [answer_of(session, "r1").data for session in sessions] == [{"result": f"wrote {n}"} for n in range(8)]
    assert len(log.lines) == 8


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize("age", AGES)
async def test_a_servers_form_is_asked_of_the_person_until_the_answer_fits(age: str, port: int, log: Log) -> None:
    asked: list[tuple[ElicitationRequest, str | None]] = []

    def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        asked.append((request, position.problem))
        content = {"name": "Ann"} if position.problem else {"nom": "Ann"}
        return ElicitationAnswer(request_id=request.request_id, action="accept", content=content)

    async with connected(port, age=age) as tools:
        answer = await answered(tools, "greet", CallbackChannel(ask=ask))
    assert answer.data == {"result": "hello Ann"}
    assert [problem is None for _, problem in asked] == [True, False]
    request = asked[0][0]
    assert (request.message, request.title) == ("What are you called?", "the tool server fs asks")
    assert request.tool_request_id == "r1"
    assert request.requested_schema is not None
    assert list(request.requested_schema["properties"]) == ["name"]


@pytest.mark.rule("HITL-09")
@pytest.mark.parametrize("channel", [ScriptedChannel(answers={"clarification": "decline"}), NoChannel(), None])
async def test_a_form_that_nobody_fills_in_leaves_the_tool_undone(channel: Any, port: int, log: Log) -> None:
    async with connected(port) as tools:
        answer = await answered(tools, "greet", channel)
    assert answer.is_error
    assert log.lines == []


@pytest.mark.rule("SEC-01")
async def test_what_a_person_answered_a_server_is_not_in_the_record(port: int) -> None:
    async with connected(port) as tools:
        session = await turn(
            Host(
                tools=[tools],
                policy=allow_all,
                channel=ScriptedChannel(answers={"clarification": ("accept", {"name": "sk-planted"})}),
            ),
            call("r1", "fs_greet"),
        )
    told = [each.to_wire() for each in session.answers if isinstance(each, ToolProgress)]
    asked = {"kind": "clarification", "message": "What are you called?", "action": "accept"}
    assert [each["data"]["asked"] | {"waitedS": 0} for each in told] == [{**asked, "waitedS": 0}]


@pytest.mark.parametrize(("age", "tool"), [("auto", "log_in"), ("legacy", "log_in_before_2026")])
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_an_address_to_open_is_asked_of_the_person(age: str, tool: str, action: str, port: int) -> None:
    channel = ScriptedChannel(answers={"open_url": action})
    async with connected(port, age=age) as tools:
        answer = await answered(tools, tool, channel)
    assert f"page: {action}" in str(answer.data)
    asked = channel.asked[0][0]
    assert isinstance(asked, ElicitationRequest)
    assert asked.url == URL


async def test_a_server_that_wants_a_page_opened_first_gets_its_call_again_when_it_was() -> None:
    log = Log()
    with served(log) as port:
        async with connected(port, age="legacy") as tools:
            declined = await answered(tools, "log_in_first", ScriptedChannel(answers={"open_url": "decline"}))
            assert declined.is_error
            assert log.lines == ["log_in_first"]
    log = Log()
    with served(log) as port:
        async with connected(port, age="legacy") as tools:
            done = await answered(tools, "log_in_first", ScriptedChannel(answers={"open_url": "accept"}))
            assert done.data == {"result": "in"}
            assert log.lines == ["log_in_first"] * 2


@pytest.mark.parametrize(
    "url",
    ["http://evil.example/", "javascript:alert(1)", "file:///etc/passwd", "https://good@evil.example/", "", "https:"],
)
async def test_an_address_that_must_not_be_opened_is_declined_unseen(url: str) -> None:
    asked: list[ElicitationRequest] = []

    async def ask(question: ElicitationRequest) -> ElicitationAnswer:
        asked.append(question)
        return ElicitationAnswer(request_id="r1", action="accept")

    context = ToolContext("r1", ask=ask)
    assert await ask_person("fs", {"mode": "url", "url": url, "message": "m"}, context) == {"action": "decline"}
    assert asked == []
    shown = await ask_person("fs", {"mode": "url", "url": "http://localhost:1/x", "message": "m"}, context)
    assert shown == {"action": "accept"}


async def test_a_server_that_wants_the_hosts_model_is_refused(port: int) -> None:
    async with connected(port) as tools:
        assert (await answered(tools, "think")).is_error


# --- tracing ---------------------------------------------------------------------------------------------------------


async def test_a_servers_tool_is_called_in_the_trace_of_the_tools_span(port: int) -> None:
    with traced() as told:
        async with connected(port) as tools:
            await answered(tools, "say", text="hi")
        (run,) = told.ours("execute_tool fs_say")
        assert run.context is not None
        sent = [span for span in told.spans if span.parent is not None and span.parent.span_id == run.context.span_id]
        assert ["tools/call" in span.name for span in sent] == [
            True
        ]  # the SDK's, which hands its context to the server


# --- trio ------------------------------------------------------------------------------------------------------------


# The SDK leaves the bodies of its answers to the collector, of which trio complains.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
@pytest.mark.parametrize("age", AGES)
def test_all_of_it_works_on_trio(age: str, port: int, log: Log) -> None:
    async def main() -> None:
        async with connected(port, age=age) as tools:
            host = Host(
                tools=[tools],
                policy=allow_all,
                channel=ScriptedChannel(answers={"clarification": ("accept", {"name": "Ann"})}),
            )
            session = await turn(host, call("r1", "fs_greet"), call("r2", "fs_count"))
            assert answer_of(session, "r1").data == {"result": "hello Ann"}
            assert len([each for each in session.answers if isinstance(each, ToolProgress)]) == 3
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run_turn, FakeSession([call("r1", "fs_hang")], []), "go")
                await log.wait_for("hang")
                await host.abort()
            await log.wait_for("hang cancelled")
            assert (await answered(tools, "write", path="a")).data == {"result": "wrote a"}

    anyio.run(main, backend="trio")
