"""``agentsession sessions``: what a person and a program see of a file of records."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.host.cli.command import Command, started_command
from tests.host.report.records import Writer

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor, Step
from agentsession.host import SqliteRecordStore
from agentsession.host._child_ids import session_id_of
from agentsession.protocol import Event, OpenOptions, RecordKey, SessionConfig, SessionMachine, read_ndjson, result


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Two sessions: one with a title that is done, one that waits."""

    async def fill() -> None:
        records: list[Event] = []
        script: list[list[Step]] = [
            [Say("Hello"), Call("look", {"token": "hunter2-very-secret"}, needs="result"), Say("done")]
        ]
        async with SqliteRecordStore(tmp_path / "r.db") as store:
            async with ScriptedExecutor(script, store=store, reenter=True) as executor:
                for name in ("done", "waits"):
                    session = await executor.open(OpenOptions(session_id=name, user_id="ann"))
                    async with session.stream("Fix the\nshop \x1b[31m") as stream:
                        assert [event async for event in stream]
                    if name == "done":
                        await session.update(SessionConfig(title="Shop tests"))
                        async with session.stream([result(session.pending[0].request_id, "x")]) as stream:
                            assert [event async for event in stream]
                    else:
                        await store.unlock(session.recorder.key, session._owner)
                        records = await store.read(session.recorder.key)
                key = RecordKey("scripted", "ann", "waits-2")
                await store.create(key)
                await store.append(key, records, reserved_seq=records[-1].seq)

    anyio.run(fill)
    return str(tmp_path / "r.db")


def test_the_list_shows_titles_states_and_counts(command: Command, file: str) -> None:
    done = command("sessions", "list", "--store", file)
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["SESSION", "STATE", "TURNS", "EVENTS", "CHANGED", "TITLE"]
    assert [row.split()[0] for row in rows] == ["waits-2", "waits", "done"]
    assert "waits 1" in rows[0]
    assert rows[0].endswith("Fix the shop \\x1b[31m")
    assert rows[2].endswith("Shop tests")


def test_the_list_for_programs_is_a_line_of_json_for_each(command: Command, file: str) -> None:
    done = command("sessions", "list", "--store", file, "--json", "--limit", "1")
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["session"], told["agent"], told["user"]) == ("waits-2", "scripted", "ann")
    assert (told["state"], told["pending"], told["turns"]) == ("input_required", 1, 1)


def test_records_of_several_users_have_their_columns(command: Command, file: str, tmp_path: Path) -> None:
    out = str(tmp_path / "x.ndjson")
    command("sessions", "export", "done", "--store", file, "--out", out)
    command("sessions", "import", out, "--store", file, "--user", "bob")
    done = command("sessions", "list", "--store", file)
    assert done.stdout.splitlines()[0].split()[:3] == ["SESSION", "AGENT", "USER"]
    ambiguous = command("sessions", "show", "done", "--store", file)
    assert ambiguous.returncode != 0
    assert "2 sessions have the id done" in ambiguous.stderr
    assert "bob" in command("sessions", "show", "done", "--user", "bob", "--store", file).stdout


def test_show_tells_what_it_is_and_its_last_events(command: Command, file: str) -> None:
    done = command("sessions", "show", "done", "--store", file, "--last", "3")
    assert "title  Shop tests" in done.stdout
    assert "the last 3 of " in done.stdout
    assert "done" in done.stdout
    lines = command("sessions", "show", "done", "--store", file, "--json", "--last", "2").stdout.splitlines()
    assert [json.loads(line).get("type") for line in lines] == [None, "agent_end", "stream_end"]


def test_show_tells_the_times_of_a_turn_of_which_it_prints_the_end_alone(command: Command, file: str) -> None:
    w = Writer("long", "scripted")
    w.begin("Clean up")
    w.ask_tool("r1", "wipe", needs="grant", owner="agent")
    w.after(60).decide("r1", "user")
    w.respond("r1", "wipe", "gone")
    for number in range(700):
        w.say(f"file {number}")
    w.end()

    async def keep() -> None:
        async with SqliteRecordStore(file) as store:
            key = RecordKey("scripted", "ann", "long")
            await store.create(key)
            await store.append(key, w.events, reserved_seq=w.events[-1].seq)

    anyio.run(keep)
    done = command("sessions", "show", "long", "--store", file, "--last", "2")
    assert "Clean up" not in done.stdout.partition("the last 2 of")[2]
    assert "completed 1m00s (model 0, tools 0, you 60)" in done.stdout


def test_an_export_is_what_replay_reads_and_import_stores(command: Command, file: str, tmp_path: Path) -> None:
    out = tmp_path / "x.ndjson"
    done = command("sessions", "export", "done", "--store", file, "--out", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    if os.name == "posix":
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert command("sessions", "export", "done", "--store", file).stdout == out.read_text(encoding="utf-8")
    assert command("replay", str(out)).returncode == 0
    other = str(tmp_path / "other.db")
    assert "stored" in command("sessions", "import", str(out), "--store", other, "--session", "copy").stdout
    assert "copy" in command("sessions", "list", "--store", other).stdout
    again = command("sessions", "import", str(out), "--store", other, "--session", "copy")
    assert again.returncode != 0
    assert "session-exists" in again.stderr


def test_a_redacted_export_holds_no_secret_and_still_folds(command: Command, file: str) -> None:
    plain = command("sessions", "export", "done", "--store", file).stdout
    assert "hunter2-very-secret" in plain
    text = command("sessions", "export", "done", "--store", file, "--redact").stdout
    assert "hunter2" not in text
    assert SessionMachine.fold(read_ndjson(text.splitlines())).state == "idle"


def test_an_import_says_what_was_settled(command: Command, file: str) -> None:
    text = command("sessions", "export", "waits-2", "--store", file).stdout
    done = command("sessions", "import", "-", "--store", file, "--session", "settled", stdin=text)
    assert "1 request that waited settled" in done.stdout


def test_a_bad_line_is_named_and_nothing_is_stored(command: Command, file: str) -> None:
    lines = command("sessions", "export", "done", "--store", file).stdout.splitlines()
    done = command("sessions", "import", "-", "--store", file, "--session", "new", stdin="\n".join([*lines[:2], "x"]))
    assert done.returncode != 0
    assert "line 3" in done.stderr
    assert "new" not in command("sessions", "list", "--store", file).stdout


def test_an_export_does_not_write_over_a_file(command: Command, file: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    done = command("sessions", "export", "done", "--store", file, "--out", str(tmp_path / "x"))
    assert done.returncode != 0
    assert (tmp_path / "x").read_text() == "mine"
    gone = command("sessions", "export", "nope", "--store", file, "--out", str(tmp_path / "y"))
    assert gone.returncode != 0
    assert not (tmp_path / "y").exists()


def test_an_export_that_does_not_fit_leaves_no_file_and_says_so(command: Command, file: str, tmp_path: Path) -> None:
    export = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); " + (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "from agentsession.host.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    text = command("sessions", "export", "done", "--store", file).stdout
    big = text.replace("Hello", "Hello" * 40_000)
    assert command("sessions", "import", "-", "--store", file, "--session", "big", stdin=big).returncode == 0
    words = ["sessions", "export", "big", "--store", file, "--out", str(tmp_path / "x")]
    done = subprocess.run([sys.executable, "-c", export, *words], capture_output=True, text=True, check=False)
    assert "error[output-failed]" in done.stderr
    assert not (tmp_path / "x").exists()


def test_delete_asks_at_a_terminal_alone_and_deletes(command: Command, file: str) -> None:
    assert "add --yes" in command("sessions", "delete", "done", "--store", file).stderr
    assert command("sessions", "delete", "done", "--store", file, "--yes").returncode == 0
    assert command("sessions", "delete", "done", "--store", file, "--yes").returncode != 0
    assert "done" not in command("sessions", "list", "--store", file).stdout


def test_delete_takes_the_records_of_sub_agents_along_and_says_what_stays(command: Command, file: str) -> None:
    text = command("sessions", "export", "done", "--store", file).stdout
    child = session_id_of("done", "r1", "fixer")
    taken = command("sessions", "import", "-", "--store", file, "--session", child, "--user", "ann", stdin=text)
    assert taken.returncode == 0
    done = command("sessions", "delete", "done", "--store", file, "--yes")
    assert done.stdout.splitlines() == [
        "session done deleted, with 1 session of sub-agents",
        "what agents keep elsewhere, as ADK's own sessions, and files of long outputs stay",
    ]
    assert child not in command("sessions", "list", "--store", file, "--json", "--sub-agents").stdout


def test_sessions_of_sub_agents_are_listed_on_request_alone(command: Command, file: str) -> None:
    text = command("sessions", "export", "done", "--store", file).stdout
    child = session_id_of("done", "r1", "fixer")
    command("sessions", "import", "-", "--store", file, "--session", child, "--user", "ann", stdin=text)
    listed = command("sessions", "list", "--store", file, "--limit", "3")
    assert [row.split()[0] for row in listed.stdout.splitlines()[1:]] == ["waits-2", "waits", "done"]
    assert listed.stderr.strip() == "those of sub-agents are left out: --sub-agents shows them"
    assert child in command("sessions", "list", "--store", file, "--sub-agents", "--limit", "1").stdout


def test_prune_keeps_what_waits(command: Command, file: str) -> None:
    done = command("sessions", "prune", "--store", file, "--older-than", "0m", "--dry-run")
    assert "1 session would be deleted" in done.stdout
    assert "Shop tests" in done.stdout
    told = command("sessions", "prune", "--store", file, "--older-than", "0m").stdout
    assert "1 session deleted" in told
    assert "files of long outputs stay" in told
    left = command("sessions", "list", "--store", file).stdout
    assert "waits" in left
    more = command("sessions", "prune", "--store", file, "--older-than", "0m", "--waiting-older-than", "0m", "--json")
    assert {json.loads(line)["session"] for line in more.stdout.splitlines()} == {"waits", "waits-2"}


@pytest.mark.parametrize("age", ["x", "-1d", "3", "1y"])
def test_an_age_that_is_none_is_refused(command: Command, file: str, age: str) -> None:
    done = command("sessions", "prune", "--store", file, f"--older-than={age}")
    assert done.returncode == 2
    assert "30d" in done.stderr


@pytest.mark.parametrize("name", ["list", "show x", "follow x", "export x", "delete x --yes", "prune --older-than 1d"])
def test_a_file_that_is_not_there_is_not_made(command: Command, tmp_path: Path, name: str) -> None:
    done = command("sessions", *name.split(), "--store", str(tmp_path / "none.db"))
    assert "file-missing" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_says_so(command: Command, tmp_path: Path) -> None:
    async def make() -> None:
        async with SqliteRecordStore(tmp_path / "r.db") as store:
            await store.browse()

    anyio.run(make)
    assert "no session is stored here" in command("sessions", "list", "--store", str(tmp_path / "r.db")).stderr


def test_follow_shows_what_another_process_stores_and_ends_with_the_record(file: str) -> None:
    with started_command("sessions", "follow", "done", "--store", file, "--after", "0", "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["type"] == "initialize"

        async def delete() -> None:
            async with SqliteRecordStore(file) as store:
                await store.delete(RecordKey("scripted", "ann", "done"))

        anyio.run(delete)
        rest = process.stdout.read()
        assert process.wait() == 0
        assert json.loads(rest.splitlines()[-1])["type"] == "stream_end"
