"""The connection to an MCP server: whose task owns it, what a server's death is, what of it stays unseen."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.host.fake_session import FakeSession, call
from tests.host.mcp.serving import LIMIT_S, ODD, Log, Printed, Process, relisted, served
from tests.host.turns import answer_of

from agentsession.host import Host, ScriptedChannel, ToolContext, ToolOutcome, allow_all
from agentsession.host.mcp import McpTools
from agentsession.protocol import ConfigurationError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning"),
]


on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""A server of the SDK takes seconds to start; where nothing depends on the event library, once is enough."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "server.log")
    yield process
    process.close()


async def called(tools: McpTools, name: str, **args: Any) -> ToolOutcome:
    tool = tools.get(f"fs_{name}")
    assert tool is not None
    with anyio.fail_after(LIMIT_S):
        return await tool.run(args, ToolContext("r1", session_id="s-1"))


def odd(how: str, **fields: Any) -> McpTools:
    return McpTools.stdio("fs", [sys.executable, str(ODD), how], **fields)


# --- whose task ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-01", "CTL-05")
async def test_r74_opened_used_aborted_and_closed_by_different_tasks_the_server_works_and_then_ends(
    server: Process,
) -> None:
    """In the reports a task closed what another had opened of the connection, and everything hung from then on."""
    tools = server.tools()
    host = Host(tools=[tools], policy=allow_all)

    async def in_a_task_of_its_own(does: Callable[[], Any]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(does)

    async def hangs() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, FakeSession([call("r1", "fs_hang")], []), "go")
            await server.wait_for("hang")
            await host.abort()
            await server.wait_for("hang cancelled")

    async def writes() -> None:
        session = FakeSession([call("r1", "fs_write", path="a")], [])
        await host.run_turn(session, "go")
        assert answer_of(session, "r1").data == {"result": "wrote a"}

    with anyio.fail_after(LIMIT_S):
        for does in (tools.connect, hangs, writes):
            await in_a_task_of_its_own(does)
        assert len(server.alive) == 1
        await in_a_task_of_its_own(tools.aclose)
    assert (server.alive, len(server.pids), tools.is_connected) == ([], 1, False)
    assert server.received[:2] == ["hang", "hang cancelled"]  # by the abort, not by the end of the server
    assert (await called(tools, "write", path="b")).error_code == "server_unavailable"


async def test_whoever_is_cancelled_while_connecting_leaves_no_process_and_does_not_wait_for_an_answer() -> None:
    tools = odd("silent")
    with anyio.fail_after(LIMIT_S / 3), anyio.move_on_after(0.05):
        await tools.connect()
    assert not tools.is_connected
    with anyio.fail_after(1):
        await tools.aclose()


# --- death -----------------------------------------------------------------------------------------------------------


@on_asyncio
async def test_a_server_that_dies_in_a_call_is_an_error_of_it_and_is_started_again_by_the_next(server: Process) -> None:
    async with server.tools() as tools:
        died = await called(tools, "die")
        assert died.error_code == "server_lost"
        assert "may have had effects" in died.data["error"]["message"]
        assert (await called(tools, "write", path="b")).data == {"result": "wrote b"}
    assert (server.received, len(server.pids), server.alive) == (["die", "write b 1"], 2, [])


@on_asyncio
@pytest.mark.rule("SEC-01")
async def test_a_server_process_gets_only_what_it_is_given_and_what_it_prints_stays_off_the_terminal(
    server: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOST_KEY", "sk-of-the-host")
    monkeypatch.setenv("SHOP_REGION", "north")
    kept = tmp_path / "stderr.log"
    tools = server.tools(env={"SHOP_KEY": "sk-planted"}, inherit_env=["SHOP_REGION", "ABSENT"], stderr_to=kept)
    async with tools:
        printed = Printed(tools)
        names = str((await called(tools, "environment")).data).split()
        await printed.wait_for("the key")
    assert {"SHOP_KEY", "SHOP_REGION", "PATH"} <= set(names)
    assert not {"HOST_KEY", "ABSENT", "PYTHONPATH"} & set(names)
    assert "the key is [masked]" in tools.stderr
    assert "sk-planted" in kept.read_text()
    assert "sk-planted" not in repr(tools)
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    ("command", "says", "got"),
    [
        ([sys.executable, str(ODD), "invalid"], "what it said is not of the protocol", None),
        (["/nowhere/sk-planted/server"], "FileNotFoundError", None),
        (
            [sys.executable, "-c", "import sys; sys.exit('bad key sk-planted')"],
            "it ended before it had answered",
            "its last words: bad key [masked]",
        ),
        ([sys.executable, str(ODD), "silent"], "it did not answer within 0.5 s", None),
    ],
)
async def test_a_server_that_cannot_be_started_says_why_and_leaves_nothing(
    command: list[str], says: str, got: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    short = 0.5 if "silent" in command else 30
    tools = McpTools.stdio("fs", command, env={"KEY": "sk-planted"}, connect_timeout_s=short)
    for _ in range(2):  # a second time at once: only calls are held back after a failure
        with pytest.raises(ConfigurationError) as failed:
            await tools.connect()
        assert says in failed.value.what
        assert failed.value.got == got
        assert "sk-planted" not in str(failed.value) + caplog.text
    assert not tools.is_connected


async def test_a_provider_that_was_not_connected_says_so() -> None:
    with pytest.raises(ConfigurationError, match="is not connected"):
        _ = odd("pages").descriptors


@pytest.mark.parametrize("command", [[], "fs-server ."])
async def test_a_command_is_a_list_of_words(command: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a list of words"):
        McpTools.stdio("fs", command)


# --- odd servers -----------------------------------------------------------------------------------------------------


@on_asyncio
async def test_every_page_of_tools_is_read_and_what_is_of_no_use_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agentsession.host"):
        async with odd("pages") as tools:
            found = {each.name: each for each in tools.descriptors}
    assert [name[:6] for name in found] == ["fs_one", "fs_a_b"]
    last = next(each for each in found.values() if each.description == "Two words.")
    assert last.parameters_schema == {"type": "object", "properties": {"n": {"default": None}}}
    assert "'bad' of fs cannot be used" in caplog.text
    assert "lists 'one' twice" in caplog.text
    assert "its server runs it as a task alone" in caplog.text


@on_asyncio
async def test_a_list_that_never_ends_is_cut_off() -> None:
    async with odd("endless") as tools:
        assert len(tools.descriptors) == 100


async def test_lines_that_are_no_messages_are_passed_over_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    async with odd("chatter") as tools:
        assert len(tools.descriptors) == 1
    assert "sk-planted" not in "".join(capfd.readouterr())


def test_a_host_without_servers_does_not_load_the_sdk() -> None:
    code = "import sys, agentsession.host; sys.exit('mcp' in sys.modules or 'uvicorn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@on_asyncio
async def test_a_list_as_long_as_no_model_takes_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with odd("many") as tools:
        assert len(tools.descriptors) == 1000
    assert "more than 1000 tools" in caplog.text


@on_asyncio
async def test_a_server_that_only_says_that_its_list_changed_changes_nothing() -> None:
    async with odd("restless") as tools:
        before, changed = tools.get("fs_one"), relisted(tools)
        assert not (await called(tools, "one")).is_error
        with anyio.fail_after(LIMIT_S):
            await changed.wait()
        assert tools.get("fs_one") is before


@on_asyncio
@pytest.mark.parametrize(("how", "data"), [("brackets", {"x": 1}), ("no_number", "done")])
async def test_a_result_stands_whatever_odd_thing_is_said_beside_it(
    how: str, data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with odd(how) as tools:
        assert (await called(tools, "one")).data == data
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@on_asyncio
async def test_no_schema_of_a_server_keeps_the_host_busy_for_ever() -> None:
    async with odd("doubling") as tools:
        outcome = await called(tools, "one")
    assert outcome.error_code == "invalid_arguments"
    assert "would take too long" in outcome.data["error"]["message"]


@pytest.mark.parametrize("how", ["wrong", "plain"])
async def test_an_answer_that_is_no_result_of_the_tool_is_an_error(how: str) -> None:
    async with odd(how) as tools:
        outcome = await called(tools, "one")
        assert outcome.data["error"]["message"] == "the server's answer is no valid result of this tool"
        assert tools.is_connected


@on_asyncio
async def test_a_question_that_may_be_of_either_of_two_sessions_is_asked_in_neither(server: Process) -> None:
    """Before 2026 a server does not say in which call it asks."""
    tools = server.tools()
    tools._connection.mode = "legacy"
    channel = ScriptedChannel(answers={"clarification": ("accept", {"name": "Ann"})})
    host = Host(tools=[tools], policy=allow_all, channel=channel)
    async with tools:
        alone = FakeSession([call("r1", "fs_greet")], [])
        await host.run_turn(alone, "go")
        assert answer_of(alone, "r1").data == {"result": "hello Ann"}
        other, asking = FakeSession([call("r1", "fs_hang")], []), FakeSession([call("r1", "fs_greet")], [])
        other.session_id, asking.session_id = "s-other", "s-asking"
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run_turn, other, "go")
                await server.wait_for("hang")
                await host.run_turn(asking, "go")
                await host.abort()
    assert answer_of(asking, "r1").is_error
    assert len(channel.asked) == 1


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
async def test_a_server_that_is_gone_is_an_error_without_its_address_and_is_reached_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    with served(log) as port:
        tools = McpTools.http("fs", f"http://127.0.0.1:{port}/mcp?key=sk-planted", connect_timeout_s=10)
        await tools.connect()
        assert (await called(tools, "write", path="a")).data == {"result": "wrote a"}
    gone = [await called(tools, "write", path="b") for _ in range(3)]
    assert {each.error_code for each in gone} <= {"server_lost", "server_unavailable"}
    assert gone[-1].error_code == "server_unavailable"
    assert "nothing was done" in gone[-1].data["error"]["message"]
    told = "".join(str(each.data) for each in gone) + repr(tools)
    assert not any(word in told for word in ("127.0.0.1", "sk-planted", str(port)))
    with served(log, port):
        tools._connection._not_before = 0  # what it waits after a failure
        assert (await called(tools, "write", path="c")).data == {"result": "wrote c"}
        await tools.aclose()
    assert log.lines == ["write a 1", "write c 1"]


@on_asyncio
@pytest.mark.parametrize(("age", "says_so"), [("auto", False), ("legacy", True)])
async def test_a_server_with_sessions_is_told_when_one_is_over(age: str, says_so: bool) -> None:
    log = Log()
    with served(log) as port:
        tools = McpTools.http("fs", f"http://127.0.0.1:{port}/mcp")
        tools._connection.mode = age
        async with tools:
            assert "DELETE" not in log.methods
        assert ("DELETE" in log.methods) is says_so


@on_asyncio
async def test_a_server_that_forgot_the_session_gets_the_call_in_a_new_one() -> None:
    log = Log()
    with served(log) as port:
        tools = McpTools.http("fs", f"http://127.0.0.1:{port}/mcp")
        tools._connection.mode = "legacy"
        await tools.connect()
    with served(log, port):
        outcome = await called(tools, "write", path="b")
        if outcome.error_code == "server_lost":  # the connection ended with the server: the next call has a new one
            outcome = await called(tools, "write", path="b")
        assert outcome.data == {"result": "wrote b"}
        await tools.aclose()
    assert log.lines == ["write b 1"]


@on_asyncio
@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_a_server_that_refuses_says_with_which_status(status: int) -> None:
    log = Log()
    log.refuses = status
    with served(log) as port, pytest.raises(ConfigurationError) as refused:
        await McpTools.http("fs", f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "sk-planted"}).connect()
    assert refused.value.got == f"an answer with HTTP status {status}"
    assert "sk-planted" not in str(refused.value)


@on_asyncio
async def test_connecting_again_what_is_connected_changes_nothing(server: Process) -> None:
    async with server.tools() as tools:
        await tools.connect()
        assert (await called(tools, "die")).error_code == "server_lost"
        await tools.connect()  # the server is gone, and comes back
        assert tools.is_connected
        assert len(server.alive) == 1
    assert (len(server.pids), server.alive) == (2, [])


@pytest.mark.parametrize("url", ["ftp://x/y", "x/y", "http:///mcp", ""])
async def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="has no http address"):
        McpTools.http("fs", url)


@pytest.mark.rule("SEC-01")
async def test_headers_are_not_sent_readable_and_not_shown() -> None:
    headers = {"Authorization": "Bearer sk-planted"}
    with pytest.raises(ConfigurationError, match="readable"):
        McpTools.http("fs", "http://example.com/mcp", auth=("user", "sk-planted"))
    with pytest.raises(ConfigurationError, match="readable") as refused:
        McpTools.http("fs", "http://example.com/mcp", headers=headers)
    shown = repr(McpTools.http("fs", "https://example.com/mcp", headers=headers)) + str(refused.value)
    assert "sk-planted" not in shown
