"""A server of one scripted ADK agent over AG-UI: ``python -m benchmarks._agui_server ours|theirs DELTAS``.

Prints its port, and serves until its standard input ends. With one delta the model is the scripted one that we ship,
which like Google's leaves a request as it is: a class of the user's gets copies of the whole history. ``theirs`` needs
ag-ui-adk, which is measured and not used (``benchmarks/ag_ui.py`` says where it comes from). Both run the same agent
and model in the same uvicorn.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from agentsession.adapters.adk import ScriptedLlm, stream


class _Deltas(BaseLlm):
    """A model that says so many words, each in a chunk of its own."""

    model: str = "scripted"
    count: int = 2000

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        words = [f"word{number} " for number in range(self.count)]  # each another: what only repeats itself is stopped
        for word in words:
            await asyncio.sleep(0)  # as a socket would, let others work
            yield LlmResponse(content=_said(word), partial=True)
        yield LlmResponse(content=_said("".join(words)))


def _said(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])


async def _ours(agent: LlmAgent, stack: AsyncExitStack) -> Any:
    from agentsession.adapters.adk import AdkExecutor
    from agentsession.host import Host
    from agentsession.host.agui import agui_app
    from agentsession.host.live import LiveSessions, ServedAgent

    served = ServedAgent(name="root", executor=AdkExecutor(agent), host=Host())
    sessions = await stack.enter_async_context(LiveSessions([served]))
    return agui_app(sessions, agent="root")


async def _theirs(agent: LlmAgent, stack: AsyncExitStack) -> Any:
    from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint  # type: ignore[import-not-found,unused-ignore]
    from fastapi import FastAPI

    app = FastAPI()
    served = ADKAgent(adk_agent=agent, app_name="root", user_id="u", max_concurrent_executions=100)
    add_adk_fastapi_endpoint(app, served, path="/")
    return app


async def _serve(whose: str, deltas: int) -> None:
    model = _Deltas(count=deltas) if deltas > 1 else ScriptedLlm(forever=stream("word"))
    agent = LlmAgent(name="root", model=model, instruction="Say it.")
    async with AsyncExitStack() as stack:
        app = await (_ours if whose == "ours" else _theirs)(agent, stack)
        # The protocol by name: without it asyncio does not turn Nagle's algorithm off.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        print(listening.getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # ADK warns of each turn of a model that reports no tokens
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
