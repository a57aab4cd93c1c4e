"""What a person sees of a session's events: every one is shown or counted, none is obeyed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host.cli.events import Scene
from tests.host.cli.test_text import is_dangerous

from agentsession.conformance import strategies
from agentsession.host.cli._paint import plain
from agentsession.host.cli._render import Renderer, by_whom
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    SchemaError,
    SessionUpdate,
    StreamEnd,
    Text,
    Thought,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    UnknownEvent,
    Usage,
    parse_event,
    repair_text,
)

DIGEST = "sha256:0"


def call(scene: Scene, request_id: str, name: str, args: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    return scene.feed(ToolRequest, request_id=request_id, name=name, args=args or {}, **fields)


def test_calls_at_once_are_announced_and_told_one_by_one_when_they_end() -> None:
    scene = Scene()
    call(scene, "r1", "read_file", {"path": "cart.py"})
    assert call(scene, "r2", "run_tests", {"flags": "-q"}) == []
    assert scene.feed(ToolResponse, request_id="r1", name="read_file", data="a\n" * 41) == [
        "+ 2 calls at once",
        "  [1] read_file cart.py           ok      41 lines  2.0s",
    ]


def test_a_failed_call_shows_both_ends_of_its_output_and_counts_the_rest() -> None:
    scene = Scene(interactive=True)
    call(scene, "r1", "run_tests")
    output = "\n".join(f"line {number}" for number in range(50))
    lines = scene.feed(ToolResponse, request_id="r1", name="run_tests", data=output, is_error=True, status="failed")
    assert lines[0].startswith("  [1] run_tests                   FAILED  50 lines")
    assert lines[1] == "      line 0"
    assert "      ... 38 lines folded; /o 1 shows all" in lines
    assert lines[-1] == "      line 49"
    assert len(lines) == 1 + 12 + 1


def test_a_denied_call_says_by_which_rule_and_what_the_model_was_told() -> None:
    scene = Scene(interactive=True)
    call(scene, "r1", "run_shell", {"command": "rm -rf /"})
    scene.feed(ToolDecision, request_id="r1", decision="denied", by="policy:no-rm", args_digest=DIGEST)
    assert scene.feed(
        ToolResponse, request_id="r1", name="run_shell", status="denied", content=[Text(text="outside workspace")]
    ) == [
        'x [1] run_shell "rm -rf /"        DENIED  rule no-rm',
        "      model was told: outside workspace   /w 1 says why",
    ]


def test_a_call_that_a_person_granted_says_so() -> None:
    scene = Scene()
    call(scene, "r1", "edit_file")
    scene.feed(ToolDecision, request_id="r1", decision="granted", by="user", args_digest=DIGEST)
    (line,) = scene.feed(ToolResponse, request_id="r1", name="edit_file", data={"ok": True})
    assert "granted by you, ran once" in line


def test_edited_arguments_are_shown() -> None:
    scene = Scene()
    call(scene, "r1", "edit_file", {"path": "a"})
    (line,) = scene.feed(
        ToolDecision, request_id="r1", decision="granted", by="user", args={"path": "b"}, args_digest=DIGEST
    )
    assert line == "  [1] edited to edit_file b"
    (ran,) = scene.feed(ToolResponse, request_id="r1", name="edit_file", data="ok")
    assert ran.startswith("  [1] edit_file b (edited) ")


def test_a_call_that_was_cut_off_is_unknown_and_never_called_cancelled() -> None:
    scene = Scene()
    call(scene, "r1", "run_tests")
    (line,) = scene.feed(ToolResponse, request_id="r1", name="run_tests", status="unknown")
    assert "UNKNOWN  had started, effects not known" in line


def test_a_host_tool_that_its_host_stopped_is_unknown() -> None:
    scene = Scene()
    call(scene, "r1", "run_tests")
    stopped = {"error": {"code": "cancelled", "message": "the tool was stopped; its effects may be partial"}}
    (line,) = scene.feed(ToolResponse, request_id="r1", name="run_tests", status="failed", is_error=True, data=stopped)
    assert "UNKNOWN  had started, effects not known" in line


def test_a_sub_agent_is_announced_and_its_lines_are_set_off() -> None:
    scene = Scene()
    scene.feed(AgentStart, agent_id="coder")
    assert scene.feed(AgentStart, agent_id="fixer", thread_id="fix") == ["> @fixer started, inside coder"]
    call(scene, "r1", "read_file", {"path": "cart.py"}, thread_id="fix")
    (line,) = scene.feed(ToolResponse, request_id="r1", name="read_file", data="x", thread_id="fix")
    assert line.startswith("  |   [1] read_file cart.py")
    assert scene.feed(AgentEnd, agent_id="fixer", thread_id="fix") == ["> @fixer completed"]


def test_a_handoff_is_announced() -> None:
    scene = Scene()
    scene.feed(AgentStart, agent_id="greeter")
    scene.feed(AgentEnd, agent_id="greeter", reason="handoff")
    assert scene.feed(AgentStart, agent_id="biller") == ["> biller takes over from greeter"]


def test_a_thought_is_one_line_with_its_time() -> None:
    scene = Scene(interactive=True)
    for piece in ("The discount is ", "applied twice."):
        scene.feed(Message, message_id="m", partial=True, index=0, content=[Thought(text=piece)])
    assert scene.delta("I'll look.") == [". thought 1.0s: The discount is applied twice.   /t shows it"]
    assert scene.renderer.speech.thoughts == ["The discount is applied twice."]


def test_a_second_message_of_the_user_in_a_turn_is_a_steer() -> None:
    scene = Scene()
    scene.say("Fix it", role="user", source="user")
    call(scene, "r1", "read_file")
    scene.feed(ToolResponse, request_id="r1", name="read_file")
    assert scene.say("not the API", role="user", source="user") == ["> not the API", "  steer injected after [1]"]


def test_a_steer_that_was_typed_here_is_not_printed_twice() -> None:
    scene = Scene()
    scene.say("Fix it", role="user", source="user")
    assert scene.renderer.steer_queued("m-steer") == 1
    assert scene.say("not the API", role="user", source="user", message_id="m-steer") == ["  steer 1 injected"]


def test_an_undelivered_steer_is_told() -> None:
    scene = Scene()
    scene.renderer.steer_queued("m-steer")
    lines = scene.feed(StreamEnd, reason="aborted", data={"undelivered": ["m-steer"]})
    assert lines[0] == "  steer 1 NOT delivered"


def test_a_question_shows_its_fields_and_an_answer_what_was_said() -> None:
    scene = Scene()
    lines = scene.feed(
        ElicitationRequest,
        request_id="q1",
        kind="clarification",
        title="deploy",
        message="Where to?",
        requested_schema={
            "type": "object",
            "properties": {
                "region": {"enum": ["eu-west", "us-east"]},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
                "token": {"type": "string", "format": "password"},
            },
            "required": ["region"],
        },
    )
    assert lines == [
        "? QUESTION  deploy",
        "  Where to?",
        "  region*  1 eu-west   2 us-east",
        "  replicas  whole number 1..9, default 2",
        "  token  secret, never recorded",
    ]
    assert scene.feed(ElicitationResponse, request_id="q1", action="decline") == ["  declined"]


def test_the_end_says_how_long_and_for_whom_and_never_that_unknown_money_is_none() -> None:
    scene = Scene(width=100)
    call(scene, "r1", "read_file")
    scene.feed(ToolResponse, request_id="r1", name="read_file")
    scene.feed(ElicitationRequest, request_id="q1", kind="clarification", message="Well?")
    scene.feed(ElicitationResponse, request_id="q1", action="accept")
    scene.feed(Usage, input_tokens=12_400, output_tokens=1_200)
    assert scene.feed(StreamEnd, reason="completed") == [
        "== completed 5.0s (model 3, tools 1, you 1)  in 12.4k out 1.2k  cost n/a  s-7f3a"
    ]


def test_time_that_a_person_was_waited_for_in_vain_is_not_the_models() -> None:
    scene = Scene(width=100)
    call(scene, "r1", "order", needs="result")
    scene.feed(Usage, input_tokens=1)
    scene.feed(ToolResponse, request_id="r1", name="order", status="cancelled", is_error=True)
    scene.feed(ElicitationRequest, request_id="q1", kind="clarification", message="Well?")
    scene.feed(ElicitationResponse, request_id="q1", action="cancel")
    (line,) = scene.feed(StreamEnd, reason="aborted")
    assert "(model 2, tools 0, you 3)" in line


@pytest.mark.parametrize("interactive", [True, False])
def test_in_a_narrow_window_no_line_is_wider_than_it(interactive: bool) -> None:
    scene = Scene(width=40, interactive=interactive)
    for number, status in enumerate(("completed", "failed", "denied", "cancelled", "unknown")):
        name, by = f"r{number}", "user" if number % 2 == 0 else "policy:a-rule-with-a-name"
        call(scene, name, "rename_everything_in_the_repository", {"old": "a b", "note": "long " * 20})
        decision = "denied" if status == "denied" else "granted"
        scene.feed(ToolDecision, request_id=name, decision=decision, by=by, args_digest=DIGEST)
        scene.feed(ToolResponse, request_id=name, name="rename", status=status, data="because " * 20)
    call(scene, "r9", "ls")
    scene.feed(
        ToolResponse, request_id="r9", name="ls", data={"error": {"code": "cancelled", "message": "x"}}, is_error=True
    )
    scene.feed(Usage, input_tokens=12_400, output_tokens=1_200, cost=0.031)
    scene.feed(StreamEnd, reason="max_llm_calls", data={"cause": "the limit of the whole organisation"})
    assert not [line for line in scene.lines if len(line) > 40]
    assert any("effects not known" in line for line in scene.lines)


def test_a_pause_is_not_an_end() -> None:
    scene = Scene()
    assert scene.feed(StreamEnd, reason="input_required", pending=["r1"]) == []


def test_errors_custom_and_unknown_events_are_shown() -> None:
    scene = Scene()
    assert scene.feed(Error, status="UNAVAILABLE", message="try later") == ["! error UNAVAILABLE: try later"]
    assert scene.feed(Custom, kind="plan", data={"steps": 2}) == ['* plan {"steps": 2}']
    hooked = {"point": "before_tool", "action": "modify", "changed": ["args"], "by": "jail", "reason": "two\nlines"}
    assert scene.feed(Custom, kind="hook", data=hooked) == ["* hook jail changed args at before_tool: two lines"]
    assert scene.feed(Custom, kind="hook", data={"point": "x", "action": "block"}) == ["* a hook blocked at x"]
    assert scene.feed(UnknownEvent, type="hologram", shape="cube") == ['* hologram (unknown event) {"shape": "cube"}']
    assert scene.feed(SessionUpdate, model="gemini-x") == ['* session: model "gemini-x"']


def test_a_whole_message_that_differs_from_its_deltas_on_purpose_is_shown_again() -> None:
    scene = Scene()
    scene.delta("The key is hunter2.\n")
    lines = scene.feed(Message, message_id="m", content=[Text(text="The key is [removed].")], revised=True)
    assert lines == ["(revised)", "The key is [removed]."]


@given(st.lists(st.text("ab \nü漢", min_size=1, max_size=30), min_size=1, max_size=30))
def test_however_a_text_is_cut_into_deltas_the_same_rows_are_printed_once(pieces: list[str]) -> None:
    whole = "".join(pieces)
    in_deltas, at_once = Scene(width=40), Scene(width=40)
    for piece in pieces:
        in_deltas.delta(piece)
    in_deltas.feed(Message, message_id="m", content=[Text(text=whole)])
    at_once.feed(Message, message_id="m", content=[Text(text=whole)])
    assert in_deltas.lines == at_once.lines or [*in_deltas.lines, ""] == at_once.lines


NASTY = st.text(st.characters(exclude_categories=[]), max_size=60)


@given(NASTY, NASTY, st.integers(40, 100))
def test_nothing_that_an_agent_or_a_tool_says_reaches_the_screen_as_a_control(one: str, other: str, width: int) -> None:
    scene = Scene(width=width, interactive=True)
    scene.feed(
        AgentStart, agent_id=repair_text(one) or "a", thread_id="child"
    )  # an id with half a character is refused
    scene.delta(one)
    scene.say(other, message_id="m")
    scene.feed(Message, message_id="t", content=[Thought(text=one)])
    call(scene, "r1", one, {"key": other, "old_text": one, "new_text": other})
    scene.feed(ToolDecision, request_id="r1", decision="denied", by=f"policy:{one}", reason=other, args_digest=DIGEST)
    scene.feed(ToolResponse, request_id="r1", name=one, status="denied", data={"error": other})
    call(scene, "r2", one)
    scene.feed(ToolResponse, request_id="r2", name=one, is_error=True, data=f"{one}\n{other}", display={"summary": one})
    scene.feed(ElicitationRequest, request_id="q1", kind="open_kind", title=one, message=other, url=one)
    scene.feed(ElicitationResponse, request_id="q1", action="accept", content=other)
    scene.feed(Error, status="INTERNAL", message=other)
    scene.feed(Custom, kind="plan", data=other)
    scene.feed(SessionUpdate, title=one, state_delta={"k": other})
    scene.feed(StreamEnd, reason="completed", data={"cause": one})
    for line in scene.lines:
        assert "\n" not in line
        assert not [sign for sign in line if is_dangerous(sign)]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("user", "you"),
        ("user:ann", "you"),
        ("policy:no-rm", "rule no-rm"),
        ("remembered:7", "remembered 7"),
        (None, ""),
    ],
)
def test_who_decided_is_told_in_words(by: str | None, words: str) -> None:
    assert by_whom(by) == words


_PLACES = frozenset({"type", "id", "seq", "timestamp", "sessionId", "streamId", "turnId", "requestId", "messageId"})
_OBEYED = "\x1b[2J\u202e\u200b"


def _hostile(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hostile(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hostile(item) for item in value]
    return value + _OBEYED if isinstance(value, str) else value


def _as_hostile(event: Event) -> Event:
    """The event with what a terminal obeys in each of its texts, as far as it is an event then."""
    wire = event.to_wire()
    for name in set(wire) - _PLACES:
        with contextlib.suppress(SchemaError):
            parse_event(changed := {**wire, name: _hostile(wire[name])})
            wire = changed
    return parse_event(wire)


@given(st.one_of(strategies.records(), st.lists(strategies.events(), max_size=6)))
def test_no_text_of_any_event_is_obeyed(record: list[Event]) -> None:
    renderer = Renderer()
    lines = [line for event in record for line in renderer.feed(_as_hostile(event))]
    lines += [line for call in renderer.calls.values() for line in call.why(80)]
    assert not [sign for sign in plain(lines) if is_dangerous(sign)]
