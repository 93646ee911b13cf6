"""Backtests every rule set over one time range of a lake.

Place in the walk: `tidemark backtest` and the bench of detection. Gold that was computed with the
figures asked for is taken as it is recorded; with others a replay computes it. Invariant: what is
held at a time is one batch of groups (`verdicts.BATCH_ROWS`), or one stretch of gold (ROWS_MAX).
Absent on purpose: Spark; the job of a replay is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from engine.foundation.errors import ConfigError, LakeError
from pipelines.alerting.rule_tables import watched
from pipelines.backtest.playing import (
    ENDED,
    LIVING,
    AlertRules,
    Player,
    left_out_in_words,
    ticks_of,
)
from pipelines.backtest.rule_sets import Tried
from pipelines.backtest.scoring import Heard, Range, Score, Told, add_alerts, add_group
from pipelines.backtest.truths import Incident
from pipelines.backtest.verdicts import (
    BATCH_ROWS,
    Batch,
    Group,
    batches_of,
    judged_to_us,
    verdicts_of_others,
    verdicts_of_ours,
)
from pipelines.base.settings import HOUR_US, LOOK_BACK_US, Evaluation, Pace
from pipelines.base.time_units import moment_at
from pipelines.cycles.driver import Job
from pipelines.cycles.plan import settings_of
from pipelines.cycles.replaying import replay, require
from pipelines.lake.lake import Lake, sql_moment
from pipelines.reading.moment import Moment, last_complete
from pipelines.rules.observations import Ticks

REPLAYED_ROWS_PER_CYCLE: Final = 2_000_000
"""Bronze rows that a cycle of a replay takes."""

Golds = Mapping[Evaluation, Lake]
"""Per figures of ours, the lake whose gold was computed with them."""
Moments = np.ndarray[Any, np.dtype[np.int64]]

STRETCH_US: Final = 24 * HOUR_US
ROWS_MAX: Final = 2_000_000
"""Rows of a table in a stretch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a backtest."""

    over: Range
    """The range that was tried: it ends where the gold of ours does."""
    groups: int
    scores: Mapping[str, Score]
    """By rule set, in the order in which they were asked for."""
    has_truth: bool
    """Were incidents known? Without, nothing is found, missed or false."""
    silent: tuple[str, ...] = ()
    """Groups with incidents of which no fact of the range speaks: perhaps a name that is wrong."""


def backtest(
    lake: Lake,
    tried: Sequence[Tried],
    incidents: Sequence[Incident] | None,
    over: Range,
    *,
    golds: Golds,
    every_us: int,
    warm_up_us: int,
    say: Callable[[str], None],
    batch_rows: int = BATCH_ROWS,
) -> Outcome:
    """Try rule sets on [over.begin, over.end) of a lake.

    every_us: distance of the ticks at which others speak, and at which rules of alerts look.
    warm_up_us: so long before the range facts are read from, so that a rule set knows what came
    before it. batch_rows: facts that are held at a time; which they are changes no outcome.

    ConfigError for an incident of a group that two clusters have; LakeError when gold ends before
    the range begins.
    """
    alerts = {one.name: one.rules for one in tried if isinstance(one.rules, AlertRules)}
    over = _judged(over, [*golds.values(), *([lake] if alerts else [])])
    others = {
        one.name: one.rules for one in tried if not isinstance(one.rules, Evaluation | AlertRules)
    }
    scores = {one.name: Score() for one in tried}
    by_group = {name: score for name, score in scores.items() if name not in alerts}
    facts_from_us = over.begin_us - warm_up_us
    first_us = over.begin_us // every_us * every_us - every_us
    ticks = Ticks(first_us, over.end_us, every_us)
    batches = batches_of(lake, facts_from_us, over.end_us, rows_max=batch_rows)
    truths = _by_group(incidents or (), [group for batch in batches for group in batch.groups])
    for number, batch in enumerate(batches, 1):
        verdicts = verdicts_of_others(lake, batch, others, ticks, facts_from_us=facts_from_us)
        verdicts |= _verdicts_of_ours(golds, tried, batch, over)
        for name, score in by_group.items():
            for group in batch.groups:
                of_group = [one for one in verdicts[name] if (one.cluster, one.group) == group]
                add_group(score, truths.get(group, ()), of_group, over)
        if len(batches) > 1:
            say(f"{number} of {len(batches)} parts of the groups")
    silent = truths.keys() - {group for batch in batches for group in batch.groups}
    for score in by_group.values():
        for group in sorted(silent):
            add_group(score, truths[group], (), over)
    for name, rules in alerts.items():
        if rules.left_out:
            say(f"{name}: {left_out_in_words(rules.left_out)}")
        begin_us = over.begin_us - warm_up_us
        heard = heard_of(lake, rules, begin_us=begin_us, end_us=over.end_us, every_us=every_us)
        add_alerts(scores[name], incidents or (), heard, over)
    groups = sum(len(batch.groups) for batch in batches)
    unheard = tuple(sorted({group for _, group in silent}))
    return Outcome(over, groups, scores, incidents is not None, unheard)


def golds_of(
    lake: Lake,
    tried: Sequence[Tried],
    over: Range,
    *,
    into: str,
    job: Callable[[], Job],
    say: Callable[[str], None],
) -> dict[Evaluation, Lake]:
    """The gold of ours: the lake's own where its figures are asked for; for others it is computed
    below `into`, by a job that is begun once, when it is needed.
    """
    evaluations = [one.rules for one in tried if isinstance(one.rules, Evaluation)]
    own = settings_of(lake)
    found = {one: lake for one in evaluations if one.as_text() == own}
    others = [one for one in dict.fromkeys(evaluations) if one not in found]
    targets = {
        figures: Lake.at(f"{into.rstrip('/')}/{number}") for number, figures in enumerate(others, 1)
    }
    from_us = over.begin_us - LOOK_BACK_US
    for target in targets.values():
        require(lake, target, from_us=from_us, to=over.end_us)
    begun = job() if targets else None
    for figures, target in targets.items():
        assert begun is not None
        say(f"computing gold with {figures.as_text()}")
        replay(
            begun,
            lake,
            target,
            from_us=from_us,
            to=over.end_us,
            evaluation=figures,
            pace=Pace(rows_per_cycle=REPLAYED_ROWS_PER_CYCLE),
            say=say,
        )
    return found | targets


def _judged(over: Range, golds: Iterable[Lake]) -> Range:
    """The part of the range that all gold has come to."""
    end_us = over.end_us
    for gold in golds:
        judged_us = judged_to_us(gold)
        if judged_us is None or judged_us <= over.begin_us:
            raise LakeError(
                f"the gold of {gold.root} ends before the range begins: let `tidemark pipeline run "
                f"--lake {gold.root}` catch up, or name an earlier range"
            )
        end_us = min(end_us, judged_us)
    return replace(over, end_us=end_us)


def _verdicts_of_ours(
    golds: Golds, tried: Sequence[Tried], batch: Batch, over: Range
) -> dict[str, list[Told]]:
    return {
        one.name: verdicts_of_ours(golds[one.rules], batch, over.begin_us, over.end_us)
        for one in tried
        if isinstance(one.rules, Evaluation)
    }


def _by_group(
    incidents: Sequence[Incident], groups: Sequence[Group]
) -> dict[Group, list[Incident]]:
    clusters: dict[str, list[str]] = {}
    for cluster, group in groups:
        clusters.setdefault(group, []).append(cluster)
    found: dict[Group, list[Incident]] = {}
    for one in incidents:
        known = clusters.get(one.group, [])
        if one.cluster is None and len(known) > 1:
            raise ConfigError(
                "cluster", None, f"one of {', '.join(known)}, which all have a group {one.group}"
            )
        cluster = one.cluster if one.cluster is not None else (known or [""])[0]
        found.setdefault((cluster, one.group), []).append(one)
    return found


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
