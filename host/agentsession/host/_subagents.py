"""Whole agents as tools: a host tool behind which an agent of any executor works in a session of its own.

Not for: agents inside an executor (ADK's own sub-agents are its descriptor's). Rules carried: none of its own.
May import: ``_child_run``, ``_places``, ``_registry``, ``_tools``, ``protocol``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import anyio

from agentsession.host._child_run import ChildPlan, ChildRun, refusal
from agentsession.host._completion import COMPLETE_TASK
from agentsession.host._lineage import MODES
from agentsession.host._outcome import ToolError, ToolOutcome
from agentsession.host._places import Places
from agentsession.host._registry import SessionFactory
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool
from agentsession.protocol import (
    AgentDescriptor,
    AgentExecutor,
    ConfigurationError,
    Constraints,
    ExecutionOptions,
    RecordStore,
    ToolAnnotations,
    ToolDescriptor,
)

__all__ = ["SubagentTool"]

_TASK: Final = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "minLength": 1, "description": "What to do, whole: it knows nothing else."}
    },
    "required": ["task"],
    "additionalProperties": False,
}
_TIME_S: Final = 600.0


class SubagentTool(Tool):
    """A tool that has another agent do a task, under the same policy, hooks, person and limits as the caller.

    ::

        async with AdkExecutor(reviewer) as executor:
            host = Host(tools=[read_file, SubagentTool(executor, tools=["read_file"])], policy=..., channel=...)

    ``agent``: an executor that is entered and stays so; a function that makes one, which is entered for each call; or
    a descriptor or key that ``factory`` makes one of.
    ``tools``: the host's tools that it may call, by name; none by default, and never one that its caller has not.
    ``options``: model, ``config``, limits and mode; the stricter mode of it and its caller holds. Default limit: 600 s
    at work.
    ``result_schema``: it must call ``complete_task`` with a result that fits; ``complete_task=True`` without one asks
    for a text. Else its last message is the result.
    ``max_depth``: how many sub-agents may stand in one another, this one counted.
    ``store``: where its sessions are kept, as safe as its caller's; default the store that the caller's session was
    opened with, or its executor's own, or the one that the caller's executor has.
    ``max_parallel``: how many of its calls are at work at once; the limit of a provider is for the calls of the agent.
    Two sub-agents that both have one, and call each other, may wait for one another until a limit ends them.

    An agent is never called in itself. Arguments are those of the agent's ``input_schema``, else one text, ``task``.
    Raises :class:`ConfigurationError`.
    """

    keeps_time: ClassVar[bool] = True
    tells_start: ClassVar[bool] = False

    def __init__(
        self,
        agent: AgentExecutor | AgentDescriptor | str | Callable[[], AgentExecutor],
        *,
        name: str | None = None,
        description: str | None = None,
        tools: Sequence[str] = (),
        options: ExecutionOptions | None = None,
        complete_task: bool = False,
        result_schema: Mapping[str, Any] | None = None,
        max_depth: int = 3,
        store: RecordStore | None = None,
        annotations: ToolAnnotations | None = None,
        factory: SessionFactory | None = None,
        max_parallel: int | None = None,
    ) -> None:
        if isinstance(tools, str):
            raise ConfigurationError(
                "the tools of a sub-agent are a list of names", got=tools, fix=f"tools=[{tools!r}]"
            )
        if max_depth < 1:
            raise ConfigurationError(f"max_depth is {max_depth}", expected="1 or more")
        options = options or ExecutionOptions()
        if options.tools:
            raise ConfigurationError(
                "a sub-agent's options declare tools that nobody would run", fix="name the host's: tools=[...]"
            )
        if options.permission_mode not in (None, *MODES):
            raise ConfigurationError(f"unknown mode {options.permission_mode!r}", expected=", ".join(MODES))
        if options.limits is None:
            options = options.model_copy(update={"limits": Constraints(max_time_seconds=_TIME_S)})
        entered, create = _source(agent, factory)
        descriptor = agent if isinstance(agent, AgentDescriptor) else (entered or _made(create)).descriptor
        needs_result = complete_task or result_schema is not None
        if needs_result and COMPLETE_TASK in tools:
            raise ConfigurationError(f"a tool of the host is called {COMPLETE_TASK!r}", fix="rename it")
        self._plan = ChildPlan(
            descriptor=descriptor,
            entered=entered,
            create=create,
            tools=tuple(tools),
            options=options,
            needs_result=needs_result,
            result_schema=result_schema,
            max_depth=max_depth,
            store=store,
        )
        self._takes_text = (descriptor.input_schema or {}).get("type") != "object"
        super().__init__(
            ToolDescriptor(
                name=name or descriptor.name,
                display_name=descriptor.display_name,
                description=description or descriptor.description or f"Have the agent {descriptor.name} do a task.",
                parameters_schema=_TASK if self._takes_text else descriptor.input_schema,
                output_schema=dict(result_schema) if result_schema is not None else None,
                annotations=annotations,
                owner="host",
            ),
            _needs_host,
            max_parallel=max_parallel,
        )

    @property
    def agent(self) -> AgentDescriptor:
        """The agent behind it."""
        return self._plan.descriptor

    def provided(self, provider: str, name: str, *, trusted: bool | None = None, places: Places | None = None) -> Tool:
        """The same tool as one of ``provider``'s, without its places: those are for the calls that the agent makes."""
        return super().provided(provider, name, trusted=trusted)

    def refuses(self, context: ToolContext) -> ToolOutcome | None:
        """An agent that is at work above, or a depth that is too deep: it would wait for a place that never comes."""
        return None if context.caller is None else refusal(self._plan, context.caller)

    async def run(
        self,
        args: object,
        context: ToolContext | None = None,
        *,
        limiter: anyio.CapacityLimiter | None = None,
        expose_errors: bool = True,
        is_checked: bool = False,
    ) -> ToolOutcome:
        """Have the agent do it, within the turn of a host that ``context`` belongs to."""
        if context is None or context.caller is None:
            return await super().run(args, context, limiter=limiter, is_checked=is_checked)
        refused = self.refuses(context) or (None if is_checked else self.check(args))
        if refused is not None:
            return refused
        assert isinstance(args, dict)  # the check
        message = args["task"] if self._takes_text else json.dumps(args, ensure_ascii=False)
        return await ChildRun(self._plan, context, context.caller, message).outcome()


async def _needs_host(args: dict[str, Any]) -> None:
    raise ToolError("a sub-agent works only within a turn of a host", code="subagent_refused")


def _source(
    agent: AgentExecutor | AgentDescriptor | str | Callable[[], AgentExecutor], factory: SessionFactory | None
) -> tuple[AgentExecutor | None, Callable[[], AgentExecutor] | None]:
    if isinstance(agent, (str, AgentDescriptor)):
        made, wanted = factory or SessionFactory(), agent
        return None, lambda: made.create(wanted)
    if factory is not None:
        raise ConfigurationError("a factory makes executors of keys and descriptors", got=type(agent).__name__)
    if isinstance(agent, AgentExecutor):
        return agent, None
    if callable(agent):
        return None, agent
    raise ConfigurationError(
        f"a {type(agent).__name__} is no agent",
        expected="an executor, a function that makes one, a descriptor or a key",
    )


def _made(create: Callable[[], AgentExecutor] | None) -> AgentExecutor:
    made: object = create() if create is not None else None
    if not isinstance(made, AgentExecutor):
        raise ConfigurationError(f"the function made a {type(made).__name__}", expected="an executor")
    return made
