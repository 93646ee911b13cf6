"""What the benchmarks say when things go badly, and that neither side is helped."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.bars import START_UNCLEAN, TELEMETRY_RATE_RATIO
from bench.brokers import RIVAL_SETTINGS, Side, cpu_seconds
from bench.java_load import Pace, _figures, shortcomings
from bench.throughput import _by_load, _compared


def test_a_bar_is_printed_with_its_sign_and_unit() -> None:
    assert str(TELEMETRY_RATE_RATIO) == "≥ 0.95"
    assert str(START_UNCLEAN) == "≤ 15 s"


def test_a_ratio_is_the_median_of_the_pairs_so_that_a_bad_moment_meets_both() -> None:
    figures = [
        {"bench": "send_sync", "threads": 64, "side": side, "msgs_per_s": rate}
        for ours, theirs in ((100, 200), (10, 20), (90, 180), (100, 100), (5, 50))
        for side, rate in enumerate((ours, theirs))
    ]
    ours, theirs = (_by_load(figures, side)["send, 64 in flight"] for side in range(2))
    assert _compared(ours, theirs, "msgs_per_s", ".0f") == ["90", "100", "0.50", "0.50-0.50"]


def test_a_rival_that_was_left_out_has_empty_cells() -> None:
    ours = [{"msgs_per_s": 100}]
    assert _compared(ours, [], "msgs_per_s", ".0f") == ["100", "", "", ""]


def test_a_message_costs_the_broker_whose_turn_it_is() -> None:
    busy, idle = "while True: pass", "input()"
    with (
        subprocess.Popen([sys.executable, "-c", idle], stdin=subprocess.PIPE) as rested,
        subprocess.Popen([sys.executable, "-c", busy]) as working,
    ):

        def lines() -> Iterator[str]:
            for side in (0, 1):
                yield json.dumps({"bench": "side", "side": side})
                until = cpu_seconds(working.pid) + 0.3
                while cpu_seconds(working.pid) < until:
                    time.sleep(0.01)
                yield json.dumps({"bench": "send_sync", "msgs": 1000})

        sides = [Side("", rested.pid), Side("", working.pid)]
        first, second = _figures(lines(), io.StringIO(), sides)
        rested.communicate(b"\n")
        working.kill()
    assert (first["side"], second["side"]) == (0, 1)
    assert second["broker_cpu_us"] >= 300
    assert first.get("broker_cpu_us", 0) < 300


def test_sends_that_failed_and_messages_that_never_came_are_named() -> None:
    found = shortcomings(
        [
            {"bench": "send_sync", "side": 1, "msgs": 10, "errors": 3},
            {"bench": "consume_backlog", "side": 0, "msgs": 7, "of": 8},
            {"bench": "consume_backlog", "side": 1, "msgs": 9, "of": 8},
        ]
    )
    assert found == [
        "send_sync of side 1: 3 sends failed beside 10",
        "consume_backlog of side 0: 7 of 8 messages came",
    ]


def test_a_short_or_cold_run_says_that_it_is_no_figure_of_record() -> None:
    assert str(Pace()) == "5 turns of 4 s after 20 s uncounted"
    for short in (Pace(rounds=4), Pace(seconds=3.0), Pace(warm_seconds=3.0)):
        assert str(short).endswith("too short for a figure of record")


def test_the_rival_has_the_settings_of_a_fresh_installation() -> None:
    assert RIVAL_SETTINGS["transactionCheckInterval"] == "30000"
    assert RIVAL_SETTINGS["enablePropertyFilter"] == "false"
