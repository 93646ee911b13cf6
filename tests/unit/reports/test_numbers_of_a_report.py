"""Rows of gold in, the numbers of a report out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from pipelines.alerting.objectives import Objective, Objectives
from pipelines.reports.comparing import Tendency, differences, judged, revised
from pipelines.reports.gathering import Gathered
from pipelines.reports.lag_report import lag_report, verdict_of
from pipelines.reports.numbers import GroupFigures, Numbers, Verdict, as_json, read_json
from tests.unit.reports.gathered import (
    CLUSTER,
    CUT,
    EMITTER,
    HOUR,
    at,
    course,
    gathered,
    risk,
    stall,
)

MINUTE = Objectives(Objective(60_000, 99.0))


def numbers(found: Gathered, objectives: Objectives = MINUTE) -> Numbers:
    return lag_report(found, objectives, lake="var/lake")


def one_group(found: Gathered, name: str = "orders") -> GroupFigures:
    return next(one for one in numbers(found).groups if one.group == name)


def test_a_group_is_behind_for_the_minutes_in_which_it_was_beyond_its_objective() -> None:
    of = one_group(gathered(course("orders", [5] * 45 + [90] * 15)))
    assert (of.within_s, of.behind_s, of.unknown_s) == (45 * 60, 15 * 60, 0)
    assert of.share_percent == 75.0
    assert of.verdict is Verdict.MISSED
    assert (of.worst_ms, of.end_ms, of.lag_max) == (90_000, 90_000, 900)
    assert of.worst_at_us == int(at(46).timestamp() * 1_000_000)
    assert of.course == "w" * 45 + "b" * 15


@pytest.mark.parametrize(
    ("within", "behind", "unknown", "verdict"),
    [
        (3600, 0, 0, Verdict.KEPT),
        (3564, 36, 0, Verdict.KEPT),
        (3500, 0, 100, Verdict.UNCLEAR),
        (3564, 0, 36, Verdict.KEPT),
        (3500, 37, 63, Verdict.MISSED),
        (0, 0, 3600, Verdict.UNCLEAR),
        (0, 60, 3540, Verdict.MISSED),
        (0, 36, 3564, Verdict.UNCLEAR),
    ],
)
def test_an_objective_is_kept_or_missed_only_when_the_unknown_cannot_change_it(
    within: int, behind: int, unknown: int, verdict: Verdict
) -> None:
    assert verdict_of(within, behind, unknown, 99.0) is verdict


def test_time_of_which_nothing_was_reported_between_is_unknown_and_no_part_of_the_share() -> None:
    found = gathered(course("orders", [5] * 20), course("orders", [5] * 20, first=40))
    of = one_group(found)
    assert (of.within_s, of.unknown_s, of.share_percent) == (2400, 1200, 100.0)
    assert of.verdict is Verdict.UNCLEAR
    assert of.course == "w" * 20 + "?" * 20 + "w" * 20


def test_a_queue_that_is_unknown_makes_the_group_unknown_but_not_less_behind() -> None:
    rows = course("orders", [5, None, 90])
    rows[0]["unknown_queues"] = rows[2]["unknown_queues"] = 1
    of = one_group(gathered(rows))
    assert of.course[:3] == "??b"


def test_a_broker_that_has_not_been_judged_to_the_end_leaves_the_end_unknown() -> None:
    found = gathered(
        course("orders", [5] * 60), reached=[{"emitter": EMITTER, "judged_to": at(30)}]
    )
    of, all_of_it = one_group(found), numbers(found)
    assert (of.within_s, of.unknown_s, of.state) == (1800, 1800, "UNKNOWN")
    assert of.end_ms == 5000
    assert not all_of_it.emitters[0].reaches_end
    assert " is not known yet" in all_of_it.headline


def test_while_gold_says_that_nothing_is_known_the_lag_before_says_nothing() -> None:
    place = {"emitter": EMITTER, "cluster": CLUSTER, "group": "orders"}
    states = [
        {**place, "observed_at": at(-5), "state": "OK", "queues_known": 4},
        {**place, "observed_at": at(10), "state": "UNKNOWN", "queues_known": 0},
        {**place, "observed_at": at(20), "state": "OK", "queues_known": 4},
    ]
    of = one_group(gathered(course("orders", [5] * 60), states=states))
    assert of.course == "w" * 10 + "?" * 10 + "w" * 40
    assert of.state == "OK"


def test_a_group_that_came_or_went_is_judged_for_the_time_it_was_there() -> None:
    found = gathered(course("late", [90] * 10, first=50), course("gone", [5] * 10))
    late, gone = one_group(found, "late"), one_group(found, "gone")
    assert (late.behind_s, late.unknown_s, late.share_percent) == (600, 0, 0.0)
    assert (gone.within_s, gone.unknown_s) == (600, 0)
    assert gone.course == "w" * 10 + "-" * 50


def test_what_gold_does_not_cover_yet_is_unknown() -> None:
    of = one_group(replace(gathered(course("orders", [5] * 30, first=30)), known_from=at(30)))
    assert (of.within_s, of.unknown_s) == (1800, 1800)


def test_a_group_on_two_brokers_is_as_far_behind_as_the_worse_of_them() -> None:
    other = "Prod/broker-b/0"
    found = gathered(
        course("orders", [5] * 60),
        course("orders", [90] * 30 + [None] * 30, emitter=other),
        reached=[{"emitter": one, "judged_to": at(60)} for one in (EMITTER, other)],
    )
    of = one_group(found)
    assert of.course == "b" * 30 + "?" * 30
    assert of.lag_max == 950


@pytest.mark.parametrize(
    ("lags", "figures", "said"),
    [
        ([5] * 45 + [90] * 15, (90_000, 90_000, 900, False, False), "1 min 30 s"),
        ([90] * 30 + [None] + [5] * 29, (90_000, 5_000, 900, True, False), "at least 1 min 30 s"),
        ([5] * 59 + [None], (5_000, 5_000, 50, True, False), "at least 5.0 s"),
    ],
)
def test_with_a_queue_unknown_at_times_what_was_most_is_the_least(
    lags: list[int | None], figures: tuple[object, ...], said: str
) -> None:
    of = one_group(gathered(course("orders", lags)))
    assert (of.worst_ms, of.end_ms, of.lag_max, of.is_part, of.end_is_part) == figures
    assert of.worst == said


def test_a_queue_that_is_unknown_at_the_end_makes_the_lag_of_the_end_the_least() -> None:
    found = gathered(course("orders", [5] * 60))
    last = pl.col("slot") == pl.col("slot").max()
    unknown = pl.when(last).then(1).otherwise("unknown_queues").alias("unknown_queues")
    of = one_group(replace(found, slots=found.slots.with_columns(unknown)))
    assert (of.end_ms, of.is_part, of.end_is_part) == (5_000, True, True)


def test_two_reports_say_at_least_where_one_knew_a_part_and_call_it_no_tendency() -> None:
    whole = numbers(gathered(course("orders", [5] * 45 + [90] * 15)))
    part = numbers(gathered(course("orders", [None] * 10 + [5] * 49 + [80])))
    worst = {
        one.difference.figure: (str(one.difference), one.tendency) for one in judged(whole, part)
    }
    said, tendency = worst["worst_ms"]
    assert said.endswith("worst_ms 90000 → at least 80000")
    assert tendency is Tendency.OPEN


def test_the_worst_group_comes_first_and_makes_the_headline() -> None:
    found = numbers(
        gathered(
            course("well", [1] * 60),
            course("bad", [5] * 30 + [400] * 30),
            course("worse", [90] * 60),
            course("dark", [None] * 60),
        )
    )
    assert [one.group for one in found.groups] == ["worse", "bad", "dark", "well"]
    assert found.headline == (
        "2 of 4 groups missed the objective, worse most: behind for 100 % of the time, by "
        "1 min 30 s at worst. Too little is known of 1 group."
    )


def test_each_group_is_held_against_its_own_objective() -> None:
    own = Objectives(Objective(60_000, 99.0), (("*", "pay*", Objective(1_000, 50.0)),))
    found = numbers(gathered(course("payments", [5] * 20 + [0] * 40), course("mail", [5])), own)
    payments = next(one for one in found.groups if one.group == "payments")
    assert (payments.objective_ms, payments.behind_s) == (1_000, 1200)
    assert payments.verdict is Verdict.KEPT


def test_of_a_stall_counts_the_part_that_lies_in_the_period() -> None:
    found = numbers(
        gathered(
            course("orders", [5] * 60),
            stalls=[
                stall("orders", at(-10), at(5)),
                stall("orders", at(50), None),
                stall("mail", at(20), at(21), "UNDETERMINED"),
            ],
            reached=[{"emitter": EMITTER, "judged_to": at(120)}],
        )
    )
    frozen, stalled = found.stalls
    assert (frozen.kind, frozen.windows, frozen.stood_s) == ("FROZEN_HEAD", 2, 15 * 60)
    assert (frozen.open_at_end, frozen.windows_before) == (1, 1)
    assert frozen.longest_of == "orders: orders queue 2"
    assert (stalled.kind, stalled.stood_s) == ("STALLED", 60)


def test_duplicates_hold_what_was_predicted_against_what_was_observed() -> None:
    found = numbers(
        gathered(
            risks=[
                risk("orders", at(5), "CONFIRMED", redelivered_messages=80),
                risk("orders", at(6), "CONFIRMED", redelivered_messages=120),
                risk("mail", at(7), "PASSED", certain_messages=None),
                risk("mail", at(8), "POSSIBLE", at_risk_messages=7),
                risk("mail", at(-8), "CONFIRMED", redelivered_messages=9),
            ]
        )
    )
    (crash,) = found.duplicates
    assert (crash.windows, crash.groups, crash.predicted, crash.redelivered) == (4, 2, 300, 200)
    assert (crash.confirmed, crash.passed, crash.possible, crash.open_at_most) == (2, 1, 1, 7)
    assert (crash.exceeded, crash.certain, crash.redelivered_before) == (1, None, 9)


def test_what_nobody_could_count_of_a_watched_broker_is_the_least_or_unknown() -> None:
    unseen = {"redelivered_messages": None, "redelivered_unknown_reason": "OBSERVED"}
    found = numbers(
        gathered(
            course("orders", [5] * 60),
            course("mail", [5] * 60),
            risks=[
                risk("orders", at(5), "CONFIRMED", redelivered_messages=80),
                risk("orders", at(6), "POSSIBLE", **unseen),
                risk("mail", at(7), "POSSIBLE", cause="HAND_OVER", **unseen),
                risk("mail", at(-8), "POSSIBLE", cause="HAND_OVER", **unseen),
            ],
        )
    )
    said = {one.cause: one.again for one in found.duplicates}
    assert said == {"CONSUMER_CRASH": "at least 80", "HAND_OVER": "unknown"}
    assert {one.group: one.again for one in found.groups} == {
        "orders": "at least 80",
        "mail": "unknown",
    }


def test_messages_that_came_again_twice_are_not_more_than_was_predicted() -> None:
    where = {"broker": "b", "topic": "t", "queue_id": 0}
    ranges = {"redelivered_from": 0, "redelivered_to": 100}
    twice = risk("mail", at(7), "CONFIRMED", redelivered_messages=200, **ranges, **where)
    (cause,) = numbers(gathered(risks=[twice])).duplicates
    assert (cause.redelivered, cause.exceeded) == (200, 0)


def totals(edge: int, *counts: int) -> dict[str, object]:
    names = ("dead_lettered", "redriven", "discarded", "expired")
    place = {"emitter": EMITTER, "cluster": CLUSTER, "group": "orders", "edge": edge}
    return place | dict(zip(names, counts, strict=True))


def test_dead_letters_say_what_became_of_them() -> None:
    letters = {"cluster": CLUSTER, "group": "orders", "reason": "16 tries", "letters": 3}
    found = numbers(
        gathered(
            dead=[{**letters, "is_now": True, "topic": "a"}, {**letters, "is_now": False}],
            fates=[totals(0, 0, 0, 0, 0), totals(1, 5, 2, 0, 0), totals(2, 8, 4, 1, 0)],
        )
    )
    (orders,) = found.dead_letters
    assert (orders.letters, orders.letters_before, orders.reason) == (3, 3, "16 tries")
    assert (orders.redriven, orders.discarded, orders.expired, orders.waiting) == (2, 1, 0, 3)


def test_totals_that_began_anew_are_unknown_and_not_negative() -> None:
    found = numbers(gathered(fates=[totals(1, 5, 4, 0, 0), totals(2, 3, 1, 0, 0)]))
    assert (found.dead_letters[0].redriven, found.dead_letters[0].waiting) == (None, 2)


def test_a_failed_check_withholds_the_verdict_and_missing_rows_are_counted() -> None:
    ran = {
        "run_id": "r", "suite": "s", "expectation": "gapless", "table": "consumer_lag",
        "severity": "CRITICAL", "success": False, "observed_value": "a gap", "failed_rows": 1,
        "checked_rows": 9, "observed_at": at(30), "started_at": at(31), "judged_from": at(0),
    }  # fmt: skip
    shipped = {"is_now": True, "emitter": EMITTER, "rows_expected": 100, "rows_found": 99}
    found = numbers(
        gathered(
            course("orders", [5] * 60),
            results=[ran],
            shipped=[shipped | {"rows_distinct": 98}],
        )
    )
    assert "gapless failed" in found.groups[0].withheld
    assert (found.emitters[0].missing_rows, found.emitters[0].doubled_rows) == (2, 1)
    assert found.checks[0].failed_runs == 1
    assert "withheld" in found.headline


def test_what_is_new_is_shown_against_the_hour_before_from_the_same_gold() -> None:
    found = numbers(
        gathered(
            course("orders", [5] * 60, first=-60),
            course("orders", [90] * 60),
            course("old", [5] * 60, first=-60),
            course("new", [5] * 60),
        )
    )
    kinds = {(one.kind, one.about) for one in found.news}
    assert kinds == {("WORSE", "orders"), ("GONE_GROUP", "old"), ("NEW_GROUP", "new")}
    orders = next(one for one in found.groups if one.group == "orders")
    assert (orders.share_before_percent, orders.was_there) == (100.0, True)


def test_of_a_period_of_which_nothing_is_known_nothing_is_said_to_be_new() -> None:
    found = numbers(replace(gathered(course("orders", [90] * 60)), known_from=at(0)))
    assert (found.before_is_known, found.news) == (False, ())
    nothing = numbers(gathered())
    assert nothing.headline.startswith("Nothing is known of this period")
    assert (nothing.violations, nothing.groups) == (None, ())


def test_numbers_are_read_as_they_were_written_and_the_cut_does_not_change_their_digest() -> None:
    found = gathered(course("orders", [5] * 45 + [90] * 15), stalls=[stall("orders", at(1), at(2))])
    first = numbers(found)
    later = numbers(replace(found, cut=replace(CUT, cycle=9, told_at_us=5)))
    assert read_json(as_json(first)) == first
    assert first.digest == later.digest
    assert revised(first, later, 2) == ""


def test_a_re_run_says_what_late_data_has_changed() -> None:
    first = numbers(gathered(course("orders", [5] * 60), course("mail", [1] * 60)))
    late = numbers(gathered(course("orders", [5] * 50 + [90] * 10), course("mail", [1] * 60)))
    assert revised(first, late, 2).startswith("Revised: run 1 of this report was made at cycle 7")
    changed = {one.figure for one in differences(first, late)}
    assert {"behind_s", "within_s", "verdict", "worst_ms"} <= changed
    assert {one.about for one in differences(first, late)} == {"Prod / orders"}


def test_a_day_of_three_hundred_groups_is_counted_in_well_under_a_second() -> None:
    day = replace(HOUR, begin=HOUR.end - timedelta(days=1))
    rows = [row for n in range(300) for row in course(f"g{n}", [n % 90] * 60)]
    found = numbers(gathered(rows, window=day))
    assert len(found.groups) == 300
