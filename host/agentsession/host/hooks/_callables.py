"""Python functions as hooks: ``@hook("before_tool")``.

Not for: commands (``_command.py``), order and failures (``_chain.py``). Rules carried: none of its own.
May import: anyio, ``protocol``, ``_entries``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.to_thread

from agentsession.host.hooks._entries import ASK, DEFAULT_ORDER, HookFailed, Match, OnError
from agentsession.protocol import HOOK_POINTS, ConfigurationError, HookOutcome, HookPayload

__all__ = ["FunctionHook", "ask_user", "hook"]

P = TypeVar("P", bound=HookPayload)

_ID: Final = "hooks-invalid"

Answer = HookOutcome | Awaitable[HookOutcome | None] | None


def ask_user(reason: str | None = None, *, by: str | None = None, **modifications: Any) -> HookOutcome:
    """At ``before_tool``: a person shall decide, also where the policy would allow it. It loosens no denial.

    ``modifications`` as with :func:`agentsession.protocol.modify`.
    """
    return HookOutcome(action=ASK, reason=reason, by=by, modifications=modifications or None)


class FunctionHook(Generic[P]):
    """A function that is asked at one or more points; made by :func:`hook`. It can still be called."""

    def __init__(
        self,
        function: Callable[[P], Answer],
        points: tuple[str, ...],
        *,
        id: str | None,
        order: int,
        tier: str,
        match: Match | None,
        on_error: OnError | None,
        observes: bool,
        timeout_s: float | None,
        inline: bool = False,
    ) -> None:
        self.function = function
        self.points = frozenset(points)
        self.id = id if id is not None else str(getattr(function, "__name__", "hook"))
        self.has_own_id = id is not None
        self.order = order
        self.tier = tier
        self.match = match
        self.on_error = on_error
        self.observes = observes
        self.timeout_s = timeout_s
        self.inline = inline
        self._is_async = _is_async(function)
        if inline and (self._is_async or timeout_s is not None):
            why = "an async function runs on the loop anyway" if self._is_async else "it cannot be given up in time"
            fix = "leave inline out"
            raise ConfigurationError(f"the hook {self.id!r} is inline, and {why}", where="@hook", fix=fix, id=_ID)
        functools.update_wrapper(self, function)

    @property
    def is_plain(self) -> bool:
        """Whether it is called in a thread and nothing ends it early, so that it may share the thread with others."""
        return not self._is_async and not self.inline and self.timeout_s is None

    def __call__(self, payload: P) -> Answer:
        """The function itself."""
        return self.function(payload)

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Call it: a plain function in a thread, so that one that blocks does not hold the loop, unless it is inline.

        Raises :class:`HookFailed` when it takes longer than ``timeout_s``; a thread that is given up runs on.
        """
        if self.timeout_s is None:
            return await self._answer(payload)
        answer: HookOutcome | None = None
        with anyio.move_on_after(self.timeout_s) as scope:
            answer = await self._answer(payload)
        if scope.cancelled_caught:
            raise HookFailed(f"took longer than {self.timeout_s:g} s")
        return answer

    async def _answer(self, payload: HookPayload) -> HookOutcome | None:
        function: Callable[[Any], Any] = self.function  # its points say which payload it gets
        answer: Any
        if self._is_async or self.inline:
            answer = function(payload)
        else:
            answer = await anyio.to_thread.run_sync(function, payload, abandon_on_cancel=True)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer  # type: ignore[no-any-return]  # the chain checks what it is


def hook(
    *points: str,
    id: str | None = None,
    order: int = DEFAULT_ORDER,
    tier: str = "user",
    match: Match | None = None,
    on_error: OnError | None = None,
    observes: bool = False,
    timeout_s: float | None = None,
    inline: bool = False,
) -> Callable[[Callable[[P], Answer]], FunctionHook[P]]:
    """Make a function of a payload a hook at these points (``agentsession.protocol.HOOK_POINTS``).

    ::

        @hook("before_tool", match="run_*", order=10)
        def no_sudo(call: ToolCallHook) -> HookOutcome | None:
            return block("no sudo here") if "sudo" in str(call.args) else None

    Async functions run on the loop, plain ones in a thread. Those that are asked one after the other share one, unless
    they have a ``timeout_s``; taking longer than that counts as a failure. ``inline``: a plain function that only
    computes, and quickly, runs on the loop; that costs a tenth, and nothing else goes on meanwhile. See
    :class:`HookChain` for the other options. Raises :class:`ConfigurationError` (``hooks-invalid``) for an unknown
    point, and for ``inline`` with an async function or a time limit.
    """
    unknown = [point for point in points if not isinstance(point, str) or point not in HOOK_POINTS]
    if unknown or not points:
        raise ConfigurationError(
            f"there is no hook point {unknown[0]!r}" if unknown else "a hook needs a point",
            where="@hook",
            expected=", ".join(HOOK_POINTS),
            fix='@hook("before_tool")',
            id=_ID,
        )

    def make(function: Callable[[P], Answer]) -> FunctionHook[P]:
        return FunctionHook(
            function,
            points,
            id=id,
            order=order,
            tier=tier,
            match=match,
            on_error=on_error,
            observes=observes,
            timeout_s=timeout_s,
            inline=inline,
        )

    return make


def _is_async(function: object) -> bool:
    if isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function)
