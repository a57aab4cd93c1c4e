"""Agents for the tests of the command: what each does is written down, and none needs a framework."""

from __future__ import annotations

import asyncio

from agentsession.adapters.scripted import (
    Ask,
    Call,
    Calls,
    Count,
    Delay,
    Deltas,
    End,
    Fail,
    Raise,
    Refuse,
    Say,
    ScriptedExecutor,
    Think,
)

FORM = {
    "type": "object",
    "properties": {
        "region": {"enum": ["eu-west", "us-east"]},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "token": {"type": "string", "format": "password"},
    },
    "required": ["region", "token"],
}
EDIT = {"path": "cart.py", "old_text": "pct * pct\n", "new_text": "pct\n"}
LONG = {"path": "big.py", "old_text": "a\n" * 2500, "new_text": "b\n" * 2500}
ran: list[dict[str, object]] = []


def run_edit(args: dict[str, object]) -> dict[str, object]:
    ran.append(args)
    return {"text": f"edit ran {len(ran)} time(s) with {args['path']}"}


edit = Call("edit_file", EDIT, needs="grant", run=run_edit)

worker = ScriptedExecutor(
    [
        [
            Think("I should look first."),
            Deltas(["I'll read ", "the code."]),
            Calls(Call("read_file", {"path": "a.py"}), Call("read_file", {"path": "b.py"})),
            Count(input_tokens=1200, output_tokens=30),
            Say("All done."),
        ]
    ]
)
editor = ScriptedExecutor([[edit, Say("Edited."), edit, Say("Edited again.")]])
denier = ScriptedExecutor([[edit, Say(lambda memory: f"The host said: {getattr(memory.last, 'reason', None)}")]])
big_editor = ScriptedExecutor([[Call("edit_file", LONG, needs="grant", run=run_edit), Say("Edited.")]])
asker = ScriptedExecutor([[Ask("Where to?", schema=FORM), Say("Deployed.")]])
painter = ScriptedExecutor([[Call("paint"), Say("Painted\x1b[2J.")]])
refuser = ScriptedExecutor([[Refuse()]])
talker = ScriptedExecutor([[End("max_tokens")]])
failer = ScriptedExecutor([[Fail("no luck", fatal=True)]])
breaker = ScriptedExecutor([[Raise(RuntimeError("boom"))]])
stranger = ScriptedExecutor([[End("bored")]])
streamer = ScriptedExecutor([[Deltas([f"word{number} " for number in range(2000)]), Say("The end.")]])
resized = ScriptedExecutor(
    [
        [
            Deltas([f"before{number} " for number in range(200)]),
            edit,
            Deltas([f"word{number} " for number in range(500)]),
            Say("The end."),
        ]
    ]
)
slow = ScriptedExecutor([[Say("Working."), Call("wait_long"), Say("Never said.")], [Say("Next turn works.")]])
deaf = ScriptedExecutor(
    [[edit, Say("Edited.")], [Say("Next turn works.")]], capabilities=["streaming", "abort", "host_tool_execution"]
)
waiter = ScriptedExecutor([[Say("Waiting."), Delay(until=asyncio.Event().wait)], [Say("Next turn works.")]])
keeper = ScriptedExecutor([[edit, Say("Edited.")]], reenter=True)


def run_printing(args: dict[str, object]) -> str:
    print("printed by a tool")
    return "done"


printer = ScriptedExecutor([[Call("print_it", needs="none", run=run_printing), Say("Printed.")]])


def make() -> ScriptedExecutor:
    return worker


def make_with(argument: str) -> ScriptedExecutor:
    return worker


async def make_later() -> ScriptedExecutor:
    return worker


number = 7
