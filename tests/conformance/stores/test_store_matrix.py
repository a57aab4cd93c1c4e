"""Every broken store fails its scenario, and no other; every scenario is failed by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conformance.stores.broken import BROKEN, BrokenStore

from agentsession.conformance.stores.runner import all_store_scenarios, run_store_scenario, run_stores
from agentsession.protocol import ConfigurationError, MemoryRecordStore, RecordInfo, RecordKey

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """A fault is one on either loop, and there are many."""
    return "asyncio"


@pytest.mark.parametrize("fault", BROKEN, ids=[fault.__name__ for fault in BROKEN])
async def test_a_broken_store_fails_its_scenario_and_no_other(fault: type[BrokenStore]) -> None:
    found = {result.scenario: result.message for result in await run_stores(fault) if not result.is_good}
    assert set(found) == {fault.scenario}, found


def test_every_scenario_is_failed_by_a_broken_store() -> None:
    assert sorted(all_store_scenarios()) == sorted(fault.scenario for fault in BROKEN)


async def test_the_store_without_a_fault_passes() -> None:
    class Right(MemoryRecordStore):
        def __init__(self, folder: Path) -> None:
            super().__init__()
            self._records = BrokenStore.folders.setdefault(folder, {})

    assert [result.verdict for result in await run_stores(Right)] == ["pass"] * len(all_store_scenarios())


async def test_a_store_that_cannot_be_opened_is_an_error_and_one_that_hangs_fails() -> None:
    def broken(folder: Path) -> MemoryRecordStore:
        raise OSError("no disk")

    scenario = all_store_scenarios()["tail"]
    found = await run_store_scenario(scenario, broken)
    assert (found.verdict, found.message) == ("error", "OSError: no disk")

    class Short(MemoryRecordStore):
        unlock: Any = None

        def __init__(self, folder: Path) -> None:
            super().__init__()

    found = await run_store_scenario(scenario, Short)
    assert (found.verdict, found.message) == ("error", "it is no record store: it has no unlock")

    class Hangs(MemoryRecordStore):
        def __init__(self, folder: Path) -> None:
            super().__init__()

        async def info(self, key: RecordKey) -> RecordInfo:
            await anyio.sleep_forever()
            raise AssertionError

    found = await run_store_scenario(all_store_scenarios()["reserved"], Hangs, limit_s=0.1)
    assert (found.verdict, found.message) == ("fail", "it is not done within 0.1 s")


async def test_a_scenario_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no scenario 'nope'"):
        await run_stores(BrokenStore, scenarios=["nope"])


def test_each_says_what_is_wrong_or_asked() -> None:
    said = [(fault.__doc__ or "").strip() for fault in BROKEN]
    said += [scenario.sentence for scenario in all_store_scenarios().values()]
    assert all(sentence.endswith(".") for sentence in said)
    assert len(set(said)) == len(said)


_STORES = """
from pathlib import Path
from agentsession.host import SqliteRecordStore
from agentsession.protocol import MemoryRecordStore

def good(folder: Path):
    return SqliteRecordStore(folder / "r.db")

class Bad(MemoryRecordStore):
    durable = False
    def __init__(self, folder):
        super().__init__()
    async def list(self, agent, user_id):
        return (await super().list(agent, user_id))[::-1]
"""


def _conform(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "stores.py").write_text(_STORES)
    command = [sys.executable, "-m", "agentsession.host.cli", "conform", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=120, check=False)


def test_the_command_says_what_fails_and_how_to_try_it_again(tmp_path: Path) -> None:
    done = _conform(tmp_path, "--store", "stores:Bad")
    assert done.returncode == 1
    assert "FAIL   list" in done.stdout
    assert "again: agentsession conform --store stores:Bad -k list" in done.stdout
    assert done.stdout.splitlines()[-1] == "22 of 23 scenarios pass; 2 are about what it does not offer"
    again = _conform(tmp_path, "--store", "stores:Bad", "-k", "list", "--json")
    (told,) = json.loads(again.stdout)["results"]
    assert (told["scenario"], told["verdict"]) == ("list", "fail")


def test_the_command_passes_a_good_store_and_refuses_what_a_store_has_not(tmp_path: Path) -> None:
    done = _conform(tmp_path, "--store", "stores:good")
    assert (done.returncode, done.stdout) == (0, "record store stores:good\n25 of 25 scenarios pass\n")
    assert _conform(tmp_path, "--store", "stores:good", "--level", "core").returncode == 2
    assert _conform(tmp_path, "--store", "stores:none").returncode == 2
