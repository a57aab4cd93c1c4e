"""What may run: the policy, the person, and what an agent may try to get past them.

Not for: what a person edits (``edits.py``), or what becomes of what runs (``requests.py``).
Rules carried: HOST-01 to HOST-06, HOST-08.
May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession.conformance.hosts.agent import Agent
from agentsession.conformance.hosts.harness import PolicyBroke, Word
from agentsession.conformance.hosts.scenarios._shared import ran_with, said
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import ToolGrant, ToolRequest


@host_scenario("HOST-01")
async def a_denied_call_runs_nothing(scene: HostScene) -> None:
    """A call that the policy denies is answered with a denial, and the one beside it runs."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "wipe")
        await agent.call("c2", "look")
        await agent.answered("c1", "c2")
        await agent.say("Done.")

    tools = [scene.tool("wipe"), scene.tool("look")]
    stage = await scene.host(play, tools=tools, policy={"wipe": "deny", "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("wipe")
    scene.require_denial("c1")
    scene.require(scene.runs("look") == 1, "look did not run, which the policy allowed")


@host_scenario("HOST-01")
async def an_own_tool_of_the_agent_waits_for_the_policy(scene: HostScene) -> None:
    """Of two tools of the agent's own, the one that is allowed is granted, and the one that is denied is not."""

    async def play(agent: Agent) -> None:
        await agent.grant("g1", "wipe")
        await agent.grant("g2", "look")
        await agent.answered("g1", "g2")

    stage = await scene.host(play, policy={"wipe": "deny", "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_denial("g1")
    scene.require(isinstance(scene.answer("g2"), ToolGrant), "look was not granted, which the policy allowed")


@host_scenario("HOST-01")
async def a_policy_cannot_change_what_runs(scene: HostScene) -> None:
    """A policy that changes the arguments it is shown has decided on those of the request, and these run."""

    def policy(name: str, args: Mapping[str, Any]) -> str:
        held = args.get("paths")
        if isinstance(held, list):
            held.append("/etc/passwd")
        return "allow"

    async def play(agent: Agent) -> None:
        await agent.call("c1", "read", {"paths": ["a.py"]})
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("read")], policy=policy)
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "read")
    scene.require(ran == [{"paths": ["a.py"]}], f"it ran with {ran}")


@host_scenario("HOST-01")
async def each_call_is_decided_on_by_its_own_arguments(scene: HostScene) -> None:
    """One call of a tool is allowed; the next one of the same tool goes where the policy lets none go."""

    def policy(name: str, args: Mapping[str, Any]) -> str:
        return "allow" if args.get("path") == "a.py" else "deny"

    async def play(agent: Agent) -> None:
        for number, path in enumerate(["a.py", "/etc/passwd"]):
            await agent.call(f"c{number}", "write", {"path": path})
            await agent.grant(f"g{number}", "fetch", {"path": path})
            await agent.answered(f"c{number}", f"g{number}")

    stage = await scene.host(play, tools=[scene.tool("write")], policy=policy)
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "write")
    scene.require(ran == [{"path": "a.py"}], f"it ran with {ran}")
    scene.require_denial("c1")
    scene.require(isinstance(scene.answer("g0"), ToolGrant), "the call that is allowed was not granted")
    scene.require_denial("g1")


@host_scenario("HOST-02")
async def what_no_rule_names_is_denied(scene: HostScene) -> None:
    """The policy says nothing of two tools, one of the host's and one of the agent's: neither runs."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")

    stage = await scene.host(play, tools=[scene.tool("write")])
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")
    scene.require_denial("g1")


@host_scenario("HOST-02")
async def a_word_that_is_no_decision_is_denied(scene: HostScene) -> None:
    """The policy answers with words that look like an allow."""
    words = {"a": "allowed", "b": "ALLOW", "c": "", "d": "yes"}

    async def play(agent: Agent) -> None:
        for name in words:
            await agent.call(f"call-{name}", name)
        await agent.answered(*(f"call-{name}" for name in words))

    stage = await scene.host(play, tools=[scene.tool(name) for name in words], policy=words)
    scene.require_completed(await stage.turn())
    for name in words:
        scene.require_not_run(name)
        scene.require_denial(f"call-{name}")


@host_scenario("HOST-03")
async def a_policy_that_fails_has_denied(scene: HostScene) -> None:
    """The policy raises at a call and at a tool of the agent's: both are denied; the next call is decided as ever."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")
        await agent.call("c2", "look")
        await agent.answered("c2")

    tools = [scene.tool("write"), scene.tool("look")]
    broke = PolicyBroke("no rules")
    stage = await scene.host(play, tools=tools, policy={"write": broke, "fetch": broke, "look": "allow"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")
    scene.require_denial("g1")
    scene.require(scene.runs("look") == 1, "look did not run, which the policy allowed")


@host_scenario("HOST-04")
async def where_nobody_can_be_asked_it_is_denied(scene: HostScene) -> None:
    """The policy says ask, and there is no person: the call is denied at once."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "ask", "fetch": "ask"})
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")
    scene.require_denial("g1")


@host_scenario("HOST-04")
async def a_question_to_nobody_gets_no_yes(scene: HostScene) -> None:
    """Questions that only offer ways to say yes, or have a default, are declined or cancelled without a person."""
    options = {"type": "object", "properties": {"option": {"enum": ["allow_once", "allow_always"]}}}
    region = {"type": "object", "properties": {"region": {"type": "string", "default": "eu"}}}

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "user_approval", "Allow everything?", requested_schema=options)
        await agent.ask("q2", "clarification", "Which region?", requested_schema=region)
        await agent.ask("q3", "tool_confirmation", "Shall I?")
        await agent.answered("q1", "q2", "q3")

    stage = await scene.host(play)
    scene.require_completed(await stage.turn())
    for name in ("q1", "q2", "q3"):
        action, _ = said(scene, name)
        scene.require(action in ("decline", "cancel"), f"question {name} was answered {action}")


@host_scenario("HOST-05", needs=["ask"])
async def a_no_of_the_person_runs_nothing(scene: HostScene) -> None:
    """The person says no to a tool of the host's and to one of the agent's."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")

    policy = {"write": "ask", "fetch": "ask"}
    stage = await scene.host(play, tools=[scene.tool("write")], policy=policy, person=scene.person(Word("no")))
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")
    scene.require_denial("g1")


@host_scenario("HOST-05", needs=["ask"])
async def a_yes_holds_for_one_call(scene: HostScene) -> None:
    """The person says yes to a call, and no to the next one of the same tool, with the same arguments."""
    words = [Word("no"), Word("yes")]

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        return words.pop() if words else Word("no")

    async def play(agent: Agent) -> None:
        for name in ("c1", "c2"):
            await agent.call(name, "write", {"path": "a.py"})
            await agent.answered(name)

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "ask"}, person=scene.person(word))
    scene.require_completed(await stage.turn())
    scene.require(scene.runs("write") == 1, f"write ran {scene.runs('write')} times, and the person said yes once")
    scene.require_denial("c2")


@host_scenario("HOST-05", needs=["ask"])
async def a_yes_does_not_run_the_call_beside_it(scene: HostScene) -> None:
    """Two calls of one tool wait for the person, at once where the host can: a yes to one, a no to the other."""

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        if args.get("path") == "a.py":
            await scene.comes_soon(lambda: len(scene.log.find("person", "is asked to approve", "write")) == 2)
            return Word("yes")
        await scene.log.until(lambda: bool(scene.answers("c1")))
        return Word("no")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", {"path": "a.py"})
        await agent.call("c2", "write", {"path": "b.py"})
        await agent.answered("c1", "c2")

    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "ask"}, person=scene.person(word))
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "write")
    scene.require(ran == [{"path": "a.py"}], f"it ran with {ran}")
    scene.require_denial("c2")


@host_scenario("HOST-05", needs=["ask"])
async def a_question_that_was_closed_runs_nothing(scene: HostScene) -> None:
    """The person closes the question without an answer; the host may end the turn for that."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.answered("c1")

    person = scene.person(Word("closed"))
    stage = await scene.host(play, tools=[scene.tool("write")], policy={"write": "ask"}, person=person)
    outcome = await stage.turn()
    scene.require_no_error(outcome)
    scene.require_not_run("write")


@host_scenario("HOST-05", needs=["ask"])
async def a_channel_that_fails_runs_nothing(scene: HostScene) -> None:
    """What asks the person raises: a call and a tool of the agent's are denied, and the turn goes on."""

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        raise OSError("the page is gone")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write")
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")

    policy = {"write": "ask", "fetch": "ask"}
    stage = await scene.host(play, tools=[scene.tool("write")], policy=policy, person=scene.person(word))
    scene.require_completed(await stage.turn())
    scene.require_not_run("write")
    scene.require_denial("c1")
    scene.require_denial("g1")


@host_scenario("HOST-05", "HOST-06", needs=["ask"])
async def a_yes_of_the_person_runs_the_call_once(scene: HostScene) -> None:
    """The person says yes to a call of the host's, and to one of the agent's."""

    async def play(agent: Agent) -> None:
        await agent.call("c1", "write", {"path": "a.py"})
        await agent.grant("g1", "fetch")
        await agent.answered("c1", "g1")

    policy = {"write": "ask", "fetch": "ask"}
    stage = await scene.host(play, tools=[scene.tool("write")], policy=policy, person=scene.person(Word("yes")))
    scene.require_completed(await stage.turn())
    scene.require(scene.runs("write") == 1, "write did not run, to which the person said yes")
    scene.require(isinstance(scene.answer("g1"), ToolGrant), "fetch was not granted, to which the person said yes")


@host_scenario("HOST-06", needs=["ask"])
async def the_person_is_asked_about_what_will_run(scene: HostScene) -> None:
    """The request says in its texts that it only reads a file; it wipes a folder, and that is what is asked."""

    async def play(agent: Agent) -> None:
        await agent.say("I will only read a file.")
        lies = {"title": "read_file", "name": "read_file", "summary": "reads a.py", "args": {"path": "a.py"}}
        await agent.call("c1", "wipe", {"path": "/home"}, display=lies)
        await agent.answered("c1")

    person = scene.person(Word("yes"))
    stage = await scene.host(play, tools=[scene.tool("wipe")], policy={"wipe": "ask"}, person=person)
    scene.require_completed(await stage.turn())
    asked = [
        (entry.about, entry.data) for entry in scene.log.entries if entry.who == "person" and "asked" in entry.what
    ]
    scene.require(asked == [("wipe", {"path": "/home"})], f"the person was asked about {asked}")
    ran = ran_with(scene, "wipe")
    scene.require(ran == [{"path": "/home"}], f"it ran with {ran}")


@host_scenario("HOST-06", needs=["ask"])
async def what_is_shown_cannot_be_changed_unseen(scene: HostScene) -> None:
    """A page that changes the arguments it was given to show has not edited the call."""

    async def word(name: str, args: Mapping[str, Any]) -> Word:
        args["paths"].append("/etc/passwd")
        return Word("yes")

    async def play(agent: Agent) -> None:
        await agent.call("c1", "read", {"paths": ["a.py"]})
        await agent.answered("c1")

    stage = await scene.host(play, tools=[scene.tool("read")], policy={"read": "ask"}, person=scene.person(word))
    scene.require_completed(await stage.turn())
    ran = ran_with(scene, "read")
    scene.require(ran == [{"paths": ["a.py"]}], f"it ran with {ran}")


@host_scenario("HOST-08", needs=["questions"])
async def a_confirmation_does_not_open_what_is_denied(scene: HostScene) -> None:
    """The agent asks the person itself about a call that the policy denies, and says that it is harmless."""
    action = await _confirmed(scene, "wipe", "deny", "May I read a.py?")
    scene.require(action != "accept", "the confirmation of a call that the policy denies was accepted")


@host_scenario("HOST-08", needs=["questions"])
async def a_confirmation_does_not_open_what_no_rule_names(scene: HostScene) -> None:
    """The agent asks the person itself about a call that the policy says nothing of."""
    action = await _confirmed(scene, "wipe", None, "May I read a.py?")
    scene.require(action != "accept", "the confirmation of a call that the policy says nothing of was accepted")


@host_scenario("HOST-08", needs=["questions"])
async def a_confirmation_does_not_open_what_the_policy_failed_at(scene: HostScene) -> None:
    """The agent asks the person itself about a call at which the policy raises."""
    action = await _confirmed(scene, "wipe", PolicyBroke("no rules"), "May I read a.py?")
    scene.require(action != "accept", "the confirmation of a call at which the policy failed was accepted")


@host_scenario("HOST-08", needs=["questions"])
async def a_confirmation_of_an_allowed_call_reaches_the_person(scene: HostScene) -> None:
    """The agent asks the person about a call that the policy allows: the person's yes is passed on."""
    action = await _confirmed(scene, "look", "allow", "May I look?")
    scene.require(action == "accept", f"the person accepted, and the question was answered {action}")


async def _confirmed(scene: HostScene, name: str, word: str | Exception | None, message: str) -> str:
    """How the agent's own confirmation of a call is answered where the person accepts whatever is asked."""

    async def play(agent: Agent) -> None:
        await agent.emit(ToolRequest(request_id="c1", name=name, args={}, needs="none", owner="agent"))
        await agent.ask("q1", "tool_confirmation", message, tool_request_id="c1")
        await agent.answered("q1")
        agent.finish_own("c1", name)

    person = scene.person(reply=("accept", None))
    stage = await scene.host(play, policy={name: word}, person=person)
    scene.require_completed(await stage.turn())
    action, _ = said(scene, "q1")
    return action
