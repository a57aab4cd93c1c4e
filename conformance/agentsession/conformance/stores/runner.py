"""Plays the scenarios of the store suite and comes to a verdict on each.

Not for: what a scenario does. Rules carried: none. May import: ``agentsession.protocol``, anyio, the modules beside it.
"""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import anyio

from agentsession.conformance.stores.scene import (
    STORE_SCENARIOS,
    NotOffered,
    StoreBreak,
    StoreFactory,
    StoreScenario,
    StoreScene,
    opened,
)
from agentsession.protocol import ConfigurationError

__all__ = ["StoreResult", "all_store_scenarios", "run_store_scenario", "run_stores"]

_LIMIT_S: Final = 60.0
"""Bounds a hang; a scenario takes milliseconds, some with thousands of events a second or two."""

_METHODS: Final = ("create", "append", "read", "info", "list", "delete", "lock", "unlock")
"""Those of ``agentsession.protocol.RecordStore``."""

Verdict = Literal["pass", "fail", "n/a", "error"]


@dataclasses.dataclass(frozen=True, slots=True)
class StoreResult:
    """The verdict on one scenario."""

    scenario: str
    sentence: str
    verdict: Verdict
    """``n/a``: the store does not offer it. ``error``: the store could not be opened or left."""
    message: str = ""

    @property
    def is_good(self) -> bool:
        """Whether a store with this verdict may be used."""
        return self.verdict in ("pass", "n/a")


def all_store_scenarios() -> Mapping[str, StoreScenario]:
    """Every scenario by its name, in the order in which they build on each other."""
    for module in ("records", "holders", "offers"):
        importlib.import_module(f"agentsession.conformance.stores.{module}")
    return STORE_SCENARIOS


async def run_store_scenario(chosen: StoreScenario, factory: StoreFactory, *, limit_s: float = _LIMIT_S) -> StoreResult:
    """What one scenario shows of a store, in a folder of its own."""

    def told(verdict: Verdict, message: str = "") -> StoreResult:
        return StoreResult(chosen.name, chosen.sentence, verdict, message)

    result = told("error", "the store could not be opened")
    with tempfile.TemporaryDirectory(prefix="agentsession-store-") as folder:
        try:
            with anyio.move_on_after(limit_s) as limit:
                async with opened(factory, Path(folder)) as store:
                    missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
                    if missing:
                        return told("error", f"it is no record store: it has no {', '.join(missing)}")
                    try:
                        await chosen.play(StoreScene(factory, Path(folder), store))
                        result = told("pass")
                    except StoreBreak as error:
                        result = told("fail", str(error))
                    except NotOffered as error:
                        result = told("n/a", str(error))
                    except Exception as error:  # noqa: BLE001 - whatever a store raises is a verdict on it
                        result = told("fail", f"it raises {type(error).__name__}: {error}".split("\n", 1)[0])
            if limit.cancelled_caught:
                return told("fail", f"it is not done within {limit_s:g} s")
        except Exception as error:  # noqa: BLE001 - see above
            return result if result.verdict == "fail" else told("error", f"{type(error).__name__}: {error}")
    return result


async def run_stores(factory: StoreFactory, *, scenarios: Collection[str] | None = None) -> Sequence[StoreResult]:
    """Play all scenarios, or those that are named. Raises :class:`ConfigurationError` for a name that is none."""
    known = all_store_scenarios()
    strange = [name for name in scenarios or () if name not in known]
    if strange:
        raise ConfigurationError(
            f"there is no scenario {strange[0]!r}", expected=f"one of {', '.join(known)}", id="usage"
        )
    chosen = [known[name] for name in known if scenarios is None or name in scenarios]
    return [await run_store_scenario(scenario, factory) for scenario in chosen]
