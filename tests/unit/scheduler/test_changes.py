"""What a change is shown in: each value that is another, old and new, bounded and always JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.diffs import (
    DIFF_LINES_MAX,
    VALUE_CHARS_MAX,
    auditable,
    changes,
    detail_of,
    in_zone,
    source_diff,
)
from pipelines.scheduler.job_settings import CHILDREN_MAX, PARAMETERS_CHARS_MAX
from pipelines.scheduler.schedules import schedule_of
from tests.integration.scheduler.stores import HOSTILE, NOW_MS, settings

VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers())
TOLD = st.dictionaries(st.sampled_from("abcdef"), VALUES)


def noted(**changed: Any) -> dict[str, Any]:
    return auditable(settings(**changed), group="hers", is_active=True)


@given(TOLD, TOLD)
def test_what_was_and_the_changes_make_what_is(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    made = changes(before, after)
    assert all(old != new for old, new in made.values())
    assert all(before.get(name) == old for name, (old, _) in made.items())
    now = before | {name: new for name, (_, new) in made.items()}
    assert {name: value for name, value in now.items() if value is not None} == {
        name: value for name, value in after.items() if value is not None
    }
    assert changes(after, after) == {}


def test_zero_empty_and_false_are_values_like_any_other() -> None:
    before = noted(retries=2, parameters="x", children=(4,))
    assert changes(before, noted() | {"is_active": False}) == {
        "is_active": (True, False),
        "parameters": ("x", ""),
        "retries": (2, 0),
        "children": ([4], []),
    }


def test_sources_stand_as_length_and_digest_and_never_whole() -> None:
    first, second = (
        noted(handler="", glue_type="GLUE_SHELL", glue_source=f"secret {n}") for n in "12"
    )
    assert first["glue_source"]["chars"] == 8
    [(name, (old, new))] = changes(first, second).items()
    assert (name, old["chars"], new["chars"]) == ("glue_source", 8, 8)
    assert "secret" not in detail_of(changes(first, second))
    assert noted()["glue_source"] == ""


def test_the_longest_and_the_strangest_settings_are_noted_as_bounded_json() -> None:
    most = noted(
        title=(HOSTILE * 9)[:255],
        author="\U0001f600" * 255,
        handler="\x00" * 255,
        parameters="\ud800" * PARAMETERS_CHARS_MAX,
        children=tuple(10**18 + number for number in range(CHILDREN_MAX)),
    )
    assert most["parameters"]["chars"] == PARAMETERS_CHARS_MAX
    assert most["children"]["count"] == CHILDREN_MAX
    detail = detail_of(changes({}, most))
    assert set(json.loads(detail)) == set(most)
    assert len(detail) < 12 * (VALUE_CHARS_MAX + 3 * 255) + 2_000


def test_times_to_come_are_five_in_the_jobs_zone_over_a_change_of_its_clock() -> None:
    schedule = schedule_of("CRON", "0 0 8 * * ?", "Europe/Berlin")
    first_ms = schedule.next_ms(1_792_700_000_000)  # 2026-10-22; summer time ends on the 25th.
    shown_times = [in_zone(one, "Europe/Berlin") for one in schedule.upcoming_ms(first_ms, count=5)]
    assert [one[8:] for one in shown_times] == [
        "23T08:00:00+02:00", "24T08:00:00+02:00", "25T08:00:00+01:00", "26T08:00:00+01:00",
        "27T08:00:00+01:00",
    ]  # fmt: skip
    waits = schedule_of("FIX_DELAY", "60")
    assert waits.upcoming_ms(NOW_MS, count=5) == [NOW_MS]
    assert schedule_of("NONE", "").upcoming_ms(None, count=5) == []
    once = schedule_of("ONCE", "2030-01-31T08:00", "Asia/Tokyo")
    assert [
        in_zone(one, "Asia/Tokyo") for one in once.upcoming_ms(once.next_ms(NOW_MS), count=5)
    ] == ["2030-01-31T08:00:00+09:00"]


def test_the_lines_between_two_sources_are_bounded() -> None:
    assert source_diff("a\nb\n", "a\nc\n")[3:] == [" a", "-b", "+c"]
    many = source_diff("", "\n".join(map(str, range(5_000))))
    assert len(many) == DIFF_LINES_MAX + 1
    assert many[-1].startswith("…")
