"""A process that is killed while a sign-in waits: the child's side of ``test_session_credentials.py``.

Run with a folder, the provider's URL, a kind of credential, and the step: ``start`` runs the turn to the question and
dies by ``os._exit``; ``wait`` dies before, while the call waits for its grant, and ``grant`` then loads the session,
grants, and dies at the question; ``resume`` loads the session, signs in and prints what came out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adapters.adk.credential_kinds import KINDS, Weather, weather_tool
from tests.adapters.adk.driving import Driven, agent
from tests.adapters.adk.provider import Provider, sign_in

from agentsession.adapters.adk import AdkExecutor, call, say
from agentsession.host import SqliteRecordStore
from agentsession.protocol import ElicitationRequest, OpenOptions, accept, grant

SESSION = "s-killed"


async def main(folder: str, url: str, kind: str, step: str) -> None:
    server = Provider()
    server.url = url
    weather = Weather(server)
    script = [call("weather", id="c1")] if step in ("start", "wait") else [say("done")]
    root = agent(*script, tools=[weather_tool(weather, KINDS[kind].config(server))])
    store = SqliteRecordStore(str(Path(folder, "record.db")))
    service = SqliteSessionService(str(Path(folder, "adk.db")))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        if step != "resume":
            if step == "grant":
                desk = Driven(executor, await executor.load(SESSION))
            else:
                desk = Driven(executor, await executor.open(OpenOptions(session_id=SESSION)))
                await desk.stream("go")
            waits = desk.pending("weather")
            if step == "wait":
                os._exit(9)
            await desk.stream(grant(waits))
            assert desk.pending("auth_required")
            os._exit(9)
        desk = Driven(executor, await executor.load(SESSION))
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert question.url is not None
        done = await desk.stream(accept(question.request_id, {"auth_response_uri": sign_in(question.url)}))
        out = {"reason": done.reason, "texts": done.texts, "api": weather.statuses, "responses": desk.responses()}
        await desk.session.aclose()
        sys.stdout.write(json.dumps(out))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(*sys.argv[1:5]))
