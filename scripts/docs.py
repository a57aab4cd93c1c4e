"""Write the documents that are made from the code; with ``--check``, only say which of them are stale.

Not for: prose. A document that is partly prose keeps it: between ``<!-- generated: NAME -->`` and
``<!-- end generated -->`` stands what a generator writes, and the rest is left as it is.
To add one: a function that returns the text, and a line in ``GENERATED``. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Final

from agentsession.protocol import RESERVED_RULES, RULES, wire_schema

ROOT: Final = Path(__file__).resolve().parent.parent

_FAMILIES: Final = {
    "LIFE": "the life of a session, a stream and an agent",
    "ORD": "order, cursors and readers",
    "TOOL": "tool requests and their answers",
    "HITL": "questions to a person",
    "CTL": "abort, steer and update",
    "TURN": "turns",
    "PER": "what is kept",
    "SEC": "secrets",
    "WIRE": "the wire",
}


def rules() -> str:
    """``docs/reference/rules.md``: the rule table, by family."""
    lines = [
        "# Rules",
        "",
        "Every rule of the contract, from the table in `agentsession.protocol.RULES`.",
        "An error and a conformance report name the rule by its id; `agentsession explain ID` prints one.",
        "",
        "*Level*: the conformance level that first requires it.",
        "*Seen in*: the order of events and calls (machine), a live session (session), or one event's text (wire).",
        "*Capability*: required only of executors that declare it.",
        "",
        "<!-- Made by `make docs`. Edit the table in protocol/agentsession/protocol/_rules.py, not this file. -->",
    ]
    for family, members in groupby(RULES.values(), key=lambda rule: rule.id.partition("-")[0]):
        lines += ["", f"## {family}: {_FAMILIES.get(family, family.lower())}", ""]
        lines += ["| id | rule | level | seen in | capability |", "|---|---|---|---|---|"]
        for rule in members:
            sentence = rule.sentence.replace("|", "\\|")
            lines.append(
                f'| <a id="{rule.id.lower()}"></a>{rule.id} | {sentence} | {rule.level} | {rule.checked_by}'
                f" | {rule.capability or ''} |"
            )
    lines += ["", f"Reserved, never used again: {', '.join(sorted(RESERVED_RULES))}."]
    return "\n".join(lines) + "\n"


def schema() -> str:
    """``docs/reference/agentsession.schema.json``: the published JSON Schema of the wire."""
    return json.dumps(wire_schema(), indent=2, ensure_ascii=False) + "\n"


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "docs/reference/rules.md": rules,
    "docs/reference/agentsession.schema.json": schema,
}
"""A document, or ``document#NAME`` for the marked part of one, and what writes it."""


def splice(old: str, name: str, text: str, path: Path) -> str:
    """Put ``text`` into the part of ``old`` that is marked ``name``."""
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end generated -->"
    head, found, rest = old.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{path}: needs the line '{begin.strip()}' and, after it, the line '{end}'")
    return f"{head}{begin}{text.rstrip()}\n{end}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a document is stale")
    check: bool = parser.parse_args().check
    stale = 0
    for target, generate in GENERATED.items():
        name, _, part = target.partition("#")
        path = ROOT / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = splice(old, part, generate(), path) if part else generate()
        if new == old:
            continue
        stale += 1
        print(f"{'stale' if check else 'written'}: {target}")
        if check:
            diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "in the repository", "from the code", n=1)
            print("\n".join(list(diff)[:20]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8")
    if stale and check:
        print("run `make docs` and commit what it writes", file=sys.stderr)
        return 1
    print(f"{len(GENERATED)} generated documents, {'all current' if not stale else f'{stale} written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
