"""Requests and their answers: one for each, of its own, and no call twice.

Not for: whether a call may run (``permission.py``), or what it is called with (``arguments.py``).
Rules carried: HOST-11 to HOST-18, HOST-34. May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentsession.conformance.hosts.agent import Agent
from agentsession.conformance.hosts.harness import ToolBroke
from agentsession.conformance.hosts.scenarios._shared import thinking_person
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import Answer, Receipt, ToolRequest, ToolResponse, ToolResult, ToolUpdate

_MANY: Final = 30
_LONG: Final = 1_000_000


@host_scenario("HOST-11")
async def each_of_many_requests_gets_its_own_answer(scene: HostScene) -> None:
    """Many calls at once, with odd ids: each is answered once, with the result of its own arguments."""
    odd = ["../../etc", "a b", "c\n1", "\u202eid", "C:\\x", "%2e", "x" * 500]
    ids = [*odd, *(f"c{number}" for number in range(_MANY))]

    async def play(agent: Agent) -> None:
        for number, name in enumerate(ids):  # all of them before the host can do anything for one
            agent.session.add(ToolRequest(request_id=name, name="look", args={"number": number}))
        await agent.answered(*ids)

    stage = await scene.host(play, tools=[scene.tool("look")], policy={"look": "allow"})
    scene.require_completed(await stage.turn())
    for number, name in enumerate(ids):
        answer = scene.answer(name)
        fits = isinstance(answer, ToolResult) and f"'number': {number}}}" in str([answer.data, answer.content])
        scene.require(fits, f"the answer to {name!r} is not its own")


@host_scenario("HOST-11")
async def a_very_long_call_and_a_very_long_result_are_answered_once(scene: HostScene) -> None:
    """A megabyte of arguments, and a megabyte of result."""

    async def body(args: Mapping[str, Any]) -> Any:
        return {"text": args["text"]}

    async def play(agent: Agent) -> None:
        await agent.call("c1", "look", {"text": "x" * _LONG})
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("look", body)], policy={"look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(len(scene.answers("c1")) == 1, f"it was answered {len(scene.answers('c1'))} times")


@host_scenario("HOST-12")
async def a_request_that_is_shown_again_runs_once(scene: HostScene) -> None:
    """The same request comes again: while its tool runs, after its answer, and after a pause."""

    async def play(agent: Agent) -> None:
        request = ToolRequest(request_id="c1", name="write", args={})
        await agent.emit(request)
        await agent.shown(request)
        await scene.begins("write")
        await agent.shown(request)
        await agent.breathe()
        scene.release("write")
        await agent.answered("c1")
        await agent.shown(request)
        await agent.call("c2", "look")
        await agent.pause()
        await agent.shown(request)
        await agent.breathe()

    tools = [scene.tool("write", scene.held("write")), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy={"write": "allow", "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(scene.runs("write") == 1, f"write ran {scene.runs('write')} times")


@host_scenario("HOST-12")
async def a_call_that_waits_over_a_pause_runs_once(scene: HostScene) -> None:
    """The stream ends while the tool runs; the request is still pending, and the tool is not begun again."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await scene.begins("write")
        scene.group.start_soon(later, agent)
        await agent.pause()
        await agent.say("Thanks.")

    async def later(agent: Agent) -> None:
        await agent.breathe()
        scene.release("write")

    stage = await scene.host(play, tools=[scene.tool("write", scene.held("write"))], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(scene.runs("write") == 1, f"write ran {scene.runs('write')} times")


@host_scenario("HOST-12")
async def an_answer_that_is_refused_does_not_run_the_tool_again(scene: HostScene) -> None:
    """The session calls the first answer invalid."""

    async def play(agent: Agent) -> None:
        refused: list[Answer] = []

        async def refuse(answer: Answer) -> Receipt | None:
            refused.append(answer)
            if len(refused) > 1:
                return None
            return Receipt(status="invalid", request_id=answer.request_id, reason="no")

        agent.on_answer = refuse
        await agent.call("c1", "write")
        await scene.log.until(lambda: bool(refused))
        if not await scene.comes(lambda: "c1" not in agent.session.waiting):
            agent.settle("c1")

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "allow"})
    await stage.turn()
    scene.require(scene.runs("write") == 1, f"write ran {scene.runs('write')} times")


@host_scenario("HOST-13")
async def a_tool_whose_call_was_settled_elsewhere_is_stopped(scene: HostScene) -> None:
    """Another client of the session answers while the host's tool runs."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await scene.begins("write")
        agent.settle("c1")
        await scene.comes(lambda: scene.has_stopped("write"))
        scene.release("write")
        await agent.breathe()

    stage = await scene.host(play, tools=[scene.tool("write", scene.held("write"))], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(scene.has_stopped("write"), "the tool was not stopped")
    scene.require(not scene.answers("c1"), "it was answered after it had been settled")


@host_scenario("HOST-13", needs=["ask"])
async def a_question_about_a_settled_call_is_withdrawn(scene: HostScene) -> None:
    """Another client answers while the person thinks; what the person says then runs nothing."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await scene.asked("write")
        agent.settle("c1")
        await scene.comes(lambda: scene.has_stopped("write"))
        scene.release("person")
        await agent.breathe()

    person = thinking_person(scene)
    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "ask"}, person=person)
    scene.require_completed(await stage.turn())
    scene.require(scene.has_stopped("write"), "the person was left with a question that was settled")
    scene.require_not_run("write")
    scene.require(not scene.answers("c1"), "it was answered after it had been settled")


@host_scenario("HOST-13", needs=["questions"])
async def a_question_of_the_agent_that_was_settled_is_withdrawn(scene: HostScene) -> None:
    """Another client answers the agent's question while the person thinks about it."""

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "clarification")
        await scene.asked("clarification", "answer")
        agent.settle("q1")
        await scene.comes(lambda: scene.has_stopped("clarification"))
        scene.release("person")
        await agent.breathe()

    stage = await scene.host(play, person=thinking_person(scene))
    scene.require_completed(await stage.turn())
    scene.require(scene.has_stopped("clarification"), "the person was left with a question that was settled")
    scene.require(not scene.answers("q1"), "it was answered after it had been settled")


@host_scenario("HOST-13")
async def what_was_settled_in_a_pause_is_stopped(scene: HostScene) -> None:
    """Another client answers while the turn is paused: only the record tells the host."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await scene.begins("write")
        scene.group.start_soon(later, agent)
        await agent.pause()

    async def later(agent: Agent) -> None:
        await scene.log.until(lambda: scene.log.has("agent", "stream_end"))
        agent.settle("c1")
        await scene.comes(lambda: scene.has_stopped("write"))
        scene.release("write")

    stage = await scene.host(play, tools=[scene.tool("write", scene.held("write"))], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(scene.has_stopped("write"), "the tool was not stopped")
    scene.require(not scene.answers("c1"), "it was answered after it had been settled")


@host_scenario("HOST-11")
async def a_stale_answer_is_not_given_again(scene: HostScene) -> None:
    """The answer comes too late, and the session says so."""

    async def play(agent: Agent) -> None:
        async def late(answer: Answer) -> Receipt:
            if answer.request_id in agent.session.waiting:
                agent.settle(answer.request_id)
            return Receipt(status="stale", request_id=answer.request_id, rule="TOOL-09")

        agent.on_answer = late
        await agent.call("c1", "write")
        await agent.answered("c1")
        await agent.breathe(100)

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(len(scene.answers("c1")) == 1, f"it was answered {len(scene.answers('c1'))} times")


@host_scenario("HOST-14")
async def what_does_not_wait_is_not_served(scene: HostScene) -> None:
    """A request in pieces that never becomes whole, one that is shown only, and one that was answered at once."""

    async def play(agent: Agent) -> None:
        await agent.emit(ToolRequest(request_id="p1", name="write", args_delta='{"path": "a', partial=True))
        await agent.emit(ToolRequest(request_id="n1", name="write", args={}, needs="none", owner="agent"))
        agent.session.add(ToolRequest(request_id="r1", name="write", args={}))
        agent.session.add(ToolResponse(request_id="r1", name="write", status="failed", source="host"))
        await agent.breathe()
        agent.finish_own("n1", "write")
        await agent.say("The host ran write already.")

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    for name in ("p1", "n1", "r1"):
        scene.require(not scene.answers(name), f"{name} was answered, which did not wait")


@host_scenario("HOST-14")
async def a_request_under_a_used_id_is_not_served(scene: HostScene) -> None:
    """Another call comes under the id of one that was answered, and one under the id of one that runs."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "look")
        await agent.answered("c1")
        await agent.shown(ToolRequest(request_id="c1", name="write", args={}))
        await agent.call("c2", "slow")
        await scene.begins("slow")
        await agent.shown(ToolRequest(request_id="c2", name="write", args={}))
        await agent.breathe()
        scene.release("slow")
        await agent.answered("c2")

    tools = [scene.tool("look"), scene.tool("slow", scene.held("slow")), scene.tool("write")]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")


@host_scenario("HOST-15")
async def a_slow_tool_holds_up_no_other(scene: HostScene) -> None:
    """While one tool runs, the call beside it runs and is answered, and the agent is heard."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await agent.call("c2", "quick")
        free = await scene.comes(lambda: "c2" not in agent.session.waiting)
        scene.log.add("suite", "saw that the quick call was" + ("" if free else " not") + " free")
        await agent.say("One is done.")
        scene.release("slow")
        await agent.answered("c1", "c2")

    tools = [scene.tool("slow", scene.held("slow")), scene.tool("quick")]
    stage = await scene.host(play, tools=tools, policy={"slow": "allow", "quick": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(scene.log.has("suite", "saw that the quick call was free"), "the quick call waited for the slow one")


@host_scenario("HOST-15", needs=["ask"])
async def a_person_who_thinks_holds_up_no_other(scene: HostScene) -> None:
    """While the person is asked about one call, the one beside it runs and is answered."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await scene.asked("write")
        await agent.call("c2", "quick")
        free = await scene.comes(lambda: "c2" not in agent.session.waiting)
        scene.log.add("suite", "saw that the quick call was" + ("" if free else " not") + " free")
        scene.release("person")
        await agent.answered("c1", "c2")

    tools = [scene.tool("write"), scene.tool("quick")]
    policy = {"write": "ask", "quick": "allow"}
    stage = await scene.host(play, tools=tools, policy=policy, person=thinking_person(scene))
    scene.require_completed(await stage.turn())
    scene.require(scene.log.has("suite", "saw that the quick call was free"), "the quick call waited for the person")


@host_scenario("HOST-15", needs=["questions"])
async def a_person_who_reads_a_question_holds_up_no_call(scene: HostScene) -> None:
    """While the person reads a question of the agent, the call beside it runs and is answered."""

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "clarification")
        await scene.asked("clarification", "answer")
        await agent.call("c1", "quick")
        free = await scene.comes(lambda: "c1" not in agent.session.waiting)
        scene.log.add("suite", "saw that the quick call was" + ("" if free else " not") + " free")
        scene.release("person")
        await agent.answered("q1", "c1")

    stage = await scene.host(
        play, tools=[scene.tool("quick")], policy={"quick": "allow"}, person=thinking_person(scene)
    )
    scene.require_completed(await stage.turn())
    scene.require(scene.log.has("suite", "saw that the quick call was free"), "the quick call waited for the person")


@host_scenario("HOST-16")
async def a_tool_that_fails_is_an_error_for_the_model(scene: HostScene) -> None:
    """One tool raises, another gives what JSON cannot say; the one beside them runs, and the turn goes on."""

    async def fails(args: Mapping[str, Any]) -> Any:
        raise ToolBroke("it is broken")

    async def odd(args: Mapping[str, Any]) -> Any:
        return object()

    async def play(agent: Agent) -> None:
        await agent.call("c1", "fails")
        await agent.call("c2", "odd")
        await agent.call("c3", "look")
        await agent.answered("c1", "c2", "c3")
        await agent.say("Two failed.")

    tools = [scene.tool("fails", fails), scene.tool("odd", odd), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    scene.require_completed(await stage.turn())
    scene.require_error("c1")
    scene.require_error("c2")
    answer = scene.answer("c3")
    scene.require(isinstance(answer, ToolResult) and not answer.is_error, "the call beside them did not succeed")


@host_scenario("HOST-17", needs=["quiet_errors"])
async def what_an_exception_says_stays_with_the_host(scene: HostScene) -> None:
    """The text of a tool's exception holds a password."""
    password = "correct-horse-battery"

    async def fails(args: Mapping[str, Any]) -> Any:
        raise ToolBroke(f"postgres://admin:{password}@db refused the connection")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "fails")
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("fails", fails)], policy={"fails": "allow"}, quiet_errors=True)
    scene.require_completed(await stage.turn(), "HOST-16")
    scene.require_error("c1")
    scene.require(password not in scene.answer("c1").to_wire_json(), "the agent was told what the exception says")


@host_scenario("HOST-18", needs=["tool_limit"])
async def a_tool_that_takes_too_long_is_an_error_for_the_model(scene: HostScene) -> None:
    """The tool never ends by itself."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "slow")
        await scene.begins("slow")
        if not await scene.comes(lambda: "c1" not in agent.session.waiting):
            scene.log.add("suite", "waited for the limit, and it did not come")
            scene.release("slow")
        await agent.answered("c1")
        await agent.say("It took too long.")

    tools = [scene.tool("slow", scene.held("slow"))]
    stage = await scene.host(play, tools=tools, policy={"slow": "allow"}, tool_limit_s=0.01)
    scene.require_completed(await stage.turn())
    missed = scene.log.has("suite", "waited for the limit, and it did not come")
    scene.require(not missed, "the tool ran far longer than its limit, and was not answered")
    scene.require_error("c1")


@host_scenario("HOST-34")
async def a_tool_is_in_the_record_before_it_runs(scene: HostScene) -> None:
    """Whoever finds the record after a crash must see that the tool may have had its effects."""
    told: list[list[str]] = []
    agents: list[Agent] = []

    async def body(args: Mapping[str, Any]) -> Any:
        record = agents[0].session.record
        told.append([event.request_id for event in record if isinstance(event, ToolUpdate) and event.started])
        return "done"

    async def play(agent: Agent) -> None:
        agents.append(agent)
        await agent.call("c1", "write")
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("write", body)], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require(told == [["c1"]], f"when write began, the record had the starts {told}")


@host_scenario("HOST-34")
async def what_another_host_has_started_is_not_run(scene: HostScene) -> None:
    """Another host at the session is a moment faster: it runs the tool, and gives the result later."""

    async def play(agent: Agent) -> None:
        agent.session.add(ToolRequest(request_id="c1", name="write", args={}))
        agent.session.add(ToolUpdate(request_id="c1", started=True, source="host"))
        await agent.call("c2", "look")
        await agent.answered("c2")
        await agent.breathe()
        agent.settle("c1")

    tools = [scene.tool("write"), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy={"write": "allow", "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require(not scene.answers("c1"), "the call was answered, which the other host will do")
