"""What a run is handed of questions for input: refused ones without the schema that ADK would hold the refusal to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps.app import App
from google.adk.events.event import Event as AdkEvent
from google.genai import types
from tests.adapters.adk.driving import agent
from tests.adapters.adk.services import SERVICES, session_service

from agentsession.adapters.adk import say
from agentsession.adapters.adk._sessions import RecentHistory, RecentSessions

pytestmark = pytest.mark.anyio

KEY: Any = {"app_name": "root", "user_id": "u", "session_id": "s"}
FORM = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def asked(call_id: str) -> AdkEvent:
    args = {"message": "Where to?", "response_schema": FORM}
    part = types.Part(function_call=types.FunctionCall(id=call_id, name="adk_request_input", args=args))
    return AdkEvent(author="root", content=types.Content(role="model", parts=[part]))


def answered(call_id: str, response: dict[str, Any]) -> AdkEvent:
    made = types.FunctionResponse(id=call_id, name="adk_request_input", response=response)
    return AdkEvent(author="user", content=types.Content(role="user", parts=[types.Part(function_response=made)]))


def schemas(events: Sequence[AdkEvent]) -> list[str]:
    """The argument under which each question has its schema."""
    return [
        key for event in events for call in event.get_function_calls() for key in (call.args or {}) if "chema" in key
    ]


async def nothing(session: object, event: object) -> None:
    del session, event


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize("window", [None, 1])
async def test_a_run_is_handed_refused_questions_without_their_schema_and_the_store_keeps_it(
    kind: str, window: int | None, tmp_path: Path
) -> None:
    app = App(name="root", root_agent=agent(say("done")))
    async with session_service(kind, tmp_path) as service:
        tapped = RecentSessions(service, nothing, nothing, app, window=window)
        session = await service.create_session(**KEY)
        for event in (
            asked("q1"),
            answered("q1", {"error": "decline"}),
            asked("q1"),  # a node of a graph asks under one id for ever
            answered("q1", {"to": "Rome"}),
            asked("q2"),
            answered("q2", {"error": "cancel"}),
            asked("q3"),
        ):
            await service.append_event(session, event)

        handed = await tapped.get_session(**KEY, config=RecentHistory())
        stored = await service.get_session(**KEY)

        assert handed is not None
        assert stored is not None
        assert schemas(handed.events) == ["responseSchema", "response_schema", "responseSchema", "response_schema"]
        assert schemas(stored.events) == ["response_schema"] * 4
