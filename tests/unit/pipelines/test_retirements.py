"""Brokers that were taken out for good, by their observer or by hand; neither is silent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.present_rows import rows_of_lake
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import GROUP_STATE, STALLED_WINDOWS
from pipelines.reading.moment import Moment, Reached, with_own_silences
from pipelines.reading.reading import OpenTables, Reading, closed_with_brokers
from pipelines.reading.retirements import retire, retirements
from tests.pipelines.bronze_lake import BronzeWriter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def seen(lake: Lake, *reached: Reached) -> Moment:
    return with_own_silences(lake, Moment("run", 1, reached))


def reported_by(lake: Path, broker: str, *events: tuple[float, str], emitter: str = "") -> Reached:
    """These lifecycle rows are in the lake, and all of them were judged."""
    writer = BronzeWriter(lake, broker=broker)
    writer.emitter = emitter or writer.emitter
    for second, kind in events:
        writer.at(second)
        writer.report("lifecycle", kind=kind, report_each_ms=10_000 if kind == "OBSERVED" else None)
    writer.ship()
    return Reached(writer.emitter, at(events[-1][0]), writer.seq)


OBSERVED = "cluster-1/gone/observer"


def test_an_observer_that_reported_its_broker_gone_is_not_silent_and_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    lake = Lake.at(str(tmp_path))
    events = ((0, "OBSERVED"), (5, "BROKER_GONE"), (700, "OBSERVED"))
    back = reported_by(tmp_path, "gone", *events, emitter=OBSERVED)
    gone = Reached(OBSERVED, at(5), 2)
    speaks = reported_by(tmp_path, "speaks", (600, "BOOT"))
    moment = seen(lake, gone, speaks)
    assert [one.emitter for one in moment.ended] == [OBSERVED]
    assert moment.silent == ()
    assert moment.unknown == {}
    assert moment.judged_to == moment.least == at(600)
    emitters = rows_of_lake(moment, micros(at(600)))["emitters"]
    assert emitters["emitter"].to_list() == [speaks.emitter]
    assert moment.capped(at(4)).ended == (), "it was there then"
    assert seen(lake, back, speaks).ended == ()


def test_one_that_was_retired_by_hand_has_ended_until_it_reports_anything(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    gone = reported_by(tmp_path, "gone", (0, "BOOT"), (5, "SHUTDOWN"))
    speaks = reported_by(tmp_path, "speaks", (600, "BOOT"))
    assert [one.emitter for one in seen(lake, gone, speaks).silent] == [gone.emitter]
    retire(lake, gone.emitter, by="me@here", reason="sold", now=at(300))
    moment = seen(lake, gone, speaks)
    assert (moment.silent, [one.emitter for one in moment.ended]) == ((), [gone.emitter])
    assert moment.capped(at(200)).ended == ()
    back = replace(gone, judged_to=at(400))
    assert seen(lake, back, speaks).ended == ()
    assert set(retirements(lake)) == {gone.emitter}


def test_one_that_reports_and_one_that_is_not_known_are_not_retired(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    speaks = reported_by(tmp_path, "speaks", (600, "BOOT"))
    with pytest.raises(ConfigError, match="one that reports no more"):
        retire(lake, speaks.emitter, by="me", reason=None, now=at(610))
    with pytest.raises(ConfigError, match=f"has facts of: {speaks.emitter}"):
        retire(lake, "cluster-1/other/0", by="me", reason=None, now=at(610))
    assert retirements(lake) == {}


def test_nothing_of_it_is_shown_as_there_or_open(tmp_path: Path) -> None:
    ended = Reached("c/gone/0", at(5), 9, ended_at=at(5))
    moment = Moment("run", 1, (ended, Reached("c/speaks/0", at(600), 9)))
    reading = Reading(OpenTables(Lake.at(str(tmp_path))), moment)
    states = pl.DataFrame(pl.from_arrow(arrow_schema(GROUP_STATE.columns).empty_table()))
    rows = pl.concat(
        [states, pl.DataFrame({"emitter": ["c/gone/0", "c/speaks/0"], "state": ["OK", "OK"]})],
        how="diagonal_relaxed",
    )
    assert reading.present("group_state", rows)["emitter"].to_list() == ["c/speaks/0"]
    windows = pl.DataFrame(pl.from_arrow(arrow_schema(STALLED_WINDOWS.columns).empty_table()))
    opened = {
        "emitter": ["c/gone/0", "c/speaks/0"],
        "opened_at": [at(1), at(1)],
        "state": ["OPEN", "OPEN"],
        "evidence": ["it stands", "it stands"],
    }
    both = pl.concat([windows, pl.DataFrame(opened)], how="diagonal_relaxed")
    closed, open_still = closed_with_brokers(both, moment).to_dicts()
    assert (closed["state"], closed["closed_at"]) == ("CLOSED", at(5))
    assert closed["evidence"] == "Its broker was taken out. Before: it stands"
    assert (open_still["state"], open_still["closed_at"]) == ("OPEN", None)
