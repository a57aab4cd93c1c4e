"""An MCP server that does what a server may not, or need not: by hand, over stdio, with nothing but the language.

``python odd_server.py HOW``: ``pages`` lists its tools on many pages, some of no use; ``endless`` never ends its list;
``chatter`` prints lines that are no messages; ``wrong`` answers with what is no result; ``silent`` never answers;
``invalid`` lists what is no tool; ``many`` lists more than any model takes; ``restless`` says in each call that its
list changed; ``brackets`` gives a text that cannot be read as JSON; ``no_number`` reports progress that is no number;
``doubling`` has a schema that takes for ever to check.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

OBJECT = {"type": "object"}
PAGES: list[list[dict[str, Any]]] = [
    [{"name": "one", "inputSchema": OBJECT}],
    [
        {"name": "bad", "inputSchema": {**OBJECT, "properties": {"a": {"type": "nonsense"}}}},
        {"name": "one", "inputSchema": OBJECT},
        {"name": "slow", "inputSchema": OBJECT, "execution": {"taskSupport": "required"}},
    ],
    [],
    [{"name": "a b", "inputSchema": {**OBJECT, "properties": {"n": {"default": None}}}, "description": "Two words."}],
]


def listed(how: str, cursor: str | None) -> dict[str, Any]:
    at = int(cursor or 0)
    if how == "endless":
        return {"tools": [{"name": f"t{at}", "inputSchema": OBJECT}], "nextCursor": str(at + 1)}
    if how == "invalid":
        return {"tools": [{"name": 5}]}
    if how == "many":
        return {"tools": [{"name": f"t{number}", "inputSchema": OBJECT} for number in range(1_100)]}
    if how == "doubling":
        forms: dict[str, Any] = {"a0": OBJECT}
        for number in range(1, 30):
            forms[f"a{number}"] = {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
        return {"tools": [{"name": "one", "inputSchema": {**OBJECT, "$defs": forms, "$ref": "#/$defs/a29"}}]}
    if how in ("brackets", "no_number", "restless"):
        return {"tools": [{"name": "one", "inputSchema": OBJECT}]}
    if how != "pages":
        return {"tools": [{"name": "one", "inputSchema": OBJECT, "outputSchema": OBJECT}]}
    more = {"nextCursor": str(at + 1)} if at + 1 < len(PAGES) else {}
    return {"tools": PAGES[at], **more}


def answer(how: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"serverInfo": {"name": "odd", "version": "1"}, "capabilities": {"tools": {"listChanged": True}}}
        return {"protocolVersion": params["protocolVersion"], **about}
    if method == "tools/list":
        return listed(how, params.get("cursor"))
    if method == "tools/call" and how == "restless":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    if method == "tools/call" and how == "brackets":
        return {"content": [{"type": "text", "text": "[" * 100_000}], "structuredContent": {"x": 1}}
    if method == "tools/call" and how == "no_number":
        token = params["_meta"]["progressToken"]
        said = {"progressToken": token, "progress": math.nan}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": said}))
        return {"content": [{"type": "text", "text": "done"}]}
    if method == "tools/call":
        return {"content": "none"} if how == "wrong" else {"content": []}
    return None


def main(how: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or how == "silent":
            continue
        if how == "chatter":
            print("starting up, sk-planted ...")
        found = answer(how, message["method"], message.get("params") or {})
        error = {"error": {"code": -32601, "message": "no such method"}}
        said = error if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
