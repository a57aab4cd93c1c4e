"""Ids and state that ADK's services can keep: what they could not is refused before anything is made of it.

Not for: ids that no store takes (``agentsession.protocol.check_id`` refuses those first). Rules carried: CTL-07.
May import: ``agentsession.protocol``, google.adk.

One service of ADK makes keys of database columns from ids, another names of folders, a third parts of one flat key.
A session must not find that out with its first file: so an id that one of them would refuse is refused for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from google.adk.sessions.state import State

from agentsession.protocol import InvalidInput, RecordKey

__all__ = ["check_adk_ids", "wrong_state"]

_COLUMN: Final = 128
"""Characters that the key columns of ADK's DatabaseSessionService hold."""

_NAME_BYTES: Final = 255
"""Bytes that a file's name may have on the usual file systems."""

_DRIVE: Final = re.compile(r"[A-Za-z]:")
"""What ADK's artifact services take for a drive of Windows."""

_INTERNAL: Final = "_adk"
"""State under such keys is ADK's own."""

_SCOPES: Final = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)


def check_adk_ids(key: RecordKey) -> None:
    """Raise :class:`InvalidInput` for ids that a session or artifact service of ADK could not keep."""
    for value, what in ((key.user_id, "user id"), (key.session_id, "session id")):
        bad = None
        if len(value) > _COLUMN or len(value.encode()) > _NAME_BYTES:
            bad = f"ADK's services keep ids of at most {_COLUMN} characters and {_NAME_BYTES} bytes"
        elif _DRIVE.match(value):
            bad = "ADK's artifact services take a letter and a colon for a drive"
        elif what == "session id" and value == "user":
            bad = "ADK's artifact services keep what the user's sessions share under this name"
        if bad:
            raise InvalidInput(
                f"this {what} cannot be used: {bad}", got=ascii(value[:40]), fix=f"choose another {what}"
            )


def wrong_state(keys: Iterable[str]) -> str | None:
    """Why the host cannot set state under these keys, or ``None``."""
    for key in keys:
        if key.startswith(_INTERNAL):
            return f"state under {key[:40]!a} is ADK's own"
        if not key or key in _SCOPES:
            return f"the state key {key!a} has no name"
    return None
