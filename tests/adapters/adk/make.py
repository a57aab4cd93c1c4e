"""Short ways to write ADK Events in tests."""

from __future__ import annotations

import importlib
from typing import Any

import jsonschema
from google.adk.events.event import Event
from google.genai import types

__all__ = ["call_part", "called", "delta", "event", "old_agent", "schema_validator", "responded", "said", "user_said"]


def event(*parts: types.Part, author: str = "root", role: str = "model", **fields: Any) -> Event:
    """An Event with these parts; without parts it has no content."""
    content = types.Content(role=role, parts=list(parts)) if parts else None
    values: dict[str, Any] = {"invocation_id": "i1", "author": author, "content": content, "timestamp": 1733043686.5}
    return Event(**(values | fields))


def old_agent(kind: str, **fields: Any) -> Any:
    """An agent of a class that ADK calls deprecated and still runs: SequentialAgent, ParallelAgent, LoopAgent."""
    return getattr(importlib.import_module("google.adk.agents"), kind)(**fields)


def schema_validator(schema: dict[str, Any]) -> Any:  # Any: jsonschema's validators have no public type
    return jsonschema.Draft202012Validator(schema)


def said(text: str, **fields: Any) -> Event:
    return event(types.Part(text=text), **fields)


def delta(text: str, id: str = "e1", **fields: Any) -> Event:
    return said(text, id=id, partial=True, **fields)


def user_said(text: str, **fields: Any) -> Event:
    return event(types.Part(text=text), author="user", role="user", **fields)


def call_part(name: str | None, call_id: str | None = None, args: Any = None) -> types.Part:
    """A call; arguments that are no object are put in past genai's validation, as a model's own code would."""
    made = types.FunctionCall(name=name, id=call_id)
    made.args = args
    return types.Part(function_call=made)


def called(name: str | None, call_id: str | None = None, args: Any = None, **fields: Any) -> Event:
    return event(call_part(name, call_id, args if args is not None else {}), **fields)


def responded(name: str | None, call_id: str | None, response: Any, author: str = "root", **fields: Any) -> Event:
    made = types.FunctionResponse(name=name, id=call_id)
    made.response = response
    return event(types.Part(function_response=made), author=author, role="user", **fields)
