"""What a broker says of its own log and delay levels: how much is not flushed, what is overdue."""

from __future__ import annotations

import pytest

from engine.foundation.observing import DelayLevel, FlushDone
from engine.observer.own_figures import (
    EMITTED_EACH_MS,
    LATE_ALLOWED_MS,
    FiguresSeen,
    LogFigures,
    OwnFigures,
    bytes_between,
    delays_ms,
    own_figures,
)

RECORDED = {
    "commitLogMaxOffset": "45703",
    "remainHowManyDataToFlush": "2.1 KiB",
    "dispatchBehindBytes": "0",
    "scheduleMessageOffset_1": "4,4",
    "scheduleMessageOffset_3": "2,2",
}
"""Of a RocketMQ 5.5."""


def test_figures_of_a_rocketmq_are_read() -> None:
    found = own_figures(RECORDED)
    assert found.log == LogFigures(45703, 45703 - 2202, 45703 - 2099)
    assert found.levels == {1: (4, 4), 3: (2, 2)}


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0 B", (0, 0)),
        ("1023 B", (1023, 1023)),
        ("2.1 KiB", (2099, 2202)),
        ("1.0 GiB", (1_020_054_732, 1_127_428_916)),
        ("2.1 kB", None),
        ("-1 B", None),
        ("many", None),
        ("", None),
    ],
)
def test_a_size_in_words_lies_between_two_numbers(text: str, span: tuple[int, int] | None) -> None:
    assert bytes_between(text) == span


def test_what_is_no_figure_is_not_there() -> None:
    odd = {
        "commitLogMaxOffset": "9" * 30,
        "remainHowManyDataToFlush": "0 B",
        "scheduleMessageOffset_0": "1,1",
        "scheduleMessageOffset_x": "1,1",
        "scheduleMessageOffset_4": "1",
        "scheduleMessageOffset_5": "-1,4",
    }
    assert own_figures(odd) == OwnFigures()
    assert own_figures({}) == OwnFigures()


def test_delays_are_those_of_the_settings() -> None:
    assert delays_ms("1s 5s 2m 1h") == {1: 1000, 2: 5000, 3: 120_000, 4: 3_600_000}
    assert delays_ms("1s soon") == {}
    assert delays_ms("") == {}


def flushes(*looks: tuple[int, int]) -> list[list[tuple[int | None, int | None, int]]]:
    """Written, flushed and how many ended, of each look of (written, bytes that wait)."""
    seen = FiguresSeen()
    return [
        [
            (one.written, one.flushed, one.ended)
            for one in seen.of(OwnFigures(LogFigures(end, end - wait, end - wait)), {}, 0)
            if isinstance(one, FlushDone)
        ]
        for end, wait in looks
    ]


def test_a_flush_has_ended_when_the_log_is_flushed_further_and_a_resting_log_is_reported_once() -> (
    None
):
    reported = flushes((100, 0), (200, 50), (200, 50), (300, 150), (300, 0), (300, 0))
    assert reported == [[], [(200, 150, 1)], [(200, 150, 0)], [(300, 150, 0)], [(300, 300, 1)], []]


def test_what_may_be_rounding_is_no_flush() -> None:
    seen = FiguresSeen()
    first, second = LogFigures(1000, 890, 910), LogFigures(1010, 905, 925)
    list(seen.of(OwnFigures(first), {}, 0))
    (flush,) = seen.of(OwnFigures(second), {}, 10)
    assert isinstance(flush, FlushDone)
    assert flush.ended == 0


def levels(*looks: tuple[int, int, int]) -> list[list[int]]:
    """What is overdue at each look of (second, next, end) of a level of ten seconds."""
    seen = FiguresSeen()
    return [
        [
            one.overdue
            for one in seen.of(OwnFigures(levels={3: (cursor, end)}), {3: 10_000}, second * 1000)
            if isinstance(one, DelayLevel)
        ]
        for second, cursor, end in looks
    ]


def test_what_was_there_longer_ago_than_the_delay_is_overdue() -> None:
    late_s = 10 + LATE_ALLOWED_MS // 1000
    assert levels((0, 5, 5), (10, 5, 8), (20, 5, 9), (10 + late_s, 5, 9), (20 + late_s, 5, 9)) == [
        *([], [0], [0]),
        *([3], [4]),
    ]
    assert levels((0, 5, 8), (late_s, 8, 8)) == [[0], [0]]


def test_a_level_that_is_worked_off_in_time_is_never_overdue() -> None:
    reported = levels(*((second, max(0, second - 10), second) for second in range(0, 200, 10)))
    assert {overdue for each in reported for overdue in each} == {0}


def test_what_waits_is_reported_again_and_what_rests_is_not() -> None:
    again_s = EMITTED_EACH_MS // 1000
    seen = FiguresSeen()
    counts = [
        len(list(seen.of(OwnFigures(levels={1: place}), {1: 7_200_000}, 1000 * second)))
        for second, place in ((0, (1, 2)), (10, (1, 2)), (again_s, (1, 2)), (again_s + 1, (2, 2)))
    ]
    assert counts == [1, 0, 1, 1]
    assert not list(FiguresSeen().of(OwnFigures(levels={1: (2, 2)}), {1: 1000}, 10**9))


def test_of_a_level_without_a_delay_nothing_is_reported() -> None:
    assert list(FiguresSeen().of(OwnFigures(levels={1: (1, 9)}), {}, 0)) == []
