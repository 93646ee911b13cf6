"""`tm`: questions in the domain's words, answered from gold, without Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.foundation.errors import ConfigError, LakeError
from pipelines import tm

pytestmark = pytest.mark.timeout(600)


def test_importing_it_starts_nothing() -> None:
    heavy = {"pyspark", "dash", "plotly"}
    script = f"import sys; from pipelines import tm; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_answer_is_a_sentence_rows_and_their_source(computed_lake: Path) -> None:
    lake = tm.connect(computed_lake)
    stalls = lake.stalls("frozen")
    assert "1 stalled window of frozen" in stalls.verdict
    assert stalls.df["kind"].to_list() == ["FROZEN_HEAD"]
    source = rf"\[stalled_windows @ version {stalls.version}, 1 row, \d+ more columns in \.df\]"
    assert re.search(source, repr(stalls))
    assert "<strong>1 stalled window of frozen" in stalls._repr_html_()
    assert tm.duplicates("killed").df["outcome"].to_list().count("CONFIRMED") >= 1
    assert len(tm.rebalances("handed")) == 3
    assert len(tm.dead_letters()) == 1
    assert (
        "No queue of killed has a reader now: 2 queues had 2 clients, until "
        in tm.ownership("killed").verdict
    )


def test_groups_are_sorted_worst_first_and_filtered_by_state(computed_lake: Path) -> None:
    lake = tm.connect(computed_lake)
    states = dict(zip(lake.groups().df["group"], lake.groups().df["state"], strict=True))
    assert states["calm"] == "OK"
    assert states["gone"] == "STOPPED"
    assert set(lake.groups("STOPPED").df["group"]) == {
        group for group, state in states.items() if state == "STOPPED"
    }


def test_a_result_draws_the_dashboard_s_own_figure(computed_lake: Path) -> None:
    lake = tm.connect(computed_lake)
    assert len(lake.lag("calm").plot().data) > 0
    assert len(lake.groups().plot().data) > 0


def test_sql_asks_gold_by_the_tables_names(computed_lake: Path) -> None:
    rows = tm.connect(computed_lake).sql(
        'SELECT "group", COUNT(*) AS n FROM offset_violations GROUP BY "group" ORDER BY "group"'
    )
    assert rows.df["group"].to_list() == ["ghost", "reset", "restarted"]


def test_sql_counts_an_interval_once_and_has_all_its_revisions_by_their_own_name(
    computed_lake: Path,
) -> None:
    counted = "SELECT count(*) AS n, count(DISTINCT window_id) AS windows FROM "
    lake = tm.connect(computed_lake)
    once, every = (
        lake.sql(counted + name).df.iloc[0]
        for name in ("stalled_windows", "stalled_windows_revisions")
    )
    assert once["n"] == once["windows"] == every["windows"] < every["n"]
    shown = lake.stalls().df.sort_values("window_id")
    newest = lake.sql("SELECT window_id, revision FROM stalled_windows ORDER BY window_id").df
    assert newest["window_id"].to_list() == shown["window_id"].to_list()
    assert newest["revision"].to_list() == shown["revision"].to_list()


def test_spark_sees_gold_and_bronze_as_views_of_the_same_moment(
    computed_lake: Path, spark: SparkSession
) -> None:
    lake = tm.connect(computed_lake)
    joined = ("dead_letters", "retry_dlq_flow", "stalled_windows")
    tables = ("consumer_lag", "group_watermarks", "shipments", *joined)
    assert lake.spark(tables=tables) is spark  # One session a process.
    for query in (
        *(f"SELECT count(*) AS n FROM {name}" for name in tables[:3]),
        "SELECT count(*) AS n FROM dead_letters JOIN retry_dlq_flow USING (message_id)",
        "SELECT count(*) AS n FROM stalled_windows",
        "SELECT count(*) AS n FROM stalled_windows_revisions",
    ):
        rows = spark.sql(query).collect()[0]["n"]
        assert rows > 0
        assert rows == lake.sql(query).df["n"][0]


@pytest.mark.slow
def test_spark_sees_every_table_of_the_lake(computed_lake: Path, spark: SparkSession) -> None:
    lake = tm.connect(computed_lake)
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)
    lake.spark()
    views = {view.name for view in spark.catalog.listTables()}
    tables = {
        file.name for layer in ("bronze", "gold") for file in (computed_lake / layer).iterdir()
    }
    assert tables <= views
    assert {name.removesuffix("_revisions") for name in views} == tables


def test_spark_opens_only_the_tables_that_are_asked_for(
    computed_lake: Path, spark: SparkSession
) -> None:
    lake = tm.connect(computed_lake)
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)
    lake.spark(tables=("stalled_windows",))
    views = {view.name for view in spark.catalog.listTables()}
    assert views == {"stalled_windows", "stalled_windows_revisions"}
    with pytest.raises(ConfigError, match=r"did you mean 'stalled_windows'"):
        lake.spark(tables=("stalled_window",))


def test_wrong_questions_say_what_would_be_right(computed_lake: Path, tmp_path: Path) -> None:
    lake = tm.connect(computed_lake)
    with pytest.raises(ConfigError, match="calm"):
        lake.lag("no-such-group")
    with pytest.raises(ConfigError, match="15m"):
        lake.lag("calm", since="yesterday")
    with pytest.raises(LakeError, match="make demo"):
        tm.connect(tmp_path / "nothing")
