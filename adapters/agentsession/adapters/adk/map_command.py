"""``agentsession map FILE…``: ADK's JSON to the contract's events, NDJSON on stdout, each one validated.

Not for: the translation itself (``_record``). Registered as the entry point ``agentsession.commands: map``; must not
import the host, typer or, before it runs, google. Rules carried: WIRE-01.

Exit codes: 0; 1 when a file, or with ``--skip-bad`` a part of one, was left out; 2 for a wrong call or a missing extra.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agentsession.adapters.adk._version import require_adk
from agentsession.protocol import (
    AgentSessionError,
    ConfigurationError,
    SchemaError,
    event_schema,
    parse_event,
    parse_json,
)

if TYPE_CHECKING:
    from agentsession.protocol import Event

__all__ = ["command"]

_FAILED: Final = 1
_USAGE: Final = 2


def command(files: list[str], skip_bad: bool = False, check: bool = True) -> None:
    """Map ADK Events to AgentEvents: JSON, NDJSON, session dumps, evaluation and test files; "-" reads stdin.

    Each session becomes a whole record, printed as NDJSON. A file that cannot be read is one error on stderr and the
    others go on; --skip-bad leaves out single lines and events instead. --no-check skips the JSON Schema validation.
    """
    try:
        require_adk()
        if files.count("-") > 1:
            raise ConfigurationError("stdin can be read once", got="- twice", fix="agentsession map -", id="usage")
    except ConfigurationError as error:
        _complain(error)
        raise SystemExit(_USAGE) from None
    failed = False
    for name in files:
        failed = _map_file(name, skip_bad=skip_bad, check=check) or failed
    if failed:
        raise SystemExit(_FAILED)


def _map_file(name: str, *, skip_bad: bool, check: bool) -> bool:
    """Print the records of one file; whether something of it was left out."""
    shown = "stdin" if name == "-" else name
    left_out: list[AgentSessionError] = []

    def on_error(error: AgentSessionError) -> None:
        left_out.append(error)
        _complain(error)

    try:
        for event in _events(_read(name), shown, on_error if skip_bad else None):
            text = event.to_wire_json()
            if check:
                _validate(text, shown)
            sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except AgentSessionError as error:
        on_error(error)
    return bool(left_out)


def _events(text: bytes, name: str, on_error: Callable[[AgentSessionError], None] | None) -> Iterator[Event]:
    from agentsession.adapters.adk._read import read_adk
    from agentsession.adapters.adk._record import map_session

    for session in read_adk(text, name=name, on_error=on_error):
        yield from map_session(session)


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{name} cannot be read",
            got=error.strerror or type(error).__name__,
            expected="a file of ADK JSON, or - for stdin",
            fix="agentsession map FILE",
            id="no-file",
        ) from error


def _validate(text: str, name: str) -> None:
    """Both readers of the wire must take it: the models, and the published JSON Schema."""
    event = parse_event(text)
    problem = next(_validator().iter_errors(parse_json(text)), None)
    if problem is not None:
        pointer = "/" + "/".join(str(step) for step in problem.absolute_path)
        raise SchemaError(
            f"event {event.seq} of {name} does not validate",
            pointer=pointer,
            where=f"{name}, event {event.seq} at {pointer}",
            got=problem.message[:200],
            expected="an event of the published schema",
            fix="report it with the file; --no-check prints it as it is",
        )


@functools.cache
def _validator() -> Any:  # Any: jsonschema's validators have no public type
    import jsonschema

    return jsonschema.Draft202012Validator(event_schema())


def _complain(error: AgentSessionError) -> None:
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
