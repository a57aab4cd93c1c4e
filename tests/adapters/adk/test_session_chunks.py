"""The chunks of an answer: one record, whether ADK makes an event of each or not; and who looks at them gets them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import pytest
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps.app import App
from google.adk.events.event import Event as AdkEvent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import BuiltInPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.adapters.adk.driving import LIMIT_S, agent, driven
from tests.adapters.adk.hooking import Desk
from tests.adapters.adk.strategies import any_text
from tests.adapters.adk.trees import parallel, sequential
from tests.tracing import record_nothing

from agentsession.adapters.adk import ScriptedLlm, call, error, fail, raw, say, stream, stream_call, think
from agentsession.adapters.adk._live import LiveRun
from agentsession.adapters.adk._model import Step
from agentsession.adapters.base import RunContext
from agentsession.protocol import Event, Message, RunEnded, Text, Thought, modify

pytestmark = pytest.mark.anyio

WORDS = [f"word{number} " for number in range(50)]


class Watcher(BasePlugin):
    """A plugin that looks at every event, and so has to get every chunk."""

    def __init__(self) -> None:
        super().__init__(name="watcher")
        self.partial = 0

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: AdkEvent) -> None:
        self.partial += bool(event.partial)


class ModelWatcher(BasePlugin):
    """A plugin that looks at every response of a model."""

    def __init__(self) -> None:
        super().__init__(name="model_watcher")
        self.partial = 0

    async def after_model_callback(self, *, callback_context: Any, llm_response: LlmResponse) -> None:
        self.partial += bool(llm_response.partial)


class Loud(BaseAgent):
    """A class of the user's that changes what its agent says."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        async for event in self.sub_agents[0].run_async(ctx):
            for part in (event.content.parts if event.content is not None else None) or ():
                part.text = (part.text or "").upper()
            yield event


@pytest.fixture(autouse=True)
def _nobody_records(monkeypatch: pytest.MonkeyPatch) -> None:
    record_nothing(monkeypatch)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[AdkEvent]:
    """The partial events that ADK makes."""
    made: list[AdkEvent] = []
    take_delta = LiveRun.take_delta

    def counted(live: LiveRun, event: AdkEvent) -> bool:
        if event.partial and not any(event is one for one in made[-1:]):  # one that has to wait is tried twice
            made.append(event)
        return take_delta(live, event)

    monkeypatch.setattr(LiveRun, "take_delta", counted)
    return made


def deltas(events: Sequence[Event]) -> list[str]:
    return [
        "".join(part.text for part in event.content if isinstance(part, (Text, Thought)))
        for event in events
        if isinstance(event, Message) and event.partial
    ]


async def test_adk_makes_no_event_of_the_chunks_that_go_on(shown: list[AdkEvent]) -> None:
    async with driven(agent(stream(*WORDS))) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == WORDS
    assert turn.texts == ["".join(WORDS)]
    assert len(shown) == 2  # the second is as long as all before it, and so may be a repeat


@pytest.mark.parametrize("watcher", [Watcher, ModelWatcher])
async def test_a_plugin_that_looks_at_chunks_gets_them_all(watcher: type[Watcher | ModelWatcher]) -> None:
    plugin = watcher()
    async with driven(App(name="app", root_agent=agent(stream(*WORDS)), plugins=[plugin])) as desk:
        turn = await desk.turn()

    assert plugin.partial == len(WORDS)
    assert deltas(turn.events) == WORDS


async def test_an_agent_s_own_callback_gets_and_changes_every_chunk() -> None:
    def loud(callback_context: Any, llm_response: LlmResponse) -> LlmResponse:
        assert llm_response.content is not None
        text = "".join(part.text or "" for part in llm_response.content.parts or ())
        content = types.Content(role="model", parts=[types.Part(text=text.upper())])
        return LlmResponse(content=content, partial=llm_response.partial)

    async with driven(agent(stream(*WORDS), after_model_callback=loud)) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == [word.upper() for word in WORDS]


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_callback_that_is_set_just_before_the_call_gets_every_chunk(hooked: bool) -> None:
    seen: list[LlmResponse] = []

    def look_on(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        asked: Any = callback_context._invocation_context.agent
        asked.after_model_callback = lambda callback_context, llm_response: seen.append(llm_response)

    root = agent(stream(*WORDS), before_model_callback=look_on)
    async with driven(root, hooks=again() if hooked else None) as desk:
        turn = await desk.turn()

    assert len([response for response in seen if response.partial]) == len(WORDS)
    assert deltas(turn.events) == WORDS


async def test_a_class_of_the_user_s_gets_and_changes_every_chunk() -> None:
    async with driven(Loud(name="loud", sub_agents=[agent(stream(*WORDS))])) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == [word.upper() for word in WORDS]


LOOKERS: dict[str, Callable[[], Any]] = {
    "a planner": lambda: agent(stream(*WORDS), planner=BuiltInPlanner(thinking_config=types.ThinkingConfig())),
    "a class of the user's beside": lambda: sequential(
        agent(stream(*WORDS)), Loud(name="loud", sub_agents=[agent("b", name="below")])
    ),
    "a time limit, in which waiting for readers would count": lambda: agent(stream(*WORDS), timeout=60.0),
}


@pytest.mark.parametrize("why", LOOKERS)
async def test_adk_gets_every_chunk_where_something_may_look_at_them(why: str, shown: list[AdkEvent]) -> None:
    async with driven(LOOKERS[why](), allows_node_timeouts=True) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == WORDS
    assert len(shown) == len(WORDS)


async def test_adk_gets_every_chunk_where_spans_are_recorded(
    shown: list[AdkEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)

    async with driven(agent(stream(*WORDS))) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == WORDS
    assert len(shown) == len(WORDS)


# --- the same record --------------------------------------------------------------------------------------------------


def chunk(text: str, **fields: Any) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=True, **fields)


def _raw(texts: list[str], fields: dict[str, Any]) -> Step:
    whole = LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(texts))]), partial=False)
    return raw(*(chunk(text, **(fields if at % 2 else {})) for at, text in enumerate(texts)), whole)


_texts = st.lists(any_text, min_size=1, max_size=6)
_usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=2)
_pieces = st.one_of(
    st.builds(lambda texts: stream(*texts), _texts),
    st.builds(lambda texts: think(*texts), _texts),
    st.builds(lambda texts: think(*texts, signature=b"s"), _texts),
    st.just(call("look", {"path": "a"})),
    st.just(stream_call("look", {"path": ["a", "b"]})),
)
_fields = st.sampled_from([{}, {"usage_metadata": _usage}, {"custom_metadata": {"k": 1}}, {"interrupted": True}])
_ends = st.sampled_from([Step(), error("MAX_TOKENS"), error("SAFETY"), fail("gone"), stream("more")])
_steps = st.one_of(
    st.builds(lambda pieces, end: sum(pieces, Step()) + end, st.lists(_pieces, min_size=1, max_size=4), _ends),
    st.builds(_raw, _texts, _fields),
    # An answer that is followed by another within one call, as models do before a call.
    st.builds(lambda one, two: Step(_raw(one, {}).actions + _raw(two, {}).actions), _texts, _texts),
)


_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def outline(events: Sequence[Event]) -> list[str]:
    """The events as they are, but for what differs from run to run; ids are told by the order of their first sight."""
    numbers: dict[str, str] = {}
    out: list[str] = []
    for event in events:
        wire = event.to_wire()
        for name in ("timestamp", "id", "seq", "sessionId", "streamId", "turnId", "_meta", "durationMs"):
            wire.pop(name, None)
        out.append(_IDS.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), json.dumps(wire)))
    return out


def look(path: str) -> str:
    """Look at a file."""
    return f"looked at {path}"


async def _record(root: Any, *plugins: BasePlugin, hooks: Any = None) -> list[str]:
    async with driven(App(name="app", root_agent=root, plugins=list(plugins)), hooks=hooks) as desk:
        turn = await desk.turn()
        return outline(turn.events)


def bare(**fields: Any) -> LlmResponse:
    """A response that holds nothing; ADK makes an event of a partial one if it says something else."""
    return LlmResponse(partial=True, **fields)


_BETWEEN: dict[str, LlmResponse] = {
    "an event of ADK's": bare(error_code="ODD"),
    "an event of ADK's with sources": bare(grounding_metadata=types.GroundingMetadata(web_search_queries=["q"])),
    "no event of ADK's": bare(usage_metadata=_usage),
    "an end that ADK makes no event of": LlmResponse(partial=False),
}


@pytest.mark.parametrize("between", _BETWEEN)
async def test_the_record_is_the_same_where_a_response_in_between_holds_nothing(between: str) -> None:
    texts = ["a ", "bb ", "ccc ", "dddd ", "eeeee ", "ffffff "]
    chunks = [chunk(text, **({"usage_metadata": _usage} if text == "dddd " else {})) for text in texts]
    chunks.insert(2, _BETWEEN[between])
    whole = LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(texts))]), partial=False)

    def root() -> LlmAgent:
        return agent(raw(*(response.model_copy() for response in chunks), whole))

    assert await _record(root()) == await _record(root(), Watcher())


async def test_a_chunk_is_not_taken_for_one_of_an_answer_that_has_had_no_end() -> None:
    def root() -> LlmAgent:
        ends = LlmResponse(partial=False)  # of which ADK makes no event
        return agent(raw(chunk("a "), ends, chunk("bb "), chunk("ccc "), chunk("dddd ")))

    assert await _record(root()) == await _record(root(), Watcher())


@settings(max_examples=25, deadline=None)
@given(st.lists(_steps, min_size=1, max_size=3))
def test_the_record_is_the_same_whether_adk_sees_the_chunks_or_not(steps: list[Step]) -> None:
    def root() -> LlmAgent:
        model = ScriptedLlm(script=list(steps), forever=say("done"))
        return LlmAgent(name="root", model=model, tools=[look])

    assert anyio.run(_record, root()) == anyio.run(_record, root(), Watcher())


def again() -> Desk:
    """Hooks that have a failed call made again, once."""
    return Desk(on_model_error=lambda payload: modify(after_s=0.0) if payload.attempt == 1 else None)


@pytest.mark.parametrize("wrong", [fail("gone"), Step()])
async def test_the_record_is_the_same_where_a_call_is_made_again(wrong: Step) -> None:
    def root() -> LlmAgent:
        return agent(stream("a ", "b ", "c ") + wrong, stream("d ", "e ", "f "))

    direct, through_adk = await _record(root(), hooks=again()), await _record(root(), Watcher(), hooks=again())
    # Where ADK has the chunks, some still queue when the hook is told of the failure behind them.
    assert [line for line in direct if "on_model_error" not in line] == [
        line for line in through_adk if "on_model_error" not in line
    ]


async def test_a_call_that_is_made_again_is_spared_its_chunks_too(shown: list[AdkEvent]) -> None:
    async with driven(agent(stream(*WORDS) + fail("gone"), stream(*WORDS)), hooks=again()) as desk:
        turn = await desk.turn()

    assert deltas(turn.events) == WORDS * 2
    assert len(shown) == 4


async def test_branches_that_stream_at_once_keep_their_own_chunks(shown: list[AdkEvent]) -> None:
    names = [f"branch{number}" for number in range(3)]
    root = parallel(*(agent(stream(*(f"{name}.{word}" for word in WORDS)), name=name) for name in names))
    async with driven(root) as desk:
        turn = await desk.turn()

    for name in names:
        own = [event for event in turn.events if isinstance(event, Message) and event.agent_id == name]
        assert deltas(own) == [f"{name}.{word}" for word in WORDS]
        assert [event.index for event in own if event.partial] == list(range(len(WORDS)))
    assert len(shown) < len(names) * len(WORDS) / 2


# --- the agent in the run's context -----------------------------------------------------------------------------------


async def test_a_callback_before_the_call_still_chooses_the_agent_s_model() -> None:
    def choose(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        chosen: Any = callback_context._invocation_context.agent
        chosen.model = ScriptedLlm(script=[stream("another ", "one")])

    async with driven(agent(say("own"), before_model_callback=choose)) as desk:
        turn = await desk.turn()

    assert turn.texts == ["another one"]


async def test_nobody_is_left_with_the_copy_where_a_callback_answers_in_the_model_s_place() -> None:
    seen: list[Any] = []
    in_model: list[LlmRequest] = []

    def answers(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse | None:
        if in_model:
            return None
        in_model.append(llm_request)
        made = types.FunctionCall(name="looking", args={})
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=made)]))

    def looking(tool_context: ToolContext) -> str:
        """Look at the agent."""
        seen.append(tool_context._invocation_context.agent)
        return "seen"

    def remember(callback_context: CallbackContext) -> None:
        seen.append(callback_context._invocation_context.agent)

    root = agent(
        say("done"),
        tools=[looking],
        before_agent_callback=remember,
        before_model_callback=answers,
        after_agent_callback=remember,
    )
    async with driven(root) as desk:
        turn = await desk.turn()

    assert turn.texts == ["done"]
    own, in_tool, after = seen
    assert in_tool is own
    assert after is own


async def test_the_agent_is_its_own_again_after_the_last_answer_of_a_callback() -> None:
    seen: list[Any] = []

    def remember(callback_context: CallbackContext) -> None:
        seen.append(callback_context._invocation_context.agent)

    def answers(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse:
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="kept")]))

    root = agent(before_agent_callback=remember, before_model_callback=answers, after_agent_callback=remember)
    async with driven(root) as desk:
        turn = await desk.turn()

    assert turn.texts == ["kept"]
    own, after = seen
    assert after is own


# --- ends and readers -------------------------------------------------------------------------------------------------


class Endless(BaseLlm):
    """A model that talks until it is stopped."""

    model: str = "endless"
    made: int = 0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        while True:
            await anyio.sleep(0)
            self.made += 1
            yield chunk(f"word{self.made} ")


async def test_an_abort_ends_an_answer_in_the_middle() -> None:
    model = Endless()
    async with driven(LlmAgent(name="root", model=model)) as desk:
        with anyio.fail_after(LIMIT_S):
            async with desk.session.stream("go") as reading:
                events: list[Event] = []
                async for event in reading:
                    events.append(event)
                    if len(deltas(events)) == 100:
                        await desk.session.abort()

    assert reading.end is not None
    assert reading.end.reason == "aborted"
    (closing,) = [e for e in events if isinstance(e, Message) and not e.partial and e.source == "agent"]
    assert closing.interrupted
    assert "".join(deltas(events)) == "".join(part.text for part in closing.content if isinstance(part, Text))


async def test_a_reader_that_stops_holds_the_model() -> None:
    model = Endless()
    async with driven(LlmAgent(name="root", model=model)) as desk:
        async with desk.session.stream("go") as reading:
            await anext(aiter(reading))
            await anyio.wait_all_tasks_blocked()
            held = model.made
            await anyio.wait_all_tasks_blocked()
            assert model.made == held < 1000
            await desk.session.abort()


async def test_a_run_that_is_settled_while_its_model_is_held_is_no_failure_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, asked = Endless(), list[Any]()

    async def settled(context: RunContext) -> None:
        if model.made > 50:  # only the model waits here then, with a chunk that ADK does not see
            raise RunEnded("the turn was settled")

    monkeypatch.setattr(RunContext, "ready", settled)
    hooks = Desk(on_model_error=asked.append)
    async with driven(LlmAgent(name="root", model=model), hooks=hooks) as desk:
        with anyio.fail_after(LIMIT_S):
            turn = await desk.turn()

    assert asked == []
    assert turn.end.reason == "failed"
