"""Keeps hourly state snapshots as replay starting points, later thinned to daily ones.

Place in the walk: the end of a cycle notes one in <lake>/state/snapshots; a replay starts from the
newest before its range; what no replay starts from any more is swept. Invariant: what `kept` names
is never swept, and nothing else is ever started from. Absent on purpose: the files themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from pipelines.base.settings import DAY_US, HOUR_US
from pipelines.cycles.cuts import Cut, newest_us
from pipelines.lake.lake import Lake, whole_table
from pipelines.lake.table_writes import append, shorten_log

SNAPSHOTS: Final = "snapshots"
HOURLY_US: Final = 2 * DAY_US
"""So far back each hour's state is kept; further back the first of each day."""
DAILY_US: Final = 31 * DAY_US
"""So far back one is kept at all: facts to go on with are kept for 30 days by default."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("run_id", pa.string(), False),
        pa.field("cycle", pa.int64(), False),
        pa.field("judged_to", pa.timestamp("us", tz="UTC"), False),
        pa.field("buckets", pa.int32(), False),
        pa.field("cuts", pa.string(), False),
        pa.field("chains", pa.string(), False),
        pa.field("recorded_at", pa.timestamp("us", tz="UTC"), False),
    ]
)


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state behind a cycle."""

    run_id: str
    cycle: int
    cuts: tuple[Cut, ...]
    """The cuts that the cycle took: the state stands at their ends."""
    chains: Mapping[int, tuple[str, ...]]
    """Per bucket, the state's files, as `keyed_state` records them."""
    buckets: int

    @property
    def judged_us(self) -> int:
        """No emitter was judged beyond this moment."""
        return newest_us(self.cuts)


def ends_an_hour(cuts: Sequence[Cut]) -> bool:
    """Does a cycle end in another hour of data time than it begins in?"""
    return (
        newest_us(cuts) // HOUR_US > max((cut.time_from_us for cut in cuts), default=0) // HOUR_US
    )


def keep(lake: Lake, state: KeptState) -> None:
    """Note a state. Of a cycle that is carried out twice the last note counts."""
    row = {
        "run_id": state.run_id,
        "cycle": state.cycle,
        "judged_to": state.judged_us,
        "buckets": state.buckets,
        "cuts": json.dumps([asdict(cut) for cut in state.cuts]),
        "chains": json.dumps(state.chains),
        "recorded_at": datetime.now(UTC),
    }
    append(lake, lake.state(SNAPSHOTS), pa.Table.from_pylist([row], _SCHEMA))
    shorten_log(lake, lake.state(SNAPSHOTS))


def kept(lake: Lake) -> list[KeptState]:
    """The states that a replay of this lake may start from, oldest first."""
    address = lake.state(SNAPSHOTS)
    if not lake.exists(address):
        return []
    noted = {}
    for row in whole_table(lake.table(address)).sort_by("recorded_at").to_pylist():
        noted[row["cycle"]] = KeptState(
            row["run_id"],
            row["cycle"],
            tuple(Cut(**cut) for cut in json.loads(row["cuts"])),
            {int(bucket): tuple(names) for bucket, names in json.loads(row["chains"]).items()},
            row["buckets"],
        )
    newest = max((one.judged_us for one in noted.values()), default=0)
    return still_kept(noted.values(), newest)


def still_kept(states: Iterable[KeptState], now_us: int) -> list[KeptState]:
    """Each of the last two days, and the first of each day of the last month, oldest first."""
    found = []
    days: set[int] = set()
    for state in sorted(states, key=lambda one: one.judged_us):
        day, age_us = state.judged_us // DAY_US, now_us - state.judged_us
        if age_us <= HOURLY_US or (day not in days and age_us <= DAILY_US):
            found.append(state)
        days.add(day)
    return found


def kept_before(lake: Lake, moment_us: int) -> KeptState | None:
    """The newest kept state of a lake's run that judged nothing beyond a moment; None without."""
    found = [one for one in kept(lake) if one.judged_us <= moment_us]
    return found[-1] if found else None
