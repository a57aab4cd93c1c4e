"""ADK's model requests as the JSON of Gemini's REST API (``GenerateContentRequest``), and back. Pure.

Not for: responses (``_gemini_responses``), secrets (``_exchanges`` redacts). Rules carried: WIRE-01, WIRE-02.
May import: ``_lenient``, ``agentsession.protocol``, google.adk.models, google.genai.

The JSON is what google-genai's client puts on the wire for the same request, in camelCase throughout (the client
itself writes some names in snake_case, which the API takes too, and so does the reading here). Fields that only Vertex
or only the Gemini API takes are all said: one form for both. What is about the connection (``http_options``, which
holds keys) and not about the request is never part of it.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.genai import _transformers, types  # private: the client's own reading of schemas given as Python types
from pydantic import BaseModel

from agentsession.adapters.adk._lenient import pointer_of, read_model, refused, snake
from agentsession.adapters.adk._values import is_list, is_mapping, is_object, lossy_json
from agentsession.protocol import InvalidInput, JsonError, repair_text, to_json

__all__ = ["GeminiRead", "asked_json", "read_request", "request_json", "wire_json"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class GeminiRead(Generic[T]):
    """What was read, and what its JSON held that google-genai has no field for, by JSON pointer."""

    value: T
    unread: Mapping[str, Any]


_AT_TOP: Final = {
    "system_instruction": "systemInstruction",
    "safety_settings": "safetySettings",
    "tools": "tools",
    "tool_config": "toolConfig",
    "labels": "labels",
    "cached_content": "cachedContent",
    "service_tier": "serviceTier",
    "continuation_token": "continuationToken",
    "model_armor_config": "modelArmorConfig",
    "generation_output_config": "outputConfig",
    "store": "store",
}
"""Fields of genai's configuration that stand beside ``generationConfig`` on the wire, not in it."""

_OTHER_NAME: Final = {"model_selection_config": "modelConfig"}
"""Fields in ``generationConfig`` with another name than their own."""

_OF_THE_CLIENT: Final = frozenset(
    {"automatic_continuation", "automatic_function_calling", "http_options", "should_return_http_response"}
)
"""Fields that say how google-genai's client shall work; the provider never sees them."""

_BACK: Final = {wire: field for field, wire in (*_AT_TOP.items(), *_OTHER_NAME.items())}


def asked_json(model: BaseLlm, request: LlmRequest) -> dict[str, Any]:
    """:func:`request_json` of what a provider would be asked: every model of ADK adds a word of the user's to contents
    that end with the model's, as in a loop. ``request`` stays as it is.

    Raises:
        InvalidInput: as :func:`request_json`.
    """
    asked = request.model_copy(update={"contents": list(request.contents)})
    model._maybe_append_user_content(asked)  # for subclasses of BaseLlm, although its name is private
    return request_json(asked)


def request_json(request: LlmRequest) -> dict[str, Any]:
    """The ``GenerateContentRequest`` that ``request`` is, with the model's name in ``model``.

    Raises:
        InvalidInput: something in it cannot be said, such as a tool that is a live object; the error has the place.
    """
    out: dict[str, Any] = {}
    if request.model:
        out["model"] = repair_text(request.model)
    out["contents"] = [wire_json(item, f"/contents/{index}") for index, item in enumerate(request.contents)]
    generation: dict[str, Any] = {}
    for field in types.GenerateContentConfig.model_fields:
        value = getattr(request.config, field)
        if value is None or field in _OF_THE_CLIENT:
            continue
        at_top = _AT_TOP.get(field)
        name = at_top or _OTHER_NAME.get(field) or _camel(field)
        place = f"/{name}" if at_top else f"/generationConfig/{name}"
        said = wire_json(_as_sent(field, value, place), place)
        if said is not None:
            (out if at_top else generation)[name] = said
    if generation:
        out["generationConfig"] = generation
    return out


def read_request(value: Any, *, name: str = "request") -> GeminiRead[LlmRequest]:
    """The ADK request that a ``GenerateContentRequest`` stands for; camelCase and snake_case are both read.

    Raises:
        SchemaError: it is not such a request; the error has the JSON pointer of the place.
    """
    if not is_object(value):
        raise refused(name, "", "not a GenerateContentRequest", value, "an object")
    unread: dict[str, Any] = {}
    config: dict[str, Any] = {}
    places: dict[str, str] = {}
    contents: list[types.Content] = []
    model: str | None = None
    for key, item in value.items():
        field = _BACK.get(key) or snake(key)
        if item is None:
            continue
        if field == "contents":
            if not is_list(item):
                raise refused(name, f"/{key}", "not a GenerateContentRequest", item, "a list of contents")
            contents = [
                read_model(types.Content, entry, unread, pointer=f"/{key}/{index}", name=name)
                for index, entry in enumerate(item)
            ]
        elif field == "model":
            if not isinstance(item, str):
                raise refused(name, f"/{key}", "not a GenerateContentRequest", item, "the model's name")
            model = item
        elif field == "generation_config":
            if not is_object(item):
                raise refused(name, f"/{key}", "not a GenerateContentRequest", item, "an object")
            for inner, setting in item.items():
                known = _BACK.get(inner) or snake(inner)
                _place(known, setting, f"/{key}/{inner}", config, places, unread, at_top=False)
        else:
            _place(field, item, f"/{key}", config, places, unread, at_top=True)
    return GeminiRead(LlmRequest(model=model, contents=contents, config=_config(config, places, unread, name)), unread)


def _place(
    field: str,
    value: Any,
    pointer: str,
    config: dict[str, Any],
    places: dict[str, str],
    unread: dict[str, Any],
    *,
    at_top: bool,
) -> None:
    known = field in types.GenerateContentConfig.model_fields and field not in _OF_THE_CLIENT
    if value is None:
        return
    if not known or (field in _AT_TOP) is not at_top or field in config:
        unread[pointer] = lossy_json(value)[0]
        return
    config[field] = value
    places[field] = pointer


def _config(
    config: dict[str, Any], places: Mapping[str, str], unread: dict[str, Any], name: str
) -> types.GenerateContentConfig:
    """The whole configuration; errors and unread fields have the place they have on the wire."""
    whole: dict[str, Any] = {}
    for field, value in config.items():
        # genai types these as unions, which pydantic would try member by member: on the wire each is one thing.
        kind, pointer = _ONE_OF_SEVERAL.get(field), places[field]
        if kind is None:
            whole[field] = value
        elif field != "tools":
            whole[field] = read_model(kind, value, unread, pointer=pointer, name=name)
        elif is_list(value):
            whole[field] = [
                read_model(kind, item, unread, pointer=f"{pointer}/{index}", name=name)
                for index, item in enumerate(value)
            ]
        else:
            raise refused(name, pointer, "not a GenerateContentRequest", value, "a list of tools")
    aliases = {_camel(field): pointer for field, pointer in places.items()} | dict(places)

    def place(path: tuple[str | int, ...]) -> str:
        return aliases.get(str(path[0]), f"/{path[0]}") + pointer_of(path[1:]) if path else ""

    return read_model(
        types.GenerateContentConfig, whole, unread, pointer=place, name=name, what="GenerateContentRequest"
    )


_ONE_OF_SEVERAL: Final[Mapping[str, type[BaseModel]]] = {
    "response_schema": types.Schema,
    "speech_config": types.SpeechConfig,
    "system_instruction": types.Content,
    "tools": types.Tool,
}


def _as_sent(field: str, value: Any, place: str) -> Any:
    """A field's value as the client sends it: what may be given in several ways has one on the wire."""
    try:
        if field == "system_instruction":
            return _instruction(value)
        if field == "image_config":
            return _image_config(value)
        if field == "response_schema":
            return _transformers.t_schema(None, value)
        if field == "speech_config" and isinstance(value, str):
            voice = types.PrebuiltVoiceConfig(voice_name=value)
            return types.SpeechConfig(voice_config=types.VoiceConfig(prebuilt_voice_config=voice))
        if field == "tools":
            return _tools(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(
            f"{field} of a model request cannot be sent",
            where=f"request at {place}",
            got=f"{type(value).__name__}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            expected="what google-genai takes there",
        ) from error
    return value


def _instruction(value: Any) -> types.Content:
    if isinstance(value, types.Content):
        return value
    called = isinstance(value, types.Part) and value.function_call is not None
    return types.ModelContent(parts=value) if called else types.UserContent(parts=value)


def _image_config(config: types.ImageConfig) -> types.ImageConfig:
    """What genai has two places for has one on the wire; the client takes the object where both are given."""
    mime_type, quality = config.output_mime_type, config.output_compression_quality
    if mime_type is None and quality is None:
        return config
    options = config.image_output_options or types.ImageConfigImageOutputOptions(
        mime_type=mime_type, compression_quality=quality
    )
    gone = {"output_mime_type": None, "output_compression_quality": None}
    return config.model_copy(update={**gone, "image_output_options": options})


def _tools(tools: list[Any]) -> list[types.Tool]:
    """The tools as the client sends them: all functions in one, behind the others; a function has its declaration."""
    functions: list[types.FunctionDeclaration] = []
    out: list[types.Tool] = []
    for tool in tools:
        sent = _transformers.t_tool(None, tool)  # type: ignore[arg-type]  # the client is asked for the API's name alone
        if not isinstance(sent, types.Tool):
            raise TypeError(f"a {type(tool).__name__} is a live object, not a declaration")
        if not sent.function_declarations:
            out.append(sent)
            continue
        functions += sent.function_declarations
        rest = sent.model_copy(update={"function_declarations": None})
        if rest.model_dump(exclude_none=True):
            out.append(rest)
    return [*out, types.Tool(function_declarations=functions)] if functions else out


def wire_json(value: Any, place: str = "") -> Any:
    """A value of google-genai's as JSON for the wire: camelCase, bytes as URL-safe base64, absent where ``None``.

    Raises:
        InvalidInput: something inside, such as a tool's result, is no JSON; the error has the place.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True, exclude_none=True, warnings=False)
    if isinstance(value, enum.Enum):
        return wire_json(value.value, place)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.urlsafe_b64encode(bytes(value)).decode("ascii")
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if is_mapping(value):
        return {
            repair_text(key) if isinstance(key, str) else str(key): wire_json(item, f"{place}/{key}")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [wire_json(item, f"{place}/{index}") for index, item in enumerate(value)]
    try:
        return to_json(value)
    except JsonError as error:
        raise InvalidInput(
            "a model request holds what JSON cannot say",
            where=f"request at {place}",
            got=error.got,
            expected="JSON values",
        ) from error


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
