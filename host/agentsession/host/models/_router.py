"""Which model answers: retry, fallback and routing, as one hook of the host.

Not for: what an error means and when to call again (``_availability.py``), or making calls (the executor does).
Rules carried: HITL-09 (a question that nobody answers clearly stops). May import: ``protocol``, ``_availability``.

How healthy a model is, all sessions of a host know together. Which model is used instead, each session decides for
itself: a fallback in one moves no other, and one of a sub-agent does not move its parent.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from agentsession.host.models._availability import (
    HEALTHY,
    TRIES,
    TRIES_IN_CHAIN,
    Failure,
    Health,
    HealthEvent,
    classify,
    next_delay,
    transition,
)
from agentsession.protocol import (
    ConfigurationError,
    FallbackQuestion,
    HookOutcome,
    HookPayload,
    ModelErrorHook,
    ModelRequestHook,
    ModelResponseHook,
    SessionHook,
    UserMessageHook,
    modify,
)

__all__ = ["MODEL_UNAVAILABLE", "FallbackPolicy", "ModelRouter", "RouteFunction"]

logger = logging.getLogger("agentsession.host")

MODEL_UNAVAILABLE: Final = "MODEL_UNAVAILABLE"
"""The code of the error that ends a turn when no model is left."""

FallbackPolicy = Literal["silent", "ask"]

RouteFunction = Callable[[ModelRequestHook], str | None]
"""Which model shall answer a request; ``None``: the agent's own."""

INTENTS: Final = ("retry_once", "retry_always", "retry_later", "stop")
_SWITCHES: Final = ("retry_once", "retry_always")


@dataclasses.dataclass(slots=True)
class _Call:
    """One answer that an agent waits for."""

    base: str
    """The model that the agent or the session names."""
    model: str
    """The one that is being called."""
    calls: int = 0
    """How often ``model`` was called for this answer."""
    tried: list[str] = dataclasses.field(default_factory=list[str])
    offered: str | None = None
    """What a person is asked about."""
    once: bool = False
    """``model`` is a fallback that nobody was asked about: it is called once."""
    why: list[str] = dataclasses.field(default_factory=list[str])


@dataclasses.dataclass(slots=True)
class _Place:
    """An agent on a thread of a session."""

    base: str | None = None
    instead: str | None = None
    """The fallback that its calls go to until somebody speaks to it."""
    routed: str | None = None
    is_routed: bool = False
    call: _Call | None = None


@dataclasses.dataclass(slots=True)
class _Session:
    kept: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """By model: the one that a person chose to go on with."""
    places: dict[tuple[str | None, str | None], _Place] = dataclasses.field(
        default_factory=dict[tuple[str | None, str | None], _Place]
    )


class ModelRouter:
    """Calls a model again that failed, goes over to another, and may choose one for each request.

    ::

        Host(hooks=[ModelRouter(["gemini-2.5-flash"], policy="ask")], channel=...)

    ``fallbacks``: the models to use instead, in order, of every model; or by model, which others.
    ``policy``: ``silent`` goes over to the next, ``ask`` asks the person (kind ``model_fallback``); one for all, or by
    the model that failed (others: silent). Without a channel nobody can say yes, so ``ask`` then stops.
    ``route``: asked at the first model call after somebody spoke; its answer holds while the agent works on that.
    ``clock`` and ``rng``: for tests.

    An interceptor; see ``docs/how-to/fall-back-between-models.md``. Raises
    :class:`agentsession.protocol.ConfigurationError` (``models-invalid``) for names and policies that are none.
    """

    id: str = "models"
    order: int = 10
    """Before others, so that they see the model that is called."""
    points = frozenset({"session_end", "on_user_message", "before_model", "after_model", "on_model_error"})

    def __init__(
        self,
        fallbacks: Iterable[str] | Mapping[str, Iterable[str]] = (),
        *,
        policy: FallbackPolicy | Mapping[str, FallbackPolicy] = "silent",
        route: RouteFunction | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._of_model: dict[str, list[str]] = {}
        self._of_all: list[str] = []
        if isinstance(fallbacks, Mapping):
            self._of_model = {model: _names(names) for model, names in fallbacks.items()}
        else:
            self._of_all = _names(fallbacks)
        policies = [policy] if isinstance(policy, str) else policy.values()
        wrong = next((item for item in policies if item not in ("silent", "ask")), None)
        if wrong is not None:
            raise ConfigurationError(
                f"unknown policy {wrong!r} for models", expected="silent or ask", id="models-invalid"
            )
        self._policies: Mapping[str, FallbackPolicy] = {} if isinstance(policy, str) else dict(policy)
        self._policy: FallbackPolicy = policy if isinstance(policy, str) else "silent"
        self._route = route
        self._clock = clock
        self._rng = rng or random.Random()
        self._health: dict[str, Health] = {}
        self._sessions: dict[tuple[str, str], _Session] = {}

    # -- what others may ask -------------------------------------------------------------------------------------------

    def health(self, model: str) -> Health:
        """How a model is, as far as this host knows."""
        return self._health.get(model, HEALTHY)

    # -- the hook ------------------------------------------------------------------------------------------------------

    def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """See :class:`agentsession.protocol.LifecycleInterceptor`."""
        match payload:
            case UserMessageHook():
                self._spoken_to(payload)
            case ModelRequestHook():
                return self._before(payload)
            case ModelResponseHook():
                self._answered(payload)
            case ModelErrorHook():
                return self._failed(payload)
            case SessionHook() if hook_point == "session_end":
                self._sessions.pop((payload.user_id, payload.session_id), None)
            case _:
                pass
        return None

    def _session(self, payload: HookPayload) -> _Session:
        return self._sessions.setdefault((payload.user_id, payload.session_id), _Session())

    def _place(self, payload: HookPayload) -> _Place:
        return self._session(payload).places.setdefault((payload.agent_id, payload.thread_id), _Place())

    def _spoken_to(self, payload: UserMessageHook) -> None:
        """Somebody speaks to an agent: what was chosen for what it worked on is over."""
        if payload.source == "user" and not payload.steer:
            for model, health in list(self._health.items()):
                self._health[model] = transition(health, "turn", self._clock())
        session = self._session(payload)
        if payload.source == "user" and not payload.steer:
            # Threads below the main one were of work that is over.
            session.places = {key: place for key, place in session.places.items() if key[1] is None}
        for (agent, _), place in session.places.items():
            if payload.source == "user" or agent == payload.agent_id:
                place.is_routed, place.routed = False, None
                if not payload.steer:
                    place.instead = None

    def _before(self, payload: ModelRequestHook) -> HookOutcome | None:
        base = payload.model
        if base is None:
            return None
        place = self._place(payload)
        if place.base != base:
            if place.base is not None:  # the session's model was set anew
                self._session(payload).kept.pop(base, None)
            place.base, place.instead, place.is_routed, place.routed = base, None, False, None
        if not place.is_routed:
            place.is_routed, place.routed = True, self._routed(payload)
        model = self._kept(payload, place.instead or place.routed or base)
        if not self._is_available(model) and self._policy_of(model) == "silent":
            found = next((name for name in self._chain(model) if self._is_available(name)), None)
            if found is not None:  # else the model is called once, so that the end says why
                place.instead = model = found
        place.call = _Call(base, model)
        return modify(model=model, by=self.id) if model != base else None

    def _kept(self, payload: HookPayload, model: str) -> str:
        """What a person chose to go on with in a model's place."""
        kept, seen = self._session(payload).kept, {model}
        while model in kept and kept[model] not in seen:
            model = kept[model]
            seen.add(model)
        return model

    def _routed(self, payload: ModelRequestHook) -> str | None:
        if self._route is None:
            return None
        try:
            found: Any = self._route(payload)
        except Exception as error:  # noqa: BLE001 - which model answers is no permission: the agent's own does
            logger.warning("the routing of models failed with %s, so the agent's own is used", type(error).__name__)
            return None
        if found is not None and not (isinstance(found, str) and found):
            logger.warning("the routing of models gave a %s, so the agent's own is used", type(found).__name__)
            return None
        return found

    def _answered(self, payload: ModelResponseHook) -> None:
        place = self._place(payload)
        if place.call is not None and payload.error_code is None:
            self._note(place.call.model, "success")
            place.call = None

    # -- a call that failed --------------------------------------------------------------------------------------------

    def _failed(self, payload: ModelErrorHook) -> HookOutcome | None:
        place = self._place(payload)
        call = place.call
        if call is None or (payload.model is not None and payload.model != call.model):
            # A later hook or a callback chose another model than this one did.
            model = payload.model or "the agent's model"
            call = place.call = _Call(call.base if call is not None else model, model)
        if payload.answer is not None:
            return self._answered_by_person(payload, place, call)
        failure = classify(payload)
        if not failure.can_recover or not payload.can_retry:
            place.call = None
            return None
        call.calls += 1
        left = [name for name in self._chain(call.base, call.model) if self._is_left(name, call)]
        if failure.kind == "transient" and not call.once:
            delay = next_delay(
                call.calls,
                failure.hint,
                self._rng,
                tries=TRIES_IN_CHAIN if left else TRIES,
                crowded=failure.crowded and bool(left),
            )
            if delay is not None:
                return modify(after_s=delay, by=self.id, reason=_because(call.model, failure, payload))
        self._give_up(call, failure, payload)
        if not left:
            return self._nothing_left(place, call)
        if self._policy_of(call.model) == "ask":
            call.offered = left[0]
            return modify(ask=_question(call, failure, payload), by=self.id, reason=call.why[-1])
        place.instead = left[0]
        return self._go_over(place, call, left[0], once=True)

    def _go_over(self, place: _Place, call: _Call, model: str, *, once: bool) -> HookOutcome:
        place.routed = None
        place.call = dataclasses.replace(
            call, model=model, calls=0, tried=[*call.tried, call.model], offered=None, once=once
        )
        return modify(next_model=model, by=self.id, reason=call.why[-1])

    def _answered_by_person(self, payload: ModelErrorHook, place: _Place, call: _Call) -> HookOutcome:
        answer = payload.answer or {}
        content: Any = answer.get("content")
        intent = content.get("intent") if answer.get("action") == "accept" and isinstance(content, Mapping) else None
        if intent not in _SWITCHES or call.offered is None:
            return self._nothing_left(place, call, stopped=True)
        model = call.offered
        if intent == "retry_always":
            self._session(payload).kept[call.model] = model
            place.instead = None
        return self._go_over(place, call, model, once=False)

    def _give_up(self, call: _Call, failure: Failure, payload: ModelErrorHook) -> None:
        """No further call of this model for this answer: what that says of its health."""
        call.why.append(_because(call.model, failure, payload))
        events: dict[str, HealthEvent] = {"terminal": "quota", "not_found": "missing"}
        self._note(call.model, events.get(failure.kind, "capacity" if failure.crowded else "transient"), failure.hint)

    def _nothing_left(self, place: _Place, call: _Call, *, stopped: bool = False) -> HookOutcome:
        place.call = None
        told = "; ".join(call.why)
        reason = f"stopped, and no other model was used: {told}" if stopped else f"no model is left: {told}"
        return modify(fail_as=MODEL_UNAVAILABLE, by=self.id, reason=reason)

    # -- facts ---------------------------------------------------------------------------------------------------------

    def _chain(self, *models: str) -> list[str]:
        """What may be used instead of the first of these models that has fallbacks, without repetition."""
        found = self._of_all or next((self._of_model[model] for model in models if model in self._of_model), [])
        return [name for name in dict.fromkeys((*models, *found)) if name != models[-1]]

    def _is_left(self, name: str, call: _Call) -> bool:
        return name != call.model and name not in call.tried and self._is_available(name)

    def _is_available(self, model: str) -> bool:
        return self.health(model).is_available(self._clock())

    def _policy_of(self, model: str) -> FallbackPolicy:
        return self._policies.get(model, self._policy)

    def _note(self, model: str, event: HealthEvent, hint: float | None = None) -> None:
        health = transition(self.health(model), event, self._clock(), hint)
        if health == HEALTHY:
            self._health.pop(model, None)
        else:
            self._health[model] = health


def _names(given: Iterable[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    wrong = next((name for name in names if not isinstance(name, str) or not name), None)
    if wrong is not None:
        raise ConfigurationError(f"{wrong!r} is no name of a model", expected="names of models", id="models-invalid")
    return list(dict.fromkeys(names))


def _because(model: str, failure: Failure, payload: ModelErrorHook) -> str:
    """Why a model is not used, in words of our own."""
    other = "cannot be reached" if payload.code is None else "is overloaded" if failure.crowded else "fails"
    what = {"terminal": "has no quota left", "not_found": "does not exist"}.get(failure.kind, other)
    seen = " ".join(str(item) for item in (payload.code, payload.status) if item is not None)
    return f"{model} {what}{f' ({seen})' if seen else ''}"


def _question(call: _Call, failure: Failure, payload: ModelErrorHook) -> FallbackQuestion:
    context = {
        "model": call.model,
        "fallback": call.offered,
        "kind": failure.kind,
        "code": payload.code,
        "status": payload.status,
        "calls": call.calls,
    }
    return FallbackQuestion(
        message=f"{call.why[-1]}. Use {call.offered} instead?",
        context={name: value for name, value in context.items() if value is not None},
        requested_schema={
            "type": "object",
            "properties": {
                "intent": {
                    "type": "string",
                    "title": "What to do",
                    "oneOf": [
                        {"const": "retry_once", "title": f"use {call.offered} for this answer"},
                        {"const": "retry_always", "title": f"go on with {call.offered} in this session"},
                        {"const": "retry_later", "title": "stop, and try again later"},
                        {"const": "stop", "title": "stop"},
                    ],
                }
            },
            "required": ["intent"],
            "additionalProperties": False,
        },
    )
