"""The codes of problems: each that the source has is explained, and stands on the page of the contract over HTTP."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from agentsession.host.cli._error_table import ERRORS
from agentsession.host.http import _problems

ROOT = Path(__file__).parents[3]
HOST = ROOT / "host/agentsession/host"


def codes_of(part: str) -> dict[str, int]:
    """The codes of all problems that a part of the host raises, with their statuses."""
    found: dict[str, int] = {}
    for file in (HOST / part).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
                status, code = (argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant))
                assert isinstance(status, int)
                assert isinstance(code, str)
                assert found.setdefault(code, status) == status, f"{code} has two statuses"
    return found


def test_every_code_of_a_problem_is_explained() -> None:
    found = {**codes_of("http"), **codes_of("agui"), **codes_of("inspector")}
    assert {"key-reused", "too-slow", "malformed"} <= set(found)
    assert {*found, *_problems._CODES.values(), *_problems._BY_ID, "bad-request", "internal"} <= set(ERRORS)


def test_every_code_that_only_http_has_is_on_its_page_under_its_status() -> None:
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([0-9, ]+) \| (`[^|]*) \|", page, re.MULTILINE)
    shown = {
        code: {int(one) for one in statuses.split(",")}
        for statuses, codes in rows
        for code in re.findall(r"`([a-z-]+)`", codes)
    }
    for code, status in codes_of("http").items():
        assert status in shown.get(code, ()), code
    assert set(shown) <= set(ERRORS)
