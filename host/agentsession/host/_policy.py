"""Policy: whether a tool call may run. Pure of I/O where the built-in evaluators are concerned, and closed by default.

Not for: asking the person (``_elicitation.py``) or running the call (``_turn.py``). Rules carried: HITL-01, HITL-02.
May import: ``_cancellation``, ``protocol``.

Three words count: ``allow``, ``ask_user``, ``deny``. The set is open so that an evaluator of another host can say more,
and every word that this host does not know is a denial. So is an exception, a wrong type, and no match.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.protocol import ConfigurationError, ToolAnnotations

__all__ = [
    "DECISIONS",
    "AnnotationPolicy",
    "Policy",
    "PolicyDecision",
    "PolicyEvaluator",
    "PolicyRequest",
    "Rule",
    "RulePolicy",
    "StrictestPolicy",
    "allow_all",
    "ask_all",
    "ceiling",
    "decide",
    "deny_all",
]

logger = logging.getLogger("agentsession.host")

DECISIONS: Final = ("allow", "ask_user", "deny")
"""The words with a meaning, from loose to strict."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """One call to decide on, with all that a policy may look at."""

    tool: str
    """The tool's name, as in the request."""
    args: Mapping[str, Any]
    annotations: ToolAnnotations | None = None
    """What whoever declared the tool claims of it; ``owner`` says who that is."""
    owner: str = "host"
    """Who runs it: ``host`` or ``agent``."""
    provider: str | None = None
    """The name of the provider that a host's tool comes from, such as a tool server; ``None`` for its own functions."""
    provider_tool: str | None = None
    """What the provider calls it; ``tool`` may have a prefix."""
    trusted: bool = True
    """Whether the host vouches for ``annotations``; when not, they may only tighten. The pipeline sets it: yes for the
    host's own tools and those of providers that it was told to trust, no for other providers' and the agent's own."""
    principal: str = ""
    """The agent that asks."""
    principal_path: tuple[str, ...] = ()
    """From the root agent to the one that asks; it is the last."""
    session_id: str = ""
    turn_id: str | None = None
    request_id: str = ""
    user_id: str | None = None
    permission_mode: str = "default"
    edited: bool = False
    """The arguments are a person's, and are decided on again."""
    interactive: bool = True
    """Whether a person can be asked now."""
    root_session_id: str = ""
    """The session that the person sees, where this one is a sub-agent's; empty where it is the same."""
    context: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Open, from the host."""

    @property
    def qualified_name(self) -> str:
        """``PROVIDER:NAME``, what rules are written on: ``fs:read``; without a provider ``host:`` or ``agent:``."""
        return f"{self.provider or self.owner}:{self.provider_tool or self.tool}"


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What a policy said, by which rule, and why."""

    decision: str
    """``allow``, ``ask_user`` or ``deny``; open, and unknown ones deny."""
    by: str = "policy"
    """Recorded with the answer: ``policy``, or ``policy:RULE``."""
    reason: str | None = None
    """Told to the person when it asks, and to the model when it denies."""
    where: str | None = None
    """File and line of the rule, for people: ``policy.toml:12``."""
    remember: str | None = None
    """What a yes may be remembered for, with ``ask_user``: ``tool`` for calls like this one, ``exact`` for these
    arguments alone, ``never``; ``None`` leaves it to the host: ``exact`` for tools that can destroy, else ``tool``."""
    narrowing: str | None = None
    """What "calls like this one" are beside the tool: an answer counts where this is equal. ``None``: where ``by``
    is."""
    scope: str = ""
    """The narrowing for a person: ``with /path under 'src'``."""
    names_mode: bool = False
    """The rule names the permission mode that the call is in. Only such an allow runs in ``plan`` what does not just
    read."""

    @property
    def is_allow(self) -> bool:
        """Whether the call may run without asking anyone."""
        return self.decision == "allow"

    @property
    def is_ask(self) -> bool:
        """Whether a person decides."""
        return self.decision == "ask_user"

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask_user, 2 for all else."""
        return DECISIONS.index(self.decision) if self.decision in DECISIONS else 2


@runtime_checkable
class PolicyEvaluator(Protocol):
    """Decides on calls. May be sync or async."""

    def evaluate(self, request: PolicyRequest) -> PolicyDecision | Awaitable[PolicyDecision]:
        """Decide. Whatever it raises is a denial."""
        ...


Policy = PolicyEvaluator | Callable[[PolicyRequest], PolicyDecision | str | Awaitable[PolicyDecision | str]]
"""What a host takes as its policy: an evaluator, or a function that returns a decision or just its word."""


async def decide(policy: Policy, request: PolicyRequest) -> PolicyDecision:
    """Ask ``policy``; never raises. An exception, another type or an unknown word denies, with a code in ``reason``."""
    try:
        answer: Any = policy.evaluate(request) if isinstance(policy, PolicyEvaluator) else policy(request)
        if inspect.isawaitable(answer):
            answer = await answer
    except failures() as error:  # fail closed: a policy that cannot decide denies
        raise_if_cancelled(error)
        logger.warning("the policy failed at %r, so it was denied: %s", request.tool, type(error).__name__)
        logger.debug("the policy's failure", exc_info=error)
        return PolicyDecision("deny", reason=f"policy_error: {type(error).__name__}")
    if isinstance(answer, str):
        answer = PolicyDecision(answer)
    if not isinstance(answer, PolicyDecision) or not isinstance(answer.decision, str):
        logger.warning("the policy answered a %s at %r, so it was denied", type(answer).__name__, request.tool)
        return PolicyDecision("deny", reason=f"policy_error: a {type(answer).__name__} is not a decision")
    texts = [answer.by, answer.reason or "", answer.where or "", answer.narrowing or "", answer.scope]
    can_be_recorded = all(isinstance(text, str) for text in texts)
    if not can_be_recorded:
        return PolicyDecision("deny", reason="policy_error: by, reason and where must be text")
    if answer.decision not in DECISIONS:
        logger.warning("the policy answered %r at %r, so it was denied", answer.decision[:40], request.tool)
        return dataclasses.replace(answer, decision="deny", reason=f"unknown_decision: {answer.decision[:40]}")
    return answer


def ceiling(request: PolicyRequest, decision: PolicyDecision) -> PolicyDecision:
    """Tighten what the permission mode does not allow, whoever allowed it: in ``plan`` only what reads may run.

    An allow whose rule names the mode stands, as for the file that a plan is written to.
    """
    if request.permission_mode != "plan" or not decision.is_allow or decision.names_mode:
        return decision
    marks = request.annotations
    vouched = request.owner == "host" and request.trusted
    if not vouched or marks is None or marks.read_only is not True or marks.destructive:
        return PolicyDecision("deny", "policy:plan", "only tools that read may run in plan mode", where=decision.where)
    if marks.open_world:
        return PolicyDecision("ask_user", "policy:plan", f"{request.tool} reaches the open world", where=decision.where)
    return decision


def allow_all(request: PolicyRequest) -> PolicyDecision:
    """Allow every call. For tests, and for agents whose tools can do no harm."""
    return PolicyDecision("allow", "policy:allow_all")


def deny_all(request: PolicyRequest) -> PolicyDecision:
    """Deny every call."""
    return PolicyDecision("deny", "policy:deny_all", "no tool may run here")


def ask_all(request: PolicyRequest) -> PolicyDecision:
    """Ask the person about every call."""
    return PolicyDecision("ask_user", "policy:ask_all")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule of a :class:`RulePolicy`. Raises :class:`ConfigurationError` for a word that is no decision."""

    decision: str
    tools: str | Sequence[str] = "*"
    """Globs on the tool's name; upper and lower case differ."""
    when: Callable[[Mapping[str, Any]], bool] | None = None
    """Looks at the arguments; not async. If it raises, the call is denied."""
    principals: str | Sequence[str] | None = None
    """Globs on the names of the agents on the path, joined with ``/`` (``coder/fixer``)."""
    modes: Collection[str] | None = None
    """Permission modes in which it holds. An ``allow`` without modes never holds in ``plan``."""
    reason: str | None = None
    id: str | None = None
    """Recorded with the answer as ``policy:ID``."""

    def __post_init__(self) -> None:
        if self.decision not in DECISIONS:
            raise ConfigurationError(
                f"unknown decision {self.decision!r}",
                where=f"rule {self.id}" if self.id else "a policy rule",
                expected="allow, deny or ask_user",
                id="policy",
            )
        if inspect.iscoroutinefunction(self.when):
            raise ConfigurationError(
                "the condition of a rule is async, so it would always hold",
                where=f"rule {self.id}" if self.id else "a policy rule",
                fix="make it a plain function, or write an async policy",
                id="policy",
            )

    def matches(self, request: PolicyRequest) -> bool:
        """Whether it speaks about this call."""
        if self.modes is not None:
            if request.permission_mode not in self.modes:
                return False
        elif self.decision == "allow" and request.permission_mode == "plan":
            return False
        path = "/".join(request.principal_path)
        return (
            _glob(request.tool, self.tools)
            and (self.principals is None or _glob(path, self.principals))
            and (self.when is None or _holds(self.when, request.args))
        )


class RulePolicy:
    """Ordered rules; the first that matches decides, and a call that none matches is denied."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        """The first match's decision, or a denial."""
        for number, rule in enumerate(self.rules, start=1):
            if rule.matches(request):
                named = rule.modes is not None
                return PolicyDecision(rule.decision, f"policy:{rule.id or number}", rule.reason, names_mode=named)
        return PolicyDecision("deny", "policy:no_match", "no policy rule allows this tool")


class AnnotationPolicy:
    """Decides by what a tool is said to do: read_only is allowed, everything else is asked.

    Only claims of ``trusted`` owners loosen, by default those of the host's own tools and of providers that it trusts;
    ``destructive`` beats ``read_only``, and a read-only tool that reaches the open world is asked in ``plan``, where
    nothing else may run.
    """

    def __init__(self, trusted: Collection[str] = ("host",)) -> None:
        self.trusted = frozenset(trusted)

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        """Allow what only reads; ask about the rest, or deny it in the mode ``plan``."""
        marks = request.annotations
        harmless = marks is not None and marks.read_only is True and not marks.destructive
        if harmless and request.owner == "host" and not request.trusted:
            if request.permission_mode == "plan":
                return PolicyDecision("deny", "policy:plan", "only tools that read may run in plan mode")
            why = f"{request.provider or request.tool} says that it only reads, and is not trusted"
            return PolicyDecision("ask_user", "policy:annotations", why)
        if request.permission_mode == "plan" and not harmless:
            return PolicyDecision("deny", "policy:plan", "only tools that read may run in plan mode")
        if not harmless or request.owner not in self.trusted:
            kind = "destructive" if marks is not None and marks.destructive else "not read-only"
            return PolicyDecision(
                "ask_user", "policy:annotations", f"{request.tool} is {kind}" if not harmless else None
            )
        if request.permission_mode == "plan" and marks is not None and marks.open_world:
            return PolicyDecision("ask_user", "policy:annotations", f"{request.tool} reaches the open world")
        return PolicyDecision("allow", "policy:annotations", names_mode=True)


class StrictestPolicy:
    """Asks several policies; the strictest decision holds, of equals the first. Without any it denies."""

    def __init__(self, *policies: Policy) -> None:
        self.policies = policies

    async def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        """The strictest of their decisions."""
        found = [await decide(policy, request) for policy in self.policies]
        return max(found, key=lambda item: item.strictness, default=PolicyDecision("deny", "policy:none"))


def _holds(when: Callable[[Mapping[str, Any]], bool], args: Mapping[str, Any]) -> bool:
    found: object = when(args)
    if inspect.isawaitable(found):  # it is true whatever it would come to
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError("the condition of a rule returned an awaitable")
    return bool(found)


def _glob(text: str, patterns: str | Sequence[str]) -> bool:
    listed = (patterns,) if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in listed)
