"""Running a hook's program, bounded in time and output; when this returns, it and what it started are gone.

Not for: what is said to it or by it (``_command.py``). Rules carried: none of its own. May import: anyio, ``_entries``.

The program gets a session, and so a process group, of its own. It is ended by its group: TERM, two seconds, KILL, and
its exit is awaited, also when the caller is cancelled. What it leaves behind in the group when it exits is killed too:
a child that holds its output would else hold the hook. Only what makes another session of its own can stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from agentsession.host.hooks._entries import HookFailed

__all__ = ["MOST_OUTPUT", "Ran", "run_program"]

MOST_OUTPUT: Final = 1024 * 1024
"""Bytes that a program may write to its output."""
_MOST_ERRORS: Final = 16 * 1024
"""Bytes of its last errors that are kept."""
_GRACE_S: Final = 2.0
_GONE_S: Final = 1.0
"""How long what was killed may take to be gone: nobody but the system waits for the children of a child."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended by itself."""

    code: int
    """Negative: ended by that signal."""
    output: bytes
    errors: bytes
    """The last of what it wrote there."""


async def run_program(
    command: Sequence[str], told: bytes, *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> Ran:
    """Run a program, write ``told`` to it and read what it says.

    Raises :class:`HookFailed` when it cannot be started, takes longer than ``timeout_s``, or says too much.
    """
    process = await _start(command, env, cwd)
    output, errors = bytearray(), bytearray()
    too_much = False
    code: int | None = None
    try:
        with anyio.move_on_after(timeout_s):
            async with anyio.create_task_group() as tasks:

                async def read_output() -> None:
                    nonlocal too_much
                    async for chunk in _chunks(process.stdout):
                        output.extend(chunk)
                        if len(output) > MOST_OUTPUT:
                            too_much = True
                            tasks.cancel_scope.cancel()

                async def read_errors() -> None:
                    async for chunk in _chunks(process.stderr):
                        errors.extend(chunk)
                        del errors[:-_MOST_ERRORS]

                tasks.start_soon(read_output)
                tasks.start_soon(read_errors)
                tasks.start_soon(_write, process.stdin, told)
                await process.wait()
                code = process.returncode
                _signal_group(process, kill=True)  # then the readers come to an end
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if too_much:
        raise HookFailed(f"wrote more than {MOST_OUTPUT} bytes")
    if code is None:
        raise HookFailed(f"took longer than {timeout_s:g} s")
    return Ran(code, bytes(output), bytes(errors))


async def _start(command: Sequence[str], env: Mapping[str, str], cwd: str) -> anyio.abc.Process:
    # Shielded: a program that was started while its caller is cancelled would have nobody to end it.
    started: anyio.abc.Process | None = None
    with anyio.CancelScope(shield=True):
        try:
            started = await anyio.open_process(
                list(command), env=dict(env), cwd=cwd, start_new_session=sys.platform != "win32"
            )
        except (OSError, ValueError) as error:
            raise HookFailed(f"could not be started: {type(error).__name__}") from None
    assert started is not None
    return started


async def _chunks(stream: anyio.abc.ByteReceiveStream | None) -> AsyncGenerator[bytes]:
    assert stream is not None
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in stream:
            yield chunk


async def _write(stream: anyio.abc.ByteSendStream | None, told: bytes) -> None:
    assert stream is not None
    # A program need not read what it is told.
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stream.send(told)
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stream.aclose()


async def _end(process: anyio.abc.Process) -> None:
    """End what still runs, and wait until it is gone."""
    if process.returncode is None:
        _signal_group(process, kill=False)
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
    _signal_group(process, kill=True)  # children that did not hear of it, or the program itself
    with anyio.move_on_after(_GRACE_S):
        await process.aclose()
    with anyio.move_on_after(_GONE_S):
        while _signal_group(process, kill=True) and _has_living(process.pid):  # noqa: ASYNC110 - nothing tells of the end of a group
            await anyio.sleep(0.005)


def _signal_group(process: anyio.abc.Process, *, kill: bool) -> bool:
    """Whether there was anything to signal."""
    if sys.platform == "win32":
        if process.returncode is not None:
            return False
        process.kill()
        return True
    try:
        os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of the dead
        return False
    return True


def _has_living(group: int) -> bool:
    """Whether any process of a group runs: the dead stay in it until somebody asks after them, which may be never."""
    try:
        stats = list(Path("/proc").glob("[0-9]*/stat"))
    except OSError:
        return True
    if not stats:  # a system without /proc
        return True
    for stat in stats:
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name in parentheses may hold anything: fields are counted after the last one.
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in ("Z", "X"):
                return True
    return False
