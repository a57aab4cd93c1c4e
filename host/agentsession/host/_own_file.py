"""Files of the user's that let something run: not read where others may write them, written whole or not at all.

Not for: what stands in them. Rules carried: none of the contract's. May import: the standard library.

A change is written beside the file, flushed to the disk and put in its place in one step, with a lock beside it held:
a crash leaves the old or the new one, and of two writers none is lost.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["NotOwn", "change_own_file", "read_own_file"]


class NotOwn(PermissionError):
    """Others may write the file, so what stands in it is theirs."""

    def __init__(self, path: Path, found: os.stat_result) -> None:
        super().__init__(f"{path} can be changed by others")
        self.strerror = "it can be changed by others"
        self.mode = f"mode {stat.S_IMODE(found.st_mode):04o}"


def read_own_file(path: Path, *, largest: int) -> bytes | None:
    """What stands in it; ``None`` if there is no such file. Raises :class:`OSError` (:class:`NotOwn`), and
    :class:`ValueError` for a path with a NUL."""
    try:
        with path.open("rb") as handle:
            found = os.fstat(handle.fileno())
            is_lax = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if sys.platform != "win32" and (is_lax or found.st_uid not in (0, os.geteuid())):
                raise NotOwn(path, found)
            return handle.read(largest)
    except FileNotFoundError:
        return None


def change_own_file(path: Path, change: Callable[[], bytes]) -> None:
    """Let ``change`` read the file and say what shall stand in it, with other processes kept out meanwhile.

    Raises :class:`OSError`, and what ``change`` raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(path):
        _write(path, change())


def _write(path: Path, raw: bytes) -> None:
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    if sys.platform != "win32":  # the folder's entry, too, must survive a crash of the machine
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock beside the file. Where the system has none, the last of two writers wins."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
