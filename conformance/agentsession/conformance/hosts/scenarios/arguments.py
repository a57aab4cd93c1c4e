"""What a call is called with, and what it calls: arguments that do not fit, and tools that there are not.

Not for: whether a call may run (``permission.py``). Rules carried: HOST-09, HOST-10.
May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from typing import Any, Final

from agentsession.conformance.hosts.agent import Agent
from agentsession.conformance.hosts.scenarios._shared import ran_with
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import Answer, Receipt, ToolRequest

_DEEP: Final = 20_000


@host_scenario("HOST-09")
async def arguments_that_do_not_fit_run_nothing(scene: HostScene) -> None:
    """Arguments of another type, too many and too few; then a call that fits, which runs."""
    wrong: list[dict[str, Any]] = [{"path": 7}, {}, {"path": "a.py", "mode": "w"}, {"path": None}]

    async def play(agent: Agent) -> None:
        for number, args in enumerate(wrong):
            await agent.call(f"c{number}", "write", args)
        await agent.answered(*(f"c{number}" for number in range(len(wrong))))
        await agent.call("good", "write", {"path": "a.py"})
        await agent.answered("good")

    stage = await scene.host(play, tools=[scene.path_tool("write")], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "write")
    scene.require(ran == [{"path": "a.py"}], f"it ran with {ran}")
    for number in range(len(wrong)):
        scene.require_error(f"c{number}")


@host_scenario("HOST-09")
async def arguments_that_are_no_json_run_nothing(scene: HostScene) -> None:
    """Arguments that are no object, and a number that JSON cannot say, from an executor that checks nothing."""
    wrong: list[Any] = [["a.py"], "a.py", {"path": "a.py", "size": float("nan")}]

    async def play(agent: Agent) -> None:
        async def taken(answer: Answer) -> Receipt:
            agent.drop(answer.request_id)
            return Receipt(status="applied", request_id=answer.request_id)

        agent.on_answer = taken
        for number, args in enumerate(wrong):
            request = ToolRequest.model_construct(
                type="tool_request", request_id=f"c{number}", name="write", args=args, needs="result", owner="host"
            )
            await agent.unchecked(request)
        await agent.answered(*(f"c{number}" for number in range(len(wrong))))

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    for number in range(len(wrong)):
        scene.require_error(f"c{number}")


@host_scenario("HOST-09")
async def arguments_that_are_too_deep_end_nothing(scene: HostScene) -> None:
    """Arguments nested so deep that reading them fails: they are answered, and the turn goes on."""

    async def play(agent: Agent) -> None:
        async def taken(answer: Answer) -> Receipt | None:
            if answer.request_id != "c1":
                return None
            agent.drop(answer.request_id)
            return Receipt(status="applied", request_id=answer.request_id)

        agent.on_answer = taken
        deep: Any = "a.py"
        for _ in range(_DEEP):
            deep = [deep]
        request = ToolRequest.model_construct(
            type="tool_request", request_id="c1", name="write", args={"path": deep}, needs="result", owner="host"
        )
        await agent.unchecked(request)
        await agent.answered("c1")
        await agent.call("c2", "look")
        await agent.answered("c2")

    tools = [scene.path_tool("write"), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy={"write": "allow", "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_error("c1")
    scene.require(scene.runs("look") == 1, "the call after it did not run")


@host_scenario("HOST-10")
async def a_tool_that_the_host_does_not_have_is_an_error(scene: HostScene) -> None:
    """Calls of tools that there are not, with names that are odd; then one that there is."""
    names = ["look2", "", "Look", "look\x1b[2J", "../look", "look\nlook"]

    async def play(agent: Agent) -> None:
        for number, name in enumerate(names):
            await agent.call(f"c{number}", name)
        await agent.answered(*(f"c{number}" for number in range(len(names))))
        await agent.call("good", "look")
        await agent.answered("good")

    stage = await scene.host(play, tools=[scene.tool("look")], policy=lambda name, args: "allow")
    scene.require_completed(await stage.turn())
    for number in range(len(names)):
        scene.require_error(f"c{number}")
    scene.require(scene.runs("look") == 1, f"look ran {scene.runs('look')} times")
