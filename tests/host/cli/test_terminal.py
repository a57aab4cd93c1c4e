"""What happens at a real terminal: a process on a pseudo-terminal, read by a terminal emulator.

No sleeps: each step waits for what a person would wait for. The one time that matters, how long a question must have
stood before a line counts, is waited for by typing again as long as the terminal says that it was too early.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.host.cli.command import PROJECT, run_command
from tests.host.cli.terminal import TerminalSession

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

TOOLS = ("--tools", "host_tools:tools")


def start(agent: str, *args: str, **options: object) -> TerminalSession:
    found = TerminalSession(["run", f"scripted_agents:{agent}", *args], cwd=PROJECT, **options)  # type: ignore[arg-type]  # passed on
    found.wait_for(r"/help")
    return found


def answer(at: TerminalSession, text: str, seen: str, enter: str = "\r") -> None:
    """Type an answer until it was begun late enough to count, which shows as ``seen``."""
    early = "before the question could be read"

    def is_settled(now: str, times: int) -> bool:
        return bool(re.search(seen, now, re.MULTILINE)) or now.count(early) > times

    while True:
        times = at.text.count(early)
        at.type(f"{text}{enter}")
        found = at.wait_until(functools.partial(is_settled, times=times), repr(seen))
        if re.search(seen, found, re.MULTILINE):
            return
        at.type("\x01\x0b" if enter == "\r" else "")  # what was put back into the box


def test_a_turn_is_typed_shown_and_ends_and_the_next_one_can_be_typed() -> None:
    with start("worker", *TOOLS) as at:
        at.type("Read the code\r")
        text = at.wait_for("completed")
        assert text.count("Read the code") == 1
        assert text.count("I'll read the code.") == 1
        assert "+ 2 calls at once" in text
        assert re.search(r"\[2\] read_file b.py +ok +2 lines", text)
        at.type("\x04")
        assert at.wait_exit() == 0
        assert at.echo_is_on()


def test_a_draft_survives_two_thousand_deltas_and_every_word_is_printed_once() -> None:
    with start("streamer") as at:
        at.type("Go\r")
        at.wait_for("word5 ")
        at.type("half a thou")
        text = at.wait_for("completed")
        assert "half a thou" in text
        words = re.findall(r"\bword\d+\b", text)
        assert words == [f"word{number}" for number in range(2000)]
        at.type("ght\r")
        text = at.wait_for("half a thought")
        assert b"\x1b[2J" not in bytes(at.raw)


def test_a_line_typed_while_it_works_is_queued_and_then_injected_each_told_once() -> None:
    with start("editor", "--allow", "read_*") as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        at.type("leave the API alone\r")
        at.wait_for("steer 1 queued")
        answer(at, "y", "granted by you")
        text = at.wait_for(r"steer 1 injected after \[1\]")
        at.wait_for("y once", count=2)
        assert text.count("› leave the API alone") == 1
        assert text.count("steer 1 queued") == 1
        assert text.count("steer 1 injected") == 1


def test_yes_you_may_not_runs_nothing_and_no_tells_the_model_why() -> None:
    with start("denier") as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        at.type("yes you may not\r")
        text = at.wait_for("steer 1 queued")
        assert "granted" not in text
        answer(at, "n too risky", "DENIED")
        text = at.wait_for("The host said: too risky")
        assert "edit ran" not in text


def test_a_y_in_the_typing_buffer_does_not_answer_a_question_that_was_not_there_yet() -> None:
    with start("denier") as at:
        at.type("Edit it\ry\ry\r")
        at.wait_for("y once")
        answer(at, "n", "DENIED")
        assert "edit ran" not in at.text


def test_edited_arguments_are_shown_and_run_once() -> None:
    with start("denier") as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        answer(at, "e", r"args> \{")
        at.type("\x01\x0b" + '{"path": "other.py"}\r')  # to the start of the line, and delete it
        at.wait_for("your change")
        answer(at, "y", "granted by you")
        at.type("/o 1\r")
        text = at.wait_for(r"edit ran 1 time\(s\) with other.py")
        assert "edited to edit_file other.py" in text


def test_session_answers_for_the_calls_that_follow() -> None:
    with start("editor") as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        answer(at, "s", "granted by you")
        text = at.wait_for("completed")
        assert text.count("APPROVE") == 1
        assert text.count("edit_file cart.py") >= 2
        assert "Edited again." in text


def test_a_change_of_five_thousand_lines_is_folded_and_v_shows_it_whole() -> None:
    with start("big_editor") as at:
        at.type("Edit it\r")
        at.wait_for("lines of the diff folded; v shows all")
        answer(at, "v", r'"new_text": ')
        at.wait_for("answer> v")
        at.wait_for(r"^\}$")  # the last line, too
        answer(at, "n", "DENIED")


def test_a_form_is_filled_in_and_its_secret_is_never_on_the_screen() -> None:
    with start("asker") as at:
        at.type("Deploy\r")
        at.wait_for("region")
        answer(at, "1", r"^replicas>")
        at.type("12\r")
        at.wait_for("12 is more than 9")
        at.type("3\r")
        at.wait_for(r"^token\*>")
        at.type("hunter2\r")
        at.wait_for(r"send region=.*token=\*\*\*")
        answer(at, "y", "Deployed")
        assert b"hunter2" not in bytes(at.raw)


def test_ctrl_c_in_a_tool_makes_it_unknown_and_the_next_turn_works_and_a_second_one_leaves() -> None:
    with start("slow", *TOOLS) as at:
        at.type("Go\r")
        at.wait_for("running")
        at.type("\x03")
        text = at.wait_for("aborted")
        assert "^C stopping; Ctrl-C again leaves" in text
        assert re.search(r"\[1\] wait_long +UNKNOWN", text)
        at.type("And now?\r")
        at.wait_for("Next turn works")
        at.wait_for("completed")
        at.type("\x03")
        assert at.wait_exit() == 130
        assert at.echo_is_on()


def test_a_steer_that_came_too_late_is_back_in_the_box() -> None:
    with start("waiter") as at:
        at.type("Go\r")
        at.wait_for("Waiting")
        at.type("to the left\r")
        at.wait_for("steer 1 queued")
        at.type("\x03")
        at.wait_for("aborted")
        at.wait_for(r"› to the left", count=2)
        at.type("\r")
        at.wait_for("Next turn works")


def test_ctrl_c_on_an_idle_line_clears_it_first_and_then_leaves() -> None:
    with start("worker", *TOOLS) as at:
        at.type("never sent")
        at.wait_for("never sent")
        at.type("\x03")
        at.type("\x03")
        assert at.wait_exit() == 130


def test_sigterm_ends_it_with_143_and_the_terminal_is_usable() -> None:
    with start("waiter") as at:
        at.type("Go\r")
        at.wait_for("Waiting")
        os.kill(at.process.pid, signal.SIGTERM)
        assert at.wait_exit() == 143
        assert at.echo_is_on()


def test_after_a_resize_every_word_is_printed_once_and_nothing_is_wider_than_the_window() -> None:
    with start("resized") as at:
        at.type("Go\r")
        at.wait_for("y once")
        at.resize(30, 60)
        answer(at, "n", "DENIED")
        text = at.wait_for("completed")
        assert re.findall(r"\bword\d+\b", text) == [f"word{number}" for number in range(500)]


def test_a_line_for_an_agent_that_takes_no_steers_is_kept_for_the_next_turn() -> None:
    with start("deaf") as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        at.type("leave the API alone\r")
        at.wait_for("kept: this agent takes no steers")
        answer(at, "n", "DENIED")
        text = at.wait_for("Next turn works")
        assert text.count("leave the API alone") == 2


def test_no_color_means_no_colour() -> None:
    with start("worker", *TOOLS, env={"NO_COLOR": "1"}) as at:
        at.type("Read\r")
        at.wait_for("completed")
        assert not re.findall(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m", bytes(at.raw))
        at.type("\x04")
        at.wait_exit()


def test_colour_is_the_terminals_own() -> None:
    with start("worker", *TOOLS) as at:
        at.type("Read\r")
        at.wait_for("completed")
        assert re.findall(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m", bytes(at.raw))
        assert b"38;2;" not in bytes(at.raw)


@pytest.mark.parametrize("options", [{"env": {"ACCESSIBLE": "1"}}, {"env": {"TERM": "dumb"}}])
def test_a_plain_terminal_asks_and_answers_in_lines(options: dict[str, object]) -> None:
    with start("denier", **options) as at:
        at.type("Edit it\n")
        at.wait_for("y once")
        at.wait_for("answer>")
        answer(at, "n too risky", "The host said: too risky", "\n")
        at.wait_for("completed")
        assert not re.findall(rb"\x1b\[[0-9;?]*[A-LP-Zhl]", bytes(at.raw))  # nothing moves, nothing is erased
        at.type("\x04")
        assert at.wait_exit() == 0


def test_a_question_survives_kill_9_and_is_put_again_with_the_same_id(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "sessions.db"), "--session", "s-1")
    with start("keeper", *store) as at:
        at.type("Edit it\r")
        at.wait_for("y once")
        os.kill(at.process.pid, signal.SIGKILL)
        at.process.wait(30)
    with TerminalSession(["run", "scripted_agents:keeper", *store], cwd=PROJECT) as at:
        at.wait_for("loaded")
        text = at.wait_for("y once")
        assert "[1] edit_file cart.py" in text
        answer(at, "y", "granted by you")
        text = at.wait_for("next: type on, or")
        assert text.count("granted by you") == 1
        assert "agentsession report s-1 --store" in at.wait_for("--store")
        at.type("\x04")
        assert at.wait_exit() == 0
    listed = run_command("sessions", "list", "--json", "--store", store[1])
    with TerminalSession(["run", "scripted_agents:keeper", *store], cwd=PROJECT) as at:  # their numbers have a gap
        assert f"loaded, {json.loads(listed.stdout)['events']} events" in at.wait_for("events")


def test_a_session_that_is_open_elsewhere_is_busy(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "sessions.db"), "--session", "s-1")
    with start("keeper", *store):
        done = run_command("run", "scripted_agents:keeper", *store, "-p", "Edit it")
        assert done.returncode == 7
        assert "error[session-busy]" in done.stderr


def test_what_the_agents_code_prints_stands_above_the_live_area() -> None:
    with start("printer") as at:
        at.type("Go\r")
        text = at.wait_for("completed")
        assert text.count("printed by a tool") == 1
        assert text.index("printed by a tool") < text.index("[1] print_it")
        at.type("\x04")
        assert at.wait_exit() == 0


def test_a_person_plays_the_model_of_an_adk_agent(tmp_path: Path) -> None:
    pytest.importorskip("google.adk")
    (tmp_path / "played.py").write_text(
        "from google.adk.agents import LlmAgent\n"
        "from agentsession.adapters.adk import HostLlm\n"
        "agent = LlmAgent(name='clerk', model=HostLlm(), tools=[])\n"
    )
    with TerminalSession(["run", "played:agent"], cwd=tmp_path) as at:
        at.wait_for(r"/help")
        at.type("How many pens?\r")
        at.wait_for(r"user: How many pens\?")
        answer(at, '{"text": "Three pens."}', r"send answer=")
        answer(at, "y", r"completed")
        assert "Three pens." in at.text.split("send answer=")[1]
        at.type("\x04")
        assert at.wait_exit() == 0
