"""The scripted model: deterministic, by itself and inside ADK."""

from __future__ import annotations

import anyio
import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from agentsession.adapters.adk import (
    ScriptedLlm,
    ScriptExhausted,
    call,
    calls,
    delay,
    error,
    fail,
    hold,
    raw,
    say,
    stream,
    stream_call,
    think,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(text: str = "hi") -> LlmRequest:
    return LlmRequest(contents=[types.UserContent(text)])


async def answers(model: ScriptedLlm, *, streaming: bool = False, text: str = "hi") -> list[LlmResponse]:
    return [response async for response in model.generate_content_async(asking(text), stream=streaming)]


def parts_of(response: LlmResponse) -> list[types.Part]:
    return list(response.content.parts or []) if response.content is not None else []


async def test_steps_answer_calls_in_order() -> None:
    model = ScriptedLlm(script=["one", say("two")])

    texts = [parts_of((await answers(model))[0])[0].text for _ in range(2)]

    assert texts == ["one", "two"]
    assert model.calls_left == 0


async def test_deltas_are_partial_when_adk_streams_and_joined_when_not() -> None:
    model = ScriptedLlm(forever=stream("Hel", "lo"))

    streamed = await answers(model, streaming=True)
    whole = await answers(model)

    assert [(r.partial, parts_of(r)[0].text) for r in streamed] == [(True, "Hel"), (True, "lo"), (False, "Hello")]
    assert [(r.partial, parts_of(r)[0].text) for r in whole] == [(None, "Hello")]


async def test_steps_add_up_within_one_answer() -> None:
    step = think("hm", signature=b"s") + "I look." + call("read", {"path": "a"}, id="c1")

    (response,) = await answers(ScriptedLlm(script=[step]))

    thought, text, made = parts_of(response)
    assert (thought.text, thought.thought, thought.thought_signature) == ("hm", True, b"s")
    assert text.text == "I look."
    assert made.function_call == types.FunctionCall(name="read", args={"path": "a"}, id="c1")


async def test_parallel_calls_are_one_answer() -> None:
    (response,) = await answers(ScriptedLlm(script=[calls(call("a"), call("b"))]))

    assert [part.function_call and part.function_call.name for part in parts_of(response)] == ["a", "b"]


async def test_a_step_used_twice_gives_fresh_parts() -> None:
    """ADK writes the ids it makes into the calls it is given."""
    model = ScriptedLlm(forever=call("a"))
    for response in await answers(model):
        made = parts_of(response)[0].function_call
        assert made is not None
        made.id = "adk-1"

    (again,) = await answers(model)

    found = parts_of(again)[0].function_call
    assert found is not None
    assert found.id is None


async def test_arguments_can_stream() -> None:
    model = ScriptedLlm(script=[stream_call("write", {"text": ["one ", "two"]}, id="c1")])

    *pieces, closing = await answers(model, streaming=True)

    found = [part.function_call for response in pieces for part in parts_of(response)]
    assert [arg.string_value for made in found if made for arg in made.partial_args or []] == ["one ", "two"]
    whole = parts_of(closing)[0].function_call
    assert whole is not None
    assert whole.args == {"text": "one two"}


async def test_usage_is_on_the_closing_response_alone_and_only_what_was_given() -> None:
    model = ScriptedLlm(script=[stream("a").using(input=9, output=4)])

    first, last = await answers(model, streaming=True)

    assert first.usage_metadata is None
    assert last.usage_metadata is not None
    assert (last.usage_metadata.prompt_token_count, last.usage_metadata.total_token_count) == (9, None)


async def test_a_failure_comes_after_what_was_said_before_it() -> None:
    model = ScriptedLlm(script=[stream("par") + fail("gone")])
    seen: list[LlmResponse] = []

    async def read() -> None:
        async for response in model.generate_content_async(asking(), stream=True):
            seen.append(response)

    with pytest.raises(RuntimeError, match="gone"):
        await read()

    assert [parts_of(response)[0].text for response in seen] == ["par"]


async def test_an_exception_as_a_step_is_raised() -> None:
    with pytest.raises(ConnectionError):
        await answers(ScriptedLlm(script=[ConnectionError("no route")]))


async def test_a_code_ends_the_answer() -> None:
    (response,) = await answers(ScriptedLlm(script=[error("SAFETY", "no")]))

    assert (response.error_code, response.error_message, response.content) == ("SAFETY", "no", None)
    assert response.finish_reason == types.FinishReason.SAFETY


async def test_text_may_end_at_the_limit() -> None:
    (response,) = await answers(ScriptedLlm(script=[say("half").finishing("MAX_TOKENS")]))

    assert response.finish_reason == types.FinishReason.MAX_TOKENS


async def test_a_function_gets_the_request() -> None:
    def echo(request: LlmRequest) -> str:
        last = request.contents[-1].parts or []
        return f"you said {last[-1].text}"

    (response,) = await answers(ScriptedLlm(script=[echo]), text="ping")

    assert parts_of(response)[0].text == "you said ping"


async def test_a_coroutine_function_is_awaited() -> None:
    async def later(request: LlmRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return "later"

    (response,) = await answers(ScriptedLlm(script=[later]))

    assert parts_of(response)[0].text == "later"


async def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(TypeError, match="a script item is a Step"):
        await answers(ScriptedLlm(script=[7]))


async def test_a_delay_waits_by_the_function_it_was_given() -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    await answers(ScriptedLlm(script=[delay(2.5) + say("x")], wait=wait))

    assert waited == [2.5]


async def test_a_hold_stops_in_the_middle_until_it_is_let_go() -> None:
    go = anyio.Event()
    model = ScriptedLlm(script=[stream("a") + hold(go.wait) + stream("b")])
    seen: list[str | None] = []

    async def read() -> None:
        async for response in model.generate_content_async(asking(), stream=True):
            seen.append(parts_of(response)[0].text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert seen == ["a"]
            go.set()

    assert seen == ["a", "b", "ab"]


async def test_raw_responses_are_passed_on_as_they_are() -> None:
    odd = LlmResponse(partial=True, turn_complete=True)

    assert await answers(ScriptedLlm(script=[raw(odd, odd)])) == [odd, odd]


async def test_the_requests_are_kept_as_they_were() -> None:
    model = ScriptedLlm(script=["a", "b"])
    request = asking("first")
    [_ async for _ in model.generate_content_async(request)]

    request.contents.append(types.UserContent("second"))

    assert [len(seen.contents) for seen in model.requests] == [1]


async def test_a_script_that_is_too_short_says_what_was_asked() -> None:
    model = ScriptedLlm(model="tiny", script=["one"])
    await answers(model)

    with pytest.raises(ScriptExhausted) as caught:
        await answers(model, text="and now?")

    assert caught.value.parts() == {
        "where": "ScriptedLlm 'tiny'",
        "got": "a call whose last content is user: 'and now?'",
        "expected": "at most 1 model calls",
        "fix": "add a step, or set forever=say(...)",
    }


async def test_no_warning_about_capabilities(recwarn: pytest.WarningsRecorder) -> None:
    assert ScriptedLlm(model="gemini-3").capabilities.output_schema_and_tools is False
    assert not recwarn.list
