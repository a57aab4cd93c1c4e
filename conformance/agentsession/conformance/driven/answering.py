"""The host's answers to what waits in a driven session: in any order and grouping, twice, and such as fit nothing.

Not for: the answers themselves (``hosts.py``). Rules carried: HITL-02, HITL-08, TOOL-07, TOOL-09, TOOL-10, TOOL-12,
TOOL-14. May import: ``agentsession.protocol``, the modules of the suite.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsession.conformance.driven.checks import names_of
from agentsession.conformance.driven.hosts import answer_to, hows, strange_answer
from agentsession.conformance.driven.session import Driven, Reads, Way
from agentsession.protocol import Answer, EventStream, NothingToContinue, ToolProgress, ToolRequest

__all__ = ["answer", "answer_again", "answer_strangely", "progress"]


async def answer(driven: Driven, places: Sequence[int], ways: Sequence[int], way: Way, reads: Reads) -> None:
    """Answer some of what waits: which, and how, by numbers that are counted round."""
    waiting = names_of(driven.session.pending, await driven.record())
    names = list(dict.fromkeys(list(waiting)[place % len(waiting)] for place in places))
    chosen: list[tuple[str, str]] = []
    for number, name in enumerate(names):
        how = hows(waiting[name])
        chosen.append((name, how[ways[number % len(ways)] % len(how)]))
    await give(driven, chosen, way, reads)


async def give(driven: Driven, chosen: Sequence[tuple[str, str]], way: Way, reads: Reads) -> None:
    """Answer what has these names, each in its way."""
    waiting = names_of(driven.session.pending, await driven.record())
    pairs = [(name, how, answer_to(waiting[name], how)) for name, how in chosen]
    words = ", ".join(f"{how} {name}" for name, how, _ in pairs)
    if way == "stream" and driven.session.state != "input_required":
        way = "respond"
    what = {"respond": "respond", "one by one": "respond one by one", "stream": "stream"}[way]
    more = f", read {reads}" if way == "stream" else ""
    await driven.step(f"{what}({words}){more}", _answer(driven, pairs, way, reads))


async def _answer(driven: Driven, pairs: Sequence[tuple[str, str, Answer]], way: Way, reads: Reads) -> str:
    answers = [answer for _, _, answer in pairs]
    stream: EventStream | None = None
    if way == "stream":
        stream = driven.stream(answers)
        got = list(stream.receipts)
    elif way == "respond":
        got = list(await driven.called(driven.session.respond(*answers), "TOOL-07", "respond()"))
    else:
        got = [
            one
            for answer in answers
            for one in await driven.called(driven.session.respond(answer), "TOOL-07", "respond()")
        ]
    driven.scene.receipts(got, *["applied"] * len(answers), rule="TOOL-07", what="an answer")
    for name, how, answer in pairs:
        driven.course.answer(name, how)
        driven.applied.append(answer)
    if stream is not None:
        driven.course.go_on()
        await driven.read(stream, reads)
    return ""


async def answer_again(driven: Driven, place: int, by_stream: bool) -> None:
    """Answer once more what was answered before."""
    first = driven.applied[place % len(driven.applied)]
    how = "stream" if by_stream and driven.session.state != "running" else "respond"
    await driven.step(
        f"{how}(another {first.kind} to what was answered)", _answer_again(driven, first, how == "stream")
    )


async def _answer_again(driven: Driven, first: Answer, by_stream: bool) -> str:
    before = await driven.scene.settled(driven.session)
    if by_stream:

        async def call() -> None:
            driven.session.stream([first])

        await driven.scene.refused(call, NothingToContinue, "TOOL-09", "stream(a second answer)")
        said = "NothingToContinue"
    else:
        got = await driven.called(driven.session.respond(first), "TOOL-09", "respond()")
        driven.scene.receipts(got, "stale", rule="TOOL-09", what="a second answer")
        said = "stale"
    await driven.scene.unchanged(driven.session, before, "TOOL-09", "a second answer")
    return f"{said}, and nothing changes"


async def answer_strangely(driven: Driven, place: int, how: str) -> None:
    """Give an answer that nothing takes."""
    waiting = list(driven.session.pending)
    request = waiting[place % len(waiting)] if waiting else None
    answer, status, rule = strange_answer(request, how)
    await driven.step(f"respond({_strange(answer, how)})", _strangely(driven, answer, status, rule))


def _strange(answer: Answer, how: str) -> str:
    of_whom = "an id that is unknown" if answer.request_id == "r-of-nobody" else "what waits"
    return f"a {answer.kind} that does not fit to {of_whom}, {how}"


async def _strangely(driven: Driven, answer: Answer, status: str, rule: str) -> str:
    before = await driven.scene.settled(driven.session)
    got = await driven.called(driven.session.respond(answer), rule, "respond()")
    driven.scene.receipts(got, status, rule=rule, what="an answer that does not fit")
    await driven.scene.unchanged(driven.session, before, rule, "an answer that does not fit")
    return f"{status}, and nothing changes"


async def progress(driven: Driven) -> None:
    """Tell of progress of the host's tools that wait."""
    await driven.step("respond(progress of the host's calls)", _progress(driven))


async def _progress(driven: Driven) -> str:
    for request in [one for one in driven.session.pending if isinstance(one, ToolRequest) and one.needs == "result"]:
        given = ToolProgress(request_id=request.request_id, progress=0.5)
        got = await driven.called(driven.session.respond(given), "TOOL-12", "respond()")
        driven.scene.receipts(got, "applied", rule="TOOL-12", what="progress of a call that waits")
    return ""
