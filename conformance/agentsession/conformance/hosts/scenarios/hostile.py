"""What comes in: what is not known, what breaks the contract, very much of it, and what is meant for a terminal.

Not for: executors that go away (``losses.py``). Rules carried: HOST-30 to HOST-33.
May import: ``agentsession.protocol``, anyio, the modules of the host suite.
"""

from __future__ import annotations

import re
import weakref
from typing import Any, Final

from anyio.lowlevel import checkpoint

from agentsession.conformance.hosts.agent import Agent, Play
from agentsession.conformance.hosts.scenarios._shared import said
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import (
    AgentSessionError,
    Custom,
    Event,
    Message,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    UnknownEvent,
)

_DELTAS: Final = 10_000
_AHEAD: Final = 1_000
"""How many events a host may take that it has not shown, or keep that it has shown."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NASTY: Final = "safe\x1b[2J\x1b]0;owned\x07 \x9b31m\u202eexe.txt\rover\x08\x00"


@host_scenario("HOST-30")
async def what_is_not_known_ends_nothing(scene: HostScene) -> None:
    """Events, content and kinds of a later version; the turn goes on to its end."""
    later = {"type": "x_later", "hello": {"a": None}}
    part = {"type": "message", "messageId": "m-x", "content": [{"type": "hologram", "data": [1, 2]}]}

    async def play(agent: Agent) -> None:
        await agent.emit(UnknownEvent.model_validate(later))
        await agent.emit(Message.model_validate(part))
        await agent.emit(Custom(kind="x-later", data={"a": 1}))
        await agent.ask("q1", "x-not-known", "?")
        await agent.answered("q1")
        await agent.call("c1", "look")
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("look")], policy={"look": "allow"})
    scene.require_completed(await stage.turn())
    action, _ = said(scene, "q1")
    scene.require(action in ("decline", "cancel"), f"a question of an unknown kind was answered {action}")
    scene.require(scene.runs("look") == 1, "the call after it did not run")


@host_scenario("HOST-30")
async def a_need_that_is_not_known_runs_nothing(scene: HostScene) -> None:
    """A request needs something of a later version, and its tool is allowed."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", needs="x-later")
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_error("c1")


@host_scenario("HOST-30")
async def an_end_that_is_not_known_is_an_end(scene: HostScene) -> None:
    """A stream ends for a reason of a later version, with nothing pending."""

    async def play(agent: Agent) -> None:
        agent.end("x-later")

    stage = await scene.host(play)
    outcome = stage.begin()
    over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn does not end")
    scene.require_no_error(outcome)


@host_scenario("HOST-31")
async def what_is_no_event_ends_the_turn(scene: HostScene) -> None:
    """Among the events stands something else."""
    for thing in (None, "tool_request", {"type": "tool_request", "requestId": "c1", "name": "write"}, 7):
        await _hostile(scene, _putting(thing))


@host_scenario("HOST-31")
async def events_out_of_order_run_nothing(scene: HostScene) -> None:
    """Requests with a seq that was used, of another session, of another stream, and without any stamp."""
    request = ToolRequest(request_id="c1", name="write", args={})
    for stamps in (
        {"seq": 1},
        {"seq": 0, "id": ""},
        {"session_id": "s-other"},
        {"stream_id": "t-other", "turn_id": "u-other"},
        {"seq": 10**30},
    ):

        async def play(agent: Agent, stamps: dict[str, Any] = stamps) -> None:
            await agent.shown(request, **stamps)
            await agent.say("There.")

        await _hostile(scene, play)


@host_scenario("HOST-31")
async def answers_that_nobody_asked_for_hang_nothing(scene: HostScene) -> None:
    """A response and a decision for requests that there are not, and a response for one that there is not any more."""

    async def play(agent: Agent) -> None:
        await agent.shown(ToolResponse(request_id="ghost", name="write", data={"ok": True}))
        await agent.shown(ToolDecision(request_id="ghost", decision="granted", args_digest="0" * 64))
        await agent.call("c1", "look")
        await agent.answered("c1")
        await agent.shown(ToolResponse(request_id="c1", name="look", data={"again": True}))

    await _hostile(scene, play)


@host_scenario("HOST-31")
async def a_stream_with_two_ends_hangs_nothing(scene: HostScene) -> None:
    """A second stream_end, and a request after the end."""

    async def play(agent: Agent) -> None:
        end = StreamEnd(reason="completed")
        await agent.shown(end)
        await agent.shown(ToolRequest(request_id="c1", name="write", args={}))
        await agent.shown(end)

    await _hostile(scene, play)


@host_scenario("HOST-31")
async def an_end_that_waits_for_what_there_is_not_hangs_nothing(scene: HostScene) -> None:
    """A stream_end lists a request that nobody has seen, and nothing is pending."""

    async def play(agent: Agent) -> None:
        await agent.shown(StreamEnd(reason="input_required", pending=["ghost"]))
        agent.cut()

    await _hostile(scene, play)


def _putting(thing: object) -> Play:
    async def play(agent: Agent) -> None:
        await agent.put(thing)
        await agent.say("There.")

    return play


async def _hostile(scene: HostScene, play: Play) -> None:
    """A turn with events that break the contract: it ends, with an error of the contract if with one."""
    tools = [scene.tool("write"), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy=lambda name, args: "allow")
    before = len(scene.log.find("suite", "sees the turn over"))
    outcome = stage.begin()
    over = await scene.comes(lambda: len(scene.log.find("suite", "sees the turn over")) > before)
    scene.require(over, "the turn hangs")
    scene.require(scene.runs("write") == 0, "write ran, which was not pending", "HOST-14")
    error = outcome.error
    fits = error is None or isinstance(error, AgentSessionError)
    scene.require(fits, f"the turn raised {type(error).__name__}, which is no error of the contract: {error}")
    await stage.close()


@host_scenario("HOST-32", needs=["show"])
async def who_shows_slowly_holds_the_agent(scene: HostScene) -> None:
    """The page stands still in the middle of a flood: the host takes no more than it can show."""
    shown: list[int] = []

    async def viewer(event: Event) -> None:
        if isinstance(event, Message) and event.partial:
            shown.append(event.seq)
            if len(shown) == 10:
                scene.log.add("suite", "lets the page stand still")
                await scene.hold("page")

    async def play(agent: Agent) -> None:
        await agent.flood(_DELTAS // 2)

    stage = await scene.host(play, viewer=viewer)
    outcome = stage.begin()
    await scene.log.until(lambda: scene.log.has("suite", "lets the page stand still"))
    for _ in range(_AHEAD * 2):  # a host that takes what it can takes it in these turns of the loop
        await checkpoint()
    ahead = stage.session.taken
    scene.release("page")
    await outcome.over()
    scene.require(ahead <= _AHEAD, f"it took {ahead} events while the page stood still")
    scene.require_completed(outcome)


@host_scenario("HOST-32", needs=["show"])
async def what_was_shown_is_forgotten(scene: HostScene) -> None:
    """After a flood of deltas that were all shown, next to none of them is still held."""
    seen: list[weakref.ref[Event]] = []
    held: list[int] = []

    async def viewer(event: Event) -> None:
        if isinstance(event, Message):
            if event.partial:
                seen.append(weakref.ref(event))
            elif event.source == "agent":
                held.append(sum(each() is not None for each in seen))

    async def play(agent: Agent) -> None:
        await agent.flood(_DELTAS)

    stage = await scene.host(play, viewer=viewer)
    scene.require_completed(await stage.turn())
    scene.require(bool(held), "the message after the flood was not shown")
    scene.require(held[0] <= _AHEAD, f"{held[0]} of {_DELTAS} deltas are still held")


@host_scenario("HOST-33", needs=["terminal"])
async def control_characters_do_not_reach_the_terminal(scene: HostScene) -> None:
    """Escape codes in a text, in a tool's name and arguments, in a result, in a reason and in a question."""

    async def play(agent: Agent) -> None:
        await agent.say(_NASTY)
        await agent.call("c1", _NASTY, {_NASTY: _NASTY})
        await agent.call("c2", "look", {"text": _NASTY})
        await agent.ask("q1", "clarification", _NASTY, title=_NASTY)
        await agent.answered("c1", "c2", "q1")
        await agent.emit(Custom(kind=_NASTY, data={_NASTY: _NASTY}))
        await agent.emit(UnknownEvent.model_validate({"type": _NASTY, "text": _NASTY}))

    stage = await scene.host(play, tools=[scene.tool("look")], policy=lambda name, args: "allow")
    await stage.turn()
    printed = "".join(str(entry.data) for entry in scene.log.find("host", "prints"))
    scene.require("safe" in printed, "what the agent said was not printed at all")
    found = _CONTROLS.search(printed)
    near = ascii(printed[max(0, found.start() - 20) : found.end() + 20]) if found is not None else ""
    scene.require(found is None, f"printed: {near}")
