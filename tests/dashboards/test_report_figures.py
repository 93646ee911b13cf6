"""What pages say of numbers: figures with their units, the worse first, nothing unknown as zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dashboards.models.report_numbers import (
    WORDS,
    Thing,
    differing,
    figure_text,
    news_counts,
    percent,
    summary,
    tally,
)
from pipelines.reports.comparing import Tendency
from pipelines.reports.numbers import Numbers, Verdict
from tests.reported_lake import hour, hour_before

BEFORE, AFTER = hour_before(), hour()


def of_two_clusters(numbers: Numbers) -> Numbers:
    """The same with billing in another cluster."""
    groups = tuple(
        replace(one, cluster="Test" if one.group == "billing" else one.cluster)
        for one in numbers.groups
    )
    dead = tuple(replace(one, cluster="Test") for one in numbers.dead_letters)
    return replace(numbers, groups=groups, dead_letters=dead)


def by_name(things: list[Thing], about: str) -> Thing:
    return next(one for one in things if one.about == about)


@pytest.mark.parametrize(
    ("figure", "value", "said"),
    [
        ("worst_ms", None, "unknown"),
        ("worst_ms", 0, "0 s"),
        ("behind_s", 90, "1 min 30 s"),
        ("share_percent", 99.96, "99.9 %"),
        ("share_percent", 0.01, "0.1 %"),
        ("lag_max", 1_234_567, "1,234,567"),
        ("reaches_end", False, "no"),
        ("judged_to_us", 1_772_368_200_000_000, "2026-03-01 12:30:00 UTC"),
        ("verdict", "MISSED", "missed"),
        ("state", "NO_OFFSET", "no offset"),
        ("withheld", "", "no"),
        ("reason", "\u202eevil\u200b", "\N{REPLACEMENT CHARACTER}evil\N{REPLACEMENT CHARACTER}"),
        ("reason", "x" * 500, "x" * 159 + "…"),
    ],
)
def test_a_figure_has_its_unit(figure: str, value: Any, said: str) -> None:
    assert figure_text(figure, value) == said


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [percent(one) for one in (None, 0.0, 0.04, 99.999, 100.0)] == [
        "unknown", "0 %", "0.1 %", "99.9 %", "100 %",
    ]  # fmt: skip


def test_the_summary_counts_verdicts_and_says_how_much_is_known() -> None:
    figures = {one.name: one.value for one in summary(AFTER)}
    assert (figures["missed"], figures["kept"], figures["unclear"]) == ("2", "1", "0")
    assert (figures["stood still"], figures["given up"], figures["known"]) == ("1 h", "3", "97.2 %")
    nothing = {one.name: one.value for one in summary(replace(AFTER, groups=()))}
    assert nothing["known"] == "nothing"


def test_the_summary_of_a_cluster_is_about_it_alone() -> None:
    figures = {one.name: one.value for one in summary(of_two_clusters(AFTER), "Test")}
    assert (figures["missed"], figures["kept"], figures["stood still"], figures["given up"]) == (
        "0", "1", "0 s", "3",
    )  # fmt: skip
    assert {one.name: one.value for one in summary(of_two_clusters(AFTER), "Prod")}[
        "given up"
    ] == "0"


def test_what_is_new_is_counted_unless_nothing_is_known_of_before() -> None:
    assert news_counts(AFTER) == (5, 0)
    assert news_counts(replace(AFTER, before_is_known=False)) is None


def test_differences_come_by_thing_the_worse_first() -> None:
    things = differing(BEFORE, AFTER)
    kinds = [0 if one.worse else 1 if one.better else 2 for one in things]
    assert kinds == sorted(kinds)
    shipping = by_name(things, "Prod / shipping")
    assert shipping.place == ("Prod", "shipping")
    first = shipping.changed[0]
    assert (first.name, first.before, first.after, first.tendency) == (
        "objective", "kept", "missed", Tendency.WORSE,
    )  # fmt: skip
    worst = next(one for one in shipping.changed if one.name == WORDS["worst_ms"])
    assert (worst.before, worst.after, worst.arrow) == ("5.0 s", "52 min", "↑")


def test_figures_that_differ_by_what_they_are_are_shown_of_one_period_only() -> None:
    worst_at = replace(AFTER, groups=(replace(AFTER.groups[0], worst_at_us=1), *AFTER.groups[1:]))
    assert [one.name for thing in differing(AFTER, worst_at) for one in thing.changed] == [
        "worst at"
    ]
    elsewhere = replace(worst_at, begin_us=AFTER.begin_us - 1, end_us=AFTER.end_us - 1)
    assert differing(elsewhere, AFTER) == []


def test_of_a_cluster_come_its_groups_and_what_is_counted_over_all() -> None:
    before, after = of_two_clusters(BEFORE), of_two_clusters(AFTER)
    of_test = differing(before, after, "Test")
    assert {one.place for one in of_test if one.place} == {("Test", "billing")}
    assert "stalls" in {one.part for one in of_test}
    assert ("Test", "billing") not in {one.place for one in differing(before, after, "Prod")}


def test_a_name_with_the_mark_between_keys_is_still_one_group() -> None:
    odd = replace(AFTER.groups[0], cluster="a / b", group="c", verdict=Verdict.KEPT)
    before = replace(AFTER, groups=(odd,))
    after = replace(AFTER, groups=(replace(odd, worst_ms=1),))
    (thing,) = differing(before, after)
    assert thing.place == ("a / b", "c")


def test_equal_numbers_are_the_same() -> None:
    assert differing(AFTER, AFTER) == []
    assert tally([]) == "the same"
    assert tally(differing(BEFORE, AFTER)).startswith("30 figures of 8: ")
