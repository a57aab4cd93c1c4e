"""Every error of the contract, in one tree; blame is a type or an attribute, never only a sentence.

Not for: failures that the model should read (those are tool results) or that end a stream (those are events).
May import: nothing of the package.

::

    AgentSessionError                 has id, where, expected, got, fix
      ProtocolViolation               a rule of the contract was broken; has rule and blame
      InvalidInput                    a value that the contract cannot take
        SchemaError                   an event or input that is not valid; has pointer and line
      SessionError
        StreamActive                  stream() while one runs                            LIFE-07
        NothingToContinue             stream() without anything to start or continue
        SessionClosed                 a call on a closed session                         LIFE-13
        SessionBusy                   another process or task has the session open
        SessionNotFound               no such session for this user
        SessionExists                 open with an id that is taken
        CursorGone                    a cursor beyond the last, or compacted away        ORD-07
        AbortTimeout                  the executor did not end in the grace time         CTL-01
        ConnectionLost                the executor vanished                              LIFE-08
        RunEnded                      an executor emits after its stream was closed      ORD-09
      Unimplemented                   a call whose capability is not declared
      UnsupportedVersion              a peer or a record of another protocol version
      ConfigurationError              a missing extra, key, module, or an agent that cannot be hosted
"""

from __future__ import annotations

from typing import ClassVar, Literal

__all__ = [
    "AbortTimeout",
    "AgentSessionError",
    "Blame",
    "ConfigurationError",
    "ConnectionLost",
    "CursorGone",
    "InvalidInput",
    "NothingToContinue",
    "ProtocolViolation",
    "RunEnded",
    "SchemaError",
    "SessionBusy",
    "SessionClosed",
    "SessionError",
    "SessionExists",
    "SessionNotFound",
    "StreamActive",
    "Unimplemented",
    "UnsupportedVersion",
]

Blame = Literal["host", "executor", "peer"]
"""Who broke a rule: the host, the executor in this process, or the other end of a connection."""


class AgentSessionError(Exception):
    """Base of all errors of this project; each says what was wrong, where, what was expected, and what to do.

    ``id`` is stable and is what ``agentsession explain ID`` takes.
    """

    default_id: ClassVar[str] = "error"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        fix: str | None = None,
        id: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.fix = fix
        self.id: str = id or self.default_id
        super().__init__(what)

    def headline(self) -> str:
        """The first line: ``error[id]: what``."""
        return f"error[{self.id}]: {self.what}"

    def parts(self) -> dict[str, str]:
        """The named parts that are known, in the order in which they are shown."""
        named = {"where": self.where, "got": self.got, "expected": self.expected, "fix": self.fix}
        return {name: text for name, text in named.items() if text}

    def __str__(self) -> str:
        return "\n".join([self.headline(), *(f"  {name + ':':<10}{text}" for name, text in self.parts().items())])


class ProtocolViolation(AgentSessionError):
    """A rule of the contract was broken; nothing was changed by the call or event that broke it."""

    default_id = "protocol-violation"

    def __init__(
        self,
        rule: str,
        what: str,
        *,
        blame: Blame = "executor",
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.rule = rule
        self.blame: Blame = blame
        super().__init__(what, where=where, expected=expected, got=got, fix=fix, id=rule)

    def headline(self) -> str:
        return f"ProtocolViolation[{self.rule}]: {self.what} (blame: {self.blame})"


class InvalidInput(AgentSessionError):
    """A value that the contract cannot take: an id with a separator, content of the wrong kind, a bad option."""

    default_id = "invalid-input"


class SchemaError(InvalidInput):
    """An event or input that is not valid; ``pointer`` is the JSON pointer of the place, ``line`` its line if any."""

    default_id = "schema"

    def __init__(
        self,
        what: str,
        *,
        pointer: str = "/",
        line: int | None = None,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        fix: str | None = None,
        id: str | None = None,
    ) -> None:
        self.pointer = pointer
        self.line = line
        super().__init__(what, where=where or pointer, expected=expected, got=got, fix=fix, id=id)


class SessionError(AgentSessionError):
    """A call that the session cannot serve in its state."""

    default_id = "session"


class StreamActive(SessionError):
    """``stream()`` while a stream runs; nothing was recorded. Rule: LIFE-07."""

    default_id = "stream-active"


class NothingToContinue(SessionError):
    """``stream()`` without a message, and no answer applied or nothing waits; nothing was opened."""

    default_id = "nothing-to-continue"


class SessionClosed(SessionError):
    """A call on a closed session. Rule: LIFE-13."""

    default_id = "session-closed"


class SessionBusy(SessionError):
    """``load`` of a session that is open elsewhere."""

    default_id = "session-busy"


class SessionNotFound(SessionError):
    """No session with this id for this user."""

    default_id = "session-not-found"


class SessionExists(SessionError):
    """``open`` with a session id that is taken."""

    default_id = "session-exists"


class CursorGone(SessionError):
    """A cursor beyond the last event, or before what is still kept. Rule: ORD-07."""

    default_id = "cursor-gone"


class AbortTimeout(SessionError):
    """The executor did not end within the grace time after ``abort()``; the session is closed. Rule: CTL-01."""

    default_id = "abort-timeout"


class ConnectionLost(SessionError):
    """The executor vanished while a reader waited. Rule: LIFE-08."""

    default_id = "connection-lost"


class RunEnded(SessionError):
    """Raised inside an executor that emits or waits after its turn was settled. Rule: ORD-09."""

    default_id = "run-ended"


class Unimplemented(AgentSessionError):
    """A call whose capability the descriptor does not declare."""

    default_id = "unimplemented"


class UnsupportedVersion(AgentSessionError):
    """A record or peer of a protocol version that this one cannot read."""

    default_id = "version"


class ConfigurationError(AgentSessionError):
    """Something outside the session is missing or wrong: an extra, a key, a module, an agent that cannot be hosted."""

    default_id = "configuration"
