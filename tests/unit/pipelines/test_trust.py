"""What a critical failure withholds: the verdicts that rest on the rows it looked at, no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import COMPUTED_TABLES, DQ_FAILURES, DQ_RESULTS
from pipelines.reading.check_results import of_each_check
from pipelines.reading.trust import (
    EVERY_TABLE,
    STANDS_FOR,
    Trust,
    Withheld,
    rests_on,
    trust_of,
)
from pipelines.sentences.checks import WITHHELD

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RUN = {
    "run_id": "r1",
    "started_at": NOON + MINUTE,
    "observed_at": NOON,
    "judged_from": NOON - MINUTE,
}


def results(*rows: dict[str, Any]) -> pl.DataFrame:
    plain = {
        "suite": "s",
        "severity": "CRITICAL",
        "success": False,
        "observed_value": "2 rows",
        "failed_rows": 1,
        "checked_rows": 9,
        "seconds_ms": 1,
        "observed_date": NOON.date(),
        "expectation": "facts_gapless",
        "table": EVERY_TABLE,
        "table_version": 1,
        "cycle": 1,
    }
    return _frame(DQ_RESULTS.columns, [{**plain, **RUN, **row} for row in rows])


def failures(*rows: dict[str, Any]) -> pl.DataFrame:
    plain = {
        "run_id": "r1",
        "expectation": "facts_gapless",
        "table": EVERY_TABLE,
        "row_key": "k",
        "detail": "d",
        "observed_at": NOON,
        "observed_date": NOON.date(),
        "about_emitter": None,
        "about_group": None,
        "since": None,
    }
    return _frame(DQ_FAILURES.columns, [{**plain, **row} for row in rows])


def _frame(columns: Any, rows: list[dict[str, Any]]) -> pl.DataFrame:
    empty = pl.DataFrame(pl.from_arrow(arrow_schema(columns).empty_table()))
    return pl.DataFrame(rows, schema=empty.schema) if rows else empty


class TestWhatAVerdictRestsOn:
    @pytest.mark.parametrize("table", [table.name for table in COMPUTED_TABLES])
    def test_every_verdict_rests_on_its_own_table_and_on_facts(self, table: str) -> None:
        assert {table, EVERY_TABLE} < rests_on(table)

    def test_what_was_read_on_the_way_counts(self) -> None:
        assert "group_watermarks" in rests_on("group_state")
        assert "retry_dlq_flow" in rests_on("dead_letters")
        assert "retry_dlq_flow" not in rests_on("consumer_lag")
        assert "offset_violations" not in rests_on("consumer_lag")


class TestWithholding:
    def test_facts_that_are_missing_withhold_every_verdict_with_check_moment_and_reason(
        self,
    ) -> None:
        trust = trust_of(results({}), failures({"about_emitter": "c/b/0"}))

        held = trust.withheld("group_state", NOON, emitter="c/b/0", group="billing")

        assert str(held) == "withheld: facts_gapless failed at 2026-03-01 12:01:00 UTC: 2 rows"
        assert trust.withheld("dead_letters", NOON) is not None

    def test_a_failure_about_one_emitter_leaves_the_verdicts_of_others(self) -> None:
        trust = trust_of(results({}), failures({"about_emitter": "c/b/0"}))

        assert trust.withheld("group_state", NOON, emitter="c/other/0") is None

    def test_a_failure_about_one_group_leaves_the_verdicts_of_others(self) -> None:
        about = {"about_emitter": "c/b/0", "about_group": "billing"}
        trust = trust_of(results({}), failures(about))

        assert trust.withheld("group_state", NOON, group="billing") is not None
        assert trust.withheld("group_state", NOON, group="ledger") is None

    def test_rows_that_are_not_all_known_by_name_withhold_verdicts_about_everybody(self) -> None:
        about = {"about_emitter": "c/b/0", "about_group": "billing"}
        trust = trust_of(results({"failed_rows": 2}), failures(about))

        assert trust.withheld("group_state", NOON, group="ledger") is not None

    def test_only_what_rests_on_the_table_is_withheld(self) -> None:
        broken = {"table": "retry_dlq_flow", "expectation": "retries_counted"}
        trust = trust_of(results(broken), failures())

        assert trust.withheld("dead_letters", NOON) is not None
        assert trust.withheld("group_state", NOON) is None

    @pytest.mark.parametrize(
        "row",
        [
            pytest.param({"severity": "WARNING"}, id="a warning"),
            pytest.param({"success": True}, id="a check that holds"),
            pytest.param({"checked_rows": 0}, id="nothing to check"),
        ],
    )
    def test_nothing_else_withholds(self, row: dict[str, Any]) -> None:
        assert trust_of(results(row), failures()) == Trust()

    def test_a_verdict_before_the_failing_rows_stands(self) -> None:
        trust = trust_of(results({}), failures())

        assert trust.withheld("group_state", NOON - MINUTE) is None
        assert trust.withheld("group_state", NOON - timedelta(seconds=59)) is not None

    def test_a_verdict_stands_again_once_every_key_was_reported_anew(self) -> None:
        trust = trust_of(results({}), failures())

        assert trust.withheld("group_state", NOON + STANDS_FOR - MINUTE) is not None
        assert trust.withheld("group_state", NOON + STANDS_FOR) is None

    def test_a_range_is_withheld_when_a_part_of_it_is(self) -> None:
        trust = trust_of(results({}), failures())
        late = NOON + timedelta(hours=3)

        assert trust.withheld("stalled_windows", late, since=late - MINUTE) is None
        assert trust.withheld("stalled_windows", late, since=NOON) is not None

    def test_silence_counts_for_as_long_as_the_newest_run_hears_nothing(self) -> None:
        silent = {"expectation": "emitters_speak"}
        since = {"expectation": "emitters_speak", "about_emitter": "c/b/0", "since": NOON - MINUTE}
        heard = {**silent, "success": True, "run_id": "r2", "started_at": NOON + 2 * MINUTE}

        assert trust_of(results(silent), failures(since)).withheld("group_state", NOON) is not None
        assert trust_of(results(silent, heard), failures(since)) == Trust()

    @given(
        since_s=st.integers(-3_600, 3_600),
        length_s=st.integers(1, 3_600),
        asked_s=st.integers(-7_200, 7_200),
        asked_for_s=st.integers(0, 3_600),
    )
    def test_a_wider_question_is_never_answered_where_a_narrower_one_is_withheld(
        self, since_s: int, length_s: int, asked_s: int, asked_for_s: int
    ) -> None:
        begin = NOON + timedelta(seconds=since_s)
        failed = Withheld("c", EVERY_TABLE, begin, begin + timedelta(seconds=length_s), NOON, "r")
        trust, until = Trust((failed,)), NOON + timedelta(seconds=asked_s)

        narrow = trust.withheld("group_state", until)
        wide = trust.withheld("group_state", until, since=until - timedelta(seconds=asked_for_s))

        assert narrow is None or wide == narrow


class TestVerdictsAboutSeveral:
    NAMED: ClassVar = [
        {"about_emitter": "c/b/0", "about_group": group, "row_key": group}
        for group in ("ghost", "billing")
    ]

    def test_groups_that_are_known_by_name_are_left_out_and_the_rest_is_judged(self) -> None:
        trust = trust_of(results({"failed_rows": 2}), failures(*self.NAMED))

        doubts = trust.doubts("stalled_windows", NOON, emitters=["c/b/0", "c/d/0"])

        rows = pl.DataFrame(
            {
                "emitter": ["c/b/0", "c/b/0", "c/d/0", "c/b/0"],
                "group": ["ghost", "ledger", "ghost", None],
            }
        )
        assert doubts.whole is None
        assert [one.group for one in doubts.named] == ["billing", "ghost"]
        assert doubts.rest_of(rows).rows() == [
            ("c/b/0", "ledger"),
            ("c/d/0", "ghost"),
            ("c/b/0", None),
        ]

    def test_each_has_the_reason_of_its_own_rows(self) -> None:
        said = {"failed_rows": 2, "observed_value": "2 of 9 break it: ghost (d); billing (d)"}
        found = trust_of(results(said), failures(*self.NAMED)).failures

        assert {one.group: one.reason for one in found} == {
            "ghost": "1 of 9 break it: ghost (d)",
            "billing": "1 of 9 break it: billing (d)",
        }

    def test_a_broker_that_is_not_to_be_believed_hides_no_other(self) -> None:
        trust = trust_of(results({}), failures({"about_emitter": "c/b/0"}))

        two = trust.doubts("stalled_windows", NOON, emitters=["c/b/0", "c/d/0"])
        one = trust.doubts("stalled_windows", NOON, emitters=["c/b/0"])

        assert (two.whole, two.about) == (None, "all groups of 1 broker")
        assert one.whole is not None

    def test_a_group_of_a_broker_that_is_withheld_is_not_notified_twice(self) -> None:
        rows = [self.NAMED[0], {"about_emitter": "c/b/0", "about_group": None}]
        trust = trust_of(results({"failed_rows": 2}), failures(*rows))

        doubts = trust.doubts("stalled_windows", NOON, emitters=["c/b/0", "c/d/0"])

        assert [whose for whose, _ in doubts.each] == ["all of c/b/0"]

    def test_what_is_not_known_by_name_withholds_everything(self) -> None:
        trust = trust_of(results({"failed_rows": 3}), failures(*self.NAMED))

        assert trust.doubts("stalled_windows", NOON, emitters=["c/b/0"]).whole is not None
        assert trust.doubts("stalled_windows", NOON - MINUTE).whole is None


class TestStatesOfGroups:
    def test_the_state_of_a_group_is_withheld_with_the_reason_and_no_other(self) -> None:
        states = pl.DataFrame(
            {
                "emitter": ["c/b/0", "c/b/0", "c/d/0"],
                "group": ["billing", "ledger", "billing"],
                "state": ["OK", "OK", "OK"],
                "reason": ["", "", ""],
            }
        )
        trust = trust_of(
            results({}), failures({"about_emitter": "c/b/0", "about_group": "billing"})
        )

        shown = trust.over_states(states, NOON)

        assert shown["state"].to_list() == [WITHHELD, "OK", "OK"]
        assert shown["reason"][0].startswith("withheld: facts_gapless failed at")


class TestOneResultACheck:
    def test_a_critical_failure_is_shown_for_as_long_as_it_counts(self) -> None:
        soon = {"run_id": "r2", "success": True, "observed_at": NOON + MINUTE}
        soon["started_at"] = NOON + 2 * MINUTE
        late = {**soon, "run_id": "r3", "observed_at": NOON + STANDS_FOR}
        late["started_at"] = NOON + STANDS_FOR

        assert of_each_check(results({}, soon))["run_id"].to_list() == ["r1"]
        assert of_each_check(results({}, soon, late))["run_id"].to_list() == ["r3"]

    def test_a_run_that_had_nothing_to_look_at_hides_nothing(self) -> None:
        warned = {"severity": "WARNING"}
        idle = {**warned, "run_id": "r2", "checked_rows": 0, "started_at": NOON + 2 * MINUTE}

        assert of_each_check(results(warned, idle))["run_id"].to_list() == ["r1"]
