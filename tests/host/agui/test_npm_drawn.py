"""Drawn streams in the real client of ``@ag-ui/client``, its verifying stage on: what we say of it is true of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.agui.npm_client import Npm
from tests.host.agui.streams import Client
from tests.host.agui.test_out_properties import RECORDS, SLOW, runs_of
from tests.host.agui.test_out_state import UPDATES

from agentsession.host.agui._out_state import SharedState, visible
from agentsession.host.agui._out_wire import run_finished, run_started
from agentsession.protocol import Event, SessionUpdate

pytestmark = pytest.mark.anyio


async def test_every_drawn_stream_passes_the_clients_verifying_stage_and_ours_is_its_twin(npm: Npm) -> None:
    """What :class:`streams.Client` says of the client is true of the client."""
    threads: list[list[list[dict[str, Any]]]] = []

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=SLOW)
    @given(RECORDS)
    def draw(record: list[Event]) -> None:
        threads.append(runs_of(record))

    draw()
    told = await npm.drive("http://127.0.0.1:9/", [{"do": "replay", "threads": threads}])
    assert len(told) == len(threads)
    for one, runs in zip(told, threads, strict=True):
        assert one["faults"] == []
        twin = Client()
        for run in runs:
            twin.receive(run)
        assert one["state"] == twin.state
        assert [_seen(message) for message in one["messages"]] == [_seen(message) for message in twin.messages]


async def test_a_client_that_applies_drawn_deltas_of_the_state_has_what_it_may_see(npm: Npm) -> None:
    threads: list[list[list[dict[str, Any]]]] = []
    states: list[Any] = []

    @settings(max_examples=150, deadline=None, database=None)
    @given(st.lists(UPDATES, max_size=6))
    def draw(updates: list[dict[str, Any]]) -> None:
        shared = SharedState()
        told = [event for update in updates for event in shared.fold(SessionUpdate(**update))]
        started, finished = run_started("t", "r", None), run_finished("t", "r", {"type": "success"}, (), ())
        threads.append([[started, *told, finished]])
        states.append(visible(shared.value))

    draw()
    told = await npm.drive("http://127.0.0.1:9/", [{"do": "replay", "threads": threads}])
    assert [one["faults"] for one in told] == [[]] * len(threads)
    assert [_as_numbers(one["state"]) for one in told] == [_as_numbers(state) for state in states]


def _as_numbers(state: Any) -> str:
    """As JavaScript writes it: every number is a float, and none is a negative zero. ``true`` is no number."""
    parsed = json.loads(json.dumps(state), parse_int=float, parse_float=lambda text: float(text) + 0.0)
    return json.dumps(parsed, sort_keys=True)


def _seen(message: dict[str, Any]) -> Any:
    calls = [(call["id"], call["function"]) for call in message.get("toolCalls") or ()]
    return message["id"], message["role"], message.get("content") or "", calls
