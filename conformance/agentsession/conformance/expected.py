"""The file of expected failures: what an executor is known not to do, by rule id, each with the reason.

Not for: hiding failures. An entry that no longer fails is stale and fails the run. Rules carried: none.
May import: ``agentsession.protocol``.

::

    # expected.toml
    [expected]
    CTL-06 = "the SDK has no way to add a message while the model works"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from agentsession.protocol import RULES, ConfigurationError, Rule

__all__ = ["load_expected"]


def load_expected(path: Path, table: Mapping[str, Rule] = RULES) -> Mapping[str, str]:
    """The reasons by rule id; ``table`` holds the rules that there are.

    Raises:
        ConfigurationError: the file cannot be read or is no TOML, names a rule that there is not, or gives no reason.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read", got=error.strerror or type(error).__name__, fix="name the file", id="no-file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, f"it is no TOML: {error}") from error
    strange = sorted(set(data) - {"expected"})
    if strange:
        raise _wrong(path, f"it has a table or key {strange[0]!r}")
    entries = data.get("expected", {})
    if not isinstance(entries, dict):
        raise _wrong(path, "expected is no table")
    for rule, reason in entries.items():
        if rule not in table:
            raise _wrong(path, f"there is no rule {rule!r}")
        if not isinstance(reason, str) or not reason.strip():
            raise _wrong(path, f"{rule} has no reason")
    return {str(rule): str(reason) for rule, reason in entries.items()}


def _wrong(path: Path, got: str) -> ConfigurationError:
    return ConfigurationError(
        "the file of expected failures cannot be used",
        where=str(path),
        got=got,
        expected='[expected] with lines such as CTL-06 = "why it fails"',
        fix="mend it, or leave --expected out",
        id="expected-failures",
    )
