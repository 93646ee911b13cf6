"""Row F6: the case study's rules and rows by themselves, on files and SQLite; executors are killed
in the integration test.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.executor import JobContext

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
NOW_MS = 1_780_000_000_000
READINGS = b"sensor,degrees\nroof,21.5\ncellar,-3\n"


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The modules of the example, as an executor that is started beside them sees them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        names = ("rules", "rows", "handlers")
        yield SimpleNamespace(
            **{name: importlib.import_module(f"file_conversion.{name}") for name in names}
        )


@pytest.fixture
def place(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A database and a store of files, both empty."""
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("CONVERSION_DATABASE", f"sqlite:///{tmp_path / 'work.db'}")
    monkeypatch.setenv("CONVERSION_STORE", (tmp_path / "store").as_uri())
    example.rows.prepare(example.handlers._database())
    yield SimpleNamespace(files=tmp_path / "store", database=example.handlers._database())
    example.handlers._database().dispose()
    example.handlers._database.cache_clear()
    example.handlers._store.cache_clear()


def run(
    handler: Callable[[JobContext], object], *, shard: tuple[int, int] = (0, 1), **parameters: Any
) -> tuple[JobContext, str]:
    """A run of a handler, and its log."""
    lines: list[str] = []
    now = datetime(2026, 3, 1, tzinfo=UTC)
    context = JobContext(1, 1, json.dumps(parameters), now, now, True, *shard, _write=lines.append)
    handler(context)
    return context, "\n".join(lines)


def history(place: Any, example: Any) -> list[Any]:
    with place.database.connect() as connection:
        return list(connection.execute(example.rows.HISTORY.select().order_by("id")))


def work(place: Any, example: Any) -> list[Any]:
    with place.database.connect() as connection:
        return list(connection.execute(example.rows.WORK.select().order_by("id")))


def test_files_are_converted_and_their_rows_move_to_the_history(place: Any, example: Any) -> None:
    for name in "abc":
        (place.files / f"{name}.csv").write_bytes(READINGS)
    example.rows.add(place.database, ["a.csv", "b.csv", "c.csv"])

    context, log = run(example.handlers.convert_files)

    assert (context.code, context.message) == (200, "3 converted")
    assert "shard 0 of 1: 3 rows" in log
    entries = history(place, example)
    assert [(row.id, row.status, row.claims, row.failures) for row in entries] == [
        (number, 4, 1, 0) for number in (1, 2, 3)
    ]
    assert work(place, example) == []
    made = (place.files / entries[0].target).read_text().splitlines()
    assert [json.loads(line) for line in made] == [
        {"sensor": "roof", "degrees": 21.5},
        {"sensor": "cellar", "degrees": -3.0},
    ]


def test_a_row_that_has_moved_leaves_its_number_to_no_other(place: Any, example: Any) -> None:
    for source in ("a.csv", "b.csv"):
        (place.files / source).write_bytes(READINGS)
        example.rows.add(place.database, [source])
        assert run(example.handlers.convert_files)[0].message == "1 converted"
    assert [row.id for row in history(place, example)] == [1, 2]


def test_each_shard_takes_its_own_rows_and_together_they_take_all(place: Any, example: Any) -> None:
    sources = [f"{number}.csv" for number in range(1, 11)]
    for source in sources:
        (place.files / source).write_bytes(READINGS)
    example.rows.add(place.database, sources)
    messages = [
        run(example.handlers.convert_files, shard=(index, 3))[0].message for index in range(3)
    ]
    assert messages == ["3 converted", "4 converted", "3 converted"]
    assert [row.claims for row in history(place, example)] == [1] * 10


def test_a_bad_path_is_logged_and_after_four_failures_people_are_notified(
    place: Any, example: Any
) -> None:
    example.rows.add(place.database, ["no/such/file.csv"])
    for _ in range(4):
        context, log = run(example.handlers.convert_files)
        assert context.message == "1 failed"
        assert "row 1, no/such/file.csv:" in log
        assert "not found" in log
    assert run(example.handlers.convert_files)[0].message == "nothing to do"
    context, log = run(example.handlers.retry_hopeless_files)
    assert (context.code, context.message) == (500, "1 failed")
    assert "row 1, no/such/file.csv:" in log

    (place.files / "no" / "such").mkdir(parents=True)
    (place.files / "no" / "such" / "file.csv").write_bytes(READINGS)
    assert run(example.handlers.retry_hopeless_files)[0].message == "1 converted"
    ((row_id, claims, failures, losses),) = [
        (row.id, row.claims, row.failures, row.losses) for row in history(place, example)
    ]
    assert (row_id, claims, failures, losses) == (1, 6, 5, 0)
    assert run(example.handlers.retry_hopeless_files)[0].code == 200


@pytest.mark.parametrize("bad", [b"\xff", b"a,b\n1,2\n", b"sensor,degrees\nroof,warm\n", b""])
def test_a_file_that_is_no_table_fails_and_leaves_no_result(
    bad: bytes, place: Any, example: Any
) -> None:
    (place.files / "bad.csv").write_bytes(bad)
    example.rows.add(place.database, ["bad.csv"])
    assert run(example.handlers.convert_files)[0].message == "1 failed"
    assert not (place.files / "converted").exists()


def test_what_a_dead_executor_had_is_given_back_and_its_late_word_does_not_count(
    place: Any, example: Any
) -> None:
    rows = example.rows
    rows.add(place.database, ["a.csv"])
    (row,) = rows.waiting(place.database, 0, 1, rows_max=10)
    dead = rows.claim(place.database, row, now_ms=NOW_MS)
    assert rows.claim(place.database, row, now_ms=NOW_MS) is None, "one has it"
    assert rows.waiting(place.database, 0, 1, rows_max=10) == []

    assert rows.give_back_stuck(place.database, claimed_before_ms=NOW_MS) == 0
    assert rows.give_back_stuck(place.database, claimed_before_ms=NOW_MS + 1) == 1
    heir = rows.claim(place.database, row, now_ms=NOW_MS)
    assert not rows.succeed(place.database, row, dead, target="x", now_ms=NOW_MS)
    assert not rows.fail(place.database, row, dead, "late")
    assert history(place, example) == []
    assert rows.succeed(place.database, row, heir, target="x", now_ms=NOW_MS)
    assert not rows.succeed(place.database, row, heir, target="x", now_ms=NOW_MS)
    (entry,) = history(place, example)
    assert (entry.claims, entry.failures, entry.losses) == (2, 1, 1)


def test_a_run_returns_when_its_patience_ends_and_its_work_goes_on(
    place: Any, example: Any
) -> None:
    (place.files / "a.csv").write_bytes(READINGS)
    example.rows.add(place.database, ["a.csv"])
    with place.database.begin() as other:  # Whoever writes has to wait for this one.
        other.execute(example.rows.WORK.update().values(error=""))
        context, _ = run(example.handlers.convert_files, patience_s=0.01)
        assert context.message == "1 still at work"
    while not history(place, example):
        pass
    assert work(place, example) == []


@given(
    ids=st.lists(st.integers(1, 2**53), unique=True),
    totals=st.lists(st.integers(1, 50), min_size=1),
)
def test_however_many_shards_come_and_go_no_row_is_nobodys(
    example: Any, ids: list[int], totals: list[int]
) -> None:
    """Shards are counted anew at each trigger: at each, every row is in exactly one."""
    for total in totals:
        owners = Counter(
            row_id
            for shard in range(total)
            for row_id in ids
            if example.rules.shard_of(row_id, total) == shard
        )
        assert owners == Counter(ids)
