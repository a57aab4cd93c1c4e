"""Programs as hooks: what their exit and their output mean, and that nothing of them stays. On asyncio and trio."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest
from tests.host.hooks.programs import is_alive, sh

from agentsession.host.hooks import CommandHook, HookChain, HookFailed
from agentsession.protocol import (
    HookOutcome,
    HookPayload,
    ModelRequestHook,
    ToolCallHook,
    ToolResultHook,
    UserMessageHook,
    as_content,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the programs are lines of shell"),
]

CALL = ToolCallHook(
    session_id="s", user_id="u", turn_id="t", agent_id="root", request_id="r", name="run", args={"a": 1}
)
RESULT = ToolResultHook(session_id="s", user_id="u", request_id="r", name="run", data=1)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not heed TERM is killed sooner."""
    monkeypatch.setattr("agentsession.host.hooks._process._GRACE_S", 0.3)


async def fire(hook: CommandHook, payload: HookPayload = CALL) -> HookOutcome | None:
    with anyio.fail_after(30):
        return await HookChain([hook]).fire(min(hook.points), payload)


GATE, OBSERVER = ("before_tool", CALL), ("after_tool", RESULT)
BLOCK = '{"v": 1, "action": "block", "message": "no"}'


@pytest.mark.parametrize(("point", "payload"), [GATE, OBSERVER], ids=["gate", "observer"])
@pytest.mark.parametrize(
    ("script", "action", "failure"),
    [
        ("exit 0", None, None),
        ("echo '{}'", None, None),
        (f"echo '{BLOCK}'", "block", None),
        ("exit 2", "block", None),
        ('echo \'{"action": "proceed"}\'; exit 2', "block", None),
        ("exit 1", "fails", "ended with exit code 1"),
        ("exit 3", "fails", "ended with exit code 3"),
        (f"echo '{BLOCK}'; exit 1", "fails", "ended with exit code 1"),
        ("kill -9 $$", "fails", "was ended by signal 9"),
        ("echo no", "fails", "wrote what is not JSON"),
        ("echo '[]'", "fails", "wrote JSON that is no object"),
        ('echo \'{"action": "allow"}\'', "fails", None),
        ('echo \'{"action": "blok"}\'', "fails", None),
        ('echo \'{"mesage": "no"}\'', "fails", "wrote an answer that cannot be used: unknown key 'mesage'"),
        ('echo \'{"v": 2, "action": "proceed"}\'', "fails", None),
        ("printf '\\377'", "fails", "wrote what is not UTF-8"),
        ("head -c 2000000 /dev/zero", "fails", "wrote more than 1048576 bytes"),
    ],
)
async def test_exit_codes_and_output_decide(
    script: str, action: str | None, failure: str | None, point: str, payload: HookPayload
) -> None:
    outcome = await fire(sh(script, point), payload)
    if action is None:
        assert outcome is None
        return
    assert outcome is not None
    fails = action == "fails"
    assert (outcome.failure is not None) is fails
    if failure is not None:
        assert outcome.failure == f"hook h at {point} {failure}"
    # What fails has blocked before a tool, and lets pass elsewhere.
    assert outcome.action == ("block" if not fails or point == "before_tool" else "proceed")


async def test_on_error_of_the_hook_goes_before_that_of_the_point() -> None:
    lax = await fire(sh("exit 1", on_error="proceed"))
    assert lax is not None
    assert lax.action == "proceed"
    strict = await fire(sh("exit 1", "after_tool", on_error="block"), RESULT)
    assert strict is not None
    assert strict.action == "block"


async def test_a_program_that_cannot_be_started_has_failed() -> None:
    outcome = await fire(CommandHook("h", "before_tool", ["/nowhere/at/all"]))
    assert outcome is not None
    assert (outcome.action, outcome.failure) == (
        "block",
        "hook h at before_tool could not be started: FileNotFoundError",
    )


async def test_a_program_is_told_in_one_object_and_then_nothing_more(tmp_path: Path) -> None:
    told = tmp_path / "told"
    await fire(sh(f"cat > {told}", cwd=str(tmp_path)))  # cat ends when its input does
    assert json.loads(told.read_text()) == {
        "v": 1,
        "point": "before_tool",
        "session_id": "s",
        "turn_id": "t",
        "principal_path": ["root"],
        "mode": None,
        "cwd": str(tmp_path),
        "payload": CALL.to_wire(),
    }


async def test_a_program_that_reads_nothing_of_a_large_payload_is_not_waited_for() -> None:
    payload = CALL.model_copy(update={"args": {"text": "x" * 1_000_000}})
    outcome = await fire(sh("exit 2"), payload)
    assert outcome is not None
    assert outcome.action == "block"


async def test_a_program_changes_arguments_and_says_why() -> None:
    answer = json.dumps({"v": 1, "modifications": {"args": {"a": 2}}, "reason": "two is better"})
    outcome = await fire(sh(f"echo '{answer}'"))
    assert outcome is not None
    assert (outcome.action, outcome.modifications, outcome.reason, outcome.by) == (
        "proceed",
        {"args": {"a": 2}},
        "two is better",
        "h",
    )


async def test_a_program_asks_only_before_a_tool() -> None:
    asks = 'echo \'{"action": "ask", "reason": "odd"}\''
    asked = await fire(sh(asks))
    assert asked is not None
    assert (asked.action, asked.reason, asked.failure) == ("ask", "odd", None)
    elsewhere = await fire(sh(asks, "after_tool"), RESULT)
    assert elsewhere is not None
    assert (elsewhere.action, elsewhere.failure is not None) == ("proceed", True)


async def test_what_blocks_by_its_exit_code_says_why_in_the_last_lines_of_its_errors() -> None:
    outcome = await fire(sh("for n in 1 2 3 4; do echo line $n >&2; done; printf 'a\\033[2Jb\\n' >&2; exit 2"))
    assert outcome is not None
    assert outcome.message == outcome.reason == "line 3\nline 4\na [2Jb"


async def test_no_secret_of_its_environment_is_in_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASS", "hunter2hunter2")
    monkeypatch.setenv("OTHER_TOKEN", "tok-tok-tok-tok")
    outcome = await fire(sh('echo "no: $SHOP_PASS sk-abcdefghijklmnopqrst" >&2; exit 2', env=["SHOP_PASS"]))
    assert outcome is not None
    assert outcome.message == "no: *** ***"


async def test_a_program_sees_only_the_variables_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_NAME", "ada")
    monkeypatch.setenv("MY_TOKEN", "secret")
    seen = tmp_path / "seen"
    await fire(sh(f"env > {seen}", env=["MY_NAME", "NOT_SET"]))
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"MY_NAME", "PATH"} <= names
    assert not {"MY_TOKEN", "NOT_SET"} & names


DEAF = "trap '' TERM; sleep 60 & echo $$ > {0}/self; echo $! > {0}/child; wait"  # what ignores TERM passes that on


def pids(place: Path) -> list[int]:
    return [int((place / name).read_text()) for name in ("self", "child")]


async def test_a_program_deaf_to_term_and_its_child_are_dead_when_its_time_is_over(tmp_path: Path) -> None:
    hook = sh(DEAF.format(tmp_path), timeout_s=0.3)
    with pytest.raises(HookFailed, match=r"took longer than 0\.3 s"):
        with anyio.fail_after(30):
            await hook.fire("before_tool", CALL)
    assert [pid for pid in pids(tmp_path) if is_alive(pid)] == []


async def test_a_cancelled_program_and_its_child_are_dead_when_the_call_is_over(tmp_path: Path) -> None:
    hook = sh(DEAF.format(tmp_path))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hook.fire, "before_tool", CALL)
            while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert [pid for pid in pids(tmp_path) if is_alive(pid)] == []


async def test_a_program_that_heeds_term_may_tidy_up(tmp_path: Path) -> None:
    hook = sh(f"trap 'echo tidy > {tmp_path}/done; exit 0' TERM; sleep 60 & wait", timeout_s=0.3)
    with pytest.raises(HookFailed):
        with anyio.fail_after(30):
            await hook.fire("before_tool", CALL)
    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_a_child_left_behind_with_the_output_open_holds_nobody(tmp_path: Path) -> None:
    outcome = await fire(sh(f"sleep 60 & echo $! > {tmp_path}/child; echo '{BLOCK}'"))
    assert outcome is not None
    assert outcome.action == "block"
    assert not is_alive(int((tmp_path / "child").read_text()))


async def test_a_context_is_more_for_the_model_to_read() -> None:
    says = 'echo \'{"context": "It is Friday."}\''
    heard = await fire(
        sh(says, "on_user_message"), UserMessageHook(session_id="s", user_id="u", content=as_content("hi"))
    )
    assert heard is not None
    assert heard.modifications is not None
    assert [part["text"] for part in heard.modifications["content"]] == ["hi", "It is Friday."]
    asked = await fire(
        sh(says, "before_model"), ModelRequestHook(session_id="s", user_id="u", system_instruction="Be kind.")
    )
    assert asked is not None
    assert asked.modifications == {"system_instruction": "Be kind.\n\nIt is Friday."}
    elsewhere = await fire(sh(says))
    assert elsewhere is not None
    assert elsewhere.failure is not None


ADD = """\
import json, sys
args = json.load(sys.stdin)["payload"]["args"]
args[sys.argv[1]] = len(args)
print(json.dumps({"modifications": {"args": args}}))
"""


async def test_several_programs_see_what_those_before_changed(tmp_path: Path) -> None:
    script = tmp_path / "add.py"
    script.write_text(ADD)
    hooks = [CommandHook(name, "before_tool", [sys.executable, str(script), name]) for name in ("c", "b")]
    with anyio.fail_after(30):
        outcome = await HookChain(hooks).fire("before_tool", CALL)
    assert outcome is not None
    assert outcome.modifications == {"args": {"a": 1, "b": 1, "c": 2}}
