"""Hosts that let run what may not run. Rules broken: HOST-01 to HOST-08."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from tests.conformance.broken_hosts._broken import BrokenHost, broken_host

from agentsession.conformance.hosts.harness import HostTool, Word
from agentsession.protocol import Answer, ElicitationRequest, ToolRequest, ToolResult


@broken_host("HOST-01")
class RunsItsToolsUnasked(BrokenHost):
    """Its own tools run without a word of the policy, which is for the agent's alone."""

    async def decide(
        self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        return ("allow", args) if tool is not None else await super().decide(request, tool, args)


@broken_host("HOST-01")
class GrantsUnasked(BrokenHost):
    """The agent's own tools are granted without a word of the policy, which is for the host's alone."""

    async def decide(
        self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        return ("allow", args) if tool is None else await super().decide(request, tool, args)


@broken_host("HOST-01")
class AnswersADenialWithAResult(BrokenHost):
    """A denied call is answered with a result, so that the record says it ran."""

    def denied(self, request: ToolRequest) -> Answer:
        if request.needs == "result":
            return ToolResult(request_id=request.request_id, data="not allowed")
        return super().denied(request)


@broken_host("HOST-01")
class LetsThePolicyChangeArguments(BrokenHost):
    """The policy is shown the very arguments that run."""

    def copied(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return dict(args)

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        return await super().approve(request, super().copied(args))


@broken_host("HOST-01")
class DecidesOnceForATool(BrokenHost):
    """What the policy said of one call of a tool holds for all calls of it."""

    def policy(self, request: ToolRequest, args: Mapping[str, Any]) -> str:
        if args != request.args:  # an edit is decided on again, as by the correct one
            return super().policy(request, args)
        self.decided: dict[str, str] = getattr(self, "decided", {})
        if request.name not in self.decided:
            self.decided[request.name] = super().policy(request, args)
        return self.decided[request.name]


class _RightInConfirmations(BrokenHost):
    """Wrong about calls alone: what the agent's own confirmations may open is the matter of HOST-08."""

    def may_be_confirmed(self, call: ToolRequest) -> bool:
        try:
            return self.situation.decide(call.name, self.copied(call.args or {})) in ("allow", "ask")
        except Exception:  # noqa: BLE001  # a policy that fails has denied
            return False


@broken_host("HOST-02")
class AllowsWhatNoRuleNames(_RightInConfirmations):
    """The policy is a list of what is denied: whatever it does not name may run."""

    def meaning(self, word: str | None) -> str:
        return "allow" if word is None else super().meaning(word)


@broken_host("HOST-02")
class AllowsWhatIsNotDenied(BrokenHost):
    """Every word but deny and ask is taken for an allow."""

    def meaning(self, word: str | None) -> str:
        return "deny" if word is None else word if word in ("deny", "ask") else "allow"


@broken_host("HOST-03")
class AllowsWhenThePolicyFails(_RightInConfirmations):
    """A policy that raises is as if there were none."""

    def policy(self, request: ToolRequest, args: Mapping[str, Any]) -> str:
        try:
            self.situation.decide(request.name, self.copied(args))
        except Exception:  # noqa: BLE001  # this is the fault
            return "allow"
        return super().policy(request, args)


@broken_host("HOST-03")
class FallsOverItsPolicy(_RightInConfirmations):
    """What the policy raises ends the turn."""

    def policy(self, request: ToolRequest, args: Mapping[str, Any]) -> str:
        return self.meaning(self.situation.decide(request.name, self.copied(args)))


@broken_host("HOST-04")
class SaysYesWhereNobodyIs(BrokenHost):
    """Without a person, what would be asked is allowed."""

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        return Word("yes") if self.situation.person is None else await super().approve(request, args)


@broken_host("HOST-04")
class PicksTheFirstOption(BrokenHost):
    """Without a person, a question is answered with the first thing that it offers."""

    async def make_question(self, request: ElicitationRequest) -> Answer:
        if self.situation.person is None and request.kind == "user_approval":
            return self.question(request.request_id, "accept", {"option": "allow_once"})
        return await super().make_question(request)


@broken_host("HOST-05")
class TakesAClosedQuestionForAYes(BrokenHost):
    """Whatever is not a no runs the call."""

    def is_yes(self, word: Word) -> bool:
        return word.verdict != "no"


@broken_host("HOST-05")
class TakesANoForAYes(BrokenHost):
    """That the person has answered at all runs the call."""

    def is_yes(self, word: Word) -> bool:
        return word.verdict != "closed"

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        return Word("closed") if self.situation.person is None else await super().approve(request, args)


@broken_host("HOST-05")
class TakesABrokenChannelForAYes(BrokenHost):
    """A channel that fails is as if nobody had to be asked."""

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        if self.situation.person is None:
            return Word("no")
        try:
            return await self.situation.person.approve(request.name, self.copied(args))
        except Exception:  # noqa: BLE001  # this is the fault
            return Word("yes")


@broken_host("HOST-05")
class RemembersAYes(BrokenHost):
    """A yes of the person holds for all calls of the tool."""

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        self.said: dict[str, Word] = getattr(self, "said", {})
        if request.name not in self.said:
            self.said[request.name] = await super().approve(request, args)
        return self.said[request.name]


@broken_host("HOST-05")
class AsksOnceForCallsSideBySide(BrokenHost):
    """While the person is asked about a tool, what is said holds for each other call of it that waits."""

    word = Word("no")

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        self.asking: dict[str, anyio.Event] = getattr(self, "asking", {})
        if request.name in self.asking:
            await self.asking[request.name].wait()
            return self.word
        asked = self.asking[request.name] = anyio.Event()
        try:
            self.word = await super().approve(request, args)
        finally:
            del self.asking[request.name]
            asked.set()
        return self.word


@broken_host("HOST-05")
class DeniesWhatThePersonAllowed(BrokenHost):
    """A yes of the person is for the host's own tools; those of the agent are denied."""

    async def decide(
        self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        word, decided = await super().decide(request, tool, args)
        return ("deny" if tool is None and self.policy(request, args) == "ask" else word), decided


@broken_host("HOST-06")
class ShowsTheAgentsTitle(BrokenHost):
    """The person is shown the title that the agent gave the call, where there is one."""

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        title = (request.display or {}).get("title")
        return await super().approve(request if title is None else request.model_copy(update={"name": title}), args)


@broken_host("HOST-06")
class LetsThePageChangeArguments(BrokenHost):
    """The page is given the very arguments that run."""

    async def approve(self, request: ToolRequest, args: Mapping[str, Any]) -> Word:
        if self.situation.person is None:
            return Word("no")
        try:
            return await self.situation.person.approve(request.name, args)
        except Exception:  # noqa: BLE001  # as the correct one
            return Word("no")


@broken_host("HOST-07")
class DoesNotCheckEdits(BrokenHost):
    """What a person has edited runs as it is."""

    def edited(self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]) -> str:
        return "allow"


@broken_host("HOST-07")
class ForgetsEdits(BrokenHost):
    """The call runs with the arguments of the request, whatever the person made of them."""

    async def decide(
        self, request: ToolRequest, tool: HostTool | None, args: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        word, _ = await super().decide(request, tool, args)
        return word, args


@broken_host("HOST-07")
class GrantsWithoutTheEdit(BrokenHost):
    """What a person edited in a call of the agent's is left out of the grant."""

    def grant(self, request: ToolRequest, edited: dict[str, Any] | None) -> Answer:
        return super().grant(request, None)


@broken_host("HOST-08")
class PassesEveryConfirmationOn(BrokenHost):
    """A confirmation goes to the person, whatever the policy says of the call."""

    async def make_question(self, request: ElicitationRequest) -> Answer:
        return await super().make_question(request.model_copy(update={"tool_request_id": None}))


@broken_host("HOST-08")
class ConfirmsWhatIsNotDenied(BrokenHost):
    """A confirmation is kept from the person where the policy says deny, and only there."""

    def may_be_confirmed(self, call: ToolRequest) -> bool:
        try:
            return self.situation.decide(call.name, self.copied(call.args or {})) != "deny"
        except Exception:  # noqa: BLE001  # this is the fault
            return True


@broken_host("HOST-08")
class DeclinesEveryConfirmation(BrokenHost):
    """A confirmation never reaches the person."""

    async def make_question(self, request: ElicitationRequest) -> Answer:
        if request.tool_request_id is not None:
            return self.question(request.request_id, "decline", None)
        return await super().make_question(request)
