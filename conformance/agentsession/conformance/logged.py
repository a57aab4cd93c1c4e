"""What the process of an executor logged and warned of while a scenario ran, and that no report shows a secret.

Not for: judging; what is logged breaks no rule. Rules carried: none, but SEC-01 as far as showing goes.
May import: ``agentsession.protocol``, ``hosting``, ``results``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

from agentsession.conformance.hosting import CREDENTIAL
from agentsession.conformance.results import Result
from agentsession.protocol import REDACTED

__all__ = ["LINES", "Logged", "listening", "masked", "shown"]

LINES: Final = 40
"""How many lines are kept: the last."""
_KEPT: Final = 4000
"""How much of a line is kept."""
_WIDTH: Final = 300
"""How much of a line is shown."""
_FRAMES: Final = -4
"""Of a traceback: the innermost."""

_NAMES_A_SECRET: Final = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST: Final = 8
"""A variable of the environment that is shorter is no secret, or masking it would hide more than it."""


class Logged:
    """The last lines of a log."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)

    def add(self, text: str) -> None:
        """Keep this, which may have several lines."""
        self._lines.extend(line.rstrip()[:_KEPT] for line in text.splitlines() if line.strip())

    def lines(self, secrets: Collection[str] = ()) -> tuple[str, ...]:
        """What was kept, without these secrets and those of the environment."""
        return tuple(line[:_WIDTH] for line in masked(self._lines, secrets))  # cut last: half a secret is one too


def masked(lines: Iterable[str], secrets: Collection[str] = ()) -> Iterator[str]:
    """The lines without these secrets, the suite's own credential, and what the environment holds under such a name."""
    known = {value for name, value in os.environ.items() if _NAMES_A_SECRET.search(name) and len(value) >= _SHORTEST}
    known |= {secret for secret in secrets if secret} | {str(CREDENTIAL["credential"]["value"])}
    for line in lines:
        for secret in sorted(known, key=len, reverse=True):  # one may be within another
            line = line.replace(secret, REDACTED)
        yield line


def shown(result: Result) -> Result:
    """A result as reports show it: without the secrets of the environment, which exceptions and events may repeat."""
    evidence = tuple(
        dataclasses.replace(item, text=_masked(item.text), event=None if item.event is None else _masked(item.event))
        for item in result.evidence
    )
    return dataclasses.replace(result, message=_masked(result.message), evidence=evidence)


def _masked(value: Any) -> Any:
    """JSON without the secrets of the environment, names in it excepted."""
    if isinstance(value, str):
        return next(masked([value]))
    if isinstance(value, Mapping):
        return {name: _masked(item) for name, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


_LISTENING: Final[list[Logged]] = []
_RESTORE: Final[list[Callable[[], None]]] = []
"""What the first that listened has put in place is taken back by the last."""


@contextmanager
def listening() -> Iterator[Logged]:
    """Hear what any logger of this process is told from warnings on, and Python's own warnings; both also go where they
    went before. Who listens at the same time hears the same."""
    heard = Logged()
    if not _LISTENING:
        _RESTORE.append(_install())
    _LISTENING.append(heard)
    try:
        yield heard
    finally:
        _LISTENING.remove(heard)
        if not _LISTENING:
            _RESTORE.pop()()


def _tell(text: str) -> None:
    for heard in _LISTENING:
        heard.add(text)


def _install() -> Callable[[], None]:
    """Listen; what is returned ends it."""
    make, show = logging.getLogRecordFactory(), warnings.showwarning

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        if record.levelno >= logging.WARNING:
            _tell(_text(record))
        return record

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _tell(f"{category.__name__} at {os.path.basename(filename)}:{lineno}: {message}")
        show(message, category, filename, lineno, file, line)

    def restore() -> None:
        logging.setLogRecordFactory(make)
        warnings.showwarning = show

    logging.setLogRecordFactory(made)
    warnings.showwarning = shown
    return restore


def _text(record: logging.LogRecord) -> str:
    try:
        said = record.getMessage()
    except Exception as error:  # noqa: BLE001  # the executor's arguments do not fit its own message
        said = f"{record.msg} ({type(error).__name__} in its arguments)"
    text = f"{record.levelname} {record.name}: {said}"
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + "".join(traceback.format_exception(*record.exc_info, limit=_FRAMES))
    return text
