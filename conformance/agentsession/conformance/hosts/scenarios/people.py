"""Questions of the agent to the person, and what is said in confidence.

Not for: whether a call may run (``permission.py``). Rules carried: HOST-19 to HOST-21.
May import: ``agentsession.protocol``, the modules of the host suite.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

from agentsession.conformance.hosts.agent import Agent
from agentsession.conformance.hosts.scenarios._shared import said
from agentsession.conformance.hosts.scene import HostScene, host_scenario
from agentsession.protocol import Answer, Receipt

_ENOUGH: Final = 10
"""So often a host may try to have an answer taken."""
_SECRET: Final = "sk-planted-7f3e"
_REGION: Final = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}


@host_scenario("HOST-19", needs=["questions"])
async def an_answer_of_the_person_is_passed_on(scene: HostScene) -> None:
    """The person fills in a form, declines one and closes one; a no has no content, also where some was typed."""
    replies: dict[str, tuple[str, Any]] = {
        "Which region?": ("accept", {"region": "eu"}),
        "Which other?": ("decline", {"region": "us"}),
        "And then?": ("cancel", {"region": "us"}),
    }

    async def reply(kind: str, message: str) -> tuple[str, Any]:
        return replies[message]

    async def play(agent: Agent) -> None:
        for number, message in enumerate(replies):
            await agent.ask(f"q{number}", "clarification", message, requested_schema=_REGION)
            await agent.answered(f"q{number}")

    stage = await scene.host(play, person=scene.person(reply=reply))
    outcome = await stage.turn()
    scene.require_no_error(outcome)
    given = [said(scene, f"q{number}") for number in range(3) if scene.answers(f"q{number}")]
    wanted = [("accept", {"region": "eu"}), ("decline", None), ("cancel", None)]
    scene.require(given == wanted, f"the questions were answered {given}")


@host_scenario("HOST-19", needs=["questions"])
async def a_channel_that_fails_at_a_question_has_not_said_yes(scene: HostScene) -> None:
    """What asks the person raises: the question gets a no, and the turn goes on."""

    async def reply(kind: str, message: str) -> tuple[str, Any]:
        raise OSError("the page is gone")

    async def play(agent: Agent) -> None:
        await agent.ask("q1", "user_approval", "May I?")
        await agent.answered("q1")

    stage = await scene.host(play, person=scene.person(reply=reply))
    scene.require_completed(await stage.turn())
    action, content = said(scene, "q1")
    scene.require(action in ("decline", "cancel") and content is None, f"the question was answered {action}")


@host_scenario("HOST-20", needs=["questions"])
async def a_form_that_nothing_fits_is_given_up(scene: HostScene) -> None:
    """The schema of a question is broken, so that no content can ever be right."""

    async def play(agent: Agent) -> None:
        tries: list[Answer] = []

        async def count(answer: Answer) -> Receipt | None:
            tries.append(answer)
            if len(tries) <= _ENOUGH:
                return None
            scene.log.add("suite", "has seen enough tries")
            agent.settle("q1")
            return Receipt(status="stale", request_id="q1")

        agent.on_answer = count
        await agent.ask("q1", "clarification", "Well?", requested_schema={"type": "no such type"})
        await agent.answered("q1")

    stage = await scene.host(play, person=scene.person(reply=("accept", {"region": "eu"})))
    outcome = await stage.turn()
    scene.require_no_error(outcome)
    scene.require(not scene.log.has("suite", "has seen enough tries"), f"it tried more than {_ENOUGH} times")


@host_scenario("HOST-21", needs=["questions"])
async def a_credential_that_is_taken_is_told_nobody(scene: HostScene) -> None:
    """The person gives a key; the session refuses the first answer, which a host may log, and takes the second."""
    scene.secrets.append(_SECRET)

    async def play(agent: Agent) -> None:
        refused: list[Answer] = []

        async def refuse(answer: Answer) -> Receipt | None:
            refused.append(answer)
            return None if len(refused) > 1 else Receipt(status="invalid", request_id="q1", reason="try again")

        agent.on_answer = refuse
        await agent.ask("q1", "auth_required", "The key, please.")
        await agent.answered("q1")
        await agent.say("Thanks.")

    reply = ("accept", {"credential": {"type": "api_key", "api_key": _SECRET}})
    with _listening(scene):
        stage = await scene.host(play, person=scene.person(reply=reply))
        scene.require_completed(await stage.turn())


@host_scenario("HOST-21", needs=["questions"])
async def a_credential_that_is_lost_is_told_nobody(scene: HostScene) -> None:
    """The executor vanishes as it is given a key: neither the error nor the log says which it was."""
    scene.secrets.append(_SECRET)

    async def play(agent: Agent) -> None:
        async def vanish(answer: Answer) -> Receipt | None:
            agent.lose()

        agent.on_answer = vanish
        await agent.ask("q1", "auth_required", "The key, please.")
        await agent.answered("q1")

    reply = ("accept", {"credential": {"type": "bearer", "token": _SECRET}})
    with _listening(scene):
        stage = await scene.host(play, person=scene.person(reply=reply))
        outcome = stage.begin()
        over = await scene.comes(lambda: scene.log.has("suite", "sees the turn over"))
    scene.require(over, "the turn waits for an executor that has vanished", "HOST-25")
    scene.require(_SECRET not in f"{outcome.error!r} {outcome.error}", "the error says what the person answered")


@contextlib.contextmanager
def _listening(scene: HostScene) -> Iterator[None]:
    """Keep what is logged meanwhile, at every level."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            scene.lines.append(self.format(record))

    root = logging.getLogger()
    ear, level, disabled = Ear(logging.NOTSET), root.level, logging.root.manager.disable
    root.addHandler(ear)
    root.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        root.removeHandler(ear)
