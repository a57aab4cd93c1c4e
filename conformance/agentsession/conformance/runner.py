"""Runs scenarios against a harness and comes to a verdict on every rule.

Not for: what a scenario does or what a record shows. Rules carried: none.
May import: ``agentsession.protocol``, anyio, the modules beside it.

A rule passes when a scenario of it ran to its end and no record broke it. A scenario that breaks counts against the
rule that it found broken, and says nothing of its others: those are not-run unless another scenario shows them.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from agentsession.conformance.engine import Break, evidence_of
from agentsession.conformance.harness import CannotPlay, Harness
from agentsession.conformance.logged import Logged, listening, masked, shown
from agentsession.conformance.probes import probe
from agentsession.conformance.results import Evidence, Extra, Report, Result, Status, rules_of
from agentsession.conformance.scene import LEAVE_S, SCENARIOS, HarnessBroke, NotApplicable, Scenario, Scene, scene_of
from agentsession.conformance.script import Say
from agentsession.conformance.stage import NotReached
from agentsession.protocol import (
    PROTOCOL_VERSION,
    AgentDescriptor,
    AgentSessionError,
    Level,
    ProtocolViolation,
    Rule,
    SessionClosed,
    StreamActive,
)

__all__ = ["against", "all_scenarios", "alone", "describe", "judged", "run", "run_scenario"]

_LIMIT_S: Final = 20.0
"""A scenario takes milliseconds; one that is not over by then waits for something that will not come."""
_HERE: Final = Path(__file__).resolve().parent
_MODULES: Final = (
    *("lifecycle", "order", "tools", "answers", "confirmations", "people"),
    *("aborts", "control", "durability", "branches", "wire"),
)


def all_scenarios() -> Mapping[str, Scenario]:
    """Every scenario by its name."""
    for module in _MODULES:
        importlib.import_module(f"agentsession.conformance.scenarios.{module}")
    return SCENARIOS


async def describe(harness: Harness) -> AgentDescriptor:
    """What the executor of a harness says of itself. Raises :class:`HarnessBroke`."""
    try:
        async with scene_of(harness) as scene:
            return (await scene.stage([Say(text="hello")])).executor.descriptor
    except BaseExceptionGroup as group:
        raise alone(group) from None


async def run_scenario(
    chosen: Scenario, harness: Harness, *, seed: int = 0, limit_s: float = _LIMIT_S, leave_s: float = LEAVE_S
) -> list[Result]:
    """What one scenario shows: at most one failure that it found itself, and what its records show."""
    own: list[Result] = []
    records: list[Result] = []
    scene: Scene | None = None
    with listening() as heard:
        try:
            async with scene_of(harness, random.Random(f"{seed} {chosen.name}"), leave_s=leave_s) as scene:
                with anyio.move_on_after(limit_s) as limit:
                    try:
                        await chosen.play(scene)
                        own = [Result(rule, Status.PASS, scenario=chosen.name) for rule in chosen.rules]
                    except Exception as error:  # noqa: BLE001  # whatever it is, it is a verdict
                        own = judged(chosen.rules, alone(error))
                    records = await scene.finish(complete=own[0].status is not Status.FAIL)
                if limit.cancelled_caught:
                    own = [_stuck(chosen, scene, limit_s)]
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # as above, raised as the executor was left
            left = alone(error)
            failed = bool(own) and own[0].status is Status.FAIL
            if not failed:
                own = judged(chosen.rules, left)
            elif isinstance(left, Break):  # nearer to the cause of what came to nothing
                own = [*judged(chosen.rules, left), *own]
    return [_with_log(result, heard, scene) for result in _named(chosen, own, records)]


def _with_log(result: Result, heard: Logged, scene: Scene | None) -> Result:
    """What failed is shown with what was logged meanwhile."""
    if result.status not in (Status.FAIL, Status.HARNESS_ERROR):
        return result
    secrets = scene.secrets if scene is not None else ()
    elsewhere = scene.logged.lines(secrets) if scene is not None else ()
    return dataclasses.replace(result, log=heard.lines(secrets) + elsewhere)


def alone(error: BaseException) -> Exception:
    """The first exception of a group; the group of a task group holds what one executor raised as it was left."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, Exception):
        raise error  # the run was cancelled or interrupted
    return error


def _named(chosen: Scenario, own: list[Result], records: list[Result]) -> list[Result]:
    """The results of one scenario. What a record shows is nearer to the cause than what a scenario missed."""
    broken = [result for result in records if result.status is Status.FAIL]
    if broken and not (own and own[0].status is Status.HARNESS_ERROR):
        own = [result for result in own if result.status is Status.FAIL and result.rule == broken[0].rule]
    return [
        dataclasses.replace(result, scenario=chosen.name, beside="" if result.rule in chosen.rules else chosen.rules[0])
        for result in [*own, *records]
    ]


def judged(rules: Sequence[str], error: Exception) -> list[Result]:
    """What an exception in a scenario of these rules says, and about whom."""
    first = rules[0]
    if isinstance(error, Break):
        return [Result(error.rule, Status.FAIL, error.message, error.evidence)]
    if isinstance(error, NotApplicable):
        return [Result(rule, Status.NOT_APPLICABLE, str(error)) for rule in rules]
    if isinstance(error, CannotPlay):
        return [Result(rule, Status.NOT_RUN, str(error)) for rule in rules]
    if isinstance(error, NotReached):
        return [Result(first, Status.FAIL, error.message, error.evidence)]
    if isinstance(error, HarnessBroke):
        return [Result(first, Status.HARNESS_ERROR, f"the harness could not make an executor: {error}")]
    if isinstance(error, ProtocolViolation):
        shown = getattr(error, "evidence", None) or (Evidence(str(error), is_break=True),)
        return [Result(error.rule, Status.FAIL, error.what, tuple(shown))]
    if isinstance(error, (SessionClosed, StreamActive)):
        said = f"a session that should take another turn raised {type(error).__name__}: {error.what}"
        return [Result("LIFE-12", Status.FAIL, said, (Evidence(str(error), is_break=True),))]
    if isinstance(error, AgentSessionError):
        said = f"the executor raised {type(error).__name__}: {error.what}"
        return [Result(first, Status.FAIL, said, (Evidence(str(error), is_break=True),))]
    frames = traceback.extract_tb(error.__traceback__)
    said = f"{type(error).__name__}: {error}"
    if frames and Path(frames[-1].filename).resolve().is_relative_to(_HERE):
        return [Result(first, Status.HARNESS_ERROR, f"the suite broke in {frames[-1].name}: {said}")]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    return [Result(first, Status.FAIL, f"the executor raised {said}", (Evidence(f"raised at {where}", is_break=True),))]


def _stuck(chosen: Scenario, scene: Scene, limit_s: float) -> Result:
    said = f"nothing more happened within {limit_s:g} s"
    shown = evidence_of(scene.seen.latest, remark="<- here")
    return Result(chosen.rules[0], Status.FAIL, said, shown)


async def run(
    harness: Harness,
    *,
    target: str = "",
    rules: Collection[str] | None = None,
    seed: int = 0,
    expected: Mapping[str, str] | None = None,
    level: Level | None = None,
    extras: Sequence[Extra] = (),
    heard: Callable[[Scenario, list[Result]], None] | None = None,
) -> Report:
    """Run the suite.

    Args:
        harness: Makes the executors.
        target: What the report calls it.
        rules: Ids of the rules that are wanted; ``None``: all.
        seed: Of the order of the scenarios.
        expected: Rule ids that are known to fail, with the reason for each.
        level: What the executor must reach for the report to be good; makes sense only with all rules.
        extras: What was tried beside the scenarios: what it found broken has failed, also where ``rules`` are others.
        heard: Told of each scenario as it ends.
    """
    began = time.monotonic()
    found = [result for extra in extras for result in extra.results if not result.status.is_good]
    broken = {result.rule for result in found if result.status is not Status.NOT_RUN}
    wanted = rules_of(None if rules is None else broken.union(rules))
    scenarios = [each for each in all_scenarios().values() if any(rule.id in each.rules for rule in wanted)]
    random.Random(seed).shuffle(scenarios)
    try:
        descriptor = await describe(harness)
    except HarnessBroke as error:
        broke = [Result(rule.id, Status.HARNESS_ERROR, str(error)) for rule in wanted]
        return _report(harness, target, None, broke, seed, began, level)
    declared = frozenset(descriptor.capabilities)
    for chosen in scenarios:
        if chosen.needs <= declared:
            results = await run_scenario(chosen, harness, seed=seed)
            found += results
            if heard is not None:
                heard(chosen, results)
    probed = {name: await probe(name, harness) for name in _probed(wanted, declared)}
    verdicts = [_verdict(rule, found, declared, probed) for rule in wanted]
    results = [against(expected or {}, each) for each in verdicts]
    return _report(harness, target, descriptor, results, seed, began, level, tuple(extras))


def _report(
    harness: Harness,
    target: str,
    descriptor: AgentDescriptor | None,
    results: Iterable[Result],
    seed: int,
    began: float,
    level: Level | None,
    extras: tuple[Extra, ...] = (),
) -> Report:
    name = target or harness.name or type(harness).__name__
    took = time.monotonic() - began
    told = tuple(dataclasses.replace(extra, summary=next(masked([extra.summary]))) for extra in extras)
    return Report(name, descriptor, tuple(map(shown, results)), seed, took, PROTOCOL_VERSION, level, told)


def _probed(wanted: Iterable[Rule], declared: frozenset[str]) -> set[str]:
    return {rule.capability for rule in wanted if rule.capability is not None} - declared


def _verdict(rule: Rule, found: Iterable[Result], declared: frozenset[str], probed: Mapping[str, str | None]) -> Result:
    """What all results together say of one rule."""
    own = [result for result in found if result.rule == rule.id]
    failed = [result for result in own if result.status is Status.FAIL]
    if failed:
        return min(failed, key=lambda result: len(result.evidence))
    if rule.capability is not None and rule.capability not in declared:
        problem = probed.get(rule.capability)
        status = Status.NOT_APPLICABLE if problem is None else Status.FAIL
        return Result(
            rule.id, status, problem or f"{rule.capability} is not declared", scenario=f"probe {rule.capability}"
        )
    broke = [result for result in own if result.status is Status.HARNESS_ERROR]
    if broke:
        return broke[0]
    own_scenarios = [each for each in SCENARIOS.values() if rule.id in each.rules]
    applicable = {each.name for each in own_scenarios if each.needs <= declared}
    shown = [result for result in own if result.status is Status.PASS]
    if shown and (rule.checked_by != "session" or {result.scenario for result in shown} & applicable):
        untried = {result.message for result in own if result.status in (Status.NOT_APPLICABLE, Status.NOT_RUN)}
        return dataclasses.replace(shown[0], message="; ".join(f"not tried: {each}" for each in sorted(untried)))
    if own_scenarios and not applicable:
        lacks = min((sorted(each.needs - declared) for each in own_scenarios), key=len)
        return Result(rule.id, Status.NOT_APPLICABLE, f"not declared: {', '.join(lacks)}")
    refused = [result for result in own if result.status is Status.NOT_APPLICABLE]
    if refused and {result.scenario for result in refused} == applicable:
        return refused[0]
    said = next((result.message for result in own if result.status is Status.NOT_RUN), "")
    blocked = next((result for result in found if result.status is Status.FAIL and result.scenario in applicable), None)
    if not said and blocked is not None:
        said = f"not reached: {blocked.rule} broke in the scenario {blocked.scenario}"
    return Result(rule.id, Status.NOT_RUN, said or "no scenario showed it")


def against(expected: Mapping[str, str], result: Result) -> Result:
    """The verdict on a rule, where it is known that some fail, or cannot be played."""
    reason = expected.get(result.rule)
    if reason is None:
        return result
    if result.status in (Status.FAIL, Status.NOT_RUN):
        return dataclasses.replace(
            result, status=Status.EXPECTED_FAIL, message=f"{result.message} (expected: {reason})"
        )
    if result.status in (Status.PASS, Status.NOT_APPLICABLE):
        said = f"expected to fail ({reason}), but it does not: take it out of the file"
        return dataclasses.replace(result, status=Status.UNEXPECTED_PASS, message=said)
    return result
