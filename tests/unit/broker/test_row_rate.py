"""So many rows a second, and those beyond are counted."""

from __future__ import annotations

from engine.broker.reporting.offset_answers import RowsPerSecond


def test_each_second_has_its_own_room() -> None:
    rate = RowsPerSecond(2)
    assert [rate.has_room(at_ms) for at_ms in (0, 999, 999, 1000, 1999, 1999, 5000)] == [
        *(True, True, False),
        *(True, True, False),
        True,
    ]
    assert rate.untold == 2
