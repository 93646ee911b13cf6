"""What costs a broker something it knew: a death, a lost offsets file, a log that was cut.

Place in the walk: conditions on staged lifecycle rows, which the risks of duplicates and the causes
of offset violations share. Invariant: a clean stop followed by a boot is no shock; it loses
nothing. Absent on purpose: when a shock matters, and for how long.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

OFFSETS_FILE: Final = "consumerOffset"
"""A DAMAGED_FILE whose detail names it has cost the broker its committed offsets."""


def broker_died() -> Column:
    """A boot after a stop that was not clean."""
    return (F.col("kind") == "BOOT") & (F.col("clean") == F.lit(False))


def offsets_lost() -> Column:
    """The offsets file was damaged or gone."""
    return (F.col("kind") == "DAMAGED_FILE") & F.contains(F.col("detail"), F.lit(OFFSETS_FILE))


def log_cut() -> Column:
    """Recovery cut the log."""
    return F.col("truncated_from") < F.col("truncated_to")
