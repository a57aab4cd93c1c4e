"""Streamed answers: the deltas of one model response until its closing event, and the pieces of a call's arguments.

Not for: whole events. Rules carried: LIFE-14 (deltas and closing agree, or the closing says ``revised``).
May import: ``_content``, protocol, google.genai.types.

ADK repeats itself at the end of a stream: some models send the whole text once more as a *partial* event before the
final one. Such a repeat equals all that was said so far, but so does the second ``ha`` of ``haha``. So a delta that
equals the whole so far is held back for one event, and the next event says which it was.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence

from google.genai import types

from agentsession.adapters.adk._content import part_to_content
from agentsession.protocol import (
    ContentPart,
    DeltaJoiner,
    JsonError,
    Text,
    Thought,
    merge_parts,
    text_by_type,
)

__all__ = ["ArgsWriter", "MessageBuffer", "StreamedCall", "is_empty_text", "visible_parts"]


def visible_parts(parts: Iterable[types.Part], problems: list[str]) -> list[ContentPart]:
    """The parts that belong in a message: all but calls and responses; what JSON cannot say is listed and left out."""
    out: list[ContentPart] = []
    for part in parts:
        if part.function_call is not None or part.function_response is not None:
            continue
        try:
            content = part_to_content(part)
        except JsonError as error:
            problems.append(f"{error.path}: {error.got}")
            continue
        if not is_empty_text(content):
            out.append(content)
    return out


def is_empty_text(part: ContentPart) -> bool:
    """Whether a part says nothing: empty text without a signature or extras."""
    return isinstance(part, (Text, Thought)) and not part.text and part.signature is None and not part.model_extra


@dataclasses.dataclass(slots=True)
class StreamedCall:
    """A call whose arguments arrive in pieces."""

    adk_id: str
    request_id: str
    name: str
    writer: ArgsWriter
    complete: bool = False
    matched: bool = False


class MessageBuffer:
    """One model response while it streams: what was shown, and what the closing event must say."""

    def __init__(self, adk_id: str, message_id: str) -> None:
        self.adk_id = adk_id
        self.message_id = message_id
        self.repeats = 0
        """Further partial events with the same ADK id: then an event with another id is another response."""
        self.newest: types.Content | None = None
        """What the partial event holds that ADK has shown last of it."""
        self.usage: types.GenerateContentResponseUsageMetadata | None = None
        self.code: str | None = None
        self.calls: list[StreamedCall] = []
        self._index = 0
        self._shown: list[ContentPart] = []
        self._run: list[str] = []
        """Plain text that was shown after ``_shown``, in pieces: as parts they would be thousands of objects."""
        self._run_kind = ""
        self._text: dict[str, list[str]] = {}
        self._length: dict[str, int] = {}
        self._joiners: dict[str, DeltaJoiner] = {}
        self._held: list[ContentPart] | None = None

    @property
    def started(self) -> bool:
        """Whether a delta was shown, or is held back."""
        return self._index > 0 or self._held is not None

    def next_index(self) -> int:
        """The index of the next delta."""
        index = self._index
        self._index += 1
        return index

    def feed(self, parts: Iterable[types.Part]) -> list[list[ContentPart]]:
        """Take one partial event; return the deltas to show now, each with its content."""
        rejoined: list[types.Part] = []
        for part in parts:
            if part.text is None:
                rejoined.append(part)
                continue
            # Before anything looks at the text: half of a character must meet its other half, not be repaired.
            text = self._joiner("thought" if part.thought else "text").feed(part.text)
            rejoined.append(part if text is part.text else part.model_copy(update={"text": text}))
        content = visible_parts(rejoined, [])
        plain = all(isinstance(part, (Text, Thought)) for part in content)
        if not content:
            return []
        out = self._release()
        if plain and self._repeats_everything(content):
            self._held = content
            return out
        self._take(content)
        return [*out, content]

    def feed_text(self, kind: str, text: str) -> str | None:
        """What :meth:`feed` does, for one piece of plain text: what to show of it, or ``None`` to go the long way.

        A long answer is thousands of these.
        """
        if self._held is not None or not self._text:
            return None
        if self._length.get(kind) == len(text) and len(self._length) == 1:
            return None  # it may repeat all that was said
        shown = self._joiner(kind).feed(text)
        if shown:
            if kind != self._run_kind:
                self._end_run()
                self._run_kind = kind
            self._run.append(shown)
            self._text.setdefault(kind, []).append(shown)
            self._length[kind] = self._length.get(kind, 0) + len(shown)
        return shown

    def close(self, final: Sequence[ContentPart]) -> tuple[list[list[ContentPart]], list[ContentPart], bool]:
        """The response is over: the deltas still to show, the whole content, and whether it was revised.

        ``final`` is what ADK's closing event holds; empty when it holds no content, then what was shown stands.
        """
        wanted = text_by_type(final)
        held, self._held = self._held, None
        deltas: list[list[ContentPart]] = []
        if held is not None and (not final or wanted != self._said()):
            self._take(held)
            deltas.append(held)
        rest = self._flush()
        if rest:
            self._take(rest)
            deltas.append(rest)
        if not wanted:
            # Only calls or files came at the end: the text that was shown is the text.
            self._end_run()
            shown = merge_parts(self._shown)
            known = [part for part in final if part not in shown]
            return deltas, [*shown, *known], False
        return deltas, list(final), wanted != self._said()

    def _joiner(self, kind: str) -> DeltaJoiner:
        joiner = self._joiners.get(kind)
        if joiner is None:
            joiner = self._joiners[kind] = DeltaJoiner()
        return joiner

    def _take(self, content: Sequence[ContentPart]) -> None:
        self._end_run()
        self._shown.extend(content)
        for part in content:
            if isinstance(part, (Text, Thought)) and part.text:
                self._text.setdefault(part.type, []).append(part.text)
                self._length[part.type] = self._length.get(part.type, 0) + len(part.text)

    def _end_run(self) -> None:
        if self._run:
            text = "".join(self._run)
            self._shown.append(Thought(text=text) if self._run_kind == "thought" else Text(text=text))
            self._run = []

    def _release(self) -> list[list[ContentPart]]:
        """Another delta came, so the one held back was no repeat."""
        held, self._held = self._held, None
        if held is None:
            return []
        self._take(held)
        return [held]

    def _repeats_everything(self, content: Sequence[ContentPart]) -> bool:
        if not self._length:
            return False
        lengths: dict[str, int] = {}
        for part in content:
            if isinstance(part, (Text, Thought)):
                lengths[part.type] = lengths.get(part.type, 0) + len(part.text)
        # Lengths first: to join all that was said at each delta would make a long answer quadratic.
        return lengths == self._length and text_by_type(content) == self._said()

    def _said(self) -> dict[str, str]:
        return {kind: text for kind, texts in self._text.items() if (text := "".join(texts))}

    def _flush(self) -> list[ContentPart]:
        out: list[ContentPart] = []
        for kind, joiner in self._joiners.items():
            rest = joiner.flush()
            if rest:
                out.append(Thought(text=rest) if kind == "thought" else Text(text=rest))
        return out


class ArgsWriter:
    """Writes the JSON text of arguments that arrive by path, piece by piece, appending only.

    Gives up quietly (``broken``) when a piece goes back to a place that is already written: then the pieces can no
    longer be shown as one growing text, and the whole request says it all.
    """

    def __init__(self) -> None:
        self.broken = False
        self._place: list[str | int] = []
        """The path of the value written last; empty before the first."""
        self._in_string = False
        self._entered: set[tuple[str | int, ...]] = set()
        self._joiner = DeltaJoiner()

    def feed(self, args: Iterable[types.PartialArg]) -> str:
        """The text to append for these pieces."""
        out: list[str] = []
        for arg in args:
            path = _steps(arg.json_path or "")
            if self.broken or not path:
                continue
            if arg.string_value is not None:
                if not (self._in_string and self._place == path):
                    out.append(self._enter(path, '"'))
                    self._in_string = not self.broken
                if not self.broken:
                    out.append(_escaped(self._joiner.feed(arg.string_value)))
            elif arg.number_value is not None:
                number = arg.number_value
                out.append(self._enter(path, json.dumps(int(number) if number.is_integer() else number)))
            elif arg.bool_value is not None:
                out.append(self._enter(path, "true" if arg.bool_value else "false"))
            elif arg.null_value is not None:
                out.append(self._enter(path, "null"))
        return "".join(out)

    def finish(self) -> str:
        """The text that closes the object."""
        if self.broken:
            return ""
        self.broken = True  # nothing can be appended to a closed object
        return self._leave(0) + "}" if self._place else "{}"

    def _enter(self, path: list[str | int], value: str) -> str:
        """Go from the last place to ``path`` and write ``value`` there."""
        place = self._place
        shared = 0
        while shared < min(len(place), len(path)) and place[shared] == path[shared]:
            shared += 1
        if not self._can_append(path, shared):
            self.broken = True
            return ""
        out = [self._leave(shared), ","] if place else ["{"]
        for depth in range(shared, len(path)):
            step = path[depth]
            if depth > shared:
                out.append("[" if isinstance(step, int) else "{")
            if isinstance(step, str):
                out.append(json.dumps(step, ensure_ascii=False) + ":")
            self._entered.add(tuple(path[: depth + 1]))
        self._place = path
        return "".join([*out, value])

    def _can_append(self, path: list[str | int], shared: int) -> bool:
        """Whether ``path`` is a new place behind the last one: a new key, or the next index of a list."""
        if shared == len(path) or (self._place and shared == len(self._place)):
            return False  # the same place again, or a place inside a finished value
        if tuple(path[: shared + 1]) in self._entered or not isinstance(path[0], str):
            return False
        before = self._place[shared] if self._place else None
        step = path[shared]
        if before is not None and isinstance(before, str) != isinstance(step, str):
            return False
        if isinstance(step, int) and step != (before + 1 if isinstance(before, int) else 0):
            return False
        return all(later == 0 for later in path[shared + 1 :] if isinstance(later, int))

    def _leave(self, depth: int) -> str:
        """Close the last value, and its containers down to that of step ``depth``."""
        out = ""
        if self._in_string:
            out = _escaped(self._joiner.flush()) + '"'
            self._in_string = False
        inner = self._place[depth + 1 :]
        return out + "".join("]" if isinstance(step, int) else "}" for step in reversed(inner))


_STEP = re.compile(r"""\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[\]]+)""")


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for found in _STEP.finditer(path.removeprefix("$")):
        if found[1] is not None:
            steps.append(int(found[1]))
        else:
            steps.append(next(group for group in found.groups()[1:] if group is not None))
    return steps


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
