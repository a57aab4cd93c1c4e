"""A process and the lines that it prints: read as they come, waited for from tasks and, at a pinch, without one.

Not for: what the lines mean (``_wire.py``, ``client.py``). Rules carried: none, but SEC-01 as far as showing goes.
May import: anyio, the standard library, ``logged``, ``_wire``.

A host's ``stream()`` is no coroutine: it tells the stream's id, or raises, before it returns. Asked of another process,
that takes a wait which no task can make. So one thread reads the process's lines, another writes to it, and both the
tasks of the suite and :meth:`LineProcess.wait_answer` wait on what was read.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import anyio
import anyio.to_thread

from agentsession.conformance.logged import masked
from agentsession.conformance.stdio._wire import LINE_LIMIT, Answered, Noted, Rubbish, read_from_executor

__all__ = ["LineProcess"]

_FLOOD: Final = 100_000
"""The suite takes every line at once. An executor that is so many lines ahead prints without end."""

_LAST_S: Final = 1.0
"""How long a process that has closed its stdout may take to end, before it is said to live on."""

_LOG_LINES: Final = 8
"""How much of what a process wrote to stderr is shown when it has died."""

_LOG_BYTES: Final = 16_384
"""Where these lines are looked for: the end of it."""

Line = Answered | Noted | Rubbish


class LineProcess:
    """One process, from its start to its certain end. Raises :class:`OSError` if it cannot be started."""

    def __init__(self, command: Sequence[str], *, kill_at: int | None = None) -> None:
        """``kill_at``: the process is killed as soon as it has printed so many lines."""
        self.lines = 0
        """How many lines it has printed."""
        self._kill_at = kill_at
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process; closed by end()
        try:
            # A group of its own: what the command starts in turn is ended with it.
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            raise
        self._ending = threading.Lock()
        self._is_reaped = False
        self._changed = threading.Condition()
        self._inbox: list[Line] = []
        self._is_over = False
        """It prints nothing more."""
        self._is_left = False
        """Nobody wants its lines any more."""
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._one = anyio.CapacityLimiter(1)
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._write)]
        for thread in self._threads:
            thread.start()

    @property
    def number(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether it prints nothing more."""
        return self._is_over

    # -- lines --------------------------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Write a line to it, in its turn; never waits, and is lost if the process is no more."""
        self._outbox.put(line)

    async def more(self) -> bool:
        """Wait until there are lines to take; ``False``: there will be none."""
        return await anyio.to_thread.run_sync(self._wait_more, abandon_on_cancel=True, limiter=self._one)

    def take(self) -> list[Line]:
        """The lines that were read and not taken."""
        with self._changed:
            taken, self._inbox = self._inbox, []
        return taken

    def wait_answer(self, id: int, timeout_s: float) -> tuple[Answered | None, list[Line]]:
        """Wait, without giving way to a task, for the answer with this id, and take it alone.

        Also the lines before it, which stay. ``None``: the process ended, printed rubbish or did not answer in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._find(id) is not None, timeout_s)
            place = self._find(id)
            found = None if place is None else self._inbox[place]
            if place is None or not isinstance(found, Answered):
                return None, list(self._inbox)
            del self._inbox[place]
            return found, self._inbox[:place]

    def _find(self, id: int) -> int | None:
        """The place in the inbox of the answer with this id, or of the rubbish that makes waiting for it vain."""
        for place, line in enumerate(self._inbox):
            if isinstance(line, Rubbish) or (isinstance(line, Answered) and line.id == id):
                return place
        return None

    def _wait_more(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._is_over or self._is_left)
            return bool(self._inbox) and not self._is_left

    def _read(self) -> None:
        """The reading thread."""
        stdout = self._process.stdout
        assert stdout is not None
        for line in self._whole_lines():
            message = read_from_executor(line)
            self.lines += 1
            if self.lines == self._kill_at:
                self._signal()
            with self._changed:
                if len(self._inbox) >= _FLOOD:
                    message = Rubbish(f"{_FLOOD} lines are not read yet", "")
                self._inbox.append(message)
                self._changed.notify_all()
            if isinstance(message, Rubbish):
                self._signal()  # what follows is of no use, and may have no end
        stdout.close()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _whole_lines(self) -> Iterator[bytes]:
        stdout = self._process.stdout
        assert stdout is not None
        while line := stdout.readline(LINE_LIMIT + 1):
            if not line.endswith(b"\n") and len(line) <= LINE_LIMIT:
                return  # a last line that was cut off by the death of the process
            if line.strip():
                yield line

    def _write(self) -> None:
        """The writing thread."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # the process is gone: its end is seen where its lines are read
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                stdin.flush()
        with contextlib.suppress(OSError):
            stdin.close()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def leave(self, grace_s: float) -> None:
        """Close its stdin and wait until it has ended by itself; after ``grace_s`` seconds it is killed."""
        self._outbox.put(None)
        with anyio.move_on_after(grace_s):
            await anyio.to_thread.run_sync(self._wait_over, abandon_on_cancel=True)
        self.end()

    async def status(self) -> str:
        """How a process ended that prints nothing more, in words, with the last that it wrote to stderr."""
        with anyio.move_on_after(_LAST_S) as waited:
            await anyio.to_thread.run_sync(self._wait_exit, abandon_on_cancel=True)
        self.kill()
        code = self._process.returncode
        if waited.cancelled_caught:
            said = "closed its stdout"
        elif code < 0:
            said = f"was ended by signal {-code}"
        else:
            said = f"ended with exit code {code}"
        return "\n".join([f"the executor's process {said}", *self.log()])

    def log(self) -> list[str]:
        """The last lines that it wrote to stderr, without the secrets of the environment, which it has too."""
        if self._log.closed:
            return []
        # By position and not by seeking, which would move where the process writes.
        start = max(0, os.fstat(self._log.fileno()).st_size - _LOG_BYTES)
        text = os.pread(self._log.fileno(), _LOG_BYTES, start) if hasattr(os, "pread") else b""
        lines = text.decode("utf-8", "replace").splitlines()
        whole = lines[1:] if start else lines  # in half a line may be half a secret
        return list(masked(whole[-_LOG_LINES:]))

    def kill(self) -> None:
        """End it as ``kill -9`` does, and wait until it is gone. What it has printed can still be taken."""
        self._signal()
        with self._ending:
            self._process.wait()
            self._is_reaped = True

    def end(self) -> None:
        """Make sure that it is gone, and forget its lines. Cannot be interrupted half-way."""
        self._outbox.put(None)
        try:
            self.kill()
        finally:
            with self._changed:
                self._is_left = True
                self._changed.notify_all()
            for thread in self._threads:
                thread.join(1.0)  # they end with the process, unless another one has inherited its pipes
            self._log.close()

    def _wait_over(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._is_left)

    def _signal(self) -> None:
        with self._ending:
            if self._is_reaped:
                return  # its number may be another process's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()

    def _wait_exit(self) -> None:
        """Wait until it has ended; where the system can, its number stays taken, so that its group can be signalled."""
        if hasattr(os, "waitid"):
            if not self._is_reaped:
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            return
        with self._ending:  # pragma: no cover  # Windows and macOS
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST_S)
                self._is_reaped = True
