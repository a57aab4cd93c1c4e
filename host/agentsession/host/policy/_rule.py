"""One rule of a policy file, ready to be held against calls.

Not for: reading files (``_reading.py``) or which rule wins (``_engine.py``). Rules carried: none of the contract's.
May import: ``_policy``, and ``_conditions`` and ``_shell`` beside it.

Closed in every doubt: where a condition is *odd* (see ``_conditions.py``), an allow does not hold, a denial and a
question do. What a provider says of its own tools is such a doubt, unless the host trusts it.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal

from agentsession.host._policy import DECISIONS, PolicyRequest
from agentsession.host.policy._conditions import Condition, Fit, Values
from agentsession.host.policy._shell import Part, parse_command

__all__ = ["MODES", "Call", "PolicyRule", "Tier", "path_pattern"]

MODES: Final = ("plan", "default", "auto_edit", "autonomous")
"""The permission modes, from strict to loose."""

Remember = Literal["exact", "tool", "never"]


class Tier(enum.IntEnum):
    """Whose rules they are; a higher one is heard first. Named by whoever loads a file, never by the file."""

    BUILTIN = 1
    PLUGIN = 2
    WORKSPACE = 3
    USER = 4
    ADMIN = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One ``[[rule]]``. Made by :func:`agentsession.host.policy.load_policy` and :func:`parse_policy`, which check
    it."""

    id: str
    decision: str
    tools: tuple[str, ...]
    """Globs on ``provider:name``, and on the bare name of tools that no provider brings."""
    priority: int = 100
    principals: tuple[str, ...] = ()
    """Globs on the path of agents; empty is any."""
    modes: tuple[str, ...] = ()
    """Empty is any, for an allow any but ``plan``."""
    annotations: Mapping[str, bool | str] = dataclasses.field(default_factory=dict[str, "bool | str"])
    interactive: bool | None = None
    """Holds only where a person can be asked, or only where nobody can."""
    conditions: tuple[Condition, ...] = ()
    """On the arguments; all must hold."""
    shell: tuple[tuple[str, ...], ...] = ()
    """Beginnings of commands in the argument ``/command``; one must hold."""
    remember: Remember | None = None
    reason: str | None = None
    tier: Tier = Tier.USER
    where: str = ""
    """``policy.toml:12``."""
    only_tightens: bool = False
    """Of a plugin, or of a workspace that nobody trusted."""
    examples: int = 0
    """How many examples of its file it was tried with."""
    on_shown_name: bool = False
    """Its globs are on the name that the model uses, as a person types it on the command line."""
    rank: tuple[int, int, int] = dataclasses.field(init=False, repr=False, compare=False)
    """The highest rank among the rules that hold wins: tier, priority, strictness. No file order counts."""
    heads: frozenset[str] = dataclasses.field(init=False, repr=False, compare=False)
    """The first words of ``shell``, also in lower case."""
    _is_tool: Callable[[str], object] = dataclasses.field(init=False, repr=False, compare=False)
    _is_path: tuple[Callable[[Sequence[str]], bool], ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = "|".join(fnmatch.translate(glob) for glob in self.tools)
        object.__setattr__(self, "rank", (int(self.tier), self.priority, self.strictness))
        firsts = [prefix[0] for prefix in self.shell]
        object.__setattr__(self, "heads", frozenset({*firsts, *(first.casefold() for first in firsts)}))
        object.__setattr__(self, "_is_tool", re.compile(patterns).match)
        object.__setattr__(self, "_is_path", tuple(path_pattern(glob) for glob in self.principals))

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask_user, 2 for deny."""
        return DECISIONS.index(self.decision)

    @property
    def narrowing(self) -> str:
        """What narrows it beside the tool, as canonical text: an answer that was remembered is bound to it."""
        said: dict[str, Any] = {
            "annotations": dict(self.annotations),
            "args": sorted((one.pointer, one.operator, json.dumps(one.operand)) for one in self.conditions),
            "principals": sorted(self.principals),
            "shell": sorted(self.shell),
        }
        said = {name: value for name, value in said.items() if value}
        return json.dumps(said, sort_keys=True, ensure_ascii=True) if said else ""

    @property
    def words(self) -> str:
        """What narrows it, for a person: ``with /path under 'src'``; empty if nothing does."""
        parts = [f"with {one.words}" for one in self.conditions]
        if self.shell:
            parts.append("beginning with " + " or ".join(" ".join(prefix) for prefix in self.shell))
        if self.principals:
            parts.append("asked by " + " or ".join(self.principals))
        return ", ".join(parts)

    def is_about(self, request: PolicyRequest) -> bool:
        """Whether it speaks about this tool, agent, mode and situation: all that does not depend on the arguments."""
        mode = request.permission_mode
        if self.decision == "allow":
            if mode == "plan" and "plan" not in self.modes:
                return False
            if self.tier is Tier.WORKSPACE and mode in ("plan", "autonomous"):
                return False
        if self.modes and mode not in self.modes:
            return False
        if self.interactive is not None and self.interactive is not request.interactive:
            return False
        if not self._names(request):
            return False
        return not self._is_path or any(is_path(request.principal_path) for is_path in self._is_path)

    def _names(self, request: PolicyRequest) -> bool:
        if self.on_shown_name:
            return bool(self._is_tool(request.tool))
        if self._is_tool(request.qualified_name):
            return True
        # A server may call its tools as it likes: an allow for read_file is one for the host's own alone.
        return (request.provider is None or self.decision != "allow") and bool(self._is_tool(request.tool))

    def holds(self, call: Call, part: Part | None) -> bool:
        """Whether it holds for the arguments, given that :meth:`is_about` says yes; ``part`` is one of the command."""
        fit = self.fit(call, part)
        return fit is Fit.YES or (fit is Fit.ODD and self.decision != "allow")

    def fit(self, call: Call, part: Part | None) -> Fit:
        """The least of what its conditions say."""
        fit = _fit_annotations(self.annotations, call, self.decision) if self.annotations else Fit.YES
        return fit if fit is Fit.NO else min(fit, self.fit_args(call, part))

    def tightens(self, call: Call) -> bool:
        """Whether it may only tighten here: by whose rule it is, or as it holds by a claim that nobody vouches for."""
        if self.only_tightens or not self.annotations or call.is_trusted:
            return self.only_tightens
        return _fit_annotations(self.annotations, call, self.decision) is Fit.ODD

    def fit_args(self, call: Call, part: Part | None) -> Fit:
        """The least of what its conditions on the arguments say."""
        fit = self._fit_shell(call, part) if self.shell else Fit.YES
        for condition in self.conditions:
            if fit is Fit.NO:
                break
            fit = min(fit, condition.fits(call.values))
        return fit

    def _fit_shell(self, call: Call, part: Part | None) -> Fit:
        if not call.has_command:
            return Fit.NO
        if part is None:
            return Fit.ODD
        return part.fits(self.shell, is_allow=self.decision == "allow")


class Call:
    """A request with what several rules want to know of it, found out once."""

    __slots__ = ("_parts", "has_command", "is_trusted", "request", "values")

    def __init__(self, request: PolicyRequest, *, believed: Collection[str] = ()) -> None:
        self.request = request
        self.is_trusted = (request.owner == "host" and request.trusted) or request.owner in believed
        """Whether the host vouches for the annotations, or believes their owner."""
        self.values = Values(request.args)
        self.has_command = "command" in request.args
        self._parts: tuple[Part, ...] | Literal["unread"] | None = "unread"

    @property
    def parts(self) -> tuple[Part, ...] | None:
        """The commands in ``/command``; ``None`` if there is none, or it cannot be understood."""
        if self._parts == "unread":
            self._parts = parse_command(self.request.args["command"]) if self.has_command else None
        return self._parts


def _fit_annotations(wanted: Mapping[str, bool | str], call: Call, decision: str) -> Fit:
    marks = call.request.annotations
    fit = Fit.YES
    for name, value in wanted.items():
        claim = getattr(marks, name, None) if marks is not None else None
        if not call.is_trusted:
            fit = min(fit, _fit_claim(name, value, claim))
        elif isinstance(value, str):
            fit = fit if claim == value else Fit.NO
        elif name == "read_only" and value and decision == "allow" and marks is not None and marks.destructive:
            fit = Fit.NO  # whoever says both has said that it may destroy
        elif (claim is True) is not value:
            fit = Fit.NO
    return fit


def _fit_claim(name: str, value: bool | str, claim: object) -> Fit:
    """Nobody vouches for it: what is claimed may tighten, and leaves everything that held without it."""
    if isinstance(value, str) or value:
        return Fit.ODD if claim == value else Fit.NO
    return Fit.YES if name in ("read_only", "idempotent") else Fit.ODD


def path_pattern(glob: str) -> Callable[[Sequence[str]], bool]:
    """A glob over a path of agents, step by step: ``*`` is one agent, ``**`` any number, at the end at least one."""
    steps = tuple(None if step == "**" else re.compile(fnmatch.translate(step)).match for step in glob.split("/"))

    def fits(path: Sequence[str], place: int = 0, step: int = 0) -> bool:
        while step < len(steps):
            match = steps[step]
            if match is None:
                if step == len(steps) - 1:
                    return place < len(path)
                return any(fits(path, later, step + 1) for later in range(place, len(path) + 1))
            if place >= len(path) or not match(path[place]):
                return False
            place, step = place + 1, step + 1
        return place == len(path)

    return fits
