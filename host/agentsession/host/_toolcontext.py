"""What a running host tool may ask for: its request's id, a way to report progress, a person's answer, whether to stop.

Not for: the tools themselves (``_tools.py``). Rules carried: TOOL-12 (no update after the response).
May import: anyio, ``protocol``.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread

from agentsession.protocol import (
    ConfigurationError,
    Content,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    SchemaProblem,
    SchemaValidator,
    ToolProgress,
    as_content,
    to_json,
)

if TYPE_CHECKING:
    from agentsession.host._lineage import Caller

__all__ = ["ToolCancelled", "ToolContext", "tool_threads"]

logger = logging.getLogger("agentsession.host")

_PROGRESS_KEPT = 64


_threads: dict[threading.Thread, str] = {}


def tool_threads() -> dict[threading.Thread, str]:
    """The worker threads of this process in which a tool runs now, and the tool's name."""
    return dict(_threads)


class ToolCancelled(Exception):
    """Raised by :meth:`ToolContext.raise_if_cancelled`: the call was given up and its result will not be used."""


class ToolContext:
    """Injected into a tool that has a parameter annotated with it; the model does not see that parameter.

    All methods may be called from the event loop and from a worker thread.
    """

    def __init__(
        self,
        request_id: str,
        *,
        tool_name: str = "",
        session_id: str = "",
        turn_id: str | None = None,
        thread_id: str | None = None,
        ask: Callable[[ElicitationRequest], Awaitable[ElicitationAnswer]] | None = None,
        caller: Caller | None = None,
        user_id: str = "local",
    ) -> None:
        self._ask = ask
        self.request_id = request_id
        self.tool_name = tool_name
        self.session_id = session_id
        self.turn_id = turn_id
        self.thread_id = thread_id
        """The agent thread that asked; ``None`` is the main one."""
        self.caller = caller
        """The turn that the call belongs to: for the host's own tools that run whole agents."""
        self.user_id = user_id
        """Whose session it is; ``local`` where the session was opened elsewhere and the host was not told."""
        self.subagent: dict[str, Any] | None = None
        """Which sub-agent of the host works for the call, and in which session, once it has begun."""
        self.returned = False
        self._home = threading.get_ident()
        self._cancelled = threading.Event()
        self._thread_running = False
        self._thread = threading.Lock()
        self._when_thread_ends: list[Callable[[], None]] = []
        self._asking: list[anyio.CancelScope] = []
        self._done = False
        self._updates: collections.deque[ToolProgress] = collections.deque(maxlen=_PROGRESS_KEPT)
        self._wake: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the call was given up. A sync tool that runs long should look now and then: nothing can stop it."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise :class:`ToolCancelled` once the call was given up."""
        if self.cancelled:
            raise ToolCancelled(f"{self.tool_name or 'the tool'} was given up")

    @property
    def thread_running(self) -> bool:
        """Whether a worker thread still runs the tool, also after the call was given up."""
        return self._thread_running

    def progress(
        self,
        progress: float | None = None,
        total: float | None = None,
        *,
        content: Content | None = None,
        data: Any = None,
    ) -> None:
        """Tell people how far the tool is. Never reaches the model; only the newest few wait when they cannot be sent.

        Raises :class:`JsonError` for ``data`` that JSON cannot say.
        """
        if self._done or self.cancelled:
            return
        given = {} if data is None else {"data": to_json(data)}
        update = ToolProgress(
            request_id=self.request_id, progress=progress, total=total, content=as_content(content), **given
        )
        self._updates.append(update)
        if self._wake is None:
            return
        if threading.get_ident() == self._home:
            self._wake()
            return
        try:
            anyio.from_thread.run_sync(self._wake)
        except RuntimeError:  # the loop has ended, or this thread is not one of anyio's: the update waits
            logger.debug("progress of %s could not be sent at once", self.request_id)

    async def ask(
        self,
        message: str,
        *,
        schema: Mapping[str, Any] | None = None,
        kind: str = "clarification",
        title: str | None = None,
        url: str | None = None,
    ) -> ElicitationAnswer:
        """Ask the person, through the host's channel; the wait is not the tool's time.

        ``schema``: JSON Schema of the answer; the content of an ``accept`` fits it, the others have none. ``url``: an
        address that the person is asked to open. Only async tools can await it; a sync one calls
        ``anyio.from_thread.run(context.ask, message)``. Where nobody can be asked, the answer is ``decline``; once the
        call is over, ``cancel``. Without a schema it is a yes or no: ``accept`` or ``decline``, and no content.

        Raises :class:`agentsession.protocol.ConfigurationError` for a schema that is none.
        """
        if schema:  # no answer could fit one that is none, and the person would be asked for nothing
            try:
                SchemaValidator(schema)
            except SchemaProblem as problem:
                raise ConfigurationError("the schema of a question is none", got=problem.message) from None
        given: dict[str, Any] = {"title": title, "url": url, "requested_schema": dict(schema) if schema else None}
        given = {key: value for key, value in given.items() if value is not None}
        over = ElicitationAnswer(
            request_id=self.request_id, action="cancel", decision=Decision(by="host", reason="the call is over")
        )
        if self._done or self.cancelled:  # a thread, or a task that was left, goes on: nobody is asked for its sake
            return over
        question = ElicitationRequest(
            request_id=self.request_id, kind=kind, message=message, tool_request_id=self.request_id, **given
        )
        if self._ask is None:
            why = Decision(by="host", reason="no_channel: nobody can be asked")
            return ElicitationAnswer(request_id=self.request_id, action="decline", decision=why)
        answer: ElicitationAnswer | None = None
        began = time.monotonic()
        with anyio.CancelScope() as scope:
            self._asking.append(scope)
            try:
                answer = await self._ask(question)
            finally:
                self._asking.remove(scope)
        if answer is None:
            return over
        told = {"kind": kind, "message": message, "action": answer.action}
        # How long a person was waited for is in no other event: the question is not in the agent's record.
        self.progress(data={"asked": {**told, "waitedS": round(time.monotonic() - began, 3)}})
        return answer

    # --- for whoever runs the tool ------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Mark the call as given up, and withdraw what it asks. From the event loop."""
        self._cancelled.set()
        for scope in self._asking:
            scope.cancel()

    def take_updates(self) -> list[ToolProgress]:
        """The updates that were not taken yet, oldest first."""
        taken: list[ToolProgress] = []
        while self._updates:
            taken.append(self._updates.popleft())
        return taken

    async def forward(self, send: Callable[[ToolProgress], Any]) -> None:
        """Await ``send`` for each update, until :meth:`finish`; what was reported before it is still sent."""
        while True:
            wake = anyio.Event()
            self._wake = wake.set
            for update in self.take_updates():
                await send(update)
            if self._done:
                return
            if not self._updates:
                await wake.wait()

    def finish(self) -> None:
        """No more updates: later ones are dropped. Rule: TOOL-12."""
        self._done = True
        if self._wake is not None:
            self._wake()

    def when_thread_ends(self, call: Callable[[], None]) -> None:
        """Call on the event loop when the worker thread has ended: at once if none runs."""
        with self._thread:
            if self._thread_running:
                self._when_thread_ends.append(call)
                return
        call()

    def run_in_thread(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Call in a worker thread; returns whether it failed, and the value or exception.

        Returned, not raised: a future cannot carry a StopIteration, and a SystemExit must not travel through the loop.
        """
        self._thread_running = True
        _threads[threading.current_thread()] = self.tool_name
        try:
            return False, call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - handed to the caller, who raises it
            return True, error
        finally:
            with self._thread:
                self._thread_running = False
                waiting, self._when_thread_ends = self._when_thread_ends, []
            _threads.pop(threading.current_thread(), None)
            for tell in waiting:
                try:
                    anyio.from_thread.run_sync(tell)
                except RuntimeError:  # the loop has ended, and with it whoever waits
                    logger.debug("nobody waits for the end of %s any more", self.request_id)
            if self.cancelled:
                logger.info("tool %r ended after it was given up (%s)", self.tool_name, self.request_id)
