"""What upkeep decides: pure rules from facts of a table to work on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines.upkeep.commands import app
from pipelines.upkeep.merging import SourceFile, slices
from pipelines.upkeep.plan import (
    Merge,
    PartitionFacts,
    ReaderPlace,
    TableFacts,
    Work,
    Writer,
    plan,
    vacuum_hours,
    writer_of,
)
from pipelines.upkeep.settings import (
    FILES_BELOW_TIER_MAX,
    MIB,
    SKEW_S,
    TIERS_BYTES,
    Upkeep,
    has_grown,
)

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
TODAY = NOW.date()
YESTERDAY = TODAY - timedelta(days=1)
UPKEEP = Upkeep()
LONG_AGO_S = NOW.timestamp() - 7200


def partition(day: date | None, *sizes: int, newest_s: float = LONG_AGO_S) -> PartitionFacts:
    return PartitionFacts(day, sizes, newest_s)


def table(
    *partitions: PartitionFacts,
    name: str = "bronze/group_watermarks",
    writer: Writer = Writer.DELTA_RS,
    readers: tuple[ReaderPlace, ...] = (),
) -> TableFacts:
    return TableFacts(
        name, 7, writer, partitions, "event_date", readers, log_retention="interval 2 days"
    )


def test_a_few_small_files_of_today_are_left_to_the_writer() -> None:
    few = table(partition(TODAY, *[1000] * (FILES_BELOW_TIER_MAX - 1)))
    assert plan(few, UPKEEP, NOW).merges == ()


def test_many_small_files_of_today_become_one() -> None:
    many = table(partition(TODAY, *[1000] * FILES_BELOW_TIER_MAX, 9 * MIB))
    assert plan(many, UPKEEP, NOW).merges == (Merge(TODAY, 1 * MIB, FILES_BELOW_TIER_MAX),)


def test_files_grow_through_the_tiers_so_that_large_ones_are_seldom_rewritten() -> None:
    middling = table(partition(TODAY, *[2 * MIB] * FILES_BELOW_TIER_MAX, *[1000] * 3))
    assert plan(middling, UPKEEP, NOW).merges == (Merge(TODAY, 8 * MIB, FILES_BELOW_TIER_MAX + 3),)


def test_a_day_that_is_over_becomes_as_few_files_as_fit() -> None:
    over = table(partition(YESTERDAY, 31 * MIB, 1000, 1000))
    assert plan(over, UPKEEP, NOW).merges == (Merge(YESTERDAY, 32 * MIB, 2),)
    assert plan(table(partition(YESTERDAY, 20 * MIB, 20 * MIB)), UPKEEP, NOW).merges == ()
    assert plan(table(partition(YESTERDAY, 1000)), UPKEEP, NOW).merges == ()


def test_a_day_that_is_over_is_left_while_late_rows_come() -> None:
    late = table(partition(YESTERDAY, 1000, 1000, newest_s=NOW.timestamp() - 5))
    assert plan(late, UPKEEP, NOW).merges == ()


def test_the_newest_days_are_merged_first_and_a_round_is_bounded() -> None:
    days = [TODAY - timedelta(days=back) for back in range(1, 25)]
    work = plan(table(*[partition(day, 1000, 1000) for day in days]), UPKEEP, NOW)
    assert [merge.day for merge in work.merges] == days[:8]


def test_days_over_their_time_are_dropped_and_not_merged_first() -> None:
    old, kept = TODAY - timedelta(days=31), TODAY - timedelta(days=30)
    work = plan(table(partition(old, 1, 1), partition(kept, 1)), UPKEEP, NOW)
    assert work.drops == (old,)
    assert work.merges == ()


@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("bronze/group_watermarks", 30),
        ("gold/consumer_lag", 400),
        ("gold/dq_results", 90),
        ("state/cycles", 400),
    ],
)
def test_each_kind_of_table_has_its_days(name: str, days: int | None) -> None:
    assert UPKEEP.days_of(name) == days
    back = [TODAY - timedelta(days=number) for number in (500, 401, 91, 31, 1)]
    drops = plan(table(*[partition(day, 1) for day in back], name=name), UPKEEP, NOW).drops
    assert drops == tuple(day for day in back if days and (TODAY - day).days > days)


def test_one_table_may_have_days_of_its_own() -> None:
    own = Upkeep(table_days={"gold/consumer_lag": 10})
    assert own.days_of("gold/consumer_lag") == 10
    assert own.days_of("gold/group_state") == 400
    with pytest.raises(ConfigError, match="bronze/TABLE or gold/TABLE"):
        Upkeep(table_days={"consumer_lag": 10})
    with pytest.raises(ConfigError, match="bronze_days=0"):
        Upkeep(bronze_days=0)


@pytest.mark.parametrize("command", ["maintain", "status"])
def test_days_of_a_table_that_no_lake_has_are_refused_with_near_names(
    command: str, tmp_path: Path
) -> None:
    words = ["lake", command, "--lake", str(tmp_path), "--days", "bronze/group_watermark=400"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ConfigError)
    assert "near it: bronze/group_watermarks" in str(done.exception)


def test_a_table_of_another_writer_is_not_touched() -> None:
    for writer in (Writer.SPARK, Writer.OTHER):
        work = plan(table(partition(YESTERDAY, *[1] * 99), writer=writer), UPKEEP, NOW)
        assert work == Work(refused=f"left alone: written by {writer.value}")


def test_the_newest_commit_that_is_not_upkeep_names_the_writer() -> None:
    ours, spark = "delta-rs:py-1.6.6", "Apache-Spark/4.2.0 Delta-Lake/4.4.0"
    assert writer_of([("WRITE", ours)]) is Writer.DELTA_RS
    assert writer_of([("OPTIMIZE", ours), ("WRITE", spark)]) is Writer.SPARK
    assert writer_of([("STREAMING UPDATE", spark), ("WRITE", ours)]) is Writer.SPARK
    assert writer_of([("WRITE", ours), ("WRITE", spark)]) is Writer.DELTA_RS, "it has changed hands"
    assert writer_of([("OPTIMIZE", ours), ("VACUUM END", ours)]) is Writer.DELTA_RS
    assert writer_of([("WRITE", "Trino")]) is Writer.OTHER
    assert writer_of([("WRITE", None)]) is Writer.OTHER
    assert writer_of([]) is Writer.OTHER


def test_replaced_files_stay_for_the_hours_of_readers_or_longer_for_the_pipeline() -> None:
    hour_ago = ReaderPlace("pipeline", NOW.timestamp() - 3600)
    day_ago = ReaderPlace("pipeline", NOW.timestamp() - 86_400)
    lost = ReaderPlace("pipeline", None)
    assert vacuum_hours([], UPKEEP, NOW) == 6
    assert vacuum_hours([hour_ago], UPKEEP, NOW) == 6
    assert vacuum_hours([hour_ago, day_ago], UPKEEP, NOW) == 25, "a day and the skew of clocks"
    assert vacuum_hours([lost], UPKEEP, NOW) == 6, "it reads the snapshot, which stays"


def test_a_day_that_a_reader_has_not_read_is_not_dropped_until_patience_ends() -> None:
    day = TODAY - timedelta(days=32)
    behind = (ReaderPlace("pipeline", datetime(2026, 2, 6, 23, tzinfo=UTC).timestamp()),)
    but_for_late_rows = (ReaderPlace("pipeline", datetime(2026, 2, 7, 23, tzinfo=UTC).timestamp()),)
    past = (ReaderPlace("pipeline", datetime(2026, 2, 8, 1, tzinfo=UTC).timestamp()),)
    lost = (ReaderPlace("pipeline", None),)
    assert day == date(2026, 2, 6)
    assert plan(table(partition(day, 1), readers=behind), UPKEEP, NOW).drops == ()
    assert plan(table(partition(day, 1), readers=but_for_late_rows), UPKEEP, NOW).drops == ()
    assert plan(table(partition(day, 1), readers=past + behind), UPKEEP, NOW).drops == ()
    assert plan(table(partition(day, 1), readers=lost), UPKEEP, NOW).drops == ()
    assert plan(table(partition(day, 1), readers=past), UPKEEP, NOW).drops == (day,)
    later = NOW + timedelta(days=6)
    assert plan(table(partition(day, 1), readers=lost), UPKEEP, later).drops == (day,)


def test_properties_are_set_while_nobody_writes() -> None:
    """delta-rs fails an append beside which the table's properties change."""
    quiet = replace(table(partition(TODAY, 1)), log_retention=None)
    busy = replace(
        quiet, partitions=(partition(TODAY, 1, newest_s=NOW.timestamp() - UPKEEP.settle_s + 1),)
    )
    assert plan(quiet, UPKEEP, NOW).set_log_days
    assert not plan(busy, UPKEEP, NOW).set_log_days
    assert not plan(replace(quiet, partitions=()), UPKEEP, NOW).set_log_days


def test_the_newest_plans_stay_however_long_the_run_stood_still() -> None:
    days = [TODAY - timedelta(days=age) for age in (90, 80, 70, 60)]
    plans = table(*(partition(day, 1000) for day in days), name="state/plans")
    assert plan(plans, UPKEEP, NOW).drops == tuple(days[:2])


def test_work_says_itself_in_words() -> None:
    old, over = TODAY - timedelta(days=31), table(partition(YESTERDAY, 1, 1, 1))
    assert str(plan(over, UPKEEP, NOW)) == "merge 3 files of 2026-03-09"
    assert str(plan(table(partition(old, 1)), UPKEEP, NOW)) == "drop 1 days to 2026-02-07"
    assert str(plan(table(), UPKEEP, NOW)) == "nothing"


@given(
    sizes=st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=40),
    a_round=st.integers(1, 200),
    packed=st.floats(0.3, 1.0),
    is_over=st.booleans(),
)
def test_a_day_has_few_files_however_long_it_grows(
    sizes: list[int], a_round: int, packed: float, is_over: bool
) -> None:
    """Files come in rounds, and each round merges once what is planned; merged rows pack smaller.
    After the last one, or once the day is over, it is merged until nothing is planned.
    """
    few, files = len(TIERS_BYTES) * (FILES_BELOW_TIER_MAX - 1), list[int]()
    for number in range(120):
        files += [sizes[(number + one) % len(sizes)] for one in range(a_round)]
        files, _ = merged_once(files, TODAY, packed)
        assert not_grown(files) <= few + a_round
    is_planned = True
    while is_planned:
        before = len(files)
        files, is_planned = merged_once(files, YESTERDAY if is_over else TODAY, packed)
        assert len(files) < before or not is_planned, "what is planned makes files fewer"
    assert not_grown(files) <= (1 if is_over else few)


def not_grown(files: list[int]) -> int:
    return sum(not has_grown(size, TIERS_BYTES[-1]) for size in files)


def merged_once(files: list[int], day: date, packed: float) -> tuple[list[int], bool]:
    """Sizes after the merge that is planned, if any; and was one planned?"""
    merges = plan(table(partition(day, *files)), UPKEEP, NOW).merges
    if not merges:
        return files, False
    sources = [SourceFile(str(number), size, 1, number) for number, size in enumerate(files)]
    parts = slices(sources, merges[0].target_bytes)
    gone = {int(file.path) for part in parts for file in part}
    kept = [size for number, size in enumerate(files) if number not in gone]
    made = [max(1, round(packed * sum(file.size_bytes for file in part))) for part in parts]
    return kept + made, True


@given(
    place_h=st.integers(0, 90 * 24),
    added=st.floats(0.01, 1),
    removed=st.floats(0.01, 1),
    skew_s=st.integers(-SKEW_S, SKEW_S),
)
def test_no_file_is_vacuumed_that_a_reader_has_still_to_read(
    place_h: int, added: float, removed: float, skew_s: int
) -> None:
    """A file that the reader has still to read was added after its place and replaced later still,
    each a share of the way to now; the remover's clock differs from that of the place."""
    place_s = place_h * 3600.0
    added_ago_s = place_s * (1 - added)
    removed_ago_s = added_ago_s * (1 - removed) + skew_s
    place = ReaderPlace("pipeline", NOW.timestamp() - place_s)
    assert removed_ago_s <= vacuum_hours([place], UPKEEP, NOW) * 3600
