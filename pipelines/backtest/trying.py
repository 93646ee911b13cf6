"""Runs a backtest: every rule set over one range of a lake, group after group.

Place in the walk: `tidemark backtest` and the bench of detection call it. Gold that was computed
with the figures asked for is taken as it is recorded; with others a replay computes it.

Invariant: what is held at a time are the facts of one batch of groups (`verdicts.BATCH_ROWS`),
however long the range and however many groups. Absent on purpose: Spark; the job of a replay is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.foundation.errors import ConfigError, LakeError
from pipelines.backtest.playing import AlertRules, left_out_in_words
from pipelines.backtest.recorded import heard_of
from pipelines.backtest.scoring import Range, Score, Told, add_alerts, add_group
from pipelines.backtest.tried import Tried
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
from pipelines.base.settings import LOOK_BACK_US, Evaluation, Pace
from pipelines.cycles.driver import Job
from pipelines.cycles.plan import settings_of
from pipelines.cycles.replaying import replay, require
from pipelines.lake.lake import Lake
from pipelines.rules.observations import Ticks

REPLAYED_ROWS_PER_CYCLE: Final = 2_000_000
"""Bronze rows that a cycle of a replay takes."""

Golds = Mapping[Evaluation, Lake]
"""Per figures of ours, the lake whose gold was computed with them."""


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
