"""From the options of ``run`` to a host: tools, policy, store, and what is asked of the executor.

Not for: driving turns. May import: ``agentsession.host``, ``agentsession.protocol``, ``_agents``, ``_load``, ``_out``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Literal

from agentsession.host._elicitation import ElicitationChannel
from agentsession.host._host import Host
from agentsession.host._settings import AnswerObserver, Observer
from agentsession.host._toolbox import ToolBox, ToolLike, ToolProvider, is_provider
from agentsession.host._tools import Tool
from agentsession.host.cli._agents import AGENT, check_credentials, find_executor
from agentsession.host.cli._command_policy import CommandPolicy, remembered_answers
from agentsession.host.cli._hooks import find_hooks
from agentsession.host.cli._limit_options import LimitOptions
from agentsession.host.cli._load import Kind, call_factory, kind_of, load_object, members, needed_arguments
from agentsession.host.cli._out import CommandError
from agentsession.host.cli._paint import ColorChoice
from agentsession.host.cli._shapes import as_list, is_list
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    ConfigurationError,
    LifecycleInterceptor,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionNotFound,
)

__all__ = [
    "Loaded",
    "OnAsk",
    "RunOptions",
    "fallback_hooks",
    "load_tools",
    "make_host",
    "open_session",
    "open_store",
    "prepare",
]

OnAsk = Literal["deny", "pause"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was asked for on the command line of ``run``."""

    target: str
    prompt: str | None = None
    as_json: bool = False
    on_ask: OnAsk = "deny"
    model: str | None = None
    tools: str | None = None
    yes_read_only: bool = False
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    policy: Sequence[str] = ()
    mode: str | None = None
    session: str | None = None
    store: str | None = None
    hooks: Sequence[str] = ()
    plain: bool = False
    color: ColorChoice = "auto"
    debug: bool = False
    limits: LimitOptions = dataclasses.field(default_factory=LimitOptions)
    fallback: Sequence[str] = ()
    ask_fallback: bool = False

    @property
    def report_command(self) -> str | None:
        """What makes a page of this session; ``None`` when nothing was stored."""
        if self.store is None or self.session is None:
            return None
        return shlex.join(["agentsession", "report", self.session, "--store", self.store])

    @property
    def resume_command(self) -> str | None:
        """What continues this session in another process; ``None`` when nothing was stored."""
        if self.store is None or self.session is None:
            return None
        words = ["agentsession", "run", self.target, "--store", self.store, "--session", self.session]
        for option, given in (("--tools", self.tools), ("--model", self.model), ("--mode", self.mode)):
            words += [option, given] if given else []
        policies = ("--policy", self.policy)
        for option, patterns in (policies, ("--allow", self.allow), ("--deny", self.deny), ("--hooks", self.hooks)):
            words += [word for pattern in patterns for word in (option, pattern)]
        words += ["--yes-read-only"] if self.yes_read_only else []
        words += self.limits.words
        words += [word for model in self.fallback for word in ("--fallback", model)]
        words += ["--ask-fallback"] if self.ask_fallback else []
        return shlex.join(words)


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """What the user's modules hold."""

    executor: AgentExecutor
    tools: ToolProvider
    hooks: Sequence[LifecycleInterceptor] = ()


def prepare(options: RunOptions, command: str = "run", folder: str | None = ".") -> Loaded:
    """Import the agent and the tools; missing credentials are said here, before any turn.

    ``folder``: whose hooks count too, where a person has agreed to them; with ``None`` those that were named alone.

    Call it before an event loop runs: Ctrl-C then leaves at once, and a module may run a loop of its own.
    """
    found = load_object(options.target, command, AGENT)
    check_credentials(found, options.model)
    executor = find_executor(found, options.target, command, store=options.store)
    tools = load_tools(options.tools, command) if options.tools else ToolBox()
    hooks = [*find_hooks(options.hooks, folder), *fallback_hooks(options.fallback, asks=options.ask_fallback)]
    return Loaded(executor, tools, hooks)


def make_host(
    options: RunOptions,
    tools: ToolProvider,
    *,
    policy: CommandPolicy,
    channel: ElicitationChannel | None = None,
    observer: Observer | None = None,
    on_answer: AnswerObserver | None = None,
    hooks: Sequence[LifecycleInterceptor] = (),
    on_unsaved: Callable[[ConfigurationError], None] | None = None,
    limits: LimitOptions | None = None,
) -> Host:
    """A host with the tools and the policy of the command line.

    ``limits``: for all of its sessions; without them, those of a session are given when it is opened.
    """
    given = (limits or LimitOptions()).execution(None)
    return Host(
        tools=tools,
        policy=policy,
        channel=channel,
        observer=observer,
        on_answer=on_answer,
        on_ask="channel" if channel is not None else options.on_ask,
        hooks=hooks,
        limits=given.limits,
        grace=given.grace,
        remembered=remembered_answers(on_unsaved),
    )


def fallback_hooks(models: Sequence[str], *, asks: bool = False) -> list[LifecycleInterceptor]:
    """What ``--fallback`` asks for; nothing without it: hooks cost something."""
    if asks and not models:
        raise CommandError("--ask-fallback needs --fallback", id="usage", where="run", fix="add --fallback MODEL")
    if not models:
        return []
    if not all(name.strip() for name in models):
        raise CommandError("--fallback names no model", id="usage", where="run", fix="--fallback gemini-2.5-flash")
    from agentsession.host.models import ModelRouter

    return [ModelRouter(models, policy="ask" if asks else "silent")]


def load_tools(target: str, command: str = "run") -> ToolProvider:
    """The tools that ``MODULE:NAME`` stands for: one, a list, a box, or a function that returns one of the latter."""
    found = load_object(target, f"{command} --tools", TOOLS)
    if inspect.isfunction(found) and "Tool" in str(found.__annotations__.get("return", "")):
        if inspect.iscoroutinefunction(found) or needed_arguments(found):
            raise _no_tools(target, f"{target} is {kind_of(found)}")
        found = call_factory(found, target, f"{command} --tools")
    if is_provider(found):
        return found
    if not is_list(found):
        if not _is_tool(found):
            raise _no_tools(target, f"{target} is {kind_of(found)}")
        return ToolBox([found])
    listed: list[ToolLike | ToolProvider] = as_list(found)
    if not listed:
        raise _no_tools(target, f"{target} is empty")
    for number, item in enumerate(listed, start=1):
        if not _is_tool(item):
            raise _no_tools(target, f"item {number} of {target} is {kind_of(item)}")
    return ToolBox(listed)


def _is_tool(item: object) -> bool:
    """What a ToolBox takes. A class can be called too, but whoever lists one has forgotten to make an object of it."""
    return isinstance(item, (Tool, tuple)) or is_provider(item) or (callable(item) and not inspect.isclass(item))


def _are_tools(item: object) -> bool:
    return (
        isinstance(item, Tool)
        or is_provider(item)
        or (is_list(item) and bool(item) and all(map(_is_tool, as_list(item))))
    )


TOOLS: Final = Kind(
    noun="tools",
    error="tools-invalid",
    expected="a function, a list of functions, or a function without arguments that returns list[Tool]",
    fits=_are_tools,
)
"""What ``--tools`` names."""


def _no_tools(target: str, what: str) -> CommandError:
    module = sys.modules.get(target.partition(":")[0])
    near = [one for one in (members(module, _are_tools) if module is not None else []) if one != target]
    return CommandError(
        what,
        id="tools-invalid",
        where="--tools",
        expected=TOOLS.expected,
        fix=f"--tools {near[0]}" if near else "agentsession explain tools-invalid",
    )


@contextlib.asynccontextmanager
async def open_store(options: RunOptions) -> AsyncGenerator[RecordStore | None]:
    """The SQLite record of ``--store``, or ``None`` for a record that lives as long as the process."""
    if options.store is None:
        if options.session is not None:
            raise CommandError(
                "--session needs a record to be kept in", where="run", fix="add --store sessions.db", id="usage"
            )
        yield None
        return
    import agentsession.host as host

    async with host.SqliteRecordStore(options.store) as store:
        await store.list("", "")  # a file that cannot be used is told now, and not at the first message
        yield store


async def open_session(
    host: Host, executor: AgentExecutor, options: RunOptions, store: RecordStore | None
) -> tuple[AgentSession, RunOptions]:
    """Load the session that was named if it is stored, else open one; with the options completed by its id."""
    execution = options.limits.execution(options.model)
    if options.mode is not None:
        execution = execution.model_copy(update={"permission_mode": options.mode})
    asked = OpenOptions(session_id=options.session, execution=execution)
    stored = False
    if options.session is not None and store is not None:
        with contextlib.suppress(SessionNotFound):
            await store.info(RecordKey(executor.descriptor.name, asked.user_id, options.session))
            stored = True  # from here on what load() says about it is the truth
    session = await host.open(executor, asked, load=options.session if stored else None, store=store)
    return session, dataclasses.replace(options, session=session.session_id)
