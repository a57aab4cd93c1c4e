"""The OpenAPI document: it names every route, and requests made from it find no defect of the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.served import listen, served, url_of

from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host.http import Limits, contract_app, openapi_document
from agentsession.host.live import LiveSessions, ServedAgent


def test_the_document_is_whole() -> None:
    document = openapi_document()

    def refs(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for item in node.values():
                yield from refs(item)
        elif isinstance(node, list):
            for item in node:
                yield from refs(item)

    for ref in set(refs(document)):
        place: Any = document
        for step in ref.removeprefix("#/").split("/"):
            place = place[step]
    assert len(document["paths"]) == 13


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread of its own: Schemathesis calls from a loop of its own making, or from none."""
    started = threading.Event()
    found: list[Any] = []

    async def main() -> None:
        agent = ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]] * 50, reenter=True))
        async with LiveSessions([agent], max_open=5000) as sessions:
            app = contract_app(sessions, limits=Limits(burst=100_000))
            with listen() as listening:
                async with served(app, listening, log_level="error"):
                    ended = asyncio.Event()
                    found[:] = [asyncio.get_running_loop(), ended, url_of(listening)]
                    started.set()
                    await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(20)
    loop, ended, address = found
    yield address
    loop.call_soon_threadsafe(ended.set)
    thread.join(20)


def test_requests_made_from_the_document_find_no_defect(url: str) -> None:
    with httpx2.Client(base_url=url) as http:
        schema = schemathesis.openapi.from_dict(openapi_document())
        statuses: set[int] = set()
        for result in schema.get_all_operations():
            operation: Any = getattr(result, "ok")()  # noqa: B009 - an operation that cannot be read has no ok, and fails here
            http.post("/agents/scripted/sessions", json={"sessionId": "s"})  # the last one may have deleted it

            @seed(6)
            @settings(
                max_examples=12,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            )
            @given(case=operation.as_strategy())
            def check(case: Any) -> None:
                path = case.path.replace("{agent}", "scripted").replace("{sessionId}", "s")
                body = case.body if isinstance(case.body, (dict, list, str, int, float, bool)) else None
                query = {name: value for name, value in (case.query or {}).items() if value is not None}
                answer = http.request(case.method, path, params=query, json=body)
                statuses.add(answer.status_code)
                assert answer.status_code < 500 or answer.status_code == 501, (case.method, path, body, answer.text)

            check()
    assert {200, 201, 204, 422} <= statuses
