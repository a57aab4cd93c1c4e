"""What the pages show runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.cli.command import Command

pytest.importorskip("google.adk")

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted((DOCS / "how-to").glob("*.md")), *sorted((DOCS / "tutorial").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_piece_of_python_compiles_and_every_link_leads_somewhere(page: Path) -> None:
    for code in blocks(page):
        compile(code, str(page), "exec")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_agent_of_the_tutorial_runs_and_asks_about_what_does_not_only_read(
    command: Command, tmp_path: Path
) -> None:
    first, marked = blocks(DOCS / "tutorial" / "your-first-session.md")
    run = ("run", "clerk:agent", "--tools", "clerk:tools", "-p", "We need pens")
    (tmp_path / "clerk.py").write_text(first)
    sys.modules.pop("clerk", None)
    assert command(*run, cwd=tmp_path).stderr.count("DENIED") == 2
    (tmp_path / "clerk.py").write_text(f"{first}\n{marked}")
    sys.modules.pop("clerk", None)
    assert command(*run, cwd=tmp_path).stderr.count("DENIED") == 1
    sys.modules.pop("clerk", None)


def test_the_program_of_the_how_to_drives_an_agent(tmp_path: Path) -> None:
    clerk = blocks(DOCS / "tutorial" / "your-first-session.md")[0].replace('call("order"', 'call("stock_of"')
    (tmp_path / "clerk.py").write_text(clerk.replace('"quantity": 100', '"more": 1'))
    (program,) = blocks(DOCS / "how-to" / "drive-it-from-a-program.md")
    assert run_python(program, tmp_path) == "ended: completed\n"


def test_the_channel_of_the_how_to_is_one() -> None:
    (code,) = blocks(DOCS / "how-to" / "approve-and-edit-a-call.md")
    exec(compile(code, "how-to", "exec"), {})


def test_the_options_on_the_page_are_those_of_the_command(command: Command) -> None:
    shown = set(re.findall(r"--[a-z][a-z-]+", command("run", "--help").stdout)) - {"--help"}
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert not {option for option in shown if option not in page}


def test_the_program_of_the_report_page_prints_what_the_page_says(command: Command, tmp_path: Path) -> None:
    page = DOCS / "how-to" / "see-where-the-time-went.md"
    (tmp_path / "demo.ndjson").write_text(command("demo", "--json").stdout, encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert run_python(blocks(page)[0], tmp_path) == shown[0]
