"""Several hooks as one: asked in order, each isolated from the failures of the others, one answer at the end.

Not for: what a hook is (``_callables.py``, ``_command.py``), or what an answer does (whoever fires the point).
Rules carried: SEC-01 (no text of an exception).
May import: anyio, ``_cancellation``, ``_telemetry``, ``protocol``, the modules beside it.

*Modifiers in sequence*: each sees what those before it left. The first block ends it; ``ask`` does not, since a later
hook may still block. *Observers beside them*: they are told what the modifiers left, also of what was blocked.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Iterable
from typing import Any, Final

import anyio

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._telemetry import measure_hook
from agentsession.host.hooks._changes import Changes
from agentsession.host.hooks._entries import Entry, HookFailed, entries_of
from agentsession.protocol import (
    HookChange,
    HookOutcome,
    HookPayload,
    InvalidInput,
    LifecycleInterceptor,
    ToolCallHook,
    ToolErrorHook,
    ToolResultHook,
    read_change,
)

__all__ = ["ASK", "HookChain"]

logger = logging.getLogger("agentsession.host")

ASK: Final = "ask"
"""At ``before_tool``: a person shall be asked, whatever the policy allows. A word of hosts, not of executors."""

_FAILED: Final = "a hook of the host failed"


@dataclasses.dataclass(frozen=True, slots=True)
class _Said:
    """One hook's answer, checked."""

    outcome: HookOutcome
    change: HookChange | None = None
    failure: str | None = None


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
        for entry in asked:
            if entry.observes:
                continue
            said = await self._ask(entry, hook_point, changes.payload)
            if said is None:
                continue
            if said.failure is not None:
                failed.append(said.failure)
            if said.outcome.action == "block":
                blocked = said.outcome
                break
            if said.change is not None:
                changes.add(said.change, said.outcome, said.outcome.by or entry.id)
            if said.outcome.action == ASK and question is None:
                question = said.outcome
        await self._tell([entry for entry in asked if entry.observes], hook_point, changes.payload, failed)
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
            said = await self._ask(entry, point, payload)
            if said is None:
                return
            if said.failure is None and (said.change is not None or said.outcome.action != "proceed"):
                failed.append(f"hook {entry.id} at {point} only observes, and answered {said.outcome.action}")
            elif said.failure is not None:
                failed.append(said.failure)

        if len(observers) == 1:
            await tell(observers[0])
        elif observers:
            async with anyio.create_task_group() as tasks:
                for entry in observers:
                    tasks.start_soon(tell, entry)
            failed.sort()  # which one came first is chance

    async def _ask(self, entry: Entry, point: str, payload: HookPayload) -> _Said | None:
        """One hook's answer; ``None`` where it lets pass what it saw, or was not asked. Never raises for a hook."""
        try:
            if not entry.matches(payload):
                return None
            if isinstance(payload, (ToolCallHook, ToolResultHook, ToolErrorHook)):
                # Its objects are those of the request: what a hook does to them must reach neither record nor tool.
                own: dict[str, Any] = {"args": _copied(payload.args)}
                if isinstance(payload, ToolResultHook) and "data" in payload.model_fields_set:
                    own["data"] = _copied(payload.data)
                payload = payload.model_copy(update=own)
            answer: Any = entry.hook.fire(point, payload)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is None:
                return None
            if not isinstance(answer, HookOutcome):
                raise HookFailed(f"answered a {type(answer).__name__}")
            change = _read(point, answer)
        except HookFailed as error:
            return self._failed(entry, point, error.what)
        except InvalidInput as error:
            return self._failed(entry, point, f"gave an answer that cannot be used: {error.what}")
        except failures() as error:
            raise_if_cancelled(error)
            logger.debug("the failure of hook %s at %s", entry.id, point, exc_info=error)
            return self._failed(entry, point, f"failed with {type(error).__name__}")
        # A hook may be a chain itself, and tell of failures that it has dealt with.
        return _Said(answer if answer.by else answer.model_copy(update={"by": entry.id}), change, answer.failure)

    @staticmethod
    def _failed(entry: Entry, point: str, what: str) -> _Said:
        failure = f"hook {entry.id} at {point} {what}"
        blocks = not entry.observes and entry.blocks_on_error(point)
        logger.warning("%s, so it was %s", failure, "blocked" if blocks else "let pass")
        outcome = HookOutcome(
            action="block" if blocks else "proceed", message=_FAILED if blocks else None, by=entry.id, reason=what
        )
        return _Said(outcome, failure=failure)


def _copied(value: Any) -> Any:
    """A copy of JSON; several times as quick as one of anything."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _read(point: str, outcome: HookOutcome) -> HookChange | None:
    """What an answer changes. Raises :class:`InvalidInput` for what the point does not take."""
    if outcome.action == ASK and point == "before_tool":
        return read_change(point, outcome.model_copy(update={"action": "proceed"}))
    return read_change(point, outcome)
