"""WIRE and SEC: what is said survives as it was said, and what is secret is not said.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final

from agentsession.conformance.hosting import CREDENTIAL, result_data, standard_answer
from agentsession.conformance.looking import of, recited, requests
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Ask, Call, Calls, Raise, Recite, Say, Step, Stream, Think
from agentsession.protocol import (
    AgentSessionError,
    ElicitationRequest,
    Event,
    InvalidInput,
    Message,
    MessageInput,
    ToolResponse,
    accept,
)

_ODD: Final = "é 😀 \u2028 \u202e \x00 \\ </script>"
"""Text that breaks who handles it carelessly: beyond ASCII, line ends of other kinds, directions, a NUL, quotes."""
_ODD_JSON: Final[dict[str, Any]] = {
    "text": _ODD,
    "nothing": None,
    "nested": [[], {}, [{"": None}], False],
    "numbers": [0, -1, 2**53 - 1, 1.5, 1e300],
}


@scenario("WIRE-01", "WIRE-02")
async def what_a_host_says_is_kept(scene: Scene) -> None:
    """A message with fields, content and text that the executor does not know is kept as it is, or refused as a
    whole."""
    _, session = await scene.opened([Say(text="heard")], [Say(text="heard")], [Say(text="heard")])
    kinds: list[list[dict[str, Any]]] = [
        [{"type": "text", "text": _ODD}],
        [{"type": "text", "text": "a", "xShade": {"of": None}}],
        [{"type": "x-sketch", "strokes": [1, None, [2.5]]}, {"type": "text", "text": "b"}],
    ]
    for content in kinds:
        before = await scene.settled(session)
        try:
            stream = session.stream(MessageInput.model_validate({"kind": "message", "content": content}))
        except InvalidInput:
            await scene.unchanged(session, before, "WIRE-01", "a message that was refused")
            continue
        events = await scene.read(stream)
        said = [event.to_wire()["content"] for event in of(events, Message) if event.source == "user"]
        scene.expect(said == [content], "WIRE-01", f"the record has {said} for {content}", events)
    _is_text(scene, await scene.record(session))


@scenario("WIRE-01")
async def what_no_json_can_hold_is_refused_or_repaired(scene: Scene) -> None:
    """Text with half a character in it is refused or repaired as it comes in; the record stays JSON."""
    _, session = await scene.opened([Say(text="heard")], [Say(text="heard")])
    with contextlib.suppress(AgentSessionError):
        await scene.read(session.stream("a\ud800b"))
    _is_text(scene, await scene.record(session))
    scene.end(await scene.read(session.stream("go")), "completed", "WIRE-01")


@scenario("WIRE-01", "LIFE-14")
async def what_an_agent_says_is_kept(scene: Scene) -> None:
    """Odd text of the agent's, whole and in pieces, is in the record as it was said."""
    pieces = [_ODD[:3], "", _ODD[3:], "\n\n"]
    _, session = await scene.opened([Think(text=_ODD), Stream(pieces=pieces)], [Say(text=_ODD)])
    for wanted in ("".join(pieces), _ODD):
        events = await scene.read(session.stream("go"))
        said = [
            part.get("text")
            for event in of(events, Message)
            if not event.partial
            for part in event.to_wire()["content"]
        ]
        scene.expect(wanted in said, "WIRE-01", f"{wanted!r} is in the record as {said}", events)
    _is_text(scene, await scene.record(session))


@scenario("WIRE-01", "TOOL-11", needs=("host_tool_execution",))
async def what_tools_are_given_and_give_is_kept(scene: Scene) -> None:
    """Arguments and results of any JSON reach host, record and model as they are: null is not absent, 1 is not true."""
    call = Call(name="echo", args=_ODD_JSON)
    _, session = await scene.opened([Calls(calls=[call]), Recite()])
    (asked,) = await scene.asked(session, 1)
    shown = next((request.args for request in requests([asked])), None)
    scene.expect(_json(shown) == _json(_ODD_JSON), "WIRE-01", f"the arguments are shown as {shown}", [asked])
    events = await scene.read(session.stream(standard_answer(asked)))
    scene.end(events, "completed", "WIRE-01")
    data = result_data("echo", _ODD_JSON)
    recorded = [response.data for response in of(await scene.record(session), ToolResponse)]
    scene.expect(_json(recorded) == _json([data]), "WIRE-01", f"the result is recorded as {recorded}", events)
    told = [item["data"] for item in recited(events) or ()]
    scene.expect(_json(told) == _json([data]), "TOOL-11", f"the model was told {told}", events)


# -- secrets ----------------------------------------------------------------------------------------------------------


@scenario("SEC-01", needs=("elicitation",))
async def a_credential_is_not_recorded(scene: Scene) -> None:
    """A credential that a person gives is in no event; the turn goes on with it."""
    scene.secrets.append(str(CREDENTIAL["credential"]["value"]))
    _, session = await scene.opened([Ask(message="Sign in", kind="auth_required"), Say(text="thanks")])
    events = await scene.turn(session)  # where a tool asks for the credential, it may have to be granted first
    scene.end(events, "completed", "SEC-01")
    asked = [event for event in of(events, ElicitationRequest) if event.kind == "auth_required"]
    scene.expect(len(asked) == 1, "SEC-01", f"a credential was asked for {len(asked)} times", events)


@scenario("SEC-01", needs=("elicitation",))
async def a_secret_of_a_form_is_not_recorded(scene: Scene) -> None:
    """What a person fills in a field that is marked secret is in no event, nor in the receipt of a wrong answer."""
    secret = "planted-7391"
    scene.secrets.append(secret)
    form = {
        "type": "object",
        "properties": {"pin": {"type": "string", "writeOnly": True, "maxLength": 20}, "name": {"type": "string"}},
        "required": ["pin"],
    }
    turn: list[Step] = [Ask(message="Your PIN?", requested_schema=form), Say(text="thanks")]
    _, session = await scene.opened(turn)
    (asked,) = await scene.asked(session, 1)
    got = await session.respond(accept(asked.request_id, {"pin": secret * 3}))
    scene.receipts(got, "invalid", rule="HITL-08", what="content that the schema refuses")
    said = [receipt.to_wire_json() for receipt in got]
    scene.expect(secret not in "".join(said), "SEC-01", "a receipt repeats what a person filled in as a secret")
    events = await scene.read(session.stream(accept(asked.request_id, {"pin": secret, "name": "Ada"})))
    scene.end(events, "completed", "SEC-01")


@scenario("SEC-01")
async def no_error_tells_what_it_was_told(scene: Scene) -> None:
    """The text of an exception is in no event, whether it is short, long, or looks like a traceback."""
    secret = "planted-2205"
    scene.secrets.append(secret)
    texts = (secret, f"{secret} " * 200, f'Traceback (most recent call last):\n  File "{secret}.py", line 1')
    _, session = await scene.opened(*[[Raise(message=text)] for text in texts], [Say(text="again")])
    for _ in texts:
        scene.end(await scene.read(session.stream("go")), "failed", "LIFE-09")
    scene.end(await scene.read(session.stream("go")), "completed", "LIFE-12")


# -- what they look for -----------------------------------------------------------------------------------------------


def _json(value: object) -> str:
    """As text, for Python takes 1, 1.0 and True for equal."""
    return json.dumps(value, sort_keys=True)


def _is_text(scene: Scene, record: list[Event]) -> None:
    """Every event is JSON that can be written as UTF-8."""
    for event in record:
        try:
            json.dumps(event.to_wire(), ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            scene.expect(False, "WIRE-01", f"#{event.seq} cannot be written as JSON in UTF-8", [event])
