"""Runs the scenarios of the host suite and comes to a verdict on every host rule.

Not for: what a scenario does or what a log shows. Rules carried: none.
May import: ``agentsession.protocol``, anyio, the modules beside it, ``logged``, ``results`` and ``runner`` of the
executor suite.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import anyio

from agentsession.conformance.engine import Break
from agentsession.conformance.harness import CannotPlay
from agentsession.conformance.hosts.checks import check_log
from agentsession.conformance.hosts.harness import FEATURES, HostHarness
from agentsession.conformance.hosts.scene import HOST_SCENARIOS, HostScenario, HostScene
from agentsession.conformance.logged import listening, shown
from agentsession.conformance.results import Report, Result, Status, rules_of
from agentsession.conformance.runner import against, alone
from agentsession.conformance.stage import HarnessBroke
from agentsession.protocol import HOST_RULES, PROTOCOL_VERSION, ConfigurationError, Rule

__all__ = ["all_host_scenarios", "run_host_scenario", "run_hosts"]

_LIMIT_S: Final = 10.0
"""A scenario takes milliseconds; one that is not over by then waits for something that will not come."""
_PATIENCE_S: Final = 2.0
"""How long a scenario waits for what a correct host does at once, or after its own grace time."""
_MODULES: Final = ("permission", "edits", "arguments", "requests", "people", "ends", "losses", "hostile")


def all_host_scenarios() -> Mapping[str, HostScenario]:
    """Every scenario by its name."""
    for module in _MODULES:
        importlib.import_module(f"agentsession.conformance.hosts.scenarios.{module}")
    return HOST_SCENARIOS


async def run_host_scenario(
    chosen: HostScenario, harness: HostHarness, *, limit_s: float = _LIMIT_S, patience_s: float = _PATIENCE_S
) -> list[Result]:
    """What one scenario shows of a host: its rules hold, or the one rule that is broken."""
    results: list[Result] = []
    secrets: list[str] = []
    with listening() as heard:
        try:
            async with anyio.create_task_group() as group:
                scene = HostScene(harness, chosen, group, patience_s)
                secrets = scene.secrets
                with anyio.move_on_after(limit_s) as limit:
                    try:
                        await chosen.play(scene)
                        await _leave(scene)
                        results = [Result(rule, Status.PASS) for rule in chosen.rules]
                    except Exception as error:  # noqa: BLE001  # whatever it is, it is a verdict
                        results = _judge(chosen, alone(error))
                if limit.cancelled_caught:
                    said = f"nothing more happened within {limit_s:g} s"
                    results = [Result(chosen.rules[0], Status.FAIL, said, scene.evidence(said))]
                found = check_log(scene)  # what it finds is nearer to the cause than what the scenario missed
                if found is not None:
                    results = [Result(found.rule, Status.FAIL, found.message, found.evidence)]
                group.cancel_scope.cancel()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # raised by a play, as the group was left
            if not results or results[0].status is not Status.FAIL:
                results = _judge(chosen, alone(error))
    return [_told(chosen, result, heard.lines(secrets)) for result in results]


def _told(chosen: HostScenario, result: Result, log: tuple[str, ...]) -> Result:
    """What failed is shown with what was logged meanwhile."""
    shown = log if result.status in (Status.FAIL, Status.HARNESS_ERROR) else ()
    return dataclasses.replace(result, scenario=chosen.name, log=shown)


async def _leave(scene: HostScene) -> None:
    """Close what the scenario has left open; a host whose turn hangs is cancelled with the scenario."""
    for stage in scene.stages:
        if not stage.is_closed:
            await stage.close()


def _judge(chosen: HostScenario, error: Exception) -> list[Result]:
    """What an exception in a scenario says, and about whom."""
    first = chosen.rules[0]
    if isinstance(error, Break):
        return [Result(error.rule, Status.FAIL, error.message, error.evidence)]
    if isinstance(error, CannotPlay):
        return [Result(rule, Status.NOT_RUN, str(error)) for rule in chosen.rules]
    if isinstance(error, HarnessBroke):
        return [Result(first, Status.HARNESS_ERROR, f"the harness could not set up a host: {error}")]
    # What a host raises is caught where the scene calls it; all else is raised by this package or by the harness.
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].name}, line {frames[-1].lineno}" if frames else "nowhere"
    return [Result(first, Status.HARNESS_ERROR, f"the suite broke in {where}: {type(error).__name__}: {error}")]


async def run_hosts(
    harness: HostHarness,
    *,
    target: str = "",
    rules: Collection[str] | None = None,
    seed: int = 0,
    expected: Mapping[str, str] | None = None,
    heard: Callable[[HostScenario, list[Result]], None] | None = None,
    patience_s: float = _PATIENCE_S,
) -> Report:
    """Run the suite over a host.

    Args:
        harness: Sets hosts up.
        target: What the report calls it.
        rules: Ids of the rules that are wanted; ``None``: all.
        seed: Of the order of the scenarios.
        expected: Rule ids that are known to fail, with the reason for each.
        heard: Told of each scenario as it ends.
        patience_s: How long to wait for what a correct host does at once.

    Raises:
        ConfigurationError: the harness claims a feature that there is not; a slip would make rules not applicable.
    """
    strange = sorted(set(harness.features) - set(FEATURES))
    if strange:
        raise ConfigurationError(
            f"hosts have no feature {strange[0]!r}",
            where=f"{type(harness).__name__}.features",
            expected=", ".join(FEATURES),
        )
    began = time.monotonic()
    wanted = rules_of(rules, HOST_RULES)
    scenarios = [each for each in all_host_scenarios().values() if any(rule.id in each.rules for rule in wanted)]
    random.Random(seed).shuffle(scenarios)
    features = frozenset(harness.features)
    found: list[Result] = []
    for chosen in scenarios:
        if chosen.needs <= features:
            results = await run_host_scenario(chosen, harness, patience_s=patience_s)
            found += results
            if heard is not None:
                heard(chosen, results)
    verdicts = [against(expected or {}, _verdict(rule, found, features)) for rule in wanted]
    name = target or harness.name or type(harness).__name__
    took = time.monotonic() - began
    return Report(name, None, tuple(map(shown, verdicts)), seed, took, PROTOCOL_VERSION, levels=("host",))


def _verdict(rule: Rule, found: Iterable[Result], features: frozenset[str]) -> Result:
    """What all results together say of one rule."""
    own = [result for result in found if result.rule == rule.id]
    for status in (Status.FAIL, Status.HARNESS_ERROR):
        bad = [result for result in own if result.status is status]
        if bad:
            return min(bad, key=lambda result: len(result.evidence))
    if rule.capability is not None and rule.capability not in features:
        return Result(rule.id, Status.NOT_APPLICABLE, f"the host has no {rule.capability}")
    shown = [result for result in own if result.status is Status.PASS]
    if shown:
        return shown[0]
    scenarios = [each for each in HOST_SCENARIOS.values() if rule.id in each.rules]
    applicable = {each.name for each in scenarios if each.needs <= features}
    if scenarios and not applicable:
        lacks = min((sorted(each.needs - features) for each in scenarios), key=len)
        return Result(rule.id, Status.NOT_APPLICABLE, f"the host has no {', '.join(lacks)}")
    said = next((result.message for result in own if result.status is Status.NOT_RUN), "")
    blocked = next((result for result in found if result.status is Status.FAIL and result.scenario in applicable), None)
    if not said and blocked is not None:
        said = f"not reached: {blocked.rule} broke in the scenario {blocked.scenario}"
    return Result(rule.id, Status.NOT_RUN, said or "no scenario showed it")
