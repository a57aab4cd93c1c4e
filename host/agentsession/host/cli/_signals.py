"""Ctrl-C and SIGTERM while an event loop runs: calls, not exceptions.

Not for: what they do. May import: the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator

__all__ = ["signals"]


@contextlib.contextmanager
def signals(on_interrupt: Callable[[], None], on_terminate: Callable[[], None]) -> Generator[None]:
    """Call these, in the loop, while the block runs; what was installed before comes back at its end."""
    loop = asyncio.get_running_loop()
    wanted = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_terminate}
    before = {number: signal.getsignal(number) for number in wanted}
    try:
        for number, call in wanted.items():
            try:
                loop.add_signal_handler(number, call)
            except NotImplementedError:  # Windows
                signal.signal(number, _from_thread(loop, call))
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _from_thread(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Callable[[int, object], None]:
    def handle(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(call)

    return handle
