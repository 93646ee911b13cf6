"""What breaks a law is counted whole, and shown by a few rows."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from expectations.check import SAMPLE_ROWS_MAX, Check, RowLaw, SetLaw, Severity
from expectations.violations import judge_repeats, judge_rows, judge_set

CHECK = Check("lag_is_small", "consumer_lag", Severity.CRITICAL)


def lags(*values: int | None) -> pl.DataFrame:
    return pl.DataFrame({"group": [f"g{place}" for place in range(len(values))], "lag": values})


def test_a_row_of_which_the_law_is_unknown_breaks_nothing() -> None:
    (found,) = judge_rows([RowLaw(CHECK, "lag > 5", ("lag",))], lags(7, None, 3))
    assert (found.checked_rows, found.broken_rows) == (3, 1)
    assert [(one.row_key, one.detail, one.group) for one in found.failures] == [
        ("group=g0", "lag=7", "g0")
    ]


def test_each_law_has_rows_of_its_own() -> None:
    other = Check("lag_is_known", "consumer_lag", Severity.WARNING)
    laws = [RowLaw(CHECK, "lag > 5"), RowLaw(other, "lag IS NULL")]
    found = judge_rows(laws, lags(7, None, 8))
    assert [(one.check, one.broken_rows) for one in found] == [(CHECK, 2), (other, 1)]
    assert [[row.group for row in one.failures] for one in found] == [["g0", "g2"], ["g1"]]


def test_of_rows_with_one_key_all_but_the_first_are_too_many() -> None:
    rows = pl.DataFrame({"group": ["a", "b", "a", "c", "b", "a"], "seq": [1, 2, 1, 4, 2, 1]})
    found = judge_repeats(CHECK, rows, ("group", "seq"))
    assert (found.checked_rows, found.broken_rows) == (6, 3)
    assert [one.row_key for one in found.failures] == ["group=a, seq=1", "group=b, seq=2"]


def judged(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return tables["consumer_lag"].filter(pl.col("lag") > 5)


def test_of_a_law_about_several_rows_all_that_break_it_are_counted_and_a_few_named() -> None:
    law = SetLaw(CHECK, ("consumer_lag", "group_watermarks"), judged, ("lag",))
    many = SAMPLE_ROWS_MAX + 50
    found = judge_set(law, {"consumer_lag": lags(*[9] * many, 1), "group_watermarks": lags()})
    assert (found.checked_rows, found.broken_rows) == (many + 1, many)
    assert len(found.failures) == SAMPLE_ROWS_MAX


def test_a_law_without_new_rows_of_its_first_table_has_checked_nothing() -> None:
    law = SetLaw(CHECK, ("consumer_lag", "group_watermarks"), lambda tables: tables["nowhere"])
    found = judge_set(law, {"consumer_lag": lags(), "group_watermarks": lags(7)})
    assert (found.checked_rows, found.broken_rows, found.failures) == (0, 0, ())
