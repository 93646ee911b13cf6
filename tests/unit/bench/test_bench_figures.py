"""What the benchmarks say when things go badly: late commits count, bars are in words."""

from __future__ import annotations

import time

from bench.bars import COMMIT_TO_GOLD_P95, TELEMETRY_RATE_RATIO
from bench.freshness import TOPIC, Commits
from engine.protocol.message import MessageQueue

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def test_a_commit_that_gold_and_page_never_show_counts_at_its_age() -> None:
    commits = Commits()
    commits.answered(QUEUE, 1)
    commits.in_gold({0: 1})
    commits.on_page(time.time())
    an_hour_ago = time.time() - 3600
    commits.waiting.append((an_hour_ago, 0, 2))
    commits.off_page.append(an_hour_ago)
    commits.in_gold({0: 1})
    commits.give_up()
    assert (commits.unseen_in_gold, commits.unseen_on_page) == (1, 1)
    for took_s in (commits.to_gold_s, commits.to_page_s):
        assert len(took_s) == 2
        assert took_s[0] < 3600 <= took_s[1]


def test_commits_after_the_last_that_counts_are_not_measured() -> None:
    commits = Commits(closed=True)
    commits.answered(QUEUE, 1)
    assert not commits.waiting
    assert not commits.off_page


def test_a_bar_is_printed_with_its_sign_and_unit() -> None:
    assert str(TELEMETRY_RATE_RATIO) == "≥ 0.95"
    assert str(COMMIT_TO_GOLD_P95) == "≤ 15 s"
