"""What holds in every scene, whatever it was about: nothing ran without an allow, and nothing was answered twice.

Not for: what one scenario alone shows (``scenarios``). Rules carried: HOST-01 to HOST-06, HOST-11, HOST-12, HOST-14,
HOST-16, HOST-21. May import: ``agentsession.protocol``, ``engine``, ``log``, ``scene``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from agentsession.conformance.engine import Break
from agentsession.conformance.hosts.log import Entry
from agentsession.conformance.hosts.scene import HostScene
from agentsession.conformance.results import Evidence
from agentsession.protocol import ToolProgress

__all__ = ["HOST_LOG_RULES", "check_log"]

HOST_LOG_RULES: Final = frozenset(
    {"HOST-01", "HOST-02", "HOST-03", "HOST-04", "HOST-05", "HOST-06", "HOST-11", "HOST-12", "HOST-14", "HOST-16"}
)
"""The rules that are looked for in every scene."""

_STRETCH: Final = 8
"""How many entries of the log a failure shows before the one that breaks the rule."""
_SAID_OF_TRACEBACKS: Final = ("Traceback (most recent call last)", 'File "')


def check_log(scene: HostScene) -> Break | None:
    """The first thing in the log of a scene that no host may do."""
    entries = scene.log.entries
    names: dict[str, str] = {}
    answered: set[str] = set()
    runs: Counter[str] = Counter()
    for place, entry in enumerate(entries):
        found: tuple[str, str] | None = None
        if entry.who == "agent" and entry.what == "tool_request" and entry.data is not None:
            names[entry.about] = entry.data
        elif entry.who == "agent" and entry.what == "calls invalid":
            answered.discard(entry.about)
        elif entry.who == "tool" and entry.what == "begins":
            runs[entry.about] += 1
            asked = list(names.values()).count(entry.about)
            found = _unallowed(scene, entries[:place], entry.about)
            if found is None and asked == 0:
                found = "HOST-14", f"{entry.about} ran, and no request for it was ever pending"
            elif found is None and asked < runs[entry.about]:
                found = "HOST-12", f"{entry.about} ran {runs[entry.about]} times, and was requested {asked} times"
        elif entry.who == "host" and entry.what.startswith(("tool_", "elicitation_")):
            found = _answered(scene, entries[:place], entry, names, answered)
        elif entry.who == "host" and (entry.what == "prints" or entry.what.startswith("raised")):
            found = _told(scene, str(entry.data))
        if found is not None:
            shown = [Evidence(str(each)) for each in entries[max(0, place - _STRETCH) : place]]
            return Break(*found, [*shown, Evidence(f"{entry}   <- here", is_break=True)])
    told = next((found for line in scene.lines if (found := _told(scene, line)) is not None), None)
    return Break(*told, [Evidence("in the host's log", is_break=True)]) if told is not None else None


def _unallowed(scene: HostScene, before: list[Entry], name: str) -> tuple[str, str] | None:
    """Why a tool may not run, by what the policy and the person have said of it last."""
    decided = next((entry for entry in reversed(before) if entry.who == "policy" and entry.about == name), None)
    if decided is None:
        return "HOST-01", f"{name} was let run, and the policy was not asked"
    if decided.what == "fails at":
        return "HOST-03", f"{name} was let run after the policy had failed"
    if decided.data == "allow":
        return None
    if decided.data == "deny":
        return "HOST-01", f"{name} was let run, which the policy denied"
    if decided.data != "ask":
        return "HOST-02", f"{name} was let run, of which the policy said {decided.data!r}"
    if scene.situation is None or scene.situation.person is None:
        return "HOST-04", f"{name} was let run, where nobody could be asked"
    last = next((entry for entry in reversed(before) if entry.who == "person" and entry.about == name), None)
    said = last.data if last is not None and last.what == "said" else "nothing"
    if last is None and any(entry.what == "is asked to approve" for entry in before):
        return "HOST-06", f"{name} was let run, and the person was asked about something else"
    return None if said == "yes" else ("HOST-05", f"{name} was let run, and the person said {said}")


def _answered(
    scene: HostScene, before: list[Entry], entry: Entry, names: dict[str, str], answered: set[str]
) -> tuple[str, str] | None:
    answer: Any = entry.data
    if isinstance(answer, ToolProgress):
        return None
    if entry.about in answered:
        return "HOST-11", f"request {entry.about} was answered twice"
    answered.add(entry.about)
    if answer.kind == "tool_grant":
        return _unallowed(scene, before, names.get(entry.about, ""))
    nobody = scene.situation is None or scene.situation.person is None
    if answer.kind == "elicitation_response" and answer.action == "accept" and nobody:
        return "HOST-04", f"the question {entry.about} got a yes, where nobody could be asked"
    if answer.kind == "tool_result":
        text = _texts(answer.data) + _texts([part.to_wire() for part in answer.content])
        if any(sign in text for sign in _SAID_OF_TRACEBACKS):
            return "HOST-16", f"a traceback is in the answer to {entry.about}"
    return None


def _told(scene: HostScene, text: str) -> tuple[str, str] | None:
    if any(secret in text for secret in scene.secrets):
        return "HOST-21", "what the person answered in confidence was told"
    return None


def _texts(value: Any) -> str:
    """All texts in a value that is not too deep to be read."""
    try:
        if isinstance(value, dict):
            return "\n".join(map(_texts, value.values()))
        if isinstance(value, list):
            return "\n".join(map(_texts, value))
    except RecursionError:
        return ""
    return value if isinstance(value, str) else ""
