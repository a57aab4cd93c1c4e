"""What a person edits before a yes: it is what runs, and is looked at as if the model had sent it.

Not for: whether a call may run as it is (``permission.py``). Rules carried: HOST-07.
May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession.conformance.hosts.agent import Agent
from agentsession.conformance.hosts.harness import Word
from agentsession.conformance.hosts.scenarios._shared import ran_with
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import ToolGrant


@host_scenario("HOST-07", needs=["ask", "edit"])
async def edited_arguments_are_what_runs(scene: HostScene) -> None:
    """The person says yes with another path."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", {"path": "a.py"})
        await agent.answered("c1")

    person = scene.person(Word("yes", {"path": "b.py"}))
    stage = await scene.host(play, tools=[scene.path_tool("write")], policy={"write": "ask"}, person=person)
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "write")
    scene.require(ran == [{"path": "b.py"}], f"it ran with {ran}")


@host_scenario("HOST-07", needs=["ask", "edit"])
async def edited_arguments_that_do_not_fit_do_not_run(scene: HostScene) -> None:
    """The person's arguments do not fit the schema; when asked again the person says no."""
    words = [Word("yes", {"path": 7})]

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        return words.pop() if words else Word("no")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", {"path": "a.py"})
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.path_tool("write")], policy={"write": "ask"}, person=scene.person(word))
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_error("c1", "HOST-01")


@host_scenario("HOST-07", needs=["ask", "edit"])
async def edited_arguments_are_decided_on_again(scene: HostScene) -> None:
    """The person sends the call where the policy lets none go."""

    def policy(name: str, args: Mapping[str, Any]) -> str:
        return "deny" if args.get("path") == "/etc/passwd" else "ask"

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", {"path": "a.py"})
        await agent.answered("c1")

    person = scene.person(Word("yes", {"path": "/etc/passwd"}))
    stage = await scene.host(play, tools=[scene.path_tool("write")], policy=policy, person=person)
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")


@host_scenario("HOST-07", needs=["ask", "edit"])
async def edited_arguments_of_an_own_tool_are_what_is_granted(scene: HostScene) -> None:
    """The person says yes with another path to two tools of the agent's: the policy lets only one of them go there."""

    def policy(name: str, args: Mapping[str, Any]) -> str:
        return "deny" if name == "wipe" and args.get("path") == "b.py" else "ask"

    async def play(agent: Agent) -> None:
        await agent.grant("g1", "fetch", {"path": "a.py"})
        await agent.grant("g2", "wipe", {"path": "a.py"})
        await agent.answered("g1", "g2")

    stage = await scene.host(play, policy=policy, person=scene.person(Word("yes", {"path": "b.py"})))
    scene.require_completed(await stage.turn())
    answer = scene.answer("g1")
    # A host that edits its own tools' calls only may deny; what the person did not say yes to is granted by none.
    fits = not isinstance(answer, ToolGrant) or answer.args == {"path": "b.py"}
    scene.require(fits, "the call was granted with other arguments than those that the person said yes to")
    scene.require(not isinstance(scene.answer("g2"), ToolGrant), "it was granted where the policy lets none go")
