"""An agent of ADK's whose model fails, with others to use instead."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.genai import errors

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, say


class _NoWait:
    async def __call__(self, seconds: float) -> None:
        del seconds


def overloaded() -> errors.ServerError:
    return errors.ServerError(503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "sk-SECRET"}})


clerk = AdkExecutor(
    LlmAgent(name="clerk", model=ScriptedLlm(model="large", script=[overloaded() for _ in range(20)])),
    models={"small": ScriptedLlm(model="small", forever=say("Small says hello."))},
    retry_wait=_NoWait(),
)
