"""``Idempotency-Key``: a POST or PATCH that is sent again is answered again, and done once.

Not for: messages, whose keys are in the record (TURN-01). Rules carried: none. May import: starlette, ``_problems``.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from agentsession.host.http._principals import Principal
from agentsession.host.http._problems import Problem

__all__ = ["IS_AGAIN", "Once", "key_of"]

IS_AGAIN: Final = "idempotent-replayed"
"""The header of an answer that was given before."""

_MOST_BYTES: Final = 32 * 1024 * 1024
"""Of answers that are kept."""


def key_of(request: Request) -> str | None:
    """The key of a request, if it has one. Raises :class:`Problem` for one that cannot be a key."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not 0 < len(key) <= 256 or not key.isascii() or not key.isprintable():
        raise Problem(
            400,
            "bad-request",
            "this Idempotency-Key cannot be used",
            expected="one, of 1 to 256 printable ASCII characters",
        )
    return key


class _Kept:
    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.is_done = anyio.Event()
        self.answer: tuple[int, bytes, list[tuple[bytes, bytes]]] | None = None


class Once:
    """Answers by user, route and key, at most ``capacity``; the oldest are forgotten."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()
        self._bytes = 0

    async def answer(self, request: Request, principal: Principal, work: Callable[[], Awaitable[Response]]) -> Response:
        """``work()``, or what it answered before. A second that comes meanwhile waits for the first."""
        key = key_of(request)
        if key is None:
            return await work()
        place = (principal.user_id, request.scope["path"], key)
        digest = hashlib.sha256(await request.body()).digest()
        while (kept := self._kept.get(place)) is not None:
            if kept.digest != digest:
                raise _reused()
            await kept.is_done.wait()
            if kept.answer is not None:
                return _again(kept.answer)
        kept = self._kept[place] = _Kept(digest)
        try:
            response = await work()
            if response.status_code < 400:
                # What failed changed nothing, and may be tried again under its key.
                kept.answer = (response.status_code, bytes(response.body), list(response.raw_headers))
                self._bytes += len(kept.answer[1])
            return response
        finally:
            if kept.answer is None:
                self._kept.pop(place, None)
            kept.is_done.set()
            self._forget()

    def _forget(self) -> None:
        for place in list(self._kept):
            if len(self._kept) <= self._capacity and self._bytes <= _MOST_BYTES:
                return
            answer = self._kept[place].answer
            if answer is not None:  # one that is at work stays: else its second would work too
                del self._kept[place]
                self._bytes -= len(answer[1])


def _reused() -> Problem:
    return Problem(
        422,
        "key-reused",
        "this Idempotency-Key was used with another body",
        fix="use a new key for each request, and the same only to send the same again",
    )


def _again(answer: tuple[int, bytes, list[tuple[bytes, bytes]]]) -> Response:
    status, body, headers = answer
    response = Response(body, status)
    response.raw_headers = [*headers, (IS_AGAIN.encode(), b"true")]
    return response
