"""The ACP executor under the suite, over an agent made with the SDK's agent side, in a process of its own.

``agentsession conform tests.conformance.harnesses.acp:harness
--expected tests/conformance/harnesses/acp_expected.toml``
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from agentsession.adapters.acp import AcpExecutor
from agentsession.adapters.acp._link import Initialized
from agentsession.adapters.base import RunContext, RunResult
from agentsession.conformance.harness import CannotPlay, Harness, Play
from agentsession.conformance.script import STEPS, Ask, Script
from agentsession.protocol import AgentExecutor

__all__ = ["AcpHarness", "harness"]

AGENT = Path(__file__).with_name("acp_agent.py")


class Played(AcpExecutor):
    """The executor, and the socket over which its agent asks the suite."""

    def __init__(self, play: Play) -> None:
        self._sockets = tempfile.TemporaryDirectory(prefix="acp")  # a socket's path must be short
        self._socket = f"{self._sockets.name}/s"
        super().__init__(
            # -P: the folder of the agent has an acp.py, which is no SDK
            [sys.executable, "-P", str(AGENT), self._socket, str(play.folder)],
            cwd=play.folder,
            store=play.store,
            grace_s=2.0,
            env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        )
        self._play = play
        self._tasks: set[asyncio.Task[None]] = set()
        self.numbers: dict[str, int] = {}
        """The number of the turn that is played, by the agent's ids of sessions."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._served, self._socket)
        try:
            return await super().__aenter__()
        except BaseException:
            self._server.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await super().__aexit__(kind, error, trace)
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            self._server.close()
            self._sockets.cleanup()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: dict[int, asyncio.Task[None]] = {}
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["what"] == "cancel":
                    asked[message["id"]].cancel()
                    continue
                task = asked[message["id"]] = asyncio.create_task(self._answer(message, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            for task in asked.values():
                task.cancel()
            writer.close()

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        told: dict[str, Any] = {"id": message["id"]}
        if message["what"] == "hold":
            await self._play.hold(message["mark"])
        elif message["what"] == "turn":
            told["result"] = self.numbers[message["session"]]
        else:
            calls = [call for call in self._play.script.calls() if call.name == message["name"]]
            call = next((call for call in calls if call.args == message["args"]), calls[0])
            try:
                told["result"] = await self._play.run_tool(call, message["args"])
            except Exception as error:  # noqa: BLE001 - what a tool raises is for the agent
                told["error"] = type(error).__name__
        writer.write(json.dumps(told).encode() + b"\n")

    async def _ask_about(self) -> Initialized:
        # It is always the same agent. A start costs half a second, and a rule may need two dozen within its 20 s.
        if harness.about is None:
            harness.about = await super()._ask_about()
        return harness.about

    async def run(self, ctx: RunContext) -> RunResult | None:
        link = self._links[ctx.user_id, ctx.session_id]
        await link.ensure()
        assert link.acp_id is not None
        self.numbers[link.acp_id] = ctx.turn_number
        return await super().run(ctx)

    async def die(self) -> None:
        """The agent's processes are killed."""
        for link in self._links.values():
            await link.drop(kill=True)


class AcpHarness(Harness):
    """Plays what ACP v1 has words for: no errors that end nothing, and no sub-agents."""

    name = "acp"
    plays = STEPS - {"fail", "delegate"}
    about: Initialized | None = None
    """What the agent has said of itself, once it was asked."""

    def executor(self, play: Play) -> AgentExecutor:
        for step in play.script.steps():
            if isinstance(step, Ask) and step.kind != "clarification":
                raise CannotPlay(f"ACP has no question of the kind {step.kind}")
        (play.folder / "script.json").write_text(Script.model_dump_json(play.script))
        return Played(play)

    async def kill(self, executor: AgentExecutor, play: Play) -> None:
        await play.die()
        assert isinstance(executor, Played)
        with anyio.CancelScope(shield=True):
            await executor.die()


harness = AcpHarness()
