"""Answers of the server: read within bounds, and turned into JSON or into the error that they stand for.

Not for: asking (``_wire.py``), events (``_follower.py``). Rules carried: none.
May import: ``agentsession.protocol``, the modules beside it.

A server may answer anything, without end. What is read is bounded in bytes here and in time by who reads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agentsession.adapters.remote._leaving import leaving
from agentsession.adapters.remote._mask import Mask
from agentsession.adapters.remote._problems import error_of
from agentsession.protocol import ConnectionLost, SchemaError, parse_json

if TYPE_CHECKING:
    import httpx2

__all__ = ["Json", "answered", "check_encoding", "read", "read_now"]

Json = Mapping[str, Any]

_MOST_BYTES: Final = 64 * 2**20
_RETRIED: Final = (408, 429, 502, 503, 504)
"""Statuses after which the same may go well, where they come without a problem of the contract's."""
_RETRIED_PROBLEMS: Final = (408, 429, 503)
"""Those after which it may with one: too slow, too many, and a server that is just stopping."""


def check_encoding(response: httpx2.Response) -> None:
    """Refuse a compressed answer: a small one may hold gigabytes. Raises :class:`ConnectionLost`."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ConnectionLost(
            "the server's answer is compressed, which was not asked for",
            expected="an answer without Content-Encoding",
            fix="look at what stands between here and the server",
        )


async def read(response: httpx2.Response) -> bytes:
    """The body. Raises :class:`ConnectionLost` where it is too large or compressed, and what httpx2 raises."""
    check_encoding(response)
    parts, size = [], 0
    async with leaving(response.aiter_raw()) as raw:
        async for part in raw:
            parts.append(part)
            size += len(part)
            _check_size(size)
    return b"".join(parts)


def read_now(response: httpx2.Response, until: float) -> bytes:
    """The same, blocking; raises :class:`TimeoutError` for what has not ended by ``until`` (``time.monotonic``)."""
    check_encoding(response)
    parts, size = [], 0
    for part in response.iter_raw():
        parts.append(part)
        size += len(part)
        _check_size(size)
        if time.monotonic() > until:
            raise TimeoutError
    return b"".join(parts)


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise ConnectionLost("the server's answer is too large", expected=f"{_MOST_BYTES} bytes at most")


def answered(status: int, content: bytes, mask: Mask) -> Json | int:
    """The answer's JSON; a status alone is one that may be tried again. Raises what the answer stands for."""
    value: object = None
    if content:
        try:
            value = parse_json(content)
        except SchemaError:
            value = None
    if 200 <= status < 300:
        if status == 204:
            return {}
        if not isinstance(value, dict):
            raise ConnectionLost("the server's answer is no JSON object", got=f"status {status}", fix="is it this one?")
        return value
    is_problem = isinstance(value, dict) and isinstance(value.get("code"), str)
    if status in (_RETRIED_PROBLEMS if is_problem else _RETRIED):
        return status
    raise error_of(status, value, mask)
