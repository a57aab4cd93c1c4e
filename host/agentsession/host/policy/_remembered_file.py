"""The file of a user's remembered answers: read strictly, written whole or not at all.

Not for: which answer holds (``_remembered.py``). Rules carried: SEC-01 (no arguments, only their digest).
May import: pydantic, ``_own_file``, ``protocol``.

The file is JSON with mode 0600. Where others may write it, it is refused: a line in it lets a tool run unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsession.host._own_file import NotOwn, change_own_file, read_own_file
from agentsession.protocol import ConfigurationError

__all__ = ["RememberedAnswer", "change_file", "read_file", "stamp_of"]

_LARGEST: Final = 16 * 1024 * 1024


class RememberedAnswer(BaseModel):
    """One yes that holds for more than a call."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """In the record, what it settled was decided by ``remembered:ID``."""
    scope: Literal["session", "always"]
    tool: str
    """``provider:name``."""
    owner: str
    narrowing: str
    """What narrows the rule that asked."""
    digest: str | None
    """Of the arguments, where it holds for these alone."""
    permission_mode: str
    """It holds in this mode and looser ones."""
    principal_path: Annotated[tuple[str, ...], Field(strict=False)]
    """It holds for this agent and those below it."""
    user_id: str | None
    session_id: str | None
    """For the scope ``session``."""
    workspace: str | None
    """The folder that it holds in, for the scope ``always``."""
    words: str
    """For people: what it allows."""
    at: str
    """When it was given, RFC 3339."""


class _File(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    answers: list[RememberedAnswer]


def stamp_of(path: Path) -> object:
    """Changes when the file does; ``None`` if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def read_file(path: Path) -> tuple[RememberedAnswer, ...]:
    """The answers; none if there is no file. Raises :class:`ConfigurationError` with the id ``remembered-file``."""
    try:
        raw = read_own_file(path, largest=_LARGEST)
    except NotOwn as error:
        raise _error(path, "can be changed by others", error.mode, f"chmod 600 {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _error(path, "cannot be read", error.strerror if isinstance(error, OSError) else str(error)) from error
    if raw is None:
        return ()
    try:
        return tuple(_File.model_validate_json(raw).answers)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        steps = "/".join(str(step) for step in first["loc"])
        raise _error(path, "is not understood", f"{steps}: {first['msg']}" if steps else first["msg"]) from None


def change_file(path: Path, change: Callable[[list[RememberedAnswer]], list[RememberedAnswer]]) -> None:
    """Read, change and write, with other processes kept out meanwhile. Raises :class:`ConfigurationError`."""

    def changed() -> bytes:
        content = _File(version=1, answers=change(list(read_file(path))))
        return content.model_dump_json(indent=1).encode() + b"\n"

    try:
        change_own_file(path, changed)
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) else str(error)
        raise _error(path, "cannot be written", got) from error


def _error(path: Path, what: str, got: str | None, fix: str | None = None) -> ConfigurationError:
    return ConfigurationError(
        f"the file of remembered answers {what}",
        id="remembered-file",
        where=str(path),
        got=got,
        fix=fix or "mend it or move it away; then everything is asked again",
    )
