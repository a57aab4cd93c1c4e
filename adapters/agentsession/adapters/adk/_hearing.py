"""What the agent hears of what a person says: the host's hooks come between.

Not for: what a hook may change (``_hooks.py``), or which messages ADK has heard (``_catch_up.py``).
Rules carried: CTL-05, CTL-06, PER-02. May import: ``agentsession.protocol``, the modules beside it but ``_executor``,
google.genai types.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from google.genai import types

from agentsession.adapters.adk._replies import said_parts
from agentsession.protocol import Message, as_content

if TYPE_CHECKING:
    from agentsession.adapters.adk._handover import Handover
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["hear", "hear_missed", "must_stop"]


async def hear(
    live: LiveRun, content: types.Content, *, steer: bool, said_in: str | None = None
) -> types.Content | None:
    """What the agent hears of what was said; ``None``: nothing, and what a hook says instead is in the record.

    ``said_in`` is the turn that it was said in, if that is not the present one.
    """
    if live.hooks is None:
        return content
    try:
        heard = await live.hooks.said(content, steer=steer)
    except asyncio.CancelledError:
        live.state.heard.give_up(said_in or live.ctx.turn_id)  # or the hook would be asked again, and might hang again
        if steer or not live.ctx.aborting or must_stop():
            raise
        return None  # the turn is aborted, and with it the hook that hung
    if heard is None and not steer and not live.ctx.aborting:
        said = Message(
            message_id=live.ctx.new_id("m"), content=as_content(live.hooks.message), agent_id=live.ctx.agent_id
        )
        live.brackets.see_agent_open(said)
        await live.ctx.emit(said)
    return heard


async def hear_missed(live: LiveRun, handover: Handover) -> bool:
    """Let ADK hear what was said in turns before and did not come to it; hooks are asked, perhaps once more.

    Whether the turn can go on: it may be aborted while a hook is asked.
    """
    for message in live.state.heard.missed(live.ctx.record, live.ctx.turn_id):
        said = types.Content(role="user", parts=said_parts(message.content)[0])
        try:
            heard = await hear(live, said, steer=True, said_in=message.turn_id)
        except asyncio.CancelledError:
            if not live.ctx.aborting or must_stop():
                raise
            return False
        if heard is None:
            live.state.heard.give_up(message.turn_id)
        else:
            await handover.tell(live.state, message, heard)
    return True


def must_stop() -> bool:
    """Whether the present task itself is being cancelled, rather than something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
