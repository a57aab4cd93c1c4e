"""``agentsession conform``, as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentsession.conformance import extras
from agentsession.conformance.command import command
from agentsession.conformance.scene import HarnessBroke

ROOT = Path(__file__).resolve().parents[2]
HARNESS = "tests.conformance.harnesses.scripted:harness"
HOST = "tests.conformance.broken_hosts._simple:harness"


def conform(capsys: pytest.CaptureFixture[str], *args: str, **options: object) -> tuple[int, str, str]:
    """The exit code and both outputs of the command, called as the command line calls it."""
    given = {"expected": None, "as_json": False, "html": None, "junit": None, "badge": None, "verbose": False}
    with pytest.raises(SystemExit) as left:
        command(*args, **{"rule": None, "seed": 1, **given, **options})  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def test_a_rule_that_holds_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = conform(capsys, HARNESS, rule=["LIFE-05"])
    assert code == 0
    assert out.splitlines()[-1] == "Core 1/1"


def test_the_report_as_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = conform(capsys, HARNESS, rule=["LIFE-05"], as_json=True)
    assert code == 0
    assert [result["rule"] for result in json.loads(out)["results"]] == ["LIFE-05"]


def test_files_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("html", "junit", "badge")}
    assert conform(capsys, HARNESS, rule=["LIFE-05"], **files)[0] == 0
    assert all(Path(name).stat().st_size > 50 for name in files.values())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nosuch.module:harness", 'no module "nosuch"'),
        (f"{HARNESS}s", "has no 'harnesss'"),
        ("json:dumps", "cannot be imported"),
        ("json:JSONDecoder", "is no harness"),
        ("json", "not named"),
    ],
)
def test_a_harness_that_is_not_there_is_exit_code_2_and_says_what_to_type(
    capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    code, out, err = conform(capsys, target)
    assert (code, out) == (2, "")
    assert said in err
    assert "fix:" in err


@pytest.mark.parametrize(
    ("args", "options"),
    [((), {}), ((HARNESS,), {"stdio": "node x.mjs"}), ((), {"stdio": "  "}), ((), {"stdio": 'node "x'})],
)
def test_a_call_that_names_no_executor_or_two_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], options: dict[str, object]
) -> None:
    assert conform(capsys, *args, **options)[0] == 2


def test_an_executor_over_stdio_is_named_by_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    server = f"{sys.executable} -W ignore -m agentsession.conformance.stdio.server {HARNESS}"
    code, out, _ = conform(capsys, stdio=server, rule=["LIFE-05"])
    assert (code, out.splitlines()[-1]) == (0, "Core 1/1")


def test_a_command_that_does_not_start_is_a_broken_harness(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = conform(capsys, stdio="no-such-program-here", rule=["LIFE-05"])
    assert code == 6
    assert "HARNESS ERROR LIFE-05" in out


def test_a_rule_that_there_is_not_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(capsys, HARNESS, rule=["LIFE-99"])[0] == 2


@pytest.mark.parametrize("options", [{"level": "gold"}, {"level": "core", "rule": ["LIFE-05"]}])
def test_a_level_that_there_is_not_or_of_one_rule_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], options: dict[str, object]
) -> None:
    assert conform(capsys, HARNESS, **options)[0] == 2


def test_a_level_that_is_not_reached_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    reduced = "tests.conformance.harnesses.scripted:forgetful"
    code, out, _ = conform(capsys, reduced, level="durable", as_json=True)
    made = json.loads(out)
    assert (code, made["exitCode"], made["wanted"], made["reached"]) == (1, 1, "durable", "interactive")
    assert {result["status"] for result in made["results"]} == {"pass", "n/a"}
    assert conform(capsys, reduced, level="interactive")[0] == 0


def test_the_installed_command_finds_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentsession.host.cli", "conform", HARNESS, "-k", "LIFE-05"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["Core 1/1"]), done.stderr


def test_sequences_at_random_are_told_beside_the_levels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    code, out, _ = conform(capsys, HARNESS, rule=["LIFE-05"], random=2, as_json=True)
    (extra,) = json.loads(out)["extras"]
    assert (code, extra["name"], extra["good"]) == (0, "random", True)
    assert extra["summary"].startswith("2 sequences at random, ")
    assert list(tmp_path.iterdir()) == [], "it leaves something where it was called"


def test_a_sequence_that_breaks_a_rule_is_exit_code_1_and_says_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = conform(
        capsys, "tests.conformance.broken.control:RefusesAnAbortOfNothing", rule=["CTL-02"], random=3
    )
    assert code == 1
    assert "CTL-02 broke (seed 1)" in out
    assert "-k CTL-02 --seed 1 --random 3" in out


def test_a_process_is_killed_as_often_as_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    server = f"{sys.executable} -W ignore -m agentsession.conformance.stdio.server {HARNESS}"
    code, out, _ = conform(capsys, stdio=server, rule=["LIFE-05"], kills=1, as_json=True)
    (extra,) = json.loads(out)["extras"]
    assert (code, extra["name"], extra["good"]) == (0, "kills", True)
    assert extra["summary"].startswith("1 kills in ")


def test_kills_that_could_not_be_tried_are_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    unheld = f"{sys.executable} -m agentsession.conformance.stdio.server tests.conformance.harnesses.lossy:unheld"
    code, out, _ = conform(capsys, stdio=unheld, rule=["LIFE-05"], kills=1, as_json=True)
    (extra,) = json.loads(out)["extras"]
    assert (code, extra["name"], extra["good"]) == (1, "kills", False)


def test_sequences_none_of_which_could_be_played_are_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = conform(capsys, "tests.conformance.harnesses.lossy:short", rule=["LIFE-05"], random=2)
    assert code == 1
    assert "came to no verdict: two turns at the most" in out
    assert "nothing broke" not in out


def test_what_was_asked_for_and_met_a_harness_that_breaks_is_exit_code_6(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise HarnessBroke("no model")

    monkeypatch.setattr(extras, "_random", breaks)
    code, out, _ = conform(capsys, HARNESS, rule=["LIFE-05"], random=1)
    assert code == 6
    assert "random       the harness could not make an executor: no model" in out


def test_an_executor_in_this_process_cannot_be_killed_for_real_and_nothing_is_tried_before_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_random", lambda *_: pytest.fail("sequences were tried"))
    code, _, err = conform(capsys, HARNESS, rule=["LIFE-05"], kills=1, random=1)
    assert code == 2
    assert "--kills with --stdio COMMAND" in err


def test_extras_of_a_harness_that_breaks_are_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = conform(capsys, stdio="no-such-program-here", rule=["LIFE-05"], random=1, kills=1)
    assert code == 6
    assert "HARNESS ERROR LIFE-05" in out


def test_a_host_is_proven_with_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("html", "junit", "badge")}
    code, out, _ = conform(capsys, HOST, host=True, rule=["HOST-26"], **files)
    assert (code, out.splitlines()[-1]) == (0, "Host 1/1")
    assert all("HOST-26" in Path(files[name]).read_text(encoding="utf-8") for name in ("html", "junit"))


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        (HOST, {}, "conform --host"),
        (HARNESS, {"host": True}, "leave --host out"),
        (HOST, {"host": True, "rule": ["LIFE-05"]}, "no rule 'LIFE-05'"),
        (HOST, {"rule": ["HOST-26"]}, "no rule 'HOST-26'"),
        (HOST, {"host": True, "level": "core"}, "has no --level"),
        (HOST, {"host": True, "stdio": "node host.mjs"}, "has no --stdio"),
        (HOST, {"host": True, "random": 2}, "has no --random"),
        ("", {"host": True}, "not named"),
    ],
)
def test_a_harness_of_the_other_kind_or_an_option_of_executors_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], target: str, options: dict[str, object], said: str
) -> None:
    code, out, err = conform(capsys, target, **options)
    assert (code, out) == (2, "")
    assert said in err
