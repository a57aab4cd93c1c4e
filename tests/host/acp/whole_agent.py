"""The agent of the tests over real stdio, as a module of a user's: the first words of a prompt say what it does."""

from __future__ import annotations

import dataclasses
from typing import Any

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Memory, Parallel, Say, ScriptedExecutor, Step
from agentsession.host import ToolOutcome
from agentsession.protocol import Custom, Diff, Media, Reference, Text, plain_text

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
URL = "https://login.example/start"


def edit(path: str) -> ToolOutcome:
    """Edit a file."""
    return ToolOutcome(data={"edited": path}, content=[Diff(path=path, old_text="one\n", new_text="two\n")])


class Plan:
    """A plan, as an agent tells it: all entries, as often as one changes."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = statuses

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        entries = [
            {"content": f"step {number}", "priority": "high", "status": status}
            for number, status in enumerate(self.statuses)
        ]
        await ctx.emit(Custom(kind="plan", data={"entries": entries}))


class Heard:
    """Says what the prompt was made of."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        assert ctx.input is not None
        await ctx.say(" ".join(_kind(part) for part in ctx.input.content))


def _kind(part: Any) -> str:
    match part:
        case Media(mime_type=mime, data=data):
            return f"media:{mime}:{data}"
        case Reference(uri=uri, title=title):
            return f"reference:{uri}:{title}"
        case Text(text=text):
            return f"text:{text}"
        case _:
            return str(part.type)


@dataclasses.dataclass
class Act:
    """One turn: what the prompt begins with."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        assert ctx.input is not None
        words = plain_text(ctx.input.content).split()
        for step in ACTS.get(words[0] if words else "", [Heard()]):
            await step.play(ctx, memory)


def _answered(memory: Memory) -> str:
    return f"{getattr(memory.last, 'action', None)} {getattr(memory.last, 'content', None)}"


ACTS: dict[str, list[Step]] = {
    "plan": [Plan("pending", "pending"), Plan("completed", "in_progress"), Say("Planned.")],
    "edit": [Call("edit", {"path": "a.txt"}), Say("Edited.")],
    "edits": [Calls(Call("edit", {"path": "a.txt"}), Call("edit", {"path": "b.txt"})), Say("Edited.")],
    "agents": [Parallel(reader=[Say("I read.")], writer=[Call("edit", {"path": "b.txt"}), Say("I wrote.")])],
    "terminal": [Call("editor_run_in_terminal", {"command": "make", "args": ["test"]}), Say("Ran.")],
    "shop": [Call("shop_write", {"path": "a"}), Say("Bought.")],
    "form": [Ask("Which colour?", schema=COLOUR), Say(_answered)],
    "login": [Ask("Log in.", kind="auth_required", url=URL), Say(_answered)],
    "deltas": [Deltas(["One", ", ", "two."])],
}

agent = ScriptedExecutor([[Act()]] * 20)
seeing = ScriptedExecutor([[Act()]] * 20)
seeing.descriptor = seeing.descriptor.model_copy(
    update={"capabilities": [*seeing.descriptor.capabilities, "media_input"]}
)
tools = [edit]
