"""``agentsession report``: from a record, in a file or a store, to a page."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.host.cli.command import Command
from tests.host.report.records import Writer, coder_at_work, long_record

from agentsession.host import SqliteRecordStore
from agentsession.protocol import Event, Initialize, RecordKey, dump_event

HELLO = "Fix the failing test in cart.py"


def write(path: Path, *records: list[Event]) -> Path:
    path.write_text("".join(dump_event(event) + "\n" for record in records for event in record))
    return path


async def keep(path: Path, record: list[Event], *users: str) -> None:
    async with SqliteRecordStore(path) as store:
        for user in users:
            first = record[0]
            assert isinstance(first, Initialize)
            key = RecordKey(first.descriptor.name, user, first.session_id)
            await store.create(key)
            await store.append(key, record, reserved_seq=record[-1].seq)


def test_a_page_is_written_beside_the_record_and_told(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "log.ndjson", coder_at_work())
    done = command("report", "log.ndjson", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "log.html  1 turn, 5 calls, 42s; open it in a browser\n"
    page = tmp_path / "log.html"
    assert HELLO in page.read_text(encoding="utf-8")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["log.html", "log.ndjson"]


def test_a_report_is_made_again_over_itself_and_over_nothing_else(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "log.ndjson", coder_at_work())
    assert command("report", "log.ndjson", cwd=tmp_path).returncode == 0
    assert command("report", "log.ndjson", cwd=tmp_path).returncode == 0
    (tmp_path / "log.html").write_text("my page")
    done = command("report", "log.ndjson", cwd=tmp_path)
    assert (done.returncode, "error[report-exists]" in done.stderr) == (2, True)
    assert (tmp_path / "log.html").read_text() == "my page"


def test_a_page_to_stdout_is_all_that_stdout_has(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "log.ndjson", coder_at_work())
    done = command("report", "log.ndjson", "-o", "-", cwd=tmp_path)
    assert done.stdout.startswith("<!doctype html>")
    assert done.stderr == ""
    assert os.listdir(tmp_path) == ["log.ndjson"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_written_to_and_not_replaced(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "log.ndjson", coder_at_work())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = "import sys; sys.stdout.write(open('pipe').read(15))"
    with subprocess.Popen([sys.executable, "-c", read], cwd=tmp_path, stdout=subprocess.PIPE) as reader:
        try:
            command("report", "log.ndjson", "-o", "pipe", cwd=tmp_path)
            assert stat.S_ISFIFO(pipe.stat().st_mode)
            assert reader.communicate(timeout=30)[0] == b"<!doctype html>"
        finally:
            reader.kill()


def test_a_session_of_a_store_is_found_by_its_id_alone(command: Command, tmp_path: Path) -> None:
    anyio.run(keep, tmp_path / "sessions.db", coder_at_work(), "ann")
    done = command("report", "s-7f3a", "--store", "sessions.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert HELLO in (tmp_path / "s-7f3a.html").read_text(encoding="utf-8")


def test_a_session_of_a_store_is_shown_with_its_sub_agents(command: Command, tmp_path: Path) -> None:
    caller, below = Writer(), Writer("sub-1", "fixer")
    caller.begin("go")
    caller.ask_tool("r1", "fixer", {"task": "mend it"})
    caller.respond("r1", "fixer", "mended", display={"subagent": {"agent": "fixer", "sessionId": "sub-1"}})
    caller.end()
    below.begin("mend it")
    below.say("I look at the cart first.")
    below.end()
    anyio.run(keep, tmp_path / "sessions.db", caller.events, "ann")
    anyio.run(keep, tmp_path / "sessions.db", below.events, "ann")
    done = command("report", "s-7f3a", "--store", "sessions.db", "-o", "-", cwd=tmp_path)
    assert "I look at the cart first." in done.stdout


@pytest.mark.parametrize(
    ("args", "error", "code"),
    [
        (("s-1", "--store", "sessions.db"), "error[session-not-found]", 2),
        (("s-7f3a", "--store", "missing.db"), "error[file-missing]", 2),
        (("s-7f3a",), "agentsession report s-7f3a --store FILE", 2),
        (("missing.ndjson",), "error[file-missing]", 2),
        (("empty.ndjson",), "error[empty-record]", 2),
        (("two.ndjson",), "agentsession report two.ndjson --session s-7f3a", 2),
        (("two.ndjson", "--session", "s-0"), "error[session-not-found]", 2),
        (("bad.ndjson",), "mend it, or --skip-bad", 2),
        (("sessions.db",), "agentsession report SESSION --store sessions.db", 2),
        (("log.ndjson", "--turn", "2"), "expected: 1 to 1", 2),
        (("log.ndjson", "-o", "no/such/folder.html"), "error[output-failed]", 1),
    ],
)
def test_what_cannot_be_shown_ends_in_something_to_type(
    command: Command, tmp_path: Path, args: tuple[str, ...], error: str, code: int
) -> None:
    anyio.run(keep, tmp_path / "sessions.db", coder_at_work(), "ann")
    write(tmp_path / "log.ndjson", coder_at_work())
    write(tmp_path / "two.ndjson", coder_at_work(), Writer("s-other").events)
    (tmp_path / "empty.ndjson").write_text("\n")
    (tmp_path / "bad.ndjson").write_text('{"type": "message"\n')
    before = sorted(os.listdir(tmp_path))
    done = command("report", *args, cwd=tmp_path)
    assert error in done.stderr
    assert "fix:" in done.stderr
    assert done.returncode == code
    assert sorted(os.listdir(tmp_path)) == before


def test_an_id_that_two_users_have_is_not_guessed_at(command: Command, tmp_path: Path) -> None:
    anyio.run(keep, tmp_path / "sessions.db", coder_at_work(), "ann", "bob")
    done = command("report", "s-7f3a", "--store", "sessions.db", cwd=tmp_path)
    assert "error[several-sessions]" in done.stderr
    export = ("--agent", "coder", "--user", "bob", "--out", "record.ndjson")
    assert command("sessions", "export", "s-7f3a", "--store", "sessions.db", *export, cwd=tmp_path).returncode == 0
    assert command("report", "record.ndjson", cwd=tmp_path).returncode == 0


def test_one_session_of_several_and_one_turn_of_several_can_be_asked_for(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "two.ndjson", coder_at_work(), long_record(3, 2))
    done = command("report", "two.ndjson", "--session", "s-long", "--turn", "2", "-o", "page.html", cwd=tmp_path)
    assert done.stderr == "page.html  1 turn, 2 calls, 2.3s; open it in a browser\n"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ("Batch 2" in page, "Batch 1 is done" in page) == (True, False)


def test_a_record_that_was_cut_off_is_shown_with_skip_bad(command: Command, tmp_path: Path) -> None:
    path = write(tmp_path / "log.ndjson", coder_at_work()[:-1])
    with path.open("a") as log:
        log.write('{"type": "stream_e')
    done = command("report", "log.ndjson", "--skip-bad", cwd=tmp_path)
    assert done.returncode == 0
    assert "the record stops before an end" in (tmp_path / "log.html").read_text(encoding="utf-8")
