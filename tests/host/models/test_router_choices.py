"""What the router chooses, asked by its hook points alone: which model, after what was said and what failed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agentsession.host.models import Health, ModelRouter
from agentsession.protocol import (
    HookOutcome,
    ModelErrorHook,
    ModelRequestHook,
    ModelResponseHook,
    SessionHook,
    UserMessageHook,
)

SPENT: dict[str, Any] = {"code": 429, "status": "RESOURCE_EXHAUSTED", "exhausted": True}
BROKEN: dict[str, Any] = {"code": 500, "status": "INTERNAL"}


class Talk:
    """One session, as the router hears of it."""

    def __init__(self, router: ModelRouter, session_id: str = "s") -> None:
        self.router = router
        self.where: dict[str, Any] = {"session_id": session_id, "user_id": "ann"}

    def says(self, **fields: Any) -> None:
        self.router.fire("on_user_message", UserMessageHook(**self.where, content=[], **fields))

    def calls(self, base: str, agent: str = "root", thread: str | None = None) -> str:
        """The model that a call goes to."""
        payload = ModelRequestHook(**self.where, agent_id=agent, thread_id=thread, model=base, contents=[])
        found = self.router.fire("before_model", payload)
        return base if found is None else str((found.modifications or {})["model"])

    def fails(self, model: str, agent: str = "root", thread: str | None = None, **error: Any) -> HookOutcome | None:
        fields: dict[str, Any] = {"can_retry": True, "error_type": "E", **error}
        payload = ModelErrorHook(**self.where, agent_id=agent, thread_id=thread, model=model, **fields)
        return self.router.fire("on_model_error", payload)

    def next_model(self, model: str, **error: Any) -> str | None:
        return _given(self.fails(model, **error)).get("next_model")

    def answers(self, agent: str = "root", **fields: Any) -> None:
        self.router.fire("after_model", ModelResponseHook(**self.where, agent_id=agent, content=[], **fields))

    def agrees(self, model: str, intent: str) -> None:
        """A person's answer to the question about a failed model, in which the call goes on."""
        assert "ask" in _given(self.fails(model, **SPENT))
        answer = {"action": "accept", "content": {"intent": intent}}
        assert "next_model" in _given(self.fails(model, answer=answer, **SPENT))


def _given(outcome: HookOutcome | None) -> dict[str, Any]:
    return (outcome.modifications or {}) if outcome is not None else {}


def router(*fallbacks: str, **more: Any) -> ModelRouter:
    return ModelRouter(fallbacks, clock=lambda: 0.0, rng=random.Random(1), **more)


def test_a_steer_leaves_the_fallback_and_a_message_does_not() -> None:
    talk = Talk(router("b"))
    assert (talk.calls("a"), talk.next_model("a", **BROKEN)) == ("a", None)
    assert [_given(talk.fails("a", **BROKEN)).keys() for _ in range(2)] == [{"after_s"}, {"next_model"}]
    talk.answers()
    talk.says(steer=True)
    assert talk.calls("a") == "b"
    talk.says()
    assert talk.calls("a") == "a"


def test_what_an_agent_says_to_another_leaves_its_own_fallback() -> None:
    talk = Talk(router("b"))
    for agent in ("root", "child"):
        talk.calls("a", agent)
        for _ in range(3):
            talk.fails("a", agent, **BROKEN)
        talk.answers(agent)
        talk.router._health.clear()  # else the model is known to be down, and nobody calls it
    talk.says(source="agent", agent_id="child")
    assert (talk.calls("a", "root"), talk.calls("a", "child")) == ("b", "a")


def test_what_people_chose_one_after_the_other_is_followed_to_its_end() -> None:
    talk = Talk(router("b", "c", policy="ask"))
    talk.calls("a")
    talk.agrees("a", "retry_always")
    talk.agrees("b", "retry_always")
    talk.answers()
    assert talk.calls("a") == "c"


def test_a_session_that_ended_is_forgotten_with_what_was_chosen_in_it() -> None:
    talk = Talk(router("b", policy="ask"))
    talk.calls("a")
    talk.agrees("a", "retry_always")
    assert talk.calls("a") == "b"
    talk.router.fire("session_end", SessionHook(**talk.where, reason="closed"))
    assert talk.calls("a") == "a"


def test_threads_that_are_over_are_not_kept() -> None:
    talk = Talk(router("b"))
    for number in range(50):
        talk.says()
        talk.calls("a")
        talk.calls("a", "child", f"call-{number}")
    (session,) = talk.router._sessions.values()
    assert len(session.places) == 2


def test_a_model_that_a_later_hook_chose_is_the_one_that_failed() -> None:
    desk = router("b")
    talk = Talk(desk)
    assert talk.calls("a") == "a"
    assert talk.next_model("x", **SPENT) == "a"
    assert (desk.health("x").state, desk.health("a").state) == ("quota", "healthy")


def test_a_call_that_cannot_be_made_again_is_left_to_fail() -> None:
    talk = Talk(router("b"))
    talk.calls("a")
    assert talk.fails("a", can_retry=False, **SPENT) is None


def test_a_fallback_that_is_known_to_be_down_is_passed_over() -> None:
    desk = router("b", "c")
    other = Talk(desk, "other")
    other.calls("b")
    assert other.next_model("b", **SPENT) == "c"
    talk = Talk(desk)
    talk.calls("a")
    assert talk.next_model("a", **SPENT) == "c"


def test_a_route_whose_model_failed_is_not_gone_back_to() -> None:
    talk = Talk(router("b", policy="ask", route=lambda _: "r"))
    assert talk.calls("a") == "r"
    talk.fails("r", **SPENT)
    answer = {"action": "accept", "content": {"intent": "retry_once"}}
    assert _given(talk.fails("r", answer=answer, **SPENT)) == {"next_model": "a"}
    talk.answers()
    assert talk.calls("a") == "a"
    talk.says()
    assert talk.calls("a") == "r"


def test_after_a_model_that_was_routed_to_comes_the_agents_own_and_then_its_fallbacks() -> None:
    talk = Talk(ModelRouter({"r": ["b"]}, route=lambda _: "r", clock=lambda: 0.0))
    talk.calls("a")
    assert talk.next_model("r", **SPENT) == "a"
    talk.router._health["a"] = Health("missing")
    other = Talk(talk.router, "other")
    other.router._health.pop("r")
    other.calls("a")
    assert other.next_model("r", **SPENT) == "b"


def test_a_message_forgets_the_one_failure_that_a_model_had() -> None:
    desk = router("b")
    talk = Talk(desk)
    talk.calls("a")
    for _ in range(3):
        talk.fails("a", **BROKEN)
    assert desk.health("a").state == "sticky_retry"
    talk.says(steer=True)
    assert desk.health("a").state == "sticky_retry"
    talk.says()
    assert desk.health("a").state == "healthy"


@pytest.mark.parametrize(("code", "state"), [(None, "healthy"), ("SAFETY", "sticky_retry")])
def test_an_answer_that_is_an_error_heals_nothing(code: str | None, state: str) -> None:
    desk = router()
    talk = Talk(desk)
    talk.calls("a")
    for _ in range(10):
        talk.fails("a", **BROKEN)
    talk.calls("a")
    talk.answers(error_code=code)
    assert desk.health("a").state == state


def test_the_tries_for_an_answer_that_was_aborted_do_not_count_for_the_next() -> None:
    talk = Talk(router("b"))
    talk.calls("a")
    for _ in range(2):
        assert _given(talk.fails("a", **BROKEN)).keys() == {"after_s"}
    talk.says()
    talk.calls("a")
    assert _given(talk.fails("a", **BROKEN)).keys() == {"after_s"}
