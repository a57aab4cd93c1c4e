"""The command: ``python -m benchmarks [name...]``; without names, every benchmark whose packages are installed."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from typing import Final

from benchmarks._rows import table

_NAMES: Final = (
    "base",
    "adk",
    "adk_history",
    "adk_mapping",
    "adk_growth",
    "policy",
    "hooks",
    "record_growth",
    "host_many",
    "agui_http",
)


def _run(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")  # only now: it may need what is not installed
    for line in table(module.rows()):
        print(line, flush=True)


def main(names: list[str]) -> int:
    """Run the benchmarks and print a table of each; the exit code."""
    there = [name for name in _NAMES if importlib.util.find_spec(f"benchmarks.{name}") is not None]
    unknown = [name for name in names if name not in there]
    if unknown:
        print(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(there)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()} on {platform.system()}")
    for name in names or there:
        print(f"\n{name}", flush=True)
        try:
            _run(name)
        except ModuleNotFoundError as error:
            print(f"skipped: {error.name} is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
