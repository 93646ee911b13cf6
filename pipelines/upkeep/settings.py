"""Upkeep settings, including file-size tiers and limits on the work per round.

Invariant: nothing here changes what a reader finds within the days kept; it decides only in how
many files it lies, and how long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from engine.foundation.errors import ConfigError

MIB: Final = 1 << 20

TIERS_BYTES: Final = (1 * MIB, 8 * MIB, 32 * MIB)
"""Sizes that files grow through. Those that have not grown through a tier are merged up to it once
there are many of them, so that a row is rewritten a few times and not with every merge. The last is
as much as one merge holds in its hands, some hundred MiB once unpacked."""

FILES_BELOW_TIER_MAX: Final = 24
"""So many files that have not grown through a tier, and they are merged: a day has at most three
times as many, and one for each 16 MiB."""

COMPACTIONS_A_ROUND: Final = 8
"""Merges of one table in one round; a lake long left alone is worked off in several."""

DROPS_A_ROUND: Final = 30
"""Partitions of one table dropped in one round."""

LIFECYCLE_TABLE: Final = "bronze/lifecycle"
PLANS_TABLE: Final = "state/plans"
CYCLES_TABLE: Final = "state/cycles"

PLANS_DROPPED_A_ROUND: Final = 3
"""Days of plans dropped in one round: to keep their cycles in short takes seconds a day."""

SKEW_S: Final = 600
"""What the clocks of two writers of a table may differ by."""


def has_grown(size_bytes: int, tier_bytes: int) -> bool:
    """Has a file grown through a tier? From half of it on: two that have not fit into one, and one
    that was merged up to it has, although merged rows pack smaller.
    """
    return size_bytes >= tier_bytes // 2


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Figures of one maintainer."""

    bronze_days: int = 30
    """Facts are kept so long: a past range can be computed again from them."""
    gold_days: int = 400
    """Answers are kept so long: a year, and the same month of the year before."""
    dq_days: int = 90
    """Outcomes of checks (dq_results, dq_failures) are kept so long."""
    table_days: dict[str, int] = field(default_factory=dict)
    """Days of single tables, by `bronze/NAME` or `gold/NAME`; they win over the three above."""
    reader_hours: int = 6
    """A file that a merge replaced stays so long: no reader holds a version longer."""
    log_days: int = 2
    """A table's log entries stay so long below a checkpoint."""
    patience_days: int = 7
    """A reader that stopped holds back the dropping of days it has not read by this at most."""
    settle_s: int = 60
    """A day that is over is merged whole once no file of it is younger than this: late rows have
    come by then."""

    def __post_init__(self) -> None:
        for name in ("bronze_days", "gold_days", "dq_days", "reader_hours", "log_days"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "1 or more")
        for name in ("patience_days", "settle_s"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "0 or more")
        for name, days in self.table_days.items():
            if days < 1 or name.partition("/")[0] not in ("bronze", "gold"):
                raise ConfigError(
                    "days", f"{name}={days}", "bronze/TABLE or gold/TABLE, and 1 or more"
                )

    def days_of(self, table: str) -> int | None:
        """Days kept of `bronze/NAME`, `gold/NAME` or `state/NAME`; None for tables that are kept
        whole. Plans are kept as long as the facts they took, and in short as long as any gold.
        """
        if table in self.table_days:
            return self.table_days[table]
        folder, _, name = table.partition("/")
        if folder == "bronze" or table == PLANS_TABLE:
            return self.bronze_days
        if table == CYCLES_TABLE:
            chosen = (days for one, days in self.table_days.items() if one.startswith("gold/"))
            return max((self.gold_days, *chosen))
        if folder == "gold":
            return self.dq_days if name.startswith("dq_") else self.gold_days
        return None
