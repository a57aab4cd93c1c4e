"""Regular expressions that somebody else wrote, tried on text that somebody else sent.

Not for: our own patterns. Rules carried: HITL-08. May import: ``_json``, pydantic.

Python's ``re`` goes back and tries again: ``^(a+)+$`` on thirty letters takes seconds, on forty hours, and nothing
stops it. pydantic brings the engine of Rust, whose time grows with the text alone. What only ``re`` knows (to look
ahead or behind, to refer back) is left to it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Annotated, Final

from agentsession.protocol._json import repair_text

__all__ = ["is_found"]

_KEPT: Final = 512
"""How many compiled patterns are kept."""


def is_found(pattern: str, text: str) -> bool:
    """Whether ``text`` holds what ``pattern`` describes, anywhere. Raises ``re.error`` for a pattern that is none."""
    return _search(pattern)(text)


@functools.lru_cache(maxsize=_KEPT)
def _search(pattern: str) -> Callable[[str], bool]:
    from pydantic import StringConstraints, TypeAdapter, ValidationError
    from pydantic_core import SchemaError

    compiled = re.compile(pattern)
    try:
        adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return lambda text: compiled.search(text) is not None

    def search(text: str) -> bool:
        try:
            adapter.validate_python(repair_text(text))
        except ValidationError:
            return False
        return True

    return search
