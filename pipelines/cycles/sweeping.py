"""Removes files of the state that nothing needs any more.

Place in the walk: the driver, now and then, behind a cycle that is done. Invariant: a file that a
cycle under way, a restart or a replay may start from is never removed: those of the last cycle that
is done, those of states that are kept, and whatever is younger than an hour. Absent on purpose:
gold and bronze, which upkeep maintains.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import obstore

from pipelines.cycles.keyed_state import file_of
from pipelines.cycles.snapshots import kept
from pipelines.cycles.work import KEYED
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import object_store

SPARED_S: Final = 3600.0
"""Files that are younger may belong to a cycle that nobody has recorded yet."""


def sweep(lake: Lake, run_id: str, chains: Mapping[int, tuple[str, ...]]) -> int:
    """Remove files of a run's state that nobody needs any more; returns how many."""
    needed = {
        f"{bucket}/{file_of(recorded)}"
        for needed_chains in (chains, *(state.chains for state in kept(lake)))
        for bucket, names in needed_chains.items()
        for recorded in names
    }
    old_s = time.time() - SPARED_S
    folder = f"{lake.state(KEYED)}/{run_id}"
    if "://" not in lake.root:
        removed = [
            path
            for path in Path(folder).glob("*/*.state")
            if path.stat().st_mtime < old_s and str(path.relative_to(folder)) not in needed
        ]
        for path in removed:
            path.unlink()
        return len(removed)
    store, prefix = object_store(lake), folder.removeprefix(f"{lake.root}/")
    count = 0
    for listed in obstore.list(store, prefix=prefix):
        gone = [
            one["path"]
            for one in listed
            if one["last_modified"].timestamp() < old_s
            and one["path"].removeprefix(f"{prefix}/") not in needed
        ]
        if gone:
            obstore.delete(store, gone)
        count += len(gone)
    return count
