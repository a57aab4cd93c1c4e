"""Long and old tool outputs in a whole host with a real ADK agent: what the model is shown, and what stays whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.host import Host, SqliteRecordStore, allow_all
from agentsession.host.models import OutputLimits, ToolOutputs
from agentsession.host.models._output_files import OutputFiles
from agentsession.protocol import (
    AgentSession,
    HookOutcome,
    LifecycleInterceptor,
    MemoryRecordStore,
    ToolResponse,
    modify,
)

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
LIMITS = OutputLimits(longest=1000, kept_tokens=500, least_tokens=300, preview=20)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def dump(size: int, letter: str = "x") -> str:
    """Write much."""
    return "HEAD" + letter * (size - 8) + "TAIL"


class Rig:
    def __init__(self, directory: Path, *script: Any, tools: Any = (dump,), **outputs: Any) -> None:
        self.model = ScriptedLlm(script=list(script))
        self.outputs = ToolOutputs(directory, limits=LIMITS, **outputs)
        self.agent = LlmAgent(name="root", model=self.model, tools=list(tools))
        self.host = Host(tools=[self.outputs.read_tool()], policy=allow_all, hooks=[self.outputs])

    def shown(self, number: int = -1) -> list[str]:
        """The tool outputs that a model call was shown, oldest first."""
        parts = [part for content in self.model.requests[number].contents for part in content.parts or []]
        return [
            str(next(iter(part.function_response.response.values())))
            for part in parts
            if part.function_response is not None and part.function_response.response
        ]

    async def run(self, *messages: str) -> list[Any]:
        async with AdkExecutor(self.agent, store=MemoryRecordStore()) as executor:
            async with self.host.session(executor) as session:
                return await self.turns(session, *messages)

    async def turns(self, session: AgentSession, *messages: str) -> list[Any]:
        for message in messages:
            result = await self.host.run_turn(session, message)
            assert result.end.reason == "completed", result.errors
        return [event async for event in session.events()]


def results(events: list[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event, ToolResponse)]


async def test_a_long_output_is_shown_by_its_head_and_tail_and_stays_whole_in_the_record(tmp_path: Path) -> None:
    rig = Rig(tmp_path, call("dump", {"size": 5000}, id="c1"), say("done"))
    events = await rig.run("go")
    (shown,) = rig.shown()
    assert shown.startswith("HEAD" + "x" * 196 + "\n\n[Too long to show. 4,000 characters are left out here.")
    assert shown.endswith("x" * 796 + "TAIL")
    assert results(events) == [dump(5000)]
    (kept,) = tmp_path.rglob("*.txt")
    assert kept.read_text() == dump(5000)
    assert f"read_output(name='{kept.name}', offset=0)" in shown


async def test_a_short_output_is_left_alone_and_nothing_is_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, call("dump", {"size": 1000}), say("done"))
    events = await rig.run("go")
    assert rig.shown() == [dump(1000)]
    assert not list(tmp_path.iterdir())
    assert not [event for event in events if event.type == "custom"]


async def test_old_outputs_are_masked_and_their_names_stay_the_same(tmp_path: Path) -> None:
    script = [call("dump", {"size": 800, "letter": letter}, id=letter) for letter in "abcdef"]
    rig = Rig(tmp_path, *script, say("done"))
    events = await rig.run("go")
    assert [len(text) < 500 for text in rig.shown()] == [True, True, True, True, False, False]
    assert rig.shown()[0].startswith("HEAD" + "a" * 16 + "\n\n[This output is old. 760 characters are left out here.")
    assert rig.shown(-2)[:2] == rig.shown()[:2]
    assert results(events) == [dump(800, letter) for letter in "abcdef"]
    told = [event.data for event in events if event.type == "custom"]
    assert told[-1]["reason"] == "tool outputs: 4 masked"


async def test_a_long_output_counts_as_what_is_shown_of_it(tmp_path: Path) -> None:
    script = [
        call("dump", {"size": size, "letter": letter}) for size, letter in ((800, "a"), (800, "b"), (50_000, "c"))
    ]
    rig = Rig(tmp_path, *script, call("dump", {"size": 9}), say("done"))
    await rig.run("go")
    assert [len(text) for text in rig.shown()][:2] == [800, 800]


async def test_an_output_that_is_hardly_longer_than_its_preview_is_not_masked(tmp_path: Path) -> None:
    script = [call("dump", {"size": size}) for size in (80, 81, 9, 9, 9)]
    rig = Rig(tmp_path, *script, say("done"), estimate=lambda text: 300)
    await rig.run("go")
    assert rig.shown()[0] == dump(80)
    assert "This output is old" in rig.shown()[1]


async def test_what_another_hook_takes_out_of_an_output_is_not_in_its_file(tmp_path: Path) -> None:
    def redact(hook_point: str, payload: Any) -> HookOutcome | None:
        wire = [content.to_wire() for content in payload.contents]
        told = json.loads(json.dumps(wire).replace("sk-SECRET", "*********"))
        return modify(contents=told)

    redactor: Any = SimpleNamespace(id="redact", points=("before_model",), fire=redact)

    def secret() -> str:
        """Tell much."""
        return "sk-SECRET" * 500

    rig = Rig(tmp_path, call("secret"), say("done"), tools=[secret])
    rig.host = Host(policy=allow_all, hooks=[rig.outputs, redactor])
    await rig.run("go")
    (kept,) = tmp_path.rglob("*.txt")
    assert kept.read_text() == "*********" * 500
    assert "sk-SECRET" not in rig.shown()[0]


async def test_an_output_that_quotes_a_mask_is_treated_like_any(tmp_path: Path) -> None:
    def quote() -> str:
        """Quote."""
        return "[This output is old. 760 characters are left out here.]" * 50

    rig = Rig(tmp_path, call("quote"), say("done"), tools=[quote])
    await rig.run("go")
    assert "Too long to show" in rig.shown()[0]


async def test_what_cannot_be_kept_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    rig = Rig(tmp_path / "file", call("dump", {"size": 5000}), say("done"))
    await rig.run("go")
    assert rig.shown() == [dump(5000)]


async def test_an_output_that_is_no_text_is_shown_as_json(tmp_path: Path) -> None:
    def table() -> dict[str, Any]:
        """Give a table."""
        return {"rows": list(range(1000)), "more": False}

    rig = Rig(tmp_path, call("table"), say("done"), tools=[table])
    await rig.run("go")
    assert rig.shown()[0].startswith('{\n "rows": [\n  0,\n')
    assert rig.shown()[0].endswith('"more": false\n}')


async def test_results_of_one_step_keep_their_order_and_their_calls(tmp_path: Path) -> None:
    long = call("dump", {"size": 3000, "letter": "a"}, id="c1")
    both = calls(long, call("dump", {"size": 9, "letter": "b"}, id="c2"))
    rig = Rig(tmp_path, both, say("done"))
    await rig.run("go")
    parts = [part for content in rig.model.requests[-1].contents for part in content.parts or []]
    made = [part.function_call.id for part in parts if part.function_call is not None]
    told = [(part.function_response.id, part.function_response.name) for part in parts if part.function_response]
    assert (made, told) == (["c1", "c2"], [("c1", "dump"), ("c2", "dump")])
    assert rig.shown()[1] == "HEADbTAIL"


async def test_the_model_reads_what_was_left_out_in_pieces_of_its_own_session_alone(tmp_path: Path) -> None:
    def read(request: Any, **more: Any) -> Any:
        text = str(request.contents[-1])
        return call("read_output", {"name": text.split("read_output(name=")[1].split(",")[0].strip("\\'"), **more})

    rig = Rig(
        tmp_path,
        call("dump", {"size": 50_000}),
        lambda request: read(request, offset=0, limit=30_000),
        call("dump", {"size": 900}),
        call("dump", {"size": 900}),
        call("dump", {"size": 900}),
        call("read_output", {"name": "../../etc/passwd"}),
        say("done"),
    )
    events = await rig.run("go")
    whole, piece, *_, none = results(events)
    assert rig.shown(2)[1] == piece["text"]  # what was asked for is never shortened
    assert rig.shown()[1].startswith("[What was read here is old")
    assert piece == {"text": whole[:20_000], "offset": 0, "total": 50_000, "next_offset": 20_000}
    assert "no output of this session has the name" in str(none)
    kept = next(path for path in tmp_path.rglob("*.txt") if path.stat().st_size == 50_000)

    other = Rig(tmp_path, call("read_output", {"name": kept.name}), say("done"))
    (foreign,) = results(await other.run("go"))
    assert "no output of this session has the name" in str(foreign)


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ({"offset": -5, "limit": 3}, {"text": "HEA", "offset": 0, "total": 5000, "next_offset": 3}),
        ({"offset": 4998, "limit": 3}, {"text": "IL", "offset": 4998, "total": 5000}),
        ({"offset": 9999}, {"text": "", "offset": 5000, "total": 5000}),
        ({"offset": 0, "limit": 0}, {"text": "H", "offset": 0, "total": 5000, "next_offset": 1}),
    ],
)
async def test_a_range_that_goes_beyond_an_output_is_read_as_far_as_there_is_some(
    asked: dict[str, int], read: dict[str, Any], tmp_path: Path
) -> None:
    files = OutputFiles(tmp_path)
    rig = Rig(tmp_path, call("dump", {"size": 5000}, id="c1"), say("done"))
    name = files.name_of("c1", dump(5000))
    rig.model.script.insert(1, call("read_output", {"name": name, **asked}))
    assert results(await rig.run("go"))[1] == read


async def test_a_rewind_shows_again_what_was_masked_after_it_and_leaves_the_files(tmp_path: Path) -> None:
    first = [call("dump", {"size": 800, "letter": letter}, id=letter) for letter in "abc"]
    later = [call("dump", {"size": 800, "letter": letter}, id=letter) for letter in "def"]
    rig = Rig(tmp_path, *first, say("one"), *later, say("two"), say("three"))
    async with AdkExecutor(rig.agent, store=MemoryRecordStore()) as executor:
        async with rig.host.session(executor) as session:
            await rig.turns(session, "go")
            ended = session.last_seq
            await rig.turns(session, "on")
            assert [len(text) < 500 for text in rig.shown()] == [True, True, True, True, False, False]
        kept = sorted(tmp_path.rglob("*.txt"))
        await executor.rewind(session.session_id, ended)
        async with rig.host.session(executor, load=session.session_id) as session:
            await rig.turns(session, "once more")
    assert rig.shown() == [dump(800, letter) for letter in "abc"]
    assert sorted(tmp_path.rglob("*.txt")) == kept


_KILLED = """
import os, signal, sys
import anyio
from tests.host.models.test_outputs import killed_run

anyio.run(killed_run, sys.argv[1])
"""


class _Kill:
    """Kills the process at the second model call, when the outputs are in their files and nothing was told of it."""

    id = "kill"
    order = 999
    points = ("before_model",)

    def __init__(self) -> None:
        self.calls = 0

    def fire(self, hook_point: str, payload: Any, /) -> None:
        import os

        self.calls += 1
        if self.calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)


async def killed_run(place: str, *, kills: bool = True, messages: tuple[str, ...] = ("go",)) -> list[Any]:
    """A run in ``place`` that a kill ends, or one that goes on with what it left."""
    folder = Path(place)
    script = [call("dump", {"size": 5000}, id="c1")] if kills else [say("on")] * 3
    rig = Rig(folder / "outputs", *script)
    hooks: list[LifecycleInterceptor] = [rig.outputs, _Kill()] if kills else [rig.outputs]
    host = Host(policy=allow_all, hooks=hooks, tools=[rig.outputs.read_tool()])
    history = SqliteSessionService(str(folder / "adk.db"))
    executor = AdkExecutor(rig.agent, session_service=history, store=SqliteRecordStore(folder / "r.db"))
    async with executor:
        if kills:
            async with host.session(executor) as session:
                (folder / "id").write_text(session.session_id)
                await host.run_turn(session, "go")
            return []
        async with host.session(executor, load=(folder / "id").read_text()) as session:
            for message in messages:
                await host.run_turn(session, message)
            shown = rig.shown()
            events = [event async for event in session.events()]
            await session.aclose()
            await executor.rewind(session.session_id, to=1)
            return [shown, events]


async def test_a_kill_between_file_and_event_loses_nothing_and_the_name_stays(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], cwd=ROOT, timeout=60, check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    (kept,) = (tmp_path / "outputs").rglob("*.txt")
    shown, events = await killed_run(str(tmp_path), kills=False, messages=("go on",))
    assert results(events) == [dump(5000)]
    assert kept.name in shown[0]
    assert [path.name for path in (tmp_path / "outputs").rglob("*.txt")] == [kept.name]
    assert kept.read_text() == dump(5000)  # the rewind that followed has left it
