"""Models that record and replay: what another model answered is written down, and answered again without it.

Not for: the form of a recording (``_exchanges``, ``_traffic``), scripts by hand (``_model``).
Rules carried: SEC-01. May import: the modules beside it, google.adk.models.

::

    agent = LlmAgent(name="coder", model=RecordingLlm(llm=Gemini(model="gemini-2.5-flash"), path="run.ndjson"))
    agent = LlmAgent(name="coder", model=ReplayLlm.of("run.ndjson"))      # the same run, no provider

A replay is a script whose steps are the recorded answers, so it shares the scripted model's words: ``requests``,
``calls_left``, steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from google.adk.models._capabilities import LlmCapabilities
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import errors
from pydantic import PrivateAttr

from agentsession.adapters.adk._errors import safe_message
from agentsession.adapters.adk._exchanges import (
    ModelExchange,
    Playback,
    Recording,
    redacted_request,
    redacted_response,
)
from agentsession.adapters.adk._gemini_loopback import HttpReply, HttpRequest
from agentsession.adapters.adk._gemini_requests import asked_json
from agentsession.adapters.adk._gemini_responses import response_json, wire_chunks
from agentsession.adapters.adk._model import ScriptedLlm, Step, wire
from agentsession.adapters.adk._traffic import asked_over_http, load_recording
from agentsession.protocol import AgentSessionError, ConfigurationError

__all__ = ["LoopbackPlayback", "RecordingLlm", "ReplayLlm"]


class RecordingLlm(BaseLlm):
    """A model that asks another one and writes down what was asked and answered, without secrets.

    A call is written when its answer is complete; one that is cancelled, such as by an abort, is not. One instance may
    serve several agents and sessions. What has a secret's name (``password``, ``token``, …) or is one in a URL is
    replaced, also in the arguments of a call: a replay then calls with ``[redacted]``.

    Raises:
        ConfigurationError: ``path`` holds something already (``recording-exists``): two runs make no recording.
    """

    llm: BaseLlm
    """The model that answers."""
    path: Path | None = None
    """The file to write; ``None``: :attr:`recording` has it all."""
    model: str = ""

    _exchanges: list[ModelExchange] = PrivateAttr(default_factory=list[ModelExchange])

    def model_post_init(self, context: Any, /) -> None:
        """Take the other model's name, and refuse a file that holds something."""
        super().model_post_init(context)
        self.model = self.model or self.llm.model
        if self.path is not None and self.path.exists() and self.path.stat().st_size:
            raise ConfigurationError(
                "there is a recording already",
                where=str(self.path),
                expected="a new file",
                fix="delete it, or record to another path",
                id="recording-exists",
            )

    @property
    def recording(self) -> Recording:
        """What was recorded so far."""
        return Recording(tuple(self._exchanges), name=str(self.path or "recording"))

    @property
    def capabilities(self) -> LlmCapabilities:
        """Those of the model that answers."""
        return self.llm.capabilities

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        # Before the call: a model may change the request it is given, and ADK the responses.
        asked = redacted_request(asked_json(self, llm_request))
        heard: list[dict[str, Any]] = []
        try:
            async with aclosing(self.llm.generate_content_async(llm_request, stream)) as responses:
                async for response in responses:
                    heard.append(redacted_response(response_json(response)))
                    yield response
        except Exception as error:
            if not isinstance(error, AgentSessionError):  # such as a host's answer that ends the session: no answer
                self._keep(asked, [*heard, _error(error)], stream)
            raise
        self._keep(asked, heard, stream)

    def _keep(self, asked: dict[str, Any], heard: list[dict[str, Any]], stream: bool) -> None:
        exchange = ModelExchange(tuple(heard), asked, stream, f"call {len(self._exchanges) + 1}")
        self._exchanges.append(exchange)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(exchange.to_line() + "\n")


class ReplayLlm(ScriptedLlm):
    """A model that answers from a recording; made by :meth:`of`.

    A request must be the one that was recorded, but for the model's name and labels. See
    :class:`~agentsession.adapters.adk.Playback` for the order, and for what is raised where it is another.
    """

    model: str = "replay"
    playback: Any = None  # Playback: a plain class has no pydantic schema

    @classmethod
    def of(cls, recording: Recording | str | Path, *, checks_requests: bool = True, **fields: Any) -> Self:
        """A model that answers from ``recording``, or from the one in a file.

        Raises:
            ConfigurationError, SchemaError: as :func:`~agentsession.adapters.adk.load_recording`.
        """
        loaded = recording if isinstance(recording, Recording) else load_recording(recording)
        return cls(playback=Playback(loaded, checks_requests=checks_requests), **fields)

    def model_post_init(self, context: Any, /) -> None:
        """Every call beyond the script, which is empty, is answered from the recording."""
        super().model_post_init(context)
        if not isinstance(self.playback, Playback):
            raise ConfigurationError(
                "there is nothing to replay", got=type(self.playback).__name__, fix="ReplayLlm.of(recording)"
            )
        self.forever = self._next

    @property
    def calls_left(self) -> int:
        """Recorded answers that were not used yet."""
        return len(self.playback.left)

    def _next(self, request: LlmRequest) -> Step:
        return wire(*self.playback.take(redacted_request(asked_json(self, request))).responses)


class LoopbackPlayback:
    """Replies of a :class:`~agentsession.adapters.adk.GeminiLoopback` from a recording; made by :meth:`of`.

    A request that differs is answered with the API's error ``FAILED_PRECONDITION``, and kept in :attr:`problems`.
    """

    def __init__(self, playback: Playback, replies: dict[int, HttpReply]) -> None:
        self.playback = playback
        self.problems: list[AgentSessionError] = []
        self._replies = replies

    @classmethod
    async def of(cls, recording: Recording, *, checks_requests: bool = True) -> Self:
        """The replies for ``recording``."""
        replies = {id(exchange): HttpReply(tuple(await wire_chunks(exchange.responses))) for exchange in recording}
        return cls(Playback(recording, checks_requests=checks_requests), replies)

    def __call__(self, request: HttpRequest) -> HttpReply:
        """The reply to a call."""
        try:
            asked, _ = asked_over_http(request.body, request.model, name="the call")
            return self._replies[id(self.playback.take(asked))]
        except AgentSessionError as error:
            self.problems.append(error)
            return HttpReply.of({"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": str(error)}})


def _error(error: Exception) -> dict[str, Any]:
    """What a replay raises in the place of ``error``: the provider's, or its like for another exception's."""
    if isinstance(error, errors.APIError):
        message = safe_message(str(error.code), error.message)
        return {"error": {"code": error.code, "status": str(error.status or "UNKNOWN"), "message": message}}
    return {"error": {"code": 500, "status": "UNKNOWN", "message": type(error).__name__}}
