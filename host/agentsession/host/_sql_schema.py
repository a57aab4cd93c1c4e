"""The tables of the SQL record store, and how those of earlier versions are brought up to date.

Not for: reading and writing records (``_sql.py``). Rules carried: PER-01. May import: sqlalchemy (here, in ``_sql.py``
and in ``_sqlite.py`` only), ``protocol``.

Version 1 kept the seq of a record's last event a second time. Version 3 added what a list of sessions shows, and
snapshots. Nothing that is added may be trusted over the events: it is made from them, here and at each append.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from agentsession.protocol import (
    RESPONSE_TYPES,
    SUMMARY_TYPES,
    ConfigurationError,
    RecordSummary,
    SchemaError,
    UnsupportedVersion,
    parse_event,
)

try:
    import sqlalchemy as sa
except ImportError as error:  # the one place that says how to get it
    raise ConfigurationError(
        "SQLAlchemy is not installed",
        where="the SQL record store",
        fix='pip install "agent-session-protocol[sqlite]"',
        id="extra-missing",
    ) from error

__all__ = [
    "ANSWERED",
    "EVENTS",
    "LAST",
    "LOCKS",
    "METADATA",
    "RECORDS",
    "SCHEMA_VERSION",
    "SNAPSHOTS",
    "UNCOUNTED",
    "now_text",
    "set_version",
    "summary_of",
    "summary_values",
]

SCHEMA_VERSION: Final = 3
"""The version of the tables. Earlier ones are brought up to it; a later one is refused, not guessed at."""

METADATA: Final = sa.MetaData()

META = sa.Table(
    "agentsession_meta",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
)
RECORDS = sa.Table(
    "agentsession_records",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("agent", sa.String(256), nullable=False),
    sa.Column("user_id", sa.String(256), nullable=False),
    sa.Column("session_id", sa.String(256), nullable=False),
    sa.Column("reserved_seq", sa.BigInteger, nullable=False, default=0),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("updated_at", sa.String(32)),
    sa.Column("title", sa.Text),
    sa.Column("state", sa.String(32)),
    sa.Column("pending", sa.Integer),
    sa.Column("turns", sa.Integer),
    sa.Column("last_turn", sa.Text),
    sa.Column("counted", sa.BigInteger),  # how many events there are up to the one with seq counted_seq
    sa.Column("counted_seq", sa.BigInteger),
    sa.UniqueConstraint("agent", "user_id", "session_id"),
    sqlite_autoincrement=True,  # a deleted record's number is not used again: newest first stays true
)
EVENTS = sa.Table(
    "agentsession_events",
    METADATA,
    sa.Column("record", sa.Integer, sa.ForeignKey(RECORDS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_id", sa.String(512), nullable=False),
    sa.Column("type", sa.String(512), nullable=False),
    sa.Column("json", sa.Text, nullable=False),
    sa.UniqueConstraint("record", "event_id"),
)
LOCKS = sa.Table(
    "agentsession_locks",
    METADATA,
    sa.Column("record", sa.Integer, sa.ForeignKey(RECORDS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("owner", sa.String(512), nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("start", sa.String(128), nullable=False),
    sa.Column("since", sa.String(32), nullable=False),
)
SNAPSHOTS = sa.Table(
    "agentsession_snapshots",
    METADATA,
    sa.Column("record", sa.Integer, sa.ForeignKey(RECORDS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("after_seq", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)

LAST: Final = (
    sa.select(sa.func.coalesce(sa.func.max(EVENTS.c.seq), 0))
    .where(EVENTS.c.record == RECORDS.c.id)
    .scalar_subquery()
    .label("last_seq")
)
"""The seq of a record's last event, by the primary key: kept nowhere else, so that an append writes it nowhere else."""

_SINCE: Final = (EVENTS.c.record == RECORDS.c.id) & (EVENTS.c.seq > sa.func.coalesce(RECORDS.c.counted_seq, 0))
UNCOUNTED: Final = sa.select(sa.func.count()).select_from(EVENTS).where(_SINCE).scalar_subquery().label("uncounted")
"""How many events came after those that were counted: those of the stream that runs, mostly."""
ANSWERED: Final = (
    sa.select(sa.func.count())
    .select_from(EVENTS)
    .where(_SINCE & EVENTS.c.type.in_(RESPONSE_TYPES))
    .scalar_subquery()
    .label("answered")
)
"""How many of them are responses."""

_ADDED: Final = ("updated_at", "title", "state", "pending", "turns", "last_turn", "counted", "counted_seq")
"""The columns that version 3 added to the records."""


def set_version(connection: sa.Connection, where: str) -> None:
    """Write the version into new tables, bring those of an earlier one up to it, refuse a later one.

    Raises :class:`UnsupportedVersion`.
    """
    found = connection.scalar(sa.select(META.c.value).where(META.c.name == "schema_version"))
    if found is None:
        connection.execute(META.insert().values(name="schema_version", value=str(SCHEMA_VERSION)))
        return
    if found == str(SCHEMA_VERSION):
        return
    if found not in ("1", "2"):
        raise UnsupportedVersion(
            "the record database has another version",
            where=where,
            got=f"version {found}",
            expected=f"version {SCHEMA_VERSION}",
            fix="use the release of agent-session-protocol that made it, or name another file",
        )
    if found == "1":
        connection.execute(sa.text("ALTER TABLE agentsession_records DROP COLUMN last_seq"))
    for name in _ADDED:
        kind = RECORDS.c[name].type.compile(dialect=connection.dialect)
        connection.execute(sa.text(f"ALTER TABLE agentsession_records ADD COLUMN {name} {kind}"))
    _summarise(connection)
    connection.execute(META.update().where(META.c.name == "schema_version").values(value=str(SCHEMA_VERSION)))


def _summarise(connection: sa.Connection) -> None:
    """Fill the columns of every record from its events."""
    query = sa.select(EVENTS.c.seq, EVENTS.c.json).where(EVENTS.c.type.in_(SUMMARY_TYPES)).order_by(EVENTS.c.seq)
    for record, created_at in connection.execute(sa.select(RECORDS.c.id, RECORDS.c.created_at)).all():
        summary, seq, updated_at = RecordSummary(), 0, created_at
        for row in connection.execute(query.where(EVENTS.c.record == record)):
            try:
                event = parse_event(row.json)
            except SchemaError:  # told to whoever reads it; the other sessions must open
                continue
            summary.note(event)
            seq, updated_at = row.seq, event.timestamp
        counted = connection.scalar(
            sa.select(sa.func.count()).select_from(EVENTS).where(EVENTS.c.record == record, EVENTS.c.seq <= seq)
        )
        values = summary_values(summary) | {"counted": counted, "counted_seq": seq, "updated_at": updated_at[:32]}
        connection.execute(RECORDS.update().where(RECORDS.c.id == record).values(values))


def summary_of(row: Any) -> RecordSummary:
    """The summary that a record's row holds."""
    return RecordSummary(row.title, row.turns or 0, row.last_turn, row.state or "new", row.pending or 0)


def summary_values(summary: RecordSummary) -> dict[str, Any]:
    """The columns that hold ``summary``."""
    return {
        "title": summary.title,
        "turns": summary.turns,
        "last_turn": summary.last_turn,
        "state": summary.state,
        "pending": summary.pending,
    }


def now_text() -> str:
    """This moment, as the tables hold it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
