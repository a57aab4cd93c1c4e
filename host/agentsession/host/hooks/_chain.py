"""Several hooks as one: asked in order, each isolated from the failures of the others, one answer at the end.

Not for: what a hook is (``_callables.py``, ``_command.py``), asking one (``_asking.py``), or what an answer does
(whoever fires the point). Rules carried: none of its own.
May import: anyio, ``_telemetry``, ``protocol``, the modules beside it.

*Modifiers in sequence*: each sees what those before it left. The first block ends it; ``ask`` does not, since a later
hook may still block. *Observers beside them*: they are told what the modifiers left, also of what was blocked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import anyio

from agentsession.host._telemetry import measure_hook
from agentsession.host.hooks._asking import Said, ask, ask_together, is_plain, takes
from agentsession.host.hooks._changes import Changes
from agentsession.host.hooks._entries import ASK, Entry, entries_of
from agentsession.protocol import HookOutcome, HookPayload, LifecycleInterceptor

__all__ = ["ASK", "HookChain"]


class HookChain:
    """A :class:`agentsession.protocol.LifecycleInterceptor` made of others.

    A hook is an object with ``fire``. It may have these attributes: ``id``; ``points``, the names of those that it is
    asked at; ``match``, globs on what the payload is about or a function of it; ``tier`` (builtin, plugin, workspace,
    user, admin) and ``order`` (100), which with the id say who is asked first; ``on_error`` (``block`` or ``proceed``;
    by default as the point says); ``observes``, for one that is only told.

    Raises :class:`agentsession.protocol.ConfigurationError` (``hooks-invalid``) for what is no hook.
    """

    def __init__(self, hooks: Iterable[LifecycleInterceptor]) -> None:
        self.entries: tuple[Entry, ...] = entries_of(hooks)
        """In the order in which they are asked."""

    @property
    def points(self) -> frozenset[str] | None:
        """The points at which any of them is asked; ``None``: at all."""
        named: set[str] = set()
        for entry in self.entries:
            if entry.points is None:
                return None
            named |= entry.points
        return frozenset(named)

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Ask every hook that wants to be asked here. ``by`` of the answer says which one it was.

        The action may be ``ask`` at ``before_tool``, which is for the host; see :class:`agentsession.host.Host`.
        """
        asked = [entry for entry in self.entries if entry.wants(hook_point)]
        if not asked:
            return None
        with measure_hook(hook_point) as said:
            outcome = await self._ask_all(asked, hook_point, payload)
            said(outcome.action if outcome is not None else "proceed")
        return outcome

    async def _ask_all(self, asked: list[Entry], hook_point: str, payload: HookPayload) -> HookOutcome | None:
        changes, failed = Changes(payload), list[str]()
        blocked: HookOutcome | None = None
        question: HookOutcome | None = None
        for together, group in itertools.groupby((entry for entry in asked if not entry.observes), key=is_plain):
            for said in await _ask_group(list(group), hook_point, changes, together=together):
                if said.failure is not None:
                    failed.append(said.failure)
                if said.outcome.action == "block":
                    blocked = said.outcome
                elif said.outcome.action == ASK and question is None:
                    question = said.outcome
            if blocked is not None:
                break
        observers = [entry for entry in asked if entry.observes]
        if observers:
            await self._tell(observers, hook_point, changes.payload, failed)
        failure = "; ".join(failed) or None
        if blocked is not None:
            return blocked.model_copy(update={"failure": failure})
        modifications = changes.modifications
        if question is None and modifications is None:
            return HookOutcome(failure=failure) if failure is not None else None
        return HookOutcome(
            action=ASK if question is not None else "proceed",
            by=question.by if question is not None else ",".join(dict.fromkeys(changes.by)),
            reason=(question.reason or question.message)
            if question is not None
            else "; ".join(changes.reasons) or None,
            modifications=modifications,
            failure=failure,
        )

    async def _tell(self, observers: list[Entry], point: str, payload: HookPayload, failed: list[str]) -> None:
        async def tell(entry: Entry) -> None:
            said = await ask(entry, point, payload)
            if said is None:
                return
            if said.failure is None and (said.change is not None or said.outcome.action != "proceed"):
                failed.append(f"hook {entry.id} at {point} only observes, and answered {said.outcome.action}")
            elif said.failure is not None:
                failed.append(said.failure)

        if len(observers) == 1:
            await tell(observers[0])
        else:
            async with anyio.create_task_group() as tasks:
                for entry in observers:
                    tasks.start_soon(tell, entry)
            failed.sort()  # which one came first is chance


async def _ask_group(entries: Sequence[Entry], point: str, changes: Changes, *, together: bool) -> list[Said]:
    """Ask these in their order until one blocks; ``together``: in one thread."""
    if together:
        return await ask_together(entries, point, changes)
    found: list[Said] = []
    for entry in entries:
        said = await ask(entry, point, changes.payload)
        if said is not None and takes(found, said, entry, changes):
            break
    return found
