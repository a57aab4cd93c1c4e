"""The commands ``agentsession sessions …`` and their options; the work is in ``_sessions.py``.

Not for: doing the work. May import: typer, and inside each command what it needs.
"""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

import typer

from agentsession.host.cli._out import Out
from agentsession.host.cli._paint import ColorChoice

__all__ = ["sessions"]

sessions = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Stored sessions: list, show, follow, export, import, delete, prune.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Store: TypeAlias = Annotated[str, typer.Option("--store", metavar="FILE", help="The SQLite file of the records.")]
Session: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]
Agent: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this agent.")]
User: TypeAlias = Annotated[str | None, typer.Option(metavar="ID", help="Only of this user.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")]
Color: TypeAlias = Annotated[ColorChoice, typer.Option(help="Colour: auto asks the terminal, NO_COLOR and TERM.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@sessions.command("list")
def list_(
    store: Store,
    agent: Agent = None,
    user: User = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The newest so many.")] = 50,
    sub_agents: Annotated[bool, typer.Option("--sub-agents", help="Also those that sub-agents had.")] = False,
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """List stored sessions, newest first: title, state, counts."""
    from agentsession.host.cli import _sessions

    _sessions.list_sessions(
        Out(sys.stdout, color=color),
        Out(sys.stderr, color=color),
        store,
        agent=agent,
        user=user,
        limit=limit,
        sub_agents=sub_agents,
        as_json=as_json,
    )


@sessions.command()
def show(
    session: Session,
    store: Store,
    agent: Agent = None,
    user: User = None,
    last: Annotated[int, typer.Option(min=0, metavar="N", help="The last so many events.")] = 20,
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Show a session: what it is, and its last events."""
    from agentsession.host.cli import _sessions

    _sessions.show(Out(sys.stdout, color=color), store, session, agent=agent, user=user, last=last, as_json=as_json)


@sessions.command()
def follow(
    session: Session,
    store: Store,
    agent: Agent = None,
    user: User = None,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="From behind this event; 0 shows all. Else only new ones.")
    ] = None,
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Show what another process records, as it comes; Ctrl-C leaves."""
    from agentsession.host.cli import _sessions

    _sessions.follow(Out(sys.stdout, color=color), store, session, agent=agent, user=user, after=after, as_json=as_json)


@sessions.command()
def export(
    session: Session,
    store: Store,
    agent: Agent = None,
    user: User = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write here; - is standard output.")] = "-",
    redact: Annotated[bool, typer.Option("--redact", help="Without secrets, for other eyes.")] = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Write a session as NDJSON, which replay and import read."""
    from agentsession.host.cli import _sessions

    _sessions.export(
        Out(sys.stdout, color="never"),
        Out(sys.stderr, color=color),
        store,
        session,
        agent=agent,
        user=user,
        to=out,
        redact=redact,
    )


@sessions.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Exported NDJSON; - is standard input.")],
    store: Store,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Under this id instead of its own.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="For this agent instead of its own.")] = None,
    user: Annotated[str, typer.Option(metavar="ID", help="For this user.")] = "local",
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Store an exported session; what waited in it is settled."""
    from agentsession.host.cli import _sessions

    _sessions.import_(
        Out(sys.stdout, color=color), store, file, session=session, agent=agent, user=user, as_json=as_json
    )


@sessions.command()
def delete(
    session: Session,
    store: Store,
    agent: Agent = None,
    user: User = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Delete a session's record, all of it."""
    from agentsession.host.cli import _sessions

    _sessions.delete(Out(sys.stdout, color=color), store, session, agent=agent, user=user, yes=yes)


@sessions.command()
def prune(
    store: Store,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Last changed before this: 30d, 12h, 45m.")],
    waiting_older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Those that wait for a person, too, after this; else they stay.")
    ] = None,
    keep_last: Annotated[int, typer.Option(min=0, metavar="N", help="Of each user, so many stay in any case.")] = 0,
    agent: Agent = None,
    user: User = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    as_json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
) -> None:
    """Delete sessions that nobody has used for a while."""
    from agentsession.host.cli import _sessions

    _sessions.prune(
        Out(sys.stdout, color=color),
        store,
        older_than=older_than,
        waiting_older_than=waiting_older_than,
        keep_last=keep_last,
        agent=agent,
        user=user,
        dry_run=dry_run,
        as_json=as_json,
    )
