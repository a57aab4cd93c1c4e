"""Which rule decides: the highest of those that hold, by tier, priority and strictness; none is a denial.

Not for: what a rule is (``_rule.py``) or what was remembered (``_remembered.py``). Rules carried: HITL-01 (closed).
May import: ``_policy``, ``_rule``, ``_builtin``, ``_reading`` beside it, ``protocol``.

Theory of operation. Rules are sorted once, the highest first; for each tool, agent, mode and situation those that are
about it are kept, so that of many rules few look at the arguments; of many that look for texts which begin in some way
one look says whether any can hold. The first that holds wins, with all of the same
rank: order in a file never counts. Rules that only tighten (a plugin's, an untrusted workspace's, one that holds by an
untrusted provider's word) are set aside on the way and count at the end, where they are stricter than the winner. A
command line is decided part by part, and its strictest part counts.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Self

from agentsession.host._policy import PolicyDecision, PolicyRequest
from agentsession.host.policy._builtin import builtin_rules
from agentsession.host.policy._conditions import Fit
from agentsession.host.policy._reading import load_policy
from agentsession.host.policy._rule import Call, PolicyRule, Tier
from agentsession.host.policy._shell import Part
from agentsession.protocol import ConfigurationError

__all__ = ["Explanation", "Matched", "PolicyEngine"]

_MOST_KNOWN: Final = 2_048
"""Of so many tools, agents and modes the rules are kept; an agent may invent names without end."""
_MANY: Final = 8
"""From so many rules on, one look for all is quicker than one look each."""
_STRICTEST_MEMORY: Final = {"never": 2, "exact": 1, "tool": 0, None: 0}


@dataclasses.dataclass(frozen=True, slots=True)
class Matched:
    """One rule that holds for a call, and what became of it."""

    rule: PolicyRule
    fate: str
    """``decided``, or why it did not."""
    is_odd: bool = False
    """An argument could not be judged, so it holds to be on the safe side."""
    part: int | None = None
    """From 1: of which command of a line; ``None`` where there are not several."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What :meth:`PolicyEngine.evaluate` decides, with every rule that holds."""

    decision: PolicyDecision
    matched: tuple[Matched, ...]
    """The one that decided first, then by rank."""

    @property
    def rule(self) -> PolicyRule | None:
        """The rule that decided; ``None`` if none holds, or none may decide."""
        return next((one.rule for one in self.matched if one.fate == "decided"), None)


@dataclasses.dataclass(slots=True)
class _Verdict:
    """Of one part of a command line, or of a call that has none."""

    winners: Sequence[PolicyRule]
    """All of the same rank; empty: no rule holds, so it is denied."""
    is_odd: bool = False

    @property
    def strictness(self) -> int:
        return self.winners[0].strictness if self.winners else 2


@dataclasses.dataclass(frozen=True, slots=True)
class _About:
    """The rules about a tool, an agent and a mode, the highest first."""

    rules: tuple[PolicyRule, ...]
    pointer: str | None
    """The argument that many of them look at first."""
    beginnings: tuple[str, ...]
    """What it must begin with, in one way or another, for one of those to hold."""
    others: tuple[PolicyRule, ...]
    """Without those."""

    @classmethod
    def of(cls, rules: tuple[PolicyRule, ...]) -> Self:
        """What is about something."""
        looking: dict[str, list[PolicyRule]] = {}
        for rule in rules:
            if not rule.shell and rule.conditions and rule.conditions[0].beginning:
                looking.setdefault(rule.conditions[0].pointer, []).append(rule)
        pointer = max(looking, key=lambda name: len(looking[name]), default=None)
        if pointer is None or len(looking[pointer]) < _MANY:
            return cls(rules, None, (), rules)
        beginnings = {rule.conditions[0].beginning for rule in looking[pointer]}
        aside = {id(rule) for rule in looking[pointer]}
        return cls(rules, pointer, tuple(sorted(beginnings)), tuple(rule for rule in rules if id(rule) not in aside))

    def for_values(self, call: Call) -> tuple[PolicyRule, ...]:
        """Those that may hold for these arguments: all, or all but those that look for another beginning."""
        if self.pointer is None:
            return self.rules
        kind, value = call.values[self.pointer]
        is_other = kind == "absent" or (kind == "text" and not value.startswith(self.beginnings))
        return self.others if is_other else self.rules


class PolicyEngine:
    """Decides by rules from files; an evaluator for :class:`agentsession.host.Host`.

    ::

        engine = PolicyEngine([*builtin_rules(), *load_policy("policy.toml")])
        host = Host(tools=[...], policy=engine)

    ``rules``: in any order. Without :func:`builtin_rules` it is closed: what no rule names is denied.
    ``believed``: owners whose annotations may also loosen, such as ``agent``; the host's own tools and those of
    providers that it trusts are believed anyway. Raises :class:`ConfigurationError` when two rules of a tier have the
    same id.
    """

    def __init__(self, rules: Iterable[PolicyRule], *, believed: Collection[str] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: (*(-part for part in rule.rank), rule.id, rule.where)))
        self._believed = frozenset(believed)
        self._about: dict[tuple[object, ...], _About] = {}
        seen: dict[tuple[Tier, str], PolicyRule] = {}
        for rule in self.rules:
            other = seen.setdefault((rule.tier, rule.id), rule)
            if other is not rule:
                raise ConfigurationError(
                    f"two rules of the tier {rule.tier.name.lower()} are called {rule.id!r}",
                    id="policy",
                    where=f"{rule.where}, rule {rule.id}",
                    got=f"the other is at {other.where}",
                    fix="give each rule an id of its own",
                )

    @classmethod
    def load(
        cls,
        files: Mapping[str | os.PathLike[str], str | Tier],
        *,
        workspace: str | os.PathLike[str] = ".",
        plan_file: str | os.PathLike[str] | None = None,
    ) -> PolicyEngine:
        """The built-in table and some files, each with its tier. Raises what :func:`load_policy` raises."""
        rules = builtin_rules(workspace=workspace, plan_file=plan_file)
        for path, tier in files.items():
            rules += load_policy(path, tier=tier, workspace=workspace)
        return cls(rules)

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        """The decision of the highest rule that holds; ``deny`` by ``policy:no_match`` if none does."""
        call = Call(request, believed=self._believed)
        rules = self._rules_about(request).for_values(call)
        parts = self._parts(call, rules)
        verdicts = [self._judge(call, rules, part) for part in parts]
        return self._decision(call, max(verdicts, key=_how_strict), parts)

    def explain(self, request: PolicyRequest) -> Explanation:
        """As :meth:`evaluate`, with every rule that holds and why it did not decide."""
        call = Call(request, believed=self._believed)
        rules = self._rules_about(request).rules
        parts = self._parts(call, rules)
        verdicts = [self._judge(call, rules, part) for part in parts]
        strictest = max(verdicts, key=_how_strict)
        matched: list[Matched] = []
        for number, (part, verdict) in enumerate(zip(parts, verdicts, strict=True), start=1):
            for rule in rules:
                fit = rule.fit(call, part)
                if fit is Fit.NO or (fit is Fit.ODD and rule.decision == "allow"):
                    continue
                fate = _fate(rule, verdict, tightens=rule.tightens(call))
                if fate == "decided" and verdict is not strictest:
                    fate = "another command of the line is decided more strictly"
                matched.append(Matched(rule, fate, fit is Fit.ODD, number if len(parts) > 1 else None))
        matched.sort(key=lambda one: one.fate != "decided")
        return Explanation(self._decision(call, strictest, parts), tuple(matched))

    def where(self, by: str) -> str | None:
        """The file and line of the rule that a decision names as ``policy:ID``; ``None`` if it came with the
        package."""
        found = (rule for rule in self.rules if by == f"policy:{rule.id}")
        return next((rule.where or None for rule in found if rule.tier is not Tier.BUILTIN), None)

    # --- the core -----------------------------------------------------------------------------------------------

    def _rules_about(self, request: PolicyRequest) -> _About:
        key = (
            request.qualified_name,
            request.tool,
            request.provider is None,
            request.permission_mode,
            request.interactive,
            request.principal_path,
        )
        found = self._about.get(key)
        if found is None:
            if len(self._about) >= _MOST_KNOWN:
                self._about.clear()
            found = self._about[key] = _About.of(tuple(rule for rule in self.rules if rule.is_about(request)))
        return found

    @staticmethod
    def _parts(call: Call, rules: Sequence[PolicyRule]) -> Sequence[Part | None]:
        if not call.has_command or not any(rule.shell for rule in rules):
            return (None,)
        return call.parts or (None,)

    @staticmethod
    def _judge(call: Call, rules: Sequence[PolicyRule], part: Part | None) -> _Verdict:
        winners: list[PolicyRule] = []
        tighter: list[PolicyRule] = []
        rank: tuple[int, int, int] | None = None
        heads = None if part is None else part.heads
        values = call.values
        for rule in rules:
            if rank is not None and rule.rank != rank:
                break
            # Most rules fail at their first condition; asking it here saves most of what many rules cost.
            if rule.shell:
                if heads is not None and rule.heads.isdisjoint(heads):
                    continue
            elif rule.conditions:
                first = rule.conditions[0]
                kind, value = values[first.pointer]
                if kind == "absent" or (kind in first.kinds and first.check(value) is False):
                    continue
                if kind == "marked" and first.careful is not None and first.careful(value) is False:
                    continue
            if not rule.holds(call, part):
                continue
            if rule.tightens(call):
                tighter.append(rule)
            else:
                winners.append(rule)
                rank = rule.rank
        found = _Verdict(winners)
        if tighter:
            strictest = max(rule.strictness for rule in tighter)
            # Of no match it cannot make a question: that would loosen. A denial names its rule.
            if strictest > found.strictness or (not winners and strictest == 2):
                found = _Verdict([rule for rule in tighter if rule.strictness == strictest])
        found.is_odd = any(rule.fit(call, part) is Fit.ODD for rule in found.winners)
        return found

    @staticmethod
    def _decision(call: Call, verdict: _Verdict, parts: Sequence[Part | None]) -> PolicyDecision:
        if not verdict.winners:
            return PolicyDecision("deny", "policy:no_match", "no policy rule allows this tool")
        rule = verdict.winners[0]
        where = None if rule.tier is Tier.BUILTIN else rule.where or None
        named = call.request.permission_mode in rule.modes
        if rule.decision != "ask_user":
            return PolicyDecision(rule.decision, f"policy:{rule.id}", rule.reason, where=where, names_mode=named)
        memory = max((one.remember for one in verdict.winners), key=_STRICTEST_MEMORY.__getitem__) or "tool"
        marks = call.request.annotations
        plain = len(parts) == 1 and (parts[0] is None or parts[0].is_plain)
        if memory == "tool" and (verdict.is_odd or not plain or (marks is not None and marks.destructive)):
            memory = "exact"  # what a rule's narrowing does not say of this call, its arguments do
        return PolicyDecision(
            "ask_user",
            f"policy:{rule.id}",
            rule.reason,
            where=where,
            remember=memory,
            narrowing="\n".join(sorted({one.narrowing for one in verdict.winners})),
            scope="; ".join(dict.fromkeys(one.words for one in verdict.winners if one.words)),
            names_mode=named,
        )


def _how_strict(verdict: _Verdict) -> tuple[int, bool]:
    """Of two denials the one that a rule makes: it says why."""
    return verdict.strictness, bool(verdict.winners)


def _fate(rule: PolicyRule, verdict: _Verdict, *, tightens: bool) -> str:
    if rule in verdict.winners:
        return "decided"
    if not verdict.winners:
        return "it only tightens, and no rule allows or asks"
    winner = verdict.winners[0]
    if tightens and rule.strictness <= winner.strictness:
        return f"it only tightens, and {winner.id} is as strict"
    if rule.rank > winner.rank:
        return f"{winner.id} tightens it"
    if rule.tier != winner.tier:
        return f"the tier {winner.tier.name.lower()} stands above {rule.tier.name.lower()}"
    if rule.priority != winner.priority:
        return f"its priority {rule.priority} is below {winner.priority}"
    return f"at the same priority the stricter {winner.id} counts"
