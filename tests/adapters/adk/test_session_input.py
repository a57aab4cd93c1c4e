"""Questions of the agent for input (``adk_request_input``): what answers them, and what the model reads of that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from tests.adapters.adk.driving import (
    Driven,
    Visit,
    agent,
    assert_valid_history,
    driven,
    history,
)
from tests.adapters.adk.make import old_agent

from agentsession.adapters.adk import call, calls, say
from agentsession.protocol import (
    ElicitationRequest,
    accept,
    cancel,
    decline,
)

pytestmark = pytest.mark.anyio

FORM = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"]},
        "stay": {
            "type": "object",
            "properties": {"nights": {"type": "integer", "minimum": 1}, "notes": {"type": "array", "items": {}}},
            "required": ["nights"],
        },
    },
    "required": ["city", "stay"],
    "additionalProperties": False,
}


def question(schema: Any = None, id: str = "q1") -> Any:
    args = {"message": "Where to?", **({"response_schema": schema} if schema is not None else {})}
    return call("adk_request_input", args, id=id)


@pytest.mark.rule("HITL-08", "PER-01")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "Rome",
        {},
        {"city": "Paris", "stay": {"nights": 1}},
        {"city": "Rome", "stay": {"nights": 0}},
        {"city": "Rome", "stay": {"nights": "two"}},
        {"city": "Rome", "stay": {"nights": 1}, "more": 1},
    ],
)
async def test_an_answer_that_does_not_fit_its_form_waits_on_and_one_that_fits_is_what_the_model_reads(
    wrong: Any, restarted: bool, visit: Visit
) -> None:
    root = agent(question(FORM), say("done"), tools=[request_input])
    good = {"city": "Rome", "stay": {"nights": 2, "notes": ["late", {"floor": 3}]}}

    async def answer(desk: Driven) -> None:
        (asked,) = desk.session.pending
        assert isinstance(asked, ElicitationRequest)
        assert asked.requested_schema == FORM
        (receipt,) = await desk.session.respond(accept(asked.request_id, wrong))
        assert (receipt.status, receipt.rule) == ("invalid", "HITL-08")
        assert [item.request_id for item in desk.session.pending] == [asked.request_id]
        assert (await desk.stream(accept(asked.request_id, good))).texts == ["done"]

    async with visit(root) as desk:
        await desk.stream("go")
        if not restarted:
            await answer(desk)
    if restarted:
        root = agent(say("done"), tools=[request_input])
        async with visit(root) as desk:
            await answer(desk)
    shown = [entry for entry in history(root.model) if entry[0] == "result q1"]
    assert shown == [("result q1", json.dumps(good, sort_keys=True))]
    assert_valid_history(root.model)


@pytest.mark.parametrize(
    ("schema", "content", "read"),
    [
        (None, "Rome", '{"result": "Rome"}'),
        (None, {"city": "Rome"}, '{"city": "Rome"}'),
        ({"type": "string"}, "Rome", '{"result": "Rome"}'),
        ({"type": "boolean"}, False, '{"result": false}'),
        ({"type": "integer"}, 0, '{"result": 0}'),
        ({"type": "array", "items": {"type": "string"}}, ["a"], '{"result": ["a"]}'),
        ({"type": ["string", "null"]}, None, '{"result": null}'),
    ],
)
async def test_any_json_can_be_the_answer_to_a_question_for_input(schema: Any, content: Any, read: str) -> None:
    root = agent(question(schema), say("done"), tools=[request_input])
    async with driven(root) as desk:
        await desk.stream("go")
        assert (await desk.stream(accept(desk.pending("clarification"), content))).texts == ["done"]
        assert ("result q1", read) in history(root.model)


@pytest.mark.rule("HITL-02", "PER-01")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("refused", [decline, cancel])
async def test_a_form_that_is_refused_is_told_to_the_model_which_goes_on(
    refused: Any, parked: bool, restarted: bool, visit: Visit
) -> None:
    root: Any = agent(question(FORM), say("done"), tools=[request_input])
    async with visit(root, parked=parked) as desk:
        await desk.stream("go")
        if not restarted:
            assert (await desk.stream(refused(desk.pending("clarification")))).reason == "completed"
    if restarted:
        root = agent(say("done"), tools=[request_input])
        async with visit(root, parked=parked) as desk:
            assert (await desk.stream(refused(desk.pending("clarification")))).reason == "completed"
    told = root.model.requests[-1].contents
    (asked,) = [part.function_call for content in told for part in content.parts or () if part.function_call]
    assert asked.args == {"message": "Where to?", "response_schema": FORM}
    assert ("result q1", json.dumps({"error": refused.__name__})) in history(root.model)


@pytest.mark.rule("HITL-02", "HITL-10")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize(
    ("answer", "read"), [(decline, '{"error": "decline"}'), (cancel, '{"error": "cancel"}'), (None, '{"city": "Oslo"}')]
)
async def test_what_the_model_reads_of_an_answer_is_the_same_in_every_place(where: str, answer: Any, read: str) -> None:
    inner = agent(question(), say("inner done"), name="inner", tools=[request_input])
    root: Any = inner
    if where == "child":
        root = agent(call("inner", {"request": "go"}), say("done"), tools=[AgentTool(inner)])
    elif where == "pipeline":
        with pytest.warns(DeprecationWarning, match="SequentialAgent"):
            root = old_agent("SequentialAgent", name="pipe", sub_agents=[inner, agent(say("done"), name="last")])
    async with driven(root) as desk:
        await desk.stream("go")
        asked = desk.pending("clarification")
        done = await desk.stream(answer(asked) if answer is not None else accept(asked, {"city": "Oslo"}))
        assert (done.reason, done.texts[-1]) == ("completed", "inner done" if where == "root" else "done")
        assert ("result q1", read) in history(inner.model)


@pytest.mark.rule("TOOL-07", "TOOL-08", "TOOL-09")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_r100_several_questions_are_answered_in_any_order_and_each_answer_is_stored_once(
    order: tuple[int, ...], restarted: bool, visit: Visit
) -> None:
    """R100: one response was in the session twice, and a second answer was taken."""
    step = calls(*(question(id=f"q{number}") for number in range(3)))
    root = agent(step, say("done"), tools=[request_input])
    async with visit(root) as desk:
        await desk.stream("go")
        asked = [item.request_id for item in desk.session.pending]
        await desk.session.respond(accept(asked[order[0]], {"n": order[0]}))
        if not restarted:
            await desk.stream([accept(asked[number], {"n": number}) for number in order[1:]])
            late = await desk.session.respond(*(accept(each, {"n": "late"}) for each in asked))
            assert {receipt.status for receipt in late} == {"stale"}
    if restarted:
        root = agent(say("done"), tools=[request_input])
        async with visit(root) as desk:
            (again,) = await desk.session.respond(accept(asked[order[0]], {"n": "other"}))
            assert again.status == "stale"
            await desk.stream([accept(asked[number], {"n": number}) for number in order[1:]])
    results = [entry for entry in history(root.model) if entry[0].startswith("result")]
    assert sorted(results) == [(f"result q{number}", f'{{"n": {number}}}') for number in range(3)]
    stored = await desk.executor.session_service.get_session(app_name="root", user_id="local", session_id="s1")
    assert stored is not None
    answers = [response.id for event in stored.events for response in event.get_function_responses()]
    assert sorted(answer or "" for answer in answers) == ["q0", "q1", "q2"]
    assert all(event.id and event.invocation_id and event.timestamp for event in stored.events)
