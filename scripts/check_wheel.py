"""Build the wheel, install it apart from this checkout, and type-check it as its users would.

Not for: testing behaviour (``make test``). Four questions, in this order:

1. Does the wheel hold every module of the four roots, four ``py.typed`` and no ``agentsession/__init__.py``?
2. Does the installed package import, from the wheel and not from the checkout?
3. Do mypy and pyright, both strict, accept the programs in ``tests/typing`` against it?
4. Does ``pyright --verifytypes agentsession.protocol`` say 100 %?

Nothing is fetched: the throw-away environment sees the dependencies of the one that runs this script.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOTS: Final = ("protocol", "adapters", "host", "conformance")


def say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


def fail(text: str) -> None:
    sys.exit(f"wheel: FAILED: {text}")


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed; say it all and stop when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        print(done.stdout)
        fail(f"{' '.join(Path(str(part)).name for part in command)} exited with {done.returncode}")
    return done.stdout


def module(name: str, *arguments: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a module of the environment that runs this script."""
    return run(sys.executable, "-m", name, *arguments, cwd=cwd, env=env)


def expected_files() -> set[str]:
    """What the wheel must hold: every file under the roots that git would keep."""
    files: set[str] = set()
    for root in ROOTS:
        for path in (ROOT / root / "agentsession").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                files.add(path.relative_to(ROOT / root).as_posix())
    return files


def check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    inside = {name for name in names if not name.startswith(f"{info}/")}
    expected = expected_files()
    if missing := sorted(expected - inside):
        fail(f"not in the wheel: {', '.join(missing)}")
    if extra := sorted(inside - expected):
        fail(f"in the wheel, but not in the four roots: {', '.join(extra)}")
    if untyped := [root for root in ROOTS if f"agentsession/{root}/py.typed" not in inside]:
        fail(f"no py.typed in {', '.join(untyped)}: type checkers would ignore its types")
    if "agentsession/__init__.py" in inside:
        fail("agentsession/__init__.py hides the other roots of the namespace package: delete it")
    if not any(name.startswith(f"{info}/licenses/") for name in names):
        fail("the licence is not in the wheel")
    if "agentsession = agentsession.host.cli:main" not in entry_points:
        fail("the command is not among the entry points")
    say(f"{wheel.name}: {len(inside)} files, {wheel.stat().st_size // 1024} KiB")


def make_environment(folder: Path, wheel: Path) -> dict[str, str]:
    """Install the wheel alone into a new environment; return the variables that activate it."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    module("pip", "--python", python, "-qq", "install", "--no-deps", "--no-index", wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A .pth line adds a folder to sys.path but does not read the .pth files in it: the dependencies are seen, the
    # editable install of this checkout is not.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "MYPYPATH"}}
    return kept | {
        "VIRTUAL_ENV": str(folder),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        # The pyright and the node that are installed, and no question to an index about newer ones.
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
        "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1",
    }


def check_import(python: Path, folder: Path, env: dict[str, str]) -> None:
    code = "import agentsession.protocol as p, sys; print(p.__file__)"
    where = run(python, "-W", "error", "-c", code, cwd=folder, env=env).strip()
    if not Path(where).resolve().is_relative_to(folder.resolve()):
        fail(f"agentsession.protocol was imported from {where}, not from the wheel")
    say("imports from the wheel")


def check_programs(python: Path, folder: Path, env: dict[str, str]) -> None:
    """Type-check the programs of tests/typing in a folder of their own, as if a user had written them there."""
    project = folder / "project"
    project.mkdir()
    programs = sorted((ROOT / "tests" / "typing").glob("*.py"))
    if not programs:
        fail("tests/typing holds no program")
    for program in programs:
        shutil.copy(program, project)
    config = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (project / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    (project / "mypy.ini").write_text("[mypy]\nstrict = True\npython_version = 3.11\n", encoding="utf-8")
    cache = folder / "mypy"
    mypy = module("mypy", "--python-executable", python, "--cache-dir", cache, ".", cwd=project, env=env)
    say(f"mypy --strict, {len(programs)} programs: {mypy.strip().splitlines()[-1]}")
    pyright = module("pyright", "--pythonpath", python, cwd=project, env=env)
    say(f"pyright strict: {pyright.strip().splitlines()[-1]}")


def check_completeness(python: Path, folder: Path, env: dict[str, str]) -> None:
    options = ("--verifytypes", "agentsession.protocol", "--ignoreexternal")
    output = module("pyright", "--pythonpath", python, *options, cwd=folder, env=env)
    score = next((line.strip() for line in output.splitlines() if "completeness score" in line), "no score")
    if not score.endswith("100%"):
        print(output)
        fail(score)
    say(f"agentsession.protocol: {score[0].lower()}{score[1:]}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="check-wheel-") as name:
        folder = Path(name)
        module("hatchling", "build", "--target", "wheel", "--directory", folder / "dist")
        (wheel,) = (folder / "dist").glob("*.whl")
        check_contents(wheel)
        env = make_environment(folder / "venv", wheel)
        python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        check_import(python, folder, env)
        check_programs(python, folder, env)
        check_completeness(python, folder, env)


if __name__ == "__main__":
    main()
