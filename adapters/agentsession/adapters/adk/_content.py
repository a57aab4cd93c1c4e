"""Content parts of the contract from parts of google.genai, and back, with nothing lost.

Not for: function calls and responses as requests (``_translate`` does those; here they are plain content).
Rules carried: WIRE-01. May import: google.genai.types, protocol.

What the contract has no field for is kept beside it in the part's extra field ``adk``, as genai's own JSON: a
display name, video metadata, part metadata, a scheduling mark. So for every part that genai can build and JSON can
say, ``content_to_part(part_to_content(part)) == part``. In ``adk`` an explicit ``null`` means: genai had no such
field, though the contract's part needs one (a MIME type, a name).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from google.genai import types

from agentsession.adapters.adk._values import is_list, is_object
from agentsession.protocol import (
    Code,
    CodeResult,
    ContentPart,
    Diff,
    FunctionCall,
    FunctionResponse,
    Media,
    Reference,
    Refusal,
    Terminal,
    Text,
    Thought,
    UnknownPart,
    dumps,
    to_json,
)

__all__ = ["content_to_part", "content_to_parts", "is_plain_text", "part_to_content", "parts_to_content"]

_ADK = "adk"
_UNKNOWN_TYPE = "adk:part"
_UNKNOWN_MIME = "application/octet-stream"
_OUTCOMES = {
    "OUTCOME_OK": "ok",
    "OUTCOME_FAILED": "failed",
    "OUTCOME_DEADLINE_EXCEEDED": "deadline_exceeded",
}
_DESCEND = frozenset(
    {"inlineData", "fileData", "executableCode", "codeExecutionResult", "functionCall", "functionResponse"}
)
"""The fields of a part that are objects of fields, not values."""
_FOREIGN = frozenset({"args", "response", "partMetadata"})
"""Fields whose value is not genai's own: a model's arguments, a tool's response."""
_TEXT_FIELDS = frozenset({"text", "thought", "thought_signature"})
_OUTCOMES_BACK = {ours: theirs for theirs, ours in _OUTCOMES.items()}


def parts_to_content(parts: Iterable[types.Part] | None) -> list[ContentPart]:
    """All parts, in order; see :func:`part_to_content`."""
    return [part_to_content(part) for part in parts or ()]


def content_to_parts(content: Iterable[ContentPart]) -> list[types.Part]:
    """All parts, in order; see :func:`content_to_part`."""
    return [content_to_part(part) for part in content]


def part_to_content(part: types.Part) -> ContentPart:
    """One genai part as a content part.

    Raises:
        JsonError: arguments or a response inside hold what JSON cannot say; the error has the path.
    """
    if part.text is not None and not _has_more_than_text(part):
        return _text(part.text, bool(part.thought), _b64(part.thought_signature), {})
    rest = _wire(part)
    if part.text is not None:
        rest.pop("text", None)
        thought = rest.pop("thought", None)
        if thought is False:
            rest["thought"] = False
        rest.pop("thoughtSignature", None)
        return _text(part.text, bool(thought), _b64(part.thought_signature), rest)
    if part.inline_data is not None:
        return _media(rest)
    if part.file_data is not None:
        return _reference(rest)
    if part.executable_code is not None:
        return _code(rest)
    if part.code_execution_result is not None:
        return _code_result(rest)
    if part.function_call is not None:
        return _call(rest)
    if part.function_response is not None:
        return _response(rest)
    signature = _b64(part.thought_signature)
    if set(rest) <= {"thought", "thoughtSignature"}:
        # A signature on its own, or an empty part: an empty text that says it was none.
        rest.pop("thoughtSignature", None)
        thought = rest.pop("thought", None)
        kept: dict[str, Any] = {"text": None} if thought is not False else {"text": None, "thought": False}
        return _text("", bool(thought), signature, kept)
    return UnknownPart.model_validate({"type": _UNKNOWN_TYPE, _ADK: rest})


def content_to_part(part: ContentPart) -> types.Part:
    """One content part as a genai part: the inverse of :func:`part_to_content`.

    Parts that genai has no word for (refusal, diff, terminal, reference without a type, unknown ones) become what a
    model can read: text, or a file.
    """
    rest = (part.model_extra or {}).get(_ADK)
    wire = _base(part)
    if is_object(rest):
        _merge(wire, rest)
    call = wire.get("functionCall")
    if is_object(call) and not is_object(call.get("args", {})):
        del call["args"]  # genai takes an object or nothing
    return types.Part.model_validate(wire)


def is_plain_text(part: types.Part) -> bool:
    """Whether a part is text (or a thought) that says something and nothing else, not even a signature."""
    return bool(part.text) and part.thought_signature is None and not _has_more_than_text(part)


def _has_more_than_text(part: types.Part) -> bool:
    """Whether a text part also has fields beside text, thought and signature; the common case is answered quickly."""
    others = part.model_fields_set - _TEXT_FIELDS
    return part.thought is False or any(getattr(part, name) is not None for name in others)


def _text(text: str, thought: bool, signature: str | None, rest: dict[str, Any]) -> ContentPart:
    extra: dict[str, Any] = {_ADK: rest} if rest else {}
    if thought:
        return Thought(text=text, signature=signature, **extra)
    return Text(text=text, signature=signature, **extra)


def _media(rest: dict[str, Any]) -> ContentPart:
    blob = rest.pop("inlineData")
    kept: dict[str, Any] = {}
    data = blob.pop("data", None)
    if data is None:
        kept["data"] = None
    mime = _required(blob, "mimeType", _UNKNOWN_MIME, kept)
    name = blob.pop("displayName", None)
    return Media(mime_type=mime, data=data or "", name=name, **_extra(rest, "inlineData", kept | blob))


def _reference(rest: dict[str, Any]) -> ContentPart:
    file = rest.pop("fileData")
    kept: dict[str, Any] = {}
    uri = _required(file, "fileUri", "", kept)
    mime = file.pop("mimeType", None)
    title = file.pop("displayName", None)
    return Reference(uri=uri, mime_type=mime, title=title, **_extra(rest, "fileData", kept | file))


def _code(rest: dict[str, Any]) -> ContentPart:
    body = rest.pop("executableCode")
    kept: dict[str, Any] = {}
    code = _required(body, "code", "", kept)
    language = body.pop("language", None)
    if language is not None and language.lower().upper() != language:
        kept["language"] = language
    shown = language.lower() if language is not None else None
    return Code(code=code, language=shown, **_extra(rest, "executableCode", kept | body))


def _code_result(rest: dict[str, Any]) -> ContentPart:
    body = rest.pop("codeExecutionResult")
    kept: dict[str, Any] = {}
    output = _required(body, "output", "", kept)
    outcome = body.pop("outcome", None)
    shown = _OUTCOMES.get(outcome, outcome)
    return CodeResult(output=output, outcome=shown, **_extra(rest, "codeExecutionResult", kept | body))


def _call(rest: dict[str, Any]) -> ContentPart:
    body = rest.pop("functionCall")
    kept: dict[str, Any] = {}
    name = _required(body, "name", "", kept)
    call_id, args = body.pop("id", None), body.pop("args", None)
    if args is not None and not is_object(args):  # set past genai's validation: kept as it is
        kept["args"], args = args, None
    return FunctionCall(id=call_id, name=name, args=args, **_extra(rest, "functionCall", kept | body))


def _response(rest: dict[str, Any]) -> ContentPart:
    body = rest.pop("functionResponse")
    kept: dict[str, Any] = {}
    fields: dict[str, Any] = {"name": _required(body, "name", "", kept), "id": body.pop("id", None)}
    if "response" in body:
        fields["response"] = body.pop("response")
    return FunctionResponse(**fields, **_extra(rest, "functionResponse", kept | body))


def _required(body: dict[str, Any], key: str, instead: str, kept: dict[str, Any]) -> str:
    value = body.pop(key, None)
    if value is None:
        kept[key] = None
        return instead
    return str(value)


def _extra(rest: dict[str, Any], field: str, kept: dict[str, Any]) -> dict[str, Any]:
    if kept:
        rest[field] = kept
    return {_ADK: rest} if rest else {}


def _base(part: ContentPart) -> dict[str, Any]:
    """The genai JSON of ``part`` without what its ``adk`` field adds."""
    if isinstance(part, Text):
        return _with_signature({"text": part.text}, part.signature)
    if isinstance(part, Thought):
        return _with_signature({"text": part.text, "thought": True}, part.signature)
    if isinstance(part, Media):
        if part.data is not None:
            blob = {"data": _bytes(part.data), "mimeType": part.mime_type, "displayName": part.name}
            return {"inlineData": _present(blob)}
        file = {"fileUri": part.uri or "", "mimeType": part.mime_type, "displayName": part.name}
        return {"fileData": _present(file)}
    if isinstance(part, Reference):
        return {"fileData": _present({"fileUri": part.uri, "mimeType": part.mime_type, "displayName": part.title})}
    if isinstance(part, Code):
        language = part.language.upper() if part.language is not None else None
        return {"executableCode": _present({"code": part.code, "language": language})}
    if isinstance(part, CodeResult):
        outcome = _OUTCOMES_BACK.get(part.outcome or "", part.outcome)
        return {"codeExecutionResult": _present({"output": part.output, "outcome": outcome})}
    if isinstance(part, FunctionCall):
        return {"functionCall": _present({"id": part.id, "name": part.name, "args": part.args})}
    if isinstance(part, FunctionResponse):
        response = part.response
        if response is not None and not is_object(response):
            response = {"result": response}
        return {"functionResponse": _present({"id": part.id, "name": part.name, "response": response})}
    if isinstance(part, UnknownPart) and part.type == _UNKNOWN_TYPE:
        return {}
    return {"text": _as_text(part)}


def _as_text(part: ContentPart) -> str:
    if isinstance(part, Refusal):
        return part.text
    if isinstance(part, Diff) and part.patch is not None:
        return f"{part.path}\n{part.patch}"
    if isinstance(part, Terminal) and part.output is not None:
        return "\n".join(text for text in (part.command and f"$ {part.command}", part.output) if text)
    return dumps(part.to_wire())


def _with_signature(wire: dict[str, Any], signature: str | None) -> dict[str, Any]:
    if signature is not None:
        wire["thoughtSignature"] = _bytes(signature)
    return wire


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _merge(wire: dict[str, Any], rest: dict[str, Any]) -> None:
    """Lay ``rest`` over ``wire`` in place; null removes. Objects that are values are not descended into."""
    for key, value in rest.items():
        if value is None:
            wire.pop(key, None)
        elif is_object(value) and is_object(wire.get(key)) and key in _DESCEND:
            _merge(wire[key], value)
        else:
            wire[key] = value


def _wire(model: Any) -> dict[str, Any]:
    """genai's own JSON of a model, made by ``to_json``: pydantic's would fail on text that UTF-8 cannot encode."""
    dumped = model.model_dump(by_alias=True, exclude_none=True, warnings=False)
    converted: dict[str, Any] = to_json(_bytes_as_text(dumped))
    return converted


def _bytes_as_text(value: Any) -> Any:
    """Bytes of genai's own fields as base64, as genai writes them; a model's or tool's values are for ``to_json``."""
    if is_object(value):
        return {key: item if key in _FOREIGN else _bytes_as_text(item) for key, item in value.items()}
    if is_list(value):
        return [_bytes_as_text(item) for item in value]
    return _b64(value) if isinstance(value, bytes) else value


def _b64(value: bytes | None) -> str | None:
    return base64.b64encode(value).decode("ascii") if value is not None else None


def _bytes(text: str) -> bytes | str:
    """Bytes of base64 text, standard or URL-safe; text that is neither is left for genai to refuse in its words."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return text
