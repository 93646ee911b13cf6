"""The demo from outside, as a user runs it: real processes, real kills, one seed, headless.

One run serves all tests of this file. Its consumers keep ledgers of what they worked on; gold must
account for every piece of work that was done twice.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from demo.plan import LEDGER, ORDERS, OWN_INCIDENTS, PAYMENTS, Incident, make_plan
from experiment.score import PREDICTING
from pipelines.lake.lake import whole_table
from tests.integration.demo.conftest import DURATION_S, RUN_TIMEOUT_S, SEED, Stage
from tests.integration.demo.process_list import demo_in, processes_of

pytestmark = pytest.mark.timeout(RUN_TIMEOUT_S + 60)


@dataclass(frozen=True)
class DemoRun:
    """How the run ended, and where it left its things."""

    exit_code: int
    output: str
    home: Path

    def gold(self, table: str) -> pl.DataFrame:
        return pl.DataFrame(
            pl.from_arrow(whole_table(DeltaTable(str(self.home / "lake" / "gold" / table))))
        )

    def redeliveries(self) -> pl.DataFrame:
        """The pulls that went back, as the broker reported them."""
        table = DeltaTable(str(self.home / "lake" / "bronze" / "redeliveries"))
        return pl.DataFrame(pl.from_arrow(whole_table(table))).sort("seq")

    def work_done(self, member: str) -> list[tuple[str, int, int]]:
        """(topic, queue id, queue offset) of every message a member has worked on, in order."""
        ledger = self.home / "ledgers" / f"{member}.jsonl"
        entries = [json.loads(line) for line in ledger.read_text().splitlines()]
        return [(e["pulled_from"], e["queue_id"], e["queue_offset"]) for e in entries]


@pytest.fixture(scope="module")
def run(stage: Stage) -> DemoRun:
    return DemoRun(stage.process.returncode, stage.output(), stage.home)


def test_every_incident_that_is_played_is_found_and_every_check_holds(run: DemoRun) -> None:
    assert run.exit_code == 0, run.output
    for incident in OWN_INCIDENTS:
        row = f"│ {incident.value} "
        line = next(line for line in run.output.splitlines() if line.startswith(row))
        assert line.count(" yes ") == 2, f"played and found: {line}"
    assert "failed checks: none" in run.output


def test_the_table_names_every_group_with_its_figures(run: DemoRun) -> None:
    for group in ("billing", "shipping", "ledger"):
        assert any(f" {group} " in line for line in run.output.splitlines()), run.output


def test_it_leaves_no_process_behind(run: DemoRun) -> None:
    assert not processes_of(run.home)


# SIGTERM is the first of two signals in `test_the_end_of_a_demo`.
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_end_in_the_middle_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    with demo_in(home) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "Spark is starting" in line:
                break
        demo.send_signal(number)
        rest, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130, rest
    assert "stopping everything" in rest
    assert not processes_of(home)


def test_a_folder_that_the_demo_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "demo", "--home", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "a folder that is empty, absent or made by an earlier demo" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_the_queues_of_a_topic_share_its_messages(run: DemoRun) -> None:
    newest = run.gold("consumer_lag").group_by("topic", "queue_id").agg(pl.col("max_offset").max())
    for topic in (ORDERS, PAYMENTS):
        sizes = newest.filter(pl.col("topic") == topic)["max_offset"].to_list()
        assert len(sizes) == 4
        assert min(sizes) > max(sizes) / 2, f"{topic}: {sizes}"


def test_work_done_twice_lies_inside_a_window_that_gold_flagged(run: DemoRun) -> None:
    """Every message that members of ledger worked on twice is accounted for, message by message."""
    times = Counter(place for member in LEDGER.members for place in run.work_done(member))
    twice = sorted(place for place, count in times.items() if count > 1)
    scene = make_plan(SEED, DURATION_S).scene(Incident.CONSUMER_KILL)
    assert scene is not None
    assert any(place[1] == scene.queue_id for place in twice), "the kill must cost a message twice"
    windows = run.gold("duplicate_risk_windows").filter(pl.col("group") == LEDGER.name)
    for topic, queue_id, offset in twice:
        covering = windows.filter(
            (pl.col("topic") == topic)
            & (pl.col("queue_id") == queue_id)
            & (pl.col("from_offset") <= offset)
            & (pl.col("to_offset") > offset)
        )
        assert covering.height, f"{topic}/{queue_id} offset {offset} came twice, unflagged"


def test_every_redelivery_was_predicted_before_it_was_pulled(run: DemoRun) -> None:
    """Of the pulls that went back each message lies in a window that was open before."""
    windows = run.gold("duplicate_risk_windows").filter(pl.col("basis").is_in(PREDICTING))
    seen = run.redeliveries()
    assert seen.height > 0, "the kills must cost something"
    for row in seen.iter_rows(named=True):
        on_queue = windows.filter(
            *(pl.col(name) == row[name] for name in ("emitter", "group", "topic", "queue_id")),
            pl.col("seq") <= row["seq"],
        )
        stood = on_queue.sort("revision").unique("window_id", keep="last")
        stood = stood.filter((pl.col("state") == "OPEN") | (pl.col("seq") == row["seq"]))
        for offset in range(row["from_offset"], row["to_offset"]):
            begins = pl.col("from_offset") <= offset
            covering = stood.filter(
                (begins & (pl.col("to_offset") > offset)) | (pl.col("all_from_offset") <= offset)
            )
            place = f"{row['group']} on {row['topic']}/{row['queue_id']}"
            assert covering.height, f"{place}: {offset} came again, and nobody had said so"
