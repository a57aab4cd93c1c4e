"""LIFE and TURN: sessions, streams, brackets and messages.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

import anyio

from agentsession.conformance.engine import Break
from agentsession.conformance.looking import texts
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Call, Calls, Fail, Hold, Raise, Say, Stream
from agentsession.protocol import (
    AgentSession,
    Error,
    Event,
    EventStream,
    Message,
    MessageInput,
    SessionClosed,
    StreamActive,
    StreamEnd,
    result,
)


@scenario("LIFE-01", "LIFE-02", "LIFE-03", "WIRE-01")
async def a_session_introduces_itself(scene: Scene) -> None:
    """The first event of a record is initialize, with the descriptor and the agent."""
    stage, session = await scene.opened([Say(text="hello")])
    record = await scene.record(session)
    scene.expect(record[0].type == "initialize", "LIFE-02", "a record does not begin with initialize", record)
    scene.expect(record[0].seq >= 1, "ORD-01", "a seq begins at 1", record)
    scene.expect(
        session.descriptor == stage.executor.descriptor,
        "LIFE-01",
        "session and executor describe the agent differently",
    )
    await scene.read(session.stream("go"))
    record = await scene.record(session)
    firsts = [event for event in record if event.type == "initialize"]
    scene.expect(len(firsts) == 1, "LIFE-03", f"{len(firsts)} initialize events", firsts)


@scenario("LIFE-12", "LIFE-05", "TURN-01", "LIFE-17", "LIFE-04", "LIFE-16")
async def two_turns_follow_each_other(scene: Scene) -> None:
    """A turn ends completed, with one stream_end, and the session takes another turn."""
    _, session = await scene.opened([Say(text="one")], [Say(text="two")])
    for text in ("one", "two"):
        events = await scene.read(session.stream("go on"))
        scene.end(events, "completed", "LIFE-12")
        ends = [event for event in events if isinstance(event, StreamEnd)]
        scene.expect(len(ends) == 1, "LIFE-05", f"{len(ends)} stream_ends in a stream", events)
        said = texts(events)
        scene.expect(text in said, "LIFE-12", f"the turn said {said}, not {text!r}", events)
        scene.expect(
            session.state == "idle", "LIFE-12", f"after a completed turn the session is {session.state}", events
        )


@scenario("LIFE-06")
async def the_stream_id_is_known_at_once(scene: Scene) -> None:
    """A stream tells its id before it has given an event, and all its events carry it."""
    _, session = await scene.opened([Say(text="hello")])
    stream = session.stream("go")
    name = stream.stream_id
    scene.expect(bool(name), "LIFE-06", "a stream has no id before its first event")
    events = await scene.read(stream)
    others = [event for event in events if event.stream_id != name]
    scene.expect(not others, "LIFE-06", f"an event of the stream does not carry its id {name}", others)


@scenario("LIFE-07")
async def a_second_stream_is_refused(scene: Scene) -> None:
    """While a stream runs, another raises StreamActive and leaves nothing in the record."""
    stage, session = await scene.opened([Hold(mark="busy"), Say(text="done")])
    async with session.stream("go") as stream:
        await stage.reached("busy")
        before = await scene.settled(session)

        async def again() -> None:
            session.stream("me too")

        await scene.refused(again, StreamActive, "LIFE-07", 'stream("me too") while a stream runs')
        await scene.unchanged(session, before, "LIFE-07", "a stream that was refused")
        stage.release("busy")
        events = [scene.saw(event) async for event in stream]
    scene.end(events, "completed", "LIFE-07")


@scenario("LIFE-08")
async def an_ended_stream_ends_for_whoever_comes_late(scene: Scene) -> None:
    """A reader of a stream that has ended gets its stream_end and stops, also when it follows."""
    _, session = await scene.opened([Say(text="hello")])
    stream = session.stream("go")
    await scene.read(stream)
    async with session.events(follow=True, stream_id=stream.stream_id) as late:
        events = [event async for event in late]
    scene.expect(
        bool(events) and isinstance(events[-1], StreamEnd),
        "LIFE-08",
        "a late reader did not get the stream's end",
        events,
    )


@scenario("LIFE-09", "LIFE-10", "LIFE-18", "SEC-01")
async def an_exception_is_a_fatal_error(scene: Scene) -> None:
    """An exception in the executor ends the stream failed, after one fatal error without its text or a traceback."""
    scene.secrets.append("sk-planted-9f2c")
    _, session = await scene.opened([Say(text="well"), Raise(message="no key sk-planted-9f2c")], [Say(text="again")])
    events = await scene.read(session.stream("go"))
    scene.end(events, "failed", "LIFE-09")
    fatal = [event for event in events if isinstance(event, Error) and event.fatal]
    scene.expect(len(fatal) == 1, "LIFE-09", f"{len(fatal)} fatal errors", events)
    events = await scene.read(session.stream("again"))
    scene.end(events, "completed", "LIFE-12")


@scenario("LIFE-11")
async def an_error_that_is_not_fatal_ends_nothing(scene: Scene) -> None:
    """After an error event that is not fatal the agent goes on."""
    _, session = await scene.opened([Fail(message="a hiccup"), Say(text="still here")])
    events = await scene.read(session.stream("go"))
    scene.end(events, "completed", "LIFE-11")
    errors = [event for event in events if isinstance(event, Error)]
    scene.expect(bool(errors) and not errors[0].fatal, "LIFE-11", "no error that is not fatal was shown", events)
    scene.expect("still here" in texts(events), "LIFE-11", "the agent said nothing after the error", events)


@scenario("TURN-01")
async def a_message_that_is_sent_again_runs_nothing_again(scene: Scene) -> None:
    """A message whose idempotency key was seen attaches to its turn, at work or ended, and begins none."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="once")], [Say(text="twice")])
    message = MessageInput.model_validate({"content": [{"type": "text", "text": "go"}], "idempotencyKey": "key-1"})
    first = session.stream(message)
    async with scene.reading(first) as events:
        await stage.reached("here")
        async with scene.reading(_again(scene, session, message, first)):
            stage.release("here")
    scene.end(events, "completed", "TURN-01")
    before = await scene.settled(session)
    scene.end(await scene.read(_again(scene, session, message, first)), "completed", "TURN-01")
    await scene.unchanged(session, before, "TURN-01", "a message that was sent again")
    other = message.model_copy(update={"idempotency_key": "key-2"})
    scene.expect("twice" in texts(await scene.read(session.stream(other))), "TURN-01", "another key began no turn")


def _again(scene: Scene, session: AgentSession, message: MessageInput, first: EventStream) -> EventStream:
    try:
        stream = session.stream(message)
    except StreamActive:
        raise Break("TURN-01", "a message that was sent again is refused while its turn is at work") from None
    scene.expect(stream.turn_id == first.turn_id, "TURN-01", "a message that was sent again began another turn")
    return stream


@scenario("LIFE-13")
async def closing_ends_what_runs(scene: Scene) -> None:
    """aclose() ends a running stream; afterwards the session takes nothing."""
    stage, session = await scene.opened([Hold(mark="busy"), Say(text="never")])
    read: list[Event] = []

    async def follow() -> None:
        read.extend(await scene.read(stream))

    stream = session.stream("go")
    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await stage.reached("busy")
        await session.aclose()
    scene.expect(session.state == "closed", "LIFE-13", f"after aclose() the session is {session.state}")
    scene.end(read, "aborted", "LIFE-13")

    async def more() -> None:
        session.stream("more")

    await scene.refused(more, SessionClosed, "LIFE-13", "stream() on a closed session")


@scenario("LIFE-14")
async def a_streamed_message_is_closed_as_it_was_said(scene: Scene) -> None:
    """Deltas of one message are followed by one whole message with the same text."""
    pieces = ["a b", "", "c", " dé"]
    _, session = await scene.opened([Stream(pieces=pieces)])
    events = await scene.read(session.stream("go"))
    messages = [event for event in events if isinstance(event, Message) and event.role != "user"]
    closings = [event for event in messages if not event.partial]
    scene.expect(len(closings) == 1, "LIFE-14", f"{len(closings)} whole messages for one that was streamed", messages)
    scene.expect(
        "".join(pieces) in texts(events), "LIFE-14", "the whole message has another text than its deltas", messages
    )


@scenario("LIFE-15", needs=("host_tool_execution",))
async def between_turns_nothing_is_said(scene: Scene) -> None:
    """What the record holds outside a stream is not the agent's."""
    _, session = await scene.opened([Calls(calls=[Call(name="look")]), Say(text="done")])
    events = await scene.read(session.stream("go"))
    scene.end(events, "input_required", "LIFE-17")
    waiting = scene.pending(session, 1, "LIFE-17")
    await session.respond(result(waiting[0].request_id, {"ok": True}))
    await scene.read(session.stream())
    loose = [event for event in await scene.record(session) if event.stream_id is None and event.type in _NEVER_LOOSE]
    scene.expect(not loose, "LIFE-15", "an agent's event belongs to no stream", loose)


_NEVER_LOOSE = ("agent_start", "agent_end", "tool_request", "elicitation_request", "usage", "stream_end")
