"""ACP agents that never answer while they are started, opened or loaded: a clear error, and no process is left."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters.acp.acting import Acted, agent, answer, ask, chunk, end, said

from agentsession.protocol import AgentSessionError, ConfigurationError, InvalidInput, MemoryRecordStore, OpenOptions

pytestmark = pytest.mark.anyio

LOADS = {"agentCapabilities": {"loadSession": True}}


class Impatient(Acted):
    """Waits for ``initialize`` as long as it takes, and for what comes behind it a moment."""

    async def start_agent(self, deliver: Any, session: Any = None) -> Any:
        self.start_s = 60.0
        made = await super().start_agent(deliver, session)
        self.start_s = 0.1
        return made


class Heard(Acted):
    """Tells when the agent of a session has sent something."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.heard = anyio.Event()

    async def start_agent(self, deliver: Any, session: Any = None) -> Any:
        def told(item: Any) -> None:
            deliver(item)
            self.heard.set()

        return await super().start_agent(deliver if session is None else told, session)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_an_agent_that_does_not_answer_initialize_is_ended(tmp_path: Path) -> None:
    executor = agent(tmp_path, silent=["initialize"], start_s=3.0)
    with pytest.raises(ConfigurationError, match=re.escape("did not answer initialize within 3 s")) as failed:
        async with executor:
            pass
    assert failed.value.id == "acp-agent-start"
    assert not any(map(is_there, executor.pids()))


async def test_an_agent_that_does_not_answer_session_new_is_ended(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=["session/new"], kind=Impatient) as executor:
        with pytest.raises(AgentSessionError, match=re.escape("did not answer session/new within 0.1 s")) as failed:
            await executor.open()
        assert failed.value.id == "acp-agent-timeout"
        assert not executor._links  # pyright: ignore[reportPrivateUsage]  # nothing may be kept of it
        assert not any(map(is_there, executor.pids()))


async def test_an_agent_that_does_not_answer_session_load_fails_the_turn(tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with agent(tmp_path, [chunk("one"), answer()], store=store, initialize=LOADS) as executor:
        await said(await executor.open(OpenOptions(session_id="s")), "hi")
    async with agent(tmp_path, store=store, initialize=LOADS, silent=["session/load"], kind=Impatient) as again:
        session = await again.load("s")
        events = await said(session, "more")
        assert [(each.code, each.message) for each in events if each.type == "error"] == [  # type: ignore[attr-defined]
            ("acp-agent-timeout", "the agent did not answer session/load within 0.1 s")
        ]
        assert end(events).reason == "failed"
        assert not any(map(is_there, again.pids()))


@pytest.mark.parametrize("start_s", [0, -1.0, float("nan")])
def test_no_time_is_no_limit(tmp_path: Path, start_s: float) -> None:
    with pytest.raises(InvalidInput):
        agent(tmp_path, start_s=start_s)


async def test_an_opening_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    scene: dict[str, Any] = {"opening": [chunk("I am here")], "silent": ["session/new"]}
    async with agent(tmp_path, kind=Heard, **scene) as executor:
        assert isinstance(executor, Heard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.open)
            with anyio.fail_after(20):
                await executor.heard.wait()
            tasks.cancel_scope.cancel()
        assert not any(map(is_there, executor.pids()))


async def test_what_an_agent_asks_while_it_loads_is_refused_at_once(tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with agent(tmp_path, [chunk("one"), answer()], store=store, initialize=LOADS) as executor:
        await said(await executor.open(OpenOptions(session_id="s")), "hi")
    asks = [ask(5, "fs/read_text_file", path="/x"), {"read": 1}]
    scene: dict[str, Any] = {"store": store, "initialize": LOADS, "opening": asks}
    async with agent(tmp_path, [chunk("two"), answer()], **scene) as again:
        assert end(await said(await again.load("s"), "more")).reason == "completed"
        assert again.reply_to(5)["error"]["code"] == -32600
