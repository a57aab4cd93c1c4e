"""Model calls written down: what was asked, what was answered, without secrets; and finding the answer to a call again.

Not for: ADK's classes (``_recorded_model``), other programs' recordings (``_traffic`` reads them to these).
Rules carried: SEC-01, WIRE-01. May import: ``_values``, ``agentsession.protocol``.

A recording is NDJSON, one exchange a line, in the order in which the calls were made::

    {"format": "agentsession.model-exchange/1", "stream": true, "digest": "…", "request": {…}, "responses": [{…}, …]}

``request`` is a ``GenerateContentRequest``, ``responses`` are ``GenerateContentResponse`` chunks or an ``{"error": …}``
(``_gemini_requests`` and ``_gemini_responses`` say how). The digest is over the request without the model's name and
without labels, which say where a call goes and who pays, so that another model can stand in for the recorded one.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agentsession.adapters.adk._values import is_list, is_object, is_secret_name, redact
from agentsession.protocol import REDACTED, AgentSessionError, args_digest, dumps

__all__ = [
    "FORMAT",
    "ModelExchange",
    "Playback",
    "Recording",
    "RecordingDiffers",
    "RecordingExhausted",
    "agent_of",
    "redacted_request",
    "redacted_response",
]

FORMAT: Final = "agentsession.model-exchange/1"
_NOT_ASKED: Final = ("labels", "model")
"""Fields of a request that the digest leaves out."""
_SCHEMAS: Final = frozenset({"parameters", "parametersJsonSchema", "response", "responseJsonSchema", "responseSchema"})
"""Fields that hold a schema: there a name such as ``password`` says what a tool takes, and is no secret."""
_NAMED: Final = frozenset({"$defs", "defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Fields of a schema that hold schemas by a name."""
_VALUES: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Fields of a schema that hold values."""
_CREDENTIALS: Final = frozenset({"authConfig", "headers"})
"""Fields of a provider's tool that hold credentials, whatever they are named inside."""


class RecordingExhausted(AgentSessionError):
    """The model was called more often than its recording has answers."""

    default_id = "recording-exhausted"


class RecordingDiffers(AgentSessionError):
    """The model was asked something else than what was recorded; ``pointer`` is the first place that differs."""

    default_id = "recording-differs"

    def __init__(self, what: str, *, pointer: str, **parts: str | None) -> None:
        self.pointer = pointer
        super().__init__(what, **parts)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelExchange:
    """One model call and its answer."""

    responses: tuple[Mapping[str, Any], ...]
    """Chunks of Gemini's, or an error as the last of them."""
    request: Mapping[str, Any] | None = None
    """What was asked; ``None`` where the recording does not say."""
    stream: bool = False
    where: str = ""
    """The place in the recording, for errors."""
    unread: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """What the recorded request held that google-genai has no field for, by JSON pointer."""

    @property
    def digest(self) -> str | None:
        """The digest of the request; ``None`` where there is none."""
        return digest_of(self.request) if self.request is not None else None

    def to_line(self) -> str:
        """The exchange as one line of a recording, without the end of the line."""
        line: dict[str, Any] = {"format": FORMAT, "stream": self.stream}
        if self.request is not None:
            line |= {"digest": self.digest, "request": dict(self.request)}
        return dumps({**line, "responses": [dict(response) for response in self.responses]})


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """Exchanges in the order of the calls."""

    exchanges: tuple[ModelExchange, ...]
    name: str = "recording"
    left_out: tuple[str, ...] = ()
    """What the file holds beside model calls, such as a count of tokens: one sentence each."""

    def __iter__(self) -> Iterator[ModelExchange]:
        return iter(self.exchanges)

    def __len__(self) -> int:
        return len(self.exchanges)

    def to_text(self) -> str:
        """The recording as NDJSON."""
        return "".join(exchange.to_line() + "\n" for exchange in self.exchanges)


class Playback:
    """A recording while it is used: each exchange is taken once. Several models and threads may share one.

    Args:
        checks_requests: A request must be the one that was recorded. Without it the answers are given in their order,
            whatever is asked: for recordings of other programs.
    """

    def __init__(self, recording: Recording, *, checks_requests: bool = True) -> None:
        self.recording = recording
        self.checks_requests = checks_requests
        self._left = list(recording.exchanges)
        self._lock = threading.Lock()

    @property
    def left(self) -> tuple[ModelExchange, ...]:
        """The exchanges that were not asked for yet."""
        return tuple(self._left)

    def take(self, request: Mapping[str, Any]) -> ModelExchange:
        """The next exchange, if it is the answer to ``request``.

        Parallel agents ask in an order that no recording can promise. So a request that equals a later one takes that;
        a program that leaves a call out is still found, for what follows then holds less than what was recorded.

        Raises:
            RecordingExhausted: all answers were given.
            RecordingDiffers: none of those left answers this request.
        """
        with self._lock:
            if not self._left:
                raise RecordingExhausted(
                    f"model call {len(self.recording) + 1} is not in the recording",
                    where=self.recording.name,
                    got=_shown(_last_said(request)),
                    expected=f"at most {len(self.recording)} model calls",
                    fix="record again, or give each run a recording of its own",
                )
            exchange = self._find(request)
            self._left.remove(exchange)
            return exchange

    def _find(self, request: Mapping[str, Any]) -> ModelExchange:
        first = self._left[0]
        if not self.checks_requests or first.request is None:
            return first
        wanted = digest_of(request)
        found = next((exchange for exchange in self._left if exchange.digest == wanted), None)
        if found is not None:
            return found
        agent = agent_of(request)
        meant = next((item for item in self._left if item.request and agent and agent_of(item.request) == agent), first)
        pointer, recorded, asked = _first_difference(_asked(meant.request or {}), _asked(request))
        number = self.recording.exchanges.index(meant) + 1
        raise RecordingDiffers(
            # The place is in the text as well: an error event has no other field for it.
            f"the model is asked something else than what was recorded as call {number}, first at {pointer}",
            pointer=pointer,
            where=f"{meant.where or self.recording.name} at {pointer}",
            got=_shown(asked),
            expected=_shown(recorded),
            fix="record again; or pass checks_requests=False, to be answered in order whatever is asked",
        )


def digest_of(request: Mapping[str, Any]) -> str:
    """The SHA-256 of what is asked: of RFC 8785 JSON, without the model's name and labels."""
    return args_digest(_asked(request))


def redacted_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a ``GenerateContentRequest`` without what is secret by its name or in a URL."""
    return {key: _redacted(key, item) for key, item in request.items()}


def redacted_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a ``GenerateContentResponse`` without what is secret by its name or in a URL."""
    return {key: _redacted(key, item) for key, item in response.items()}


def _redacted(key: str, value: Any) -> Any:
    """The value of one field: as ``redact``, but for names that are no secret where they stand."""
    if key == "tools":
        return _tools(value)
    if key == "logprobsResult":
        return value  # its "token" is a piece of the answer's text
    if key in _SCHEMAS:
        return _schema(value, secret=False)
    if key == "generationConfig" and is_object(value):
        return {name: _redacted(name, part) for name, part in value.items()}
    if key == "candidates" and is_list(value):
        return [
            {name: _redacted(name, part) for name, part in item.items()} if is_object(item) else item for item in value
        ]
    return redact({key: value})[key]


def _tools(value: Any, name: str = "") -> Any:
    if name in _SCHEMAS:
        return _schema(value, secret=False)
    if name in _CREDENTIALS or (is_secret_name(name) and value):
        return REDACTED
    if is_object(value):
        return {key: _tools(item, key) for key, item in value.items()}
    return [_tools(item) for item in value] if is_list(value) else redact(value)


def _schema(value: Any, *, secret: bool) -> Any:
    """A schema whose names stay; values that it gives for a secret, such as a default, do not."""
    if is_list(value):
        return [_schema(item, secret=secret) for item in value]
    if not is_object(value):
        return redact(value)
    secret = secret or value.get("writeOnly") is True or value.get("format") == "password"
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in _NAMED and is_object(item):
            out[key] = {name: _schema(part, secret=secret or is_secret_name(name)) for name, part in item.items()}
        elif key in _VALUES:
            out[key] = REDACTED if secret and item not in (None, "") else redact(item)
        else:
            out[key] = _schema(item, secret=secret)
    return out


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in request.items() if key not in _NOT_ASKED}


def agent_of(request: Mapping[str, Any]) -> str | None:
    """The agent that asks: ADK says it in a label."""
    labels = request.get("labels")
    name = labels.get("adk_agent_name") if is_object(labels) else None
    return name if isinstance(name, str) else None


_ABSENT: Final = object()


def _first_difference(recorded: Any, asked: Any, pointer: str = "") -> tuple[str, Any, Any]:
    """The first place where two JSON values differ, and both values there."""
    if is_object(recorded) and is_object(asked):
        for key in (*recorded, *(key for key in asked if key not in recorded)):
            one, other = recorded.get(key, _ABSENT), asked.get(key, _ABSENT)
            if not _same(one, other):
                step = key.replace("~", "~0").replace("/", "~1")
                return _first_difference(one, other, f"{pointer}/{step}")
    if is_list(recorded) and is_list(asked):
        for index in range(max(len(recorded), len(asked))):
            one = recorded[index] if index < len(recorded) else _ABSENT
            other = asked[index] if index < len(asked) else _ABSENT
            if not _same(one, other):
                return _first_difference(one, other, f"{pointer}/{index}")
    return pointer or "/", recorded, asked


def _same(one: Any, other: Any) -> bool:
    """By digest: Python takes 1 and True, and 1 and 1.0, for equal; JSON the latter alone."""
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return args_digest({"value": one}) == args_digest({"value": other})


def _last_said(request: Mapping[str, Any]) -> Any:
    contents = request.get("contents")
    return contents[-1] if isinstance(contents, Sequence) and contents else {}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing there"
    text = dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."
