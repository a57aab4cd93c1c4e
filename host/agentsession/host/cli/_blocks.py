"""Blocks of lines that more than one view shows: tool output, diffs, arguments, content parts, questions.

Not for: keeping track of a session (``_render.py``). May import: ``agentsession.protocol``, ``_lines``, ``_text``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentsession.host.cli._lines import Glyphs, Line, Span, Style, View, line
from agentsession.host.cli._shapes import as_list, as_object, field_options, field_schema, option_titles
from agentsession.host.cli._text import DIFF_FOLD, OUTPUT_FOLD, cut, diff_lines, escape, fold, old_and_new, plural, wrap
from agentsession.protocol import (
    Code,
    CodeResult,
    ContentPart,
    Diff,
    ElicitationRequest,
    Media,
    Reference,
    Refusal,
    Terminal,
    Text,
    Thought,
    marks_secret,
)

__all__ = [
    "args_block",
    "diff_block",
    "field_rows",
    "indented",
    "output_block",
    "output_text",
    "part_lines",
    "question_block",
    "shown_args",
]


def indented(lines: Sequence[Line], prefix: str) -> list[Line]:
    """The lines behind ``prefix``."""
    return [Line((Span(prefix), *one.spans)) for one in lines] if prefix else list(lines)


def output_text(content: Sequence[ContentPart], data: Any, has_data: bool) -> str:
    """What a tool returned, as the text a person reads: its text parts, else its JSON."""
    texts: list[str] = []
    for part in content:
        if isinstance(part, (Text, Thought, Refusal)):
            texts.append(part.text)
        elif isinstance(part, CodeResult):
            texts.append(part.output)
        elif isinstance(part, Terminal):
            texts.append(part.output or f"(terminal {part.terminal_id})")
        elif isinstance(part, Diff):
            texts.append(part.patch or f"(diff of {part.path})")
        else:
            texts.append(_other_part(part))
    if texts:
        return "\n".join(texts)
    if not has_data:
        return ""
    if isinstance(data, str):
        return data
    fields = as_object(data) or {}
    only = fields.get("error", next(iter(fields.values())) if len(fields) == 1 else None)
    message = (as_object(only) or {}).get("message")
    if isinstance(message, str):  # a host's error result: {"error": {"code", "message"}}
        return message
    if isinstance(only, str):
        return only
    if isinstance(data, (dict, list)) and data:
        flat = json.dumps(data, ensure_ascii=False)
        return flat if len(flat) <= 60 else json.dumps(data, ensure_ascii=False, indent=2)
    return json.dumps(data, ensure_ascii=False)


def output_block(text: str, width: int, glyphs: Glyphs, more: str, style: Style = "dim") -> list[Line]:
    """Output, folded at 12 lines with both ends kept; ``more`` says how to see the rest."""
    rows = escape(text).rstrip("\n").split("\n")
    head, left_out, tail = fold(rows, OUTPUT_FOLD)
    out = [line((cut(row, width, glyphs.ellipsis), style)) for row in head]
    if left_out:
        out.append(line((f"{glyphs.ellipsis} {plural(left_out, 'line')} folded; {more}", "dim")))
    out.extend(line((cut(row, width, glyphs.ellipsis), style)) for row in tail)
    return out


def diff_block(old: str, new: str, width: int, glyphs: Glyphs, more: str) -> list[Line]:
    """A change, folded at 60 lines with both ends kept."""
    rows = diff_lines(old, new)
    if not rows:
        return [line(("no change", "dim"))]
    head, left_out, tail = fold([sign + text for sign, text in rows], DIFF_FOLD)
    out = [_diff_line(row, width, glyphs) for row in head]
    if left_out:
        out.append(line((f"{glyphs.ellipsis} {plural(left_out, 'line')} of the diff folded; {more}", "warn")))
    out.extend(_diff_line(row, width, glyphs) for row in tail)
    return out


def _diff_line(row: str, width: int, glyphs: Glyphs) -> Line:
    styles: dict[str, Style] = {"+": "added", "-": "removed"}
    sign, text = row[:1], row[1:]
    if sign == "@":
        return line((cut(escape(text), width, glyphs.ellipsis), "dim"))
    return line((cut(f"{sign} {escape(text)}", width, glyphs.ellipsis), styles.get(sign, "dim")))


def shown_args(args: Mapping[str, Any] | None) -> str:
    """Arguments as indented JSON."""
    return json.dumps(args or {}, ensure_ascii=False, indent=2)


def args_block(args: Mapping[str, Any] | None, width: int, glyphs: Glyphs, more: str) -> list[Line]:
    """What would run: a diff when the arguments are an edit, else the arguments; both folded with a count."""
    pair = old_and_new(args)
    if pair is not None:
        return diff_block(*pair, width, glyphs, more)
    if not args:
        return [line(("no arguments", "dim"))]
    return output_block(shown_args(args), width, glyphs, more, "")


def part_lines(part: ContentPart, view: View) -> list[Line]:
    """One content part of a message."""
    width, glyphs, more = view.width, view.glyphs, view.more
    if isinstance(part, Text):
        return [line(row) for paragraph in escape(part.text).split("\n") for row in wrap(paragraph, width)]
    if isinstance(part, Refusal):
        return [line(("refused: ", "warn"), row) for row in wrap(escape(part.text).replace("\n", " "), width - 9)]
    if isinstance(part, Code):
        return [line("    ", (cut(row, width - 4, glyphs.ellipsis), "dim")) for row in escape(part.code).split("\n")]
    if isinstance(part, CodeResult):
        return indented(output_block(part.output, width - 4, glyphs, more), "    ")
    if isinstance(part, Diff):
        head = line((cut(f"diff {escape(part.path)}", width, glyphs.ellipsis), "strong"))
        if part.patch is not None:
            return [head, *indented(output_block(part.patch, width - 4, glyphs, more), "    ")]
        return [
            head,
            *indented(diff_block(part.old_text or "", part.new_text or "", width - 4, glyphs, more), "    "),
        ]
    if isinstance(part, Terminal):
        head = line((cut(f"$ {escape(part.command or part.terminal_id or '')}", width, glyphs.ellipsis), "strong"))
        return [head, *indented(output_block(part.output or "", width - 4, glyphs, more), "    ")]
    return [line((cut(escape(_other_part(part)), width, glyphs.ellipsis), "dim"))]


def _other_part(part: ContentPart) -> str:
    if isinstance(part, Media):
        size = f", {len(part.data) * 3 // 4} bytes" if part.data else ""
        return f"({part.mime_type}{size}{', ' + (part.name or part.uri or '') if part.name or part.uri else ''})"
    if isinstance(part, Reference):
        return f"({part.title + ': ' if part.title else ''}{part.uri})"
    return f"({part.type}: {part.to_wire_json()})"


def question_block(event: ElicitationRequest, view: View, about: str | None) -> list[Line]:
    """A question as it is put: what it is about, what it says, what it asks for. Nothing of it is cut away."""
    width, glyphs = view.width, view.glyphs
    approval = event.kind in ("tool_confirmation", "user_approval")
    title = escape(event.title or ("" if approval else event.kind.replace("_", " "))).replace("\n", " ")
    if about and event.title:
        title = f"{about}: {title}"
    elif about:
        title = about
    head = f"{glyphs.ask} {'APPROVE' if approval else 'QUESTION'}  {title}".rstrip()
    out = [line((row, "ask")) for row in wrap(head, width)]
    for paragraph in escape(event.message).split("\n"):
        out.extend(line("  ", row) for row in wrap(paragraph, width - 2))
    if event.url:
        out.append(line("  open: ", (escape(event.url), "strong")))
    out.extend(line("  ", row) for name in field_rows(event.requested_schema) for row in wrap(name, width - 2))
    if event.expires_at:
        out.append(line(("  waits until " + escape(event.expires_at), "dim")))
    return out


def field_rows(schema: Mapping[str, Any] | None) -> list[str]:
    """One row a field of a flat object schema: name, ``*`` when required, what may be answered."""
    if not schema:
        return []
    properties = as_object(schema.get("properties"))
    if properties is None:
        return [_asks_for("answer", schema, schema, True)] if schema.get("type") not in (None, "object") else []
    required = as_list(schema.get("required"))
    return [_asks_for(name, as_object(field) or {}, schema, name in required) for name, field in properties.items()]


_WORDS: Final = {"integer": "whole number", "number": "number", "boolean": "yes or no", "string": "text"}
_FORMATS: Final = {
    "date": "date, such as 2026-01-31",
    "date-time": "time, such as 2026-01-31T12:00:00Z",
    "email": "e-mail address",
    "uri": "address, such as https://example.com/",
}


def _asks_for_one(field: Mapping[str, Any]) -> str:
    options = field_options(field)
    if options:
        titles = option_titles(field)
        shown = [f"{option} ({titles[str(option)]})" if str(option) in titles else str(option) for option in options]
        return "   ".join(f"{index} {option}" for index, option in enumerate(shown, start=1))
    kind = str(field.get("type"))
    if kind == "object" and (keys := as_object(field.get("properties"))):
        required = as_list(field.get("required"))
        return "JSON object with " + ", ".join(f"{key}{'*' if key in required else ''}" for key in keys)
    what = _WORDS.get(kind, "JSON")
    if kind == "string":
        return _FORMATS.get(str(field.get("format")), what) + _length(field)
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None or high is not None:
        what += f" {low if low is not None else ''}..{high if high is not None else ''}"
    return what


def _asks_for_several(item: Mapping[str, Any]) -> str:
    if field_options(item) and item.get("type") != "array":
        return f"some of {_asks_for_one(item)}, with commas between"
    kind = str(item.get("type"))
    return f"{_WORDS[kind]}s with commas between" if kind in ("string", "integer", "number") else "JSON list"


def _length(field: Mapping[str, Any]) -> str:
    """How long a text is to be, where that is said."""
    low, high = field.get("minLength"), field.get("maxLength")
    if low is not None and high is not None:
        return f", {low} to {high} characters"
    if high is not None:
        return f", at most {high} characters"
    return f", at least {low} characters" if low is not None and low != 1 else ""


def _asks_for(name: str, raw: Mapping[str, Any], root: Mapping[str, Any], required: bool) -> str:
    field = field_schema(raw, root)
    if marks_secret(raw, root):
        what = "secret, never recorded" + _length(field)
    elif field.get("type") == "array":
        what = _asks_for_several(field_schema(as_object(field.get("items")) or {}, root))
    else:
        what = _asks_for_one(field)
    # A title that pydantic makes of the name says nothing that the name does not.
    titles = [one for one in (field.get("title"), field.get("description")) if isinstance(one, str) and one]
    said = next((one for one in titles if one.lower().replace(" ", "_") != name.lower().replace(" ", "_")), None)
    note = f" ({said})" if said else ""
    default = (
        f", default {json.dumps(field['default'], ensure_ascii=False)}" if field.get("default") is not None else ""
    )
    return escape(f"{name}{'*' if required else ''}{note}  {what}{default}").replace("\n", " ")
