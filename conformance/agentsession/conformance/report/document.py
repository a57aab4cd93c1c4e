"""A report as JSON, with the schema of that JSON.

Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: ``agentsession.protocol``, pydantic, ``results``.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from agentsession.conformance.results import Report, Status
from agentsession.protocol import PROTOCOL_VERSION

__all__ = ["ReportDocument", "document", "report_schema"]

_ID: Final = "urn:agentsession:conformance-report"


class _Data(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        use_attribute_docstrings=True,  # they are the descriptions in the schema
    )


class EvidenceDocument(_Data):
    """One line of what a failure shows."""

    text: str
    event: dict[str, Any] | None = None
    """The event, as it is on the wire."""
    is_break: bool = False
    """Where the rule was broken."""


class ResultDocument(_Data):
    """The verdict on one rule."""

    rule: str
    sentence: str
    level: str
    capability: str | None
    status: Status
    message: str
    scenario: str
    evidence: list[EvidenceDocument]
    log: list[str]
    """The last lines that the executor logged in the scenario that failed, without secrets."""


class LevelDocument(_Data):
    """What the rules of a level add up to."""

    level: str
    passed: int = Field(ge=0)
    applicable: int = Field(ge=0)
    good: bool


class ExtraDocument(_Data):
    """What was tried beside the scenarios."""

    name: str
    """``random``: sequences of steps at random. ``kills``: processes that were killed."""
    summary: str
    good: bool


class ReportDocument(_Data):
    """One run of the conformance suite over one executor."""

    target: str
    contract: str
    """The version of the contract."""
    seed: int
    seconds: float = Field(ge=0)
    exit_code: int
    headline: str
    reached: str | None
    """The highest level that holds, with all below."""
    wanted: str | None
    """The level that had to be reached, where one was asked for."""
    levels: list[LevelDocument]
    extras: list[ExtraDocument]
    """What they found broken has failed in the results, too."""
    descriptor: dict[str, Any] | None
    results: list[ResultDocument]
    """One for each rule, in the order of the table."""


def document(report: Report) -> ReportDocument:
    """The report as a model of its JSON; ``model_dump_json(by_alias=True)`` is the text."""
    return ReportDocument(
        target=report.target,
        contract=report.version,
        seed=report.seed,
        seconds=round(report.seconds, 3),
        exit_code=report.exit_code,
        headline=report.headline(),
        reached=report.reached,
        wanted=report.wanted,
        levels=[
            LevelDocument(level=score.level, passed=score.passed, applicable=score.applicable, good=score.is_good)
            for score in report.scores()
        ],
        extras=[ExtraDocument(name=extra.name, summary=extra.summary, good=extra.is_good) for extra in report.extras],
        descriptor=report.descriptor.to_wire() if report.descriptor is not None else None,
        results=[
            ResultDocument(
                rule=result.rule,
                sentence=result.sentence,
                level=result.about.level,
                capability=result.about.capability,
                status=result.status,
                message=result.message,
                scenario=result.scenario,
                evidence=[
                    EvidenceDocument(
                        text=item.text,
                        event=dict(item.event) if item.event is not None else None,
                        is_break=item.is_break,
                    )
                    for item in result.evidence
                ],
                log=list(result.log),
            )
            for result in report.results
        ],
    )


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document."""
    schema = ReportDocument.model_json_schema(by_alias=True, mode="serialization")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{_ID}:{PROTOCOL_VERSION}"}
    return {**about, **schema}
