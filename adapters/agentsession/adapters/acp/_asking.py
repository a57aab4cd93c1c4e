"""What the agent asks of its client: permission, answers of a person, and the host's tools.

Not for: updates (``_turn.py``), terminals once they are there (``_terminals.py``).
Rules carried: TOOL-05, HITL-01, HITL-02, HITL-07.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, ``acp``, the modules beside it.

A permission request is answered with an ``allow`` option only after a grant that is stored. Every other end of the wait
(denial, abort, a settled turn, no such option) lets nothing run.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from acp import RequestError
from acp.schema import (
    CreateElicitationRequest,
    ReadTextFileRequest,
    RequestPermissionResponse,
    WriteTextFileRequest,
)
from anyio.abc import TaskGroup
from pydantic import TypeAdapter

from agentsession.adapters.acp._calls import Call, Calls, args_of
from agentsession.adapters.acp._link import Link, refuse_late
from agentsession.adapters.acp._peer import Incoming
from agentsession.adapters.acp._terminals import Terminals
from agentsession.adapters.base import HookBlocked, Reply, RunContext
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    JsonError,
    RunEnded,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    ToolResult,
    check_json,
    plain_text,
)
from agentsession.protocol._acp_messages import nest_meta

__all__ = ["CALL_TOOL", "Asking", "pick"]

CALL_TOOL: Final = "_agentsession/call_tool"
"""An extension of ours: ``{sessionId, name, args}`` runs a tool that the host has declared, and gives
``{data, content, isError}``."""

_DENIED: Final = -32001
_ELICITATION: Final[TypeAdapter[Any]] = TypeAdapter(CreateElicitationRequest)


class Asking:
    """The open questions of one turn."""

    def __init__(self, link: Link, ctx: RunContext, calls: Calls, tasks: TaskGroup, cancel: Callable[[], None]) -> None:
        self._link, self._ctx, self._calls, self._tasks, self._cancel = link, ctx, calls, tasks, cancel
        self._terminals = Terminals(self.host_tool)
        self.waiting: dict[str, Reply] = {}
        """The requests that an agent's request waits for, by our ids."""

    async def take(self, item: Incoming) -> None:
        """One request of the agent's."""
        try:
            if item.params.get("sessionId") != self._link.acp_id:
                raise RequestError(-32602, "Invalid params", {"sessionId": "not the session of this prompt"})
            await self._take(item)
        except RequestError as error:
            item.refuse(error)
        except (ValueError, JsonError):  # pydantic's error quotes what it was given
            item.refuse(RequestError(-32602, "Invalid params"))

    async def _take(self, item: Incoming) -> None:
        has = self._link.executor.host_tools_of(self._link.session)
        match item.method:
            case "session/request_permission":
                await self._permission(item)
            case "elicitation/create":
                await self._elicitation(item)
            case "fs/read_text_file" if "read_text_file" in has:
                asked = ReadTextFileRequest.model_validate(_params(item))
                args: dict[str, Any] = {"path": self._real(asked.path)}
                args.update({k: v for k, v in (("line", asked.line), ("limit", asked.limit)) if v is not None})
                await self.host_tool(item, "read_text_file", args, _read)
            case "fs/write_text_file" if "write_text_file" in has:
                wanted = WriteTextFileRequest.model_validate(_params(item))
                written = {"path": self._real(wanted.path), "content": wanted.content}
                await self.host_tool(item, "write_text_file", written, lambda result: {})
            case "terminal/create" if "terminal" in has:
                await self._terminals.create(item, self._link.executor.root_of(self._link.session), self._real)
            case "terminal/output" | "terminal/wait_for_exit" | "terminal/kill" | "terminal/release" if (
                "terminal" in has
            ):
                self._tasks.start_soon(self._terminals.take, item)
            case method if method == CALL_TOOL:
                name, given = item.params.get("name"), item.params.get("args")
                if not isinstance(name, str) or name not in has:
                    raise RequestError.method_not_found(method)
                await self.host_tool(item, name, check_json(given if isinstance(given, dict) else {}), _all)
            case _:
                raise RequestError.method_not_found(item.method)

    # -- permission ---------------------------------------------------------------------------------------------------

    async def _permission(self, item: Incoming) -> None:
        call_fields, options = item.params.get("toolCall"), _options(item.params.get("options"))
        if options is None or not isinstance(call_fields, dict):
            raise RequestError(-32602, "Invalid params", {"expected": "toolCall and options"})
        key = call_fields.get("toolCallId")
        if not isinstance(key, str):
            await self._approval(item, options, call_fields.get("title"))
            return
        call = self._calls.of(key)
        if call.is_over:
            item.answer(_outcome(None))
            return
        if call.request is not None and not self._ctx.is_open_request(call.request_id):
            # Denied or settled: another question about it must not be a second chance.
            item.answer(_outcome(pick(options, "reject_once", "reject_always")))
            return
        if call.request_id in self._link.options:
            raise RequestError(-32600, "the permission for this call was asked for and is not decided")
        if call.differs(call_fields):  # not what was decided on: the host decides on it as a call, not on a question
            call = self._calls.replace(call)
        call.take(call_fields)
        if call.request is not None:  # it asks from inside
            await self._approval(item, options, call.fields.get("title"), call)
            return
        if self._ctx.options.host_tool_execution is False:
            await self._calls.whole(call, "none")
            await self._allow(item, options, None if call.is_over else pick(options, "allow_once"), call)
            return
        self._link.options[call.request_id], self._link.args[call.request_id] = options, args_of(call.fields)
        if not await self._calls.whole(call, "grant"):
            self._reject(item, options)
            return
        self._wait(item, call.request_id, lambda answer: self._granted(item, call, options, answer))

    async def _granted(self, item: Incoming, call: Call, options: list[dict[str, str]], answer: Answer | None) -> None:
        self._link.options.pop(call.request_id, None)
        if isinstance(answer, ToolGrant):
            always = answer.decision is not None and answer.decision.by.split(":")[0] == "remembered"
            chosen = pick(options, "allow_once", *(("allow_always",) if always else ()))
            await self._allow(item, options, chosen, call)
            return
        if answer is None:
            item.answer(_outcome(None))
        else:
            self._reject(item, options)

    def _reject(self, item: Incoming, options: list[dict[str, str]]) -> None:
        chosen = pick(options, "reject_once", "reject_always")
        item.answer(_outcome(chosen))
        if chosen is None:
            self._cancel()  # the agent offers no way to say no but this

    async def _allow(
        self, item: Incoming, options: list[dict[str, str]], option_id: str | None, call: Call | None
    ) -> None:
        """Say yes, once it is stored: a process that dies now must not have a tool that ran without a grant. ``None``,
        or a turn that was aborted or settled meanwhile: nothing may start any more."""
        if option_id is not None:
            await self._ctx.stored()
        is_open = call is None or self._ctx.is_open_request(call.request_id)
        if option_id is None or self._ctx.aborting or not is_open:
            item.answer(_outcome(None))
        elif call is not None and call.differs({}):  # it told other arguments while it waited
            self._reject(item, options)
        else:
            if call is not None:
                self._link.begun.add(call.request_id)
            item.answer(_outcome(option_id))

    async def _approval(
        self, item: Incoming, options: list[dict[str, str]], title: Any, call: Call | None = None
    ) -> None:
        message = title if isinstance(title, str) and title else "Go on?"
        question = ElicitationRequest(
            request_id=self._ctx.new_id("q"),
            kind="user_approval" if call is None else "tool_confirmation",
            message=message,
            tool_request_id=None if call is None or not self._ctx.is_open_request(call.request_id) else call.request_id,
        )

        async def answered(answer: Answer | None) -> None:
            if isinstance(answer, ElicitationAnswer) and answer.action == "accept":
                await self._allow(item, options, pick(options, "allow_once"), call)
                return
            if answer is None:
                item.answer(_outcome(None))
            else:
                self._reject(item, options)

        await self._ctx.emit(question)
        self._wait(item, question.request_id, answered)

    # -- a person's answers -------------------------------------------------------------------------------------------

    async def _elicitation(self, item: Incoming) -> None:
        asked = _ELICITATION.validate_python(_params(item))
        schema = item.params.get("requestedSchema")
        is_url = getattr(asked, "mode", None) == "url"
        if not is_url and not isinstance(schema, dict):
            raise RequestError(-32602, "Invalid params", {"mode": "form or url"})
        question = ElicitationRequest(
            request_id=self._ctx.new_id("q"),
            kind="auth_required" if is_url else "clarification",
            message=asked.message,
            requested_schema=None if is_url else check_json(schema),
            url=item.params["url"] if is_url else None,
        )

        async def answered(answer: Answer | None) -> None:
            action = answer.action if isinstance(answer, ElicitationAnswer) else "cancel"
            if action == "accept" and not is_url and isinstance(answer, ElicitationAnswer):
                item.answer({"action": "accept", "content": answer.content or {}})
            else:
                item.answer({"action": action if action in ("accept", "decline") else "cancel"})

        await self._ctx.emit(question)
        self._wait(item, question.request_id, answered)

    # -- the host's tools ---------------------------------------------------------------------------------------------

    async def host_tool(
        self, item: Incoming, name: str, args: dict[str, Any], give: Callable[[ToolResult], Any]
    ) -> str | None:
        """Ask the host to run a tool of its own, and answer ``item`` with what ``give`` makes of the result."""
        request = ToolRequest(request_id=self._ctx.new_id("r"), name=name, args=args, owner="host", needs="result")
        try:
            await self._ctx.emit(request)
        except HookBlocked:
            item.refuse(RequestError(_DENIED, "denied by the client"))
            return None

        async def answered(answer: Answer | None) -> None:
            if isinstance(answer, ToolResult) and (not answer.is_error or give is _all):
                item.answer(give(answer))
            elif isinstance(answer, ToolResult):
                item.refuse(RequestError(-32603, "the client's tool failed", {"details": plain_text(answer.content)}))
            else:
                reason = answer.reason if isinstance(answer, ToolDenial) else None
                item.refuse(
                    RequestError(_DENIED, "denied by the client", None if reason is None else {"reason": reason})
                )

        self._wait(item, request.request_id, answered)
        return request.request_id

    def _real(self, path: str) -> str:
        """The real place of a path inside the session's root. Raises ``RequestError`` for any other."""
        root = os.path.realpath(self._link.executor.root_of(self._link.session))
        if "\0" in path or not os.path.isabs(path):
            raise RequestError(-32602, "Invalid params", {"path": "an absolute path"})
        real = os.path.realpath(path)
        if real != root and not real.startswith(root.rstrip(os.sep) + os.sep):
            raise RequestError(-32602, "Invalid params", {"path": "inside the session's folder"})
        return real

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, item: Incoming, request_id: str, then: Callable[[Answer | None], Awaitable[None]]) -> None:
        """Wait for the host's answer in a task, so that the agent's other messages go on; ``None``: settled."""
        reply = self.waiting[request_id] = self._ctx.expect(request_id)

        async def wait() -> None:
            answer: Answer | None
            try:
                try:
                    answer = (await reply.wait())[request_id]
                except RunEnded:
                    answer = None
                finally:
                    self.waiting.pop(request_id, None)
                await then(answer)
            finally:
                refuse_late(item)  # where it is not answered: the agent has ended its turn, and must not wait for ever

        self._tasks.start_soon(wait)

    def lost(self) -> None:
        """The agent is gone. While no stream is open, answers to what it asked are stale from now on; in a stream the
        turn ends as soon as it has read what came before."""
        if not self._ctx.is_attached:
            for reply in self.waiting.values():
                self._ctx.abandon(reply)


def pick(options: list[dict[str, str]], *kinds: str) -> str | None:
    """The id of the first option of the first of these kinds that is offered."""
    for kind in kinds:
        for option in options:
            if option["kind"] == kind:
                return option["optionId"]
    return None


def _options(given: Any) -> list[dict[str, str]] | None:
    if not isinstance(given, list):
        return None
    kept: list[dict[str, str]] = []
    for item in given:
        option_id, kind = (item.get("optionId"), item.get("kind")) if isinstance(item, dict) else (None, None)
        if isinstance(option_id, str) and isinstance(kind, str):
            kept.append({"optionId": option_id, "kind": kind})
    return kept


def _outcome(option_id: str | None) -> RequestPermissionResponse:
    outcome = {"outcome": "cancelled"} if option_id is None else {"outcome": "selected", "optionId": option_id}
    return RequestPermissionResponse.model_validate({"outcome": outcome})


def _params(item: Incoming) -> Mapping[str, Any]:
    nested: Mapping[str, Any] = nest_meta({"params": item.params})["params"]
    return nested


def _text(result: ToolResult) -> str:
    said = plain_text(result.content)
    if said or result.data is None:
        return said
    if isinstance(result.data, dict) and isinstance(result.data.get("content"), str):
        return str(result.data["content"])
    return result.data if isinstance(result.data, str) else str(result.data)


def _read(result: ToolResult) -> dict[str, Any]:
    return {"content": _text(result)}


def _all(result: ToolResult) -> dict[str, Any]:
    content = [part.model_dump(mode="json", by_alias=True, exclude_unset=True) for part in result.content]
    return {"data": result.data, "content": content, "isError": result.is_error}
