"""What becomes of the lines that a person types, at a screen that only keeps what it is told. No terminal here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agentsession.adapters.scripted import Ask, Call, Calls, Say, ScriptedExecutor
from agentsession.host import SubagentTool, Tool, tool
from agentsession.host._toolbox import ToolBox
from agentsession.host.cli._command_policy import CommandPolicy
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._interactive import Conversation
from agentsession.host.cli._lines import ASCII, Line, View
from agentsession.host.cli._setup import RunOptions, make_host
from agentsession.protocol import AgentSession, ToolAnnotations, ToolDecision, ToolResponse, ToolUpdate

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The terminal is asyncio's."""
    return "asyncio"


class KeptScreen:
    """A screen that keeps what it is told, in order; a change wakes who waits for it."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.echoes = echoes
        self.live = True
        self.view = View(width=80, glyphs=ASCII, interactive=True)
        self.said: list[str] = []
        self.box = ""
        self.left: Exit | None = None
        self._changed = asyncio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.said)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once it is so."""
        async with asyncio.timeout(10):
            while not is_so():
                await self._changed.wait()

    async def until_said(self, words: str) -> None:
        """Return once these words were shown."""
        await self.until(lambda: words in self.text)

    def show(self, lines: Sequence[Line]) -> None:
        self.said += [one.plain for one in lines]
        self._change()

    def forget_typed(self) -> None:
        self.said.append("[typed is forgotten]")

    async def drawn(self) -> None:
        return

    def prompt(self, label: str, *, secret: bool = False) -> None:
        self.said.append(f"[{label.strip()}]")
        self._change()

    def fill(self, text: str) -> bool:
        if self.box:
            return False
        self.box = text
        self._change()
        return True

    async def page(self, text: str) -> None:
        self.said.append(text)

    def leave(self, code: Exit) -> None:
        self.left = code
        self._change()

    async def run(self, conversation: Conversation) -> Exit:
        raise NotImplementedError


class Talk:
    """A conversation with a scripted agent; its clock jumps, so that every line is begun late enough."""

    def __init__(self, talk: Conversation, screen: KeptScreen, session: AgentSession) -> None:
        self.screen = screen
        self.session = session
        self.conversation = talk
        self._now = 0.0

    def clock(self) -> float:
        return self._now

    def type(self, text: str) -> None:
        """Enter a line, begun ten seconds after all that was shown; what was in the box is taken out first."""
        self._now += 10.0
        self.screen.box = ""
        self.conversation.line(text, self._now)

    async def answer(self, text: str) -> None:
        """Enter a line once the question stands there."""
        async with asyncio.timeout(10):
            while self.conversation._drawn is None:
                await anyio.lowlevel.checkpoint()
        self.type(text)

    def put_back(self) -> str:
        """What is in the box now."""
        return self.screen.box

    async def responses(self) -> list[ToolResponse]:
        """The responses in the record."""
        return [event async for event in self.session.events() if isinstance(event, ToolResponse)]


@tool
def order(item: str, quantity: int) -> str:
    """Order more of an item."""
    return f"{quantity} {item} ordered"


started = asyncio.Event()


@tool
async def wait_long() -> str:
    """Run until somebody stops it."""
    started.set()
    await anyio.sleep_forever()
    return ""


PENS = Call("order", {"item": "pens", "quantity": 100})


@contextlib.asynccontextmanager
async def talking(*streams: list[object], echoes: bool = False, tools: Sequence[Tool] = ()) -> AsyncGenerator[Talk]:
    options = RunOptions(target="scripted:agent")
    screen = KeptScreen(echoes=echoes)
    policy = CommandPolicy(options)
    executor = ScriptedExecutor([list(stream) for stream in streams])  # type: ignore[arg-type]  # steps of any kind
    made: list[Talk] = []
    conversation = Conversation(screen, policy, lambda: made[0].clock() if made else 0.0)
    host = make_host(
        options,
        ToolBox([order, wait_long, *tools]),
        policy=policy,
        channel=conversation,
        observer=conversation.event,
        on_unsaved=conversation.unsaved,
    )
    async with executor:
        session = await host.open(executor)
        conversation.attach(host, session, options)
        made.append(Talk(conversation, screen, session))
        await conversation.start()
        try:
            yield made[0]
        finally:
            await conversation.aclose()


async def test_a_line_that_begins_like_a_path_is_for_the_agent() -> None:
    async with talking([Say("I see.")]) as talk:
        talk.type("/etc/hosts is wrong")
        await talk.screen.until_said("completed")
        assert "> /etc/hosts is wrong" in talk.screen.said


@pytest.mark.parametrize("text", ["/fix it", "/decline"])
async def test_a_command_that_is_none_goes_back_into_the_box(text: str) -> None:
    async with talking([Say("I see.")]) as talk:
        talk.type(text)
        assert "not a command here" in talk.screen.text
        assert talk.put_back() == text
        talk.type(" " + text)
        await talk.screen.until_said("completed")


async def test_a_command_without_its_number_says_what_it_needs() -> None:
    async with talking([Say("I see.")]) as talk:
        talk.type("/o")
        assert "which call? For example: /o 1" in talk.screen.text


async def test_what_is_pasted_as_a_command_is_not_obeyed_and_no_number_is_too_long_for_one() -> None:
    async with talking([Say("I see.")]) as talk:
        talk.type("/x \x1b[2J")
        assert "/x \\x1b[2J" in talk.screen.text
        assert "\x1b" not in "\n".join(talk.screen.said)
        talk.type("/o " + "9" * 5000)
        assert "there is no call 999" in talk.screen.text


async def test_a_question_stands_before_its_prompt() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        assert talk.screen.text.index("? APPROVE") < talk.screen.text.index("[answer>]")


async def test_typed_lines_are_dropped_before_a_question_is_shown_and_never_after() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        talk.type("e")
        talk.put_back()
        talk.type('{"item": "pens", "quantity": 10}')
        await talk.screen.until_said("your change")
        told = talk.screen.said
        dropped = [at for at, one in enumerate(told) if one == "[typed is forgotten]"]
        shown = [at for at, one in enumerate(told) if one.startswith("? APPROVE") or "your change" in one]
        assert len(dropped) == 2
        assert dropped[0] < shown[0] < dropped[1] < shown[1]


@pytest.mark.parametrize("echoes", [True, False])
async def test_an_answer_is_told_once_whoever_shows_what_was_typed(echoes: bool) -> None:
    async with talking([PENS, Say("Done.")], echoes=echoes) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        await talk.answer("y")
        await talk.screen.until_said("completed")
        assert talk.screen.said.count("answer> y") == (0 if echoes else 1)


async def test_an_edited_call_is_told_as_what_ran() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        talk.type("e")
        assert talk.put_back() == '{"item": "pens", "quantity": 100}'
        talk.type('{"item": "pens", "quantity": 10}')
        await talk.screen.until_said("your change")
        await talk.answer("y")
        await talk.screen.until_said("granted by you, ran once")
        assert "[1] order pens 10 (edited)" in talk.screen.text


async def test_an_edit_that_is_no_json_is_edited_again_from_what_was_typed() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        talk.type("e")
        talk.type('{"item": "pens", "quantity": 10')
        assert talk.put_back() == '{"item": "pens", "quantity": 10'
        talk.type('{"item": "pens", "quantity": 10}')
        await talk.screen.until_said("your change")


async def test_an_edit_that_does_not_fit_the_tool_is_where_the_next_edit_begins() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        talk.type("e")
        talk.type('{"item": "pens", "quantity": "ten"}')
        await talk.screen.until_said("your change")
        await talk.answer("y")
        await talk.screen.until_said('! what you sent cannot be taken: /quantity: expected an integer, got "ten"')
        assert next(one.plain for one in talk.conversation.live()) == "  [1] order pens 100  waits for you"
        talk.type("e")
        assert talk.put_back() == '{"item": "pens", "quantity": "ten"}'


async def test_an_answer_for_the_session_runs_the_next_call_unasked() -> None:
    more = Call("order", {"item": "ink", "quantity": 1})
    async with talking([PENS, more, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        await talk.answer("s")
        await talk.screen.until_said("completed")
        assert talk.screen.text.count("APPROVE") == 1
        decisions = [event async for event in talk.session.events() if isinstance(event, ToolDecision)]
        assert [(one.by or "").partition(":")[0] for one in decisions] == ["user", "remembered"]


async def test_what_is_answered_always_is_saved_once_it_was_confirmed(state: Path) -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        await talk.answer("a")
        assert not list(state.rglob("*.json"))
        await talk.screen.until_said("[always>]")
        await talk.answer("y")
        await talk.screen.until_said("completed")
    (file,) = state.rglob("*.json")
    assert '"tool": "host:order"' in file.read_text()
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("completed")
        assert "APPROVE" not in talk.screen.text


async def test_a_mode_that_is_typed_decides_what_waits() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        await talk.answer("/mode autonomous")
        await talk.screen.until_said("completed")
        (decision,) = [event async for event in talk.session.events() if isinstance(event, ToolDecision)]
        assert (decision.decision, decision.by) == ("granted", "policy:autonomous")


async def test_a_mode_that_there_is_not_changes_nothing() -> None:
    async with talking([PENS, Say("Done.")]) as talk:
        talk.type("/mode yolo")
        assert "which mode? /mode plan, /mode default, /mode auto_edit, /mode autonomous" in talk.screen.text
        talk.type("Order")
        await talk.screen.until_said("[answer>]")


async def test_what_was_answered_always_is_asked_of_no_other_call_that_waits(state: Path) -> None:
    more = [Call("order", {"item": item, "quantity": 1}) for item in ("ink", "clips")]
    async with talking([Calls(PENS, *more), Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("APPROVE 1 of 3")
        await talk.answer("a")
        await talk.screen.until_said("[always>]")
        await talk.answer("y")
        await talk.screen.until_said("completed")
        assert talk.screen.text.count("APPROVE") == 1


async def test_an_answer_that_cannot_be_saved_is_told_and_holds_for_the_session(state: Path) -> None:
    async with talking([PENS, PENS, Say("Done.")]) as talk:
        (state / "agentsession").write_text("in the way")
        talk.type("Order")
        await talk.screen.until_said("[answer>]")
        await talk.answer("a")
        await talk.screen.until_said("[always>]")
        await talk.answer("y")
        await talk.screen.until_said("completed")
        assert "error[remembered-file]" in talk.screen.text
        assert "the answer holds until you leave" in talk.screen.text
        assert talk.screen.text.count("APPROVE") == 1


async def test_of_several_calls_that_wait_one_answer_for_the_session_is_enough() -> None:
    more = [Call("order", {"item": item, "quantity": 1}) for item in ("ink", "clips")]
    async with talking([Calls(PENS, *more), Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("APPROVE 1 of 3")
        await talk.answer("s")
        await talk.screen.until_said("completed")
        assert len(await talk.responses()) == 3
        assert talk.screen.text.count("APPROVE") == 1


async def test_a_turn_that_fails_in_a_way_that_nobody_expected_is_told() -> None:
    async with talking([Say("I see.")]) as talk:

        def fail(*args: object) -> None:
            raise RuntimeError("out of luck")

        talk.session.stream = fail  # type: ignore[method-assign,assignment]  # a defect of an executor
        talk.type("Go")
        await talk.screen.until_said("error[internal]: RuntimeError: out of luck")
        assert talk.screen.left is None


async def test_a_call_that_was_not_asked_about_yet_is_not_said_to_run() -> None:
    async with talking([Calls(PENS, Call("order", {"item": "ink", "quantity": 1})), Say("Done.")]) as talk:
        talk.type("Order")
        await talk.screen.until_said("APPROVE 1 of 2")
        rows = [one.plain for one in talk.conversation.live()]
        assert rows[:2] == ["  [1] order pens 100  waits for you", "  [2] order ink 1  waits"]


async def test_how_long_a_call_runs_is_counted_from_its_own_beginning() -> None:
    async with talking([Call("wait_long"), Say("Done.")]) as talk:
        talk.type("Wait")
        await talk.screen.until_said("[answer>]")
        await talk.answer("y")
        await started.wait()
        talk.type("A steer, ten seconds later")
        (row,) = [one.plain for one in talk.conversation.live() if "running" in one.plain]
        assert row == "  [1] wait_long  running  10s"
        talk.conversation.renderer.running[0].progress.feed(ToolUpdate(request_id="r", progress=3, total=4))
        (row,) = [one.plain for one in talk.conversation.live() if "running" in one.plain]
        assert row == "  [1] wait_long  running  10s  3 of 4 (75%)"


async def test_a_person_reads_who_asks_from_the_root_down_through_sub_agents_of_sub_agents() -> None:
    form = {"type": "object", "properties": {"colour": {"type": "string"}}}
    marks = ToolAnnotations(read_only=True, open_world=False)
    async with (
        ScriptedExecutor([[Ask("Which colour?", schema=form), PENS, Say("Ordered.")]], name="buyer") as buyer,
        ScriptedExecutor([[Call("buyer", {"task": "buy"}), Say("Bought.")]], name="clerk") as clerk,
    ):
        tools = [
            SubagentTool(clerk, tools=["buyer", "order"], annotations=marks),
            SubagentTool(buyer, tools=["order"], annotations=marks),
        ]
        async with talking([Call("clerk", {"task": "go"}), Say("Done.")], tools=tools) as talk:
            talk.type("order pens")
            await talk.answer("blue")
            await talk.answer("y")
            await talk.screen.until_said("APPROVE")
            await talk.answer("y")
            await talk.screen.until_said("Done.")
    asked = [text for text in talk.screen.said if "asked by" in text]
    assert len(asked) == 2
    assert asked[0] == "  asked by scripted > clerk > buyer"
    assert asked[1].endswith("order pens 100  asked by scripted > clerk > buyer")
