"""A question of the agent as a form of lines: one field a line, checked at once, sent only after a last yes.

Not for: approvals of tool calls (``_questions.py``). Pure. Rules carried: HITL-02, HITL-08, HITL-09.
May import: jsonschema through the protocol's ``find_problem``, the pure modules beside it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentsession.host._elicitation import Position
from agentsession.host.cli._blocks import field_rows, question_block
from agentsession.host.cli._lines import Line, View, line
from agentsession.host.cli._questions import Answered, Say, Steer, Step, is_early
from agentsession.host.cli._shapes import as_list, as_object, field_options, field_schema
from agentsession.host.cli._text import escape, wrap
from agentsession.protocol import (
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    SchemaError,
    accept,
    cancel,
    check_json,
    decline,
    find_problem,
    marks_secret,
    parse_json,
)

__all__ = ["FormQuestion"]

_YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_ABSENT: Final = object()
_DIGITS: Final = 10
"""No option has a number of so many: Python refuses to read one of thousands."""
_UNFIT: Final = "that does not fit what is asked for"


class FormQuestion:
    """The fields of a flat object schema, one after the other; without fields, a plain yes or no."""

    def __init__(
        self, request: ElicitationRequest, position: Position, *, view: View, about: str | None = None
    ) -> None:
        self._is_credential = request.kind == "auth_required" and not request.requested_schema
        if self._is_credential:
            request = request.model_copy(update={"requested_schema": _credential_form(request)})
        self.request = request
        self.position = position
        self.view = view
        self.content: dict[str, Any] = {}
        self._about = about
        schema = request.requested_schema or {}
        self._fields: list[str] = list(as_object(schema.get("properties")) or {})
        self._whole = not self._fields and schema.get("type") not in (None, "object")
        if self._whole:  # the answer is one bare value
            self._fields = ["answer"]
        self._at = 0

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def prompt(self) -> str:
        """The field that is asked for now, or the last question."""
        if not self._fields:
            return "answer> "
        if self._at >= len(self._fields):
            return "send> "
        name = escape(self._fields[self._at])
        return f"{name}{'*' if self._is_required(self._fields[self._at]) else ''}> "

    @property
    def secret(self) -> bool:
        """Whether the field is a secret: it is typed unseen."""
        return self._at < len(self._fields) and self._is_secret(self._fields[self._at])

    @property
    def block(self) -> list[Line]:
        """The question and its fields."""
        out = question_block(self.request, self.view, self._about)
        if len(self.position.principals) > 1:  # not the agent that the person speaks to: it may want a secret
            asked_by = "asked by " + escape(" > ".join(self.position.principals))
            out += [line((f"  {row}", "dim")) for row in wrap(asked_by, self.view.width - 2)]
        if self.position.problem:
            out.append(line((f"  {self.view.glyphs.warn} {escape(self.position.problem)}", "bad")))
        hint = "/decline  /cancel" if self._fields else "y accept  n decline  /cancel"
        out.append(line("  ", (hint, "dim")))
        return out

    # -- what is typed ---------------------------------------------------------------------------------------------

    def take(self, text: str, *, begun: float, drawn: float) -> Step:
        """A line: a field's value, or a word about the whole form."""
        word = text.strip()
        if is_early(begun, drawn):
            if word in ("y", "n", "b") or word.startswith("/"):
                return self._say("that was typed before the question could be read; type it again")
            # What was meant for the agent must not become a value, nor a secret a steer: it goes back into the box.
            said = self._say("begun before the question could be read; Enter again makes it the answer")
            return dataclasses.replace(said, put_back=True)
        if word == "/decline":
            return Answered(_by_user(decline(self.request.request_id)))
        if word == "/cancel":
            return Answered(_by_user(cancel(self.request.request_id)))
        if not self._fields:
            return self._plain(word, text)
        if self._at >= len(self._fields):
            return self._last(word)
        return self._field(text if self.secret else word)

    def _plain(self, word: str, text: str) -> Step:
        if word == "y":
            return Answered(_by_user(accept(self.request.request_id)))
        if word in ("n", "no"):
            return Answered(_by_user(decline(self.request.request_id)))
        if len(word) <= 1 or word.lower() in ("yes", "ok", "okay", "sure"):
            return self._say("a whole line y accepts, n declines")
        return Steer(text)

    def _last(self, word: str) -> Step:
        if word == "y":
            value = self.content["answer"] if self._whole else self.content
            value = _credential(self.content) if self._is_credential else value
            return Answered(_by_user(accept(self.request.request_id, value)))
        if word == "b":
            self._at = max(0, len(self._fields) - 1)
            return Say((self._row(),), redraw=True)
        return self._say("y sends it, b goes back, /decline and /cancel leave it")

    def _field(self, word: str) -> Step:
        if word == "b" and self._at > 0:
            self._at -= 1
            return Say((self._row(),), redraw=True)
        name = self._fields[self._at]
        schema = self._schema(name)
        if word == "" and name in self.content:
            value: Any = self.content[name]  # gone back to, and left as it was
        elif word == "":
            if "default" in schema:
                value = schema["default"]
            elif self._is_required(name):
                return self._say(f"{escape(name)} is required; /decline leaves the question")
            else:
                value = _ABSENT
        else:
            value, problem = _read(word, schema, self._root)
            if problem and self._is_secret(name):  # its words may hold what was typed
                problem = _UNFIT
            problem = problem or _problem(value, self._raw(name), self._root, is_secret=self._is_secret(name))
            if problem:
                return self._say(problem)
        if value is _ABSENT:
            self.content.pop(name, None)
        else:
            self.content[name] = value
        self._at += 1
        if self._at < len(self._fields):
            return Say((self._row(),))
        return Say((line(("  " + self._summary(), "strong")),), redraw=True)

    # -- helpers ---------------------------------------------------------------------------------------------------

    @property
    def _root(self) -> Mapping[str, Any]:
        return self.request.requested_schema or {}

    def _raw(self, name: str) -> Mapping[str, Any]:
        if self._whole:
            return self._root
        return as_object((as_object(self._root.get("properties")) or {}).get(name)) or {}

    def _schema(self, name: str) -> Mapping[str, Any]:
        return field_schema(self._raw(name), self._root)

    def _is_secret(self, name: str) -> bool:
        return marks_secret(self._raw(name), self._root)

    def _is_required(self, name: str) -> bool:
        return self._whole or name in as_list((self.request.requested_schema or {}).get("required"))

    def _row(self) -> Line:
        name = self._fields[self._at]
        required = [name] if self._is_required(name) else []
        rows = field_rows({**self._root, "properties": {name: dict(self._raw(name))}, "required": required})
        had = ""
        if name in self.content:
            shown = "***" if self._is_secret(name) else json.dumps(self.content[name], ensure_ascii=False)
            had = escape(f"  Enter keeps {shown}").replace("\n", " ")
        return line("  ", rows[0] if rows else escape(name), (had, "dim"))

    def _summary(self) -> str:
        parts = [
            f"{name}={'***' if self._is_secret(name) else json.dumps(self.content[name], ensure_ascii=False)}"
            for name in self._fields
            if name in self.content
        ]
        return escape(f"send {' '.join(parts) or 'an empty answer'}?  y / b back").replace("\n", " ")

    def _say(self, text: str) -> Say:
        return Say((line((f"  {self.view.glyphs.warn} {escape(text)}", "warn")),))


_SECRET: Final = {"type": "string", "format": "password"}


def _credential_form(request: ElicitationRequest) -> dict[str, Any]:
    """The form of a credential that was asked for without one: what the contract takes as the answer."""
    words = set(_words(request.context))
    likely = "bearer" if "bearer" in words else "api_key"
    fields: dict[str, Any] = {"type": {"enum": ["api_key", "bearer"], "default": likely}, "value": _SECRET}
    if request.url:
        fields = {"auth_response_uri": {**_SECRET, "title": "the whole address that you came back to"}}
    elif "basic" in words:
        fields = {"username": {"type": "string"}, "password": _SECRET}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _credential(content: Mapping[str, Any]) -> dict[str, Any]:
    if "auth_response_uri" in content:
        return dict(content)
    kind = {} if "type" in content else {"type": "basic"}
    return {"credential": {**kind, **content}}


def _words(value: object) -> Iterator[str]:
    """Every text in a JSON value that is no key."""
    if isinstance(value, str):
        yield value
    for item in (*as_list(value), *(as_object(value) or {}).values()):
        yield from _words(item)


def _by_user(answer: ElicitationAnswer) -> ElicitationAnswer:
    return answer.model_copy(update={"decision": Decision(by="user")})


def _read(word: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The value that a line means for a field, or what is wrong with it."""
    if schema.get("type") == "array" and not word.startswith("["):
        item = field_schema(as_object(schema.get("items")) or {}, root)
        if item.get("type") != "array" and (field_options(item) or item.get("type") in ("string", "integer", "number")):
            return _several(word, item, root)
    options = field_options(schema)
    if options:
        chosen = [option for option in options if str(option) == word]
        if chosen:
            return chosen[0], None
        if word.isdecimal() and len(word) < _DIGITS and 1 <= int(word) <= len(options):
            return options[int(word) - 1], None
        return None, f"choose 1 to {len(options)}, or write one of them out"
    kind = schema.get("type")
    if kind == "string":
        return word, None
    if not isinstance(kind, str):  # any of several types, or none is named: an object or a list, text, other JSON
        value, problem = _json(word)
        if not problem and isinstance(value, (dict, list)) and find_problem(dict(schema), value) is None:
            return value, None
        return (word, None) if problem or find_problem(dict(schema), word) is None else (value, None)
    if kind == "boolean":
        value = _YES_NO.get(word.lower())
        return value, None if value is not None else "answer y or n"
    if kind == "integer":
        try:
            return check_json(int(word)), None
        except ValueError:
            return None, f"{word[:40]} is not a whole number"
    value, problem = _json(word)
    if problem:
        like = {"number": "a number", "array": 'a JSON list, such as ["a", "b"]', "object": 'JSON, such as {"a": 1}'}
        return None, f"{word[:40]} is not {like.get(kind, 'JSON')}"
    return value, None


def _several(word: str, item: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The values of a list, with commas between."""
    out: list[Any] = []
    for part in filter(None, (part.strip() for part in word.split(","))):
        value, problem = _read(part, item, root)
        if problem:
            return None, f"{part[:40]}: {problem}"
        out.append(value)
    return out, None


def _json(word: str) -> tuple[Any, str | None]:
    try:
        return parse_json(word), None
    except SchemaError as error:
        return None, str(error)


def _problem(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], *, is_secret: bool) -> str | None:
    """What is wrong with a value, in words a person would use; of a secret, what would do."""
    schema = {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **schema}
    if is_secret:
        found = find_problem(schema, value)
        return None if found is None else f"expected {found.expected}" if found.expected else _UNFIT
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(high, (int, float)) and value > high:
            return f"{value} is more than {high}"
        if isinstance(low, (int, float)) and value < low:
            return f"{value} is less than {low}"
    found = find_problem(schema, value)
    return found.message if found is not None else None
