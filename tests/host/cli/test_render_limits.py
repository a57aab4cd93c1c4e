"""What a person sees of a turn that was told something by its session, and of one that ended at a limit."""

from __future__ import annotations

import pytest
from tests.host.cli.events import Scene

from agentsession.protocol import Message, StreamEnd, Text


def test_what_the_session_told_the_agent_is_not_shown_as_the_persons() -> None:
    scene = Scene(width=40)
    scene.feed(Message, message_id="m1", role="user", source="user", content=[Text(text="go")])
    told = [Text(text="The last 5 steps were \x1b[31mthe same call.")]
    lines = scene.feed(Message, message_id="m2", role="user", source="host", content=told)
    assert lines[0].startswith("  told the agent: The last 5 steps")
    assert all(row.startswith("    ") for row in lines[1:])
    assert "\x1b" not in "".join(lines)
    assert "steer" not in "".join(lines)


@pytest.mark.parametrize(
    ("grace", "shown"),
    [
        ("completed", "max_time with a last word "),
        ("failed", "max_time (its last word failed) "),
        ("skipped", "max_time 1"),
        (None, "max_time 1"),
    ],
)
def test_the_end_at_a_limit_says_whether_there_was_a_last_word(grace: str | None, shown: str) -> None:
    scene = Scene()
    scene.feed(Message, message_id="m1", role="user", source="user", content=[Text(text="go")])
    data = {"cause": "max_time", **({"grace": grace} if grace else {})}
    assert shown in " ".join(scene.feed(StreamEnd, reason="max_time", data=data))
