"""The routes of the contract: each reads its request, makes one call, and writes what came of it.

Not for: who may call (``_guards.py``). Rules carried: those of the calls, which the session keeps.
May import: starlette, the other modules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentsession.host.http._events import Readers, started_body
from agentsession.host.http._guards import principal_of
from agentsession.host.http._inputs import (
    read_answers,
    read_events_query,
    read_model,
    read_object,
    read_seq,
    read_stream,
    read_whole,
    wants_sse,
)
from agentsession.host.http._limits import Limits
from agentsession.host.http._once import IS_AGAIN, Once, key_of
from agentsession.host.http._openapi import openapi_document
from agentsession.host.http._principals import READ, WRITE, Principal, Tickets
from agentsession.host.http._problems import Problem
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent
from agentsession.protocol import (
    PROTOCOL_VERSION,
    ExecutionOptions,
    InvalidInput,
    MessageInput,
    OpenOptions,
    RecordInfo,
    SchemaError,
    SessionConfig,
    SteerData,
    check_id,
    dumps,
    parse_json,
)

__all__ = ["contract_routes"]

Work = Callable[[Request, Principal], Awaitable[Response]]
_SESSION: Final = "/agents/{agent}/sessions/{session_id}"


def contract_routes(sessions: LiveSessions, limits: Limits, tickets: Tickets) -> list[Route]:
    """All routes, for a router below the guards."""
    calls = _Calls(sessions, limits, tickets)
    table: list[tuple[str, str, Work]] = [
        ("GET", "/openapi.json", calls.openapi),
        ("GET", "/agents", calls.agents),
        ("GET", "/agents/{agent}/sessions", calls.list),
        ("POST", "/agents/{agent}/sessions", calls.open),
        ("GET", _SESSION, calls.get),
        ("PATCH", _SESSION, calls.update),
        ("DELETE", _SESSION, calls.delete),
        ("GET", _SESSION + "/events", calls.events),
        ("POST", _SESSION + "/load", calls.load),
        ("POST", _SESSION + "/stream", calls.stream),
        ("POST", _SESSION + "/respond", calls.respond),
        ("POST", _SESSION + "/steer", calls.steer),
        ("POST", _SESSION + "/abort", calls.abort),
        ("POST", _SESSION + "/close", calls.close),
        ("POST", _SESSION + "/rewind", calls.rewind),
        ("POST", _SESSION + "/fork", calls.fork),
        ("POST", _SESSION + "/tickets", calls.ticket),
    ]
    by_path: dict[str, dict[str, Work]] = {}
    for method, path, work in table:
        by_path.setdefault(path, {})[method] = work
    return [calls.route(path, works) for path, works in by_path.items()]


class _Calls:
    def __init__(self, sessions: LiveSessions, limits: Limits, tickets: Tickets) -> None:
        self._sessions = sessions
        self._tickets = tickets
        self._once = Once(limits.remembered_keys)
        self._readers = Readers(limits)
        self._document: bytes | None = None

    def route(self, path: str, works: dict[str, Work]) -> Route:
        """The route of a path, whatever its method: so that 405 names all that there are."""

        async def serve(request: Request) -> Response:
            principal = principal_of(request.scope)
            scope = READ if request.method == "GET" else WRITE
            if scope not in principal.scopes:
                raise Problem(403, "scope", f"this call needs the scope {scope}")
            work = works[request.method]
            is_once = request.method in ("POST", "PATCH") and work not in (self.ticket, self.stream)
            if is_once:
                return await self._once.answer(request, principal, lambda: work(request, principal))
            return await work(request, principal)

        route = Route(path, serve, methods=list(works))
        route.methods = set(works)  # without HEAD: a head of events would never end
        return route

    # --- agents and their sessions ------------------------------------------------------------------------------

    async def openapi(self, request: Request, principal: Principal) -> Response:
        if self._document is None:
            self._document = dumps(openapi_document()).encode()
        return Response(self._document, media_type="application/json")

    async def agents(self, request: Request, principal: Principal) -> Response:
        found = [
            {
                "name": name,
                "isHosted": agent.host is not None,
                "descriptor": agent.executor.descriptor.to_wire(),
            }
            for name, agent in self._sessions.agents.items()
        ]
        return _json({"protocolVersion": PROTOCOL_VERSION, "agents": found})

    async def list(self, request: Request, principal: Principal) -> Response:
        agent = self._agent(request)
        found = await self._sessions.list(agent.name, principal.user_id)
        return _json({"sessions": [_info(info) for info in found]})

    async def open(self, request: Request, principal: Principal) -> Response:
        agent = self._agent(request)
        options = _bound(await read_whole(request, OpenOptions, "options"), principal)
        _check_options(agent.host is not None, options)
        session = await self._sessions.open(agent.name, principal.user_id, options)
        return _created(session, request.scope["path"])

    async def get(self, request: Request, principal: Principal) -> Response:
        return _json(_shown(await self._session(request, principal)))

    async def load(self, request: Request, principal: Principal) -> Response:
        options = _bound(await read_whole(request, OpenOptions, "options"), principal)
        agent, session_id = self._named(request)
        _check_options(agent.host is not None, options)
        return _json(_shown(await self._sessions.load(agent.name, principal.user_id, session_id, options)))

    async def update(self, request: Request, principal: Principal) -> Response:
        config = await read_whole(request, SessionConfig, "changes")
        session = await self._session(request, principal)
        _check_mode(session.is_hosted, config.permission_mode)
        _check_state(config.state)
        return _json((await session.update(config)).to_wire())

    async def delete(self, request: Request, principal: Principal) -> Response:
        agent, session_id = self._named(request)
        await self._sessions.delete(agent.name, principal.user_id, session_id)
        return Response(status_code=204)

    # --- one session --------------------------------------------------------------------------------------------

    async def events(self, request: Request, principal: Principal) -> Response:
        query = read_events_query(request)
        session = await self._session(request, principal)
        if query.is_sse:
            return await self._readers.follow(session, query, principal)
        return _json(await self._readers.page(session, query))

    async def stream(self, request: Request, principal: Principal) -> Response:
        is_sse = wants_sse(request.headers)
        if is_sse:
            self._readers.check(principal)  # before it begins: what was refused must not have run
        # Begun once under its key, however its events are read.
        begun = await self._once.answer(request, principal, lambda: self._begin(request, principal))
        if not is_sse:
            return begun
        session = await self._session(request, principal)
        response = self._readers.drive(session, parse_json(bytes(begun.body)), principal)
        if IS_AGAIN in begun.headers:
            response.headers[IS_AGAIN] = begun.headers[IS_AGAIN]
        return response

    async def _begin(self, request: Request, principal: Principal) -> Response:
        body = await read_stream(request)
        given = body.input
        key = key_of(request)
        if key is not None and isinstance(given, MessageInput):
            if given.idempotency_key not in (None, key):
                raise InvalidInput(
                    "the header Idempotency-Key and the message's own key differ",
                    fix="send one of them, or the same twice",
                )
            given = given.model_copy(update={"idempotency_key": key})
        session = await self._session(request, principal)
        _check_execution(session.is_hosted, body.options)
        return _json(started_body(await session.stream(given, body.options)), 202)

    async def respond(self, request: Request, principal: Principal) -> Response:
        answers = read_answers((await read_object(request, ("answers",))).get("answers"))
        session = await self._session(request, principal)
        receipts = await session.respond(*answers)
        return _json({"receipts": [receipt.to_wire() for receipt in receipts]})

    async def steer(self, request: Request, principal: Principal) -> Response:
        data = await read_whole(request, SteerData, "data")
        session = await self._session(request, principal)
        return _json((await session.steer(data)).to_wire())

    async def abort(self, request: Request, principal: Principal) -> Response:
        reason = (await read_object(request, ("reason",))).get("reason")
        if reason is not None and not isinstance(reason, str):
            raise SchemaError(
                "the reason is no text", pointer="/reason", got=type(reason).__name__, expected="a string"
            )
        session = await self._session(request, principal)
        return _json((await session.abort(reason)).to_wire())

    async def close(self, request: Request, principal: Principal) -> Response:
        await read_object(request, ())
        session = await self._session(request, principal)
        await self._sessions.close(session)
        return _json({"state": "closed"})

    async def rewind(self, request: Request, principal: Principal) -> Response:
        to = read_seq((await read_object(request, ("to",))).get("to"), "to")
        agent, session_id = self._named(request)
        await self._sessions.rewind(agent.name, principal.user_id, session_id, to)
        return _json({"to": to})

    async def fork(self, request: Request, principal: Principal) -> Response:
        body = await read_object(request, ("at", "options"))
        at = read_seq(body.get("at"), "at")
        options = _bound(read_model(OpenOptions, body.get("options", {}), "options"), principal)
        agent, session_id = self._named(request)
        _check_options(agent.host is not None, options)
        session = await self._sessions.fork(agent.name, principal.user_id, session_id, at, options)
        path: str = request.scope["path"]
        return _created(session, path.rsplit("/", 2)[0])

    async def ticket(self, request: Request, principal: Principal) -> Response:
        await read_object(request, ())
        await self._session(request, principal)
        path: str = request.scope["path"]
        ticket = self._tickets.issue(principal, path.rsplit("/", 1)[0] + "/events")
        return _json({"ticket": ticket, "expiresInSeconds": self._tickets.lifetime_s}, 201)

    # --- shared -------------------------------------------------------------------------------------------------

    def _agent(self, request: Request) -> ServedAgent:
        name: str = request.path_params["agent"]
        agent = self._sessions.agents.get(name)
        if agent is None:
            raise Problem(
                404,
                "agent-not-found",
                "no agent is served under that name",
                got=ascii(name[:40])[1:-1],
                fix="take a name that GET agents gives",
            )
        return agent

    def _named(self, request: Request) -> tuple[ServedAgent, str]:
        agent = self._agent(request)
        return agent, check_id(request.path_params["session_id"], "session id")

    async def _session(self, request: Request, principal: Principal) -> LiveSession:
        agent, session_id = self._named(request)
        return await self._sessions.get(agent.name, principal.user_id, session_id)


def _bound(options: OpenOptions, principal: Principal) -> OpenOptions:
    """The options with the caller as their user: nobody opens a session for somebody else."""
    if "user_id" in options.model_fields_set and options.user_id != principal.user_id:
        raise Problem(
            403, "user", "the userId of these options is not the caller's", fix="leave userId out: it is who calls"
        )
    if options.session_id is not None:
        check_id(options.session_id, "session id")
    return options.model_copy(update={"user_id": principal.user_id})


def _check_options(is_hosted: bool, options: OpenOptions) -> None:
    """What holds for the options of a turn, and where a host on the server is to work."""
    _check_execution(is_hosted, options.execution)
    if is_hosted and options.workspace is not None:
        raise Problem(403, "hosted", "a host on this server decides where it works", where="workspace")


def _check_state(state: Mapping[str, Any] | None) -> None:
    """State of the whole app is in the sessions of all users: none of them may set it for the others."""
    shared = next((key for key in state or () if key.startswith("app:")), None)
    if shared is not None:
        raise Problem(
            403,
            "shared-state",
            "state of the app belongs to the sessions of all users",
            got=ascii(shared[:40])[1:-1],
            fix="set it in the program that serves, or without app: for this session alone",
            where="state",
        )


def _check_execution(is_hosted: bool, options: ExecutionOptions | None) -> None:
    """With a host on the server, no client has tools run without it, or loosens its mode or its limits."""
    _check_state(None if options is None else options.state)
    if options is None or not is_hosted:
        return
    _check_mode(is_hosted, options.permission_mode)
    if options.host_tool_execution is False:
        raise Problem(403, "hosted", "a host on this server decides what runs", where="hostToolExecution")
    # By other prices a budget would last longer, and a last word is a call beyond the limit.
    given = {
        "prices": options.prices is not None,
        "grace": options.grace is not None,
        "loopDetection": options.loop_detection is False,
    }
    for name in (name for name, loosens in given.items() if loosens):
        raise Problem(403, "hosted", "a host on this server keeps the limits of its turns", where=name)


def _check_mode(is_hosted: bool, mode: str | None) -> None:
    if is_hosted and mode not in (None, "plan"):
        raise Problem(
            403,
            "hosted",
            "a host on this server decides what runs: a client may only make its mode stricter",
            got=ascii(mode)[:40],
            expected="plan",
            where="permissionMode",
        )


def _shown(session: LiveSession) -> dict[str, Any]:
    return {
        "agent": session.agent.name,
        "sessionId": session.key.session_id,
        "state": session.state,
        "pending": [request.to_wire() for request in (*session.pending, *session.asked_below)],
        "lastSeq": session.last_seq,
        "isHosted": session.is_hosted,
        "host": session.options.host.to_wire(),
        "descriptor": session.descriptor.to_wire(),
    }


def _info(info: RecordInfo) -> dict[str, Any]:
    known = {
        "sessionId": info.key.session_id,
        "lastSeq": info.last_seq,
        "reservedSeq": info.reserved_seq,
        "title": info.title,
        "createdAt": info.created_at,
        "updatedAt": info.updated_at,
        "events": info.events,
        "turns": info.turns,
        "state": info.state,
        "pending": info.pending,
    }
    return {name: value for name, value in known.items() if value is not None}


def _json(value: dict[str, Any], status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


def _created(session: LiveSession, collection: str) -> Response:
    response = _json(_shown(session), 201)
    response.headers["location"] = quote(f"{collection}/{session.key.session_id}")
    return response
