"""Silences: whom they mean, and when, over changes of the clock on the wall too."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from pipelines.alerting.commands import app
from pipelines.alerting.matchers import MatcherFault, all_match, matcher_of, matchers_of
from pipelines.alerting.silence_rows import kept_silence, silences_of
from pipelines.alerting.silences import Recurring, Silence, active, silenced_by
from pipelines.base.settings import DAY_US, HOUR_US, MINUTE_US
from pipelines.base.time_units import micros


def at(text: str, zone: str = "UTC") -> int:
    return micros(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ('group="orders"', {"group": "orders"}, True),
        ("group=orders", {"group": "orders"}, True),
        ('group="orders"', {"group": "orders2"}, False),
        ('group!="orders"', {}, True),
        ('group=""', {}, True),
        ('group=~"ord.*"', {"group": "orders"}, True),
        ('group=~"rder"', {"group": "orders"}, False),
        ('group!~"ord.*|pay.*"', {"group": "pay"}, False),
        ('group="a\\"b"', {"group": 'a"b'}, True),
        ('group=~".*"', {"group": "two\nlines"}, True),
    ],
)
def test_a_matcher_says_which_labels_are_meant(
    text: str, labels: dict[str, str], holds: bool
) -> None:
    made = matcher_of(text)
    assert made.matches(labels) is holds
    assert matcher_of(str(made)).matches(labels) is holds


@pytest.mark.parametrize(
    "text", ["group", "", "=x", 'group=~"("', 'group=~"a)|(b"', 'group=~"' + "a" * 201 + '"',
             'group=~"(a)\\\\1"', 'group=~"(?=a)a"', 'group=~"(a{1000}){1000}"', "gr up=x"],
)  # fmt: skip
def test_a_matcher_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(MatcherFault):
        matcher_of(text)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", ".*.*.*.*.*.*.*b", "(a|a)(a|a)" * 18 + "b", "a?" * 90 + "b"]
)
def test_no_pattern_takes_long_whatever_a_group_is_named(pattern: str) -> None:
    made = matcher_of(f'group=~"{pattern}"')
    began_s = process_time()
    assert not made.matches({"group": "a" * 255})
    assert process_time() - began_s < 0.5


def test_a_name_that_is_no_text_is_held_against_a_pattern_like_any_other() -> None:
    assert matcher_of('group=~"a.b"').matches({"group": "a\udc80b"})


def test_all_matchers_must_hold_and_there_is_one_at_least() -> None:
    both = matchers_of(["a=1", "b=2"])
    assert all_match(both, {"a": "1", "b": "2"})
    assert not all_match(both, {"a": "1"})
    for none in ([], "a=1", [1], None):
        with pytest.raises(MatcherFault):
            matchers_of(none)


def silence(begin: str, end: str, recurring: Recurring | None = None, name: str = "s") -> Silence:
    return Silence(
        name, matchers_of(["group=orders"]), at(begin), at(end), "ann", "a release", recurring
    )


def test_a_silence_holds_from_its_begin_until_before_its_end() -> None:
    one = silence("2026-03-01T12:00", "2026-03-01T13:00")
    moments = [("11:59:59", False), ("12:00:00", True), ("12:59:59", True), ("13:00:00", False)]
    for clock, holds in moments:
        assert one.is_active(at(f"2026-03-01T{clock}")) is holds


def test_the_first_silence_that_holds_is_the_one_that_is_shown() -> None:
    standing = active(
        [
            silence("2026-03-01T12:00", "2026-03-01T13:00", name="b"),
            silence("2026-03-01T12:00", "2026-03-01T13:00", name="a"),
            silence("2026-03-02T12:00", "2026-03-02T13:00", name="0"),
        ],
        at("2026-03-01T12:30"),
    )
    found = silenced_by({"group": "orders"}, standing)
    assert found is not None
    assert found.silence_id == "a"
    assert silenced_by({"group": "others"}, standing) is None


def test_a_recurring_silence_comes_on_its_days_in_its_zone() -> None:
    weekends = Recurring(frozenset({5, 6}), 22 * 60, 4 * HOUR_US, "America/New_York")
    one = silence("2026-01-01T00:00", "2027-01-01T00:00", weekends)
    zone = "America/New_York"
    assert not one.is_active(at("2026-03-06T23:00", zone))  # Friday
    assert one.is_active(at("2026-03-07T22:00", zone))
    assert one.is_active(at("2026-03-09T01:59", zone))  # since Sunday evening
    assert not one.is_active(at("2026-03-09T02:00", zone))


@pytest.mark.parametrize(
    ("day", "first_utc", "why"),
    [
        ("2026-03-28", "2026-03-28T01:30", "a usual day: 02:30 is an hour ahead of UTC"),
        ("2026-03-29", "2026-03-29T01:00", "the clock leaps from 02:00 to 03:00"),
        ("2026-10-25", "2026-10-25T00:30", "02:30 comes twice, and the first one counts"),
    ],
)
def test_a_time_that_is_leapt_over_or_comes_twice_is_silenced_once_and_as_long(
    day: str, first_utc: str, why: str
) -> None:
    nightly = Recurring(frozenset(), 150, HOUR_US, "Europe/Berlin")
    begin_us = at(first_utc)
    assert not nightly.covers(begin_us - 1), why
    assert nightly.covers(begin_us), why
    assert nightly.covers(begin_us + HOUR_US - 1), why
    assert not nightly.covers(begin_us + HOUR_US), why


def test_a_silence_longer_than_a_day_covers_the_days_after_its_begin() -> None:
    weekend = Recurring(frozenset({5}), 0, 2 * DAY_US, "Europe/Berlin")
    assert weekend.covers(at("2026-03-08T23:59", "Europe/Berlin"))
    assert not weekend.covers(at("2026-03-09T00:00", "Europe/Berlin"))


@pytest.mark.parametrize(
    ("days", "minute", "length_us", "zone"),
    [
        ({7}, 0, HOUR_US, "UTC"),
        (set(), 1440, HOUR_US, "UTC"),
        (set(), 0, MINUTE_US - 1, "UTC"),
        (set(), 0, 8 * DAY_US, "UTC"),
        (set(), 0, HOUR_US, "Mars/Olympus"),
        (set(), 0, HOUR_US, "../../etc/passwd"),
    ],
)
def test_a_recurrence_that_cannot_be_is_refused(
    days: set[int], minute: int, length_us: int, zone: str
) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Recurring(frozenset(days), minute, length_us, zone)


def test_a_silence_that_cannot_be_understood_silences_nobody_and_holds_up_no_other() -> None:
    kept = kept_silence(silence("2026-03-01T12:00", "2026-03-01T13:00"), created_us=0)
    strange = [
        replace(kept, silence_id="older", body=kept.body.replace("group=", "group=~(?=x)")),
        replace(kept, silence_id="torn", body='{"matchers": ["gr'),
    ]
    understood, faults = silences_of([*strange, kept])
    assert [one.silence_id for one in understood] == ["s"]
    assert ["older" in faults[0], "torn" in faults[1]] == [True, True]


def asked_for(folder: Path, *words: str) -> tuple[int, str]:
    """The code of `tidemark alerts silence …`, and what is silenced after it."""
    where = ["--lake", str(folder), "--database", f"sqlite:///{folder / 'state.db'}"]
    said = ["silence", "group=pay", "--author", "ann", "--comment", "release", *words]
    done = CliRunner().invoke(app, ["alerts", *said, *where])
    listed = CliRunner().invoke(app, ["alerts", "silences", "--json", *where])
    return done.exit_code, listed.stdout


def test_a_silence_of_days_says_at_what_time_or_it_is_none(tmp_path: Path) -> None:
    code, listed = asked_for(tmp_path, "--days", "sat,sun", "--for", "30d")
    assert (code, json.loads(listed)) == (1, [])


def test_a_silence_that_comes_back_does_so_for_a_year_unless_somebody_says_how_long(
    tmp_path: Path,
) -> None:
    code, listed = asked_for(tmp_path, "--days", "sat,sun", "--at", "22:00", "--length", "8h")
    [made] = json.loads(listed)
    assert code == 0
    assert made["to_us"] - made["from_us"] == 365 * DAY_US


def test_a_silence_of_everything_or_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="one matcher"):
        Silence("s", (), 0, 1, "ann", "")
    with pytest.raises(ValueError, match="after its begin"):
        silence("2026-03-01T12:00", "2026-03-01T12:00")
