"""Asking one hook, or several plain functions in one thread: what comes back is checked, and a failure is one hook's.

Not for: order and the one answer at the end (``_chain.py``). Rules carried: SEC-01 (no text of an exception).
May import: anyio, ``_cancellation``, ``protocol``, the modules beside it.

What a thread costs is the way there and back, so plain functions that are asked one after the other share one. Where
the caller is cancelled meanwhile, the function that runs then is the last one.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final

import anyio.to_thread

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host.hooks._callables import FunctionHook
from agentsession.host.hooks._changes import Changes
from agentsession.host.hooks._entries import ASK, Entry, HookFailed
from agentsession.protocol import (
    HookChange,
    HookOutcome,
    HookPayload,
    InvalidInput,
    ToolCallHook,
    ToolErrorHook,
    ToolResultHook,
    read_change,
)

__all__ = ["Said", "ask", "ask_together", "is_plain", "takes"]

logger = logging.getLogger("agentsession.host")

_FAILED: Final = "a hook of the host failed"


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """One hook's answer, checked."""

    outcome: HookOutcome
    change: HookChange | None = None
    failure: str | None = None


async def ask(entry: Entry, point: str, payload: HookPayload) -> Said | None:
    """One hook's answer; ``None`` where it lets pass what it saw, or was not asked. Never raises for a hook."""
    try:
        if not entry.matches(payload):
            return None
        answer: Any = entry.hook.fire(point, _own(payload))
        return _checked(entry, point, await answer if inspect.isawaitable(answer) else answer)
    except failures() as error:
        raise_if_cancelled(error)
        return _failed(entry, point, error)


def is_plain(entry: Entry) -> bool:
    """Whether it is a plain function that may share a thread: nobody gives it up before its time."""
    return type(entry.hook) is FunctionHook and entry.hook.is_plain


async def ask_together(entries: Sequence[Entry], point: str, changes: Changes) -> list[Said]:
    """Ask plain functions in their order, each with what those before it changed, until one blocks: what they said.

    ``changes`` gets their changes.
    """
    said: list[Said] = []
    place = 0
    while place < len(entries):
        entry = entries[place]
        try:
            matches = entry.matches(changes.payload)  # here: a thread for a hook that is not asked would be for nothing
        except failures() as error:
            raise_if_cancelled(error)
            if takes(said, _failed(entry, point, error), entry, changes):
                break
            matches = False
        if not matches:
            place += 1
            continue
        thread = _Thread(entries[place:], point, changes, said, failures())
        try:
            place += await anyio.to_thread.run_sync(thread.run, abandon_on_cancel=True)
        finally:
            thread.is_given_up = True
        if thread.waits is None:
            break
        # A plain function that hands back something to wait for: that is done here, and the rest in another thread.
        told = await _ask_awaited(entries[place - 1], point, thread.waits)
        if told is not None and takes(said, told, entries[place - 1], changes):
            break
    return said


class _Thread:
    """What runs beside the loop."""

    def __init__(
        self,
        entries: Sequence[Entry],
        point: str,
        changes: Changes,
        said: list[Said],
        failing: tuple[type[BaseException], ...],
    ) -> None:
        self._entries = entries
        self._point = point
        self._changes = changes
        self._said = said
        self._failing = failing
        self.is_given_up = False
        self.waits: Awaitable[Any] | None = None

    def run(self) -> int:
        """How many were asked, of which the first is known to match."""
        for number, entry in enumerate(self._entries, start=1):
            if self.is_given_up:
                return number - 1
            told = self._ask(entry, is_first=number == 1)
            if self.waits is not None or (told is not None and takes(self._said, told, entry, self._changes)):
                return number
        return len(self._entries)

    def _ask(self, entry: Entry, *, is_first: bool) -> Said | None:
        payload = self._changes.payload
        hook = entry.hook
        assert isinstance(hook, FunctionHook)
        try:
            if not is_first and not entry.matches(payload):
                return None
            answer: Any = hook.function(_own(payload))
            if inspect.isawaitable(answer):
                self.waits = answer
                if self.is_given_up and inspect.iscoroutine(answer):  # nobody waits for it any more
                    answer.close()
                return None
            return _checked(entry, self._point, answer)
        except self._failing as error:
            return _failed(entry, self._point, error)


async def _ask_awaited(entry: Entry, point: str, waits: Awaitable[Any]) -> Said | None:
    try:
        return _checked(entry, point, await waits)
    except failures() as error:
        raise_if_cancelled(error)
        return _failed(entry, point, error)


def takes(said: list[Said], told: Said, entry: Entry, changes: Changes) -> bool:
    """Take what a hook said; whether it blocks."""
    said.append(told)
    if told.outcome.action == "block":
        return True
    if told.change is not None:
        changes.add(told.change, told.outcome, told.outcome.by or entry.id)
    return False


def _own(payload: HookPayload) -> HookPayload:
    """A hook's own: the objects are those of the request, and what a hook does to them must reach neither record nor
    tool."""
    if not isinstance(payload, (ToolCallHook, ToolResultHook, ToolErrorHook)):
        return payload
    own: dict[str, Any] = {"args": _copied(payload.args)}
    if isinstance(payload, ToolResultHook) and "data" in payload.model_fields_set:
        own["data"] = _copied(payload.data)
    return payload.model_copy(update=own)


def _copied(value: Any) -> Any:
    """A copy of JSON; several times as quick as one of anything."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _checked(entry: Entry, point: str, answer: Any) -> Said | None:
    """What a hook answered. Raises :class:`HookFailed` and :class:`InvalidInput` for what the point does not take."""
    if answer is None:
        return None
    if not isinstance(answer, HookOutcome):
        raise HookFailed(f"answered a {type(answer).__name__}")
    is_question = answer.action == ASK and point == "before_tool"
    change = read_change(point, answer.model_copy(update={"action": "proceed"}) if is_question else answer)
    # A hook may be a chain itself, and tell of failures that it has dealt with.
    return Said(answer if answer.by else answer.model_copy(update={"by": entry.id}), change, answer.failure)


def _failed(entry: Entry, point: str, error: BaseException) -> Said:
    if isinstance(error, HookFailed):
        what = error.what
    elif isinstance(error, InvalidInput):
        what = f"gave an answer that cannot be used: {error.what}"
    else:
        logger.debug("the failure of hook %s at %s", entry.id, point, exc_info=error)
        what = f"failed with {type(error).__name__}"
    failure = f"hook {entry.id} at {point} {what}"
    blocks = not entry.observes and entry.blocks_on_error(point)
    logger.warning("%s, so it was %s", failure, "blocked" if blocks else "let pass")
    outcome = HookOutcome(
        action="block" if blocks else "proceed", message=_FAILED if blocks else None, by=entry.id, reason=what
    )
    return Said(outcome, failure=failure)
