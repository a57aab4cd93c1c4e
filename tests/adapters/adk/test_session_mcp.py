"""MCP toolsets under the host's control: ADK's McpToolset and a real server in a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters
from tests.adapters.adk.driving import (
    Driven,
    Turn,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    texts,
    verify,
)
from tests.adapters.adk.mcp_server import PIXEL
from tests.adapters.adk.trees import parallel, sequential

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.adapters.adk._mcp_results import files_of, without_exception
from agentsession.adapters.adk._tools_schema import describe_tool
from agentsession.protocol import Media, Reference, Text, ToolRequest, accept, decline, deny, grant, result

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "mcp_server.py"
CONNECT_S = 60.0
"""Bounds the start of a server and each wait of ADK's for it."""


class Server:
    """The server's side of a test: what it received, and whether its process lives."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.log.touch()

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def received(self) -> list[str]:
        """The calls it received, one a line."""
        return [line for line in self.lines if not line.startswith("pid ")]

    @property
    def pids(self) -> list[int]:
        """One for each time that it was started."""
        return [int(line.removeprefix("pid ")) for line in self.lines if line.startswith("pid ")]

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if _lives(pid)]

    def toolset(self, **fields: Any) -> McpToolset:
        """A toolset that starts the server when it is first listed."""
        params = StdioServerParameters(command=sys.executable, args=[str(SERVER), str(self.log)])
        connection = StdioConnectionParams(server_params=params, timeout=CONNECT_S)
        return McpToolset(connection_params=connection, **fields)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "server.log")


@asynccontextmanager
async def hosted(root: Any, *toolsets: McpToolset, **fields: Any) -> AsyncIterator[Driven]:
    """A session; the toolsets are closed when the test is done, as their owner would."""
    try:
        async with driven(root, **fields) as desk:
            yield desk
    finally:
        with anyio.fail_after(CONNECT_S):
            for toolset in toolsets:
                await toolset.close()


class Begun:
    """Set when the server says that a call has begun."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.event.set()

    async def meanwhile(self, does: Callable[[], Awaitable[Any]], desk: Driven, answer: Any) -> Turn:
        """What becomes of a stream if something is done when a call in it has begun."""

        async def waits() -> None:
            await self.event.wait()
            await does()

        task = asyncio.create_task(waits())
        turn = await desk.stream(answer)
        await asyncio.wait_for(task, CONNECT_S)
        return turn


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03", "TOOL-04")
async def test_an_mcp_call_reaches_the_server_once_and_as_granted(server: Server) -> None:
    toolset = server.toolset()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[toolset])
    async with hosted(root, toolset) as desk:
        await desk.stream("go")
        (request,) = desk.session.pending
        assert isinstance(request, ToolRequest)
        assert (request.name, request.args, request.needs, request.owner) == ("write", {"path": "a"}, "grant", "agent")
        assert server.received == []
        done = await desk.stream(grant("c1", args={"path": "b", "times": 2}))
        assert (done.texts, server.received) == (["done"], ["write b 2"])
        assert desk.responses() == {"write": "completed"}
        assert "wrote b" in history(root.model)[-1][1]


@pytest.mark.rule("HITL-02")
async def test_a_denied_mcp_call_never_reaches_the_server(server: Server) -> None:
    toolset = server.toolset()
    async with hosted(agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[toolset]), toolset) as desk:
        await desk.stream("go")
        assert (await desk.stream(deny("c1"))).texts == ["done"]
        assert (server.received, desk.responses()) == ([], {"write": "denied"})


async def test_the_model_is_offered_the_servers_own_schemas(server: Server) -> None:
    toolset = server.toolset(tool_filter=["write", "hang"], tool_name_prefix="disk")
    root = agent(call("disk_write", {"path": "a"}, id="c1"), say("done"), tools=[toolset])
    async with hosted(root, toolset) as desk:
        await desk.turn("go")
        assert server.received == ["write a 1"]
    model: Any = root.model
    declared = {each.name: each for tool in model.requests[0].config.tools for each in tool.function_declarations}
    assert sorted(declared) == ["disk_hang", "disk_write"]
    schema = declared["disk_write"].parameters_json_schema
    assert schema["properties"]["path"]["type"] == "string"
    assert schema["properties"]["times"]["default"] == 1
    assert schema["required"] == ["path"]


async def test_what_a_server_claims_of_its_tool_is_in_its_descriptor(server: Server) -> None:
    toolset = server.toolset()
    with anyio.fail_after(CONNECT_S):
        found = {tool.name: describe_tool(tool) for tool in await toolset.get_tools()}
        await toolset.close()
    claims = found["write"].annotations
    assert claims is not None
    assert (claims.destructive, claims.read_only) == (True, False)
    assert found["write"].parameters_schema is not None
    assert found["write"].parameters_schema["required"] == ["path"]
    assert found["picture"].annotations is None


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("yes", [True, False])
async def test_an_mcp_toolset_that_requires_confirmation_asks_once(yes: bool, server: Server) -> None:
    toolset = server.toolset(require_confirmation=True)
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[toolset])
    async with hosted(root, toolset) as desk:
        paused = await desk.stream("go")
        assert ([item.needs for item in paused.of("tool_request")], server.received) == (["none"], [])
        (question,) = desk.session.pending
        await desk.stream(accept(question.request_id) if yes else decline(question.request_id))
        assert server.received == (["write a 1"] if yes else [])
        assert desk.responses() == {"write": "completed" if yes else "denied"}


@pytest.mark.rule("HITL-01", "HITL-10")
async def test_mcp_calls_wait_in_children_branches_and_pipelines_and_each_is_made_as_granted(server: Server) -> None:
    toolset = server.toolset()

    def worker(name: str) -> LlmAgent:
        return agent(call("write", {"path": name}, id=f"{name}-1"), say(f"{name} done"), name=name, tools=[toolset])

    child, left, right = worker("child"), worker("left"), worker("right")
    root = agent(call("child", {"request": "do"}, id="r1"), say("root done"), tools=[AgentTool(child)])
    async with hosted(sequential(root, parallel(left, right)), toolset) as desk:
        await desk.stream("go")
        assert ([item.request_id for item in desk.session.pending], server.received) == (["child-1"], [])
        await desk.stream(grant("child-1", args={"path": "edited"}))
        assert server.received == ["write edited 1"]
        assert sorted(item.request_id for item in desk.session.pending) == ["left-1", "right-1"]
        done = await desk.stream([deny("left-1"), grant("right-1")])
        assert (done.reason, server.received) == ("completed", ["write edited 1", "write right 1"])


async def test_an_agent_tool_closes_its_agents_toolsets_and_a_call_of_another_session_on_them_fails(
    server: Server,
) -> None:
    """ADK does so whenever the call of an AgentTool ends; the next use opens them again (docs/adk-limits.md)."""
    begun = Begun()
    toolset = server.toolset(progress_callback=begun)
    child = agent(say("child done"), name="child", tools=[toolset])
    caller = agent(call("child", {"request": "do"}, id="r1"), say("called"), tools=[AgentTool(child)])
    hanging = agent(call("hang", id="c1"), say("sorry"), call("write", {"path": "b"}), say("back"), tools=[toolset])
    async with hosted(hanging, toolset) as desk, driven(caller) as other:
        await desk.stream("go")

        cut = await begun.meanwhile(lambda: other.turn("go"), desk, grant("c1"))
        assert texts(other.session.record) == ["child done", "called"]
        assert (cut.reason, cut.texts, desk.responses()) == ("completed", ["sorry"], {"hang": "failed"})
        assert (await desk.turn("again")).texts == ["back"]
        assert server.received[-1] == "write b 1"


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-13")
async def test_an_error_result_of_a_server_is_a_failure_and_its_words_reach_the_model(server: Server) -> None:
    toolset = server.toolset()
    root = agent(call("refuse", id="c1"), say("sorry"), tools=[toolset])
    async with hosted(root, toolset) as desk:
        turn = await desk.turn("go")
        (told,) = turn.of("tool_response")
        assert (told.status, told.is_error, turn.texts) == ("failed", True, ["sorry"])
        assert "the disk is full" in history(root.model)[-1][1]


@pytest.mark.parametrize("beside", [False, True])
async def test_an_image_in_a_result_is_content_also_over_a_pause(beside: bool, server: Server) -> None:
    toolset = server.toolset()
    made = call("picture", id="c1")
    root = agent(calls(made, call("look", id="c2")) if beside else made, say("done"), tools=[toolset])
    async with hosted(root, toolset, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        (told,) = (await desk.stream(grant("c1"))).of("tool_response")
        assert told.content == [Text(text="here it is"), Media(mime_type="image/png", data=PIXEL)]
        assert told.data["content"][1]["data"] == PIXEL
        if beside:
            await desk.stream(result("c2", "seen"))
        assert PIXEL in dict(history(root.model))["result c1"]


async def test_files_and_links_in_a_result_are_content(server: Server) -> None:
    toolset = server.toolset()
    async with hosted(agent(call("files", id="c1"), say("done"), tools=[toolset]), toolset) as desk:
        (told,) = (await desk.turn("go")).of("tool_response")
        assert told.content == [
            Text(text="three"),
            Text(text="a note"),
            Media(mime_type="application/pdf", data=PIXEL, uri="file:///a.pdf"),
            Reference(uri="https://example.com/page", title="page", mime_type="text/html"),
        ]


async def test_a_result_of_text_alone_is_data_alone(server: Server) -> None:
    toolset = server.toolset()
    async with hosted(agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[toolset]), toolset) as desk:
        (told,) = (await desk.turn("go")).of("tool_response")
        assert told.content in (None, [])
        assert told.data["content"] == [{"type": "text", "text": "wrote a"}]


@pytest.mark.parametrize(
    "content",
    [
        "text",
        [],
        [{"type": "image", "data": "x"}],
        [{"type": "image", "data": 1, "mimeType": "image/png"}],
        [{"type": "image", "data": "x", "mimeType": "image/png"}, {"type": "media"}],
        [{"type": "image", "data": "x", "mimeType": "image/png"}, "text"],
        [{"type": "resource", "resource": {"uri": "a:b"}}],
        [{"type": "resource_link"}],
        [{"type": "text", "text": 1}, {"type": "audio", "data": "x", "mimeType": "audio/wav"}],
    ],
)
def test_what_only_looks_like_mcps_content_is_left_in_the_data(content: Any) -> None:
    assert files_of({"content": content}) == []


# -- abort, death, sharing --------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-01", "CTL-05")
async def test_r74_an_abort_in_an_mcp_call_leaves_it_unknown_and_the_next_turn_works(server: Server) -> None:
    """In the reports a task closed what another had opened of the connection, and the toolset hung from then on."""
    begun = Begun()
    toolset = server.toolset(progress_callback=begun)
    root = agent(call("hang", id="c1"), call("write", {"path": "b"}, id="c2"), say("fresh"), tools=[toolset])
    async with hosted(root, toolset) as desk:
        await desk.stream("go")

        cut = await begun.meanwhile(desk.session.abort, desk, grant("c1"))
        assert (cut.reason, desk.responses(), cut.of("error")) == ("aborted", {"hang": "unknown"}, [])
        done = await desk.turn("again")
        assert (done.texts, server.received[-1]) == (["fresh"], "write b 1")
        assert_valid_history(root.model)


@pytest.mark.rule("CTL-05")
async def test_a_server_that_dies_in_a_call_is_a_failed_call_and_is_started_again(server: Server) -> None:
    toolset = server.toolset()
    root = agent(
        call("die", id="c1"), say("sorry"), call("write", {"path": "b"}, id="c2"), say("back"), tools=[toolset]
    )
    async with hosted(root, toolset) as desk:
        await desk.stream("go")
        failed = await desk.stream(grant("c1"))
        assert (failed.reason, failed.texts, desk.responses()) == ("completed", ["sorry"], {"die": "failed"})
        assert server.received == ["die"]
        assert (await desk.turn("again")).texts == ["back"]
        assert (server.received, len(server.pids)) == (["die", "write b 1"], 2)


@pytest.mark.rule("SEC-01")
async def test_a_server_that_cannot_be_started_is_told_and_the_turn_goes_on(tmp_path: Path) -> None:
    params = StdioServerParameters(command=str(tmp_path / "s3cret" / "absent"))
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=params, timeout=CONNECT_S))
    async with hosted(agent(say("without"), tools=[toolset]), toolset) as desk:
        turn = await desk.turn("go")
        (told,) = turn.of("error")
        assert (told.code, told.message) == (
            "toolset-failed",
            "the tools of McpToolset could not be listed: ConnectionError",
        )
        assert turn.texts == ["without"]
        assert "s3cret" not in "".join(event.to_wire_json() for event in desk.session.record)


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("exposes", [False, True])
async def test_the_text_of_an_exception_in_an_mcp_call_reaches_the_model_only_if_it_may(
    exposes: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADK itself makes a result of it, text and all."""
    toolset = server.toolset()

    async def broken(*args: Any, **fields: Any) -> Any:
        raise OSError("no answer from http://tools.example/?key=s3cret")

    root = agent(call("write", {"path": "a"}, id="c1"), say("sorry"), tools=[toolset])
    async with hosted(root, toolset, exposes_tool_errors=exposes) as desk:
        await desk.stream("go")
        monkeypatch.setattr(toolset._mcp_session_manager, "create_session", broken)
        turn = await desk.stream(grant("c1"))
        assert (turn.texts, desk.responses(), server.received) == (["sorry"], {"write": "failed"}, [])
        stored = await desk.executor.session_service.get_session(
            app_name="root", user_id=desk.session.user_id, session_id=desk.session.session_id
        )
        assert stored is not None
        told = "".join(event.to_wire_json() for event in desk.session.record) + stored.model_dump_json()
        assert ("s3cret" in told) is exposes
        assert ("could not be used" in history(root.model)[-1][1]) is not exposes


def test_only_adks_own_words_for_an_exception_are_replaced() -> None:
    class McpTool:
        name = "write"

    tool: Any = McpTool()
    assert without_exception(tool, {"error": "Unexpected error during MCP tool execution: x"}) is not None
    assert without_exception(tool, {"error": "MCP tool execution failed: no such tool"}) is None
    assert without_exception(tool, {"content": []}) is None
    other: Any = type("Other", (), {"name": "write"})()
    assert without_exception(other, {"error": "Unexpected error during MCP tool execution: x"}) is None


@pytest.mark.rule("CTL-05")
async def test_r74_a_session_closed_by_another_task_than_opened_it_leaves_the_toolset_open(server: Server) -> None:
    toolset = server.toolset()
    root = agent(*(call("write", {"path": str(turn)}, id=f"c{turn}") for turn in (1, 2)), tools=[toolset])
    sessions: list[Any] = []
    async with AdkExecutor(root) as executor:

        async def opens() -> None:
            session = await executor.open()
            sessions.append(session)
            await Driven(executor, session).stream("go")

        async def closes() -> None:
            await sessions[0].respond(grant("c1"))
            await sessions[0].aclose()

        with anyio.fail_after(CONNECT_S):
            await asyncio.create_task(opens())
            await asyncio.create_task(closes())
            verify(sessions[0])
            await asyncio.create_task(opens())
        assert len(server.alive) == 1
        await sessions[1].aclose()
    # Nor does leaving the executor close what is the user's: the toolset works on, with the same process.
    with anyio.fail_after(CONNECT_S):
        assert "write" in [tool.name for tool in await toolset.get_tools()]
        assert (len(server.pids), len(server.alive)) == (1, 1)
        await asyncio.create_task(toolset.close())
    assert server.alive == []


def script_of_a_writer(request: Any) -> Any:
    """Writes what its user said, then says so."""
    said = [part.text for content in request.contents for part in content.parts or [] if part.text]
    answered = any(part.function_response for content in request.contents for part in content.parts or [])
    return say(f"wrote {said[0]}") if answered else call("write", {"path": said[0]})


async def test_r74_sessions_that_share_a_toolset_at_once_do_not_hold_each_other_up(server: Server) -> None:
    toolset = server.toolset()
    root = LlmAgent(name="root", model=ScriptedLlm(forever=script_of_a_writer), tools=[toolset])
    said: dict[str, list[str]] = {}
    async with AdkExecutor(root) as executor:

        async def one(name: str) -> None:
            session = await executor.open()
            said[name] = (await Driven(executor, session).turn(name)).texts
            verify(session)
            await session.aclose()

        with anyio.fail_after(CONNECT_S):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(one, f"user-{number}")
    assert said == {f"user-{number}": [f"wrote user-{number}"] for number in range(8)}
    assert sorted(server.received) == [f"write user-{number} 1" for number in range(8)]
    assert len(server.pids) == 1
    await toolset.close()
    assert server.alive == []


@pytest.mark.rule("CTL-01")
async def test_r74_an_abort_in_one_session_leaves_the_call_of_another_alone(server: Server) -> None:
    begun = Begun()
    toolset = server.toolset(progress_callback=begun)

    def script(request: Any) -> Any:
        said = [part.text for content in request.contents for part in content.parts or [] if part.text]
        return call("hang") if said[0] == "hang" else script_of_a_writer(request)

    root = LlmAgent(name="root", model=ScriptedLlm(forever=script), tools=[toolset])
    async with AdkExecutor(root) as executor:
        hanging, other = [Driven(executor, await executor.open()) for _ in range(2)]
        await hanging.stream("hang")
        await other.stream("x")

        async def aborts_beside_the_other() -> None:
            written = asyncio.create_task(other.stream(grant(other.pending("write"))))
            await hanging.session.abort()
            assert (await written).reason == "completed"

        await begun.meanwhile(aborts_beside_the_other, hanging, grant(hanging.pending("hang")))
        assert (hanging.responses(), other.responses()) == ({"hang": "unknown"}, {"write": "completed"})
        for desk in (hanging, other):
            verify(desk.session)
            await desk.session.aclose()
    await toolset.close()
    assert server.alive == []


# -- over HTTP --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[Callable[..., McpToolset]]:
    """The server over HTTP on loopback, in a process of its own."""
    command = [sys.executable, str(SERVER), str(server.log), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(CONNECT_S):
                port = int(await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True))

            def made(**fields: Any) -> McpToolset:
                url = f"http://127.0.0.1:{port}/mcp"
                connection = StreamableHTTPConnectionParams(url=url, timeout=CONNECT_S)
                return McpToolset(connection_params=connection, **fields)

            yield made
        finally:
            process.kill()


@pytest.mark.rule("HITL-01", "HITL-03", "CTL-01", "CTL-05")
async def test_over_http_a_call_is_gated_and_an_abort_in_one_leaves_the_next_turn_working(server: Server) -> None:
    begun = Begun()
    async with served(server) as made:
        toolset = made(progress_callback=begun)
        script = [call("write", {"path": "a"}, id="c1"), call("hang", id="c2"), say("fresh")]
        root = agent(*script, tools=[toolset])
        async with hosted(root, toolset) as desk:
            await desk.stream("go")
            assert server.received == []
            await desk.stream(grant("c1", args={"path": "b"}))
            assert server.received == ["write b 1"]

            await begun.meanwhile(desk.session.abort, desk, grant("c2"))
            assert desk.responses() == {"write": "completed", "hang": "unknown"}
            assert (await desk.turn("again")).texts == ["fresh"]
            assert server.received[:2] == ["write b 1", "hang"]


async def test_over_http_a_server_that_is_gone_fails_the_call_without_its_address(server: Server) -> None:
    async with served(server) as made:
        toolset = made()
        root = agent(call("die", id="c1"), say("sorry"), say("without"), tools=[toolset])
        async with hosted(root, toolset) as desk:
            await desk.stream("go")
            failed = await desk.stream(grant("c1"))
            assert (failed.texts, desk.responses()) == (["sorry"], {"die": "failed"})
            gone = await desk.turn("again")
            assert (gone.texts, [problem.code for problem in gone.of("error")]) == (["without"], ["toolset-failed"])
            assert "127.0.0.1" not in "".join(event.to_wire_json() for event in desk.session.record)
