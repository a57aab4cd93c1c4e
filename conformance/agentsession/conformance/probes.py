"""Asks an executor for what it does not declare: it must say that it has no such thing, and not pretend.

Not for: what is declared (``scenarios``). Rules carried: none by itself;
a probe that fails counts against each rule of its capability.
May import: ``agentsession.protocol``, the modules beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from agentsession.conformance.harness import CannotPlay, Harness
from agentsession.conformance.scene import HarnessBroke, Scene, Stage, scene_of
from agentsession.conformance.script import Hold, Say
from agentsession.protocol import AgentSession, AgentSessionError, Unimplemented

__all__ = ["probe"]

_LIMIT_S: Final = 20.0

Call = Callable[[Stage, AgentSession], Awaitable[object]]


async def _load(stage: Stage, session: AgentSession) -> object:
    return await stage.executor.load("some-session", store=stage.play.store)


async def _list(stage: Stage, session: AgentSession) -> object:
    return await stage.executor.list(store=stage.play.store)


async def _delete(stage: Stage, session: AgentSession) -> object:
    await stage.executor.delete("some-session", store=stage.play.store)
    return None


async def _fork(stage: Stage, session: AgentSession) -> object:
    return await stage.executor.fork(session.session_id, session.last_seq, store=stage.play.store)


async def _rewind(stage: Stage, session: AgentSession) -> object:
    await stage.executor.rewind(session.session_id, session.last_seq, store=stage.play.store)
    return None


async def _steer(stage: Stage, session: AgentSession) -> object:
    async with session.stream("go"):
        await stage.reached("probe")
        try:
            return await session.steer("left")
        finally:
            stage.release("probe")


async def _abort(stage: Stage, session: AgentSession) -> object:
    async with session.stream("go"):
        await stage.reached("probe")
        try:
            return await session.abort()
        finally:
            stage.release("probe")


_CALLS: Final[Mapping[str, Call]] = {
    "load": _load,
    "resume": _load,
    "list": _list,
    "delete": _delete,
    "fork": _fork,
    "rewind": _rewind,
    "steering": _steer,
    "abort": _abort,
}
"""What is asked for each capability that has a call of its own; the others have none that could pretend."""


async def probe(capability: str, harness: Harness) -> str | None:
    """What is wrong with how an executor answers for a capability that it does not declare; ``None``: nothing."""
    call = _CALLS.get(capability)
    if call is None:
        return None
    try:
        async with scene_of(harness) as scene:
            return await _ask(capability, call, scene)
    except BaseExceptionGroup as group:
        return f"{capability} is not declared; asked for it, the executor broke: {group.exceptions[0]}"


async def _ask(capability: str, call: Call, scene: Scene) -> str | None:
    try:
        with anyio.fail_after(_LIMIT_S):
            stage = await scene.stage([Hold(mark="probe"), Say(text="done")])
            if capability == "resume" and "load" in stage.executor.descriptor.capabilities:
                return None  # what is loaded there has nothing left that waits
            await call(stage, await stage.open())
    except (Unimplemented, CannotPlay, HarnessBroke):
        return None
    except TimeoutError:
        return f"{capability} is not declared; asked for it, the executor did not answer"
    except AgentSessionError as error:
        return f"{capability} is not declared; asked for it, the executor raised {type(error).__name__}"
    return f"{capability} is not declared, yet the executor does it"
