"""An ACP agent on a pair of byte streams: from the first message until the client is gone.

Not for: what the messages come to (``_agent.py``). Rules carried: LIFE-13. May import: ``acp``, the modules beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack, cast

from acp.agent import AgentSideConnection
from acp.stdio import stdio_streams

from agentsession.host._toolbox import ToolLike, ToolProvider
from agentsession.host.acp._agent import AcpAgent, Authenticator, InFolder
from agentsession.host.acp._sessions import HostOptions
from agentsession.host.acp._transport import LINE_LIMIT, WireTransport
from agentsession.protocol import AgentExecutor, ExecutionOptions, RecordStore

__all__ = ["own_stdio", "serve_acp", "serve_streams"]


async def serve_streams(agent: AcpAgent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client until it closes its side; then what runs is aborted and all sessions are closed.

    The reader's limit is the longest message that is taken.
    """
    transport = WireTransport(reader, writer)
    connection = AgentSideConnection(
        cast(Any, agent), cast(Any, transport), listening=False, use_unstable_protocol=True
    )
    agent.connect(connection, transport)
    try:
        await connection.listen()
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the SDK takes a cancellation for the end of its stream
            raise asyncio.CancelledError
    finally:
        transport.leave()
        # First the sessions: what they wait for from the client fails at once, and a turn ends by its abort.
        closing = asyncio.ensure_future(_close(agent, connection))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(closing)
        await closing


async def _close(agent: AcpAgent, connection: AgentSideConnection) -> None:
    try:
        await agent.close()
    finally:
        await connection.close()


async def serve_acp(
    executor: AgentExecutor,
    *,
    tools: Iterable[ToolLike | ToolProvider] | ToolProvider = (),
    store: RecordStore | None = None,
    user_id: str = "local",
    execution: ExecutionOptions | None = None,
    auth: Mapping[str, Authenticator] | None = None,
    in_folder: InFolder | None = None,
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None,
    **options: Unpack[HostOptions],
) -> None:
    """Enter ``executor`` and serve it over stdio, or ``streams``, until the client is gone.

    What is printed to stdout meanwhile goes to stderr: stdout carries the protocol alone. The arguments are those of
    :class:`AcpAgent`.
    """
    async with executor:
        agent = AcpAgent(
            executor,
            tools=tools,
            store=store,
            user_id=user_id,
            execution=execution,
            auth=auth,
            in_folder=in_folder,
            **options,
        )
        if streams is not None:
            await serve_streams(agent, *streams)
            return
        async with own_stdio() as (reader, writer):
            await serve_streams(agent, reader, writer)


@asynccontextmanager
async def own_stdio() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """stdin and stdout for the protocol alone: whatever else writes to stdout, child processes too, writes to stderr,
    and whatever reads stdin finds it empty. Afterwards both are what they were."""
    sys.stdout.flush()
    kept_in, kept_out = os.dup(0), os.dup(1)
    own_in, own_out = os.dup(0), os.dup(1)  # the streams close theirs
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    before = sys.stdin, sys.stdout
    try:
        sys.stdin, sys.stdout = os.fdopen(kept_in, "r"), os.fdopen(kept_out, "w")  # where the SDK looks for them
        streams = await stdio_streams(LINE_LIMIT)
        sys.stdin, sys.stdout = before[0], sys.stderr
        yield streams
    finally:
        before[1].flush()
        for kept, descriptor in ((own_in, 0), (own_out, 1)):
            os.dup2(kept, descriptor)
            os.close(kept)
        sys.stdin, sys.stdout = before
