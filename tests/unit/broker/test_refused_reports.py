"""Refused reports of offsets: the first is news, the others are counted."""

from __future__ import annotations

from engine.broker.offsets.offset_facts import REFUSED_REPORT_EVERY_MS, RefusedReports, ReportKey


def report(offset: int, *, client: str = "c", life: int = 1) -> ReportKey:
    """A report of queue 0."""
    return ("g", "t", 0), life, client, offset


def test_the_same_report_has_a_row_at_once_and_then_one_a_period_that_counts_the_others() -> None:
    refused = RefusedReports()
    taken = {
        now_ms: held_back
        for now_ms in range(0, 2 * REFUSED_REPORT_EVERY_MS + 1, 5_000)
        if (held_back := refused.take(report(10), now_ms=now_ms)) is not None
    }
    assert taken == {0: 0, REFUSED_REPORT_EVERY_MS: 119, 2 * REFUSED_REPORT_EVERY_MS: 119}


def test_another_offset_another_client_and_another_life_are_news() -> None:
    refused = RefusedReports()
    assert refused.take(report(10), now_ms=0) == 0
    for other in (report(11), report(10, client="d"), report(10, life=2)):
        assert refused.take(other, now_ms=1) == 0
        assert refused.take(other, now_ms=2) is None


def test_beyond_its_limit_a_report_has_no_row_until_an_old_one_makes_room() -> None:
    refused = RefusedReports(count_max=2)
    assert refused.take(report(1), now_ms=0) == 0
    assert refused.take(report(2), now_ms=5) == 0
    assert refused.take(report(3), now_ms=10) is None
    assert refused.take(report(3), now_ms=REFUSED_REPORT_EVERY_MS) == 0
    assert refused.take(report(2), now_ms=REFUSED_REPORT_EVERY_MS) is None, "it stayed"
