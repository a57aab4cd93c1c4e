"""Answers for the session and always: what they settle, what they never do, and how they are kept and taken back."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from tests.host.fake_session import Act, FakeSession, call
from tests.host.policy.rules import engine, request
from tests.host.subagents import agent, calls, run

from agentsession.adapters.scripted import Call, Calls, Say
from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    PolicyDecision,
    PolicyRequest,
    SubagentTool,
    ask_user,
    hook,
    tool,
)
from agentsession.host.policy import RememberedAnswers
from agentsession.protocol import AgentStart, ConfigurationError, HookOutcome, SessionUpdate, ToolDenial, ToolResult

pytestmark = pytest.mark.anyio

ASK = '[[rule]]\nid = "asks"\ntools = ["*"]\ndecision = "ask_user"\n'
IN_SRC = ASK + 'priority = 200\nargs = { "/path" = { under = "src" } }\n'.replace('"asks"', '"src"')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "remembered.json"


async def keep(
    store: RememberedAnswers, asked: PolicyRequest, scope: Literal["session", "always"] = "always", text: str = ASK
) -> str:
    found = await store.remember(asked, engine(text).evaluate(asked), scope)
    assert found is not None
    return found.id


def settles(store: RememberedAnswers, asked: PolicyRequest, text: str = ASK) -> bool:
    return store.find(asked, engine(text).evaluate(asked)) is not None


# --- what an answer covers ----------------------------------------------------------------------------------------


async def test_an_answer_holds_for_the_tool_and_not_for_another() -> None:
    store = RememberedAnswers()
    await keep(store, request("edit_file", {"path": "a"}))
    assert settles(store, request("edit_file", {"path": "b"}))
    assert not settles(store, request("run_shell"))
    assert not settles(store, request("fs:edit_file"))


async def test_an_answer_to_a_narrow_rule_holds_where_that_rule_asks() -> None:
    narrow = ASK + IN_SRC.replace('"asks"', '"src"')
    store = RememberedAnswers()
    await keep(store, request(args := "edit_file", {"path": "src/a"}), text=narrow)
    assert settles(store, request(args, {"path": "src/b"}), narrow)
    assert not settles(store, request(args, {"path": "b"}), narrow)


async def test_an_answer_to_a_wide_rule_does_not_cover_what_a_narrow_one_asks_about() -> None:
    narrow = ASK + IN_SRC.replace('"asks"', '"src"')
    store = RememberedAnswers()
    await keep(store, request("edit_file", {"path": "b"}), text=narrow)
    assert not settles(store, request("edit_file", {"path": "src/b"}), narrow)


@pytest.mark.rule("HITL-04")
async def test_a_yes_to_an_edit_in_the_workspace_covers_none_elsewhere() -> None:
    def asks(path: object, mode: str = "default") -> tuple[PolicyRequest, PolicyDecision]:
        asked = request("edit_file", {"path": path}, category="edit", mode=mode)
        decision = engine(builtin=True).evaluate(asked)
        assert decision.is_ask
        return asked, decision

    store = RememberedAnswers()
    await store.remember(*asks("src/a.py"), "session")
    assert store.find(*asks("b.py")) is not None
    for elsewhere in ("../x", "/etc/hosts", "~/.bashrc", "src/../../x", ["src/a.py"], None):
        assert store.find(*asks(elsewhere)) is None, elsewhere
    await store.remember(*asks("../x"), "session")
    assert store.find(*asks("../x")) is not None
    assert store.find(*asks("../y")) is None
    assert store.find(*asks("../x", "auto_edit")) is not None


async def test_a_yes_to_an_edit_by_a_tool_that_names_no_path_holds_for_the_tool() -> None:
    store = RememberedAnswers()
    first, other = (request("patch", {"diff": text}, category="edit") for text in "ab")
    await store.remember(first, engine(builtin=True).evaluate(first), "session")
    assert store.find(other, engine(builtin=True).evaluate(other)) is not None


async def test_for_a_tool_that_can_destroy_an_answer_holds_for_these_arguments() -> None:
    store = RememberedAnswers()
    await keep(store, request("rm", {"path": "a"}, destructive=True))
    assert settles(store, request("rm", {"path": "a"}, destructive=True))
    assert not settles(store, request("rm", {"path": "b"}, destructive=True))
    assert not settles(store, request("rm", {"path": "b"}))


@pytest.mark.parametrize(("remember", "same", "other"), [("exact", True, False), ("tool", True, True)])
async def test_a_rule_says_what_its_answers_hold_for(remember: str, same: bool, other: bool) -> None:
    text = ASK + f'remember = "{remember}"\n'
    store = RememberedAnswers()
    await keep(store, request("edit", {"n": 1}), text=text)
    assert settles(store, request("edit", {"n": 1}), text) is same
    assert settles(store, request("edit", {"n": True}), text) is other


async def test_a_rule_that_wants_to_be_asked_each_time_is() -> None:
    text = ASK + 'remember = "never"\n'
    store = RememberedAnswers()
    assert await store.remember(request(), engine(text).evaluate(request()), "always") is None
    await keep(store, request())
    assert not settles(store, request(), text)


async def test_a_line_of_several_commands_is_remembered_as_it_is() -> None:
    text = '[[rule]]\nid = "git"\ntools = ["*"]\nshell = [["git"], ["rm"]]\ndecision = "ask_user"\n'
    store = RememberedAnswers()
    await keep(store, request("sh", {"command": "git status"}), text=text)
    assert settles(store, request("sh", {"command": "git log"}), text)
    for command in ("git log; rm -rf /", "git log > /etc/passwd", "git log $(rm x)", "git 'log"):
        assert not settles(store, request("sh", {"command": command}), text), command


@pytest.mark.parametrize(
    ("given", "now", "holds"),
    [("default", "default", True), ("default", "auto_edit", True), ("auto_edit", "default", False), ("x", "y", False)],
)
async def test_an_answer_holds_in_its_mode_and_looser_ones(given: str, now: str, holds: bool) -> None:
    store = RememberedAnswers()
    await keep(store, request(mode=given))
    assert settles(store, request(mode=now)) is holds


async def test_an_answer_holds_for_who_asked_and_those_below() -> None:
    store = RememberedAnswers()
    await keep(store, request(path="main/fixer"))
    assert settles(store, request(path="main/fixer/helper"))
    assert not settles(store, request(path="main"))
    assert not settles(store, request(path="main/other"))


async def test_an_answer_is_one_persons_in_one_session_or_one_folder(tmp_path: Path, file: Path) -> None:
    here = RememberedAnswers(file, workspace=tmp_path)
    await keep(here, request(session_id="s-1", user_id="ann"), "session")
    await keep(here, request("other", user_id="ann"), "always")
    assert settles(here, request(session_id="s-1", user_id="ann"))
    assert not settles(here, request(session_id="s-1", user_id="bob"))
    assert not settles(here, request(session_id="s-2", user_id="ann"))
    assert settles(here, request("other", session_id="s-2", user_id="ann"))
    assert not settles(RememberedAnswers(file, workspace=tmp_path / "else"), request("other", user_id="ann"))


async def test_in_a_childs_session_the_answers_of_the_persons_session_hold() -> None:
    store = RememberedAnswers()
    await keep(store, request(session_id="s-1"), "session")
    assert settles(store, request(session_id="s-1.child", root_session_id="s-1", path="main/child"))


async def test_an_answer_never_lifts_a_denial_that_came_later() -> None:
    store = RememberedAnswers()
    await keep(store, request())
    later = ASK + '[[rule]]\nid = "no"\ntools = ["*"]\ndecision = "deny"\n'
    assert not settles(store, request(), later)


async def test_a_denial_is_never_looked_up() -> None:
    store = RememberedAnswers()
    asked = PolicyDecision("ask_user", "policy:mine")
    await store.remember(request(), asked, "always")
    assert store.find(request(), asked) is not None
    assert store.find(request(), PolicyDecision("deny", "policy:mine")) is None
    assert store.find(request(), PolicyDecision("never", "policy:mine")) is None


# --- the file -----------------------------------------------------------------------------------------------------


async def test_what_holds_always_is_in_the_next_process_and_can_be_taken_back(file: Path) -> None:
    kept = await keep(RememberedAnswers(file), request())
    again = RememberedAnswers(file)
    assert settles(again, request())
    assert [one.id for one in again.answers()] == [kept]
    other = RememberedAnswers(file)
    assert other.revoke(kept)
    assert not settles(again, request())  # it learns of it at once
    assert not other.revoke(kept)


async def test_taking_an_answer_back_also_stops_it_where_it_was_given(file: Path) -> None:
    store = RememberedAnswers(file)
    kept = await keep(store, request())
    assert RememberedAnswers(file).revoke(kept)
    assert not settles(store, request())


async def test_the_file_is_its_owners_and_holds_no_arguments(file: Path) -> None:
    await keep(RememberedAnswers(file), request("rm", {"path": "a secret"}, destructive=True))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "a secret" not in file.read_text()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "answers": []}',
        '{"version": 1, "answers": [{"id": "x"}]}',
        '{"version": 1}',
        "\0",
    ],
)
async def test_a_file_that_is_not_understood_is_told_and_not_overwritten(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError) as told:
        RememberedAnswers(file)
    assert told.value.id == "remembered-file"
    assert file.read_text() == content


async def test_a_file_that_is_spoilt_later_settles_nothing_and_keeps_its_content(file: Path) -> None:
    store = RememberedAnswers(file)
    await keep(store, request())
    file.write_text("{")
    assert not settles(store, request())
    with pytest.raises(ConfigurationError):
        await keep(store, request("other"))
    assert file.read_text() == "{"
    assert settles(store, request("other"))  # for the session at least


@pytest.mark.skipif(os.name == "nt", reason="modes are not Windows'")
async def test_a_file_that_others_may_change_is_refused(file: Path) -> None:
    await keep(RememberedAnswers(file), request())
    file.chmod(0o620)
    with pytest.raises(ConfigurationError, match="can be changed by others"):
        RememberedAnswers(file)


async def test_a_write_that_fails_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RememberedAnswers(file)
    await keep(store, request())
    before = file.read_bytes()

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        await keep(store, request("other"))
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir() if one.suffix != ".lock"] == [file.name]


async def test_answers_of_two_processes_at_once_are_both_kept(file: Path) -> None:
    stores = [RememberedAnswers(file) for _ in range(8)]
    async with anyio.create_task_group() as tasks:
        for number, store in enumerate(stores):
            tasks.start_soon(keep, store, request(f"tool{number}"))
    assert len(json.loads(file.read_text())["answers"]) == 8


# --- in a host ----------------------------------------------------------------------------------------------------


@tool(destructive=True)
def remove(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"


@tool
def edit(path: str) -> str:
    """Edit a file."""
    return f"edited {path}"


class Person:
    """Answers the first question once as many wait as expected; the others are left to the host."""

    concurrent = True

    def __init__(self, expected: int, answer: Callable[[], Approval]) -> None:
        self.expected = expected
        self.answer = answer
        self.asked: list[str] = []
        self.withdrawn: list[str] = []
        self.all_asked = anyio.Event()

    async def approve(self, request: Any, decision: Any, position: Any) -> Approval:
        self.asked.append(request.request_id)
        if len(self.asked) == self.expected:
            self.all_asked.set()
        if request.request_id == "r1":
            await self.all_asked.wait()
            return self.answer()
        try:
            await anyio.sleep_forever()
        finally:
            self.withdrawn.append(request.request_id)
        raise AssertionError("never reached")

    async def ask(self, request: Any, position: Any) -> None:
        raise AssertionError("nothing else is asked")


async def test_always_settles_what_waits_a_childs_call_too_and_no_other_arguments() -> None:
    acts: list[Act] = [
        AgentStart(agent_id="child", thread_id="t-child"),
        call("r1", "edit", path="a"),
        call("r2", "edit", path="b"),
        call("r3", "edit", path="c").model_copy(update={"thread_id": "t-child", "agent_id": "child"}),
        call("r4", "remove", path="a"),
    ]
    session = FakeSession(acts, [])
    person = Person(4, lambda: Approval.yes(remember="always"))
    host = Host(tools=[edit, remove], policy=engine(ASK), channel=person)
    with anyio.move_on_after(5) as limit:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            while len(session.answers) < 3:
                await anyio.lowlevel.checkpoint()
            assert sorted(person.withdrawn) == ["r2", "r3"]
            assert [request.request_id for request in session.pending] == ["r4"]
            await host.abort(session=session)
    assert not limit.cancelled_caught
    by = {answer.request_id: answer.decision.by for answer in session.answers if answer.decision}
    assert by["r1"] == "user"
    assert by["r2"] == by["r3"]
    assert by["r2"].startswith("remembered:")


async def test_always_settles_what_a_sub_agent_waits_for() -> None:
    """The sub-agent runs in a session of its own, below the agent whose call was answered for."""
    ran: list[str] = []

    @tool
    def write(path: str) -> None:
        ran.append(path)

    person = Person(2, lambda: Approval.yes(remember="session"))
    async with (
        agent("helper", Call("write", {"path": "b"}, id="r9"), Say("done")) as helper,
        agent("coder", Calls(Call("write", {"path": "a"}, id="r1"), calls("helper", "r2")), Say("ok")) as coder,
    ):
        text = ASK.replace('"*"', '"write"') + '[[rule]]\nid = "rest"\ntools = ["helper"]\ndecision = "allow"\n'
        tools = [write, SubagentTool(helper, tools=["write"])]
        result = await run(Host(tools=tools, policy=engine(text), channel=person), coder)
    assert result.completed
    assert sorted(ran) == ["a", "b"]
    assert [one.rpartition(":")[2] for one in person.withdrawn] == ["r9"]  # the id of the sub-agent's session before it


async def test_an_answer_given_for_a_sub_agent_does_not_hold_for_its_caller() -> None:
    asked: list[tuple[str, ...]] = []

    @tool
    def write(path: str) -> None:
        """Write a file."""

    def approve(request: Any, decision: Any, position: Any) -> Approval:
        asked.append(position.principals)
        return Approval.yes(remember="always")

    async with (
        agent("helper", Call("write", {"path": "b"}), Say("done")) as helper,
        agent("coder", calls("helper"), Call("write", {"path": "a"}), Say("ok")) as coder,
    ):
        text = ASK.replace('"*"', '"write"') + '[[rule]]\nid = "rest"\ntools = ["helper"]\ndecision = "allow"\n'
        tools = [write, SubagentTool(helper, tools=["write"])]
        await run(Host(tools=tools, policy=engine(text), channel=CallbackChannel(approve)), coder)
    assert asked == [("coder", "helper"), ("coder",)]


async def test_an_exact_answer_settles_the_same_arguments_alone() -> None:
    session = FakeSession(
        [call("r1", "remove", path="a"), call("r2", "remove", path="a"), call("r3", "remove", path="b")]
    )
    person = Person(3, lambda: Approval.yes(remember="session"))
    host = Host(tools=[remove], policy=engine(ASK), channel=person)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            while len(session.answers) < 2:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert person.withdrawn == ["r2"]
            await host.abort(session=session)


async def test_an_answer_of_one_session_settles_what_waits_in_another_of_the_host() -> None:
    first = FakeSession([call("r1", "edit", path="a")], [])
    second = FakeSession([call("r9", "edit", path="b")], [])
    second.session_id = "s-2"
    person = Person(2, lambda: Approval.yes(remember="always"))
    host = Host(tools=[edit], policy=engine(ASK), channel=person)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, first, "go")
            tasks.start_soon(host.run_turn, second, "go")
    assert isinstance(second.answers[0], ToolResult)
    assert person.withdrawn == ["r9"]


async def test_an_answer_for_the_session_asks_again_in_another() -> None:
    asked: list[str] = []

    def approve(request: Any, decision: Any, position: Any) -> Approval:
        asked.append(request.session_id)
        return Approval.yes(remember="session")

    host = Host(tools=[edit], policy=engine(ASK), channel=CallbackChannel(approve))
    for name in ("s-1", "s-1", "s-2"):
        session = FakeSession([call("r1", "edit", path="a")], [])
        session.session_id = name
        with anyio.fail_after(5):
            await host.run_turn(session, "go")
    assert len(asked) == 2


async def test_an_answer_to_the_policys_question_does_not_answer_a_hooks() -> None:
    wants = False

    @hook("before_tool")
    def guard(payload: object) -> HookOutcome | None:
        return ask_user("look at it") if wants else None

    asked: list[str] = []

    def approve(request: Any, decision: Any, position: Any) -> Approval:
        asked.append(request.request_id)
        return Approval.yes(remember="session")

    host = Host(tools=[edit], policy=engine(ASK), channel=CallbackChannel(approve), hooks=[guard])
    for name in ("r1", "r2", "r3"):
        wants = name == "r3"
        with anyio.fail_after(5):
            await host.run_turn(FakeSession([call(name, "edit", path="a")], []), "go")
    assert asked == ["r1", "r3"]


async def test_an_edited_call_is_remembered_as_what_ran() -> None:
    store = RememberedAnswers()
    channel = CallbackChannel(lambda *args: Approval.yes({"path": "b"}, remember="always"))
    host = Host(tools=[remove], policy=engine(ASK), channel=channel, remembered=store)
    with anyio.fail_after(5):
        await host.run_turn(FakeSession([call("r1", "remove", path="a")], []), "go")
    asked = {"destructive": True, "path": "fake"}
    assert settles(store, request("remove", {"path": "b"}, **asked))
    assert not settles(store, request("remove", {"path": "a"}, **asked))


async def test_a_later_denial_beats_always_in_a_host() -> None:
    store = RememberedAnswers()
    channel = CallbackChannel(lambda *args: Approval.yes(remember="always"))
    with anyio.fail_after(5):
        host = Host(tools=[edit], policy=engine(ASK), channel=channel, remembered=store)
        await host.run_turn(FakeSession([call("r1", "edit", path="a")], []), "go")
        later = ASK + '[[rule]]\nid = "no"\ntools = ["*"]\ndecision = "deny"\n'
        session = FakeSession([call("r1", "edit", path="a")], [])
        await Host(tools=[edit], policy=engine(later), remembered=store).run_turn(session, "go")
        asked = FakeSession([call("r1", "edit", path="a")], [])
        await Host(tools=[edit], policy=engine(ASK), remembered=store).run_turn(asked, "go")
        for one in store.answers():
            store.revoke(one.id)
        revoked = FakeSession([call("r1", "edit", path="a")], [])
        await Host(tools=[edit], policy=engine(ASK), remembered=store).run_turn(revoked, "go")
    assert isinstance(session.answers[0], ToolDenial)
    assert isinstance(asked.answers[0], ToolResult)  # nobody could be asked: it was remembered
    assert isinstance(revoked.answers[0], ToolDenial)


async def test_a_no_is_not_remembered() -> None:
    store = RememberedAnswers()
    channel = CallbackChannel(lambda *args: Approval("no", remember="always"))
    with anyio.fail_after(5):
        host = Host(tools=[edit], policy=engine(ASK), channel=channel, remembered=store)
        await host.run_turn(FakeSession([call("r1", "edit", path="a")], []), "go")
    assert store.answers() == []


async def test_an_answer_given_while_the_mode_became_stricter_settles_nothing() -> None:
    """The one who answered is denied by the new mode, and their yes is not kept."""
    store = RememberedAnswers()
    session = FakeSession([call("r1", "edit", path="a")], [])
    seen: list[object] = []

    async def approve(request: Any, decision: Any, position: Any) -> Approval:
        session.add(SessionUpdate(permission_mode="plan", source="host"))
        with anyio.CancelScope(shield=True):  # a channel that goes on over its withdrawal
            while not any(isinstance(event, SessionUpdate) for event in seen):
                await anyio.lowlevel.checkpoint()
        return Approval.yes(remember="always")

    text = ASK + 'modes = ["default"]\n'
    host = Host(
        tools=[edit], policy=engine(text), channel=CallbackChannel(approve), remembered=store, observer=seen.append
    )
    with anyio.fail_after(5):
        await host.run_turn(session, "go")
    assert isinstance(session.answers[0], ToolDenial)
    assert store.answers() == []
