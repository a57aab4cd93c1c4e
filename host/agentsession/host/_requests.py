"""One request on its way to its answer: schema check, policy, the person, the run.

Not for: scheduling and sending (``_turn.py``). Rules carried: TOOL-04, TOOL-05, HITL-01, HITL-02, HITL-04, HITL-11.
May import: ``_elicitation``, ``_lineage``, ``_policy``, ``_results``, ``_settings``, ``_tools``, ``_waiting``,
``protocol``.

Stages only tighten: a person's yes, now or remembered, turns an ``ask_user`` into a run, nothing turns a denial into
one. Between the policy and the person come the mode's ceiling and what was remembered, in :meth:`Pipeline._judge`.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._elicitation import Approval, Position, as_approval, expiry
from agentsession.host._lineage import Above, Caller
from agentsession.host._outcome import LEFT_WAITING, ToolOutcome, unknown_tool
from agentsession.host._places import hold_places
from agentsession.host._policy import PolicyDecision, PolicyRequest, ceiling, decide
from agentsession.host._results import Stopwatch
from agentsession.host._settings import Settings
from agentsession.host._tailcalls import MAX_TAIL_CALLS, TailCall
from agentsession.host._telemetry import measure_policy, tool_span
from agentsession.host._toolcontext import ToolContext
from agentsession.host._toolquestions import ToolQuestions
from agentsession.host._tools import Tool
from agentsession.host._urls import unsafe_url
from agentsession.host._waiting import Judged, Waiting
from agentsession.host.policy._remembered import memory_of
from agentsession.protocol import (
    AgentDescriptor,
    Answer,
    ConfigurationError,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    JsonError,
    ToolAnnotations,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    check_json,
)

__all__ = ["Asker", "EndTurn", "Pipeline", "PolicyFacts"]

logger = logging.getLogger("agentsession.host")

_TRIES = 3
"""How often a person may give arguments or content that do not fit, before the answer is no."""

_RUNNING: set[tuple[str, str]] = set()
"""The requests whose tools run in this process now, by session: several hosts may serve one session."""

_R = TypeVar("_R", ToolRequest, ElicitationRequest)

PolicyFacts = Callable[[ToolRequest | ElicitationRequest], dict[str, Any]]
"""Who asks, where and in which mode: the fields of a :class:`PolicyRequest` that the turn knows."""


class EndTurn(Exception):
    """The person cancelled: ``answer`` is given, and the turn is aborted."""

    def __init__(self, answer: Answer, reason: str | None) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


class Asker:
    """Puts questions to the channel, one at a time unless it takes several; whatever goes wrong there is a no."""

    def __init__(self, settings: Settings, waiting: Stopwatch, facts: PolicyFacts, above: Above | None = None) -> None:
        self._channel = settings.channel
        self._timeout_s = settings.question_timeout_s
        self._waiting = waiting
        self._facts = facts
        self._above = above
        self._one = None if getattr(self._channel, "concurrent", False) else anyio.Lock()
        self._open = 0
        self._asked = 0

    async def approve(self, request: ToolRequest, decision: PolicyDecision, problem: str | None) -> Approval:
        """The person's word on a tool call."""
        async with self.queued() as place:
            try:
                with anyio.move_on_after(self._timeout_s):
                    shown, position = self.shown(request), self._position(request, place(problem))
                    return as_approval(await self._channel.approve(shown, decision, position))
                # The person may be away: nothing else of the turn is to run, or be asked, meanwhile.
                return Approval.cancel(self._timed_out, by="host")
            except failures() as error:  # a channel that fails has not said yes
                raise_if_cancelled(error)
                logger.warning("the channel failed at %r, so it was denied: %s", request.name, type(error).__name__)
                logger.debug("the channel's failure", exc_info=error)
                return Approval.no(f"channel_error: {type(error).__name__}", by="host")

    async def ask(self, request: ElicitationRequest, problem: str | None) -> ElicitationAnswer | None:
        """The person's answer to a question, or ``None`` to leave it waiting."""
        unsafe = unsafe_url(request.url) if request.url is not None else None
        if unsafe is not None:  # whoever asks may not send a person anywhere
            return _question_answer(request, "cancel", Decision(by="host", reason=f"unsafe_url: {unsafe}"))
        answer: ElicitationAnswer | None = None
        async with self.queued() as place:
            try:
                with anyio.move_on_after(self._timeout_s) as limit:
                    answer = await self._channel.ask(self.shown(request), self._position(request, place(problem)))
                if limit.cancelled_caught:
                    return _question_answer(request, "cancel", Decision(by="host", reason=self._timed_out))
            except failures() as error:  # a channel that fails has not said yes
                raise_if_cancelled(error)
                logger.warning(
                    "the channel failed at a %r, so it was cancelled: %s", request.kind, type(error).__name__
                )
                logger.debug("the channel's failure", exc_info=error)
                return _question_answer(
                    request, "cancel", Decision(by="host", reason=f"channel_error: {type(error).__name__}")
                )
        if answer is None:
            return None
        if not isinstance(answer, ElicitationAnswer) or answer.action not in ("accept", "decline", "cancel"):
            return _question_answer(request, "cancel", Decision(by="host", reason="unclear_answer"))
        word = answer.decision or Decision(by="user")
        if answer.action != "accept":
            return _question_answer(request, answer.action, word)  # no content with a no: rule HITL-09
        return answer.model_copy(update={"request_id": request.request_id, "decision": word})

    def shown(self, request: _R) -> _R:
        """As it is asked. A copy: what a channel does to the request must reach neither the tool nor the record."""
        copied = request.model_copy(deep=True)
        return copied if self._above is None else self._above.shown(copied)

    def shown_id(self, request: ToolRequest) -> str:
        """The id under which it is asked."""
        return request.request_id if self._above is None else self._above.shown(request).request_id

    def _position(self, request: ToolRequest | ElicitationRequest, position: Position) -> Position:
        facts = self._facts(request)
        return dataclasses.replace(
            position,
            principals=facts["principal_path"],
            user_id=facts.get("user_id"),
            expires_at=expiry(self._timeout_s),
        )

    @property
    def _timed_out(self) -> str:
        return f"timed_out: nobody answered within {self._timeout_s:g} s"

    @asynccontextmanager
    async def queued(self) -> AsyncGenerator[Callable[[str | None], Position]]:
        """Wait for one's turn to ask. One person is over all agents of a turn, so the root's turn has the queue."""
        if self._above is not None:
            async with self._above.asking() as place:
                with self._waiting.running():
                    yield place
            return
        self._open += 1
        try:
            if self._one is not None:
                await self._one.acquire()
            try:
                # The place may have come free because the person ended the turn: then nothing more is asked.
                await anyio.lowlevel.checkpoint_if_cancelled()
                with self._waiting.running():
                    yield lambda problem: Position(self._asked + 1, self._asked + self._open, problem)
            finally:
                if self._one is not None:
                    self._one.release()
        finally:
            self._open -= 1
            self._asked = self._asked + 1 if self._open else 0


class Pipeline:
    """Makes the answers of one turn."""

    def __init__(
        self,
        settings: Settings,
        descriptor: AgentDescriptor,
        facts: PolicyFacts,
        find_request: Callable[[str], Awaitable[ToolRequest | None]],
        send_progress: Callable[[ToolProgress], Awaitable[None]],
        tell_start: Callable[[str], Awaitable[bool]],
        caller: Callable[[ToolRequest], Caller] | None = None,
        above: Above | None = None,
    ) -> None:
        self._settings = settings
        self._caller = caller
        self._above = above
        self._descriptor = descriptor
        self._facts = facts
        self._find_request = find_request
        self._send_progress = send_progress
        self._tell_start = tell_start
        self.people = Stopwatch()
        self.tools = Stopwatch()
        self.still_running: list[str] = []
        self._running: dict[str, tuple[ToolContext, _Allowed]] = {}
        self._cut: dict[str, tuple[ToolContext, _Allowed]] = {}
        self.asker = Asker(settings, self.people, facts, above)
        self._slots = anyio.CapacityLimiter(settings.max_parallel_tools)
        # Threads of tools that were given up keep their place until they end; these must not starve the others.
        self._threads = anyio.CapacityLimiter(settings.max_parallel_tools + 32)

    async def answer(self, request: ToolRequest | ElicitationRequest, problem: str | None = None) -> Answer | None:
        """The answer to ``request``; ``None`` leaves it waiting. ``problem``: why the last answer was refused.

        Raises :class:`EndTurn` when the person cancelled.
        """
        if isinstance(request, ToolRequest):
            return await self._answer_tool(request, problem)
        return await self._answer_question(request, problem)

    # --- tools --------------------------------------------------------------------------------------------------

    async def _answer_tool(self, request: ToolRequest, problem: str | None) -> Answer | None:
        args, problem_with_args = _read(request.args)
        if problem_with_args is not None:
            return _refused(request, problem_with_args)
        if request.needs == "grant":
            verdict = await self._decide_tool(request, args, None, problem)
            if not isinstance(verdict, _Allowed):
                return verdict
            return ToolGrant(request_id=request.request_id, args=verdict.edited, decision=verdict.decision)
        if request.needs != "result":
            why = f"unsupported_needs: this host does not know {request.needs[:40]!r}"
            return _denial(request, why, Decision(by="host", reason=why))
        if request.owner == "agent" and request.long_running:
            return None  # the outcome of a job of the agent's, which comes from elsewhere
        tool = self._settings.tools.get(request.name)
        if tool is None:
            known = [descriptor.name for descriptor in self._settings.tools.descriptors]
            return unknown_tool(request.name, known).answer(request.request_id)
        refused = tool.check(args)
        if refused is not None:
            return refused.answer(request.request_id)
        verdict = await self._decide_tool(request, args, tool, problem)
        if not isinstance(verdict, _Allowed):
            return verdict
        if verdict.edited is not None:
            args = copy.deepcopy(verdict.edited)  # what the tool does to them must not reach the record
        outcome = await self._run(request, tool, args, verdict)
        if outcome is None or outcome is LEFT_WAITING:
            return None
        if outcome.tail is not None:
            outcome = await self._follow(request, outcome, verdict)
        outcome = await self._after_tool(request, verdict.edited or args, outcome)
        return outcome.answer(request.request_id, verdict.decision, verdict.edited)

    async def _follow(self, first: ToolRequest, outcome: ToolOutcome, verdict: _Allowed) -> ToolOutcome:
        """Make the calls that a tool of ``first`` hands its own over to; what the last one comes to."""
        for step in range(1, MAX_TAIL_CALLS + 1):
            if outcome.tail is None:
                return outcome
            try:
                request = outcome.tail.request(first, step)
            except (TypeError, ValueError) as error:  # what a tool returns may be anything
                return ToolOutcome.failure("invalid_arguments", f"of the call that it hands over to: {error}")
            outcome = await self._tail_call(first, request, step, verdict)
        if outcome.tail is None:
            return outcome
        return ToolOutcome.failure("tail_call_limit", f"the tools handed over more than {MAX_TAIL_CALLS} times")

    async def _tail_call(self, first: ToolRequest, request: ToolRequest, step: int, verdict: _Allowed) -> ToolOutcome:
        args, problem = _read(request.args)
        tool = self._settings.tools.get(request.name)
        if tool is None:
            return unknown_tool(request.name, [each.name for each in self._settings.tools.descriptors])
        refused = ToolOutcome.failure("invalid_arguments", problem) if problem is not None else tool.check(args)
        if refused is not None:
            return refused
        try:
            word = await self._decide_tool(request, args, tool, None)
        except EndTurn as end:
            stopped = _tail_denied(request, end.reason or "the user said no")
            raise EndTurn(stopped.answer(first.request_id, verdict.decision, verdict.edited), end.reason) from None
        if not isinstance(word, _Allowed):
            by = None if word is None else word.decision
            # What has run has run: the request is answered, and cannot wait any more.
            why = "nobody decided" if word is None else word.reason or "it was denied"
            await self._send_progress(TailCall.told(first, request, step, by, "denied"))
            return _tail_denied(request, why)
        await self._send_progress(TailCall.told(first, request, step, word.decision, "granted"))
        if word.edited is not None:
            args = copy.deepcopy(word.edited)
        outcome = await self._run(request, tool, args, verdict, first)
        if outcome is None or outcome is LEFT_WAITING:
            return _tail_denied(request, "it waits for somebody, and a call that was handed over cannot")
        return outcome if outcome.tail is not None else await self._after_tool(request, args, outcome)

    async def _decide_tool(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, problem: str | None
    ) -> _Allowed | ToolDenial | None:
        if self._above is not None and self._above.is_done():
            why = "task_complete: the result was given, and nothing more may run"
            return _denial(request, why, Decision(by="host", reason=why))
        blocked = await self._before_tool(request, args)
        if blocked is not None:
            return blocked
        if tool is not None and tool.is_completion:
            return _Allowed(Decision(by="host", reason="the agent's result"), None)
        judged = await self._judge(request, args, tool)
        if not judged.decision.is_ask:
            return _settled(request, judged.decision)

        def mode() -> str:
            return str(self._facts(request)["permission_mode"])

        with self._settings.waiting.opened(
            Waiting(request, judged, mode, lambda: self._judge(request, args, tool))
        ) as waiting:
            for _ in range(_TRIES):
                approval = await self._ask(waiting, problem)
                if approval is None:
                    assert waiting.settled is not None  # else the question would not have been withdrawn
                    return _settled(request, waiting.settled)
                if approval.verdict == "pause":
                    return None
                word = Decision(by=approval.by, reason=approval.reason)
                if not approval.is_yes:
                    denial = _denial(request, approval.reason or "the user said no", word)
                    if approval.verdict == "cancel":
                        raise EndTurn(denial, approval.reason)
                    return denial
                again, edited = waiting.judged, None
                if approval.args is not None:
                    edited, problem = _edited(approval.args, tool)
                    if problem is not None:
                        waiting.is_answered = False
                        continue
                    # The person's arguments pass the policy again: an edit may not go where the model could not.
                    again = await self._judge(request, edited, tool, edited=True)
                elif mode() != again.question.permission_mode:  # the mode was changed while the person thought
                    again = await self._judge(request, args, tool)
                if again.decision.strictness > 1:
                    return _policy_denial(request, again.decision)
                if edited is not None and tool is not None:  # of a grant the executor asks the hooks itself
                    blocked = await self._before_tool(request, edited, granted=True)
                    if blocked is not None:
                        return blocked
                await self._remember(again, approval)
                return _Allowed(word, edited)
        return _denial(request, "invalid_edit: the edited arguments do not fit", Decision(by="host", reason=problem))

    async def _ask(self, waiting: Waiting, problem: str | None) -> Approval | None:
        """The person's word; ``None`` when something else settled the request meanwhile, and the question is void."""
        approval: Approval | None = None
        if waiting.settled is None:
            with anyio.CancelScope() as waiting.scope:
                approval = await self.asker.approve(waiting.request, waiting.judged.decision, problem)
        if waiting.settled is not None and (approval is None or waiting.settled.strictness > 1):
            return None
        waiting.is_answered = True
        return approval

    async def _remember(self, judged: Judged, approval: Approval) -> None:
        """Keep a yes that is to hold for more than this call, and settle at once what else it answers."""
        if approval.remember == "once" or not judged.decision.is_ask:
            return
        kept = self._settings.remembered.keep(judged.question, judged.decision, approval.remember)
        self._settings.waiting.settle_remembered()  # before anything is awaited: nobody is asked what was answered
        if kept is None:
            return
        try:
            await self._settings.remembered.save(kept)
        except ConfigurationError as error:
            logger.warning("the answer is not saved, and holds as long as this process: %s", error.what)

    async def _judge(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool = False
    ) -> Judged:
        """The policy's word, held to the mode's ceiling; a question that a remembered answer settles is an allow."""
        judged = await self._ask_policy(request, args, tool, edited=edited)
        question, decision = judged.question, judged.decision
        if self._settings.hooks is not None:
            decision = self._settings.hooks.tighten(request, decision)
        found = self._settings.remembered.find(question, decision)
        if found is not None:
            decision = PolicyDecision("allow", f"remembered:{found.id}")
        elif decision.is_ask:  # the channel offers what can be had
            decision = dataclasses.replace(decision, remember=memory_of(question, decision))
        return Judged(question, decision)

    async def _ask_policy(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool
    ) -> Judged:
        """The policy's word, in the mode that still holds when it is given."""
        question = self._question(request, args, tool, edited=edited)
        for _ in range(_TRIES):
            # A copy: what a policy does to the arguments must not reach the tool.
            asked = dataclasses.replace(question, args=copy.deepcopy(args))
            with measure_policy() as decided:
                decision = ceiling(question, await decide(self._settings.policy, asked))
                decided(decision.decision)
            now = self._question(request, args, tool, edited=edited)
            if now.permission_mode == question.permission_mode:
                return Judged(question, decision)
            question = now  # the mode was changed while the policy thought
        return Judged(question, PolicyDecision("deny", reason="policy_error: the permission mode changed at each try"))

    def _question(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool
    ) -> PolicyRequest:
        owner = "agent" if tool is None else "host"
        annotations = self._own_annotations(request.name) if tool is None else tool.descriptor.annotations
        return PolicyRequest(
            tool=request.name,
            args=args,
            annotations=annotations,
            owner=owner,
            provider=None if tool is None else tool.provider,
            provider_tool=None if tool is None else tool.local_name,
            trusted=tool is not None and tool.trusted,
            request_id=self.asker.shown_id(request),
            edited=edited,
            interactive=getattr(self._settings.channel, "interactive", True) is True,
            **self._facts(request),
        )

    async def _before_tool(
        self, request: ToolRequest, args: dict[str, Any], *, granted: bool = False
    ) -> ToolDenial | None:
        """What the hooks say of a call that its executor did not show them, or of a person's arguments."""
        if self._settings.hooks is None:
            return None
        blocked = await self._settings.hooks.before(request, args, self._facts(request), granted=granted)
        return _policy_denial(request, blocked) if blocked is not None else None

    async def _after_tool(self, request: ToolRequest, args: dict[str, Any], outcome: ToolOutcome) -> ToolOutcome:
        """What the hooks make of a result, before anybody else has it."""
        if self._settings.hooks is None:
            return outcome
        shown = await self._settings.hooks.after(request, args, self._facts(request), outcome)
        # Whatever the model is told of it: what it has used, and whether it was cut off, is as it was.
        return dataclasses.replace(shown, spent=outcome.spent, unknown=outcome.unknown)

    def _own_annotations(self, name: str) -> ToolAnnotations | None:
        agents = [self._descriptor]
        while agents:
            agent = agents.pop(0)
            for descriptor in agent.own_tools:
                if descriptor.name == name:
                    return descriptor.annotations
            agents.extend(agent.sub_agents)
        return None

    async def _run(
        self,
        request: ToolRequest,
        tool: Tool,
        args: dict[str, Any],
        verdict: _Allowed,
        first: ToolRequest | None = None,
    ) -> ToolOutcome | None:
        """Run a host tool in one of the free places; waiting for a place or a person is not its time. Rule: HITL-11.

        ``None`` where somebody else has started it: whoever that is tells its result. Rule: TOOL-16.
        ``first``: the request that is answered by it, when another tool handed over to this one.
        """
        answered = (first or request).request_id

        async def send_progress(progress: ToolProgress) -> None:
            await self._send_progress(progress.model_copy(update={"request_id": answered}))

        settings = self._settings
        limit_s = settings.tool_timeout_s if tool.timeout_s is None and not tool.keeps_time else tool.timeout_s
        questions = ToolQuestions(request, self.asker.ask)
        context = ToolContext(
            request.request_id,
            tool_name=tool.name,
            session_id=request.session_id,
            turn_id=request.turn_id,
            thread_id=request.thread_id,
            ask=questions.ask,
            caller=None if self._caller is None else self._caller(request),
            user_id=self._facts(request)["user_id"] or "local",
        )
        outcome: ToolOutcome | None = None
        is_late = False
        async with hold_places(tool.places, context), self._slots:
            # In the record before the tool runs: after a crash nobody can say whether a tool ran that left no trace.
            if first is None and tool.tells_start and not await self._tell_start(request.request_id):
                return None
            # Stopped while it got its place: from here to the tool's first line nothing is awaited.
            await anyio.lowlevel.checkpoint_if_cancelled()
            try:
                self._running[answered] = (context, verdict)
                _RUNNING.add((request.session_id, answered))
                with self.tools.running(), tool_span(tool.name, request.request_id, request.session_id, args) as span:
                    async with anyio.create_task_group() as progress:
                        progress.start_soon(context.forward, send_progress)
                        with anyio.move_on_after(limit_s) as scope:
                            questions.limit = scope
                            outcome = await tool.run(
                                args,
                                context,
                                limiter=self._threads,
                                expose_errors=settings.expose_tool_errors,
                                is_checked=True,
                            )
                        is_late = scope.cancel_called
                        context.finish()
                    if outcome is None or outcome.is_error:
                        code = "tool_timeout" if outcome is None or is_late else outcome.error_code
                        span.failed(code or "tool_error")
                    if outcome is not None:
                        span.result(outcome)
            except anyio.get_cancelled_exc_class():
                # The whole turn is being cancelled, perhaps before anybody asked what runs.
                if answered in self._running:
                    self._cut[answered] = (context, verdict)
                raise
            finally:
                self._running.pop(answered, None)
                _RUNNING.discard((request.session_id, answered))
                context.cancel()
                if context.thread_running:
                    self.still_running.append(answered)
                    logger.warning("tool %r was given up; its thread still runs", tool.name)
        if outcome is None or (is_late and outcome.is_error):
            running = True if context.thread_running else None
            outcome = ToolOutcome.failure("tool_timeout", f"no result within {limit_s} s", stillRunning=running)
        return outcome

    def stopped(self) -> list[Answer]:
        """What to say of the tools that run now, when they are about to be stopped: their effects may be partial.

        The session only knows that their requests wait, and would settle them as never started. Said once of each.
        """
        running, self._running, self._cut = {**self._cut, **self._running}, {}, {}
        return [
            _cut_off(
                "cancelled",
                "the tool was stopped; its effects may be partial",
                stillRunning=True if context.thread_running else None,
            ).answer(request_id, verdict.decision, verdict.edited)
            for request_id, (context, verdict) in running.items()
        ]

    @staticmethod
    def is_running(request: ToolRequest) -> bool:
        """Whether a host of this process runs the tool of this request now."""
        return (request.session_id, request.request_id) in _RUNNING

    @staticmethod
    def lost(request: ToolRequest) -> Answer:
        """What to say of a tool that was started by a host that is gone. It is never run again."""
        answer: Answer = _cut_off(
            "outcome_unknown",
            "its host ended after it had started; whether it had its effects is not known, and it was not run again",
        ).answer(request.request_id)
        return answer

    # --- questions ----------------------------------------------------------------------------------------------

    async def _answer_question(self, request: ElicitationRequest, problem: str | None) -> ElicitationAnswer | None:
        if request.kind == "tool_confirmation" and request.tool_request_id is not None:
            # A tool that brings its own confirmation is not asked for by needs: the policy's no holds here.
            call = await self._find_request(request.tool_request_id)
            if call is not None:
                decision = (await self._judge(call, call.args or {}, None)).decision
                if decision.strictness > 1:
                    return _question_answer(request, "decline", Decision(by=decision.by, reason=decision.reason))
        return await self.asker.ask(request, problem)


@dataclasses.dataclass(frozen=True, slots=True)
class _Allowed:
    """The call may run: by whose word, and with which arguments when they were edited."""

    decision: Decision
    edited: dict[str, Any] | None


def _read(args: object) -> tuple[dict[str, Any], str | None]:
    """A copy of arguments, and what is wrong with them. None is none; an executor may have checked nothing."""
    try:
        read: Any = check_json({} if args is None else args)
    except JsonError as error:
        return {}, str(error)
    if not isinstance(read, dict):
        return {}, f"the arguments must be an object, not {type(args).__name__}"
    return read, None


def _cut_off(code: str, message: str, **details: Any) -> ToolOutcome:
    return dataclasses.replace(ToolOutcome.failure(code, message, **details), unknown=True)


def _refused(request: ToolRequest, problem: str) -> Answer:
    if request.needs != "result":
        why = f"invalid_arguments: {problem}"
        return _denial(request, why, Decision(by="host", reason=why))
    answer: Answer = ToolOutcome.failure("invalid_arguments", problem).answer(request.request_id)
    return answer


def _edited(args: object, tool: Tool | None) -> tuple[dict[str, Any], str | None]:
    """A copy of edited arguments, and what is wrong with them. What JSON cannot say could run and never be recorded."""
    edited, problem = _read(args)
    if problem is not None:
        return edited, problem
    refused = tool.check(edited) if tool is not None else None
    return edited, refused.data["error"]["message"] if refused is not None else None


def _tail_denied(request: ToolRequest, why: str) -> ToolOutcome:
    return ToolOutcome.failure(
        "tail_call_denied", f"the tool ran, and handed over to {request.name}, which did not: {why}", tool=request.name
    )


def _denial(request: ToolRequest, reason: str, decision: Decision) -> ToolDenial:
    return ToolDenial(request_id=request.request_id, reason=reason, decision=decision)


def _settled(request: ToolRequest, decision: PolicyDecision) -> _Allowed | ToolDenial:
    """What a decision that is no question comes to."""
    if decision.is_allow:
        return _Allowed(Decision(by=decision.by, reason=decision.reason), None)
    return _policy_denial(request, decision)


def _policy_denial(request: ToolRequest, decision: PolicyDecision) -> ToolDenial:
    reason = decision.reason or f"the host's policy does not allow {request.name}"
    return _denial(request, reason, Decision(by=decision.by, reason=decision.reason))


def _question_answer(request: ElicitationRequest, action: str, decision: Decision) -> ElicitationAnswer:
    return ElicitationAnswer(request_id=request.request_id, action=action, decision=decision)
