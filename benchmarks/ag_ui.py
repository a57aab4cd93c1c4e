"""The command ``python -m benchmarks.ag_ui``: run ``adk_mapping`` and ``agui_http`` with ag-ui-adk beside what is here.

ag-ui-adk is measured, not used, so it is in no lock. This makes a throwaway environment under ``.benchmarks/`` that
sees the packages of the present one, and lets pip add what is missing. Without an index it says so and skips.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

_VERSION = "0.11.0"
_ROOT = Path(__file__).resolve().parent.parent
_PLACE = _ROOT / ".benchmarks" / f"ag-ui-adk-{_VERSION}"
_LIMIT_S = 600


def _make() -> str | None:
    """Make the environment; what went wrong."""
    python = _PLACE / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_PLACE)], check=True, timeout=_LIMIT_S)
        inside = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        seen = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (Path(inside) / "beside.pth").write_text("".join(f"{path}\n" for path in sorted(seen)), encoding="utf-8")
        pip = [str(python), "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "install", f"ag-ui-adk=={_VERSION}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]


def main() -> int:
    """Make the environment unless it is there, and run the benchmark in it; the exit code."""
    ready = _PLACE / "ready"
    if not ready.exists():
        problem = _make()
        if problem is not None:
            print(f"skipped: ag-ui-adk {_VERSION} could not be installed ({problem})")
            return 0
        ready.touch()
    paths = [str(_ROOT), *(str(_ROOT / name) for name in ("protocol", "adapters", "host", "conformance"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [str(_PLACE / "bin" / "python"), "-m", "benchmarks", "adk_mapping", "agui_http"],
        check=False,
        cwd=_ROOT,
        env=environment,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
