"""Rules on shell commands: the strictest part of a line counts, and what is not understood is not allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host.policy.rules import decides, request

from agentsession.host.policy import _shell
from agentsession.host.policy._shell import parse_command

TEXT = """
[[rule]]
id = "git"
tools = ["sh"]
shell = [["git", "status"], ["git", "log"], ["echo"], ["ls"]]
decision = "allow"
[[rule]]
id = "push"
tools = ["sh"]
shell = [["git", "push"]]
decision = "ask_user"
[[rule]]
id = "no-rm"
tools = ["sh"]
shell = [["rm"]]
decision = "deny"
"""


def says(command: Any) -> tuple[str, str]:
    return decides(TEXT, request("sh", {"command": command}))


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log -3 | ls",
        "  git   status  ",
        "git status && git log; ls & echo done",
        "git log 2>&1 >/dev/null",
        "echo 'a; rm -rf /' \"b && c\"",
        "echo hi # rm -rf /",
        "'git' \"status\"",
        "git \\\n status",
        ["git", "status"],
        "echo $HOME ${USER} *.py",
    ],
)
def test_what_begins_as_an_allow_says_is_allowed(command: Any) -> None:
    assert says(command) == ("allow", "git")


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf x",
        "git status\nrm x",
        "git status | rm x",
        "git status || rm x",
        "git status & rm x",
        "echo $(rm x)",
        'echo "$(rm x)"',
        "echo `rm x`",
        "echo hi # say\nrm x",
        "# \\\nrm x",
        "/bin/rm x",
        "\\rm x",
        "r''m x",
        "'rm' x",
        "sudo rm x",
        "sudo -u bob rm x",
        "env A=1 rm x",
        "timeout 5 /bin/rm x",
        "find . -name x | xargs rm",
        "bash -c 'git status; rm x'",
        'sh -ec "rm x"',
        "eval rm x",
        "A=1 rm x",
        "rm x > /dev/null",
        "rm\tx",
        ["rm", "x"],
        ["bash", "-c", "rm x"],
        "bash --rcfile x -c 'rm x'",
        "bash -o noclobber -c 'rm x'",
        "sudo bash -c 'rm x'",
        "sudo -u bob sh -ec 'git status; rm x'",
        "env A=1 bash -c '/bin/rm x'",
        "timeout 5 sh -c 'rm x'",
        "echo x | xargs sh -c 'rm x'",
        "sudo eval 'rm x'",
        "su bob -c 'rm x'",
        "env -S 'rm x'",
        "ssh far 'git status && rm x'",
        ["sudo", "sh", "-c", "rm x"],
        "$X x",
        "r* x",
        "sudo $X",
        "RM x",
        "rm.exe x",
        "=rm x",
        "'time' rm x",
        "/usr/bin/time rm x",
        "flock f rm x",
        "taskset 1 rm x",
        "trap 'rm x' EXIT",
        "toybox rm x",
        "ash -c 'rm x'",
        "bash -c -- 'rm x'",
        "bash -c -e 'rm x'",
        "bash -c 'rm x' $X",
        "uv run rm x",
        "[ -f x ] && rm x",
        "[r]m x",
        "[ x ]m x; /bin/[r]m x",
    ],
)
def test_no_way_of_writing_it_passes_a_denial(command: Any) -> None:
    assert says(command) == ("deny", "no-rm")


@pytest.mark.parametrize(
    "command",
    [
        "for f in *; do rm $f; done",
        "(git status)",
        "{ git status; }",
        "git status; }",
        "git status <<EOF",
        "git status 'open",
        'git status "open',
        "git status $(open",
        "echo $((1 + 1))",
        "echo ${X:-$(rm x)}",
        "echo <(rm x)",
        "git status\r rm x",
        "git status\0",
        "git status \ud800",
        "git " + "x" * 70_000,
        "ls;" * 100,
        "f() { rm x; }",
        "! git status",
        "if true; then ls; fi",
        "echo $'\\x72m'",
        "alias l='rm x'; l",
        "hash -p /bin/rm z; z",
        "and rm x",
        "git status" + " a" * 1_100,
        "",
        " ",
        7,
        None,
        {},
        [],
        ["git", 7],
    ],
)
def test_what_is_not_understood_is_not_allowed_and_a_denial_holds(command: Any) -> None:
    assert says(command) == ("deny", "no-rm")


@pytest.mark.parametrize(
    "command",
    [
        "echo rm x | sh",
        "echo cm0geA== | base64 -d | sh",
        "echo rm x | sudo -u bob bash",
        "echo rm x | bash -s",
        "echo rm x | bash -s x",
        "echo rm x | parallel -j 4 env",
        "echo rm x | bash -o errexit",
        "sh < f",
        "bash /dev/stdin < f",
        ". /dev/stdin < f",
        "echo 'rm x' | xargs sh -c",
        "echo rm x | xargs -n 2 env",
        "echo x | xargs -I% % y",
        "echo 'rm x' | parallel",
        "echo 'rm x' | at now",
        "env -S'rm x'",
        "env -Srm",
        "env --split-string='rm x'",
        "su -c'rm x'",
        "su -crm",
        "su --command='rm x'",
        "script -qc'rm x'",
        "fish --command=rm",
    ],
)
def test_a_denial_holds_for_what_runs_what_nobody_can_read(command: str) -> None:
    assert says(f"git status; {command}") == ("deny", "no-rm")
    allows = '[[rule]]\nid = "a"\ntools = ["sh"]\ndecision = "allow"\n'
    assert decides(f"{allows}{DENIES}", request("sh", {"command": command})) == ("deny", "no-rm")


DENIES = """
[[rule]]
id = "no-rm"
tools = ["sh"]
shell = [["rm"], ["git", "push"], ["python3"]]
decision = "deny"
"""


@pytest.mark.parametrize(
    "command",
    [
        "git -C dir push",
        "git --no-pager -c a=b push origin",
        "sudo git -C dir push",
        "echo push | xargs git",
        "Git push",
        "git -C $X push",
        "$(echo python)3>/dev/null -c x",
        "${X}3>/dev/null -c x",
        "`echo python`3>/dev/null -c x",
    ],
)
def test_a_denial_of_a_subcommand_holds_past_options_and_whatever_makes_its_words(command: str) -> None:
    allows = '[[rule]]\nid = "a"\ntools = ["sh"]\ndecision = "allow"\n'
    assert decides(f"{allows}{DENIES}", request("sh", {"command": command})) == ("deny", "no-rm")


@pytest.mark.parametrize(
    "command",
    [
        "bash script.sh",
        "sh -c 'ls | wc -l'",
        "bash -ce ls",
        "bash --version",
        "find . -name x | xargs wc -l",
        "xargs -n 1 grep time",
        "uv run pytest -q",
        ". v/bin/activate && pytest",
        "git log --grep push",
        "git commit -m push",
        "echo git push",
        "env A=1 pytest",
        "ssh -p 22 far ls",
        "[ -f Makefile ] && make",
    ],
)
def test_a_denial_holds_for_no_command_that_is_plainly_another(command: str) -> None:
    allows = '[[rule]]\nid = "a"\ntools = ["sh"]\ndecision = "allow"\n'
    assert decides(f"{allows}{DENIES}", request("sh", {"command": command})) == ("allow", "a")


def test_a_line_that_several_programs_could_take_is_read_once() -> None:
    parts = parse_command("sudo bash -c -c 'ls -l'")
    assert parts is not None
    assert [part.words for part in parts if part.words[0] == "ls"] == [("ls", "-l")]


@pytest.mark.parametrize(
    "line",
    [
        "env " * 480 + "'a b' " * 480,
        "sh " * 300 + "-c 'a b' " * 300,
        "env " * 100 + " ".join(f"\"env env env 'a {number}' 'c d'\"" for number in range(400)),
        "eval " * 900 + "x",
    ],
)
def test_no_line_is_read_without_bound(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    made = _shell._Reader.parts

    def parts(self: _shell._Reader) -> list[_shell.Part]:
        read.append("line")
        return made(self)

    monkeypatch.setattr(_shell._Reader, "parts", parts)
    parse_command(line)
    assert len(read) < 100


@pytest.mark.parametrize(
    "command",
    [
        "git status >&\u0663",
        "git status > x",
        "git log >> x",
        "ls < x",
        "LD_PRELOAD=x git status",
        "ls &> x",
        "ls 2> x",
        "git $X",
        "gits",
        "git",
    ],
)
def test_an_allow_holds_for_no_redirection_assignment_or_word_that_is_not_known(command: str) -> None:
    allows = "\n".join(TEXT.split("[[rule]]")[:2]).replace("\n\nid", "\n[[rule]]\nid")
    assert decides(allows, request("sh", {"command": command})) == ("deny", "no_match")


def test_a_question_about_one_command_holds_for_the_line() -> None:
    assert says("git status && git push") == ("ask_user", "push")
    assert says("git push && rm x") == ("deny", "no-rm")


def test_a_call_without_a_command_is_not_about_one() -> None:
    assert decides(TEXT, request("sh", {"cmd": "rm x"})) == ("deny", "no_match")


WORDS = st.sampled_from(["git", "status", "rm", "x", "-rf", "'a b'", '"c"', "$X", "#", "\\", ">", "2>&1", "A=1", "*"])
GLUE = st.sampled_from([" ", "\n", ";", "&&", "||", "|", " & ", "$(", ")", "`", "'", '"', "(", "{", "}"])


@given(st.lists(st.one_of(WORDS, GLUE, st.just(" ")), max_size=12))
def test_no_line_that_could_remove_is_allowed(pieces: list[str]) -> None:
    """Whatever stands around it, a line in which the word rm is a command's first is not allowed."""
    line = "".join(pieces) + "; rm y"
    assert says(line)[0] == "deny"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    parts = parse_command(text)
    assert parts is None or 0 < len(parts) <= 64
