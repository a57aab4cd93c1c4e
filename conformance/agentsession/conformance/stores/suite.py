"""The suite for record stores under pytest: one test for each scenario.

For: authors of stores. Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: pytest, anyio, ``agentsession.protocol``, the modules beside it.

::

    class TestMyStore(RecordStoreConformance):
        def factory(self, folder: Path) -> RecordStore:
            return MyStore(folder / "records")
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import ClassVar, Literal

import anyio
import pytest

from agentsession.conformance.stores.runner import all_store_scenarios, run_store_scenario
from agentsession.protocol import RecordStore

__all__ = ["RecordStoreConformance"]


class RecordStoreConformance:
    """Subclass it as ``class TestX(RecordStoreConformance)`` and define :meth:`factory`."""

    durable: ClassVar[bool] = True
    """Whether records outlive the store that wrote them."""
    backend: ClassVar[Literal["asyncio", "trio"]] = "asyncio"
    """The event loop that the store runs on."""

    def factory(self, folder: Path) -> RecordStore | Awaitable[RecordStore]:
        """Open the store of a folder, as a ``StoreFactory`` does: a fresh one for each scenario."""
        raise NotImplementedError(f"{type(self).__name__} must define factory()")

    @pytest.mark.parametrize("scenario", list(all_store_scenarios()))
    def test_scenario(self, scenario: str) -> None:
        made, is_durable = self.factory, self.durable

        class Factory:
            durable = is_durable

            def __call__(self, folder: Path) -> RecordStore | Awaitable[RecordStore]:
                return made(folder)

        chosen = all_store_scenarios()[scenario]
        result = anyio.run(run_store_scenario, chosen, Factory(), backend=self.backend)
        if result.verdict == "n/a":
            pytest.skip(result.message)
        if not result.is_good:
            pytest.fail(f"{result.scenario}: {result.sentence}\n{result.message}", pytrace=False)
