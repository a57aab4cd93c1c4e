"""Is google-adk here, and is it a release that this adapter was tested with? Asked once, before anything imports it.

Not for: importing ADK (the modules beside this one do, after ``require_adk`` said yes).
May import: protocol and the standard library, never google.

The range is that of the ``adk`` extra in pyproject.toml (a test keeps them equal). ADK's minor releases move names and
semantics that this adapter relies on, so another minor is refused, not tried (docs/decisions/0010-adk-mapping.md).
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from typing import Final

from agentsession.protocol import ConfigurationError

__all__ = ["ADK_RANGE", "AdkMissing", "AdkUnsupported", "check_adk_version", "require_adk"]

ADK_RANGE: Final = ">=2.13,<2.14"
"""The releases of google-adk that this adapter is tested with."""

_LOWEST: Final = (2, 13)
_BEYOND: Final = (2, 14)
_INSTALL: Final = 'pip install "agent-session-protocol[adk]"'


class AdkMissing(ConfigurationError, ImportError):
    """google-adk is not installed. Also an ImportError, for whom that is the natural thing to catch."""

    default_id = "extra-missing"


class AdkUnsupported(ConfigurationError, ImportError):
    """google-adk is installed in a release outside :data:`ADK_RANGE`."""

    default_id = "adk-version"


@functools.cache
def require_adk() -> None:
    """Raise :class:`AdkMissing` or :class:`AdkUnsupported` unless a tested google-adk is installed. Imports nothing."""
    try:
        version = importlib.metadata.version("google-adk")
    except importlib.metadata.PackageNotFoundError:
        if _can_import("google.adk"):
            return  # vendored without metadata: its user knows what they do
        raise AdkMissing("google-adk is not installed", where="adapter adk", fix=_INSTALL) from None
    check_adk_version(version)


def check_adk_version(version: str) -> None:
    """Raise :class:`AdkUnsupported` unless ``version`` is within :data:`ADK_RANGE`."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not _LOWEST <= (int(found[1]), int(found[2])) < _BEYOND:
        raise AdkUnsupported(
            f"google-adk {version} is not supported",
            where="adapter adk",
            expected=f"google-adk{ADK_RANGE}",
            fix="pip install -U " + _INSTALL.removeprefix("pip install "),
        )


def _can_import(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
