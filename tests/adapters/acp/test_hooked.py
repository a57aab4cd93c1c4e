"""Hooks of the host's on an ACP agent's calls: what they do not want does not run, or ends the prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.adapters.acp.acting import LS, OPTIONS, Step, agent, answer, asks, chunk, end, of, permission, said, update

from agentsession.protocol import HookOutcome, HookPayload, ToolResponse, ToolResultHook, block, grant, modify

pytestmark = pytest.mark.anyio

RUNS: list[Step] = [
    update("tool_call", toolCallId="t1", status="in_progress", **LS),
    {"until": "session/cancel"},
    update("tool_call_update", toolCallId="t1", status="completed", rawOutput="late"),
    answer("cancelled"),
]
JAIL = modify(args={"command": "ls /safe"}, by="jail")


class Desk:
    """Says the same of every call."""

    points: tuple[str, ...] = ("before_tool",)

    def __init__(self, outcome: HookOutcome) -> None:
        self.outcome = outcome

    def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome:
        return self.outcome


@pytest.mark.parametrize("outcome", [block("no", by="guard"), JAIL], ids=["blocks", "changes"])
async def test_a_call_that_asks_is_rejected_and_nobody_else_is_asked(tmp_path: Path, outcome: HookOutcome) -> None:
    async with agent(tmp_path, asks(chunk("Well."), answer())) as executor:
        session = await executor.open(hooks=Desk(outcome))
        events = await said(session, "go")
        assert executor.reply_to(7)["result"] == {"outcome": {"optionId": "no", "outcome": "selected"}}
    assert [event.status for event in of(events, ToolResponse)] == ["denied"]
    assert end(events).reason == "completed"


async def test_arguments_that_a_hook_changed_cannot_be_granted(tmp_path: Path) -> None:
    receipts: list[Any] = []

    class Early(Desk):
        """Grants the call between its request and its denial, as a fast host may."""

        points = ("before_tool", "after_tool")

        async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:  # type: ignore[override]  # both are taken
            if hook_point == "before_tool":
                return self.outcome
            assert isinstance(payload, ToolResultHook)
            assert payload.request_id is not None
            receipts.extend(await session.respond(grant(payload.request_id)))
            return None

    async with agent(tmp_path, asks(answer())) as executor:
        session = await executor.open(hooks=Early(JAIL))
        events = await said(session, "go")
        assert executor.reply_to(7)["result"]["outcome"]["optionId"] == "no"
    assert [(receipt.status, receipt.reason) for receipt in receipts] == [
        ("invalid", "a hook changed the arguments, which an ACP agent cannot be told: deny the call")
    ]
    assert [event.status for event in of(events, ToolResponse)] == ["denied"]


async def test_a_call_without_a_way_to_be_rejected_ends_the_prompt(tmp_path: Path) -> None:
    turn = [permission(7, "t1", OPTIONS[:1], **LS), {"until": "session/cancel"}, answer("cancelled")]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open(hooks=Desk(JAIL))
        events = await said(session, "go")
    assert end(events).reason == "aborted"


@pytest.mark.parametrize(("outcome", "status"), [(block("no", by="guard"), "denied"), (JAIL, "unknown")])
async def test_a_call_that_runs_without_asking_ends_the_prompt(
    tmp_path: Path, outcome: HookOutcome, status: str
) -> None:
    async with agent(tmp_path, RUNS) as executor:
        session = await executor.open(hooks=Desk(outcome))
        events = await said(session, "go")
    assert [event.status for event in of(events, ToolResponse)] == [status]
    assert (end(events).reason, end(events).data) == ("aborted", {"cause": "cancelled by the host"})
