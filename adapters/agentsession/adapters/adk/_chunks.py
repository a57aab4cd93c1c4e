"""The chunks of an answer that ADK need not see: recorded where the model yields them.

Not for: what a chunk becomes (``_translate.py``). Rules carried: LIFE-14, ORD-11.
May import: the modules beside it, google.adk.

ADK makes an event of each chunk and hands it through a dozen generators, a queue and every plugin: four fifths of
what a delta costs. Nothing in ADK keeps it: the whole answer comes once more at the end, and that is stored. So where
nothing that looks at chunks is set up, a chunk that goes on with plain text is recorded at once. The first one always
takes ADK's way, for its event names the message; and so does whatever is not plain text that goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.loop_agent import LoopAgent
from google.adk.agents.parallel_agent import ParallelAgent
from google.adk.agents.sequential_agent import SequentialAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai.types import Content

from agentsession.adapters.adk._stand_in import StandIn
from agentsession.adapters.adk._telemetry import records_nothing

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["GATE", "TAIL", "ChunkLane", "LanedCall", "lane_for"]

GATE: Final = "agentsession_gate"
TAIL: Final = "agentsession_tail"
"""The names of this adapter's plugins. The gate looks at no chunk that the lane takes."""

_ADKS_OWN: Final = (LlmAgent, SequentialAgent, LoopAgent, ParallelAgent)
"""Agents that hand chunks on as they are. A class of the user's may do anything with them."""

_LOOKS_AT_CHUNKS: Final = ("after_model_callback", "on_event_callback")

_TURNS: Final = 32
"""How many turns of the loop an event may need through ADK; three are common. One that needs more costs time, and
nothing else."""


def lane_for(live: LiveRun, context: CallbackContext) -> ChunkLane | None:
    """The way past ADK for the chunks of the context's next model call; ``None`` where something there sees chunks."""
    if not _is_unseen(live, context):
        return None
    invocation = context._invocation_context  # private, and the only way to the agent and the plugins
    return ChunkLane(live, context, (invocation.invocation_id, context.agent_name, invocation.branch or ""))


def _is_unseen(live: LiveRun, context: CallbackContext) -> bool:
    """Whether nothing looks at the chunks of the context's agent as it is now."""
    invocation = context._invocation_context
    agent = invocation.agent
    if live.ctx.options.streaming is False or context.session.id != live.state.adk_session_id:
        return False  # of an AgentTool's child, chunks are not shown
    if type(agent) is not LlmAgent or agent.name not in _known(live.root) or not records_nothing():
        return False
    if agent.planner is not None or agent.canonical_after_model_callbacks:
        return False
    return not any(_looks(plugin) for plugin in invocation.plugin_manager.plugins if plugin.name not in (GATE, TAIL))


def _known(root: object) -> set[str]:
    """The names of a tree's agents; none where one of them may look at what another says, or has a time limit: in that
    the readers would count which the lane waits for. ADK lets a model run ahead of its readers."""
    names, left = set[str](), [root]
    while left:
        agent = left.pop()
        if type(agent) not in _ADKS_OWN:
            return set()
        assert isinstance(agent, BaseAgent)
        if agent.timeout is not None:
            return set()
        names.add(agent.name)
        left += agent.sub_agents
    return names


def _looks(plugin: BasePlugin) -> bool:
    return any(
        getattr(getattr(plugin, name), "__func__", None) is not getattr(BasePlugin, name) for name in _LOOKS_AT_CHUNKS
    )


class ChunkLane:
    """The way past ADK for the chunks of one model call."""

    def __init__(self, live: LiveRun, context: CallbackContext, slot: tuple[str, str, str]) -> None:
        self._live = live
        self._context = context
        self._slot = slot
        self._is_open = False
        self._newest: Content | None = None
        """What the chunk holds that ADK got last; ``None`` where it got none of this answer, or something else since.

        ADK's event of a chunk holds the same object. To count chunks would not do: of some ADK makes no event, and one
        answer may begin where another has had no end."""
        self._gave_up = False

    def begin_call(self) -> None:
        """The call is made, or made again. What looks at chunks may have been set up by a callback just before it."""
        self._is_open = _is_unseen(self._live, self._context)
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._newest, self._gave_up = None, False

    async def takes(self, response: LlmResponse) -> bool:
        """Whether a chunk was recorded here. Otherwise it is ADK's."""
        if not self._is_open:
            return False
        if not response.partial:
            self._begin_answer()
            return False
        newest = self._newest
        if (
            newest is not None
            and await self._is_caught_up(newest)
            and await self._live.take_chunk(self._slot, response)
        ):
            return True
        self._newest = response.content
        return False

    async def _is_caught_up(self, newest: Content) -> bool:
        """Whether the session has seen all that ADK has got, so that nothing is overtaken."""
        translator = self._live.state.translator
        if translator.has_seen_last(self._slot, newest):
            return True
        for _ in range(0 if self._gave_up else _TURNS):
            await asyncio.sleep(0)
            if translator.has_seen_last(self._slot, newest):
                return True
        self._gave_up = True  # a reader that stops holds ADK's events as well: no more waiting in this answer
        return False


class LanedCall(StandIn):
    """One model call of which ADK sees what it needs."""

    def __init__(self, lane: ChunkLane, context: CallbackContext) -> None:
        super().__init__(context)
        self._lane = lane

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """As a model's."""
        self._lane.begin_call()
        takes = self._lane.takes
        async with aclosing(self.own.generate_content_async(llm_request, stream)) as responses:
            async for response in responses:
                if not await takes(response):
                    yield response
