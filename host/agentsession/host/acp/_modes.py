"""Permission modes as ACP's session modes, and as the one config option.

Not for: what a mode allows (the policy). Rules carried: CTL-07. May import: ``acp.schema``.
"""

from __future__ import annotations

from typing import Final

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

__all__ = ["MODES", "MODE_OPTION", "config_options", "mode_state"]

MODES: Final = {
    "default": ("Default", "What only reads runs; the rest is asked."),
    "plan": ("Plan", "Only what reads."),
    "auto_edit": ("Auto-edit", "Edits run unasked."),
    "autonomous": ("Autonomous", "Nothing is asked that the policy does not forbid."),
}
MODE_OPTION: Final = "mode"


def mode_state(current: str) -> SessionModeState:
    """All modes, and the one that holds."""
    listed = [SessionMode(id=mode, name=name, description=words) for mode, (name, words) in _with(current).items()]
    return SessionModeState(current_mode_id=current, available_modes=listed)


def config_options(current: str) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """The whole list of options."""
    listed = [
        SessionConfigSelectOption(value=mode, name=name, description=words)
        for mode, (name, words) in _with(current).items()
    ]
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE_OPTION,
            name="Permission mode",
            category="mode",
            current_value=current,
            options=listed,
        )
    ]


def _with(current: str) -> dict[str, tuple[str, str]]:
    return MODES if current in MODES else {**MODES, current: (current, "")}
