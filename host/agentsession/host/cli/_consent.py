"""``trust`` and ``untrust`` of ``hooks`` and ``policy``: agree to what a workspace brings along, and no longer.

Not for: showing what it is (``_hooks.py``, ``_policy_command.py``). May import: ``agentsession.host._consent`` and the
modules beside it.
"""

from __future__ import annotations

from pathlib import Path

from agentsession.host._consent import Consent
from agentsession.host.cli._lines import line
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._text import escape

__all__ = ["agree", "disagree", "nothing_to_trust"]


def nothing_to_trust(file: str, folder: str) -> CommandError:
    """There is no such file in the workspace."""
    return CommandError(
        f"there is no {file}", where=str(Path(folder).absolute()), fix="name the folder of the workspace"
    )


def agree(out: Out, consent: Consent, file: Path, digest: str) -> None:
    """Keep that the person agrees to what was shown."""
    try:
        consent.give(file, digest)
    except OSError as error:
        raise _not_kept(consent, error) from None
    out.lines([line(f"agreed to, as they are now; kept in {escape(str(consent.path))}")])


def disagree(out: Out, consent: Consent, file: Path) -> None:
    """Keep that the person agrees no longer."""
    try:
        had = consent.revoke(file)
    except OSError as error:
        raise _not_kept(consent, error) from None
    out.lines([line("no longer agreed to" if had else "nobody had agreed to them")])


def _not_kept(consent: Consent, error: OSError) -> CommandError:
    return CommandError("the agreement cannot be kept", id="output-failed", where=str(consent.path), got=error.strerror)
