"""How soon a frozen head and a dead consumer are notified: within bars, before Burrow's rules."""

from __future__ import annotations

import pytest

from bench.analytics.detect import (
    DEAD_CONSUMER_BAR,
    EXPIRY_S,
    FROZEN_HEAD_BAR,
    PHASES,
    Detected,
    measured,
    table_of,
)
from bench.bars import Bar


@pytest.fixture(scope="module")
def found() -> list[Detected]:
    """What the bench measures."""
    return measured()


@pytest.mark.parametrize(
    ("kind", "within_s"), [("FROZEN_HEAD", FROZEN_HEAD_BAR.limit), ("DEAD_CONSUMER", EXPIRY_S)]
)
def test_every_one_is_reported_in_time_and_before_burrow(
    found: list[Detected], kind: str, within_s: float
) -> None:
    ours, burrow = (
        next(one for one in found if (one.kind, one.rules) == (kind, rules))
        for rules in ("ours", "burrow")
    )
    assert len(ours.after_s) == ours.planted == PHASES
    assert ours.longest_s is not None
    assert burrow.longest_s is not None
    assert ours.longest_s <= within_s
    assert ours.longest_s < burrow.longest_s


@pytest.mark.parametrize(
    ("kind", "bar"), [("FROZEN_HEAD", FROZEN_HEAD_BAR), ("DEAD_CONSUMER", DEAD_CONSUMER_BAR)]
)
def test_every_one_is_named_within_its_bar(found: list[Detected], kind: str, bar: Bar) -> None:
    named = next(one for one in found if (one.kind, one.rules) == (kind, "ours, kind named"))
    assert named.longest_s is not None
    assert named.longest_s <= bar.limit


def test_one_that_was_missed_took_longer_than_anything() -> None:
    missed = Detected("FROZEN_HEAD", "burrow", planted=2, after_s=(3.0,))
    assert missed.longest_s is None
    assert table_of([missed]).row_count == 1
