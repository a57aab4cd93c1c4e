"""What a workspace brings along and a person has agreed to: hooks and policies of strangers, bound to their very bytes.

Not for: reading them (``hooks/_consent.py``, ``policy/_workspace.py``). Rules carried: none of the contract's.
May import: ``_own_file``, ``protocol``.

The record of it lies with the user, outside of the workspace. Where it cannot be read, or others may write it, nobody
has agreed to anything.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Final

from agentsession.host._own_file import NotOwn, change_own_file, read_own_file
from agentsession.protocol import AgentSessionError, parse_json

__all__ = ["Consent", "is_there"]

logger = logging.getLogger("agentsession.host")

_LARGEST: Final = 4 * 1024 * 1024


class Consent:
    """Which files of workspaces a person has agreed to, as they were then.

    ``path``: where that is kept, by default ``default_name`` in the user's folder of configuration (``agentsession`` in
    ``XDG_CONFIG_HOME``, or in ``~/.config``).
    """

    default_name = "trusted.json"

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else _config_folder() / self.default_name

    def allows(self, file: Path, digest: str) -> bool:
        """Whether a person has agreed to this file as it is."""
        return self._read().get(_key(file)) == digest

    def knows(self, file: Path) -> bool:
        """Whether a person has agreed to this file, perhaps as it was before."""
        return _key(file) in self._read()

    def give(self, file: Path, digest: str) -> None:
        """A person agrees to a file of this digest. Raises :class:`OSError`."""
        change_own_file(self.path, lambda: _dump({**self._read_own(), _key(file): digest}))

    def revoke(self, file: Path) -> bool:
        """A person agrees no longer; whether one had. Raises :class:`OSError`."""
        if not self.knows(file):
            return False
        change_own_file(self.path, lambda: _dump({k: v for k, v in self._read_own().items() if k != _key(file)}))
        return True

    def _read(self) -> dict[str, str]:
        try:
            return self._read_own()
        except NotOwn:
            logger.warning("%s can be changed by others, so nobody has agreed to anything", self.path)
        except (OSError, ValueError):
            pass
        return {}

    def _read_own(self) -> dict[str, str]:
        raw = read_own_file(self.path, largest=_LARGEST)
        try:
            found = parse_json(raw) if raw is not None else None
        except AgentSessionError:
            return {}
        files = found.get("files") if isinstance(found, dict) and found.get("v") == 1 else None
        return {key: item for key, item in files.items() if isinstance(item, str)} if isinstance(files, dict) else {}


def is_there(file: Path) -> bool:
    """Whether a workspace brings this file along. One that cannot be looked at is there: reading it says why not."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _dump(files: dict[str, str]) -> bytes:
    return json.dumps({"v": 1, "files": files}, indent=1, sort_keys=True).encode() + b"\n"


def _key(file: Path) -> str:
    return os.path.abspath(file)  # as Path.absolute(), and without "..": trust given from a folder below it holds


def _config_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / "agentsession"
