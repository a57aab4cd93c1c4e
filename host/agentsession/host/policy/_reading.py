"""Policy files: TOML in, rules out, and nothing at all where one word is not understood.

Not for: matching calls (``_rule.py``). Rules carried: none of the contract's. May import: ``_conditions``, ``_rule``,
``_lines`` beside it, ``protocol``.

A file that loads in part would drop its denials without a word, so every doubt is a :class:`ConfigurationError` with
the id ``policy``, the file and line, and what to write instead. A rule's own examples are tried while it is read.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agentsession.host._policy import DECISIONS, PolicyRequest
from agentsession.host.policy._conditions import OPERATORS, Condition, Fit, make_condition
from agentsession.host.policy._lines import Places
from agentsession.host.policy._rule import MODES, Call, PolicyRule, Tier
from agentsession.protocol import ConfigurationError, ToolAnnotations

__all__ = ["digest_of", "load_policy", "parse_policy", "policy_digest", "policy_text", "read_policy"]

_KEYS: Final = (
    "id",
    "decision",
    "tools",
    "priority",
    "principals",
    "modes",
    "annotations",
    "interactive",
    "args",
    "shell",
    "remember",
    "reason",
    "match",
    "not_match",
)
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a policy file."""
_SHOWN: Final = 200
"""Characters of an example that are shown."""
_MARKS: Final = ("read_only", "destructive", "idempotent", "long_running", "open_world")
_ID: Final = re.compile(r"[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,127}")


def load_policy(
    path: str | os.PathLike[str],
    *,
    tier: str | Tier = Tier.USER,
    workspace: str | os.PathLike[str] = ".",
    modes: Collection[str] = (),
    trusted_digest: str | None = None,
) -> list[PolicyRule]:
    """The rules of a policy file; ``docs/reference/policy-file.md`` says what may stand in one.

    ``tier``: whose file it is: ``plugin``, ``workspace``, ``user`` or ``admin``. ``workspace``: the folder that
    ``under`` is relative to. ``modes``: further permission modes that the host has. ``trusted_digest``: for a workspace
    file what :func:`policy_digest` said when the person trusted it; with another digest, or none, its rules only
    tighten.

    Raises :class:`ConfigurationError` with the id ``policy``: then nothing of it may be used, and nothing should start.
    """
    file = Path(path).expanduser()
    tier = _tier(tier)
    raw = read_policy(file, is_admin=tier is Tier.ADMIN)
    trusted = trusted_digest is not None and trusted_digest == digest_of(raw)
    return parse_policy(
        policy_text(raw, str(path)),
        name=str(path),
        tier=tier,
        workspace=workspace,
        modes=modes,
        is_trusted=trusted or tier is not Tier.WORKSPACE,
    )


def policy_text(raw: bytes, name: str) -> str:
    """A policy file's text. Raises :class:`ConfigurationError`."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError("a policy file is not UTF-8", id="policy", where=name, got=error.reason) from error


def digest_of(raw: bytes) -> str:
    """The digest of a policy file's bytes."""
    return hashlib.sha256(raw).hexdigest()


def policy_digest(path: str | os.PathLike[str]) -> str:
    """What to keep when a person trusts a workspace's policy file. Raises :class:`ConfigurationError`."""
    return digest_of(read_policy(Path(path).expanduser(), is_admin=False))


def parse_policy(
    text: str,
    *,
    name: str = "policy",
    tier: str | Tier = Tier.USER,
    workspace: str | os.PathLike[str] = ".",
    modes: Collection[str] = (),
    is_trusted: bool = True,
) -> list[PolicyRule]:
    """The rules of a policy file's text; ``name`` stands in errors and in :attr:`PolicyRule.where`.

    Raises :class:`ConfigurationError` as :func:`load_policy` does.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        last = len(text.rstrip().split("\n"))
        where = f"{name}:{found.group(1) if found else last}"
        raise ConfigurationError(f"a policy file is not TOML: {error}", id="policy", where=where) from error
    reader = _File(name, Places(text), _tier(tier), os.path.abspath(workspace), (*MODES, *modes), is_trusted)
    return reader.rules(data)


def _tier(tier: str | Tier) -> Tier:
    if isinstance(tier, Tier):
        return tier
    if tier.upper() not in Tier.__members__:
        known = ", ".join(one.name.lower() for one in Tier)
        raise ConfigurationError(f"unknown tier {tier!r}", id="policy", expected=known)
    return Tier[tier.upper()]


def read_policy(file: Path, *, is_admin: bool) -> bytes:
    """The file's content, looked at and read through one handle: what was checked is what is read.

    Raises :class:`ConfigurationError`.
    """
    try:
        _require_small(file, file.stat())  # before it is opened: a pipe would be waited for
        with file.open("rb") as handle:
            found = os.fstat(handle.fileno())
            if is_admin:
                _require_closed(file, found)
            _require_small(file, found)
            return handle.read(_LARGEST)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        got = error.strerror if isinstance(error, OSError) else str(error)
        fix = "name a file that is there, or leave it out"
        raise ConfigurationError(
            "a policy file cannot be read", id="policy", where=str(file), got=got, fix=fix
        ) from error


def _require_small(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
        raise ConfigurationError("a policy is a file of at most 4 MiB", id="policy", where=str(file))


def _require_closed(file: Path, found: os.stat_result) -> None:
    """An administrator's rules that others may write are theirs. Also where they may replace the file in its folder."""
    if sys.platform == "win32":
        return
    folder = file.resolve().parent.stat()
    is_lax_folder = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX
    for what, path, is_lax, owner in (
        ("file", file, found.st_mode & (stat.S_IWGRP | stat.S_IWOTH), found.st_uid),
        ("folder", file.resolve().parent, is_lax_folder, folder.st_uid),
    ):
        if is_lax or owner not in (0, os.geteuid()):
            raise ConfigurationError(
                f"the {what} of an admin policy can be changed by others",
                id="policy",
                where=str(path),
                expected="writable by its owner alone, who is root or whoever runs this",
                fix=f"chmod go-w {path}" if is_lax else f"chown root {path}",
            )


class _File:
    """Reads one file's data."""

    def __init__(
        self, name: str, places: Places, tier: Tier, workspace: str, modes: Sequence[str], is_trusted: bool
    ) -> None:
        self.name = name
        self.places = places
        self.tier = tier
        self.workspace = workspace
        self.modes = modes
        self.is_trusted = is_trusted

    def rules(self, data: Mapping[str, Any]) -> list[PolicyRule]:
        for key in data:
            if key not in ("version", "rule"):
                near = _near(key, ("version", "rule"))
                raise self.error(f"unknown key {key!r}", self.places.top(key), fix=near or "write [[rule]]")
        version = data.get("version")
        if version != 1 or isinstance(version, bool):
            got = "no version" if version is None else repr(version)
            raise self.error(
                "this is no policy file of version 1",
                self.places.top("version"),
                got=got,
                fix="begin it with: version = 1",
            )
        listed = data.get("rule", [])
        if not isinstance(listed, list):
            raise self.error("rule is not a list of tables", self.places.top("rule"), fix="write [[rule]]")
        found: list[PolicyRule] = []
        lines: dict[str, str] = {}
        items: list[Any] = [*listed]  # pyright: ignore[reportUnknownVariableType]
        for index, item in enumerate(items):
            rule = _OneRule(self, index, item).rule()
            if rule.id in lines:
                raise self.error(
                    f"two rules are called {rule.id!r}",
                    self.places.rule(index, "id"),
                    rule.id,
                    got=f"the other is at {lines[rule.id]}",
                    fix="give each rule an id of its own",
                )
            lines[rule.id] = rule.where
            found.append(rule)
        return found

    def error(self, what: str, line: int | None, rule: str | None = None, **parts: str | None) -> ConfigurationError:
        where = self.name if line is None else f"{self.name}:{line}"
        return ConfigurationError(what, id="policy", where=f"{where}, rule {rule}" if rule else where, **parts)

    def finish(self, index: int, **fields: Any) -> PolicyRule:
        line = self.places.rule(index)
        tightens = self.tier is Tier.PLUGIN or not self.is_trusted
        where = self.name if line is None else f"{self.name}:{line}"
        return PolicyRule(tier=self.tier, where=where, only_tightens=tightens, **fields)


class _OneRule:
    """Reads one ``[[rule]]``."""

    def __init__(self, file: _File, index: int, item: Any) -> None:
        self._file = file
        self._index = index
        if not isinstance(item, dict):
            raise file.error("a rule is a table", file.places.rule(index), fix="write [[rule]]")
        self._item: dict[str, Any] = {**item}  # pyright: ignore[reportUnknownMemberType]
        self._id: str | None = None

    def rule(self) -> PolicyRule:
        item = self._item
        found = item.get("id")
        if not isinstance(found, str) or not _ID.fullmatch(found):
            raise self._wrong("id", "a short text on one line") if "id" in item else self._missing("id")
        self._id = found
        for key in item:
            if key not in _KEYS:
                raise self._error(f"unknown key {key!r}", key, fix=_near(key, _KEYS) or f"one of: {', '.join(_KEYS)}")
        decision = self._decision()
        conditions = self._conditions()
        rule = self._file.finish(
            self._index,
            id=found,
            decision=decision,
            tools=self._texts("tools", is_needed=True),
            priority=self._priority(),
            principals=self._texts("principals"),
            modes=self._known_modes(),
            annotations=self._annotations(),
            interactive=self._one("interactive", bool, "true or false"),
            conditions=conditions,
            shell=self._shell(),
            remember=self._remember(decision),
            reason=self._one("reason", str, "a text"),
            examples=sum(len(_as_list(item.get(key)) or ()) for key in ("match", "not_match")),
        )
        self._try_examples(rule)
        return rule

    def _decision(self) -> str:
        decision = self._item.get("decision")
        if "decision" not in self._item:
            raise self._missing("decision")
        if decision not in DECISIONS:
            shown = f'"{decision}"' if isinstance(decision, str) else repr(decision)
            raise self._error(f"unknown decision {shown}", "decision", fix="allow, deny or ask_user")
        return str(decision)

    def _priority(self) -> int:
        value = self._item.get("priority", 100)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 999:
            raise self._wrong("priority", "a whole number from 0 to 999")
        return value

    def _known_modes(self) -> tuple[str, ...]:
        modes = self._texts("modes")
        for mode in modes:
            if mode not in self._file.modes:
                near = _near(mode, self._file.modes)
                raise self._error(
                    f"unknown mode {mode!r}", "modes", fix=near or f"one of: {', '.join(self._file.modes)}"
                )
        return modes

    def _annotations(self) -> dict[str, bool | str]:
        found: dict[str, bool | str] = {}
        for name, value in self._table("annotations").items():
            if name not in ToolAnnotations.model_fields:
                known = tuple(ToolAnnotations.model_fields)
                raise self._error(
                    f"unknown annotation {name!r}",
                    "annotations",
                    fix=_near(name, known) or f"one of: {', '.join(known)}",
                )
            if not isinstance(value, bool if name in _MARKS else str):
                raise self._wrong("annotations", f"{name} is {'true or false' if name in _MARKS else 'a text'}")
            found[name] = value
        return found

    def _conditions(self) -> tuple[Condition, ...]:
        found: list[Condition] = []
        for pointer, tests in self._table("args").items():
            if not pointer.startswith("/") or re.search(r"~(?![01])", pointer):
                fix = f'args = {{ "/{pointer}" = ... }}' if pointer[:1] != "/" else "write ~0 for ~ and ~1 for /"
                raise self._error(f"{pointer!r} is no JSON pointer", "args", fix=fix)
            if not isinstance(tests, dict) or not tests:
                fix = f'"{pointer}" = {{ eq = ... }}, or one of: {", ".join(OPERATORS)}'
                raise self._error(f"{pointer} has no comparison", "args", fix=fix)
            given: dict[str, Any] = {**tests}  # pyright: ignore[reportUnknownMemberType]
            found += [self._condition(pointer, operator, operand) for operator, operand in given.items()]
        return tuple(found)

    def _condition(self, pointer: str, operator: str, operand: Any) -> Condition:
        if operator not in OPERATORS:
            fix = _near(operator, OPERATORS) or f"one of: {', '.join(OPERATORS)}"
            raise self._error(f"unknown comparison {operator!r}", "args", fix=fix)
        try:
            return make_condition(pointer, operator, operand, workspace=self._file.workspace)
        except re.error as error:
            raise self._error(f"{pointer} regex is no regular expression: {error}", "args") from error
        except (ValueError, RecursionError, OverflowError) as error:
            expected = f"{pointer} {operator} is {OPERATORS[operator]}"
            raise self._error(f"{pointer} {operator} cannot be compared to this", "args", expected=expected) from error

    def _shell(self) -> tuple[tuple[str, ...], ...]:
        value = self._item.get("shell", [])
        lists = _as_list(value)
        prefixes = [_as_list(one) for one in lists] if lists is not None else [None]
        good = all(prefix and all(isinstance(word, str) and word for word in prefix) for prefix in prefixes)
        if not good or ("shell" in self._item and not prefixes):
            raise self._wrong("shell", 'lists of words, such as [["git", "push"]]')
        for prefix in prefixes:
            words = str((prefix or [""])[0]).split()
            if len(words) != 1:  # it would hold for nothing, and a denial that holds for nothing is no denial
                fix = ", ".join(f'"{word}"' for word in words)
                raise self._error("a command in one word", "shell", fix=f"each word apart: [[{fix}]]")
        return tuple(tuple(prefix or ()) for prefix in prefixes)

    def _remember(self, decision: str) -> str | None:
        value = self._item.get("remember")
        if value is not None and value not in ("exact", "tool", "never"):
            raise self._wrong("remember", '"exact", "tool" or "never"')
        if value is not None and decision != "ask_user":
            raise self._error("remember is for questions", "remember", fix="leave it out, or decide ask_user")
        return value

    def _try_examples(self, rule: PolicyRule) -> None:
        for key, wanted in (("match", True), ("not_match", False)):
            examples = _as_list(self._item.get(key, []))
            if examples is None:
                raise self._wrong(key, "a list of arguments, such as [{ path = 'a.py' }]")
            for number, example in enumerate(examples, start=1):
                if not isinstance(example, dict):
                    raise self._wrong(key, "a list of arguments, such as [{ path = 'a.py' }]")
                args: dict[str, Any] = {**example}  # pyright: ignore[reportUnknownMemberType]
                if _matches(rule, args) is not wanted:
                    says = "does not match" if wanted else "matches"
                    shown = json.dumps(args, ensure_ascii=False, default=str)
                    raise self._error(
                        f"example {number} of {key} {says} its rule",
                        key,
                        got=shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...",
                        fix="mend the rule or the example",
                    )

    # --- small readers ------------------------------------------------------------------------------------------

    def _texts(self, key: str, *, is_needed: bool = False) -> tuple[str, ...]:
        if key not in self._item:
            if is_needed:
                raise self._missing(key)
            return ()
        texts = _as_list(self._item[key])
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise self._wrong(key, f'a list of texts, such as {key} = ["..."]')
        return tuple(texts)

    def _table(self, key: str) -> dict[str, Any]:
        value = self._item.get(key, {})
        if not isinstance(value, dict) or (key in self._item and not value):
            raise self._wrong(key, "a table that is not empty")
        return {**value}  # pyright: ignore[reportUnknownMemberType]

    def _one(self, key: str, kind: type, expected: str) -> Any:
        value = self._item.get(key)
        if value is not None and not isinstance(value, kind):
            raise self._wrong(key, expected)
        return value

    def _error(self, what: str, key: str | None, **parts: str | None) -> ConfigurationError:
        return self._file.error(what, self._file.places.rule(self._index, key), self._id, **parts)

    def _wrong(self, key: str, expected: str) -> ConfigurationError:
        return self._error(f"{key} cannot be read", key, got=repr(self._item.get(key))[:80], expected=expected)

    def _missing(self, key: str) -> ConfigurationError:
        return self._error(f"a rule has no {key}", None, fix=f"every rule needs id, decision and tools: add {key}")


def _matches(rule: PolicyRule, args: Mapping[str, Any]) -> bool:
    """Whether the arguments alone match: an allow needs every command of a line, a denial or a question one."""
    call = Call(PolicyRequest(tool="example", args=args))
    fits = [rule.fit_args(call, part) for part in call.parts or (None,)]
    if rule.decision == "allow":
        return min(fits) is Fit.YES
    return max(fits) is not Fit.NO


def _as_list(value: Any) -> list[Any] | None:
    return [*value] if isinstance(value, list) else None  # pyright: ignore[reportUnknownVariableType]


def _near(word: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None
