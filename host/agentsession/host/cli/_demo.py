"""``demo``: a real ADK agent on real files under host control, without a key and without a network.

Writes the small code base of ``demo_project/`` into a temporary folder, runs its agent, and checks what came of it: the
tests must be green, and every kind of event that the demo is there to show must have happened.
Not for: the agent, its tools and the code they work on (``demo_project/``). May import: ``agentsession.host``, the
modules beside it; google-adk only through the demo's own agent file.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from agentsession.host._elicitation import Approval, Position
from agentsession.host._host import Host
from agentsession.host._policy import PolicyDecision, Rule, RulePolicy
from agentsession.host._results import TurnResult
from agentsession.host.cli._agents import load_executor
from agentsession.host.cli._exit_codes import Exit, exit_code
from agentsession.host.cli._forms import FormQuestion
from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import CommandError, Out, ReaderGone
from agentsession.host.cli._questions import Answered, ApprovalQuestion, Question, Say
from agentsession.host.cli._render import Renderer
from agentsession.host.cli._run import quiet_libraries
from agentsession.host.cli._setup import load_tools
from agentsession.host.cli._text import wrap
from agentsession.protocol import (
    AgentSession,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    Message,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    dump_event,
)

__all__ = ["run_demo"]

_PROMPT: Final = "A test fails. Find out why, and fix it."
_STEER: Final = "Please add a test for zero percent, too."
_POLICY: Final = RulePolicy(
    [
        Rule("deny", "run_shell", id="no-shell", reason="this host runs no shell commands for agents"),
        Rule("ask_user", "edit_file", id="edits-ask", reason="edits are shown to you first"),
        Rule("allow", ["read_file", "run_tests"], id="reads"),
    ]
)
_EXPECTED: Final = (
    "initialize",
    "agent_start",
    "message",
    "tool_request",
    "tool_decision",
    "tool_response",
    "elicitation_request",
    "elicitation_response",
    "usage",
    "agent_end",
    "stream_end",
)
"""The kinds of event that the demo is there to show."""


def run_demo(out: Out, notes: Out, *, as_json: bool, keep: str | None, debug: bool = False) -> Exit:
    """Run the demo. With ``as_json`` the record goes to ``out`` and what a person reads to ``notes``."""
    quiet_libraries(debug=debug)
    with _project(keep) as root:
        return asyncio.run(_Demo(out, notes if as_json else out, as_json=as_json).run(root, keep))


@contextlib.contextmanager
def _project(keep: str | None) -> Generator[Path]:
    """The demo's code base in a folder of its own, importable and current while the block runs."""
    with contextlib.ExitStack() as stack:
        if keep is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsession-demo-"))).resolve()
        else:
            root = Path(keep).resolve()
            if root.exists() and any(root.iterdir()):
                raise CommandError(f"{keep} is not empty", where="demo --keep", fix="name a folder that does not exist")
        _write(importlib.resources.files("agentsession.host.cli") / "demo_project", root)
        for name in ("demo_agent", "demo_tools"):
            sys.modules.pop(name, None)
        stack.enter_context(contextlib.chdir(root))
        sys.path.insert(0, str(root))
        stack.callback(sys.path.remove, str(root))
        yield root


def _write(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for item in source.iterdir():
        if item.is_dir():
            _write(item, target / item.name)
        elif item.name.endswith(".txt"):
            (target / item.name.removesuffix(".txt")).write_text(item.read_text(encoding="utf-8"), encoding="utf-8")


class _Demo:
    """One run of the demo; it is the host's channel too, and answers as a person would."""

    def __init__(self, out: Out, human: Out, *, as_json: bool) -> None:
        self._out = out
        self._human = human
        self._as_json = as_json
        self._view = human.view
        self._renderer = Renderer(self._view, questions=False)
        self._session: AgentSession
        self._host: Host | None = None
        self._events: list[Event] = []
        self._steer_id: str | None = None
        self._failed: ReaderGone | CommandError | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def run(self, root: Path, keep: str | None) -> Exit:
        """Run the turn, say what came of it, and return 0 only if all of it did."""
        self._say(
            "A real ADK agent with a scripted model, on real files: no key, no network.",
            f"It works in {root if keep is None else keep}; the host runs its tools, and answers for you.",
        )
        executor = load_executor("demo_agent:root_agent", "demo")
        tools = load_tools("demo_tools:tools")
        self._raise_failure()
        host = self._host = Host(tools=tools, policy=_POLICY, channel=self, observer=self._observe)
        async with executor, host.session(executor) as session:
            self._session = session
            result = await host.run_turn(session, _PROMPT)
            if self._stopping is not None:
                await self._stopping
        self._raise_failure()
        green = await asyncio.to_thread(_tests_are_green)
        missing = self._missing(result)
        self._summary(green, missing, keep)
        self._raise_failure()
        if result.end.reason != "completed":
            return exit_code(result.end.reason, result.end.data)
        return Exit.COMPLETED if green and not missing else Exit.FAILED

    def _observe(self, event: Event) -> None:
        if self._failed is not None:
            return
        self._events.append(event)
        try:
            if self._as_json:
                self._out.json_line(dump_event(event))
            self._view.width = self._human.width
            self._human.lines(self._renderer.feed(event))
        except (ReaderGone, CommandError) as error:
            self._stop(error)

    def _show(self, lines: list[Line]) -> None:
        if self._failed is not None:
            return
        try:
            self._human.lines(lines)
        except (ReaderGone, CommandError) as error:
            self._stop(error)

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _stop(self, error: ReaderGone | CommandError) -> None:
        """Nobody sees it any more: end the turn."""
        self._failed = error
        if self._host is not None:
            self._stopping = asyncio.ensure_future(self._host.abort("the reader is gone"))

    def _say(self, *texts: str) -> None:
        self._show([line((row, "dim")) for text in texts for row in wrap(text, self._view.width)])

    # -- the person ----------------------------------------------------------------------------------------------------

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """Steer once, while the first question waits; then say yes, as somebody who has read the change would."""
        if self._failed is not None:
            return Approval.cancel()
        call = self._renderer.calls.get(request.request_id)
        number = call.number if call is not None else None
        question = ApprovalQuestion(
            request, decision, position, view=self._view, number=number, asked_by=self._session.descriptor.name
        )
        self._show(question.block)
        if self._steer_id is None:
            await self._steer()
        answered = self._type(question, "y")
        assert isinstance(answered.value, Approval)
        return answered.value

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Fill the form in, line by line."""
        if self._failed is not None:
            return None
        question = FormQuestion(request, position, view=self._view)
        self._show(question.block)
        answered: Answered | None = None
        for text in ("half_up", "n", "y"):
            answered = self._type(question, text)
        assert answered is not None
        assert isinstance(answered.value, ElicitationAnswer)
        return answered.value

    def _type(self, question: Question, text: str) -> Answered:
        """Type a line at the question, as the terminal would take it."""
        self._show([line((question.prompt, "dim"), text)])
        step = question.take(text, begun=1.0, drawn=0.0)
        if isinstance(step, Say):
            self._show(list(step.lines))
        return step if isinstance(step, Answered) else Answered(Approval.no("the demo could not answer"))

    async def _steer(self) -> None:
        receipt = await self._session.steer(_STEER)
        self._show([line((f"{self._view.glyphs.user} {_STEER}", "user"))])
        self._steer_id = receipt.request_id or ""
        if receipt.ok and receipt.request_id is not None:
            number = self._renderer.steer_queued(receipt.request_id)
            self._show([line((f"  steer {number} queued, goes in before the next model call", "dim"))])

    # -- what came of it -----------------------------------------------------------------------------------------------

    def _missing(self, result: TurnResult) -> list[str]:
        """What was to be shown and did not happen."""
        seen = Counter(str(getattr(event, "type", "")) for event in self._events)
        out = [kind for kind in _EXPECTED if not seen[kind]]
        decisions = [event for event in self._events if isinstance(event, ToolDecision)]
        denied = [event for event in self._events if isinstance(event, ToolResponse) and event.status == "denied"]
        steered = [event for event in self._events if isinstance(event, Message) and event.message_id == self._steer_id]
        for what, happened in (
            ("a denied call", denied),
            ("an allowed call", any(event.decision == "granted" for event in decisions) or result.answers),
            ("two calls at once", self._had_parallel_calls()),
            ("a steer", steered),
        ):
            if not happened:
                out.append(what)
        return out

    def _had_parallel_calls(self) -> bool:
        waiting: set[str] = set()
        for event in self._events:
            if isinstance(event, ToolRequest) and not event.partial:
                waiting.add(event.request_id)
                if len(waiting) > 1:
                    return True
            elif isinstance(event, ToolResponse):
                waiting.discard(event.request_id)
        return False

    def _summary(self, green: bool, missing: list[str], keep: str | None) -> None:
        self._show([line(("the tests are green" if green else "the tests are NOT green", "good" if green else "bad"))])
        if missing:
            self._show([line((f"did not happen: {', '.join(missing)}", "bad"))])
        run = "agentsession run demo_agent:root_agent --tools demo_tools:tools --model gemini-2.5-flash"
        if keep is not None:
            self._say(
                "The same with a live model, at your own terminal (it needs GEMINI_API_KEY):", f"  cd {keep}; {run}"
            )
        else:
            self._say("To look around, and to run it with a live model: agentsession demo --keep my-demo")
        counts = "  ".join(f"{kind} {number}" for kind, number in sorted(self._renderer.counts.items()))
        self._show([line(f"events: {counts}")])


def _tests_are_green() -> bool:
    """Ask the tests themselves, whatever the agent said."""
    import subprocess

    command = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
