"""What goes wrong, in our words: the SDK would send any other exception's text to the client.

Not for: the errors themselves. Rules carried: SEC-01. May import: ``acp``, ``protocol``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from acp import RequestError

from agentsession.protocol import (
    AgentSessionError,
    InvalidInput,
    SessionBusy,
    SessionNotFound,
    StreamActive,
    Unimplemented,
)

__all__ = ["as_request_error", "in_our_words"]

logger = logging.getLogger("agentsession.host")

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


def in_our_words(method: Method) -> Method:
    """A handler that raises nothing but :class:`RequestError` with words of ours."""

    @functools.wraps(method)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except RequestError:
            raise
        except Exception as error:  # noqa: BLE001 - its text may hold anything
            raise as_request_error(error) from None

    return cast(Method, wrapped)


def as_request_error(error: Exception) -> RequestError:
    """The code and a sentence; of errors that are not the contract's, not even that."""
    if isinstance(error, SessionNotFound):
        return RequestError(-32002, "there is no such session", {"code": error.id})
    if isinstance(error, StreamActive):
        return RequestError(-32600, "a prompt of this session runs", {"code": error.id})
    if isinstance(error, SessionBusy):
        return RequestError(-32600, "the session is open elsewhere", {"code": error.id})
    if isinstance(error, Unimplemented):
        return RequestError(-32601, "this agent cannot do that", {"code": error.id})
    if isinstance(error, InvalidInput):
        return RequestError(-32602, "a value cannot be used", {"code": error.id})
    if isinstance(error, AgentSessionError):
        logger.warning("a request failed: %s", error.what)
        return RequestError(-32603, "the request failed", {"code": error.id})
    logger.warning("a request failed: %s", type(error).__name__, exc_info=error)
    return RequestError(-32603, "the request failed", {"code": "internal"})
