"""Sub-agents that a host runs in sessions of their own: what they ask is the front end's to answer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.host.agui.serving import Poster, outcome, serving
from tests.host.agui.streams import of_type

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, Rule, RulePolicy, SubagentTool
from agentsession.host.agui import agui_app
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("payload", "done"), [({"approved": True}, ["a"]), ({"approved": False}, [])])
async def test_what_a_sub_agent_asks_is_an_interrupt_of_its_own_call(payload: Any, done: list[str]) -> None:
    wiped: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        wiped.append(path)
        return "gone"

    fixer = ScriptedExecutor([[Call("wipe", {"path": "a"}), Say("Mended.")]], name="fixer")
    coder = ScriptedExecutor([[Call("fixer", {"task": "mend it"}, id="c1"), Say("Done.")]])
    rules = RulePolicy([Rule("allow", "fixer"), Rule("ask_user", "*")])
    with anyio.fail_after(20):
        async with fixer:
            host = Host(tools=[wipe, SubagentTool(fixer, tools=["wipe"])], policy=rules)
            async with (
                LiveSessions([ServedAgent("coder", coder, host=host)]) as sessions,
                serving(agui_app(sessions)) as url,
                Poster(url) as poster,
            ):
                (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
                assert interrupt["id"] != "c1"
                assert wiped == []
                events = await poster.answer((interrupt["id"], payload))
                assert outcome(events) == {"type": "success"}
                assert "Done." in [event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT")]
                assert wiped == done
