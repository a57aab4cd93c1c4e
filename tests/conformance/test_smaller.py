"""The smallest sequence is sought by taking away what is not needed, in no more tries than are allowed."""

from __future__ import annotations

from agentsession.conformance.driven.moves import Move
from agentsession.conformance.driven.smaller import Sketch, smallest

SAY = Move("say", {"reads": "later"})
STEER, ABORT, KILL = Move("steer"), Move("abort"), Move("kill")


def sketch(*moves: Move, turns: tuple[tuple[str, ...], ...] = (("say", "hold"), ("look+write",))) -> Sketch:
    return Sketch(turns, True, ("clarification",), moves)


def test_what_the_break_does_not_need_is_taken_away() -> None:
    def still(tried: Sketch) -> Sketch | None:
        names = [move.name for move in tried.moves]
        needed = names.count("say") >= 1 and "abort" in names and any("hold" in turn for turn in tried.turns)
        return tried if needed else None

    found = smallest(sketch(STEER, SAY, SAY, KILL, ABORT, STEER, KILL), still, 400)
    assert [move.name for move in found.moves] == ["say", "abort"]
    assert (found.turns, found.kinds) == ((("hold",),), None)
    assert found.moves[0].args == {"reads": "to its end"}


def test_calls_at_once_become_fewer() -> None:
    found = smallest(
        sketch(turns=(("look+write+look",),)), lambda tried: tried if "write" in str(tried.turns) else None, 99
    )
    assert found.turns == (("write",),)


def test_it_stops_when_its_tries_are_used_up() -> None:
    tried: list[Sketch] = []

    def never(one: Sketch) -> None:
        tried.append(one)

    first = sketch(SAY, ABORT, KILL)
    assert smallest(first, never, 5) is first
    assert len(tried) == 5


def test_steps_that_were_not_taken_when_it_was_played_are_left_out() -> None:
    def still(tried: Sketch) -> Sketch | None:
        return Sketch(tried.turns, tried.is_gated, tried.kinds, (SAY,)) if SAY in tried.moves else None

    assert smallest(sketch(SAY, ABORT), still, 50).moves[0].name == "say"
