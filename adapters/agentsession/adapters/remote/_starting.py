"""What is sent to begin a stream.

Not for: when one may begin (``_session.py``). Rules carried: TURN-01 as far as keys go.
May import: ``agentsession.protocol``, the modules beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from agentsession.adapters.remote._wire import Sent
from agentsession.protocol import Answer, ExecutionOptions, MessageInput, as_answers, as_content

__all__ = ["start_of"]

_HEADER_KEY: Final = re.compile(r"[!-~]{1,256}")

_LOADED: Final = ("tools", "host_tool_execution", "permission_mode", "model", "limits")
"""The options of ``load`` that a turn can have."""


def start_of(
    path: str,
    input: str | MessageInput | Answer | Sequence[Answer] | None,
    options: ExecutionOptions | None,
    loaded: ExecutionOptions | None,
) -> tuple[MessageInput | Sequence[Answer] | None, Sent]:
    """The input as the contract has it, and the request with it. ``loaded``: the options that ``load`` was given.

    Raises :class:`InvalidInput` for what is no input.
    """
    body: dict[str, Any] = {}
    given: MessageInput | Sequence[Answer] | None
    if isinstance(input, (str, MessageInput)):
        given = MessageInput(content=as_content(input)) if isinstance(input, str) else input
        body["input"] = given.to_wire()
    else:
        given = None if input is None else as_answers(input)
        if given is not None:
            body["input"] = [answer.to_wire() for answer in given]
    options = _with_loaded(options, loaded)
    if options is not None:
        body["options"] = options.to_wire()
    key = given.idempotency_key if isinstance(given, MessageInput) else None
    if key is None:
        return given, Sent("POST", path, body)
    # A key that no header holds goes in the message alone, where the server takes it as well.
    return given, Sent("POST", path, body, key if _HEADER_KEY.fullmatch(key) else None)


def _with_loaded(options: ExecutionOptions | None, loaded: ExecutionOptions | None) -> ExecutionOptions | None:
    """The options of a turn, with those of ``load``: a session that others use on the server keeps its own."""
    kept = {name: getattr(loaded, name) for name in _LOADED if loaded is not None and name in loaded.model_fields_set}
    if not kept:
        return options
    given = {} if options is None else {name: getattr(options, name) for name in options.model_fields_set}
    return ExecutionOptions(**(kept | given))
