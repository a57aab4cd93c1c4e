"""Retention: deleting records that nobody has used for a while.

Not for: deciding how long that is. Rules carried: PER-01. May import: ``agentsession.protocol``, ``_delete``,
``_find``.

A record that a process holds is never deleted, and one that waits for a person only where it is said after how long
nobody will answer any more. A record whose age is not known stays. That of a sub-agent goes with its caller's and not
before: a caller that goes on after a crash would do its work again.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from agentsession.host.records._delete import Delete, Family, delete_below
from agentsession.host.records._find import all_records
from agentsession.protocol import InvalidInput, RecordInfo, RecordStore, SessionBusy, SessionNotFound

__all__ = ["prune_records"]


async def prune_records(
    store: RecordStore,
    *,
    older_than: timedelta,
    waiting_older_than: timedelta | None = None,
    keep_last: int = 0,
    agent: str | None = None,
    user_id: str | None = None,
    now: datetime | None = None,
    delete: Delete | None = None,
    dry_run: bool = False,
) -> list[RecordInfo]:
    """Delete the records that were last changed longer ago than ``older_than``; those that were deleted.

    ``waiting_older_than``: those that wait for a person, too, after that time; else they all stay. ``keep_last``: so
    many of each user with each agent stay, the newest. ``agent``: of this one alone, with the sub-agents of its
    sessions. ``now``: the moment to count from, the present when absent. ``delete`` is called instead of
    ``store.delete`` (see :func:`delete_record`). ``dry_run``: nothing is deleted.

    The store must be a ``RecordCatalog``: raises :class:`ConfigurationError`.
    """
    if keep_last < 0 or older_than < timedelta(0) or (waiting_older_than or timedelta(0)) < timedelta(0):
        raise InvalidInput("ages and counts are not negative", fix="pass timedelta(days=…), and a count from 0")
    moment = now or datetime.now(UTC)
    infos = [info async for info in all_records(store, user_id=user_id)]
    family = Family(infos)
    kept: Counter[tuple[str, str]] = Counter()
    due: list[RecordInfo] = []
    for info in infos:
        if family.has_caller(info.key) or agent not in (None, info.key.agent):
            continue
        whose = (info.key.agent, info.key.user_id)
        kept[whose] += 1
        if kept[whose] > keep_last and _is_due(info, moment, older_than, waiting_older_than):
            due.append(info)
    gone: list[RecordInfo] = []
    for info in due:
        if dry_run:
            gone += [info, *family.below(info.key)]
        elif await _delete(store, info, delete or store.delete):
            gone += [info, *await delete_below(store, family.below(info.key), delete)]
    return gone


def _is_due(info: RecordInfo, now: datetime, older_than: timedelta, waiting_older_than: timedelta | None) -> bool:
    waits = info.state in ("input_required", None) or bool(info.pending)
    limit = waiting_older_than if waits else older_than
    changed = _moment(info.updated_at or info.created_at)
    return limit is not None and changed is not None and now - changed > max(limit, older_than)


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def _delete(store: RecordStore, listed: RecordInfo, delete: Delete) -> bool:
    try:
        # Somebody may have used it since it was listed.
        if await store.info(listed.key) != listed:
            return False
        await delete(listed.key)
    except (SessionBusy, SessionNotFound):
        return False
    return True
