"""Compares how soon our marts and Burrow's rules detect a frozen head or a dead consumer.

Both judge the same facts; the time counts from the incident to the tick that reports it.

    python -m bench.analytics.detect

Prints one table: median and longest time to detect of each, the bar, and the longest over the bar;
for ours also the time until the kind was named rightly. Nothing here depends on the machine: times
are those of the facts. The part `live-1k` measures the path from a fact to gold.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import at_most
from pipelines.backtest.rule_sets import Tried
from pipelines.backtest.run import backtest
from pipelines.backtest.scoring import Range
from pipelines.backtest.truths import Incident
from pipelines.base.settings import MS_US, SECOND_US, Evaluation
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake, sql_over, sql_text
from pipelines.rules.burrow.over_time import BurrowRules
from tests.pipelines.cluster_story import ClusterStory, moment
from tests.pipelines.in_process import driver_of, run_to_the_end

FIGURES: Final = Evaluation()
EXPIRY_S: Final = 120
"""A broker takes a silent client for dead after it (channelExpiredTimeout)."""
SLIDE_S: Final = FIGURES.slide_ms / 1000
FROZEN_HEAD_BAR: Final = at_most(3 * SLIDE_S, "s")
DEAD_CONSUMER_BAR: Final = at_most(EXPIRY_S + SLIDE_S, "s")

BEGIN_S: Final = 120
"""Before the first incident rings and windows are filled."""
PHASES: Final = 5
"""Incidents of each kind, a second apart: so they fall anywhere between two ticks and commits."""
END_S: Final = BEGIN_S + PHASES + EXPIRY_S + 60
SHIP_EVERY_S: Final = 20


@dataclass(frozen=True, slots=True)
class Detected:
    """Seconds from the incident until it was found; incidents that nobody found are missing."""

    kind: str
    rules: str
    planted: int
    after_s: tuple[float, ...]

    @property
    def longest_s(self) -> float | None:
        """None when one was missed: that took longer than anything."""
        return max(self.after_s) if len(self.after_s) == self.planted else None


def measured() -> list[Detected]:
    """Both kinds, by each rule set."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        lake = Path(folder) / "lake"
        incidents = write_story(lake)
        run_to_the_end(driver_of(lake, evaluation=FIGURES))
        return detections(Lake.at(str(lake)), incidents)


def measure(folder: Path, scale: float) -> list[Figure]:
    """The part `detect`: one figure a kind and rule set. It is the same at any scale."""
    del folder, scale
    clock = Clock()
    found = measured()
    spent = clock.spent()
    bars = {"FROZEN_HEAD": FROZEN_HEAD_BAR, "DEAD_CONSUMER": DEAD_CONSUMER_BAR}
    return [
        Figure(
            f"longest time to detect, {one.kind.lower().replace('_', ' ')}, {one.rules}",
            one.longest_s,
            "s",
            bars[one.kind] if one.rules != "burrow" else None,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{len(one.after_s)} of {one.planted} found",
        )
        for one in found
    ]


def write_story(lake: Path) -> list[Incident]:
    """Write the story: listeners that do not return, and clients that die without a word."""
    story = ClusterStory(lake)
    for number in range(PHASES):
        story.group(f"frozen-{number}", [f"frozen-{number}-1"], queues=1)
        story.group(f"dead-{number}", [f"dead-{number}-1"], queues=1)
    story.run(BEGIN_S, ship_every=SHIP_EVERY_S)
    incidents = []
    for number in range(PHASES):
        story.freeze(story.queue(f"frozen-{number}", 0))
        # It pulls, commits and answers no more; until it expires the broker counts it as a member.
        story.queue(f"dead-{number}", 0).owner = None
        incidents += [_incident(kind, number) for kind in ("frozen", "dead")]
        story.run(1, ship_every=SHIP_EVERY_S)
    story.run(EXPIRY_S - PHASES, ship_every=SHIP_EVERY_S)
    for number in range(PHASES):
        client = f"dead-{number}-1"
        story.queue(f"dead-{number}", 0).owner = client
        story.lose(f"dead-{number}", client, kind="EXPIRED", reason="HEARTBEAT_EXPIRED")
        story.run(1, ship_every=SHIP_EVERY_S)
    story.run(END_S - story.second, ship_every=SHIP_EVERY_S)
    story.writer.ship()
    return incidents


def _incident(kind: str, number: int) -> Incident:
    group = f"{kind}-{number}"
    return Incident(
        moment(BEGIN_S + number),
        moment(END_S),
        group,
        "FROZEN_HEAD" if kind == "frozen" else "DEAD_CONSUMER",
        topic=f"topic-{group}",
        queue_id=0,
    )


def detections(lake: Lake, incidents: Sequence[Incident]) -> list[Detected]:
    """Hold what was found of a story against it."""
    outcome = backtest(
        lake,
        [Tried("ours", FIGURES), Tried("burrow", BurrowRules())],
        incidents,
        Range(moment(BEGIN_S - 10), moment(END_S), 0),
        golds={FIGURES: lake},
        every_us=FIGURES.slide_ms * MS_US,
        warm_up_us=BEGIN_S * SECOND_US,
        say=lambda _line: None,
    )
    found = []
    for kind in ("FROZEN_HEAD", "DEAD_CONSUMER"):
        of_kind = [one for one in incidents if one.kind == kind]
        for name, score in outcome.scores.items():
            after_us = [
                one.detected_after_us
                for one in score.findings
                if one.incident.kind == kind and one.detected_after_us is not None
            ]
            found.append(_detected(kind, name, len(of_kind), after_us))
        named_us = [us for one in of_kind if (us := _named_after_us(lake, one)) is not None]
        found.append(_detected(kind, "ours, kind named", len(of_kind), named_us))
    return found


def _detected(kind: str, rules: str, planted: int, after_us: Sequence[int]) -> Detected:
    return Detected(kind, rules, planted, tuple(sorted(us / SECOND_US for us in after_us)))


def _named_after_us(lake: Lake, incident: Incident) -> int | None:
    address = lake.gold("stalled_windows")
    sql = (
        "SELECT min(observed_at) AS named FROM found"  # noqa: S608 - ours
        f' WHERE "group" = {sql_text(incident.group)} AND kind = {sql_text(incident.kind)}'
    )
    (row,) = sql_over({"found": lake.table(address)}, sql, what=address).to_pylist()
    return None if row["named"] is None else micros(row["named"]) - incident.begin_us


def table_of(found: Sequence[Detected]) -> Table:
    """Times, bars, and the longest over its bar."""
    title = f"time to detect, {PHASES} incidents of each kind, slide {SLIDE_S:g} s"
    table = Table(title=title)
    for name in ("kind", "rules", "found", "middle s", "longest s", "bar", "longest ÷ bar"):
        table.add_column(name, justify="left" if name in ("kind", "rules") else "right")
    bars = {"FROZEN_HEAD": FROZEN_HEAD_BAR, "DEAD_CONSUMER": DEAD_CONSUMER_BAR}
    for one in found:
        bar, longest_s = bars[one.kind], one.longest_s
        table.add_row(
            one.kind,
            one.rules,
            f"{len(one.after_s)} of {one.planted}",
            f"{median(one.after_s):.1f}" if one.after_s else "never",
            "never" if longest_s is None else f"{longest_s:.1f}",
            str(bar),
            "never" if longest_s is None else f"{longest_s / bar.limit:.2f}",
        )
    return table


def main() -> None:
    """Measure, and print the table."""
    Console(width=140).print(table_of(measured()))


if __name__ == "__main__":
    main()
