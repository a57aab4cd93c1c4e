"""Secrets: delivered to the run, never in the record; exceptions: in the log, never in the record."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.adapters.sessions import MortalStore, Puppet, check, end_of, kinds, only, read, say, session_of, tool

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Ask, Call, Calls, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    MemoryRecordStore,
    accept,
    dump_event,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("SEC-01")]

KEY = "sk-planted"
CREDENTIAL = {"credential": {"type": "api_key", "key": KEY}}


def leaks(session: Any) -> list[str]:
    return [line for line in map(dump_event, session.record) if KEY in line]


def login(told: list[Any]) -> list[list[Step]]:
    def tell(memory: Any) -> str:
        told.append(memory.last.content)
        return "in"

    return [[Ask("Log in", kind="auth_required"), Say(tell)]]


async def test_a_credential_reaches_the_run_and_its_type_alone_the_record(reenter: bool) -> None:
    told: list[Any] = []
    async with session_of(ScriptedExecutor(login(told), reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream(accept(session.pending[0].request_id, CREDENTIAL)))
        assert told == [CREDENTIAL]
        (response,) = only(events, ElicitationResponse)
        assert response.content == {"credential": {"type": "api_key", "value": "[redacted]"}}
        assert leaks(session) == []


async def test_a_secret_field_of_a_form_is_redacted_and_the_others_stay(reenter: bool) -> None:
    told: list[Any] = []
    schema = {
        "type": "object",
        "properties": {"user": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}},
    }

    def tell(memory: Any) -> str:
        told.append(memory.last.content)
        return "thanks"

    script: list[list[Step]] = [[Ask("Who?", schema=schema), Say(tell)]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        await session.respond(accept(session.pending[0].request_id, {"user": "me", "pin": KEY}))
        assert session.pending == []
        assert leaks(session) == []
        await read(session.stream())
        assert told == [{"user": "me", "pin": KEY}]
        (response,) = only(session.record, ElicitationResponse)
        assert response.content == {"user": "me", "pin": "[redacted]"}
        assert leaks(session) == []


PIN = {"type": "string", "format": "password", "writeOnly": True}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"properties": {"a": {"anyOf": [PIN, {"type": "null"}]}}}, id="optional"),
        pytest.param({"properties": {"a": {"$ref": "#/$defs/Pin"}}, "$defs": {"Pin": PIN}}, id="reference"),
        pytest.param({"properties": {"a": {"$ref": "#Pin"}}, "$defs": {"Pin": {"$anchor": "Pin", **PIN}}}, id="anchor"),
        pytest.param({"allOf": [{"properties": {"a": PIN}}]}, id="all_of"),
        pytest.param({"if": True, "then": {"properties": {"a": PIN}}}, id="condition"),
        pytest.param({"additionalProperties": PIN}, id="any_key"),
        pytest.param({"patternProperties": {"^a$": PIN}}, id="key_by_pattern"),
    ],
)
async def test_a_secret_field_is_redacted_however_its_schema_is_written(schema: dict[str, Any]) -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.elicit("clarification", "?", schema={"type": "object", **schema})

    async with session_of(work) as session:
        await say(session)
        await read(session.stream(accept(session.pending[0].request_id, {"a": KEY})))
        (response,) = only(session.record, ElicitationResponse)
        assert response.content == {"a": "[redacted]"}


async def test_a_secret_item_of_a_list_is_redacted_and_the_others_stay() -> None:
    schema = {"type": "object", "properties": {"pair": {"prefixItems": [{"type": "string"}, PIN], "items": False}}}

    async def work(ctx: RunContext) -> None:
        await ctx.elicit("clarification", "?", schema=schema)

    async with session_of(work) as session:
        await say(session)
        await read(session.stream(accept(session.pending[0].request_id, {"pair": ["me", KEY]})))
        (response,) = only(session.record, ElicitationResponse)
        assert response.content == {"pair": ["me", "[redacted]"]}


async def test_a_receipt_that_refuses_a_secret_does_not_repeat_it() -> None:
    schema = {"type": "object", "properties": {"pin": {"minLength": 99, **PIN}}}

    async def work(ctx: RunContext) -> None:
        await ctx.elicit("clarification", "?", schema=schema)

    async with session_of(work) as session:
        await say(session)
        (receipt,) = await session.respond(accept(session.pending[0].request_id, {"pin": KEY}))
        assert (receipt.status, receipt.rule) == ("invalid", "HITL-08")
        assert "/pin" in receipt.reason
        assert KEY not in receipt.reason


async def test_a_secret_that_came_between_streams_is_recorded_when_the_run_takes_it(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(login([]), reenter=reenter)) as session:
        await say(session)
        answer = accept(session.pending[0].request_id, CREDENTIAL)
        (receipt,) = await session.respond(answer)
        (second,) = await session.respond(answer)
        assert (receipt.status, second.status) == ("applied", "stale")
        assert only(session.record, ElicitationResponse) == []
        events = await read(session.stream())
        assert kinds(events)[0] == "elicitation_response"


async def test_a_secret_waits_in_memory_while_its_step_has_other_requests_open() -> None:
    told: list[Any] = []

    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.post(ElicitationRequest(request_id="auth", kind="auth_required", message="Log in"), tool())
        else:
            told.extend([ctx.answers["auth"].content, ctx.answers["look"].data])  # type: ignore[union-attr]

    async with session_of(work, resume=True) as session:
        await say(session)
        events = await read(session.stream(accept("auth", CREDENTIAL)))
        assert end_of(events).pending == [
            "auth",
            "look",
        ]  # what the record knows: lost before it is taken, it waits again
        assert [request.request_id for request in session.pending] == ["look"]
        events = await read(session.stream(result("look", 1)))
        assert end_of(events).reason == "completed"
        assert told == [CREDENTIAL, 1]
        assert leaks(session) == []


async def test_a_secret_that_was_not_taken_waits_again_after_a_restart() -> None:
    told: list[Any] = []
    store = MortalStore()
    with anyio.fail_after(5):
        async with ScriptedExecutor(login(told), reenter=True, store=store) as executor:
            session = await executor.open()
            await say(session)
            await session.respond(accept(session.pending[0].request_id, CREDENTIAL))
            store = await store.kill()
        async with ScriptedExecutor(login(told), reenter=True, store=store) as executor:
            session = await executor.load(session.session_id)
            (question,) = session.pending
            await read(session.stream(accept(question.request_id, CREDENTIAL)))
            assert told == [CREDENTIAL]
            check(session)


async def test_a_secret_answered_while_the_run_still_works_enters_again_unredacted() -> None:
    told: list[Any] = []
    answered = anyio.Event()

    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.post(ElicitationRequest(request_id="auth", kind="auth_required", message="Log in"))
            await answered.wait()
        else:
            told.append(ctx.answers["auth"].content)  # type: ignore[union-attr]

    async with session_of(work, resume=True) as session:
        async with session.stream("go") as stream:
            async for event in stream:
                if isinstance(event, ElicitationRequest):
                    await session.respond(accept("auth", CREDENTIAL))
                    answered.set()
        assert told == [CREDENTIAL]
        assert stream.end is not None
        assert stream.end.reason == "completed"
        assert leaks(session) == []


async def test_an_abort_forgets_secrets(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(login([]), reenter=reenter)) as session:
        await say(session)
        await session.respond(accept(session.pending[0].request_id, CREDENTIAL))
        await session.abort()
        assert session.answers.secrets == {}
        assert only(session.record, ElicitationResponse)[0].action == "cancel"


async def test_exceptions_leave_their_type_and_nothing_else_in_the_record() -> None:
    async def work(ctx: RunContext) -> None:
        async def child(inner: RunContext) -> None:
            raise ConnectionError(f"https://me:{KEY}@host/")

        await ctx.parallel(("a", child), ("b", child))

    async with session_of(work) as session:
        await say(session)
        text = "\n".join(map(dump_event, session.record))
        assert KEY not in text
        assert "Traceback" not in text
        assert ".py" not in text


async def test_a_tool_of_the_agent_that_fails_tells_its_type_only(reenter: bool) -> None:
    def fails(args: dict[str, Any]) -> None:
        raise ConnectionError(KEY)

    script: list[list[Step]] = [[Calls(Call("t", needs="grant", run=fails, id="t"))]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        from agentsession.protocol import grant

        await say(session)
        await read(session.stream(grant("t")))
        assert leaks(session) == []


async def test_the_store_holds_no_secret_either(reenter: bool) -> None:
    store = MemoryRecordStore()
    with anyio.fail_after(5):
        async with ScriptedExecutor(login([]), reenter=reenter, store=store) as executor:
            session = await executor.open()
            await say(session)
            await read(session.stream(accept(session.pending[0].request_id, CREDENTIAL)))
            stored = await store.read(session.recorder.key)
    assert stored
    assert not [event for event in stored if KEY in dump_event(event)]


def test_a_puppet_declares_what_it_does() -> None:
    async def nothing(ctx: RunContext) -> None: ...

    assert Puppet(nothing, resume=True).descriptor.supports("resume")
