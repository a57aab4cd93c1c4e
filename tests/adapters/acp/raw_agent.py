"""An ACP agent that sends what a file says: for messages that no SDK would send. Standard library alone.

``raw_agent.py SCENARIO LOG``: the scenario is JSON, the log gets each message that comes in. Text ``$SESSION`` in a
message becomes the session's id.

``{"initialize": {...}, "turns": [[step, ...], ...]}``, where a step is ``{"send": message}``, ``{"line": text}``,
``{"read": n}`` (take n messages), ``{"until": method}``, ``{"answer": result}``, ``{"error": error}``,
``{"exit": code}``, ``{"mute": true}``, ``{"shut": true}`` or ``{"deaf": true}``. The methods in ``"silent"`` get no
answer, and the end of the input is not obeyed from then on. ``"opening"``: what is sent while a session is opened or
loaded, each a step. Each process adds its id to ``LOG.pids``.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def main() -> None:
    with open(sys.argv[1]) as file:
        scenario = json.load(file)
    log = open(sys.argv[2], "a")  # noqa: SIM115  # as long as the process
    turns: Iterator[list[dict[str, Any]]] = iter(scenario["turns"])
    session = scenario.get("session", "sess-1")

    with open(sys.argv[2] + ".pids", "a") as pids:
        pids.write(f"{os.getpid()}\n")

    def read() -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        log.write(line)
        log.flush()
        found: dict[str, Any] = json.loads(line)
        return found

    def write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def send(message: Any) -> None:
        write(json.dumps({"jsonrpc": "2.0", **message}).replace("$SESSION", session))

    while True:
        message = read()
        method, number = message.get("method"), message.get("id")
        if method in ("session/new", "session/load"):
            for step in scenario.get("opening", []):
                if "send" in step:
                    send(step["send"])
                else:
                    read()
        if method in scenario.get("silent", []):
            os.read(os.pipe()[0], 1)
        if method == "initialize":
            send({"id": number, "result": {"protocolVersion": 1, **scenario.get("initialize", {})}})
        elif method == "session/new":
            send({"id": number, "result": scenario.get("new", {"sessionId": session})})
        elif method == "session/load":
            for step in scenario.get("history", []):
                send(step)
            send({"id": number, "result": {}})
        elif method == "session/prompt":
            over: list[dict[str, Any]] = [{"answer": {"stopReason": "end_turn"}}]
            for step in next(turns, over):
                if "send" in step:
                    send(step["send"])
                elif "line" in step:
                    write(step["line"])
                elif "read" in step:
                    for _ in range(step["read"]):
                        read()
                elif "until" in step:
                    while read().get("method") != step["until"]:
                        pass
                elif "answer" in step:
                    send({"id": number, "result": step["answer"]})
                elif "error" in step:
                    send({"id": number, "error": step["error"]})
                elif "exit" in step:
                    os._exit(step["exit"])
                elif "mute" in step:
                    os.close(1)
                elif "shut" in step:
                    os.close(0)
                    os.read(os.pipe()[0], 1)
                elif "deaf" in step:
                    while sys.stdin.readline():
                        pass
                    while True:
                        os.read(os.pipe()[0], 1)


main()
