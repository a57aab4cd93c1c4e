"""Python functions as hooks: ``@hook("before_tool")``.

Not for: commands (``_command.py``), order and failures (``_chain.py``). Rules carried: none of its own.
May import: anyio, ``protocol``, ``_entries``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread

from agentsession.host.hooks._chain import ASK
from agentsession.host.hooks._entries import DEFAULT_ORDER, HookFailed, Match, OnError
from agentsession.protocol import HOOK_POINTS, ConfigurationError, HookOutcome, HookPayload

__all__ = ["FunctionHook", "ask_user", "hook"]

P = TypeVar("P", bound=HookPayload)

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
        self._is_async = _is_async(function)
        functools.update_wrapper(self, function)

    def __call__(self, payload: P) -> Answer:
        """The function itself."""
        return self.function(payload)

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Call it: a plain function in a thread, so that one that blocks does not hold the loop.

        Raises :class:`HookFailed` when it takes longer than ``timeout_s``; a thread that is given up runs on.
        """
        answer: Any = None
        function: Callable[[Any], Any] = self.function  # its points say which payload it gets
        with anyio.move_on_after(self.timeout_s) as scope:
            if self._is_async:
                answer = await function(payload)
            else:
                answer = await anyio.to_thread.run_sync(function, payload, abandon_on_cancel=True)
                if inspect.isawaitable(answer):
                    answer = await answer
        if scope.cancelled_caught:
            raise HookFailed(f"took longer than {self.timeout_s:g} s")
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
) -> Callable[[Callable[[P], Answer]], FunctionHook[P]]:
    """Make a function of a payload a hook at these points (``agentsession.protocol.HOOK_POINTS``).

    ::

        @hook("before_tool", match="run_*", order=10)
        def no_sudo(call: ToolCallHook) -> HookOutcome | None:
            return block("no sudo here") if "sudo" in str(call.args) else None

    Async functions run on the loop, plain ones in a thread. See :class:`HookChain` for the options. Taking longer than
    ``timeout_s`` counts as a failure. Raises :class:`ConfigurationError` (``hooks-invalid``) for an unknown point.
    """
    unknown = [point for point in points if not isinstance(point, str) or point not in HOOK_POINTS]
    if unknown or not points:
        raise ConfigurationError(
            f"there is no hook point {unknown[0]!r}" if unknown else "a hook needs a point",
            where="@hook",
            expected=", ".join(HOOK_POINTS),
            fix='@hook("before_tool")',
            id="hooks-invalid",
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
        )

    return make


def _is_async(function: object) -> bool:
    if isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function)
