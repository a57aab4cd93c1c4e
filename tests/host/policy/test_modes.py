"""The table that comes with the package: each permission mode against each mark of a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.host.fake_session import FakeSession, call
from tests.host.policy.rules import request

from agentsession.host import CallbackChannel, Host, PolicyDecision, PolicyRequest, tool
from agentsession.host.policy import PolicyEngine, builtin_rules, parse_policy
from agentsession.protocol import Event, ExecutionOptions, SessionUpdate, ToolDenial

MARKS: dict[str, dict[str, Any]] = {
    "read_only": {"read_only": True},
    "edit": {"category": "edit"},
    "destructive": {"destructive": True},
    "open_world": {"open_world": True},
    "none": {},
}
TABLE = {
    "plan": {"read_only": "allow", "edit": "deny", "destructive": "deny", "open_world": "deny", "none": "deny"},
    "default": {
        "read_only": "allow",
        "edit": "ask_user",
        "destructive": "ask_user",
        "open_world": "ask_user",
        "none": "ask_user",
    },
    "auto_edit": {
        "read_only": "allow",
        "edit": "allow",
        "destructive": "ask_user",
        "open_world": "ask_user",
        "none": "ask_user",
    },
    "autonomous": dict.fromkeys(MARKS, "allow"),
}
CELLS = [(mode, mark, word) for mode, row in TABLE.items() for mark, word in row.items()]


def decide(mode: str, path: str = "a.py", **marks: Any) -> PolicyDecision:
    return PolicyEngine(builtin_rules()).evaluate(request("work", {"path": path}, mode=mode, **marks))


@pytest.mark.parametrize(("mode", "mark", "word"), CELLS)
def test_each_cell_of_the_table(mode: str, mark: str, word: str) -> None:
    found = decide(mode, **MARKS[mark])
    assert found.decision == word
    if mark == "destructive" and word == "ask_user":
        assert found.remember == "exact"


@pytest.mark.parametrize("has_channel", [True, False], ids=["channel", "headless"])
@pytest.mark.parametrize(("mode", "mark", "word"), CELLS)
@pytest.mark.anyio
async def test_each_cell_decides_whether_a_tool_runs(mode: str, mark: str, word: str, has_channel: bool) -> None:
    ran: list[str] = []
    asked: list[object] = []

    @tool(**MARKS[mark])
    def work(path: str) -> None:
        ran.append(path)

    def approve(request: Any, decision: Any, position: Any) -> bool:
        asked.append(decision)
        return True

    host = Host(
        tools=[work],
        policy=PolicyEngine(builtin_rules()),
        channel=CallbackChannel(approve) if has_channel else None,
    )
    with anyio.fail_after(5):
        session = FakeSession([call("r1", "work", path="a.py")], [])
        await host.run_turn(session, "go", ExecutionOptions(permission_mode=mode))
    assert bool(asked) == (word == "ask_user" and has_channel)
    assert bool(ran) == (word == "allow" or (word == "ask_user" and has_channel))


@pytest.mark.parametrize(
    ("mode", "marks", "word"),
    [
        ("default", {"read_only": True, "destructive": True}, "ask_user"),
        ("default", {"read_only": True, "open_world": True}, "ask_user"),
        ("plan", {"read_only": True, "open_world": True}, "ask_user"),
        ("plan", {"read_only": True, "destructive": True, "open_world": True}, "deny"),
        ("plan", {"read_only": True, "category": "edit"}, "deny"),
        ("auto_edit", {"category": "edit", "destructive": True}, "ask_user"),
        ("auto_edit", {"category": "edit", "open_world": True}, "ask_user"),
    ],
)
def test_of_several_marks_the_strictest_cell_counts(mode: str, marks: dict[str, Any], word: str) -> None:
    assert decide(mode, **marks).decision == word


@pytest.mark.parametrize("mark", ["read_only", "edit"])
@pytest.mark.parametrize("mode", ["plan", "default", "auto_edit"])
def test_the_marks_of_a_provider_that_is_not_trusted_open_nothing(mode: str, mark: str) -> None:
    found = decide(mode, trusted=False, provider="far", provider_tool="work", **MARKS[mark])
    assert found.decision == ("deny" if mode == "plan" else "ask_user")


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "~/a.py", "file:///etc/passwd", "a\\..\\b", 7])
def test_an_edit_outside_of_the_workspace_is_asked_about_in_auto_edit(path: Any) -> None:
    assert decide("auto_edit", path, category="edit").decision == "ask_user"


def test_an_edit_through_a_link_that_leaves_the_workspace_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    engine = PolicyEngine(builtin_rules(workspace=tmp_path / "in"))

    def decision(path: str) -> str:
        return engine.evaluate(request("work", {"path": path}, mode="auto_edit", category="edit")).decision

    assert decision("a.py") == "allow"
    assert decision("link/a.py") == "ask_user"


def test_in_plan_only_the_plans_own_file_is_edited(tmp_path: Path) -> None:
    engine = PolicyEngine(builtin_rules(workspace=tmp_path, plan_file="plan.md"))

    def decision(path: str) -> str:
        return engine.evaluate(request("work", {"path": path}, mode="plan", category="edit")).decision

    assert decision("plan.md") == "allow"
    assert decision(str(tmp_path / "plan.md")) == "allow"
    assert decision("a.py") == "deny"
    assert decision("plan.md/../a.py") == "deny"


@pytest.mark.anyio
async def test_what_a_user_allows_does_not_run_in_plan() -> None:
    ran: list[int] = []

    @tool
    def work() -> None:
        ran.append(1)

    rule = 'version = 1\n[[rule]]\nid = "mine"\ntools = ["*"]\ndecision = "allow"\npriority = 999\n'
    host = Host(tools=[work], policy=PolicyEngine([*builtin_rules(), *parse_policy(rule)]))
    session = FakeSession([call("r1", "work"), call("r2", "work", "grant")], [])
    with anyio.fail_after(5):
        await host.run_turn(session, "go", ExecutionOptions(permission_mode="plan"))
    assert ran == []
    assert all(isinstance(answer, ToolDenial) for answer in session.answers)


@pytest.mark.anyio
async def test_whatever_policy_allows_it_only_what_reads_runs_in_plan() -> None:
    ran: list[str] = []

    @tool
    def work() -> None:
        ran.append("work")

    @tool(read_only=True)
    def look() -> None:
        ran.append("look")

    @tool(read_only=True, destructive=True)
    def odd() -> None:
        ran.append("odd")

    host = Host(tools=[work, look, odd], policy=lambda request: "allow")
    session = FakeSession([call("r1", "work"), call("r2", "look"), call("r3", "odd"), call("r4", "own", "grant")], [])
    with anyio.fail_after(5):
        await host.run_turn(session, "go", ExecutionOptions(permission_mode="plan"))
    assert ran == ["look"]


@pytest.mark.anyio
async def test_a_mode_that_the_host_sets_decides_what_already_waits() -> None:
    ran: list[str] = []
    withdrawn: list[str] = []

    @tool
    def work() -> None:
        ran.append("work")

    session = FakeSession([call("r1", "work"), call("r2", "work")], [])

    asked: list[str] = []

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        asked.append(request.request_id)
        if len(asked) == 2:
            session.add(SessionUpdate(permission_mode="autonomous", source="host"))
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            withdrawn.append(request.request_id)
            raise
        return False

    host = Host(tools=[work], policy=PolicyEngine(builtin_rules()), channel=CallbackChannel(approve, concurrent=True))
    with anyio.fail_after(5):
        assert (await host.run_turn(session, "go")).completed
    assert ran == ["work", "work"]
    assert sorted(withdrawn) == ["r1", "r2"]
    assert {answer.decision.by for answer in session.answers if answer.decision} == {"policy:autonomous"}


@pytest.mark.anyio
async def test_a_stricter_mode_denies_what_already_waits() -> None:
    session = FakeSession([call("r1", "work")], [])

    @tool
    def work() -> None:
        raise AssertionError("it ran")

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        session.add(SessionUpdate(permission_mode="plan", source="host"))
        await anyio.sleep_forever()
        return True

    host = Host(tools=[work], policy=PolicyEngine(builtin_rules()), channel=CallbackChannel(approve))
    with anyio.fail_after(5):
        await host.run_turn(session, "go")
    (answer,) = session.answers
    assert isinstance(answer, ToolDenial)
    assert answer.decision is not None
    assert answer.decision.by == "policy:unmarked-in-plan"


@pytest.mark.anyio
async def test_a_policy_that_never_decides_again_does_not_keep_a_turn_from_its_end() -> None:
    session = FakeSession([call("r1", "work")], [])
    asked = anyio.Event()
    judging = anyio.Event()
    words = iter(["ask_user"])

    @tool
    def work() -> None:
        """Work."""

    async def policy(request: PolicyRequest) -> str:
        if (word := next(words, None)) is None:
            judging.set()
            await anyio.sleep_forever()
        return str(word)

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    host = Host(tools=[work], policy=policy, channel=CallbackChannel(approve))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await asked.wait()
            session.add(SessionUpdate(permission_mode="plan", source="host"))
            await judging.wait()
            await host.abort(session=session)
    assert session.aborts == [None]


@pytest.mark.anyio
async def test_an_allow_of_the_mode_before_does_not_run_in_the_one_that_came_meanwhile() -> None:
    ran: list[int] = []
    seen: list[Event] = []
    modes: list[str] = []
    session = FakeSession([call("r1", "work")], [])

    @tool
    def work() -> None:
        ran.append(1)

    async def policy(request: PolicyRequest) -> str:
        modes.append(request.permission_mode)
        if len(modes) == 1:
            while session.state != "input_required":  # from here on the host watches the record
                await anyio.lowlevel.checkpoint()
            session.add(SessionUpdate(permission_mode="plan", source="host"))
            while not any(isinstance(event, SessionUpdate) for event in seen):
                await anyio.lowlevel.checkpoint()
        return "allow"

    with anyio.fail_after(5):
        await Host(tools=[work], policy=policy, observer=seen.append).run_turn(session, "go")
    assert modes == ["default", "plan"]
    assert ran == []
