"""What can be looked up without an agent: the schema, the rules, what an id means.

Not for: anything with a session. May import: ``agentsession.protocol`` and the pure modules beside it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Final, Literal

from agentsession.host.cli._error_table import ERRORS, errors_page
from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._text import wrap
from agentsession.protocol import HOST_RULES, RULES, Rule, descriptor_schema, event_schema, input_schema, wire_schema

__all__ = ["SchemaPart", "explain", "rules", "schema"]

SchemaPart = Literal["event", "descriptor", "input", "all"]

_ALL: Final = {**RULES, **HOST_RULES}


def schema(out: Out, part: SchemaPart) -> None:
    """Print the published JSON Schema, or one root of it."""
    made = {"event": event_schema, "descriptor": descriptor_schema, "input": input_schema, "all": wire_schema}[part]()
    out.text(json.dumps(made, indent=2, ensure_ascii=False) + "\n")


def rules(out: Out, *, as_json: bool) -> None:
    """Print the rule table: one line a rule."""
    if as_json:
        out.text(json.dumps([_rule_object(rule) for rule in _ALL.values()], indent=2, ensure_ascii=False) + "\n")
        return
    lines: list[Line] = []
    for rule in _ALL.values():
        note = f"if {rule.capability}" if rule.capability else rule.level
        note = f"hosts, {note}" if rule.level == "host" and rule.capability else note
        first, *rest = wrap(rule.sentence, out.width - 10)
        lines.append(line((f"{rule.id:<10}", "strong"), first))
        lines += [line(" " * 10, row) for row in rest]
        lines.append(line(" " * 10, (note, "dim")))
    out.lines(lines)


def _rule_object(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "sentence": rule.sentence,
        "level": rule.level,
        "capability": rule.capability,
        "checkedBy": rule.checked_by,
        "fix": rule.fix or None,
        "source": rule.source,
    }


def explain(out: Out, wanted: str | None, *, everything: bool) -> None:
    """Print what a rule or error id means; with ``everything`` the reference page of all errors."""
    if everything:
        out.text(errors_page())
        return
    if wanted is None:
        raise CommandError("explain what?", where="explain", fix="agentsession explain LIFE-05")
    name = wanted.strip().removeprefix("error").strip("[]:")
    name = re.sub(r"^([A-Za-z]+)-(\d)$", r"\1-0\2", name)  # LIFE-5
    if name.upper() in _ALL:
        out.lines(_rule_lines(_ALL[name.upper()], out.width))
        return
    if name.lower() in ERRORS:
        entry = ERRORS[name.lower()]
        code = str(int(entry.exit)) if entry.exit is not None else "none: the model is told, and the turn goes on"
        parts = (("why", entry.why), ("fix", entry.fix), ("exit code", code))
        out.lines(_paragraphs(entry.id, entry.sentence, parts, out.width))
        return
    near = difflib.get_close_matches(name.lower(), [*ERRORS, *(key.lower() for key in _ALL)], n=1, cutoff=0.7)
    fix = f"agentsession explain {near[0].upper() if near[0].upper() in _ALL else near[0]}" if near else None
    raise CommandError(f"no rule and no error is called {wanted!r}", id="unknown-id", fix=fix or "agentsession rules")


def _rule_lines(rule: Rule, width: int) -> list[Line]:
    if rule.level == "host":
        asked = f"every host that has {rule.capability}" if rule.capability else "every host"
    else:
        asked = f"every executor that declares {rule.capability}" if rule.capability else "every executor"
        asked += f", from level {rule.level} on"
    seen = {
        "machine": "in the order of events and calls, as they happen",
        "session": "in the behaviour of a live session, by the conformance suite",
        "wire": "in the text of one event",
    }[rule.checked_by]
    parts = [("asked of", asked), ("seen", seen), ("source", rule.source)]
    if rule.fix:
        parts.insert(0, ("fix", rule.fix))
    return _paragraphs(rule.id, rule.sentence, parts, width)


def _paragraphs(name: str, sentence: str, parts: Iterable[tuple[str, str]], width: int) -> list[Line]:
    out = [line((name, "strong")), *(line("  ", row) for row in wrap(sentence, width - 2))]
    for label, text in parts:
        first, *rest = wrap(text, width - 13)
        out.append(line((f"  {label + ':':<11}", "dim"), first))
        out += [line(" " * 13, row) for row in rest]
    return out
