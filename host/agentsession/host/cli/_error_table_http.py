"""The codes that only problems over HTTP have, explained: a part of ``_error_table.py``.

Not for: raising them (``agentsession.host.http`` and ``agentsession.host.agui`` do). A test looks for codes in their
source that are missing here. May import: ``_error_entry``.
"""

from __future__ import annotations

from typing import Final

from agentsession.host.cli._error_entry import ErrorEntry

__all__ = ["OVER_HTTP"]

OVER_HTTP: Final = (
    ErrorEntry(
        "bad-request",
        "A part of the request cannot be read: the query, `Last-Event-ID` or `Idempotency-Key`.",
        "The server takes no value that it would have to guess at, and no value twice.",
        "Send what `expected` says.",
    ),
    ErrorEntry(
        "malformed",
        "The body is no `RunAgentInput` of AG-UI.",
        "`pointer` names the place in it.",
        "Send what `expected` says, or use a client of AG-UI.",
    ),
    ErrorEntry(
        "unauthenticated",
        "The server does not know who makes this call.",
        "There is no token, it is not one of the server's, or a ticket was used, is too old, or is for something else.",
        "Send `Authorization: Bearer TOKEN`. Of tickets take a new one for each request.",
    ),
    ErrorEntry(
        "scope",
        "The caller may not do this.",
        "GET needs the scope `read`, all else `write`; this caller's principal has not got it.",
        "Use another token, or have the server's verifier give the scope.",
    ),
    ErrorEntry(
        "forbidden",
        "The caller may not run this agent over AG-UI, or not see what it can do.",
        "A run needs the scope `write`, the capabilities need `read`; this caller's principal has not got it.",
        "Use another token, or have the server's verifier give the scope.",
    ),
    ErrorEntry(
        "user",
        "The options name another user than the one who calls.",
        "A session belongs to the user that the server's verifier names.",
        "Leave `userId` out.",
    ),
    ErrorEntry(
        "hosted",
        "A client wanted to loosen what the host on the server decides by.",
        "Of a hosted session a client may only make the mode stricter, `plan`, and the host runs its tools.",
        "Leave `permissionMode` and `hostToolExecution` out.",
    ),
    ErrorEntry(
        "shared-state",
        "A client wanted to set state of the app.",
        "State under a key that begins with `app:` is in the sessions of all users of the agent. No user may set it for"
        " the others.",
        "Leave `app:` out for state of the session, or set it in the program that serves.",
    ),
    ErrorEntry(
        "origin",
        "A page of another site called the server.",
        "Only pages of the server itself may call it, and those of the origins that it was told.",
        "Serve with that origin allowed: `agentsession serve --allow-origin https://app.example`.",
    ),
    ErrorEntry(
        "host",
        "The server was called by a name that is not one of its own.",
        "So a page cannot reach it under a name of its own that leads to this machine.",
        "Call it by its address, or serve with that name allowed: `agentsession serve --allow-host agents.example`.",
    ),
    ErrorEntry(
        "not-found",
        "The server has nothing at this path.",
        "A part that was not asked for, such as AG-UI or the page, is not there either.",
        "Look at the routes: `/api/openapi.json`, or docs/reference/http.md.",
    ),
    ErrorEntry(
        "method",
        "What is at this path does not take this method.",
        "The header `Allow` of the answer names those that it takes.",
        "Use one of them.",
    ),
    ErrorEntry(
        "too-slow",
        "The body of the request did not arrive in time.",
        "A body has 30 seconds, so that slow senders do not fill the server.",
        "Send it again; a server of your own can give more time: `Limits(body_s=...)`.",
    ),
    ErrorEntry(
        "too-large",
        "The body of the request is larger than the server takes.",
        "It is counted while it comes, and not read any further.",
        "Send less at once; a server of your own can take more: `Limits(body_bytes=...)`.",
    ),
    ErrorEntry(
        "uri-too-long",
        "The path and query of the request are longer than the server takes.",
        "The limit is 8 KiB.",
        "Send less; a server of your own can take more: `Limits(target_bytes=...)`.",
    ),
    ErrorEntry(
        "headers-too-large",
        "The headers of the request are larger than the server takes.",
        "The limit is 32 KiB for all of them.",
        "Send less; a server of your own can take more: `Limits(header_bytes=...)`.",
    ),
    ErrorEntry(
        "media-type",
        "The body is not JSON in UTF-8, or the header does not say so.",
        "Nothing else is read, and no compressed body.",
        "Send `Content-Type: application/json`.",
    ),
    ErrorEntry(
        "unsupported-media-type",
        "The body of an AG-UI run is not JSON, or the header does not say so.",
        "Nothing else is read.",
        "Send `Content-Type: application/json`.",
    ),
    ErrorEntry(
        "key-reused",
        "An `Idempotency-Key` was used before with another body.",
        "A key stands for one request: it was done, and its answer is remembered.",
        "Use a new key for each request, and the same only to send the same again.",
    ),
    ErrorEntry(
        "too-many-requests",
        "One user or address made more requests than the server takes.",
        "A burst is taken, and then so many each second.",
        "Wait as long as `Retry-After` says; a server of yours can take more: `Limits(requests_per_s=..., burst=...)`.",
    ),
    ErrorEntry(
        "too-many-readers",
        "One user reads as many streams of events as the server allows.",
        "Each open page and each client that follows a session is one.",
        "Close some; a server of your own can take more: `Limits(readers=...)`.",
    ),
    ErrorEntry(
        "too-many-runs",
        "So many runs wait for their turn on this thread of AG-UI that no other is taken.",
        "A thread has one run at a time.",
        "Wait as long as `Retry-After` says.",
    ),
)
