"""What is said of figures that were polled: how often, and how far they may be off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.reading.emitters import watched_text
from pipelines.reading.moment import Moment, Reached
from pipelines.tm.clusters import judged

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def moment(**periods_ms: int | None) -> Moment:
    """Emitters by the last part of their names; a number is a broker of its own."""
    return Moment(
        "run",
        1,
        tuple(
            Reached(f"c/b/{name.removeprefix('broker_')}", NOON, 1, report_each_ms=each)
            for name, each in periods_ms.items()
        ),
    )


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (moment(broker_0=None), None),
        (moment(eye=10_000), "watched from outside each 10 s: times are right to ± 10 s"),
        (
            moment(broker_0=None, eye=10_000, other=2_000),
            "watched from outside each 2.0 s to 10 s: times are right to ± 10 s",
        ),
        (moment(eye=None), "watched from outside"),
    ],
)
def test_the_longest_period_is_the_error(seen: Moment, said: str | None) -> None:
    assert watched_text(seen) == said


def test_of_some_emitters_their_own_alone() -> None:
    seen = moment(broker_0=None, eye=10_000)
    assert watched_text(seen, ["c/b/0"]) is None
    assert watched_text(seen, ["c/b/eye"]) == watched_text(seen)


def test_answers_in_words_say_so() -> None:
    sentence = judged(NOON, moment(eye=10_000), NOON + timedelta(seconds=1))
    assert sentence.endswith(
        "UTC. It is watched from outside each 10 s: times are right to ± 10 s."
    )
    assert judged(NOON, moment(broker_0=None)).endswith("UTC.")
