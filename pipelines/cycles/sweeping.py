"""Which of the state's files are still needed, and removal of the others.

Place in the walk: the driver, now and then, behind a cycle that is done. Invariant: a file that a
cycle under way, a restart or a replay may start from is never removed: those of the last cycle that
is done, those of kept snapshots, and whatever is younger than an hour. Absent on purpose: gold and
bronze, which upkeep maintains.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import obstore

from pipelines.cycles.plan import Snapshot, records_of, snapshots_of
from pipelines.cycles.work import KEYED
from pipelines.lake import Lake
from pipelines.settings import SECOND_US
from pipelines.small_files import object_store

SPARED_S: Final = 3600.0
"""Files that are younger may belong to a cycle that nobody has recorded yet."""
HOURLY_US: Final = 48 * 3600 * SECOND_US
"""So far back every snapshot is kept; further back one a day."""
DAY_US: Final = 86_400 * SECOND_US


def kept_snapshots(snapshots: Iterable[Snapshot], now_us: int) -> list[Snapshot]:
    """Those that replays may start from: each of the last two days, and the first of each day."""
    kept = []
    days: set[int] = set()
    for snapshot in sorted(snapshots, key=lambda one: one.judged_us):
        day = snapshot.judged_us // DAY_US
        if snapshot.judged_us >= now_us - HOURLY_US or day not in days:
            kept.append(snapshot)
        days.add(day)
    return kept


def sweep(lake: Lake, run_id: str, chains: Mapping[int, tuple[str, ...]]) -> int:
    """Remove files of a run's state that nobody needs any more; returns how many."""
    snapshots = snapshots_of(records_of(lake))
    newest_us = max((one.judged_us for one in snapshots), default=0)
    needed = {_path(bucket, name) for bucket, names in chains.items() for name in names}
    for snapshot in kept_snapshots(snapshots, newest_us):
        for bucket, names in snapshot.chains.items():
            needed.update(_path(bucket, name) for name in names)
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


def _path(bucket: int, name: str) -> str:
    return f"{bucket}/{name}"
