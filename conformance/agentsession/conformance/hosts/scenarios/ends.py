"""How turns are ended: aborted and closed, also against an executor that does not end.

Not for: executors that go away (``losses.py``). Rules carried: HOST-22 to HOST-24, HOST-27, HOST-28.
May import: ``agentsession.protocol``, anyio, the modules of the host suite.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from agentsession.conformance.hosts.agent import Agent, Play
from agentsession.conformance.hosts.harness import Word
from agentsession.conformance.hosts.scenarios._shared import thinking_person
from agentsession.conformance.hosts.scene import HostScene, Outcome, Stage, host_scenario
from agentsession.protocol import ElicitationAnswer, ToolGrant, ToolResult

_MANY: Final = 20


async def _waits(agent: Agent, name: str = "slow") -> None:
    """A turn that calls a tool, and would work for ever on its result."""
    await agent.call("c1", name)
    await agent.answered("c1")
    await agent.work()


async def _slow(scene: HostScene, play: Play = _waits) -> tuple[Stage, Outcome]:
    """A host whose tool runs, and its turn."""
    stage = await scene.host(play, tools=[scene.tool("slow", scene.held("slow"))], policy={"slow": "allow"})
    outcome = stage.begin()
    await scene.begins("slow")
    return stage, outcome


async def _asking(scene: HostScene) -> tuple[Stage, Outcome]:
    """A host whose person is asked about a call, and its turn."""
    stage = await scene.host(
        lambda agent: _waits(agent, "write"),
        tools=[scene.tool("write")],
        policy={"write": "ask"},
        person=thinking_person(scene),
    )
    outcome = stage.begin()
    await scene.asked("write")
    return stage, outcome


async def _over(scene: HostScene, outcome: Outcome) -> None:
    """The turn ends after an abort, and waits for no tool and no person."""
    scene.require(await scene.comes(lambda: outcome.is_over), "the turn goes on after the abort", "HOST-22")


@host_scenario("HOST-22")
async def abort_stops_the_tool_that_runs(scene: HostScene) -> None:
    """The host is told to abort while its tool runs."""
    stage, outcome = await _slow(scene)
    await stage.abort()
    await _over(scene, outcome)
    scene.require(scene.log.has("host", "aborts"), "the executor was not told")
    scene.require(scene.has_stopped("slow"), "the tool was not stopped")
    scene.require(outcome.error is not None or outcome.reason == "aborted", f"the turn ended {outcome.reason}")


@host_scenario("HOST-22", needs=["ask"])
async def abort_withdraws_what_the_person_is_asked(scene: HostScene) -> None:
    """The host is told to abort while the person is asked about a call; a yes that comes later runs nothing."""
    stage, outcome = await _asking(scene)
    await stage.abort()
    await _over(scene, outcome)
    scene.release("person")
    scene.require(scene.has_stopped("write"), "the person was left with the question")
    scene.require(scene.log.has("host", "aborts"), "the executor was not told")
    scene.require_not_run("write")


@host_scenario("HOST-22", needs=["questions"])
async def abort_withdraws_a_question_of_the_agent(scene: HostScene) -> None:
    """The host is told to abort while the person reads a question."""

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "clarification")
        await agent.answered("q1")
        await agent.work()

    stage = await scene.host(play, person=thinking_person(scene))
    outcome = stage.begin()
    await scene.asked("clarification", "answer")
    await stage.abort()
    await _over(scene, outcome)
    scene.release("person")
    scene.require(scene.has_stopped("clarification"), "the person was left with the question")


@host_scenario("HOST-22")
async def abort_ends_a_turn_that_is_paused(scene: HostScene) -> None:
    """The stream has ended for a while, the tool still runs."""
    paused = anyio.Event()

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        paused.set()
        await agent.pause()
        await agent.work()

    stage = await scene.host(play, tools=[scene.tool("slow", scene.held("slow"))], policy={"slow": "allow"})
    outcome = stage.begin()
    await paused.wait()
    await scene.log.until(lambda: scene.log.has("agent", "stream_end"))
    left = await scene.comes_soon(lambda: outcome.is_over)
    scene.require(not left, "the turn was left at a pause", "HOST-29")
    await stage.abort()
    await _over(scene, outcome)
    scene.require(scene.log.has("host", "aborts"), "the executor was not told")
    scene.require(scene.has_stopped("slow"), "the tool was not stopped")


@host_scenario("HOST-23")
async def a_result_that_comes_after_an_abort_is_not_sent(scene: HostScene) -> None:
    """The tool gives its result although it is cancelled, as one in a thread does."""
    stage = await scene.host(_waits, tools=[scene.tool("slow", scene.stubborn("slow"))], policy={"slow": "allow"})
    outcome = stage.begin()
    await scene.begins("slow")
    await stage.abort()
    scene.release("slow")
    await _over(scene, outcome)
    _require_nothing_sent(scene)


@host_scenario("HOST-23", needs=["ask"])
async def a_yes_that_comes_with_an_abort_runs_nothing(scene: HostScene) -> None:
    """The person's page says yes although it is withdrawn."""

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        try:
            await scene.hold("person")
        except anyio.get_cancelled_exc_class():
            scene.log.add("person", "clicks yes too late on", name)
        return Word("yes")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")
        await agent.work()

    policy = {"write": "ask", "fetch": "ask"}
    stage = await scene.host(play, tools=[scene.tool("write")], policy=policy, person=scene.person(word))
    outcome = stage.begin()
    await scene.comes(lambda: any("is asked" in entry.what for entry in scene.log.entries))
    await stage.abort()
    scene.release("person")
    await _over(scene, outcome)
    scene.require_not_run("write")
    _require_nothing_sent(scene)


@host_scenario("HOST-23", needs=["questions"])
async def an_acceptance_that_comes_with_an_abort_is_not_sent(scene: HostScene) -> None:
    """The person's page accepts a question of the agent although it is withdrawn."""

    async def reply(kind: str, message: str) -> tuple[str, Any]:
        try:
            await scene.hold("person")
        except anyio.get_cancelled_exc_class():
            scene.log.add("person", "accepts too late", kind)
        return ("accept", {"answer": "blue"})

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "clarification")
        await agent.answered("q1")
        await agent.work()

    stage = await scene.host(play, person=scene.person(reply=reply))
    outcome = stage.begin()
    await scene.asked("clarification", "answer")
    await stage.abort()
    scene.release("person")
    await _over(scene, outcome)
    _require_nothing_sent(scene)


@host_scenario("HOST-23")
async def what_waits_for_its_turn_does_not_begin_after_an_abort(scene: HostScene) -> None:
    """More calls than a host may run at once; the ones that had not begun never do."""

    async def play(agent: Agent) -> None:
        for number in range(_MANY):
            await agent.call(f"c{number}", f"slow{number}")
        await agent.answered(*(f"c{number}" for number in range(_MANY)))
        await agent.work()

    tools = [scene.tool(f"slow{number}", scene.held("slow")) for number in range(_MANY)]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    outcome = stage.begin()
    await scene.begins("slow0")
    await stage.abort()
    scene.release("slow")
    await _over(scene, outcome)
    place = [entry.what for entry in scene.log.entries].index("tells the host to abort")
    late = [entry.about for entry in scene.log.entries[place:] if entry.who == "tool" and entry.what == "begins"]
    scene.require(not late, f"{', '.join(late)} began after the abort")


def _require_nothing_sent(scene: HostScene) -> None:
    place = next(number for number, entry in enumerate(scene.log.entries) if entry.what == "tells the host to abort")
    for entry in scene.log.entries[place:]:
        scene.require(
            not (entry.who == "host" and _opens(entry.data)),
            f"{entry.about} was answered with a {entry.what} after the abort",
        )


def _opens(answer: object) -> bool:
    """Whether an answer is a result of a tool, or a yes."""
    match answer:
        case ToolGrant():
            return True
        case ToolResult():
            return not answer.is_error
        case ElicitationAnswer():
            return answer.action == "accept"
        case _:
            return False


@host_scenario("HOST-24")
async def a_turn_follows_an_aborted_one(scene: HostScene) -> None:
    """After an abort the same session takes a turn, with a call that has the same name."""

    async def second(agent: Agent) -> None:
        await agent.call("c2", "look")
        await agent.answered("c2")
        await agent.say("Again.")

    tools = [scene.tool("slow", scene.held("slow")), scene.tool("look")]
    stage = await scene.host(_waits, second, tools=tools, policy=lambda name, args: "allow")
    outcome = stage.begin()
    await scene.begins("slow")
    await stage.abort()
    await _over(scene, outcome)
    scene.require(scene.log.has("host", "aborts"), "the executor was not told of the abort", "HOST-22")
    again = stage.begin("again")
    await scene.comes(lambda: again.is_over)
    scene.require(again.is_over, "the next turn hangs")
    scene.require_completed(again)
    scene.require(scene.runs("look") == 1, "the call of the second turn did not run")
    scene.require(scene.runs("slow") == 1, "the call of the aborted turn ran again")


@host_scenario("HOST-27")
async def an_abort_that_never_returns_is_given_up(scene: HostScene) -> None:
    """The executor takes the abort, and does not end."""
    await _against(scene, "hangs", Stage.abort)


@host_scenario("HOST-27")
async def an_abort_that_fails_ends_the_turn(scene: HostScene) -> None:
    """The executor vanishes at the abort."""
    await _against(scene, "vanishes", Stage.abort)


@host_scenario("HOST-27")
async def closing_a_session_that_does_not_close_is_given_up(scene: HostScene) -> None:
    """The turn is over, and the executor takes for ever to close."""

    async def play(agent: Agent) -> None:
        async def on_close() -> None:
            await scene.hold("the end of time")

        agent.on_close = on_close
        await agent.say("Done.")

    stage = await scene.host(play)
    scene.require_completed(await stage.turn())
    scene.require(await scene.returns(stage.close), "closing waits for an executor that hangs")


@host_scenario("HOST-27")
async def closing_that_never_returns_ends_the_turn(scene: HostScene) -> None:
    """A tool runs, and the executor takes for ever to close."""
    await _against(scene, "hangs", Stage.close)


@host_scenario("HOST-27")
async def closing_that_fails_ends_the_turn(scene: HostScene) -> None:
    """A tool runs, and the executor vanishes as it is closed."""
    await _against(scene, "vanishes", Stage.close)


async def _against(scene: HostScene, what: str, call: Callable[[Stage], Awaitable[None]]) -> None:
    """The host is told to end a turn whose tool runs, and neither an abort nor closing gets through."""

    async def play(agent: Agent) -> None:
        async def defy() -> None:
            if what == "hangs":
                await scene.hold("the end of time")
            agent.lose()

        if call is Stage.abort:
            agent.on_abort = defy
        else:
            agent.on_abort = agent.on_close = defy
        await _waits(agent)

    stage, outcome = await _slow(scene, play)
    name = call.__name__
    scene.require(await scene.returns(lambda: call(stage)), f"{name} waits for an executor that {what}")
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, f"the turn waits for an executor that {what} at {name}")
    scene.require(outcome.reason != "completed", "the turn ended completed")
    scene.require(scene.has_stopped("slow"), "the tool was not stopped")


@host_scenario("HOST-28")
async def closing_stops_the_turn_that_runs(scene: HostScene) -> None:
    """The host is told to close its session while a tool runs."""
    stage, outcome = await _slow(scene)
    await stage.close()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn goes on after its session was closed")
    scene.require(outcome.reason != "completed", "the turn ended completed")
    scene.require(scene.has_stopped("slow"), "the tool was not stopped")
    scene.require(scene.log.has("host", "closes the session"), "the session was not closed at the executor")


@host_scenario("HOST-28", needs=["ask"])
async def closing_withdraws_what_the_person_is_asked(scene: HostScene) -> None:
    """The host is told to close its session while the person is asked."""
    stage, _ = await _asking(scene)
    await stage.close()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn goes on after its session was closed")
    scene.release("person")
    scene.require(scene.has_stopped("write"), "the person was left with the question")
    scene.require_not_run("write")
