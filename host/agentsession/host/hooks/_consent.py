"""Hooks that a workspace brings along: programs of strangers, which run only as they were when a person agreed.

Not for: files that a person names (``load_hooks``). Rules carried: none of its own.
May import: ``protocol``, ``_command``, ``_file``.

What is agreed to is the file and the programs and scripts in the workspace that it names, byte by byte: a script that
was changed later is asked about again. The record of it lies outside of the workspace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agentsession.host.hooks._command import CommandHook
from agentsession.host.hooks._file import parse_hooks, programs_of, read_file
from agentsession.protocol import AgentSessionError, ConfigurationError, parse_json

__all__ = ["WORKSPACE_FILE", "HookConsent", "WorkspaceHooks", "workspace_hooks"]

WORKSPACE_FILE: Final = ".agentsession/hooks.toml"
"""Where a workspace keeps its hooks."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkspaceHooks:
    """What a workspace brings along."""

    path: Path
    hooks: tuple[CommandHook, ...] = ()
    refused: str | None = None
    """Why they were not loaded, to be shown to the person; ``None`` where they were, or there is no such file."""
    digest: str | None = None
    """What :meth:`HookConsent.give` takes."""


class HookConsent:
    """Which files of hooks a person has agreed to, kept in a file of the user's.

    ``path``: by default ``agentsession/trusted-hooks.json`` in the user's folder of configuration.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else _config_folder() / "trusted-hooks.json"

    def allows(self, file: Path, digest: str) -> bool:
        """Whether a person has agreed to this file as it is."""
        return self._read().get(_key(file)) == digest

    def knows(self, file: Path) -> bool:
        """Whether a person has agreed to this file, perhaps as it was before."""
        return _key(file) in self._read()

    def give(self, file: Path, digest: str) -> None:
        """A person agrees to a file; ``digest`` is :attr:`WorkspaceHooks.digest`. Raises :class:`OSError`."""
        self._write({**self._read(), _key(file): digest})

    def revoke(self, file: Path) -> bool:
        """A person agrees no longer; whether one had. Raises :class:`OSError`."""
        known = self._read()
        had = known.pop(_key(file), None) is not None
        if had:
            self._write(known)
        return had

    def _read(self) -> dict[str, str]:
        try:
            found = parse_json(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, AgentSessionError):
            return {}  # nobody has agreed to anything
        files = found.get("files") if isinstance(found, dict) and found.get("v") == 1 else None
        return {key: item for key, item in files.items() if isinstance(item, str)} if isinstance(files, dict) else {}

    def _write(self, files: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump({"v": 1, "files": files}, out, indent=1, sort_keys=True)
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def workspace_hooks(workspace: str | os.PathLike[str], consent: HookConsent | None = None) -> WorkspaceHooks:
    """The hooks of a workspace's :data:`WORKSPACE_FILE`, if a person has agreed to them as they are.

    Else ``hooks`` is empty, and ``refused`` says why. Raises :class:`agentsession.protocol.ConfigurationError`
    (``hooks-invalid``) for a file that was agreed to and cannot be used now: a guard must not vanish without a word.
    """
    root = Path(workspace).absolute()
    path = root / WORKSPACE_FILE
    if not path.exists():
        return WorkspaceHooks(path)
    known = consent or HookConsent()
    try:
        raw = read_file(path)
        hooks = parse_hooks(raw, path, tier="workspace", cwd=str(root))
    except ConfigurationError as error:
        if known.knows(path):
            raise
        return WorkspaceHooks(path, refused=f"{error.what} ({error.where}), and nobody agreed to these hooks")
    digest = _digest(raw, hooks, root)
    if known.allows(path, digest):
        return WorkspaceHooks(path, tuple(hooks), digest=digest)
    why = "they have changed since they were agreed to" if known.knows(path) else "nobody agreed to them"
    count = "1 hook of" if len(hooks) == 1 else f"{len(hooks)} hooks of"
    return WorkspaceHooks(path, refused=f"{count} {path} not loaded: {why}", digest=digest)


def _digest(raw: bytes, hooks: Iterable[CommandHook], root: Path) -> str:
    """Of the file, and of each program in the workspace that it runs: a link there is what it leads to."""
    total = hashlib.sha256(hashlib.sha256(raw).digest())
    for hook in hooks:
        for program in programs_of(hook):
            resolved = program.resolve()
            if program.is_relative_to(root) or resolved.is_relative_to(root.resolve()):
                total.update(hashlib.sha256(os.fsencode(resolved)).digest())
                total.update(hashlib.sha256(resolved.read_bytes()).digest())
    return total.hexdigest()


def _key(file: Path) -> str:
    return str(file.absolute())


def _config_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / "agentsession"
