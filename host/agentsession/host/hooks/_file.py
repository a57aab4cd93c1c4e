"""Files of hooks: TOML in, programs out, and nothing at all where one word is not understood.

Not for: running them (``_command.py``), or whether a workspace's file may be loaded (``_consent.py``).
Rules carried: none of its own. May import: ``protocol``, the modules beside it.

A file that loads in part would drop a guard without a word. A program that is not there is found here, not at its first
call: an interpreter that does not find its script exits with 2, which reads as a block.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from agentsession.host.hooks._command import CommandHook
from agentsession.host.hooks._entries import DEFAULT_ORDER, ON_ERROR
from agentsession.protocol import HOOK_POINTS, ConfigurationError

__all__ = ["files_of", "load_hooks", "parse_hooks", "read_file"]

_KEYS: Final = ("id", "point", "match", "command", "timeout_s", "order", "on_error", "env", "observes")
_TABLE: Final = re.compile(r"\s*\[\[\s*[\"']?hook[\"']?\s*\]\]")
_KEY: Final = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*=")
_ID: Final = re.compile(r"[\w.:-]{1,64}")
_INTERPRETERS: Final = re.compile(
    r"(python[\d.]*|pypy[\d.]*|node|deno|bun|ruby|perl|bash|sh|zsh|dash)(\.exe)?", re.IGNORECASE
)
_LONGEST_S: Final = 3600.0
_LARGEST: Final = 1024 * 1024


def load_hooks(path: str | os.PathLike[str], *, tier: str = "user", cwd: str | None = None) -> list[CommandHook]:
    """The hooks of a file, each ``[[hook]]`` one: ``id``, ``point``, ``command``, and if wanted ``match``,
    ``timeout_s`` (60), ``order`` (100), ``on_error`` (block or proceed), ``env`` (names of variables it may see),
    ``observes``.

    A program that is named with a separator is looked for beside the file, else on the PATH. ``cwd``: where they run.
    Whoever names a file trusts it; for one that a workspace brings along see :func:`workspace_hooks`.

    Raises :class:`agentsession.protocol.ConfigurationError` (``hooks-invalid``) with the file and line.
    """
    place = Path(path)
    return parse_hooks(read_file(place), place, tier=tier, cwd=cwd)


def read_file(path: Path) -> bytes:
    """A file's bytes. Raises :class:`ConfigurationError`."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(
            f"the hooks cannot be read: {error.strerror or type(error).__name__}",
            where=str(path),
            fix="name a file that is there",
            id="hooks-invalid",
        ) from None
    if len(raw) > _LARGEST:
        raise ConfigurationError("the file of hooks is too large", where=str(path), id="hooks-invalid")
    return raw


def parse_hooks(raw: bytes, path: Path, *, tier: str = "user", cwd: str | None = None) -> list[CommandHook]:
    """The hooks in ``raw``, which was read from ``path``. Raises as :func:`load_hooks` does."""
    file = _File(path, raw)
    file.only(file.table, ("version", "hook"), None)
    if file.table.get("version", 1) != 1:
        file.fail("this version of the file is not known", "version", expected="version = 1")
    listed = file.table.get("hook", [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        file.fail("hook is no list of tables", "hook", expected="[[hook]]")
    hooks = [file.hook(number, item, tier, cwd) for number, item in enumerate(cast("list[dict[str, Any]]", listed))]
    ids = [hook.id for hook in hooks]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            file.fail(f"two hooks have the id {name!r}", "id", number, fix="give each its own id")
    return hooks


def files_of(hook: CommandHook, root: Path) -> list[Path]:
    """The files that a hook's command names: its program, a script for an interpreter, arguments below ``root``."""
    program, *rest = hook.command
    found = [Path(program), *(root / word for word in rest)]
    return [file for number, file in enumerate(found) if number == 0 or _is_file(file)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no name of a file, such as a long line of shell
        return False


class _File:
    """A file that is being read, and where in it things stand."""

    def __init__(self, path: Path, raw: bytes) -> None:
        self.path = path
        try:
            text = raw.decode("utf-8")
            self.table: dict[str, Any] = tomllib.loads(text)
        except UnicodeDecodeError:
            raise ConfigurationError("the file is not UTF-8", where=str(path), id="hooks-invalid") from None
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column \d+\)", str(error))
            where = f"{path}:{found.group(1)}" if found else str(path)
            what = str(error).partition(" (at ")[0]
            raise ConfigurationError(f"the file is no TOML: {what}", where=where, id="hooks-invalid") from None
        self._lines: list[dict[str | None, int]] = [{}]
        for number, line in enumerate(text.splitlines(), start=1):
            if _TABLE.match(line):
                self._lines.append({None: number})
            elif (key := _KEY.match(line)) is not None:
                self._lines[-1].setdefault(key.group(1), number)

    def fail(
        self,
        what: str,
        key: str | None = None,
        number: int | None = None,
        *,
        expected: str | None = None,
        fix: str | None = None,
    ) -> NoReturn:
        """Refuse the file."""
        place = 0 if number is None else number + 1
        lines = self._lines[place] if place < len(self._lines) else {}
        line = lines.get(key, lines.get(None))
        where = f"{self.path}:{line}" if line is not None else str(self.path)
        raise ConfigurationError(what, where=where, expected=expected, fix=fix, id="hooks-invalid")

    def only(self, table: Mapping[str, Any], known: Sequence[str], number: int | None) -> None:
        """Refuse keys that are not known."""
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                fix = f"did you mean {near[0]}?" if near else None
                self.fail(f"unknown key {key!r}", key, number, expected=", ".join(known), fix=fix)

    def hook(self, number: int, table: dict[str, Any], tier: str, cwd: str | None) -> CommandHook:
        """One hook."""
        self.only(table, _KEYS, number)
        missing = [key for key in ("id", "point", "command") if key not in table]
        if missing:
            self.fail(f"a hook without {missing[0]}", None, number, expected="id, point and command")
        name, point = table["id"], table["point"]
        if not isinstance(name, str) or not _ID.fullmatch(name):
            self.fail("the id cannot be used", "id", number, expected="1 to 64 letters, digits and . _ : -")
        if not isinstance(point, str) or point not in HOOK_POINTS:
            near = difflib.get_close_matches(str(point), HOOK_POINTS, n=1)
            fix = f'point = "{near[0]}"' if near else None
            self.fail(
                f"there is no hook point {str(point)[:40]!r}", "point", number, expected=", ".join(HOOK_POINTS), fix=fix
            )
        on_error = table.get("on_error")
        if on_error is not None and on_error not in ON_ERROR:
            self.fail(f"unknown on_error {str(on_error)[:40]!r}", "on_error", number, expected="block or proceed")
        if on_error == "block" and HOOK_POINTS[point].block is None:
            self.fail(f"nothing can be blocked at {point}", "on_error", number, fix='on_error = "proceed"')
        timeout_s, order = table.get("timeout_s", 60.0), table.get("order", DEFAULT_ORDER)
        if not _is_number(timeout_s) or not 0 < timeout_s <= _LONGEST_S:
            self.fail("timeout_s is no time limit", "timeout_s", number, expected=f"seconds, up to {_LONGEST_S:g}")
        if not isinstance(order, int) or isinstance(order, bool):
            self.fail("order is no whole number", "order", number)
        if not isinstance(table.get("observes", False), bool):
            self.fail("observes is neither true nor false", "observes", number)
        match = table.get("match")
        if match is not None and not isinstance(match, str):
            match = self._texts(table, "match", number)
        command = self._texts(table, "command", number, may_be_empty=True)
        if not command[0]:
            self.fail("command names no program", "command", number, expected='command = ["program", "argument"]')
        return CommandHook(
            name,
            point,
            self._found(command, number),
            match=match,
            timeout_s=float(timeout_s),
            order=order,
            tier=tier,
            on_error=on_error,
            env=self._texts(table, "env", number) if table.get("env") else (),
            observes=table.get("observes", False),
            cwd=cwd,
        )

    def _texts(self, table: Mapping[str, Any], key: str, number: int, *, may_be_empty: bool = False) -> list[str]:
        value: object = table[key]
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self.fail(f"{key} is no list of texts", key, number, expected=f'{key} = ["…", "…"]')
        texts = cast("list[str]", value)
        if not may_be_empty and not all(texts):
            self.fail(f"{key} holds an empty text", key, number)
        if any("\0" in item for item in texts):
            self.fail(f"{key} holds a zero byte", key, number)
        return texts

    def _found(self, command: Sequence[str], number: int) -> list[str]:
        """The command with the whole path of its program, and of a script that stands beside the file."""
        program = command[0]
        if os.sep in program or "/" in program:
            path = (self.path.parent / program).absolute()
            if not path.is_file() or not os.access(path, os.X_OK):
                what = "is not there" if not path.is_file() else "cannot be executed"
                self.fail(f"the program {program[:200]!r} {what}", "command", number, fix=f"chmod +x {path}")
            out = [str(path), *command[1:]]
        else:
            found = shutil.which(program)
            if found is None:
                self.fail(
                    f"the program {program[:200]!r} is not on the PATH", "command", number, fix="name it with its path"
                )
            out = [found, *command[1:]]
        index = _script_index(out)
        if index is not None:
            script = (self.path.parent / out[index]).absolute()
            if not script.is_file():
                self.fail(f"the script {out[index][:200]!r} is not there", "command", number, expected=str(script))
            out[index] = str(script)
        return out


def _script_index(command: Sequence[str]) -> int | None:
    """Which argument is the script that an interpreter is to run, if it is one."""
    if not _INTERPRETERS.fullmatch(os.path.basename(command[0])):
        return None
    is_value = False
    for index, argument in enumerate(command[1:], start=1):
        if is_value:
            is_value = False
        elif argument in ("-c", "-m", "-e", "--eval", "-"):
            return None
        elif not argument.startswith("-"):
            return index
        else:
            is_value = argument in ("-X", "-W", "-r", "--require", "--import")
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
