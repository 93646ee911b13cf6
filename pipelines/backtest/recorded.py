"""Reads gold's rows over a past range in time order, one stretch at a time.

Place in the walk: gold → `playing`. Invariant: what is held at a time are the rows of a stretch,
and what the player keeps. A stretch with more than ROWS_MAX rows of a table is an error that says
so. Absent on purpose: what rows mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from engine.foundation.errors import ConfigError, LakeError
from pipelines.alerting.rule_tables import watched
from pipelines.backtest.playing import ENDED, LIVING, AlertRules, Player, ticks_of
from pipelines.backtest.scoring import Heard
from pipelines.base.settings import HOUR_US, LOOK_BACK_US
from pipelines.base.time_units import moment_at
from pipelines.lake.lake import Lake, sql_moment
from pipelines.reading.moment import Moment, last_complete

Moments = np.ndarray[Any, np.dtype[np.int64]]

STRETCH_US: Final = 24 * HOUR_US
ROWS_MAX: Final = 2_000_000
"""Rows of a table in a stretch."""


def heard_of(gold: Lake, rules: AlertRules, *, begin_us: int, end_us: int, every_us: int) -> Heard:
    """What rules of alerts would have sent from `begin_us` to `end_us`, looking at ticks of
    `every_us`. LakeError for gold that cannot be read."""
    moment = last_complete(gold)
    if moment is None:
        raise LakeError(f"no cycle of {gold.root} is complete yet: there is no gold to look at")
    spans_us = rules.spans_us
    from_us = begin_us - LOOK_BACK_US - max(spans_us.values())
    source = _Source(gold, moment)
    if source.rows(ENDED, from_us, end_us).height:
        spans_us |= {LIVING: 0}
    player = Player(rules, spans_us)
    player.look(begin_us, {name: source.rows(name, from_us, begin_us) for name in spans_us})
    for start_us in range(begin_us, end_us, STRETCH_US):
        until_us = min(start_us + STRETCH_US, end_us)
        stretch = {name: source.rows(name, start_us, until_us) for name in spans_us}
        _play(player, stretch, ticks_of(_moments(stretch), start_us, until_us, every_us))
    return player.heard()


def _play(player: Player, stretch: Mapping[str, pl.DataFrame], ticks: Sequence[int]) -> None:
    ends = {
        name: np.searchsorted(_observed(rows), ticks, side="right").tolist()
        for name, rows in stretch.items()
    }
    begins = dict.fromkeys(stretch, 0)
    player.expect(stretch)
    for number, tick_us in enumerate(ticks):
        new = {}
        for name, rows in stretch.items():
            begin, end = begins[name], ends[name][number]
            if end > begin:
                new[name] = rows[begin:end]
                begins[name] = end
        player.look(tick_us, new)


def _moments(stretch: Mapping[str, pl.DataFrame]) -> list[int]:
    found: set[int] = set()
    for rows in stretch.values():
        found.update(rows["observed_at"].unique().cast(pl.Int64).to_list())
    return sorted(found)


def _observed(rows: pl.DataFrame) -> Moments:
    return rows["observed_at"].cast(pl.Int64).to_numpy()


class _Source:
    """The tables of a lake's gold, as they are seen at its last complete cycle."""

    def __init__(self, gold: Lake, moment: Moment) -> None:
        self._gold = gold
        self._moment = moment

    def rows(self, name: str, after_us: int, until_us: int) -> pl.DataFrame:
        """Those of (after, until], in the order of their time; none of a table that is not there.

        ConfigError for more than ROWS_MAX.
        """
        table, address = watched()[name].table, self._gold.gold(name)
        if not self._gold.exists(address):
            return watched()[name].none()
        wanted = (
            f"{self._moment.condition(table, since=moment_at(after_us))}"
            f" AND observed_at > {sql_moment(after_us)} AND observed_at <= {sql_moment(until_us)}"
        )
        rows = pl.from_arrow(self._gold.rows(address, wanted, table.columns))
        assert isinstance(rows, pl.DataFrame)
        if rows.height > ROWS_MAX:
            raise ConfigError(
                "--from, --to",
                f"{rows.height:,} rows of {name} in a day",
                f"a range with at most {ROWS_MAX:,} of them: try a shorter one",
            )
        order = [one for one in ("observed_at", "seq") if one in rows.columns]
        return rows.sort(order, maintain_order=True)
