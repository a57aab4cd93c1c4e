"""``run`` at a terminal: a conversation of typed lines, events, questions, steers and Ctrl-C.

Not for: drawing and reading keys (``_terminal.py``, ``_plain_terminal.py``: both are a ``Screen``), or what a line
means to a question (``_questions.py``, ``_forms.py``). May import: the modules beside it.

Nothing typed is lost: a line is an answer, a steer with a receipt, a message for the next turn, or back in the box.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from agentsession.host._elicitation import Approval, Position
from agentsession.host._host import Host
from agentsession.host._policy import PolicyDecision
from agentsession.host._toolbox import connected
from agentsession.host.cli._command_policy import CommandPolicy
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._forms import FormQuestion
from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import Out, error_text
from agentsession.host.cli._questions import Answered, ApprovalQuestion, Edit, Question, Say, ShowAll, Steer
from agentsession.host.cli._render import Renderer, edited_title
from agentsession.host.cli._screen import Screen, printed_above
from agentsession.host.cli._setup import Loaded, RunOptions, make_host, open_session, open_store
from agentsession.host.cli._signals import signals
from agentsession.host.cli._text import call_title, count, cut, escape, wrap
from agentsession.host.policy import MODES
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    ConfigurationError,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    SessionConfig,
    StreamEnd,
    ToolRequest,
    ToolUpdate,
    Unimplemented,
)

__all__ = ["Conversation", "run_interactive"]

logger = logging.getLogger("agentsession.host")

Clock = Callable[[], float]

_HELP = (
    "a line is for the agent: a new turn, or while it works a steer, which it reads before its next model call",
    "/o N   the whole output of call N",
    "/w N   why call N was decided as it was",
    "/t     the last thought, whole",
    "/mode MODE  plan, default, auto_edit or autonomous; what waits is decided again",
    "/quit  leave; Ctrl-D on an empty line does too",
    "Alt-Enter: new line.  Ctrl-C: abort the turn; again: leave.",
)
_EDITING = "args> "
_DIGITS = 10
"""No call has a number of so many: Python refuses to read one of thousands."""
_COMMAND = re.compile(r"/[A-Za-z]+(\s|$)")
"""What looks like a command; ``/etc/hosts`` does not, and a space before it says that it is none."""


async def run_interactive(options: RunOptions, loaded: Loaded, clock: Clock = time.monotonic) -> Exit:
    """Talk to the agent until the person leaves."""
    executor, screen = loaded.executor, _screen_for(options)
    policy = CommandPolicy(options)
    talk = Conversation(screen, policy, clock)
    host = make_host(
        options,
        loaded.tools,
        policy=policy,
        channel=talk,
        observer=talk.event,
        hooks=loaded.hooks,
        on_unsaved=talk.unsaved,
    )
    async with open_store(options) as store, connected(loaded.tools), executor:
        session, options = await open_session(host, executor, options, store)
        talk.attach(host, session, options)
        try:
            with signals(talk.interrupt, talk.terminate), printed_above(screen):
                return await screen.run(talk)
        finally:
            await talk.aclose()
            if options.report_command is not None and session.last_seq > 1:
                Out(sys.stdout, color=options.color).lines([line((options.report_command, "dim"))])


def _screen_for(options: RunOptions) -> Screen:
    import os

    if options.plain or os.environ.get("ACCESSIBLE") or os.environ.get("TERM", "") in ("", "dumb"):
        from agentsession.host.cli._plain_terminal import PlainTerminal

        return PlainTerminal(options)
    from agentsession.host.cli._terminal import Terminal

    return Terminal(options)


class Conversation:
    """One session at one screen; it is the host's channel to the person."""

    def __init__(self, screen: Screen, policy: CommandPolicy, clock: Clock) -> None:
        self.screen = screen
        self.clock = clock
        self.renderer = Renderer(screen.view, questions=False, live=screen.live)
        self.renderer.where_of = policy.where
        self._policy = policy
        self._host: Host
        self._session: AgentSession
        self._options: RunOptions
        self._turn: asyncio.Task[None] | None = None
        self._turn_began = 0.0
        self._stopping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._question: Question | None = None
        self._answer: asyncio.Future[Answered] | None = None
        self._drawn: float | None = None
        self._editing = False
        self._steers: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._drafts: dict[str, dict[str, Any]] = {}
        self._kept: list[str] = []
        self._waiting = 0
        self._quiet = True
        self._told_next = False

    # -- the session ---------------------------------------------------------------------------------------------------

    def attach(self, host: Host, session: AgentSession, options: RunOptions) -> None:
        """Give it the session. Events before this belong to the record of a loaded one and are not shown again."""
        self._host, self._session, self._options = host, session, options

    async def start(self) -> None:
        """Greet; show where a loaded session stands, and put what waits in it again."""
        name = escape(self._session.descriptor.name)
        before = 0  # seq says nothing of it: a record that changed hands goes on at a higher one
        async for event in self._session.events():
            self.renderer.feed(event)  # for the numbers of its calls
            before += 1
        self._quiet = False
        loaded = before > 1
        self.screen.show(
            [line((f"{name}  {escape(self._session.session_id)}", "strong"), ("  /help", "dim"))]
            if not loaded
            else [line((f"{name}  {escape(self._session.session_id)}", "strong"), f"  loaded, {before} events")]
        )
        self._idle_prompt()
        if self._session.pending:
            self._start_turn(None)

    def event(self, event: Event) -> None:
        """The host's observer."""
        if self._quiet:
            return
        self.renderer.view.width = self.screen.view.width
        if isinstance(event, ToolRequest) and not event.partial:
            self._begun.setdefault(event.request_id, self.clock())
        if isinstance(event, ToolUpdate) and event.started:  # from here on it is the tool's time
            self._begun[event.request_id] = self.clock()
        self.screen.show(self.renderer.feed(event))
        if isinstance(event, StreamEnd):
            for steer in (event.data or {}).get("undelivered") or ():
                self._give_back(self._steers.pop(str(steer), ""))
            if event.reason != "input_required" and not self._told_next and self._options.report_command is not None:
                self._told_next = True
                self.screen.show([line(("   next: type on, or  ", "dim"), (self._options.report_command, "dim"))])

    def live(self) -> list[Line]:
        """The live area: what is being said, what runs, and one line of totals."""
        if self._turn is None:
            return []
        width, glyphs = self.screen.view.width, self.screen.view.glyphs
        out: list[Line] = []
        tail = self.renderer.speech.tail
        if tail:
            out.append(line(tail))
        for call in self.renderer.running[-4:]:
            since = self.clock() - self._begun.get(call.request.request_id, self.clock())
            state = "running" if call.at_work else "waits"
            state += f"  {since:.0f}s" if since >= 1.0 else ""
            state += f"  {call.progress.words}" if call.progress.words else ""
            asked = self._question.request if isinstance(self._question, ApprovalQuestion) else None
            if asked is not None and asked.request_id == call.request.request_id:
                state = "waits for you"
            title = cut(call.title, max(16, width - len(state) - 12), glyphs.ellipsis)
            out.append(line(cut(f"  [{call.number}] {title}  {state}", width, glyphs.ellipsis)))
        total = self.renderer.totals
        elapsed = int(self.clock() - self._turn_began)
        parts = [
            f"{glyphs.live} {escape(self._session.descriptor.name)}",
            escape(total.model or self._options.model or ""),
            f"{elapsed // 60}:{elapsed % 60:02d}",
            f"in {count(total.input_tokens)} out {count(total.output_tokens)}",
            total.money,
        ]
        if total.context_used is not None:
            parts.append(f"ctx {total.context_used:.0%}")
        if self._waiting:
            parts.append(f"waiting {self._waiting}")
        if self._stopping is not None:
            parts.append("stopping")
        out.append(line((cut("  ".join(part for part in parts if part), width, glyphs.ellipsis), "dim")))
        return out

    # -- what the person types -----------------------------------------------------------------------------------------

    def line(self, text: str, begun: float) -> None:
        """A line was entered; ``begun``: when its first character was typed."""
        if self._editing and isinstance(self._question, ApprovalQuestion):
            self._step(self._question.edited(text), text)
        elif self._question is not None:
            self._to_question(self._question, text, begun)
        elif not text.strip():
            return
        elif _is_command(text):
            self._command(text.strip())
        elif self._turn is not None:
            self._steer(text)
        else:
            self._start_turn(text)

    def interrupt(self) -> None:
        """Ctrl-C with nothing in the box, or while a turn runs."""
        if self._turn is None or self._stopping is not None:
            self.screen.leave(Exit.INTERRUPTED)
            return
        waiting = f". {self._waiting} waiting request cancelled" if self._waiting else ""
        self.screen.show([line((f"^C stopping; Ctrl-C again leaves{waiting}", "warn"))])
        self._stopping = self._spawn(self._abort())

    def terminate(self) -> None:
        """SIGTERM: leave; the turn is aborted on the way out."""
        self.screen.leave(Exit.TERMINATED)

    def end_of_input(self) -> None:
        """Ctrl-D on an empty line."""
        self.screen.leave(Exit.COMPLETED)

    @property
    def is_running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None

    async def aclose(self) -> None:
        """Abort what runs, and close the session."""
        if self._turn is not None:
            with contextlib.suppress(AgentSessionError):
                await self._host.abort("the person left", session=self._session)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host.close(self._session)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _start_turn(self, text: str | None) -> None:
        self._turn_began = self.clock()
        self._turn = self._spawn(self._run_turn(text))

    async def _run_turn(self, text: str | None) -> None:
        try:
            result = await self._host.run_turn(self._session, text)
            if result.end.reason == "input_required":
                self.screen.show([line(("  still waiting for an answer; type to go on", "warn"))])
        except Exception as error:  # a person at a terminal must learn of it, whatever it is
            logger.debug("a turn failed", exc_info=error)
            self._tell(error)
            if self._session.state == "closed":
                self.screen.leave(Exit.FAILED)
        finally:
            self._turn, self._stopping = None, None
            self._idle_prompt()
        if self._kept:
            kept, self._kept = "\n".join(self._kept), []
            self._start_turn(kept)

    async def _abort(self) -> None:
        try:
            await self._host.abort("Ctrl-C", session=self._session)
        except AgentSessionError as error:
            self._tell(error)

    def unsaved(self, error: ConfigurationError) -> None:
        """What was answered always could not be saved."""
        self._tell(error)
        self.screen.show([line(("  the answer holds until you leave", "warn"))])

    def _tell(self, error: Exception) -> None:
        self.screen.show([line((row, "bad")) for row in error_text(error).rstrip("\n").split("\n")])

    # -- steers --------------------------------------------------------------------------------------------------------

    def _steer(self, text: str) -> None:
        self._spawn(self._send_steer(text))

    async def _send_steer(self, text: str) -> None:
        glyph = self.screen.view.glyphs.user
        self.screen.show([line((f"{glyph} {row}", "user")) for row in escape(text).split("\n")])
        try:
            receipt = await self._session.steer(text)
        except Unimplemented:
            self._kept.append(text)
            self.screen.show([line(("  kept: this agent takes no steers; sent as the next turn", "dim"))])
            return
        except AgentSessionError as error:
            self._tell(error)
            self._give_back(text)
            return
        if receipt.ok and receipt.request_id is not None:
            number = self.renderer.steer_queued(receipt.request_id)
            self._steers[receipt.request_id] = text
            self.screen.show([line((f"  steer {number} queued, goes in before the next model call", "dim"))])
        else:
            why = f": {escape(receipt.reason)}" if receipt.reason else ""
            self.screen.show([line((f"  steer {receipt.status}{why}, text back in box", "warn"))])
            self._give_back(text)

    def _give_back(self, text: str) -> None:
        if text and not self.screen.fill(text):
            self.screen.show([line(("  not sent: ", "warn"), escape(text).replace("\n", " "))])

    # -- questions: the host's channel ---------------------------------------------------------------------------------

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """Ask whether a call may run."""
        call = self.renderer.calls.get(request.request_id)
        if call is not None and position.problem:  # an edit that was not taken
            call.title = call_title(request.name, request.args)
        question = ApprovalQuestion(
            request,
            decision,
            position,
            view=self.screen.view,
            number=call.number if call is not None else None,
            asked_by=" > ".join(position.principals) or self._asker(request.agent_id),
            mode=self._policy.mode_of(request.request_id),
            draft=self._drafts.get(request.request_id) if position.problem else None,
        )
        answered = await self._ask(question)
        assert isinstance(answered.value, Approval)
        self._begun[request.request_id] = self.clock()
        if answered.value.args is not None:
            self._drafts[request.request_id] = answered.value.args
            if call is not None:  # from now on it is told as what runs
                call.title = edited_title(request.name, answered.value.args)
        return answered.value

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Put a question of the agent."""
        call = self.renderer.calls.get(request.tool_request_id or "")
        about = f"[{call.number}] {call.title}" if call is not None else None
        answered = await self._ask(FormQuestion(request, position, view=self.screen.view, about=about))
        assert isinstance(answered.value, ElicitationAnswer)
        return answered.value

    def _asker(self, agent_id: str | None) -> str:
        root = self._session.descriptor.name
        return root if agent_id in (None, root) else f"{root} > {agent_id}"

    async def _ask(self, question: Question) -> Answered:
        self._question, self._drawn, self._waiting = question, None, 1
        self._answer = asyncio.get_running_loop().create_future()
        self.screen.forget_typed()
        self.screen.show(question.block)
        self.screen.prompt(question.prompt, secret=question.secret)
        try:
            await self.screen.drawn()
            self._drawn = self.clock()
            return await self._answer
        finally:
            self._question, self._answer, self._waiting, self._editing = None, None, 0, False
            self._idle_prompt()

    def _to_question(self, question: Question, text: str, begun: float) -> None:
        shown = "*" * 6 if question.secret else escape(text).replace("\n", " ")
        drawn = self._drawn if self._drawn is not None else float("inf")
        prompt = question.prompt
        step = question.take(text, begun=begun, drawn=drawn)
        if isinstance(step, Steer):
            if _is_command(step.text):
                self._command(step.text.strip())
            elif step.text.strip():
                self._steer(step.text)
            return
        if not self.screen.echoes:
            self.screen.show([line((prompt, "dim"), shown)])
        self._step(step, text)

    def _step(self, step: Any, text: str) -> None:
        question = self._question
        if isinstance(step, Answered):
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(step)
        elif isinstance(step, Edit):
            self._editing = self.screen.fill(step.text)
            if self._editing:
                self.screen.prompt(_EDITING)
            else:
                self.screen.show([line(("  empty the box first, then e", "warn"))])
        elif isinstance(step, ShowAll):
            self._spawn(self.screen.page(step.text))
        elif isinstance(step, Say) and question is not None:
            self._editing = step.still_editing
            if step.redraw:
                self.screen.forget_typed()
            self.screen.show(step.lines)
            if step.put_back:
                self.screen.fill(text)
            self.screen.prompt(_EDITING if self._editing else question.prompt, secret=question.secret)
            if step.redraw:
                self._drawn = None
                self._spawn(self._redrawn())

    async def _redrawn(self) -> None:
        await self.screen.drawn()
        self._drawn = self.clock()

    def _idle_prompt(self) -> None:
        if self._question is None:
            self.screen.prompt(f"{self.screen.view.glyphs.user} ")

    # -- commands ------------------------------------------------------------------------------------------------------

    def _command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        self.screen.show([line((escape(text), "dim"))])
        if word == "/quit":
            self.screen.leave(Exit.COMPLETED)
        elif word == "/help":
            width = self.screen.view.width - 2
            self.screen.show([line((f"  {row}", "dim")) for text in _HELP for row in wrap(text, width)])
        elif word == "/mode":
            self._change_mode(rest.strip())
        elif word == "/t" and self.renderer.speech.thoughts:
            self._whole(self.renderer.speech.thoughts[-1])
        elif word in ("/o", "/w") and rest.strip().isdecimal():
            call = self.renderer.call(int(rest)) if len(rest.strip()) < _DIGITS else None
            if call is None:
                self.screen.show([line((f"  there is no call {rest.strip()}", "warn"))])
            elif word == "/o":
                self._whole(call.output or "(no output)")
            else:
                self.screen.show(call.why(self.screen.view.width))
        elif word in ("/t", "/o", "/w"):
            need = "no thought yet" if word == "/t" else f"which call? For example: {word} 1"
            self.screen.show([line((f"  {need}", "warn"))])
        else:
            told = "not a command here; see /help, or put a space before it to send it to the agent"
            self.screen.show([line((f"  {row}", "warn")) for row in wrap(told, self.screen.view.width - 2)])
            self._give_back(text)

    def _change_mode(self, mode: str) -> None:
        if mode in MODES:
            self._spawn(self._send_mode(mode))
            return
        self.screen.show([line((f"  which mode? /mode {', /mode '.join(MODES)}", "warn"))])

    async def _send_mode(self, mode: str) -> None:
        try:
            receipt = await self._session.update(SessionConfig(permission_mode=mode))
        except AgentSessionError as error:
            self._tell(error)
            return
        if not receipt.ok:
            why = f": {escape(receipt.reason)}" if receipt.reason else ""
            self.screen.show([line((f"  mode not changed, {receipt.status}{why}", "warn"))])

    def _whole(self, text: str) -> None:
        self.screen.show([line(row) for row in escape(text).rstrip("\n").split("\n")])

    def _spawn(self, work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_command(text: str) -> bool:
    return _COMMAND.match(text) is not None
