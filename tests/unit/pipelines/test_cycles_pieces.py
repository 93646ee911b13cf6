"""The pieces of a cycle: buckets, keyed state in files, gold files, plans."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.foundation.errors import LakeError
from pipelines.cycles.buckets import bucket_of, packed, split, unpacked, within
from pipelines.cycles.cuts import Cut, Shipment, next_cuts, until, until_cuts
from pipelines.cycles.gold_files import GoldTables, NewFile, write_rows
from pipelines.cycles.keyed_state import CHAIN_MAX, StateFiles
from pipelines.cycles.plan import Plans, last_done, settings_of
from pipelines.cycles.replaying import Difference, compare, judged_part
from pipelines.cycles.snapshots import KeptState, keep, kept, kept_before, still_kept
from pipelines.lake.data_files import DataFiles
from pipelines.lake.lake import Lake, whole_table
from pipelines.lake.schemas import KEY_TEXT, arrow_schema
from pipelines.lake.tail import Place
from pipelines.marts.computing import Computed
from pipelines.marts.keys import overlaid
from pipelines.marts.mart import coded, fleeting, words_of
from pipelines.reading.catalogue import CONSUMER_LAG, REBALANCES
from pipelines.staging.facts import Reach

SETTINGS = '{"slide": 5}'
NAMES = st.sampled_from(["a", "b", "group", "group-2", ""])
ROWS = st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(1, 50)), max_size=40)


def rows_of(given: list[tuple[str, str, str, int]]) -> pa.Table:
    """Rows of (cluster, group, emitter, seq)."""
    schema = pa.schema(
        [
            ("cluster", pa.string()),
            ("group", pa.string()),
            ("emitter", pa.string()),
            ("seq", pa.int64()),
        ]
    )
    return pa.Table.from_pylist(
        [dict(zip(schema.names, one, strict=True)) for one in given], schema=schema
    )


@given(ROWS, st.integers(1, 7))
def test_every_row_goes_to_the_bucket_of_its_group_and_to_no_other(
    facts: list[tuple[str, str, str, int]], buckets: int
) -> None:
    arrived = []
    for bucket, part in split(rows_of(facts), Reach.GROUP, buckets):
        for row in unpacked(packed(part)).to_pylist():
            assert bucket == bucket_of(row["cluster"], row["group"], buckets=buckets)
            arrived.append(tuple(row.values()))
    assert sorted(arrived) == sorted(facts)


def test_a_part_carries_the_names_of_its_own_groups_alone() -> None:
    names = [f"group-{number}" for number in range(4_000)]
    rows = rows_of([("c", name, "e", number) for number, name in enumerate(names)])
    rows = rows.set_column(1, "group", rows["group"].cast(KEY_TEXT))
    found = []
    for _, part in split(rows, Reach.GROUP, 8):
        texts = unpacked(packed(part))["group"].combine_chunks()
        assert sorted(texts.dictionary.to_pylist()) == sorted(texts.to_pylist())
        found += texts.to_pylist()
    assert sorted(found) == sorted(names)


@given(ROWS)
def test_what_concerns_everybody_goes_to_every_bucket(
    facts: list[tuple[str, str, str, int]],
) -> None:
    parts = dict(split(rows_of(facts), Reach.ALL, 3))
    assert all(part.num_rows == len(facts) for part in parts.values())
    assert len(parts) == (3 if facts else 0)


@given(ROWS, st.dictionaries(NAMES, st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_a_cut_takes_the_rows_between_its_marks_and_nobody_elses(
    facts: list[tuple[str, str, str, int]], cuts: dict[str, tuple[int, int]]
) -> None:
    taken = [tuple(row.values()) for row in within(rows_of(facts), cuts).to_pylist()]
    expected = [
        one for one in facts if one[2] in cuts and cuts[one[2]][0] < one[3] <= cuts[one[2]][1]
    ]
    assert taken == expected


VALUES = st.lists(st.integers(-9, 9), max_size=12)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["queues", "owners"]),
        st.dictionaries(st.integers(0, 11), st.integers(10, 99), max_size=5),
        st.lists(st.integers(100, 200), max_size=3),
        st.booleans(),
    ),
    max_size=CHAIN_MAX + 5,
)


@settings(max_examples=60, deadline=None)
@given(VALUES, CHANGES)
def test_state_comes_back_as_it_was_saved_whatever_was_saved_as_a_difference(
    tmp_path_factory: pytest.TempPathFactory,
    begin: list[int],
    changes: list[tuple[str, dict[int, int], list[int], bool]],
) -> None:
    folder = tmp_path_factory.mktemp("state")
    kept = StateFiles(DataFiles(Lake.at(str(folder))), str(folder))
    table = pa.table({"value": pa.array(begin, pa.int64())})
    state = {"queues": {"all": table}, "owners": {"all": table}}
    chain = kept.save((), {}, Computed({}, state), cycle=0)
    for cycle, (step, changed, added, is_changed) in enumerate(changes, start=1):
        values = state[step]["all"]["value"].to_pylist()
        positions = [at for at in changed if at < len(values)]
        for at in positions:
            values[at] = changed[at]
        positions += range(len(values), len(values) + len(added))
        news = {step: {"all": pa.table({"value": pa.array([*values, *added], pa.int64())})}}
        touched = {step: {"all": np.array(positions, np.int64)}} if is_changed else {}
        chain = kept.save(chain, state, Computed({}, news, touched), cycle=cycle)
        state = {**state, **news}
        assert len(chain) <= CHAIN_MAX
        assert kept.load(chain) == state


def test_what_hardly_outlives_a_cycle_is_kept_small_and_comes_back_as_it_was(
    tmp_path: Path,
) -> None:
    rows = pa.table({"at": np.arange(50_000) // 100})
    sizes = []
    for name, schema in (("plain", rows.schema), ("fleeting", fleeting(rows.schema))):
        folder = tmp_path / name
        kept = StateFiles(DataFiles(Lake.at(str(tmp_path))), str(folder))
        chain = kept.save((), {}, Computed({}, {"step": {"t": rows.cast(schema)}}), cycle=1)
        assert kept.load(chain)["step"]["t"].equals(rows)
        (file,) = folder.iterdir()
        sizes.append(file.stat().st_size)
    assert sizes[1] * 10 < sizes[0]


def test_a_table_with_more_columns_than_before_is_kept_as_a_whole(tmp_path: Path) -> None:
    kept = StateFiles(DataFiles(Lake.at(str(tmp_path))), str(tmp_path / "run" / "0"))
    earlier = {"queues": {"all": pa.table({"value": [1, 2, 3]})}}
    chain = kept.save((), {}, Computed({}, earlier), cycle=0)
    news = {"queues": {"all": pa.table({"value": [1, 2, 4], "members": [None, None, 5]})}}
    touched = {"queues": {"all": np.array([2])}}

    chain = kept.save(chain, earlier, Computed({}, news, touched), cycle=1)

    assert kept.load(chain) == news


def test_a_table_whose_numbers_have_other_words_than_before_is_kept_as_a_whole(
    tmp_path: Path,
) -> None:
    def rules(codes: list[int], *words: str) -> dict[str, dict[str, pa.Table]]:
        schema = pa.schema([coded("rule", words)])
        return {"queues": {"all": pa.table([pa.array(codes, pa.int8())], schema=schema)}}

    kept = StateFiles(DataFiles(Lake.at(str(tmp_path))), str(tmp_path / "run" / "0"))
    earlier, news = rules([0, 1, 1], "OK", "SLOW"), rules([0, 2, 1], "OK", "PAUSED", "SLOW")
    chain = kept.save((), {}, Computed({}, earlier), cycle=0)
    touched = {"queues": {"all": np.array([2])}}

    chain = kept.save(chain, earlier, Computed({}, news, touched), cycle=1)

    loaded = kept.load(chain)["queues"]["all"]
    assert loaded.equals(news["queues"]["all"])
    assert words_of(loaded.schema.field("rule")) == ["OK", "PAUSED", "SLOW"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_state_of_which_any_bit_has_flipped_is_not_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("state")
    kept = StateFiles(DataFiles(Lake.at(str(folder))), str(folder / "0"))
    first = {"queues": {"all": pa.table({"value": [1, 2, 3], "group": ["a", "b", "a"]})}}
    news = {"queues": {"all": pa.table({"value": [1, 2, 4], "group": ["a", "b", "c"]})}}
    chain = kept.save((), {}, Computed({}, first), cycle=0)
    touched = {"queues": {"all": np.array([2])}}
    chain = kept.save(chain, first, Computed({}, news, touched), cycle=1)
    assert kept.load(chain) == news
    file = data.draw(st.sampled_from(sorted((folder / "0").iterdir())))
    written = bytearray(file.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(written) - 1))

    written[bit // 8] ^= 1 << bit % 8
    file.write_bytes(written)

    with pytest.raises(LakeError, match=f"{file} is damaged"):
        kept.load(chain)


def test_state_of_a_version_that_recorded_no_sums_is_gone_on_with(tmp_path: Path) -> None:
    kept = StateFiles(DataFiles(Lake.at(str(tmp_path))), str(tmp_path / "0"))
    first = {"queues": {"all": pa.table({"value": [1, 2, 3]})}}
    kept.save((), {}, Computed({}, first), cycle=0)
    chain = tuple(file.name for file in (tmp_path / "0").iterdir())
    news = {"queues": {"all": pa.table({"value": [1, 2, 4]})}}

    longer = kept.save(chain, kept.load(chain), Computed({}, news), cycle=1)

    assert longer[:1] == chain
    assert kept.load(longer) == news


def test_rows_laid_on_others_replace_them_in_place_and_grow_the_end() -> None:
    rows, news = pa.table({"n": [1, 2, 3]}), pa.table({"n": [20, 40]})
    assert overlaid(rows, np.array([1, 3]), news)["n"].to_pylist() == [1, 20, 3, 40]


def gold_rows(*moments_us: int) -> pa.Table:
    """Rows of the table of rebalances at these moments."""
    schema = arrow_schema(REBALANCES.columns)
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for seq, at_us in enumerate(moments_us, start=1):
        known = {
            "observed_at": at_us,
            "observed_date": at_us // 86_400_000_000,
            "seq": seq,
            "generation": 1,
            "group": f"g{seq}",
        }
        for field in schema:
            text = "x" if pa.types.is_string(field.type) and not field.nullable else None
            columns[field.name].append(known.get(field.name, text))
    plain = {"observed_at": pa.int64(), "observed_date": pa.int32()}
    arrays = [
        pa.array(columns[field.name], plain.get(field.name, field.type)).cast(field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


MIDNIGHT_US = 1_772_409_600_000_000


def written(lake: Lake, *moments_us: int) -> list[NewFile]:
    """Rows of these moments as files that no table knows."""
    folder = lake.gold(REBALANCES.name)
    rows = gold_rows(*moments_us)
    return list(write_rows(DataFiles(lake), folder, REBALANCES.name, rows, name="n"))


def test_rows_of_two_days_are_two_files_whose_statistics_bound_them(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    files = written(lake, MIDNIGHT_US - 1, MIDNIGHT_US, MIDNIGHT_US + 1_500_001)
    assert [(file.partition, file.rows) for file in files] == [("2026-03-01", 1), ("2026-03-02", 2)]
    statistics = json.loads(files[1].statistics)
    assert statistics["numRecords"] == 2
    assert statistics["minValues"]["observed_at"] == "2026-03-02T00:00:00.000000Z"
    assert statistics["maxValues"]["observed_at"] == "2026-03-02T00:00:01.500001Z"
    assert (statistics["minValues"]["group"], statistics["maxValues"]["group"]) == ("g2", "g3")
    assert pq.read_table(f"{lake.gold(REBALANCES.name)}/{files[0].path}").num_rows == 1


def test_a_file_reads_the_same_whether_its_texts_were_a_dictionary_or_not(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    schema = arrow_schema(CONSUMER_LAG.columns)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    row = {
        field.name: datetime(2026, 3, 2, tzinfo=UTC)
        if pa.types.is_timestamp(field.type)
        else date(2026, 3, 2)
        if pa.types.is_date(field.type)
        else 7
        for field in schema
    }
    rows = pa.Table.from_pylist(
        [{**row, **dict.fromkeys(texts, text)} for text in ("zoë", "a", "a")], schema=schema
    )
    kept = pa.schema(
        [field.with_type(KEY_TEXT) if field.name in texts else field for field in schema]
    )
    folder = lake.gold(CONSUMER_LAG.name)
    (plain,) = write_rows(DataFiles(lake), folder, CONSUMER_LAG.name, rows, name="plain")
    (coded,) = write_rows(DataFiles(lake), folder, CONSUMER_LAG.name, rows.cast(kept), name="coded")
    assert coded.statistics == plain.statistics
    both = [pq.read_table(f"{folder}/{one.path}", partitioning=None) for one in (plain, coded)]
    assert both[0].equals(both[1], check_metadata=True)
    assert both[1].schema.equals(schema.remove(schema.get_field_index("observed_date")))


def test_a_cycle_is_committed_once_and_files_of_a_lost_attempt_belong_to_nobody(
    tmp_path: Path,
) -> None:
    lake = Lake.at(str(tmp_path))
    tables = GoldTables(lake, [REBALANCES])
    tables.create()
    lost, heard = written(lake, MIDNIGHT_US), written(lake, MIDNIGHT_US)
    assert tables.commit(REBALANCES.name, heard, run_id="r", cycle=1)
    assert not tables.commit(REBALANCES.name, lost, run_id="r", cycle=1)
    again = GoldTables(lake, [REBALANCES])  # A driver that was started again.
    again.create()
    assert not again.commit(REBALANCES.name, lost, run_id="r", cycle=1)
    assert again.commit(REBALANCES.name, written(lake, MIDNIGHT_US + 1), run_id="r", cycle=2)
    table = DeltaTable(lake.gold(REBALANCES.name))
    assert whole_table(table).num_rows == 2
    assert date(2026, 3, 2) in whole_table(table)["observed_date"].to_pylist()


def shipment(seq: int, seq_from: int, seq_to: int, time_to_us: int, emitter: str = "e") -> Shipment:
    """The seq-th shipment of an emitter."""
    return Shipment(emitter, seq, seq_from, seq_to, time_to_us)


def test_a_cycle_takes_whole_shipments_until_it_has_enough() -> None:
    shipped = [shipment(1, 1, 10, 100), shipment(2, 11, 20, 200), shipment(3, 21, 30, 300)]
    first = next_cuts((), reversed(shipped), rows_max=15)
    assert first == (Cut("e", 0, 20, 0, 2, 0, 200),)
    second = next_cuts(first, shipped, rows_max=15)
    assert second == (Cut("e", 20, 30, 2, 3, 200, 300),)
    assert next_cuts(second, shipped, rows_max=15)[0].is_empty


def test_seqs_that_lives_passed_over_are_no_rows_of_a_cycle() -> None:
    shipped = [shipment(1, 901, 910, 100), shipment(2, 5001, 5010, 200), shipment(3, 5011, 5020, 9)]
    first = next_cuts((), shipped, rows_max=15)
    assert first == (Cut("e", 900, 5010, 0, 2, 0, 200, 900, 4990),)
    assert first[0].rows == 20, "as many as come of two shipments, not one"
    (second,) = next_cuts(first, shipped, rows_max=15)
    assert (second.rows, second.seq_from, second.seq_to) == (10, 5010, 5020)


def test_an_emitter_that_brings_nothing_keeps_its_place() -> None:
    here = (Cut("a", 0, 10, 0, 1, 0, 100), Cut("b", 0, 7, 0, 3, 0, 90))
    brought = [Shipment("a", 2, 11, 12, 150), Shipment("c", 1, 1, 4, 120)]
    cuts = next_cuts(here, brought, rows_max=15)
    assert cuts == (
        Cut("a", 10, 12, 1, 2, 100, 150),
        Cut("b", 7, 7, 3, 3, 90, 90),
        Cut("c", 0, 4, 0, 1, 0, 120),
    )


def test_time_alone_is_a_cut_without_rows() -> None:
    here = (Cut("e", 0, 10, 0, 1, 0, 100),)
    cut = next_cuts(here, [shipment(2, 11, 10, 150)], rows_max=15)[0]
    assert (cut.seq_from, cut.seq_to, cut.time_to_us) == (10, 10, 150)
    assert not cut.is_empty


def test_a_plan_that_was_not_carried_out_is_handed_back_whole(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=3)
    cuts = (Cut("e", 0, 10, 0, 1, 0, 100),)
    first = plans.record(cuts, {"shipments": Place(4, "ff")})
    plans.finish(first, {0: ("a",), 2: ("b", "c")})
    later = (Cut("e", 10, 20, 1, 2, 100, 200),)
    second = plans.record(later, {"shipments": Place(5, "aa")})
    again = Plans.open(lake, SETTINGS, gold=("rebalances",), buckets=9)
    assert (again.run_id, again.buckets) == (plans.run_id, 3), "as the run was begun"
    assert not again.is_done
    assert again.last == second
    assert again.chains == {0: ("a",), 2: ("b", "c")}
    done = last_done(lake)
    assert done is not None
    assert done.cuts == cuts, "what is whole, not what is planned"
    again.finish(second, {0: ("d",)})
    assert (third := Plans.open(lake, SETTINGS, gold=("rebalances",), buckets=9)).is_done
    assert third.chains == {0: ("d",)}, "the state behind the cycle, not the one before it"


def test_gold_without_plans_and_other_settings_are_refused(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    with pytest.raises(LakeError, match=r"its plans .* are gone"):
        Plans.open(lake, SETTINGS, gold=("rebalances",), buckets=2)
    Plans.open(lake, SETTINGS, gold=(), buckets=2)
    with pytest.raises(LakeError, match="use the same settings"):
        Plans.open(lake, '{"slide": 7}', gold=(), buckets=2)


def lake_of(folder: Path, *moments_us: int, **changed: str) -> Lake:
    """A lake whose gold has rows of these moments; `changed`: other texts in all of them."""
    lake = Lake.at(str(folder))
    tables = GoldTables(lake, [REBALANCES])
    tables.create()
    rows = gold_rows(*moments_us)
    for name, text in changed.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.field(at), pa.array([text] * rows.num_rows))
    folder_of = lake.gold(REBALANCES.name)
    files = list(write_rows(DataFiles(lake), folder_of, REBALANCES.name, rows, name="n"))
    tables.commit(REBALANCES.name, files, run_id="r", cycle=1)
    return lake


def compared(one: Lake, other: Lake, *cuts: Cut) -> Difference:
    """How they differ in the table of rebalances."""
    [found] = compare(one, other, [REBALANCES], cuts)
    return found


def test_equal_lakes_are_equal_and_a_difference_names_row_and_column(tmp_path: Path) -> None:
    day = (MIDNIGHT_US, MIDNIGHT_US + 5, MIDNIGHT_US + 9)
    cut = Cut("x", 0, 3, 0, 1, 0, MIDNIGHT_US + 9)
    live = lake_of(tmp_path / "live", *day)
    assert compared(live, lake_of(tmp_path / "same", *day), cut).is_none
    shorter = compared(live, lake_of(tmp_path / "shorter", *day[:2]), cut)
    assert (shorter.rows, shorter.missing, shorter.surplus) == (3, 1, 0)
    assert "only in the first: " in shorter.samples[0]
    other = compared(live, lake_of(tmp_path / "other", *day, kind="LEFT"), cut)
    assert other.changed == {"kind": 3}
    assert str(other) == "rebalances: 3 rows, 0 missing, 0 surplus, differing in kind in 3"
    assert other.samples[0].startswith("kind is 'x' and 'LEFT' at {")


def test_rows_outside_the_cuts_are_not_compared(tmp_path: Path) -> None:
    live = lake_of(tmp_path / "live", MIDNIGHT_US, MIDNIGHT_US + 5)
    less = lake_of(tmp_path / "less", MIDNIGHT_US)
    assert compared(live, less, Cut("x", 0, 1, 0, 1, 0, MIDNIGHT_US + 9)).is_none
    assert compared(live, less, Cut("y", 0, 9, 0, 1, 0, MIDNIGHT_US + 9)).rows == 0


def test_a_range_ends_at_the_first_shipment_that_reaches_its_end() -> None:
    shipped = [shipment(1, 1, 10, 100), shipment(2, 11, 20, 200), shipment(3, 21, 30, 300)]
    assert [one.seq for one in until((), reversed(shipped), 150)] == [2, 1]
    assert [one.seq for one in until((), shipped, 200)] == [1, 2]
    assert [one.seq for one in until((), shipped, 1_000)] == [1, 2, 3]
    reached = (Cut("e", 0, 20, 0, 2, 0, 200),)
    assert until(reached, shipped, 200) == []


def test_a_run_up_to_cuts_takes_what_they_took() -> None:
    shipped = [shipment(1, 1, 10, 100), shipment(2, 11, 20, 200), shipment(3, 21, 30, 300)]
    taken = (Cut("e", 0, 20, 0, 2, 0, 200),)
    assert [one.seq for one in until_cuts(shipped, taken)] == [1, 2]
    assert until_cuts(shipped, ()) == [], "nobody had heard of the emitter then"


def test_of_kept_states_each_of_two_days_and_the_first_of_each_day_stay() -> None:
    hour = 3600 * 1_000_000
    states = [
        KeptState("r", at, (Cut("e", 0, 0, 0, 0, 0, at * hour),), {}, 2)
        for at in range(24 * 10, 24 * 15)
    ]
    found = [one.judged_us // hour for one in still_kept(states, 24 * 15 * hour)]
    assert found == [240, 264, 288, *range(24 * 13, 24 * 15)]
    assert still_kept(states[:1], 24 * 50 * hour) == [], "facts to go on with are gone"


def test_the_first_cycle_of_an_hour_leaves_a_state_from_which_a_replay_may_start(
    tmp_path: Path,
) -> None:
    lake, hour = Lake.at(str(tmp_path)), 3600 * 1_000_000
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    ends = (hour + 1, hour + 2, 2 * hour, 3 * hour - 1, 5 * hour)
    begin = 0
    for number, end in enumerate(ends):
        cut = Cut("e", number, number + 1, number, number + 1, begin, end)
        plans.finish(plans.record((cut,), {}), {0: (f"state-{number}",)})
        begin = end
    assert [one.cycle for one in kept(lake)] == [1, 3, 5]
    before = kept_before(lake, 5 * hour - 1)
    assert before is not None
    assert (before.cycle, before.chains, before.judged_us) == (3, {0: ("state-2",)}, 2 * hour)
    assert kept_before(lake, hour) is None


def test_of_a_cycle_that_was_carried_out_twice_the_second_state_is_kept(tmp_path: Path) -> None:
    """Its process was killed between the note and the end of the cycle."""
    lake, cut = Lake.at(str(tmp_path)), Cut("e", 0, 1, 0, 1, 0, 3600 * 1_000_000)
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=1)
    plan = plans.record((cut,), {})
    keep(lake, KeptState(plan.run_id, plan.cycle, plan.cuts, {0: ("killed",)}, 1))
    plans.finish(plan, {0: ("done",)})
    assert [one.chains for one in kept(lake)] == [{0: ("done",)}]


def test_what_opening_a_run_reads_does_not_grow_with_its_age(tmp_path: Path) -> None:
    """Days of plans that are gone are missed by nobody."""
    lake = Lake.at(str(tmp_path))
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    plans.begin_tables(["consumer_lag"])
    for number in range(6):
        cut = Cut("e", number, number + 1, number, number + 1, number, number + 1)
        plans.finish(plans.record((cut,), {}), {0: (f"state-{number}",)})
    lake.table(lake.state("plans")).delete("cycle < 6")
    again = Plans.open(lake, SETTINGS, gold=("consumer_lag",), buckets=2)
    assert (again.run_id, again.begun) == (plans.run_id, {"consumer_lag": 1})
    assert again.is_done
    assert again.last == plans.last
    assert again.chains == {0: ("state-5",)}
    assert settings_of(lake) == SETTINGS


def test_a_run_is_found_again_when_a_new_table_came_while_a_cycle_was_under_way(
    tmp_path: Path,
) -> None:
    lake = Lake.at(str(tmp_path))
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    plans.finish(plans.record((Cut("e", 0, 10, 0, 1, 0, 100),), {}), {})
    under_way = plans.record((Cut("e", 10, 20, 1, 2, 100, 200),), {})
    later = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    later.begin_tables(["retry_flow"])
    again = Plans.open(lake, SETTINGS, gold=("retry_flow",), buckets=2)
    assert not again.is_done
    assert again.last == under_way
    assert again.begun == {"retry_flow": 3}
    again.finish(under_way, {})
    assert Plans.open(lake, SETTINGS, gold=("retry_flow",), buckets=2).begun == {"retry_flow": 3}


def test_only_what_the_live_run_has_judged_is_compared(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    computed = (Cut("e", 0, 30, 0, 3, 0, 300),)
    with pytest.raises(LakeError, match="has no gold that was computed live"):
        judged_part(computed, lake)
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    with pytest.raises(LakeError, match="has no gold that was computed live"):
        judged_part(computed, lake)
    first = plans.record((Cut("e", 0, 10, 0, 1, 0, 100),), {})
    with pytest.raises(LakeError, match="has no gold that was computed live"):
        judged_part(computed, lake)
    plans.finish(first, {})
    assert judged_part(computed, lake) == (Cut("e", 0, 10, 0, 1, 0, 100),)
    with pytest.raises(LakeError, match=r"ends before --from"):
        judged_part((Cut("e", 10, 30, 1, 3, 100, 300),), lake)
    plans.finish(plans.record((Cut("e", 10, 30, 1, 3, 100, 300),), {}), {})
    assert judged_part(computed, lake) == computed


def test_a_table_that_is_new_to_a_lake_begins_at_a_recorded_cycle_and_one_that_is_gone_is_refused(
    tmp_path: Path,
) -> None:
    lake = Lake.at(str(tmp_path))
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=2)
    plans.begin_tables(["consumer_lag"])
    plans.finish(plans.record((Cut("e", 0, 10, 0, 1, 0, 100),), {}), {})
    later = Plans.open(lake, SETTINGS, gold=("consumer_lag",), buckets=2)
    later.begin_tables(["consumer_lag", "retry_flow"])
    both = ("consumer_lag", "retry_flow")
    assert Plans.open(lake, SETTINGS, gold=both, buckets=2).begun == {
        "consumer_lag": 1,
        "retry_flow": 2,
    }
    with pytest.raises(LakeError, match="cycle 1, but gold lacks consumer_lag: restore"):
        Plans.open(lake, SETTINGS, gold=("retry_flow",), buckets=2)
