"""Which process holds a lock, and whether it still lives. Not for: anything else. May import: the standard library.

A process is a number and a start mark, because numbers are used again. On Linux the mark is the boot's id and the start
in ticks since boot; elsewhere it is empty and the number alone decides, on the safe side: a lock may stay too long,
never too short.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from pathlib import Path
from typing import Any

__all__ = ["ProcessMark", "is_gone", "this_process"]


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process on a machine."""

    host: str
    pid: int
    start: str
    """What tells it from an earlier or later process with the same number; empty where the system does not say."""


def this_process() -> ProcessMark:
    """The mark of the process that asks."""
    return ProcessMark(socket.gethostname(), os.getpid(), _start(os.getpid()))


def is_gone(mark: ProcessMark) -> bool:
    """Whether the process has certainly ended. One on another machine never certainly has."""
    if mark.host != socket.gethostname():
        return False
    if not _is_running(mark.pid):
        return True
    start = _start(mark.pid)
    return bool(mark.start and start and mark.start != start)


def _start(pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The name in parentheses may hold spaces and parentheses itself: fields are counted after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return f"{boot}:{fields[19]}"
    except (OSError, IndexError):
        return ""


def _is_running(pid: int) -> bool:
    if pid <= 0:
        return False
    if sys.platform == "win32":
        return _is_running_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and belongs to another user
        return True
    return True


def _is_running_on_windows(pid: int) -> bool:
    # os.kill(pid, 0) would end the process there.
    import ctypes

    kernel: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - the attribute is on Windows alone
    handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return bool(kernel.GetLastError() == 5)  # access denied: it is there
    try:
        code = ctypes.c_ulong()
        return bool(kernel.GetExitCodeProcess(handle, ctypes.byref(code))) and code.value == 259  # STILL_ACTIVE
    finally:
        kernel.CloseHandle(handle)
