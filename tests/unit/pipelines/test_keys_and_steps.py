"""Keys as positions of a growing table, and steps in the order in which they read each other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.computing import compute
from pipelines.marts.declared import in_order
from pipelines.marts.keys import last_of_each, numbered, positions_of
from pipelines.marts.mart import Given, Made, Step
from pipelines.staging.facts import as_facts, is_one_of, no_facts
from tests.needed_steps import needed_for

KEY = ("group", "topic", "queue_id")
KEYS = st.tuples(
    st.sampled_from(["g", "group", "", "gr\0up"]), st.sampled_from("abc"), st.integers(-3, 70_000)
)
NUMBERS = pa.schema([("number", pa.int64())])


def table(keys: list[tuple[str, str, int]]) -> pa.Table:
    """Rows of these keys."""
    columns = list(zip(*keys, strict=True)) or [(), (), ()]
    kinds = (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.int32())
    return pa.table(
        [
            pa.array(column, pa.string()).cast(kind)
            if kind != pa.int32()
            else pa.array(column, kind)
            for column, kind in zip(columns, kinds, strict=True)
        ],
        names=list(KEY),
    )


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", None])), max_size=4))
def test_a_text_is_one_of_some_or_not_and_one_that_is_unknown_is_not(
    columns: list[list[str | None]],
) -> None:
    plain = pa.chunked_array([pa.array(part, pa.string()) for part in columns], pa.string())
    coded = pa.chunked_array(
        [pa.array(part, pa.string()).cast(KEY_TEXT) for part in columns], KEY_TEXT
    )
    wanted = [text in ("a", "c") for part in columns for text in part]
    for column in (plain, coded):
        assert is_one_of(column, "a", "c").to_pylist() == wanted


@given(st.lists(KEYS, unique=True, max_size=30), st.lists(KEYS, max_size=60))
def test_every_row_finds_the_row_of_its_key_and_new_keys_are_numbered_as_they_come(
    known: list[tuple[str, str, int]], rows: list[tuple[str, str, int]]
) -> None:
    positions, new = positions_of(table(known), table(rows), KEY)
    grown = [*known, *(rows[number] for number in new)]
    assert [grown[position] for position in positions] == rows
    assert len(set(grown)) == len(grown)
    assert sorted(new) == list(new), "in order of appearance"


@given(st.lists(KEYS, max_size=60))
def test_of_each_key_the_last_row_is_found(rows: list[tuple[str, str, int]]) -> None:
    numbers, first = numbered(table(rows), KEY)
    last = last_of_each(numbers, len(first))
    assert {rows[at] for at in last} == set(rows)
    assert all(rows[at] not in rows[at + 1 :] for at in last)


FAR_APART = st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1])


@given(st.lists(st.tuples(FAR_APART, FAR_APART, FAR_APART), max_size=12))
def test_keys_whose_values_lie_far_apart_are_distinguished_like_all(
    rows: list[tuple[int, int, int]],
) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    names = ("one", "other", "third")
    table = pa.table([pa.array(column, pa.int64()) for column in columns], names=list(names))
    numbers, first = numbered(table, names)
    assert [rows[first[number]] for number in numbers] == rows
    assert len(first) == len(set(rows))


def sums(given: Given) -> Made:
    """The running sum of what is read."""
    before = given.state["sum"]["number"].to_pylist()
    total = sum(before) + sum(given.facts["lifecycle"]["seq"].to_pylist())
    rows = pa.table({"number": [total]}, schema=NUMBERS)
    return Made(rows, {"sum": rows})


def doubles(given: Given) -> Made:
    """Twice what the other step made."""
    made = given.facts["sums"]["number"].to_pylist()
    return Made(pa.table({"number": [2 * one for one in made]}, schema=NUMBERS))


SUMS = Step("sums", ("lifecycle",), sums, {"sum": NUMBERS}, makes=NUMBERS)
DOUBLES = Step("doubles", ("sums", "redeliveries"), doubles, makes=NUMBERS)


def lifecycle(*seqs: int) -> dict[str, pa.Table]:
    """Facts: lifecycle rows of these numbers, and nothing else."""
    rows: list[dict[str, Any]] = [{"emitter": "e", "seq": seq, "kind": "BOOT"} for seq in seqs]
    return {
        "redeliveries": no_facts("redeliveries"),
        "lifecycle": as_facts("lifecycle", pa.Table.from_pylist(rows))
        if rows
        else no_facts("lifecycle"),
    }


def test_a_step_is_called_behind_what_it_reads_and_given_what_it_carried() -> None:
    steps = in_order([DOUBLES, SUMS])
    assert [step.name for step in steps] == ["sums", "doubles"]
    first = compute(steps, lifecycle(1, 2), {}, Evaluation())
    assert first.state["sums"]["sum"]["number"].to_pylist() == [3]
    then = compute(steps, lifecycle(4), first.state, Evaluation())
    assert then.state["sums"]["sum"]["number"].to_pylist() == [7]


def test_without_new_rows_nothing_is_called_and_nothing_forgotten() -> None:
    done = compute(in_order([SUMS, DOUBLES]), lifecycle(), {}, Evaluation())
    assert done.state == {}


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([Step("a", ("b",), sums, makes=NUMBERS)], "read what nobody makes: b"),
        (
            [Step("a", ("b",), sums, makes=NUMBERS), Step("b", ("a",), sums, makes=NUMBERS)],
            "wait for each other: a, b",
        ),
    ],
)
def test_steps_that_cannot_be_ordered_are_refused(steps: list[Step], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        in_order(steps)


def test_what_a_step_needs_is_all_that_leads_to_it_and_nothing_else() -> None:
    names = [step.name for step in needed_for("group_state")]
    assert names[-1] == "group_state"
    assert {"judged_queues", "ticks", "queue_numbers", "offset_violations"} <= set(names)
    assert not {"stalled_windows", "lag_causes"} & set(names), "they read of it, or beside it"
    known: set[str] = set()
    for step in needed_for("group_state"):
        assert {name for name in step.reads if name in names} <= known
        known.add(step.name)


def test_what_is_handed_in_is_left_out_with_all_that_only_it_reads() -> None:
    whole = {step.name for step in needed_for("judged_queues")}
    left = {step.name for step in needed_for("judged_queues", given=["offset_violations"])}
    assert left < whole
    assert "offset_violations" not in left
    assert needed_for("judged_queues", given=["judged_queues"]) == ()


@given(st.permutations([("e/10", 1), ("e/9", 2), ("e/9", 1), ("e/10", 7), ("a", 3)]))
def test_facts_lie_in_the_order_of_emitter_and_seq_whatever_the_order_in_files(
    rows: list[tuple[str, int]],
) -> None:
    bronze = pa.Table.from_pylist(
        [{"emitter": emitter, "seq": seq, "kind": "BOOT"} for emitter, seq in rows]
    )
    facts = as_facts("lifecycle", bronze)
    found = list(zip(facts["emitter"].to_pylist(), facts["seq"].to_pylist(), strict=True))
    assert found == sorted(rows)
