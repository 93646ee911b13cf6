"""Row C9: what a node or an observer said last of a broker holds, however old its row is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.lake.lake import Lake
from pipelines.reading.lasting_lifecycle import LASTING_LIFECYCLE, lasting_rows
from pipelines.reading.moment import Moment, Reached, with_own_silences
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from tests.pipelines.bronze_lake import BronzeWriter

DAY_S = 86_400
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAYS = 45
FORMER, LEADER = "cluster-1/broker-a/0", "cluster-1/broker-a/77"
GONE = "cluster-1/broker-b/observer"


def day(number: float) -> datetime:
    return NOON + timedelta(days=number)


def emitter(lake: Path, name: str, seq: int = 0) -> BronzeWriter:
    """One that opens its tables anew, as upkeep has changed them since."""
    writer = BronzeWriter(lake)
    writer.emitter, writer.seq = name, seq
    return writer


def tend(lake: Lake, number: float) -> list[str]:
    said: list[str] = []
    Maintainer(lake, Upkeep(bronze_days=30, settle_s=0), said.append).round(day(number))
    return [line for line in said if line.startswith("bronze/lifecycle: dropped")]


class Story:
    """The former leader dies on the second day, and so does a broker that an observer watched."""

    def __init__(self, lake: Path) -> None:
        self.folder, self.lake = lake, Lake.at(str(lake))
        former, self.leader, gone = (emitter(lake, name) for name in (FORMER, LEADER, GONE))
        former.report("lifecycle", kind="ROLE_CHANGE", role="MASTER", term=1)
        self.leader.report("lifecycle", kind="ROLE_CHANGE", role="SLAVE", term=1)
        gone.report("lifecycle", kind="OBSERVED", report_each_ms=10_000)
        for writer in (self.leader, gone):
            writer.at(2 * DAY_S)
        self.leader.report("lifecycle", kind="ROLE_CHANGE", role="MASTER", term=7)
        gone.report("lifecycle", kind="BROKER_GONE")
        for writer in (former, self.leader, gone):
            writer.ship()
        self.dead = (Reached(FORMER, day(2), former.seq), Reached(GONE, day(2), gone.seq))

    def goes_on(self, number: int) -> None:
        self.leader = emitter(self.folder, LEADER, self.leader.seq)
        self.leader.at(number * DAY_S)
        self.leader.report("lifecycle", kind="BOOT")
        self.leader.ship()

    def moment(self, number: int) -> Moment:
        leads = Reached(LEADER, day(number), self.leader.seq)
        return with_own_silences(self.lake, Moment("run", 1, (*self.dead, leads)))


def test_a_dead_node_has_ended_for_as_long_as_another_one_leads(tmp_path: Path) -> None:
    story, dropped = Story(tmp_path), list[str]()
    for number in range(3, DAYS):
        story.goes_on(number)
        moment = story.moment(number)
        assert {one.emitter: one.ended_at for one in moment.ended} == {
            FORMER: day(2),
            GONE: day(2),
        }, f"on day {number}"
        assert moment.silent == ()
        assert moment.capped(day(1)).ended == (), "both were there then"
        dropped += tend(story.lake, number)
    oldest = min(str(one["event_date"]) for one in story.lake.table(_lifecycle(story)).partitions())
    assert oldest > str(day(2).date()), "the days of these rows are gone"
    assert [line for line in dropped if "kept" in line] == [
        "bronze/lifecycle: dropped 2026-03-01, and kept 3 rows that still hold",
        "bronze/lifecycle: dropped 2026-03-03, and kept 2 rows that still hold",
    ]


def test_a_day_that_was_kept_and_not_dropped_is_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path)
    story.goes_on(3)
    before = lasting_rows(story.lake, ("ROLE_CHANGE",), "true")

    def dies(*_: object) -> None:
        raise OSError("the maintainer dies")

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.upkeep.work._drop", dies)
        tend(story.lake, 40)
        assert lasting_rows(story.lake, ("ROLE_CHANGE",), "true") == before, "each is read once"
    tend(story.lake, 40)
    kept = story.lake.bronze(LASTING_LIFECYCLE)
    assert story.lake.table(kept).count() == 5
    assert lasting_rows(story.lake, ("ROLE_CHANGE",), "true") == before


def test_a_node_that_comes_back_is_heard(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.goes_on(39)
    tend(story.lake, 39)
    again = emitter(tmp_path, FORMER, 1)
    again.at(40 * DAY_S)
    again.report("lifecycle", kind="ROLE_CHANGE", role="MASTER", term=9)
    again.ship()
    moment = story.moment(39)
    first = replace(moment.reached[0], judged_to=day(40), seq_to=again.seq, ended_at=None)
    back = with_own_silences(story.lake, replace(moment, reached=(first, *moment.reached[1:])))
    assert {one.emitter: one.ended_at for one in back.ended} == {GONE: day(2), LEADER: day(40)}


def _lifecycle(story: Story) -> str:
    return story.lake.bronze("lifecycle")
