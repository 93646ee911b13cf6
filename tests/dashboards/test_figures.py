"""Figures are functions: rows in, figure out; nothing else is needed to see that they show the
truth. Here plotly checks every word of them, which no page waits for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import plotly.colors
import plotly.graph_objects as go
import polars as pl
import pytest
from plotly.subplots import make_subplots

from dashboards.figures.lag_heatmap import COLUMNS_MAX, bucket, depth, height, lag_heatmap
from dashboards.figures.lag_timeline import (
    PANEL_GAP,
    PANELS,
    POINTS_MAX,
    QUEUES_MAX,
    lag_timeline,
    thinned,
)
from dashboards.figures.plotly_data import CIVIDIS, figure_of, scatter
from dashboards.models.lag_overview import BrokerEvent
from dashboards.reads.lag_series import NO_SILENCE, held_cells, held_line
from dashboards.reads.lake_data import LakeData
from dashboards.theme import DARK, LIGHT
from dashboards.url_state import Span
from pipelines.lake.lake import Lake
from tests.gold_lake import END, START

SPAN = Span(START, END, END, END)
MOMENT = pl.Datetime("us", "UTC")
NO_MARKS: dict[str, pl.DataFrame] = {}


def span_of(seconds: float, *, silent_s: float = 0) -> Span:
    end = START + timedelta(seconds=seconds)
    return Span(START, end, end - timedelta(seconds=silent_s), end)


def cells(*rows: tuple[str, int, int | None]) -> pl.DataFrame:
    """(group, second, time lag ms)."""
    return pl.DataFrame(
        [
            {
                "cluster": "c",
                "group": group,
                "bucket": START + timedelta(seconds=second),
                "time_lag_ms": lag_ms,
                "lag_messages": 12,
            }
            for group, second, lag_ms in rows
        ],
        schema_overrides={"time_lag_ms": pl.Int64},
    )


def heatmap(frame: pl.DataFrame, groups: list[str], span: Span) -> go.Figure:
    return go.Figure(
        lag_heatmap(
            frame,
            groups=[("c", group) for group in groups],
            marks=NO_MARKS,
            span=span,
            colours=LIGHT,
        )
    )


class TestHeatmap:
    def test_colour_is_the_logarithm_of_seconds_and_an_unknown_lag_is_a_gap(self) -> None:
        assert [depth(ms) for ms in (0, 9_000, 99_000, None)] == [0.0, 1.0, 2.0, None]

        figure = heatmap(
            cells(("a", 0, 9_000), ("a", 1, None), ("b", 2, 0)), ["a", "b"], span_of(3)
        )

        assert [list(row) for row in figure.data[0].z] == [[1.0, None, None], [None, None, 0.0]]

    def test_the_first_group_is_on_top(self) -> None:
        figure = heatmap(cells(("a", 0, 1), ("b", 0, 1)), ["b", "a"], span_of(3))

        assert list(figure.layout.yaxis.ticktext) == ["b", "a"]
        assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]

    @pytest.mark.parametrize("hours", [0.1, 1, 24, 24 * 7, 24 * 31])
    def test_no_range_has_more_columns_than_fit(self, hours: float) -> None:
        span = span_of(hours * 3600)
        figure = heatmap(cells(("a", 0, 1)), ["a"], span)

        assert len(figure.data[0].x) <= COLUMNS_MAX + 1
        assert bucket(span) * COLUMNS_MAX >= min(span.length, timedelta(days=31))

    def test_silence_is_a_hatched_edge_with_words(self) -> None:
        fresh = heatmap(cells(("a", 0, 1)), ["a"], span_of(300, silent_s=15))
        silent = heatmap(cells(("a", 0, 1)), ["a"], span_of(300, silent_s=120))

        assert len(fresh.data) == 1
        edge = silent.data[1]
        assert edge.name == "no data since 12:03:00"
        assert edge.fillpattern.shape == "/"
        assert edge.x[0] == START + timedelta(seconds=180)

    def test_few_groups_get_tall_rows_and_many_get_low_ones(self) -> None:
        assert height(1) < height(3) < height(50)
        assert (height(50) - height(49)) < (height(2) - height(1))

    def test_a_name_that_wants_to_be_markup_is_a_label(self) -> None:
        name = "<b>x</b>&lt;img src=x>\u202e"
        figure = heatmap(cells((name, 0, 1)), [name], span_of(3))

        assert list(figure.layout.yaxis.ticktext) == ["‹b›x‹/b›&amp;lt;img src=x›\ufffd"]


def story_rows(story: Lake, group: str) -> dict[str, Any]:
    data = LakeData(story).seen()
    windows = {
        name: data.present(table, START, END).filter(pl.col("group") == group)
        for name, table in (("stalls", "stalled_windows"), ("risks", "duplicate_risk_windows"))
    }
    return {
        "lag": data.group_rows("consumer_lag", group, START, END),
        "rebalances": data.group_rows("rebalances", group, START, END),
        **windows,
    }


def timeline(rows: dict[str, Any]) -> go.Figure:
    return go.Figure(lag_timeline(**rows, span=SPAN, colours=DARK))


def texts(figure: go.Figure) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


class TestTimeline:
    def test_time_lag_and_messages_share_one_time_axis(self, story: Lake) -> None:
        figure = timeline(story_rows(story, "shipping"))

        seconds = next(t for t in figure.data if t.name == "orders 2" and t.yaxis == "y2")
        messages = next(t for t in figure.data if t.name == "orders 2" and t.yaxis == "y3")
        assert list(seconds.x) == list(messages.x)
        assert (seconds.y[-1], messages.y[-1]) == (394.0, 3152)
        assert figure.layout.xaxis.matches == figure.layout.xaxis2.matches == "x3"

    def test_bands_carry_pattern_and_text_beside_their_colour(self, story: Lake) -> None:
        figure = timeline(story_rows(story, "shipping"))

        patterns = {t.fillpattern.shape for t in figure.data if t.fill == "toself"}
        assert patterns == {"/", "x"}
        assert "orders 2 stalled, frozen head" in texts(figure)
        assert "orders 2 exposed to a consumer crash, 192 at risk, possible" in texts(figure)

    def test_a_window_still_open_is_drawn_to_the_end_of_data_and_not_beyond(
        self, story: Lake
    ) -> None:
        rows = story_rows(story, "shipping")
        late = Span(START, END + timedelta(minutes=5), END, END + timedelta(minutes=5))
        figure = go.Figure(lag_timeline(**rows, span=late, colours=LIGHT))

        bars = [t for t in figure.data if t.fill == "toself" and t.yaxis in (None, "y")]
        assert max(moment for bar in bars for moment in bar.x) == END
        assert "no data since 12:15:00" in texts(figure)

    def test_each_change_of_members_is_a_mark_and_a_dashed_line_in_both_panels(
        self, story: Lake
    ) -> None:
        rows = story_rows(story, "billing")
        figure = timeline(rows)

        marks = [t for t in figure.data if t.mode == "markers"]
        assert len(marks[0].x) == rows["rebalances"].height == 3
        dashed = [shape for shape in figure.layout.shapes if shape.line.dash == "dash"]
        assert len(dashed) == 2 * 3

    def test_a_queue_without_a_known_lag_draws_no_line(self, story: Lake) -> None:
        figure = timeline(story_rows(story, "ledger"))

        assert {t.name for t in figure.data if t.mode == "lines" and t.name} == {
            f"payments {number}" for number in range(4)
        }

    def test_only_the_worst_queues_have_lines(self) -> None:
        lag = pl.DataFrame(
            [
                {
                    "emitter": "c/b/0",
                    "cluster": "c",
                    "broker": "b",
                    "topic": "t",
                    "queue_id": number,
                    "observed_at": START,
                    "seq": number,
                    "time_lag_ms": number * 1000,
                    "lag_messages": number,
                }
                for number in range(20)
            ]
        )
        nothing: dict[str, pl.DataFrame] = {
            name: pl.DataFrame(schema=dict.fromkeys(("opened_at", "observed_at"), MOMENT))
            for name in ("stalls", "risks", "rebalances")
        }

        figure = timeline({"lag": lag, **nothing})

        names = {t.name for t in figure.data}
        assert names == {f"t {number}" for number in range(20 - QUEUES_MAX, 20)}

    def test_thinning_keeps_every_spike(self) -> None:
        moments = [START + timedelta(seconds=second) for second in range(86_400)]
        values = [5_000 if second % 7_200 == 4_321 else second % 3 for second in range(86_400)]
        rows = pl.DataFrame({"observed_at": moments, "time_lag_ms": values})

        kept = thinned(rows, "time_lag_ms")

        assert kept.height <= POINTS_MAX
        assert kept.filter(pl.col("time_lag_ms") == 5_000).height == 12
        assert kept["observed_at"].is_sorted()


class TestWords:
    def test_plotly_knows_every_word_of_a_figure_with_everything_in_it(self, story: Lake) -> None:
        silent = Span(START, END + timedelta(minutes=5), END, END + timedelta(minutes=5))
        marks = {
            kind: pl.DataFrame(
                {"cluster": ["c"], "group": ["a"], "at": [START + timedelta(minutes=1)]}
            )
            for kind in ("stall", "rebalance", "dead")
        }
        brokers = [BrokerEvent(START + timedelta(minutes=2), "c", "broker-a", "BOOT", clean=False)]
        map_of_all = go.Figure(
            lag_heatmap(
                cells(("a", 0, 1)),
                groups=[("c", "a")],
                marks=marks,
                span=silent,
                colours=LIGHT,
                brokers=brokers,
            )
        )
        rows = story_rows(story, "shipping")
        chart_of_all = go.Figure(lag_timeline(**rows, span=silent, colours=DARK, brokers=brokers))

        assert [trace.type for trace in map_of_all.data] == ["heatmap"] + ["scatter"] * 5
        assert len(chart_of_all.data) > len(map_of_all.data)
        assert chart_of_all.layout.annotations
        assert chart_of_all.layout.shapes

    def test_what_is_no_word_of_plotly_is_refused(self) -> None:
        with pytest.raises(ValueError, match="gaps"):
            go.Figure(figure_of([scatter(x=[1], y=[1], gaps=True)], {}))

    def test_the_colours_of_lag_are_those_of_matplotlib(self) -> None:
        assert [colour for _, colour in CIVIDIS] == plotly.colors.sequential.Cividis

    def test_panels_share_the_height_and_leave_their_gaps(self, story: Lake) -> None:
        axes = timeline(story_rows(story, "ledger")).layout
        of_plotly = make_subplots(
            rows=3, cols=1, shared_xaxes=True, vertical_spacing=PANEL_GAP, row_heights=list(PANELS)
        ).layout
        for number in ("", 2, 3):
            ours, theirs = axes[f"yaxis{number}"], of_plotly[f"yaxis{number}"]
            assert list(ours.domain) == pytest.approx(list(theirs.domain), abs=1e-6)
            assert ours.anchor == theirs.anchor
            time, shared = axes[f"xaxis{number}"], of_plotly[f"xaxis{number}"]
            assert (time.anchor, time.matches) == (shared.anchor, shared.matches)
            assert time.showticklabels == shared.showticklabels


def test_a_figure_is_the_same_bytes_for_the_same_rows(story: Lake) -> None:
    rows = story_rows(story, "ledger")
    assert timeline(rows).to_json() == timeline(rows).to_json()
    assert isinstance(SPAN.end, datetime)


class TestBetweenReports:
    """A queue is reported when it changed and each 30 s; in between, what is known is exact."""

    @staticmethod
    def reports(*rows: tuple[int, int, int]) -> pl.DataFrame:
        """(second, messages behind, time lag ms) of one queue."""
        return pl.DataFrame(
            [
                {
                    "emitter": "c/b/0",
                    "cluster": "c",
                    "broker": "b",
                    "group": "g",
                    "topic": "t",
                    "queue_id": 0,
                    "observed_at": START + timedelta(seconds=second),
                    "seq": second,
                    "lag_messages": lag,
                    "time_lag_ms": time_lag_ms,
                }
                for second, lag, time_lag_ms in rows
            ]
        )

    @staticmethod
    def cells(rows: pl.DataFrame, until_s: int, step_s: int = 5) -> list[tuple[int, int]]:
        found = held_cells(
            rows.lazy(), until=START + timedelta(seconds=until_s), step=timedelta(seconds=step_s)
        ).collect()
        seconds = (found["bucket"] - START).dt.total_seconds().to_list()
        return list(zip(seconds, found["time_lag_ms"].to_list(), strict=True))

    def test_what_waits_grows_older_and_what_does_not_stays_zero(self) -> None:
        waiting = self.reports((0, 2, 1_000), (15, 2, 16_000))
        assert self.cells(waiting, 15) == [(0, 1_000), (5, 6_000), (10, 11_000), (15, 16_000)]
        idle = self.reports((0, 0, 0), (15, 0, 0))
        assert self.cells(idle, 15) == [(0, 0), (5, 0), (10, 0), (15, 0)]

    def test_what_is_not_reported_again_has_not_changed_for_a_snapshot_period(self) -> None:
        rows = self.reports((0, 2, 1_000), (60, 2, 61_000))
        assert [second for second, _ in self.cells(rows, 60, 20)] == [0, 20, 40, 60]
        line = held_line(rows)
        assert line["time_lag_ms"].to_list() == [1_000, 60_999, 61_000]
        late = self.reports((0, 2, 1_000), (800, 2, 801_000))
        assert [second for second, _ in self.cells(late, 800, 100)] == [
            *range(0, 800, 100),
            800,
        ]
        assert held_line(late)["time_lag_ms"].to_list() == [1_000, 745_999, None, 801_000]

    def test_while_its_emitter_is_silent_nothing_is_known_of_a_queue(self) -> None:
        rows = self.reports((0, 2, 1_000), (120, 2, 121_000))
        silences = pl.DataFrame(
            {
                "emitter": ["c/b/0"],
                "since": [START + timedelta(seconds=20)],
                "until": [START + timedelta(seconds=90)],
            },
            schema=NO_SILENCE.schema,
        )
        cells = held_cells(
            rows.lazy(),
            until=START + timedelta(seconds=120),
            step=timedelta(seconds=10),
            silences=silences,
        ).collect()
        seconds = (cells["bucket"] - START).dt.total_seconds().to_list()
        assert seconds == [0, 10, 120]
        line = held_line(rows, silences=silences)
        assert line["time_lag_ms"].to_list() == [1_000, 20_999, None, 121_000]

    def test_a_line_begins_with_what_held_and_goes_on_to_the_end_of_data(self) -> None:
        rows = self.reports((0, 2, 1_000), (60, 0, 0))
        line = held_line(
            rows, since=START + timedelta(seconds=30), until=START + timedelta(seconds=90)
        )
        seconds = (line["observed_at"] - START).dt.total_seconds().to_list()
        assert seconds == [30, 59, 60, 90]
        assert line["time_lag_ms"].to_list() == [31_000, 60_999, 0, 0]

    def test_nothing_is_held_beyond_the_end_of_data(self) -> None:
        assert [second for second, _ in self.cells(self.reports((0, 2, 1_000)), 12)] == [0, 5, 10]

    def test_a_busy_queue_does_not_hide_a_quiet_one_that_stands(self) -> None:
        quiet = self.reports((0, 2, 40_000), (20, 2, 60_000))
        busy = self.reports(*((second, 1, 10) for second in range(0, 21, 5))).with_columns(
            pl.lit(1, pl.Int64).alias("queue_id")
        )
        lags = [lag for _, lag in self.cells(pl.concat([quiet, busy]), 20)]
        assert lags == [40_000, 45_000, 50_000, 55_000, 60_000]
