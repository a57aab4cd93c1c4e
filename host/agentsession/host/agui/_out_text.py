"""Messages: text, reasoning with its encrypted values, and the parts that are shown beside them.

Not for: whole messages of a snapshot (``_out_snapshots.py``). Pure. Rules carried: LIFE-14 as far as it shows.
May import: ``protocol``, ``_out_content``, ``_out_wire``.

A message's text is one AG-UI message under its own id, opened with its first text and closed once. Each run of thoughts
in it is a reasoning message, ``ID.t0``, ``ID.t1`` …, and each other part an activity, ``ID.p0`` …. A delta costs the
same however long its message is: of what was said only marks are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from agentsession.host.agui._out_content import is_side_part, side_part
from agentsession.host.agui._out_wire import Wire, activity, own
from agentsession.protocol import ContentPart, FunctionCall, Message, Refusal, Text, Thought, merge_parts

__all__ = ["ROLES", "TextOut", "call_signature", "encrypted", "end_reasoning", "thoughts"]

ROLES: Final = {"user": "user", "developer": "developer", "system": "system"}
"""Roles by ours; any other is the agent's."""


def encrypted(subtype: str, entity_id: str, value: str, tag: dict[str, str]) -> Wire:
    """``REASONING_ENCRYPTED_VALUE``: what a provider signed, to come back unchanged."""
    return {
        "type": "REASONING_ENCRYPTED_VALUE",
        "subtype": subtype,
        "entityId": entity_id,
        "encryptedValue": value,
        **tag,
    }


def end_reasoning(reasoning_id: str, signature: str | None, tag: dict[str, str]) -> list[Wire]:
    """The end of one reasoning message and its span."""
    value = [encrypted("message", reasoning_id, signature, tag)] if signature else []
    return [
        {"type": "REASONING_MESSAGE_END", "messageId": reasoning_id},
        *value,
        {"type": "REASONING_END", "messageId": reasoning_id},
    ]


def thoughts(content: Iterable[ContentPart]) -> list[Thought]:
    """The runs of thoughts of a whole message, in order: their places number the reasoning messages."""
    said = [part for part in content if not isinstance(part, (Text, Thought)) or part.text or part.signature]
    return [part for part in merge_parts(said) if isinstance(part, Thought)]


def call_signature(part: FunctionCall) -> str | None:
    """What a provider signed of a raw call in a message."""
    extra = part.model_extra or {}
    nested = extra.get("adk")
    given = extra.get("signature") or (nested.get("thoughtSignature") if isinstance(nested, dict) else None)
    return given if isinstance(given, str) and given else None


class _Talk:
    """One message that is being said."""

    __slots__ = (
        "deltas",
        "is_refusal",
        "role",
        "runs",
        "side",
        "signature",
        "signatures",
        "signed",
        "tag",
        "text_open",
    )

    def __init__(self, role: str, tag: dict[str, str]) -> None:
        self.role = role
        self.tag = tag
        self.deltas = False
        self.text_open = False
        self.is_refusal = False
        self.signature: str | None = None
        """Of the text."""
        self.runs = 0
        """How many runs of thoughts there were."""
        self.signed: str | None = None
        """The signature of the open run; ``""`` when it has none, ``None`` when no run is open."""
        self.signatures: list[str] = []
        """Of the runs that have ended."""
        self.side: list[Wire] = []
        """The other parts that were shown."""


class TextOut:
    """The messages of one run. ``needs_snapshot``: a message was revised after its words had been sent."""

    def __init__(self) -> None:
        self._talks: dict[str, _Talk] = {}
        self._owners: dict[str, dict[str, str]] = {}
        self.needs_snapshot = False

    def owner(self, message_id: str) -> dict[str, str] | None:
        """Whose a message of this run is, as its tag; ``None`` for one that has not begun in it."""
        return self._owners.get(message_id)

    def is_said(self, message_id: str) -> bool:
        """Whether the message was closed in this run."""
        return message_id in self._owners and message_id not in self._talks

    def feed(self, event: Message, tag: dict[str, str]) -> list[Wire]:
        """A delta or a whole message."""
        message_id = event.message_id
        talk = self._talks.get(message_id)
        if talk is None:
            talk = _Talk(event.role, tag)
            self._talks[message_id] = talk
            self._owners[message_id] = tag
        if event.partial:
            talk.deltas = True
            return self._say(message_id, talk, event.content)
        del self._talks[message_id]
        if not talk.deltas:
            out = self._say(message_id, talk, event.content)
            return [*out, *self._close(message_id, talk, event)]
        return [*self._settle(message_id, talk, event), *self._close(message_id, talk, event)]

    def close_all(self) -> list[Wire]:
        """Close what is open: the run ends in the middle of it."""
        out: list[Wire] = []
        for message_id, talk in self._talks.items():
            out += self._close(message_id, talk, None)
        self._talks.clear()
        return out

    # -- deltas -------------------------------------------------------------------------------------------------------

    def _say(self, message_id: str, talk: _Talk, content: Iterable[ContentPart]) -> list[Wire]:
        out: list[Wire] = []
        for part in content:
            if isinstance(part, Text):
                talk.signature = part.signature or talk.signature
                if part.text:
                    out += self._text(message_id, talk, part.text)
            elif isinstance(part, Thought):
                if part.text or part.signature:
                    out += self._thought(message_id, talk, part)
            elif isinstance(part, Refusal):
                talk.is_refusal = True
                if part.text:
                    out += self._text(message_id, talk, part.text)
            elif is_side_part(part):
                out.append(self._side(message_id, talk, part))
        return out

    def _text(self, message_id: str, talk: _Talk, text: str) -> list[Wire]:
        delta: Wire = {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}
        if talk.text_open and talk.signed is None:
            return [delta]
        return [*self._end_thought(message_id, talk), *self._open_text(message_id, talk), delta]

    def _open_text(self, message_id: str, talk: _Talk) -> list[Wire]:
        if talk.text_open:
            return []
        talk.text_open = True
        role = ROLES.get(talk.role, "assistant")
        about = own(refusal=True) if talk.is_refusal else {}
        return [{"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": role, **talk.tag, **about}]

    def _thought(self, message_id: str, talk: _Talk, part: Thought) -> list[Wire]:
        out: list[Wire] = []
        if talk.signed is None:
            talk.signed = ""
            reasoning_id = f"{message_id}.t{talk.runs}"
            talk.runs += 1
            out += [
                {"type": "REASONING_START", "messageId": reasoning_id, **talk.tag},
                {"type": "REASONING_MESSAGE_START", "messageId": reasoning_id, "role": "reasoning", **talk.tag},
            ]
        else:
            reasoning_id = f"{message_id}.t{talk.runs - 1}"
        if part.text:
            out.append({"type": "REASONING_MESSAGE_CONTENT", "messageId": reasoning_id, "delta": part.text})
        talk.signed = part.signature or talk.signed
        return out

    def _end_thought(self, message_id: str, talk: _Talk) -> list[Wire]:
        signed, talk.signed = talk.signed, None
        if signed is None:
            return []
        talk.signatures.append(signed)
        return end_reasoning(f"{message_id}.t{talk.runs - 1}", signed, talk.tag)

    def _side(self, message_id: str, talk: _Talk, part: ContentPart) -> Wire:
        shown = activity(f"{message_id}.p{len(talk.side)}", part.type, side_part(part), **talk.tag)
        talk.side.append(shown)
        return shown

    # -- the closing event --------------------------------------------------------------------------------------------

    def _settle(self, message_id: str, talk: _Talk, event: Message) -> list[Wire]:
        """What the whole message adds to its deltas: signatures, parts that were in no delta, other words."""
        out: list[Wire] = []
        if event.revised:
            self.needs_snapshot = self.needs_snapshot or talk.text_open or talk.runs > 0
            if not talk.text_open:
                out += self._say(
                    message_id, talk, [part for part in event.content if isinstance(part, (Text, Refusal))]
                )
        if not talk.is_refusal and not event.revised:  # a refusal in no delta: LIFE-14 compares text and thoughts alone
            out += self._say(message_id, talk, [part for part in event.content if isinstance(part, Refusal)])
        out += self._sign(message_id, talk, thoughts(event.content))
        for part in event.content:
            if isinstance(part, Text):
                talk.signature = part.signature or talk.signature
        sides = [part for part in event.content if is_side_part(part)]
        for index, part in enumerate(sides):
            if index >= len(talk.side):
                out.append(self._side(message_id, talk, part))
        return out

    def _sign(self, message_id: str, talk: _Talk, runs: list[Thought]) -> list[Wire]:
        """Signatures that came with the whole message alone, at the reasoning that stands in their place."""
        out: list[Wire] = []
        for index, part in enumerate(runs):
            if not part.signature:
                continue
            if index == talk.runs - 1 and talk.signed is not None:
                talk.signed = part.signature
            elif index < len(talk.signatures):
                if talk.signatures[index] == part.signature:
                    continue
                out.append(encrypted("message", f"{message_id}.t{index}", part.signature, talk.tag))
            else:
                out += self._end_thought(message_id, talk)
                out += self._thought(message_id, talk, Thought(text="", signature=part.signature))
        return out

    def _close(self, message_id: str, talk: _Talk, event: Message | None) -> list[Wire]:
        out = self._end_thought(message_id, talk)
        if talk.signature and not talk.text_open:
            out += self._open_text(message_id, talk)  # the signature needs a message that has it
        if not talk.text_open:
            return out
        about: dict[str, Any] = {"interrupted": True if event is None or event.interrupted else None}
        about["revised"] = True if event is not None and event.revised else None
        about["refusal"] = True if talk.is_refusal else None
        out.append({"type": "TEXT_MESSAGE_END", "messageId": message_id, **own(**about)})
        if talk.signature:
            out.append(encrypted("message", message_id, talk.signature, talk.tag))
        return out
