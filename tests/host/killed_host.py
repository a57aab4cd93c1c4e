"""Hosts whose process is killed anywhere: the killed side of ``test_killed_anywhere.py``.

Run with a folder, a number of kills and a seed. Session after session is played by a :class:`Host` over the scripted
executor and a SQLite record, and killed as ``tests/killing.py`` says: at writes to the record, entries and exits of
tools, questions, receipts, events that the observer was given.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
from tests.killing import Notes, Records, play, word_of

from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Approval, CallbackChannel, Host, ask_all, tool
from agentsession.protocol import (
    AgentSession,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    OpenOptions,
    Receipt,
    SessionNotFound,
    StreamEnd,
    accept,
    is_ephemeral,
)

SESSION: Final = "s-killed"
TURNS: Final = 2
"""So many turns are completed; a turn that was lost does not count."""
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

_SCRIPTED: Final = 40


def script(notes: Notes) -> list[list[Step]]:
    """Every turn is alike but for the numbers in its calls, by which they are told apart."""

    def write(args: dict[str, Any]) -> str:
        call = key_of("write", args)
        notes.note("entered", call=call, args=args)
        notes.step("when a tool has begun")
        notes.note("left", call=call)
        notes.step("after a tool has ended")
        return "written"

    def turn(number: int) -> list[Step]:
        first, second, third = (10 * number + place for place in (1, 2, 3))
        return [
            Deltas(["I ", "look."]),
            Calls(
                Call("pay", {"n": first}),
                Call("write", {"n": first}, needs="grant", run=write),
                Call("look", {"n": first}),
            ),
            Ask("Where?", schema=SCHEMA),
            Calls(Call("pay", {"n": second}), Call("pay", {"n": third})),
            Say("done"),
        ]

    return [turn(number) for number in range(1, _SCRIPTED)]


def key_of(name: str, args: Mapping[str, Any]) -> str:
    """A call's name in the notes."""
    return f"{name} {args['n']}"


class Desk:
    """The host's tools and its person, in one life."""

    def __init__(self, notes: Notes, seed: str, life: int) -> None:
        self._notes = notes
        self._seed = seed
        self._drawn = random.Random(f"{seed}/{life}")
        self._session: AgentSession

    def host(self) -> Host:
        notes = self._notes

        async def work(name: str, n: int) -> None:
            call = key_of(name, {"n": n})
            notes.note("entered", call=call, args={"n": n})
            notes.step("when a tool has begun")
            for _ in range(self._drawn.randint(0, 5)):  # turns of the loop for what goes on beside it
                await anyio.lowlevel.checkpoint()
            notes.note("left", call=call)
            notes.step("after a tool has ended")

        @tool
        async def pay(n: int) -> str:
            """Pay."""
            await work("pay", n)
            return f"paid {n}"

        @tool(read_only=True)
        async def look(n: int) -> str:
            """Look."""
            await work("look", n)
            return f"saw {n}"

        channel = CallbackChannel(self.approve, self.answer, concurrent=True)
        return Host(tools=[pay, look], policy=ask_all, channel=channel, observer=self.saw, on_answer=self.told)

    async def approve(self, request: Any, decision: Any, position: Any) -> Approval:
        self._notes.step("when a person is asked")
        if says_no(self._seed, request.name, request.args):
            return Approval.no("no")
        if request.name == "write":
            return Approval.yes({"n": request.args["n"]})
        return Approval.yes()

    async def answer(self, request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        self._notes.step("when a person is asked")
        return accept(request.request_id, {"city": "Rome"})

    def saw(self, event: Event) -> None:
        self._notes.note("saw", event=event.to_wire())
        self._notes.step(f"when the observer has {'a delta' if is_ephemeral(event) else 'an event'}")

    def told(self, answer: Answer, receipt: Receipt) -> None:
        if receipt.status == "applied":
            self._notes.note("receipt", request=receipt.request_id, said=word_of(answer))
        self._notes.step("after a receipt")

    async def live(self, folder: Path) -> None:
        host = self.host()
        async with (
            Records(folder / "record.db", self._notes) as store,
            ScriptedExecutor(script(self._notes), reenter=True, store=store) as executor,
        ):
            self._session = session = await self._found(host, executor, store)
            while True:
                ends = [e.reason async for e in session.events() if isinstance(e, StreamEnd)]
                if session.state == "input_required":
                    await host.run_turn(session)
                elif ends.count("completed") >= TURNS:
                    break
                else:
                    await host.run_turn(session, "go")
            await host.close(session)

    async def _found(self, host: Host, executor: ScriptedExecutor, store: Records) -> AgentSession:
        options = OpenOptions(session_id=SESSION)
        if await store.list(executor.descriptor.name, options.user_id):
            try:
                return await host.open(executor, options, load=SESSION)
            except SessionNotFound:  # its opening was cut off
                await executor.delete(SESSION)
        return await host.open(executor, options)


def says_no(seed: str, name: str, args: Mapping[str, Any]) -> bool:
    """Whether the person denies this call: the same in every life."""
    return random.Random(f"{seed} {name} {args['n']}").random() < 0.2


def main(place: str, kills: str, seed: str) -> None:
    async def live(folder: Path, number: int, life: int, notes: Notes) -> None:
        await Desk(notes, f"{seed} {number}", life).live(folder)

    play(Path(place), int(kills), seed, live)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*sys.argv[1:4])
