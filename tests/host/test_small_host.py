"""The small host of the README, driven by its keyboard: it approves, steers, aborts, and goes on after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doc_pages import read_page

BOUND_S = 60
"""Bounds a hang."""

PATIENT = """
import threading
from pathlib import Path

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import tool


@tool(read_only=True)
async def look() -> str:
    import anyio

    Path("began").touch()
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return "seen"


executor = ScriptedExecutor([[Call("look"), Say("done")], [Call("look"), Say("never")], [Say("third")]])
tools = [look]
"""


class Keyboard:
    """A process at whose keyboard somebody sits who reads before he types."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.read: list[str] = []

    def see(self, text: str) -> None:
        """Wait for a line that holds ``text``."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.read.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was never printed; it printed {self.read}")

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def small_host(place: Path) -> Iterator[Keyboard]:
    words = [sys.executable, "-W", "ignore", "small_host.py"]
    with subprocess.Popen(
        words, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = threading.Timer(BOUND_S, process.kill)
        limit.start()
        try:
            yield Keyboard(process)
            process.communicate()
        finally:
            limit.cancel()
            process.kill()


def saved(place: Path) -> dict[str, str]:
    shown = {item.name: item.text for item in read_page("README.md") if item.name}
    for name in ("small_host.py", "yours.py"):
        (place / name).write_text(shown[name], encoding="utf-8")
    return shown


def test_it_has_fewer_than_sixty_lines(tmp_path: Path) -> None:
    assert len(saved(tmp_path)["small_host.py"].splitlines()) < 60


def test_a_question_survives_kill_9_and_its_tool_runs_once(tmp_path: Path) -> None:
    saved(tmp_path)
    text = (
        (tmp_path / "yours.py")
        .read_text()
        .replace('return f"{path}', 'open("ran", "a").write("x")\n    return f"{path}')
    )
    (tmp_path / "yours.py").write_text(text)
    with small_host(tmp_path) as keyboard:
        keyboard.type("please clean up")
        keyboard.see("y or n?")
        os.kill(keyboard.process.pid, signal.SIGKILL)
    assert not (tmp_path / "ran").exists()
    with small_host(tmp_path) as keyboard:
        keyboard.see("wipe {'path': 'old.txt'}, y or n?")
        keyboard.type("y")
        keyboard.see("agent: Done: {'result': 'old.txt is gone'}")
        keyboard.see("-- completed")
    assert (tmp_path / "ran").read_text() == "x"


def test_a_no_runs_nothing(tmp_path: Path) -> None:
    saved(tmp_path)
    with small_host(tmp_path) as keyboard:
        keyboard.type("please clean up")
        keyboard.see("y or n?")
        keyboard.type("n")
        keyboard.see("agent: Done:")
    assert "is gone" not in keyboard.read[-1]


def test_what_is_neither_y_nor_n_is_a_steer_and_no_answer(tmp_path: Path) -> None:
    saved(tmp_path)
    with small_host(tmp_path) as keyboard:
        keyboard.type("please clean up")
        keyboard.see("y or n?")
        keyboard.type("yes you may not")
        keyboard.see("-- steer queued")
        keyboard.type("y")
        keyboard.see("user: yes you may not")


def test_ctrl_c_leaves_at_once_and_what_was_asked_is_asked_again(tmp_path: Path) -> None:
    saved(tmp_path)
    with small_host(tmp_path) as keyboard:
        keyboard.type("please clean up")
        keyboard.see("y or n?")
        os.kill(keyboard.process.pid, signal.SIGINT)
        assert keyboard.process.wait(BOUND_S) == -signal.SIGINT
    with small_host(tmp_path) as keyboard:
        keyboard.see("y or n?")
        keyboard.type("n")
        keyboard.see("-- completed")


def test_it_steers_and_aborts(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "yours.py").write_text(PATIENT)
    with small_host(tmp_path) as keyboard:
        keyboard.type("look")
        keyboard.see("user: look")
        keyboard.type("with care")
        keyboard.see("-- steer queued")
        (tmp_path / "go").touch()
        keyboard.see("user: with care")
        keyboard.see("agent: done")
        keyboard.see("-- completed")
        (tmp_path / "go").unlink()
        keyboard.type("look again")
        keyboard.see("user: look again")
        keyboard.type("stop")
        keyboard.see("-- aborted")
        keyboard.type("and now")
        keyboard.see("agent: third")
