"""Events that cost a broker knowledge: a death, a lost offsets file, a truncated log.

Place in the walk: conditions on lifecycle facts, which the risks of duplicates and the causes of
offset violations share. Invariant: a clean stop followed by a boot is no loss. Absent on purpose:
when a loss matters, and for how long.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.staging.facts import is_one_of

BOOT: Final = "BOOT"
SPOOL_LOSS: Final = "SPOOL_LOSS"
"""Rows of the emitter were lost: what was reported before, and holds until it is reported
otherwise, may have been reported otherwise in them.
"""
OFFSETS_FILE: Final = "consumerOffset"
"""A DAMAGED_FILE whose detail names it has cost the broker its committed offsets."""


def broker_died(lifecycle: pa.Table) -> pa.ChunkedArray:
    """A boot after a stop that was not clean."""
    was_unclean = pc.fill_null(pc.invert(lifecycle["clean"]), False)
    return pc.and_(is_one_of(lifecycle["kind"], BOOT), was_unclean)


def offsets_lost(lifecycle: pa.Table) -> pa.ChunkedArray:
    """The offsets file was damaged or gone."""
    names_it = pc.fill_null(pc.match_substring(lifecycle["detail"], OFFSETS_FILE), False)
    return pc.and_(is_one_of(lifecycle["kind"], "DAMAGED_FILE"), names_it)


def log_cut(lifecycle: pa.Table) -> pa.ChunkedArray:
    """Recovery cut the log."""
    return pc.fill_null(pc.less(lifecycle["truncated_from"], lifecycle["truncated_to"]), False)
