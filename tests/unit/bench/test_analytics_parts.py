"""The analytics bench: what figures say, and that no part takes the others along."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import CHOICES
from bench.analytics.figures import Figure, as_json, as_markdown, from_json
from bench.analytics.live import page_delays_s, percentile
from bench.analytics.live_million import CYCLE
from bench.analytics.moving import Movers
from bench.analytics.parts import BY_NAME, END_PATIENCE_S, MARK, Part, end, marked, run_parts
from bench.analytics.reading_browser import main_thread_tasks_ms
from bench.analytics.sightings import Sightings
from bench.bars import at_least, at_most
from pipelines.cycles.driver import Progress
from pipelines.lake.lake import Lake


def test_a_figure_is_held_on_the_good_side_of_its_bar_and_unknown_without_a_value() -> None:
    slow, fast = at_most(5, "s"), at_least(200_000, "rows/s")
    assert Figure("x", 5.0, "s", slow).verdict == "held"
    assert Figure("x", 5.01, "s", slow).verdict == "missed"
    assert Figure("x", 200_001.0, "rows/s", fast).verdict == "held"
    assert Figure("x", 199_999.0, "rows/s", fast).verdict == "missed"
    assert Figure("x", None, "s", slow, note="no browser").verdict == "unknown"
    assert Figure("x", 1.0).verdict == ""


def test_figures_come_back_as_they_were_sent_between_processes() -> None:
    figures = [
        Figure("x", 5.0, "s", at_most(5, "s"), wall_s=1.0, cpu_s=2.0, note="n"),
        Figure("y", None, note="why"),
    ]
    assert from_json(as_json(figures)) == figures


def test_the_table_for_the_page_of_figures_says_what_is_missed_and_why_nothing_is_known() -> None:
    figures = [
        ("bench --only a", Figure("job", 31.06, "s", at_most(30, "s"), wall_s=31.06, cpu_s=40.0)),
        ("bench --only b", Figure("page", None, "s", at_most(7, "s"), note="no a|b")),
    ]
    assert as_markdown(figures).splitlines()[2:] == [
        "| job | 31.1 s | ≤ 30 s | **missed** | 31.1 | 40.0 | `bench --only a` |",
        "| page | not measured: no a\\|b | ≤ 7 s | **unknown** |  |  | `bench --only b` |",
    ]


def test_every_part_can_be_asked_for_alone() -> None:
    assert {f"analytics.{name}" for name in BY_NAME} < set(CHOICES)


def test_a_part_that_is_not_there_costs_itself_alone(tmp_path: Path) -> None:
    absent = Part("absent", "no_such_module", 20, "what it would have measured")
    ((part, figures),) = run_parts([absent], tmp_path, scale=1)
    assert part is absent
    (figure,) = figures
    assert (figure.what, figure.value) == (absent.what, None)
    assert "ended with code 1" in figure.note


def test_when_the_time_of_all_is_over_the_rest_is_shown_as_not_measured(tmp_path: Path) -> None:
    late = Part("late", "no_such_module", 20, "what it would have measured")
    ((_, (figure,)),) = run_parts([late], tmp_path, scale=1, together_s=1)
    assert figure.note == "the 1 s of all parts were over"
    assert list(tmp_path.iterdir()) == [], "it was not begun"


GRANDCHILD = """
import subprocess, sys, time
subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True
)
print("born", flush=True)
time.sleep(300)
"""


def test_what_a_part_has_started_ends_with_it_whatever_session_it_is_in() -> None:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    with subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"born\n"
        assert len(marked(mark)) == 2
        begun_s = time.monotonic()
        end(process, mark)
        assert time.monotonic() - begun_s < END_PATIENCE_S
    deadline_s = time.monotonic() + 10
    while marked(mark) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert marked(mark) == []


def test_a_commit_is_in_gold_with_the_first_row_that_has_it_or_a_later_one(tmp_path: Path) -> None:
    keys = [("g", "t", 0), ("g", "t", 1)]
    gold = Sightings(Lake.at(str(tmp_path)), keys)
    gold.seen = [(10.0, {0: 1}), (12.0, {0: 3, 1: 3})]
    commits = {0: {1: 9.0, 2: 10.0, 3: 11.0, 4: 99.0}}
    delays, unseen = gold.delays_s(commits, since_s=9.0, until_s=50.0)
    assert sorted(delays.tolist()) == [1.0, 1.0, 1.0, 2.0, 2.0, 3.0]
    assert unseen == 0


def test_a_commit_that_gold_never_shows_counts_at_its_age(tmp_path: Path) -> None:
    gold = Sightings(Lake.at(str(tmp_path)), [("g", "t", 0)])
    when_s = time.time() - 3600
    delays, unseen = gold.delays_s({0: {1: when_s}}, since_s=0, until_s=time.time())
    assert unseen == 1
    assert delays[0] >= 3600


def test_keys_that_report_in_turns_are_waited_for_in_their_own_rounds(tmp_path: Path) -> None:
    keys = [("g", "t", number) for number in range(4)]
    gold = Sightings(Lake.at(str(tmp_path)), keys)
    gold.seen = [(5.0, {0: 2, 2: 2}), (7.0, {1: 3, 3: 3})]
    delays, unseen = gold.delays_s({0: {2: 4.0}, 1: {3: 5.0}}, since_s=0, until_s=9)
    assert (sorted(delays.tolist()), unseen) == ([1.0, 1.0, 2.0, 2.0], 0)


def test_a_moment_is_on_the_page_when_the_page_has_reached_it_even_if_it_falls_back() -> None:
    seen = [(1.0, 0.5), (2.0, 1.5), (3.0, 1.0), (4.0, 2.5)]
    assert page_delays_s([0.5, 1.2, 2.0, 3.0], seen, now_s=9.0).tolist() == [
        0.5,
        pytest.approx(0.8),
        2.0,
        6.0,
    ]


def test_movers_have_the_keys_that_were_asked_for() -> None:
    for keys in (10, 1_000, 10_000):
        assert len(set(Movers(keys).keys)) == keys


def test_the_pipeline_s_own_lines_are_understood() -> None:
    line = str(Progress(7, 1_000, {"a": 2, "b": 3}, 1_772_366_400_000_000, 1.25))
    found = CYCLE.match(line)
    assert found is not None, line
    assert found.groups() == ("7", "1000", "5", "1.2")


def test_tasks_of_other_threads_than_the_main_one_are_not_counted() -> None:
    task = {"name": "ThreadControllerImpl::RunTask", "tdur": 5_000}
    events = [
        {"name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "CrRendererMain"}},
        {"name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "Compositor"}},
        {**task, "pid": 1, "tid": 2},
        {**task, "pid": 1, "tid": 3, "tdur": 900_000},
    ]
    assert main_thread_tasks_ms(events) == [5.0]


def test_of_no_commits_no_percentile_is_made_up() -> None:
    assert percentile(np.empty(0), 0.95) is None
    assert percentile(np.arange(101.0), 0.95) == 95
