"""Questions as cards for web pages: who sees them, which answers count, and when they go. On asyncio and trio."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
import trio.testing

from agentsession.adapters.scripted import Ask, Call, Calls, Say, ScriptedExecutor, Step
from agentsession.host import Approval, CallbackChannel, Host, QueueChannel, TurnResult, ask_all, tool
from agentsession.protocol import (
    ConfigurationError,
    ElicitationResponse,
    Event,
    MemoryRecordStore,
    OpenOptions,
    Receipt,
    ToolDecision,
    ToolResponse,
)

pytestmark = pytest.mark.anyio

FORM = {
    "type": "object",
    "properties": {"region": {"enum": ["eu", "us"]}, "token": {"type": "string", "format": "password"}},
    "required": ["region"],
}
SECRET = "sk-planted-secret-0123456789"


class Desk:
    """A host with a channel for pages, and one turn of a session."""

    def __init__(self, channel: QueueChannel, *steps: Step, **options: Any) -> None:
        self.channel = channel
        self.ran: list[str] = []

        @tool
        def write(path: str) -> str:
            """Write a file."""
            self.ran.append(path)
            return "written"

        self.host = Host(tools=[write], policy=ask_all, channel=channel, **options)
        self.executor = ScriptedExecutor([[*steps, Say("done")]], store=MemoryRecordStore())
        self.session: Any = None
        self.result: TurnResult | None = None
        self.events: list[Event] = []

    @asynccontextmanager
    async def at_work(self, user_id: str = "ann") -> AsyncGenerator[None]:
        """The turn runs meanwhile; its end is waited for."""
        with anyio.fail_after(5):
            async with self.executor, self.host.session(self.executor, OpenOptions(user_id=user_id)) as session:
                self.session = session
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._run)
                    yield
                self.events = [event async for event in session.events()]

    async def _run(self) -> None:
        self.result = await self.host.run_turn(self.session, "go")


class Browser:
    """A page of one person: it shows what the channel tells it, and sends JSON."""

    def __init__(self, channel: QueueChannel, user_id: str | None = None) -> None:
        self.channel = channel
        self.user_id = user_id
        self.shown: dict[str, Any] = {}
        self.log: list[str] = []
        self._changed = anyio.Event()

    async def read(self) -> None:
        """What a page does as long as its connection lasts."""
        async with aclosing(self.channel.changes(user_id=self.user_id)) as changes:
            async for change in changes:
                told = json.loads(json.dumps(change.to_json()))  # over the wire
                if "asked" in told:
                    self.shown[told["asked"]["id"]] = told["asked"]
                else:
                    self.shown.pop(told["settled"], None)
                    self.log.append(told["how"])
                changed, self._changed = self._changed, anyio.Event()
                changed.set()

    async def until(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            await self._changed.wait()

    async def card(self, count: int = 1) -> Any:
        await self.until(lambda: len(self.shown) >= count)
        return list(self.shown.values())[count - 1]

    def send(self, card: Any, given: Any, by: str | None = None) -> Receipt:
        return self.channel.answer(card["id"], json.loads(json.dumps(given)), user_id=self.user_id, by=by)


@asynccontextmanager
async def browsers(*opened: Browser) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        for browser in opened:
            tasks.start_soon(browser.read)
        yield
        tasks.cancel_scope.cancel()


async def waits(channel: QueueChannel, count: int = 1) -> list[Any]:
    while len(channel.waiting()) < count:
        await anyio.lowlevel.checkpoint()
    return [card.to_json() for card in channel.waiting()]


def only(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_two_pages_see_the_same_card_and_the_first_answer_counts() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    phone, laptop = Browser(channel, "ann"), Browser(channel, "ann")
    async with browsers(phone, laptop):
        async with desk.at_work():
            card = await phone.card()
            assert await laptop.card() == card
            assert (card["kind"], card["tool"], card["args"], card["user_id"]) == (
                "approval",
                "write",
                {"path": "a"},
                "ann",
            )
            assert card["why"]["by"] == "policy:ask_all"
            assert card["position"] == {"index": 1, "total": 1}
            assert phone.send(card, {"action": "approve"}, by="ann").status == "applied"
            late = laptop.send(card, {"action": "deny"})
            assert (late.status, late.reason) == ("stale", "it was answered")
        await laptop.until(lambda: not laptop.shown)
        assert (phone.log, laptop.log) == (["answered"], ["answered"])
    assert desk.ran == ["a"]
    assert [(event.decision, event.by) for event in only(desk.events, ToolDecision)] == [("granted", "user:ann")]


async def test_a_page_that_reconnects_sees_what_still_waits() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work():
        before, after = Browser(channel), Browser(channel)
        async with browsers(before):
            card = await before.card()
        async with browsers(after):
            assert await after.card() == card
            after.send(card, {"action": "approve"})
    assert desk.ran == ["a"]


async def test_several_questions_wait_at_once_and_are_answered_in_any_order() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"})))
    async with desk.at_work():
        first, second = sorted(await waits(channel, 2), key=lambda card: str(card["args"]))
        assert {first["position"]["total"], second["position"]["total"]} <= {1, 2}
        channel.answer(second["id"], {"action": "approve"})
        channel.answer(first["id"], {"action": "deny", "reason": "not that one"})
    assert desk.ran == ["b"]
    assert only(desk.events, ToolResponse)[0].data["error"] == "not that one"


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize(
    "given",
    [
        {},
        True,
        "approve",
        None,
        {"action": "yes"},
        {"action": "Approve"},
        {"action": True},
        {"action": "approve", "arg": {}},
        {"action": "approve", "args": []},
        {"action": "approve", "remember": "forever"},
        {"action": "deny", "args": {"path": "b"}},
        {"action": "deny", "reason": 3},
        {"action": "accept"},
    ],
)
async def test_what_is_no_clear_word_answers_nothing(given: Any) -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work():
        (card,) = await waits(channel)
        receipt = channel.answer(card["id"], given)
        assert receipt.status == "invalid"
        assert [one.id for one in channel.waiting()] == [card["id"]]
        assert channel.answer(card["id"], {"action": "deny"}).ok
    assert desk.ran == []


async def test_edited_arguments_that_do_not_fit_are_asked_about_again_as_another_card() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work():
        (card,) = await waits(channel)
        assert channel.answer(card["id"], {"action": "approve", "args": {"path": 3}}).ok
        (again,) = await waits(channel)
        assert again["id"] != card["id"]
        assert "string" in again["position"]["problem"]
        # A click on the old card, sent again by a page that saw no receipt, is no answer to the new one.
        assert channel.answer(card["id"], {"action": "approve"}).status == "stale"
        assert channel.answer(again["id"], {"action": "approve", "args": {"path": "b"}}).ok
    assert desk.ran == ["b"]


async def test_a_yes_for_the_session_settles_what_waits_and_withdraws_its_cards() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"})))
    page = Browser(channel)
    async with browsers(page):
        async with desk.at_work():
            await page.card(2)
            first, _ = page.shown.values()
            page.send(first, {"action": "approve", "remember": "session"})
            await page.until(lambda: not page.shown)
            assert sorted(page.log) == ["answered", "withdrawn"]
    assert sorted(desk.ran) == ["a", "b"]


async def test_cancel_ends_the_turn_and_withdraws_the_other_cards() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"})))
    async with desk.at_work():
        first, second = await waits(channel, 2)
        channel.answer(first["id"], {"action": "cancel"})
    assert (desk.ran, channel.waiting()) == ([], [])
    assert desk.result is not None
    assert desk.result.end.reason == "aborted"
    assert channel.answer(second["id"], {"action": "approve"}).reason == "it was withdrawn"


async def test_pause_leaves_it_waiting_in_the_session() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work():
        (card,) = await waits(channel)
        channel.answer(card["id"], {"action": "pause"})
    assert desk.result is not None
    assert desk.result.end.reason == "input_required"


async def test_an_abort_withdraws_the_card() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work():
        (card,) = await waits(channel)
        await desk.host.abort()
    assert channel.waiting() == []
    assert channel.answer(card["id"], {"action": "approve"}).status == "stale"
    assert desk.ran == []


# --- whose ------------------------------------------------------------------------------------------------------------


async def test_a_person_sees_and_answers_only_their_own_cards() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Call("write", {"path": "a"}))
    async with desk.at_work(user_id="ann"):
        (card,) = await waits(channel)
        assert channel.waiting(user_id="bob") == []
        assert channel.waiting(user_id="ann", session_id="other") == []
        receipt = channel.answer(card["id"], {"action": "approve"}, user_id="bob")
        assert (receipt.status, receipt.reason) == ("not_found", "there is no such card")
        assert channel.answer(card["id"], {"action": "deny"}, user_id="ann").ok
        # Nor does it tell a stranger that there was one.
        assert channel.answer(card["id"], {"action": "deny"}, user_id="bob").status == "not_found"
    assert desk.ran == []


async def test_a_card_that_never_was_is_not_found() -> None:
    assert QueueChannel().answer("c-none", {"action": "approve"}).status == "not_found"


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_a_question_beyond_the_capacity_is_refused_and_the_others_wait_on() -> None:
    channel = QueueChannel(capacity=1)
    desk = Desk(channel, Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"})))
    async with desk.at_work():
        (card,) = await waits(channel)
        while not only(desk.session.record, ToolDecision):  # the other one's
            await anyio.lowlevel.checkpoint()
        channel.answer(card["id"], {"action": "approve"})
    assert len(desk.ran) == 1
    (refused,) = [event for event in only(desk.events, ToolDecision) if event.decision == "denied"]
    assert (refused.by, refused.reason) == ("host", "channel_full: too many questions wait already")


def test_a_capacity_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        QueueChannel(capacity=0)


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-08")
async def test_content_is_checked_before_it_is_taken() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Ask("Where to?", schema={**FORM, "properties": {"region": FORM["properties"]["region"]}}))  # type: ignore[index]
    async with desk.at_work():
        (card,) = await waits(channel)
        assert (card["kind"], card["question"], card["message"], card["has_secrets"]) == (
            "question",
            "clarification",
            "Where to?",
            False,
        )
        wrong = channel.answer(card["id"], {"action": "accept", "content": {"region": "mars"}})
        assert wrong.status == "invalid"
        assert "mars" in (wrong.reason or "")
        assert channel.answer(card["id"], {"action": "accept"}).status == "invalid"
        assert channel.answer(card["id"], {"action": "decline", "content": {}}).status == "invalid"
        assert channel.answer(card["id"], {"action": "accept", "content": {"region": "eu"}}, by="ann").ok
    (response,) = only(desk.events, ElicitationResponse)
    assert (response.action, response.content) == ("accept", {"region": "eu"})


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_can_be_declined_and_cancelled(action: str) -> None:
    channel = QueueChannel()
    desk = Desk(channel, Ask("Where to?", schema=FORM))
    async with desk.at_work():
        (card,) = await waits(channel)
        assert channel.answer(card["id"], {"action": action}).ok
    assert [event.action for event in only(desk.events, ElicitationResponse)] == [action]


@pytest.mark.rule("SEC-01")
async def test_a_secret_is_nowhere_but_with_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    channel, seen = QueueChannel(), list[str]()
    heard: list[Any] = []
    desk = Desk(
        channel,
        Ask("Where to?", schema=FORM),
        Say(lambda memory: heard.append(memory.last.content) or "ok"),  # type: ignore[union-attr,func-returns-value]
        on_answer=lambda answer, receipt: seen.append(answer.to_wire_json() + repr(answer)),
    )
    async with desk.at_work():
        (card,) = await waits(channel)
        assert card["has_secrets"] is True
        wrong = channel.answer(card["id"], {"action": "accept", "content": {"region": SECRET, "token": SECRET}})
        assert (wrong.status, wrong.reason) == ("invalid", '/region: expected one of "eu", "us"')
        absent = channel.answer(card["id"], {"action": "accept", "content": {"token": SECRET}})
        assert (absent.status, absent.reason) == ("invalid", "/: 'region' is missing")
        no_json = channel.answer(card["id"], {"action": "accept", "content": {SECRET: object()}})
        assert (no_json.status, no_json.reason) == ("invalid", "the content is not JSON")
        assert channel.answer(card["id"], {"action": "accept", "content": {"region": "eu", "token": SECRET}}).ok
        late = channel.answer(card["id"], {"action": "accept", "content": {"region": "eu", "token": SECRET}})
    assert heard == [{"region": "eu", "token": SECRET}]
    told = [
        *(event.to_wire_json() for event in desk.events),
        *seen,
        repr(desk.result),
        *(one.answer.to_wire_json() for one in desk.result.answers),  # type: ignore[union-attr]  # it has ended
        repr(channel),
        repr(vars(channel)),
        str(wrong),
        str(late),
        json.dumps(card),
        caplog.text,
    ]
    assert [text for text in told if SECRET in text] == []


async def test_an_address_is_on_the_card_and_the_answer_says_that_it_is_done() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Ask("Log in.", url="https://login.example/start?state=1"))
    async with desk.at_work():
        (card,) = await waits(channel)
        assert card["url"] == "https://login.example/start?state=1"
        assert channel.answer(card["id"], {"action": "accept"}).ok
    assert [event.action for event in only(desk.events, ElicitationResponse)] == ["accept"]


async def test_an_address_that_nobody_should_open_reaches_nobody() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Ask("Log in.", url="javascript:alert(1)"))
    async with desk.at_work():
        pass
    assert [event.action for event in only(desk.events, ElicitationResponse)] == ["cancel"]


# --- time -------------------------------------------------------------------------------------------------------------


def in_no_time(go: Callable[[], Any]) -> None:
    """Run with a clock that jumps to what is waited for."""
    trio.run(go, clock=trio.testing.MockClock(autojump_threshold=0))


async def turn_of(channel: Any, *steps: Step, **options: Any) -> tuple[list[str], TurnResult, list[Event]]:
    ran: list[str] = []

    @tool
    def write(path: str) -> str:
        """Write a file."""
        ran.append(path)
        return "written"

    host = Host(tools=[write], policy=ask_all, channel=channel, question_timeout_s=3600, **options)
    async with ScriptedExecutor([[*steps, Say("done")]]) as executor, host.session(executor) as session:
        result = await host.run_turn(session, "go")
        return ran, result, [event async for event in session.events()]


class Silent(CallbackChannel):
    """Reaches nobody, one at a time or several at once."""

    def __init__(self, *, concurrent: bool) -> None:
        super().__init__(concurrent=concurrent)
        self.asked = 0
        self.expires_at: list[str | None] = []

    async def approve(self, request: Any, decision: Any, position: Any) -> Approval:
        self.asked += 1
        self.expires_at.append(position.expires_at)
        await anyio.sleep_forever()
        return Approval.yes()

    async def ask(self, request: Any, position: Any) -> None:
        await anyio.sleep_forever()


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("concurrent", [False, True])
def test_an_approval_that_nobody_gave_in_time_ends_the_turn_and_nothing_of_it_runs(concurrent: bool) -> None:
    channel = Silent(concurrent=concurrent)

    async def go() -> None:
        calls = Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"}))
        ran, result, events = await turn_of(channel, calls, Call("write", {"path": "c"}))
        assert ran == []
        assert (result.end.reason, result.end.data) == (
            "aborted",
            {"cause": "timed_out: nobody answered within 3600 s"},
        )
        assert all(event.decision == "denied" for event in only(events, ToolDecision))

    in_no_time(go)
    assert channel.asked == (2 if concurrent else 1)
    assert all(moment is not None and moment.endswith("Z") for moment in channel.expires_at)


def test_a_question_that_nobody_answered_in_time_is_cancelled_and_the_turn_goes_on() -> None:
    async def go() -> None:
        _, result, events = await turn_of(Silent(concurrent=True), Ask("Where to?", schema=FORM))
        assert result.end.reason == "completed"
        assert [event.action for event in only(events, ElicitationResponse)] == ["cancel"]
        (answer,) = result.answers
        assert answer.answer.decision is not None
        assert answer.answer.decision.reason == "timed_out: nobody answered within 3600 s"

    in_no_time(go)


def test_a_card_that_expired_says_so() -> None:
    channel = QueueChannel()
    receipts: list[Receipt] = []
    cards: list[Any] = []

    async def go() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn_of, channel, Call("write", {"path": "a"}))
            cards.extend(await waits(channel))
            assert cards[0]["expires_at"] > cards[0]["asked_at"]
        receipts.append(channel.answer(cards[0]["id"], {"action": "approve"}))

    in_no_time(go)
    assert [receipt.status for receipt in receipts] == ["stale"]


async def test_a_card_whose_time_is_up_is_told_apart_from_one_that_was_settled_elsewhere() -> None:
    channel = QueueChannel()
    desk = Desk(channel, Ask("Where to?", schema=FORM), question_timeout_s=0.02)
    async with desk.at_work():
        (card,) = await waits(channel)
    receipt = channel.answer(card["id"], {"action": "decline"})
    assert (receipt.status, receipt.reason) == ("stale", "it was expired")


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigurationError):
        Host(question_timeout_s=wrong)
