"""A report as one HTML page that needs no network: agent text is only ever text.

Not for: coming to the verdicts (``runner.py``). Rules carried: SEC-01 as far as showing goes.
May import: ``results``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Final

from agentsession.conformance.results import LevelScore, Report, Result, Status

__all__ = ["html"]

_GROUPS: Final[tuple[tuple[str, tuple[Status, ...], bool], ...]] = (
    ("harness errors", (Status.HARNESS_ERROR,), True),
    ("failed", (Status.FAIL,), True),
    ("passed although a failure was expected", (Status.UNEXPECTED_PASS,), True),
    ("not run", (Status.NOT_RUN,), True),
    ("expected to fail", (Status.EXPECTED_FAIL,), False),
    ("not applicable", (Status.NOT_APPLICABLE,), False),
    ("passed", (Status.PASS,), False),
)

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 0 auto; padding: 1rem; }
header { border-bottom: 1px solid #8888; margin-bottom: 1rem; }
.level { display: inline-block; margin: 0 1rem .5rem 0; font-weight: 600; }
.bad { color: #b00020; } .good { color: #0a6b2d; }
@media (prefers-color-scheme: dark) { .bad { color: #ff8a80; } .good { color: #7bd88f; } }
details { border: 1px solid #8886; border-radius: .3rem; margin: .4rem 0; padding: .3rem .7rem; }
summary { cursor: pointer; }
.rule { font-family: ui-monospace, monospace; font-weight: 600; }
ol { list-style: none; padding-left: 1rem; font-family: ui-monospace, monospace; font-size: .85rem; }
li { white-space: pre-wrap; overflow-wrap: anywhere; }
li.break { border-left: 3px solid #b00020; padding-left: .5rem; }
pre { overflow-x: auto; font-size: .8rem; }
input { font: inherit; padding: .2rem .5rem; width: 16rem; max-width: 100%; }
"""

_SCRIPT: Final = """
const box = document.getElementById("filter");
box.addEventListener("input", () => {
  const wanted = box.value.toLowerCase();
  for (const item of document.querySelectorAll("[data-rule]"))
    item.hidden = !item.textContent.toLowerCase().includes(wanted);
});
for (const button of document.querySelectorAll("button[data-copy]"))
  button.addEventListener("click", () => navigator.clipboard.writeText(button.dataset.copy));
if (location.hash) {
  const item = document.getElementById(location.hash.slice(1));
  if (item) { item.open = true; item.scrollIntoView(); }
}
"""


def html(report: Report, *, again: str | None = None) -> str:
    """The page. ``again``: the command that runs one rule again, with ``{rule}`` in it."""
    body = "\n".join(_group(report, *group, again=again) for group in _GROUPS)
    title = escape(f"{report.target}: {report.headline() or 'nothing ran'}")
    levels = "".join(_level(score) for score in report.scores())
    missed = "".join(f'<p class="bad">{escape(each)}</p>\n' for each in report.missed)
    extras = "".join(f"<p>{escape(f'{extra.name}: {extra.summary}')}</p>\n" for extra in report.extras)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(report.target)}</h1>
<p>{levels}</p>
{missed}{extras}<p>contract {escape(report.version)} · seed {report.seed} · {report.seconds:.1f} s
<label>filter <input id=filter type=search></label></p>
</header>
<main>
{body}
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _level(score: LevelScore) -> str:
    if not score.is_declared:
        return f'<span class="level">{escape(score.level.capitalize())} not declared</span>'
    word, look = ("pass", "good") if score.is_good else ("FAIL", "bad")
    return f'<span class="level {look}">{escape(str(score))} {word}</span>'


def _group(report: Report, title: str, statuses: tuple[Status, ...], is_open: bool, *, again: str | None) -> str:
    results = report.of(*statuses)
    if not results:
        return ""
    items = "\n".join(_result(result, again) for result in results)
    return (
        f"<details{' open' if is_open else ''}><summary><h2>{len(results)} {escape(title)}</h2></summary>\n"
        f"{items}\n</details>"
    )


def _result(result: Result, again: str | None) -> str:
    rule = result.about
    notes = [rule.level, *([f"declared: {rule.capability}"] if rule.capability else []), result.scenario]
    command = result.again(again) if again is not None else ""
    button = f' <button data-copy="{escape(command, quote=True)}">copy the command</button>' if command else ""
    shown = _evidence(result) if result.evidence else ""
    if result.log:
        text = escape("\n".join(result.log))
        shown += f"<details><summary>what it logged</summary><pre>{text}</pre></details>"
    message = f"<p>{escape(result.message)}</p>" if result.message else ""
    return (
        f'<details id="{escape(result.rule)}" data-rule><summary><span class="rule">{escape(result.status.value)} '
        f"{escape(result.rule)}</span> {escape(result.sentence)}</summary>{message}{shown}"
        f"<p>{escape(' · '.join(note for note in notes if note))}{button}</p></details>"
    )


def _evidence(result: Result) -> str:
    lines = ""
    for item in result.evidence:
        mark = " ← here" if item.is_break and item.event is not None else ""
        lines += f"<li{' class=break' if item.is_break else ''}>{escape(item.text)}{mark}</li>"
    return f"<ol>{lines}</ol>{_raw(item.event for item in result.evidence if item.event is not None)}"


def _raw(events: Iterable[object]) -> str:
    text = "\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    return f"<details><summary>raw JSON</summary><pre>{escape(text)}</pre></details>" if text else ""
