"""``run --prompt``: one turn without anybody at the keyboard.

Lines go to stderr and only the final answer to stdout, or with ``--json`` every event to stdout. What would be asked is
refused, or left waiting (``--on-ask pause``). May import: the modules beside it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Sequence

from agentsession.host._results import TurnResult
from agentsession.host._toolbox import connected
from agentsession.host.cli._command_policy import CommandPolicy
from agentsession.host.cli._exit_codes import Exit, exit_code
from agentsession.host.cli._lines import line
from agentsession.host.cli._out import CommandError, Out, ReaderGone
from agentsession.host.cli._render import Renderer, by_whom
from agentsession.host.cli._setup import Loaded, RunOptions, make_host, open_session, open_store
from agentsession.host.cli._signals import signals
from agentsession.host.cli._text import escape
from agentsession.protocol import (
    AgentSession,
    Answer,
    Event,
    PendingRequest,
    Receipt,
    ToolDenial,
    ToolRequest,
    dump_event,
)

__all__ = ["receipt_line", "run_once"]


async def run_once(options: RunOptions, loaded: Loaded, out: Out) -> Exit:
    """Run one turn, and return the exit code of its end. ``out`` is the real stdout, whatever user code prints to."""
    executor = loaded.executor
    policy = CommandPolicy(options)
    view = _Once(options, out, policy)
    view.renderer.where_of = policy.where
    host = make_host(
        options,
        loaded.tools,
        policy=policy,
        observer=view.event,
        on_answer=view.receipt if options.as_json else None,
        hooks=loaded.hooks,
    )
    async with open_store(options) as store, connected(loaded.tools), executor:
        session, options = await open_session(host, executor, options, store)
        await view.catch_up(session)
        try:
            loop = asyncio.get_running_loop()
            ended: list[Exit] = []
            turn = loop.create_task(host.run_turn(session, options.prompt))

            def stop(code: Exit) -> None:
                if ended:  # asked a second time: do not wait for the executor's grace time
                    turn.cancel()
                    return
                ended.append(code)
                view.stopping = loop.create_task(host.abort(code.name.lower(), session=session))

            view.on_reader_gone = lambda: stop(Exit.READER_GONE)
            with signals(lambda: stop(Exit.INTERRUPTED), lambda: stop(Exit.TERMINATED)):
                try:
                    result = await turn
                except asyncio.CancelledError:
                    if not ended:
                        raise
                    return ended[0]
            if view.stopping is not None:
                await view.stopping
            if view.failed is not None:
                raise view.failed
            view.finish(result, session, options)
            return ended[0] if ended else exit_code(result.end.reason, result.end.data)
        finally:
            await host.close(session)


class _Once:
    """What one turn prints, and where."""

    def __init__(self, options: RunOptions, out: Out, policy: CommandPolicy) -> None:
        self.policy = policy
        self.as_json = options.as_json
        self.out = out
        # At a terminal one view is enough; elsewhere stdout is for the answer alone.
        self.notes = self.out if self.out.is_tty else Out(sys.stderr, color=options.color)
        self.view = self.notes.view
        self.renderer = Renderer(self.view)
        self.failed: ReaderGone | CommandError | None = None
        self.on_reader_gone: Callable[[], None] = lambda: None
        self.stopping: asyncio.Task[None] | None = None

    async def catch_up(self, session: AgentSession) -> None:
        """Learn what a loaded session's calls were, without printing them again."""
        if session.last_seq > 1 and not self.as_json:
            async for event in session.events():
                self.renderer.feed(event)

    def event(self, event: Event) -> None:
        """Print one event. A host swallows what an observer raises, so an output that fails is told by a call."""
        if self.failed is not None:
            return
        try:
            if self.as_json:
                self.out.json_line(dump_event(event))
            else:
                self.view.width = self.notes.width
                self.notes.lines(self.renderer.feed(event))
        except (ReaderGone, CommandError) as error:
            self._gone(error)

    def receipt(self, answer: Answer, receipt: Receipt) -> None:
        """Print the receipt of an answer that the host gave."""
        if self.failed is not None:
            return
        try:
            self.out.json_line(receipt_line(receipt, answer.request_id))
        except (ReaderGone, CommandError) as error:
            self._gone(error)

    def _gone(self, error: ReaderGone | CommandError) -> None:
        self.failed = error
        self.on_reader_gone()

    def finish(self, result: TurnResult, session: AgentSession, options: RunOptions) -> None:
        """The answer on stdout; or what waits, and the command that resumes."""
        if self.as_json:
            return
        if result.end.reason == "input_required":
            for request in session.pending:
                self.notes.lines([line(("waits for you: ", "ask"), escape(self._asked(request)).replace("\n", " "))])
            resume = options.resume_command if session.descriptor.supports("resume") else None
            fix = f"resume: {resume}" if resume else "it ends with this process; keep it with --store FILE"
            self.notes.lines([line(fix)])
        elif options.report_command is not None:
            self.notes.lines([line(f"   next: {options.report_command}")])
        unasked = [one.answer.request_id for one in result.answers if _was_not_asked(one.answer)]
        for told in dict.fromkeys([*self._who_asks(unasked), *self._to_allow(unasked)]):
            self.notes.lines([line(escape(f"nobody could be asked; {told}").replace("\n", " "))])
        if not self.out.is_tty and result.text:
            self.out.text(result.text.rstrip("\n") + "\n")

    def _asked(self, request: PendingRequest) -> str:
        """What waits: the call as it was shown, and what is asked of it. Two calls may be asked about in one text."""
        if isinstance(request, ToolRequest):
            call = self.renderer.calls.get(request.request_id)
            return f"[{call.number}] {call.title}" if call is not None else request.name
        call = self.renderer.calls.get(request.tool_request_id or "")
        return f"[{call.number}] {call.title}: {request.message}" if call is not None else request.message

    def _to_allow(self, unasked: Sequence[str]) -> list[str]:
        """The options that would have let them run: they stand above the table of modes, and above nothing else."""
        names = sorted({self._tool(one) for one in unasked if self._is_asked_by_mode(one)})
        return ["to allow it: " + shlex.join(word for name in names for word in ("--allow", name))] if names else []

    def _who_asks(self, unasked: Sequence[str]) -> list[str]:
        """What asks about calls that no option would let run."""
        out: list[str] = []
        for one in unasked:
            if not self._is_asked_by_mode(one):
                said = self.policy.asked_by(one)
                by = by_whom(said.by, said.where) if said is not None else "a hook"
                out.append(f"{by} asks about {self._tool(one)}")
        return out

    def _is_asked_by_mode(self, request_id: str) -> bool:
        said = self.policy.asked_by(request_id)
        return said is not None and said.where is None

    def _tool(self, request_id: str) -> str:
        call = self.renderer.calls.get(request_id)
        return call.request.name if call is not None else "TOOL"


def _was_not_asked(answer: Answer) -> bool:
    if not isinstance(answer, ToolDenial) or answer.decision is None or answer.decision.by != "host":
        return False
    return (answer.reason or "").startswith("no_channel")


def receipt_line(receipt: Receipt, request_id: str | None = None, call_id: object = None) -> str:
    """A receipt as one line: ``{"receipt": STATUS, "requestId": …}``."""
    parts = receipt.to_wire()
    status = parts.pop("status")
    parts.setdefault("requestId", request_id)
    if call_id is not None:
        parts["id"] = call_id
    known = {name: part for name, part in parts.items() if part is not None}
    return json.dumps({"receipt": status, **known}, ensure_ascii=False, separators=(",", ":"))
