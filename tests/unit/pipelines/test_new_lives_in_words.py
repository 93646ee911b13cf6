"""Topics that were made again, as pages and answers say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.sentences.new_lives import new_lives

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT = "Topic t was made again at 12:00:05 UTC."
PERHAPS = "Group h may have passed over up to 3 messages of its new life."
Row = dict[str, Any]


def made(at_s: float, **more: Any) -> Row:
    """The topic t was made again."""
    row = {"observed_at": NOON + timedelta(seconds=at_s), "cluster": "c", "topic": "t"}
    return {**row, "broker": "a", **more}


def passed(at_s: float, outcome: str, to_offset: int, **more: Any) -> Row:
    """What is known of a group five seconds later."""
    row = made(at_s + 5, **{"group": "g", "outcome": outcome, "from_offset": 0, **more})
    return {**row, "to_offset": to_offset, "made_again_at": NOON + timedelta(seconds=at_s)}


@pytest.mark.parametrize(
    ("lives", "rows", "said"),
    [
        ([made(5)], [], [AT]),
        ([made(5)], [passed(5, "READ", 0)], [AT]),
        (
            [made(5), made(6, broker="b")],
            [passed(5, "PASSED_OVER", 6), passed(6, "PASSED_OVER", 4, broker="b")],
            [
                f"{AT} Group g passed over 10 messages of its new life.",
            ],
        ),
        (
            [],
            [passed(5, "PASSED_OVER", 1), passed(5, "UNKNOWN", 3, group="h")],
            [
                f"{AT} Group g passed over 1 message of its new life. {PERHAPS}",
            ],
        ),
        (
            [made(5), made(300), made(6, topic="u"), made(7, cluster="d")],
            [],
            [
                *(AT, "Topic u was made again at 12:00:06 UTC."),
                *(
                    "Topic t was made again at 12:00:07 UTC.",
                    "Topic t was made again at 12:05:00 UTC.",
                ),
            ],
        ),
    ],
    ids=["a mark", "all was read", "two brokers", "of a life before the range", "several"],
)
def test_each_new_life_is_said_once(lives: list[Row], rows: list[Row], said: list[str]) -> None:
    assert [one.text for one in new_lives(lives, rows)] == said


def test_what_is_lost_is_news_when_it_is_known() -> None:
    (mark,), (loss,) = new_lives([made(5)], []), new_lives([made(5)], [passed(5, "UNKNOWN", 2)])
    assert (mark.at, mark.is_loss) == (NOON + timedelta(seconds=5), False)
    assert (loss.at, loss.is_loss) == (NOON + timedelta(seconds=10), True)
