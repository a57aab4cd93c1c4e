"""Answers that a person wants to hold for more than one call: for the session, or always.

Not for: the file (``_remembered_file.py``) or asking (``_decider.py``). Rules carried: HITL-04 (bound to the
arguments). May import: anyio, ``_policy``, ``_remembered_file`` beside it, ``protocol``.

An answer is kept under a key: the tool, what narrows the rule that asked, and where the tool can destroy (or the rule
says ``exact``) the digest of the arguments. It holds for the agent that asked and those below it, for the same person,
in the permission mode that it was given in and looser ones. It answers questions alone: a denial is never looked up
here, so a later one holds. Refusals are not kept.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import anyio.to_thread

from agentsession.host._policy import PolicyDecision, PolicyRequest
from agentsession.host.policy._remembered_file import RememberedAnswer, change_file, read_file, stamp_of
from agentsession.host.policy._rule import MODES
from agentsession.protocol import ConfigurationError, JsonError, args_digest

__all__ = ["RememberedAnswers", "memory_of", "scope_words"]

logger = logging.getLogger("agentsession.host")

_MOST_KEPT: Final = 10_000
"""Answers for a session that a process keeps; the oldest go first, and are asked for again."""

Key = tuple[str, str, str, str | None]
"""The tool, its owner, the narrowing, and the digest of the arguments."""


class RememberedAnswers:
    """What was answered for the session or always; shared by all sessions of a host.

    ``path``: the user's file for what holds always, readable and writable by its owner alone; made on first use.
    Without one, "always" holds as long as this object. ``workspace``: what holds always, holds in this folder.
    ``on_unsaved``: told when an answer cannot be saved; it then holds as long as this object.
    Raises :class:`ConfigurationError` with the id ``remembered-file`` when the file cannot be used; a file that is
    spoilt later counts as empty, and everything is asked again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        workspace: str | os.PathLike[str] = ".",
        on_unsaved: Callable[[ConfigurationError], None] | None = None,
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.path = None if path is None else Path(path).expanduser()
        try:
            self.workspace = os.path.realpath(workspace)
        except OSError:  # the current folder is gone: nothing that holds in one holds here
            self.workspace = ""
        self._on_unsaved = on_unsaved
        self._clock = clock
        self._kept: dict[str, RememberedAnswer] = {}
        self._saved: tuple[RememberedAnswer, ...] = ()
        self._stamp: object = None
        if self.path is not None:
            self._stamp = stamp_of(self.path)
            self._saved = read_file(self.path)

    def answers(self) -> list[RememberedAnswer]:
        """All that hold now, those of other folders too, the oldest first."""
        self._refresh()
        return sorted((*self._saved, *self._kept.values()), key=lambda one: (one.at, one.id))

    def find(self, request: PolicyRequest, decision: PolicyDecision) -> RememberedAnswer | None:
        """The answer that settles what ``decision`` would ask of the person; ``None``: ask."""
        if not decision.is_ask:
            return None
        self._refresh()
        if not self._kept and not self._saved:
            return None
        key = _key(request, decision)
        if key is None:
            return None
        candidates = (*self._kept.values(), *self._saved)
        return next((one for one in candidates if _key_of(one) == key and self._covers(one, request)), None)

    def keep(
        self, request: PolicyRequest, decision: PolicyDecision, scope: Literal["session", "always"]
    ) -> RememberedAnswer | None:
        """Let a yes to ``request`` hold from now on, and :meth:`save` it; ``None`` if its rule asks each time."""
        key = _key(request, decision)
        if key is None:
            return None
        answer = self._answer(request, decision, key, scope)
        self._hold(answer)
        return answer

    async def save(self, answer: RememberedAnswer) -> None:
        """Put what holds always into the file, if there is one.

        Raises :class:`ConfigurationError` when it cannot be saved; then it holds as long as this object.
        """
        if answer.scope == "session" or self.path is None:
            return
        path = self.path
        try:
            await anyio.to_thread.run_sync(lambda: change_file(path, lambda old: [*_without(old, answer.id), answer]))
        except ConfigurationError as error:
            if self._on_unsaved is not None:
                self._on_unsaved(error)
            raise
        self._refresh()
        self._kept.pop(answer.id, None)  # else it would hold on when it is revoked in the file

    async def remember(
        self, request: PolicyRequest, decision: PolicyDecision, scope: Literal["session", "always"]
    ) -> RememberedAnswer | None:
        """:meth:`keep` and :meth:`save`."""
        answer = self.keep(request, decision, scope)
        if answer is not None:
            await self.save(answer)
        return answer

    def revoke(self, answer_id: str) -> bool:
        """Forget an answer, here and in the file; whether there was one. Raises :class:`ConfigurationError`."""
        self._refresh()
        found = self._kept.pop(answer_id, None) is not None
        if self.path is not None and any(one.id == answer_id for one in self._saved):
            change_file(self.path, lambda old: _without(old, answer_id))
            self._refresh()
            found = True
        return found

    def _covers(self, answer: RememberedAnswer, request: PolicyRequest) -> bool:
        if (
            answer.user_id != request.user_id
            or request.principal_path[: len(answer.principal_path)] != answer.principal_path
        ):
            return False
        if answer.scope == "session" and answer.session_id != (request.root_session_id or request.session_id):
            return False
        if answer.scope == "always" and answer.workspace != self.workspace:
            return False
        return _is_as_loose(request.permission_mode, answer.permission_mode)

    def _answer(
        self, request: PolicyRequest, decision: PolicyDecision, key: Key, scope: Literal["session", "always"]
    ) -> RememberedAnswer:
        session = (request.root_session_id or request.session_id) if scope == "session" else None
        place = self.workspace if scope == "always" else None
        path, mode, user = request.principal_path, request.permission_mode, request.user_id
        # Its id is made of what it is: the same yes twice is one answer.
        told = json.dumps([scope, *key, path, mode, user, session, place])
        return RememberedAnswer(
            id=hashlib.sha256(told.encode()).hexdigest()[:10],
            scope=scope,
            tool=key[0],
            owner=key[1],
            narrowing=key[2],
            digest=key[3],
            permission_mode=mode,
            principal_path=path,
            user_id=user,
            session_id=session,
            workspace=place,
            words=scope_words(request, decision),
            at=self._clock().isoformat(timespec="seconds"),
        )

    def _hold(self, answer: RememberedAnswer) -> None:
        self._kept.pop(answer.id, None)
        self._kept[answer.id] = answer
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _refresh(self) -> None:
        """Read the file again if it changed: another process may have revoked an answer."""
        if self.path is None:
            return
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._saved = read_file(self.path)
        except ConfigurationError as error:
            self._saved = ()  # asking again is safe
            logger.warning("the remembered answers cannot be read, so everything is asked: %s", error.what)


def memory_of(request: PolicyRequest, decision: PolicyDecision) -> Literal["tool", "exact", "never"]:
    """What a yes may be remembered for: calls like this one, exactly this one, or nothing."""
    marks = request.annotations
    if decision.remember not in (None, "tool", "exact"):
        return "never"
    return "exact" if decision.remember == "exact" or (marks is not None and marks.destructive) else "tool"


def scope_words(request: PolicyRequest, decision: PolicyDecision) -> str:
    """What would be remembered, for a person: ``edit_file with /path under 'src'``."""
    tool = request.tool if request.provider is None else request.qualified_name
    if memory_of(request, decision) == "exact":
        return f"{tool} with exactly these arguments"
    return f"{tool} {decision.scope}".rstrip()


def _key(request: PolicyRequest, decision: PolicyDecision) -> Key | None:
    memory = memory_of(request, decision)
    if memory == "never":
        return None
    # Without a narrowing of its own, an answer is to who asked: the same policy's question, or the same hook's.
    narrowing = f"by {decision.by}" if decision.narrowing is None else decision.narrowing
    try:
        digest = args_digest(request.args) if memory == "exact" else None
    except (JsonError, ValueError, RecursionError):
        return None
    return request.qualified_name, request.owner, narrowing, digest


def _key_of(answer: RememberedAnswer) -> Key:
    return answer.tool, answer.owner, answer.narrowing, answer.digest


def _is_as_loose(mode: str, given: str) -> bool:
    if mode == given:
        return True
    return mode in MODES and given in MODES and MODES.index(mode) > MODES.index(given)


def _without(answers: list[RememberedAnswer], answer_id: str) -> list[RememberedAnswer]:
    return [one for one in answers if one.id != answer_id]
