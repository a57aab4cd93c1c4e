"""The router under failures at random, with a real ADK agent: bounded calls, and a record that says what was called."""

from __future__ import annotations

import random
from typing import Any

import anyio
from google.adk.agents import LlmAgent
from google.genai import errors as genai_errors
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, fail, say, stream
from agentsession.host import Host, allow_all
from agentsession.host.models import ModelRouter
from agentsession.protocol import Event, SessionUpdate, StreamEnd

STATUS = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 404: "NOT_FOUND", 500: "INTERNAL", 400: "INVALID_ARGUMENT"}


def provider(code: int, text: str = "") -> Exception:
    kind = genai_errors.ClientError if code < 500 else genai_errors.ServerError
    return kind(code, {"error": {"code": code, "status": STATUS[code], "message": text}})


ANSWERS: dict[str, Any] = {
    "say": lambda: say("done"),
    "call": lambda: call("look"),
    "crowded": lambda: provider(503),
    "broken": lambda: provider(500),
    "spent": lambda: provider(429, "limit: 0"),
    "gone": lambda: provider(404),
    "wrong": lambda: provider(400),
    "half": lambda: stream("half", " of it") + fail(provider(503)),
    "network": lambda: ConnectionError("reset"),
}


def look() -> str:
    """Look."""
    return "looked"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(sorted(ANSWERS)), min_size=12, max_size=12), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_calls_are_bounded_and_the_record_names_each_model_that_was_called(scripts: list[list[str]], seed: int) -> None:
    names = ["a", "b", "c"][: len(scripts)]
    called: list[tuple[int, str]] = []
    events: list[Event] = []
    turns = 2

    def counted(name: str, item: str) -> Any:
        def answer(_: Any) -> Any:
            called.append((len(events), name))
            return ANSWERS[item]()

        return answer

    models = {
        name: ScriptedLlm(model=name, script=[counted(name, item) for item in script], forever=say("enough"))
        for name, script in zip(names, scripts, strict=True)
    }

    async def no_wait(seconds: float) -> None:
        assert 0 < seconds <= 39

    async def run() -> None:
        router = ModelRouter(names[1:], clock=lambda: 0.0, rng=random.Random(seed))
        host = Host(policy=allow_all, hooks=[router], observer=events.append, loop_detection=False)
        executor = AdkExecutor(
            LlmAgent(name="root", model=models["a"], tools=[look]), models=models, retry_wait=no_wait
        )
        with anyio.fail_after(20):
            async with executor, host.session(executor) as session:
                for _ in range(turns):
                    await host.run_turn(session, "go")

    anyio.run(run)
    ends = [event.reason for event in events if isinstance(event, StreamEnd)]
    assert len(ends) == turns
    assert set(ends) <= {"completed", "failed"}
    _check_record(events, called)
    answers = sum(event.type in ("tool_request", "stream_end") for event in events) + 2
    assert len(called) <= answers * (10 + len(names))
    assert "half of it" not in [_text(event) for event in events if event.type == "message" and _is_closed(event)]


def _check_record(events: list[Event], called: list[tuple[int, str]]) -> None:
    """The record says of each call, before its answer, which model it went to."""
    told = [(event.seq, str(event.model)) for event in events if isinstance(event, SessionUpdate) and event.model]
    changes = ["a"]
    for _, name in called:
        if name != changes[-1]:
            changes.append(name)
    assert [name for _, name in told] == changes[1:]


def _is_closed(event: Any) -> bool:
    return event.source == "agent" and not event.partial and not event.interrupted


def _text(event: Any) -> str:
    return "".join(getattr(part, "text", "") for part in event.content)
