"""``agentsession policy``: why a call would be decided as it would, whether a file is right, and what was remembered.

Not for: deciding (``agentsession.host.policy``). May import: typer, and inside each command what it needs.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._paint import ColorChoice
from agentsession.host.cli._text import cut, escape, wrap

if TYPE_CHECKING:
    from agentsession.host import PolicyRequest
    from agentsession.host.policy import Explanation, Matched, RememberedAnswer, RememberedAnswers

__all__ = ["policy"]

Files = Annotated[
    list[str] | None, typer.Option("--policy", metavar="FILE", help="A policy file of yours; repeatable.")
]
Color = Annotated[ColorChoice, typer.Option(help="Colour: auto asks the terminal, NO_COLOR and TERM.")]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Workspace = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The workspace; its rules are .agentsession/policy.toml.")
]

_EXAMPLE: Final = """agentsession policy explain 'fs:shell {"command": "git push"}' --policy policy.toml"""
_STYLES: Final = {"allow": "good", "ask_user": "ask", "deny": "bad"}

policy = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Why a call would be decided as it would, whether a policy file is right, and what was remembered.",
)


@policy.command()
def explain(
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="A tool and its arguments: 'fs:shell {\"command\": ...}'.")
    ],
    files: Files = None,
    mode: Annotated[str, typer.Option(help="The permission mode.")] = "default",
    principal: Annotated[str, typer.Option(metavar="PATH", help="The agents: main, main/child.")] = "main",
    annotations: Annotated[
        str, typer.Option(metavar="MARKS", help="What the tool is marked as: read_only,category=edit.")
    ] = "",
    agent_owned: Annotated[bool, typer.Option("--agent-owned", help="The agent's own tool, not the host's.")] = False,
    untrusted: Annotated[
        bool, typer.Option("--untrusted", help="The host does not vouch for the annotations of its provider.")
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Nobody can be asked.")] = False,
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Say which rule decides on a call, and why the others do not."""
    from agentsession.host.cli._command_policy import CommandPolicy, remembered_answers
    from agentsession.host.cli._setup import RunOptions

    request = _read_call(call, mode, principal, annotations, agent_owned, untrusted, headless)
    engine = CommandPolicy(RunOptions(target="", policy=files or ())).engine
    found = engine.explain(request)
    answers = remembered_answers()
    remembered = answers.find(request, found.decision)
    out = Out(sys.stdout, color=color)
    if as_json:
        out.json_line(_as_json(request, found, remembered))
        return
    out.lines(_told(call, request, found, remembered, out.width))
    if found.decision.is_ask and remembered is None:
        for path in _who_was_answered(answers, request, found):
            told = f"it was remembered for {' > '.join(path)}: --principal {'/'.join(path)}"
            out.lines([line(row) for row in wrap(escape(told).replace("\n", " "), out.width)])


@policy.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Policy files.")],
    tier: Annotated[str, typer.Option(help="Whose they are: plugin, workspace, user or admin.")] = "user",
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Read policy files as a host would, and try the examples of their rules."""
    from agentsession.host.policy import PolicyEngine, load_policy

    out = Out(sys.stdout, color=color)
    read = {file: load_policy(file, tier=tier) for file in files}
    PolicyEngine(rule for rules in read.values() for rule in rules)
    for file, rules in read.items():
        examples = sum(rule.examples for rule in rules)
        if as_json:
            out.json_line(json.dumps({"file": file, "rules": len(rules), "examples": examples}, ensure_ascii=False))
        else:
            told = f"{escape(file)}: {_count(len(rules), 'rule')}, {_count(examples, 'example')} tried"
            out.lines([line((told, "good"))])


@policy.command()
def trust(folder: Workspace = ".", color: Color = "auto", debug: Debug = False) -> None:
    """Agree to the rules of a workspace as they are now; after a change of them they only tighten."""
    from agentsession.host.cli._consent import agree, nothing_to_trust
    from agentsession.host.policy import WORKSPACE_POLICY, PolicyConsent, workspace_policy

    out, consent = Out(sys.stdout, color=color), PolicyConsent()
    found = workspace_policy(folder, consent)
    if found.digest is None:
        raise nothing_to_trust(WORKSPACE_POLICY, folder)
    out.lines([line((escape(f"{found.path}: {_count(len(found.rules), 'rule')}"), "strong"))])
    for rule in found.rules:
        marks = [f"{name} {value}" for name, value in rule.annotations.items()]
        narrowed = [rule.words, ", ".join(marks), f"in {', '.join(rule.modes)}" if rule.modes else ""]
        told = "; ".join([f"{rule.id}: {rule.decision} {', '.join(rule.tools)}", *filter(None, narrowed)])
        out.lines(_rows(told, out.width))
    if found.refused is None:
        out.lines([line("they were agreed to before")])
        return
    agree(out, consent, found.path, found.digest)


@policy.command()
def untrust(folder: Workspace = ".", color: Color = "auto", debug: Debug = False) -> None:
    """Agree to the rules of a workspace no longer; they then only tighten."""
    from pathlib import Path

    from agentsession.host.cli._consent import disagree
    from agentsession.host.policy import WORKSPACE_POLICY, PolicyConsent

    disagree(Out(sys.stdout, color=color), PolicyConsent(), Path(folder).absolute() / WORKSPACE_POLICY)


@policy.command()
def remembered(as_json: Json = False, color: Color = "auto", debug: Debug = False) -> None:
    """List what was answered with a, in all folders."""
    from agentsession.host.cli._command_policy import remembered_answers, remembered_path

    out = Out(sys.stdout, color=color)
    answers = remembered_answers().answers()
    if as_json:
        for one in answers:
            out.json_line(one.model_dump_json())
        return
    if not answers:
        out.lines([line(escape(f"nothing is remembered in {remembered_path()}"))])
        return
    for one in answers:
        out.lines(_answer_lines(one, out.width))
    out.lines([line(("take one back: agentsession policy revoke ID", "dim"))])


@policy.command()
def revoke(
    answer_ids: Annotated[list[str], typer.Argument(metavar="ID", help="As the list shows it.")],
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Take a remembered answer back: it is asked again, in hosts that run now too."""
    from agentsession.host.cli._command_policy import remembered_answers

    store = remembered_answers()
    out = Out(sys.stdout, color=color)
    for answer_id in answer_ids:
        if not store.revoke(answer_id):
            raise CommandError(
                f"no answer {answer_id!r} is remembered",
                id="unknown-id",
                where="policy revoke",
                fix="agentsession policy remembered",
            )
        out.lines([line(escape(f"{answer_id} is forgotten; it is asked again"))])


# --- reading a call ---------------------------------------------------------------------------------------------------


def _read_call(
    call: str, mode: str, principal: str, marks: str, agent_owned: bool, untrusted: bool, headless: bool
) -> PolicyRequest:
    from agentsession.host import PolicyRequest
    from agentsession.host.cli._shapes import as_object
    from agentsession.host.policy import MODES
    from agentsession.protocol import OpenOptions, SchemaError, parse_json

    name, _, text = call.strip().partition(" ")
    if not name:
        raise _no_call(call, "no tool is named")
    try:
        args = as_object(parse_json(text or "{}"))
    except SchemaError as error:
        raise _no_call(
            call, f"the arguments of {name} are not JSON: expected {error.expected or 'an object'}"
        ) from error
    if args is None:
        raise _no_call(call, f"the arguments of {name} must be a JSON object")
    if mode not in MODES:
        raise CommandError(f"unknown mode {mode!r}", where="policy explain --mode", expected=", ".join(MODES))
    provider, _, local = name.rpartition(":")
    if provider in ("host", "agent"):  # how a rule may name those that no provider brings
        provider, agent_owned = "", provider == "agent"
    path = tuple(principal.split("/"))
    return PolicyRequest(
        tool=f"{provider}_{local}" if provider else local,
        args=args,
        annotations=_read_marks(marks),
        owner="agent" if agent_owned else "host",
        provider=provider or None,
        provider_tool=local if provider else None,
        trusted=not (untrusted or agent_owned),
        principal=path[-1],
        principal_path=path,
        permission_mode=mode,
        interactive=not headless,
        user_id=OpenOptions().user_id,  # who runs the command
    )


def _read_marks(marks: str) -> Any:
    from agentsession.protocol import ToolAnnotations

    given: dict[str, Any] = {}
    for mark in filter(None, (one.strip() for one in marks.split(","))):
        name, has_value, value = mark.partition("=")
        if name not in ToolAnnotations.model_fields or (name == "category") != bool(has_value):
            raise CommandError(
                f"unknown annotation {mark!r}",
                where="policy explain --annotations",
                expected="read_only, destructive, idempotent, open_world, long_running, category=NAME",
            )
        given[name] = value if has_value else True
    return ToolAnnotations(**given) if given else None


def _no_call(call: str, what: str) -> CommandError:
    return CommandError(what, where="policy explain", got=cut(call, 80, "..."), fix=_EXAMPLE)


# --- telling ----------------------------------------------------------------------------------------------------------


def _told(
    call: str, request: PolicyRequest, found: Explanation, remembered: RememberedAnswer | None, width: int
) -> list[Line]:
    decision = found.decision
    style: Any = _STYLES[decision.decision]
    out = [line((decision.decision, style), escape(f"  {cut(call, width - 10, '...')}").replace("\n", " "))]
    by = _rule_words(found.matched[0]) if found.rule is not None else "no rule holds, so it is denied"
    out += _rows(by, width)
    if decision.reason:
        out += _rows(f"why: {decision.reason}", width)
    path = " > ".join(request.principal_path)
    out += _rows(f"mode {request.permission_mode}, asked by {path}", width)
    losers = [one for one in found.matched if one.fate != "decided"]
    if losers:
        out.append(line("also holds"))
        for one in losers:
            out += _rows(f"{_rule_words(one)}: {one.fate}", width)
    if decision.is_ask:
        out += _ask_lines(request, found, remembered, width)
    return out


def _ask_lines(
    request: PolicyRequest, found: Explanation, remembered: RememberedAnswer | None, width: int
) -> list[Line]:
    from agentsession.host.policy import memory_of, scope_words

    if remembered is not None:
        return [line(escape(f"not asked: {remembered.id} was remembered, {remembered.words}"))]
    out = [line("nobody can be asked, so it is denied")] if not request.interactive else []
    if memory_of(request, found.decision) == "never":
        return [*out, line("a yes is not remembered: the rule asks each time")]
    words = f"a yes can be remembered for: {scope_words(request, found.decision)}"
    return [*out, *(line(escape(row)) for row in wrap(words, width))]


def _who_was_answered(answers: RememberedAnswers, request: PolicyRequest, found: Explanation) -> list[tuple[str, ...]]:
    """The agents for which an answer to this call is remembered: answers are theirs, and the command knows no agent."""
    out: list[tuple[str, ...]] = []
    for path in dict.fromkeys(tuple(one.principal_path) for one in answers.answers() if one.principal_path):
        asked = dataclasses.replace(request, principal=path[-1], principal_path=path)
        if answers.find(asked, found.decision) is not None:
            out.append(path)
    return out


def _rule_words(one: Matched) -> str:
    rule = one.rule
    place = f", {rule.where}" if rule.where and rule.tier.name != "BUILTIN" else ""
    odd = ", to be on the safe side: an argument cannot be judged" if one.is_odd else ""
    part = f", command {one.part} of the line" if one.part is not None else ""
    return f"rule {rule.id}{place} ({rule.decision}, {rule.tier.name.lower()}, priority {rule.priority}){part}{odd}"


def _rows(text: str, width: int) -> list[Line]:
    return [line("  ", row) for row in wrap(escape(text).replace("\n", " "), width - 2)]


def _as_json(request: PolicyRequest, found: Explanation, remembered: RememberedAnswer | None) -> str:
    from agentsession.host.policy import memory_of, scope_words

    decision = found.decision
    asked: dict[str, Any] = {}
    if decision.is_ask:
        asked = {"remember": memory_of(request, decision), "scope": scope_words(request, decision)}
        asked["remembered"] = remembered.id if remembered is not None else None
    rules: Sequence[dict[str, Any]] = [
        {
            "id": one.rule.id,
            "decision": one.rule.decision,
            "tier": one.rule.tier.name.lower(),
            "priority": one.rule.priority,
            "where": one.rule.where,
            "fate": one.fate,
            "odd": one.is_odd,
            "command": one.part,
        }
        for one in found.matched
    ]
    told: dict[str, Any] = {
        "decision": decision.decision,
        "by": decision.by,
        "where": decision.where,
        "reason": decision.reason,
        "interactive": request.interactive,
    }
    return json.dumps({**told, **asked, "rules": rules}, ensure_ascii=False)


def _answer_lines(one: RememberedAnswer, width: int) -> list[Line]:
    from agentsession.protocol import OpenOptions

    path = " > ".join(one.principal_path)
    place = f"in {one.workspace}" if one.workspace is not None else f"in session {one.session_id}"
    user = f", user {one.user_id}" if one.user_id not in (None, OpenOptions().user_id) else ""
    told = f"{place}, mode {one.permission_mode} and looser, asked by {path or 'any agent'}{user}, since {one.at}"
    head = wrap(escape(f"{one.id}  {one.words}").replace("\n", " "), width)
    return [*(line((row, "strong")) for row in head), *_rows(told, width)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
