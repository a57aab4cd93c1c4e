"""Write the documents that are made from the code; with ``--check``, only say which of them are stale.

Not for: prose. A document that is partly prose keeps it: between ``<!-- generated: NAME -->`` and
``<!-- end generated -->`` stands what a generator writes, and the rest is left as it is.
To add one: a function that returns the text, and a line in ``GENERATED``. May import: ``agentsession.protocol``; for
what is about the conformance suite also the suite, ``tests.conformance.broken`` and ``broken_hosts``, of which nothing
is run; for the mapping to AG-UI its table.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, cast, get_args

from agentsession.protocol import (
    CONTENT_CLASSES,
    EVENT_CLASSES,
    HOOK_POINTS,
    HOST_RULES,
    INPUT_CLASSES,
    RESERVED_RULES,
    RULES,
    STATES,
    TRANSITIONS,
    AgentDescriptor,
    Composition,
    Constraints,
    Decision,
    Event,
    FallbackQuestion,
    HookOutcome,
    HookPayload,
    Metadata,
    Model,
    ModelContent,
    ToolAnnotations,
    ToolDescriptor,
    Trigger,
    UnknownEvent,
    wire_schema,
)

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
    lines += [
        "",
        "## HOST: what a host owes its user, whatever the executor does",
        "",
        "From the table `agentsession.protocol.HOST_RULES`, in protocol/agentsession/protocol/_host_rules.py.",
        "They are seen in a live host, by [the suite for hosts](../how-to/test-your-host.md).",
        "*Feature*: asked only of hosts that have it.",
        "",
        "| id | rule | feature |",
        "|---|---|---|",
    ]
    for rule in HOST_RULES.values():
        lines.append(f'| <a id="{rule.id.lower()}"></a>{rule.id} | {rule.sentence} | {rule.capability or ""} |')
    return "\n".join(lines) + "\n"


def transitions() -> str:
    """The state table: a row a state, a column a trigger."""
    triggers: tuple[Trigger, ...] = get_args(Trigger)
    lines = ["| state | " + " | ".join(triggers) + " |", "|---|" + "---|" * len(triggers)]
    for state in STATES:
        cells = [TRANSITIONS[state].get(trigger, "") for trigger in triggers]
        lines.append(f"| **{state}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def diagram() -> str:
    """The state diagram; triggers that lead back to their state are left out, and those with one way share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in TRANSITIONS.items():
        for trigger, target in row.items():
            if target != state:
                arrows.setdefault((state, target), []).append(trigger)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> new"]
    lines += [f"    {state} --> {target}: {', '.join(triggers)}" for (state, target), triggers in arrows.items()]
    return "\n".join([*lines, "    closed --> [*]", "```"])


def _field_docs(cls: type[Model]) -> dict[str, str]:
    """What stands under the fields of a class and its bases, by the field's Python name."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not (issubclass(base, Model) and base is not Model):
            continue
        body = cast(ast.ClassDef, ast.parse(inspect.getsource(base)).body[0]).body
        for field, after in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                docs[cast(ast.Name, field.target).id] = str(after.value.value)
    return docs


def _prose(text: str) -> str:
    """A docstring as one line of Markdown."""
    text = re.sub(r":\w+:`~?\.?([^`]*)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def _shape(schema: dict[str, Any]) -> str:
    """A field's type in a word or two, from its JSON Schema."""
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in _DESCRIBED else name
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        names = [_shape(choice) for choice in choices if choice.get("type") != "null"]
        return "[content part](#content-parts)" if any("UnknownPart" in name for name in names) else " or ".join(names)
    if schema.get("type") == "array":
        return f"list of {_shape(schema['items'])}"
    return str(schema.get("type", "any JSON"))


def _table(cls: type[Model], leave_out: frozenset[str] = frozenset()) -> list[str]:
    schema: dict[str, Any] = wire_schema()["$defs"].get(cls.__name__) or cls.model_json_schema(by_alias=True)
    docs = _field_docs(cls)
    lines = ["", "| field | type | | meaning |", "|---|---|---|---|"]
    for name, field in cls.model_fields.items():
        alias = field.alias or name
        if alias in leave_out:
            continue
        shape: dict[str, Any] = schema["properties"][alias]
        known = shape.get("x-knownValues")
        meaning = _prose(docs.get(name, ""))
        if known:
            meaning = (
                (meaning + " " if meaning else "") + "Known: " + ", ".join(f"`{value}`" for value in known) + "; open."
            )
        default = shape.get("default")
        need = "required" if alias in schema.get("required", ()) else ""
        if not need and default not in (None, [], {}):
            need = f"default `{json.dumps(default)}`"
        lines.append(f"| `{alias}` | {_shape(shape)} | {need} | {meaning} |")
    return lines


def _section(level: str, title: str, cls: type[Model], leave_out: frozenset[str] = frozenset()) -> list[str]:
    lines = ["", f"{level} {title}", "", *(_prose(part) for part in (inspect.getdoc(cls) or "").split("\n\n"))]
    table = _table(cls, leave_out)
    return lines + (table if len(table) > 3 else ["", "No fields of its own."])


_DESCRIBED: Final = {
    cls.__name__: cls
    for cls in (AgentDescriptor, ToolDescriptor, Composition, Constraints, Metadata, Decision, ToolAnnotations)
}


def events() -> str:
    """``docs/reference/events.md``: every type on the wire with its fields."""
    base = frozenset(field.alias or name for name, field in Event.model_fields.items())
    lines = [
        "# Events, content and inputs",
        "",
        "What stands on the wire, field by field, from the docstrings of `agentsession.protocol`.",
        "Python names are the same in snake_case: `messageId` is `message_id`.",
        "The [published schema](agentsession.schema.json) says the same to a validator.",
        "",
        "A field that is neither required nor has a default may be absent; absent is not `null`.",
        "Sets of types and of values marked open may grow: what is not known is kept and passed on unchanged.",
        "",
        "<!-- Made by `make docs`. Edit the docstrings in protocol/agentsession/protocol, not this file. -->",
        "",
        "## Fields of every event",
        "",
        "`type` tells which event it is.",
        *_table(UnknownEvent, frozenset({"type"})),
        "",
        "## Events",
    ]
    for kind, event in EVENT_CLASSES.items():
        # A base field that the event declares anew has something of its own to say there.
        own = frozenset(event.__annotations__)
        again = {field.alias or name for name, field in event.model_fields.items() if name in own}
        lines += _section("###", kind, event, (base - again) | {"type"})
    lines += ["", "A type that is not one of these is kept as it came (`UnknownEvent`).", "", "## Content parts"]
    for kind, part in CONTENT_CLASSES.items():
        lines += _section("###", kind, part, frozenset({"type"}))
    lines += ["", "A part of another type is kept as it came (`UnknownPart`).", "", "## Inputs", ""]
    lines += ["Told apart by `kind`; a closed set."]
    for kind, given in INPUT_CLASSES.items():
        lines += _section("###", f"{kind} ({given.__name__})", given, frozenset({"kind"}))
    lines += ["", "## What they hold"]
    for name, cls in _DESCRIBED.items():
        lines += _section("###", name, cls)
    return "\n".join(lines) + "\n"


def hooks() -> str:
    """``docs/reference/hooks.md``: every hook point, what it is told and what it may answer."""
    common = frozenset(field.alias or name for name, field in HookPayload.model_fields.items())
    lines = [
        "# Hooks",
        "",
        "What a host's interceptor is told at each point of a session's life, and what its answer does.",
        "How to write one is in [Use hooks](../how-to/use-hooks.md); why they are so is in `decisions/0016-hooks.md`.",
        "",
        "<!-- Made by `make docs`. Edit protocol/agentsession/protocol/_hooks.py, not this file. -->",
        "",
        "| point | payload | change | a block | a failure of the hook |",
        "|---|---|---|---|---|",
    ]
    for name, point in HOOK_POINTS.items():
        change = f"`{point.change.__name__}`" if point.change is not None else "nothing"
        failure = "blocks" if point.fails_closed else "lets pass"
        lines.append(
            f"| `{name}` | `{point.payload.__name__}` | {change} | {point.block or 'is a failure'} | {failure} |"
        )
    lines += ["", "At `after_agent` changed content is said in addition; at `on_model_error` it is the answer."]
    lines += [
        "There the call can also be made again, on this model or another, or a person asked (`ModelErrorChange`).",
        "",
        "Every executor of the base class fires `session_start`, `session_end`, `on_user_message`, `before_tool` and "
        "`after_tool`; the ADK adapter fires all.",
    ]
    lines += ["", "## Fields of every payload", *_table(HookPayload, frozenset()), "", "## Payloads"]
    payloads = {point.payload.__name__: point.payload for point in HOOK_POINTS.values()}
    for name, payload in payloads.items():
        lines += _section("###", name, payload, common)
    lines += ["", "## Outcome and changes"]
    changes = {point.change.__name__: point.change for point in HOOK_POINTS.values() if point.change is not None}
    answers: dict[str, type[Model]] = {"HookOutcome": HookOutcome, **changes, "ModelContent": ModelContent}
    answers["FallbackQuestion"] = FallbackQuestion
    for name, answer in answers.items():
        lines += _section("###", name, answer)
    return "\n".join(lines).replace("(#content-parts)", "(events.md#content-parts)") + "\n"


def conformance_matrix() -> str:
    """``docs/reference/conformance-matrix.md``: for each rule what shows it, and the faults that are caught by it."""
    sys.path.insert(0, str(ROOT))  # the broken executors are tests
    from tests.conformance.broken import all_broken

    from agentsession.conformance.engine import RECORD_RULES
    from agentsession.conformance.runner import all_scenarios

    scenarios, broken = all_scenarios(), all_broken()
    faults = sum(len(members) for members in broken.values())
    lines = [
        "# What the conformance suite catches",
        "",
        f"{len(scenarios)} scenarios show {len(RULES)} rules, and {faults} broken executors show what that is worth.",
        "Each of these is a correct executor with one fault, most of them seen in the field.",
        "It must fail the rule that it stands under here, and no other, in all scenarios.",
        "The scenarios of ORD-11 and HITL-11, and that of an abort which is not heeded, take long:",
        "they are played only to the executors that stand there.",
        "The tests in `tests/conformance/broken` hold the suite to that.",
        "",
        "*Every record*: the rule is checked at each event that could break it, in every session of a scenario.",
        "",
        "<!-- Made by `make docs`. Edit the scenarios and tests/conformance/broken, not this file. -->",
    ]
    for family, members in groupby(RULES.values(), key=lambda rule: rule.id.partition("-")[0]):
        lines += ["", f"## {family}: {_FAMILIES.get(family, family.lower())}"]
        for rule in members:
            lines += ["", f"### {rule.id}", "", f"{rule.sentence}", "", "Shown by:", ""]
            shown = [each for each in scenarios.values() if rule.id in each.rules]
            lines += [f"- `{each.name}`: {_prose(inspect.getdoc(each.play) or '')}" for each in shown]
            if rule.id in RECORD_RULES:
                lines.append("- every record")
            lines += ["", "Catches an executor that is wrong in this:", ""]
            lines += [f"- `{fault.__name__}`: {_prose(fault.__doc__ or '')}" for fault in broken.get(rule.id, ())]
    return "\n".join([*lines, *_host_matrix()]) + "\n"


def _host_matrix() -> list[str]:
    """The same for the rules of hosts."""
    from tests.conformance.broken_hosts import all_broken_hosts

    from agentsession.conformance.hosts.checks import HOST_LOG_RULES
    from agentsession.conformance.hosts.runner import all_host_scenarios

    scenarios, broken = all_host_scenarios(), all_broken_hosts()
    faults = sum(len(members) for members in broken.values())
    lines = [
        "",
        "## HOST: what a host owes its user",
        "",
        f"{len(scenarios)} scenarios, in which an executor misbehaves, show {len(HOST_RULES)} rules of hosts.",
        f"{faults} broken hosts, each a correct one with one fault, must fail the rule that they stand under,",
        "and no other; each scenario is failed by a host that stands under a rule of it.",
        "The scenarios of HOST-32 take long: they are played only to the hosts that stand there.",
        "The tests in `tests/conformance/broken_hosts` hold the suite to that.",
    ]
    for rule in HOST_RULES.values():
        lines += ["", f"### {rule.id}", "", rule.sentence, "", "Shown by:", ""]
        shown = [each for each in scenarios.values() if rule.id in each.rules]
        lines += [f"- `{each.name}`: {_prose(inspect.getdoc(each.play) or '')}" for each in shown]
        if rule.id in HOST_LOG_RULES:
            lines.append("- every scenario")
        lines += ["", "Catches a host that is wrong in this:", ""]
        lines += [f"- `{fault.__name__}`: {_prose(fault.__doc__ or '')}" for fault in broken.get(rule.id, ())]
    return lines


def schema() -> str:
    """``docs/reference/agentsession.schema.json``: the published JSON Schema of the wire."""
    return json.dumps(wire_schema(), indent=2, ensure_ascii=False) + "\n"


def report_schema() -> str:
    """``docs/reference/conformance-report.schema.json``: what ``agentsession conform --json`` prints."""
    from agentsession.conformance.report import document

    return json.dumps(document.report_schema(), indent=2) + "\n"


def _rows(head: str, rows: Iterable[Sequence[str]]) -> str:
    lines = [head, "|" + "---|" * (head.count("|") - 1), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines)


def ag_ui_outbound() -> str:
    """In ``docs/reference/ag-ui.md``: what each event becomes."""
    from agentsession.host.agui._out_table import MAPPING

    rows = [
        (f"`{row.event}`" if row.event[0] != "(" else row.event[1:-1], row.case, _types(row.becomes), row.note)
        for row in MAPPING
    ]
    return _rows("| event | case | AG-UI | |", rows)


def _types(names: tuple[str, ...]) -> str:
    """Names of events; those of one family after the first by their last word."""
    short: list[str] = []
    for index, name in enumerate(names):
        family = name.rpartition("_")[0]
        same = index > 0 and names[index - 1].startswith(f"{family}_") and family.count("_") > 0
        short.append(name.rpartition("_")[2] if same else name)
    return ", ".join(f"`{name}`" for name in short) or "nothing"


def ag_ui_outcomes() -> str:
    """In ``docs/reference/ag-ui.md``: how runs end."""
    from agentsession.host.agui._out_table import outcomes

    return _rows("| the stream's end | the run's |", outcomes())


def ag_ui_interrupts() -> str:
    """In ``docs/reference/ag-ui.md``: what waits for a person."""
    from agentsession.host.agui._out_table import interrupts

    return _rows("| what waits | reason | `toolCallId` | the answer's payload |", interrupts())


def ag_ui_unused() -> str:
    """In ``docs/reference/ag-ui.md``: what is never sent."""
    from agentsession.host.agui._out_table import UNUSED

    return "\n".join(f"- `{name}`: {why}" for name, why in UNUSED.items())


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "docs/reference/rules.md": rules,
    "docs/reference/lifecycle.md#transitions": transitions,
    "docs/reference/lifecycle.md#diagram": diagram,
    "docs/reference/events.md": events,
    "docs/reference/hooks.md": hooks,
    "docs/reference/ag-ui.md#outbound": ag_ui_outbound,
    "docs/reference/ag-ui.md#outcomes": ag_ui_outcomes,
    "docs/reference/ag-ui.md#interrupts": ag_ui_interrupts,
    "docs/reference/ag-ui.md#unused": ag_ui_unused,
    "docs/reference/conformance-matrix.md": conformance_matrix,
    "docs/reference/conformance-report.schema.json": report_schema,
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
