"""Plans as checklists, the progress of long tools, changes to files, and what to do next."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.cli.events import Scene

from agentsession.host._plan import PlanStep, plan_steps
from agentsession.protocol import Custom, Diff, StreamEnd, Text, ToolRequest, ToolResponse, ToolUpdate, Usage


def plan(*states: str) -> dict[str, Any]:
    names = ("Find the cause", "Fix it", "Run the tests")
    return {"entries": [{"content": name, "status": state} for name, state in zip(names, states, strict=True)]}


def test_a_plan_is_a_checklist_in_words() -> None:
    scene = Scene()
    assert scene.feed(Custom, kind="plan", data=plan("completed", "in_progress", "pending")) == [
        "* plan  1 of 3 steps done",
        "  done      Find the cause",
        "  doing     Fix it",
        "  to do     Run the tests",
    ]


def test_of_a_plan_that_was_shown_only_what_changed_is_shown_again() -> None:
    scene = Scene()
    scene.feed(Custom, kind="plan", data=plan("completed", "in_progress", "pending"))
    assert scene.feed(Custom, kind="plan", data=plan("completed", "completed", "pending")) == [
        "* plan  2 of 3 steps done",
        "  done      Fix it",
    ]
    assert scene.feed(Custom, kind="plan", data=plan("completed", "completed", "pending")) == []


@pytest.mark.parametrize(
    ("data", "steps"),
    [
        (["a", "b"], [PlanStep("a"), PlanStep("b")]),
        ({"todos": [{"text": "a", "done": True}]}, [PlanStep("a", "done")]),
        (
            [{"title": "a", "status": "SKIPPED"}, {"title": "b", "status": "x-new"}],
            [PlanStep("a", "dropped"), PlanStep("b")],
        ),
        ({"steps": 2}, None),
        ([], None),
        ([{"title": "a"}, 3], None),
        ("a plan", None),
        (None, None),
    ],
)
def test_plans_of_several_shapes_are_read_and_anything_else_is_none(data: Any, steps: list[PlanStep] | None) -> None:
    assert plan_steps(data) == steps


def run(scene: Scene, updates: int, **fields: Any) -> list[str]:
    """A tool that tells its progress once a second."""
    scene.feed(ToolRequest, request_id="r", name="run_tests", args={})
    out: list[str] = []
    for done in range(updates):
        out += scene.feed(
            ToolUpdate, request_id="r", progress=done, total=40, content=[Text(text=f"test_{done}")], **fields
        )
    return out


def test_without_a_live_area_a_long_tools_progress_is_told_in_words_every_ten_seconds() -> None:
    assert run(Scene(), 25) == [
        "  [1] run_tests  running: 10 of 40 (25%)  test_10",
        "  [1] run_tests  running: 20 of 40 (50%)  test_20",
    ]


def test_with_a_live_area_progress_is_kept_for_it_and_prints_nothing() -> None:
    scene = Scene()
    scene.renderer.live = True
    assert run(scene, 25) == []
    assert scene.renderer.running[0].progress.words == "24 of 40 (60%)  test_24"


def test_what_an_update_leaves_out_stays_as_it_was() -> None:
    scene = Scene()
    run(scene, 2)
    scene.feed(ToolUpdate, request_id="r", content=[Text(text="linking\x1b[2J")])
    assert scene.renderer.running[0].progress.words == "1 of 40 (2%)  linking\\x1b[2J"


def test_progress_that_comes_after_the_response_says_nothing() -> None:
    scene = Scene()
    scene.feed(ToolRequest, request_id="r", name="run_tests", args={})
    scene.feed(ToolResponse, request_id="r", name="run_tests", data="ok")
    assert [scene.feed(ToolUpdate, request_id="r", progress=index) for index in range(15)] == [[]] * 15


def test_a_change_to_a_file_that_a_tool_returns_is_shown_as_a_diff() -> None:
    scene = Scene()
    scene.feed(ToolRequest, request_id="r", name="patch", args={"path": "a.py"})
    lines = scene.feed(
        ToolResponse, request_id="r", name="patch", content=[Diff(path="a.py", old_text="a\nb\n", new_text="a\nB\n")]
    )
    assert lines[1:] == ["      diff a.py", "            a", "          - b", "          + B"]


def test_the_end_says_how_much_of_the_context_is_used_where_it_is_known() -> None:
    scene = Scene(width=100)
    scene.feed(Usage, input_tokens=12_000, output_tokens=10, cost=0.01, context_window=200_000)
    assert "$0.010  ctx 6%" in "\n".join(scene.feed(StreamEnd, reason="completed"))


def test_a_tool_that_hands_its_call_on_says_to_which_and_who_let_it() -> None:
    scene = Scene()
    scene.feed(ToolRequest, request_id="r", name="route", args={})
    told = {"step": 1, "name": "refund\x1b", "args": {"amount": 5}, "decision": "granted", "by": "policy:small"}
    assert scene.feed(ToolUpdate, request_id="r", data={"tail_call": told}) == [
        "  [1] hands on to refund\\x1b 5  granted by rule small"
    ]


def test_a_count_that_has_no_float_is_only_said_to_be_large() -> None:
    scene = Scene(width=100)
    scene.feed(Usage, input_tokens=10**400, context_window=5)
    assert "in over 1000T out n/a" in "\n".join(scene.feed(StreamEnd, reason="completed"))
