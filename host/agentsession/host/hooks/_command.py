"""A program as a hook: it is told in JSON, and answers in JSON or by its exit code.

Not for: running it (``_process.py``) or reading files of hooks (``_file.py``). Rules carried: HITL-01, SEC-01.
May import: anyio, pydantic, ``_masking``, ``protocol``, the modules beside it.

Exit code 0: its output decides, and none is to proceed. Exit code 2: it has blocked, whatever its output says.
Everything else (another code, a signal, no start, too slow, too much, not understood) is a failure of the hook.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from agentsession.host._masking import masked
from agentsession.host.hooks._entries import DEFAULT_ORDER, HookFailed, OnError
from agentsession.host.hooks._process import run_program
from agentsession.protocol import (
    AgentSessionError,
    ContentChange,
    HookOutcome,
    HookPayload,
    ModelRequestHook,
    UserMessageHook,
    as_content,
    parse_json,
    repair_text,
)

__all__ = ["PROTOCOL", "CommandHook"]

logger = logging.getLogger("agentsession.host")

PROTOCOL: Final = 1
"""``v`` of what is said to a program and by it."""

_ALWAYS: Final = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "COMSPEC",
    "PATHEXT",
)
"""The variables that every program gets, where they are set: what it needs to start, and no secrets."""

_BLOCKS: Final = 2
_REASON_LINES: Final = 3
_REASON_CHARS: Final = 500


class _Answer(BaseModel):
    """What a program may write. A key that is not known is refused: it may be a block that was spelled wrong."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    v: Literal[1] = 1
    action: Literal["proceed", "block", "ask"] = "proceed"
    reason: str | None = None
    message: str | None = None
    modifications: dict[str, Any] | None = None
    context: str | None = None


class CommandHook:
    """A program that is asked at one point; :func:`agentsession.host.hooks.load_hooks` makes them from a file."""

    has_own_id = True

    def __init__(
        self,
        id: str,
        point: str,
        command: Sequence[str],
        *,
        match: str | Sequence[str] | None = None,
        timeout_s: float = 60.0,
        order: int = DEFAULT_ORDER,
        tier: str = "user",
        on_error: OnError | None = None,
        env: Sequence[str] = (),
        observes: bool = False,
        cwd: str | None = None,
    ) -> None:
        self.id = id
        self.points = frozenset({point})
        self.command = tuple(command)
        self.match = match
        self.timeout_s = timeout_s
        self.order = order
        self.tier = tier
        self.on_error = on_error
        self.env = tuple(env)
        self.observes = observes
        self.cwd = cwd
        """Where it runs; ``None``: where the host runs."""
        self.on_failed: Callable[[str], None] | None = None
        """Told the last that it wrote when it fails, for whoever tries it out; without it the debug log is told."""
        self.bound: Mapping[Path, str] = {}
        """Files that a person has agreed to, with the digests that they must have when it runs."""

    def __repr__(self) -> str:
        return f"CommandHook({self.id!r}, {min(self.points)!r}, {list(self.command)!r})"

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Run the program. Raises :class:`HookFailed`."""
        if self.bound and not await anyio.to_thread.run_sync(self._is_as_agreed):
            raise HookFailed("did not run: a file of its command is not what was agreed to any more")
        cwd = self.cwd or os.getcwd()
        environ = {name: os.environ[name] for name in (*_ALWAYS, *self.env) if name in os.environ}
        told = json.dumps(told_to(hook_point, payload, cwd), ensure_ascii=False, separators=(",", ":")) + "\n"
        ran = await run_program(self.command, told.encode("utf-8"), env=environ, cwd=cwd, timeout_s=self.timeout_s)
        if ran.code == _BLOCKS:
            said = self._shown(ran.errors)
            return HookOutcome(action="block", message=said, reason=said, by=self.id)
        if ran.code != 0:
            self._failed(ran.errors)
            how = f"was ended by signal {-ran.code}" if ran.code < 0 else f"ended with exit code {ran.code}"
            raise HookFailed(how)
        try:
            return self._read(hook_point, payload, ran.output)
        except HookFailed:
            self._failed(ran.output)
            raise

    def _failed(self, wrote: bytes) -> None:
        """Say what it wrote where somebody looks for it: neither the record nor the model is told."""
        said = self._shown(wrote)
        if said is None:
            return
        if self.on_failed is not None:
            self.on_failed(said)
        else:
            logger.debug("hook %s failed, and its last words were: %s", self.id, said)

    def _is_as_agreed(self) -> bool:
        try:
            return all(
                file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == known  # a pipe would be waited for
                for file, known in self.bound.items()
            )
        except OSError:
            return False

    def _read(self, point: str, payload: HookPayload, output: bytes) -> HookOutcome | None:
        if not output.strip():
            return None
        try:
            written = parse_json(output.decode("utf-8"))
            if not isinstance(written, dict):
                raise HookFailed("wrote JSON that is no object")
            answer = _Answer.model_validate(written)
        except UnicodeDecodeError:
            raise HookFailed("wrote what is not UTF-8") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:60]
            wrong = f"unknown key {place!r}" if first["type"] == "extra_forbidden" else f"{place}: {first['msg']}"
            raise HookFailed(f"wrote an answer that cannot be used: {wrong}") from None
        except AgentSessionError:
            raise HookFailed("wrote what is not JSON") from None
        changes = dict(answer.modifications or {})
        if answer.context is not None:
            if answer.action == "block":
                raise HookFailed("gave a context to what it blocks")
            changes |= _with_context(point, payload, changes, answer.context)
        return HookOutcome(
            action=answer.action,
            message=answer.message,
            reason=answer.reason,
            by=self.id,
            modifications=changes or None,
        )

    def _shown(self, errors: bytes) -> str | None:
        """The last lines of what a program wrote, for the record and the model."""
        text = masked(repair_text(errors.decode("utf-8", "replace")))
        for name in self.env:  # whatever it is called: it was given to the program alone
            secret = os.environ.get(name, "")
            text = text.replace(secret, "***") if len(secret) >= 8 else text
        lines = ["".join(sign if sign.isprintable() else " " for sign in line).strip() for line in text.splitlines()]
        said = "\n".join([line for line in lines if line][-_REASON_LINES:])
        return said[-_REASON_CHARS:] or None


def told_to(point: str, payload: HookPayload, cwd: str) -> dict[str, Any]:
    """What a program reads at a point."""
    path = getattr(payload, "principal_path", None)
    return {
        "v": PROTOCOL,
        "point": point,
        "session_id": payload.session_id,
        "turn_id": payload.turn_id,
        "principal_path": list(path) if path else [payload.agent_id] if payload.agent_id is not None else [],
        "mode": payload.permission_mode,
        "cwd": cwd,
        "payload": payload.to_wire(),
    }


def _with_context(point: str, payload: HookPayload, changes: dict[str, Any], context: str) -> dict[str, Any]:
    """A context as the change that it is: more for the model to read. Raises :class:`HookFailed` at other points."""
    if isinstance(payload, UserMessageHook):
        said = ContentChange.model_validate({"content": changes["content"]}).content if "content" in changes else None
        parts = [*(payload.content if said is None else said), *as_content(context)]
        return {"content": [part.to_wire() for part in parts]}
    if isinstance(payload, ModelRequestHook):
        key = "systemInstruction" if "systemInstruction" in changes else "system_instruction"
        known = changes.get(key, payload.system_instruction)
        return {key: f"{known}\n\n{context}" if known else context}
    raise HookFailed(f"gave a context, which is taken at on_user_message and before_model, not at {point}")
