"""What a person sees of a sub-agent: its lines hang below who called it, and its time and tokens count."""

from __future__ import annotations

import anyio
import pytest
from tests.host.subagents import agent, calls, read_file, run

from agentsession.adapters.scripted import Call, Calls, Count, Say
from agentsession.host import Host, SubagentTool, allow_all
from agentsession.host.cli._lines import View
from agentsession.host.cli._render import Renderer
from agentsession.host.cli._totals import Totals
from agentsession.protocol import Event, ToolUpdate

SHOWN = [
    "› go",
    "▸ @fixer started, inside coder",
    "  │ + 2 calls at once",
    "  │   [2] read_file a                 ok      text of a",
    "  │   [3] read_file b                 ok      text of b",
    "  │ ▸ @helper started, inside fixer",
    "  │   │ Helped.",
    "  │ ▸ @helper completed",
    '  │   [4] helper "do it"              ok      Helped.',
    "  │ Mended.",
    "▸ @fixer completed",
    '  [1] fixer "do it"               ok      Mended.',
]


async def _seen() -> list[Event]:
    seen: list[Event] = []
    both = Calls(Call("read_file", {"path": "a"}), Call("read_file", {"path": "b"}))
    async with (
        agent("helper", Count(input_tokens=5), Say("Helped.")) as helper,
        agent("fixer", both, calls("helper", "h"), Count(input_tokens=7), Say("Mended.")) as fixer,
        agent("coder", Count(input_tokens=1), calls("fixer"), Say("Done.")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["helper", "read_file"]), SubagentTool(helper)]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    return seen


@pytest.fixture(scope="module")
def seen() -> list[Event]:
    return anyio.run(_seen)


def test_a_sub_agent_is_shown_below_who_called_it(seen: list[Event]) -> None:
    renderer = Renderer(View(width=90))
    rows = [row.plain for event in seen for row in renderer.feed(event)]
    shown = [row.rpartition("  0.")[0].rstrip() or row for row in rows][: len(SHOWN)]
    shown[3:5] = sorted(shown[3:5])  # two calls at once may end in either order
    assert shown == SHOWN


def test_tokens_of_sub_agents_are_in_the_totals(seen: list[Event]) -> None:
    totals = Totals()
    for event in seen:
        totals.feed(event)
    assert totals.input_tokens == 13


def test_the_time_of_a_sub_agents_model_is_no_tools_time(seen: list[Event]) -> None:
    """Its call is open all the time; but what it does is thinking, as its caller does."""
    totals, second = Totals(), 0

    def stamp() -> str:
        nonlocal second
        second += 1
        return f"2026-01-31T12:{second // 60:02d}:{second % 60:02d}.000Z"

    for event in seen:
        changes: dict[str, object] = {"timestamp": stamp()}
        if isinstance(event, ToolUpdate) and isinstance(event.data, dict):
            changes["data"] = {"childEvents": [{**one, "timestamp": stamp()} for one in event.data["childEvents"]]}
        totals.feed(event.model_copy(update=changes))
    assert totals.elapsed_s > 40
    assert 0 < totals.tools_s < 20, "only the two files were read by tools"
