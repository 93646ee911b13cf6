"""Tracks the progress of each version-range reader so that upkeep retains what it needs.

Place in the walk: a driver notes where its newest plan begins, once that is recorded and before its
first file is read; upkeep asks before it vacuums or drops. Invariant: a place is never ahead of
what may still be read. Absent on purpose: the places that a driver goes on from, which are recorded
with its plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles

READERS: Final = ("pipeline",)
"""Everybody who reads tables of a lake by version range."""

_FOLDER: Final = "readers"


def note_places(lake: Lake, reader: str, versions: Mapping[str, int]) -> None:
    """Note that `reader` has read each table (`bronze/NAME`) up to the commit of that version, and
    will not read before it again."""
    assert reader in READERS, "upkeep asks for those alone"
    data = json.dumps({"reader": reader, "versions": dict(versions)}).encode()
    SmallFiles(lake).replace(_address(lake, reader), data)


def noted_places(lake: Lake) -> dict[str, dict[str, int]]:
    """Reader -> table -> version. Raises LakeError when a note is damaged: to vacuum without it
    could take away what a reader needs."""
    found: dict[str, dict[str, int]] = {}
    files = SmallFiles(lake)
    for reader in READERS:
        held = files.read(_address(lake, reader))
        if held is None:
            continue
        try:
            versions = json.loads(held.data)["versions"]
            found[reader] = {str(name): int(version) for name, version in versions.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(
                f"{_address(lake, reader)} is damaged ({error}): remove it; the reader notes its "
                "places again with its next cycle"
            ) from error
    return found


def _address(lake: Lake, reader: str) -> str:
    return f"{lake.state(_FOLDER)}/{reader}.json"
