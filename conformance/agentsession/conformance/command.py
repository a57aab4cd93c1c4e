"""``agentsession conform``: the suite over one executor, or that for hosts over one host, from a command line.

Registered as the entry point ``agentsession.commands: conform``; must not import the host. Not for: the verdicts
(``runner.py``) or how they look (``report``). May import: typer, which is there when the command is, protocol, and when
it runs the modules beside it.

Exit codes: 0; 1 when a rule fails, passes unexpectedly or was not run, or the level is not reached; 2 for a wrong call;
6 when the harness broke.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from agentsession.protocol import HOST_RULES, RULES, AgentSessionError, ConfigurationError, Level

if TYPE_CHECKING:
    from agentsession.conformance.harness import Harness
    from agentsession.conformance.results import Report

__all__ = ["command"]

_USAGE: Final = 2


def command(
    target: Annotated[
        str, typer.Argument(metavar="[MODULE:HARNESS]", help="A harness, or a class or function that makes one.")
    ] = "",
    host: Annotated[bool, typer.Option("--host", help="It is a harness of a host: prove the host's rules.")] = False,
    store: Annotated[
        bool, typer.Option("--store", help="It opens record stores: prove what a session needs of one.")
    ] = False,
    stdio: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="An executor in any language, over stdin and stdout.")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", "-k", metavar="ID", help="Try this rule alone; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is left to chance.")] = 1,
    random: Annotated[int, typer.Option(metavar="N", min=0, help="Try N sequences of steps at random, too.")] = 0,
    kills: Annotated[int, typer.Option(metavar="N", min=0, help="With --stdio: kill the process N times, too.")] = 0,
    expected: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML: rules that are known to fail, each with the reason.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help=f"Fail unless this level is reached: {', '.join(get_args(Level))}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report as JUnit XML.")] = None,
    badge: Annotated[str | None, typer.Option(metavar="FILE", help="Write the JSON of a shields.io badge.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="A line for every rule, and what was logged.")
    ] = False,
) -> None:
    """Prove an executor against every rule of the contract, with --host a host against every rule of hosts.

    With --store MODULE:FACTORY a record store is proven against what sessions need; -k then names a scenario.

    Exit code 0: all holds. 1: a rule fails, passes unexpectedly or was not run, or --level is not reached.
    6: the harness broke.
    """
    try:
        tried = (seed, random, kills)
        if store:
            from agentsession.conformance.stores.command import conform_store

            refused = {"--host": host, "--stdio": stdio, "--random": random, "--kills": kills, "--expected": expected}
            refused |= {"--level": level, "--html": html, "--junit": junit, "--badge": badge}
            raise SystemExit(conform_store(target, rule or [], refused, as_json=as_json, verbose=verbose))
        code = _conform(target, host, stdio, rule or [], tried, expected, level, as_json, html, junit, badge, verbose)
    except AgentSessionError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_USAGE) from None
    raise SystemExit(code)


def _conform(
    target: str,
    host: bool,
    stdio: str | None,
    rules: list[str],
    tried: tuple[int, int, int],
    expected: str | None,
    level: str | None,
    as_json: bool,
    html: str | None,
    junit: str | None,
    badge: str | None,
    verbose: bool,
) -> int:
    import anyio

    from agentsession.conformance.expected import load_expected
    from agentsession.conformance.extras import try_extras
    from agentsession.conformance.runner import run

    table = HOST_RULES if host else RULES
    strange = [rule for rule in rules if rule not in table]
    if strange:
        raise ConfigurationError(f"there is no rule {strange[0]!r}", fix="agentsession rules", id="usage")
    wanted = _level(level, rules)
    known = load_expected(Path(expected), table) if expected is not None else None
    seed, sequences, kills = tried
    chosen = rules or None
    if host:
        _require_host_options(stdio, wanted, sequences, kills)
        report = _run_host(target, rules=chosen, seed=seed, expected=known)
        again = _again(f"--host {target}", tried)
    else:
        harness = _harness(target, stdio)
        name = target or harness.name
        extras = try_extras(harness, sequences=sequences, kills=kills, seed=seed, rules=chosen)
        report = anyio.run(
            lambda: run(harness, target=name, rules=chosen, seed=seed, expected=known, level=wanted, extras=extras)
        )
        again = _again(target if stdio is None else f"--stdio {shlex.quote(stdio)}", tried)
    _write_files(report, again, html=html, junit=junit, badge=badge)
    if as_json:
        from agentsession.conformance.report.document import document

        sys.stdout.write(document(report).model_dump_json(by_alias=True, indent=2) + "\n")
    else:
        from agentsession.conformance.report.terminal import lines

        sys.stdout.write("\n".join(lines(report, again=again, verbose=verbose)) + "\n")
    return report.exit_code


def _require_host_options(stdio: str | None, level: Level | None, sequences: int, kills: int) -> None:
    """Refuse what is for executors alone."""
    given = {"--stdio": stdio, "--level": level, "--random": sequences, "--kills": kills}
    for name, value in given.items():
        if value:
            raise ConfigurationError(
                f"a host has no {name}", fix="agentsession conform --host MODULE:HARNESS", id="usage"
            )


def _run_host(target: str, **given: Any) -> Report:
    import anyio

    from agentsession.conformance.hosts.runner import run_hosts
    from agentsession.conformance.load import load_host_harness

    harness = load_host_harness(target)
    # A host has much to log of such an executor; what matters of it is shown with a failure.
    logging.getLogger().addHandler(logging.NullHandler())
    return anyio.run(lambda: run_hosts(harness, target=target, **given))


def _level(given: str | None, rules: list[str]) -> Level | None:
    """The level that must be reached."""
    found = next((level for level in get_args(Level) if level == given), None)
    if given is not None and found is None:
        raise ConfigurationError(
            f"there is no level {given!r}", expected=f"one of {', '.join(get_args(Level))}", id="usage"
        )
    if found is not None and rules:
        raise ConfigurationError("a level is reached by all its rules", fix="leave -k out, or --level", id="usage")
    return found


def _harness(target: str, stdio: str | None) -> Harness:
    if bool(target) == (stdio is not None):
        raise ConfigurationError(
            "name one executor",
            got="both" if target else "none",
            expected="MODULE:HARNESS, or --stdio COMMAND",
            fix="agentsession conform my_package.conformance:harness",
            id="usage",
        )
    if stdio is None:
        from agentsession.conformance.load import load_harness

        return load_harness(target)
    from agentsession.conformance.stdio.harness import StdioHarness

    return StdioHarness(_words(stdio))


def _words(stdio: str) -> list[str]:
    """The words of a command, as a shell would part them."""
    try:
        words = shlex.split(stdio)
    except ValueError as error:
        raise ConfigurationError(
            "the command cannot be read", got=str(error), fix="close its quotes", id="usage"
        ) from error
    if not words:
        raise ConfigurationError("the command is empty", fix='--stdio "node executor.mjs"', id="usage")
    return words


def _again(target: str, tried: tuple[int, int, int]) -> str:
    """The command that tries one rule again, with ``{rule}`` for its id. ``target``: as it was typed."""
    seed, sequences, kills = tried
    more = (f" --random {sequences}" if sequences else "") + (f" --kills {kills}" if kills else "")
    named = target.replace("{", "{{").replace("}", "}}")
    return f"agentsession conform {named} -k {{rule}} --seed {seed}{more}"


def _write_files(report: Report, again: str, *, html: str | None, junit: str | None, badge: str | None) -> None:
    from agentsession.conformance.report import badge as badges
    from agentsession.conformance.report import html as pages
    from agentsession.conformance.report import junit as cases

    made: tuple[tuple[str | None, Callable[[], str]], ...] = (
        (html, lambda: pages.html(report, again=again)),
        (junit, lambda: cases.junit(report)),
        (badge, lambda: badges.badge(report)),
    )
    for name, text in made:
        if name is None:
            continue
        try:
            Path(name).write_text(text(), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"{name} cannot be written", got=error.strerror or type(error).__name__, fix="name another file"
            ) from error
