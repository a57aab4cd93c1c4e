"""An ACP agent that plays the suite's script, with the SDK's agent side: ``acp_agent.py SOCKET FOLDER``.

The folder holds ``script.json`` and keeps the sessions. What only the suite can do (the body of a tool, a hold) it asks
over the socket, a line of JSON each way.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp.agent.connection import AgentSideConnection
from acp.schema import (
    AgentCapabilities,
    AgentMessageChunk,
    AgentThoughtChunk,
    CreateFormSessionElicitationRequest,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    Usage,
)

from agentsession.conformance.script import (
    Ask,
    Call,
    Calls,
    Count,
    Hold,
    Raise,
    Recite,
    Refuse,
    Say,
    Script,
    Step,
    Stop,
    Stream,
    Think,
)
from agentsession.protocol import check_schema

OPTIONS = [
    PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]
REASONS = {"max_turns": "max_turn_requests", "max_llm_calls": "max_turn_requests"}


class Suite:
    """The other end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self._reader.readline():
            message = json.loads(line)
            future = self._open.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_result(message)

    async def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"id": number, "what": what, **fields}).encode() + b"\n")
        await self._writer.drain()
        try:
            answer: dict[str, Any] = await future
            return answer
        except asyncio.CancelledError:
            self._writer.write(json.dumps({"id": number, "what": "cancel"}).encode() + b"\n")
            raise


class Player:
    """The agent."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        self._folder, self._suite = folder, suite
        self._script = Script.model_validate_json((folder / "script.json").read_text())
        self._schemas = {tool.name: tool.parameters_schema for tool in self._script.own_tools()}
        self._playing: dict[str, asyncio.Task[str]] = {}
        self._usage: Usage | None = None
        self._told: list[dict[str, Any]] = []
        self._conn: AgentSideConnection

    def on_connect(self, conn: AgentSideConnection) -> None:
        self._conn = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities(load_session=True))

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        session_id = uuid.uuid4().hex
        (self._folder / session_id).touch()
        return NewSessionResponse(session_id=session_id)

    async def load_session(self, session_id: str, **kwargs: Any) -> LoadSessionResponse:
        if not (self._folder / session_id).exists():
            raise acp.RequestError.resource_not_found(session_id)
        return LoadSessionResponse()

    async def prompt(self, prompt: list[Any], session_id: str, **kwargs: Any) -> PromptResponse:
        # Asked, not counted: a process that is killed may have begun a turn and prompted nobody.
        turn = (await self._suite.ask("turn", session=session_id))["result"] - 1
        self._usage, self._told = None, []
        turns = self._script.turns
        steps: list[Step] = turns[turn] if turn < len(turns) else [Say(text="(the script is over)")]
        task = self._playing[session_id] = asyncio.create_task(self._play(session_id, steps))
        try:
            reason = await task
        except asyncio.CancelledError:
            reason = "cancelled"
        return PromptResponse.model_construct(
            _fields_set={"stop_reason"} | ({"usage"} if self._usage else set()), stop_reason=reason, usage=self._usage
        )

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        task = self._playing.get(session_id)
        if task is not None:
            task.cancel()

    # -- the script ---------------------------------------------------------------------------------------------------

    async def _play(self, session_id: str, steps: list[Step]) -> str:
        for step in steps:
            match step:
                case Say(text=text) | Refuse(text=text):
                    await self._say(session_id, [text])
                    if isinstance(step, Refuse):
                        return "refusal"
                case Think(text=text):
                    block = TextContentBlock(type="text", text=text)
                    chunk = AgentThoughtChunk(session_update="agent_thought_chunk", content=block)
                    await self._conn.session_update(session_id, chunk)
                case Stream():
                    await self._say(session_id, step.pieces, step.hold)
                case Calls(calls=calls):
                    keys = [await self._announce(session_id, call) for call in calls]
                    both = zip(keys, calls, strict=True)
                    told = await asyncio.gather(*(self._call(session_id, key, call) for key, call in both))
                    self._told += told
                case Ask():
                    self._told.append(await self._ask(session_id, step))
                case Recite():
                    await self._say(session_id, [json.dumps(self._told)])
                case Hold(mark=mark):
                    await self._suite.ask("hold", mark=mark)
                case Raise(message=message):
                    raise RuntimeError(message)
                case Count():
                    total = step.input_tokens + step.output_tokens
                    self._usage = Usage(
                        input_tokens=step.input_tokens, output_tokens=step.output_tokens, total_tokens=total
                    )
                case Stop(reason=reason):
                    return REASONS.get(reason, reason)
                case _:
                    raise acp.RequestError.internal_error()
        return "end_turn"

    async def _say(self, session_id: str, pieces: list[str], mark: str | None = None) -> None:
        message_id = uuid.uuid4().hex
        for number, piece in enumerate(pieces, start=1):
            if mark is not None and number == len(pieces):
                await self._suite.ask("hold", mark=mark)
            block = TextContentBlock(type="text", text=piece)
            await self._conn.session_update(
                session_id,
                AgentMessageChunk(session_update="agent_message_chunk", content=block, message_id=message_id),
            )

    async def _ask(self, session_id: str, step: Ask) -> dict[str, Any]:
        request = CreateFormSessionElicitationRequest.model_validate(
            {
                "sessionId": session_id,
                "mode": "form",
                "message": step.message,
                "requestedSchema": step.requested_schema or {"type": "object", "properties": {}},
            }
        )
        params = request.model_dump(mode="json", by_alias=True, exclude_none=True)
        if step.requested_schema is not None:
            params["requestedSchema"] = step.requested_schema
        answer = await self._conn._conn.send_request("elicitation/create", params)  # pyright: ignore[reportPrivateUsage]
        return {"action": answer["action"], "content": answer.get("content")}

    async def _call(self, session_id: str, key: str, call: Call) -> dict[str, Any]:
        told: dict[str, Any] = {"name": call.name, "args": call.args}
        if call.needs == "result":
            try:
                answer = await self._conn.ext_method(
                    "agentsession/call_tool", {"sessionId": session_id, "name": call.name, "args": call.args}
                )
            except acp.RequestError as error:
                return told | {"data": str(error), "is_error": True}
            return told | {"data": answer["data"], "is_error": answer["isError"]}
        return told | await self._own(session_id, key, call)

    async def _announce(self, session_id: str, call: Call) -> str:
        key = uuid.uuid4().hex
        if call.needs == "result":
            return key
        meta = {"agentsession": {"name": call.name}}
        await self._conn.session_update(
            session_id,
            ToolCallStart(
                session_update="tool_call",
                tool_call_id=key,
                title=call.name,
                status="in_progress" if call.confirm else "pending",
                raw_input=call.args,
                field_meta=meta,
            ),
        )
        return key

    async def _own(self, session_id: str, key: str, call: Call) -> dict[str, Any]:
        wrong = check_schema(self._schemas[call.name] or {}, call.args)
        if wrong is not None:
            return await self._end(session_id, key, "failed", {"error": "wrong arguments"})
        if not await self._may(session_id, key):
            return await self._end(session_id, key, "failed", {"error": "rejected"})
        if call.asks:
            await self._progress(session_id, key, status="in_progress")
            if not await self._may(session_id, key):
                return await self._end(session_id, key, "failed", {"error": "rejected"})
        ran = await self._suite.ask("run", name=call.name, args=call.args)
        if "error" in ran:
            return await self._end(session_id, key, "failed", {"error": ran["error"]})
        return await self._end(session_id, key, "completed", ran["result"])

    async def _may(self, session_id: str, key: str) -> bool:
        answer: RequestPermissionResponse = await self._conn.request_permission(
            options=OPTIONS, session_id=session_id, tool_call=ToolCallUpdate(tool_call_id=key)
        )
        return getattr(answer.outcome, "option_id", None) == "yes"

    async def _progress(self, session_id: str, key: str, **fields: Any) -> None:
        await self._conn.session_update(
            session_id, ToolCallProgress(session_update="tool_call_update", tool_call_id=key, **fields)
        )

    async def _end(self, session_id: str, key: str, status: str, output: Any) -> dict[str, Any]:
        await self._progress(session_id, key, status=status, raw_output=output)
        return {"data": output, "is_error": status == "failed"}


async def main() -> None:
    reader, writer = await asyncio.open_unix_connection(sys.argv[1])
    player: Any = Player(Path(sys.argv[2]), Suite(reader, writer))
    await acp.run_agent(player, use_unstable_protocol=True)


if __name__ == "__main__":
    asyncio.run(main())
