"""What the tests of the inspector share: a visit of a person to a session, and agents that wait for the test."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
from tests.host.inspector.chrome import Chrome, Tab
from tests.host.inspector.server import Served, scripted, serve

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Call, Calls, Delay, Memory, Say, Step
from agentsession.host import Host
from agentsession.protocol import ContentPart


@contextlib.asynccontextmanager
async def at_work(
    browser: Chrome, steps: Sequence[Step], message: str = "Go.", host: Host | None = None, **look: Any
) -> AsyncIterator[tuple[Served, Tab]]:
    """A new session that was sent a message, as a person does it."""
    async with serve(scripted(steps, [Say("Next turn.")]), host) as served:
        tab = await browser.tab(f"{served.url}/ui/", **look)
        await tab.see("No session yet")
        await tab.click("#empty button", "New session")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab.click("#box")
        await tab.type(message)
        await tab.press("Enter")
        yield served, tab
        assert tab.console == [], tab.console
        away = [one for one in tab.requests if not one.startswith((f"{served.url}/", "data:"))]  # data: of the browser
        assert away == []


def ran(log: list[Any], *names: str, **args: Any) -> Calls:
    """Calls that need a yes, and write down what they ran with."""

    def run(given: dict[str, Any]) -> str:
        log.append(given)
        return "done"

    return Calls(*(Call(name, dict(args), needs="grant", run=run) for name in names))


class Gate:
    """A step that waits until the test opens it."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def step(self) -> Delay:
        return Delay(until=self._event.wait)

    async def wait(self) -> None:
        await self._event.wait()

    def open(self) -> None:
        self._event.set()


@dataclasses.dataclass(frozen=True)
class Saying:
    """A message of these parts."""

    parts: Sequence[ContentPart]
    role: str = "agent"

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.say(list(self.parts), role=self.role)
