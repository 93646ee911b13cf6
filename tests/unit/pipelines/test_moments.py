"""The last complete cycle of a lake: what readers go up to, whatever a run was killed at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.telemetry.tables import LIFECYCLE
from pipelines.base.settings import silence_us
from pipelines.cycles.cuts import Cut
from pipelines.cycles.plan import PLANS, Plan, Plans
from pipelines.lake.lake import Lake
from pipelines.lake.lease import DRIVER, Holder, acquire
from pipelines.reading.catalogue import COMPUTED_TABLES, CONSUMER_LAG
from pipelines.reading.known import held_to
from pipelines.reading.moment import Moment, Reached, cycle_moment, last_complete
from pipelines.reading.reading import LOOK_BACK, OpenTables, Reading
from tests.lake_story import append_rows
from tests.pipelines.bronze_lake import BronzeWriter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
A, B = "c/broker-a/0", "c/broker-b/0"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose run has begun and whose gold tables are there, empty."""
    home = Lake.at(str(tmp_path / "lake"))
    plans_of(home)
    for table in COMPUTED_TABLES:
        append_rows(home.gold(table.name), table.columns, [], "observed_date")
    return home


def plans_of(lake: Lake) -> Plans:
    """The run of a lake, as a process that starts finds it."""
    return Plans.open(lake, "{}", gold=(), buckets=1)


def plan(plans: Plans, *cuts: Cut) -> Plan:
    """The next cycle takes these."""
    return plans.record(cuts, {})


def cut(emitter: str, second: int, seq: int) -> Cut:
    return Cut(emitter, 0, seq, 0, second, 0, NOON_US + second * 1_000_000)


def moment(**seconds: int) -> Moment:
    reached = tuple(
        Reached(f"c/{name}/0", NOON + timedelta(seconds=second), second)
        for name, second in seconds.items()
    )
    return Moment("run", 1, reached)


class TestLastComplete:
    def test_before_the_first_cycle_there_is_none(self, lake: Lake, tmp_path: Path) -> None:
        assert last_complete(Lake.at(str(tmp_path / "elsewhere"))) is None
        assert last_complete(lake) is None

    def test_a_planned_cycle_is_not_complete_until_that_is_said(self, lake: Lake) -> None:
        plans = plans_of(lake)
        first = plan(plans, cut(A, 5, 50))
        assert last_complete(lake) is None
        plans.finish(first, {})
        found = last_complete(lake)
        assert found is not None
        assert (found.run_id, found.cycle) == (plans.run_id, 1)
        assert found.reached == (Reached(A, NOON + timedelta(seconds=5), 50),)

        second = plan(plans, cut(A, 10, 100), cut(B, 7, 70))
        assert last_complete(lake) == found, "cycle 2 is being written"
        plans.finish(second, {})
        later = last_complete(lake)
        assert later is not None
        assert (later.cycle, len(later.reached)) == (2, 2)

    def test_a_cycle_that_was_carried_out_twice_is_complete_once(self, lake: Lake) -> None:
        first = plan(plans_of(lake), cut(A, 5, 50))
        plans_of(lake).finish(first, {})
        plans_of(lake).finish(first, {})
        found = last_complete(lake)
        assert found is not None
        assert found.cycle == 1

    def test_a_table_that_is_new_to_the_run_hides_no_cycle(self, lake: Lake) -> None:
        plans = plans_of(lake)
        plans.finish(plan(plans, cut(A, 5, 50)), {})
        plans.begin_tables(["retry_flow"])
        found = last_complete(lake)
        assert found is not None
        assert found.cycle == 1

    def test_what_an_earlier_run_at_the_same_place_completed_does_not_count(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        plans = plans_of(lake)
        for _ in range(3):
            plans.finish(plan(plans, cut(A, 5, 50)), {})
        Path(lake.state(PLANS)).rename(tmp_path / "old-plans")
        Path(lake.root, "gold").rename(tmp_path / "old-gold")
        plan(plans_of(lake), cut(A, 9, 90))
        assert last_complete(lake) is None

    def test_a_cycle_is_found_by_its_number(self, lake: Lake) -> None:
        plans = plans_of(lake)
        for second in (5, 10, 15):
            plans.finish(plan(plans, cut(A, second, second)), {})
        found = cycle_moment(lake, 2)
        assert found is not None
        assert found.judged_to == NOON + timedelta(seconds=10)
        assert cycle_moment(lake, 4) is None
        assert cycle_moment(lake, 0) is None


class TestOwnSilences:
    """An emitter that reports a broker from outside says how often it does."""

    OBSERVED = "c/broker-a/observer"

    def found(self, lake: Lake, *emitters: str) -> dict[str, int]:
        plans = plans_of(lake)
        plans.finish(plan(plans, *(cut(emitter, 5, 50) for emitter in emitters)), {})
        found = last_complete(lake)
        assert found is not None
        return {one.emitter: one.silence_us // 1_000_000 for one in found.reached}

    def report(self, lake: Lake, seq: int, report_each_ms: int) -> None:
        observer = BronzeWriter(Path(lake.root))
        observer.emitter, observer.seq = self.OBSERVED, seq - 1
        observer.report(
            "lifecycle", kind="OBSERVED", observed_by="observer", report_each_ms=report_each_ms
        )
        observer.ship()

    def test_it_may_be_silent_for_longer_than_a_broker(self, lake: Lake) -> None:
        self.report(lake, 1, 10_000)
        self.report(lake, 7, 60_000)
        assert self.found(lake, A, self.OBSERVED) == {A: 25, self.OBSERVED: 125}

    def test_what_it_reported_after_the_cycle_does_not_count(self, lake: Lake) -> None:
        self.report(lake, 7, 20_000)
        self.report(lake, 51, 60_000)
        assert self.found(lake, self.OBSERVED) == {self.OBSERVED: 45}

    @pytest.mark.parametrize(("silence_s", "silences"), [(25, [40]), (45, []), (125, [])])
    def test_shipments_that_come_seldom_are_no_silences(
        self, lake: Lake, silence_s: int, silences: list[int]
    ) -> None:
        observer = BronzeWriter(Path(lake.root))
        for second in (0, 40, 80):
            observer.at(second)
            observer.report("lifecycle", kind="OBSERVED")
            observer.ship()
        end = NOON + timedelta(seconds=80)
        reached = Reached(observer.emitter, end, 3, silence_us=silence_s * 1_000_000)
        seen = Reading(OpenTables(lake), Moment("run", 1, (reached,)))
        found = seen.silences(NOON - timedelta(minutes=1), end)
        spans = [int((row["until"] - row["since"]).total_seconds()) for row in found.to_dicts()]
        assert spans == silences * 2

    def test_of_a_lake_that_does_not_know_it_is_as_a_broker(self, lake: Lake) -> None:
        assert self.found(lake, self.OBSERVED) == {self.OBSERVED: 25}
        columns = [one for one in LIFECYCLE.columns if one.name != "report_each_ms"]
        append_rows(lake.bronze("lifecycle"), columns, [], "event_date")
        assert self.found(lake, self.OBSERVED) == {self.OBSERVED: 25}


@pytest.mark.parametrize(
    ("report_each_ms", "seconds"), [(None, 25), (1_000, 25), (10_000, 25), (20_000, 45)]
)
def test_an_emitter_may_miss_a_report_before_it_is_silent(
    report_each_ms: int | None, seconds: int
) -> None:
    assert silence_us(report_each_ms) == seconds * 1_000_000


class TestMoment:
    def test_an_emitter_that_reports_seldom_is_silent_later(self) -> None:
        reached = moment(a=100, b=60).reached
        patient = Moment("run", 1, (reached[0], replace(reached[1], silence_us=45_000_000)))
        assert patient.silent == ()
        assert patient.judged_to == NOON + timedelta(seconds=60)
        assert patient.silence_us == 45_000_000

    def test_an_emitter_that_fell_silent_does_not_hold_back_what_is_said(self) -> None:
        together = moment(a=100, b=90)
        assert together.judged_to == together.least == NOON + timedelta(seconds=90)
        assert together.silent == ()
        apart = moment(a=100, b=60)
        assert apart.judged_to == NOON + timedelta(seconds=100)
        assert apart.least == NOON + timedelta(seconds=60)
        assert [one.emitter for one in apart.silent] == ["c/b/0"]

    def test_an_earlier_moment_of_the_same_cycle_ends_no_emitter_later_than_it_did(self) -> None:
        earlier = moment(a=100, b=60).capped(NOON + timedelta(seconds=80))
        assert [one.judged_to for one in earlier.reached] == [
            NOON + timedelta(seconds=80),
            NOON + timedelta(seconds=60),
        ]

    def test_without_any_emitter_nothing_is_seen(self) -> None:
        nothing = Moment("", 0, ())
        assert (nothing.newest, nothing.least, nothing.judged_to) == (None, None, None)
        assert nothing.condition(CONSUMER_LAG) == "(false)"


class TestNobodyReports:
    """No emitter is ahead of another: only whoever waits for them can know that they stopped."""

    ONLY = "c/broker-a/observer"

    @staticmethod
    def looked(lake: Lake, at: datetime) -> None:
        """The driver says that it looked then, and nothing was new."""
        now = at.isoformat(timespec="milliseconds")
        holder = Holder(DRIVER, "here", 7, now, "t", now, released=True, looked=now).as_bytes()
        address = Path(lake.state("leases")) / f"{DRIVER}.json"
        address.parent.mkdir(exist_ok=True)
        address.write_bytes(holder)

    def after(self, lake: Lake, seconds: float, *emitters: str) -> Moment:
        """A cycle of these, after which the driver has waited for so long."""
        plans = plans_of(lake)
        made = plan(plans, *(cut(emitter, 5, 50) for emitter in emitters))
        plans.finish(made, {})
        (Path(lake.state("leases")) / f"{DRIVER}.json").unlink(missing_ok=True)
        planned = last_complete(lake)
        assert planned is not None
        assert planned.planned_at is not None
        assert not planned.waited
        self.looked(lake, planned.planned_at + timedelta(seconds=seconds))
        found = last_complete(lake)
        assert found is not None
        return found

    @pytest.mark.parametrize("emitters", [(A,), (A, B), ("c/broker-a/observer",)])
    @pytest.mark.parametrize(("seconds", "is_silent"), [(8, False), (24, False), (27, True)])
    def test_all_are_silent_once_nothing_came_for_as_long_as_one_may_be(
        self, lake: Lake, emitters: tuple[str, ...], seconds: int, is_silent: bool
    ) -> None:
        found = self.after(lake, seconds, *emitters)
        assert tuple(one.emitter for one in found.silent) == (emitters if is_silent else ())
        assert set(found.unknown) == set(emitters if is_silent else ())
        assert found.reported_to == found.judged_to == NOON + timedelta(seconds=5)
        waits = timedelta(seconds=seconds if seconds >= 10 else 0)
        assert found.present is not None
        assert abs(found.present - NOON - timedelta(seconds=5) - waits) < timedelta(seconds=0.01)

    def test_one_that_reports_seldom_may_be_silent_for_longer(self, lake: Lake) -> None:
        story = TestOwnSilences()
        story.report(lake, 1, 60_000)
        assert self.after(lake, 120, self.ONLY).silent == ()
        assert [one.emitter for one in self.after(lake, 126, self.ONLY).silent] == [self.ONLY]

    def test_the_next_cycle_ends_the_wait(self, lake: Lake) -> None:
        assert self.after(lake, 60, A).silent
        plans = plans_of(lake)
        plans.finish(plan(plans, cut(A, 70, 60)), {})
        found = last_complete(lake)
        assert found is not None
        # What was seen before a cycle was planned says nothing of what is behind it.
        self.looked(lake, found.planned_at - timedelta(seconds=1))  # type: ignore[operator]
        later = last_complete(lake)
        assert later is not None
        assert (later.silent, later.waited) == ((), timedelta(0))

    def test_a_driver_that_is_gone_makes_nobody_silent_and_takes_back_nothing(
        self, lake: Lake
    ) -> None:
        plans = plans_of(lake)
        plans.finish(plan(plans, cut(A, 5, 50)), {})
        with acquire(lake, DRIVER):
            pass
        never = last_complete(lake)
        assert never is not None
        assert never.silent == (), "it looked at nothing"
        silent = self.after(lake, 60, A)
        with acquire(lake, DRIVER):
            assert last_complete(lake) == silent, "the next one knows what the last one has seen"
        assert last_complete(lake) == silent

    def test_the_past_is_as_long_ago_as_it_was(self, lake: Lake) -> None:
        found = self.after(lake, 60, A)
        then = found.capped(NOON + timedelta(seconds=2))
        assert then.present == NOON + timedelta(seconds=2)
        assert then.silent == ()
        later = found.capped(NOON + timedelta(seconds=45))
        assert later.present == NOON + timedelta(seconds=45)
        assert [one.emitter for one in later.silent] == [A]


class TestNewest:
    """Rows of one queue each second or never, asked at any moment."""

    @settings(max_examples=25, deadline=None)
    @given(
        rows_at=st.lists(
            st.tuples(st.integers(0, 1500), st.integers(0, 2)), min_size=1, max_size=12, unique=True
        ),
        asked=st.integers(0, 1600),
    )
    def test_it_is_the_last_row_at_or_before_the_moment_within_the_look_back(
        self, tmp_path_factory: pytest.TempPathFactory, rows_at: list[tuple[int, int]], asked: int
    ) -> None:
        lake = Lake.at(str(tmp_path_factory.mktemp("newest") / "lake"))
        rows = [row(second, queue) for second, queue in rows_at]
        append_rows(lake.gold("consumer_lag"), CONSUMER_LAG.columns, rows, "observed_date")
        at = NOON + timedelta(seconds=asked)
        seen = Reading(OpenTables(lake), Moment("run", 1, (Reached(A, at, 10**9),)))

        within = (asked - LOOK_BACK.total_seconds(), asked)
        expected = {
            queue: second for second, queue in sorted(rows_at) if within[0] <= second <= within[1]
        }
        newest = seen.newest("consumer_lag")
        seconds = (newest["observed_at"] - NOON).dt.total_seconds().to_list()
        assert dict(zip(newest["queue_id"].to_list(), seconds, strict=True)) == expected
        held = held_to(newest, seen.moment)
        assert held["time_lag_ms"].to_list() == [
            (asked - expected[queue]) * 1000 if queue else 0 for queue in sorted(expected)
        ]


def row(second: int, queue: int) -> dict[str, object]:
    """Queue 0 has nothing waiting, the others a message that has just come."""
    return {
        "observed_at": NOON + timedelta(seconds=second),
        "observed_date": NOON.date(),
        "cluster": "c",
        "broker": "broker-a",
        "emitter": A,
        "group": "g",
        "topic": "t",
        "queue_id": queue,
        "lag_messages": 1 if queue else 0,
        "time_lag_ms": 0,
        "provenance": "EXACT",
        "min_offset": 0,
        "max_offset": 1,
        "seq": second,
    }


def test_a_queue_that_was_reported_before_its_emitter_existed_here_is_not_aged() -> None:
    lag = pl.DataFrame([{**row(5, 1), "emitter": "c/stranger/0"}])
    assert held_to(lag, moment(a=100))["time_lag_ms"].to_list() == [0]
