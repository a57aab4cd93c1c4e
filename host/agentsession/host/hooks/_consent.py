"""Hooks that a workspace brings along: programs of strangers, which run only as they were when a person agreed.

Not for: files that a person names (``load_hooks``), or keeping who agreed (``agentsession.host._consent``).
Rules carried: none of its own. May import: ``_consent`` of the host, ``protocol``, ``_command``, ``_file``.

What is agreed to is the file and the files of the workspace that its commands name, byte by byte: a script that was
changed later is asked about again, and one that is changed while the host runs is not run. What a script loads is not
looked at.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agentsession.host._consent import Consent, is_there
from agentsession.host.hooks._command import CommandHook
from agentsession.host.hooks._file import files_of, parse_hooks, read_file
from agentsession.protocol import ConfigurationError

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
    found: tuple[CommandHook, ...] = ()
    """What stands in the file, loaded or not: to be shown to the person who is asked to agree. Not to be run."""


class HookConsent(Consent):
    """Which files of hooks a person has agreed to; by default kept in ``trusted-hooks.json``."""

    default_name = "trusted-hooks.json"


def workspace_hooks(workspace: str | os.PathLike[str], consent: HookConsent | None = None) -> WorkspaceHooks:
    """The hooks of a workspace's :data:`WORKSPACE_FILE`, if a person has agreed to them as they are.

    Else ``hooks`` is empty, and ``refused`` says why. Raises :class:`agentsession.protocol.ConfigurationError`
    (``hooks-invalid``) for a file that was agreed to and cannot be used now: a guard must not vanish without a word.
    """
    root = Path(workspace).absolute()
    path = root / WORKSPACE_FILE
    known = consent or HookConsent()
    if not is_there(path):
        gone = f"{path} is not there any more, and was agreed to" if known.knows(path) else None
        return WorkspaceHooks(path, refused=gone)
    try:
        raw = _read(path)
        hooks = parse_hooks(raw, path, tier="workspace", cwd=str(root))
        digest = _digest(raw, hooks, root)
    except ConfigurationError as error:
        if known.knows(path):
            raise
        return WorkspaceHooks(path, refused=f"{error.what} ({error.where}), and nobody agreed to these hooks")
    if known.allows(path, digest):
        return WorkspaceHooks(path, tuple(hooks), digest=digest, found=tuple(hooks))
    why = "they have changed since they were agreed to" if known.knows(path) else "nobody agreed to them"
    count = "1 hook of" if len(hooks) == 1 else f"{len(hooks)} hooks of"
    refused = f"{count} {path} not loaded: {why}"
    return WorkspaceHooks(path, refused=refused, digest=digest, found=tuple(hooks))


def _read(path: Path) -> bytes:
    try:
        is_other = path.exists() and not path.is_file()  # a pipe would be waited for
    except OSError:
        is_other = False  # reading it says why not
    if is_other:
        raise ConfigurationError("the hooks are no file", where=str(path), id="hooks-invalid")
    return read_file(path)


def _digest(raw: bytes, hooks: Iterable[CommandHook], root: Path) -> str:
    """Of the file, and of each file in the workspace that it names, to which the hooks are bound: a link there is what
    it leads to. Raises :class:`ConfigurationError`."""
    total = hashlib.sha256(hashlib.sha256(raw).digest())
    for hook in hooks:
        bound: dict[Path, str] = {}
        for file in files_of(hook, root):
            resolved = file.resolve()
            if file.is_relative_to(root) or resolved.is_relative_to(root.resolve()):
                try:
                    content = hashlib.sha256(resolved.read_bytes())
                except OSError as error:
                    what = f"a file of the hook {hook.id!r} cannot be read: {error.strerror}"
                    raise ConfigurationError(what, where=str(file), id="hooks-invalid") from None
                bound[file] = content.hexdigest()
                total.update(hashlib.sha256(os.fsencode(resolved)).digest())
                total.update(content.digest())
        hook.bound = bound
    return total.hexdigest()
