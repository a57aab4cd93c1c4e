"""Questions to a person, as a conversation of lines: what is shown, and what each typed line means.

Not for: reading lines or drawing (``_terminal.py``), deciding whether to ask (the policy). Pure, but for the clock that
is handed in. Rules carried: HITL-01, HITL-02, HITL-08, HITL-09.

*Answers are lines, not keys*, and only a line that was begun after the person could have read the question counts:
:data:`READ_TIME_S` after it was drawn. A line begun earlier was meant for the agent, and is a steer. Nothing but the
whole line ``y``, or ``s`` for the session, runs a tool; ``a`` shows what it would allow for good, and ``y`` confirms
it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from agentsession.host._elicitation import Approval, Position, Remember
from agentsession.host._policy import PolicyDecision
from agentsession.host.cli._blocks import args_block, diff_block, indented, shown_args
from agentsession.host.cli._lines import Line, Style, View, line
from agentsession.host.cli._render import by_whom
from agentsession.host.cli._shapes import as_object
from agentsession.host.cli._text import call_title, cut, escape, wrap
from agentsession.protocol import ElicitationAnswer, SchemaError, ToolRequest, args_digest, parse_json

__all__ = [
    "READ_TIME_S",
    "Answered",
    "ApprovalQuestion",
    "Edit",
    "Question",
    "Say",
    "Steer",
    "Step",
    "ShowAll",
    "is_early",
]

READ_TIME_S: Final = 0.4
"""Seconds after a question is drawn before a line may begin that answers it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """The question is settled."""

    value: Approval | ElicitationAnswer
    lines: tuple[Line, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Say:
    """Show these lines and go on asking. ``redraw``: the question itself changed, so its reading time starts again."""

    lines: tuple[Line, ...]
    redraw: bool = False
    put_back: bool = False
    """What was typed goes back into the box."""
    still_editing: bool = False
    """What is typed next is still an edit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Steer:
    """The line was not an answer: it is for the agent."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """Let the person edit ``text``; it comes back through :meth:`ApprovalQuestion.edited`."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShowAll:
    """Show ``text`` whole, in a pager."""

    text: str


Step = Answered | Say | Steer | Edit | ShowAll


class Question(Protocol):
    """One thing that is asked. ``take`` is called for each line that is typed while it is asked."""

    @property
    def prompt(self) -> str:
        """What stands before the input."""
        ...

    @property
    def secret(self) -> bool:
        """Whether what is typed must not be shown."""
        ...

    @property
    def block(self) -> list[Line]:
        """The question as it is drawn."""
        ...

    def take(self, text: str, *, begun: float, drawn: float) -> Step:
        """What a typed line means. ``begun``: when its first character was typed; ``drawn``: when the block was."""
        ...


def is_early(begun: float, drawn: float) -> bool:
    """Whether a line was begun before the question could have been read."""
    return begun - drawn < READ_TIME_S


class ApprovalQuestion:
    """May this call run?"""

    secret = False

    def __init__(
        self,
        request: ToolRequest,
        decision: PolicyDecision,
        position: Position,
        *,
        view: View,
        number: int | None = None,
        asked_by: str = "",
        mode: str = "default",
        draft: dict[str, Any] | None = None,
    ) -> None:
        self.request = request
        self.decision = decision
        self.position = position
        self.view = view
        self.args: dict[str, Any] = dict(request.args or {})
        """What would run: the requested arguments, or the edited ones."""
        self.is_edited = False
        self._draft = draft  # an edit that did not fit: what was typed is not lost
        self._number = number
        self._asked_by = asked_by
        self._mode = mode
        self._is_always = False  # a was typed, and what it would allow is shown

    @property
    def prompt(self) -> str:
        """What stands before the input."""
        return "always> " if self._is_always else "answer> "

    @property
    def block(self) -> list[Line]:
        """Who asks for what, which rule made it ask, the whole change folded at 60 lines, and what can be typed."""
        glyphs, width = self.view.glyphs, self.view.width
        place = f" {self.position.index} of {self.position.total}" if self.position.total > 1 else ""
        number = f"[{self._number}] " if self._number is not None else ""
        by = f"  asked by {escape(self._asked_by)}" if self._asked_by else ""
        edited = "  (edited)" if self.is_edited else ""
        title = call_title(self.request.name, self.args)
        rows = wrap(f"{glyphs.ask} APPROVE{place}  {number}{_shortened(title, width)}{by}{edited}", width)
        out = [line((row, "ask")) for row in rows]
        why = by_whom(self.decision.by, self.decision.where)
        if self.decision.reason:
            why += f": {escape(self.decision.reason)}"
        out += [line(("  " + row, "dim")) for row in wrap(f"why: {why}; mode {escape(self._mode)}", width - 2)]
        if self.position.problem:
            told = escape(f"what you sent cannot be taken: {self.position.problem}").replace("\n", " ")
            out += [line((f"  {row}", "bad")) for row in wrap(f"{glyphs.warn} {told}", width - 2)]
        body = args_block(self.args, width - 5, glyphs, "v shows all")
        out += indented(body, "     ")
        return [*out, *self._choices()]

    def _choices(self) -> list[Line]:
        """What can be typed."""
        rows: list[list[str | tuple[str, Style]]] = [[]]
        used = 0
        longer = [] if self.decision.remember == "never" else [("s", self._for_session), ("a", "always")]
        for key, meaning in (("y", "once"), *longer, ("e", "edit"), ("n", "[reason]"), ("v", "view"), ("w", "why")):
            cost = len(f"  {key} {meaning}")
            if used and used + cost > self.view.width:
                rows.append([])
                used = 0
            word: tuple[str, Style] = (key, "strong")
            rows[-1] += ["  ", word, f" {meaning}"]
            used += cost
        return [line(*row) for row in rows]

    def take(self, text: str, *, begun: float, drawn: float) -> Step:
        """A line: an answer only if it is a whole one, and was begun after the question could be read."""
        word, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        if is_early(begun, drawn):
            early = self._say("that was typed before the question could be read; type it again")
            if text.strip() in ("y", "s", "a", "n", "no", "e", "v", "w"):
                return early
            return dataclasses.replace(early, put_back=True) if word == "n" else Steer(text)
        always, self._is_always = self._is_always, False
        if text.strip() == "y":
            return Answered(self._yes("always" if always else "once"))
        if text.strip() in ("s", "a") and self.decision.remember == "never":
            return self._say("this rule asks each time; y runs it once")
        if text.strip() == "s":
            return Answered(self._yes("session"))
        if text.strip() == "a":
            self._is_always = True
            return Say(tuple(self._what_always_allows()), redraw=True)
        if word == "n" or text.strip() == "no":
            return Answered(Approval.no(rest or None))
        if text.strip() == "e":
            return Edit(json.dumps(self._draft or self.args, ensure_ascii=False))
        if text.strip() == "v":
            return ShowAll(shown_args(self.args))
        if text.strip() == "w":
            return Say(tuple(self._why()))
        if len(text.strip()) <= 1 or text.strip().lower() in ("yes", "ok", "okay", "sure"):
            return self._say("nothing runs without a whole line y; n denies")
        return Steer(text)

    def edited(self, text: str) -> Step:
        """Take edited arguments: they must be a JSON object. Shows the change, and asks again; nothing leaves it."""
        if not text.strip():
            return self._say("nothing changed")
        try:
            args = as_object(parse_json(text))
        except SchemaError as error:
            got, expected = error.got or "this", error.expected or "JSON"
            told = escape(f"not JSON: {got[:60]}, expected {expected}; an empty line changes nothing")
            return dataclasses.replace(self._say(told.replace("\n", " ")), put_back=True, still_editing=True)
        if args is None:
            problem = self._say("the arguments must be a JSON object; an empty line leaves them as they are")
            return dataclasses.replace(problem, put_back=True, still_editing=True)
        if args_digest(args) == args_digest(self.args):  # Python takes 1 and true for equal
            return self._say("nothing changed")
        self._draft = None
        before, after = shown_args(self.request.args), shown_args(args)
        self.args, self.is_edited = args, args_digest(args) != args_digest(self.request.args or {})
        change = diff_block(before, after, self.view.width - 5, self.view.glyphs, "v shows all")
        shown = indented(change, "     ")
        return Say((line(("  your change:", "strong")), *shown, *self.block), redraw=True)

    def _yes(self, remember: Remember) -> Approval:
        return Approval.yes(self.args if self.is_edited else None, remember=remember)

    @property
    def _scope(self) -> str:
        """What an answer that is remembered covers."""
        if self.decision.remember == "exact":
            return "exactly this"
        return escape(f"{self.request.name} {self.decision.scope}".rstrip())

    @property
    def _for_session(self) -> str:
        return cut(f"session: {self._scope}", self.view.width - 4, self.view.glyphs.ellipsis)

    def _what_always_allows(self) -> list[Line]:
        exact = self.decision.remember == "exact"
        what = f"{escape(self.request.name)} with exactly these arguments" if exact else self._scope
        who = f", asked by {escape(self._asked_by)} or an agent below" if self._asked_by else ""
        rows = [
            f"a allows from now on, in this folder: {what}{who}, in mode {escape(self._mode)} and looser",
            "y allows it and runs this call; any other line leaves it. Later: agentsession policy remembered",
        ]
        return [line((f"  {row}", "warn")) for text in rows for row in wrap(text, self.view.width - 2)]

    def _why(self) -> list[Line]:
        rows = [
            f"  decided by  {by_whom(self.decision.by, self.decision.where)}",
            f"  says        {self.decision.decision}",
            f"  reason      {escape(self.decision.reason or 'none given')}",
            f"  mode        {escape(self._mode)}",
        ]
        return [line((row, "dim")) for text in rows for row in wrap(text, self.view.width)]

    def _say(self, text: str) -> Say:
        rows = wrap(f"{self.view.glyphs.warn} {text}", self.view.width - 2)
        return Say(tuple(line((f"  {row}", "warn")) for row in rows))


def _shortened(title: str, width: int) -> str:
    """A title of at most two rows: the whole call stands below it."""
    return title if len(title) <= 2 * width else title[: 2 * width - 3] + "..."


def joined(lines: Sequence[Line]) -> str:
    """The plain words of some lines, for tests and for screen readers."""
    return "\n".join(one.plain for one in lines)
