"""A model call that a hook may repeat: which model answers to a name, and the loop around a call that raises.

Not for: what to do about a failure (the host's hook says it, through ``_hooks.py``), or reading it
(``_model_failures.py``). Rules carried: CTL-01 (an abort ends a wait), CTL-06, SEC-01.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

ADK lets a plugin answer once for a call that raised, with one whole response. To call again, and to let the answer
stream, the call itself has to be made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types

from agentsession.adapters.adk._model_failures import read_failure
from agentsession.adapters.adk._stand_in import StandIn
from agentsession.protocol import AgentSessionError, ConfigurationError, SessionUpdate

if TYPE_CHECKING:
    from agentsession.adapters.adk._chunks import ChunkLane
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["ModelCallFailed", "ModelTable", "RoutedCall", "is_break"]


class ModelCallFailed(AgentSessionError):
    """A model call failed, and the host's hook gave the failure a code of its own, which is the error's id."""

    default_id = "MODEL_UNAVAILABLE"


class ModelTable:
    """The models of one executor, by name, and how it waits before it calls one again."""

    def __init__(
        self,
        models: Mapping[str, BaseLlm] | None = None,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        for name, model in (models or {}).items():
            if not name or not isinstance(model, BaseLlm):
                raise ConfigurationError(
                    f"the model {name!r} is no model of ADK's",
                    got=type(model).__name__,
                    expected="a name, and a BaseLlm such as Gemini(model=...)",
                )
        self._models = dict(models or {})
        self._made: dict[str, BaseLlm] = {}
        self.wait = wait

    def find(self, name: str | None, own: BaseLlm) -> BaseLlm:
        """The model that answers to ``name`` where an agent's own is ``own``.

        Those that were given come first. A name that ADK's registry gives to another class than the agent's is another
        model; any other is a name that the agent's own model takes, as models of one provider do. Raises what ADK
        raises where the package for a model is missing.
        """
        if name is None or name == own.model:
            return own
        found = self._models.get(name) or self._made.get(name)
        if found is not None:
            return found
        if not _is_registered(own):
            return own  # a class of the user's: a gateway, a test's script
        try:
            kind = LLMRegistry.resolve(name)
        except ValueError:
            return own  # not a name that ADK knows; the provider may
        if isinstance(own, kind):
            return own
        made = self._made[name] = LLMRegistry.new_llm(name)
        return made

    def sent_name(self, name: str | None, model: BaseLlm) -> str | None:
        """What a model is called in its request: the name that it was given under may be the host's own."""
        return model.model if name is not None and self._models.get(name) is model else name


def _is_registered(model: BaseLlm) -> bool:
    try:
        return isinstance(model, LLMRegistry.resolve(model.model))
    except (ValueError, ImportError):
        return False


class RoutedCall(StandIn):
    """One model call of one agent, and the calls that are made in its place when it raises."""

    def __init__(self, live: LiveRun, context: CallbackContext, lane: ChunkLane | None) -> None:
        super().__init__(context)
        self._live = live
        self._lane = lane

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """As a model's. What is raised last is raised."""
        live, own, lane, asked = self._live, self.own, self._lane, llm_request
        kept = _copied(asked)
        attempt, began, whole = 1, False, False
        while True:
            name = asked.model
            try:
                self._tell_model(name, own)
                model = live.state.models.find(name, own)
                asked.model = live.state.models.sent_name(name, model)
                live.models.calls(self._context)
                if lane is not None:
                    lane.begin_call()
                async with aclosing(model.generate_content_async(asked, stream)) as responses:
                    async for response in responses:
                        if response.model_version is None and not response.partial:
                            response.model_version = asked.model
                        began = began or response.content is not None
                        whole = whole or (response.content is not None and not response.partial)
                        if lane is None or not await lane.takes(response):
                            yield response
                return
            except Exception as error:
                hooks = live.hooks
                if hooks is None:
                    raise
                failure = read_failure(error)
                said: dict[str, Any] | None = None
                while True:
                    told = await hooks.on_model_failure(
                        self._context,
                        name,
                        error,
                        failure,
                        attempt=attempt,
                        began=began,
                        answer=said,
                        can_retry=not whole,
                    )
                    if told.ask is None:
                        break
                    if began:
                        yield _break(asked.model)
                        began = False
                    said = await hooks.ask_fallback(self._context, told.ask)
                if told.content is not None:
                    yield LlmResponse(content=told.content)
                    return
                if told.fail_as is not None:
                    raise ModelCallFailed(
                        told.reason or f"the model call failed ({told.fail_as})", id=told.fail_as
                    ) from error
                if not told.repeats:
                    raise
                if began:
                    yield _break(asked.model)
                    began = False
                name = told.next_model or name
            stop = live.models.again(self._context)
            if stop is not None:
                yield stop
                return
            if told.after_s:
                await self._wait(told.after_s)
            attempt += 1
            asked = _copied(kept)
            asked.model = llm_request.model = name  # ADK's traces read it from the request

    async def _wait(self, seconds: float) -> None:
        """Wait before the next call. An abort ends it at once: ADK then cancels the run that waits here."""
        with self._live.spans.at_work():
            await self._live.state.models.wait(seconds)
        await self._live.attached()

    def _tell_model(self, name: str | None, own: BaseLlm) -> None:
        """Record when an agent's calls go to another model than the one before."""
        live, agent = self._live, self._context.agent_name
        before = live.state.called.get(agent) or live.state.model_of(live.ctx.options) or own.model
        if name is None or name == before or live.ctx.aborting:
            return
        live.state.called[agent] = name
        live.ctx.emit_nowait(
            SessionUpdate(
                model=name, agent_id=agent, thread_id=live.brackets.thread_at(self._context), source="ext:adk"
            )
        )


def is_break(response: LlmResponse) -> bool:
    """Whether a response only says that what streamed before it has no end; the call is made again."""
    return bool(response.interrupted) and response.content is None and not response.partial


def _break(model: str | None) -> LlmResponse:
    """``model``: what its provider has counted of the answer so far was this model's."""
    return LlmResponse(interrupted=True, partial=False, model_version=model)


def _copied(request: LlmRequest) -> LlmRequest:
    """A request that a model may change, as models do, and that can be asked again."""
    config = request.config.model_copy() if request.config is not None else types.GenerateContentConfig()
    return request.model_copy(update={"contents": list(request.contents), "config": config})
