"""Where whole tool outputs are kept that the model is shown only a part of: files under names that stay the same.

Not for: deciding what is shown (``_output_view.py``). Rules carried: none of its own.
May import: the standard library.

A name is told only once the file is on disk.

A name holds the request's id and a digest of the text, and the folder is that of the session. So the same output has
the same name after a restart and after a rewind, saving it twice changes nothing, and a process that is killed between
saving and telling leaves a whole file, or one whose name begins with a dot and is never read.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

__all__ = ["OutputFiles"]

logger = logging.getLogger("agentsession.host")

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,48}\.[0-9a-f]{16}\.txt")
_SHORT: Final = 40


class OutputFiles:
    """Whole outputs in a directory, a folder for each session. Usable from any thread.

    The folders are readable by this user alone. Nothing is deleted but by :meth:`forget`.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._saved: set[Path] = set()

    def name_of(self, request_id: str, text: str) -> str:
        """The name that an output has, saved or not."""
        return f"{_safe(request_id)}.{_digest(text)}.txt"

    def save(self, user_id: str, session_id: str, request_id: str, text: str) -> str | None:
        """Keep an output; its name once it is on disk, or ``None`` where it could not be kept."""
        name = self.name_of(request_id, text)
        path = self._folder(user_id, session_id) / name
        if path in self._saved and path.is_file():  # somebody may have cleaned up meanwhile
            return name
        try:
            self._write(path, text.encode("utf-8", "replace"))
        except OSError as error:
            logger.warning("a tool's output could not be saved in %s: %s", path.parent, error.strerror or error)
            return None
        self._saved.add(path)
        return name

    def read(self, user_id: str, session_id: str, name: str) -> str | None:
        """A whole output of this session; ``None``: it has none of this name."""
        if _NAME.fullmatch(name) is None:
            return None
        path = self._folder(user_id, session_id) / name
        try:
            if path.is_symlink():
                return None
            return path.read_bytes().decode("utf-8", "replace")
        except OSError:
            return None

    def forget(self, user_id: str, session_id: str) -> None:
        """Delete what is kept of a session, such as when its record is deleted."""
        folder = self._folder(user_id, session_id)
        self._saved = {path for path in self._saved if path.parent != folder}
        shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, user_id: str, session_id: str) -> Path:
        return self.directory / f"{_safe(session_id)}.{_digest(chr(0).join((user_id, session_id)))}"

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size == len(data):
            return  # its name is that of its content, and it was whole when it got the name
        half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(half, path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the name last as well. Not every system can."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        logger.debug("the folder %s cannot be synced", folder)
    finally:
        os.close(opened)


def _safe(text: str) -> str:
    """An id as part of a file's name; one that had to be changed is told from others by a digest."""
    plain = _UNSAFE.sub("-", text)[:_SHORT]
    return plain if plain == text and plain else f"{plain[: _SHORT - 9]}-{_digest(text)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
