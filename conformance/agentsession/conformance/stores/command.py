"""``agentsession conform --store MODULE:FACTORY``: the store suite from a command line.

Not for: the verdicts (``runner.py``). Rules carried: none. May import: ``agentsession.protocol``, anyio, ``load``,
the modules beside it.

Exit codes: 0; 1 when a scenario fails; 2 for a wrong call; 6 when the store could not be opened.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from agentsession.conformance.load import load_store_factory
from agentsession.conformance.stores.runner import StoreResult, run_stores
from agentsession.protocol import ConfigurationError

__all__ = ["conform_store"]

_BROKE: Final = 6
_WORDS: Final = {"pass": "ok", "fail": "FAIL", "n/a": "n/a", "error": "ERROR"}


def conform_store(
    target: str, scenarios: Sequence[str], refused: Mapping[str, Any], *, as_json: bool, verbose: bool
) -> int:
    """Play the scenarios to the factory's stores, print what came of it; the exit code."""
    for name, value in refused.items():
        if value:
            raise ConfigurationError(
                f"a store has no {name}", fix="agentsession conform --store MODULE:FACTORY", id="usage"
            )
    factory = load_store_factory(target)
    logging.getLogger().addHandler(logging.NullHandler())
    results = anyio.run(lambda: run_stores(factory, scenarios=list(scenarios) or None))
    if as_json:
        made = {"target": target, "results": [dataclasses.asdict(result) for result in results]}
        sys.stdout.write(json.dumps(made, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(target, results, verbose=verbose)) + "\n")
    if any(result.verdict == "error" for result in results):
        return _BROKE
    return int(not all(result.is_good for result in results))


def _lines(target: str, results: Sequence[StoreResult], *, verbose: bool) -> list[str]:
    width = max((len(result.scenario) for result in results), default=0)
    lines = [f"record store {target}", ""]
    for result in results:
        if not result.is_good or verbose:
            lines.append(f"  {_WORDS[result.verdict]:<6} {result.scenario:<{width}}  {_plain(result.sentence)}")
        if not result.is_good or (verbose and result.message):
            lines.append(f"  {'':<6} {'':<{width}}  {_plain(result.message)}")
        if not result.is_good:
            lines += [f"  {'':<6} {'':<{width}}  again: agentsession conform --store {target} -k {result.scenario}", ""]
    counts = Counter(result.verdict for result in results)
    judged = len(results) - counts["n/a"]
    said = f"{counts['pass']} of {judged} scenarios pass"
    if counts["n/a"]:
        said += f"; {counts['n/a']} are about what it does not offer"
    return [*lines, said] if verbose or judged != counts["pass"] else [lines[0], said]


def _plain(text: str) -> str:
    """What a store says, without signs that would move a terminal's cursor."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
