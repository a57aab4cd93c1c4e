"""docs/adk-mapping.md says what the code does: every custom kind, every reason, every tool that needs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from agentsession.adapters.adk._errors import EndReason
from agentsession.adapters.adk._translate import CONTROL_TOOLS

_ROOT = Path(__file__).parents[3]
_DOC = (_ROOT / "docs" / "adk-mapping.md").read_text(encoding="utf-8")
_CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for name in ("_events", "_requests", "_translate", "_record")
    for path in [_ROOT / "adapters" / "agentsession" / "adapters" / "adk" / f"{name}.py"]
)


def test_every_custom_kind_is_in_the_table() -> None:
    kinds = set(re.findall(r'kind="([^"]+)"', _CODE)) | set(re.findall(r'_custom\("([^"]+)"', _CODE))
    kinds |= set(re.findall(r'^        \("(\w+)", (?:event\.|_\w+\()', _CODE, re.MULTILINE))

    assert len(kinds) >= 18
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in _DOC] == []


def test_every_reason_of_an_end_is_in_the_table() -> None:
    assert [reason for reason in get_args(EndReason) if f"`{reason}`" not in _DOC] == []


def test_every_control_tool_is_in_the_table() -> None:
    assert [name for name in sorted(CONTROL_TOOLS - {"transfer_to_other_agent"}) if f"`{name}`" not in _DOC] == []
