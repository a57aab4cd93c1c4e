"""Something of ours in the place of an agent's model, for one call.

Not for: what it does there (``_routed_model.py``, ``_chunks.py``). May import: google.adk.

From the gate's callback until the call, the run's context holds a copy of the agent that answers with the stand-in when
it is asked for its model. What other callbacks set on it meanwhile is set on the user's own agent, which is untouched
otherwise.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.flows.llm_flows.core._model_call import resolve_llm
from google.adk.models.base_llm import BaseLlm

__all__ = ["StandIn"]

_HOLDS: Final = "canonical_model_async"
"""What ADK asks an agent for its model by."""


class StandIn:
    """Base of what ADK calls in a model's place, by ``generate_content_async`` alone."""

    def __init__(self, context: CallbackContext) -> None:
        self._context = context
        self._agent: Any = None  # it has LlmAgent's surface, and need be no LlmAgent
        self._held: dict[str, Any] = {}
        """What the copy of the agent held at first."""
        self._model: BaseLlm | None = None

    @property
    def own(self) -> BaseLlm:
        """The agent's own model, from the time when ADK asked for it."""
        assert self._model is not None, "ADK has not asked for the model yet"
        return self._model

    def put(self) -> None:
        """Let the call that ADK is about to make for the context's agent be this."""
        invocation: Any = self._context._invocation_context  # private, and the only way to the agent
        self.take(self._context)
        self._agent = invocation.agent
        double = copy.copy(self._agent)
        self._held = dict(vars(double))
        # Into the copy's own dictionary, past pydantic: a class may have made a property or a method of its own of it.
        object.__setattr__(double, _HOLDS, self._model_of)
        invocation.agent = double

    @staticmethod
    def take(context: CallbackContext) -> None:
        """Put the user's own agent back, also where a plugin or callback answered in the model's place."""
        invocation: Any = context._invocation_context
        double: dict[str, Any] = getattr(invocation.agent, "__dict__", {})  # a tool in a graph has no agent
        held = getattr(double.get(_HOLDS), "__self__", None)
        if isinstance(held, StandIn):
            invocation.agent = held._agent
            for name, value in double.items():
                if name != _HOLDS and (name not in held._held or held._held[name] is not value):
                    vars(held._agent)[name] = value  # a callback before the call may choose a model this way

    async def _model_of(self, _: object) -> Any:  # Any: ADK asks no more of it than generate_content_async
        invocation: InvocationContext = self._context._invocation_context
        self.take(self._context)
        self._model = await resolve_llm(invocation)
        return self
