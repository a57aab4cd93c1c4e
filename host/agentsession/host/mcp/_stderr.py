"""What a server process prints to its stderr: kept from the terminal, and its end kept for whoever looks for a fault.

Not for: the protocol, which is on stdin and stdout. Rules carried: SEC-01 (values of the server's environment are
masked). May import: anyio.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import IO, Final

import anyio

__all__ = ["Stderr"]

logger = logging.getLogger("agentsession.host")

_KEPT: Final = 8_192
_CHUNK: Final = 65_536
_MASK: Final = "[masked]"


class Stderr:
    """The newest lines that a server printed. ``secrets`` are masked in what is shown of them."""

    def __init__(self, secrets: Iterable[str] = (), copy_to: str | os.PathLike[str] | None = None) -> None:
        self._secrets = sorted({each for each in secrets if len(each) > 3}, key=len, reverse=True)
        self._copy_to = copy_to
        self._kept = b""

    @property
    def text(self) -> str:
        """The newest 8 KiB, whole lines where there are some."""
        text = self._kept.decode("utf-8", "replace")
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text

    @contextmanager
    def pipe(self) -> Generator[tuple[IO[str], int]]:
        """A file for the process to print to, and the descriptor to :meth:`read` from; both are closed at the end."""
        reads, writes = os.pipe()
        os.set_blocking(reads, False)
        try:
            with open(writes, "w") as file:
                yield file, reads
        finally:
            os.close(reads)

    async def read(self, descriptor: int) -> None:
        """Read until the process and all that inherited its stderr have ended, or this is cancelled."""
        while True:
            await anyio.wait_readable(descriptor)
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    continue
                return
            if not chunk:
                return
            self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        kept = self._kept + chunk
        if len(kept) > _KEPT:
            kept = kept[-_KEPT:]
            kept = kept[kept.find(b"\n") + 1 :]  # a cut line could be half of a secret
        self._kept = kept
        if self._copy_to is None:
            return
        try:
            with open(self._copy_to, "ab") as file:
                file.write(chunk)
        except OSError as error:  # a full disk is not the server's fault
            logger.warning("the stderr of a tool server is no longer copied: %s", error.strerror)
            self._copy_to = None
