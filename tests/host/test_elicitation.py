"""Channels: only a clear yes is one."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.host import Approval, CallbackChannel, ElicitationChannel, NoChannel, Position, ScriptedChannel
from agentsession.host._elicitation import as_approval
from agentsession.host._policy import PolicyDecision
from agentsession.protocol import ConfigurationError, ElicitationRequest, ToolRequest

pytestmark = pytest.mark.anyio


def _is_ls(request: ToolRequest) -> bool:
    return request.name == "ls"


CALL = ToolRequest(request_id="r-1", name="rm")
QUESTION = ElicitationRequest(request_id="q-1", kind="clarification", message="Which?")
ASK = PolicyDecision("ask_user")


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize(
    "value",
    [
        *(None, 0, 1, "y", "yes", "true", [], {"approved": True}, object()),
        Approval("YES"),  # type: ignore[arg-type]
        Approval("yes", by=7),  # type: ignore[arg-type]  # who said it could not be recorded
        Approval("yes", by="\ud800"),  # nor this
        Approval("yes", reason=7),  # type: ignore[arg-type]
    ],
)
async def test_an_unclear_word_is_no_and_the_host_is_told(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    approval = as_approval(value)
    assert not approval.is_yes
    assert approval.reason == "unclear_answer"
    assert f"the channel answered a {type(value).__name__}, which is no clear Approval" in caplog.text


async def test_a_yes_that_is_to_be_remembered_in_an_unknown_way_is_none() -> None:
    with pytest.raises(ConfigurationError, match="remember is 'forever'"):
        Approval.yes(remember="forever")  # type: ignore[arg-type]


async def test_an_answer_to_a_question_that_is_none_is_told_to_the_host(caplog: pytest.LogCaptureFixture) -> None:
    answer = await CallbackChannel(ask=lambda *_: {"size": 3}).ask(QUESTION, Position())
    assert answer is not None
    assert answer.action == "decline"
    assert "the channel answered a dict to a 'clarification', so it was declined" in caplog.text
    assert "size" not in caplog.text


async def test_a_clear_word_is_taken() -> None:
    assert as_approval(True).is_yes
    assert as_approval(Approval.yes({"a": 1})).args == {"a": 1}
    assert as_approval(False).verdict == "no"
    assert as_approval(Approval.pause()).verdict == "pause"


async def test_every_channel_satisfies_the_protocol() -> None:
    for channel in (NoChannel(), CallbackChannel(), ScriptedChannel()):
        assert isinstance(channel, ElicitationChannel)


async def test_a_callback_channel_without_functions_refuses() -> None:
    channel = CallbackChannel()
    assert (await channel.approve(CALL, ASK, Position())).verdict == "no"
    answer = await channel.ask(QUESTION, Position())
    assert answer is not None
    assert answer.action == "decline"


async def test_a_callback_may_be_async_and_its_odd_answer_is_a_no() -> None:
    async def ask(request: ElicitationRequest, position: Position) -> Any:
        return {"region": "eu"}

    answer = await CallbackChannel(ask=ask).ask(QUESTION, Position())
    assert answer is not None
    assert (answer.action, answer.decision and answer.decision.reason) == ("decline", "unclear_answer")


async def test_a_script_goes_by_name_or_in_order_and_refuses_what_it_does_not_cover() -> None:
    by_name = ScriptedChannel({"rm": Approval.no("keep it")}, {"clarification": ("accept", {"n": 1})})
    assert (await by_name.approve(CALL, ASK, Position())).reason == "keep it"
    answer = await by_name.ask(QUESTION, Position())
    assert answer is not None
    assert (answer.action, answer.content, answer.request_id) == ("accept", {"n": 1}, "q-1")
    in_order = ScriptedChannel([True, _is_ls], ["cancel", None])
    assert [(await in_order.approve(CALL, ASK, Position())).verdict for _ in range(3)] == ["yes", "no", "no"]
    answers = [await in_order.ask(QUESTION, Position()) for _ in range(3)]
    assert [answer and answer.action for answer in answers] == ["cancel", None, "decline"]
    assert len(in_order.asked) == 6
