"""How soon shipped alerts fire over rows: from what happens to data time at which a rule holds. The
way of a row to gold and of gold to the alerts comes on top, some six seconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.base.settings import SECOND_US, Evaluation
from pipelines.base.time_units import micros
from tests.needed_steps import needed_for
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter
from tests.pipelines.marts.played_group import Work, played_beside, steady
from tests.pipelines.partition import bronze_of, run
from tests.shipped_alerts import first_fired

PERIOD_S = 10
"""Of the observer: what happens between two looks is seen by the second."""
DIES_S = (121, 123, 125, 127, 129)
"""When each group's last member ends."""
RATE = 20
COMMIT_EACH_S = 5
UNTIL_S = 280


@pytest.fixture(scope="module")
def gone_s(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Groups that an observer sees each ten seconds, whose only members end: when it is known."""
    folder: Path = tmp_path_factory.mktemp("dead")
    observer = BronzeWriter(folder, broker="seen")
    observer.emitter = "cluster-1/seen/observer"
    for at in range(0, UNTIL_S + 1, PERIOD_S):
        observer.at(at)
        if at == 0:
            observer.report("lifecycle", kind="BOOT")
            observer.report("lifecycle", kind="OBSERVED", report_each_ms=PERIOD_S * 1000)
        for dies_s in DIES_S:
            _mark(observer, at, dies_s)
        observer.ship()
    gold = run(needed_for("stalled_windows", "group_state"), bronze_of(folder), Evaluation())
    fired = first_fired(gold, every_us=PERIOD_S * SECOND_US, only="ConsumersGone")
    return {group: (at_us - START_US) / SECOND_US for (_, group), at_us in fired.items()}


def _mark(observer: BronzeWriter, at: int, dies_s: int) -> None:
    reported_s = min(at, dies_s) // COMMIT_EACH_S * COMMIT_EACH_S
    waits = reported_s < at
    observer.report(
        "group_watermarks",
        group=f"dies at {dies_s}",
        topic=f"topic {dies_s}",
        queue_id=0,
        committed=RATE * reported_s,
        committed_state="EXACT" if waits else "AT_END",
        store_time_at_committed=START_US + reported_s * SECOND if waits else None,
        last_store_time=START_US + at * SECOND,
        min_offset=0,
        max_offset=RATE * at,
        reports=1,
        message_model="CLUSTERING",
        members=int(at < dies_s),
    )


@pytest.mark.parametrize("dies_s", DIES_S)
def test_consumers_that_are_gone_are_reported_within_a_minute_where_a_look_takes_ten_seconds(
    gone_s: dict[str, float], dies_s: int
) -> None:
    after_s = gone_s[f"dies at {dies_s}"] - dies_s
    assert 30 < after_s <= 50, "not of a restart, and with ten seconds left for the way"


def burst() -> Work:
    """Messages that come twice as fast as they are finished for two minutes, and not after that."""
    usual = steady(produced=20, consumed=20, commit_s=5, seconds=UNTIL_S)

    def finished(at: float) -> int:
        return usual.end(max(0.0, at - 1)) - int(10 * max(0.0, min(at - 30, 120, 270 - at)))

    return replace(usual, finished=finished)


def test_lag_that_grows_in_every_minute_is_reported_within_three_and_a_burst_of_two_is_not() -> (
    None
):
    works = [
        steady(produced=20, consumed=10, commit_s=5, seconds=UNTIL_S),
        steady(produced=20, consumed=10, commit_s=5, seconds=UNTIL_S, reports=False),
        burst(),
    ]
    found, silent, of_burst = played_beside(works)
    for group, gold in (("g0", found), ("g1", silent)):
        fired = first_fired(gold, every_us=PERIOD_S * SECOND_US, only="LagGrows")
        beyond_us = min(
            micros(row["observed_at"])
            for row in gold["group_state"]
            if row["time_lag_ms"] is not None and row["time_lag_ms"] > 30_000
        )
        assert 150 <= (fired["LagGrows", group] - beyond_us) / SECOND_US <= 175, group
    assert max(row["time_lag_ms"] or 0 for row in of_burst["group_state"]) > 50_000
    assert not first_fired(of_burst, every_us=PERIOD_S * SECOND_US, only="LagGrows")
