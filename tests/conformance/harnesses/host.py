"""The package's own host under the suite for hosts, with the command's printing of events as its terminal."""

from __future__ import annotations

from typing import Any

from agentsession.conformance.hosts.harness import HostHarness, HostRun, Person, Situation
from agentsession.host import Approval, Host, PolicyDecision, PolicyRequest, Position
from agentsession.host.cli._render import Renderer
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    ToolRequest,
)

__all__ = ["OurHost", "OurRun", "harness"]


class Channel:
    """Brings the host's questions to the person of the situation."""

    concurrent = True

    def __init__(self, person: Person) -> None:
        self.person = person

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        word = await self.person.approve(request.name, request.args or {})
        if word.verdict == "closed":
            return Approval.cancel()
        return Approval.yes(word.args) if word.verdict == "yes" else Approval.no()

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer:
        action, content = await self.person.answer(request.kind, request.message)
        given = {} if content is None else {"content": content}
        return ElicitationAnswer(request_id=request.request_id, action=action, **given)


class OurRun(HostRun):
    """One session of a host."""

    def __init__(self, host: Host, session: AgentSession) -> None:
        self.host, self.session = host, session

    async def turn(self, message: str) -> str:
        return (await self.host.run_turn(self.session, message)).end.reason

    async def abort(self) -> None:
        await self.host.abort(session=self.session)

    async def close(self) -> None:
        await self.host.close(self.session)


class OurHost(HostHarness):
    """``agentsession.host.Host``."""

    name = "agentsession.host"

    async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
        words = {"ask": "ask_user"}
        renderer = Renderer()

        def policy(request: PolicyRequest) -> Any:
            word = situation.decide(request.tool, request.args)
            return words.get(word, word) if word is not None else None

        async def observer(event: Event) -> None:
            situation.prints("\n".join(line.plain for line in renderer.feed(event)))
            await situation.show(event)

        host = Host(
            tools=[(tool.descriptor, tool.run) for tool in situation.tools],
            policy=policy,
            channel=Channel(situation.person) if situation.person is not None else None,
            observer=observer,
            tool_timeout_s=situation.tool_limit_s,
            expose_tool_errors=not situation.quiet_errors,
            abort_grace_s=situation.grace_s,
        )
        return OurRun(host, await host.open(executor))


harness = OurHost()
