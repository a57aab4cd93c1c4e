"""What one input does to its session: decided in one step, before anything is recorded.

Not for: doing it (``_app_run.py``). Rules carried: those of ``_in_new.py`` and ``_in_answers.py``.
May import: ``_in`` modules, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from agentsession.host.agui._in_answers import SchemaOf, read_resume
from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Memory
from agentsession.host.agui._in_new import message_of, new_of, result_of
from agentsession.host.agui._in_read import RunInput
from agentsession.protocol import Answer, ExecutionOptions, MessageInput, PendingRequest, ToolDescriptor

__all__ = ["Plan", "changed_state", "options_of", "plan_of"]


class Plan(NamedTuple):
    """What is to be done, in this order. Nothing of it: the client is shown where the session stands."""

    answers: Sequence[Answer]
    """The results of the client's tools, and the answers of its person."""
    message: MessageInput | None
    """Starts a turn, once the one that waited has gone on to its end; one that goes on waiting is settled by it."""
    message_ids: Collection[str]
    """The client's messages that it was made of."""
    goes_on: bool
    """Whether the turn that waits has all that it waits for; else the answers are kept, and a message settles it."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new."""
        return not self.answers and self.message is None


def plan_of(
    given: RunInput,
    memory: Memory,
    pending: Sequence[PendingRequest],
    is_clients: Callable[[PendingRequest], bool],
    schema_of: SchemaOf,
    now: datetime,
) -> Plan:
    """Decide. ``is_clients``: whether a request waits for the result of one of the client's own tools.

    Raises :class:`RunRefused`; then nothing is done.
    """
    calls = {request.request_id for request in pending if is_clients(request)}
    interrupts = {request.request_id: request for request in pending if request.request_id not in calls}
    new = new_of(given, memory, calls)
    answers: list[Answer] = [result_of(message) for message in new.results]
    message = message_of(new.messages, given) if new.messages else None
    said = read_resume(given.resume, interrupts, memory, now, schema_of) if given.resume else None
    is_answered = not interrupts
    if said is not None and said.answers:
        is_answered = True
        if message is None or not said.abandons:
            answers += said.answers
        else:  # the message settles what was left
            return Plan(answers, message, [each.id for each in new.messages], goes_on=False)
    if message is not None and not is_answered:
        raise RunRefused("interrupts_open", f"{len(interrupts)} interrupts wait: answer or cancel them in resume")
    goes_on = is_answered and bool(answers) and len(calls) == len(new.results)
    return Plan(answers, message, [each.id for each in new.messages], goes_on)


def options_of(given: RunInput, own: Collection[str], forwarded: Collection[str]) -> ExecutionOptions | None:
    """The options of the turn that the message starts. ``own``: names of tools that are not the client's.

    ``forwarded``: the keys of ``forwardedProps`` that may reach the executor. Raises :class:`RunRefused`.
    """
    tools: list[ToolDescriptor] = []
    names: set[str] = set()
    for tool in given.tools:
        if tool.name in own:
            raise RunRefused("tool_conflict", f"the agent has a tool {tool.name} of its own")
        if tool.name in names:
            raise RunRefused("tool_conflict", f"two tools are called {tool.name}")
        names.add(tool.name)
        tools.append(
            ToolDescriptor(
                name=tool.name, description=tool.description or None, parameters_schema=tool.parameters, owner="host"
            )
        )
    config: dict[str, Any] = {}
    if isinstance(given.forwarded, dict):
        config.update({key: given.forwarded[key] for key in forwarded if key in given.forwarded})
    if given.context:
        config["context"] = [{"description": item.description, "value": item.value} for item in given.context]
    changes: dict[str, Any] = {}
    if tools:
        changes["tools"] = tools
    if config:
        changes["config"] = config
    return ExecutionOptions(**changes) if changes else None


def changed_state(given: Any, seen: Any, hides: Callable[[str], bool]) -> Mapping[str, Any]:
    """The keys that a client set, of those that it may. One that sends none, or what it was sent, set nothing."""
    if not isinstance(given, dict) or not given or given == seen:
        return {}
    before: Mapping[str, Any] = seen if isinstance(seen, dict) else {}
    return {
        key: value
        for key, value in given.items()
        if not hides(key) and not (key in before and _same(before[key], value))
    }


def _same(first: Any, second: Any) -> bool:
    """Equal as JSON: ``1`` is not ``true``."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)
