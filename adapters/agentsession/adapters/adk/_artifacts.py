"""The artifacts of one ADK session: copied with a fork, removed with the session.

Not for: telling of artifacts (the translator does), or restoring them in a rewind (ADK does). May import: google.adk.

Only the session's own are meant: what is saved as ``user:NAME`` belongs to the user, and all sessions share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.events.event import Event as AdkEvent
from google.genai import types

__all__ = ["copy_artifacts", "delete_artifacts"]

_OF_THE_USER: Final = "user:"


async def copy_artifacts(
    service: BaseArtifactService,
    app_name: str,
    source: tuple[str, str],
    target: tuple[str, str],
    events: Iterable[AdkEvent],
) -> None:
    """Copy the versions that ``events`` tell of, and those before them, from one (user, session) to another.

    The copy has the same numbers where the service counts from 0 without a gap; elsewhere the deltas of ``events``,
    which are changed for it, name the numbers that the copies have got.
    """
    deltas = [event.actions.artifact_delta for event in events if event.actions.artifact_delta]
    last: dict[str, int] = {}
    for delta in deltas:
        for name, version in delta.items():
            if not name.startswith(_OF_THE_USER):
                last[name] = max(version, last.get(name, 0))
    there = {"app_name": app_name, "user_id": source[0], "session_id": source[1]}
    here = {"app_name": app_name, "user_id": target[0], "session_id": target[1]}
    made: dict[tuple[str, int], int] = {}
    for name, highest in last.items():
        for version in sorted(await service.list_versions(filename=name, **there)):
            if version > highest:
                break
            part = await service.load_artifact(filename=name, version=version, **there)
            about = await service.get_artifact_version(filename=name, version=version, **there)
            made[name, version] = await service.save_artifact(
                filename=name,
                artifact=part if part is not None else _absent(),
                custom_metadata=dict(about.custom_metadata) if about is not None and about.custom_metadata else None,
                **here,
            )
    for delta in deltas:
        for name, version in delta.items():
            delta[name] = made.get((name, version), version)


def _absent() -> types.Part:
    """What every service of ADK loads as absent: the version that a rewind saves for a file that was not there yet."""
    return types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))


async def delete_artifacts(service: BaseArtifactService, app_name: str, user_id: str, session_id: str) -> None:
    """Remove every version of each artifact of the session."""
    scope = {"app_name": app_name, "user_id": user_id, "session_id": session_id}
    for name in await service.list_artifact_keys(**scope):
        if not name.startswith(_OF_THE_USER):
            await service.delete_artifact(filename=name, **scope)
