"""A look each period must be enough for the window in which queues are judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from engine.observe import WINDOW_MS, app, period_ms_of
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake
from pipelines.reading.emitters import ASKED_EACH, Periods, too_seldom
from tests.pipelines.bronze_lake import BronzeWriter

EMITTER = "cluster-1/broker-a/watcher"


def observed_lake(lake: Path, period_s: float, *, seq: int = 1) -> Lake:
    """A lake that an observer ships to, which looks that often since."""
    observer = BronzeWriter(lake)
    observer.emitter, observer.seq = EMITTER, seq - 1
    each_ms = round(1000 * period_s)
    observer.report(
        "lifecycle", kind="OBSERVED", observed_by="watcher", report_each_ms=each_ms, skew_ms=0
    )
    observer.ship()
    return Lake.at(str(lake))


def test_the_window_that_the_observer_takes_for_granted_is_that_of_the_pipeline() -> None:
    assert Evaluation().window_ms == WINDOW_MS


@pytest.mark.parametrize(("period_s", "window_ms"), [(1, 30_000), (15, 30_000), (60, 120_000)])
def test_a_period_that_a_window_holds_twice_is_taken(period_s: float, window_ms: int) -> None:
    assert period_ms_of(period_s, window_ms=window_ms) == 1000 * period_s


@pytest.mark.parametrize(
    ("period_s", "window_ms", "sentence"),
    [
        (0.5, 30_000, "setting period=0.5 is not allowed: 1 to 60 seconds"),
        (61, 600_000, "setting period=61 is not allowed: 1 to 60 seconds"),
        (
            20,
            30_000,
            (
                "setting period=20 is not allowed: 15 seconds at most, half of the window in which "
                "the pipeline judges queues (30000 ms), else verdicts would flicker; look more "
                "often, or run the pipeline with --window-ms 40000 and say so here, too"
            ),
        ),
    ],
)
def test_one_that_would_let_verdicts_flicker_is_refused_with_what_to_do(
    period_s: float, window_ms: int, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        period_ms_of(period_s, window_ms=window_ms)
    assert str(refused.value) == sentence


def test_a_pipeline_logs_an_observer_that_looks_too_seldom_once_each_period(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    lake = observed_lake(tmp_path / "lake", 15)
    periods = Periods(lake, Evaluation(), said.append)
    periods.cycle()
    assert said == []
    for seq, period_s in ((2, 60), (3, 60), (4, 20), (5, 10)):
        observed_lake(tmp_path / "lake", period_s, seq=seq)
        for _ in range(ASKED_EACH):
            periods.cycle()
    assert len(said) == 2
    assert said[0] == (
        f"{EMITTER} is looked at each 60 s, more than half of the window of 30 s in which queues "
        "are judged: verdicts on it may flicker; start `tidemark observe` with --period 15 or "
        "less, or judge by a longer window (--window-ms 120000, into another lake)"
    )
    assert "each 20 s" in said[1]


def test_a_lake_without_observers_has_none(tmp_path: Path) -> None:
    assert too_seldom(Lake.at(str(tmp_path / "lake")), Evaluation()) == {}


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        ("99", 1, "setting period=99.0 is not allowed: 1 to 60 seconds"),
        ("99s", 1, "setting period=99.0 is not allowed: 1 to 60 seconds"),
        ("10min", 2, "Invalid value for '--period'"),
    ],
)
def test_a_period_may_be_written_with_its_unit(written: str, code: int, said: str) -> None:
    done = CliRunner().invoke(app, ["observe", "-n", "127.0.0.1:1", "--period", written])
    assert done.exit_code == code
    assert said in done.output
