"""``run --hooks`` and ``hooks``: find hooks, list them, try one, and agree to those of a workspace.

Not for: what hooks are (``agentsession.host.hooks``). May import: anyio, ``agentsession.host.hooks``,
``agentsession.protocol``, the modules beside it.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic import ValidationError

from agentsession.host._consent import is_there
from agentsession.host.cli._consent import agree, disagree, nothing_to_trust
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._shapes import as_object
from agentsession.host.cli._text import escape, wrap
from agentsession.host.hooks import (
    ASK,
    WORKSPACE_FILE,
    CommandHook,
    HookChain,
    HookConsent,
    load_hooks,
    workspace_hooks,
)
from agentsession.host.hooks._entries import Entry
from agentsession.protocol import (
    HOOK_POINTS,
    HookOutcome,
    HookPayload,
    LifecycleInterceptor,
    SchemaError,
    parse_json,
)

__all__ = ["attempt", "check", "find_hooks", "hooks_that_ask_block", "trust", "untrust"]

_MADE_UP: Final = {
    "session_id": "s-try",
    "user_id": "local",
    "turn_id": "t1",
    "agent_id": "agent",
    "permission_mode": "default",
    "reason": "opened",
    "request_id": "r1",
    "name": "run_shell",
    "error_type": "ValueError",
    "model": "some-model",
    "content": [{"type": "text", "text": "Hello."}],
}


def find_hooks(files: Sequence[str], folder: str | None = ".") -> list[CommandHook]:
    """The hooks of the files that were named, and of ``folder`` where a person has agreed to them.

    Those of a folder that nobody agreed to are left out, which is said on stderr. ``None``: of no folder.

    Raises :class:`agentsession.protocol.ConfigurationError` (``hooks-invalid``).
    """
    named = [hook for file in files for hook in load_hooks(file)]
    if folder is None:
        return named
    found = workspace_hooks(folder)
    if found.refused is not None:
        words = ["agentsession", "hooks", "trust", *([] if folder == "." else [folder])]
        told = f"hooks: {found.refused}; to agree: {shlex.join(words)}"
        Out(sys.stderr).text(escape(told).replace("\n", " ") + "\n")
    return [*found.hooks, *named]


def hooks_that_ask_block(hooks: Sequence[LifecycleInterceptor]) -> list[LifecycleInterceptor]:
    """The hooks for a session whose person another program has: it hears of no question, so a hook that asks blocks."""
    return [_AskBlocks(HookChain(hooks))] if hooks else []


class _AskBlocks:
    def __init__(self, chain: HookChain) -> None:
        self._chain = chain
        self.points = chain.points

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        outcome = await self._chain.fire(hook_point, payload)
        if outcome is None or outcome.action != ASK:
            return outcome
        why = f"a hook wants a person asked, who is not here{': ' + outcome.reason if outcome.reason else ''}"
        return HookOutcome(action="block", message=why, reason=why, by=outcome.by, failure=outcome.failure)


def check(out: Out, file: str) -> None:
    """Print the hooks of a file, in their order."""
    _list(out, file, load_hooks(file))


def _list(out: Out, file: str, hooks: Sequence[CommandHook]) -> None:
    entries = HookChain(hooks).entries
    count = "1 hook" if len(entries) == 1 else f"{len(entries)} hooks"
    out.lines([line((escape(f"{file}: {count}, asked in this order"), "strong"))])
    for number, entry in enumerate(entries, start=1):
        out.lines(_described(number, entry, out.width))


def _described(number: int, entry: Entry, width: int) -> list[Line]:
    hook = entry.hook
    assert isinstance(hook, CommandHook)
    (point,) = hook.points
    match = [hook.match] if isinstance(hook.match, str) else list(hook.match or ["everything"])
    then = "blocks" if entry.blocks_on_error(point) else "lets pass"
    rows = [
        ("asked", f"at {point}, about {', '.join(match)}"),
        ("runs", " ".join(hook.command)),
        ("takes", f"at most {hook.timeout_s:g} s; {then} when it fails"),
        ("sees", ", ".join(hook.env) if hook.env else "no variables of its own"),
    ]
    rows += [("only", "observes")] if hook.observes else []
    out = [line(f"  {number} ", (escape(hook.id), "strong"))]
    for label, text in rows:
        first, *rest = wrap(escape(text).replace("\n", " "), max(20, width - 12))
        out += [line(("    " + f"{label:<8}", "dim"), first), *(line(" " * 12, row) for row in rest)]
    return out


def attempt(out: Out, file: str, point: str, payload: str, *, as_json: bool) -> Exit:
    """Ask the hooks of a file at a point, and print what each says and what comes of it. 1 where one fails."""
    chain = HookChain(load_hooks(file))
    if point not in HOOK_POINTS:
        raise CommandError(
            f"there is no hook point {point!r}", where="hooks try", expected=", ".join(HOOK_POINTS), id="hooks-invalid"
        )
    told = _payload(point, payload)
    outcome = anyio.run(_attempt, chain, point, told, None if as_json else out)
    if as_json:
        out.json_line(json.dumps((outcome or HookOutcome()).to_wire(), ensure_ascii=False, separators=(",", ":")))
    else:
        out.lines([line(("outcome: ", "strong"), *_said(outcome))])
    return Exit.FAILED if outcome is not None and outcome.failure is not None else Exit.COMPLETED


async def _attempt(chain: HookChain, point: str, payload: HookPayload, out: Out | None) -> HookOutcome | None:
    asked = [entry for entry in chain.entries if entry.wants(point)]
    if out is None:
        return await chain.fire(point, payload)
    if not asked:
        out.lines([line(f"no hook of the file is asked at {point}")])
    for entry in asked:
        if not entry.matches(payload):
            out.lines([line("  ", (escape(entry.id), "strong"), "  not asked: it does not match")])
    return await HookChain([_Shown(entry, out) for entry in asked]).fire(point, payload)


class _Shown:
    """A hook whose answer is printed."""

    def __init__(self, entry: Entry, out: Out) -> None:
        self._hook = entry.hook
        self._out = out
        self.id, self.order, self.match, self.on_error = entry.id, entry.order, entry.match, entry.on_error
        self.observes = entry.observes

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Ask it, and print what it says."""
        began = time.monotonic()
        alone = HookChain([self._hook])
        wrote: list[str] = []
        if isinstance(self._hook, CommandHook):
            self._hook.on_failed = wrote.append
        said = await alone.fire(hook_point, payload)
        took = f"  {time.monotonic() - began:.2f}s"
        self._out.lines([line("  ", (escape(self.id), "strong"), "  ", *_said(said), (took, "dim"))])
        rows = [row for text in wrote for row in escape(text).split("\n")]
        self._out.lines([line(("    wrote ", "dim"), row) for row in rows])
        return said


def _said(outcome: HookOutcome | None) -> list[Any]:
    if outcome is None:
        return ["proceed"]
    parts: list[Any] = [(outcome.action, "bad" if outcome.action == "block" else "strong")]
    parts += [f" by {escape(outcome.by)}"] if outcome.by else []
    failed = outcome.failure is not None and outcome.failure.endswith(outcome.reason or " ")
    if not failed:  # else both stand in what is told of the failure
        parts += [f"; {escape(outcome.message)}".replace("\n", " ")] if outcome.message else []
        other = outcome.reason if outcome.reason != outcome.message else None
        parts += [f"; reason {escape(other)}".replace("\n", " ")] if other else []
    if outcome.modifications:
        changed = json.dumps(outcome.modifications, ensure_ascii=False)
        parts.append(f"; changes {escape(changed)}")
    parts += [("; FAILED: " + escape(outcome.failure), "bad")] if outcome.failure else []
    return parts


def _payload(point: str, text: str) -> HookPayload:
    """The payload of a point: what was given, and something for the rest that it needs."""
    kind = HOOK_POINTS[point].payload
    try:
        given = as_object(parse_json(text))
    except SchemaError as error:
        raise CommandError(
            "the payload is not JSON", where="--payload", got=error.got, expected=error.expected
        ) from None
    if given is None:
        raise CommandError(
            "the payload is no JSON object", where="--payload", fix='--payload \'{"name": "run_shell"}\''
        )
    made_up = {name: value for name, value in _MADE_UP.items() if name in kind.model_fields}
    known = {field.alias or name: name for name, field in kind.model_fields.items()}
    unknown = next((name for name in given if name not in known and name not in kind.model_fields), None)
    if unknown is not None:  # one that is spelled wrong would try the hook with something else
        raise CommandError(
            f"{point} is told nothing that is called {unknown!r}", where="--payload", expected=", ".join(known)
        )
    try:
        return kind.model_validate({**made_up, **{known.get(name, name): value for name, value in given.items()}})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise CommandError(f"the payload does not fit {point}: {place}: {first['msg']}", where="--payload") from None


def trust(out: Out, folder: str) -> None:
    """Agree to a workspace's hooks, after they were shown: those that were read, whatever stands there by then."""
    consent = HookConsent()
    found = workspace_hooks(folder, consent)
    if found.digest is None:
        if found.refused is not None and is_there(found.path):
            raise CommandError(found.refused, where=str(found.path), id="hooks-invalid")
        raise nothing_to_trust(WORKSPACE_FILE, folder)
    _list(out, str(found.path), found.found)
    if found.refused is None:
        out.lines([line("they were agreed to before")])
        return
    agree(out, consent, found.path, found.digest)


def untrust(out: Out, folder: str) -> None:
    """Agree to a workspace's hooks no longer."""
    disagree(out, HookConsent(), Path(folder).absolute() / WORKSPACE_FILE)
