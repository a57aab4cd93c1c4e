"""The policy of the command line: ``--policy`` files, ``--deny``, ``--allow``, the rules of a folder, the modes.

Not for: the rules themselves (``agentsession.host.policy``). May import: that, ``_out``, ``_text``, and ``_setup`` for
its types.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentsession.host._policy import PolicyDecision, PolicyRequest
from agentsession.host.cli._out import Out
from agentsession.host.cli._text import escape
from agentsession.host.policy import (
    PolicyEngine,
    PolicyRule,
    RememberedAnswers,
    Tier,
    builtin_rules,
    load_policy,
    workspace_policy,
)
from agentsession.protocol import ConfigurationError

if TYPE_CHECKING:
    from agentsession.host.cli._setup import RunOptions

__all__ = ["CommandPolicy", "remembered_answers", "remembered_path"]

_MOST_ASKED: Final = 10_000


class CommandPolicy:
    """Rules of the person who runs the command, above those of ``folder`` and the table of permission modes.

    ``folder``: what is worked in, the current one or an editor's; with ``None`` no folder's rules are read.
    ``--deny`` stands above all of them. ``--allow`` is a rule like one of a file's: where a rule of the same priority
    asks or denies, that counts. ``--yes-read-only`` also believes the agent's own claims.
    """

    def __init__(self, options: RunOptions | None = None, folder: str | None = ".") -> None:
        allow, deny = (options.allow, options.deny) if options is not None else ((), ())
        place = folder or "."
        rules = builtin_rules(workspace=place)
        if options is not None and folder is not None:
            rules += _of_workspace(folder)
        for file in dict.fromkeys(options.policy if options is not None else ()):
            rules += load_policy(file, tier=Tier.USER, workspace=place)
        rules += [_by_name("deny", glob, 999, f"{glob} is denied for this run") for glob in dict.fromkeys(deny)]
        rules += [_by_name("allow", glob, 100, None) for glob in dict.fromkeys(allow)]
        believed = ("agent",) if options is not None and options.yes_read_only else ()
        self.engine = PolicyEngine(rules, believed=believed)
        self._modes: dict[str, str] = {}
        self._said: dict[str, PolicyDecision] = {}

    def asked_by(self, request_id: str) -> PolicyDecision | None:
        """What made the host ask about a call, where that is a rule; ``None`` for a hook, and for no question."""
        said = self._said.get(request_id)
        return said if said is not None and said.is_ask else None

    def mode_of(self, request_id: str) -> str:
        """The permission mode in which a call was decided on."""
        return self._modes.get(request_id, "default")

    def where(self, by: str | None) -> str | None:
        """The file and line of the rule that a decision names, if it stands in a file."""
        return self.engine.where(by or "")

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        """What the highest rule says."""
        if len(self._modes) >= _MOST_ASKED:
            self._modes.clear()
            self._said.clear()
        self._modes[request.request_id] = request.permission_mode
        said = self._said[request.request_id] = self.engine.evaluate(request)
        return said


def _of_workspace(folder: str) -> Sequence[PolicyRule]:
    """The rules of a folder. That they only tighten, where nobody agreed to them, is said on stderr."""
    found = workspace_policy(folder)
    if found.refused is not None:
        words = ["agentsession", "policy", "trust", *([] if folder == "." else [folder])]
        told = f"policy: {found.refused}; to agree: {shlex.join(words)}"
        Out(sys.stderr).text(escape(told).replace("\n", " ") + "\n")
    return found.rules


def _by_name(decision: str, glob: str, priority: int, reason: str | None) -> PolicyRule:
    return PolicyRule(
        id=f"--{decision} {glob}",
        decision=decision,
        tools=(glob,),
        priority=priority,
        reason=reason,
        on_shown_name=True,
    )


def remembered_path() -> Path:
    """The file in which what was answered with ``a`` is kept: in ``XDG_STATE_HOME``, or where the system has its
    like."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "agentsession" / "remembered.json"


def remembered_answers(
    on_unsaved: Callable[[ConfigurationError], None] | None = None, folder: str = "."
) -> RememberedAnswers:
    """What this person answered always, and in this folder. Raises :class:`ConfigurationError`."""
    try:
        path = remembered_path()
    except RuntimeError:  # nobody's home: what is answered holds as long as this process
        return RememberedAnswers(workspace=folder, on_unsaved=on_unsaved)
    return RememberedAnswers(path, workspace=folder, on_unsaved=on_unsaved)
