"""The wire shape of the mapping: one file a case, ADK's JSON and the record it becomes. Changed only on purpose.

``UPDATE_GOLDEN=1 pytest tests/adapters/adk/test_golden.py`` writes the records anew; read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.adk.make import schema_validator

from agentsession.adapters.adk import map_session, read_adk
from agentsession.protocol import SessionMachine, event_schema

_FILES = sorted((Path(__file__).parents[2] / "golden" / "adk").glob("*.json"))


def _record(value: Any) -> list[dict[str, Any]]:
    (session,) = read_adk(json.dumps(value), name="golden.json")
    made = list(map_session(session))
    SessionMachine.fold(made)
    return [json.loads(event.to_wire_json()) for event in made]


def test_there_are_golden_files() -> None:
    assert len(_FILES) >= 6


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_the_record_is_as_it_was(path: Path) -> None:
    golden = json.loads(path.read_text())

    made = _record(golden["adk"])

    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(json.dumps(golden | {"record": made}, indent=2, ensure_ascii=False) + "\n")
    else:
        assert made == golden["record"]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_the_golden_record_is_valid(path: Path) -> None:
    validator = schema_validator(event_schema())

    for event in json.loads(path.read_text())["record"]:
        validator.validate(event)
