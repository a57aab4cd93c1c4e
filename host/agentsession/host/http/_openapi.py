"""The OpenAPI 3.1 document of the routes, its schemas those of the contract.

Not for: validating requests (``_inputs.py`` does). Rules carried: WIRE-01. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from agentsession.protocol import PROTOCOL_VERSION, wire_schema

__all__ = ["openapi_document"]

Json = dict[str, Any]
_SCHEMAS: Final = "#/components/schemas/"
_ID: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[A-Za-z0-9._:\-]+$"}
_SEQ: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_TEXT: Final[Json] = {"type": "string"}
_COMMON: Final = (400, 401, 403, 404, 405, 414, 421, 422, 429, 431, 500)
_BODY: Final = (408, 413, 415)
_SESSION: Final = "/agents/{agent}/sessions/{sessionId}"
_SAYS: Final = {
    400: "Malformed.",
    401: "Nobody that is known.",
    403: "Not allowed.",
    404: "Not there, or another user's.",
    405: "Another method.",
    408: "The body came too slowly.",
    409: "The session's state does not take it.",
    410: "The cursor is gone, or the session is closed.",
    413: "Too large.",
    414: "The address is too long.",
    415: "Not JSON in UTF-8.",
    421: "Another host.",
    422: "JSON that is not what is taken.",
    423: "Open in another process.",
    429: "Too many.",
    431: "Headers too large.",
    500: "A defect of the server.",
    501: "The agent does not declare that capability.",
    502: "The agent broke off, or broke a rule.",
    504: "The agent did not end in time.",
}


def _ref(name: str) -> Json:
    return {"$ref": _SCHEMAS + name}


def _object(required: tuple[str, ...] = (), /, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _list(items: Json, least: int = 0) -> Json:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def _answer(status: int, says: str, schema: Json, **more: Json) -> Json:
    return {str(status): {"description": says, "content": {"application/json": {"schema": schema}, **more}}}


def _sse(says: str) -> Json:
    return {"schema": {"type": "string", "description": says}}


def _call(
    name: str,
    says: str,
    answers: Json,
    *,
    body: Json | None = None,
    needed: bool = False,
    failures: tuple[int, ...] = (),
    parameters: tuple[Json, ...] = (),
) -> Json:
    codes = sorted({*_COMMON, *failures, *(_BODY if body is not None else ())})
    problems = {str(code): {"$ref": f"#/components/responses/P{code}"} for code in codes}
    out: Json = {"operationId": name, "summary": says, "responses": {**answers, **problems}}
    if body is not None:
        out["requestBody"] = {"required": needed, "content": {"application/json": {"schema": body}}}
    if parameters:
        out["parameters"] = list(parameters)
    return out


def _query(name: str, schema: Json, says: str) -> Json:
    return {"name": name, "in": "query", "required": False, "description": says, "schema": schema}


def _header(name: str, schema: Json, says: str) -> Json:
    return {"name": name, "in": "header", "required": False, "description": says, "schema": schema}


_KEY: Final = _header(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
    "The same with the same body gets the first answer again.",
)
_AT_WORK: Final = (409, 410, 423, 501, 502)


def _events_call() -> Json:
    page = _object(
        ("events", "cursor", "lastSeq", "more"),
        events=_list(_ref("AgentEvent")),
        cursor=_SEQ,
        lastSeq=_SEQ,
        more={"type": "boolean"},
    )
    stream = {"text/event-stream": _sse("One event of the contract each, `id` its seq, `data` its JSON (AgentEvent).")}
    return _call(
        "readEvents",
        "Read the record: a page, or as server-sent events.",
        {**_answer(200, "Events.", page, **stream), "204": {"description": "Nothing is left to come."}},
        failures=(410, 423, 502),
        parameters=(
            _query("after", _SEQ, "Events with a greater seq."),
            _query("follow", {"type": "boolean"}, "Go on with what comes; only as server-sent events."),
            _query("types", _TEXT, "Event types, separated by commas."),
            _query("streamId", _ID, "Only of that stream."),
            _query("threadId", _ID, "Only of that thread."),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "At most so many."),
            _header(
                "Last-Event-ID",
                {"type": "string", "pattern": "^[0-9]{1,15}$"},
                "The last seq that was read; beats after.",
            ),
            _header(
                "Prefer",
                _TEXT,
                "`hold`: the agent waits for this reader. Only as server-sent events that follow, and with the scope "
                "`write`; the answer says `Preference-Applied: hold`.",
            ),
        ),
    )


def _collection() -> Json:
    info = _object(
        ("sessionId", "lastSeq", "reservedSeq"),
        sessionId=_TEXT,
        lastSeq=_SEQ,
        reservedSeq=_SEQ,
        title=_TEXT,
        createdAt=_TEXT,
        updatedAt=_TEXT,
        events=_SEQ,
        turns=_SEQ,
        state=_TEXT,
        pending=_SEQ,
    )
    return {
        "get": _call(
            "listSessions",
            "The caller's sessions with an agent, newest first.",
            _answer(200, "Sessions.", _object(("sessions",), sessions=_list(info))),
        ),
        "post": _call(
            "openSession",
            "Open a session.",
            _answer(201, "Opened.", _ref("Session")),
            body=_ref("OpenOptions"),
            failures=(409, 501, 502),
            parameters=(_KEY,),
        ),
    }


def _one() -> Json:
    return {
        "get": _call(
            "getSession", "Where a session stands.", _answer(200, "It.", _ref("Session")), failures=(423, 502)
        ),
        "patch": _call(
            "updateSession",
            "Change it, wholly or not at all.",
            _answer(200, "What became of it.", _ref("Receipt")),
            body=_ref("SessionConfig"),
            failures=_AT_WORK,
            parameters=(_KEY,),
        ),
        "delete": _call(
            "deleteSession",
            "Delete it and its record.",
            {"204": {"description": "Deleted."}},
            failures=(409, 423, 501, 502),
        ),
    }


def _posts() -> Json:
    receipt = _answer(200, "What became of it.", _ref("Receipt"))
    receipts = _object(("receipts",), receipts=_list(_ref("Receipt")))
    text_message_or_answers = {"anyOf": [_TEXT, _ref("StreamInput"), _list(_ref("Answer"), 1)]}
    stream = {"text/event-stream": _sse("`started`, then the stream's events.")}
    ticket = _object(("ticket", "expiresInSeconds"), ticket=_TEXT, expiresInSeconds={"type": "number"})
    at = _object(("at",), at=_SEQ, options=_ref("OpenOptions"))
    begun = _answer(202, "Begun.", _ref("Started"))
    begun["200"] = {"description": "The stream itself.", "content": stream}
    table: list[tuple[str, str, str, Json, Json, bool, tuple[int, ...]]] = [
        (
            "load",
            "loadSession",
            "Load it with options, or find it open.",
            _answer(200, "The session.", _ref("Session")),
            _ref("OpenOptions"),
            False,
            _AT_WORK,
        ),
        (
            "stream",
            "startStream",
            "Start a turn with a message, or continue it.",
            begun,
            _object((), input=text_message_or_answers, options=_ref("ExecutionOptions")),
            False,
            _AT_WORK,
        ),
        (
            "respond",
            "respond",
            "Answer what waits.",
            _answer(200, "A receipt for each.", receipts),
            _object(("answers",), answers=_list(_ref("Answer"), 1)),
            True,
            _AT_WORK,
        ),
        ("steer", "steer", "Give the working agent something to read.", receipt, _ref("SteerData"), True, _AT_WORK),
        (
            "abort",
            "abort",
            "End the turn.",
            _answer(200, "What it did.", _ref("AbortResult")),
            _object((), reason=_TEXT),
            False,
            (*_AT_WORK, 504),
        ),
        (
            "close",
            "close",
            "Close the session; its record stays.",
            _answer(200, "Closed.", _object(("state",), state={"const": "closed"})),
            _object(),
            False,
            (*_AT_WORK, 504),
        ),
        (
            "rewind",
            "rewind",
            "Take back what came after a seq.",
            _answer(200, "Done.", _object(("to",), to=_SEQ)),
            _object(("to",), to=_SEQ),
            True,
            _AT_WORK,
        ),
        (
            "fork",
            "fork",
            "Copy the record up to a seq to a new session.",
            _answer(201, "Opened.", _ref("Session")),
            at,
            True,
            _AT_WORK,
        ),
        (
            "tickets",
            "makeTicket",
            "A ticket for one request to the events, for readers that cannot send headers.",
            _answer(201, "A ticket.", ticket),
            _object(),
            False,
            (410, 423, 502),
        ),
    ]
    return {
        f"{_SESSION}/{path}": {
            "post": _call(name, says, answers, body=body, needed=needed, failures=failures, parameters=(_KEY,))
        }
        for path, name, says, answers, body, needed, failures in table
    }


def _own_schemas() -> Json:
    agent = _object(("name", "isHosted", "descriptor"), name=_TEXT, isHosted={"type": "boolean"})
    agent["properties"]["descriptor"] = _ref("AgentDescriptor")
    session = _object(
        ("agent", "sessionId", "state", "pending", "lastSeq", "isHosted", "host", "descriptor"),
        agent=_TEXT,
        sessionId=_TEXT,
        state={"enum": ["new", "idle", "running", "input_required", "closed"]},
        pending=_list({"anyOf": [_ref("ToolRequest"), _ref("ElicitationRequest")]}),
        lastSeq=_SEQ,
        isHosted={"type": "boolean"},
        host=_ref("HostCapabilities"),
        descriptor=_ref("AgentDescriptor"),
    )
    started = _object(
        ("streamId", "turnId", "receipts", "cursor"),
        streamId=_TEXT,
        turnId=_TEXT,
        receipts=_list(_ref("Receipt")),
        cursor=_SEQ,
    )
    problem = {
        "type": "object",
        "properties": {
            **dict.fromkeys(("type", "title", "detail", "code", "error", "rule", "blame"), _TEXT),
            **dict.fromkeys(("where", "got", "expected", "fix", "pointer", "incident"), _TEXT),
            "status": {"type": "integer"},
            "line": {"type": "integer"},
        },
        "required": ["type", "title", "status", "detail", "code"],
    }
    return {"Agent": agent, "Session": session, "Started": started, "Problem": problem}


@functools.cache
def openapi_document() -> Json:
    """The document; its paths are relative to where the app is mounted."""
    schemas = _pointed(wire_schema()["$defs"])
    in_path = [
        {"name": "agent", "in": "path", "required": True, "schema": _ID},
        {"name": "sessionId", "in": "path", "required": True, "schema": _ID},
    ]
    agents = _object(("protocolVersion", "agents"), protocolVersion=_TEXT, agents=_list(_ref("Agent")))
    paths: Json = {
        "/agents": {"get": _call("listAgents", "The agents that are served.", _answer(200, "Agents.", agents))},
        "/agents/{agent}/sessions": {"parameters": in_path[:1], **_collection()},
        _SESSION: {"parameters": in_path, **_one()},
        f"{_SESSION}/events": {"parameters": in_path, "get": _events_call()},
    }
    paths |= {path: {"parameters": in_path, **item} for path, item in _posts().items()}
    problems = {
        f"P{status}": {
            "description": says,
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        for status, says in _SAYS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "agentsession", "version": PROTOCOL_VERSION},
        "servers": [{"url": "."}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **_own_schemas()},
            "responses": problems,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _pointed(node: Any) -> Any:
    """References into ``$defs`` as references into the document's schemas."""
    if isinstance(node, list):
        return [_pointed(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _SCHEMAS + value.removeprefix("#/$defs/") if key == "$ref" and isinstance(value, str) else _pointed(value)
        for key, value in node.items()
    }
