"""What hooks see of ADK's contents and model calls, and how what they change is put back.

Not for: firing hooks (``_hooks.py``). Rules carried: TOOL-05 (a hook makes no call). May import:
``agentsession.protocol``, the pure modules beside it, google.adk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from google.adk.models.llm_request import LlmRequest
from google.genai import types

from agentsession.adapters.adk._content import content_to_part, part_to_content
from agentsession.protocol import ContentPart, InvalidInput, JsonError, ModelRequestChange, Text, repair_text

__all__ = ["SETTINGS", "Parts", "change_request", "instruction_text", "is_fixed"]

SETTINGS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "max_output_tokens",
    "stop_sequences",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)
"""What of a model's configuration hooks see and may change."""


class Parts:
    """Parts as a hook sees them, and the way back: a part that the hook leaves alone stays the very one it was."""

    def __init__(self, parts: Iterable[types.Part] | None) -> None:
        self.pairs = [(_shown(part), part) for part in parts or ()]

    @property
    def content(self) -> list[ContentPart]:
        return [content for content, _ in self.pairs]

    def changed(self, content: Sequence[ContentPart], *, keeps: bool = False, free: bool = False) -> list[types.Part]:
        """The parts for other content.

        ``keeps``: all calls and results must be in it; ``free``: there may be other calls and results in it.
        Raises :class:`InvalidInput` where these do not hold, or a part cannot be made.
        """
        left: dict[object, list[tuple[ContentPart, types.Part]]] = {}
        for pair in self.pairs:
            left.setdefault(_alike(pair[0]), []).append(pair)
        out: list[types.Part] = []
        for wanted in content:
            near = left.get(_alike(wanted), [])
            at = next((index for index, pair in enumerate(near) if pair[0] == wanted), None)
            if at is not None:
                out.append(near.pop(at)[1])
                continue
            try:
                made = content_to_part(wanted)
            except ValueError as error:  # pydantic's: the part's own extra fields are not what genai takes
                raise InvalidInput(f"a hook's {wanted.type} part cannot be used") from error
            if is_fixed(made) and not free:
                raise InvalidInput("a hook made or changed a call or a result")
            out.append(made)
        if keeps and any(is_fixed(part) for pairs in left.values() for _, part in pairs):
            raise InvalidInput("a hook dropped a call or a result")
        return out


def _alike(part: ContentPart) -> object:
    """The same for parts that are equal: a long history is not compared with itself."""
    fields = vars(part)
    marks = (fields.get("id"), fields.get("name"), fields.get("text"))
    return (part.type, *(mark if isinstance(mark, str) else None for mark in marks))


def is_fixed(part: types.Part) -> bool:
    return part.function_call is not None or part.function_response is not None


def _shown(part: types.Part) -> ContentPart:
    try:
        return part_to_content(part)
    except JsonError as error:  # it stays what it is, unless the hook drops it
        return Text(text=f"[{error.path}: {error.got}]")


def instruction_text(given: Any) -> str | None:
    """The system instruction as text; ADK builds text, a callback may have put parts there."""
    if given is None or isinstance(given, str):
        return repair_text(given) if given else None
    parts = getattr(given, "parts", None) or (given if isinstance(given, list) else [given])
    return "\n".join(repair_text(str(getattr(part, "text", part) or "")) for part in parts)


def change_request(request: LlmRequest, change: ModelRequestChange, shown: Sequence[Parts]) -> None:
    """Make a hook's changes to a model call. All of them are checked before the first is made."""
    contents = None
    if change.contents is not None:
        pool = Parts(())
        pool.pairs = [pair for parts in shown for pair in parts.pairs]
        made = iter(pool.changed([part for item in change.contents for part in item.content], free=True))
        contents = [
            types.Content(role=item.role, parts=list(islice(made, len(item.content)))) for item in change.contents
        ]
        if _unpaired(contents) - _unpaired(request.contents):
            raise InvalidInput("a hook left a call without its result, or a result without its call")
    settings = dict(change.config or {})
    unknown = sorted(settings.keys() - set(SETTINGS))
    if unknown:
        raise InvalidInput(f"a hook changed the model's {unknown[0]}", expected=", ".join(SETTINGS))
    try:
        checked = types.GenerateContentConfig.model_validate(settings)
    except ValueError as error:
        raise InvalidInput("a hook gave the model a setting that it does not take") from error
    added = sorted(set(change.tools or ()) - set(request.tools_dict))
    if added:
        raise InvalidInput(f"a hook added the tool {added[0]}, which the agent does not have")
    if contents is not None:
        request.contents = contents
    if change.model is not None:
        request.model = change.model
    config = request.config = request.config.model_copy()
    for name in settings:
        setattr(config, name, getattr(checked, name))
    if change.system_instruction is not None:
        config.system_instruction = change.system_instruction
    if change.tools is not None:
        _keep_tools(request, frozenset(change.tools))


def _unpaired(contents: Sequence[types.Content]) -> Counter[tuple[str, str, str]]:
    """The calls that have no result in a request, and the results that have no call; providers refuse both."""
    calls: Counter[tuple[str, str]] = Counter()
    results: Counter[tuple[str, str]] = Counter()
    for content in contents:
        for part in content.parts or ():
            if part.function_call is not None:
                calls[part.function_call.id or "", part.function_call.name or ""] += 1
            if part.function_response is not None:
                results[part.function_response.id or "", part.function_response.name or ""] += 1
    alone = {"call": calls - results, "result": results - calls}
    return Counter({(kind, *key): count for kind, found in alone.items() for key, count in found.items()})


def _keep_tools(request: LlmRequest, names: frozenset[str]) -> None:
    request.tools_dict = {name: tool for name, tool in request.tools_dict.items() if name in names}
    tools: list[Any] = []
    for tool in request.config.tools or ():
        declared = tool.function_declarations if isinstance(tool, types.Tool) else None
        if not isinstance(tool, types.Tool) or declared is None:
            tools.append(tool)
            continue
        left = [item for item in declared if item.name in names]
        if left or tool.model_fields_set - {"function_declarations"}:
            tools.append(tool.model_copy(update={"function_declarations": left or None}))
    request.config.tools = tools or None
