"""Row C9: the storage page says what a loss would cost now, and of what it does not know why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from dashboards.figures.storage_charts import held, loss_window, timers_due
from dashboards.models import storage_lines
from dashboards.models.storage_lines import NEVER_REPORTED, NOT_COUNTED, OBSERVED
from dashboards.page_context import PageContext
from dashboards.pages import storage
from dashboards.pages.components import tree
from dashboards.reads.lag_series import NO_SILENCE
from dashboards.reads.lake_data import LakeData
from dashboards.theme import LIGHT
from dashboards.url_state import Span
from engine.telemetry.tables import BY_NAME
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.marts.flush_health import FLUSH_HEALTH
from pipelines.marts.replication_health import REPLICATION_HEALTH
from tests.dashboards.conftest import FRESH
from tests.lake_story import EMITTER, END, at

FAR, NEAR = "10.0.0.33:10912", "10.0.0.32:10912"
SPAN = Span(at(0), END, END, FRESH)


def frame(columns: Any, *rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of a table; what they do not name is unknown, or the master's own."""
    common = {"cluster": "c", "broker": "b", "emitter": EMITTER, "seq": 1, "observed_at": END}
    schema = pl.DataFrame(pl.from_arrow(arrow_schema(columns).empty_table())).schema
    return pl.DataFrame(
        [dict.fromkeys(schema) | common | row for row in rows], schema=schema, orient="row"
    )


def replication(**values: Any) -> pl.DataFrame:
    slaves = [
        {"replica": NEAR, "replicated": 90, "behind_bytes": 10, "behind_ms": 1_000},
        {"replica": FAR, "replicated": 40, "behind_bytes": 60, "behind_ms": 90_000},
    ]
    row = {
        "mode": "SYNC_MASTER",
        "replicas": 2,
        "written": 100,
        "epoch": 3,
        "slaves": slaves,
        "furthest_replica": NEAR,
        "loss_bytes": 10,
        "loss_messages": 1,
        "slowest_replica": FAR,
        "behind_bytes": 60,
        "behind_ms": 90_000,
    }
    return frame(REPLICATION_HEALTH.columns, row | values)


def flush(**values: Any) -> pl.DataFrame:
    row = {"kill_bytes": 0, "power_cut_bytes": 0, "power_cut_messages": 0}
    return frame(FLUSH_HEALTH.columns, row | values)


NO_SLAVES, NO_FLUSHES = replication().clear(), flush().clear()
NONE_REPORTED = dict.fromkeys(
    ("furthest_replica", "loss_bytes", "loss_messages", "slowest_replica", "behind_ms")
)


@pytest.mark.parametrize(
    ("slaves", "word", "reason"),
    [
        (replication(), "behind", f"{FAR} lacks 60 B, the first for 1 min 30 s"),
        (replication(behind_ms=60_000), "replicated", "2 slaves within 60 s"),
        (
            replication(replicas=0, slaves=[], unknown_reason="NO_REPLICA", **NONE_REPORTED),
            "no replica",
            "it waits for a slave, and none is connected: its log is on one disk",
        ),
        (
            replication(unknown_reason="NOTHING_REPORTED", **NONE_REPORTED),
            "unknown",
            "its slave has connected and reported nothing yet",
        ),
        (replication(behind_ms=None), "unknown", "one of its slaves has reported nothing yet"),
        (NO_SLAVES, "single", NEVER_REPORTED),
    ],
)
def test_a_broker_is_called_what_its_slaves_make_it(
    slaves: pl.DataFrame, word: str, reason: str
) -> None:
    (line,) = storage_lines.broker_lines(slaves, flush(), {})
    assert (line.sign.word, line.reason) == (word, reason)
    assert (line.master_lost.size_bytes is None) == bool(line.master_lost.unknown)


def test_of_a_silent_broker_nothing_is_known_whatever_it_reported_before() -> None:
    why = "broker-a reports nothing since 12:15:00"
    (line,) = storage_lines.broker_lines(replication(), flush(), {EMITTER: why})
    costs = (line.master_lost, line.power_cut)
    assert [(one.size_bytes, one.messages, one.unknown) for one in costs] == [(None, None, why)] * 2
    assert (line.sign.word, line.replicas, line.killed_bytes) == ("unknown", None, None)
    for slave in storage_lines.slave_lines(replication(), {EMITTER: why}):
        assert (slave.replicated, slave.behind_bytes, slave.unknown) == (None, None, why)


def test_messages_are_those_of_the_slave_that_has_most_and_of_no_other() -> None:
    far, near = storage_lines.slave_lines(replication(), {})
    assert (far.replica, far.behind_bytes, far.behind_messages) == (FAR, 60, None)
    assert far.unknown == NOT_COUNTED
    assert (near.replica, near.behind_bytes, near.behind_messages) == (NEAR, 10, 1)


def test_who_was_watched_from_outside_is_known_by_bytes_alone() -> None:
    watched = flush(power_cut_bytes=500, power_cut_messages=1, provenance="OBSERVED")
    (line,) = storage_lines.broker_lines(NO_SLAVES, watched, {})
    cost = line.power_cut
    assert (cost.size_bytes, cost.messages, cost.unknown) == (500, None, OBSERVED)
    polled = replication(provenance="OBSERVED", loss_messages=None)
    (line,) = storage_lines.broker_lines(polled, NO_FLUSHES, {})
    cost = line.master_lost
    assert (cost.size_bytes, cost.messages, cost.unknown) == (10, None, OBSERVED)
    assert {one.unknown for one in storage_lines.slave_lines(polled, {})} == {OBSERVED}


def test_what_is_made_from_the_log_is_behind_by_time_and_the_log_by_bytes() -> None:
    common = {"cluster": "c", "broker": "b", "emitter": EMITTER, "duration_us_max": 1500}
    rows = [
        {"component": "COMMIT_LOG", "action": "FLUSH", "written": 900, "flushed": 600, "seq": 1},
        {"component": "COMMIT_LOG", "action": "COMMIT", "written": 900, "committed": 850, "seq": 2},
        {"component": "INDEX", "action": "FLUSH", "store_time": END - timedelta(seconds=8)},
        {"component": "DELAY", "action": "PERSIST", "written": 77},
    ]
    rows[0]["store_time"] = END
    found = frame(
        BY_NAME["flush_checkpoints"].columns,
        *({**common, "cause": "TIMER", "event_time": END, **row} for row in rows),
    )
    assert [(line.component, line.behind) for line in storage_lines.file_lines(found)] == [
        ("COMMIT_LOG", "300 B"),
        ("COMMIT_LOG", "50 B"),
        ("INDEX", "8.0 s"),
        ("DELAY", None),
    ]


def test_timers_are_drawn_from_the_hour_in_which_they_were_counted() -> None:
    row = {"emitter": EMITTER, "event_time": at(10), "written": 9, "due_by_hour": [4, 0, 3]}
    (line,) = storage_lines.timer_lines(frame(BY_NAME["flush_checkpoints"].columns, row), {})
    assert storage_lines.timers_text([line]) == (
        "9 messages wait, 4 are due in this hour; 2 are due later than this shows"
    )
    (drawn,) = timers_due([line], colours=LIGHT)["data"]
    assert drawn["x"] == [at(0) + timedelta(hours=ahead) for ahead in range(3)]
    assert drawn["y"] == [4, 0, 3]
    silent = storage_lines.timer_lines(
        frame(BY_NAME["flush_checkpoints"].columns, row), {EMITTER: "silent"}
    )
    assert silent == []


def test_a_line_holds_until_the_next_report_and_is_broken_by_a_silence() -> None:
    reports = pl.concat(
        [
            replication(observed_at=at(second), loss_bytes=loss)
            for second, loss in ((-60, 7), (9, 5))
        ]
    )
    silence = pl.DataFrame(
        {"emitter": [EMITTER], "since": [at(30)], "until": [at(50)]}, schema=NO_SILENCE.schema
    )
    assert held(reports, "loss_bytes", SPAN, NO_SILENCE) == [(at(0), 7), (at(9), 5), (END, 5)]
    broken = [(at(0), 7), (at(9), 5), (at(30), None)]
    assert held(reports, "loss_bytes", SPAN, silence) == broken
    figure = loss_window(reports, NO_FLUSHES, span=SPAN, silences=silence, colours=LIGHT)
    assert figure["data"][0]["y"] == [7, 5, None]


def test_the_page_of_a_story_says_what_it_holds(story: Lake) -> None:
    context = PageContext(LakeData(story), clock=lambda: FRESH)
    shown = storage.content(context, "", "light")
    assert shown[1] == storage.SHOWN
    words = str(shown)
    for sentence in (
        *("0 messages", "3 messages", "8 min 20 s", "965 messages wait", "sync master"),
        *(f"{FAR} lacks 4.3 MiB", f"slave {NEAR} of a SYNC_MASTER", NOT_COUNTED),
        "The loss of broker-a would cost 0 B now",
    ):
        assert sentence in words
    assert tree(shown[7])
