"""Confirmations of the agent's own tools: a clear yes runs a tool once, all else never."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import transfer_to_agent
from google.genai import types
from tests.adapters.adk.driving import (
    Driven,
    Visit,
    agent,
    assert_valid_history,
    driven,
    history,
    model_calls,
)
from tests.adapters.adk.make import old_agent
from tests.adapters.adk.test_session_input import question

from agentsession.adapters.adk import call, calls, raw, say
from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    HostCapabilities,
    Receipt,
    ToolRequest,
    accept,
    cancel,
    decline,
    deny,
    grant,
)

pytestmark = pytest.mark.anyio

NOT_CONFIRMED = '{"error": "the user did not confirm this call"}'


class Ran(list[str]):
    """What the agent's tools did, in order."""

    def tool(self, name: str, **fields: Any) -> FunctionTool:
        def work() -> str:
            self.append(name)
            return f"{name} done"

        work.__name__ = name
        return FunctionTool(work, **fields)


class Asks(BaseTool):
    """A tool that says it wants a confirmation, and whose code never looks at the answer."""

    def __init__(self, ran: list[str], name: str = "wipe") -> None:
        super().__init__(name=name, description="Wipe.")
        self.ran = ran

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description)

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: Any) -> bool:
        return True

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        self.ran.append(self.name)
        return "wiped"


def question_about(desk: Driven, name: str) -> str:
    """The id of the question about the call of this tool."""
    tools = {event.request_id: event.name for event in desk.session.record if isinstance(event, ToolRequest)}
    found = [
        item.request_id
        for item in desk.session.pending
        if isinstance(item, ElicitationRequest) and tools.get(item.tool_request_id or "") == name
    ]
    assert len(found) == 1, (name, desk.session.pending)
    return found[0]


# -- several at once --------------------------------------------------------------------------------------------------

NAMES = ("one", "two", "three")


@pytest.mark.rule("TOOL-07", "TOOL-08", "HITL-02", "HITL-03")
@pytest.mark.parametrize("means", ["stream", "respond", "restart"])
@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)))
async def test_r06_several_confirmations_are_answered_in_any_order_each_for_itself(
    order: tuple[str, ...], means: str, visit: Visit
) -> None:
    """R06: the result of a call beside the one that waited was lost, and the model said nothing at the end."""
    ran = Ran()
    tools: list[Any] = [ran.tool(name, require_confirmation=True) for name in NAMES]
    tools.append(ran.tool("free", require_confirmation=False))
    step = calls(*(call(name, id=f"c-{name}") for name in (*NAMES, "free")))

    def answer(desk: Driven, name: str) -> Any:
        asked = question_about(desk, name)
        return decline(asked) if name == "two" else accept(asked)

    root = agent(step, say("done"), tools=tools)
    async with visit(root) as desk:
        await desk.stream("go")
        assert ran == []
        await desk.stream(grant(desk.pending("free")))
        assert ran == ["free"]
        if means == "stream":
            for name in order:
                await desk.stream(answer(desk, name))
        elif means == "respond":
            for name in order:
                (receipt,) = await desk.session.respond(answer(desk, name))
                assert receipt.ok
            await desk.stream()
    if means == "restart":
        for number, name in enumerate(order):
            root = agent(say("done"), tools=tools)
            async with visit(root) as desk:
                if number < 2:
                    await desk.session.respond(answer(desk, name))
                else:
                    assert (await desk.stream(answer(desk, name))).reason == "completed"
    assert sorted(ran) == ["free", "one", "three"]
    shown = dict(entry for entry in history(root.model) if entry[0].startswith("result"))
    assert shown == {
        "result c-one": '{"result": "one done"}',
        "result c-two": NOT_CONFIRMED,
        "result c-three": '{"result": "three done"}',
        "result c-free": '{"result": "free done"}',
    }
    assert_valid_history(root.model)
    assert model_calls(root) == (1 if means == "restart" else 2)


@pytest.mark.rule("HITL-02", "TOOL-01")
@pytest.mark.parametrize("refuse", [decline, cancel])
async def test_r50_a_refusal_runs_neither_its_call_nor_one_that_still_waits(refuse: Any) -> None:
    """R50: after a cancelled approval the step's later tools still ran."""
    ran = Ran()
    tools: list[Any] = [ran.tool(name, require_confirmation=True) for name in ("shell", "write")]
    root = agent(calls(call("shell", id="c1"), call("write", id="c2")), say("done"), tools=tools)
    async with driven(root) as desk:
        await desk.stream("go")
        turn = await desk.stream(refuse(question_about(desk, "shell")))
        assert (turn.reason, ran, model_calls(root)) == ("input_required", [], 1)
        await desk.session.abort()
        assert ran == []
        assert desk.responses() == {"shell": "denied", "write": "cancelled"}


# -- what was declined is never done ----------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize("yes", [True, False])
async def test_a_tool_that_never_looks_at_its_confirmation_runs_only_after_a_yes(where: str, yes: bool) -> None:
    ran: list[str] = []
    inner = agent(call("wipe", id="c1"), say("inner done"), name="inner", tools=[Asks(ran)])
    root: Any = inner
    if where == "child":
        root = agent(call("inner", {"request": "go"}), say("done"), tools=[AgentTool(inner)])
    elif where == "pipeline":
        with pytest.warns(DeprecationWarning, match="SequentialAgent"):
            root = old_agent("SequentialAgent", name="pipe", sub_agents=[inner])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("wipe")))
        assert ran == []
        asked = desk.pending("tool_confirmation")
        done = await desk.stream(accept(asked) if yes else decline(asked))
        assert (done.reason, ran) == ("completed", ["wipe"] if yes else [])
        assert desk.responses()["wipe"] == ("completed" if yes else "denied")


@pytest.mark.rule("HITL-02")
async def test_a_tool_that_asked_from_inside_is_not_entered_again_after_a_no(visit: Visit) -> None:
    entered: list[Any] = []

    def wipe(tool_context: ToolContext) -> Any:
        """Asks, and then acts whatever was said."""
        entered.append(tool_context.tool_confirmation)
        if len(entered) == 1:
            tool_context.request_confirmation(hint="Wipe?")
            return None
        return "wiped"

    root = agent(call("wipe", id="c1"), call("wipe", id="c1"), say("done"), tools=[wipe])
    async with visit(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("wipe")))
        turn = await desk.stream(decline(desk.pending("tool_confirmation")))
        assert entered == [None]
        # The model calls again, under the same id: that is another call, and asked about anew.
        assert turn.reason == "input_required"
        await desk.stream(deny(desk.pending("wipe")))
        assert entered == [None]
        assert desk.responses() == {"wipe": "denied denied"}


@pytest.mark.rule("HITL-03", "TOOL-03")
async def test_a_yes_is_for_one_call_also_when_the_model_repeats_its_id() -> None:
    ran = Ran()
    tools: list[Any] = [ran.tool("write", require_confirmation=True)]
    root = agent(call("write", id="c1"), call("write", id="c1"), say("done"), tools=tools)
    async with driven(root) as desk:
        await desk.stream("go")
        first = desk.pending("tool_confirmation")
        again = await desk.stream(accept(first))
        assert (again.reason, ran) == ("input_required", ["write"])
        second = desk.pending("tool_confirmation")
        assert second != first
        done = await desk.stream(decline(second))
        assert (done.texts, ran) == (["done"], ["write"])
        assert desk.responses() == {"write": "completed denied"}
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-03", "TOOL-01")
async def test_a_confirmed_tool_that_raises_has_failed_and_is_not_run_again() -> None:
    ran: list[int] = []

    def write() -> str:
        ran.append(1)
        raise OSError("disk full")

    root = agent(call("write", id="c1"), say("sorry"), tools=[FunctionTool(write, require_confirmation=True)])
    async with driven(root) as desk:
        await desk.stream("go")
        asked = desk.pending("tool_confirmation")
        done = await desk.stream(accept(asked))
        assert (done.reason, done.texts, ran) == ("completed", ["sorry"], [1])
        (late,) = await desk.session.respond(accept(asked))
        assert late.status == "stale"
        assert desk.responses() == {"write": "failed"}


# -- what a yes carries -----------------------------------------------------------------------------------------------


def asking(seen: list[Any], times: int = 1) -> Any:
    """A tool that asks this often from inside before it does its work."""

    def book(tool_context: ToolContext, room: str = "small") -> Any:
        """Book a room."""
        given = tool_context.tool_confirmation
        seen.append((room, None if given is None else given.payload))
        if len(seen) <= times:
            tool_context.request_confirmation(hint=f"Book {len(seen)}?", payload={"nights": len(seen)})
            return {"status": "asked"}
        return "booked"

    return book


@pytest.mark.rule("HITL-03")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("content", "payload"),
    [
        (None, {"nights": 1}),
        (True, {"nights": 1}),
        ({"confirmed": True}, {"nights": 1}),
        ({"payload": {"nights": 3}}, {"nights": 3}),
        ({"payload": [1, 2]}, [1, 2]),
        ({"payload": "three"}, "three"),
        ({"payload": 0}, 0),
        ({"payload": False}, False),
        ({"confirmed": True, "payload": {"nights": 2}}, {"nights": 2}),
    ],
)
async def test_the_payload_that_a_person_edited_reaches_the_tool_whatever_its_shape(
    content: Any, payload: Any, restarted: bool, visit: Visit
) -> None:
    seen: list[Any] = []
    tools = [asking(seen)]
    async with visit(agent(call("book", id="c1"), say("done"), tools=tools)) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("book")))
        if not restarted:
            await desk.stream(accept(desk.pending("tool_confirmation"), content))
    if restarted:
        async with visit(agent(say("done"), tools=tools)) as desk:
            await desk.stream(accept(desk.pending("tool_confirmation"), content))
    assert seen == [("small", None), ("small", payload)]
    assert desk.responses() == {"book": "completed"}


@pytest.mark.rule("HITL-01", "HITL-08")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "content",
    [False, "no", 0, [], {"confirmed": False}, {"confirmed": "no"}, {"decision": "deny"}, {"denied": True}],
)
async def test_a_yes_that_contradicts_itself_waits_on_and_runs_nothing(
    content: Any, restarted: bool, visit: Visit
) -> None:
    ran = Ran()
    tools: list[Any] = [ran.tool("write", require_confirmation=True)]
    receipts: list[Receipt] = []
    async with visit(agent(call("write", id="c1"), say("done"), tools=tools)) as desk:
        await desk.stream("go")
        if not restarted:
            receipts += await desk.session.respond(accept(desk.pending("tool_confirmation"), content))
            assert desk.session.state == "input_required"
    if restarted:
        async with visit(agent(say("done"), tools=tools)) as desk:
            receipts += await desk.session.respond(accept(desk.pending("tool_confirmation"), content))
            assert desk.session.state == "input_required"
    assert [(receipt.status, receipt.rule) for receipt in receipts] == [("invalid", "HITL-08")]
    assert ran == []


@pytest.mark.rule("HITL-03", "HITL-04")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_tool_that_asks_twice_after_edited_arguments_is_told_both_answers(yes: bool) -> None:
    seen: list[Any] = []
    root = agent(call("book", {"room": "small"}, id="c1"), say("done"), tools=[asking(seen, times=2)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("book"), {"room": "large"}))
        (first,) = desk.session.pending
        again = await desk.stream(accept(first.request_id, {"payload": "first"}))
        (second,) = desk.session.pending
        assert isinstance(second, ElicitationRequest)
        assert (again.reason, second.message, second.context) == ("input_required", "Book 2?", {"nights": 2})
        await desk.stream(accept(second.request_id) if yes else decline(second.request_id))
        asked = [("large", None), ("large", "first")]
        assert seen == ([*asked, ("large", {"nights": 2})] if yes else asked)
        assert desk.responses() == {"book": "completed" if yes else "denied"}


# -- who decides that there is a question -----------------------------------------------------------------------------


async def large(room: str) -> bool:
    return room == "large"


async def large_in_context(room: str, tool_context: ToolContext) -> bool:
    return room == "large" and tool_context.function_call_id is not None


class Rooms(BaseToolset):
    """A toolset whose tools want a confirmation on a condition, as those of an MCP server may."""

    def __init__(self, tool: BaseTool) -> None:
        super().__init__(tool_name_prefix="hotel")
        self.tool = tool

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        return [self.tool]


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("within", ["agent", "toolset"])
@pytest.mark.parametrize("condition", [large, large_in_context, lambda room: room == "large"])
@pytest.mark.parametrize(("room", "yes"), [("large", True), ("large", False), ("small", None)])
async def test_a_condition_for_confirmation_asks_where_it_holds(
    room: str, yes: bool | None, condition: Any, within: str
) -> None:
    ran: list[str] = []

    def book(room: str) -> str:
        """Book a room."""
        ran.append(room)
        return "booked"

    def book_in_context(room: str, tool_context: ToolContext) -> str:
        """Book a room."""
        return book(room)

    # ADK gives a condition what the tool itself takes, its context only then.
    book_in_context.__name__ = "book"
    function = book_in_context if condition is large_in_context else book
    tool = FunctionTool(function, require_confirmation=condition)
    name = "hotel_book" if within == "toolset" else "book"
    tools: list[Any] = [Rooms(tool) if within == "toolset" else tool]
    root = agent(call(name, {"room": room}, id="c1"), say("done"), tools=tools)
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending(name)))
        if yes is not None:
            assert (done.reason, ran) == ("input_required", [])
            asked = desk.pending("tool_confirmation")
            done = await desk.stream(accept(asked) if yes else decline(asked))
        assert (done.reason, ran) == ("completed", [] if yes is False else [room])


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_toolsets_tool_that_always_asks_has_one_question(yes: bool) -> None:
    ran = Ran()
    root = agent(call("hotel_book", id="c1"), say("done"), tools=[Rooms(ran.tool("book", require_confirmation=True))])
    async with driven(root) as desk:
        await desk.stream("go")
        asked = desk.pending("tool_confirmation")
        done = await desk.stream(accept(asked) if yes else decline(asked))
        assert (done.reason, ran) == ("completed", ["book"] if yes else [])


class AskedAgentTool(AgentTool):
    """An agent that is asked about before it is let work."""

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: Any) -> bool:
        return bool(args["request"] == "danger")


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("request_text", "yes"), [("danger", True), ("danger", False), ("harmless", None)])
async def test_an_agent_as_a_tool_that_wants_a_confirmation_works_only_after_a_yes(
    request_text: str, yes: bool | None, restarted: bool, visit: Visit
) -> None:
    kid = agent(say("kid was here"), name="kid")
    root = agent(call("kid", {"request": request_text}, id="c1"), say("done"), tools=[AskedAgentTool(kid)])

    async def answer(desk: Driven) -> Any:
        asked = desk.pending("tool_confirmation")
        return await desk.stream(accept(asked) if yes else decline(asked))

    async with visit(root) as desk:
        done = await desk.stream("go")
        if yes is not None:
            assert (done.reason, model_calls(kid)) == ("input_required", 0)
            if not restarted:
                done = await answer(desk)
    if restarted and yes is not None:
        root = agent(say("done"), tools=[AskedAgentTool(kid)])
        async with visit(root) as desk:
            done = await answer(desk)
    assert (done.reason, model_calls(kid)) == ("completed", 0 if yes is False else 1)
    assert desk.responses() == {"kid": "denied" if yes is False else "completed"}
    assert_valid_history(root.model)


@pytest.mark.rule("HITL-01", "HITL-02", "HITL-03")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_hand_over_that_wants_a_confirmation_is_made_only_after_a_yes(yes: bool) -> None:
    kid = agent(say("kid here"), name="kid", disallow_transfer_to_peers=True)
    root = agent(
        call("transfer_to_agent", {"agent_name": "kid"}, id="c1"),
        say("stayed"),
        sub_agents=[kid],
        tools=[FunctionTool(transfer_to_agent, require_confirmation=True)],
    )
    async with driven(root) as desk:
        paused = await desk.stream("go")
        assert (paused.reason, model_calls(kid)) == ("input_required", 0)
        (asked,) = desk.session.pending
        assert isinstance(asked, ElicitationRequest)
        assert asked.message == "May transfer_to_agent run?"
        done = await desk.stream(accept(asked.request_id) if yes else decline(asked.request_id))
        assert (done.reason, done.texts) == ("completed", ["kid here" if yes else "stayed"])


# -- what must not be lost on the way ---------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
async def test_r48_the_signatures_of_calls_survive_their_confirmations(restarted: bool, visit: Visit) -> None:
    """R48: the model refused the next request, because a call had lost its signature."""
    ran = Ran()
    parts = [
        types.Part(text="thinking", thought=True, thought_signature=b"\x00first"),
        types.Part(function_call=types.FunctionCall(name="write", id="c1", args={}), thought_signature=b"\xffsecond"),
        types.Part(function_call=types.FunctionCall(name="read", id="c2", args={}), thought_signature=b"third"),
    ]
    step = raw(LlmResponse(content=types.Content(role="model", parts=parts)))
    tools: list[Any] = [ran.tool("write", require_confirmation=True), ran.tool("read", require_confirmation=True)]
    root = agent(step, say("done"), tools=tools)
    async with visit(root) as desk:
        await desk.stream("go")
        if not restarted:
            await desk.stream([accept(item.request_id) for item in desk.session.pending])
    if restarted:
        root = agent(say("done"), tools=tools)
        async with visit(root) as desk:
            await desk.stream([accept(item.request_id) for item in desk.session.pending])
    assert isinstance(root.model, type(agent().model))
    sent = [part for content in root.model.requests[-1].contents for part in content.parts or []]  # type: ignore[union-attr]
    assert [part.thought_signature for part in sent if part.function_call] == [b"\xffsecond", b"third"]
    assert sorted(ran) == ["read", "write"]
    assert_valid_history(root.model)


@pytest.mark.parametrize("restarted", [False, True])
async def test_r58_a_long_running_tool_that_fails_at_once_is_not_waited_for(restarted: bool, visit: Visit) -> None:
    """R58: the run paused for ever on an error that the model could have mended."""
    from google.adk.tools.long_running_tool import LongRunningFunctionTool

    def order(quantity: int) -> dict[str, Any]:
        return {"status": "error", "error": "the quantity must not be 0"}

    tools = [LongRunningFunctionTool(order)]
    root = agent(call("order", {"quantity": 0}, id="c1"), say("I need a quantity"), tools=tools)
    async with visit(root) as desk:
        done = await desk.stream("go")
        if not restarted:
            done = await desk.stream(grant(desk.pending("order")))
    if restarted:
        root = agent(say("I need a quantity"), tools=tools)
        async with visit(root) as desk:
            done = await desk.stream(grant(desk.pending("order")))
    assert (done.reason, done.texts) == ("completed", ["I need a quantity"])
    assert desk.session.pending == []


# -- kinds and modes that the host does not show ----------------------------------------------------------------------


@pytest.mark.rule("HITL-07", "HITL-02")
@pytest.mark.parametrize("host", [HostCapabilities(elicitation_kinds=[]), HostCapabilities(elicitation_modes=["url"])])
@pytest.mark.parametrize("what", ["always", "on a condition", "from inside", "input"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_the_host_cannot_show_is_cancelled_in_one_step_and_runs_nothing(
    what: str, host: HostCapabilities, restarted: bool, visit: Visit
) -> None:
    ran = Ran()
    seen: list[Any] = []
    tool = {
        "always": ran.tool("book", require_confirmation=True),
        "on a condition": ran.tool("book", require_confirmation=lambda: True),
        "from inside": asking(seen),
        "input": request_input,
    }[what]
    # After a restart only what was granted before it leads to a question; the rest is asked at once.
    late = restarted and what in ("on a condition", "from inside")
    root = agent(question() if what == "input" else call("book", id="c1"), say("done"), tools=[tool])
    async with visit(root, host=None if late else host) as desk:
        done = await desk.stream("go")
        if late:
            await desk.session.respond(grant(desk.pending("book")))
        elif done.reason == "input_required":
            done = await desk.stream(grant(desk.pending("book")))
    if late:
        root = agent(say("done"), tools=[tool])
        async with visit(root, host=host) as desk:
            done = await desk.stream()
    assert (done.reason, done.texts) == ("completed", ["done"])
    assert ran == []
    assert len(seen) == (1 if what == "from inside" else 0)
    (asked,) = [event for event in desk.session.record if isinstance(event, ElicitationRequest)]
    (answered,) = [event for event in desk.session.record if isinstance(event, ElicitationResponse)]
    assert (answered.action, answered.request_id) == ("cancel", asked.request_id)
    between = [event.seq for event in desk.session.record if asked.seq < event.seq < answered.seq]
    assert between == []
