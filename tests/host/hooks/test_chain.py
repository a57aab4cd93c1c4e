"""Several hooks as one: order, what each sees, failures, observers. On asyncio and trio."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from agentsession.host.hooks import HookChain, ask_user, hook
from agentsession.protocol import (
    ConfigurationError,
    HookOutcome,
    HookPayload,
    ModelErrorHook,
    ModelRequestHook,
    SessionHook,
    ToolCallHook,
    ToolResultHook,
    block,
    modify,
)

pytestmark = pytest.mark.anyio


def call(name: str = "run", **args: Any) -> ToolCallHook:
    return ToolCallHook(session_id="s", user_id="u", request_id="r", name=name, args=args)


async def fire(*hooks: Any, payload: HookPayload | None = None, point: str = "before_tool") -> HookOutcome | None:
    return await HookChain(hooks).fire(point, payload or call(path="a"))


class Named:
    def __init__(self, log: list[str], name: str, **attributes: Any) -> None:
        self._log = log
        self.id = name
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def fire(self, hook_point: str, payload: HookPayload, /) -> None:
        self._log.append(self.id)


async def test_hooks_are_asked_by_tier_then_order_then_id() -> None:
    log: list[str] = []
    hooks = [
        Named(log, "last", tier="admin", order=0),
        Named(log, "b"),
        Named(log, "a"),
        Named(log, "early", order=1),
        Named(log, "first", tier="builtin", order=900),
    ]
    await fire(*hooks)
    assert log == ["first", "early", "a", "b", "last"]


async def test_hooks_without_an_id_of_their_own_are_asked_as_they_were_given() -> None:
    log: list[str] = []

    @hook("before_tool")
    def zebra(payload: ToolCallHook) -> None:
        log.append("zebra")

    @hook("before_tool")
    def ant(payload: ToolCallHook) -> None:
        log.append("ant")

    await fire(zebra, ant)
    assert log == ["zebra", "ant"]


async def test_a_hook_sees_what_the_one_before_it_has_changed_and_the_executor_gets_one_change() -> None:
    @hook("before_tool", id="a")
    async def first(payload: ToolCallHook) -> HookOutcome:
        return modify(args={**payload.args, "first": True})

    @hook("before_tool", id="b")
    async def second(payload: ToolCallHook) -> HookOutcome:
        return modify(args={**payload.args, "second": len(payload.args)})

    outcome = await fire(second, first)
    assert outcome is not None
    assert outcome.modifications == {"args": {"path": "a", "first": True, "second": 2}}
    assert outcome.by == "a,b"


async def test_the_first_block_ends_it_and_says_which_hook_it_was() -> None:
    log: list[str] = []

    @hook("before_tool", id="a")
    def refuse(payload: ToolCallHook) -> HookOutcome:
        return block("no")

    outcome = await fire(refuse, Named(log, "b"))
    assert outcome is not None
    assert (outcome.action, outcome.message, outcome.by, log) == ("block", "no", "a", [])


async def test_a_question_gives_way_to_a_later_block_and_keeps_later_changes() -> None:
    @hook("before_tool", id="a")
    def ask(payload: ToolCallHook) -> HookOutcome:
        return ask_user("looks odd")

    @hook("before_tool", id="b")
    def change(payload: ToolCallHook) -> HookOutcome:
        return modify(args={"path": "b"})

    @hook("before_tool", id="c")
    def refuse(payload: ToolCallHook) -> HookOutcome:
        return block("no")

    asked = await fire(ask, change)
    assert asked is not None
    assert (asked.action, asked.by, asked.reason, asked.modifications) == (
        "ask",
        "a",
        "looks odd",
        {"args": {"path": "b"}},
    )
    refused = await fire(ask, change, refuse)
    assert refused is not None
    assert (refused.action, refused.by) == ("block", "c")


async def test_a_failing_hook_blocks_before_a_tool_and_leaves_no_text_of_its_exception() -> None:
    @hook("before_tool", id="broken")
    def broken(payload: ToolCallHook) -> None:
        raise ValueError("sk-secret")

    outcome = await fire(broken)
    assert outcome is not None
    assert (outcome.action, outcome.by) == ("block", "broken")
    assert outcome.failure == "hook broken at before_tool failed with ValueError"
    assert "sk-secret" not in outcome.to_wire_json()


async def test_a_failing_hook_that_may_fail_leaves_the_others_at_work() -> None:
    @hook("before_tool", id="a", on_error="proceed")
    def broken(payload: ToolCallHook) -> None:
        raise ValueError

    @hook("before_tool", id="b")
    def change(payload: ToolCallHook) -> HookOutcome:
        return modify(args={"path": "b"})

    outcome = await fire(broken, change)
    assert outcome is not None
    assert (outcome.action, outcome.modifications, outcome.by) == ("proceed", {"args": {"path": "b"}}, "b")
    assert outcome.failure == "hook a at before_tool failed with ValueError"


async def test_a_failing_hook_lets_pass_after_a_tool_unless_it_says_block() -> None:
    @hook("after_tool")
    def broken(payload: ToolResultHook) -> None:
        raise ValueError

    @hook("after_tool", on_error="block")
    def strict(payload: ToolResultHook) -> None:
        raise ValueError

    result = ToolResultHook(session_id="s", user_id="u", name="run", data=1)
    lax = await fire(broken, payload=result, point="after_tool")
    assert lax is not None
    assert lax.action == "proceed"
    closed = await fire(strict, payload=result, point="after_tool")
    assert closed is not None
    assert closed.action == "block"


@pytest.mark.parametrize(
    "answer",
    [True, "block", HookOutcome(action="allow"), modify(content="x"), ask_user(content=3)],
    ids=["bool", "text", "unknown", "other_field", "bad_question"],
)
async def test_an_answer_that_cannot_be_used_is_a_failure(answer: Any) -> None:
    class Odd:
        def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
            given: HookOutcome | None = answer
            return given

    outcome = await fire(Odd())
    assert outcome is not None
    assert outcome.action == "block"


async def test_a_question_elsewhere_than_before_a_tool_is_a_failure() -> None:
    @hook("before_model")
    def ask(payload: ModelRequestHook) -> HookOutcome:
        return ask_user("?")

    outcome = await fire(ask, payload=ModelRequestHook(session_id="s", user_id="u"), point="before_model")
    assert outcome is not None
    assert outcome.action == "block"


async def test_what_a_hook_does_to_the_arguments_it_was_shown_reaches_nobody() -> None:
    @hook("before_tool")
    def sly(payload: ToolCallHook) -> None:
        payload.args["path"] = "b"

    payload = call(path="a")
    assert await fire(sly, payload=payload) is None
    assert payload.args == {"path": "a"}


async def test_observers_run_side_by_side_and_see_what_was_changed_or_blocked() -> None:
    seen: list[Any] = []
    met = [anyio.Event(), anyio.Event()]

    def observer(mine: int) -> Any:
        @hook("before_tool", observes=True, id=f"o{mine}")
        async def watch(payload: ToolCallHook) -> None:
            met[mine].set()
            await met[1 - mine].wait()  # each waits for the other: they are there at once
            seen.append(payload.args["path"])

        return watch

    @hook("before_tool")
    def change(payload: ToolCallHook) -> HookOutcome:
        return modify(args={"path": "b"})

    with anyio.fail_after(5):
        await fire(observer(0), change, observer(1))
    assert seen == ["b", "b"]

    @hook("before_tool")
    def refuse(payload: ToolCallHook) -> HookOutcome:
        return block()

    met[:] = [anyio.Event(), anyio.Event()]
    with anyio.fail_after(5):
        await fire(observer(0), refuse, observer(1))
    assert seen == ["b", "b", "a", "a"]


async def test_what_an_observer_answers_counts_for_nothing_and_is_told() -> None:
    @hook("before_tool", observes=True, id="o")
    def refuse(payload: ToolCallHook) -> HookOutcome:
        return block()

    outcome = await fire(refuse)
    assert outcome is not None
    assert outcome.action == "proceed"
    assert outcome.failure == "hook o at before_tool only observes, and answered block"


async def test_a_hook_is_asked_only_where_its_globs_or_its_function_match() -> None:
    log: list[str] = []
    hooks = [
        Named(log, "glob", match=["read_*", "run_*"]),
        Named(log, "other", match="write_*"),
        Named(log, "function", match=lambda payload: payload.args.get("force") is True),
    ]
    await fire(*hooks, payload=call("run_shell", force=True))
    await fire(*hooks, payload=call("shell"))
    assert log == ["function", "glob"]


async def test_a_match_that_raises_is_a_failure_of_the_hook() -> None:
    outcome = await fire(Named([], "a", match=lambda payload: payload.no_such_field))
    assert outcome is not None
    assert outcome.action == "block"


async def test_a_plain_function_that_blocks_does_not_hold_the_loop() -> None:
    release, entered = threading.Event(), threading.Event()

    @hook("before_tool")
    def slow(payload: ToolCallHook) -> HookOutcome:
        entered.set()
        assert release.wait(5)
        return block("late")

    outcomes: list[HookOutcome | None] = []

    async def ask() -> None:
        outcomes.append(await fire(slow))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while not entered.is_set():
                await anyio.lowlevel.checkpoint()
            release.set()  # reached only where the loop goes on
    assert outcomes[0] is not None
    assert outcomes[0].message == "late"


async def test_a_function_that_takes_too_long_has_failed() -> None:
    @hook("before_tool", id="slow", timeout_s=0)
    async def slow(payload: ToolCallHook) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        outcome = await fire(slow)
    assert outcome is not None
    assert (outcome.action, outcome.failure) == ("block", "hook slow at before_tool took longer than 0 s")


async def test_tools_that_one_hook_took_away_another_cannot_bring_back_and_settings_add_up() -> None:
    @hook("before_model", id="a")
    def fewer(payload: ModelRequestHook) -> HookOutcome:
        return modify(tools=["read"], config={"temperature": 0, "seed": None})

    @hook("before_model", id="b")
    def more(payload: ModelRequestHook) -> HookOutcome:
        assert payload.config == {"temperature": 0}
        return modify(tools=["read", "write"], config={"top_k": 3}, systemInstruction="short")

    payload = ModelRequestHook(session_id="s", user_id="u", tools=["read", "write"], config={"seed": 1})
    outcome = await fire(fewer, more, payload=payload, point="before_model")
    assert outcome is not None
    assert outcome.modifications == {
        "tools": ["read"],
        "config": {"temperature": 0, "seed": None, "top_k": 3},
        "system_instruction": "short",
    }


async def test_of_two_hooks_that_decide_on_a_failed_model_call_the_last_one_holds() -> None:
    @hook("on_model_error", id="a")
    def again(payload: ModelErrorHook) -> HookOutcome:
        return modify(next_model="other", after_s=1)

    @hook("on_model_error", id="b")
    def answer(payload: ModelErrorHook) -> HookOutcome:
        return modify(content="Sorry.")

    payload = ModelErrorHook(session_id="s", user_id="u", error_type="ServerError")
    outcome = await fire(again, answer, payload=payload, point="on_model_error")
    assert outcome is not None
    assert outcome.modifications == {"content": [{"type": "text", "text": "Sorry."}]}


async def test_a_chain_names_the_points_of_its_hooks_and_all_where_one_names_none() -> None:
    @hook("before_tool", "after_tool")
    def both(payload: HookPayload) -> None: ...

    assert HookChain([both]).points == frozenset({"before_tool", "after_tool"})
    assert HookChain([both, Named([], "every")]).points is None
    assert (
        await fire(both, payload=SessionHook(session_id="s", user_id="u", reason="opened"), point="session_start")
        is None
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: HookChain([object()]),  # type: ignore[list-item]  # what a user may get wrong
        lambda: HookChain([Named([], "a"), Named([], "a")]),
        lambda: HookChain([Named([], "a", tier="boss")]),
        lambda: HookChain([Named([], "a", order="1")]),
        lambda: HookChain([Named([], "a", on_error="ignore")]),
        lambda: hook("before_tools"),
        lambda: hook(),
    ],
    ids=["no_hook", "same_id", "tier", "order", "on_error", "point", "no_point"],
)
def test_what_is_no_hook_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        wrong()
    assert caught.value.id == "hooks-invalid"
