"""Tools of several owners in one host: providers beside functions, names, clashes, and who vouches for whom."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from tests.host.fake_session import FakeExecutor, FakeSession, call
from tests.host.turns import add, answer_of, run

from agentsession.host import (
    AnnotationPolicy,
    Host,
    Namespaced,
    PolicyDecision,
    PolicyRequest,
    Tool,
    ToolBox,
    ToolContext,
    allow_all,
    tool,
)
from agentsession.host._toolbox import is_provider, legal_name
from agentsession.protocol import ConfigurationError, ToolDescriptor

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def read(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


class Changing:
    """A provider whose list changes, as that of a tool server may."""

    name = "changing"

    def __init__(self, *tools: Tool) -> None:
        self.tools = list(tools)

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        return [each.descriptor for each in self.tools]

    def get(self, name: str | None) -> Tool | None:
        return next((each for each in self.tools if each.name == name), None)


def names(box: ToolBox | Namespaced) -> list[str]:
    return [each.name for each in box.descriptors]


# --- mixing ----------------------------------------------------------------------------------------------------------


async def test_functions_tools_pairs_and_providers_are_declared_and_run_in_one_host() -> None:
    def twice(n: int) -> int:
        return 2 * n

    pair = (ToolDescriptor(name="raw"), lambda args: args)
    host = Host(tools=[add, twice, pair, Namespaced("fs", ToolBox([read]))], policy=allow_all)
    assert [each.name for each in host.tools.descriptors] == ["add", "twice", "raw", "fs_read"]
    session = FakeSession([call("r1", "fs_read", path="a"), call("r2", "twice", n=2)], [])
    await run(host, session)
    assert answer_of(session, "r1").data == "text of a"
    assert answer_of(session, "r2").data == 4


async def test_a_name_that_a_function_and_a_provider_have_is_refused_with_both_named() -> None:
    host = Host(tools=[add, Namespaced("fs", ToolBox([add]), prefix="")], policy=allow_all)
    with pytest.raises(ConfigurationError) as refused:
        await host.open(FakeExecutor(FakeSession([])))  # type: ignore[arg-type]  # it has but what open needs
    assert refused.value.what == "two tools are called 'add'"
    assert refused.value.got == "one of the host itself, one of provider 'fs'"
    assert refused.value.fix is not None
    assert "Namespaced" in refused.value.fix


async def test_a_name_that_two_providers_have_is_refused_also_when_it_is_asked_for_again() -> None:
    box = ToolBox([Namespaced("a", ToolBox([add]), prefix=""), Namespaced("b", ToolBox([add]), prefix="")])
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="two tools are called 'add'") as refused:
            names(box)
        assert refused.value.got == "one of provider 'a', one of provider 'b'"


async def test_of_two_providers_with_one_name_that_name_is_what_has_to_change() -> None:
    box = ToolBox([Namespaced("fs", ToolBox([add])), Namespaced("fs", ToolBox([add]))])
    with pytest.raises(ConfigurationError) as refused:
        names(box)
    assert refused.value.got == "two providers have one name: provider 'fs'"
    assert refused.value.fix == "give each a name of its own"


async def test_a_name_that_a_provider_takes_later_stays_with_whoever_had_it(caplog: pytest.LogCaptureFixture) -> None:
    @tool(name="pay")
    def honest() -> str:
        return "honest"

    @tool(name="pay")
    def sly() -> str:
        return "sly"

    first = Changing(add)
    box = ToolBox([first, ToolBox([honest])])
    assert names(box) == ["add", "pay"]
    first.tools.append(sly)
    with caplog.at_level(logging.WARNING, "agentsession.host"):
        assert names(box) == ["add", "pay"]
    assert "is another's" in caplog.text
    assert (await box.run("pay", {})).data == "honest"


async def test_a_tool_that_a_provider_gets_later_is_found_and_one_that_it_loses_is_unknown() -> None:
    provider = Changing(add)
    box = ToolBox([provider])
    assert names(box) == ["add"]
    provider.tools = [read]
    assert names(box) == ["read"]
    assert (await box.run("read", {"path": "a"})).data == "text of a"
    assert (await box.run("add", {"a": 1})).error_code == "unknown_tool"


async def test_a_provider_is_told_from_functions_and_classes_without_being_asked_for_its_tools() -> None:
    class Unconnected(Changing):
        @property
        def descriptors(self) -> list[ToolDescriptor]:
            raise ConfigurationError("not connected")

    assert is_provider(Unconnected())
    assert is_provider(ToolBox())
    assert not any(map(is_provider, [add, read, Unconnected, print, (ToolDescriptor(name="x"), print), {}]))
    Host(tools=[Unconnected()])


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_namespaced_tool_has_a_name_for_models_and_one_for_policies() -> None:
    asked: list[PolicyRequest] = []

    def policy(request: PolicyRequest) -> str:
        asked.append(request)
        return "allow"

    host = Host(tools=[add, Namespaced("fs", ToolBox([read]))], policy=policy)
    session = FakeSession([call("r1", "fs_read", path="a"), call("r2", "add", a=1), call("r3", "own", "grant")], [])
    await run(host, session)
    told = {each.tool: (each.qualified_name, each.provider, each.trusted) for each in asked}
    assert told == {
        "fs_read": ("fs:read", "fs", True),
        "add": ("host:add", None, True),
        "own": ("agent:own", None, False),
    }


async def test_a_name_that_models_do_not_take_is_made_one_that_they_do() -> None:
    made = [Tool(ToolDescriptor(name=name), dict) for name in ("a b", "a/b", "ü", "x" * 90, "plain.1")]
    box = Namespaced("fs", ToolBox(made))
    found = names(box)
    assert len(set(found)) == len(made)
    assert found[-1] == "fs_plain.1"
    for name, each in zip(found, made, strict=True):
        got = box.get(name)
        assert got is not None
        assert (got.name, got.local_name, got.provider) == (name, each.name, "fs")
    assert box.get("fs_a b") is None
    assert box.get("plain.1") is None


@given(st.sampled_from(["", "fs_", "9_"]), st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_every_name_becomes_a_legal_one_and_two_stay_two(prefix: str, one: str, other: str) -> None:
    first, second = legal_name(prefix, one), legal_name(prefix, other)
    for name in (first, second):
        assert 0 < len(name) <= 64
        assert name[0].isalpha() or name[0] == "_"
        assert all(sign.isascii() and (sign.isalnum() or sign in "_.-") for sign in name)
    assert (first == second) == (one == other)


@pytest.mark.parametrize("name", ["", "a:b", "host", "agent", "9a", "a b", "x" * 33, "-a"])
def test_a_provider_has_a_name_that_rules_can_be_written_on(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a tool provider"):
        Namespaced(name, ToolBox())


# --- trust -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusted", "mode", "decision"),
    [
        (None, "default", "allow"),
        (True, "default", "allow"),
        (False, "default", "ask_user"),
        (True, "plan", "allow"),
        (False, "plan", "deny"),
    ],
)
async def test_what_an_untrusted_provider_claims_loosens_nothing(
    trusted: bool | None, mode: str, decision: str
) -> None:
    found = Namespaced("fs", ToolBox([read]), trusted=trusted).get("fs_read")
    assert found is not None
    request = PolicyRequest(
        tool=found.name,
        args={},
        annotations=found.descriptor.annotations,
        provider="fs",
        trusted=found.trusted,
        permission_mode=mode,
    )
    said = AnnotationPolicy().evaluate(request)
    assert isinstance(said, PolicyDecision)
    assert said.decision == decision


# --- places ----------------------------------------------------------------------------------------------------------


class Crowd:
    """Counts how many are inside at once; all wait until it is opened."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.open = anyio.Event()

    async def enter(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        self.inside -= 1


async def _filled(crowd: Crowd, host: Host, *sessions: FakeSession, until: int) -> None:
    """Run all sessions, and open the crowd when ``until`` are inside and nobody else can come in."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(host.run_turn, session, "go")
            while crowd.inside < until:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            crowd.open.set()


async def test_a_tools_own_limit_holds_over_the_sessions_of_a_host_and_leaves_others_alone() -> None:
    crowd, other = Crowd(), Crowd()
    other.open.set()

    @tool(max_parallel=2)
    async def query(n: int) -> int:
        await crowd.enter()
        return n

    @tool
    async def free(n: int) -> None:
        await other.enter()

    sessions = [
        FakeSession([*(call(f"q{n}", "query", n=n) for n in range(3)), call("f1", "free", n=1)], []) for _ in range(2)
    ]
    await _filled(crowd, Host(tools=[query, free], policy=allow_all, max_parallel_tools=4), *sessions, until=2)
    assert crowd.most == 2
    assert all(answer_of(session, f"q{n}").data == n for session in sessions for n in range(3))


async def test_a_providers_limit_holds_over_its_tools() -> None:
    crowd = Crowd()

    @tool
    async def one() -> None:
        await crowd.enter()

    @tool
    async def two() -> None:
        await crowd.enter()

    session = FakeSession([call(f"{name}{n}", f"db_{name}") for n in range(2) for name in ("one", "two")], [])
    host = Host(tools=[Namespaced("db", ToolBox([one, two]), max_parallel=1)], policy=allow_all)
    await _filled(crowd, host, session, until=1)
    assert crowd.most == 1


@pytest.mark.rule("HITL-11")
def test_waiting_for_a_place_is_not_the_tools_time() -> None:
    @tool(max_parallel=1, timeout_s=60)
    async def query(n: int) -> int:
        await anyio.sleep(59)
        return n

    session = FakeSession([*(call(f"r{n}", "query", n=n) for n in range(3))], [])

    async def go() -> None:
        await Host(tools=[query], policy=allow_all).run_turn(session, "go")

    trio.run(go, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [answer_of(session, f"r{n}").data for n in range(3)] == [0, 1, 2]


async def test_a_thread_that_was_given_up_keeps_its_place_until_it_ends() -> None:
    leave, ended = threading.Event(), threading.Event()
    inside: list[str] = []

    @tool(max_parallel=1, timeout_s=0.05)
    def touch(name: str) -> str:
        inside.append(name)
        if name == "first":
            leave.wait(5)
            ended.set()
        else:
            inside.append(f"first ended: {ended.is_set()}")
        return name

    first, second = (
        FakeSession([call("r1", "touch", name="first")], []),
        FakeSession([call("r1", "touch", name="b")], []),
    )
    host = Host(tools=[touch], policy=allow_all)
    assert (await run(host, first)).still_running == ("r1",)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, second, "go")
            await anyio.wait_all_tasks_blocked()
            assert inside == ["first"]
            leave.set()
    assert inside == ["first", "b", "first ended: True"]


async def test_a_place_is_given_back_when_a_call_fails_or_is_cancelled() -> None:
    @tool(max_parallel=1)
    async def fail(how: str, context: ToolContext) -> None:
        if how == "hang":
            await anyio.sleep_forever()
        raise ValueError(how)

    session = FakeSession([call("r1", "fail", how="bad")], [])
    host = Host(tools=[fail], policy=allow_all)
    await run(host, session)
    with anyio.move_on_after(0.05):
        await host.run_turn(FakeSession([call("r1", "fail", how="hang")], []), "go")
    again = FakeSession([call("r1", "fail", how="bad")], [])
    await run(host, again)
    assert answer_of(again, "r1").data["error"]["code"] == "tool_failed"


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_place_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match="max_parallel"):
        tool(max_parallel=count)(_nothing)


def _nothing() -> Any: ...
