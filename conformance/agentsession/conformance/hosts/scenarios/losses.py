"""How streams go on and break off: lost executors, streams that just stop, pauses and what follows them.

Not for: what the host ends (``ends.py``) or what is wrong with single events (``hostile.py``).
Rules carried: HOST-25, HOST-26, HOST-29. May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from agentsession.conformance.hosts.agent import Agent, Play
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import Answer, Receipt


@host_scenario("HOST-25")
async def an_executor_that_vanishes_in_a_stream_ends_the_turn(scene: HostScene) -> None:
    """The reader raises ConnectionLost while a tool runs."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        agent.lose()

    await _require_lost(scene, play)


@host_scenario("HOST-25")
async def an_executor_that_vanishes_in_an_answer_ends_the_turn(scene: HostScene) -> None:
    """An answer raises ConnectionLost, and the reader is left waiting for ever."""

    async def play(agent: Agent) -> None:
        async def vanish(answer: Answer) -> Receipt | None:
            agent.lose()

        agent.on_answer = vanish
        await agent.call("c1", "look")
        await agent.work()

    stage = await scene.host(play, tools=[scene.tool("look")], policy={"look": "allow"})
    outcome = stage.begin()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn waits for an executor that has vanished")
    scene.require_failed(outcome)


@host_scenario("HOST-25")
async def an_executor_that_vanishes_in_a_pause_ends_the_turn(scene: HostScene) -> None:
    """The stream has ended input_required, a tool runs, and the record cannot be read any more."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        scene.group.start_soon(later, agent)
        await agent.pause()

    async def later(agent: Agent) -> None:
        await agent.breathe()
        agent.vanish()
        # A host that does not watch the record learns it when it answers.
        if not await scene.comes(lambda: scene.has_stopped("slow")):
            scene.release("slow")

    stage = await scene.host(play, tools=[scene.tool("slow", scene.held("slow"))], policy={"slow": "allow"})
    outcome = await stage.turn()
    scene.require(outcome.reason != "input_required", "the turn was left at a pause", "HOST-29")
    scene.require_failed(outcome)


@host_scenario("HOST-25")
async def an_executor_that_raises_anything_ends_the_turn(scene: HostScene) -> None:
    """The reader raises what is no error of the contract."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        await agent.put(RuntimeError("a defect of the executor"))
        await agent.work()

    await _require_lost(scene, play)


async def _require_lost(scene: HostScene, play: Play) -> None:
    """The turn ends with an error, and its tool is stopped."""
    tools = [scene.tool("slow", scene.held("slow")), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    outcome = stage.begin()
    await scene.begins("slow")
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn waits for an executor that has vanished")
    scene.require_failed(outcome)
    stopped = await scene.comes(lambda: scene.has_stopped("slow"))
    scene.require(stopped, "the tool was not stopped")


@host_scenario("HOST-26")
async def a_stream_that_just_stops_is_an_error(scene: HostScene) -> None:
    """The iteration is over, and there was no stream_end."""

    async def play(agent: Agent) -> None:
        await agent.say("I was about to")
        agent.cut()

    stage = await scene.host(play)
    outcome = await stage.turn()
    scene.require_failed(outcome)


@host_scenario("HOST-26")
async def a_stream_that_stops_while_a_tool_runs_is_an_error(scene: HostScene) -> None:
    """The same with a tool that runs, which is stopped."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        agent.cut()

    stage = await scene.host(play, tools=[scene.tool("slow", scene.held("slow"))], policy={"slow": "allow"})
    outcome = stage.begin()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn waits for a stream that has stopped")
    scene.require_failed(outcome)
    scene.require(scene.has_stopped("slow"), "the tool was not stopped")


@host_scenario("HOST-29")
async def a_turn_is_continued_to_its_end(scene: HostScene) -> None:
    """The turn pauses twice for calls; the host continues it each time, and takes its final end for the end."""

    async def play(agent: Agent) -> None:
        for name in ("c1", "c2"):
            await agent.call(name, "look")
            await agent.pause()
        await agent.say("Done.")

    stage = await scene.host(play, tools=[scene.tool("look")], policy={"look": "allow"})
    outcome = stage.begin()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn was not continued")
    scene.require_completed(outcome)
    starts = len(scene.log.find("host", "starts a turn"))
    scene.require(starts == 1, f"the host started {starts} turns for one message")


@host_scenario("HOST-29")
async def a_turn_is_not_continued_before_all_is_answered(scene: HostScene) -> None:
    """Of two calls one takes longer, over the pause: the turn goes on when both are answered."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await agent.call("c2", "look")
        scene.group.start_soon(later, agent)
        await agent.pause()

    async def later(agent: Agent) -> None:
        await scene.comes(lambda: "c2" not in agent.session.waiting)
        await agent.breathe(100)
        scene.release("slow")

    tools = [scene.tool("slow", scene.held("slow")), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    scene.require_completed(await stage.turn())
    entries = scene.log.entries
    places = {(entries[at].what, entries[at].about): at for at in reversed(range(len(entries)))}  # the first of each
    over = [places[what, "slow"] for what in ("ends", "stops") if (what, "slow") in places]
    scene.require(bool(over), "slow did not run, which the policy allowed")
    scene.require(("continues the turn", "") in places, "the turn was not continued")
    early = places["continues the turn", ""] < over[0]
    scene.require(not early, "the turn was continued while a call of it was not answered")
