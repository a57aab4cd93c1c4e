"""The commands and their options. Each command hands over to a module beside this one, imported when it runs.

Not for: doing the work. May import: typer, and inside each command what it needs; nothing here may import rich,
prompt_toolkit or google, so that ``--version`` and ``schema`` stay quick.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._paint import ColorChoice
from agentsession.host.cli._policy_command import policy as policy_command
from agentsession.host.cli._sessions_app import sessions
from agentsession.protocol import PROTOCOL_VERSION

__all__ = ["make_command"]

_GROUP = "agentsession.commands"
_EXAMPLES = """\
agentsession puts an agent under host control: you see every event, and no tool runs without an allow.

  agentsession demo                            a real agent on real files, no key, no network
  agentsession run my_agent:root_agent         talk to your agent; type while it works, Ctrl-C aborts
  agentsession run my_agent:root_agent -p "Fix the login bug"
  agentsession run my_agent:root_agent --json  for programs: NDJSON in and out
  agentsession serve my_agent:root_agent --ui  a page to watch and steer it; --agui for AG-UI front ends
  agentsession acp my_agent:root_agent         for editors: ACP on stdin and stdout
  agentsession inspect my_agent:root_agent     what it is, which tools it has
  agentsession replay record.ndjson            a recorded session, checked against the contract
  agentsession report record.ndjson            the same as a page: where the time went, every call
  agentsession policy explain 'TOOL {ARGS}'    which rule decides on a call, and why
  agentsession explain LIFE-05                 what a rule or an error means

All commands: agentsession --help
"""

Target = Annotated[str, typer.Argument(metavar="MODULE:AGENT", help="An ADK agent or App, an executor, or a factory.")]
Color = Annotated[ColorChoice, typer.Option(help="Colour: auto asks the terminal, NO_COLOR and TERM.")]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

# Options that several commands have. Each says what it is here, once.
Model = Annotated[str | None, typer.Option(help="Another model than the agent's own.")]
Tools = Annotated[
    str | None, typer.Option(metavar="MODULE:NAME", help="Tools that the host runs: a function or a list.")
]
YesReadOnly = Annotated[
    bool, typer.Option("--yes-read-only", help="Allow the agent's own tools that say they only read.")
]
Allow = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Allow tools by name; repeatable.")]
Deny = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Deny tools by name; repeatable.")]
PolicyFiles = Annotated[
    list[str] | None, typer.Option("--policy", metavar="FILE", help="Rules from this TOML file; repeatable.")
]
Mode = Annotated[
    Literal["plan", "default", "auto_edit", "autonomous"] | None,
    typer.Option("--mode", help="The permission mode to begin in: how much the agent may do unasked."),
]
Store = Annotated[str | None, typer.Option(metavar="FILE", help="Keep records in this SQLite file.")]
HookFiles = Annotated[list[str] | None, typer.Option(metavar="FILE", help="Hooks to ask; repeatable.")]
MaxTurns = Annotated[int | None, typer.Option(metavar="N", help="Model steps of a turn, at most.")]
MaxCalls = Annotated[
    int | None, typer.Option(metavar="N", help="Model calls of a turn, sub-agents' included, at most.")
]
MaxTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Time at work, people's time not counted: 90s, 5m, 1h.")
]
MaxBudget = Annotated[float | None, typer.Option(metavar="USD", help="US dollars that a turn may cost; see --price.")]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="MODEL=IN,OUT", help="US dollars for a million tokens of a model; repeatable."),
]
GraceCall = Annotated[
    bool, typer.Option("--grace/--no-grace", help="At a limit, one more model call to say where it got to.")
]
LoopDetection = Annotated[
    bool | None, typer.Option("--loop-detection/--no-loop-detection", help="Stop a turn that only repeats itself.")
]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    help="Sessions with agents under host control.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(sessions, name="sessions")
app.add_typer(policy_command, name="policy")


def make_command(args: Sequence[str]) -> Any:  # Any: a click Command, from whichever package typer brings it
    """The command tree, with the commands of other packages that ``args`` could mean."""
    named = next((arg for arg in args if not arg.startswith("-")), None)
    listed = named is None and any(arg in ("-h", "--help") for arg in args)
    for point in importlib.metadata.entry_points(group=_GROUP):
        if named == point.name:
            _add(point)
        elif listed:  # the list of commands is worth more than an error about one of them
            with contextlib.suppress(CommandError):
                _add(point)
    return typer.main.get_command(app)


def _add(point: importlib.metadata.EntryPoint) -> None:
    try:
        found = point.load()
    except Exception as error:
        raise CommandError(
            f"the command {point.name} cannot be loaded: {error}", id="extra-missing", where=point.value
        ) from error
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=point.name)
    else:
        app.command(point.name)(found)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        Out(sys.stdout).text(f"agentsession {_version()} (contract {PROTOCOL_VERSION})\n")
        raise typer.Exit(Exit.COMPLETED)
    if context.invoked_subcommand is None:
        Out(sys.stderr).text(_EXAMPLES)
        raise typer.Exit(Exit.USAGE)


def _version() -> str:
    try:
        return importlib.metadata.version("agent-session-protocol")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="The record on stdout, the rest on stderr.")] = False,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Write the demo's files here, and keep them.")] = None,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Watch a real ADK agent fix a failing test; no key needed."""
    from agentsession.host.cli import _demo

    out, notes = Out(sys.stdout, color=color), Out(sys.stderr, color=color)
    raise typer.Exit(_demo.run_demo(out, notes, as_json=as_json, keep=keep, debug=debug))


@app.command()
def run(
    target: Target,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Run one turn with this and leave; - reads it from stdin.")
    ] = None,
    as_json: Json = False,
    on_ask: Annotated[
        Literal["deny", "pause"], typer.Option("--on-ask", help="Without a terminal: what becomes of a question.")
    ] = "deny",
    model: Model = None,
    tools: Tools = None,
    yes_read_only: YesReadOnly = False,
    allow: Allow = None,
    deny: Deny = None,
    policy: PolicyFiles = None,
    mode: Mode = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with a stored session, or name it.")] = None,
    store: Store = None,
    hooks: HookFiles = None,
    plain: Annotated[bool, typer.Option("--plain", help="No live area: for screen readers and logs.")] = False,
    color: Color = "auto",
    debug: Debug = False,
    max_turns: MaxTurns = None,
    max_calls: MaxCalls = None,
    max_time: MaxTime = None,
    max_budget: MaxBudget = None,
    price: Prices = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="WHEN", help="End by then: 10m from now, or 2026-01-31T12:00:00Z.")
    ] = None,
    grace: GraceCall = True,
    loop_detection: LoopDetection = None,
    fallback: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Use this model when the agent's fails; repeatable.")
    ] = None,
    ask_fallback: Annotated[
        bool, typer.Option("--ask-fallback", help="Ask before a model of --fallback is used.")
    ] = False,
) -> None:
    """Run an agent: at a terminal, once, or for a program."""
    from agentsession.host.cli import _run
    from agentsession.host.cli._limit_options import LimitOptions
    from agentsession.host.cli._setup import RunOptions

    options = RunOptions(
        target=target,
        prompt=prompt,
        as_json=as_json,
        on_ask=on_ask,
        model=model,
        tools=tools,
        yes_read_only=yes_read_only,
        allow=allow or (),
        deny=deny or (),
        policy=policy or (),
        mode=mode,
        session=session,
        store=store,
        hooks=hooks or (),
        plain=plain,
        color=color,
        debug=debug,
        limits=LimitOptions.read(
            max_turns=max_turns,
            max_calls=max_calls,
            max_time=max_time,
            max_budget=max_budget,
            deadline=deadline,
            prices=price or (),
            grace=grace,
            loop_detection=loop_detection,
        ),
        fallback=fallback or (),
        ask_fallback=ask_fallback,
    )
    raise typer.Exit(_run.run(options))


@app.command()
def acp(
    target: Target,
    model: Model = None,
    tools: Tools = None,
    yes_read_only: YesReadOnly = False,
    allow: Allow = None,
    deny: Deny = None,
    policy: PolicyFiles = None,
    mode: Mode = None,
    store: Store = None,
    hooks: HookFiles = None,
    debug: Debug = False,
    max_turns: MaxTurns = None,
    max_calls: MaxCalls = None,
    max_time: MaxTime = None,
    max_budget: MaxBudget = None,
    price: Prices = None,
    grace: GraceCall = True,
    loop_detection: LoopDetection = None,
) -> None:
    """Serve an agent to an editor: ACP over stdin and stdout."""
    from agentsession.host.cli import _acp
    from agentsession.host.cli._limit_options import LimitOptions
    from agentsession.host.cli._setup import RunOptions

    options = RunOptions(
        target=target,
        model=model,
        tools=tools,
        yes_read_only=yes_read_only,
        allow=allow or (),
        deny=deny or (),
        policy=policy or (),
        mode=mode,
        store=store,
        hooks=hooks or (),
        debug=debug,
        limits=LimitOptions.read(
            max_turns=max_turns,
            max_calls=max_calls,
            max_time=max_time,
            max_budget=max_budget,
            prices=price or (),
            grace=grace,
            loop_detection=loop_detection,
        ),
    )
    raise typer.Exit(_acp.run_acp(options))


@app.command()
def serve(
    target: Target,
    address: Annotated[str, typer.Option("--host", help="The address to listen at; beyond loopback users log in.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8000,
    agui: Annotated[bool, typer.Option("--agui", help="Also serve AG-UI, at /agui/AGENT.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Also serve the page to watch and steer sessions, at /.")] = False,
    bare: Annotated[bool, typer.Option("--bare", help="The client is the host: no policy and no tools here.")] = False,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Who may connect: a line USER TOKEN for each; AGENTSESSION_TOKEN is for one."
        ),
    ] = None,
    auth: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="A verifier of your own: async verify(request).")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that this server goes by; repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A site whose pages may call it; repeatable.")
    ] = None,
    on_disconnect: Annotated[
        Literal["cancel", "carry-on"], typer.Option(help="What becomes of an AG-UI run whose client has gone.")
    ] = "cancel",
    model: Model = None,
    tools: Tools = None,
    yes_read_only: YesReadOnly = False,
    allow: Allow = None,
    deny: Deny = None,
    policy: PolicyFiles = None,
    store: Store = None,
    hooks: HookFiles = None,
    color: Color = "auto",
    debug: Debug = False,
    max_turns: MaxTurns = None,
    max_calls: MaxCalls = None,
    max_time: MaxTime = None,
) -> None:
    """Serve an agent over HTTP, AG-UI, and with a page to watch and steer it."""
    from agentsession.host.cli import _serve
    from agentsession.host.cli._limit_options import LimitOptions
    from agentsession.host.cli._setup import RunOptions

    run_options = RunOptions(
        target=target,
        model=model,
        tools=tools,
        yes_read_only=yes_read_only,
        allow=allow or (),
        deny=deny or (),
        policy=policy or (),
        store=store,
        hooks=hooks or (),
        color=color,
        debug=debug,
        limits=LimitOptions.read(max_turns=max_turns, max_calls=max_calls, max_time=max_time),
    )
    options = _serve.ServeOptions(
        run=run_options,
        address=address,
        port=port,
        agui=agui,
        ui=ui,
        bare=bare,
        tokens=tokens,
        auth=auth,
        allowed_hosts=allow_host or (),
        allowed_origins=allow_origin or (),
        on_disconnect="carry_on" if on_disconnect == "carry-on" else "cancel",
    )
    raise typer.Exit(_serve.serve(options))


@app.command()
def inspect(target: Target, as_json: Json = False, color: Color = "auto", debug: Debug = False) -> None:
    """Show what an agent is: its tools, sub-agents and capabilities."""
    from agentsession.host.cli import _inspect

    _inspect.inspect(Out(sys.stdout, color=color), target, as_json=as_json)


@app.command()
def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Recorded NDJSON; - is standard input.")],
    as_json: Json = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report lines that are no event, and go on.")] = False,
    no_rules: Annotated[bool, typer.Option("--no-rules", help="Do not check the order of events.")] = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Show a recorded session, checked against the contract."""
    from agentsession.host.cli import _replay

    out, notes = Out(sys.stdout, color=color), Out(sys.stderr, color=color)
    raise typer.Exit(_replay.replay(out, notes, file, as_json=as_json, skip_bad=skip_bad, check_rules=not no_rules))


@app.command()
def report(
    source: Annotated[str, typer.Argument(metavar="FILE|SESSION", help="Recorded NDJSON, or with --store a session.")],
    store: Annotated[str | None, typer.Option(metavar="FILE", help="The SQLite file that holds the session.")] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Of a file with several sessions, this one.")
    ] = None,
    turn: Annotated[int | None, typer.Option(metavar="N", help="This turn alone, whole.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="The page; - is stdout.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that are no event.")] = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Make one HTML page of a record: where the time went, every call, tokens and cost."""
    from agentsession.host.cli import _report

    out, notes = Out(sys.stdout, color=color), Out(sys.stderr, color=color)
    asked = _report.Asked(source, store=store, session=session, turn=turn, output=output, skip_bad=skip_bad)
    raise typer.Exit(_report.report(out, notes, asked))


@app.command()
def schema(
    part: Annotated[Literal["event", "descriptor", "input", "all"], typer.Argument(help="Which root.")] = "all",
) -> None:
    """Print the JSON Schema of the wire (draft 2020-12)."""
    from agentsession.host.cli import _reference

    _reference.schema(Out(sys.stdout), part)


@app.command()
def rules(as_json: Json = False, color: Color = "auto") -> None:
    """List the rules of the contract."""
    from agentsession.host.cli import _reference

    _reference.rules(Out(sys.stdout, color=color), as_json=as_json)


@app.command()
def explain(
    wanted: Annotated[str | None, typer.Argument(metavar="ID", help="A rule id or an error id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The reference page of all errors, in Markdown.")] = False,
    color: Color = "auto",
) -> None:
    """Say what a rule or an error means, and what to do."""
    from agentsession.host.cli import _reference

    _reference.explain(Out(sys.stdout, color=color), wanted, everything=everything)


hooks_app = typer.Typer(help="Look at hooks, try them, and agree to those of a workspace.")
app.add_typer(hooks_app, name="hooks")

HooksFile = Annotated[str, typer.Argument(metavar="FILE", help="A file of hooks, such as hooks.toml.")]
Workspace = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The workspace; its hooks are .agentsession/hooks.toml.")
]


@hooks_app.command("check")
def hooks_check(file: HooksFile, color: Color = "auto", debug: Debug = False) -> None:
    """List the hooks of a file in the order in which they are asked; nothing runs."""
    from agentsession.host.cli import _hooks

    _hooks.check(Out(sys.stdout, color=color), file)


@hooks_app.command("try")
def hooks_try(
    file: HooksFile,
    point: Annotated[str, typer.Argument(metavar="POINT", help="Such as before_tool.")],
    payload: Annotated[str, typer.Option(metavar="JSON", help="What the hooks are told; the rest is made up.")] = "{}",
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Ask the hooks of a file once, for real, and show what each of them says."""
    from agentsession.host.cli import _hooks
    from agentsession.host.cli._run import quiet_libraries

    quiet_libraries(debug=debug)
    raise typer.Exit(_hooks.attempt(Out(sys.stdout, color=color), file, point, payload, as_json=as_json))


@hooks_app.command("trust")
def hooks_trust(folder: Workspace = ".", color: Color = "auto", debug: Debug = False) -> None:
    """Agree to the hooks of a workspace as they are now; a change of them asks again."""
    from agentsession.host.cli import _hooks

    _hooks.trust(Out(sys.stdout, color=color), folder)


@hooks_app.command("untrust")
def hooks_untrust(folder: Workspace = ".", color: Color = "auto", debug: Debug = False) -> None:
    """Agree to the hooks of a workspace no longer."""
    from agentsession.host.cli import _hooks

    _hooks.untrust(Out(sys.stdout, color=color), folder)
