"""A report as a badge: the JSON that the endpoint badge of shields.io reads.

Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: ``results``.
"""

from __future__ import annotations

import json

from agentsession.conformance.results import Report

__all__ = ["badge"]


def badge(report: Report) -> str:
    """The headline of the highest level that holds, or of the first that does not."""
    scores = [score for score in report.scores() if score.is_declared]
    reached = next((score for score in scores if score.level == report.reached), None)
    shown = reached or next(iter(scores), None)
    good = report.exit_code == 0 and reached is not None
    return json.dumps(
        {
            "schemaVersion": 1,
            "label": f"agentsession {report.version}",
            "message": str(shown) if shown is not None else "nothing ran",
            "color": "brightgreen" if good else "orange" if reached is not None else "red",
        }
    )
