"""How often messages fail now, and how fast an objective is used up: figures made at each look."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.alerting.derived_tables import SPAN_US, burn_of, rates_of
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.objectives import Objectives, ObjectivesFile, objectives_of
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.lake.lake import Lake
from tests.alert_stories import NOON, NOON_US
from tests.pipelines.emitted_in_steps import Story, keeps_up, stands

ONE_PERCENT = objectives_of({"objective": [{"group": "pay*", "lag": "1m", "share": 99}]})
LAST = NOON_US // SPAN_US


def totals(**figures: int | None) -> pl.DataFrame:
    """Totals of one origin: first seen, an hour before, five minutes before, and now."""
    names = ("first", "before", "lately", "newest")
    row = {"emitter": "c/b/0", "cluster": "c", "group": "g", "origin_topic": "t"}
    came = {f"came_back_{name}": None for name in names}
    return pl.DataFrame([row | {name: figures.get(name) for name in names} | came])


@pytest.mark.parametrize(
    ("figures", "failed", "before"),
    [
        ({"first": 10, "before": 100, "lately": 160, "newest": 400}, 240, 60),
        # Nothing failed between: the last total before holds.
        ({"first": 10, "before": 100, "lately": 100, "newest": 100 + 7}, 7, 0),
        # The first total of a day: how many of it are new nobody knows.
        ({"first": 5_000, "newest": 5_100}, 100, 0),
        ({"first": 50, "lately": 80, "newest": 80}, 0, 30),
    ],
)
def test_failures_are_differences_of_totals(
    figures: dict[str, int], failed: int, before: int
) -> None:
    (row,) = rates_of(totals(**figures), NOON).to_dicts()
    assert (row["failed_5m"], row["failed_hour"]) == (failed, before)
    assert row["usual_5m"] == -(-before // 12)
    assert f" failed {failed:,} message{'s' * (failed != 1)} within 5 min" in row["evidence"]


def test_a_group_without_failures_lately_has_no_row_and_origins_are_one_group() -> None:
    quiet = totals(first=9, before=9, lately=9, newest=9)
    assert rates_of(quiet, NOON).is_empty()
    assert rates_of(pl.DataFrame(), NOON).is_empty()
    both = pl.concat(
        [
            totals(first=0, newest=3),
            totals(first=0, newest=4).with_columns(emitter=pl.lit("c/b2/0")),
        ]
    )
    assert rates_of(both, NOON)["failed_5m"].to_list() == [7]


def test_what_comes_back_to_a_pop_group_is_counted_beside_failures_and_is_none() -> None:
    came = {f"came_back_{name}": pl.lit(value) for name, value in {"first": 0, "before": 0,
            "lately": 24, "newest": 114}.items()}  # fmt: skip
    (row,) = rates_of(totals(first=0, newest=0).with_columns(**came), NOON).to_dicts()
    figures = [row[name] for name in ("failed_5m", "came_back_5m", "usual_came_back_5m")]
    assert figures == [0, 90, 2]
    assert row["evidence"] == (
        "90 invisible times of group g ran out within 5 min, and 24 in the hour before, about 2 "
        "each 5 min."
    )


def slots(*given: tuple[int, int | None, int | None], **where: Any) -> pl.DataFrame:
    """Roll-ups: slots before the newest, time lag in ms at most, messages at its end."""
    return pl.DataFrame(
        [
            {
                "observed_at": NOON - timedelta(minutes=5 * ago),
                "emitter": "c/b/0",
                "cluster": "c",
                "broker": "b",
                "group": "pay",
                "topic": "t",
                "queue_id": 0,
                "time_lag_ms_max": lag_ms,
                "time_lag_ms_last": lag_ms,
                "lag_last": messages,
                "last_at": NOON - timedelta(minutes=5 * ago),
                **where,
            }
            for ago, lag_ms, messages in given
        ],
        schema_overrides={"time_lag_ms_max": pl.Int64, "time_lag_ms_last": pl.Int64,
                          "lag_last": pl.Int64},
    )  # fmt: skip


def burnt(frame: pl.DataFrame, objectives: Objectives = ONE_PERCENT) -> dict[str, Any]:
    (row,) = burn_of(frame, objectives, LAST).to_dicts()
    return row


QUICK = (0, 0)


def test_two_slots_of_an_hour_are_sixteen_times_what_one_percent_allows() -> None:
    row = burnt(slots(*((ago, *QUICK) for ago in range(2, 80)), (1, 70_000, 5), (0, 90_000, 5)))
    figures = {name: row[f"burn_{name}"] for name in ("5m", "30m", "1h", "6h")}
    assert figures == {"5m": 100, "30m": 33, "1h": 16, "6h": 2}
    assert (row["behind_1h_ms"], row["behind_6h_ms"], row["state"]) == (600_000, 600_000, "BEHIND")
    assert "10 min of the last hour" in row["evidence"]


def test_a_queue_that_is_reported_no_more_holds_on_and_what_waits_grows_older() -> None:
    stuck = slots((2, 30_000, 7))
    moves = slots((2, *QUICK), (1, *QUICK), (0, *QUICK), queue_id=1)
    row = burnt(pl.concat([stuck, moves]))
    assert (row["burn_30m"], row["state"]) == (33, "BEHIND"), "30 s, then 5 min 30 s and 10 min"
    idle = slots((2, *QUICK))
    assert burnt(pl.concat([idle, moves]))["burn_6h"] == 0


def test_what_is_unknown_counts_as_not_behind_and_is_said() -> None:
    row = burnt(slots((1, 90_000, 5), (0, None, None)))
    assert (row["state"], row["burn_5m"], row["burn_1h"]) == ("UNKNOWN", 0, 8)
    row = burnt(pl.concat([slots((0, None, None)), slots((0, 90_000, 5), queue_id=1)]))
    assert row["state"] == "BEHIND", "one queue is known to be"


def test_only_who_was_given_an_objective_has_a_rate() -> None:
    frame = slots((0, 90_000, 5), group="other")
    assert burn_of(frame, ONE_PERCENT, LAST).is_empty()
    assert burn_of(frame, Objectives(), LAST).is_empty()
    everybody = objectives_of({"default": {"lag": "2m"}})
    assert burnt(frame, everybody)["burn_5m"] == 0
    assert everybody.is_given
    assert not Objectives().is_given


def test_a_share_of_everything_allows_no_time_at_all() -> None:
    all_of_it = objectives_of({"default": {"lag": "1m", "share": 100}})
    assert burnt(slots((0, 90_000, 5)), all_of_it)["burn_6h"] > 1_000


def test_gold_is_looked_at_as_it_is_and_the_shipped_rules_find_it(tmp_path: Path) -> None:
    """A lake of forty minutes: `pay` stands for the last thirty, and its messages fail."""
    story = Story(tmp_path / "lake")
    broker = story.broker("b")
    for at_s in story.steps(2_400, broker, step_s=30):
        keeps_up(broker, "well", 10 * at_s)
        if at_s <= 600:
            keeps_up(broker, "pay", 10 * at_s)
        else:
            stands(broker, "pay", 10_000 + at_s)
        for number in range(40 if at_s > 2_100 else 1):
            broker.report(
                "retry_dlq_flow", group="pay", step="SENT_BACK", origin_topic="t",
                message_id=f"{at_s}-{number}", reconsume_times=1,
            )  # fmt: skip
    story.judge()
    file = tmp_path / "objectives.toml"
    file.write_text('[[objective]]\ngroup = "pay"\nlag = "1m"\n')
    gold = Gold(Lake.at(str(story.lake)), objectives=ObjectivesFile(file))
    wanted = ("RetrySurge", "ObjectiveBurnsFast")
    rules = [one for one in read_rules(shipped_files()).rules if one.name in wanted]
    looked = gold.look(rules, gold.moment(), now_us=NOON_US)
    assert not looked.unreadable
    (rates,) = looked.rows["retry_rates"].to_dicts()
    assert rates["group"] == "pay"
    assert 350 <= rates["failed_5m"] <= 400
    assert 60 <= rates["failed_hour"] <= 72
    (burn,) = looked.rows["objective_burn"].to_dicts()
    assert (burn["group"], burn["state"], burn["burn_5m"]) == ("pay", "BEHIND", 100)
    assert 33 <= burn["burn_1h"] <= 50

    file.write_text("[default]\n")
    looked = gold.look(rules, gold.moment(), now_us=NOON_US)
    assert looked.rows["objective_burn"].height == 2, "the file is read again"
    file.write_text("nonsense")
    assert gold.look(rules, gold.moment(), now_us=NOON_US).rows["objective_burn"].height == 2
