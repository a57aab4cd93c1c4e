"""A model whose calls the host answers: as a question, in every shape of agent, with every kind of answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.agent_tool import AgentTool
from google.genai import errors, types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.adapters.adk.driving import Driven, Turn, agent, driven, host_tool, verify
from tests.adapters.adk.genai_models import JSON, model

from agentsession.adapters.adk import MODEL_CALL, AdkExecutor, HostLlm, call, model_answer, say
from agentsession.adapters.adk._gemini_requests import wire_json
from agentsession.adapters.adk._gemini_responses import answer_with
from agentsession.protocol import (
    Answer,
    ConfigurationError,
    Constraints,
    ElicitationRequest,
    HostCapabilities,
    MemoryRecordStore,
    OpenOptions,
    SchemaError,
    ToolRequest,
    accept,
    cancel,
    decline,
    grant,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own sequential, parallel and loop agents
]


RESPONSES = model(
    types.GenerateContentResponse,
    6,
    leave_out=frozenset({"sdk_http_response", "parsed", "automatic_function_calling_history"}),
).map(wire_json)


def hosted(name: str = "root", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=HostLlm(), **fields)


def asked(desk: Driven) -> list[ElicitationRequest]:
    """The model calls that wait, by agent."""
    found = [item for item in desk.session.pending if isinstance(item, ElicitationRequest) and item.kind == MODEL_CALL]
    return sorted(found, key=lambda item: item.agent_id or "")


def last_text(question: ElicitationRequest) -> str:
    assert isinstance(question.context, dict)
    return str(question.context["contents"][-1]["parts"][-1].get("text"))


Say = Callable[[ElicitationRequest], Any]


async def run(desk: Driven, plays: Say, message: Any = "go") -> Turn:
    """A whole turn in which ``plays`` is the model, host tools give "done" and own tools are granted."""

    def reply(item: ToolRequest | ElicitationRequest) -> Answer:
        if isinstance(item, ElicitationRequest):
            return accept(item.request_id, plays(item))
        return grant(item.request_id) if item.needs == "grant" else result(item.request_id, "done")

    return await desk.turn(message, reply)


# -- one call ---------------------------------------------------------------------------------------------------------


async def test_a_model_call_is_a_question_with_the_request_and_the_stream_waits() -> None:
    root = hosted(instruction="Be brief.", generate_content_config=types.GenerateContentConfig(temperature=0.5))
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("hello")
        (question,) = asked(desk)
        assert first.reason == "input_required"
        assert question.agent_id == "root"
        assert question.message == "What does the model of root answer?\nuser: hello\nit may call: look"
        assert isinstance(question.context, dict)
        assert question.context["contents"] == [{"role": "user", "parts": [{"text": "hello"}]}]
        assert question.context["generationConfig"] == {"temperature": 0.5}
        assert "Be brief." in json.dumps(question.context["systemInstruction"])
        declared = question.context["tools"][0]["functionDeclarations"]
        assert [item["name"] for item in declared] == ["look"]
        second = await desk.stream(accept(question.request_id, "Hi."))
        assert (second.reason, second.texts) == ("completed", ["Hi."])


@pytest.mark.parametrize(
    ("content", "texts", "tools"),
    [
        ("Hi.", ["Hi."], []),
        ({"text": "Hi."}, ["Hi."], []),
        (
            {"text": "I look.", "calls": [{"name": "look", "args": {"at": 1}}, {"name": "look"}]},
            ["I look."],
            ["look", "look"],
        ),
        ({"calls": [{"name": "look", "id": "c1"}]}, [], ["look"]),
        ({"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}]}, ["Hi."], []),
        (
            [
                {"candidates": [{"content": {"role": "model", "parts": [{"text": "H"}]}}]},
                {"candidates": [{"content": {"role": "model", "parts": [{"text": "i."}]}, "finishReason": "STOP"}]},
            ],
            ["Hi."],
            [],
        ),
    ],
)
async def test_an_answer_may_have_any_of_its_forms(content: Any, texts: list[str], tools: list[str]) -> None:
    async with driven(hosted(), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        turn = await desk.stream(accept(desk.pending(MODEL_CALL), content))
        assert turn.texts == texts
        assert [item.name for item in turn.of("tool_request") if not item.partial] == tools


async def test_chunks_are_told_as_they_would_stream() -> None:
    chunks = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]} for text in ("Hel", "lo ", "you")
    ]
    chunks[-1]["usageMetadata"] = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}  # type: ignore[assignment]  # JSON
    async with driven(hosted()) as desk:
        await desk.stream("go")
        turn = await desk.stream(accept(desk.pending(MODEL_CALL), chunks))
        deltas = [item.content[0].text for item in turn.of("message") if item.partial]
        assert (deltas, turn.texts) == (["Hel", "lo ", "you"], ["Hello you"])
        assert [(item.input_tokens, item.output_tokens) for item in turn.of("usage")] == [(9, 3)]


async def test_without_streaming_the_whole_alone_is_told() -> None:
    async with driven(hosted(), execution={"streaming": False}) as desk:
        await desk.stream("go")
        turn = await desk.stream(accept(desk.pending(MODEL_CALL), {"text": "Hi."}))
        assert [item.partial for item in turn.of("message")] == [False]


async def test_the_next_call_is_asked_with_the_tool_s_result() -> None:
    def plays(question: ElicitationRequest) -> Any:
        parts = question.context["contents"][-1]["parts"]
        found = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return f"It says {found[0]['result']}." if found else {"calls": [{"name": "look"}]}

    async with driven(hosted(), tools=[host_tool("look")]) as desk:
        turn = await run(desk, plays)
        assert (turn.reason, turn.texts) == ("completed", ["It says done."])


async def test_a_person_is_told_what_the_tool_gave() -> None:
    async with driven(hosted(), tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream(accept(desk.pending(MODEL_CALL), {"calls": [{"name": "look"}]}))
        await desk.stream(result(desk.pending("look"), {"sky": "blue", "token": "s3cret", "log": "x" * 1000}))
        (question,) = asked(desk)
        _, told, _ = question.message.splitlines()
        assert told.startswith('result of look: {"sky":"blue","token":"[redacted]","log":"xxx')
        assert len(told) == 500


# -- answers that are none --------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-02", "LIFE-11")
@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (decline, "MODEL_CALL_DECLINED", "PERMISSION_DENIED"),
        (cancel, "MODEL_CALL_CANCELLED", "CANCELLED"),
    ],
)
async def test_a_declined_call_ends_with_a_code_and_nothing_is_said(answer: Any, code: str, status: str) -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        turn = await desk.stream(answer(desk.pending(MODEL_CALL)))
        assert (turn.reason, turn.texts) == ("failed", [])
        assert [(item.code, item.status, item.fatal) for item in turn.of("error")] == [(code, status, False)]
        again = await desk.stream("again")
        assert (again.reason, len(asked(desk))) == ("input_required", 1)


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize(
    "content",
    [
        None,
        5,
        [],
        {},
        {"words": "hi"},
        {"text": 5},
        {"calls": [{"args": {}}]},
        {"calls": [{"name": ""}]},
        {"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "a/b", "data": "?"}}]}}]},
        {"candidates": [{"content": {"parts": [{"thoughtSignature": "a"}]}}]},
        {"candidates": [{"groundingMetadata": {"webSearchQueries": 5}}]},
        {"error": {"code": 200}},
        [{"candidates": []}, "hi"],
    ],
)
async def test_an_answer_that_no_model_gives_is_invalid_and_the_call_still_waits(content: Any) -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        question = desk.pending(MODEL_CALL)
        (receipt,) = await desk.session.respond(accept(question, content))
        assert (receipt.status, receipt.rule) == ("invalid", "HITL-08")
        assert receipt.reason
        turn = await desk.stream(accept(question, "Hi."))
        assert turn.texts == ["Hi."]


async def test_the_reason_of_a_refused_answer_names_the_place() -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        content = {"candidates": [{"groundingMetadata": {"webSearchQueries": 5}}]}
        (receipt,) = await desk.session.respond(accept(desk.pending(MODEL_CALL), content))
        assert "/candidates/0/groundingMetadata/webSearchQueries" in (receipt.reason or "")


@pytest.mark.rule("HITL-07")
async def test_a_host_that_cannot_be_asked_gets_an_error_and_no_answer_is_invented() -> None:
    options = OpenOptions(host=HostCapabilities(elicitation_kinds=["tool_confirmation"]))
    async with driven(hosted(), options=options) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("failed", [])
        assert [item.code for item in turn.of("error")] == ["MODEL_CALL_CANCELLED"]
        assert [item.action for item in turn.of("elicitation_response")] == ["cancel"]


@pytest.mark.parametrize(("code", "status"), [(429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE")])
async def test_an_error_of_the_provider_may_be_played(code: int, status: str) -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        content = {"error": {"code": code, "status": status, "message": "key=s3cret"}}
        turn = await desk.stream(accept(desk.pending(MODEL_CALL), content))
        assert turn.reason == "failed"
        (found,) = turn.of("error")
        assert (found.status, "s3cret" in found.message) == (status, False)


@pytest.mark.parametrize(("finish", "reason"), [("SAFETY", "refusal"), ("MAX_TOKENS", "max_tokens")])
async def test_a_finish_reason_ends_the_stream_as_the_provider_s_would(finish: str, reason: str) -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        turn = await desk.stream(accept(desk.pending(MODEL_CALL), {"candidates": [{"finishReason": finish}]}))
        assert turn.reason == reason


# -- where agents are -------------------------------------------------------------------------------------------------


async def test_an_agent_that_is_handed_over_to_is_asked_for_by_its_name() -> None:
    root = hosted(sub_agents=[hosted("helper", description="Helps.")])

    def plays(question: ElicitationRequest) -> Any:
        if question.agent_id == "helper":
            return "At your service."
        return {"calls": [{"name": "transfer_to_agent", "args": {"agent_name": "helper"}}]}

    async with driven(root) as desk:
        turn = await run(desk, plays)
        assert turn.texts == ["At your service."]
        assert [item.agent_id for item in turn.of("elicitation_request")] == ["root", "helper"]


@pytest.mark.rule("HITL-10")
async def test_a_child_of_an_agent_tool_is_asked_for_on_its_own_thread() -> None:
    child = hosted("child", description="Knows.")
    root = agent(call("child", {"request": "what?"}, id="c1"), say("so it is"), tools=[AgentTool(child)])
    async with driven(root) as desk:
        first = await desk.stream("go")
        (question,) = asked(desk)
        assert (first.reason, question.agent_id, question.thread_id) == ("input_required", "child", "child")
        assert last_text(question) == "what?"
        turn = await desk.stream(accept(question.request_id, "42"))
        assert [item.data for item in turn.of("tool_response")] == ["42"]
        assert turn.texts == ["42", "so it is"]


@pytest.mark.rule("TOOL-07")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_parallel_agents_are_asked_side_by_side_and_answered_in_any_order(order: tuple[int, int]) -> None:
    root = ParallelAgent(name="root", sub_agents=[hosted("left"), hosted("right")])
    async with driven(root) as desk:
        await desk.stream("go")
        questions = asked(desk)
        assert [item.thread_id for item in questions] == ["root.left", "root.right"]
        between = await desk.stream(accept(questions[order[0]].request_id, f"I am {order[0]}"))
        assert between.reason == "input_required"
        turn = await desk.stream(accept(questions[order[1]].request_id, f"I am {order[1]}"))
        assert (between.texts, turn.texts, turn.reason) == ([f"I am {order[0]}"], [f"I am {order[1]}"], "completed")


async def test_a_model_call_and_a_tool_of_another_branch_wait_together() -> None:
    looks = agent(call("look", id="c1"), say("seen"), name="left")
    root = ParallelAgent(name="root", sub_agents=[looks, hosted("right")])
    async with driven(root, tools=[host_tool("look")]) as desk:
        first = await desk.stream("go")
        assert (first.reason, len(desk.session.pending)) == ("input_required", 2)
        turn = await desk.stream([result(desk.pending("look"), 1), accept(desk.pending(MODEL_CALL), "right")])
        assert sorted(turn.texts) == ["right", "seen"]


async def test_a_pipeline_asks_for_each_of_its_agents_in_turn() -> None:
    inner = LoopAgent(name="loop", sub_agents=[hosted("again")], max_iterations=2)
    root = SequentialAgent(name="root", sub_agents=[hosted("first"), inner])
    async with driven(root) as desk:
        turn = await run(desk, lambda question: f"{question.agent_id} speaks")
        assert turn.texts == ["first speaks", "again speaks", "again speaks"]


@pytest.mark.rule("LIFE-04")
async def test_a_label_of_the_user_s_own_names_no_agent() -> None:
    config = types.GenerateContentConfig(labels={"adk_agent_name": "somebody else"})
    async with driven(hosted(generate_content_config=config)) as desk:
        await desk.stream("go")
        (question,) = asked(desk)
        assert question.agent_id == "root"
        assert (await desk.stream(accept(question.request_id, "Hi."))).texts == ["Hi."]


@pytest.mark.parametrize("parked", [True, False])
async def test_model_calls_are_asked_between_calls_of_the_host_s_tools(parked: bool) -> None:
    def plays(question: ElicitationRequest) -> Any:
        return "done" if "functionResponse" in json.dumps(question.context) else {"calls": [{"name": "look"}] * 2}

    async with driven(hosted(), tools=[host_tool("look")], parked=parked) as desk:
        turn = await run(desk, plays)
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        assert desk.responses() == {"look": "completed completed"}


# -- the turn ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-06", "CTL-01", "CTL-05")
async def test_an_abort_settles_the_question_and_the_next_turn_works() -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        question = desk.pending(MODEL_CALL)
        with anyio.fail_after(10):
            await desk.session.abort("enough")
        assert desk.session.pending == []
        (receipt,) = await desk.session.respond(accept(question, "late"))
        assert receipt.status == "stale"
        turn = await run(desk, lambda _: "Hi.", "again")
        assert turn.texts == ["Hi."]


async def test_a_new_message_settles_the_question() -> None:
    async with driven(hosted()) as desk:
        await desk.stream("go")
        turn = await run(desk, last_text, "something else")
        assert turn.texts == ["something else"]
        assert desk.types("stream_end") == ["stream_end"] * 4  # waits, settled, waits, completed


@pytest.mark.rule("CTL-08")
async def test_asked_calls_count_against_the_limit_of_model_calls() -> None:
    async with driven(hosted(), tools=[host_tool("look")], execution={"limits": Constraints(max_llm_calls=2)}) as desk:
        turn = await run(desk, lambda _: {"calls": [{"name": "look"}]})
        assert turn.reason == "max_llm_calls"
        assert desk.types("elicitation_request") == ["elicitation_request"] * 2


async def test_an_early_answer_goes_on_in_the_same_stream() -> None:
    async with driven(hosted()) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as turn:
                async for event in turn:
                    if isinstance(event, ElicitationRequest):
                        await desk.session.respond(accept(event.request_id, "at once"))
        assert turn.end is not None
        assert turn.end.reason == "completed"
        assert desk.types("stream_end") == ["stream_end"]


@pytest.mark.rule("PER-01")
async def test_the_question_is_named_as_one_that_does_not_survive_the_process_and_a_load_settles_it() -> None:
    store = MemoryRecordStore()
    async with driven(hosted(), store=store) as desk:
        first = await desk.stream("go")
        assert first.end.data is not None
        assert first.end.data["volatile"] == [desk.pending(MODEL_CALL)]
        session_id, service = desk.session.session_id, desk.executor.session_service
    async with AdkExecutor(hosted(), store=store, session_service=service) as executor:
        session = await executor.load(session_id)
        assert session.pending == []
        verify(session)
        await session.aclose()


async def test_a_changed_model_is_named_in_the_request() -> None:
    from agentsession.protocol import SessionConfig

    async with driven(hosted()) as desk:
        await desk.session.update(SessionConfig(model="bigger"))
        await desk.stream("go")
        (question,) = asked(desk)
        assert isinstance(question.context, dict)
        assert question.context["model"] == "bigger"


@pytest.mark.rule("SEC-01")
async def test_no_secret_of_the_request_is_in_the_record() -> None:
    config = types.GenerateContentConfig(http_options=types.HttpOptions(headers={"Authorization": "Bearer s3cret-1"}))
    root = hosted(generate_content_config=config, instruction="Look at https://a.example/x?api_key=s3cret-2 .")
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")
        await desk.stream(accept(desk.pending(MODEL_CALL), {"calls": [{"name": "look"}]}))
        await desk.stream(result(desk.pending("look"), {"token": "s3cret-3", "sky": "blue"}))
        (question,) = asked(desk)
        shown = json.dumps(question.to_wire())
        assert [secret for secret in ("s3cret-1", "s3cret-2", "s3cret-3") if secret in shown] == []
        assert "blue" in shown
        await desk.stream(accept(question.request_id, "done"))


async def test_a_call_outside_a_session_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as caught:
        [_ async for _ in HostLlm().generate_content_async(LlmRequest(contents=[types.UserContent("hi")]))]

    assert caught.value.id == "no-session"


@pytest.mark.rule("HITL-08")
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.lists(RESPONSES, min_size=1, max_size=3) | JSON, st.booleans())
async def test_what_is_taken_as_an_answer_can_be_given_to_adk(content: Any, streaming: bool) -> None:
    try:
        chunks = model_answer(content)
    except SchemaError:
        return
    with contextlib.suppress(errors.APIError):
        heard = [response async for response in answer_with(chunks, streaming=streaming)]
        assert all(response.partial for response in heard[:-1])


def test_an_answer_that_is_none_is_one_error_with_its_place() -> None:
    with pytest.raises(SchemaError) as caught:
        model_answer(
            [{"candidates": []}, {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": 1}}]}}]}]
        )

    assert caught.value.pointer.startswith("/")
    assert caught.value.expected
