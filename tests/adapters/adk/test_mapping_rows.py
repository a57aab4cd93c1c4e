"""Each row of the table of docs/adk-mapping.md, executed: ADK events in, what the row says out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.events.ui_widget import UiWidget
from google.adk.models.cache_metadata import CacheMetadata
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from tests.adapters.adk.make import call_part, called, delta, event, responded, said, user_said

from agentsession.adapters.adk import Translator, content_to_part, map_events, part_to_content
from agentsession.protocol import REDACTED, AgentEnd, StreamEnd

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "adk-mapping.md").read_text(encoding="utf-8").split("## The table")[1].split("\n## ")[0]
WRITTEN = [line.split(" | ")[0].removeprefix("| ") for line in TABLE.splitlines() if line.startswith("| ")][1:]
CASES: dict[str, Callable[[], None]] = {}


def row(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The case of the row whose first cell is ``name``."""

    def entered(case: Callable[[], None]) -> Callable[[], None]:
        assert name not in CASES
        CASES[name] = case
        return case

    return entered


def test_every_row_of_the_table_has_a_case_and_every_case_a_row() -> None:
    assert len(WRITTEN) >= 45
    assert sorted(WRITTEN) == sorted([*CASES, *ELSEWHERE])


@pytest.mark.parametrize("name", CASES)
def test_a_row_says_what_the_translation_does(name: str) -> None:
    CASES[name]()


ELSEWHERE = {
    "a long-running tool, live": "test_session_long_running.py",
    "a model call of `HostLlm`": "test_host_model.py",
}
"""Rows about a live session, and the tests of them."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_row_about_live_sessions_has_tests_of_its_own(name: str) -> None:
    assert re.search(r"^async def test_", (Path(__file__).parent / ELSEWHERE[name]).read_text(), re.MULTILINE)


# -- short ways --------------------------------------------------------------------------------------------------------


def out(*events: AdkEvent) -> list[dict[str, Any]]:
    """What the translator makes of these events, in their form on the wire, without what is absent."""
    translator = Translator()
    return [
        {k: v for k, v in made.to_wire().items() if v is not None} for item in events for made in translator.feed(item)
    ]


def one(*events: AdkEvent) -> dict[str, Any]:
    (made,) = out(*events)
    return made


def customs(item: AdkEvent) -> dict[str, Any]:
    return {made["kind"]: made["data"] for made in out(item) if made["type"] == "custom"}


def actions(**fields: Any) -> AdkEvent:
    return event(actions=EventActions(**fields))


def lr(name: str, call_id: str, args: Any = None) -> AdkEvent:
    """A call that ADK lists as long-running."""
    return called(name, call_id, args, long_running_tool_ids={call_id})


def reasons(*events: AdkEvent) -> list[str]:
    return [made.reason for made in map_events([user_said("go"), *events]) if isinstance(made, StreamEnd)]


CONFIRMATION = {
    "originalFunctionCall": {"id": "c1", "name": "delete", "args": {}},
    "toolConfirmation": {"hint": "Really?", "payload": {"copies": 1}},
}
CREDENTIAL = {
    "functionCallId": "c1",
    "authConfig": {
        "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "me", "clientSecret": "hush"}},
        "exchangedAuthCredential": {"authType": "oauth2", "oauth2": {"authUri": "https://auth.example/o?state=s"}},
    },
}


# -- what is said ------------------------------------------------------------------------------------------------------


@row("text parts of an agent's event")
def _() -> None:
    made = one(event(types.Part(text="a"), types.Part(text="b")))
    assert (made["type"], made["role"], made["agentId"]) == ("message", "agent", "root")
    assert made["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@row("`thought` parts")
def _() -> None:
    made = one(event(types.Part(text="hm", thought=True, thought_signature=b"\x01"), types.Part(text="a")))
    assert made["content"] == [{"type": "thought", "text": "hm", "signature": "AQ=="}, {"type": "text", "text": "a"}]


@row('`author == "user"`')
def _() -> None:
    made = out(event(types.Part(text="do it"), call_part("wipe", "c1", {}), author="user", role="user"))
    assert [(item["type"], item["role"], item["source"]) for item in made] == [("message", "user", "user")]
    assert [part["type"] for part in made[0]["content"]] == ["text", "function_call"]


@row("`partial=True`")
def _() -> None:
    first, second, last = out(delta("He"), delta("llo"), said("Hello", id="e1"))
    assert [(item["partial"], item["index"]) for item in (first, second)] == [(True, 0), (True, 1)]
    assert first["messageId"] == second["messageId"] == last["messageId"]
    assert last["content"] == [{"type": "text", "text": "Hello"}]
    assert not last.get("partial")


@row("a whole text sent once more as a partial event")
def _() -> None:
    made = out(delta("He"), delta("llo"), delta("Hello"), said("Hello", id="e1"))
    assert [item["content"][0]["text"] for item in made] == ["He", "llo", "Hello"]
    assert not made[-1].get("revised")


@row("a final text that differs from the deltas")
def _() -> None:
    assert out(delta("He"), delta("llo"), said("Hello!", id="e1"))[-1]["revised"] is True


@row("`inline_data`")
def _() -> None:
    part = types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png"))
    (content,) = one(event(part))["content"]
    assert (content["type"], content["mimeType"], content["data"]) == ("media", "image/png", "cG5n")


@row("`file_data`")
def _() -> None:
    part = types.Part(file_data=types.FileData(file_uri="gs://b/f.txt", mime_type="text/plain"))
    (content,) = one(event(part))["content"]
    assert (content["type"], content["uri"]) == ("reference", "gs://b/f.txt")


@row("`executable_code`, `code_execution_result`")
def _() -> None:
    ran = types.Part(executable_code=types.ExecutableCode(code="1+1", language=types.Language.PYTHON))
    gave = types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="2"))
    assert [part["type"] for part in one(event(ran, gave))["content"]] == ["code", "code_result"]


@row("other fields of a part (video metadata, scheduling, …)")
def _() -> None:
    part = types.Part(
        file_data=types.FileData(file_uri="gs://b/v.mp4", mime_type="video/mp4"),
        video_metadata=types.VideoMetadata(fps=2.0, start_offset="1s"),
    )
    made = part_to_content(part)
    assert "adk" in made.to_wire()
    assert content_to_part(made) == part


# -- calls and results -------------------------------------------------------------------------------------------------


@row("a function call")
def _() -> None:
    made = one(called("look", "c1", {"a": 1}))
    assert (made["type"], made["requestId"], made["name"], made["args"]) == ("tool_request", "c1", "look", {"a": 1})


@row("`partial_args` of a streamed call")
def _() -> None:
    piece = types.FunctionCall(
        id="p1", name="look", partial_args=[types.PartialArg(json_path="$.q", string_value="hi")], will_continue=True
    )
    last = types.FunctionCall(will_continue=False)
    streamed = [event(types.Part(function_call=made), id="e1", partial=True) for made in (piece, last)]
    made = out(*streamed, called("look", "c9", {"q": "hi"}, id="e1"))
    assert [item["type"] for item in made] == ["tool_request"] * len(made)
    assert all(item["partial"] and item["argsDelta"] for item in made[:-1])
    assert len({item["requestId"] for item in made}) == 1
    assert made[-1]["args"] == {"q": "hi"}


@row("arguments that are no object")
def _() -> None:
    made = one(called("look", "c1", [1]))
    assert "args" not in made
    assert made["_meta"]["adk"]["rawArgs"] == [1]
    assert made["_meta"]["adk"]["invalidArgs"] is True


@row("no name")
def _() -> None:
    assert one(called(None, "c1"))["name"] == ""


@row("a missing or repeated call id")
def _() -> None:
    first, again, none = out(
        called("look", "c1"), called("look", "c1", invocation_id="i2"), called("look", None, invocation_id="i3")
    )
    assert len({item["requestId"] for item in (first, again, none)}) == 3
    assert again["_meta"]["adk"]["callId"] == "c1"


@row("a function response")
def _() -> None:
    made = out(called("look", "c1"), responded("look", "c1", {"result": [1]}))[1]
    assert (made["type"], made["requestId"], made["data"], made["status"]) == (
        "tool_response",
        "c1",
        [1],
        "completed",
    )
    assert out(called("look", "c1"), responded("look", "c1", {"result": 1, "more": 2}))[1]["data"] == {
        "result": 1,
        "more": 2,
    }


@row('`{"error": …}` that says something, or `isError: true`')
def _() -> None:
    for response in ({"error": "no such file"}, {"isError": True, "content": []}):
        made = out(called("look", "c1"), responded("look", "c1", response))[1]
        assert (made["isError"], made["status"]) == (True, "failed")
    assert out(called("look", "c1"), responded("look", "c1", {"error": None}))[1]["status"] == "completed"


@row("the placeholder of a tool that waits for a confirmation or credential")
def _() -> None:
    asks = EventActions(requested_tool_confirmations={"c1": ToolConfirmation(hint="Really?")})
    assert len(out(called("delete", "c1"), responded("delete", "c1", {"error": "waits"}, actions=asks))) == 1


@row("a long-running tool, stored")
def _() -> None:
    request, first, answer = out(
        lr("build", "c1"),
        responded("build", "c1", {"status": "pending"}),
        responded("build", "c1", {"result": "built"}, author="user"),
    )
    assert request["longRunning"] is True
    assert (first["type"], answer["type"], answer["data"]) == ("tool_update", "tool_response", "built")


@row("a long-running tool that fails at once")
def _() -> None:
    assert out(lr("build", "c1"), responded("build", "c1", {"error": "no"}))[1]["status"] == "failed"


@row("a second response to an answered call")
def _() -> None:
    made = out(called("look", "c1"), responded("look", "c1", {"result": 1}), responded("look", "c1", {"result": 2}))
    assert [item["type"] for item in made] == ["tool_request", "tool_response", "custom"]
    assert made[2]["kind"] == "late_response"


@row("a response to a call that is not in the record")
def _() -> None:
    assert one(responded("look", "c7", {"result": 1}))["kind"] == "stray_response"


@row("`transfer_to_agent`, `exit_loop`, `finish_task`, `set_model_response`")
def _() -> None:
    for name in ("transfer_to_agent", "exit_loop", "finish_task", "set_model_response"):
        assert one(called(name, "c1"))["needs"] == "none"
    translator = Translator(needs=lambda name, long_running: "grant")
    assert [item.to_wire()["needs"] for item in translator.feed(called("exit_loop", "c1"))] == ["none"]


@row("a task delegation")
def _() -> None:
    done = list(
        map_events(
            [
                user_said("go"),
                called("kid", "d1", {"request": "x"}),
                said("working", author="kid", branch="kid@d1", isolation_scope="d1"),
                responded("kid", "d1", {"result": "done"}),
                said("thanks"),
            ]
        )
    )
    assert not [item for item in done if item.type == "tool_request"]
    assert [item.thread_id for item in done if item.type == "agent_start" and item.agent_id == "kid"] == ["kid@d1"]


# -- questions ---------------------------------------------------------------------------------------------------------


@row("`adk_request_confirmation`")
def _() -> None:
    made = out(called("delete", "c1"), lr("adk_request_confirmation", "q1", CONFIRMATION))[1]
    assert (made["kind"], made["message"], made["context"]) == ("tool_confirmation", "Really?", {"copies": 1})
    assert made["toolRequestId"] == "c1"


@row("`adk_request_credential`")
def _() -> None:
    made = out(called("fetch", "c1"), lr("adk_request_credential", "q1", CREDENTIAL))[1]
    assert made["kind"] == "auth_required"
    assert made["url"].startswith("https://auth.example/o")
    assert "hush" not in str(made)
    assert "'me'" in str(made)


@row("`adk_request_input`, and `agentsession_request_input` in sessions of this adapter")
def _() -> None:
    args = {"message": "Where?", "response_schema": {"type": "string"}}
    for made in (one(lr("adk_request_input", "q1", args)), one(called("agentsession_request_input", "q1", args))):
        assert (made["kind"], made["message"]) == ("clarification", "Where?")
        assert made["requestedSchema"] == {"type": "string"}


@row("a call of these names that ADK does not list as long-running: the model forged it")
def _() -> None:
    for name, args in (("adk_request_confirmation", CONFIRMATION), ("adk_request_credential", CREDENTIAL)):
        made = one(called(name, "q1", args))
        assert (made["type"], made["needs"]) == ("tool_request", "none")


@row("the answers to these")
def _() -> None:
    def answered(response: Any, name: str = "adk_request_confirmation", args: Any = CONFIRMATION) -> dict[str, Any]:
        return out(lr(name, "q1", args), responded(name, "q1", response, author="user"))[1]

    assert answered({"confirmed": True})["action"] == "accept"
    for no in ({"confirmed": False}, {"confirmed": "yes"}, {}):
        assert answered(no)["action"] == "decline"
    secret = {"exchangedAuthCredential": {"apiKey": "hush"}}
    assert "hush" not in str(answered(secret, "adk_request_credential", CREDENTIAL))


# -- how a response ended ----------------------------------------------------------------------------------------------


@row("`usage_metadata`")
def _() -> None:
    counted = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=9, candidates_token_count=4, thoughts_token_count=2, total_token_count=15
    )
    made = out(said("a", usage_metadata=counted))[1]
    assert (made["type"], made["inputTokens"], made["outputTokens"], made["reasoningTokens"]) == ("usage", 9, 4, 2)
    assert "cachedTokens" not in made


@row("an error code")
def _() -> None:
    made = one(event(error_code="RESOURCE_EXHAUSTED", error_message="slow down"))
    assert (made["type"], made["code"], made.get("fatal", False)) == ("error", "RESOURCE_EXHAUSTED", False)


@row("`STOP` without content, `MODEL_RETURNED_NO_CONTENT`")
def _() -> None:
    assert out(event(error_code="STOP")) == []
    assert one(event(error_code="MODEL_RETURNED_NO_CONTENT"))["kind"] == "empty_reply"
    assert reasons(event(error_code="STOP")) == ["completed"]


@row("`MALFORMED_FUNCTION_CALL` with a call")
def _() -> None:
    made = one(called("look", "c1", {"a": 1}, error_code="MALFORMED_FUNCTION_CALL"))
    assert made["type"] == "error"
    assert made["_meta"]["adk"]["calls"] == [{"id": "c1", "name": "look", "args": {"a": 1}}]


@row("arguments cut off at `MAX_TOKENS`")
def _() -> None:
    piece = types.FunctionCall(
        id="c1", name="look", partial_args=[types.PartialArg(json_path="$.q", string_value="h")], will_continue=True
    )
    cut = called("look", "c1", {"q": "h"}, id="e1", error_code="MAX_TOKENS")
    made = out(event(types.Part(function_call=piece), id="e1", partial=True), cut)
    assert not [item for item in made if item["type"] == "tool_request" and not item.get("partial")]
    assert made[-1]["code"] == "MAX_TOKENS"


@row("`INVOCATION_ABORTED`")
def _() -> None:
    made = out(called("look", "c1"), responded("look", "c1", {"error": "aborted"}, error_code="INVOCATION_ABORTED"))
    assert [item["type"] for item in made] == ["tool_request", "tool_response"]
    assert made[1]["status"] == "unknown"
    translator = Translator(needs=lambda name, long_running: "result")
    translator.feed(called("look", "c1"))
    (waited,) = translator.feed(responded("look", "c1", {"error": "aborted"}, error_code="INVOCATION_ABORTED"))
    assert waited.to_wire()["status"] == "cancelled"


# -- everything else ---------------------------------------------------------------------------------------------------


@row("`state_delta`")
def _() -> None:
    given = {"app:a": 1, "user:b": 2, "temp:c": 3, "d": 4, "_adk_x": 5, "api_key": "hush"}
    made = one(actions(state_delta=given))
    assert made["stateDelta"] == {"app:a": 1, "user:b": 2, "temp:c": 3, "d": 4, "api_key": REDACTED}


@row("`artifact_delta`")
def _() -> None:
    assert customs(actions(artifact_delta={"a.txt": 0, "b.txt": 2})) == {"artifact_delta": {"a.txt": 0, "b.txt": 2}}


@row("`compaction`, `rewind_before_invocation_id`, `route`")
def _() -> None:
    summary = EventCompaction(
        start_timestamp=1.0,
        end_timestamp=2.0,
        compacted_content=types.Content(role="model", parts=[types.Part(text="in short")]),
    )
    assert customs(actions(compaction=summary))["compaction"]["content"] == [{"type": "text", "text": "in short"}]
    assert customs(actions(rewind_before_invocation_id="i1"))["rewind"]["beforeInvocationId"] == "i1"
    assert customs(actions(route="left")) == {"route": "left"}


@row("`render_ui_widgets`")
def _() -> None:
    widgets = [UiWidget(id=name, provider="mcp", payload={}) for name in ("w1", "w2")]
    made = out(actions(render_ui_widgets=widgets))
    assert [(item["kind"], item["data"]["id"]) for item in made] == [("ui_widget", "w1"), ("ui_widget", "w2")]


@row("`output` of a node, `set_model_response`")
def _() -> None:
    assert customs(event(output={"n": 1})) == {"output": {"n": 1}}
    assert customs(actions(set_model_response={"n": 2})) == {"structured_output": {"n": 2}}


@row("grounding, citations, log probabilities, transcriptions")
def _() -> None:
    made = customs(
        said(
            "a",
            grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]),
            citation_metadata=types.CitationMetadata(citations=[types.Citation(uri="u")]),
            logprobs_result=types.LogprobsResult(),
            input_transcription=types.Transcription(text="heard"),
        )
    )
    assert set(made) == {"grounding", "citation", "logprobs", "transcription"}


@row("metadata of a context cache")
def _() -> None:
    cached = CacheMetadata(fingerprint="f", contents_count=3)
    assert customs(said("a", cache_metadata=cached))["context_cache"]["contents_count"] == 3


@row("`voice_activity`, `go_away`, `live_session_resumption_update`")
def _() -> None:
    made = customs(
        event(
            go_away=types.LiveServerGoAway(time_left="1s"),
            live_session_resumption_update=types.LiveServerSessionResumptionUpdate(new_handle="hush", resumable=True),
            voice_activity=types.VoiceActivity(),
        )
    )
    assert set(made) == {"voice_activity", "go_away", "session_resumption"}
    assert "hush" not in str(made)


@row("`turn_complete` and its reason, ids and states of interactions and live sessions, `environment_id`")
def _() -> None:
    assert one(said("a", turn_complete=True))["_meta"]["adk"]["turnComplete"] is True
    assert one(event(turn_complete=True))["kind"] == "response_state"


@row("`model_version`")
def _() -> None:
    counted = types.GenerateContentResponseUsageMetadata(prompt_token_count=1)
    assert out(said("a", model_version="m-1", usage_metadata=counted))[1]["model"] == "m-1"
    assert one(said("a", model_version="m-1"))["_meta"]["adk"]["modelVersion"] == "m-1"


@row("`custom_metadata`")
def _() -> None:
    made = customs(said("a", custom_metadata={"mine": 1, "__adk_internal_x": 2}))
    assert made == {"custom_metadata": {"mine": 1}}


@row("`agent_state`, `end_of_agent`")
def _() -> None:
    assert out(actions(agent_state={"step": 1}), actions(end_of_agent=True)) == []


@row("`branch`")
def _() -> None:
    threads = [
        one(said("a", id=branch, branch=branch)).get("threadId")
        for branch in ("par.agent_1", "par.agent_10", "node@1.x", "node@2.x", "kid@adk-1")
    ]
    assert threads == ["par.agent_1", "par.agent_10", "node.x", "node-2.x", "kid@adk-1"]


@row("event id, invocation id, node path, isolation scope, `escalate`, `skip_summarization`, `transfer_reason`")
def _() -> None:
    marks = one(
        said(
            "a",
            id="e1",
            isolation_scope="s1",
            actions=EventActions(escalate=True, skip_summarization=True),
        )
    )["_meta"]["adk"]
    assert marks["eventId"] == "e1"
    assert (marks["invocationId"], marks["isolationScope"]) == ("i1", "s1")
    assert (marks["escalate"], marks["skipSummarization"]) == (True, True)


@row("`escalate`, `transfer_to_agent` of an event's actions")
def _() -> None:
    over = event(author="root", id="e1", actions=EventActions(transfer_to_agent="kid"))
    leaves = said("done", author="kid", id="e2", actions=EventActions(escalate=True))
    ends = [made for made in map_events([user_said("go"), over, leaves]) if isinstance(made, AgentEnd)]
    assert [(end.agent_id, end.reason, end.data) for end in ends] == [
        ("root", "handoff", {"to": "kid"}),
        ("kid", "completed", {"escalate": True}),
    ]


@row("`timestamp`")
def _() -> None:
    seconds, milliseconds = out(said("a", timestamp=1781000000.123), said("b", id="e2", timestamp=1781000000123.0))
    assert seconds["timestamp"] == milliseconds["timestamp"] == "2026-06-09T10:13:20.123Z"


@row("a value that JSON cannot say (a function, a live object)")
def _() -> None:
    request, problem = out(called("look", "c1", {"f": print, "ok": 1}))
    assert request["args"] == {"f": {"$unserializable": "builtin_function_or_method"}, "ok": 1}
    assert (problem["type"], problem["code"]) == ("error", "not-json")
    assert "/f" in problem["message"]


@row("bytes, sets, dates, models, NaN")
def _() -> None:
    made = one(called("look", "c1", {"b": b"a", "s": {1}, "n": float("nan"), "m": types.Blob(data=b"a")}))
    assert made["args"]["s"] == [1]
    assert made["args"]["b"] == {"$bytes": "YQ=="}
    assert made["args"]["n"] == "NaN"
    assert made["args"]["m"] == {"data": {"$bytes": "YQ=="}}
